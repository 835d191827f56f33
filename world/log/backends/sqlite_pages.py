"""The rows of a SQLite file, read from its bytes, without SQLite: for files that it cannot read any more.

No table, index, page header or list of pages is needed: a row of a table whose key is an integer, as ours are, is found
by how its record begins, at any place. So rows of lost tables, of freed and of half destroyed pages are found
too, also where bytes were inserted or are missing before them. Only the continuation of a long row is found by the
numbers of pages, which are looked for at their places, and beside them where the file is no longer whole pages. Of the
``-wal`` everything that was committed is looked at. What is found may be old or damaged: callers must be able to
distinguish it, as the leaf hash of an event does. Nothing is written, and whatever the bytes are, nothing is raised for
them.
Source: https://sqlite.org/fileformat2.html sections 1.3, 1.5, 1.6, 2, 4.
"""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
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
_LOOK_BYTES: Final = 1 << 20
_MOST_SHIFTS: Final = 4
_RECORD: Final = re.compile(rb"[\x03-\x7f](?=\x00[^\x00])")
"""How a record begins: the length of its header, NULL in place of the key, and a column that is not NULL."""

_LEAF: Final = re.compile(rb"\x0d\x00\x00(?=....\x00)", re.DOTALL)
"""How a leaf of a table begins from which nothing was deleted."""

Columns = tuple[Any, ...]


def rows_of_file(path: str, most_columns: int = MAX_COLUMNS) -> Iterator[tuple[int, Columns]]:
    """Yield row id and columns of everything that reads as a row of a table with an integer key.

    Args:
        path: the file; its ``-wal`` is read too where there is one.
        most_columns: rows with more are left out.

    Yields:
        Text comes as bytes in a ``bytearray``, blobs as ``bytes``, numbers as they are, NULL and the key as None. A row
        may come twice.

    Raises:
        OSError: the file cannot be read.
    """
    with ExitStack() as open_files:
        file = open_files.enter_context(open(path, "rb"))
        try:
            wal = open_files.enter_context(open(path + "-wal", "rb"))
        except OSError:
            wal = None  # that there is none is no error
        sizes = _page_sizes(file.read(100))
        books = [_Book(file, size, wal, _Frames() if wal is None else _committed_frames(wal, size)) for size in sizes]
        yield from _rows(file, range(0, _length_of(file), _LOOK_BYTES), _LOOK_BYTES, books, most_columns)
        for book in books:
            if wal is not None:
                yield from _rows(wal, book.frames.every, book.size, [book], most_columns)


def _page_sizes(header: bytes) -> Sequence[int]:
    """Return the sizes that pages may have: what a file says of itself may be damaged too."""
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65536 if page_size == 1 else page_size
    return tuple(dict.fromkeys((page_size, _SIZES[0]))) if page_size in _SIZES else _SIZES


