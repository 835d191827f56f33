"""Recheck of a whole log by as many processes as pay, and what comes out first in the order of the log.

Each process folds the whole log and checks its own stretches of it, so that what they come to is what one process
comes to. ``worldctl recheck`` imports this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from world.errors import RefusedError
from worldprotocol.analysis.log_partitions import Stretch, in_stretches
from worldprotocol.analysis.recheck.recheck import Progress, Rechecking, open_to_recheck
from worldprotocol.analysis.recheck.results import Rechecked
from worldprotocol.api.realm import Realm

__all__ = ["RecheckSetup", "recheck_log"]


@dataclass(frozen=True, slots=True)
class RecheckSetup:
    """What a process needs to recheck; it can be sent to another one.

    Args:
        address: the log.
        domain: a reference to the domain.
        projections: references.
        policies: references.
        folder: where references start.
        every: go on after the first step that came out differently.
    """

    address: str
    domain: str
    projections: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    folder: Path = field(default_factory=Path)
    every: bool = False

    def open(self) -> Realm:
        """Open the log for looking only, with the code to check it with.

        Raises:
            RefusedError: what cannot be opened or loaded.
        """
        parts: dict[str, Any] = {"projections": self.projections, "policies": self.policies, "folder": self.folder}
        return open_to_recheck(self.address, domain=self.domain, **parts)

    def stretches(self) -> Callable[[Stretch], Rechecked]:
        """Return what rechecks stretches of the log, each after the one before.

        Raises:
            RefusedError: as ``open``.
        """
        return Rechecking(self.open(), every=self.every).stretch


def recheck_log(
    setup: RecheckSetup, *, upto: int | None = None, jobs: int | None = None, progress: Progress | None = None
) -> Rechecked:
    """Perform the recorded steps of a log again, as ``worldprotocol.analysis.recheck.recheck.recheck`` does.

    Args:
        setup: the log and the code.
        upto: the last position; None is the newest event.
        jobs: how many processes; None takes as many as pay, at most one for each core.
        progress: called now and then with events done and events in all.

    Raises:
        RefusedError: what cannot be opened or loaded; ``NO_SUCH_EVENT``; ``PROCESS_LOST`` when a process ended by
            itself.
        DamagedLogError: when the log contradicts itself; ``verify`` comes first.
    """
    done = Rechecked()
    with setup.open() as world:
        size = world.log.head().size
        last = size if upto is None else upto
        if last > size:
            raise RefusedError("NO_SUCH_EVENT", f"There is no event {last}; the log has {size}.", position=last)
        here = Rechecking(world, every=setup.every)
        for at, found in in_stretches(here.stretch, setup.stretches, last, jobs):
            done.add(found)
            if done.first is not None and not setup.every:
                break
            if progress is not None:
                progress(at, last)
    return done
