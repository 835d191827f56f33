"""Records the golden logs: ``python -m tests.golden.generate NAME...``. A log that is kept is never recorded again.

Beside each log stands what it comes to: ``NAME.summary.json``. ``garden-forged`` is the garden with one patch changed
and every hash above it made to fit; verification has to find it all the same.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from tests.golden import (
    World,
    access,
    callers,
    cellar,
    clocks,
    couriers,
    garden,
    gate,
    guards,
    harbour,
    moves,
    orchard,
    repeats,
    signed,
    wakes,
)
from tests.golden.garden import FOLDER, record, record_portable
from world.audit.replay import replay
from world.clock import ManualClock
from world.core import Domain
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import DecisionMade
from world.events.realm_events import WorldSealed
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.log.merkle import Frontier
from world.log.values import event_leaf
from world.model.canonical_json import canonical_bytes
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import export_log


class AsThen:
    """Founds the garden as the release did that recorded it; the module of the garden itself stays as it was."""

    @staticmethod
    def create(address: str, *, clock: ManualClock, **given: Any) -> Realm:
        """Found it with the settings of then; the policy was adopted by a command of its own, later by one step.

        Each reading moves the clock, and a preparation reads it once more than the release did.
        """
        limits = Limits(klis=KlisSettings.recorded({}), max_preparations=0)
        world = World.create(address, clock=clock, limits=limits, **given)
        clock.now_ms()
        return world


def record_leased(address: str) -> Realm:
    """Play the scenes of the garden with leases; the caller closes it."""
    with mock.patch.object(garden, "World", AsThen):
        return record(address)


def in_recorded_form(domain: Domain, name: str) -> Domain:
    """Return a domain in the form in which a recorded log adopted it; as it is where there is no such log yet."""
    path = FOLDER / f"{name}.jsonl"
    if not path.exists():
        return domain
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    told = [line for line in lines if line.get("topic") == "domain.adopted"]
    form = domain.copied()
    assert form.take_form(told[0]["state"]["schemaHash"], told[0]["state"].get("rules", 1))
    return form


def recording(module: ModuleType, domain: str, name: str, record: Callable[[str], Realm]) -> Callable[[str], Realm]:
    """Return a function that plays scenes with the module's domain in the form that the log of this name adopted."""

    def play(address: str) -> Realm:
        with mock.patch.object(module, domain, in_recorded_form(vars(module)[domain], name)):
            return record(address)

    return play


def record_orchard(address: str) -> Realm:
    """Play the scenes of the orchard, whose two adoptions recorded version 2 of the rules; the caller closes it."""
    with mock.patch("world.core.domain.RULES", 2), mock.patch.object(orchard, "grown", orchard.grown.copied()):
        orchard.grown.take_newest_form()
        return recording(orchard, "orchard", "orchard", orchard.record)(address)


def record_cellar(address: str) -> Realm:
    """Play the scenes of the cellar under version 2 of the rules, which its domain needs; the caller closes it."""
    older = mock.patch("world.core.domain.RULES", 2), mock.patch("world.core.schema.RULES", 2)
    with older[0], older[1], mock.patch.object(cellar, "cellar", cellar.cellar.copied()):
        cellar.cellar.take_newest_form()
        return recording(cellar, "cellar", "cellar", cellar.record)(address)


RECORDED = {
    "garden-leased": recording(garden, "garden", "garden-leased", record_leased),
    "ledger-leased": record_portable,
    "harbour": recording(harbour, "harbour", "harbour", harbour.record),
    "clocks": recording(clocks, "harbour", "clocks", clocks.record),
    "orchard": record_orchard,
    "cellar": record_cellar,
    "gate": recording(gate, "gate", "gate", gate.record),
    "couriers": recording(couriers, "couriers", "couriers", couriers.record),
    "access": recording(access, "harbour", "access", access.record),
    "signed": recording(signed, "harbour", "signed", signed.record),
    "wakes": recording(wakes, "harbour", "wakes", wakes.record),
    "callers": recording(callers, "desk", "callers", callers.record),
    "guards": recording(guards, "gate", "guards", guards.record),
    "moves": recording(moves, "harbour", "moves", moves.record),
    "repeats": recording(repeats, "harbour", "repeats", repeats.record),
}
"""The logs as they are recorded today; ``garden`` and ``ledger`` are from before there were leases."""

FORGED = "garden-forged"


def summary(world: Realm) -> dict[str, Any]:
    """Return what a log comes to: the worlds, the decisions, the verdicts and the states of its branches."""
    done = replay(world.log)
    decisions = []
    for _, event in world.events():
        if isinstance(event, DecisionMade):
            told = event.decision.to_wire()
            kept = ("proposalId", "decision", "authority", "reason", "approvedScope", "policyHash")
            decisions.append({name: told[name] for name in kept if name in told})
    told = {
        "head": str(done.head),
        "worlds": [event.world_id for _, event in world.events() if isinstance(event, WorldSealed)],
        "decisions": decisions,
        "statuses": dict(sorted(done.statuses.items())),
        "data": dict(done.data),
        "active": done.realm.active,
        "epoch": done.realm.epoch,
    }
    verdicts = [
        {
            "agent": event.agent_id,
            "status": event.status,
            "cause": event.cause,
            "leases": [[one.predicate, one.resource, one.token] for one in event.leases],
            "conflicts": [[one.holder, one.predicate, one.resource] for one in event.conflicts],
            "retryAfterMs": event.retry_after_ms,
        }
        for _, event in world.events()
        if isinstance(event, VerdictGiven)
    ]
    return {**told, "verdicts": verdicts} if verdicts else told


def forge(lines: list[bytes]) -> tuple[list[bytes], int]:
    """Return an export with one patch changed and all leaves and tree heads made to fit, and the event's position."""
    told = [json.loads(line) for line in lines]
    at = next(
        number
        for number, line in enumerate(told)
        if line.get("topic") == "world.sealed" and any(p["path"] == "water" for p in line["state"]["patches"])
    )
    for patch in told[at]["state"]["patches"]:
        if patch["path"] == "water":
            patch["value"] += 50
    return rehashed(told), told[at]["position"]


def rehashed(told: list[dict[str, Any]]) -> list[bytes]:
    """Return the lines of an export with the leaves and heads that fit their content."""
    frontier = Frontier()
    for line in told:
        if "leaf" in line:
            state = canonical_bytes(line["state"])
            leaf = event_leaf(line["stream"], line["version"], line["topic"], line["schemaVersion"], state)
            line["leaf"] = leaf.hex()
            frontier = frontier.extended([leaf])
        elif "head" in line:
            line["head"] = {"size": frontier.size, "root": frontier.root().hex()}
    return [canonical_bytes(line) + b"\n" for line in told]


def generate(name: str, folder: Path = FOLDER) -> None:
    """Record one golden log and its summary."""
    with tempfile.TemporaryDirectory() as place:
        world = RECORDED["garden-leased" if name == FORGED else name](f"{place}/{name}.db")
        path = folder / f"{name}.jsonl"
        with world, path.open("wb") as out:
            export_log(world.log, out)
            told = summary(world)
    if name == FORGED:
        lines, position = forge(path.read_bytes().splitlines(keepends=True))
        path.write_bytes(b"".join(lines))
        told = {"firstBadEvent": position}
    text = json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False)
    (folder / f"{name}.summary.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or (*RECORDED, FORGED):
        if (FOLDER / f"{wanted}.jsonl").exists():
            sys.exit(f"{wanted}.jsonl is there already; golden logs are only ever added.")
        generate(wanted)
