"""Projecting: the projections select an intent for a source event on the head of a branch, and the issuer issues it.

Sources: INT-12.1, INT-12.2; design section 5. Both are called through one port, because their record is made of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from world.errors import RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.model.intent import IntentInstance
from world.model.snapshot import Snapshot
from world.pipeline.branches import find_branch
from world.pipeline.preparation.prepared import prepared_projection
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal

__all__ = ["Projected", "Projector", "Selected", "project_source", "select"]


@dataclass(frozen=True, slots=True)
class Projected:
    """The result of a source event.

    Args:
        record: the projection record, None where nothing was worth recording.
        proposal: the proposal, None where no intent was selected.
        refused: why the result of the projections was not accepted; the record has it, too.
    """

    record: ProjectionRecorded | None
    proposal: Proposal | None
    refused: RefusedError | None = None


@dataclass(frozen=True, slots=True)
class Selected:
    """An intent that was selected and issued, with its projection record, which is appended with its proposal."""

    record: ProjectionRecorded | None
    intent: IntentInstance


class Projector(Protocol):
    """Turns a source event into a record and an intent, purely; the projections room implements it."""

    def __call__(
        self, snapshot: Snapshot, schema_hash: str, world: str, at: int
    ) -> tuple[ProjectionRecorded | None, IntentInstance | RefusedError | None]:
        """Select and issue an intent on the head of a branch.

        A refusal in the intent's place is raised when the record is committed.
        """
        ...


def project_source(
    work: UnitOfWork, projector: Projector, branch: str | None, proposal_id: str
) -> Selected | Projected:
    """Take the prepared result of the projections, or call them; record their result here where they select no intent.

    Args:
        work: the unit of work.
        projector: selects and issues the intent.
        branch: the branch whose head it reads; None is the active one.
        proposal_id: the id that the proposal of a selected intent is going to have.

    Raises:
        RefusedError: ``UNKNOWN_BRANCH``, and what the projector refuses.
        StalePreparationError: see ``world.pipeline.preparation.prepared.prepared_projection``.
    """
    head = find_branch(work, branch).head
    ready = prepared_projection(work, head)
    if ready is None:
        record, intent = projector(work.snapshot(head), work.realm.schema_hash, head, work.at)
    else:
        record, intent = ready.record, ready.intent
    selected = select(record, intent, proposal_id)
    if isinstance(selected, Projected) and record is not None:
        work.emit(f"projection:{record.projection_id}", record)
    return selected


def select(
    record: ProjectionRecorded | None, intent: IntentInstance | RefusedError | None, proposal_id: str
) -> Selected | Projected:
    """Return what follows from the result of a projector; see ``project_source``."""
    if intent is None or isinstance(intent, RefusedError):
        return Projected(record, None, intent)
    if record is not None:
        record = replace(record, proposal_id=proposal_id, intent_id=intent.intent_id, intent_key=intent.intent_key)
    return Selected(record, intent)
