"""The probe of a realm, answered in time: whether it would accept a write now, and if not, why.

One probe of a realm runs at a time, in a thread of its own, so that neither a database that hangs nor threads that are
all in use keep it from an answer. What it found serves everyone who asks within ``FRESH_S``; a probe that has not ended
in time is itself the answer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as NotEndedError
from typing import Final

from world.engine.writability import Writability
from world.error_codes import ErrorCode
from world.errors import WorldProtocolError

__all__ = ["WITHIN_S", "WriteProbe"]

WITHIN_S: Final = 0.8
"""Time for an answer, in seconds; it is longer than a probe waits for the log's lock."""

FRESH_S: Final = 1.0
"""Time for which an answer holds, in seconds, so that callers cannot make a log be probed without end."""


class WriteProbe:
    """The probe of one realm; safe to use from many threads.

    Args:
        look: finds out; it may hang. What it raises, besides errors of the engine, is in the way of writes as well.
    """

    def __init__(self, look: Callable[[], Writability]) -> None:
        """Probe nothing yet."""
        self._look = look
        self._lock = threading.Lock()
        self._running: Future[Writability] | None = None
        self._began = 0.0
        self._ended = -FRESH_S

    def answer(self, within_s: float = WITHIN_S) -> Writability:
        """Return whether a write would be accepted; for a thread.

        Args:
            within_s: time for the answer, in seconds.
        """
        running = self._begun()
        try:
            return running.result(within_s)
        except NotEndedError:
            return self._silent()

    async def answer_async(self, within_s: float = WITHIN_S) -> Writability:
        """Return whether a write would be accepted without holding a thread; see ``answer``."""
        running = asyncio.wrap_future(self._begun())
        done, _ = await asyncio.wait([running], timeout=within_s)
        return running.result() if done else self._silent()

    def join(self, within_s: float) -> None:
        """Wait until nothing is probed any more, up to a time in seconds."""
        with self._lock:
            running = self._running
        if running is not None:
            wait([running], within_s)

    def _begun(self) -> Future[Writability]:
        """Return the probe that runs, or the newest where its answer still holds; begin one otherwise."""
        with self._lock:
            running, now = self._running, time.monotonic()
            if running is not None and (not running.done() or now - self._ended < FRESH_S):
                return running
            self._running = running = Future()
            running.set_running_or_notify_cancel()  # a caller that is cancelled leaves it to the others
            self._began = now
        # a daemon: a database that never answers would keep the process from ending
        threading.Thread(target=self._run, args=(running,), name="worldprotocol-probe", daemon=True).start()
        return running

    def _run(self, running: Future[Writability]) -> None:
        try:
            found = self._look()
        except Exception as error:  # noqa: BLE001 - whatever it is, a write would meet it
            message = f"The log cannot be probed: {type(error).__name__}: {error}."
            found = Writability(WorldProtocolError(ErrorCode.LOG_FAILED, message))
        with self._lock:
            self._ended = time.monotonic()
        running.set_result(found)

    def _silent(self) -> Writability:
        waited_s = time.monotonic() - self._began
        message = f"The log has not answered for {waited_s:.1f} s: its database, its disk or the network hangs."
        return Writability(WorldProtocolError(ErrorCode.LOG_UNAVAILABLE, message))
