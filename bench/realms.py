"""A small governed realm for the benchmarks: one pure action, one actor who is approved at once."""

from __future__ import annotations

from pydantic import BaseModel

from authority import PolicyRegistry, StandardAuthority
from host import EffectRegistry, Host
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, Patch, set_
from world.engine.protocol import WorldProtocol
from world.limits import Limits
from world.log import Durability, EventLog, open_log
from world.model.actor import ActorRef
from world.model.intent import IntentBody, IntentInstance
from world.pipeline.driver import submit
from world.pipeline.submit import Submission
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.index import WorldIndex

MEMBERS = 32
"""How many values the state holds; a change touches one of them."""

BATCH = 500
"""Proposals that share a commit when a past is made."""


class Shelf(BaseModel):
    """The state: so many counters, and who changed one last."""

    counters: dict[str, int] = {}
    last: str = ""


class Raise(BaseModel):
    """The input: which counter to raise, and by how much."""

    counter: str
    by: int


class OneWorker:
    """A process that is alone."""

    me = "bench"

    def close(self) -> None:
        """There is nothing to leave."""

    def is_gone(self, worker: str) -> bool:
        """Tell whether a worker is gone: every other one is."""
        return worker != self.me


def shelf() -> Domain:
    """Return the domain."""
    domain = Domain("urn:bench:shelf", version="1.0.0", state=Shelf)

    @domain.action("counter.raise", version="1")
    def counter_raise(ctx: ActionContext, wanted: Raise) -> list[Patch]:
        at = ctx.data["counters"].get(wanted.counter, 0)
        return [set_(f"counters.{wanted.counter}", at + wanted.by), set_("last", wanted.counter)]

    return domain


class BenchRealm:
    """A founded realm and its one actor; ``intents`` makes what to submit."""

    def __init__(self, address: str, *, durability: Durability = "full", domain: Domain | None = None) -> None:
        """Found the realm in a new log, or go on with the one that is there."""
        self.domain = domain or shelf()
        self.log: EventLog = open_log(address, create=True, durability=durability, view=WorldIndex())
        self._ids = SequentialIds("bench", start=self.log.head().size)
        self.protocol = WorldProtocol(
            self.log,
            domain=self.domain,
            authority=StandardAuthority(PolicyRegistry()),
            executor=Host(self.domain, EffectRegistry()),
            clock=ManualClock(1_700_000_000_000, 1),
            ids=self._ids,
            workers=OneWorker(),
            limits=Limits(max_unit_ms=600_000),  # many proposals in each commit, also on a busy machine
        )
        if self.log.head().size == 0:
            self.protocol.found(by="bench")
            actor = ActorRef.read({"actorId": "ann", "kind": "human"})
            self.protocol.register_actor(actor, by="bench")
            self.protocol.bind_actor("ann", {"kind": "auto_approve"}, by="bench")

    def body(self, number: int) -> IntentBody:
        """Return what the number-th intent wants."""
        return IntentBody(type="counter.raise", input={"counter": f"c{number % MEMBERS}", "by": number % 7 + 1})

    def intent(self, number: int) -> IntentInstance:
        """Return the number-th intent."""
        body = self.body(number)
        intent_id = self._ids.intent_id()
        return IntentInstance.read(
            {
                "body": body.to_wire(),
                "intentId": intent_id,
                "intentKey": body.key(self.domain.schema.hash),
                "meta": {
                    "origin": {
                        "projectionId": "bench",
                        "source": {"kind": "api", "eventId": intent_id},
                        "actor": {"actorId": "ann", "kind": "human"},
                    }
                },
            }
        )

    def grow(self, events: int) -> None:
        """Submit proposals, many in each commit, until the log has so many events."""
        number = 0
        while self.log.head().size < events:
            intents = [self.intent(number + offset) for offset in range(BATCH)]
            number += BATCH

            def command(work: UnitOfWork, intents: list[IntentInstance] = intents) -> None:
                for intent in intents:
                    submit(work, Submission(intent), self._ids.new_id())

            self.protocol.run(command)

    def grow_by(self, number: int) -> None:
        """Submit the number-th intent in a commit of its own."""
        intent = self.intent(number)
        self.protocol.run(lambda work: submit(work, Submission(intent), self._ids.new_id()))

    def close(self) -> None:
        """Close the log."""
        self.log.close()
