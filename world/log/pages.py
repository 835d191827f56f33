"""The rows of a SQLite file, read from its pages one by one, without SQLite: for files that it cannot read any more.

No table, index or list of pages is needed. Every page is looked at for itself, as a leaf of a table, whatever its
first byte says; pages of the ``-wal`` stand in for those of the file as far as they were committed. So rows of lost
tables, of freed pages and of a damaged schema are found too, and what is found may be old or damaged: callers must be
able to tell, as the leaf hash of an event does. Nothing is written, and whatever the bytes are, nothing is raised for
them. Source: https://sqlite.org/fileformat2.html sections 1.3, 1.5, 1.6, 2, 4.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Any, Final

__all__ = ["MAX_ROW_BYTES", "rows_of_file"]

MAX_ROW_BYTES: Final = 64 << 20
"""Longest row that is put together, in bytes."""

MAX_COLUMNS: Final = 64
"""Most columns of a row that is looked at."""

_SIZES: Final = (4096, 1024, 2048, 8192, 16384, 32768, 65536, 512)
_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_MAX_VARINT: Final = 9
_INTEGER_BYTES: Final = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}

Columns = tuple[Any, ...]


def rows_of_file(path: str, most_columns: int = MAX_COLUMNS) -> Iterator[tuple[int, Columns]]:
    """Yield row id and columns of everything that reads as a row of a table.

    Args:
        path: the file; its ``-wal`` is read too where there is one.
        most_columns: rows with more are left out.

    Yields:
        Text comes as bytes in a ``bytearray``, blobs as ``bytes``, numbers as they are, NULL as None. A row may come
        twice.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        told, found = _page_size(file.read(100)), False
        for size in _SIZES:
            if size in (told, _SIZES[0]) or not found:  # what the file says of its pages may be damaged too
                for row in _rows_with(path, file, size, most_columns):
                    found = True
                    yield row


def _page_size(header: bytes) -> int:
    """Return the size of pages that a file names."""
    told = int.from_bytes(header[16:18], "big")
    return 65536 if told == 1 else told


def _rows_with(path: str, file: IO[bytes], size: int, most: int) -> Iterator[tuple[int, Columns]]:
    try:
        wal = open(path + "-wal", "rb")  # noqa: SIM115  # closed below; that there is none is no error
    except OSError:
        yield from _Pages(file, size, None, {}).rows(most)
        return
    with wal:
        frames = _committed_frames(wal, size)
        if frames:
            yield from _Pages(file, size, wal, frames).rows(most)
        yield from _Pages(file, size, None, {}).rows(most)


def _committed_frames(wal: IO[bytes], size: int) -> dict[int, int]:
    """Return where in the ``-wal`` the newest committed content of each page begins.

    A frame counts by its salt alone: a checksum that does not fit says that something is damaged, not what.
    """
    header = wal.read(_WAL_HEADER)
    salt, committed, pending = header[16:24], dict[int, int](), dict[int, int]()
    offset, end = _WAL_HEADER, os.fstat(wal.fileno()).st_size
    while offset + _FRAME_HEADER + size <= end:
        wal.seek(offset)
        told = wal.read(_FRAME_HEADER)
        if told[8:16] == salt:
            pending[int.from_bytes(told[:4], "big")] = offset + _FRAME_HEADER
            if any(told[4:8]):
                committed |= pending
                pending = {}
        offset += _FRAME_HEADER + size
    return committed


class _Pages:
    """The pages of a file, with newer ones of a ``-wal`` in their places."""

    def __init__(self, file: IO[bytes], size: int, wal: IO[bytes] | None, frames: dict[int, int]) -> None:
        self._file, self._size, self._wal, self._frames = file, size, wal, frames
        pages = -(-os.fstat(file.fileno()).st_size // size)
        self._last = max([pages, *(number for number in frames if number <= pages + len(frames))])

    def rows(self, most: int) -> Iterator[tuple[int, Columns]]:
        for number in range(1, self._last + 1):
            page = self._read(number)
            for payload, row_id in self._cells(page, 100 if number == 1 else 0):
                columns = _columns(payload, most)
                if columns is not None:
                    yield row_id, columns

    def _read(self, number: int) -> bytes:
        offset = self._frames.get(number)
        source = self._file if offset is None or self._wal is None else self._wal
        source.seek((number - 1) * self._size if offset is None else offset)
        return source.read(self._size).ljust(self._size, b"\x00")

    def _cells(self, page: bytes, start: int) -> Iterator[tuple[bytes, int]]:
        """Yield the content and the row id of each cell of a page, as far as it has any."""
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        first = start + 8
        if first + 2 * count > self._size:
            return
        for at in range(first, first + 2 * count, 2):
            cell = int.from_bytes(page[at : at + 2], "big")
            if cell < first + 2 * count:
                continue
            length, cell = _varint(page, cell)
            row_id, cell = _varint(page, cell)
            if length is None or row_id is None or not 0 < length <= MAX_ROW_BYTES:
                continue
            payload = self._payload(page, cell, length)
            if payload is not None:
                yield payload, row_id - (1 << 64) if row_id >> 63 else row_id

    def _payload(self, page: bytes, start: int, length: int) -> bytes | None:
        """Put the content of a cell together, with what stands on overflow pages."""
        room = self._size  # no bytes of a page are reserved in our files
        local = length
        if length > room - 35:
            least = (room - 12) * 32 // 255 - 23
            local = least + (length - least) % (room - 4)
            local = local if local <= room - 35 else least
        if start + local > self._size:
            return None
        parts, rest = [page[start : start + local]], length - local
        following = int.from_bytes(page[start + local : start + local + 4], "big") if rest else 0
        while rest > 0:
            if not 0 < following <= self._last:
                return None
            more = self._read(following)
            parts.append(more[4 : 4 + rest])
            rest -= len(parts[-1])
            following = int.from_bytes(more[:4], "big")
        return b"".join(parts)


def _varint(data: bytes, at: int) -> tuple[int | None, int]:
    """Return the number that begins at an offset, and where it ends; None where it is cut off."""
    value = 0
    for count in range(_MAX_VARINT):
        if at >= len(data):
            return None, at
        byte = data[at]
        at += 1
        if count == _MAX_VARINT - 1:
            return value << 8 | byte, at
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, at


def _columns(payload: bytes, most: int) -> Columns | None:
    """Return the values of a record; None for what is none, or has too many."""
    end, at = _varint(payload, 0)
    if end is None or end > len(payload) or end > most * _MAX_VARINT:
        return None
    kinds: list[int] = []
    while at < end:
        kind, at = _varint(payload, at)
        if kind is None or len(kinds) == most:
            return None
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        length = _INTEGER_BYTES.get(kind, 8 if kind == 7 else 0) if kind < 12 else (kind - 12) // 2
        data = payload[at : at + length]
        if len(data) != length or kind in (10, 11):
            return None
        at += length
        values.append(_value(kind, data))
    return tuple(values)


def _value(kind: int, data: bytes) -> Any:
    if kind >= 12:
        return bytearray(data) if kind & 1 else data
    if kind in (8, 9):
        return kind - 8
    return None if kind in (0, 7) else int.from_bytes(data, "big", signed=True)
