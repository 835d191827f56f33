"""Recheck of a whole log, by several processes for a long log.

Each process folds the whole log and checks its own partitions, so that the result equals that of one process.
``worldctl recheck`` imports this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.analysis.log_partitions import Stretch, in_stretches
from worldprotocol.analysis.recheck.recheck import Progress, Rechecking, open_to_recheck
from worldprotocol.analysis.recheck.results import Rechecked
from worldprotocol.api.realm import Realm

__all__ = ["RecheckSetup", "recheck_log"]


@dataclass(frozen=True, slots=True)
class RecheckSetup:
    """Serialisable input of a process that rechecks.

    Args:
        address: the log.
        domain: a reference to the domain.
        projections: references.
        policies: references.
        folder: start of relative references.
        every: continue after the first divergent step.
    """

    address: str
    domain: str
    projections: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    folder: Path = field(default_factory=Path)
    every: bool = False

    def open(self) -> Realm:
        """Open the log for reading only, with the code for the recheck.

        Raises:
            RefusedError: the log cannot be opened, or a reference cannot be loaded.
        """
        parts: dict[str, Any] = {"projections": self.projections, "policies": self.policies, "folder": self.folder}
        return open_to_recheck(self.address, domain=self.domain, **parts)

    def stretches(self) -> Callable[[Stretch], Rechecked]:
        """Return the function that rechecks partitions of the log in ascending order.

        Raises:
            RefusedError: as ``open``.
        """
        return Rechecking(self.open(), every=self.every).stretch


def recheck_log(
    setup: RecheckSetup,
    *,
    after: int = 0,
    upto: int | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Rechecked:
    """Perform the recorded steps of a log again, as ``worldprotocol.analysis.recheck.recheck.recheck`` does.

    Args:
        setup: the log and the code.
        after: position before the first event; what is before it is folded only.
        upto: the last position; None is the newest event.
        jobs: number of processes; None chooses it by the length of the log, at most one for each core.
        progress: called at intervals with the number of events done and of all events.

    Raises:
        RefusedError: as ``RecheckSetup.open``; ``NO_SUCH_EVENT``; ``PROCESS_LOST`` if a process ended unexpectedly.
        DamagedLogError: the log contradicts itself; run ``verify`` first.
    """
    done = Rechecked()
    with setup.open() as world:
        size = world.log.head().size
        last = size if upto is None else upto
        if last > size:
            raise RefusedError(ErrorCode.NO_SUCH_EVENT, f"There is no event {last}; the log has {size}.", position=last)
        checking = Rechecking(world, every=setup.every)
        for at, result in in_stretches(checking.stretch, setup.stretches, last, jobs, after=after):
            done.add(result)
            if done.first is not None and not setup.every:
                break
            if progress is not None:
                progress(at - after, last - after)
    return done
