"""Folders for temporary files, one for each command, and what a killed engine left of them."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["private_folder", "remove_left"]

_PREFIX: Final = "worldprotocol-"


@contextmanager
def private_folder(owner: str) -> Iterator[str]:
    """Give a command a folder of its own for temporary files, outside of the workspace; yields its real path.

    Args:
        owner: the run's id or the proposal's; it stands in the folder's name, so that it is found after a crash.
    """
    folder = os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{owner}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left(owner: str) -> None:
    """Remove the folders that a killed engine left of a run or a proposal; those of other users are left alone.

    Args:
        owner: as for ``private_folder``.
    """
    place = tempfile.gettempdir()
    for name in os.listdir(place):
        path = os.path.join(place, name)
        if name.startswith(f"{_PREFIX}{owner}-"):
            with contextlib.suppress(OSError):
                found = os.lstat(path)
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                    shutil.rmtree(path, ignore_errors=True)
