"""``worldctl bisect``: the first world of a line of descent in which something holds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from world.error_codes import ErrorCode
from world.private_files import open_private
from worldprotocol.cli.support.command_context import CliCommand, CommandContext, with_desk
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.point_in_time import AT_METAVAR, world_at

if TYPE_CHECKING:
    from world.read_models.bisect import Bisected
    from world.read_models.provenance import Cause
    from worldprotocol.api.realm import Realm

CANNOT_TEST: Final = 125
"""Exit code of a command that cannot judge a world; others up to 127 except 0 mean that it holds."""

ABORTS: Final = 128
"""Exit codes from here on, and signals, end the search."""

STDERR: Final = 2
"""Where what the command prints goes, so that stdout holds the result alone."""

SHOWN: Final = 20
"""Maximum number of printed worlds where the first one could not be determined."""


@click.command("bisect", cls=CliCommand, context_settings={"ignore_unknown_options": False})
@click.argument("argv", metavar="[-- COMMAND [ARGUMENT]...]", nargs=-1, type=click.UNPROCESSED)
@click.option("--good", metavar=AT_METAVAR, help="An ancestor in which it does not hold yet; genesis if not given.")
@click.option("--bad", metavar=AT_METAVAR, help="The world in which it holds; HEAD by default.")
@click.option("--path", metavar="PATH", help="A place in the data, such as stock.tea, or a computed value.")
@click.option("--becomes", metavar="JSON", help="With --path: it holds where the path has this value; JSON, or a text.")
@with_desk
def bisect(desk: CommandContext, argv: tuple[str, ...], good: str | None, bad: str | None, **asked: Any) -> int:
    """Find the first world in which a path has a value, or a command fails, with its cause.

    COMMAND is run for one world after the other, about log2 of their number: it gets the data as JSON on stdin and in
    the file that WORLD_STATE names, and WORLD_ID, WORLD_PARENT, WORLD_HEIGHT, WORLD_BRANCH, WORLD_POSITION and
    WORLD_LOG. Its exit code counts as with `git bisect run`: 0 is good, 1 to 124, 126 and 127 are bad, 125 cannot be
    tested and is stepped around, 128 and more end the search. What it prints goes to stderr.

    The line is halved, so it should hold in every world after the first. Where it comes and goes, one of the worlds is
    found in which it begins. Exit code 1 when only untestable worlds are left to choose from.
    """
    from world.read_models.bisect import bisect as search
    from world.read_models.provenance import causes_of

    _check_asked(argv, **asked)
    other_code: set[str] = set()
    with desk.look() as world, _test(desk, world, argv, other_code, **asked) as test:
        line = _line(world, good, world_at(world, bad)[0])
        from_genesis = world.archive.world(line[0]).parent is None
        with desk.progress("Bisecting") as progress:
            found = search(line, test, from_genesis=from_genesis, progress=progress)
        causes = causes_of(world.archive, [world.sealed(name) for name in found.first[:SHOWN]])
    _tell(desk, found, causes, len(line), other_code)
    return 0 if len(found.first) == 1 else 1


def _check_asked(argv: tuple[str, ...], *, path: str | None, becomes: str | None) -> None:
    if bool(argv) == (path is not None):
        raise click.UsageError("Say what to look for: --path and --becomes, or a command after --.")
    if (path is None) != (becomes is None):
        raise click.UsageError("--path and --becomes go together.")


def _line(world: Realm, good: str | None, newest: str) -> list[str]:
    """Return the ids of the worlds to choose from, oldest first.

    Raises:
        RefusedError: ``NOT_BISECTABLE`` where the one is no ancestor of the other.
    """
    from world.errors import RefusedError
    from world.read_models.lineage import line

    oldest = None if good is None else world_at(world, good)[0]
    found = []
    for row in line(world.archive, newest):
        found.append(row.world_id)
        if row.world_id == oldest:
            break
    else:
        if oldest is not None:
            rendered = (
                f"World {oldest[:12]} is no ancestor of world {newest[:12]}; `worldctl worlds` draws how they descend."
            )
            raise RefusedError(ErrorCode.NOT_BISECTABLE, rendered)
    found.reverse()
    return found


@contextmanager
def _test(
    desk: CommandContext,
    world: Realm,
    argv: tuple[str, ...],
    other_code: set[str],
    *,
    path: str | None,
    becomes: str | None,
) -> Iterator[Callable[[str], bool | None]]:
    """Give the test of one world; the computed values that other code than that of then evaluates are collected."""
    if path is not None:
        yield _of_value(desk, world, path, becomes or "", other_code)
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="worldctl-") as folder:
        yield lambda world_id: _run(world, world_id, argv, Path(folder, "state.json"))


def _of_value(
    desk: CommandContext, world: Realm, path: str, becomes: str, other_code: set[str]
) -> Callable[[str], bool | None]:
    """Return the test whether a path has this value; it is undetermined where a computed value cannot be made."""
    from world.errors import RefusedError
    from world.model.canonical_json import canonical_bytes, read_json
    from world.model.paths import look_up, parse_path
    from world.read_models.blame import COMPUTED, plain_path, stands

    try:
        wanted = read_json(becomes)
    except RefusedError:
        wanted = becomes
    expected = canonical_bytes(wanted)

    def holds(world_id: str) -> bool:
        data = world.archive.checked_state(world_id)
        place = parse_path(plain_path(data, path))
        return stands(data, place) and canonical_bytes(look_up(data, place)) == expected

    if parse_path(path)[:1] == (COMPUTED,):
        return _of_computed(desk, world, path, expected, other_code)
    return holds


def _of_computed(
    desk: CommandContext, world: Realm, name: str, expected: bytes, other_code: set[str]
) -> Callable[[str], bool | None]:
    from world.model.canonical_json import canonical_bytes
    from worldprotocol.cli.support.rendering.computed_values import past_values, remarks

    values, said = past_values(desk, world.archive), set[str]()

    def holds(world_id: str) -> bool | None:
        found = values.of(world.sealed(world_id), world.archive.checked_state(world_id))
        for remark in remarks(found, name):
            if remark not in said:
                desk.out.remark(remark)
            said.add(remark)
        other_code.update({name} & {*found.by_other_code})
        if name in found.missing:
            return None
        return name in found.values and canonical_bytes(found.values[name]) == expected

    return holds


def _run(world: Realm, world_id: str, argv: tuple[str, ...], place: Path) -> bool | None:
    """Run the command on a world; return whether it found something wrong with it.

    Raises:
        RefusedError: ``COMMAND_NOT_FOUND``, ``COMMAND_NOT_EXECUTABLE``, ``BISECT_ABORTED``.
    """
    from world.errors import RefusedError
    from world.model.canonical_json import canonical_bytes

    with open_private(place) as file:
        file.write(canonical_bytes(world.archive.checked_state(world_id)))
    row = world.archive.world(world_id)
    rendered = {
        "WORLD_ID": world_id,
        "WORLD_PARENT": row.parent or "",
        "WORLD_HEIGHT": str(row.height),
        "WORLD_BRANCH": row.branch,
        "WORLD_POSITION": str(row.position),
        "WORLD_STATE": str(place),
        "WORLD_LOG": str(world.log.address),
    }
    try:
        with place.open("rb") as stdin:
            code = subprocess.run(argv, stdin=stdin, stdout=STDERR, env=os.environ | rendered, check=False).returncode
    except FileNotFoundError:
        raise RefusedError(ErrorCode.COMMAND_NOT_FOUND, f"There is no command {argv[0]!r}.") from None
    except OSError as error:
        raise RefusedError(ErrorCode.COMMAND_NOT_EXECUTABLE, f"{argv[0]!r} cannot be run: {error.strerror}.") from None
    if code >= ABORTS or code < 0:
        ended = f"exit code {code}" if code >= 0 else f"signal {-code}"
        raise RefusedError(
            ErrorCode.BISECT_ABORTED, f"The command ended the search at world {world_id[:12]}, with {ended}."
        )
    return None if code == CANNOT_TEST else code != 0


def _tell(desk: CommandContext, found: Bisected, causes: list[Cause], worlds: int, other_code: set[str]) -> None:
    if desk.json:
        rendered = {"first": causes[0].to_wire() if len(found.first) == 1 else None, "candidates": list(found.first)}
        counts = {"tested": found.tested, "worlds": worlds, "untestable": list(found.untestable)}
        marks = {"computedByOtherCode": sorted(other_code)} if other_code else {}
        desk.out.document({**rendered, "before": found.before, **counts, **marks})
        return
    from worldprotocol.cli.commands.look.blame import about_cause

    tests = f"{counted(found.tested, 'test')} in a line of {counted(worlds, 'world')}"
    if len(found.first) > 1:
        desk.out.text(
            f"one of {counted(len(found.first), 'world')} is the first; those between cannot be tested ({tests})"
        )
        for name in found.first[:SHOWN]:
            desk.out.text(f"  {name}")
        return
    desk.out.text(f"the first one, by {tests}:")
    for line in about_cause(causes[0]):
        desk.out.text(line)
    if found.before is not None:
        desk.out.text(f"  before    world {found.before}, where it does not hold")
