"""Effects in doubt that their handlers look up: before a person decides, outside of the lock, once in each process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from host import DoubtfulEffect, EffectFailure, EffectRegistry, EffectResult, external, handler
from tests.pipeline.offering import GRACE_MS, LIMIT_MS, START, answered, claimed, offering, open_again, room
from tests.pipeline.offering import failing as failed
from tests.pipeline.test_worker import here, running
from tests.pipeline.works import Held, Outside, check_log, events, left_in_doubt, reopened, topics, vanish
from tests.support.patience import PATIENCE_S
from tests.waiting.till import until
from world.clock import ManualClock, SystemClock
from world.errors import RefusedError
from world.events.execution_events import EffectDropped, EffectFulfilled, EffectInDoubt
from world.pipeline.effect_requests import attempt_of
from world.state.effect_claim import EffectDoubt, UnreadableDoubt
from worldprotocol import Worker
from worldprotocol.api.executing.remote_effects import RemoteEffects

pytestmark = pytest.mark.requirement("HC-journal", "WP-exec")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


class LookUp:
    """A ``look_up`` that notes what it is asked and answers by a plan; beyond its end it finds nothing.

    Args:
        plan: answers, and functions that are called with the effect.
    """

    def __init__(self, *plan: Any) -> None:
        self.plan = list(plan)
        self.asked: list[DoubtfulEffect] = []

    def __call__(self, effect: DoubtfulEffect) -> Any:
        self.asked.append(effect)
        answer = self.plan.pop(0) if self.plan else None
        return answer(effect) if callable(answer) else answer


def test_a_result_that_is_looked_up_is_recorded_before_a_person_is_asked(address: str) -> None:
    name = left_in_doubt(address)
    outside, look_up = Outside(), LookUp(EffectResult("b, found"))
    with reopened(address, outside, look_up=look_up) as world:
        proposal = world.proposal(name)
        assert (proposal.status, world.host.stuck()) == ("completed", [])
        assert world.data()["done"] == ["a", "b, found", "c"]
        (doubt,) = [event for event in events(world, name) if isinstance(event, EffectInDoubt)]
        found = [event for event in events(world, name) if isinstance(event, EffectFulfilled)]
        assert [event.looked_up for event in found] == [None, True, None]
        assert found[1].requirement_id == doubt.requirement_id
        assert topics(world, name)[-5:] == [
            *["effect.in_doubt", "effect.fulfilled", "effect.requested", "effect.fulfilled"],
            "proposal.completed",
        ]
    (asked,) = look_up.asked
    assert (asked.type, asked.params, asked.proposal_id) == ("work", {"what": "b"}, name)
    assert asked.idempotency_key == f"{proposal.submitted.intent.intent_id}:{doubt.requirement_id}"
    assert (asked.attempt, 0 < asked.requested_at < doubt.at) == (1, True)
    assert len(outside.done) == 1  # the third; the second was not made again
    assert doubt.requirement_id not in outside.done[0]
    check_log(address)


def test_what_is_not_known_stays_in_doubt_and_each_process_asks_once(address: str) -> None:
    name = left_in_doubt(address)
    look_up = LookUp()
    for number in range(1, 3):
        with reopened(address, Outside(), look_up=look_up) as world:
            world.settle()
            world.settle()
            assert len(look_up.asked) == number
            assert [one["proposalId"] for one in world.host.stuck()] == [name]
            assert [type(event) for event in events(world, name)].count(EffectInDoubt) == 1
            assert topics(world, name)[-1] == "effect.in_doubt"
    with reopened(address, Outside(), look_up=LookUp(EffectResult("b"))) as world:
        assert world.proposal(name).status == "completed"
    check_log(address)


def failing(_effect: DoubtfulEffect) -> Any:
    raise ConnectionError("the bank does not answer")


def hanging(_effect: DoubtfulEffect) -> Any:
    time.sleep(0.2)
    return EffectResult("late")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (failing, "ConnectionError: the bank does not answer"),
        (hanging, "took longer than 20 ms"),
        ("b", "it must return EffectResult, or None"),
        (EffectFailure("NO_SUCH_PAYMENT", "nothing there"), "it must return EffectResult, or None"),
        (EffectResult({1, 2}), "cannot be recorded"),
        (EffectResult("x" * (2 << 20)), "the limit is"),
    ],
    ids=["raises", "hangs", "a value", "a failure", "no JSON", "too large"],
)
def test_a_look_up_that_fails_leaves_the_doubt(
    address: str, answer: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = left_in_doubt(address)
    plan = answer if callable(answer) else lambda _effect: answer
    with (
        caplog.at_level(logging.WARNING),
        reopened(address, Outside(), look_up=LookUp(plan), time_limit_ms=20 if answer is hanging else 30_000) as world,
    ):
        assert len(world.host.stuck()) == 1
        assert topics(world, name)[-1] == "effect.in_doubt"
    (said,) = [one.message for one in caplog.records if "stays in doubt" in one.message]
    assert words in said
    check_log(address)


def test_an_async_look_up_is_awaited(address: str) -> None:
    name = left_in_doubt(address)

    async def look_up(effect: DoubtfulEffect) -> EffectResult:
        return EffectResult(f"{effect.params['what']} at last")

    with reopened(address, Outside(), look_up=look_up) as world:
        assert world.proposal(name).status == "completed"
        assert world.data()["done"] == ["a", "b at last", "c"]
    check_log(address)


def test_a_look_up_holds_no_lock(address: str) -> None:
    """Another process writes while it runs; under the lock it would wait for the look-up, which waits for it."""
    name = left_in_doubt(address)
    made: list[str] = []

    def look_up(_effect: DoubtfulEffect) -> EffectResult:
        def act() -> None:
            with reopened(address, Outside()) as other:
                other.register("zoe", "human", binding={"kind": "auto_approve"})
                made.append("zoe")

        acting = threading.Thread(target=act)
        acting.start()
        acting.join(PATIENCE_S)
        return EffectResult("b")

    with reopened(address, Outside(), look_up=look_up) as world:
        assert world.proposal(name).status == "completed"
    assert made == ["zoe"]


def test_what_a_person_decides_meanwhile_holds_and_the_late_result_is_dropped(address: str) -> None:
    name = left_in_doubt(address)
    held = Held(lambda _effect, _none: EffectResult("too late"))
    ended: list[Any] = []

    def recover() -> None:
        with reopened(address, Outside(), look_up=lambda effect: held(effect, None)) as world:
            ended.append(world.proposal(name))

    recovering = threading.Thread(target=recover)
    recovering.start()
    assert held.begun.wait(PATIENCE_S)
    with reopened(address, Outside()) as world:
        assert world.host.resolve(name, "happened", by="bob", reason="seen", value="by hand").status == "completed"
    held.may_go.set()
    recovering.join(PATIENCE_S)
    assert ended[0].status == "completed"
    with reopened(address, Outside()) as world:
        assert world.data()["done"] == ["a", "by hand", "c"]
        dropped = [event for event in events(world, name) if isinstance(event, EffectDropped)]
        assert [event.reason for event in dropped] == ["it was looked up, and is not in doubt any more"]
    check_log(address)


def test_a_process_that_ends_during_a_look_up_leaves_it_to_the_next(address: str) -> None:
    name = left_in_doubt(address)
    with pytest.raises(KeyboardInterrupt):
        reopened(address, Outside(), look_up=lambda effect: vanish(effect, None))
    with reopened(address, Outside(), look_up=LookUp(EffectResult("b"))) as world:
        assert world.proposal(name).status == "completed"
    check_log(address)


def test_an_effect_that_is_made_again_and_in_doubt_again_is_looked_up_again(address: str) -> None:
    name = left_in_doubt(address)
    outside, look_up = Outside(vanish), LookUp(None, EffectResult("b"))
    with reopened(address, outside, look_up=look_up) as world:
        with pytest.raises(KeyboardInterrupt):
            world.host.resolve(name, "retry", by="bob", reason="nothing there")
        assert len(look_up.asked) == 1
        world.settle()
        assert len(look_up.asked) == 2
        assert world.proposal(name).status == "completed"
    check_log(address)


def test_a_process_that_performs_nothing_looks_nothing_up_and_its_worker_does(address: str) -> None:
    name = left_in_doubt(address)
    look_up = LookUp(EffectResult("b"))
    outside = Outside()
    parts = {"execute": False, "clock": SystemClock()}
    with reopened(address, outside, look_up=look_up, parts=parts) as world:
        world.settle()
        assert (look_up.asked, len(world.host.stuck())) == ([], 1)
        with running(Worker(world)):
            until(lambda: world.proposal(name).status == "completed")
    assert len(look_up.asked) == 1
    check_log(address)


def test_a_claim_without_a_report_is_looked_up_where_its_effect_is_declared(address: str) -> None:
    clock, look_up = ManualClock(START), LookUp(EffectResult("it was sent"))
    with offering(address, clock=clock, look_up=look_up) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        claimed(realm)
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        realm.settle()
        assert realm.proposal(name).status == "completed"
        assert realm.data()["done"] == ["it was sent"]
        assert topics(realm, name)[-4:-1] == ["effect.claimed", "effect.in_doubt", "effect.fulfilled"]
    with open_again(address, clock, "again") as realm:
        assert realm.proposal(name).status == "completed"
    check_log(address, domain=room)


def test_a_worker_looks_up_what_another_worker_left(address: str) -> None:
    clock, look_up = ManualClock(START), LookUp(EffectResult("it was sent"))
    with offering(address, clock=clock) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        claimed(realm)
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        realm.settle()
        assert len(realm.host.stuck()) == 1
        sending = handler("work", look_up=look_up)(lambda _params, _call: "sent again")
        with here(address, sending) as other, running(Worker(other)):
            until(lambda: realm.proposal(name).status == "completed")
        assert realm.data()["done"] == ["it was sent"]
    check_log(address, domain=room)


def test_what_a_worker_elsewhere_finds_out_is_recorded_once_and_what_comes_later_is_dropped(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm:
        names = [realm.act("ann", "do", {"box": box}, scope=[f"boxes.{box}"]).proposal_id for box in "ab"]
        for _ in names:
            claimed(realm)
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        realm.settle()
        claims = realm._claims
        assert claims.doubts(["other"]) == []
        doubts: list[Any] = claims.doubts(["other", "work"])
        assert [(one.proposal_id, one.requirement.type, one.attempt) for one in doubts] == [
            (name, "work", 1) for name in names
        ]
        first, second = (EffectDoubt.from_wire(one.to_wire()) for one in doubts)
        with pytest.raises(RefusedError) as refused:
            claims.found(first, failed())
        assert refused.value.code == "INVALID_VALUE"
        assert claims.found(first, answered("it was sent")).status == "completed"
        size = realm.log.head().size
        assert claims.found(first, answered("it was sent")).status == "completed"  # its answer was lost
        assert realm.log.head().size == size
        assert claims.doubts(["work"]) == doubts[1:]
        realm.host.resolve(names[1], "happened", by="bob", reason="seen", value="by hand")
        for doubt in (first, second, second):
            assert claims.found(doubt, answered("too late")).status == "completed"
        reasons = [[one.reason for one in events(realm, name) if isinstance(one, EffectDropped)] for name in names]
        assert [len(one) for one in reasons] == [1, 1]
        size = realm.log.head().size
        invented = structs.replace(second, requirement=first.requirement)
        with pytest.raises(RefusedError, match="was never in doubt") as refused:
            claims.found(invented, answered("x"))
        assert (refused.value.code, realm.log.head().size) == ("NOT_IN_DOUBT", size)
        assert realm.data()["boxes"] == {"a": ["it was sent"], "b": ["by hand"]}
        with pytest.raises(RefusedError) as unknown:
            claims.found(structs.replace(first, proposal_id="none"), answered("x"))
        assert unknown.value.code == "UNKNOWN_PROPOSAL"
    check_log(address, domain=room)


def test_a_doubt_that_cannot_be_read_hides_no_other(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm:
        names = [realm.act("ann", "do", {"box": box}, scope=[f"boxes.{box}"]).proposal_id for box in "ab"]
        for _ in names:
            claimed(realm)
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        realm.settle()

        def attempt(work: Any, proposal: Any, requirement: Any) -> Any:
            if proposal.proposal_id == names[0]:
                raise KeyError("lease")
            return attempt_of(work, proposal, requirement)

        monkeypatch.setattr("world.pipeline.effect_requests.attempt_of", attempt)
        unreadable, doubt = realm._claims.doubts(["work"])
        assert isinstance(unreadable, UnreadableDoubt)
        assert isinstance(doubt, EffectDoubt)
        assert (unreadable.proposal_id, unreadable.reason) == (names[0], "'lease'")
        assert realm._claims.found(doubt, answered("it was sent")).status == "completed"


def test_a_worker_elsewhere_looks_up_what_it_can_read(caplog: pytest.LogCaptureFixture) -> None:
    sending = external("work", look_up=lambda _effect: None)
    remote = RemoteEffects("http://localhost:1", "main", None, EffectRegistry([sending]))
    unreadable = {"proposalId": "p-1", "requirementId": "r-1", "reason": "odd"}
    with remote, caplog.at_level("WARNING"):
        for _ in range(2):
            assert list(remote._doubts_in({"doubts": [{"proposalId": "p-2"}], "unreadable": [unreadable]})) == []
    told = sorted(one.getMessage() for one in caplog.records)
    assert [one.rpartition(": ")[0] for one in told][1:] == [
        "An effect in doubt cannot be looked up, and stays for a person: r-1 of p-1"
    ]
    assert "p-2: This is no EffectDoubt" in told[0]


def test_what_was_asked_again_is_not_settled_by_what_was_found_out_before(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        before: list[Any] = []
        for _ in range(2):
            claimed(realm)
            clock.advance(LIMIT_MS + GRACE_MS + 1)
            realm.settle()
            before += realm._claims.doubts(["work"])
            if len(before) == 1:
                realm.host.resolve(name, "retry", by="bob", reason="nothing there")
        assert realm._claims.found(before[0], answered("an old answer")).status == "executing"
        assert [one["proposalId"] for one in realm.host.stuck()] == [name]
        assert realm._claims.found(before[1], answered("sent")).status == "completed"
        assert realm.data()["done"] == ["sent"]
    check_log(address, domain=room)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"look_up": "ask"}, "its look_up must be a function of one argument"),
        ({"look_up": lambda: None}, "its look_up must be a function of one argument"),
        ({"look_up": lambda _params, _call: None}, "its look_up must be a function of one argument"),
        ({"look_up": lambda _effect: None, "isolation": "process"}, "it cannot have a look_up"),
    ],
)
def test_a_look_up_that_is_none_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedError, match=words) as refused:
        handler("work", **options)(vanish)
    assert refused.value.code == "INVALID_HANDLER"


def test_a_handler_says_that_it_looks_up() -> None:
    asked: Callable[[DoubtfulEffect], None] = lambda _effect: None  # noqa: E731
    assert handler("work", look_up=asked)(vanish).look_up is asked
    assert external("work", look_up=asked).look_up is asked
    assert handler("work")(vanish).look_up is None
