"""``worldctl run --call``: the connection to the server, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from world.errors import RefusedError, WorldProtocolError
from worldprotocol.cli.commands.run.run import exit_code_of, refused
from worldprotocol.cli.support.command_context import CommandContext
from worldprotocol.client.connection import CommandConnection, RemoteError

if TYPE_CHECKING:
    from worldprotocol.api.remote.addresses import ServerAddress

__all__ = ["run_allowed"]

ANSWER_S: Final = 30.0
"""Longest time for an answer of the server, in seconds."""

MOST_NAMED: Final = 5
"""Files that others changed meanwhile which are named."""


def run_allowed(desk: CommandContext, key: str, argv: Sequence[str], *, is_unconfined: bool) -> int:
    """Run the text of an allowed call, and return its exit code; 125 where nothing was run.

    Args:
        desk: the options: server, realm and token.
        key: the key of the call.
        argv: the shell, ``-c`` and the text.
        is_unconfined: whether a person approved it unconfined.

    Raises:
        click.UsageError: without a server and a realm.
    """
    from worldprotocol.api.remote.addresses import read_server_address
    from worldprotocol.client.token_file import given_token
    from worldprotocol.runs.called import CalledCommand, run_call

    if desk.named_server is None or desk.realm is None:
        raise click.UsageError("--call goes with --server ADDRESS and --realm NAME.")
    try:
        address = read_server_address(desk.named_server)
        server = _CallOperations(address, desk.realm, given_token(desk.token_file))
        result = run_call(server, CalledCommand(key, argv, is_unconfined, desk.token_file))
    except WorldProtocolError as error:
        return refused(desk, error)
    if result.reason is not None and result.outcome not in ("completed", "failed"):
        desk.out.warn(f"worldctl: {result.outcome}: {result.reason}")
    for one in result.not_given_back:
        desk.out.warn(f"worldctl: not given back: {one}")
    if changed := server.inputs_changed:
        more = f" and {len(changed) - MOST_NAMED} more" if len(changed) > MOST_NAMED else ""
        desk.out.warn(f"worldctl: others changed meanwhile: {', '.join(changed[:MOST_NAMED])}{more}")
    return exit_code_of(result)


class _CallOperations:
    """The operations on calls of a realm; each request has a connection of its own, as threads send them.

    ``inputs_changed`` names the files that others changed while the command ran, once its end is reported.
    """

    def __init__(self, address: ServerAddress, realm: str, token: str | None) -> None:
        self._address = address
        self._path = f"/v1/realms/{quote(realm, safe='')}/calls:"
        self._token = token
        self.inputs_changed: list[str] = []

    def send(self, operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to an operation; see ``CallServer``."""
        connection = CommandConnection(self._address, self._token, silent_s=ANSWER_S)
        try:
            with connection.send("POST", self._path + operation, dict(body)) as answer:
                found = json.loads(answer.read())
        except RemoteError as error:
            raise RefusedError(error.code, error.message, **error.details) from None
        finally:
            connection.close()
        assert isinstance(found, dict)
        self.inputs_changed = found.get("inputsChanged") or []
        return found
