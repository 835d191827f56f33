"""How ``worldctl worker`` takes the signals that end it."""

from __future__ import annotations

import signal
from queue import SimpleQueue

from worldprotocol.cli.support.signals import noted_signals


def test_signals_that_interrupt_the_work_of_others_are_all_noted() -> None:
    """The handler takes no lock: a second signal may come while the first one is handled."""
    signals: SimpleQueue[int | None] = SimpleQueue()
    before = signal.getsignal(signal.SIGINT)
    with noted_signals(signals.put):
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
    assert [signals.get_nowait() for _ in range(3)] == [signal.SIGINT, signal.SIGINT, signal.SIGTERM]
    assert signals.empty()
    assert signal.getsignal(signal.SIGINT) is before
