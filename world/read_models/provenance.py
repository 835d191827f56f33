"""Causes of worlds: the proposal, decision, intent, actor, projection and source event behind each world.

Causes are looked up for many worlds together. Only three events per world are read, in batches: the submission, the
decision, and the record of the projection immediately before the submission. Sources: IC-audit, CARD-audit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, Final, Literal

from world.events.proposal_events import DecisionMade, ProjectionRecorded, ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.log import LoggedEvent
from world.model.decision import DecisionRecord
from world.model.record import Record
from world.model.source import SourceEvent, SourceRef
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.index import PLACES_AT_ONCE
from world.read_models.lineage import number
from world.read_models.live.state_loading import index_damaged

Places = dict[str, tuple[int, int]]
"""Positions of the submission and the decision, by proposal id."""

MISPLACED: Final = "it has a wrong position of a proposal"

_IN_SHORT: Final = ("decisionId", "authority", "decision", "reason", "decidedAt", "approvedScope")

AT_ONCE: Final = 512
"""Number of worlds whose causes are read together."""


class Cause(Record, frozen=True, omit_defaults=True):
    """Cause of a world.

    Args:
        sealed: the world.
        submitted: the proposal that produced it; None for genesis.
        decision: the decision about that proposal.
        projection: the record of the projection that selected its intent; None without a projection.
    """

    sealed: WorldSealed
    submitted: ProposalSubmitted | None = None
    decision: DecisionRecord | None = None
    projection: ProjectionRecorded | None = None
    WIRE: ClassVar = (
        "worldId=sealed.world_id sealedAt=sealed.at genesis? proposalId=submitted.proposal_id? "
        "attempt=submitted.attempt? intentId=submitted.intent.intent_id? intentKey=submitted.intent.intent_key? "
        "action=submitted.intent.body.type? actor=submitted.actor? "
        "projectionId=submitted.intent.meta.origin.projection_id? source? decision=in_short?"
    )

    @property
    def genesis(self) -> Literal[True] | None:
        """True for the world that no proposal produced."""
        return True if self.submitted is None else None

    @property
    def source(self) -> SourceEvent | SourceRef | None:
        """The source event that the intent was selected for; None at genesis."""
        if self.projection is not None:
            return self.projection.source
        return None if self.submitted is None else self.submitted.intent.meta.origin.source

    @property
    def in_short(self) -> dict[str, Any] | None:
        """The decision as JSON, with its rules in place of its trace."""
        if self.decision is None:
            return None
        wire = self.decision.to_wire()
        return {name: wire[name] for name in _IN_SHORT if name in wire} | {"rules": self.rules}

    @property
    def rules(self) -> list[str]:
        """Names of the rules, or answers of people, that decided."""
        return [] if self.decision is None else self.decision.decisive_rules


def causes_of(archive: Archive, worlds: Iterable[WorldSealed]) -> list[Cause]:
    """Return the causes of worlds, in the order of the worlds.

    Raises:
        DamagedLogError: ``INDEX_DAMAGED``; an event was changed after it was logged.
    """
    causes: list[Cause] = []
    rest = iter(worlds)
    while batch := list(islice(rest, AT_ONCE)):
        causes += _causes(archive, batch)
    return causes


def _causes(archive: Archive, worlds: Sequence[WorldSealed]) -> list[Cause]:
    places = _places(archive, [sealed.created_by for sealed in worlds if sealed.created_by is not None])
    wanted = {at for submitted, decided in places.values() for at in (submitted - 1, submitted, decided) if at > 0}
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
        for name, at, decided in archive.rows("places", names):
            places[str(name)] = (number(at), number(decided))  # the proposal of a world has a decision
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
    """Return the record of the projection that selected an intent, which immediately precedes its submission.

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
