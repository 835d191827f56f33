"""Waiting for a proposal: it ends with the proposal, and leaves nothing behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.pipeline.shop import Bank, house, shop
from tests.support.patience import PATIENCE_S
from tests.waiting.till import CAKE, check_nothing_waits, expecting, open_till, until_waiting
from world.clock import SystemClock
from world.errors import RefusedError, WaitTimeoutError, WorldProtocolError
from worldprotocol import Realm

pytestmark = pytest.mark.slow

R = TypeVar("R")


@pytest.fixture
def realm(log_url: str) -> Iterator[Realm]:
    with open_till(log_url) as opened:
        yield opened
    check_nothing_waits(opened)


class Caller(threading.Thread):
    """A thread that calls, and keeps the result or the error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.call = call
        self.came: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.came = self.call()
        except RefusedError as refused:
            self.came = refused.code

    def result(self) -> Any:
        self.join(PATIENCE_S)
        assert not self.is_alive()
        return self.came


def test_a_wait_ends_with_the_proposal_and_leaves_nothing(realm: Realm) -> None:
    asked = realm.act("kid", "sell", CAKE)
    waiting = Caller(lambda: realm.wait(asked).status)
    until_waiting(realm)
    assert asked.status == "evaluating"
    assert expecting(realm) == 1
    realm.decide(asked.proposal_id, "approve", by="ann")
    assert waiting.result() == "completed"
    check_nothing_waits(realm)
    assert realm.wait(asked.proposal_id).status == "completed"  # at once, without a thread


@pytest.mark.parametrize("choice", ["approve", "reject"])
def test_a_call_that_waits_returns_what_became_of_it(realm: Realm, choice: Any) -> None:
    acting = Caller(lambda: realm.act("kid", "sell", CAKE, wait=True).status)
    until_waiting(realm)
    realm.decide(realm.inbox()[0].proposal_id, choice, by="ann")
    assert acting.result() == {"approve": "completed", "reject": "rejected"}[choice]


def test_an_ended_proposal_is_returned_without_waiting(realm: Realm) -> None:
    assert realm.act("ann", "sell", CAKE, wait=True).status == "completed"
    assert realm.act("ann", "close", wait=5).status == "completed"
    assert realm.act("ann", "sell", CAKE, wait=5.5).status == "failed"


def test_many_callers_share_one_thread(realm: Realm) -> None:
    asked = [realm.act("kid", "sell", {"item": "tea", "count": 0}) for _ in range(3)]
    waiting = [Caller(partial(realm.wait, one)) for one in asked for _ in range(5)]
    until_waiting(realm, 15)
    assert expecting(realm) == 1
    for one in asked:
        realm.decide(one.proposal_id, "approve", by="ann")
    assert {one.result().status for one in waiting} == {"completed"}
    check_nothing_waits(realm)


def test_a_decision_can_be_waited_for_while_the_execution_goes_on(log_url: str) -> None:
    bank = Bank()
    bank.release.clear()
    with open_till(log_url, effects=[bank.handler()]) as realm:
        asked = realm.act("kid", "charge", {"amount": 1})
        decided = Caller(lambda: realm.wait(asked, until="decided").status)
        ended = Caller(lambda: realm.wait(asked, until="ended").status)
        until_waiting(realm, 2)
        answering = Caller(lambda: realm.decide(asked.proposal_id, "approve", by="ann").status)
        assert decided.result() == "executing"
        assert ended.is_alive()
        bank.release.set()
        assert (ended.result(), answering.result()) == ("completed", "completed")


def test_a_wait_whose_time_is_over_raises_and_a_call_returns_the_open_proposal(realm: Realm) -> None:
    asked = realm.act("kid", "sell", CAKE, wait=0.01)
    assert asked.status == "evaluating"
    for seconds in (0, 0.01):
        with pytest.raises(TimeoutError) as caught:
            realm.wait(asked, seconds)
        error = caught.value
        assert isinstance(error, WaitTimeoutError)
        assert error.code == "NOT_ENDED_IN_TIME"
        assert error.details == {"proposal_id": asked.proposal_id, "status": "evaluating"}
    check_nothing_waits(realm)
    realm.decide(asked.proposal_id, "approve", by="ann")
    assert realm.wait(asked, 0).status == "completed"


