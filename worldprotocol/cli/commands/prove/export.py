"""``worldctl export``: the log as JSON lines."""

from __future__ import annotations

import os
import sys
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
@redact_option
def export(desk: CommandContext, file: str | None, force: bool, rules: tuple[str, ...]) -> int:
    """Write all events and their tree heads to FILE, or to stdout; `worldctl import` reads them.

    With --redact, hidden events are replaced by their leaf hashes: tree heads and proofs stay checkable, and it cannot
    be imported.
    """
    from world.errors import RefusedError
    from worldprotocol.export.jsonl import export_log

    hidden = redaction(desk, rules)
    with desk.look() as world, desk.progress("Exporting") as progress:
        if file is None or file == "-":
            export_log(world.log, sys.stdout.buffer, progress=progress, redaction=hidden)
            sys.stdout.buffer.flush()
            return 0
        path = Path(file)
        if path.exists() and not force:
            raise RefusedError(ErrorCode.INVALID_TARGET, f"{file} is there already; --force replaces it.", path=file)
        part = path.with_name(path.name + ".part")
        try:
            with open_private(part, replaces=path) as out:
                head = export_log(world.log, out, progress=progress, redaction=hidden)
                out.flush()
                os.fsync(out.fileno())
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
