"""``worldctl adopt``: bring a changed domain into force."""

from __future__ import annotations

import click

from worldprotocol.cli.support.command_context import CommandContext, command


@command("adopt")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
def adopt(desk: CommandContext, by: str) -> None:
    """Adopt the domain that world.toml names in place of the one in force.

    The head of every branch must obey the new schema as it is; otherwise nothing changes.
    """
    from worldprotocol.cli.support.opening import open_to_adopt

    with desk.look() as world:
        before = world.realm()
    with open_to_adopt(desk, by) as world:
        after = world.realm()
    adopted = before.domain != after.domain
    now, earlier = after.schema_hash, before.schema_hash
    rendered = {"adopted": adopted, "schemaHash": now, "previous": earlier}
    words = f"in force now: {now[:12]}, before {earlier[:12]}"
    desk.out.tell(rendered, f"The domain is {words}." if adopted else "This very domain was in force already.")
