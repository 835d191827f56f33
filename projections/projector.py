"""The whole way from a source event to an intent and its record, as one step (INT-14.1)."""

from __future__ import annotations

from collections.abc import Callable

from projections.contract import ProjectionRequest, Selected
from projections.issuer import Issuer, IssueRequest
from projections.recorder import record_of
from projections.registry import ProjectionRegistry
from world.actor import ActorRef
from world.events import ProjectionRecorded
from world.intent import IntentInstance
from world.snapshot import Snapshot
from world.source import SourceEvent

__all__ = ["projector_of"]

Projector = Callable[[Snapshot, str, str, int], tuple[ProjectionRecorded | None, IntentInstance | None]]
"""Takes a snapshot, its schema hash, its world's id and the time (ms since 1970); what the protocol asks for."""


def projector_of(
    registry: ProjectionRegistry,
    issuer: Issuer,
    *,
    source: SourceEvent,
    actor: ActorRef,
    note: str | None = None,
) -> Projector:
    """Return what projects one source event onto whichever snapshot it is given.

    Nothing but ids is fresh: on equal snapshots the intents have equal bodies, keys and origins.

    Args:
        registry: the projections to ask.
        issuer: gives the intent its identity, and the record its id.
        source: what happened.
        actor: who acts.
        note: for people, on the intent's origin; never part of the meaning.

    Raises:
        Refused: by the projector, what asking the projections refuses.
    """

    def project(
        snapshot: Snapshot, schema_hash: str, world: str, at: int
    ) -> tuple[ProjectionRecorded | None, IntentInstance | None]:
        routed = registry.route(ProjectionRequest(schema_hash, snapshot.view, actor, source))
        intent = None
        if isinstance(routed.result, Selected):
            request = IssueRequest(schema_hash, routed.recorded_as, actor, source, routed.result.body, note)
            intent = issuer.issue(request)
        record = record_of(
            routed,
            record_id=issuer.ids.new_id(),
            at=at,
            actor=actor,
            source=source,
            schema_hash=schema_hash,
            world_id=world,
            intent=intent,
        )
        return record, intent

    return project
