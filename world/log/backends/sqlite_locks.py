"""Which process holds the lock of writers of a SQLite file, as the kernel reports it.

SQLite has no owner of a lock that another process could ask for, and no process can end the transaction of another one.
So a process that is stopped while it writes stops all writers of the file, and all that can be done is to name it. Only
``/proc/locks`` is read: whoever opens and closes a file of an open database loses SQLite's own locks on it (POSIX
advisory locks), so that asking with ``F_GETLK`` would break what it looks at.

Source: https://sqlite.org/walformat.html section 2.3 (locks of a file in WAL mode), https://sqlite.org/lockingv3.html.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from msgspec import Struct

from world.log.backends.opened_files import identity

__all__ = ["LockHolder", "lock_holder"]

_WAL_WRITE_LOCK: Final = 120
"""Byte of ``-shm`` that a writer of a file in WAL mode locks."""

_RESERVED_BYTE: Final = 0x40000001
"""Byte of the file that a writer locks in another journal mode, such as that of a file that is being created."""

_STOPPED: Final = ("T", "t")


class LockHolder(Struct, frozen=True):
    """A process that holds the lock of writers.

    Args:
        pid: its process id, in the namespace of the calling process.
        name: the name of its program, empty where it cannot be read.
        is_stopped: whether it was stopped, as by SIGSTOP or a debugger, and so releases nothing.
    """

    pid: int
    name: str
    is_stopped: bool

    def __str__(self) -> str:
        """Return the process as part of a sentence."""
        named = f"process {self.pid}" + (f" ({self.name})" if self.name else "")
        return f"{named}, which is stopped" if self.is_stopped else named


def lock_holder(path: str) -> LockHolder | None:
    """Return the process that holds the lock of writers of a SQLite file now.

    A writer holds it for milliseconds; a caller that wants to know what is in the way asks after it has waited.

    Args:
        path: the file.

    Returns:
        The process; None where none holds the lock, where it is in another container or on another machine, and where
        the system has no ``/proc/locks``.
    """
    real = os.path.realpath(path)
    places = {(identity(f"{real}-shm"), _WAL_WRITE_LOCK), (identity(real), _RESERVED_BYTE)}
    try:
        with open("/proc/locks", encoding="ascii") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        with suppress(ValueError):  # a line of another form, such as that of a process that waits
            _, kind, _, mode, pid, inode, first, last = line.split()
            if (kind, mode) == ("POSIX", "WRITE") and _covers(places, inode, first, last):
                return _process(int(pid))
    return None


def _covers(places: set[tuple[tuple[int, int] | None, int]], inode: str, first: str, last: str) -> bool:
    """Return whether the locked bytes of a file are among places, each a file's device and inode, and a byte."""
    major, minor, number = inode.split(":")
    found = os.makedev(int(major, 16), int(minor, 16)), int(number)
    end = float("inf") if last == "EOF" else int(last)
    return any(file == found and int(first) <= byte <= end for file, byte in places)


def _process(pid: int) -> LockHolder:
    name = state = ""
    with suppress(OSError, ValueError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        beginning, _, rest = file.read().rpartition(")")
        name, state = beginning.partition("(")[2], rest.split()[0]
    return LockHolder(pid, name, state in _STOPPED)