def test_a_source_event_is_projected_and_waited_for(log_url: str) -> None:
    from worldprotocol import IntentBody, projection

    @projection("till")
    def till(req: Any) -> Any:
        return IntentBody(type="sell", input=dict(req.source.payload))

    with open_till(log_url, projections=[till]) as realm:
        pressed = {"kind": "ui", "eventId": "e", "payload": CAKE}
        waiting = Caller(lambda: realm.project(pressed, "kid", wait=True))
        until_waiting(realm)
        realm.decide(realm.inbox()[0].proposal_id, "approve", by="ann")
        assert waiting.result().proposal.status == "completed"


@pytest.mark.parametrize("wait", [-1, float("nan"), "5", object()])
def test_a_time_that_makes_no_sense_is_refused_before_anything_is_submitted(realm: Realm, wait: Any) -> None:
    before = realm.log.head().size
    with pytest.raises(RefusedError, match="number of seconds") as caught:
        realm.act("kid", "sell", CAKE, wait=wait)
    assert caught.value.code == "INVALID_VALUE"
    with pytest.raises(RefusedError, match="number of seconds"):
        realm.wait("any", wait)
    with pytest.raises(RefusedError, match="'ended' or 'decided'"):
        realm.wait("any", until="over")  # type: ignore[arg-type]
    assert realm.log.head().size == before


def test_an_unknown_proposal_is_refused(realm: Realm) -> None:
    with pytest.raises(RefusedError) as caught:
        realm.wait("none")
    assert caught.value.code == "UNKNOWN_PROPOSAL"


# Where commands are refused, waiting is refused


@pytest.mark.requirement("WP-events")
def test_a_handler_cannot_wait_and_its_reaction_can(realm: Realm) -> None:
    asked = realm.act("kid", "sell", CAKE)
    refused: list[str] = []
    waited: list[str] = []

    def handle(_position: int, _event: Any, schedule: Any) -> None:
        try:
            realm.wait(asked, 0)
        except RefusedError as error:
            refused.append(error.code)
        if not waited:
            waited.append("scheduled")
            schedule(lambda: waited.append(realm.wait(asked).status))

    end = realm.subscribe(handle)
    acting = Caller(lambda: realm.act("ann", "sell", {"item": "tea", "count": 0}))
    until_waiting(realm)
    end()
    realm.decide(asked.proposal_id, "approve", by="ann")
    acting.result()
    assert set(refused) == {"CALL_FROM_HANDLER"}
    assert waited == ["scheduled", "completed"]


def test_code_that_a_command_calls_cannot_wait(log_url: str) -> None:
    from worldprotocol import Policy, rule

    codes: list[str] = []
    realms: list[Realm] = []

    @rule
    def curious(case: Any) -> Any:
        try:
            realms[0].wait(asked.proposal_id, 0)
        except RefusedError as error:
            codes.append(error.code)
        return None

    with Realm.create(log_url, domain=shop, policies=[house, Policy("curious", [curious])]) as realm:
        realms.append(realm)
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        realm.register("kid", "human", binding={"kind": "hitl", "ask": ["ann"]})
        realm.register("fox", "agent", binding={"kind": "policy_rules", "policy": "curious"})
        asked = realm.act("kid", "sell", CAKE)
        realm.act("fox", "sell", CAKE)
        assert codes
        assert set(codes) == {"CALL_FROM_WITHIN"}


# What ends a wait otherwise


