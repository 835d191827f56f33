"""A harbour in which what is freed wakes what died of it: by release, revocation, expiry and withdrawal.

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

SETTINGS = KlisSettings.recorded(
    {"max_proposal_retries": 2, "default_ttl_ms": 60_000, "max_hold_ms": 600_000, "manifest_rules": 3, "wake_rules": 2}
)


@the_same_worker()
def record(address: str) -> Realm:
    """Found a harbour and play its scenes; the caller closes it."""
    clock = ManualClock(START, 10)
    world = Realm.create(address, domain=harbour, clock=clock, ids=SequentialIds("wakes"), limits=Limits(klis=SETTINGS))
    for name in ("ada", "ben", "cleo", "dora"):
        world.register(name, "agent", binding={"kind": "auto_approve"})
        world.leases.desk.register_agent(name, by="operator")
    _by_age(world)
    _by_everything(world, clock)
    _into_the_queue(world)
    _by_timer(world, clock)
    return world


def _take(world: Realm, agent: str, *places: str, **more: Any) -> list[str]:
    """Request leases directly, and return those that are granted."""
    scope = [{"predicate": "MUTATES", "resource": f"FILE:/{place}"} for place in places]
    manifest = {"ver": "1.0", "session_id": f"s-{agent}", "agent_id": agent, "scope": scope}
    return [lease.lease_id for lease in world.leases.desk.request(manifest, by=agent, **more).leases]


def _moor(world: Realm, agent: str, ship: str, berth: str) -> str:
    return world.act(agent, "moor", {"ship": ship, "berth": berth}, scope=[f"berths.{ship}"]).proposal_id


def _by_age(world: Realm) -> None:
    held = _take(world, "ada", "harbour/north")
    for number, agent in enumerate(("dora", "cleo", "ben", "cleo")):
        _moor(world, agent, f"ship-{number}", "north")  # dies
    withdrawn = _moor(world, "ben", "left", "north")
    world.host.cancel(withdrawn, by="ben", reason="it sails on")
    world.leases.desk.release(held, agent_id="ada", session_id="s-ada")  # ben, cleo twice, dora


def _by_everything(world: Realm, clock: ManualClock) -> None:
    held = _take(world, "ada", "harbour/east")
    _moor(world, "ben", "Swan", "east")
    world.leases.desk.revoke(held, by="operator", reason="the berth is needed")
    _take(world, "ada", "harbour/west", ttl_ms=500)
    _moor(world, "ben", "Teal", "west")
    clock.advance(600)
    world.settle()  # the lease expires
    young = _take(world, "dora", "harbour/south")
    _take(world, "ada", "harbour/south", "harbour/west", queue=True, request_id="ada-waits")
    _moor(world, "ben", "Gull", "west")  # dies of what ada waits for
    world.leases.desk.withdraw("ada-waits")
    world.leases.desk.release(young, agent_id="dora", session_id="s-dora")


def _into_the_queue(world: Realm) -> None:
    old, young = _take(world, "ada", "harbour/north"), _take(world, "dora", "tugs/a")
    towed = {"ship": "Tern", "berth": "north", "towed": ["a"]}
    world.act("ben", "moor", towed, scope=["berths.Tern"])  # dies of ada
    _take(world, "cleo", "harbour/north", queue=True)  # dies, and has ended
    world.leases.desk.release(old, agent_id="ada", session_id="s-ada")  # ben waits for dora
    _moor(world, "cleo", "Coot", "north")  # dies of what ben waits for
    world.leases.desk.release(young, agent_id="dora", session_id="s-dora")


def _by_timer(world: Realm, clock: ManualClock) -> None:
    held = _take(world, "ada", "harbour/north", ttl_ms=600_000)
    _moor(world, "ben", "Ruff", "north")
    for _ in range(2):
        clock.advance(4_000)
        world.settle()  # dies again by its timer, and the third time it is rejected
    _moor(world, "ben", "Rail", "north")
    clock.advance(2_000)
    world.settle()
    world.leases.desk.release(held, agent_id="ada", session_id="s-ada")
