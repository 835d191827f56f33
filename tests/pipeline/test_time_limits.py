"""Foreign code that never ends: the lock comes free again, and nobody is taken along."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from authority import Approve, Policy, rule
from projections import NoIntent, projection
from world.code import time_limit
from world.code.time_limit import TimeLimit, TimeLimitError, breakable, unbroken, unlimited
from world.core import ActionContext, Domain, effect, set_
from world.errors import RefusedError
from world.limits import Limits
from world.model.source import SourceEvent
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.realm import Realm

SHORT = Limits(max_call_ms=150)


class State(BaseModel):
    count: int = 0
    hang: bool = False


class Wish(BaseModel):
    hang: str = ""


def for_ever() -> None:
    while True:
        pass


def stubborn() -> None:
    """Catch everything, many times, before giving in."""
    for _ in range(3):
        with contextlib.suppress(BaseException):  # what badly written code does
            for_ever()


HANGING = {"loop": for_ever, "stubborn": stubborn}


def domain() -> Domain:
    built = Domain("urn:test:hang", version="1.0.0", state=State)

    @built.computed("slow", deps=["hang"])
    def slow(data: Any) -> int:
        if data["hang"]:
            for_ever()
        return 1

    @built.action("count", version="1")
    def count(ctx: ActionContext, wish: Wish) -> Any:
        HANGING.get(wish.hang, int)()
        if wish.hang == "later":
            yield effect("bank.charge", amount=1)
            for_ever()
        if wish.hang == "computed":
            yield [set_("hang", True)]
            return [set_("count", ctx.computed["slow"])]
        if wish.hang == "pretends":
            ctx.fail("ACTION_TIMED_OUT", "I say so.")
        return [set_("count", ctx.data["count"] + 1)]

    return built


HUNG = domain()


@rule
def hangs(case: Any) -> Any:
    if case.intent.body.input["hang"] == "rule":
        for_ever()
    return Approve("it ended")


@rule
def approves(case: Any) -> Any:
    return Approve("always")


@rule
def counts_for_ever(case: Any) -> Any:
    while case.intent.body.input["hang"] == "history":
        case.history.count(actor_id="ann")
    return None


house = Policy("hanging", [counts_for_ever, hangs, approves])


@projection("hanging", sources=["ui"])
def hanging(req: Any) -> Any:
    if req.source.payload["hang"]:
        for_ever()
    return NoIntent("nothing to do")


def opened(address: str | Path, **more: Any) -> Realm:
    world = Realm.create(str(address), domain=HUNG, policies=[house], projections=[hanging], limits=SHORT, **more)
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("bob", "human", binding={"kind": "policy_rules", "policy": "hanging"})
    return world


def acted_in_time(world: Realm, actor: str) -> str:
    """Act soundly and return the status; again where the machine stood still for so long that the limit passed."""
    late = True
    while late:
        done = world.act(actor, "count", {"hang": ""})
        late = "TIMED_OUT" in f"{done.error} {done.decision}"
    return done.status


@pytest.mark.requirement("WP-exec")
@pytest.mark.parametrize("how", ["loop", "stubborn", "computed"])
@pytest.mark.slow
def test_an_action_that_never_ends_fails_its_proposal_and_frees_the_lock(log_url: str, how: str) -> None:
    with opened(log_url) as world:
        ended = world.act("ann", "count", {"hang": how})
        assert ended.status == "failed"
        assert ended.error is not None
        assert ended.error.code == "ACTION_TIMED_OUT"
        assert ended.error.context == {"limitMs": 150}
        assert acted_in_time(world, "ann") == "completed"
        assert world.data()["count"] == 1


def test_an_action_that_never_ends_after_an_effect_fails_its_proposal(log_url: str) -> None:
    from tests.pipeline.shop import Bank

    with opened(log_url, effects=[Bank().handler()]) as world:
        ended = world.act("ann", "count", {"hang": "later"})
        assert (ended.status, ended.error and ended.error.code) == ("failed", "ACTION_TIMED_OUT")


@pytest.mark.requirement("CARD-policy")
@pytest.mark.parametrize("how", ["rule", "history"])
@pytest.mark.slow
def test_a_rule_that_never_ends_refuses_and_those_behind_it_are_not_asked(log_url: str, how: str) -> None:
    with opened(log_url) as world:
        refused = world.act("bob", "count", {"hang": how})
        assert refused.status == "rejected"
        assert refused.decision is not None
        trace = {one.rule: one for one in refused.decision.trace}
        late = trace["hangs" if how == "rule" else "counts_for_ever"]
        assert late.answer == "error"
        assert late.reason == "RULE_TIMED_OUT: it took longer than 150 ms"
        assert trace["approves"].answer == "error"
        assert "was not asked" in trace["approves"].reason
        assert acted_in_time(world, "bob") == "completed"
        assert world.data()["count"] == 1


@pytest.mark.parametrize("paranoid", [False, True])
@pytest.mark.slow
def test_a_projection_that_never_ends_is_refused_by_name(shared_log_url: str, paranoid: bool) -> None:
    address = shared_log_url
    with opened(address, paranoid=paranoid) as world:
        for event_id in ("e1", "e2"):
            source = SourceEvent(kind="ui", event_id=event_id, payload={"hang": True})
            with pytest.raises(RefusedError) as refused:
                world.project(source, "ann")
            assert refused.value.code == "PROJECTION_TIMED_OUT"
            assert refused.value.details["projection"] == "hanging"
    with Realm.open(address, domain=HUNG, projections=[hanging], paranoid=paranoid) as world:
        source = SourceEvent(kind="ui", event_id="e3", payload={"hang": False})
        assert world.project(source, "ann").reason == "nothing to do"


def test_a_computed_value_that_never_ends_refuses_what_would_be_built_on_it(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        Realm.create(str(tmp_path / "w.db"), domain=HUNG, limits=SHORT, data={"hang": True})
    assert refused.value.code == "COMPUTED_TIMED_OUT"


@pytest.mark.requirement("CARD-replay")
def test_a_recheck_counts_what_was_broken_off_and_calls_it_no_difference(tmp_path: Path) -> None:
    address = tmp_path / "w.db"
    with opened(address) as world:
        world.act("ann", "count", {"hang": "loop"})
        world.act("bob", "count", {"hang": "rule"})
    with Realm.open(address, domain=HUNG, policies=[house]) as world:  # where a sound call has time enough
        world.act("ann", "count", {"hang": "pretends"})
        world.act("bob", "count", {"hang": ""})
    with open_to_recheck(str(address), domain=HUNG, policies=[house], projections=[hanging]) as again:
        done = recheck(again, every=True)
    assert done.divergences == []
    assert done.steps["notRepeatable"] == 2
    assert done.steps["executions"] == 2  # what an action itself calls so is performed again


def test_a_step_that_took_its_time_is_rechecked_without_a_limit() -> None:
    def slow() -> str:
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass
        return "done"

    with pytest.raises(TimeLimitError):
        TimeLimit(20).run(for_ever)
    assert unlimited(lambda: TimeLimit(20).run(slow)) == "done"


def test_what_a_call_returns_or_raises_in_time_is_its_own() -> None:
    limit = TimeLimit(10_000)
    assert limit.run(lambda: 7) == 7
    with pytest.raises(KeyError):
        limit.run(lambda: dict[str, int]()["missing"])
    with pytest.raises(KeyboardInterrupt):
        limit.run(lambda: (_ for _ in ()).throw(KeyboardInterrupt))


def test_a_call_that_was_broken_off_and_returned_all_the_same_does_not_count() -> None:
    def swallows() -> str:
        with contextlib.suppress(BaseException):
            for_ever()
        return "fine"

    with pytest.raises(TimeLimitError):
        TimeLimit(60).run(swallows)


def test_a_call_inside_of_a_limited_call_has_the_limit_of_that_one() -> None:
    with pytest.raises(TimeLimitError) as late:
        TimeLimit(60).run(lambda: TimeLimit(10_000).run(for_ever))
    assert late.value.limit_ms == 60


def test_what_must_not_be_broken_off_runs_to_its_end() -> None:
    done: list[str] = []

    def ours() -> None:
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass
        done.append("ours")

    with pytest.raises(TimeLimitError):
        TimeLimit(50).run(lambda: [step() for step in (lambda: unbroken(ours), for_ever)])
    assert done == ["ours"]
    with pytest.raises(TimeLimitError):
        TimeLimit(50).run(lambda: [step() for step in (ours, lambda: breakable(for_ever))], unbroken=True)
    assert done == ["ours", "ours"]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.slow
def test_no_exception_is_late_whenever_a_call_ends(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls end as near to their limit as can be; whatever escaped would break the loop around them."""
    monkeypatch.setattr(time_limit, "_LOOK_S", 0.0001)
    monkeypatch.setattr(time_limit, "AGAIN_S", 0.0003)
    escaped: list[BaseException] = []
    counts = {"late": 0, "in time": 0}

    def many() -> None:
        try:
            for number in range(1500):
                until = time.monotonic() + 0.0009 + 0.00002 * (number % 30)
                try:
                    TimeLimit(1).run(partial(spin, until))
                    counts["in time"] += 1
                except TimeLimitError:
                    counts["late"] += 1
                for _ in range(500):  # where a late one would land
                    pass
        except BaseException as error:  # noqa: BLE001 - this is what must not happen
            escaped.append(error)

    def spin(until: float) -> None:
        while time.monotonic() < until:
            pass

    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    gc.collect()
    gc.disable()  # what other tests left would be finalised in the middle of a call, and the exception land there
    try:
        workers = [threading.Thread(target=many) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        gc.enable()
        sys.setswitchinterval(before)
    assert escaped == []
    assert counts["in time"] > 0
    assert counts["late"] > 0
