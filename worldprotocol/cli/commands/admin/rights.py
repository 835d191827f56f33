"""``worldctl rights``: the rights of actors that a server requires."""

from __future__ import annotations

from typing import Any

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.point_in_time import at_option, moment

_RIGHTS = click.Choice(["reader", "actor", "approver", "operator", "auditor", "worker"])


@click.group("rights", cls=Group)
def rights() -> None:
    """Grant, revoke and list the rights of actors; a server refuses what no right permits."""


@rights.command("grant")
@click.argument("actor_id", metavar="ACTOR")
@click.argument("right", metavar="RIGHT", type=_RIGHTS)
@click.option("--redact", multiple=True, metavar="RULE", help="Hide events from a reader; see `worldctl export`.")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def grant(desk: CommandContext, actor_id: str, right: Any, redact: tuple[str, ...], by: str) -> None:
    """Grant a right: reader, actor, approver, operator, auditor or worker."""
    from worldprotocol.export.redaction import Redaction

    Redaction(redact, desk.settings().redact)
    with desk.open() as world:
        is_new = world.access.grant(actor_id, right, by=by, redaction=redact or None)
    words = f"{actor_id} has the right {right}" + ("." if is_new else " already.")
    desk.out.tell({"actorId": actor_id, "right": right, "granted": is_new}, words)


@rights.command("revoke")
@click.argument("actor_id", metavar="ACTOR")
@click.argument("right", metavar="RIGHT", type=_RIGHTS)
@click.option("--reason", required=True, help="Why; the log keeps it.")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def revoke(desk: CommandContext, actor_id: str, right: Any, reason: str, by: str) -> None:
    """Revoke a right."""
    with desk.open() as world:
        world.access.revoke(actor_id, right, by=by, reason=reason)
    desk.out.tell({"actorId": actor_id, "right": right, "revoked": True}, f"{actor_id} lost the right {right}.")


@rights.command("list")
@at_option("Those that were in force at this point in the past.")
@with_desk
def list_rights(desk: CommandContext, at: str | None) -> None:
    """List the rights in force."""
    with desk.look() as world:
        known = moment(world, at).realm().rights
        rendered: list[dict[str, Any]] = [
            {"actorId": one.actor_id, "right": one.right, "redaction": one.redaction, "by": one.by, "since": one.at}
            for held in known.values()
            for one in held.values()
        ]
    rows = ((one["actorId"], one["right"], ", ".join(one["redaction"] or ()), one["by"]) for one in rendered)
    tell_table(desk, rendered, ("actor", "right", "redaction", "by"), rows, empty="No actor has a right.")
