"""Verification log of a run: declared, observed, violated and unused triples (KO-4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.resource_values import ChangedResource, ObservedEffect, ResourceClaim, UndeclaredEffect
from world.events.run_events import (
    RunAmended,
    RunClosed,
    RunCompared,
    RunObserved,
    RunOpened,
    RunRolledBack,
    RunViolated,
)
from world.klis.observation import Declaration, Seen
from world.klis.triple import Triple, read_claim
from world.model.record import to_wire
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.lineage import number

__all__ = ["VerificationLog", "read_verification", "runs_of"]

BATCH = 1_000


@dataclass(slots=True)
class VerificationLog:
    """One run, read from its events.

    Args:
        run_id: the run; the proposal's id for the effects of a proposal.
        opened: its beginning; None for the effects of a proposal.
        observed: permitted side effects, each once, with their count.
        violations: undeclared side effects.
        amendments: extensions of the scope.
        rollbacks: restored backups.
        changes: changes of the run found by the comparison of contents.
        foreign: changes of others found by it.
        closed: its end; None while it is open.
        status: status of the proposal, for the effects of one.
    """

    run_id: str
    opened: RunOpened | None = None
    observed: dict[tuple[str, str, str], ObservedEffect] = field(default_factory=dict)
    violations: list[UndeclaredEffect] = field(default_factory=list)
    amendments: list[RunAmended] = field(default_factory=list)
    rollbacks: list[RunRolledBack] = field(default_factory=list)
    changes: list[ChangedResource] = field(default_factory=list)
    foreign: list[ChangedResource] = field(default_factory=list)
    closed: RunClosed | None = None
    status: str | None = None

    @property
    def declared(self) -> list[ResourceClaim]:
        """The triples declared at the beginning."""
        return [] if self.opened is None else list(self.opened.declared)

    @property
    def outcome(self) -> str:
        """How it ended, or ``open``; for the effects of a proposal, its status."""
        if self.opened is None and self.status is not None:
            return self.status
        return "open" if self.closed is None else self.closed.outcome

    def unused(self, declared: Iterable[ResourceClaim]) -> list[Triple]:
        """Return the declared triples that were not used."""
        triples = [read_claim(one) for one in declared]
        seen = [Seen(one.predicate, one.resource) for one in map(_triple, self.observed.values()) if one is not None]
        return Declaration("", "", triples).unused(seen)

    def add(self, event: Event) -> None:
        """Add one event."""
        if isinstance(event, RunOpened):
            self.opened = event
        elif isinstance(event, RunObserved):
            for one in event.observed:
                key = (one.predicate, one.resource, one.depth)
                known = self.observed.get(key) if self.opened is None else None  # each effect counts by itself
                count = one.count + (0 if known is None else known.count)
                self.observed[key] = structs.replace(one, count=count)
        elif isinstance(event, RunViolated):
            self.violations.append(event.violation)
        elif isinstance(event, RunAmended):
            self.amendments.append(event)
        elif isinstance(event, RunRolledBack):
            self.rollbacks.append(event)
        elif isinstance(event, RunCompared):
            self.changes += event.changes
            self.foreign += event.foreign
        elif isinstance(event, RunClosed):
            self.closed = event

    def to_wire(self) -> dict[str, Any]:
        """Return the verification log as JSON."""
        wire: dict[str, Any] = {"runId": self.run_id, "outcome": self.outcome}
        opened, closed = self.opened, self.closed
        if opened is not None:
            wire |= {
                "agentId": opened.agent_id,
                "sessionId": opened.session_id,
                "kind": opened.kind,
                "mode": opened.mode,
                "command": opened.command,
                "heldBy": opened.held_by,
                "verdictId": opened.verdict_id,
                "leaseIds": opened.lease_ids,
                "openedAt": opened.at,
                "declared": to_wire(opened.declared),
            }
        wire |= {
            "observed": to_wire(list(self.observed.values())),
            "violations": to_wire(self.violations),
            "amendments": [
                {"predicate": one.predicate, "resource": one.resource, "verdictId": one.verdict_id}
                for one in self.amendments
            ],
            "rollbacks": [
                {"verdictId": one.verdict_id, "restored": one.restored, "removed": one.removed, "failed": one.failed}
                for one in self.rollbacks
            ],
        }
        if closed is not None:
            wire |= {
                "closedAt": closed.at,
                "unused": to_wire(closed.unused),
                "changes": to_wire(self.changes),
                "foreign": to_wire(self.foreign),
            }
            if closed.more_unused:
                wire["moreUnused"] = closed.more_unused
            if closed.exit_code is not None:
                wire["exitCode"] = closed.exit_code
            if closed.reason is not None:
                wire["reason"] = closed.reason
        return wire


def _triple(one: ResourceClaim) -> Triple | None:
    try:
        return read_claim(one)
    except Exception:  # noqa: BLE001  # a file outside the workspace is not a declarable resource
        return None


def read_verification(archive: Archive, run_id: str, upto: int | None = None) -> VerificationLog:
    """Return the verification log of a run, or of the effects of a proposal.

    Args:
        archive: of the log.
        run_id: the run's id, or the proposal's.
        upto: state after this event; None is now.

    Raises:
        RefusedError: ``UNKNOWN_RUN`` where nothing is recorded under this id.
    """
    found = VerificationLog(run_id)
    after = seen = 0
    while logged := archive.log.stream(f"run:{run_id}", after=after, limit=BATCH):
        for one in logged:
            if upto is None or one.position <= upto:
                found.add(decoded(one))
                seen += 1
        after += len(logged)
    if not seen:
        then = "" if not after else f" up to event {upto}"
        raise RefusedError(ErrorCode.UNKNOWN_RUN, f"Run {run_id!r} has no records{then}; check the id.", run_id=run_id)
    if found.opened is None:
        found.status = archive.proposal(run_id, upto).status
    return found


def runs_of(archive: Archive, session_id: str, upto: int | None = None) -> list[str]:
    """Return the ids of the runs of a session, oldest first; those that had begun at an event, where one is given."""
    names = [str(run_id) for (run_id,) in archive.rows("runs_of_session", {"of_session": session_id})]
    if upto is None:
        return names
    return [name for name in names for row in archive.rows("run", {"of_run": name}) if number(row[3]) <= upto]
