"""Private folders for temporary files, one for each command, and their removal after a crash."""

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
    """Create a folder for a command's temporary files outside the workspace; yield its real path.

    Args:
        owner: id of the run or proposal; part of the folder's name, so that it is found after a crash.
    """
    folder = os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{owner}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left(owner: str) -> None:
    """Delete folders that a killed engine left for a run or proposal; those of other users are kept.

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
