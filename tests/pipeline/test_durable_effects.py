"""Effects that are in doubt, made again, called off, late, or without leases: each ends as it says (HC-journal)."""

from __future__ import annotations

import asyncio
import math
import threading
from pathlib import Path
from typing import Any

import pytest

from host import EffectFailure, handler
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
    vanish,
    works,
)
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock
from world.errors import RefusedError
from world.events.execution_events import (
    EffectFulfilled,
    EffectInDoubt,
    EffectRequested,
    EffectResolved,
    EffectRetried,
    ExecutionStarted,
)
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.requirement("HC-journal", "WP-exec")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


# In doubt


@pytest.mark.requirement("HC-journal")
def test_an_effect_that_may_have_happened_waits_for_a_person_and_tells_all_that_she_needs(address: str) -> None:
    name = left_in_doubt(address)
    outside = Outside()
    with reopened(address, outside) as world:
        (stuck,) = world.host.stuck()
        assert (stuck["proposalId"], stuck["actorId"], stuck["action"]) == (name, "ann", "do")
        assert (stuck["effect"], stuck["params"]) == ("work", {"what": "b"})
        proposal = world.proposal(name)
        assert stuck["idempotencyKey"] == f"{proposal.submitted.intent.intent_id}:{stuck['requirementId']}"
        assert proposal.to_wire()["effects"] == {
            "fulfilled": 1,
            "underWay": [],
            "inDoubt": [stuck["requirementId"]],
        }
        doubt = next(event for event in events(world, name) if isinstance(event, EffectInDoubt))
        assert doubt.requirement_id == stuck["requirementId"]
        assert "may have happened" in doubt.reason
    assert outside.done == []
    check_log(address)


@pytest.mark.requirement("HC-context")
def test_an_execution_that_is_taken_over_keeps_its_time_and_its_seed(address: str) -> None:
    name = left_in_doubt(address)
    with reopened(address, Outside(), parts={"clock": ManualClock(9_000)}) as world:
        first, again = [event for event in events(world, name) if isinstance(event, ExecutionStarted)]
        assert (again.attempt, again.at > first.at) == (2, True)
        assert (again.now, again.seed, again.on_world) == (first.now, first.seed, first.on_world)
        assert again.seed == world.proposal(name).submitted.intent.intent_id
    check_log(address)


def test_what_happened_gives_the_action_its_value_and_the_rest_goes_on(address: str) -> None:
    name = left_in_doubt(address)
    outside = Outside()
    with reopened(address, outside) as world:
        done = world.host.resolve(name, "happened", by="bob", reason="I saw it", value="b, by hand")
        assert done.status == "completed"
        assert world.data()["done"] == ["a", "b, by hand", "c"]
        assert len(outside.done) == 1
        (told,) = [event for event in events(world, name) if isinstance(event, EffectResolved)]
        assert (told.choice, told.by, told.reason) == ("happened", "bob", "I saw it")
        assert topics(world, name) == [
            "execution.started",
            *["effect.requested", "effect.fulfilled", "effect.requested"],
            "execution.started",
            "effect.in_doubt",
            "effect.resolved",
            "effect.fulfilled",
            *["effect.requested", "effect.fulfilled"],
            "proposal.completed",
        ]
        assert world.host.stuck() == []
    check_log(address)


def test_what_did_not_happen_is_made_now_with_the_same_key(address: str) -> None:
    name = left_in_doubt(address)
    outside = Outside()
    with reopened(address, outside) as world:
        (stuck,) = world.host.stuck()
        assert world.host.resolve(name, "retry", by="bob", reason="nothing there").status == "completed"
        assert outside.done[0] == stuck["idempotencyKey"]
        assert len(outside.done) == 2
        assert world.data()["done"] == ["a", "b", "c"]
    check_log(address)


