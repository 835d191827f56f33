"""The option ``--redact``: rules for the commands that show events, digests for those that show resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext
from worldprotocol.operations.calling import new_digests

if TYPE_CHECKING:
    from world.read_models.leases import Shown
    from worldprotocol.api.bootstrap import LoggedEvent
    from worldprotocol.api.config import Config
    from worldprotocol.api.realm import Realm
    from worldprotocol.export.redaction import Redaction


def shown_resources(desk: CommandContext, *, redact: bool) -> Shown:
    """Return how resources are shown: as they are, or by digests; raises as ``resource_digests``."""
    return resource_digests(desk.settings()) if redact else str


def resource_digests(config: Config) -> Shown:
    """Return what shows resources by digests under the configured key, else under one that nothing else has.

    Raises:
        RefusedError: ``FILE_UNREADABLE``, ``INVALID_KEY``.
    """
    from world.read_models.leases import digests

    if config.digests is None:
        return new_digests()
    return digests(_digest_key(config.folder / Path(config.digests.key).expanduser()))


def _digest_key(path: Path) -> bytes:
    """Read a key, which only its owner may be able to read."""
    import os

    from world.errors import RefusedError
    from world.read_models.leases import KEY_BYTES

    try:
        with path.open("rb") as file:
            mode, rendered = os.fstat(file.fileno()).st_mode, file.read()
    except OSError as error:
        raise RefusedError(
            ErrorCode.FILE_UNREADABLE, f"{path} cannot be read: {error.strerror or error}.", path=str(path)
        ) from None
    if os.name == "posix" and mode & 0o077:
        raise RefusedError(
            ErrorCode.INVALID_KEY, f"Others can read or change the key {path}: chmod 600 it.", path=str(path)
        )
    try:
        key = bytes.fromhex(rendered.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        wanted = f"{KEY_BYTES} random bytes, written as {2 * KEY_BYTES} hex digits"
        raise RefusedError(ErrorCode.INVALID_KEY, f"{path} holds no key for digests: {wanted}.", path=str(path))
    return key


def redact_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--redact``; it is handed the rules."""
    return click.option(
        "--redact",
        "rules",
        multiple=True,
        metavar="RULE",
        help="Hide events (KM-7.3), each behind its leaf hash: resources, inputs, actors, actor=ID, topic=GLOB, "
        "stream=GLOB, or role=NAME as world.toml has it; repeatable.",
    )(function)


def redaction(desk: CommandContext, rules: Iterable[str]) -> Redaction:
    """Return the rules that were given; without any nothing is hidden.

    Raises:
        RefusedError: ``INVALID_REDACTION``, ``NO_CONFIG``, ``INVALID_CONFIG``.
    """
    from worldprotocol.export.redaction import Redaction

    given = tuple(rules)
    roles = desk.settings().redact if any(rule.startswith("role=") for rule in given) else None
    return Redaction(given, roles)


def check_position(world: Realm, at: str | None) -> None:
    """Accept only a position as a point in the past where events are hidden: other forms would reveal them.

    Raises:
        click.UsageError: it is a world, a proposal, a branch or a time.
    """
    from worldprotocol.api.lookup.id_lookup import as_position

    if at is not None and as_position(world, at) is None:
        rendered = "The position of a world, a proposal or a time in the log may be hidden"
        raise click.UsageError(f"{rendered}; with --redact give --at a position.")


@contextmanager
def unlisted(hidden: Redaction) -> Iterator[None]:
    """Make an error about an ambiguous name list no candidates where events are hidden.

    Raises:
        RefusedError: ``AMBIGUOUS`` without candidates.
    """
    from world.errors import RefusedError

    try:
        yield
    except RefusedError as refused:
        if not hidden or refused.code != "AMBIGUOUS":
            raise
        rendered = "This could be several things; write more of it. They are not listed, because events are hidden."
        raise RefusedError(ErrorCode.AMBIGUOUS, rendered) from None


def withheld(
    world: Realm, hidden: Redaction, kind: str, name: str, upto: int
) -> tuple[dict[str, Any], list[str]] | None:
    """Return what may be shown of a thing that depends on hidden events: their positions; None where none is hidden.

    Args:
        world: where it is.
        hidden: the rules.
        kind: ``event``, ``world``, ``proposal``, ``intent``, ``decision``, ``run`` or ``session``.
        name: its id, or an event's position; of an intent or a decision, its proposal's id.
        upto: the last event that is shown.
    """
    hidden.learn(world.log)
    found = _events_behind(world, kind, name) if hidden else ()
    behind = {event.position: event for event in found if event.position <= upto}
    rendered = [shown for _, event in sorted(behind.items()) if (shown := hidden.shown(event)) is not None]
    if not rendered:
        return None
    wire = {"kind": kind, "redacted": True, "hidden": rendered, "events": sorted(behind)}
    lines = [
        f"redacted: {len(rendered)} of the {len(behind)} events behind this are hidden by {', '.join(hidden.kinds)}"
    ]
    return wire, lines + [f"  event {one['position']}  leaf {one['leaf']}" for one in rendered]


def _events_behind(world: Realm, kind: str, name: str) -> Iterator[LoggedEvent]:
    if kind == "event":
        yield world.log.event_at(int(name))
    elif kind == "run":
        yield from world.log.stream(f"run:{name}")
    elif kind == "session":
        from worldprotocol.runs.verification import runs_of

        for run in runs_of(world.archive, name):
            yield from world.log.stream(f"run:{run}")
    elif kind == "world":
        yield world.log.event_at(world.archive.world(name).position)
        maker = world.sealed(name).created_by
        if maker is not None:
            yield from _events_behind(world, "proposal", maker)
    else:
        own = world.log.stream(name)
        yield from own
        yield from world.log.stream(f"run:{name}")
        for (position,) in world.archive.rows("verdicts_of_request", {"of_request": name}):
            yield world.archive.event_at(position)
