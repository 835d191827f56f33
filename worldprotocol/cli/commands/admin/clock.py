"""``worldctl clock``: confirm that this machine's clock is right."""

from __future__ import annotations

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk


@click.group("clock", cls=Group)
def clock() -> None:
    """Confirm the clock where recorded time was refused, or where lease time is ahead of it."""


@clock.command("confirm")
@click.option("--reason", required=True, help="Why the clock is right; the log keeps it.")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="The administrator who confirms it.")
@with_desk
def confirm(desk: CommandContext, reason: str, by: str) -> None:
    """Confirm that this machine's clock is right, and record that.

    Commands are refused with CLOCK_AHEAD while the clock is further beyond the commit before than the limit
    max_clock_ahead_ms of [klis] and than the time that has passed explain. After a confirmation they are accepted.
    Where an earlier clock was ahead, so that lease time is beyond this one, a confirmation brings lease time back.
    """
    from world.pipeline.recorded_time import as_moment
    from worldprotocol.cli.support.opening import open_to_confirm_clock

    with open_to_confirm_clock(desk) as world:
        done = world.confirm_clock(by=by, reason=reason)
    if done is None:
        desk.out.tell({"confirmed": False}, "There is nothing to confirm: nothing is ahead.")
        return
    rendered = {"confirmed": True, "at": done.at, "leaseTime": done.lease_time}
    before = as_moment(done.lease_time)
    desk.out.tell(rendered, f"The time is {as_moment(done.at)} from now on; lease time was {before}.")