def test_what_nobody_knows_is_an_error_that_the_action_may_take(address: str) -> None:
    name = left_in_doubt(address)
    outside = Outside()
    with reopened(address, outside) as world:
        failed = world.host.resolve(name, "fail", by="bob", reason="the list is lost")
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error.code == "EFFECT_IN_DOUBT"
        assert "bob: the list is lost" in failed.error.message
        assert outside.done == []
        outside.plan.append(vanish)
        with pytest.raises(KeyboardInterrupt):
            world.act("ann", "dare", {})
        world.settle()
        (stuck,) = world.host.stuck()
        caught = world.host.resolve(stuck["proposalId"], "fail", by="bob", reason="as before")
        assert caught.status == "completed"
        assert world.data()["done"] == ["EFFECT_IN_DOUBT"]
    check_log(address)


def test_one_that_vanishes_again_while_it_is_made_again_is_in_doubt_again(address: str) -> None:
    name = left_in_doubt(address)
    outside = Outside(vanish)
    with reopened(address, outside) as world:
        with pytest.raises(KeyboardInterrupt):
            world.host.resolve(name, "retry", by="bob", reason="nothing there")
        world.settle()
        assert len(world.host.stuck()) == 1
        assert world.host.resolve(name, "retry", by="bob", reason="still nothing").status == "completed"
        assert len(outside.done) == 2
    check_log(address)


NONSENSE: list[tuple[str, dict[str, Any]]] = [
    ("NOT_IN_DOUBT", {"proposal_id": "nobody's"}),
    ("NOT_IN_DOUBT", {"effect": "another"}),
    ("UNKNOWN_ACTOR", {"by": "stranger"}),
    ("REASON_MISSING", {"reason": " \n"}),
    ("REASON_MISSING", {"reason": None}),
    ("INVALID_VALUE", {"choice": "perhaps"}),
    ("INVALID_VALUE", {"choice": "retry", "value": 1}),
    ("INVALID_VALUE", {"choice": "fail", "value": {}}),
    ("NOT_CANONICAL", {"value": math.nan}),
    ("NOT_CANONICAL", {"value": {1, 2}}),
    ("EVENT_TOO_LARGE", {"value": "x" * (8 << 20)}),
]


@pytest.mark.parametrize(("code", "wrong"), NONSENSE)
def test_nonsense_about_an_effect_in_doubt_is_refused_and_changes_nothing(
    address: str, code: str, wrong: dict[str, Any]
) -> None:
    name = left_in_doubt(address)
    with reopened(address, Outside()) as world:
        size = world.log.head().size
        told = {"proposal_id": name, "choice": "happened", "by": "bob", "reason": "seen", **wrong}
        with pytest.raises(RefusedError) as refused:
            world.host.resolve(told.pop("proposal_id"), told.pop("choice"), **told)
        assert refused.value.code == code
        assert world.log.head().size == size
        assert world.host.resolve(name, "happened", by="bob", reason="seen", value="b").status == "completed"
        with pytest.raises(RefusedError) as refused:
            world.host.resolve(name, "happened", by="bob", reason="seen", value="b")
        assert refused.value.code == "NOT_IN_DOUBT"


@pytest.mark.requirement("HC-journal", "KM-2.2")
def test_an_effect_in_doubt_outlasts_restarts_is_never_made_by_itself_and_keeps_its_leases(address: str) -> None:
    name = left_in_doubt(address)
    outside = Outside()
    for number in range(3):
        with reopened(address, outside, idempotent=number == 2) as world:
            world.settle()
            assert len(world.host.stuck()) == 1
            with pytest.raises(RefusedError):
                world.leases.acquire(agent="eve", resource="STATE:/main/*", timeout=0)
            assert world.realm().klis.holds("ann", name)
            assert [type(event) for event in events(world, name)].count(EffectInDoubt) == 1
    assert outside.attempts == []
    with reopened(address, outside, parts={"clock": ManualClock(10**12)}) as world:
        assert len(world.host.stuck()) == 1  # no time limit of anything ends it
        world.host.resolve(name, "retry", by="bob", reason="nothing there")
        assert world.realm().klis.leases == {}
    check_log(address)


