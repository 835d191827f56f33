"""A command does not outlive the engine that started it, and begins in the folder that was opened."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from host.confinement import landlock, watcher
from tests.host.confining import Ground
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

ENGINE = """
import json, os, sys
sys.path[:0] = json.loads(sys.argv[1])
from host.confinement import ALLOW, Confinement, Runtime, rules_for, start
from host.workspace import Workspace
confinement = Confinement()
if sys.argv[2] == "confined":
    runtime = Runtime.standard(command="/bin/sleep", private=[])
    confinement = Confinement(rules_for([], Workspace(sys.argv[3]), runtime), lambda _: ALLOW)
options = {"cwd": sys.argv[3], "stdin": -3, "stdout": -3, "stderr": -3}
command = start(["/bin/sleep", "600"], env=dict(os.environ), confinement=confinement, **options)
print(command.pid, flush=True)
command.wait()
"""


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def can_confine() -> bool:
    return landlock.available().why_not is None and watcher.available().why_not is None


@pytest.mark.requirement("KO-3.3")
@pytest.mark.parametrize("how", ["unconfined", *(["confined"] if can_confine() else [])])
@pytest.mark.slow
def test_a_command_is_killed_with_the_engine_that_started_it(ground: Ground, how: str) -> None:
    told = json.dumps([str(ROOT), *sys.path])
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, told, how, str(ground.root)], stdout=subprocess.PIPE)
    assert engine.stdout is not None
    with engine, engine.stdout:
        command = os.pidfd_open(int(engine.stdout.readline()))
        try:
            engine.kill()
            assert select.select([command], [], [], PATIENCE_S)[0], "it lives on"
        finally:
            os.close(command)


@pytest.mark.parametrize("how", ["unconfined", *(["confined"] if can_confine() else [])])
@pytest.mark.parametrize("argv", [["/bin/pwd", "-P"], ["./here"], ["here"]])
def test_a_command_begins_in_the_folder_that_was_opened_though_another_has_its_name(
    ground: Ground, argv: list[str], how: str
) -> None:
    for name in ("opened", "swapped"):
        ground.file(f"{name}/here", "#!/bin/sh\n/bin/pwd -P\n").chmod(0o755)
    folder = os.open(ground.root / "opened", os.O_RDONLY | os.O_DIRECTORY)
    try:
        (ground.root / "opened").rename(ground.root / "moved")
        (ground.root / "swapped").rename(ground.root / "opened")
        declared = [f"PROVIDES PROCESS:{name}" for name in ("here", "sh", "pwd")] if how == "confined" else []
        more = {"decide": "declared"} if how == "confined" else {"unconfined": True}
        places = ["CONSUMES FILE:/moved/*", "MUTATES FILE:/moved/*"]
        ended = ground.run(argv, *declared, *places, cwd=folder, env={"PATH": ".:/bin"}, **more)
    finally:
        os.close(folder)
    assert ended is not None
    assert (ended.err, ended.out) == ("", f"{ground.root}/moved\n")
