"""The realm whose recorded logs are kept beside this file: a garden, in Python and as portable data.

``record`` plays the same scenes with the same clock and the same ids, so it writes the same log byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pydantic import BaseModel

from authority import Approve, Escalate, Narrow, Policy, Reject, rule
from host import Failed, handler
from projections import Nothing, projection
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from worldprotocol.facade import World

FOLDER = Path(__file__).parent
START = 1_700_000_000_000


class Garden(BaseModel):
    beds: dict[str, dict[str, Any]] = {}
    water: int = 100
    harvest: float = 0.0
    notes: list[str] = []


class Plant(BaseModel):
    bed: str
    what: str


class Pour(BaseModel):
    bed: str
    litres: int


class Order(BaseModel):
    seeds: list[str]
    patient: bool = False


garden = Domain("urn:golden:garden", version="1.0.0", state=Garden)


@garden.computed("bedCount", deps=["beds"])
def bed_count(data: Any) -> int:
    return len(data["beds"])


@garden.action("plant", version="1")
def plant(ctx: ActionContext, input: Plant) -> Any:  # noqa: A002
    if input.bed in ctx.data["beds"]:
        ctx.fail("BED_TAKEN", f"{input.bed} is planted", bed=input.bed)
    return [set_(f"beds.{input.bed}", {"what": input.what, "since": ctx.now, "litres": 0})]


@garden.action(
    "pour",
    version="1",
    available={"kind": "gt", "left": {"kind": "get", "path": "water"}, "right": {"kind": "lit", "value": 0}},
)
def pour(ctx: ActionContext, input: Pour) -> Any:  # noqa: A002
    bed = ctx.data["beds"].get(input.bed)
    if bed is None:
        ctx.fail("NO_SUCH_BED", f"there is no {input.bed}")
    return [
        set_(f"beds.{input.bed}.litres", bed["litres"] + input.litres),
        set_("water", ctx.data["water"] - input.litres),
    ]


@garden.action("order", version="1")
def order(ctx: ActionContext, input: Order) -> Any:  # noqa: A002
    notes = list(ctx.data["notes"])
    for seed in input.seeds:
        try:
            receipt = yield effect("seeds.buy", seed=seed)
        except Exception as failed:
            if not input.patient:
                raise
            notes.append(f"no {seed}: {getattr(failed, 'code', 'error')}")
        else:
            notes.append(f"{receipt['paid']} for {seed}")
    return [set_("notes", notes), set_("harvest", ctx.data["harvest"] + 0.25)]


@rule
def watering_passes(case: Any) -> Any:
    return Approve("watering is routine") if case.intent.body.type == "pour" else None


@rule
def planting_is_narrowed(case: Any) -> Any:
    return Narrow(["data.beds.*"], "beds only") if case.intent.body.type == "plant" else None


@rule
def orders_go_to_people(case: Any) -> Any:
    return Escalate("ann", "it costs money") if case.intent.body.type == "order" else None


@rule
def no_weeds(case: Any) -> Any:
    wanted = case.intent.body.input or {}
    return Reject("weeds are not planted") if wanted.get("what") == "dandelion" else None


@rule
def not_too_often(case: Any) -> Any:
    failures = case.history.count(actor_id=case.actor.actor_id, outcome="failed")
    return Reject(f"{failures} failures so far") if failures > 3 else None


rules = Policy("garden", [watering_passes, planting_is_narrowed, orders_go_to_people, no_weeds, not_too_often])


@handler("seeds.buy", idempotent=True, time_limit_ms=10_000)
def buy(params: Any, call: Any) -> Any:
    if params["seed"] == "saffron":
        return Failed("SOLD_OUT", "come back in spring")
    return {"paid": len(params["seed"])}


@projection("sensor")
def sensor(request: Any) -> Any:
    if request.source.kind != "api":
        return None
    reading = request.source.payload
    if reading.get("dry"):
        return {"kind": "intent", "body": {"type": "pour", "input": {"bed": reading["bed"], "litres": 5}}}
    return Nothing("the soil is wet")


def parts(**others: Any) -> dict[str, Any]:
    """Return what a garden is opened with."""
    return {"policies": [rules], "projections": [sensor], "effects": [buy], **others}


class OneWorker:
    """The process that records: every one has the same name."""

    me = "golden"

    def close(self) -> None:
        """There is nothing to leave."""

    def is_gone(self, worker: str) -> bool:
        return worker != self.me


@contextmanager
def the_same_worker() -> Iterator[None]:
    with patch("worldprotocol.assemble.ProcessWorkers", OneWorker):
        yield


@the_same_worker()
def record(address: str) -> World:
    """Found a garden and play its scenes; the caller closes it."""
    clock = ManualClock(START, 10)
    world = World.create(address, domain=garden, **parts(clock=clock, ids=SequentialIds("garden")))
    world.register("ann", "human", binding={"kind": "auto_approve"}, name="Ann")
    world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "garden"}, meta={"team": "beds"})
    world.register("kid", "human", binding={"kind": "hitl", "ask": ["ann"], "timeoutMs": 1_000})
    world.register("cron", "system", binding={"kind": "auto_approve"})
    _pipeline(world)
    _people(world, clock)
    _branches(world)
    _sources(world)
    return world


def _pipeline(world: World) -> None:
    world.act("ann", "plant", {"bed": "north", "what": "beans"}, scope=["data.beds.*"], note="first")
    world.act("bot", "plant", {"bed": "south", "what": "leeks"})
    world.act("bot", "plant", {"bed": "west", "what": "dandelion"})
    world.act("ann", "plant", {"bed": "north", "what": "peas"})  # fails: the bed is taken
    world.act("ann", "plant", {"bed": "north", "what": "peas"})  # fails alike: the same world
    world.act("bot", "pour", {"bed": "south", "litres": 7})
    world.act("ann", "pour", {"bed": "south", "litres": 1}, scope=["data.beds.*"])  # fails: writes outside of it
    world.act("cron", "pour", {"bed": "north", "litres": 2})
    world.act("ann", "order", {"seeds": ["kale", "saffron"], "patient": True})
    world.act("ann", "order", {"seeds": ["saffron"]})  # fails: sold out


def _people(world: World, clock: ManualClock) -> None:
    asked = world.act("bot", "order", {"seeds": ["mint"]})
    world.decide(asked.proposal_id, "ask", by="ann", reason="what for?")
    world.decide(asked.proposal_id, "approve", by="ann", reason="tea")
    kept = world.act("kid", "plant", {"bed": "east", "what": "melons"})
    world.decide(kept.proposal_id, "narrow", by="ann", scope=["data.beds.east"], reason="that bed only")
    world.decide(world.act("kid", "pour", {"bed": "east", "litres": 99}).proposal_id, "reject", by="ann")
    world.act("kid", "pour", {"bed": "east", "litres": 3})  # nobody answers
    clock.advance(5_000)
    world.settle()


def _branches(world: World) -> None:
    head = world.branch().head
    world.act("ann", "pour", {"bed": "north", "litres": 4})
    middle = world.branch().head
    world.act("ann", "pour", {"bed": "north", "litres": 6})
    world.act("ann", "pour", {"bed": "north", "litres": 4}, base_world=head, fork_name="again")  # the same world
    assert world.branch("again").head == middle
    world.act("ann", "plant", {"bed": "roof", "what": "thyme"}, branch="again")
    world.act("kid", "plant", {"bed": "cellar", "what": "mushrooms"})  # waits, and is superseded
    world.switch_branch("again")
    world.create_branch("spare", middle)


def _sources(world: World) -> None:
    for number, payload in enumerate(({"bed": "north", "dry": True}, {"bed": "south", "dry": False})):
        world.receive({"kind": "api", "eventId": f"reading-{number}", "payload": payload}, "ann")
    world.receive({"kind": "ui", "eventId": "click", "payload": {}}, "ann")


@the_same_worker()
def record_portable(address: str) -> World:
    """Found the portable domain of ``ledger.yaml`` and play its scenes; the caller closes it."""
    clock = ManualClock(START, 10)
    world = World.create(address, domain=FOLDER / "ledger.yaml", clock=clock, ids=SequentialIds("ledger"))
    world.register("ann", "human", binding={"kind": "auto_approve"})
    for amount in (5, 20, 0.5, 1e20, 12):
        world.act("ann", "deposit", {"amount": amount})
    world.act("ann", "withdraw", {"amount": 3})
    world.act("ann", "withdraw", {"amount": 1e30})  # fails: not so much there
    world.act("ann", "name", {"name": 'Käthe 𝄞 "q"'})
    return world
