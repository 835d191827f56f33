"""Records of projections in the log (intent specification 12).

Selected intents and results with a reason are recorded; a result without intent and reason is not. An impure projection
is recorded as a result without intent, with the refusal as its reason. A record is an event of the log and changes no
state.
"""

from __future__ import annotations

from dataclasses import dataclass

from projections.purity.guarded_call import IMPURE
from projections.registry import Routed
from projections.results import NoIntent, ProjectionResult, Select, read_result
from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.proposal_events import ProjectedResult, ProjectionRecorded
from world.model.actor import ActorRef
from world.model.intent import IntentInstance
from world.model.record import Record
from world.model.source import SourceEvent

__all__ = ["ProjectionRecord", "RecordContext", "is_refusal", "record_of", "routed_refusal", "worth_recording"]


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Id, time and input of a projection record.

    Args:
        record_id: id of the record.
        at: the record's time, ms since 1970.
        actor: the acting actor.
        source: the source event, with its time of occurrence.
        schema_hash: the schema that was in force.
        world_id: the world whose snapshot was read.
    """

    record_id: str
    at: int
    actor: ActorRef
    source: SourceEvent
    schema_hash: str
    world_id: str


def worth_recording(result: ProjectionResult) -> bool:
    """Return whether a result has an intent or a reason, and is recorded (INT-12.1)."""
    return not isinstance(result, NoIntent) or result.reason is not None


def record_of(
    routed: Routed,
    context: RecordContext,
    *,
    intent: IntentInstance | None = None,
    proposal_id: str | None = None,
) -> ProjectionRecorded | None:
    """Return the event that records a projection; None where nothing is recorded.

    Args:
        routed: the result of the projections.
        context: id, time and input of the record.
        intent: the issued intent, if any.
        proposal_id: its proposal, if any.
    """
    if not worth_recording(routed.result):
        return None
    return ProjectionRecorded(
        at=context.at,
        record_id=context.record_id,
        projection_id=routed.recorded_as,
        considered=list(routed.considered),
        actor=context.actor,
        source=context.source,
        schema_hash=context.schema_hash,
        world_id=context.world_id,
        result=_recorded(routed.result),
        proposal_id=proposal_id,
        intent_id=None if intent is None else intent.intent_id,
        intent_key=None if intent is None else intent.intent_key,
    )


def _recorded(result: ProjectionResult) -> ProjectedResult:
    if isinstance(result, Select):
        return ProjectedResult(kind="intent", body=result.body)
    return ProjectedResult(kind="none", reason=result.reason)


def routed_refusal(refused: RefusedError) -> Routed | None:
    """Return the recorded result of an impure projection, with the refusal as reason.

    Args:
        refused: the refusal of the call.

    Returns:
        None for every other refusal, which is not recorded.
    """
    if refused.code != IMPURE:
        return None
    reason = f"{IMPURE}: {refused.message}"
    return Routed(refused.details["projection"], tuple(refused.details["considered"]), NoIntent(reason))


def is_refusal(result: ProjectionResult) -> bool:
    """Return whether a recorded result is the refusal of an impure projection."""
    return isinstance(result, NoIntent) and (result.reason or "").startswith(f"{IMPURE}: ")


class ProjectionRecord(Record, frozen=True, omit_defaults=True):
    """A record in the specification's shape (INT-12.2).

    Args:
        record_id: id of the record.
        created_at: ms since 1970.
        projection_id: the projection that answered, or the router.
        actor: the acting actor.
        source: the source event.
        result: the selected intent, or none.
        snapshot_version: height of the world that was read, where it is known.
        intent_id: id of the issued intent.
        intent_key: key of the issued intent.
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
            DamagedLogError: ``BAD_RECORD`` where the result is invalid.
        """
        try:
            result = read_result(event.projection_id, event.result.to_wire())
        except RefusedError as refused:
            raise DamagedLogError(
                ErrorCode.BAD_RECORD,
                f"The projection record {event.record_id} is invalid: {refused.message}",
                record=event.record_id,
            ) from None
        return cls(
            record_id=event.record_id,
            created_at=event.at,
            projection_id=event.projection_id,
            actor=event.actor,
            source=event.source,
            result=result,
            snapshot_version=snapshot_version,
            intent_id=event.intent_id,
            intent_key=event.intent_key,
        )

    @property
    def selected(self) -> bool:
        """Whether an intent was selected."""
        return isinstance(self.result, Select)
