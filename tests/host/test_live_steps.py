"""What a host keeps between the steps of an execution changes nothing but the time it takes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel

from host import STATE_CONFLICT, EffectRegistry, Host
from host.executor import MAX_LIVE
from tests.host.driving import NOW
from world.clock import SequentialIds
from world.core import ActionContext, ComputeContext, Domain, EffectAnswer, effect, genesis, set_
from world.model.actor import ActorRef
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin, IntentScope
from world.model.source import SourceEvent
from world.state.ports import ExecutionOrder


class State(BaseModel):
    seen: list[Any] = []


def domain(chance: list[int]) -> Domain:
    built = Domain("urn:test:steps", version="1.0.0", state=State)

    @built.action("ask", version="1")
    def ask(ctx: ActionContext) -> Any:
        for number in range(6):
            answer = yield effect("ask", number=number, chance=chance[0])
            yield [set_("seen", [*ctx.data["seen"], answer])]
        return []

    return built


def order_for(built: Domain, number: int = 1, scope: IntentScope | None = None) -> ExecutionOrder:
    origin = IntentOrigin(
        projection_id="test",
        source=SourceEvent(kind="api", event_id="e1").ref,
        actor=ActorRef(actor_id="ann", kind="human"),
    )
    body = IntentBody(type="ask")
    intent = IntentInstance(
        body=body,
        intent_id=SequentialIds().intent_id(),
        intent_key=body.key(built.schema.hash),
        meta=IntentMeta(origin=origin),
    )
    base = genesis(built, ComputeContext(now=NOW, random_seed=""))
    return ExecutionOrder(f"p{number}", intent, base, scope, NOW, intent.intent_id)


def with_result(host: Host, order: ExecutionOrder, value: Any) -> ExecutionOrder:
    asked = host.step(order).requirements[0]
    return replace(order, journal={**order.journal, asked.id: EffectAnswer(value=value)})


@pytest.mark.requirement("HC-compute", "IC-reentry")
def test_a_host_that_begins_in_the_middle_goes_on_as_the_one_that_began() -> None:
    built = domain([0])
    first = Host(built, EffectRegistry())
    order = order_for(built)
    for number in range(6):
        assert Host(built, EffectRegistry()).step(order) == first.step(order)
        order = with_result(first, order, number)
    assert first.step(order) == Host(built, EffectRegistry()).step(order)
    assert first.step(order).snapshot.data["seen"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.requirement("HC-compute")
def test_an_action_that_is_not_deterministic_is_found_though_it_is_kept() -> None:
    chance = [0]
    built = domain(chance)
    host = Host(built, EffectRegistry())
    order = order_for(built)
    for number in range(5):
        order = with_result(host, order, number)
    chance[0] = 1
    order = with_result(host, order, 5)
    ended = host.step(order)
    assert ended.error is not None
    assert ended.error.code == STATE_CONFLICT


@pytest.mark.requirement("INT-13.5")
def test_the_scope_is_held_against_every_patch_of_a_kept_execution() -> None:
    built = domain([0])
    host = Host(built, EffectRegistry())
    wide, narrow = IntentScope(allowed_paths=("seen",)), IntentScope(allowed_paths=("other",))
    order = order_for(built, scope=wide)
    for number in range(3):
        order = with_result(host, order, number)
    assert host.step(order).status == "pending"
    refused = host.step(replace(order, approved_scope=narrow))
    assert refused.error is not None
    assert refused.error.code == "SCOPE_VIOLATION"


def test_a_host_keeps_a_bounded_number_of_executions_and_goes_on_with_all() -> None:
    built = domain([0])
    host = Host(built, EffectRegistry())
    orders = [with_result(host, order_for(built, number), number) for number in range(MAX_LIVE + 20)]
    assert len(host._live) <= MAX_LIVE
    orders = [with_result(host, order, "second") for order in orders]
    assert all(host.step(order).status == "pending" for order in orders)
