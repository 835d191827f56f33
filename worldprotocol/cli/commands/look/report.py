"""``worldctl report``: what happened in the log, as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import AT_METAVAR, point_of
from worldprotocol.cli.support.redaction import check_position, redact_option, redaction
from worldprotocol.cli.support.result_files import check_target, whole_file

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm
    from worldprotocol.report.gathering import RealmReport, Window


@command("report")
@click.option("-o", "--out", "file", metavar="FILE", help="Where the page goes; stdout by default.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option(
    "--since", metavar="TIME", help="Count what was recorded from then on: ISO 8601, ms since 1970, or 2h ago."
)
@click.option("--until", metavar="TIME", help="State of the log then; as --since.")
@click.option("--at", metavar=AT_METAVAR, help="State of the log at this point in the past.")
@click.option("--all", "every", is_flag=True, help="List all proposals, not the newest 200 only.")
@redact_option
def report(
    desk: CommandContext, file: str | None, force: bool, every: bool, rules: tuple[str, ...], **options: Any
) -> None:
    """Write one HTML page about the log: what was decided, refused, violated and waited for.

    The page loads nothing and runs nothing: it can be mailed, archived and printed. With --json its figures are
    printed, and with FILE also where it is. Events hidden by --redact are counted nowhere.
    """
    from worldprotocol.report.gathering import gather
    from worldprotocol.report.page import render

    path = None if file is None or file == "-" else Path(file)
    if path is not None:
        check_target(path, force=force)
    hidden = redaction(desk, rules)
    if hidden and (options["since"] or options["until"]):
        raise click.UsageError(
            "The position of a time in the log may be hidden; with --redact give --at a position, not --since and "
            "--until."
        )
    with desk.look() as world, desk.progress("Reading the log") as progress:
        if hidden:
            check_position(world, options["at"])
        made = gather(world.archive, _window(world, **options), redaction=hidden, every=every, progress=progress)
        rendered = made.to_wire()
        if path is not None:
            with whole_file(path) as target:
                size = sum(target.write(piece.encode()) for piece in render(made))
            rendered = {"file": str(path), "bytes": size, **rendered}
        elif not desk.json:
            for piece in render(made):
                desk.streams.out.buffer.write(piece.encode())
            desk.streams.out.buffer.flush()
            return
    _tell(desk, made, rendered)


def _tell(desk: CommandContext, made: RealmReport, rendered: dict[str, Any]) -> None:
    if desk.json and "file" not in rendered:
        rendered["listed"] = list(made.rows())
    desk.out.tell(rendered, f"{rendered.get('file')}: {rendered['events']['counted']} events up to {made.window.upto}")


def _window(world: Realm, *, since: str | None, until: str | None, at: str | None) -> Window:
    """Return which events are counted.

    Raises:
        RefusedError: as ``point_of``.
    """
    from world.clock import SystemClock
    from world.read_models.lineage import recorded_by
    from worldprotocol.cli.commands.look.log import moment_given
    from worldprotocol.report.gathering import Window

    now = SystemClock().now_ms()
    begin, end = moment_given(since, now), moment_given(until, now)
    upto = world.log.head().size if at is None else point_of(world, at).position
    if end is not None:
        upto = min(upto, recorded_by(world.archive, end))
    after = 0 if begin is None else min(upto, recorded_by(world.archive, begin - 1))
    asked = " and ".join(words for words in (until, at) if words is not None)
    return Window(after, upto, since, asked or None)
