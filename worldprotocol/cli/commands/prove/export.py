"""``worldctl export``: the log as JSON lines, or as tables in Parquet files."""

from __future__ import annotations

from pathlib import Path

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.redaction import redact_option, redaction
from worldprotocol.cli.support.result_files import check_target, whole_file


@command("export")
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "parquet"]),
    default="jsonl",
    show_default=True,
    help="JSON lines, or tables in a folder.",
)
@redact_option
def export(desk: CommandContext, file: str | None, force: bool, form: str, rules: tuple[str, ...]) -> int:
    """Write all events and their tree heads to FILE, or to stdout; `worldctl import` reads them.

    With --redact, hidden events are replaced by their leaf hashes: tree heads and proofs stay checkable, and it cannot
    be imported. With --format parquet, FILE is a folder that gets a Parquet file of each table of `worldctl sql`.

    Of a cut log, the events after the cut are written; they are imported into a log that has those of the archives.
    """
    if form == "parquet":
        return _export_tables(desk, file, force=force, rules=rules)
    from worldprotocol.export.jsonl import export_log

    hidden = redaction(desk, rules)
    with desk.look() as world, desk.progress("Exporting") as progress:
        after = desk.archived_upto(world.log)
        if file is None or file == "-":
            out = desk.streams.out.buffer
            export_log(world.log, out, after=after, progress=progress, redaction=hidden, every_head=True)
            out.flush()
            return 0
        path = Path(file)
        check_target(path, force=force)
        with whole_file(path) as target:
            head = export_log(world.log, target, after=after, progress=progress, redaction=hidden, every_head=True)
    events = head.size - after
    rendered = {"file": str(path), "events": events, "head": head.to_wire()}
    desk.out.tell(rendered | _cut_at(after), f"{counted(events, 'event')} in {path}; tree head {head}")
    return 0


def _cut_at(after: int) -> dict[str, int]:
    """Return up to where the events of a cut log are archived, as JSON; nothing for others."""
    return {"archivedUpto": after} if after else {}


def _export_tables(desk: CommandContext, folder: str | None, *, force: bool, rules: tuple[str, ...]) -> int:
    from worldprotocol.export.tables.columns import TABLES
    from worldprotocol.export.tables.parquet import export_tables, file_of

    if folder is None or folder == "-":
        raise click.UsageError("--format parquet writes several files: name a folder.")
    if rules:
        raise click.UsageError("--redact hides whole events, of which tables would show parts; leave --format out.")
    with desk.look() as world, desk.progress("Exporting") as progress:
        after = desk.archived_upto(world.log)
        head = export_tables(world.log, Path(folder), after=after, force=force, progress=progress)
    files = [str(file_of(Path(folder), table)) for table in TABLES]
    events = head.size - after
    rendered = {"files": files, "events": events, "head": head.to_wire()}
    words = f"{counted(events, 'event')} in {len(files)} tables in {folder}; tree head {head}"
    desk.out.tell(rendered | _cut_at(after), words)
    return 0
