"""Code that the world asks cannot call the world in turn: that is its own fault, and nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from tests.support.patience import PATIENCE_S
from world.clock import ManualClock, SequentialIds
from world.errors import RefusedError
from world.state.proposal import Proposal
from worldprotocol import (
    ActionContext,
    Approve,
    Domain,
    IntentBody,
    Policy,
    Realm,
    Select,
    effect,
    handler,
    projection,
    rule,
    set_,
)

R = TypeVar("R")

CALLS: dict[str, Callable[[Realm], Any]] = {
    "act": lambda world: world.act("ann", "add"),
    "register": lambda world: world.register("eve", "human"),
    "settle": lambda world: world.settle(),
    "branch": lambda world: world.create_branch("side"),
    "receive": lambda world: world.project({"kind": "ui", "eventId": "2"}, "ann"),
    "leases": lambda world: world.leases.acquire(agent="ann", resource="FILE:/a"),
}


class Sum(BaseModel):
    total: int = 0


class Bench:
    """A world whose code of one kind makes a call to it."""

    world: Realm

    def __init__(self) -> None:
        self.calls: dict[str, Callable[[Realm], Any]] = {}

    def in_time(self, call: Callable[[], R]) -> R:
        """Return what a call returns that must not wait for itself."""
        results: list[R] = []
        errors: list[Exception] = []

        def work() -> None:
            try:
                results.append(call())
            except Exception as error:  # noqa: BLE001  # raised again in the test
                errors.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "it waits for itself"
        if errors:
            raise errors[0]
        return results[0]

    def act(self, actor: str, action: str = "add") -> Proposal:
        return self.in_time(lambda: self.world.act(actor, action))

    def at(self, place: str) -> Any:
        call = self.calls.get(place)
        return None if call is None else call(self.world)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench()
    domain = Domain("urn:test:within", version="1.0.0", state=Sum)

    @domain.computed("twice", deps=["total"])
    def twice(data: Any) -> int:
        bench.at("computed")
        return int(data["total"]) * 2

    @domain.action("add", version="1")
    def add(ctx: ActionContext) -> Any:
        bench.at("action")
        return [set_("total", ctx.data["total"] + 1)]

    @domain.action("ring", version="1")
    def ring(ctx: ActionContext) -> Any:
        yield effect("bell")
        return [set_("total", ctx.data["total"] + 10)]

    @rule
    def asks(case: Any) -> Any:
        bench.at("rule")
        return Approve("fine")

    @projection("adds")
    def adds(request: Any) -> Any:
        bench.at("projection")
        return Select(IntentBody.read({"type": "add"}))

    @handler("bell", time_limit_ms=20_000)
    def bell(params: Any, call: Any) -> Any:
        done = bench.at("effect")
        return {"status": getattr(done, "status", None)}

    parts: dict[str, Any] = {"policies": [Policy("house", [asks])], "projections": [adds], "effects": [bell]}
    parts |= {"clock": ManualClock(1_000, 1), "ids": SequentialIds()}
    with Realm.create(tmp_path / "world.db", domain=domain, **parts) as bench.world:
        bench.world.register("ann", "human", binding={"kind": "auto_approve"})
        bench.world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "house"})
        yield bench


@pytest.mark.requirement("WP-decision")
@pytest.mark.parametrize("name", CALLS)
def test_a_rule_that_calls_its_world_refuses(bench: Bench, name: str) -> None:
    bench.calls["rule"] = CALLS[name]
    done = bench.act("bot")
    assert done.status == "rejected"
    assert done.decision is not None
    said = done.decision.reason
    assert "cannot call the world that is asking it" in said or "RULE_IMPURE: it uses Connection.execute" in said
    del bench.calls["rule"]
    assert bench.act("bot").status == "completed"


@pytest.mark.parametrize("name", CALLS)
def test_an_action_that_calls_its_world_fails_with_an_error_value(bench: Bench, name: str) -> None:
    bench.calls["action"] = CALLS[name]
    done = bench.act("ann")
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.code == "ACTION_RAISED"
    assert "cannot call the world that is asking it" in done.error.message
    assert bench.world.data() == {"total": 0}


@pytest.mark.parametrize("name", CALLS)
def test_a_projection_that_calls_its_world_has_failed(bench: Bench, name: str) -> None:
    bench.calls["projection"] = CALLS[name]
    size = bench.world.log.head().size
    with pytest.raises(RefusedError) as caught:
        bench.in_time(lambda: bench.world.project({"kind": "ui", "eventId": "1"}, "ann"))
    assert caught.value.code in ("PROJECTION_IMPURE", "PROJECTION_FAILED")  # whichever refuses the call first
    assert bench.world.log.head().size == size + (caught.value.code == "PROJECTION_IMPURE")  # which is recorded


def test_a_computed_value_that_calls_its_world_is_null(bench: Bench) -> None:
    bench.calls["computed"] = CALLS["act"]
    assert bench.act("ann").status == "completed"
    assert bench.world.data() == {"total": 1}


def test_code_that_catches_the_refusal_goes_on(bench: Bench) -> None:
    def forgiving(world: Realm) -> None:
        with pytest.raises(RefusedError) as caught:
            world.act("ann", "add")
        assert caught.value.code == "CALL_FROM_WITHIN"

    bench.calls["action"] = forgiving
    assert bench.act("bot").status == "completed"
    assert bench.world.data() == {"total": 1}


def test_an_effect_handler_may_call_its_world(bench: Bench) -> None:
    bench.calls["effect"] = CALLS["register"]
    assert bench.act("ann", "ring").status == "completed"
    assert "eve" in bench.world.realm().actors
