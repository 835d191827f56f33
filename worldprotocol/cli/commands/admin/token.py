"""``worldctl token``: API tokens, which verify callers of a server as actors."""

from __future__ import annotations

from typing import Any

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.point_in_time import at_option, moment

_DAY_MS = 86_400_000


@click.group("token", cls=Group)
def token() -> None:
    """Create, list and revoke API tokens of actors."""


@token.command("create")
@click.option("--actor", "actor_id", required=True, metavar="ID", help="Actor that the token verifies.")
@click.option(
    "--can",
    multiple=True,
    type=click.Choice(["reader", "actor", "act", "approver", "operator", "auditor", "worker"]),
    callback=lambda _context, _option, rights: ["actor" if right == "act" else right for right in rights],
    help="Limit the token to this right of the actor (`act` is `actor`); repeat for more.",
)
@click.option("--days", default=90, show_default=True, type=click.IntRange(1, 3650), help="Time to live.")
@click.option("--note", metavar="TEXT", help="A note for people, such as where the token is used; the log keeps it.")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def create(desk: CommandContext, actor_id: str, can: Any, days: int, note: str | None, by: str) -> None:
    """Create a token and print it, once: the log keeps only a digest."""
    with desk.open() as world:
        made = world.access.create_token(actor_id, by=by, can=can or None, ttl_ms=days * _DAY_MS, note=note)
        held = world.realm().rights.get(actor_id, {})
    one = made.created
    rendered = {"token": made.token, "tokenId": one.token_id, "actorId": one.actor_id, "expiresAt": one.expires_at}
    words = f"token {one.token_id} of {one.actor_id}, for {days} days; it is not shown again."
    desk.out.tell(rendered, made.token, words)
    useless = [right for right in can if right not in held]
    if useless or not held:
        several = "rights" if len(useless) > 1 else "right"
        missing = f"the {several} {', '.join(useless)}" if useless else "any right"
        right = useless[0] if len(useless) == 1 else "RIGHT"
        grants = "each" if len(useless) > 1 else "it"
        desk.out.remark(
            f"{actor_id} does not have {missing} yet; `worldctl rights grant {actor_id} {right}` grants {grants}."
        )


@token.command("list")
@at_option("Those that were not revoked at this point in the past.")
@with_desk
def list_tokens(desk: CommandContext, at: str | None) -> None:
    """List the tokens that were not revoked, expired ones too; the tokens themselves are not stored."""
    from worldprotocol.api.proposal_summary import moment as when

    with desk.look() as world:
        known = list(moment(world, at).realm().tokens.values())
    rendered = [
        {
            "tokenId": one.token_id,
            "actorId": one.actor_id,
            "can": one.can,
            "createdAt": one.at,
            "expiresAt": one.expires_at,
            "note": one.note,
            "by": one.by,
        }
        for one in known
    ]
    rows = (
        (one.token_id, one.actor_id, ", ".join(one.can or ()) or "all rights", when(one.expires_at), one.note or "")
        for one in known
    )
    tell_table(desk, rendered, ("token", "actor", "can", "expires", "note"), rows, empty="No token is in force.")


@token.command("revoke")
@click.argument("token_id", metavar="ID")
@click.option("--reason", required=True, help="Why; the log keeps it.")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def revoke(desk: CommandContext, token_id: str, reason: str, by: str) -> None:
    """Revoke a token; it verifies no caller from then on."""
    with desk.open() as world:
        world.access.revoke_token(token_id, by=by, reason=reason)
    desk.out.tell({"tokenId": token_id, "revoked": True}, f"Token {token_id} is revoked.")
