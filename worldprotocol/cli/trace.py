"""``worldctl trace``: from a source event to its worlds, or from anything on the way back to the source event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from worldprotocol.cli.options import Desk, command

if TYPE_CHECKING:
    from world.views.trace import Step
    from worldprotocol.facade import World


@command("trace")
@click.argument("named", metavar="ID")
def trace(desk: Desk, named: str) -> None:
    """Draw the way from a source event through projection, intent, proposal and decision to the worlds it led to.

    ID is the beginning of the id of a source event, or of anything on its way: an intent, a proposal, a decision, a
    verdict about its leases, an effect or a world; or an event's position. Source events and effects are looked for in
    the whole log, where nothing else is named so. `worldctl blame` leads from a value to its world.
    """
    with desk.look() as world:
        top = _traced(world, named)
    if desk.json:
        desk.out.document(top.to_wire())
        return
    for line in _drawn(top, named):
        desk.out.text(line)


def _traced(world: World, named: str) -> Step:
    from world.views.trace import find_origins, trace_proposal, trace_source, world_step
    from worldprotocol.cli.finding import as_position, candidates, find, head_named, not_unique, nothing_named

    archive = world.archive
    position = as_position(world, named)
    if position:
        return _of_event(world, position)
    if named and head_named(world, named) is None and not candidates(world, named):
        bounds = {"low": named, "high": named + "\U0010ffff", "most": 2}
        verdicts = [str(row[0]) for row in archive.rows("verdict_prefix", **bounds)]
        requests = [str(row[1]) for name in verdicts for row in archive.rows("verdict", of_verdict=name)]
        if len(requests) == 1 and archive.rows("places", **_same(requests[0])):
            return trace_proposal(archive, requests[0])
        found = find_origins(archive, named)
        several = [*(("source", name) for name in found.sources), *(("effect", name) for name in found.effects)]
        if not several:
            raise nothing_named(named)
        if len(several) > 1 and named not in (*found.sources, *found.effects):
            raise not_unique(named, several)
        name = named if named in (*found.sources, *found.effects) else several[0][1]
        return trace_source(archive, found.sources.get(name) or list(found.effects[name]))
    kind, name = find(world, named)
    if kind == "world":
        sealed = world.sealed(name)
        if sealed.created_by is None:
            return world_step(archive, sealed, "genesis: the realm was founded with it")
        name = sealed.created_by
    elif kind in ("run", "session"):
        raise click.UsageError(
            f"{named!r} is {kind} {name}, which came of no source event; `worldctl show` tells of it."
        )
    return trace_proposal(archive, name)


def _same(name: str) -> dict[str, str]:
    from world.views.index import PLACES_AT_ONCE

    return {f"proposal{n}": name for n in range(PLACES_AT_ONCE)}


def _of_event(world: World, position: int) -> Step:
    """Return the trace of the proposal that an event is about, or of a projection that selected no intent."""
    from world.errors import Refused
    from world.events import ProjectionRecorded
    from world.views.archive import decoded
    from world.views.trace import projection_step, trace_proposal

    event = decoded(world.log.event_at(position))
    if isinstance(event, ProjectionRecorded) and event.proposal_id is None:
        return projection_step(event, position)
    for attribute in ("proposal_id", "created_by", "request_id"):
        name = getattr(event, attribute, None)
        if name is not None and world.archive.rows("places", **_same(name)):
            return trace_proposal(world.archive, str(name))
    raise Refused("NOT_FOUND", f"Event {position} is {event.TOPIC}, which is about no proposal.", position=position)


def _drawn(top: Step, named: str) -> Iterator[str]:
    from worldprotocol.fate import moment

    stack = [("", "", top)]
    while stack:
        lead, mark, step = stack.pop()
        name = "" if not step.name or step.name in step.words else f" {step.name}"
        where = "" if step.position is None else f"  [event {step.position}, {moment(step.at)}]"
        asked = "  <--" if step.name and named and step.name.startswith(named) else ""
        yield f"{lead}{mark}{step.kind}{name}: {step.words}{where}{asked}"
        below = lead + ("" if not mark else "   " if mark.startswith("`") else "|  ")
        for at, after in enumerate(reversed(step.steps)):
            stack.append((below, "`- " if at == 0 else "|- ", after))
