"""Many agents at once, in two processes' worth of realms, with failures, violations and cancellations between them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from host import EffectFailure, handler
from tests.pipeline.works import check_log
from tests.pipeline.workshop import a_workshop, contents, step, workshop
from tests.support.patience import PATIENCE_S
from world.clock import SystemClock, SystemIds
from world.errors import RefusedError
from world.events.execution_events import ExecutionCancelled
from world.events.proposal_events import ProposalCompleted, ProposalSubmitted
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

AGENTS, TURNS, FILES = 6, 5, 4


def wobbling(root: Path, dice: random.Random) -> Any:
    @handler("wobble", idempotent=True, retries=3, backoff_ms=5, time_limit_ms=300)
    def wobble(params: Any, call: Any) -> Any:
        fate = dice.random()
        if fate < 0.2:
            return EffectFailure("BUSY", "later", retryable=True)
        if fate < 0.25:
            raise OSError("the line is dead")
        if fate < 0.28:
            threading.Event().wait(0.5)
        if fate < 0.33:
            (root / "forbidden.txt").write_text("mine")
        threading.Event().wait(fate / 20)
        return None

    return wobble


def plan(name: str, dice: random.Random) -> dict[str, Any]:
    shared, own, line = f"/f/{dice.randrange(FILES)}", f"/f/{name}", f"{name}\n"
    append = step("file.append", path=shared, text=line)
    return {
        "mutates": [f"FILE:{shared}"],
        "provides": [f"FILE:{own}"],
        "steps": [append, step("wobble"), step("file.create", path=own, text=line), step("wobble"), append],
        "give_up": dice.random() < 0.15,
    }


def cancel_now_and_then(world: Realm, dice: random.Random, is_over: threading.Event) -> None:
    while not is_over.wait(0.1):
        running = [name for name, one in world.realm().proposals.items() if one.status in ("approved", "executing")]
        if running and dice.random() < 0.2:
            with suppress(RefusedError):  # it may have ended just now
                world.host.cancel(dice.choice(running), by="ann", reason="by chance")


@pytest.mark.requirement("HC-journal", "WP-exec", "KO-3.3", "KO-7", "KP-4b")
def test_whatever_happens_to_each_the_files_hold_what_those_did_that_completed_and_nothing_else(
    tmp_path: Path,
) -> None:
    root, address = tmp_path / "ws", f"sqlite:///{tmp_path / 'w.db'}"
    parts: dict[str, Any] = {
        "effects": [wobbling(root, random.Random(1))],
        "limits": Limits(klis=KlisSettings(backoff_ms=5, max_backoff_ms=40, max_proposal_retries=100)),
    }
    first = a_workshop(address, root, clock=SystemClock(), ids=SystemIds(), **parts)
    (root / "f").mkdir()
    for number in range(AGENTS):
        first.register(f"a{number}", "agent", binding={"kind": "auto_approve"})
        first.create_branch(f"b{number}")
    second = Realm.open(address, domain=workshop, workspace=root, **parts)

    def act(number: int, world: Realm) -> None:
        dice = random.Random(number)
        for turn in range(TURNS):
            given = plan(f"{number}-{turn}", dice)
            world.act(f"a{number}", "run", given, scope=["told"], branch=f"b{number}")

    is_over = threading.Event()
    agents = [threading.Thread(target=act, args=(number, (first, second)[number % 2])) for number in range(AGENTS)]
    cancelling = threading.Thread(target=cancel_now_and_then, args=(first, random.Random(2), is_over))
    with first, second:
        for thread in (*agents, cancelling):
            thread.start()
        for thread in agents:
            thread.join()
        until = time.monotonic() + PATIENCE_S
        while first.realm().proposals and time.monotonic() < until:
            first.settle()
            second.settle()
        is_over.set()
        cancelling.join()
        assert (len(first.realm().proposals), len(first.realm().klis.leases)) == (0, 0)
        told = [event for _, event in first.events()]
    compare(told, root)
    check_log(address, domain=workshop)


def compare(told: list[Any], root: Path) -> None:
    """Hold what the files hold against what was completed by the log."""
    given = {event.proposal_id: event.intent.body.input for event in told if isinstance(event, ProposalSubmitted)}
    done = [given[event.proposal_id] for event in told if isinstance(event, ProposalCompleted)]
    assert len(given) == AGENTS * TURNS
    assert 0 < len(done) < len(given)
    assert [event for event in told if isinstance(event, ExecutionCancelled)]
    files = {name: text for name, text in contents(root).items() if text != "/"}
    shared = {name: Counter(files.pop(name, "").splitlines()) for name in (f"f/{number}" for number in range(FILES))}
    wanted: dict[str, Counter[str]] = {name: Counter() for name in shared}
    for one in done:
        wanted[one["mutates"][0].removeprefix("FILE:/")][one["steps"][0]["params"]["text"].strip()] += 2
    assert shared == wanted
    assert files.keys() == {one["provides"][0].removeprefix("FILE:/") for one in done}
