"""Signals that end a command that runs until it is stopped."""

from __future__ import annotations

import os
import signal
import threading
from queue import Empty, SimpleQueue

from worldprotocol.cli.support.signals import next_note, noted_signals


class LosesOneWakeUp(SimpleQueue[int]):
    """A queue whose first ``get`` is not woken by the signal that arrives just as it begins to block.

    Only a ``get`` with a time limit returns then, and the note of the signal is there at the next one.
    """

    lost = False

    def get(self, block: bool = True, timeout: float | None = None) -> int:
        """Block as a lock does that no signal interrupts."""
        if self.lost:
            return super().get(block, timeout)
        self.lost = True
        assert timeout is not None, "the thread blocks until the next signal"
        os.kill(os.getpid(), signal.SIGTERM)
        raise Empty


def test_a_signal_that_arrives_as_the_program_begins_to_wait_is_not_lost() -> None:
    notes = LosesOneWakeUp()
    with noted_signals(notes.put):
        assert next_note(notes) == signal.SIGTERM


def test_a_note_of_another_thread_is_returned() -> None:
    notes: SimpleQueue[int] = SimpleQueue()
    threading.Timer(0.01, notes.put, [7]).start()
    assert next_note(notes) == 7
