"""Time limit of a call of foreign code.

Foreign code usually runs before the log's lock is taken; then the limit gives the caller its thread back. Under the
lock (``world.pipeline.preparation``) it is the last resort that frees the other callers.

A Python function cannot be terminated, but an exception can be raised in its thread. One thread of the process
watches the calls and raises it when a limit has passed, repeatedly until the call has ended, because code
may catch it. Python delivers such an exception between two steps of Python code; a call that is blocked in C, such as
``time.sleep(1000)``, gets it when it returns and not before.

The exception never reaches the calling code: when a call has ended, its slot is closed first, then a pending
exception is awaited and caught.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

__all__ = ["TimeLimit", "TimeLimitError", "breakable", "unbroken", "unlimited"]

R = TypeVar("R")

AGAIN_S: Final = 0.1
"""Interval of attempts to end the same call, in seconds."""

_LOOK_S: Final = 0.05
_IDLE_LOOKS: Final = 40
_A_FEW_STEPS: Final = (1, 2)

_raise_in_thread: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc


class TimeLimitError(Exception):
    """Raised for a call that exceeded its limit; its result is discarded.

    Args:
        limit_ms: the limit, in milliseconds.
    """

    def __init__(self, limit_ms: int) -> None:
        super().__init__(f"it took longer than {limit_ms} ms")
        self.limit_ms = limit_ms


class _OutOfTimeError(BaseException):
    """Raised in foreign code; not caught by ``except Exception``."""


class _Slot:
    """One call under a limit."""

    __slots__ = ("deadline", "fired", "is_due", "is_open", "lock", "thread", "unbroken")

    def __init__(self, thread: int, deadline: float) -> None:
        self.thread = thread
        self.deadline = deadline
        self.lock = threading.Lock()
        self.is_open = False
        self.unbroken = False
        self.is_due = False
        self.fired = False

    def fire(self, now: float) -> None:
        """Raise in the call's thread while the call runs."""
        with self.lock:
            self.is_due = self.unbroken  # then it is raised at the end of the unbroken part
            if self.is_open and not self.unbroken:
                self.fired = True
                self.deadline = now + AGAIN_S
                _raise_in_thread(ctypes.c_ulong(self.thread), ctypes.py_object(_OutOfTimeError))

    def settle(self) -> None:
        """Wait for a pending attempt, whose exception is raised here at the latest.

        The exception is not cancelled: CPython 3.11 would not clear its flag, and a traced call would loop forever.
        """
        with self.lock:
            pass
        for _ in _A_FEW_STEPS:  # the interpreter may deliver a pending exception at each of them
            pass


class _Watchdog:
    """Thread that watches all limited calls; sleeps while there is none."""

    def __init__(self) -> None:
        self.running: dict[int, _Slot] = {}
        self.asleep = True
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def rouse(self) -> None:
        """Start or wake the watching thread."""
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="time limits", daemon=True)
                self._thread.start()
        self.asleep = False
        self._wake.set()

    def _watch(self) -> None:
        idle = 0
        while True:
            idle = 0 if self.running else idle + 1
            if idle > _IDLE_LOOKS:
                self._sleep()
                idle = 0
            time.sleep(_LOOK_S)
            now = time.monotonic()
            for slot in list(self.running.values()):
                if slot.deadline <= now:
                    slot.fire(now)

    def _sleep(self) -> None:
        self._wake.clear()
        self.asleep = True
        if not self.running:  # a call that started just before did not wake the thread
            self._wake.wait()
        self.asleep = False


_watchdog = _Watchdog()


def _start_afresh() -> None:
    """Reset in a forked child, which has only the forking thread."""
    global _watchdog  # noqa: PLW0603 - one for each process
    _watchdog = _Watchdog()


os.register_at_fork(after_in_child=_start_afresh)


class TimeLimit:
    """Limit of one call of foreign code.

    Args:
        limit_ms: milliseconds, at least 1; None is no limit.
    """

    __slots__ = ("limit_ms",)

    def __init__(self, limit_ms: int | None = None) -> None:
        self.limit_ms = limit_ms

    @property
    def is_free(self) -> bool:
        """Whether ``run`` makes calls of this thread without a limit of their own."""
        return self.limit_ms is None or threading.get_ident() in _watchdog.running

    def run(self, call: Callable[[], R], *, unbroken: bool = False) -> R:
        """Return the result of a call within the limit; an outer limit takes precedence.

        Args:
            call: the limited call.
            unbroken: whether only calls in ``breakable`` may be interrupted.

        Raises:
            TimeLimitError: when it took longer; and whatever the call raises in time.
        """
        thread = threading.get_ident()
        running = _watchdog.running
        if self.limit_ms is None or thread in running:
            return call()
        slot = _Slot(thread, time.monotonic() + self.limit_ms / 1000)
        slot.unbroken = unbroken
        running[thread] = slot
        try:
            if _watchdog.asleep:
                _watchdog.rouse()
            return self._within(slot, call)
        finally:
            running.pop(thread, None)

    def _within(self, slot: _Slot, call: Callable[[], R]) -> R:
        """Make the call; no exception is pending in this thread when it returns.

        Between the end of the call and the closing of its slot there is no step of Python at which an exception can be
        delivered. Once it is closed, at most two are pending: one raised before, and one just being raised.
        """
        failure: BaseException | None = None
        value: Any = None
        try:
            slot.is_open = True
            value = call()
        except BaseException as error:  # noqa: BLE001 - raised again below, where nothing can interfere
            slot.is_open = False
            failure = error
        slot.is_open = False
        try:
            slot.settle()
        except _OutOfTimeError:
            try:
                slot.settle()
            except _OutOfTimeError:
                slot.settle()
        if slot.fired and not isinstance(failure, KeyboardInterrupt):
            raise TimeLimitError(self.limit_ms or 0) from None
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None  # its traceback holds this frame
        result: R = value
        return result


def unbroken(call: Callable[[], R]) -> R:
    """Return the result of a call by foreign code that must not be interrupted.

    The time counts: when the limit passes meanwhile, the foreign code is ended right afterwards.
    """
    return _with_breaks(call, allowed=False)


def breakable(call: Callable[[], R]) -> R:
    """Return the result of foreign code inside of an unbroken call; interruptible."""
    return _with_breaks(call, allowed=True)


def _with_breaks(call: Callable[[], R], *, allowed: bool) -> R:
    slot = _watchdog.running.get(threading.get_ident())
    if slot is None:
        return call()
    before = slot.unbroken
    try:
        with slot.lock:
            slot.unbroken = not allowed
        return call()
    finally:
        with slot.lock:  # a pending exception is raised here first
            slot.unbroken = before
        if slot.is_due and not before and slot.is_open:
            slot.is_due, slot.fired = False, True
            raise _OutOfTimeError


def unlimited(call: Callable[[], R]) -> R:
    """Return the result of a call without limits; for rechecks, which hold no lock."""
    thread = threading.get_ident()
    running = _watchdog.running
    if thread in running:
        return call()
    running[thread] = _Slot(thread, float("inf"))
    try:
        return call()
    finally:
        running.pop(thread, None)
