"""``worldctl replay``: the state, rebuilt from the log alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import AT_METAVAR

if TYPE_CHECKING:
    from world.audit.replay import Replayed


@command("replay")
@click.option(
    "--at",
    metavar=AT_METAVAR,
    help="Stop at this point in the past, such as the end of the commit that sealed a world.",
)
@click.option("--data", "with_data", is_flag=True, help="Print the data of every branch's head, or of the world.")
def replay(desk: CommandContext, at: str | None, with_data: bool) -> int:
    """Rebuild all state by folding the events, without any domain, policy or handler."""
    from world.audit.replay import replay as fold_all
    from worldprotocol.cli.support.point_in_time import point_of

    with desk.look() as world:
        point = None if at is None else point_of(world, at)
        upto, world_id = (None, None) if point is None else (point.position, point.world_id)
        keep = [] if world_id is None else [world_id]
        with desk.progress("Replaying") as progress:
            done = fold_all(world.log, upto=upto, keep=keep, progress=progress)
    wire = done.to_wire()
    data: Any = {name: branch.pop("data") for name, branch in wire["branches"].items()}
    if world_id is not None:
        wire["world"], data = world_id, done.worlds[world_id]
    if with_data:
        wire["data"] = data
    if desk.json:
        desk.out.document(wire)
    else:
        _in_words(desk, done, wire)
    return 0


def _in_words(desk: CommandContext, done: Replayed, wire: dict[str, Any]) -> None:
    out = desk.out
    out.text(f"events     {done.position}, tree head {done.head}")
    counted = ", ".join(f"{count} {status}" for status, count in sorted(done.statuses.items())) or "none"
    out.text(f"proposals  {counted}")
    out.text(f"worlds     {done.sealed}")
    for name, branch in done.realm.branches.items():
        mark = "*" if name == done.realm.active else " "
        out.text(
            f"branch   {mark} {name}  head {branch.head}" + ("" if branch.tip == branch.head else f"  tip {branch.tip}")
        )
    if "data" in wire:
        out.document(wire["data"])
