"""What becomes due while nobody calls is done by the ticker."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from host import EffectFailure
from tests.pipeline.shop import Bank, house, shop
from tests.pipeline.works import Outside, a_yard, acting, check_log, reopened
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock, SystemClock
from world.errors import RefusedError
from world.events.execution_events import EffectRetried
from world.events.proposal_events import DecisionMade, ProposalCompleted
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.realm import Realm
from worldprotocol.api.ticker import Ticker


def now() -> int:
    return SystemClock().now_ms()


def test_it_acts_when_the_time_has_come_and_not_before() -> None:
    clock = ManualClock(1_000)
    acted = threading.Event()
    ticker = Ticker(acted.set, clock.now_ms)
    ticker.schedule(2_000_000)
    assert not acted.is_set()
    clock.advance(5_000_000)
    ticker.schedule(1_999_999)  # whoever commits says it again; that is when it looks
    assert acted.wait(PATIENCE_S)
    ticker.stop()


def test_an_earlier_time_counts_at_once() -> None:
    acted = threading.Event()
    ticker = Ticker(acted.set, now)
    ticker.schedule(now() + 3_600_000)
    ticker.schedule(now())
    assert acted.wait(PATIENCE_S)
    ticker.stop()


def test_nothing_runs_before_something_is_due_nor_after_the_end() -> None:
    acted: list[int] = []
    ticker = Ticker(lambda: acted.append(1), now)
    ticker.schedule(None)
    assert ticker._thread is None
    ticker.stop()
    ticker.schedule(0)
    assert (acted, ticker._thread) == ([], None)


@pytest.mark.parametrize("error", [RefusedError("LOG_BUSY", "somebody writes"), RuntimeError("away")])
def test_what_could_not_be_done_is_said_and_done_later(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("worldprotocol.api.ticker._AFTER_ERROR_S", 0.01)
    done, tries = threading.Event(), []

    def act() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise error
        done.set()

    ticker = Ticker(act, now)
    ticker.schedule(0)
    assert done.wait(PATIENCE_S)
    ticker.stop()
    assert len([record for record in caplog.records if "Scheduled work failed" in record.message]) == 2


def test_an_act_may_end_the_ticker_itself() -> None:
    ended = threading.Event()

    def act() -> None:
        ticker.stop()
        ended.set()

    ticker = Ticker(act, now)
    ticker.schedule(0)
    assert ended.wait(PATIENCE_S)


def listening(world: Realm, wanted: type[Any]) -> threading.Event:
    heard = threading.Event()

    def listen(position: int, event: Any, schedule: Any) -> None:
        if isinstance(event, wanted):
            heard.set()

    world.subscribe(listen)
    return heard


@pytest.mark.requirement("WP-decision")
def test_a_question_that_nobody_answers_is_decided_without_anybody_calling(tmp_path: Path) -> None:
    with Realm.create(str(tmp_path / "w.db"), domain=shop, policies=[house]) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.register("kid", "human", binding={"kind": "hitl", "ask": ["ann"], "timeoutMs": 1})
        decided = listening(world, DecisionMade)
        asked = world.act("kid", "sell", {"item": "tea"})
        assert decided.wait(PATIENCE_S)
        assert world.proposal(asked.proposal_id).status == "rejected"


@pytest.mark.requirement("KP-3a", "KP-3d")
def test_a_proposal_that_died_is_tried_again_without_anybody_calling(tmp_path: Path) -> None:
    bank = Bank()
    bank.release.clear()
    quick = Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=4, max_proposal_retries=1_000_000))
    with Realm.create(str(tmp_path / "w.db"), domain=shop, effects=[bank.handler()], limits=quick) as world:
        for name in ("ann", "bob"):
            world.register(name, "human", binding={"kind": "auto_approve"})
        worker = threading.Thread(target=lambda: world.act("ann", "charge", {"amount": 1}))
        worker.start()
        assert bank.started.wait(PATIENCE_S)
        dying = world.act("bob", "sell", {"item": "tea"})
        assert dying.status == "evaluating"
        done = listening(world, ProposalCompleted)
        bank.release.set()
        worker.join(PATIENCE_S)
        while world.proposal(dying.proposal_id).status == "evaluating":
            assert done.wait(PATIENCE_S)
            done.clear()
        assert world.proposal(dying.proposal_id).status == "completed"


@pytest.mark.requirement("HC-journal")
@pytest.mark.parametrize("backoff_ms", [300, 3_600_000])
def test_an_opening_leaves_an_attempt_of_later_to_the_ticker(
    tmp_path: Path, backoff_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    address, outside = str(tmp_path / "w.db"), Outside(lambda _params, _call: EffectFailure("BUSY", "", retryable=True))
    terms = {"idempotent": True, "retries": 1, "backoff_ms": backoff_ms}
    with a_yard(address, outside, **terms, parts={"clock": ManualClock(now())}) as world:  # time stops: nothing is due
        failed = listening(world, EffectRetried)
        with acting(world, "ann", "do", {}):
            assert failed.wait(PATIENCE_S)
            (name,) = world.realm().proposals
            world.close()
    with reopened(address, outside, **terms, parts={"clock": None}) as world:
        if backoff_ms == 300:
            assert world.wait(name, PATIENCE_S).status == "completed"
        else:
            assert world.proposal(name).status == "executing"
            assert outside.attempts == [1]
    with reopened(address, outside, **terms, parts={"clock": ManualClock(now() + 7_200_000, 1)}) as world:
        assert world.proposal(name).status == "completed"
    assert outside.attempts == [1, 2]
    assert caplog.messages == []
    check_log(address)
