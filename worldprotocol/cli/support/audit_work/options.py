"""Arguments of commands that audit one log or several, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext

if TYPE_CHECKING:
    from worldprotocol.analysis.work.workers import Workers
    from worldprotocol.api.config import Config
    from worldprotocol.api.lookup.closed_log import ClosedLog

__all__ = [
    "NamedRealm",
    "closed_logs",
    "closed_wire",
    "is_realm",
    "named_logs",
    "named_realms",
    "realms_argument",
    "workers_of",
    "workers_options",
]


@dataclass(frozen=True, slots=True)
class NamedRealm:
    """One of the realms that a command works on.

    Args:
        name: how it was named, without a password; None for the realm of the current folder or ``--log``.
        address: its log.
        config: its configuration; its code can be imported.
    """

    name: str | None
    address: str
    config: Config


def realms_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument ``[REALM]...``; ``named_realms`` reads it."""
    return click.argument("realms", nargs=-1, metavar="[REALM]...")(function)


def workers_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--jobs`` and ``--executor``; ``workers_of`` reads them."""
    jobs = click.option(
        "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes or workers; by itself as many as pay."
    )
    executor = click.option(
        "--executor",
        default="processes",
        metavar="WHERE",
        help="`processes` of this machine, or a Dask cluster: dask://HOST:PORT, dask+tls://HOST:PORT.",
    )
    return jobs(executor(function))


def workers_of(jobs: int | None, executor: str) -> Workers:
    """Return the processes that were chosen.

    Raises:
        RefusedError: ``INVALID_EXECUTOR``.
    """
    from worldprotocol.analysis.work.workers import Workers

    return Workers(jobs, executor)


def named_realms(desk: CommandContext, realms: Sequence[str]) -> list[NamedRealm]:
    """Return the realms that a command was given, or the one of its options.

    Args:
        desk: the options.
        realms: for each realm a ``world.toml``, a folder that has one, a log with the configuration in force, or a name
            in the directory: ``NAME`` with the configuration in force, ``NAME=FILE`` with another.

    Raises:
        click.UsageError: realms together with ``--log`` or ``--realm``, or the same one twice.
        RefusedError: ``NO_CONFIG``, ``INVALID_CONFIG``, ``UNTRUSTED_CODE``, ``NOT_LOADED``; the codes of
            ``CommandContext.address``.
    """
    from worldprotocol.cli.support.opening import composed

    if not realms:
        config = composed(desk)
        return [NamedRealm(None, desk.address(), config)]
    contexts = _contexts(desk, realms)
    named = [NamedRealm(name, own.address(), composed(own)) for name, own in contexts]
    _refuse_twice([one.address for one in named])
    return named


def named_logs(desk: CommandContext, realms: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and address of the logs that a command was given, which needs none of their code.

    Args:
        desk: the options.
        realms: as for ``named_realms``; at least one.

    Raises:
        click.UsageError: realms together with ``--log`` or ``--realm``, or the same one twice.
        RefusedError: ``NO_CONFIG``, ``INVALID_CONFIG``; the codes of ``CommandContext.address``.
    """
    named = [(name, own.address()) for name, own in _contexts(desk, realms)]
    _refuse_twice([address for _, address in named])
    return named


def closed_logs(desk: CommandContext, named: Sequence[NamedRealm]) -> list[ClosedLog | None]:
    """Return for each realm why its log is closed to writers, with a remark about each that is.

    Args:
        desk: the options.
        named: the realms; a log that cannot be opened is taken to be open.
    """
    from world.errors import WorldProtocolError
    from worldprotocol.api.lookup.closed_log import closed_at_end
    from worldprotocol.api.read_only import open_for_reading

    found: list[ClosedLog | None] = []
    for one in named:
        try:
            with open_for_reading(one.address) as log:
                found.append(closed_at_end(log))
        except WorldProtocolError:
            found.append(None)
        desk.remark_closed(found[-1], one.name)
    return found


def closed_wire(closed: ClosedLog | None) -> dict[str, Any]:
    """Return what the answer about a closed log has more as JSON."""
    return {} if closed is None else {"closed": closed.to_wire()}


def is_realm(desk: CommandContext, text: str) -> bool:
    """Return whether an argument names a realm, and no other file."""
    from worldprotocol.api.config import CONFIG_NAME

    if "://" in text or text.endswith(".toml") or (Path(text) / CONFIG_NAME).is_file():
        return True
    return _name_in_directory(desk, text) is not None


def _contexts(desk: CommandContext, realms: Sequence[str]) -> list[tuple[str, CommandContext]]:
    """Return for each argument how it is shown, and the options under which its realm is found and composed."""
    from world.masking import masked

    for option in ("log", "realm"):
        if option in desk.typed:
            raise click.UsageError(f"--{option} names one realm and the arguments name others; leave one of them out.")
    return [(masked(text), _context_of(desk, text)) for text in realms]


def _context_of(desk: CommandContext, text: str) -> CommandContext:
    from worldprotocol.api.config import CONFIG_NAME

    own = CommandContext(json=desk.json)
    own.trust, own.quiet, own.paranoid, own.config = desk.trust, desk.quiet, desk.paranoid, desk.config
    found = _name_in_directory(desk, text)
    if found is not None:
        own.directory, (own.realm, config) = desk.directory, found
        own.config = config or desk.config
    elif "://" not in text and (text.endswith(".toml") or Path(text).is_dir()):
        own.config = text if text.endswith(".toml") else str(Path(text) / CONFIG_NAME)
    else:
        own.log = text
    return own


def _name_in_directory(desk: CommandContext, text: str) -> tuple[str, str | None] | None:
    """Return the name of a realm of the directory, and the configuration beside it; None for other arguments.

    With a directory of the environment, files and folders precede its names.

    Raises:
        RefusedError: ``UNKNOWN_REALM`` for what is neither; ``NOT_A_DIRECTORY`` and others of opening the directory.
    """
    from worldprotocol.api.remote.realm_names import NAME

    name, sign, config = text.partition("=")
    is_typed = "directory" in desk.typed
    if desk.directory is None or not NAME.fullmatch(name) or (not is_typed and Path(text).exists()):
        return None
    from worldprotocol.directory.directory import RealmDirectory

    with RealmDirectory.open(desk.directory, read_only=True) as directory:
        if not sign and Path(text).exists() and name not in {one.name for one in directory.entries()}:
            return None
        return directory.entry(name).name, config or None


def _refuse_twice(addresses: Sequence[str]) -> None:
    from world.masking import masked

    twice = {one for one in addresses if addresses.count(one) > 1}
    if twice:
        raise click.UsageError(f"{masked(min(twice))} is named twice.")
