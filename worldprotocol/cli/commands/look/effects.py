"""``worldctl effects``: the effects that workers perform, and which worker has claimed each."""

from __future__ import annotations

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.point_in_time import at_option, moment


@command("effects")
@at_option("What was offered at this point in the past.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only effects of this type; may be repeated.")
def effects(desk: CommandContext, types: tuple[str, ...], at: str | None) -> None:
    """List the external effects: offered to workers, claimed by one until a deadline, or in doubt.

    An effect in doubt was claimed by a worker that did not report in time, and making it twice could do harm; it waits
    for `worldctl resolve`. That a deadline has passed is found, and recorded, by `worldctl settle` and every command
    that acts.
    """
    from world.read_models.live.offered_effects import offered_effects
    from worldprotocol.api.proposal_summary import moment as words_of

    with desk.look() as world:
        found = [one for one in offered_effects(moment(world, at).realm()) if not types or one.effect in types]
    heads = ("proposal", "actor", "effect", "state", "since", "worker", "token", "deadline", "workspace")
    rows = (
        (
            one.proposal_id,
            one.actor_id,
            one.effect,
            one.state,
            words_of(one.since),
            one.worker or "",
            "" if one.token is None else str(one.token),
            "" if one.deadline is None else words_of(one.deadline),
            one.workspace or "",
        )
        for one in found
    )
    tell_table(desk, [one.to_wire() for one in found], heads, rows, empty="No effect is offered to workers.")
