"""``worldctl archive``: the beginning of a log as a folder of files that prove themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.signing import signed_checkpoint, signing_options, warn_of_names

if TYPE_CHECKING:
    from worldprotocol.export.archive.manifest import ArchiveFolder
    from worldprotocol.export.archive.writing import ArchivePlan


@command("archive")
@click.argument("folder", metavar="FOLDER")
@click.option(
    "--keep", type=click.IntRange(0), metavar="N", help="Leave out the newest N proposals and all after them."
)
@click.option("--upto", type=click.IntRange(1), metavar="POSITION", help="Leave out the events after this one.")
@click.option(
    "--after",
    "previous",
    multiple=True,
    metavar="FOLDER",
    help="An archive before this one, which then begins after it; repeatable, in order.",
)
@click.option(
    "--tables/--no-tables",
    "tables",
    default=None,
    help="Also write Parquet files; unless given, where the extra `sql` is installed.",
)
@click.option("--dry-run", is_flag=True, help="Say what the archive would hold, and write nothing.")
@signing_options
def archive(
    desk: CommandContext,
    folder: str,
    keep: int | None,
    upto: int | None,
    previous: tuple[str, ...],
    tables: bool | None,
    dry_run: bool,
    keys: tuple[str, ...],
    origin: str | None,
) -> int:
    """Write the beginning of the log into FOLDER: events, tiles, tables, a checkpoint, and the hash of each file.

    The log stays as it is. An archive ends with a whole chunk of 256 events. It is read back and compared with the log
    before it gets its name; `worldctl verify FOLDER` checks it without the log, and `worldctl import` reads it.
    `worldctl realm archive` instead closes a whole realm of a directory and archives it.
    """
    from worldprotocol.export.archive.manifest import open_archive
    from worldprotocol.export.archive.writing import end_of_archive, plan_archive, write_archive
    from worldprotocol.export.tables.parquet import has_packages

    with desk.look() as world:
        before = tuple(open_archive(Path(one)) for one in previous)
        end = end_of_archive(world.archive, keep, upto)
        plan = plan_archive(world.log, before, end, has_tables=has_packages() if tables is None else tables)
        if dry_run:
            return _tell_plan(desk, plan, world.log.head().size)
        checkpoint, signers = signed_checkpoint(desk, world, plan.upto, keys, origin)
        with desk.progress("Archiving") as progress:
            made = write_archive(world.log, Path(folder), plan, checkpoint, progress)
        left = world.log.head().size - plan.upto
    warn_of_names(desk, checkpoint, signers)
    if not signers:
        desk.out.remark("Its checkpoint is not signed: keep the hash of the manifest elsewhere. --key signs it.")
    if tables is None and not plan.has_tables:
        desk.out.remark("It has no tables: the extra `sql` is not installed.")
    words = f"{folder}: {_stretch(made.manifest.after, made.manifest.size)}; {left} after it; manifest {made.digest}"
    desk.out.tell({**archive_wire(made), "left": left}, words)
    return 0


def archive_wire(made: ArchiveFolder) -> dict[str, object]:
    """Return what an archive is, as JSON."""
    manifest = made.manifest
    return {
        "folder": str(made.folder),
        "after": manifest.after,
        "upto": manifest.size,
        "events": made.events,
        "head": {"size": manifest.size, "root": manifest.root},
        "manifest": made.digest,
        "files": len(manifest.files),
        "bytes": sum(one.size for one in manifest.files),
    }


def _tell_plan(desk: CommandContext, plan: ArchivePlan, size: int) -> int:
    rendered = {
        "after": plan.after,
        "upto": plan.upto,
        "events": plan.events,
        "left": size - plan.upto,
        "tables": plan.has_tables,
    }
    desk.out.tell(rendered, f"would archive {_stretch(plan.after, plan.upto)}; {size - plan.upto} after it")
    return 0


def _stretch(after: int, upto: int) -> str:
    return f"{counted(upto - after, 'event')}, {after + 1} to {upto}"
