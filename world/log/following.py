"""Following a log: an iterator that waits at the end for what comes next."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

from world.log.transaction import shrunk
from world.log.values import LoggedEvent

if TYPE_CHECKING:
    from world.log.reading import LogReader


class Follower(Iterator[LoggedEvent]):
    """Events of a log as they come, for one consuming thread; any other thread can stop it."""

    def __init__(
        self,
        log: LogReader,
        grown: threading.Condition,
        after: int,
        poll_ms: int,
        topics: Sequence[str] | None,
    ) -> None:
        """Follow ``log`` from a position; ``LogReader.follow`` is the way in."""
        self._log = log
        self._grown = grown
        self._position = after
        self._seen = 0
        self._poll_s = poll_ms / 1000
        self._topics = topics
        self._ready: deque[LoggedEvent] = deque()
        self._stopped = False

    @property
    def position(self) -> int:
        """Return the position up to which the log was looked through."""
        return self._ready[0].position - 1 if self._ready else self._position

    def stop(self) -> None:
        """End the iteration: the next call of ``next`` finds the end, also while it waits."""
        with self._grown:
            self._stopped = True
            self._grown.notify_all()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LoggedEvent:
        """Return the next event, waiting for it.

        Raises:
            StopIteration: after ``stop``.
            RefusedError: ``LOG_CLOSED`` when the log was closed meanwhile.
            WorldProtocolError: ``LOG_MOVED`` when its file was moved, where it is open for writing.
            DamagedLogError: ``LOG_SHRUNK`` when it lacks events that were seen, where it is open for writing; a reader
                may use a standby that has less than another one.
        """
        while not self._stopped:
            if self._ready:
                return self._ready.popleft()
            if not self._look():
                self._log.check_place()
                with self._grown:
                    if not self._stopped:
                        self._grown.wait(self._poll_s)
        raise StopIteration

    def poll(self) -> list[LoggedEvent]:
        """Return the events that are there, without waiting."""
        events = list(self._ready)
        self._ready.clear()
        while self._look():
            events += self._ready
            self._ready.clear()
        return events

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _look(self) -> bool:
        """Fetch the next batch; return whether the log had grown."""
        size = self._log.head().size
        if size < self._seen and not self._log.read_only:
            raise shrunk(self._seen, size)
        self._seen = size
        if size <= self._position:
            return False
        rows = next(self._log.read_rows(self._position, size, topics=self._topics), None)
        if rows:
            self._ready.extend(LoggedEvent(*row) for row in rows)
        self._position = rows[-1][0] if rows else size
        return True
