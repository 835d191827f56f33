"""``worldctl runs``: the governed runs, newest first."""

from __future__ import annotations

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.point_in_time import at_option


@command("runs")
@click.option("--open", "open_only", is_flag=True, help="Only those that have not ended.")
@click.option("--agent", metavar="ID", help="Only this agent's.")
@click.option("--most", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@at_option("Those that had begun at this point in the past, and how far they had come.")
def runs(desk: CommandContext, *, open_only: bool, agent: str | None, most: int, at: str | None) -> None:
    """List governed runs, newest first; `worldctl show RUN` shows all of one."""
    import shlex

    from worldprotocol.api.proposal_summary import moment
    from worldprotocol.cli.support.point_in_time import moment as looked_at
    from worldprotocol.runs.listing import list_runs

    with desk.look() as world:
        upto = None if at is None else looked_at(world, at).position
        found = list(list_runs(world.archive, most=most, agent=agent, open_only=open_only, upto=upto))
    rows = (
        (
            one.opened.run_id,
            moment(one.opened.at),
            one.opened.agent_id,
            one.opened.session_id,
            one.outcome,
            None if one.closed is None else one.closed.exit_code,
            shlex.join(one.opened.command) or one.opened.kind,
        )
        for one in found
    )
    heads = ("run", "began", "agent", "session", "outcome", "exit", "what")
    empty = "There is no such run." if agent or open_only else "There is no run."
    tell_table(desk, [one.to_wire() for one in found], heads, rows, empty=empty)
