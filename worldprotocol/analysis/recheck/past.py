"""Worker registry of a recheck."""

from __future__ import annotations

__all__ = ["Nobody"]


class Nobody:
    """No worker: a recheck executes nothing."""

    me = "recheck"

    def is_gone(self, worker: str) -> bool:
        """Return False; a recheck never takes over work."""
        return False

    def close(self) -> None:
        """Do nothing."""
