"""``worldctl branch``: lines of worlds."""

from __future__ import annotations

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.point_in_time import at_option


@click.group("branch", cls=Group)
def branch() -> None:
    """List, create and switch branches."""


@branch.command("list")
@at_option("As they stood at this point in the past.")
@with_desk
def list_branches(desk: CommandContext, at: str | None) -> None:
    """List the branches: head is the newest completed world, tip the newest sealed one."""
    from worldprotocol.cli.support.point_in_time import moment

    with desk.look() as world:
        heads = moment(world, at).heads()
    rendered = [
        {"name": one.name, "head": one.head, "tip": one.tip, "active": one.name == heads.active}
        for one in heads.branches.values()
    ]
    rows = (
        ("*" if one["active"] else "", one["name"], str(one["head"])[:12], str(one["tip"])[:12]) for one in rendered
    )
    tell_table(desk, rendered, ("", "branch", "head", "tip"), rows, empty="The log has not been founded.")


@branch.command("create")
@click.argument("name")
@click.option("--at", metavar="WORLD", help="Where it begins: beginning of an id, or a branch; else HEAD.")
@click.option("--allow-failed", is_flag=True, help="Begin at a world whose execution failed.")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def create(desk: CommandContext, name: str, at: str | None, *, allow_failed: bool, by: str) -> None:
    """Make a branch called NAME: letters, digits and . _ - /, such as `trial/one`."""
    from worldprotocol.api.lookup.id_lookup import world_id

    with desk.open() as world:
        start = None if at is None else world_id(world, at)
        world.create_branch(name, start, by=by, allow_failed=allow_failed)
        head = world.branch(name).head
    desk.out.tell({"name": name, "head": head}, f"The branch {name} begins at world {head[:12]}.")


@branch.command("switch")
@click.argument("name")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def switch(desk: CommandContext, name: str, by: str) -> None:
    """Make a branch the active one; proposals that are not decided yet are superseded."""
    with desk.open() as world:
        undecided = sum(one.status in ("submitted", "evaluating") for one in world.realm().proposals.values())
        world.switch_branch(name, by=by)
        left = sum(one.status in ("submitted", "evaluating") for one in world.realm().proposals.values())
    rendered = {"active": name, "superseded": undecided - left}
    was = "was" if undecided - left == 1 else "were"
    desk.out.tell(rendered, f"{name} is the active branch; {counted(undecided - left, 'proposal')} {was} superseded.")
