"""``worldctl import``: an exported log, read into a new one."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted


@command("import")
@click.argument("file", metavar="FILE|-")
def import_(desk: CommandContext, file: str) -> int:
    """Read the exported FILE into the log that --log names, which must be new or a beginning of it.

    FILE may be the folder of an archive (`worldctl archive`); several are read one after the other. Every leaf and tree
    head is checked before the first event is written; a damaged file leaves nothing behind.
    """
    from world.errors import RefusedError
    from worldprotocol.cli.commands.prove.verify import salvaged_words
    from worldprotocol.export.archive.manifest import EVENTS, MANIFEST
    from worldprotocol.export.jsonl import import_log

    address = desk.address()
    with desk.progress("Importing") as progress:
        if file == "-":
            done = import_log(sys.stdin.buffer, address, progress=progress)
        else:
            if os.path.isfile(os.path.join(file, MANIFEST)):
                file = os.path.join(file, EVENTS)
            try:
                source = open(file, "rb")  # noqa: SIM115  # only opening it may fail in this way
            except OSError as error:
                raise RefusedError(
                    ErrorCode.FILE_UNREADABLE, f"{file} cannot be read: {error.strerror}.", path=file
                ) from None
            with source:
                done = import_log(source, address, progress=progress)
    head = done.head
    rendered: dict[str, Any] = {
        "name": done.name,
        "added": done.added,
        "head": head.to_wire(),
    }
    if done.salvaged is not None:
        rendered["salvaged"] = {"expected": done.salvaged.expected, "vouched": done.salvaged.vouched}
    words = f"{counted(done.added, 'event')} added" if done.added else "nothing to add: the log has them all"
    desk.out.tell(rendered, f"{words}; tree head {head}")
    if done.salvaged is not None:
        desk.out.remark(
            f"Salvaged: {salvaged_words(done.salvaged, head.size)}. Where not everything was saved, sign it under "
            "a new --origin: it is another history than that of before."
        )
    return 0
