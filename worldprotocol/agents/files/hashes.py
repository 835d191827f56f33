"""Hashes of contents of files."""

from __future__ import annotations

import hashlib
import os
import stat
from typing import Final

__all__ = ["MAX_BYTES", "UNKNOWN", "content_hash", "is_hash"]

MAX_BYTES: Final = 64 * 1024 * 1024
"""Largest file that is hashed, in bytes."""

UNKNOWN: Final = "unknown"
"""In place of the hash of what is no readable file of at most ``MAX_BYTES``."""

_PREFIX: Final = "sha256-"
_CHUNK: Final = 1024 * 1024


def content_hash(path: str) -> str | None:
    """Return the hash of a file's content, ``sha256-HEX``.

    Args:
        path: absolute, without links.

    Returns:
        None where there is no such file, ``UNKNOWN`` where it cannot be hashed.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return UNKNOWN
    try:
        return _hashed(file)
    except OSError:
        return UNKNOWN
    finally:
        os.close(file)


def is_hash(found: str | None) -> bool:
    """Return whether ``content_hash`` found a content."""
    return found is not None and found.startswith(_PREFIX)


def _hashed(file: int) -> str:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        return UNKNOWN
    found, left = hashlib.sha256(), MAX_BYTES
    while chunk := os.read(file, _CHUNK):
        left -= len(chunk)
        if left < 0:
            return UNKNOWN
        found.update(chunk)
    return _PREFIX + found.hexdigest()