def _length_of(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def _rows(
    file: IO[bytes], offsets: Sequence[int], length: int, books: Sequence[_Book], most: int
) -> Iterator[tuple[int, Columns]]:
    """Yield the rows that begin in parts of a file."""
    for offset in offsets:
        before = min(offset, _MAX_VARINT)
        file.seek(offset - before)
        data = file.read(before + length + max(_SIZES))
        for match in _RECORD.finditer(data, before, before + length + 2):
            start = match.start()
            row_id, record = _row_id(data, start), _record(data, start, most)
            if row_id is not None and record is not None:
                seen: list[bytes] = []
                for book in books:
                    for payload in book.payloads(data, start, record.length):
                        if payload not in seen:
                            seen.append(payload)
                            yield row_id, record.values(payload)


def _row_id(data: bytes, end: int) -> int | None:
    """Return the number that ends at an offset, which is the row id before a record; None where none does."""
    begin = max(end - 1, 0)
    while begin > max(end - _MAX_VARINT, 0) and data[begin - 1] >= 0x80:
        begin -= 1
    value, at = _varint(data, begin)
    if value is None or at != end:
        return None
    return value - (1 << 64) if value >> 63 else value


@dataclass(slots=True)
class _Frames:
    """What was committed to a ``-wal``.

    Args:
        newest: where the newest content of each page begins.
        every: where any content of a page begins.
    """

    newest: dict[int, int] = field(default_factory=dict)
    every: array[int] = field(default_factory=lambda: array("q"))


def _committed_frames(wal: IO[bytes], size: int) -> _Frames:
    """Return where in the ``-wal`` the committed contents of pages begin.

    A frame counts by its salt alone: a checksum that does not fit says that something is damaged, not what. Where no
    frame has the salt of the header, that is damaged too, and the first frame's counts.
    """
    step, end = _FRAME_HEADER + size, _length_of(wal)
    wal.seek(0)
    header = wal.read(_WAL_HEADER + _FRAME_HEADER)
    for salt in (header[16:24], header[_WAL_HEADER + 8 : _WAL_HEADER + 16]):
        frames, pending, committed = _Frames(), dict[int, int](), 0
        for offset in range(_WAL_HEADER, end - step + 1, step):
            wal.seek(offset)
            frame = wal.read(_FRAME_HEADER)
            if frame[8:16] != salt:
                continue
            pending[int.from_bytes(frame[:4], "big")] = offset + _FRAME_HEADER
            frames.every.append(offset + _FRAME_HEADER)
            if any(frame[4:8]):
                frames.newest |= pending
                pending, committed = {}, len(frames.every)
        if committed:
            del frames.every[committed:]
            return frames
    return _Frames()


class _Book:
    """A file taken as pages of one size, on which long rows go on."""

    def __init__(self, file: IO[bytes], size: int, wal: IO[bytes] | None, frames: _Frames) -> None:
        self.size, self.frames = size, frames
        self._file, self._wal = file, wal
        pages = -(-_length_of(file) // size)
        newest = frames.newest
        self._last = max([pages, *(number for number in newest if number <= pages + len(newest))])
        self._shifts: Sequence[int] | None = None

    def payloads(self, data: bytes, start: int, length: int) -> Iterator[bytes]:
        """Yield what may be the record of this length that begins at an offset: more than one where pages moved."""
        if length > min(MAX_ROW_BYTES, self._last * self.size):
            return
        local = self._local(length)
        if start + local > len(data):
            return
        if local == length:
            yield data[start : start + length]
            return
        for is_newest in (True, False) if self.frames.newest else (False,):
            for shift in self._beside():
                payload = self._long(data, start, local, length, shift, is_newest)
                if payload is not None:
                    yield payload

    def _local(self, length: int) -> int:
        """Return how much of a record is on its first page; no bytes of a page are reserved in our files."""
        if length <= self.size - 35:
            return length
        least = (self.size - 12) * 32 // 255 - 23
        local = least + (length - least) % (self.size - 4)
        return local if local <= self.size - 35 else least

    def _long(self, data: bytes, start: int, local: int, length: int, shift: int, is_newest: bool) -> bytes | None:
        """Join a record with the content of its overflow pages."""
        parts, rest = [data[start : start + local]], length - local
        following = int.from_bytes(data[start + local : start + local + 4], "big")
        passed = set[int]()
        while rest > 0:
            if not 0 < following <= self._last or following in passed:
                return None
            passed.add(following)
            page = self._page(following, shift, is_newest)
            parts.append(page[4 : 4 + rest])
            rest -= len(parts[-1])
            following = int.from_bytes(page[:4], "big")
        return b"".join(parts)

    def _page(self, number: int, shift: int, is_newest: bool) -> bytes:
        """Return a page that is some bytes behind its place, or before it; zeros beyond the end of the file."""
        place, source = (number - 1) * self.size + shift, self._file
        if is_newest and self._wal is not None and number in self.frames.newest:
            place, source = self.frames.newest[number], self._wal
        source.seek(max(place, 0))
        return source.read(self.size).ljust(self.size, b"\x00")

    def _beside(self) -> Sequence[int]:
        """Return how far from their places pages seem to stand: by what is over at the end, and by what is seen."""
        if self._shifts is None:
            found: Counter[int] = Counter()
            for offset in range(0, _length_of(self._file), _LOOK_BYTES):
                self._file.seek(offset)
                for match in _LEAF.finditer(self._file.read(_LOOK_BYTES)):
                    found[(offset + match.start()) % self.size] += 1
            over = {_length_of(self._file) % self.size, *(shift for shift, _ in found.most_common(_MOST_SHIFTS))}
            self._shifts = (0, *(one for shift in sorted(over - {0, 100}) for one in (shift, shift - self.size)))
        return self._shifts


@dataclass(frozen=True, slots=True)
class _Record:
    """What the header of a record says.

    Args:
        kinds: of its columns.
        begin: where the first of them begins.
        length: of the whole record, in bytes.
    """

    kinds: Sequence[int]
    begin: int
    length: int

    def values(self, payload: bytes) -> Columns:
        """Return the values of the columns."""
        at, values = self.begin, list[Any]()
        for kind in self.kinds:
            length = _length(kind)
            values.append(_value(kind, payload[at : at + length]))
            at += length
        return tuple(values)


def _record(data: bytes, start: int, most: int) -> _Record | None:
    """Read the header of a record; None for what is none, or has too many columns."""
    end, at = start + data[start], start + 1
    kinds: list[int] = []
    while at < end:
        kind, at = _varint(data, at)
        if kind is None or kind in (10, 11) or len(kinds) == most:
            return None
        kinds.append(kind)
    return _Record(kinds, at - start, at - start + sum(map(_length, kinds))) if at == end else None


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


def _length(kind: int) -> int:
    """Return how many bytes a column has."""
    return _INTEGER_BYTES.get(kind, 8 if kind == 7 else 0) if kind < 12 else (kind - 12) // 2


def _value(kind: int, data: bytes) -> Any:
    if kind >= 12:
        return bytearray(data) if kind & 1 else data
    if kind in (8, 9):
        return kind - 8
    return None if kind in (0, 7) else int.from_bytes(data, "big", signed=True)
