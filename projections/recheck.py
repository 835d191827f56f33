"""Projections, performed again from their record (intent specification 12; design section 1).

The projections that were asked then are asked again, in the order of then, with the recorded actor and source
and the view of the recorded world. Projections that came later play no part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from projections.contract import ProjectionRequest
from projections.purity.guard import Guard
from projections.recorder import ProjectionRecord, is_refusal, routed_refusal
from projections.registry import InvocationMode, Once, ProjectionRegistry, Routed, UnsafeUnguarded
from projections.results import Select
from world.errors import DivergenceError, RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.model.canonical_json import canonical_bytes, canonical_text
from world.model.snapshot import SnapshotView

__all__ = ["recheck_projection"]


def recheck_projection(
    registry: ProjectionRegistry, recorded: ProjectionRecorded, view: SnapshotView
) -> DivergenceError | None:
    """Perform a projection again and compare what comes of it with the record.

    Args:
        registry: has the projections.
        recorded: the event.
        view: data and computed values of the world that the record names.

    Returns:
        None where everything agrees; otherwise the first difference, with ``record``, ``what``, ``recorded``
        and ``computed`` in its details: ``CANNOT_RECHECK`` where a projection is not at hand,
        ``PROJECTION_DIVERGED`` for the rest.

    Raises:
        DamagedLogError: ``BAD_RECORD`` where the record is none.
    """
    told = ProjectionRecord.from_event(recorded)
    missing = [name for name in recorded.considered if name not in registry]
    if missing:
        return DivergenceError(
            "CANNOT_RECHECK",
            f"Cannot recheck record {recorded.record_id}: projection {missing[0]} is not at hand.",
            record=recorded.record_id,
            projection=missing[0],
        )
    request = ProjectionRequest(recorded.schema_hash, view, told.actor, told.source)
    try:
        routed = registry.route_among(recorded.considered, request, asking=_asking(registry, told))
    except RefusedError as refused:
        found = routed_refusal(refused) if is_refusal(told.result) else None
        if found is None:
            return _diverged(recorded, "the result", recorded.result, refused.message)
        routed = found
    for what, then, now in _comparisons(recorded, told, routed):
        if canonical_bytes(then) != canonical_bytes(now):
            return _diverged(recorded, what, then, now)
    return None


def _asking(registry: ProjectionRegistry, told: ProjectionRecord) -> InvocationMode:
    """Return how projections are asked again: as the record says, whatever guard there was when it was made.

    A record of a refusal needs the guard that refused. Any other says what came of the projections, and its log may be
    older than the guard: what they answer counts. A registry that asks twice does so here, too.
    """
    if isinstance(registry.asking, Guard):
        return registry.asking
    return (Once if is_refusal(told.result) else UnsafeUnguarded)(registry.asking.time_limit)


def _comparisons(
    recorded: ProjectionRecorded, told: ProjectionRecord, routed: Routed
) -> Iterator[tuple[str, Any, Any]]:
    """Yield what is compared, what was recorded and what was computed now."""
    yield "the result", told.result.to_wire(), routed.result.to_wire()
    yield "which projections were asked", recorded.considered, list(routed.considered)
    yield "which projection answered", recorded.projection_id, routed.recorded_as
    if recorded.intent_key is not None:
        key = routed.result.body.key(recorded.schema_hash) if isinstance(routed.result, Select) else None
        yield "the intentKey", recorded.intent_key, key


def _diverged(recorded: ProjectionRecorded, what: str, then: Any, now: Any) -> DivergenceError:
    return DivergenceError(
        "PROJECTION_DIVERGED",
        f"The projection of record {recorded.record_id} gives another result than its record: {what} was "
        f"{_told(then)} and is now {_told(now)}.",
        record=recorded.record_id,
        projection=recorded.projection_id,
        what=what,
        recorded=then,
        computed=now,
    )


def _told(value: Any) -> str:
    text = value if isinstance(value, str) else canonical_text(value)
    return text.rstrip(".") if len(text) <= 200 else text[:200] + "..."
