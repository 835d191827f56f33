"""Signals that end a command which runs until it is stopped, such as ``worldctl worker``."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

__all__ = ["next_note", "noted_signals"]

T = TypeVar("T")

_LOOK_S: Final = 0.5


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


def next_note(notes: SimpleQueue[T]) -> T:
    """Return the next note, of a signal or of another thread.

    A signal that arrives just as the main thread begins to block does not wake it, and its note is added only once the
    thread runs again: so it never blocks for longer than half a second.

    Args:
        notes: the queue that signals and threads put their notes into.
    """
    while True:
        try:
            return notes.get(timeout=_LOOK_S)
        except Empty:
            continue
