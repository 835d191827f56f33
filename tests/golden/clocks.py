"""A harbour in which one clock was a year ahead: an operator confirms the right time, and lease time goes back.

``record`` plays the same scenes with the same clock and the same ids, so it writes the same log byte by byte.
"""

from __future__ import annotations

from typing import Any

from tests.golden.garden import START, the_same_worker
from tests.golden.harbour import harbour
from world.clock import ManualClock, SequentialIds
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.realm import Realm

SETTINGS = KlisSettings.recorded({"default_ttl_ms": 5_000, "max_hold_ms": 60_000, "max_clock_ahead_ms": 120_000})
YEAR = 365 * 86_400_000


@the_same_worker()
def record(address: str) -> Realm:
    """Found a harbour and play its scenes; the caller closes it."""
    clock = ManualClock(START, 10)
    world = Realm.create(
        address, domain=harbour, clock=clock, ids=SequentialIds("clocks"), limits=Limits(klis=SETTINGS)
    )
    desk = world.leases.desk
    for name in ("ada", "ben", "cleo"):
        world.register(name, "agent", binding={"kind": "auto_approve"})
        desk.register_agent(name, by="operator")
    world.register("dora", "human", binding={"kind": "hitl", "ask": ["ada"], "timeoutMs": 4_000})
    _take(world, "ada", "FILE:/harbour/north")
    clock.advance(YEAR)
    _take(world, "ben", "FILE:/harbour/south")  # by a clock that is ahead
    _take(world, "ada", "FILE:/harbour/south", queue=True, wait_ms=2_000)  # waits
    _take(world, "cleo", "FILE:/harbour/south")  # dies
    world.act("dora", "pay", {"ship": "dora", "amount": 1}, scope=["tolls.dora"])  # waits for an answer
    clock.advance(-YEAR)
    world.confirm_clock(reason="the clock of ben's machine was a year ahead")
    clock.advance(3_000)
    world.settle()  # ada waited long enough
    clock.advance(2_500)
    world.settle()  # the lease ended, and so did the vote
    _take(world, "cleo", "FILE:/harbour/south")
    clock.set_off(200_000)
    world.confirm_clock(reason="the clock was slow before")
    world.act("ada", "pay", {"ship": "ada", "amount": 2}, scope=["tolls.ada"])
    return world


def _take(world: Realm, agent: str, resource: str, **more: Any) -> None:
    scope = [{"predicate": "MUTATES", "resource": resource}]
    manifest = {"ver": "1.0", "session_id": f"s-{agent}", "agent_id": agent, "scope": scope}
    world.leases.desk.request(manifest, by=agent, **more)
