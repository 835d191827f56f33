"""What the files of exported tables say about themselves; the export writes it, and ``parquet_files`` reads it."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["METADATA", "ExportedTable"]

METADATA: Final = "worldProtocol"
"""Member of the metadata of each file: an ``ExportedTable`` as JSON."""


class ExportedTable(msgspec.Struct, frozen=True):
    """Metadata of an exported table.

    Args:
        log: id of the log; None where its first event is not its founding.
        name: name of the log in its store.
        after: position before the first event; 0 unless the log was cut, or the tables are of a later archive.
        size: position of the last event.
        root: root of the tree over the events up to there, in hex.
        table: name of the table.
    """

    log: str | None
    name: str
    after: int
    size: int
    root: str
    table: str
