"""Checks before hooks are written: the agents' versions, settings that switch hooks off, and the server.

A token goes only to a server that was proven: it serves the log of ``world.toml``, whose id it returns without sign-in,
and its Unix socket belongs to the user, to root, or to the owner of ``world.toml``. Nothing is written otherwise.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from world.error_codes import ErrorCode

if TYPE_CHECKING:
    from worldprotocol.api.config import Config
    from worldprotocol.api.remote.addresses import ServerAddress
    from worldprotocol.cli.support.command_context import CommandContext

LEAST: Final[dict[str, tuple[tuple[str, tuple[int, int, int]], ...]]] = {
    "claude-code": (("claude", (2, 1, 295)),),
    "codex": (("codex", (0, 131, 0)),),
    "gemini": (("gemini", (0, 26, 0)),),
    "cursor": (("cursor", (2, 4, 0)), ("cursor-agent", (2026, 1, 22))),
}
"""Programs of agents, and the first version in which hooks hold. Before, Claude Code permitted a call whose hook failed
(no ``onFailure``), Codex did not accept a changed input and ran the original command, Gemini CLI had no
``hooksConfig``, and Cursor had no ``preToolUse``."""

ANSWER_S: Final = 15.0
"""Longest time without a byte of the server's answer, in seconds."""

MAX_IDENTITY_BYTES: Final = 65_536
ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
MAIN: Final = "main"
FIRST_YEAR: Final = 2_000
"""Major versions from this one on are dates, whose suffix does not mark a preview."""


def too_old(client: str) -> Iterator[str]:
    """Yield each installed program of an agent whose version is too old or cannot be read, as a sentence."""
    for name, least in LEAST[client]:
        program = shutil.which(name)
        if program is None:
            continue
        try:
            done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False)
            said = done.stdout
        except (OSError, ValueError, subprocess.TimeoutExpired):
            said = ""
        found = re.search(r"(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z])?", said)
        version = None if found is None else (int(found[1]), int(found[2]), int(found[3]))
        is_preview = found is not None and found[4] is not None and int(found[1]) < FIRST_YEAR
        is_before = is_preview and version == least
        if version is None or version < least or is_before:
            shown = "unknown" if found is None else ".".join(map(str, version or ()))
            yield (
                f"{program} is version {shown}; before {'.'.join(map(str, least))} its hooks can let a call pass that "
                "they did not permit. Update it and install again."
            )


def check_agent(client: str, project: Path) -> None:
    """Check that the hooks of an agent would hold.

    Raises:
        RefusedError: ``HOOKS_TOO_OLD``, ``HOOKS_SILENCED``.
    """
    from world.errors import RefusedError
    from worldprotocol.agents.hooks.silencing import silencing

    for words in too_old(client):
        raise RefusedError(ErrorCode.HOOKS_TOO_OLD, f"{words} Nothing was written.")
    found = silencing(client, project, Path.home())
    if found:
        raise RefusedError(
            ErrorCode.HOOKS_SILENCED,
            f"Settings of {client} switch its hooks off: {'; '.join(map(str, found))}. Remove them and install again; "
            "nothing was written.",
        )


def address_in(config: Config) -> str:
    """Return the address of the server that a configuration describes."""
    from worldprotocol.api.config import ServerConfig

    server = (config.server or ServerConfig()).in_folder(config.folder)
    if server.public_url is not None:
        return server.public_url
    scheme = "http" if server.tls_certificate is None else "https"
    host = ANY_ADDRESS.get(server.host, f"[{server.host}]" if ":" in server.host else server.host)
    return f"{scheme}://{host}:{server.port}"


def prove(desk: CommandContext, server: str, realm: str, log_id: str | None) -> None:
    """Check that a server serves the log of the configuration, and that its domain takes hooks.

    Args:
        desk: the command, with its configuration.
        server: the address.
        realm: name of the realm there.
        log_id: id of the log; None takes the log of the configuration.

    Raises:
        RefusedError: ``SERVER_NOT_PROVEN``, ``HOOKS_NOT_CONFIGURED``, ``INVALID_ADDRESS``; what reading the log
            refuses.
    """
    from worldprotocol.api.config import CONFIG_NAME
    from worldprotocol.api.remote.addresses import read_server_address

    address = read_server_address(server)
    config = Path(desk.config or CONFIG_NAME)
    if log_id is None and desk.log is None and not config.exists():
        raise click.UsageError(f"There is no {config}: run this in the realm's folder, or say --log-id.")
    wanted = _own_log_id(desk) if log_id is None else log_id
    if address.socket is not None:
        check_owner(address.socket, config)
    found = _identity(address, realm)
    if wanted is None or found != wanted:
        raise _unproven(f"{server} serves as {realm} the log {found}, and not {wanted}")


def _own_log_id(desk: CommandContext) -> str | None:
    from world.read_models.decoding import log_id_of
    from worldprotocol.agents.confined_domain import check_domain

    with desk.look() as world:
        domain = world.realm().domain
        if domain is not None:
            check_domain(domain.schema)
        return log_id_of(world.log)


def check_owner(path: str, config: Path) -> None:
    """Check that a socket belongs to this user, to root, or to the owner of a configuration.

    Raises:
        RefusedError: ``SERVER_NOT_PROVEN``.
    """
    try:
        owner = os.stat(path).st_uid
    except OSError as error:
        raise _unproven(f"the socket {path} cannot be looked at: {error.strerror}") from None
    trusted = {0, os.getuid(), *((os.stat(config).st_uid,) if config.exists() else ())}
    if owner not in trusted:
        raise _unproven(f"the socket {path} belongs to the user {owner}, and not to the owner of {config}")


def _identity(address: ServerAddress, realm: str) -> object:
    """Return the id of the log that a server states for a realm; no token is sent."""
    from urllib.parse import quote

    from worldprotocol.client.connection import CommandConnection, RemoteError

    connection = CommandConnection(address, None, silent_s=ANSWER_S)
    try:
        with connection.send("GET", f"/v1/realms/{quote(realm, safe='')}/identity") as response:
            told = json.loads(response.read(MAX_IDENTITY_BYTES))
    except RemoteError as error:
        raise _unproven(f"{address.text} does not say which log it serves as {realm}: {error.message}") from None
    except (OSError, ValueError) as error:
        raise _unproven(f"{address.text} does not say which log it serves as {realm}: {error}") from None
    finally:
        connection.close()
    return told.get("logId") if isinstance(told, dict) else None


def _unproven(why: str) -> Exception:
    from world.errors import RefusedError

    return RefusedError(
        ErrorCode.SERVER_NOT_PROVEN,
        f"No token may go there: {why.rstrip('.')}. Start `worldctl serve` for this realm, or name the right --server "
        "and --realm; nothing was written.",
    )
