"""Effects that are late, without leases, or past their time: they count for nothing and touch nothing (WP-exec)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from host import EffectFailure
from tests.pipeline.works import (
    Held,
    Outside,
    a_yard,
    acting,
    check_log,
    events,
    left_in_doubt,
    reopened,
    running,
    topics,
)
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock
from world.errors import RefusedError
from world.events.execution_events import (
    EffectDropped,
    EffectFulfilled,
    EffectRequested,
    EffectRetried,
    ExecutionCancelled,
    ExecutionStarted,
)

pytestmark = pytest.mark.requirement("HC-journal", "WP-exec")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


def stumble(params: Any, call: Any) -> Any:
    return EffectFailure("BUSY", "later", retryable=True)


# Late and repeated results


def test_a_late_result_is_dropped_and_logged_and_changes_nothing(address: str) -> None:
    clock, held = ManualClock(1_000, 1), Held(lambda _params, _call: "late")
    slow, quick = Outside(held), Outside()
    with a_yard(address, slow, parts={"clock": clock}, idempotent=True, time_limit_ms=600_000) as world:
        with acting(world, "ann", "do", {}) as ended:
            assert held.begun.wait(PATIENCE_S)
            name = running(world)
            clock.advance(700_000)  # its time limit, and the grace after it
            with reopened(address, quick, parts={"clock": clock}, idempotent=True) as other:
                assert other.proposal(name).status == "completed"
                assert other.data()["done"] == ["x"]
            held.may_go.set()
        assert ended[0].status == "completed"
        (dropped,) = [event for event in events(world, name) if isinstance(event, EffectDropped)]
        assert dropped.requirement_id in quick.done[0]
        assert "nobody waits" in dropped.reason
        assert world.data()["done"] == ["x"]
        assert len([event for event in events(world, name) if isinstance(event, EffectFulfilled)]) == 1
    check_log(address)


# Lost leases


@pytest.mark.requirement("HC-journal", "KM-2.2", "WP-exec")
def test_who_loses_the_leases_in_the_middle_of_an_effect_stops_before_the_next_touch(
    address: str, tmp_path: Path
) -> None:
    touched: list[int] = []
    revoked = threading.Event()

    def touch_twice(_params: Any, call: Any) -> Any:
        call.check()
        touched.append(call.fencing_token)
        assert revoked.wait(PATIENCE_S)
        call.check()
        touched.append(-1)

    outside = Outside(touch_twice)
    with a_yard(address, outside) as world:
        with acting(world, "ann", "do", {"what": ["x", "y"]}) as ended:
            while not touched:
                revoked.wait(0.01)
            (lease, *_) = world.realm().klis.leases.values()
            assert touched == [lease.token]
            world.leases.desk.revoke([lease.lease_id], by="operator", reason="runaway")
            revoked.set()
        failed = ended[0]
        assert (failed.status, failed.error.code) == ("failed", "LEASES_REVOKED")
        assert len(touched) == 1
        assert failed.rollback is None
        later = world.act("eve", "do", {})
        assert later.status == "completed"
        assert topics(world, failed.proposal_id)[-2:] == ["effect.fulfilled", "proposal.failed"]
    assert check_log(address).steps["notRepeatable"] == 1


@pytest.mark.requirement("HC-journal", "KM-2.2")
def test_an_effect_whose_leases_are_gone_before_it_begins_is_not_begun(address: str) -> None:
    waits = threading.Event()
    outside = Outside(stumble)
    with a_yard(address, outside, idempotent=True, retries=1, backoff_ms=3_600_000) as world:
        world.subscribe(lambda _at, event, _do: waits.set() if isinstance(event, EffectRetried) else None)
        with acting(world, "ann", "do", {}) as ended:
            assert waits.wait(PATIENCE_S)
            leases = [lease.lease_id for lease in world.realm().klis.leases.values()]
            world.leases.desk.revoke(leases, by="operator", reason="runaway")
        assert ended[0].error.code == "LEASES_REVOKED"
        assert outside.attempts == [1]


@pytest.mark.requirement("HC-journal", "KM-2.2")
@pytest.mark.parametrize("choice", ["happened", "retry", "fail"])
def test_what_was_in_doubt_and_lost_its_leases_meanwhile_ends_failed_whatever_became_of_it(
    address: str, choice: Any
) -> None:
    name = left_in_doubt(address)
    outside = Outside()
    with reopened(address, outside) as world:
        leases = [lease.lease_id for lease in world.realm().klis.leases.values()]
        world.leases.desk.revoke(leases, by="operator", reason="runaway")
        assert len(world.host.stuck()) == 1
        failed = world.host.resolve(name, choice, by="bob", reason="late")
        assert failed.error is not None
        assert (failed.status, failed.error.code) == ("failed", "LEASES_REVOKED")
        assert outside.attempts == []
    check_log(address)


# Time limits


@pytest.mark.slow
def test_a_handler_that_took_too_long_may_touch_nothing_any_more(address: str) -> None:
    told: list[Any] = []

    def touch(_params: Any, call: Any) -> Any:
        told.append(call.is_cancelled())
        call.check()
        told.append("touched")

    held = Held(touch)
    with a_yard(address, Outside(held), time_limit_ms=100) as world:
        failed = world.act("ann", "do", {})
        assert failed.error is not None
        assert failed.error.code == "EFFECT_TIMED_OUT"
        held.may_go.set()
        assert held.over.wait(PATIENCE_S)
        assert told == [True]


@pytest.mark.slow
def test_a_second_attempt_does_not_bring_the_first_back_to_life(address: str) -> None:
    told: list[Any] = []

    def touch(_params: Any, call: Any) -> Any:
        call.check()
        told.append("touched")

    first, second = Held(touch), Held()
    outside = Outside(first, second)
    with a_yard(address, outside, idempotent=True, retries=1, backoff_ms=1, time_limit_ms=300) as world:
        with acting(world, "ann", "do", {}) as ended:
            assert second.begun.wait(PATIENCE_S)
            first.may_go.set()
            assert first.over.wait(PATIENCE_S)
            second.may_go.set()
        assert ended[0].status in ("completed", "failed")  # the second may be late, too
        assert told == []


def test_a_timer_goes_by_the_engines_clock_from_when_it_was_first_asked_for(address: str) -> None:
    clock = ManualClock(1_000, 0)
    with a_yard(address, Outside(), parts={"clock": clock}) as world:
        asked = threading.Event()

        def skip(_at: int, event: Any, _do: Any) -> None:
            if isinstance(event, EffectRequested):
                asked.set()

        world.subscribe(skip)
        with acting(world, "ann", "wait", {"ms": 3_600_000}) as ended:
            assert asked.wait(PATIENCE_S)
            world.close()  # in the middle of the wait
        assert isinstance(ended[0], RefusedError)
    with reopened(address, Outside(), parts={"clock": ManualClock(3_601_001, 0)}) as world:
        assert world.data()["done"] == ["waited"]
        (fulfilled,) = [event for _, event in world.events() if isinstance(event, EffectFulfilled)]
        assert fulfilled.result.value == {"until": 3_601_000}


def test_executions_that_were_called_off_are_told_apart_in_the_log(address: str) -> None:
    name = left_in_doubt(address)
    with reopened(address, Outside()) as world:
        world.host.cancel(name, by="bob", reason="never mind")
        told = events(world, name)
        (off,) = [event for event in told if isinstance(event, ExecutionCancelled)]
        assert (off.by, off.reason) == ("bob", "never mind")
        started = [event.attempt for event in told if isinstance(event, ExecutionStarted)]
        assert started == [1, 2]
