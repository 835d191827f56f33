"""What is written down about a projection (intent specification 12).

Intents and reasons are always recorded; nothing without a reason is noise and is left out. That a projection was found
impure is recorded as nothing with the refusal as its reason. A record is an event of the log and changes no state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from projections.purity.calling import IMPURE
from projections.registry import Routed
from projections.results import NoIntent, ProjectionResult, Select, read_result
from world.errors import DamagedLogError, RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.model.actor import ActorRef
from world.model.intent import IntentInstance
from world.model.source import SourceEvent

__all__ = ["ProjectionRecord", "is_refusal", "record_of", "routed_refusal", "worth_recording"]


def worth_recording(result: ProjectionResult) -> bool:
    """Tell whether a result belongs in the log: every one but nothing without a reason (INT-12.1)."""
    return not isinstance(result, NoIntent) or result.reason is not None


def record_of(
    routed: Routed,
    *,
    record_id: str,
    at: int,
    actor: ActorRef,
    source: SourceEvent,
    schema_hash: str,
    world_id: str,
    intent: IntentInstance | None = None,
    proposal_id: str | None = None,
) -> ProjectionRecorded | None:
    """Return the event that records what came of a source event; None where nothing is worth recording.

    Args:
        routed: what the projections answered.
        record_id: id for the record.
        at: the record's time, ms since 1970.
        actor: who acted.
        source: what happened, with its time of occurrence.
        schema_hash: the schema that was in force.
        world_id: the world whose snapshot was read.
        intent: what was issued, where it was.
        proposal_id: the proposal it became, where it did.
    """
    if not worth_recording(routed.result):
        return None
    return ProjectionRecorded(
        at=at,
        record_id=record_id,
        projection_id=routed.recorded_as,
        considered=list(routed.considered),
        actor=actor.to_wire(),
        source=source.to_wire(),
        schema_hash=schema_hash,
        world_id=world_id,
        result=routed.result.to_wire(),
        proposal_id=proposal_id,
        intent_id=None if intent is None else intent.intent_id,
        intent_key=None if intent is None else intent.intent_key,
    )


def routed_refusal(refused: RefusedError) -> Routed | None:
    """Return what is recorded of a projection that was found impure: nothing selected, and the refusal as the reason.

    Args:
        refused: what asking the projections refused.

    Returns:
        None for every other refusal: no record is made of it.
    """
    if refused.code != IMPURE:
        return None
    reason = f"{IMPURE}: {refused.message}"
    return Routed(refused.details["projection"], tuple(refused.details["considered"]), NoIntent(reason))


def is_refusal(result: ProjectionResult) -> bool:
    """Tell whether a recorded result is the refusal of an impure projection."""
    return isinstance(result, NoIntent) and (result.reason or "").startswith(f"{IMPURE}: ")


@dataclass(frozen=True, slots=True)
class ProjectionRecord:
    """A record in the specification's shape (INT-12.2).

    Args:
        record_id: names the record.
        created_at: ms since 1970.
        projection_id: who answered.
        actor: who acted.
        source: what happened.
        result: what was selected.
        snapshot_version: height of the world that was read, where it is known.
        intent_id: of what was issued.
        intent_key: of what was issued.
    """

    record_id: str
    created_at: int
    projection_id: str
    actor: ActorRef
    source: SourceEvent
    result: ProjectionResult
    snapshot_version: int | None = None
    intent_id: str | None = None
    intent_key: str | None = None

    @classmethod
    def from_event(cls, event: ProjectionRecorded, *, snapshot_version: int | None = None) -> ProjectionRecord:
        """Read a record from its event in the log.

        Raises:
            DamagedLogError: ``BAD_RECORD`` where actor, source or result are not what they must be.
        """
        try:
            actor, source = ActorRef.read(event.actor), SourceEvent.read(event.source)
            result = read_result(event.projection_id, event.result)
        except RefusedError as refused:
            raise DamagedLogError(
                "BAD_RECORD",
                f"The projection record {event.record_id} holds what no record may hold: {refused.message}",
                record=event.record_id,
            ) from None
        return cls(
            record_id=event.record_id,
            created_at=event.at,
            projection_id=event.projection_id,
            actor=actor,
            source=source,
            result=result,
            snapshot_version=snapshot_version,
            intent_id=event.intent_id,
            intent_key=event.intent_key,
        )

    @property
    def selected(self) -> bool:
        """Whether an intent was selected."""
        return isinstance(self.result, Select)

    def to_wire(self) -> dict[str, Any]:
        """Return the record as JSON; absent parts are left out."""
        wire: dict[str, Any] = {
            "recordId": self.record_id,
            "createdAt": self.created_at,
            "projectionId": self.projection_id,
            "actor": self.actor.to_wire(),
            "source": self.source.to_wire(),
            "result": self.result.to_wire(),
        }
        optional = {
            "snapshotVersion": self.snapshot_version,
            "intentId": self.intent_id,
            "intentKey": self.intent_key,
        }
        return wire | {name: value for name, value in optional.items() if value is not None}
