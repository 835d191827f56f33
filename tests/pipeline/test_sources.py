"""Source events through projections, blame back to them, and the executor behind its port."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from projections import NoIntent, projection
from tests.pipeline.shop import Bank, house, open_shop, shop
from world.clock import ManualClock, SequentialIds, SystemClock
from world.core import set_
from world.engine.protocol import WorldProtocol
from world.errors import RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.log import EventLog, open_log
from world.model.actor import ActorRef
from world.model.decision import Ruling
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin
from world.model.snapshot import ErrorValue, Snapshot, System
from world.model.source import SourceRef
from world.pipeline.submit import Submission
from world.read_models.index import WorldIndex
from world.state.ports import EffectTerms, Enforcement, ExecutionOrder, Performed, StepOutcome
from worldprotocol.api.realm import Realm


@projection("till", sources=["ui"])
def till(req: Any) -> Any:
    if req.source.payload.get("button") != "sell":
        return NoIntent("no button that means anything")
    return IntentBody(type="sell", input={"item": req.source.payload["item"]})


@projection("later", sources=["ui"], priority=-1)
def later(req: Any) -> Any:
    return IntentBody(type="close") if req.source.payload.get("button") == "close" else None


@pytest.fixture
def world(log_url: str) -> Iterator[Realm]:
    with open_shop(log_url, projections=[till, later], paranoid=True) as opened:
        yield opened


def click(number: int, **payload: Any) -> dict[str, Any]:
    return {"kind": "ui", "eventId": f"click-{number}", "payload": payload, "occurredAt": number}


@pytest.mark.requirement("INT-14.1", "INT-12.1", "INT-12.2", "INT-7.1")
def test_a_source_event_becomes_a_recorded_projection_and_a_world(world: Realm) -> None:
    came = world.project(click(1, button="sell", item="tea"), "ann")
    assert came.projection_id == "till"
    assert came.proposal is not None
    assert came.proposal.status == "completed"
    records = [event for _, event in world.events() if isinstance(event, ProjectionRecorded)]
    assert records[0].intent_key == came.proposal.intent.intent_key
    assert records[0].proposal_id == came.proposal.proposal_id
    assert records[0].source.to_wire() == click(1, button="sell", item="tea")
    assert came.proposal.intent.meta.origin.source == SourceRef(kind="ui", event_id="click-1")
    second = world.project(click(2, button="close"), "ann")
    assert second.projection_id == "later"
    nothing = world.project(click(3, button="dance"), "ann")
    assert nothing.proposal is None
    assert "no button" in (nothing.reason or "")
    assert world.sealed().height == 2


@pytest.mark.requirement("IC-audit", "CARD-audit")
def test_blame_leads_from_a_value_back_to_the_source_event(world: Realm) -> None:
    world.project(click(1, button="sell", item="tea"), "ann")
    first = world.branch().head
    world.act("cron", "sell", {"item": "cake"})
    tea = world.blame("stock.tea")
    assert tea.value == 9
    assert tea.world.world_id == first
    assert [patch.path for patch in tea.patches] == ["stock.tea"]
    assert tea.proposal is not None
    assert tea.proposal.submitted.actor.actor_id == "ann"
    assert tea.decision is not None
    assert tea.decision.decision == "approved"
    assert tea.projection is not None
    assert tea.projection.source.event_id == "click-1"
    told = tea.to_wire()
    assert told["source"]["payload"] == {"button": "sell", "item": "tea"}
    assert told["projectionId"] == tea.proposal.intent.meta.origin.projection_id
    assert (told["path"], told["value"], told["worldId"], told["actor"]["actorId"]) == ("stock.tea", 9, first, "ann")
    cake = world.blame("data.stock.cake")
    assert cake.intent is not None
    assert cake.intent.meta.origin.actor.actor_id == "cron"
    assert cake.projection is None
    assert "projectionId" not in cake.to_wire()
    untouched = world.blame("open")
    assert untouched.proposal is None
    assert untouched.world.parent is None
    assert world.blame("stock").world.world_id == world.branch().head
    with pytest.raises(RefusedError):
        world.blame("stock", "0" * 64)


class ScriptedExecutor:
    """A host behind the port that the world knows nothing of."""

    enforcement: Enforcement = "enforcing"

    def __init__(self) -> None:
        self.orders: list[ExecutionOrder] = []

    def step(self, order: ExecutionOrder) -> StepOutcome:
        self.orders.append(order)
        patch = set_("sold", order.snapshot.data["sold"] + 100)
        data = order.snapshot.data.with_item("sold", patch.value)
        told = order.snapshot
        return StepOutcome("completed", (patch,), Snapshot(data, told.computed, told.system, None, told.meta))

    @property
    def keeper(self) -> None:
        return None

    def terms(self, effect_type: str, params: Any = None) -> EffectTerms:
        return EffectTerms(1, False)

    def literal_secrets(self, effect_type: str, params: Any) -> tuple[str, ...]:
        return ()

    def perform(self, order: ExecutionOrder, requirement: Any, call: Any) -> Performed:
        raise AssertionError("nothing asks for effects here")

    def look_up(self, order: ExecutionOrder, requirement: Any, call: Any) -> None:
        """Find nothing out."""


class YesAuthority:
    """Approves everything, behind the port."""

    def judge(self, case: Any) -> Ruling:
        return Ruling("approve", "yes", "always")

    def answer(self, case: Any, asked: Ruling, answer: Any) -> Ruling:
        return asked

    def expire(self, case: Any, asked: Ruling) -> Ruling:
        return asked

    def check_binding(self, binding: Any) -> Any:
        return binding

    def check_policy(self, name: str, actions: Any) -> None:
        pass

    def describe_policy(self, name: str, like: Any = None) -> Any:
        return {"name": name, "hash": name, "rules": []}


class Alone:
    """One worker, and no others."""

    me = "test:1"

    def is_gone(self, worker: str) -> bool:
        return True

    def close(self) -> None:
        """There is nothing to leave."""


ANN = ActorRef(actor_id="ann", kind="human")


def protocol_on(log: EventLog, executor: ScriptedExecutor) -> WorldProtocol:
    """Found a world behind its ports, with one actor."""
    protocol = WorldProtocol(
        log,
        domain=shop,
        authority=YesAuthority(),
        executor=executor,
        clock=SystemClock(),
        ids=SequentialIds(),
        workers=Alone(),
    )
    protocol.found(by="test")
    protocol.register_actor(ANN, by="test")
    protocol.bind_actor("ann", {"kind": "yes"}, by="test")
    return protocol


def tea_of_ann() -> IntentInstance:
    """Return an intent of the only actor."""
    body = IntentBody(type="sell", input={"item": "tea"})
    origin = IntentOrigin(projection_id="p", source=SourceRef(kind="ui", event_id="e"), actor=ANN)
    meta = IntentMeta(origin=origin)
    return IntentInstance(body=body, intent_id="i-1", intent_key=body.key(shop.schema.hash), meta=meta)


@pytest.mark.requirement("WP-boundary", "WP-bind", "INT-14.3")
def test_the_world_is_given_any_executor(log_url: str) -> None:
    executor = ScriptedExecutor()
    with open_log(log_url, create=True, view=WorldIndex()) as log:
        protocol, intent = protocol_on(log, executor), tea_of_ann()
        done = protocol.submit(Submission(intent))
        assert done.status == "completed"
        assert protocol.archive.state(done.world_id or "")["sold"] == 100
        assert executor.orders[0].intent is intent


@pytest.mark.requirement("WP-boundary", "INT-14.3")
def test_the_engine_imports_neither_an_executor_nor_an_authority() -> None:
    loaded = (
        "import sys, world.engine.protocol; print([m for m in sys.modules if m.split('.')[0] in ('host', 'authority')])"
    )
    told = subprocess.run(
        [sys.executable, "-c", loaded], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"


@pytest.mark.requirement("HC-context", "INT-6.1.4")
def test_time_and_seed_of_an_execution_are_recorded(log_url: str) -> None:
    with open_shop(log_url, clock=ManualClock(5_000), effects=[Bank().handler()]) as world:
        done = world.act("ann", "charge", {"amount": 1})
        assert done.started is not None
        assert done.started.now == 5_000
        assert done.started.seed == done.intent.intent_id
        assert world.realm().policies["house"].policy_hash == house.hash


class MisleadingExecutor(ScriptedExecutor):
    """Ends every execution with or without an error, under a status text that says the opposite."""

    def __init__(self, *, is_failing: bool) -> None:
        super().__init__()
        self.is_failing = is_failing

    def step(self, order: ExecutionOrder) -> StepOutcome:
        done = super().step(order)
        error = ErrorValue.at("OUT_OF_STOCK", "no tea left", "sell", "", order.now)
        if self.is_failing:
            return StepOutcome("completed", (), order.snapshot, error=error)
        history = System("error", None, (error, error, error))
        return StepOutcome("failed", done.patches, structs.replace(done.snapshot, system=history))


@pytest.mark.requirement("WP-outcome")
@pytest.mark.parametrize("is_failing", [False, True])
def test_the_outcome_follows_from_the_error_and_not_from_a_status_text_or_past_errors(is_failing: bool) -> None:
    executor = MisleadingExecutor(is_failing=is_failing)
    with open_log("sqlite:///:memory:", create=True, view=WorldIndex()) as log:
        protocol = protocol_on(log, executor)
        done = protocol.submit(Submission(tea_of_ann()))
        assert done.status == ("failed" if is_failing else "completed")
        sealed = [json.loads(event.state) for event in log.read() if event.topic == "world.sealed"][-1]
        assert sealed["outcome"] == done.status
        assert ("error" in sealed) is is_failing
        assert (protocol.realm().branches["main"].head == done.world_id) is not is_failing
