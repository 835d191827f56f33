"""Blame: from a value in a world back to the patch, proposal, decision, intent, actor and source event behind it.

Sources: IC-audit, CARD-audit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from world.decision import DecisionRecord
from world.events import ProjectionRecorded, WorldSealed
from world.intent import IntentInstance
from world.patch import Patch, Place, touched_paths
from world.paths import look_up, parse_path
from world.proposal import Proposal
from world.views.archive import Archive, decoded


@dataclass(frozen=True, slots=True)
class Blame:
    """Who made a value what it is.

    Args:
        path: where the value stands, relative to the data.
        value: the value in the world that was asked about; None where it is absent.
        world: the world that set it last on this line of descent.
        patches: the patches of that world that touch the path; empty for genesis, which began with it.
        proposal: the proposal that made the world; None for genesis.
        projection: the record of the projection that selected the intent; None where there was none.
    """

    path: str
    value: Any
    world: WorldSealed
    patches: tuple[Patch, ...] = ()
    proposal: Proposal | None = None
    projection: ProjectionRecorded | None = None

    @property
    def intent(self) -> IntentInstance | None:
        """The intent that wanted it."""
        return None if self.proposal is None else self.proposal.intent

    @property
    def decision(self) -> DecisionRecord | None:
        """Why it was allowed."""
        return None if self.proposal is None else self.proposal.decision_record

    def to_wire(self) -> dict[str, Any]:
        """Return the answer as JSON."""
        wire: dict[str, Any] = {
            "path": self.path,
            "value": self.value,
            "worldId": self.world.world_id,
            "sealedAt": self.world.at,
            "patches": [patch.to_wire() for patch in self.patches],
        }
        if self.proposal is not None:
            wire["proposal"] = self.proposal.to_wire()
            wire["actor"] = self.proposal.submitted.actor
            wire["source"] = self.proposal.intent.meta.origin.source.to_wire()
        if self.projection is not None:
            wire["source"] = self.projection.source
            wire["projectionId"] = self.projection.projection_id
        return wire


def blame(archive: Archive, path: str, world_id: str) -> Blame:
    """Find who last touched a place, from a world back to genesis.

    Args:
        archive: of the log.
        path: relative to the data, such as ``todos.0.title``; a leading ``data.`` may stand before it.
        world_id: the world to begin with.

    Raises:
        Refused: ``UNKNOWN_WORLD``, ``INVALID_PATH``.
    """
    plain = path.removeprefix("data.")
    place = parse_path(plain)
    value = look_up(archive.state(world_id), place)
    at = archive.sealed(world_id)
    while at.parent is not None:
        touching = tuple(patch for patch in map(Patch.from_wire, at.patches) if _touches(patch, place))
        if touching:
            proposal = archive.proposal(at.created_by or "")
            return Blame(plain, value, at, touching, proposal, _projection(archive, proposal))
        at = archive.sealed(at.parent)
    return Blame(plain, value, at)


def _touches(patch: Patch, place: Place) -> bool:
    """Tell whether a patch changes a place, something in it, or something it lies in."""
    return any(
        all(ours is None or theirs is None or ours == theirs for ours, theirs in zip(touched, place, strict=False))
        for touched in touched_paths(patch)
    )


def _projection(archive: Archive, proposal: Proposal) -> ProjectionRecorded | None:
    """Return the projection record that was appended just before a proposal."""
    first = archive.log.stream(proposal.proposal_id, limit=1)[0]
    if first.position == 1:
        return None
    before = decoded(archive.log.event_at(first.position - 1))
    if isinstance(before, ProjectionRecorded) and before.proposal_id == proposal.proposal_id:
        return before
    return None