def test_who_looks_on_takes_nothing_over_from_whoever_goes_on_with_what_was_in_doubt(address: str) -> None:
    name = left_in_doubt(address)
    held = Held()
    outside = Outside(held)
    with reopened(address, outside) as first:  # which took the execution over, and put the effect in doubt
        second = Realm.open(address, domain=works, effects=[outside.handler()], clock=ManualClock(600_000, 1))
        with second:
            ended: list[Any] = []

            def resolve() -> None:
                ended.append(second.host.resolve(name, "retry", by="bob", reason="nothing there"))

            worker = threading.Thread(target=resolve)
            worker.start()
            assert held.begun.wait(PATIENCE_S)
            for world in (first, second):
                world.settle()
            with reopened(address, outside) as third:
                assert third.host.stuck() == []
            held.may_go.set()
            worker.join(PATIENCE_S)
            assert ended[0].status == "completed"
            assert ended[0].dropped == 0
    assert len(outside.done) == 2
    check_log(address)


# Retries


def stumble(params: Any, call: Any) -> Any:
    return EffectFailure("BUSY", "later", retryable=True)


def fall(params: Any, call: Any) -> Any:
    raise OSError("the line is dead")


def sleep(params: Any, call: Any) -> Any:
    while not call.is_cancelled():
        threading.Event().wait(0.01)


@pytest.mark.parametrize(("step", "code"), [(stumble, "BUSY"), (fall, "EFFECT_RAISED"), (sleep, "EFFECT_TIMED_OUT")])
def test_what_failed_and_is_idempotent_is_made_again_after_twice_the_wait_each_time(
    address: str, step: Any, code: str
) -> None:
    outside = Outside(step, step, step)
    limit_ms = 200 if step is sleep else 600_000
    with a_yard(address, outside, idempotent=True, retries=3, backoff_ms=3, time_limit_ms=limit_ms) as world:
        done = world.act("ann", "do", {})
        is_late = step is sleep and done.error is not None and done.error.code == code  # the last attempt, too
        assert done.status == "completed" or is_late
        told = events(world, done.proposal_id)
        retried = [event for event in told if isinstance(event, EffectRetried)]
        assert [(event.failures, event.error.code, event.due - event.at) for event in retried] == [
            (1, code, 3),
            (2, code, 6),
            (3, code, 12),
        ]
        assert outside.attempts == [1, 2, 3, 4]
        assert len(set(outside.keys)) == 1
        requested = [event for event in told if isinstance(event, EffectRequested)]
        assert [later.at >= earlier.at for earlier, later in zip(retried, requested[1:], strict=True)] == [True] * 3
        assert len([event for event in told if isinstance(event, EffectFulfilled)]) == 1
    check_log(address)


def test_after_its_last_retry_the_last_failure_is_the_result(address: str) -> None:
    outside = Outside(*[stumble] * 9)
    with a_yard(address, outside, idempotent=True, retries=2, backoff_ms=1) as world:
        failed = world.act("ann", "do", {})
        assert failed.error is not None
        assert (failed.status, failed.error.code) == ("failed", "BUSY")
        assert outside.attempts == [1, 2, 3]
    check_log(address)


@pytest.mark.parametrize("step", [stumble, fall, sleep])
def test_what_is_not_idempotent_is_never_made_again(address: str, step: Any) -> None:
    outside = Outside(step)
    limit_ms = 200 if step is sleep else 600_000
    with a_yard(address, outside, retries=3, backoff_ms=1, time_limit_ms=limit_ms) as world:
        assert world.act("ann", "do", {}).status == "failed"
        assert outside.attempts == [1]


def test_a_failure_that_does_not_pass_is_not_tried_again(address: str) -> None:
    outside = Outside(lambda _params, _call: EffectFailure("NEVER", "not today, not tomorrow"))
    with a_yard(address, outside, idempotent=True, retries=3, backoff_ms=1) as world:
        failed = world.act("ann", "do", {})
        assert failed.error is not None
        assert failed.error.code == "NEVER"
        assert outside.attempts == [1]


