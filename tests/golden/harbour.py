"""A realm in which leases are contended: berths of a harbour, taken by proposals and directly by agents.

``record`` plays the same scenes with the same clock and the same ids, so it writes the same log byte by byte.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from tests.golden.garden import START, the_same_worker
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, set_
from world.errors import RefusedError
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.realm import Realm

SETTINGS = KlisSettings.recorded({"max_proposal_retries": 2, "default_ttl_ms": 5_000, "max_hold_ms": 60_000})
ACTORS = ("ada", "ben", "cleo")


class Harbour(BaseModel):
    berths: dict[str, str] = {}
    tolls: dict[str, int] = {}


class Mooring(BaseModel):
    ship: str
    berth: str
    towed: list[str] = []


class Toll(BaseModel):
    ship: str
    amount: int


harbour = Domain("urn:golden:harbour", version="1.0.0", state=Harbour)


@harbour.action(
    "moor",
    version="1",
    manifest=[
        {"predicate": "MUTATES", "resource": "FILE:/harbour/{input.berth}"},
        {"predicate": "CONSUMES", "resource": "FILE:/tugs/{$item}", "each": {"kind": "get", "path": "input.towed"}},
    ],
)
def moor(ctx: ActionContext, input: Mooring) -> Any:  # noqa: A002
    return [set_(f"berths.{input.berth}", input.ship)]


@harbour.action("pay", version="1")
def pay(ctx: ActionContext, input: Toll) -> Any:  # noqa: A002
    return [set_(f"tolls.{input.ship}", ctx.data["tolls"].get(input.ship, 0) + input.amount)]


@the_same_worker()
def record(address: str) -> Realm:
    """Found a harbour and play its scenes; the caller closes it."""
    clock = ManualClock(START, 10)
    world = Realm.create(
        address, domain=harbour, clock=clock, ids=SequentialIds("harbour"), limits=Limits(klis=SETTINGS)
    )
    for name in ACTORS:
        world.register(name, "agent", binding={"kind": "auto_approve"})
        world.act(name, "pay", {"ship": name, "amount": 1}, scope=[f"tolls.{name}"])
    _waiting(world)
    _dying(world, clock)
    _direct(world, clock)
    _refused(world)
    return world


def _manifest(agent: str, session: str, *scope: tuple[str, str], **more: Any) -> dict[str, Any]:
    triples = [{"predicate": predicate, "resource": resource} for predicate, resource in scope]
    return {"ver": "1.0", "session_id": session, "agent_id": agent, "scope": triples, **more}


def _waiting(world: Realm) -> None:
    desk = world.leases.desk
    held = desk.request(_manifest("cleo", "c1", ("DELETES", "FILE:/harbour/*")), by="cleo")
    world.act("ada", "moor", {"ship": "Swan", "berth": "north", "towed": ["a"]}, scope=["berths"])  # waits
    desk.release([held.leases[0].lease_id], agent_id="cleo", session_id="c1")  # and is moored by that


def _dying(world: Realm, clock: ManualClock) -> None:
    desk = world.leases.desk
    held = desk.request(_manifest("ada", "a1", ("MUTATES", "FILE:/harbour/south")), by="ada", ttl_ms=20_000)
    lease = held.leases[0].lease_id
    world.act("ben", "moor", {"ship": "Teal", "berth": "south"}, scope=["berths"])  # dies, is tried again, is rejected
    for _ in range(2):
        clock.advance(2_500)
        world.settle()
    world.act(
        "cleo", "moor", {"ship": "Gull", "berth": "south"}, scope=["berths"]
    )  # dies, and gets it after the expiry
    desk.heartbeat([lease], agent_id="ada", session_id="a1")
    clock.advance(30_000)
    world.settle()


def _direct(world: Realm, clock: ManualClock) -> None:
    desk = world.leases.desk
    tug = ("CONSUMES", "FILE:/tugs/b")
    first = desk.request(_manifest("ben", "b1", tug, ("RENAMES", "FILE:/harbour/east")), by="ben")
    desk.request(_manifest("cleo", "c2", ("CONSUMES", "FILE:/harbour/east")), by="cleo", queue=True)  # dies
    desk.request(_manifest("ada", "a2", ("CONSUMES", "FILE:/harbour/east")), by="ada", queue=True, wait_ms=1_000)
    clock.advance(2_000)
    world.settle()  # ada waited long enough
    desk.request(_manifest("ada", "a3", ("MUTATES", "FILE:/harbour/*")), by="ada", queue=True)
    desk.revoke([first.leases[1].lease_id], by="operator", reason="the berth is needed")


def _refused(world: Realm) -> None:
    desk = world.leases.desk
    for bad in (_manifest("ada", "a4", ("MUTATES", "FILE:/*")), _manifest("ada", "a4", ("WRITES", "FILE:/x"))):
        try:
            desk.request(bad, by="ada")
        except RefusedError:
            continue
        raise AssertionError(bad)
    world.act("ben", "moor", {"ship": "Rook", "berth": "../x"}, scope=["berths"])  # rejected for its manifest
