"""What the protocol does around a host, in memory: it journals, executes and seals, event by event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from host import EffectRegistry, Host, rebuild_journal
from world.core import ActionContext, ActionSteps, ComputeContext, Domain, Patch, effect, genesis, merge, set_
from world.core.fields_of import input_spec
from world.events.base import Event
from world.events.codec import decode_event, encode_event
from world.events.execution_events import EffectFulfilled, EffectRequested
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.events.realm_events import WorldSealed
from world.model.identity import content_id, snapshot_hash, world_id
from world.model.intent import IntentBody, IntentInstance, IntentScope
from world.model.snapshot import Requirement, Snapshot
from world.state.ports import ExecutionOrder, StepOutcome

NOW = 1_700_000_000_000
PARENT = "0" * 64


class Line(BaseModel):
    item: str
    paid: bool = False


class Shop(BaseModel):
    stock: int = 3
    title: str = ""
    lines: list[Line] = []
    profile: dict[str, Any] = {}
    receipt: Any = None
    stamps: list[Any] = []


class Buy(BaseModel):
    item: str


class Steer(BaseModel):
    patches: list[dict[str, Any]]


class Ask(BaseModel):
    effects: list[dict[str, Any]]
    catch: bool = False


def lit(value: Any) -> dict[str, Any]:
    return {"kind": "lit", "value": value}


def shop() -> Domain:
    """Return a domain with an action of every kind that a host must cope with."""
    domain = Domain("urn:test:shop", version="1.0.0", state=Shop)
    domain.computed("lineCount", expr={"kind": "len", "arg": {"kind": "get", "path": "lines"}})

    @domain.action("buy", version="1")
    def buy(ctx: ActionContext, wanted: Buy) -> ActionSteps:
        if ctx.data["stock"] == 0:
            ctx.fail("SOLD_OUT", "Nothing is left.")
        yield [set_("stock", ctx.data["stock"] - 1)]
        receipt = yield effect("pay", item=wanted.item, stock=ctx.data["stock"])
        return [
            set_("receipt", receipt),
            set_("lines", [*ctx.data["lines"], {"item": wanted.item, "paid": True}]),
        ]

    @domain.action("steer", version="1")
    def steer(ctx: ActionContext, wanted: Steer) -> list[Patch]:
        return [Patch.from_wire(patch) for patch in wanted.patches]

    @domain.action("ask", version="1")
    def ask(ctx: ActionContext, wanted: Ask) -> ActionSteps:
        got = []
        for asked in wanted.effects:
            try:
                got.append((yield effect(asked["type"], **asked.get("args", {}))))
            except Exception as failed:
                if not wanted.catch:
                    raise
                got.append({"caught": getattr(failed, "code", str(failed))})
        return [set_("receipt", got)]

    @domain.action("stamp", version="1")
    def stamp(ctx: ActionContext) -> ActionSteps:
        first = [ctx.now, ctx.new_id(), ctx.random()]
        yield effect("pay", item="stamp", stock=0)
        return [set_("stamps", [*first, ctx.now, ctx.new_id()]), merge("profile", {"intent": ctx.intent_id})]

    domain.flow(
        "fetch",
        {
            "kind": "seq",
            "steps": [
                {"kind": "patch", "op": "set", "path": "title", "value": lit("before")},
                {"kind": "effect", "type": "http.get", "params": {"url": lit("http://example/")}},
                {
                    "kind": "patch",
                    "op": "set",
                    "path": "stamps",
                    "value": {
                        "kind": "append",
                        "array": {"kind": "get", "path": "stamps"},
                        "items": [lit("after")],
                    },
                },
            ],
        },
    )
    domain.flow("stop", {"kind": "seq", "steps": [{"kind": "halt"}]}, input=input_spec(Buy))
    domain.flow("refuse", {"kind": "fail", "code": "NO", "message": lit("I will not.")})
    return domain


def intent(action: str, value: Any = None, intent_id: str = "intent-1") -> IntentInstance:
    origin = {
        "projectionId": "test",
        "source": {"kind": "system", "eventId": "e"},
        "actor": {"actorId": "a", "kind": "system"},
    }
    body = IntentBody(type=action, input=value)
    return IntentInstance.read(
        {
            "body": body.to_wire(),
            "intentId": intent_id,
            "intentKey": body.key("schema"),
            "meta": {"origin": origin},
        }
    )


def start(domain: Domain, **data: Any) -> Snapshot:
    return genesis(domain, ComputeContext(1_000, "genesis"), data)


def order(
    domain: Domain,
    action: str,
    value: Any = None,
    *,
    paths: list[str] | None = None,
    journal: Mapping[str, Any] | None = None,
    intent_id: str = "intent-1",
    **data: Any,
) -> ExecutionOrder:
    return ExecutionOrder(
        proposal_id="proposal-1",
        intent=intent(action, value, intent_id),
        snapshot=start(domain, **data),
        approved_scope=None if paths is None else IntentScope.read({"allowedPaths": paths}),
        now=NOW,
        seed=intent_id,
        journal=journal or {},
    )


class Record:
    """The log of one execution, as far as a host can tell; it outlives the process that wrote it."""

    def __init__(self, given: ExecutionOrder) -> None:
        self.given = given
        self.events: list[Event] = []

    def append(self, event: Event) -> None:
        self.events.append(decode_event(event.TOPIC, event.VERSION, encode_event(event)))

    def order(self) -> ExecutionOrder:
        given, journal = self.given, rebuild_journal(self.events, self.given.proposal_id)
        return ExecutionOrder(
            given.proposal_id,
            given.intent,
            given.snapshot,
            given.approved_scope,
            given.now,
            given.seed,
            journal.results,
        )

    def requested(self) -> tuple[Requirement, ...]:
        return rebuild_journal(self.events, self.given.proposal_id).requested

    def sealed(self) -> WorldSealed:
        return next(event for event in self.events if isinstance(event, WorldSealed))

    def run(self, host: Host) -> StepOutcome:
        """Execute to the end: journal each request, make the effect, journal its result, compute again."""
        while True:
            current = self.order()
            outcome = host.step(current)
            if outcome.status != "pending":
                break
            for asked in outcome.requirements:
                self.append(
                    EffectRequested(
                        at=1,
                        proposal_id=current.proposal_id,
                        requirement=asked,
                        idempotent=host.terms(asked.type).idempotent,
                        attempt=1,
                        deadline=2,
                    )
                )
                result = host.perform(current, asked).result
                self.append(
                    EffectFulfilled(
                        at=1,
                        proposal_id=current.proposal_id,
                        requirement_id=asked.id,
                        result=result,
                        attempt=1,
                    )
                )
        self.seal(host, outcome)
        return outcome

    def seal(self, host: Host, outcome: StepOutcome) -> None:
        state, schema = snapshot_hash(outcome.snapshot.to_wire()), host.domain.schema.hash
        error = outcome.error
        name = self.given.proposal_id
        world = WorldSealed(
            at=1,
            world_id=world_id(schema, state, PARENT),
            content_id=content_id(schema, state),
            schema_hash=schema,
            snapshot_hash=state,
            parent=PARENT,
            created_by=name,
            branch="main",
            outcome=outcome.status,
            height=1,
            patches=list(outcome.patches),
            error=error,
        )
        self.append(world)
        at: dict[str, Any] = {
            "at": 1,
            "proposal_id": name,
            "world_id": world.world_id,
            "parent": PARENT,
            "branch": "main",
        }
        self.append(ProposalCompleted(**at) if error is None else ProposalFailed(**at, error=error))


def run(host: Host, given: ExecutionOrder) -> StepOutcome:
    return Record(given).run(host)


def hosted(*handlers: Any, enforcement: Any = "enforcing", domain: Domain | None = None) -> Host:
    return Host(domain or shop(), EffectRegistry(handlers), enforcement=enforcement)
