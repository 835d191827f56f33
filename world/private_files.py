"""Files that may hold secrets or events: only their owner can read what the engine makes anew."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import IO, Final

__all__ = ["FILE_MODE", "make_private", "open_private"]

FILE_MODE: Final = 0o600
"""The mode of a new file, whatever the umask is."""


def open_private(path: str | Path, mode: str = "wb", *, replaces: str | Path | None = None) -> IO[bytes]:
    """Open a file for writing; a new one is made with mode 0600, and one that exists keeps its mode.

    Args:
        path: the file.
        mode: ``wb`` or ``a+b``.
        replaces: the file in whose place this one will be put. It gets that one's mode, so that a file that was made
            readable for a group stays so; where there is none, 0600.

    Raises:
        OSError: it cannot be opened.
    """
    file: IO[bytes] = open(path, mode, opener=lambda name, flags: os.open(name, flags, FILE_MODE))  # noqa: SIM115
    if replaces is not None:
        try:
            chosen = stat.S_IMODE(os.stat(replaces).st_mode)
        except OSError:
            chosen = FILE_MODE
        os.fchmod(file.fileno(), chosen)
    return file


def make_private(path: str | Path) -> None:
    """Make an empty file with mode 0600 where there is none.

    Raises:
        OSError: it cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
