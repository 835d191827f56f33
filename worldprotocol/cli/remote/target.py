"""Where a command runs: on the server that is named, on the one that has the log's socket, or in this process.

Every start of ``worldctl`` comes through here, so it imports click and the table of commands alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from worldprotocol.cli.support.command_context import CommandContext, global_options
from worldprotocol.server.commands.command_words import read_words

__all__ = ["Target", "run_remotely", "target_of"]

SUFFIX: Final = ".sock"
_CONFIG: Final = "world.toml"
_PLACES: Final = re.compile(r"^\s*(?:log|socket)\s*=\s*(?:\"([^\"\n]*)\"|'([^'\n]*)')", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Target:
    """The server of a command.

    Args:
        address: its address.
        realm: the name of the realm there; None is the only one, or that of the file.
        token_file: file with the token; None is the environment variable ``WORLDCTL_TOKEN``, else no token.
        file: the log, in a SQLite file, whose socket was found; None where the server was named.
    """

    address: str
    realm: str | None
    token_file: str | None = None
    file: str | None = None


def run_remotely(arguments: Sequence[str]) -> int | None:
    """Run a command on a server and return its exit code; None where this process runs it.

    Args:
        arguments: the words after ``worldctl``.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--help" in own:
        return None
    desk = CommandContext()
    try:
        words = read_words(arguments, global_options(), desk)
        desk.check_server_options()
    except click.UsageError:
        return None  # the command itself says what is wrong
    if words.row is None:
        return None
    target = target_of(desk)
    if target is None:
        return None
    from worldprotocol.cli.remote.client import run

    return run(words, target, desk)


def target_of(desk: CommandContext) -> Target | None:
    """Return the server for a command; None where there is none."""
    server = desk.named_server
    if server is not None:
        return Target(server, desk.realm, desk.token_file)
    if desk.local or desk.paranoid or desk.placed is not None:
        return None
    found = _beside(desk.log) if desk.log is not None else _configured(desk.config or _CONFIG)
    return None if found is None else Target(f"unix:{found[0]}", desk.realm, file=found[1])


def _beside(log: str) -> tuple[str, str] | None:
    """Return the socket beside a SQLite file, and that file; None where there is no socket."""
    file = log.partition("#")[0]
    if "://" in file or not _is_socket(file + SUFFIX):
        return None
    return file + SUFFIX, log


def _configured(config: str) -> tuple[str, str] | None:
    """Return the socket of the realm that a configuration names, and its SQLite file; None where there is no socket.

    The file is searched for what may be a socket first: reading TOML takes longer than all the rest.
    """
    folder = os.path.dirname(config)
    try:
        with open(config, encoding="utf-8") as stream:
            text = stream.read()
    except (OSError, ValueError):
        return None
    named = ["world.db", *(one or other for one, other in _PLACES.findall(text))]
    paths = [os.path.join(folder, os.path.expanduser(one.partition("#")[0])) for one in named]
    if not any(_is_socket(path) or _is_socket(path + SUFFIX) for path in paths):
        return None
    import tomllib

    try:
        settings = tomllib.loads(text)
        log, server = settings.get("log", "world.db"), settings.get("server", {})
        address = os.path.join(folder, str(log))
        file = address.partition("#")[0]
        socket = server.get("socket")
    except (ValueError, AttributeError):
        return None
    if "://" in file:
        return None
    path = file + SUFFIX if socket is None else os.path.join(folder, os.path.expanduser(str(socket)))
    return (path, address) if _is_socket(path) else None


def _is_socket(path: str) -> bool:
    try:
        return os.stat(path).st_mode & 0o170000 == 0o140000
    except (OSError, ValueError):
        return False
