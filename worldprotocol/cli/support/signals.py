"""Signals that end a command which runs until it is stopped, such as ``worldctl worker``."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["noted_signals"]


@contextmanager
def noted_signals(note: Callable[[int], object]) -> Iterator[None]:
    """Note SIGINT and SIGTERM in place of what they do.

    Args:
        note: called with the number of a signal. It may interrupt the main thread while that holds a lock, also the
            lock of an earlier signal's work, so it takes none: ``SimpleQueue.put`` is reentrant.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, _: note(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
