"""Where a salvage reads: the rows of a SQLite file, or the lines of an export (``server``: of a server).

Nothing is written there, whatever it is. A SQLite file is read without SQLite, so that neither a damaged schema nor a
damaged index is in the way, and its ``-wal`` stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.log import LoggedEvent
from world.log.backends.sqlite_pages import rows_of_file
from world.log.merkle import HASH_BYTES
from world.log.sql.statement import LOG_SHIFT, POSITION_MASK
from world.log.values import TreeHead
from worldprotocol.export.jsonl_lines import MAX_LINE_BYTES, ExportHeader, Hidden, read_header, read_line
from worldprotocol.export.salvage.scratch import ScratchStore, event_of

__all__ = ["read_export", "read_file"]

_EVENT_COLUMNS: Final = 8
_MAX_LOGS: Final = 1 << 23
_THE_LOG: Final = 1


def read_file(path: str, scratch: ScratchStore) -> None:
    """Take in every row of a SQLite file that has the form of an event, a tree head, a chunk, or a log's name.

    Raises:
        RefusedError: ``LOG_NOT_FOUND`` where there is no file, ``FILE_UNREADABLE``.
    """
    if not os.path.isfile(path):
        raise RefusedError(ErrorCode.LOG_NOT_FOUND, f"There is no file {path}. Check the path.")
    try:
        for key, columns in rows_of_file(path, _EVENT_COLUMNS):
            log, place = key >> LOG_SHIFT, key & POSITION_MASK
            match columns:
                case (None, int(), stream, version, topic, schema_version, leaf, state) if 0 < log < _MAX_LOGS:
                    content = _content(place, stream, version, topic, schema_version, state)
                    scratch.add_event(log, place, content, leaf if isinstance(leaf, bytes) else None)
                case (None, bytes() as root, *before) if _is_head(root, before) and log > 0:
                    scratch.add_head(log, TreeHead(place, root))
                case (None, bytes() as root, bytes()) if len(root) == HASH_BYTES and log > 0:
                    scratch.add_chunk(log, place, root)
                case (None, bytearray() as name) if 0 < key < _MAX_LOGS:
                    scratch.add_name(key, name.decode("utf-8", "replace"))
    except OSError as error:
        raise RefusedError(ErrorCode.FILE_UNREADABLE, f"{path} cannot be read: {error.strerror}.", path=path) from None


def _is_head(root: bytes, before: list[Any]) -> bool:
    """Return whether a row can be a tree head: an earlier release stored none before it."""
    return len(root) == HASH_BYTES and (not before or (len(before) == 1 and isinstance(before[0], int | None)))


def _content(position: int, *columns: Any) -> LoggedEvent | None:
    stream, version, topic, schema_version, state = columns
    if not all(isinstance(one, bytearray) for one in (stream, topic, state)):
        return None
    if not isinstance(version, int) or not isinstance(schema_version, int):
        return None
    return event_of(position, *columns)


def read_export(lines: IO[bytes], scratch: ScratchStore, bad_lines: list[int]) -> tuple[int, ExportHeader | None]:
    """Take in every line of an export that says something; the numbers of others are added to ``bad_lines``.

    Returns:
        The number of the log in ``scratch``, and the first line with content.
    """
    header = None
    for number, line in enumerate(_whole_lines(lines), 1):
        try:
            if number == 1 and line.startswith(b'{"format":'):
                header = read_header(line)
                continue
            item = read_line(line)
        except RefusedError:
            if line.strip():
                bad_lines.append(number)
            continue
        if isinstance(item, TreeHead):
            scratch.add_head(_THE_LOG, item)
        elif isinstance(item, Hidden):
            scratch.add_event(_THE_LOG, item.position, None, item.leaf)
        else:
            scratch.add_event(_THE_LOG, item.position, item, item.leaf)
    return _THE_LOG, header


def _whole_lines(lines: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is too long only its beginning."""
    while line := lines.readline(MAX_LINE_BYTES):
        yield line
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = lines.readline(MAX_LINE_BYTES)
