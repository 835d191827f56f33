"""Processing of a log in partitions, by one process or by several.

This process handles the first partition; its duration determines the number of further processes. The other partitions
are distributed by ``worldprotocol.analysis.process_pool`` in the order of the log, so that a process which needs the
state before a partition can fold up to it. Backtest and recheck use this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from worldprotocol.analysis.process_pool import cores, in_order, watch_cores

__all__ = ["Stretch", "in_stretches"]

R = TypeVar("R")

Stretch = tuple[int, int]
"""Positions after the first number, up to and including the second."""

CHUNK: Final = 4_000
"""Maximum number of events in a partition, and between two reports of progress."""

FIRST: Final = 2_000
"""Events of the first partition, which is timed."""

PAYS_S: Final = 1.5
"""CPU seconds of work that justify one more process; more than its start costs."""

SHARES: Final = 4
"""Minimum number of partitions per process, so that all end at about the same time."""


def in_stretches(
    do: Callable[[Stretch], R],
    begin: Callable[[], Callable[[Stretch], R]],
    size: int,
    jobs: int | None,
    *,
    after: int = 0,
) -> Iterator[tuple[int, R]]:
    """Yield the end and the result of each partition, in the order of the log.

    Args:
        do: processes a partition in this process.
        begin: called once in every other process; returns the function that processes partitions there. See
            ``process_pool.in_order``.
        size: the last position.
        jobs: number of processes; None chooses it by the duration of the first partition, at most one for each core
            that this process used or that was idle during it.
        after: position before the first event.

    Raises:
        RefusedError: ``PROCESS_LOST`` if a process ended unexpectedly; and the exceptions of ``begin`` and ``do``.
    """
    many, done = jobs or cores(), after
    if jobs is None and many > 1:
        free = watch_cores()
        done, begun = (
            min(after + FIRST, size),
            time.process_time(),
        )  # CPU time, because elapsed time is longer on a busy machine
        first = do((after, done))
        left_s = (time.process_time() - begun) / max(done - after, 1) * (size - done)
        many = min(free(), int(left_s / PAYS_S))
        yield done, first
    if many < 2:
        for at in range(done, size, CHUNK):
            upto = min(at + CHUNK, size)
            yield upto, do((at, upto))
        return
    step = max(1, min(CHUNK, -(-(size - done) // (many * SHARES))))
    stretches = [(at, min(at + step, size)) for at in range(done, size, step)]
    for (_, upto), result in zip(stretches, in_order(begin, stretches, many), strict=True):
        yield upto, result
