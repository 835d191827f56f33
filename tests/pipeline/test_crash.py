"""SIGKILL after random numbers of reported events: what was approved ends, and no journaled effect runs again."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from host import handler
from tests.pipeline.counted_kills import await_reports
from tests.pipeline.shop import house, open_shop, shop
from tests.support.patience import PATIENCE_S
from world.clock import SystemClock, SystemIds
from world.events.execution_events import EffectFulfilled, EffectRequested, ExecutionStarted
from worldprotocol.api.realm import Realm

ROOT = Path(__file__).resolve().parents[2]
MOST_REPORTS = 60
"""After how many reported events a process is killed at most; a charge reports about 15."""


def run_and_kill(address: str, outside: Path, kind: str, reports: int) -> None:
    """Kill a process that submits charges after it has reported so many events."""
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "tests.pipeline.crashing_child", address, str(outside), kind, str(writing)]
    child = subprocess.Popen(command, cwd=ROOT, pass_fds=[writing])
    os.close(writing)
    try:
        assert await_reports(reading, reports) == reports
    finally:
        child.kill()
        child.wait()
        os.close(reading)


def settled(address: str, outside: Path, *, idempotent: bool) -> Realm:
    @handler("bank.charge", idempotent=idempotent, time_limit_ms=10_000)
    def charge(params: Any, call: Any) -> Any:
        with outside.open("a") as lines:
            lines.write(call.idempotency_key + "\n")
        return {"receipt": call.idempotency_key}

    return Realm.open(address, domain=shop, policies=[house], effects=[charge])


@pytest.mark.requirement("WP-exec", "HC-journal", "IC-reentry", "CARD-log")
@pytest.mark.parametrize("kind", ["once", "idempotent"])
@pytest.mark.slow
def test_after_sigkill_every_approved_proposal_ends_and_no_journaled_effect_runs_again(
    shared_log_url: str, tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "charges.txt"
    outside.touch()
    open_shop(shared_log_url, clock=SystemClock(), ids=SystemIds()).close()
    dice = random.Random(kind)
    for _ in range(4):
        run_and_kill(shared_log_url, outside, kind, dice.randint(1, MOST_REPORTS))
        with settled(shared_log_url, outside, idempotent=kind == "idempotent") as world:
            resolve_by_looking(world, outside)
    with settled(shared_log_url, outside, idempotent=kind == "idempotent") as world:
        realm = world.realm()
        assert not realm.proposals, "every approved proposal is completed or failed"
        made = Counter(outside.read_text().split())
        check_journal(world, made, kind)
        ended = Counter(
            world.proposal(proposal).status
            for proposal in {event.proposal_id for _, event in world.events() if isinstance(event, ExecutionStarted)}
        )
        assert set(ended) == {"completed"}, "a person said what became of what was in doubt"
        head = world.branch().head
        assert realm.branches["main"].head == head == world.archive.fold_realm().branches["main"].head


def resolve_by_looking(world: Realm, outside: Path) -> None:
    """Say of each effect in doubt what really became of it, until nothing is left to be done."""
    until = time.monotonic() + PATIENCE_S
    while world.realm().proposals and time.monotonic() < until:
        for one in world.host.stuck():
            key, name = one["idempotencyKey"], one["proposalId"]
            if key in outside.read_text().split():
                world.host.resolve(name, "happened", by="ann", reason="its line is there", value={"receipt": key})
            else:
                world.host.resolve(name, "retry", by="ann", reason="its line is missing")
        world.settle()


def check_journal(world: Realm, made: Counter[str], kind: str) -> None:
    """Compare what the log says was done with the lines that were really written."""
    intents: dict[str, str] = {}
    requested: set[str] = set()
    for _, event in world.events():
        if isinstance(event, ExecutionStarted):
            intents[event.proposal_id] = event.seed
        elif isinstance(event, EffectRequested):
            requested.add(event.requirement.id)
        elif isinstance(event, EffectFulfilled):
            lines = [count for key, count in made.items() if event.requirement_id in key]
            assert event.result.error is None
            # an idempotent effect may be made again when its result was lost, with the same key
            assert lines == [1] or (kind == "idempotent" and lines in ([1], [2]))
    assert all(any(name in key for name in requested) for key in made)


@pytest.mark.requirement("CARD-log")
@pytest.mark.slow
def test_two_processes_write_one_log_and_both_make_progress(shared_log_url: str, tmp_path: Path) -> None:
    open_shop(shared_log_url, clock=SystemClock(), ids=SystemIds()).close()
    script = (
        "import sys; from worldprotocol.api.realm import Realm; from tests.pipeline.shop import shop, house\n"
        "with Realm.open(sys.argv[1], domain=shop, policies=[house]) as world:\n"
        "    for _ in range(40): assert world.act('ann', 'sell', {'item': 'tea', 'count': 0}).status == 'completed'\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", script, shared_log_url], cwd=ROOT) for _ in range(2)]
    assert [child.wait(PATIENCE_S) for child in children] == [0, 0]
    with Realm.open_read_only(shared_log_url) as world:
        assert world.sealed().height == 80
        folded = world.archive.fold_realm()
        assert folded.branches == world.realm().branches
