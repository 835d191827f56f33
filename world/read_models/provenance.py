"""Who made a world, and why: from the world back to proposal, decision, intent, actor, projection and source event.

Many worlds are asked about at once, so only the events that answer are read, in batches: the submission, the decision,
and the record of the projection just before the submission. Sources: IC-audit, CARD-audit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from world.events.proposal_events import DecisionMade, ProjectionRecorded, ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.log import LoggedEvent
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.index import PLACES_AT_ONCE
from world.read_models.lineage import index_damaged, number

Places = dict[str, tuple[int, int]]
"""By proposal: the positions of its submission and of its decision."""

MISPLACED: Final = "it misplaces a proposal"

AT_ONCE: Final = 512
"""Worlds whose causes are read together."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a world is there.

    Args:
        sealed: the world.
        submitted: the proposal that made it; None for genesis.
        decision: of that proposal, in wire form.
        projection: the record of the projection that selected its intent; None where there was none.
    """

    sealed: WorldSealed
    submitted: ProposalSubmitted | None = None
    decision: Any = None
    projection: ProjectionRecorded | None = None

    @property
    def rules(self) -> list[str]:
        """The names of the rules, or answers, that decided."""
        trace = () if self.decision is None else self.decision.get("trace", ())
        return [one["rule"] for one in trace if one.get("decisive")]

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON, without the intent's input, which can be large; genesis has only the world."""
        wire: dict[str, Any] = {"worldId": self.sealed.world_id, "sealedAt": self.sealed.at}
        if self.submitted is None:
            return {**wire, "genesis": True}
        intent, origin = self.submitted.intent, self.submitted.intent["meta"]["origin"]
        wire |= {
            "proposalId": self.submitted.proposal_id,
            "attempt": self.submitted.attempt,
            "intentId": intent["intentId"],
            "intentKey": intent["intentKey"],
            "action": intent["body"]["type"],
            "actor": self.submitted.actor,
            "projectionId": origin["projectionId"],
            "source": origin["source"] if self.projection is None else self.projection.source,
        }
        if self.decision is not None:
            names = ("decisionId", "authority", "decision", "reason", "decidedAt", "approvedScope")
            wire["decision"] = {name: self.decision[name] for name in names if name in self.decision}
            wire["decision"]["rules"] = self.rules
        return wire


def causes_of(archive: Archive, worlds: Iterable[WorldSealed]) -> list[Cause]:
    """Return why some worlds are there, in their order.

    Raises:
        DamagedLogError: ``INDEX_DAMAGED``, or an event that is not what was logged.
    """
    found: list[Cause] = []
    batch: list[WorldSealed] = []
    for sealed in worlds:
        batch.append(sealed)
        if len(batch) == AT_ONCE:
            found += _causes(archive, batch)
            batch = []
    return found + _causes(archive, batch)


def _causes(archive: Archive, worlds: Sequence[WorldSealed]) -> list[Cause]:
    places = _places(archive, [sealed.created_by for sealed in worlds if sealed.created_by is not None])
    wanted = {at for told in places.values() for at in (told[0] - 1, *told) if at > 0}
    logged = {one.position: one for part in archive.log.events_at(sorted(wanted)) for one in part}
    if not wanted <= logged.keys():
        raise index_damaged(MISPLACED)
    return [_cause(sealed, places, logged) for sealed in worlds]


def _places(archive: Archive, proposals: Sequence[str]) -> Places:
    """Return the positions of the submission and the decision of some proposals."""
    places: Places = {}
    for start in range(0, len(proposals), PLACES_AT_ONCE):
        part = proposals[start : start + PLACES_AT_ONCE]
        names = {f"proposal{n}": part[min(n, len(part) - 1)] for n in range(PLACES_AT_ONCE)}
        for name, at, decided in archive.rows("places", **names):
            places[str(name)] = (number(at), number(decided))  # who made a world was decided
    if not places.keys() >= set(proposals):
        raise index_damaged(MISPLACED)
    return places


def _cause(sealed: WorldSealed, places: Places, logged: dict[int, LoggedEvent]) -> Cause:
    if sealed.created_by is None:
        return Cause(sealed)
    at, decided = places[sealed.created_by]
    if min(at, decided) < 1:
        raise index_damaged(MISPLACED)
    submitted, decision = decoded(logged[at]), decoded(logged[decided])
    if not isinstance(submitted, ProposalSubmitted) or not isinstance(decision, DecisionMade):
        raise index_damaged(MISPLACED)
    if not submitted.proposal_id == decision.proposal_id == sealed.created_by:
        raise index_damaged(MISPLACED)
    return Cause(sealed, submitted, decision.decision, projection_before(logged.get(at - 1), submitted))


def projection_before(logged: LoggedEvent | None, submitted: ProposalSubmitted) -> ProjectionRecorded | None:
    """Return the record of the projection that selected an intent, which stands right before its submission.

    Args:
        logged: the event before the submission.
        submitted: the proposal.
    """
    if logged is None or logged.topic != ProjectionRecorded.TOPIC:
        return None
    before = decoded(logged)
    if isinstance(before, ProjectionRecorded) and before.proposal_id == submitted.proposal_id:
        return before
    return None
