"""Bounds of a workspace that is compared and saved: without them one command could keep all later ones from ending."""

from __future__ import annotations

import os
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["MAX_DEPTH", "MAX_ENTRIES", "check_bounds"]

MAX_DEPTH: Final = 200
"""Levels of folders below the root."""

MAX_ENTRIES: Final = 1_000_000
"""Files, folders and others, without those that are not compared."""


def check_bounds(path: bytes, entries: int) -> None:
    """Refuse a workspace that is too deep or has too many entries.

    Args:
        path: an entry, below the root.
        entries: how many were found so far.

    Raises:
        RefusedError: ``WORKSPACE_TOO_LARGE``.
    """
    if path.count(b"/") >= MAX_DEPTH:
        what = f"has folders below each other on more than {MAX_DEPTH} levels, in {os.fsdecode(path[:60])!r}..."
    elif entries > MAX_ENTRIES:
        what = f"has more than {MAX_ENTRIES:,} entries"
    else:
        return
    raise RefusedError(
        ErrorCode.WORKSPACE_TOO_LARGE,
        f"The workspace {what}, so it is not compared and not saved. Delete what is not needed, or name a folder in "
        "`unwatched` of `[workspace]`.",
    )
