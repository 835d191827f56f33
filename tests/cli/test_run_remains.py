"""What a governed command may leave behind: daemons, and a workspace that cannot be compared."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import psutil
import pytest

from tests.cli.realm import COMMAND, CliRealm, environment
from tests.cli.test_run_command import last, realm, run, template, texts
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

__all__ = ["realm", "template"]


def test_a_command_that_makes_folders_too_deep_to_be_compared_is_undone(realm: CliRealm) -> None:
    before = texts(realm)
    script = "cd src; echo new > x.py; i=0; while [ $i -le 200 ]; do mkdir d; cd d; i=$((i+1)); done"
    said = run(realm, "--writes", "src/**", script=script, code=122)
    assert "more than 200 levels" in said.err
    assert texts(realm) == before
    assert not (realm.folder / "src/d").exists()
    assert last(realm)["outcome"] == "interrupted"


DAEMON = """
import os, sys
waits = "import os; print(os.getpid(), flush=True); os.close(1); os.close(2); os.read(0, 1)"
os.setsid()
if os.fork() == 0:
    argv = [sys.executable, "-I", "-S", "-c", waits]
    os.execve(argv[0], argv, {} if sys.argv[1] == "forgets" else os.environ)
"""


@pytest.mark.parametrize("how", ["keeps", "forgets"])
def test_a_daemon_of_an_unconfined_command_ends_unless_it_left_its_session_and_its_environment(
    realm: CliRealm, how: str
) -> None:
    reading, writing = os.pipe()
    script = f"{shlex.join([sys.executable, '-c', DAEMON, how])} | {{ read -r pid; echo $pid; }}"
    done = subprocess.run(
        [*COMMAND, "run", "--agent", "bot", "--unconfined", "--reads", "a.txt", "--", "sh", "-c", script],
        cwd=realm.folder,
        env=environment(),
        stdin=reading,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    os.close(reading)
    try:
        assert done.returncode == 0, done.stderr
        assert is_running(int(done.stdout)) is (how == "forgets")
    finally:
        os.close(writing)  # which ends it


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
