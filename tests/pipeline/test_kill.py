"""SIGKILL again and again: every effect happened once, and the worlds are the same (HC-journal).

A process is killed after a random number of events that it has reported, from a fixed seed, and never after a time.
``WORLDPROTOCOL_KILLS`` says how many kills; ``make kill`` asks for several hundred.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline.turns import found, go_on, opened, turns
from tests.pipeline.works import check_log
from tests.plugins.backends import fresh_address
from tests.plugins.forms import scaled
from tests.support.patience import PATIENCE_S
from world.events.execution_events import EffectFulfilled, EffectInDoubt, ExecutionStarted
from world.events.proposal_events import ProposalFailed
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("WORLDPROTOCOL_KILLS", scaled(20, ci=10)))


def killed(address: str, folder: Path, kills: int, seed: str) -> None:
    """Do turns in children that are killed, and do the last one to its end."""
    subprocess.run(
        [sys.executable, "-m", "tests.pipeline.turns", address, str(folder), str(kills), seed],
        cwd=ROOT,
        check=True,
        timeout=PATIENCE_S + 30 * kills,
    )
    with opened(address, folder) as world:
        world.settle()


def lines(folder: Path) -> list[str]:
    return (folder / "outside" / "count").read_text().splitlines()


def files(folder: Path) -> dict[str, str]:
    root = folder / "ws"
    there = (path for path in root.rglob("*") if path.is_file() and ".klock" not in path.relative_to(root).parts)
    return {str(path.relative_to(root)): path.read_text() for path in there}


def lineage(world: Realm) -> list[str]:
    """Return the ids of the worlds from the head back to the genesis."""
    worlds = [world.branch().head]
    while (parent := world.sealed(worlds[-1]).parent) is not None:
        worlds.append(parent)
    return worlds


@pytest.mark.requirement("HC-journal", "WP-exec", "HC-handlers", "IC-reentry")
@pytest.mark.parametrize(
    ("backend", "kills"), [("sqlite-file", KILLS), ("postgres", max(scaled(10, ci=5), KILLS // 6))]
)
def test_a_run_that_is_killed_again_and_again_did_everything_once_and_ends_in_the_same_worlds(
    backend: str, kills: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = fresh_address(backend, request, tmp_path)
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    found(address, cut)
    killed(address, cut, kills, seed=f"{backend} {kills}")
    with opened(address, cut) as world:
        done = world.data()["turn"]
        assert done > 0
        assert world.realm().proposals == {}
        told = [event for _, event in world.events()]
        assert not [event for event in told if isinstance(event, (ProposalFailed, EffectInDoubt))]
        taken_over = [event for event in told if isinstance(event, ExecutionStarted) and event.attempt > 1]
        assert len(taken_over) >= max(1, kills // 10), "kills hit executions, not only what is around them"
        results = Counter(event.requirement_id for event in told if isinstance(event, EffectFulfilled))
        assert set(results.values()) == {1}
        worlds = lineage(world)
    undisturbed_at = f"sqlite:///{tmp_path / 'undisturbed.db'}"
    found(undisturbed_at, whole)
    go_on(undisturbed_at, whole, until=done)
    with opened(undisturbed_at, whole) as undisturbed:
        assert lineage(undisturbed) == worlds
    assert files(cut) == files(whole)
    assert files(cut)["log.txt"] == "".join(f"{number} begins\n{number} ends\n" for number in range(done))
    counted = [line.partition(" ")[2] for line in lines(cut)]
    assert counted == [f"{number} {when}" for number in range(done) for when in ("first", "last")]
    assert len({line.partition(" ")[0] for line in lines(cut)}) == len(counted)
    check_log(address, domain=turns)
