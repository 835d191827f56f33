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

__all__ = ["NamedRealm", "named_logs", "named_realms", "realms_argument", "workers_of", "workers_options"]


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
    """Return the realms that a command was given, or the one of ``--log`` or the configuration.

    Args:
        desk: the options.
        realms: for each realm a ``world.toml``, a folder that has one, or a log with the configuration in force.

    Raises:
        click.UsageError: realms together with ``--log``, or the same one twice.
        RefusedError: ``NO_CONFIG``, ``INVALID_CONFIG``, ``UNTRUSTED_CODE``, ``NOT_LOADED``.
    """
    from world.masking import masked
    from worldprotocol.cli.support.opening import composed

    if not realms:
        config = composed(desk)
        return [NamedRealm(None, desk.log or config.log_address, config)]
    if "log" in desk.typed:
        raise click.UsageError("--log names one realm and the arguments name others; leave one of them out.")
    named = []
    for text in realms:
        own, log = _settings_for(desk, text)
        config = composed(own)
        named.append(NamedRealm(masked(text), log or config.log_address, config))
    _refuse_twice([one.address for one in named])
    return named


def named_logs(desk: CommandContext, realms: Sequence[str]) -> list[tuple[str, str]]:
    """Return name and address of the logs that a command was given, which needs none of their code.

    Args:
        desk: the options.
        realms: as for ``named_realms``; at least one.

    Raises:
        click.UsageError: realms together with ``--log``, or the same one twice.
        RefusedError: ``NO_CONFIG``, ``INVALID_CONFIG``.
    """
    from world.masking import masked

    if "log" in desk.typed:
        raise click.UsageError("--log names one realm and the arguments name others; leave one of them out.")
    named = []
    for text in realms:
        own, log = _settings_for(desk, text)
        named.append((masked(text), log or own.settings().log_address))
    _refuse_twice([address for _, address in named])
    return named


def is_realm(text: str) -> bool:
    """Return whether an argument names a realm, and no other file."""
    from worldprotocol.api.config import CONFIG_NAME

    return "://" in text or text.endswith(".toml") or (Path(text) / CONFIG_NAME).is_file()


def _refuse_twice(addresses: Sequence[str]) -> None:
    from world.masking import masked

    twice = {one for one in addresses if addresses.count(one) > 1}
    if twice:
        raise click.UsageError(f"{masked(min(twice))} is named twice.")


def _settings_for(desk: CommandContext, text: str) -> tuple[CommandContext, str | None]:
    """Return the options under which a realm is composed, and its log where the text is its address."""
    own = CommandContext(json=desk.json)
    own.trust, own.quiet, own.paranoid, own.config = desk.trust, desk.quiet, desk.paranoid, desk.config
    if "://" not in text and (text.endswith(".toml") or Path(text).is_dir()):
        from worldprotocol.api.config import CONFIG_NAME

        own.config = text if text.endswith(".toml") else str(Path(text) / CONFIG_NAME)
        return own, None
    return own, text
