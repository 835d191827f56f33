"""A gate with a second guard in shadow, another enforcement, a retired policy, a workspace, and governed runs.

``record`` plays the same scenes with the same clock, ids and observations, so it writes the same log byte by byte.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from authority import Policy
from host.observation import Watch
from tests.golden.garden import START, the_same_worker
from tests.golden.gate import before, gate, shorter_names
from tests.support.engines import engine_of
from world.clock import ManualClock, SequentialIds
from world.errors import ScopeViolationError
from world.events.lease_events import VerdictGiven
from world.events.resource_values import ChangedResource, ResourceExistence
from world.klis.observation import Declaration, Seen
from world.klis.settings import KlisSettings
from world.klis.triple import read_triple
from world.limits import Limits
from world.pipeline.leasing.realm_workspace import register_workspace
from worldprotocol.api.realm import Realm
from worldprotocol.runs.record import RunRecord

SETTINGS = KlisSettings.recorded({"manifest_rules": 3, "wake_rules": 2})

strict = Policy("strict", [shorter_names])

ROAD: Final = "FILE:/road.txt"
SIGN: Final = "FILE:/sign.txt"


@the_same_worker()
def record(address: str) -> Realm:
    """Found a gate and play its scenes; the caller closes it."""
    parts: dict[str, Any] = {
        "domain": gate, "policies": [before, strict], "clock": ManualClock(START, 10),
        "ids": SequentialIds("guards"), "limits": Limits(klis=SETTINGS, max_preparations=0),
    }  # fmt: skip
    with Realm.create(address, **parts) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "guard"})
        _in_shadow(world)
    world = Realm.open(address, enforcement="trusting", **parts)
    _retired(world)
    _completed(world)
    _violated(world)
    _workspaces(world)
    return world


def _in_shadow(world: Realm) -> None:
    world.shadow("strict", actors=["bot"])
    world.act("bot", "pass", {"name": "Olga"})  # the shadow would have rejected it
    world.act("ann", "pass", {"name": "Ann"})  # is not its matter
    world.shadow("strict")
    world.act("ann", "pass", {"name": "Eve"})
    world.shadow(None, by="ann")
    world.act("bot", "pass", {"name": "Otto"})


def _retired(world: Realm) -> None:
    world.bind("bot", {"kind": "auto_approve"}, by="ann")
    world.retire_policy("guard", by="ann", reason="the gate is open")
    world.act("bot", "pass", {"name": "Rosalinde"})


def _workspaces(world: Realm) -> None:
    engine = engine_of(world)
    engine.run(lambda work: register_workspace(work, "workspace-one", "operator"))
    engine.run(lambda work: register_workspace(work, "workspace-two", "ann", replace=True))


def _seen(predicate: str, resource: str, call: str) -> Seen:
    triple = read_triple(predicate, resource)
    return Seen(triple.predicate, triple.resource, call=call)


def _leased(world: Realm, session: str, *scope: tuple[str, str]) -> VerdictGiven:
    triples = [{"predicate": predicate, "resource": resource} for predicate, resource in scope]
    manifest = {"ver": "1.0", "session_id": session, "agent_id": "bot", "scope": triples}
    return world.leases.desk.request(manifest, by="bot")


def _begun(world: Realm, session: str, *scope: tuple[str, str], strict: bool) -> tuple[RunRecord, Watch, VerdictGiven]:
    verdict = _leased(world, session, *scope)
    watch = Watch(Declaration("bot", session, [read_triple(*one) for one in scope]), strict=strict)
    run = RunRecord(engine_of(world), f"run-{session}", watch)
    existence = [ResourceExistence(resource=SIGN, exists=True)]
    run.opened(verdict, kind="command", held_by=["audit"], command=["make", "road"], existence=existence)
    return run, watch, verdict


def _completed(world: Realm) -> None:
    """A permissive run whose scope is widened by a lease, and that changes what it declared."""
    run, watch, verdict = _begun(world, "s-1", ("MUTATES", ROAD), ("CONSUMES", SIGN), strict=False)
    watch.check([_seen("MUTATES", ROAD, "open('/road.txt', 'w')")], depth="process")
    run.flush()
    run.amended(_leased(world, "s-1", ("MUTATES", "FILE:/wall.txt")))
    changed = ChangedResource(kind="changed", resource=ROAD)
    run.compared([changed], [ChangedResource(kind="created", resource="FILE:/leaf.txt")])
    run.closed("completed", reason=None, exit_code=0, unused=[read_triple("CONSUMES", SIGN)])
    leases = [one.lease_id for one in verdict.leases]
    world.leases.desk.release(leases, agent_id="bot", session_id="s-1")


def _violated(world: Realm) -> None:
    """A strict run that does what it did not declare; what it had leased is restored."""
    run, watch, verdict = _begun(world, "s-2", ("MUTATES", "FILE:/fence.txt"), strict=True)
    with suppress(ScopeViolationError):
        watch.check([_seen("DELETES", SIGN, "os.remove('/sign.txt')")], depth="process")
    run.flush()
    run.rolled_back(verdict.verdict_id, {"restored": ["FILE:/fence.txt"], "removed": ["FILE:/new.txt"], "failed": []})
    run.closed("violated", reason="os.remove('/sign.txt') was not declared.", exit_code=1)
