"""``worldctl cut``: removal from a log of what archives have, and its return."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted

if TYPE_CHECKING:
    from worldprotocol.api.bootstrap import EventLog
    from worldprotocol.export.archive.manifest import ArchiveFolder


@command("cut")
@click.argument("folders", nargs=-1, required=True, metavar="ARCHIVE...")
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Keep the newest N proposals and all after them.")
@click.option("--upto", type=click.IntRange(1), metavar="POSITION", help="Keep the events after this one.")
@click.option("--undo", is_flag=True, help="Give back what was removed.")
@click.option("--compact", is_flag=True, help="Then give the space back; needs as much again on SQLite meanwhile.")
@click.option("--dry-run", is_flag=True, help="Say where the log would be cut, and change nothing.")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
def cut(
    desk: CommandContext,
    folders: tuple[str, ...],
    keep: int | None,
    upto: int | None,
    undo: bool,
    compact: bool,
    dry_run: bool,
    by: str,
) -> int:
    """Remove the contents of events that archives have, and that nothing needs any more.

    ARCHIVE are the folders of `worldctl archive`, all, in order. Hashes stay, so that tree heads and proofs are as
    before; so does what is open, and what is in force. An interrupted run is completed when it is repeated.
    """
    from world.errors import RefusedError
    from worldprotocol.export.archive.cutting import open_for_cutting
    from worldprotocol.export.archive.manifest import open_archive

    if undo and (keep is not None or upto is not None or dry_run):
        raise click.UsageError("--undo gives everything back; leave --keep, --upto and --dry-run out.")
    if not undo and keep is None and upto is None:
        raise click.UsageError("Say what stays: --keep N, --upto POSITION, or both.")
    archives = tuple(open_archive(Path(one)) for one in folders)
    with open_for_cutting(desk.address(), read_only=dry_run, has_view=not undo) as log:
        if log.head().size == 0:
            raise RefusedError(ErrorCode.NOTHING_TO_ARCHIVE, "The log has no events.")
        code = _undo(desk, log, archives) if undo else _cut(desk, log, archives, (keep, upto), dry_run=dry_run, by=by)
        if compact and not dry_run:
            log.compact()
    return code


def _undo(desk: CommandContext, log: EventLog, archives: tuple[ArchiveFolder, ...]) -> int:
    from worldprotocol.export.archive.cutting import restore

    with desk.progress("Giving back") as progress:
        returned = restore(log, archives, progress)
    desk.out.tell({"returned": returned}, f"{counted(returned, 'event')} given back")
    return 0


def _cut(
    desk: CommandContext,
    log: EventLog,
    archives: tuple[ArchiveFolder, ...],
    stays: tuple[int | None, int | None],
    *,
    dry_run: bool,
    by: str,
) -> int:
    from world.clock import SystemClock
    from world.read_models.archive import Archive
    from worldprotocol.export.archive.cutting import cut as cut_log
    from worldprotocol.export.archive.cutting import plan_cut
    from worldprotocol.export.archive.writing import end_of_archive

    with desk.progress("Checking the archives") as progress:
        plan = plan_cut(log, archives, end_of_archive(Archive(log), *stays), progress)
    if dry_run:
        rendered = {"upto": plan.upto, "before": plan.before}
        now = f"it is cut after event {plan.before}" if plan.before else "it is not cut yet"
        desk.out.tell(rendered, f"would cut the log after event {plan.upto}; {now}")
        return 0
    with desk.progress("Cutting") as progress:
        done = cut_log(log, plan, by=by, now_ms=SystemClock().now_ms(), progress=progress)
    summary = {
        "upto": done.upto,
        "kept": done.kept,
        "removed": done.removed,
        "manifest": done.manifest,
        "snapshot": done.snapshot,
    }
    words = f"cut after event {done.upto}: the contents of {counted(done.removed, 'event')} removed, {done.kept} kept"
    desk.out.tell(summary, f"{words}; archive {done.manifest}")
    return 0
