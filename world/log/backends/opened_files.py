"""The files of an open SQLite log, and whether their names still lead to them.

A program that renames, replaces or deletes the file of an open log, or its ``-wal`` or ``-shm``, leaves SQLite
writing to files that are under another name or none. SQLite in WAL mode does not check for that. So device and
inode of each are noted when it is opened, and compared before and after every commit. The real path of the file
is compared too: SQLite puts ``-wal`` and ``-shm`` beside it, and a file that became a link has others.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final, NoReturn

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.log.store import lost_tables, not_a_log

_COMPANIONS: Final = ("-wal", "-shm")
_SCHEMA_BYTES: Final = 1 << 16  # our schema is on the first page


class OpenedFiles:
    """Device and inode of a SQLite file and its companions as of when they were opened; safe from any thread."""

    def __init__(self, path: str) -> None:
        """Note the file under a path, which a connection has just opened.

        Args:
            path: the file; a relative path starts at the current working directory.
        """
        self._path = os.path.abspath(path)
        self._real = os.path.realpath(path)
        self._file = identity(self._path)
        self._expected = [(self._real, self._file)]  # names that must lead to a file without a link as last part
        self._moved: str | None = None

    def note_companions(self) -> None:
        """Note ``-wal`` and ``-shm``, which a connection has opened; one that does not exist is not compared."""
        known = {name for name, _ in self._expected}
        for name in (self._real + companion for companion in _COMPANIONS):
            if name not in known and (found := identity(name)) is not None:
                self._expected.append((name, found))

    def refuse_moved(self) -> None:
        """Refuse everything once a file was found moved.

        Raises:
            WorldProtocolError: ``LOG_MOVED``.
        """
        if self._moved is not None:
            raise _error(self._path, self._moved, "This process does nothing more with the log")

    def check(self, consequence: str) -> None:
        """Compare the files under the names with those that were opened.

        Args:
            consequence: what became of the commit, as a clause for the error's message.

        Raises:
            WorldProtocolError: ``LOG_MOVED`` when a name leads to another file or to none; from then on
                ``refuse_moved`` raises as well.
        """
        for name, opened in self._expected:
            try:
                status = os.lstat(name)
            except OSError:
                self._fail(name, consequence)
            if (status.st_dev, status.st_ino) != opened:
                self._fail(name, consequence)
        if self._real != self._path and identity(self._path) != self._file:
            self._fail(self._path, consequence)

    def _fail(self, name: str, consequence: str) -> NoReturn:
        self._moved = name
        raise _error(self._path, name, consequence)


def identity(path: str) -> tuple[int, int] | None:
    """Return device and inode of the file that a path leads to; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _error(path: str, name: str, consequence: str) -> WorldProtocolError:
    return WorldProtocolError(
        ErrorCode.LOG_MOVED,
        f"{name} is not the file any more that was opened as part of the log {path}: it was renamed, replaced or "
        f"deleted. {consequence}. Put the file and its -wal back, or decide which file is the log, then open it again.",
        path=path,
        moved=name,
    )


def check_path(path: str, *, create: bool, read_only: bool) -> None:
    """Refuse a path at which no log can be opened.

    Args:
        path: the file.
        create: whether a missing or empty file becomes a log.
        read_only: whether nothing is created all the same.

    Raises:
        RefusedError: ``LOG_NOT_FOUND``, ``LOG_UNAVAILABLE``, ``NOT_A_LOG``.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if create and not read_only:
            if os.path.isdir(os.path.dirname(os.path.abspath(path))):
                return
            raise RefusedError(
                ErrorCode.LOG_NOT_FOUND, f"The directory of {path} does not exist; make it first."
            ) from None
        raise RefusedError(
            ErrorCode.LOG_NOT_FOUND, f"There is no file {path}. Check the path, or create the log."
        ) from None
    except OSError as error:
        raise RefusedError(ErrorCode.LOG_UNAVAILABLE, f"The file {path} cannot be reached: {error.strerror}.") from None
    if os.path.isdir(path):
        raise not_a_log(path, "it is a directory; give the file in it, or parquet:///FOLDER for exported tables")
    if not os.path.isfile(path):
        raise not_a_log(path, "it is no regular file")
    if status.st_size == 0 and not create:
        raise not_a_log(path, "the file is empty; create the log, or give another file", is_empty=True)


def no_database(path: str) -> WorldProtocolError:
    """Return the error for a file that SQLite does not take for a database: a damaged log where it has our tables."""
    beginning = b""
    with suppress(OSError), open(path, "rb") as file:
        beginning = file.read(_SCHEMA_BYTES)
    if b"CREATE TABLE wp_event" in beginning:
        return lost_tables(path, "its first bytes are not those of a SQLite database")
    return not_a_log(path, "the file is no SQLite database")
