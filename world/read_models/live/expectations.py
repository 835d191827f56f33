"""Expectations: futures that are completed when the log says what their callers wait for.

A caller names a key (the id of a proposal, of a request for leases or of a lease that ends, or ``ANY``), and a function
that reads the result from the committed state. Every publication of the state marks the keys of its events, and a
thread then calls the functions of these keys. The thread exists only while a caller waits; it also looks for what other
processes committed. So waiting depends on no subscriber, holds no thread of its own, and ends with its future: a
cancelled future leaves nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any, Final, Protocol, TypeGuard, TypeVar

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError, WorldProtocolError
from world.events.base import Event

__all__ = ["ANY", "Expectations", "outcome"]

T = TypeVar("T")

ANY: Final = ""
"""The key that every event marks."""

FOLLOW_S: Final = 0.1
"""Interval at which the log is read for commits of other processes, in seconds; those of this process notify."""

BLOCK_S: Final = 1.0
"""Longest time for which a waiting thread blocks at a time, in seconds."""

_AFTER_ERROR_S: Final = 2.0
_STOP_S: Final = 2.0  # how long the thread is joined; it may be reading from a database that does not answer

_LOGGER = logging.getLogger("world.read_models.live.expectations")


class _Followed(Protocol):
    """The state that the log was read up to."""

    @property
    def due(self) -> int | None: ...


class _Looking:
    """One thread that looks, and what stops it."""

    def __init__(self, run: Callable[[_Looking], None]) -> None:
        self.wake = threading.Event()
        self.is_stopped = False
        self.thread = threading.Thread(target=run, args=(self,), name="worldprotocol-expecting", daemon=True)

    def stop(self) -> None:
        self.is_stopped = True
        self.wake.set()


class Expectations:
    """The expectations of one log in a process; safe to use from many threads.

    Args:
        follow: applies what other processes committed, and returns the state.
    """

    def __init__(self, follow: Callable[[], _Followed]) -> None:
        """Begin without expectations and without a thread."""
        self.on_follow: Callable[[int | None], object] = lambda _due: None
        """Called by the thread with the time at which something is due next, whenever the log has grown."""
        self._follow = follow
        self._mutex = threading.Lock()
        self._open: dict[str, dict[Future[Any], Callable[[], Any]]] = {}
        self._marked: set[str] = set()
        self._looking: _Looking | None = None
        self._stopped: list[threading.Thread] = []
        self._closed = False

    @property
    def count(self) -> int:
        """Number of open expectations."""
        with self._mutex:
            return sum(map(len, self._open.values()))

    def expect(self, key: str, look: Callable[[], T | None], future: Future[T] | None = None) -> Future[T]:
        """Return a future of what a function returns, once that is not None.

        Args:
            key: the function is called at once, and after each commit with an event whose ``proposal_id`` or
                ``request_id`` this is, or that ends this lease; ``ANY`` is every commit.
            look: reads the committed state, in a thread of this object; what it raises is the future's error.
            future: the future to complete; None makes one. Cancelling it ends the expectation.

        Raises:
            RefusedError: ``LOG_CLOSED``.
        """
        expected: Future[T] = Future() if future is None else future
        expected.add_done_callback(partial(self._drop, key))
        with self._mutex:
            if self._closed:
                raise _closed()
            self._open.setdefault(key, {})[expected] = look
            self._marked.add(key)
            looking = self._looking
            if looking is None:
                looking = self._looking = _Looking(self._run)
                looking.thread.start()
        if expected.done():  # it was cancelled before it was added
            self._drop(key, expected)
        looking.wake.set()
        return expected

    def wait(self, key: str, look: Callable[[], T | None], timeout: float | None) -> T | None:
        """Wait for what a function returns in the calling thread; None when the time is over.

        Args:
            key: as for ``expect``.
            look: as for ``expect``.
            timeout: seconds; None is unlimited.

        Raises:
            RefusedError: ``LOG_CLOSED``, also when the realm is closed meanwhile.
            Exception: what the function raises.
        """
        future: Future[T] = Future()
        try:
            return outcome(self.expect(key, look, future), timeout)
        finally:
            future.cancel()
            self.join()

    def note(self, events: Iterable[Event]) -> None:
        """Mark the keys of events that are published now."""
        if not self._open:
            return
        names = {name for one in events for name in _keys(one)}
        with self._mutex:
            self._mark(names & self._open.keys())

    def note_all(self) -> None:
        """Mark all keys, where events were not published one by one."""
        with self._mutex:
            self._mark(self._open.keys())

    def close(self) -> None:
        """Fail all expectations with ``LOG_CLOSED``, and end the thread."""
        with self._mutex:
            self._closed = True
        self._fail(_closed())
        self.join()

    def join(self) -> None:
        """Wait for threads that were stopped; one that is looking ends when its query returns."""
        for thread in list(self._stopped):
            if thread is not threading.current_thread():
                thread.join(_STOP_S)

    def _mark(self, keys: Iterable[str]) -> None:
        self._marked.update(keys)
        if self._marked and self._looking is not None:
            self._looking.wake.set()

    def _drop(self, key: str, future: Future[Any]) -> None:
        """Forget a future that is done; the last one stops the thread."""
        with self._mutex:
            futures = self._open.get(key, {})
            futures.pop(future, None)
            if not futures:
                self._open.pop(key, None)
                self._marked.discard(key)
            if not self._open and self._looking is not None:
                self._looking.stop()
                self._stopped = [one for one in self._stopped if one.is_alive()] + [self._looking.thread]
                self._looking = None

    def _run(self, looking: _Looking) -> None:
        last: _Followed | None = None
        pause_s = FOLLOW_S
        while True:
            looking.wake.wait(pause_s)
            looking.wake.clear()
            if looking.is_stopped:
                return
            pause_s = FOLLOW_S
            try:
                followed = self._follow()
                if followed is not last:
                    last = followed
                    self.on_follow(followed.due)
                self._look()
            except Exception as error:  # a database that is away for a while must not end the waiting
                if _is_final(error):
                    self._fail(error)
                    continue
                _LOGGER.exception("The log cannot be followed for waiting callers; the next attempt follows.")
                with self._mutex:
                    self._marked |= self._open.keys()
                pause_s = _AFTER_ERROR_S

    def _look(self) -> None:
        """Call the functions of the marked keys."""
        with self._mutex:
            found = [item for key in self._marked for item in self._open.get(key, {}).items()]
            self._marked.clear()
        for future, look in found:
            try:
                result = look()
            except WorldProtocolError as error:
                _settle(future, error=error)
                continue
            if result is not None:
                _settle(future, result)

    def _fail(self, error: WorldProtocolError) -> None:
        with self._mutex:
            futures = [future for several in self._open.values() for future in several]
        for future in futures:
            _settle(future, error=copy(error))  # each waiting caller adds its own traceback


def outcome(future: Future[T], timeout: float | None) -> T | None:
    """Return the result of a future, or None when the time is over.

    It blocks for a second at a time, because Python can miss an interrupt that comes just before a thread blocks.

    Args:
        future: the future.
        timeout: seconds; None is unlimited.

    Raises:
        Exception: the future's error; ``concurrent.futures.CancelledError``.
    """
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        left = BLOCK_S if until is None else min(BLOCK_S, until - time.monotonic())
        try:
            return future.result(max(0.0, left))
        except TimeoutError:
            if future.done():  # it is the future's error, or the result came at this moment
                return future.result()
            if until is not None and time.monotonic() >= until:
                return None


def _keys(event: Event) -> tuple[str, ...]:
    names = (getattr(event, "proposal_id", None), getattr(event, "request_id", None))
    return (ANY, *(name for name in names if isinstance(name, str)), *getattr(event, "lease_ids", ()))


def _settle(future: Future[Any], result: Any = None, *, error: BaseException | None = None) -> None:
    """Complete a future that may have been cancelled meanwhile."""
    with suppress(InvalidStateError):
        future.set_result(result) if error is None else future.set_exception(error)


def _is_final(error: Exception) -> TypeGuard[WorldProtocolError]:
    """Return whether waiting on is of no use."""
    if isinstance(error, RefusedError | DamagedLogError):
        return True
    return isinstance(error, WorldProtocolError) and error.code == ErrorCode.LOG_MOVED


def _closed() -> RefusedError:
    return RefusedError(ErrorCode.LOG_CLOSED, "The realm was closed; open it again, and wait again.")
