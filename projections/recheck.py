"""Recheck of projections from their records (intent specification 12).

The recorded projections are called again, in the recorded order, with the recorded actor and source and the view of the
recorded world. Projections that were added later are not called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from projections.contract import ProjectionRequest
from projections.purity.guard import Guard
from projections.recorder import ProjectionRecord, is_refusal, routed_refusal
from projections.registry import InvocationMode, Once, ProjectionRegistry, Routed, UnsafeUnguarded
from projections.results import Select
from world.error_codes import ErrorCode
from world.errors import DivergenceError, RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.model.canonical_json import canonical_bytes, canonical_text
from world.model.snapshot import SnapshotView

__all__ = ["recheck_projection"]


def recheck_projection(
    registry: ProjectionRegistry, recorded: ProjectionRecorded, view: SnapshotView
) -> DivergenceError | None:
    """Repeat a projection and compare its result with the record.

    Args:
        registry: has the projections.
        recorded: the event.
        view: data and computed values of the world that the record names.

    Returns:
        None where everything agrees; otherwise the first difference, with ``record``, ``what``, ``recorded``
        and ``computed`` in its details: ``CANNOT_RECHECK`` where a projection is not registered,
        ``PROJECTION_DIVERGED`` for all others.

    Raises:
        DamagedLogError: ``BAD_RECORD`` where the record is invalid.
    """
    record = ProjectionRecord.from_event(recorded)
    missing = [name for name in recorded.considered if name not in registry]
    if missing:
        return DivergenceError(
            ErrorCode.CANNOT_RECHECK,
            f"Cannot recheck record {recorded.record_id}: projection {missing[0]} is not registered; register it.",
            record=recorded.record_id,
            projection=missing[0],
        )
    request = ProjectionRequest(recorded.schema_hash, view, record.actor, record.source)
    try:
        routed = registry.route_among(recorded.considered, request, invocation_mode=_invocation_mode(registry, record))
    except RefusedError as refused:
        repeated = routed_refusal(refused) if is_refusal(record.result) else None
        if repeated is None:
            return _diverged(recorded, "the result", recorded.result.to_wire(), refused.message)
        routed = repeated
    for what, then, now in _comparisons(recorded, record, routed):
        if canonical_bytes(then) != canonical_bytes(now):
            return _diverged(recorded, what, then, now)
    return None


def _invocation_mode(registry: ProjectionRegistry, record: ProjectionRecord) -> InvocationMode:
    """Return the invocation mode of a recheck.

    A record of a refusal needs the guard that refused. Other records need only the answers, and their log may be older
    than the guard. A registry that calls each projection twice does so here, too.
    """
    if isinstance(registry.invocation_mode, Guard):
        return registry.invocation_mode
    return (Once if is_refusal(record.result) else UnsafeUnguarded)(registry.invocation_mode.time_limit)


def _comparisons(
    recorded: ProjectionRecorded, record: ProjectionRecord, routed: Routed
) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, the recorded value and the computed value of each comparison."""
    yield "the result", record.result.to_wire(), routed.result.to_wire()
    yield "which projections were asked", recorded.considered, list(routed.considered)
    yield "which projection answered", recorded.projection_id, routed.recorded_as
    if recorded.intent_key is not None:
        key = routed.result.body.key(recorded.schema_hash) if isinstance(routed.result, Select) else None
        yield "the intentKey", recorded.intent_key, key


def _diverged(recorded: ProjectionRecorded, what: str, then: Any, now: Any) -> DivergenceError:
    return DivergenceError(
        ErrorCode.PROJECTION_DIVERGED,
        f"The projection of record {recorded.record_id} gives another result than its record: {what} was "
        f"{_shown(then)} and is now {_shown(now)}.",
        record=recorded.record_id,
        projection=recorded.projection_id,
        what=what,
        recorded=then,
        computed=now,
    )


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else canonical_text(value)
    return text.rstrip(".") if len(text) <= 200 else text[:200] + "..."
