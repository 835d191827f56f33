"""``worldctl trace``: from a source event to its worlds, or from anything on the way back to the source event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import at_option, moment

if TYPE_CHECKING:
    from world.read_models.trace import TraceStep


@command("trace")
@click.argument("named", metavar="ID")
@at_option("As far as it had come at this point in the past.")
def trace(desk: CommandContext, named: str, at: str | None) -> None:
    """Draw the way from a source event through projection, intent, proposal and decision to the worlds it led to.

    ID is the beginning of the id of a source event, or of anything on its way: an intent, a proposal, a decision, a
    verdict about its leases, an effect or a world; or an event's position. Source events and effects are looked for in
    the whole log, where nothing else is named so. `worldctl blame` leads from a value to its world.
    """
    from worldprotocol.api.lookup.traces import traced

    with desk.look() as world:
        top = traced(moment(world, at), named)
    desk.out.tell(top.to_wire(), *_drawn(top, named))


def _drawn(top: TraceStep, named: str) -> Iterator[str]:
    from worldprotocol.api.proposal_summary import moment

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