def test_one_that_ends_between_two_attempts_goes_on_with_the_next(address: str) -> None:
    waits = threading.Event()
    outside = Outside(stumble)
    promises = {"idempotent": True, "retries": 2, "backoff_ms": 60_000}
    with a_yard(address, outside, **promises) as world:
        world.subscribe(lambda _at, event, _do: waits.set() if isinstance(event, EffectRetried) else None)
        with acting(world, "ann", "do", {}) as ended:
            assert waits.wait(PATIENCE_S)
            world.close()
        assert isinstance(ended[0], RefusedError)
    with reopened(address, outside, **promises) as world:  # minutes later by its clock, so that it is due
        (name,) = {event.proposal_id for _, event in world.events() if isinstance(event, EffectRetried)}
        assert world.proposal(name).status == "completed"
        assert outside.attempts == [1, 2]
        told = topics(world, name)
        assert told[2:] == [
            *["effect.retried", "effect.requested"],
            *["execution.started", "effect.requested", "effect.fulfilled"],
            "proposal.completed",
        ]
    check_log(address)


# Calling off


def cancelled(ended: list[Any], reason: str) -> None:
    (failed,) = ended
    assert failed.status == "failed"
    assert failed.error.code == "CANCELLED"
    assert failed.error.message == f"bob called it off: {reason}"
    assert failed.to_wire()["cancelled"]["by"] == "bob"


def test_what_has_not_begun_makes_no_effect_once_it_is_called_off(address: str) -> None:
    held = Held()
    outside = Outside(held)
    with a_yard(address, outside) as world:
        with acting(world, "ann", "do", {}, scope=["done"], execution_key="one"):
            assert held.begun.wait(PATIENCE_S)
            waiting = world.act("ann", "do", {"into": "other"}, scope=["other"], execution_key="one")
            assert waiting.status == "approved"
            assert world.host.cancel(waiting.proposal_id, by="bob", reason="not needed").status == "approved"
            held.may_go.set()
        world.settle()
        cancelled([world.proposal(waiting.proposal_id)], "not needed")
        assert topics(world, waiting.proposal_id) == ["execution.cancelled", "execution.started", "proposal.failed"]
        assert len(outside.done) == 1
    assert check_log(address).steps["notRepeatable"] == 1


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same process", "another"])
@pytest.mark.slow
def test_an_effect_under_way_is_given_up_and_may_touch_nothing_any_more(address: str, elsewhere: bool) -> None:
    raised: list[BaseException] = []

    def touch(_params: Any, call: Any) -> Any:
        assert call.is_cancelled()
        try:
            call.check()
        except Exception as error:
            raised.append(error)
            raise
        return "touched"

    held = Held(touch)
    outside = Outside(held)
    with a_yard(address, outside) as world:
        other = reopened(address, Outside(), parts={"clock": ManualClock(2_000, 1)}) if elsewhere else world
        with acting(world, "ann", "do", {"what": ["x", "y"]}) as ended:
            assert held.begun.wait(PATIENCE_S)
            assert not held.call.is_cancelled()
            held.call.check()
            assert other.host.cancel(running(other), by="bob", reason="too late").status == "executing"
        cancelled(ended, "too late")
        held.may_go.set()
        assert held.over.wait(PATIENCE_S)
        assert [type(error).__name__ for error in raised] == ["LeasesLostError"]
        assert outside.done == []
        assert topics(world, ended[0].proposal_id) == [
            *["execution.started", "effect.requested", "execution.cancelled", "effect.fulfilled", "proposal.failed"]
        ]
        other.close()
    assert check_log(address).steps["notRepeatable"] == 1


