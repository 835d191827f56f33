"""Checkpoints: complete states of worlds at regular heights, restored from the events of their ancestors.

Each is restored from the nearest known state and the later patches, so that rebuilding all of them visits every line
of descent once. Only a state with the world's snapshotHash becomes a checkpoint. A damaged event gets no checkpoint;
``verify`` reports it. Source: WP-restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

from world.errors import DamagedLogError
from world.events.codec import MALFORMED
from world.events.realm_events import WorldSealed
from world.model.canonical_json import read_json
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import apply_patches
from world.model.snapshot import error_state_hash

MAX_STEPS: Final = 4_096
"""Maximum distance from a world to a known state, in worlds; beyond it no checkpoint is created."""


class Worlds(Protocol):
    """Source of sealed worlds."""

    def sealed(self, world_id: str) -> WorldSealed | None:
        """Return the event that sealed a world, or None when it does not exist."""
        ...

    def checkpoint(self, world_id: str) -> str | None:
        """Return the stored state of a world as JSON, or None."""
        ...


def checkpoints(sealed: Iterable[WorldSealed], worlds: Worlds, *, every: int) -> Iterator[tuple[str, FrozenDict]]:
    """Yield id and data of each world that needs a checkpoint.

    Args:
        sealed: newly sealed worlds, in log order.
        worlds: source of their ancestors.
        every: number of worlds between two checkpoints on a line of descent.
    """
    restorer = _Restorer(worlds)
    for event in sealed:
        if event.height % every == 0:
            data = restorer.restore(event)
            if data is not None:
                yield event.world_id, data


class _Restorer:
    """Restorer of states, with a cache of its results."""

    def __init__(self, worlds: Worlds) -> None:
        self._worlds = worlds
        self._states: dict[str, FrozenDict] = {}
        self._lost: set[str] = set()

    def restore(self, event: WorldSealed) -> FrozenDict | None:
        """Return the data of a world; None where it cannot be restored, or its hash is not the sealed one."""
        try:
            data = self._checked(event)
        except (DamagedLogError, *MALFORMED):
            data = None
        if data is None:
            self._lost.add(event.world_id)
            return None
        self._states[event.world_id] = data
        if event.parent is not None and not event.patches:  # many failed worlds may have the same parent
            self._states[event.parent] = data
        return data

    def _checked(self, event: WorldSealed) -> FrozenDict | None:
        data = self._restored(event)
        if data is None or error_state_hash(data, event.error) != event.snapshot_hash:
            return None
        return data

    def _restored(self, event: WorldSealed) -> FrozenDict | None:
        chain: list[WorldSealed] = []
        at: WorldSealed | None = event
        while at is not None and at.world_id not in self._lost and len(chain) < MAX_STEPS:
            data = self._known(at)
            if data is not None:
                for step in reversed(chain):
                    data = apply_patches(data, step.patches)
                return data
            chain.append(at)
            at = None if at.parent is None else self._worlds.sealed(at.parent)
        return None

    def _known(self, event: WorldSealed) -> FrozenDict | None:
        """Return the data of a world if it is known without its ancestors."""
        known = self._states.get(event.world_id)
        if known is not None:
            return known
        if event.parent is None:
            return None if event.data is None else _frozen(event.data)
        stored = self._worlds.checkpoint(event.world_id)
        return None if stored is None else _frozen(read_json(stored))


def _frozen(value: Any) -> FrozenDict:
    data: FrozenDict = freeze(value)
    return data
