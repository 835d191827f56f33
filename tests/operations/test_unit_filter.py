"""A server, its jobs and its commands under the system call filter of the shipped unit."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.realm import COMMAND, environment
from tests.operations import unit_filter
from tests.operations.unit_filter import CALLS, directives, permitted
from tests.server.served import ORDER, PATH, Served, founded, serving
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

FILTERED = (sys.executable, str(Path(unit_filter.__file__)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server under the filter of the unit, with a proposal that has ended and one that waits."""
    place = founded(tmp_path_factory.mktemp("unit"), server="burst = 1000")
    with serving(place, before=FILTERED) as running:
        assert running.submit("kid", ORDER).status_code == 200
        assert running.submit("bot", ORDER).status_code == 202
        yield running


def ended(served: Served, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """Start a job, follow its stream to the end, and return it."""
    with served.client("aud") as aud:
        started = aud.post(f"{PATH}/{kind}", json=body)
        assert started.status_code == 202, started.text
        name = started.json()["jobId"]
        aud.get(f"{PATH}/jobs/{name}/stream")
        found: dict[str, Any] = aud.get(f"{PATH}/jobs/{name}").json()
    return found


POLICY = 'name = "draft"\n[[rules]]\nid = "nothing"\nverdict = "reject"\n'


@pytest.mark.parametrize("kind", ["verify", "recheck", "whatif", "backtest"])
def test_every_kind_of_job_ends_under_the_filter(served: Served, kind: str) -> None:
    with served.client("aud") as aud:
        first = aud.get(f"{PATH}/proposals").json()["proposals"][-1]["proposalId"]
    bodies: dict[str, dict[str, Any]] = {"whatif": {"drop": [first]}, "backtest": {"policyText": POLICY}}
    found = ended(served, kind, bodies.get(kind, {}))
    assert (found["status"], found["error"]) == ("done", None)


def test_commands_and_effects_run_under_the_filter(served: Served) -> None:
    ship = {"type": "order.ship", "input": {"item": "cake"}, "scopeProposal": {"allowedPaths": ["orders.ship"]}}
    assert served.submit("kid", ship).status_code == 202
    with served.client("mule") as mule:
        claimed = mule.post(f"{PATH}/effects:claim", json={"worker": "mule-1", "types": ["cart.ship"]})
        assert claimed.json()["claim"] is not None, claimed.text
    with served.client("all") as client:
        answer = client.post(f"{PATH}/commands", json={"arguments": ["worlds"]})
        assert answer.status_code == 200
        assert '["exit",0]' in answer.text


def test_the_command_itself_runs_under_the_filter(served: Served) -> None:
    done = subprocess.run(
        [*FILTERED, *COMMAND, "verify", "--log", served.place.log],
        cwd=served.place.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr


def test_the_filter_is_in_force_and_denies_what_the_unit_denies() -> None:
    code = "import os\ntry:\n    os.nice(1)\nexcept PermissionError:\n    print('denied')\n"
    done = subprocess.run(
        [*FILTERED, sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "denied\n", "")
    assert not permitted() & {"nice", "setpriority", "chown", "setuid", "bpf", "ptrace", "mount"}
    assert permitted() >= {"read", "execve", "clone3", "futex", "openat", "socket"}


def test_the_recorded_groups_are_those_of_systemd() -> None:
    analyze = shutil.which("systemd-analyze")
    groups = tomllib.loads(CALLS.read_text(encoding="utf-8"))["groups"]
    named = {word.strip("~") for line in directives()["SystemCallFilter"] for word in line.split() if "@" in word}
    assert named <= set(groups)
    version = subprocess.run([analyze, "--version"], capture_output=True, text=True, check=False) if analyze else None
    if analyze is None or version is None or not version.stdout.startswith("systemd 252 "):
        return  # other versions list other calls; the file names the version that it records
    for group, text in groups.items():
        shown = subprocess.run([analyze, "syscall-filter", group], capture_output=True, text=True, check=True).stdout
        assert set(text.split()) <= set(shown.split()), group
