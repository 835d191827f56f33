"""Where a salvage reads: the pages of a SQLite file, the rows that a server still gives, the lines of an export.

Nothing is written there, whatever it is. A SQLite file is read without SQLite, so that neither a damaged schema nor a
damaged index is in the way, and its ``-wal`` stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import IO, Any, Final

from world.errors import DamagedLog, Refused
from world.log import EventLog, LoggedEvent, open_log
from world.log.log import READ_BATCH
from world.log.merkle import HASH_BYTES
from world.log.pages import rows_of_file
from world.log.tables import LOG_SHIFT, POSITION_MASK
from world.log.values import TreeHead
from worldprotocol.salvage.scratch import Scratch
from worldprotocol.transfer import MAX_LINE_BYTES, Hidden, read_header, read_line

__all__ = ["read_export", "read_file", "read_server"]

Progress = Callable[[int, int], None]

_EVENT_COLUMNS: Final = 8
_MAX_LOGS: Final = 1 << 23
_THE_LOG: Final = 1


def read_file(path: str, scratch: Scratch) -> None:
    """Take in every row of a SQLite file that has the form of an event, a tree head, a chunk, or a log's name.

    Raises:
        Refused: ``LOG_NOT_FOUND`` where there is no file, ``FILE_UNREADABLE``.
    """
    if not os.path.isfile(path):
        raise Refused("LOG_NOT_FOUND", f"There is no file {path}. Check the path.")
    try:
        for key, columns in rows_of_file(path, _EVENT_COLUMNS):
            log, place = key >> LOG_SHIFT, key & POSITION_MASK
            match columns:
                case (None, int(), stream, version, topic, schema_version, leaf, state) if 0 < log < _MAX_LOGS:
                    content = _content(place, stream, version, topic, schema_version, state)
                    scratch.add_event(log, place, content, leaf if isinstance(leaf, bytes) else None)
                case (None, bytes() as root) if len(root) == HASH_BYTES and log > 0:
                    scratch.add_head(log, TreeHead(place, root))
                case (None, bytes() as root, bytes()) if len(root) == HASH_BYTES and log > 0:
                    scratch.add_chunk(log, place, root)
                case (None, bytearray() as name) if 0 < key < _MAX_LOGS:
                    scratch.add_name(key, name.decode("utf-8", "replace"))
    except OSError as error:
        raise Refused("FILE_UNREADABLE", f"{path} cannot be read: {error.strerror}.", path=path) from None


def _content(position: int, *columns: Any) -> LoggedEvent | None:
    stream, version, topic, schema_version, state = columns
    if not all(isinstance(one, bytearray) for one in (stream, topic, state)):
        return None
    if not isinstance(version, int) or not isinstance(schema_version, int):
        return None
    try:
        return LoggedEvent(position, stream.decode(), version, topic.decode(), schema_version, bytes(state), b"")
    except UnicodeDecodeError:
        return None


def read_server(address: str, scratch: Scratch) -> int:
    """Take in every row that a server still gives of a log; what it cannot read is left out row by row.

    Returns:
        The number under which the log stands in ``scratch``.

    Raises:
        WorldProtocolError: the server cannot be reached, or has no such log.
    """
    with open_log(address, read_only=True) as log:
        for position, stream, version, topic, schema_version, state, leaf, *_ in _stored(log):
            content = None
            if isinstance(state, bytes):
                content = LoggedEvent(position, stream, version, topic, schema_version, state, b"")
            scratch.add_event(_THE_LOG, position, content, leaf if isinstance(leaf, bytes) else None)
        for read in (_read_heads, _read_chunks):
            try:
                read(log, scratch)
            except DamagedLog:  # less is proven then
                continue
    return _THE_LOG


def _stored(log: EventLog) -> Iterator[tuple[Any, ...]]:
    """Yield the stored rows of all events; around what cannot be read, rows are asked for one by one."""
    after, count, failed = 0, READ_BATCH, 0
    while True:
        try:
            rows = log.audit_rows(after, count)
        except DamagedLog:
            if count > 1:
                count = max(count // 8, 1)
                continue
            failed += 1
            if failed > READ_BATCH:
                return
            after += 1
            continue
        if not rows:
            return
        yield from rows
        after, failed, count = rows[-1][0], 0, min(count * 2, READ_BATCH)


def _read_heads(log: EventLog, scratch: Scratch) -> None:
    for head in log.heads(0, POSITION_MASK):
        if isinstance(head.root, bytes):
            scratch.add_head(_THE_LOG, head)


def _read_chunks(log: EventLog, scratch: Scratch) -> None:
    after = -1
    while rows := log.audit_chunks(after, READ_BATCH):
        for number, root, _ in rows:
            if isinstance(root, bytes) and len(root) == HASH_BYTES:
                scratch.add_chunk(_THE_LOG, number, root)
        after = rows[-1][0]


def read_export(lines: IO[bytes], scratch: Scratch, bad_lines: list[int]) -> tuple[int, str | None]:
    """Take in every line of an export that says something; the numbers of others are added to ``bad_lines``.

    Returns:
        The number under which the log stands in ``scratch``, and its name where the first line still says it.
    """
    name = None
    for number, line in enumerate(_whole_lines(lines), 1):
        try:
            if number == 1 and line.startswith(b'{"format":'):
                name = read_header(line).name
                continue
            item = read_line(line)
        except Refused:
            if line.strip():
                bad_lines.append(number)
            continue
        if isinstance(item, TreeHead):
            scratch.add_head(_THE_LOG, item)
        elif isinstance(item, Hidden):
            scratch.add_event(_THE_LOG, item.position, None, item.leaf)
        else:
            scratch.add_event(_THE_LOG, item.position, item, item.leaf)
    return _THE_LOG, name


def _whole_lines(lines: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is too long only its beginning."""
    while line := lines.readline(MAX_LINE_BYTES):
        yield line
        while len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            line = lines.readline(MAX_LINE_BYTES)
