"""A small domain whose actions do their work outside, and an outside that counts it; for tests of durable effects."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from host import handler
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, EffectFailedError, effect, set_
from world.events.base import Event
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.read_models.decoding import decoded
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.realm import Realm

ACTORS = {"ann": "human", "bob": "human", "eve": "agent"}
_times = itertools.count()
Step = Callable[[Any, Any], Any]


class Yard(BaseModel):
    done: list[str] = []
    other: list[str] = []


class Job(BaseModel):
    what: list[str] = ["x"]
    into: str = "done"


class Wait(BaseModel):
    ms: int


works = Domain("urn:test:works", version="1.0.0", state=Yard)


@works.action("do", version="1")
def do(ctx: ActionContext, input: Job) -> Any:  # noqa: A002
    before, told = ctx.data[input.into], []
    for what in input.what:
        told += [(yield effect("work", what=what))]
    return [set_(input.into, [*before, *told])]


@works.action("dare", version="1")
def dare(ctx: ActionContext, input: Job) -> Any:  # noqa: A002
    try:
        yield effect("work", what="x")
    except EffectFailedError as failed:
        return [set_("done", [*ctx.data["done"], failed.code])]
    return [set_("done", [*ctx.data["done"], "fine"])]


@works.action("wait", version="1")
def wait(ctx: ActionContext, input: Wait) -> Any:  # noqa: A002
    yield effect("timer.wait", ms=input.ms)
    return [set_("done", ["waited"])]


class Outside:
    """Where the work is done: counts what was really done, by idempotency key, and follows a plan, call by call.

    A step of the plan may raise, or answer; None goes on and does the work.
    """

    def __init__(self, *plan: Step) -> None:
        self.plan = list(plan)
        self.done: list[str] = []
        self.attempts: list[int] = []
        self.keys: list[str] = []

    def handler(self, **promises: Any) -> Any:
        @handler("work", **promises)
        def work(params: Any, call: Any) -> Any:
            self.attempts.append(call.attempt)
            self.keys.append(call.idempotency_key)
            answer = self.plan.pop(0)(params, call) if self.plan else None
            if answer is not None:
                return answer
            self.done.append(call.idempotency_key)
            return params["what"]

        return work


def vanish(_params: Any, _call: Any) -> Any:
    """End the process before the work is done."""
    raise KeyboardInterrupt


class Held:
    """A step that is begun, and goes on when it is told to."""

    def __init__(self, then: Step = lambda _params, _call: None) -> None:
        self.begun = threading.Event()
        self.may_go = threading.Event()
        self.over = threading.Event()
        self.call: Any = None
        self._then = then

    def __call__(self, params: Any, call: Any) -> Any:
        self.call = call
        self.begun.set()
        try:
            assert self.may_go.wait(PATIENCE_S)
            return self._then(params, call)
        finally:
            self.over.set()


@contextmanager
def a_yard(address: str, outside: Outside, *, parts: Any = None, **promises: Any) -> Iterator[Realm]:
    """Found a realm with its actors; time and ids are the test's own."""
    given = {"clock": ManualClock(1_000, 1), "ids": SequentialIds(), **(parts or {})}
    given.setdefault("limits", Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=4)))
    with Realm.create(address, domain=works, effects=[outside.handler(**promises)], **given) as world:
        for name, kind in ACTORS.items():
            world.register(name, kind, binding={"kind": "auto_approve"})  # type: ignore[arg-type]
        yield world


def reopened(address: str, outside: Outside, *, parts: Any = None, **promises: Any) -> Realm:
    """Open the realm again, as another program would, later."""
    given = {"clock": ManualClock(500_000, 1), "ids": SequentialIds(f"again {next(_times)}"), **(parts or {})}
    return Realm.open(address, domain=works, effects=[outside.handler(**promises)], **given)


def left_in_doubt(address: str, **wishes: Any) -> str:
    """Found a realm, in which a process vanishes in the middle of its second effect; return the proposal."""
    outside = Outside(lambda _params, _call: None, vanish)
    with a_yard(address, outside) as world:
        with pytest.raises(KeyboardInterrupt):
            world.act("ann", "do", {"what": ["a", "b", "c"]}, **wishes)
        (name,) = world.realm().proposals
    return str(name)


@contextmanager
def acting(world: Realm, actor: str, action: str, given: Any, **wishes: Any) -> Iterator[list[Any]]:
    """Let somebody act in a thread of his own; the list gets what came of it, or what was raised."""
    ended: list[Any] = []

    def act() -> None:
        try:
            ended.append(world.act(actor, action, given, **wishes))
        except BaseException as error:  # noqa: BLE001 - handed over to the test
            ended.append(error)

    worker = threading.Thread(target=act)
    worker.start()
    try:
        yield ended
    finally:
        worker.join(PATIENCE_S)
    assert len(ended) == 1


def running(world: Realm) -> str:
    """Return the one proposal that executes."""
    (name,) = (name for name, one in world.realm().proposals.items() if one.status == "executing")
    return str(name)


def events(world: Realm, proposal_id: str) -> list[Event]:
    return [decoded(logged) for logged in world.log.stream(proposal_id)]


def topics(world: Realm, proposal_id: str) -> list[str]:
    """Return the topics of a proposal's events after its decision."""
    told = [event.TOPIC for event in events(world, proposal_id)]
    return told[told.index("decision.made") + 1 :]


def check_log(address: str, **parts: Any) -> Any:
    """Verify the log, fold it anew, and perform all its steps again."""
    with open_to_recheck(address, domain=parts.pop("domain", works), **parts) as looked:
        told = verify(looked.log)
        assert told.ok, told.to_wire()
        checked = recheck(looked, every=True)
        assert checked.ok, checked.to_wire()
        again, known = looked.archive.fold_realm(), looked.realm()
        assert (again.branches, again.proposals, again.queues) == (known.branches, known.proposals, known.queues)
        assert again.klis.leases.keys() == known.klis.leases.keys()
    return checked
