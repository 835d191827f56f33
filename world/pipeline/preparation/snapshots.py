"""Cache of the snapshots of recently used worlds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from world.model.snapshot import Snapshot

__all__ = ["MAX_SNAPSHOTS", "SnapshotCache"]

MAX_SNAPSHOTS: Final = 64
"""Snapshots in the cache of a process."""


class SnapshotCache:
    """The least recently used snapshots are dropped; safe to use from many threads.

    The id of a world is a hash of its content and of its parents, so an entry is valid in every unit of work and in
    every preparation, also where the world was never committed.
    """

    __slots__ = ("_lock", "_most", "_snapshots")

    def __init__(self, most: int = MAX_SNAPSHOTS) -> None:
        """Begin empty.

        Args:
            most: number of snapshots that are kept.
        """
        self._most = most
        self._snapshots: OrderedDict[str, Snapshot] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, world_id: str) -> Snapshot | None:
        """Return the snapshot of a world; None where it is not in the cache."""
        with self._lock:
            found = self._snapshots.get(world_id)
            if found is not None:
                self._snapshots.move_to_end(world_id)
            return found

    def keep(self, world_id: str, snapshot: Snapshot) -> None:
        """Add the snapshot of a world."""
        with self._lock:
            self._snapshots[world_id] = snapshot
            self._snapshots.move_to_end(world_id)
            while len(self._snapshots) > self._most:
                self._snapshots.popitem(last=False)

    def clear(self) -> None:
        """Drop all snapshots."""
        with self._lock:
            self._snapshots.clear()
