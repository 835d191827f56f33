"""``worldctl export``: the log as JSON lines, or as tables in Parquet files."""

from __future__ import annotations

import os
from pathlib import Path

import click

from world.error_codes import ErrorCode
from world.private_files import open_private
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.redaction import redact_option, redaction


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
    """
    if form == "parquet":
        return _export_tables(desk, file, force=force, rules=rules)
    from world.errors import RefusedError
    from worldprotocol.export.jsonl import export_log

    hidden = redaction(desk, rules)
    with desk.look() as world, desk.progress("Exporting") as progress:
        if file is None or file == "-":
            out = desk.streams.out.buffer
            export_log(world.log, out, progress=progress, redaction=hidden)
            out.flush()
            return 0
        path = Path(file)
        if path.exists() and not force:
            raise RefusedError(ErrorCode.INVALID_TARGET, f"{file} is there already; --force replaces it.", path=file)
        part = path.with_name(path.name + ".part")
        try:
            with open_private(part, replaces=path) as target:
                head = export_log(world.log, target, progress=progress, redaction=hidden)
                target.flush()
                os.fsync(target.fileno())
            part.replace(path)
        except OSError as error:
            raise RefusedError(
                ErrorCode.INVALID_TARGET, f"{file} cannot be written: {error.strerror}.", path=file
            ) from None
        finally:
            part.unlink(missing_ok=True)
    rendered = {"file": str(path), "events": head.size, "head": {"size": head.size, "root": head.root_hex}}
    desk.out.tell(rendered, f"{counted(head.size, 'event')} in {path}; tree head {head}")
    return 0


def _export_tables(desk: CommandContext, folder: str | None, *, force: bool, rules: tuple[str, ...]) -> int:
    from worldprotocol.export.tables.columns import TABLES
    from worldprotocol.export.tables.parquet import export_tables, file_of

    if folder is None or folder == "-":
        raise click.UsageError("--format parquet writes several files: name a folder.")
    if rules:
        raise click.UsageError("--redact hides whole events, of which tables would show parts; leave --format out.")
    with desk.look() as world, desk.progress("Exporting") as progress:
        head = export_tables(world.log, Path(folder), force=force, progress=progress)
    files = [str(file_of(Path(folder), table)) for table in TABLES]
    rendered = {"files": files, "events": head.size, "head": {"size": head.size, "root": head.root_hex}}
    desk.out.tell(rendered, f"{counted(head.size, 'event')} in {len(files)} tables in {folder}; tree head {head}")
    return 0
