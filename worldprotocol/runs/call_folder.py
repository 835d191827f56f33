"""The file by which the shell of a coding agent learns in which folder the command of its call ended."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["folder_file"]


def folder_file(root: Path, key: str) -> Path:
    """Return the file in which a run records the folder in which its command ended.

    Args:
        root: the workspace.
        key: the key of the call.
    """
    return root / ".klock" / "calls" / hashlib.sha256(key.encode()).hexdigest()[:32]
