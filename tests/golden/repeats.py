"""A harbour with requests that were repeated: each is recorded once, with its key and its digest.

``record`` plays the same scenes with the same clock and the same ids, so it writes the same log byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.golden.garden import START, the_same_worker
from tests.golden.harbour import SETTINGS, harbour
from world.clock import ManualClock, SequentialIds
from world.errors import RefusedError
from world.events.verification import Verification
from world.limits import Limits
from worldprotocol.api.callers.keyed import caller_of, submit_once
from worldprotocol.api.callers.request_keys import keyed, once
from worldprotocol.api.realm import Realm

KEY = "morning-1"
"""The key of the first request of each actor: the keys of another one are others."""


@the_same_worker()
def record(address: str) -> Realm:
    """Found a harbour and play its scenes; the caller closes it."""
    clock = ManualClock(START, 10)
    world = Realm.create(
        address, domain=harbour, clock=clock, ids=SequentialIds("repeats"), limits=Limits(klis=SETTINGS)
    )
    world.register("ada", "human", binding={"kind": "auto_approve"})
    world.register("ben", "agent", binding={"kind": "hitl", "ask": ["ada"]})
    for actor, right in (("ada", "operator"), ("ada", "approver"), ("ada", "actor"), ("ben", "actor")):
        world.access.grant(actor, right, by="operator")  # type: ignore[arg-type]
    ben, ada = Verification(method="peer", actor_id="ben", uid=1_000), Verification(method="jwt", actor_id="ada")
    asked = _submitted(world, ben, KEY, 1)
    _submitted(world, ada, KEY, 2)
    _twice(world, ada, "answer-1", {"choice": "approve"}, lambda one: one.decide(asked, "approve", by="ada"))
    _leases(world, ben)
    _twice(world, ada, "branch-1", {"name": "plan"}, lambda one: one.create_branch("plan", by="ada"))
    _twice(
        world, ada, "actor-1", {"actorId": "cleo"},
        lambda one: one.register("cleo", "human", binding={"kind": "auto_approve"}, by="ada"),
    )  # fmt: skip
    _submitted(world, caller_of(world, "cleo"), KEY, 3)
    return world


def _twice(
    world: Realm, verified: Verification, key: str, said: Mapping[str, Any], command: Callable[[Realm], Any]
) -> Any:
    """Send a request twice, and another one with its key, which is refused; return what the first one recorded."""
    caller = keyed(verified, key, "golden", said)
    first = once(world, caller, command, again=lambda _: None)
    once(world, caller, command, again=lambda events: events[0])
    try:
        once(world, keyed(verified, key, "golden", {**said, "more": True}), command, again=lambda _: None)
    except RefusedError:
        return first
    raise AssertionError("this was to be refused")


def _submitted(world: Realm, verified: Verification, key: str, amount: int) -> str:
    """Submit an intent twice with a key, and return its proposal."""
    actor = verified.actor_id or ""
    caller = keyed(verified, key, "golden", {"amount": amount})
    intent = world.issue(actor, "pay", {"ship": actor, "amount": amount}, scope=[f"tolls.{actor}"])
    names = {submit_once(world, caller, intent).proposal_id for _ in range(2)}
    assert len(names) == 1
    return names.pop()


def _leases(world: Realm, ben: Verification) -> None:
    """Acquire and renew two leases, release one, and take a request of a younger agent out of the queue."""
    scope = [{"predicate": "MUTATES", "resource": f"FILE:/harbour/{name}"} for name in ("quay", "crane")]
    manifest = {"ver": "1.0", "agent_id": "ben", "session_id": "quay", "scope": scope}
    held = _twice(world, ben, "lease-1", {"session": "quay"}, lambda one: one.leases.desk.request(manifest, by="ben"))
    ids = [one.lease_id for one in held.leases]
    holder: Any = {"agent_id": "ben", "session_id": "quay"}
    _twice(world, ben, "renew-1", {"ids": ids}, lambda one: one.leases.desk.heartbeat(ids, **holder))
    waiting = {**manifest, "session_id": "tug", "agent_id": "ada", "scope": scope[:1]}
    world.leases.desk.request({**waiting, "scope": [{"predicate": "MUTATES", "resource": "FILE:/mole"}]}, by="ada")
    queued = world.leases.desk.request(waiting, by="ada", queue=True)
    ada = Verification(method="jwt", actor_id="ada")
    if queued.queued:
        _twice(world, ada, "leave-1", {}, lambda one: one.leases.desk.withdraw(str(queued.request_id)))
    _twice(world, ben, "give-1", {"ids": ids}, lambda one: one.leases.desk.release(ids[:1], **holder))
