"""``worldctl bisect``: the first world of a line of descent in which something holds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
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
    from world.read_models.bisect import Test
    from worldprotocol.api.lookup.bisection import FoundWorlds
    from worldprotocol.api.past_values import PastValues, PastValuesReader
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
    from worldprotocol.api.lookup.bisection import line_to, search

    _check_asked(argv, **asked)
    with desk.look() as world, _test(desk, world, argv, **asked) as test:
        worlds = line_to(world.archive, world_at(world, bad)[0], None if good is None else world_at(world, good)[0])
        with desk.progress("Bisecting") as progress:
            found = search(world, worlds, test, progress=progress)
    _tell(desk, found)
    return 0 if len(found.found.first) == 1 else 1


def _check_asked(argv: tuple[str, ...], *, path: str | None, becomes: str | None) -> None:
    if bool(argv) == (path is not None):
        raise click.UsageError("Say what to look for: --path and --becomes, or a command after --.")
    if (path is None) != (becomes is None):
        raise click.UsageError("--path and --becomes go together.")


@contextmanager
def _test(
    desk: CommandContext, world: Realm, argv: tuple[str, ...], *, path: str | None, becomes: str | None
) -> Iterator[Test]:
    """Give the test of one world."""
    if path is not None:
        yield _of_value(desk, world, path, becomes or "")
        return
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="worldctl-") as folder:
        yield lambda world_id: _run(world, world_id, argv, Path(folder, "state.json"))


def _of_value(desk: CommandContext, world: Realm, path: str, becomes: str) -> Test:
    """Return the test whether a path has this value; why a computed value cannot be made is said once."""
    from worldprotocol.api.lookup.bisection import ValueTest
    from worldprotocol.cli.support.rendering.computed_values import past_values, remarks

    said = set[str]()
    values: PastValuesReader | None = None

    def computed(world_id: str) -> PastValues:
        nonlocal values
        values = values or past_values(desk, world.archive)
        found = values.of(world.sealed(world_id), world.archive.checked_state(world_id))
        for remark in remarks(found, path):
            if remark not in said:
                desk.out.remark(remark)
            said.add(remark)
        return found

    return ValueTest(world.archive, path, becomes, computed)


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


def _tell(desk: CommandContext, found: FoundWorlds) -> None:
    if desk.json:
        desk.out.document(found.to_wire())
        return
    from worldprotocol.cli.commands.look.blame import about_cause

    first = found.found.first
    tests = f"{counted(found.found.tested, 'test')} in a line of {counted(found.worlds, 'world')}"
    if len(first) > 1:
        desk.out.text(f"one of {counted(len(first), 'world')} is the first; those between cannot be tested ({tests})")
        for name in first[:SHOWN]:
            desk.out.text(f"  {name}")
        return
    desk.out.text(f"the first one, by {tests}:")
    for line in about_cause(found.causes[0]):
        desk.out.text(line)
    if found.found.before is not None:
        desk.out.text(f"  before    world {found.found.before}, where it does not hold")
