"""Verification of several logs, by the processes of this machine or the workers of a cluster; one task for each log.

``worldctl verify`` imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from world.audit.verify import VerificationReport, verify
from world.errors import WorldProtocolError
from worldprotocol.analysis.work.free_cores import cores
from worldprotocol.analysis.work.stretches import Progress, check_same_log
from worldprotocol.analysis.work.work_list import Work, WorkList
from worldprotocol.analysis.work.workers import Workers
from worldprotocol.api.bootstrap import TreeHead
from worldprotocol.api.read_only import open_for_reading

__all__ = ["LogVerification", "verify_logs"]

PAYS: Final = 60_000
"""Events that justify one more process: about 1.5 CPU seconds (``bench.replay``)."""


@dataclass(slots=True)
class LogVerification:
    """Verification of one log.

    Args:
        address: the log.
        report: the result; None before ``verify_logs``, and after an error.
        error: why there is no result.
    """

    address: str = field(repr=False)
    report: VerificationReport | None = None
    error: WorldProtocolError | None = None


@dataclass(frozen=True, slots=True)
class _Task:
    """The log in another process; serialisable."""

    address: str = field(repr=False)
    expected: TreeHead

    @contextmanager
    def begin(self) -> Iterator[Callable[[None], VerificationReport]]:
        with open_for_reading(self.address) as log:
            if log.stored_head() != self.expected:  # of a damaged log, the tree would not give the stored head
                check_same_log(log, self.expected)
            yield lambda _: verify(log)


def verify_logs(
    asked: Sequence[LogVerification], *, workers: Workers | None = None, progress: Progress | None = None
) -> None:
    """Verify several logs; each result is that of ``world.audit.verify.verify`` for the log alone.

    An error of one log ends its verification only, and is kept in its ``error``.

    Args:
        asked: the logs; their results are kept in them.
        workers: the processes; None chooses them by the length of the logs, at most one for each core.
        progress: called after every log, and within logs of this process, with the number of events done and of all.

    Raises:
        RefusedError: the codes of ``Workers.crew``.
    """
    found: list[tuple[LogVerification, TreeHead]] = []
    for one in asked:
        try:
            with open_for_reading(one.address) as log:
                found.append((one, log.stored_head()))
        except WorldProtocolError as error:
            one.error = error
    workers = workers or Workers()
    total, done = sum(head.size for _, head in found), 0
    many = min(workers.jobs or min(cores(), total // PAYS), len(found))
    if not workers.is_cluster and many < 2:
        for one, head in found:
            _verify_here(one, None if progress is None else _shifted(progress, done, total))
            done += head.size
        return
    if not found:
        return
    works = [Work(_Task(one.address, head).begin, [None]) for one, head in found]
    crew = workers.crew(workers.jobs if workers.is_cluster else many, [one.address for one, _ in found])
    for result in WorkList[VerificationReport](works, crew).results():
        one, head = found[result.work]
        try:
            one.report = result.value()
        except WorldProtocolError as error:
            one.error = error
        done += head.size
        if progress is not None:
            progress(done, total)


def _verify_here(one: LogVerification, progress: Progress | None) -> None:
    try:
        with open_for_reading(one.address) as log:
            one.report = verify(log, progress=progress)
    except WorldProtocolError as error:
        one.error = error


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, _: progress(before + done, total)
