"""A small domain whose actions declare what they touch, and agents of different ages; for tests of arbitration."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

from host import handler
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from world.events.lease_events import VerdictGiven
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.read_models.decoding import decoded
from worldprotocol.api.realm import Realm


class Desk(BaseModel):
    log: list[str] = []
    a: int = 0
    b: int = 0


class Note(BaseModel):
    text: str
    files: list[str] = []


class Add(BaseModel):
    name: str
    amount: int


office = Domain("urn:test:office", version="1.0.0", state=Desk)


@office.action(
    "write",
    version="1",
    manifest=[
        {"predicate": "MUTATES", "resource": "FILE:/notes/{input.text}"},
        {"predicate": "CONSUMES", "resource": "FILE:{$item}", "each": {"kind": "get", "path": "input.files"}},
    ],
)
def write(ctx: ActionContext, input: Note) -> Any:  # noqa: A002
    yield effect("post", text=input.text)
    return [set_("log", [*ctx.data["log"], input.text])]


@office.action("add", version="1")
def add(ctx: ActionContext, input: Add) -> Any:  # noqa: A002
    seen = ctx.data[input.name]
    yield effect("post", text=str(input.amount))
    return [set_(input.name, seen + input.amount)]


class Post:
    """A post office that holds letters back until it is told to let them go."""

    def __init__(self, *held: str) -> None:
        self.arrived = {text: threading.Event() for text in held}
        self.may_go = {text: threading.Event() for text in held}

    def handler(self) -> Any:
        @handler("post", time_limit_ms=600_000)
        def post(params: Any, call: Any) -> Any:
            text = params["text"]
            if text in self.arrived:
                self.arrived[text].set()
                assert self.may_go[text].wait(PATIENCE_S)
            return {}

        return post


@contextmanager
def an_office(address: str, post: Post, *, clock: ManualClock | None = None, **klis: Any) -> Iterator[Realm]:
    world = Realm.create(
        address,
        domain=office,
        effects=[post.handler()],
        clock=clock or ManualClock(1_000, 1),
        ids=SequentialIds(),
        limits=Limits(klis=KlisSettings.read(klis)),
    )
    with world:
        for name in ("old", "mid", "young"):
            world.register(name, "agent", binding={"kind": "auto_approve"})
            world.act(name, "add", {"name": "a", "amount": 0})  # its first manifest gives it its priority
        yield world


@contextmanager
def holding(world: Realm, post: Post, actor: str, text: str, **wishes: Any) -> Iterator[None]:
    """Let an actor hold its leases, in a thread of its own, until the block is left."""
    done: list[Any] = []
    worker = threading.Thread(target=lambda: done.append(world.act(actor, "write", {"text": text}, **wishes)))
    worker.start()
    try:
        assert post.arrived[text].wait(PATIENCE_S)
        yield
    finally:
        post.may_go[text].set()
        worker.join(PATIENCE_S)
    assert done[0].status == "completed"


def hold_state(world: Realm) -> str:
    """Hold the whole state by a direct lease of an old agent, and return it."""
    scope = [{"predicate": "MUTATES", "resource": "STATE:/main/*"}]
    manifest = {"ver": "1.0", "agent_id": "old", "session_id": "s", "scope": scope}
    (lease,) = world.leases.desk.request(manifest, by="old").leases
    return str(lease.lease_id)


def verdicts(world: Realm, proposal_id: str) -> list[VerdictGiven]:
    events = [decoded(logged) for logged in world.log.read()]
    return [event for event in events if isinstance(event, VerdictGiven) and event.request_id == proposal_id]


def statuses(world: Realm, proposal_id: str) -> list[str]:
    return [event.status for event in verdicts(world, proposal_id)]
