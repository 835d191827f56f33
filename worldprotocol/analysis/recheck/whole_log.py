"""Recheck of whole logs, by several processes for long logs.

Each process folds a log as far as it needs and checks its own stretches, so that the result equals that of one process.
``worldctl recheck`` imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.read_models.live.sealed_snapshot import archived_upto
from worldprotocol.analysis.recheck.recheck import Rechecking, open_to_recheck
from worldprotocol.analysis.recheck.results import Rechecked
from worldprotocol.analysis.work.code_identities import CodeIdentities, check_same_code, identities_of
from worldprotocol.analysis.work.stretches import LogWork, Progress, Stretch, audit_logs, check_same_log
from worldprotocol.analysis.work.workers import Workers
from worldprotocol.api.bootstrap import TreeHead
from worldprotocol.api.realm import Realm

__all__ = ["LogRecheck", "RecheckSetup", "recheck_log", "recheck_logs"]

FOLD: Final = 0.25
"""Cost of folding an event, relative to checking it (measured with ``bench.judged``: 0.22)."""


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
        expected: a tree head of the log, which another process compares with what it opens; None compares nothing.
        code: identities of the code, which another process compares with what it loads; None compares nothing.
    """

    address: str = field(repr=False)
    domain: str
    projections: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    folder: Path = field(default_factory=Path)
    every: bool = False
    expected: TreeHead | None = None
    code: CodeIdentities | None = None

    def open(self) -> Realm:
        """Open the log for reading only, with the code for the recheck.

        Raises:
            RefusedError: the log cannot be opened, or a reference cannot be loaded.
        """
        parts: dict[str, Any] = {"projections": self.projections, "policies": self.policies, "folder": self.folder}
        return open_to_recheck(self.address, domain=self.domain, **parts)

    @contextmanager
    def stretches(self) -> Iterator[Callable[[Stretch], Rechecked]]:
        """Open the log, and give the function that rechecks stretches of it; it closes the log.

        Stretches may come in any order; for one before the last, the log is folded from the beginning again.

        Raises:
            RefusedError: as ``open``; ``CLUSTER_UNFIT`` for other code or another log than the expected one.
        """
        with self.open() as world:
            if self.code is not None:
                check_same_code(_code_of(world), self.code)
            check_same_log(world.log, self.expected)
            checking = Rechecking(world, every=self.every)
            begun = 0

            def recheck(stretch: Stretch) -> Rechecked:
                nonlocal checking, begun
                if stretch[0] < begun:
                    checking = Rechecking(world, every=self.every)
                begun = stretch[1]
                return checking.stretch(stretch)

            yield recheck


@dataclass(slots=True)
class LogRecheck:
    """Recheck of one log: what is rechecked, and the result so far.

    Args:
        setup: the log and the code.
        after: position before the first event; what is before it is folded only. A cut log begins after its cut.
        upto: the last position; None is the newest event.
        done: the result, complete after ``recheck_logs``.
        error: why there is no recheck of this log, or why it ended early.
    """

    setup: RecheckSetup
    after: int = 0
    upto: int | None = None
    done: Rechecked = field(default_factory=Rechecked)
    error: WorldProtocolError | None = None

    def work(self) -> LogWork[Rechecked]:
        """Return the work on this log.

        Raises:
            RefusedError: as ``RecheckSetup.open``; ``NO_SUCH_EVENT``; ``EVENT_ARCHIVED`` where a cut removed all of it.
        """
        with self.setup.open() as world:
            code = _code_of(world)
            head = world.log.head()
            size, archived = head.size, archived_upto(world.log)
        last = size if self.upto is None else self.upto
        if last > size:
            raise RefusedError(ErrorCode.NO_SUCH_EVENT, f"There is no event {last}; the log has {size}.", position=last)
        if last <= archived:
            raise RefusedError(
                ErrorCode.EVENT_ARCHIVED,
                f"The events up to {archived} are archived, so those up to {last} cannot be rechecked here. Import the "
                "archives into another log and recheck that, or give them back with `worldctl cut --undo`.",
                position=last,
            )
        after = max(self.after, archived)
        setup = replace(self.setup, expected=head, code=code)
        return LogWork(self.setup.address, setup.stretches, after, last, FOLD)

    def take(self, result: Rechecked) -> Iterator[dict[str, Any]]:
        """Add the result of the next stretch; there are no findings but the divergences in it."""
        self.done.add(result)
        return iter(())

    @property
    def is_settled(self) -> bool:
        """Whether a step diverged, and the first one is all that is asked for."""
        return self.done.first is not None and not self.setup.every


def _code_of(world: Realm) -> CodeIdentities:
    parts = world.parts
    assert parts is not None  # it was opened with the code
    return identities_of(parts.domain, policies=parts.policies, projections=parts.projections)


def recheck_logs(
    asked: Sequence[LogRecheck], *, workers: Workers | None = None, progress: Progress | None = None
) -> None:
    """Perform the recorded steps of several logs again; arguments and errors as for ``audit_logs``."""
    for _ in audit_logs(asked, workers=workers, progress=progress):
        pass


def recheck_log(
    setup: RecheckSetup,
    *,
    after: int = 0,
    upto: int | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> Rechecked:
    """Perform the recorded steps of a log again, as ``worldprotocol.analysis.recheck.recheck.recheck`` does.

    Args:
        setup: the log and the code.
        after: position before the first event; what is before it is folded only.
        upto: the last position; None is the newest event.
        workers: the processes; None chooses them by the length of the log, at most one for each core.
        progress: called at intervals with the number of events done and of all events.

    Raises:
        RefusedError: as ``RecheckSetup.open``; ``NO_SUCH_EVENT``; ``PROCESS_LOST`` if processes ended unexpectedly; the
            codes of ``Workers.crew``.
        DamagedLogError: the log contradicts itself; run ``verify`` first.
    """
    asked = LogRecheck(setup, after, upto)
    recheck_logs([asked], workers=workers, progress=progress)
    if asked.error is not None:
        raise asked.error
    return asked.done
