"""The way from a source event through projection, intent, proposal and decision to the worlds that it led to.

``worldctl trace`` and the HTTP API use it. Source: CARD-audit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.read_models.decoding import decoded
from world.read_models.index import PLACES_AT_ONCE
from world.read_models.lineage import number
from world.read_models.trace import (
    TraceStep,
    find_origins,
    projection_step,
    trace_proposal,
    trace_source,
    world_step,
)
from worldprotocol.api.lookup.id_lookup import KINDS, as_position, candidates, head_named, nothing_named, only

if TYPE_CHECKING:
    from worldprotocol.api.lookup.point_in_time import PointInTime

__all__ = ["traced"]


def traced(then: PointInTime, named: str) -> TraceStep:
    """Return the way from a source event to its worlds, as far as it had come at a point in time.

    Args:
        then: the point in time.
        named: the beginning of the id of a source event, or of anything on its way: an intent, a proposal, a decision,
            a verdict about its leases, an effect or a world; or an event's position.

    Raises:
        RefusedError: ``NOT_FOUND``, ``AMBIGUOUS``; ``INVALID_VALUE`` for a run or a session.
    """
    archive, kinds = then.world.archive, [*KINDS, "verdict"]
    position = as_position(then.world, named)
    if position:
        return _of_event(then, position)
    if named and head_named(then.world, named) is None and not candidates(then.world, named, kinds):
        return _of_origin(then, named)
    kind, name = then.find(named, kinds)
    if kind == "world":
        sealed = archive.sealed(name)
        then.check_seen(f"World {name[:12]} was sealed", archive.world(name).position)
        if sealed.created_by is None:
            return world_step(archive, sealed, "genesis: the realm was founded with it", then.position)
        name = sealed.created_by
    elif kind == "verdict":
        position = number(archive.rows("verdict", {"of_verdict": name})[0][0])
        then.check_seen(f"Verdict {name} was given", position)
        return _of_event(then, position)
    elif kind in ("run", "session"):
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"{named!r} is {kind} {name}, which has no source event; `worldctl show` shows it."
        )
    return trace_proposal(archive, name, then.position)


def _of_origin(then: PointInTime, named: str) -> TraceStep:
    """Return the trace of the one source event, or effect, whose id begins like this."""
    archive = then.world.archive
    found = find_origins(archive, named, then.position)
    known = [*(("source", name) for name in found.sources), *(("effect", name) for name in found.effects)]
    one = only(named, known)
    if one is None:
        raise nothing_named(named)
    kind, name = one
    return trace_source(archive, found.sources[name] if kind == "source" else list(found.effects[name]), then.position)


def _same(name: str) -> dict[str, str]:
    return {f"proposal{n}": name for n in range(PLACES_AT_ONCE)}


def _of_event(then: PointInTime, position: int) -> TraceStep:
    """Return the trace of the proposal that an event is about, or of a projection that selected no intent."""
    archive = then.world.archive
    then.check_seen(f"Event {position} was recorded", position)
    event = decoded(archive.log.event_at(position))
    if isinstance(event, ProjectionRecorded) and event.proposal_id is None:
        return projection_step(event, position)
    for attribute in ("proposal_id", "created_by", "request_id"):
        name = getattr(event, attribute, None)
        if name is not None and archive.rows("places", _same(name)):
            return trace_proposal(archive, str(name), then.position)
    raise RefusedError(
        ErrorCode.NOT_FOUND, f"Event {position} is {event.TOPIC}, which is about no proposal.", position=position
    )
