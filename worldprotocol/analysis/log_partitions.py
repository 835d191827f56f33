"""A log gone through in stretches: in this process where it is short, and by as many processes as pay where it is long.

The first stretch is done here in any case, and its time tells whether further processes pay. The rest is cut into
stretches that ``worldprotocol.analysis.process_pool`` hands out in the order of the log, so that a process which needs
what came before a stretch can fold its way to it. The backtest and the recheck go through their logs this way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from worldprotocol.analysis.process_pool import cores, in_order, watch_cores

__all__ = ["Stretch", "in_stretches"]

R = TypeVar("R")

Stretch = tuple[int, int]
"""The positions after the first number, up to and with the second."""

CHUNK: Final = 4_000
"""Most events that are done at once, between two words about how far it came."""

FIRST: Final = 2_000
"""Events that are done here in any case, to see how long that takes."""

PAYS_S: Final = 1.5
"""Seconds of a core's work for each process that pays: more than it costs until it does anything."""

SHARES: Final = 4
"""Stretches for each process at least, so that none ends long before the others."""


def in_stretches(
    do: Callable[[Stretch], R], begin: Callable[[], Callable[[Stretch], R]], size: int, jobs: int | None
) -> Iterator[tuple[int, R]]:
    """Yield what stretches of a log came to, each with its end, in the order of the log.

    Args:
        do: does a stretch in this process.
        begin: called once in every other process; returns what does a stretch there. See ``sharing.in_order``.
        size: the last position.
        jobs: how many processes; None takes as many as pay, at most one for each core that
            this process used or that idled during the first stretch.

    Raises:
        RefusedError: ``PROCESS_LOST`` when a process ended by itself; and whatever ``begin`` or a stretch raises.
    """
    many, done = jobs or cores(), 0
    if jobs is None and many > 1:
        free = watch_cores()
        done, begun = min(FIRST, size), time.process_time()  # on a busy machine the clock would promise too much
        first = do((0, done))
        left_s = (time.process_time() - begun) / max(done, 1) * (size - done)
        many = min(free(), int(left_s / PAYS_S))
        yield done, first
    if many < 2:
        for at in range(done, size, CHUNK):
            upto = min(at + CHUNK, size)
            yield upto, do((at, upto))
        return
    step = max(1, min(CHUNK, -(-(size - done) // (many * SHARES))))
    stretches = [(at, min(at + step, size)) for at in range(done, size, step)]
    for (_, upto), found in zip(stretches, in_order(begin, stretches, many), strict=True):
        yield upto, found
