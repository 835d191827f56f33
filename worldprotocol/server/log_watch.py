"""The watch over the log of one realm: one thread follows the log and wakes every reader and waiter of this process.

A waiting request holds no thread: it waits for an ``asyncio.Event``. New events are kept in a window, with their
frames; a reader that is further behind reads from the log. So readers get every position in order, whatever their
speed, use no memory each, and an event is encoded once. An idle reader is woken to keep its connection open, and no
other one.

Readers are woken some at a time and, while requests are answered, with pauses between: a request waits for a few of
them and not for all. One that is woken late gets the events of all commits up to then at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from world.error_codes import ErrorCode
from world.errors import WorldProtocolError
from world.events.writer_events import WriterClosed
from world.state.access import ACCESS_STEPS
from world.state.offers import CHANGES_OFFERS
from worldprotocol.server.connections.event_stream import Frames

if TYPE_CHECKING:
    from worldprotocol.api.bootstrap import EventLog, Follower, LoggedEvent
    from worldprotocol.server.threads import Threads

__all__ = ["OFFERS", "LogWatch"]

R = TypeVar("R")
_LOGGER = logging.getLogger("worldprotocol.server")

WINDOW: Final = 4_096
"""Newest events that are kept for readers."""

BATCH: Final = 512
"""Most events that a reader gets at once, and that one step of the follower takes."""

ACCESS_TOPICS: Final = frozenset(kind.TOPIC for kind in ACCESS_STEPS)
"""Topics of the events that change rights and tokens; ``LogWatch.access_changes`` counts them."""

OFFERS: Final = ""
"""In place of a stream in ``LogWatch.waiting``: the events after which another effect may be offered."""

OFFER_TOPICS: Final = frozenset(kind.TOPIC for kind in CHANGES_OFFERS)

RETRY_S: Final = 1.0
"""Time after which a log that could not be read is read again, in seconds."""

PING_S: Final = 15
"""Idle time after which a reader is woken, in seconds; it is woken at the latest after twice that time."""

TURN_S: Final = 1.0
"""Time between two turns, in each of which one part in ``PING_S`` of the readers is looked at, in seconds."""

POLL_MS: Final = 50
"""Interval at which commits of other processes are looked for, in ms; those of this process wake the follower."""


MOST_AT_ONCE: Final = 64
"""Most readers that are woken at once."""

TARGET_S: Final = 0.001
"""Time that the readers that are woken at once should take together, in seconds."""

REST: Final = 8
"""Pause after some readers were woken while requests are answered, as a multiple of the time that these took."""

GRACE_S: Final = 0.05
"""Time for which a request may delay the first reader, in seconds."""


class _LogReader:
    """A reader that follows: the event that wakes it, and whether it was idle since its turn to be looked at."""

    __slots__ = ("changed", "is_idle")

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.is_idle = False


class LogWatch:
    """New events of a log, for readers and waiters in one event loop.

    Args:
        log: the log.
        threads: the pool for reads of the log.
    """

    def __init__(self, log: EventLog, threads: Threads) -> None:
        """Create it; ``start`` begins to follow."""
        self._log = log
        self._threads = threads
        self._window: deque[LoggedEvent] = deque(maxlen=WINDOW)
        self._position = 0
        self.access_changes = 0
        self.on_writer_closed: Callable[[], object] = lambda: None
        """Called in the event loop when the log was closed to writers."""
        self.on_shrunk: Callable[[], object] = lambda: None
        """Called in the event loop, once, when the log lacks events that were seen."""
        self.has_shrunk = False
        self.frames = Frames(WINDOW)
        self._batches: dict[int, list[LoggedEvent]] = {}
        self._readers: tuple[set[_LogReader], ...] = tuple(set() for _ in range(PING_S))
        self._turn = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._has_grown = asyncio.Event()
        self._handed_over = 0  # position up to which all readers were woken
        self._waiters: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._is_closed = False
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._follower: Follower | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def position(self) -> int:
        """Position of the newest event that was delivered."""
        return self._position

    @property
    def is_closed(self) -> bool:
        """Whether the watch has ended, because the server stops, or the realm is served at another place."""
        return self._is_closed

    @property
    def readers(self) -> int:
        """Number of readers that follow."""
        return sum(map(len, self._readers))

    async def start(self) -> None:
        """Begin to follow the log at its end."""
        self._loop = asyncio.get_running_loop()
        self._position = (await self._threads.run(self._log.head)).size
        self._follower = self._log.follow(self._position, poll_ms=POLL_MS)
        self._thread = threading.Thread(target=self._follow, name="worldprotocol-log-watch", daemon=True)
        self._thread.start()
        self._handed_over = self._position
        self._tasks = [asyncio.ensure_future(self._ping()), asyncio.ensure_future(self._hand_over())]

    def close(self) -> None:
        """End the watch: readers end, and waiters return. For the event loop's thread."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        for reader in chain.from_iterable(self._readers):
            reader.changed.set()
        for event in chain.from_iterable(self._waiters.values()):
            event.set()

    async def join(self) -> None:
        """Stop following, and wait for the thread."""
        self._is_stopped.set()
        if self._follower is not None:
            await asyncio.to_thread(self._follower.stop)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _follow(self) -> None:
        """Deliver batches of new events to the event loop, until the follower is stopped."""
        assert self._loop is not None
        assert self._follower is not None
        while not self._is_stopped.is_set():
            try:
                for first in self._follower:
                    self._loop.call_soon_threadsafe(self._deliver, [first, *self._follower.poll()])
            except (WorldProtocolError, OSError) as error:
                if isinstance(error, WorldProtocolError) and error.code == ErrorCode.LOG_SHRUNK:
                    self.has_shrunk = True
                    self._loop.call_soon_threadsafe(self.on_shrunk)
                    return
                if not self._is_stopped.wait(RETRY_S):
                    _LOGGER.error("The log cannot be followed and is read again: %s", error)
            except RuntimeError:  # the event loop was closed
                return

    def _deliver(self, batch: Sequence[LoggedEvent]) -> None:
        self._window.extend(batch)
        self._batches.clear()
        self._position = batch[-1].position
        self.access_changes += sum(one.topic in ACCESS_TOPICS for one in batch)
        self._has_grown.set()
        for event in batch:
            for waiter in self._waiters.get(event.stream, ()):
                waiter.set()
        if any(event.topic == WriterClosed.TOPIC for event in batch):
            self.on_writer_closed()
        if any(event.topic in OFFER_TOPICS for event in batch):
            for waiter in self._waiters.get(OFFERS, ()):
                waiter.set()

    async def _hand_over(self) -> None:
        """Wake the readers after each delivery, some at a time."""
        loop, count = asyncio.get_running_loop(), MOST_AT_ONCE
        while True:
            await self._has_grown.wait()
            self._has_grown.clear()
            end, begin = self._position, loop.time()
            while self._gives_way and loop.time() < begin + GRACE_S:
                await asyncio.sleep(TARGET_S)
            readers = list(chain.from_iterable(self._readers))
            while readers:
                begin = loop.time()
                for reader in readers[-count:]:
                    reader.changed.set()
                del readers[-count:]
                await asyncio.sleep(0)  # they run before this task does
                taken = max(loop.time() - begin, 1e-6)
                count = max(1, min(MOST_AT_ONCE, round(count * TARGET_S / taken)))
                if self._gives_way:
                    await asyncio.sleep(REST * taken)
            self._handed_over = end

    @property
    def _gives_way(self) -> bool:
        """Whether readers wait for requests, which they do unless they are far behind."""
        return self._threads.active > 0 and self._position - self._handed_over < WINDOW // 2

    async def _ping(self) -> None:
        """Wake idle readers, a part of them each second."""
        while True:
            await asyncio.sleep(TURN_S)
            self.wake_idle()

    def wake_idle(self) -> int:
        """Wake the readers whose turn it is and that were idle since their last turn; return how many."""
        self._turn = (self._turn + 1) % PING_S
        idle = [one for one in self._readers[self._turn] if one.is_idle]
        for reader in self._readers[self._turn]:
            reader.is_idle = True
        for reader in idle:
            reader.changed.set()
        return len(idle)

    @contextmanager
    def waiting(self, stream: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set when the stream has new events, or the watch ends."""
        event = asyncio.Event()
        if self._is_closed:
            event.set()
        self._waiters[stream].add(event)
        try:
            yield event
        finally:
            self._waiters[stream].discard(event)
            if not self._waiters[stream]:
                del self._waiters[stream]

    async def wait_until(self, stream: str, read: Callable[[], R], is_done: Callable[[R], bool], timeout_s: float) -> R:
        """Return what ``read`` returns as soon as it is done, or after a time as it is.

        Args:
            stream: the stream whose events may change it.
            read: reads the log, in the pool of threads.
            is_done: whether there is nothing to wait for.
            timeout_s: longest wait, in seconds.
        """
        async with aclosing(self.changes(stream, timeout_s)) as changes:
            async for _ in changes:
                found = await self._threads.run(read)
                if is_done(found):
                    break
        return found

    async def changes(
        self, stream: str, timeout_s: float, pause_s: Callable[[float], float] | None = None
    ) -> AsyncGenerator[None]:
        """Yield at once and after each change, until a time is over or the watch ends.

        Args:
            stream: the stream with the events that are changes.
            timeout_s: the time, in seconds.
            pause_s: returns the time until a change that no event records, of a longest time, both in seconds; it is
                called in the pool of threads. None where there are none.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        with self.waiting(stream) as changed:
            while True:
                changed.clear()
                yield
                left = end - loop.time()
                if left <= 0 or self._is_closed:
                    return
                pause = left if pause_s is None else min(left, await self._threads.run(partial(pause_s, left)))
                try:
                    async with asyncio.timeout(pause):
                        await changed.wait()
                except TimeoutError:
                    if pause_s is None:
                        return

    async def events(self, after: int, topics: Collection[str] | None = None) -> AsyncIterator[list[LoggedEvent]]:
        """Yield the events after a position in order, without end, in batches; ends when it is closed.

        An empty batch is yielded to a reader that was idle.

        Args:
            after: the position.
            topics: only events of these topics; None is all.
        """
        reader = _LogReader()
        group = min(self._readers, key=len)
        group.add(reader)
        try:
            while not self._is_closed:
                reader.changed.clear()
                batch, after = await self._next(after, topics)
                if batch:
                    reader.is_idle = False
                    yield batch
                elif after >= self._position and not self._is_closed:
                    await reader.changed.wait()
                    if reader.is_idle and after >= self._position:
                        yield []
        finally:
            group.discard(reader)

    async def _next(self, after: int, topics: Collection[str] | None) -> tuple[list[LoggedEvent], int]:
        """Return the next events after a position, and the position up to which events were looked through."""
        if self._window and self._window[0].position <= after + 1:
            batch = self._batches.get(after) or self._windowed(after)
        else:
            upto = min(self._position, after + BATCH)
            batch = [] if upto <= after else await self._threads.run(lambda: list(self._log.read(after, upto)))
        end = batch[-1].position if batch else after
        return [one for one in batch if topics is None or one.topic in topics], end

    def _windowed(self, after: int) -> list[LoggedEvent]:
        """Return the next events in the window, the same list for all readers at this position."""
        window, first = self._window, max(0, after + 1 - self._window[0].position)
        batch = [window[place] for place in range(first, min(first + BATCH, len(window)))]
        self._batches[after] = batch
        return batch
