"""What units of work leave to later ones: results that are not recorded, requests not begun, calls for recovery.

Effects are made and recorded by threads of their own, and a commit may fail with an unknown outcome; so whatever is
left is noted here, under a mutex, and the next unit continues it. Source: design sections 2 and 5.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from world.engine.effect_runner import EffectRecorder
from world.events.execution_events import EffectRequested
from world.pipeline.unit_of_work import EffectRef, Task

__all__ = ["Backlog", "Taken"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a unit found in the backlog when it began.

    Args:
        recordings: results of effects, which it records.
        unbegun: requests of effects that this process has not begun.
        recoveries: how often it was asked for that abandoned executions continue.
    """

    recordings: Sequence[EffectRecorder]
    unbegun: Sequence[EffectRequested]
    recoveries: int

    @property
    def must_recover(self) -> bool:
        """Whether the unit looks for executions that no process performs."""
        return self.recoveries > 0 or bool(self.unbegun)

    @property
    def tasks(self) -> list[Task]:
        """The effects that followed results which could not be recorded before."""
        return [task for one in self.recordings if one.is_left for task in one.tasks]


class Backlog:
    """The backlog of the units of one engine; safe to use from many threads."""

    def __init__(self) -> None:
        """Begin with nothing left."""
        self.performing: set[EffectRef] = set()
        """Effects that this process makes, or has made without their result being recorded."""
        self._recordings: list[EffectRecorder] = []
        self._unbegun: list[EffectRequested] = []
        self._recoveries = 0
        self._mutex = threading.Lock()

    def take(self) -> Taken:
        """Return what a unit takes over; it stays here until ``settle``, in case the commit fails."""
        with self._mutex:
            return Taken(tuple(self._recordings), tuple(self._unbegun), self._recoveries)

    def settle(
        self, taken: Taken, *, claimed: AbstractSet[EffectRef], unbegun: Sequence[EffectRequested], is_unfinished: bool
    ) -> None:
        """Note what a unit did that was committed.

        Args:
            taken: what it took over.
            claimed: the effects that this process makes now.
            unbegun: the requests that it did not come to.
            is_unfinished: whether it left work that the next unit has to look for.
        """
        with self._mutex:
            self._unbegun = list(unbegun)
            self._recoveries += is_unfinished - taken.recoveries
            self.performing |= claimed
            for one in taken.recordings:
                self._recordings.remove(one)
                if one.task.ref not in claimed:
                    self.performing.discard(one.task.ref)

    def put_back(self, requests: Sequence[EffectRequested]) -> None:
        """Note requests whose commit may have an unknown outcome; ``settle`` takes them away."""
        with self._mutex:
            self._unbegun += requests

    def add(self, recording: EffectRecorder) -> None:
        """Leave the result of an effect to the next unit."""
        with self._mutex:
            self._recordings.append(recording)

    def release(self, effect: EffectRef) -> None:
        """Note that an effect was broken off, so that another process may make it."""
        with self._mutex:
            self.performing.discard(effect)

    def recover_soon(self) -> None:
        """Have the next unit continue what was broken off."""
        with self._mutex:
            self._recoveries += 1