def test_an_async_handler_is_cancelled(address: str) -> None:
    begun, stopped = threading.Event(), threading.Event()

    @handler("work")
    async def work(params: Any, call: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    with Realm.create(address, domain=works, effects=[work]) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        with acting(world, "ann", "do", {}) as ended:
            assert begun.wait(PATIENCE_S)
            world.host.cancel(running(world), by="bob", reason="enough")
        cancelled(ended, "enough")
        assert stopped.wait(PATIENCE_S)


def test_a_wait_for_a_timer_is_broken_off(address: str) -> None:
    asked = threading.Event()
    with a_yard(address, Outside()) as world:
        world.subscribe(lambda _at, event, _do: asked.set() if isinstance(event, EffectRequested) else None)
        with acting(world, "ann", "wait", {"ms": 3_600_000}) as ended:
            assert asked.wait(PATIENCE_S)
            world.host.cancel(running(world), by="bob", reason="now")
        cancelled(ended, "now")


def test_a_wait_before_a_further_attempt_is_broken_off(address: str) -> None:
    waits = threading.Event()
    outside = Outside(stumble)
    with a_yard(address, outside, idempotent=True, retries=1, backoff_ms=3_600_000) as world:
        world.subscribe(lambda _at, event, _do: waits.set() if isinstance(event, EffectRetried) else None)
        with acting(world, "ann", "do", {}) as ended:
            assert waits.wait(PATIENCE_S)
            world.host.cancel(running(world), by="bob", reason="now")
        cancelled(ended, "now")
        assert outside.attempts == [1]
    check_log(address)


def test_an_effect_in_doubt_can_be_called_off_and_what_is_not_known_is_told(address: str) -> None:
    name = left_in_doubt(address)
    outside = Outside()
    with reopened(address, outside) as world:
        failed = world.host.cancel(name, by="bob", reason="never mind")
        cancelled([failed], "never mind")
        (told,) = [event for event in events(world, name) if isinstance(event, EffectResolved)]
        assert (told.choice, told.by, told.reason) == ("fail", "bob", "never mind")
        assert world.realm().klis.leases == {}
        assert outside.attempts == []
    check_log(address)


def test_what_was_called_off_ends_though_its_process_vanished_before_it_noticed(address: str) -> None:
    held = Held(vanish)
    with a_yard(address, Outside(held)) as world:
        with acting(world, "ann", "do", {}) as ended:
            assert held.begun.wait(PATIENCE_S)
            with reopened(address, Outside(), parts={"clock": ManualClock(2_000, 1)}) as other:
                held.may_go.set()  # it may be that it is given up before it can vanish
                name = running(other)
                other.host.cancel(name, by="bob", reason="stop")
        assert ended
    with reopened(address, Outside()) as world:
        assert world.host.stuck() == []
        cancelled([world.proposal(name)], "stop")
    check_log(address)


def test_only_what_is_approved_and_has_not_ended_can_be_called_off(address: str) -> None:
    with a_yard(address, Outside()) as world:
        done = world.act("ann", "do", {})
        size = world.log.head().size
        for name in (done.proposal_id, "nobody's"):
            with pytest.raises(RefusedError) as refused:
                world.host.cancel(name, by="bob", reason="why not")
            assert refused.value.code == "NOT_RUNNING"
        assert world.log.head().size == size
    name = left_in_doubt(f"{address}2")
    with reopened(f"{address}2", Outside()) as world:
        for reason in ("", None):
            with pytest.raises(RefusedError) as refused:
                world.host.cancel(name, by="bob", reason=reason)  # type: ignore[arg-type]
            assert refused.value.code == "REASON_MISSING"
        assert len(world.host.stuck()) == 1


def test_an_action_that_fails_with_the_engines_own_code_is_performed_again_by_a_recheck(address: str) -> None:
    outside = Outside(lambda _params, _call: EffectFailure("CANCELLED", "the train is cancelled"))
    with a_yard(address, outside) as world:
        assert world.act("ann", "do", {}).status == "failed"
    assert check_log(address).steps["notRepeatable"] == 0