def test_closing_the_realm_ends_a_wait(log_url: str) -> None:
    realm = open_till(log_url)
    asked = realm.act("kid", "sell", CAKE)
    waiting = [Caller(lambda: realm.wait(asked)), Caller(lambda: realm.act("kid", "sell", CAKE, wait=True))]
    until_waiting(realm, 2)
    realm.close()
    assert [one.result() for one in waiting] == ["LOG_CLOSED", "LOG_CLOSED"]
    check_nothing_waits(realm)
    with pytest.raises(RefusedError) as caught:
        realm.wait(asked)
    assert caught.value.code == "LOG_CLOSED"


def test_an_interrupt_ends_a_wait_and_what_was_submitted_stays(realm: Realm) -> None:
    def interrupt() -> None:
        until_waiting(realm)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        realm.act("kid", "sell", CAKE, wait=True)
    interrupting.join()
    check_nothing_waits(realm)
    [asked] = realm.inbox()
    realm.decide(asked.proposal_id, "approve", by="ann")
    assert realm.wait(asked).status == "completed"


# Who waits does what is due


def test_the_time_of_people_runs_while_a_call_waits(log_url: str) -> None:
    with open_till(log_url, timeout_ms=20) as realm:
        ended = realm.act("kid", "sell", CAKE, wait=True)
        assert ended.status == "rejected"
        assert ended.decision is not None


def test_what_another_process_left_becomes_due_in_the_one_that_waits(shared_log_url: str) -> None:
    with open_till(shared_log_url, timeout_ms=20) as waits:
        with Realm.open(shared_log_url, domain=shop, clock=SystemClock()) as other:  # a given clock: without a timer
            asked = other.act("kid", "sell", CAKE)
        assert waits.wait(asked.proposal_id).status == "rejected"


def test_a_proposal_that_lacks_leases_gets_them_while_a_call_waits(realm: Realm) -> None:
    held = realm.leases.acquire(agent="ann", resource="STATE:/main/stock/cake", predicate="MUTATES")
    waiting = Caller(lambda: realm.act("bot", "sell", CAKE, wait=True).status)
    until_waiting(realm)
    held.release()
    assert waiting.result() == "completed"


# Other processes' commits, and realms that only read


def test_a_realm_open_for_reading_waits_and_changes_no_byte(tmp_path: Path) -> None:
    address = tmp_path / "w.db"
    with open_till(str(address)) as realm, Realm.open_read_only(address) as reading:
        asked = realm.act("kid", "sell", CAKE)
        waiting = Caller(lambda: reading.wait(asked.proposal_id).status)
        until_waiting(reading)
        realm.decide(asked.proposal_id, "approve", by="ann")
        assert waiting.result() == "completed"
        check_nothing_waits(reading)


def test_a_database_that_fails_for_a_while_does_not_end_a_wait(
    realm: Realm, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("world.read_models.live.expectations._AFTER_ERROR_S", 0.01)
    asked = realm.act("kid", "sell", CAKE)
    failed = threading.Event()
    expectations = realm.archive.expectations
    follow = expectations._follow

    def away() -> Any:
        expectations._follow = follow
        failed.set()
        raise OSError("the database is away")

    waiting = Caller(lambda: realm.wait(asked).status)
    until_waiting(realm)
    expectations._follow = away
    assert failed.wait(PATIENCE_S)
    realm.decide(asked.proposal_id, "approve", by="ann")
    assert waiting.result() == "completed"
    assert "cannot be followed" in caplog.text


def test_a_wait_ends_with_the_error_of_a_log_that_was_moved(tmp_path: Path) -> None:
    address = tmp_path / "w.db"
    with open_till(str(address)) as realm:
        asked = realm.act("kid", "sell", CAKE)
        codes: list[str] = []

        def wait() -> None:
            with pytest.raises(WorldProtocolError) as caught:
                realm.wait(asked, PATIENCE_S)
            codes.append(caught.value.code)

        waiting = [threading.Thread(target=wait) for _ in range(3)]
        for one in waiting:
            one.start()
        until_waiting(realm, 3)
        address.rename(tmp_path / "elsewhere.db")
        for one in waiting:
            one.join(PATIENCE_S)
        assert codes == ["LOG_MOVED"] * 3
        check_nothing_waits(realm)
