"""``worldctl mcp``: an MCP server on stdin and stdout, for a coding agent that starts it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from worldprotocol.cli.commands.agents.mcp_proxy import pin, proxy
from worldprotocol.cli.support.command_context import CliCommand, CommandContext, Group, with_desk

if TYPE_CHECKING:
    from worldprotocol.agents.mcp.realm_access import RealmPort


class _McpGroup(Group, CliCommand):
    """A command that takes the global options, and has further commands."""


@click.group("mcp", cls=_McpGroup, invoke_without_command=True)
@click.option("--actor", metavar="ID", help="Acting actor, for a log on this machine; a server verifies who it is.")
@click.option("--server", metavar="URL", help="Use the realm of a server: https://HOST:PORT, or unix:PATH.")
@click.option("--realm", metavar="NAME", help="The realm of the server; its only one by default.")
@click.option("--token-file", metavar="FILE", help="API token for the server; WORLDCTL_TOKEN by default.")
@click.option(
    "--wait",
    type=click.FloatRange(0, 3_600),
    default=50.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for the outcome of a call, where the client takes no tasks.",
)
@with_desk
def mcp(desk: CommandContext, *, wait: float, **place: str | None) -> int:
    """Serve the actions of a realm as tools (Model Context Protocol) on stdin and stdout; a coding agent starts it.

    With --server, or where a server has the log and maps this user to an actor, it uses the realm there, as the actor
    that is verified. Otherwise it opens the log, and acts as --actor.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return 0
    from world.extras import needs_extra

    with needs_extra("MCP servers", "mcp"):
        from worldprotocol.agents.mcp.serving import serve_streams
    with _access(desk, place) as access:
        code: int = asyncio.run(serve_streams(access, wait))
    return code


mcp.add_command(proxy)
mcp.add_command(pin)


@contextmanager
def _access(desk: CommandContext, place: dict[str, str | None]) -> Iterator[RealmPort]:
    """Yield the realm, as the actor of the client.

    Raises:
        RefusedError: the server or the log cannot be used.
        click.UsageError: it is not said who acts.
    """
    from worldprotocol.client.token_file import given_token

    server = place["server"] or desk.named_server
    if place["server"] is not None and (typed := {"log", "config", "paranoid", "local"} & desk.typed):
        raise click.UsageError(f"--server and --{min(typed)} contradict each other: the server has the realm.")
    if server is None and (place["token_file"] is not None or place["realm"] is not None):
        raise click.UsageError("--token-file and --realm go with --server URL.")
    found = (server, place["realm"]) if server is not None else _found(desk)
    if found is None:
        if place["actor"] is None:
            raise click.UsageError("Name the acting actor with --actor ID, or a server with --server URL.")
        with _of_log(desk, place["actor"]) as access:
            yield access
        return
    token = None if server is None else given_token(place["token_file"])
    with _of_server(*found, token, place["actor"]) as access:
        yield access


def _found(desk: CommandContext) -> tuple[str, str] | None:
    """Return the socket of the server that has the log, and the name of the realm there; None where there is none."""
    from worldprotocol.cli.remote.client import realm_of_file
    from worldprotocol.cli.remote.target import target_of

    target = target_of(desk)
    name = None if target is None else realm_of_file(target)
    return None if target is None or name is None else (target.address, name)


@contextmanager
def _of_server(server: str, realm: str | None, token: str | None, actor: str | None) -> Iterator[RealmPort]:
    """Yield the realm of a server.

    Raises:
        RefusedError: ``NOT_THE_VERIFIED_ACTOR``, and what prevents the sign-in.
    """
    from contextlib import closing
    from urllib.parse import quote

    from world.error_codes import ErrorCode
    from world.errors import RefusedError
    from worldprotocol.agents.mcp.api_realm import ApiRealm, sender
    from worldprotocol.api.remote.connection import ServerConnection
    from worldprotocol.api.remote.realm import PATIENCE_S, sole_realm

    name = sole_realm(server, token) if realm is None else realm
    with closing(ServerConnection(server, name, token, patience_s=PATIENCE_S)) as connection:
        verified = connection.get("")["actorId"]
        if actor not in (None, verified):
            raise RefusedError(
                ErrorCode.NOT_THE_VERIFIED_ACTOR,
                f"The caller was verified as {verified!r} and cannot act as {actor!r}; use a token of {actor!r}, or "
                "leave --actor out.",
            )
        address = connection.address
        page = None if address.socket is not None else f"{address.base_url}/realms/{quote(name, safe='')}/inbox"
        yield ApiRealm(sender(connection), page)


@contextmanager
def _of_log(desk: CommandContext, actor: str) -> Iterator[RealmPort]:
    """Yield a realm on this machine, which does what is due as long as it is open."""
    from worldprotocol.agents.mcp.local_realm import LocalRealm
    from worldprotocol.api.asynchronous.realm import AsyncRealm
    from worldprotocol.cli.support.opening import CATCHING_UP, composed, open_configured

    config = composed(desk)
    with (
        desk.progress(CATCHING_UP) as progress,
        open_configured(desk, config, progress=progress) as realm,
    ):
        yield LocalRealm(AsyncRealm(realm), actor)
