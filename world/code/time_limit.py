"""A time limit for foreign code that runs under the log's lock: actions, rules, projections, computed values.

Nobody can end a Python function from outside, but an exception can be raised in its thread. One thread of the process
looks at what is running, and raises it where a limit has passed, again and again until the call has ended, because code
may catch it. Python delivers such an exception between two steps of Python code; a call that is blocked in C, such as
``time.sleep(1000)``, gets it when it returns and not before.

The exception never reaches the code around the call: when a call has ended, its slot is closed first, then whatever is
still on its way is waited for and caught.
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
"""Seconds between two attempts at ending the same call."""

_LOOK_S: Final = 0.05
_IDLE_LOOKS: Final = 40
_A_FEW_STEPS: Final = (1, 2)

_raise_in_thread: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc


class TimeLimitError(Exception):
    """The call took longer than it may; what it returned or raised does not count.

    Args:
        limit_ms: the limit, in milliseconds.
    """

    def __init__(self, limit_ms: int) -> None:
        super().__init__(f"it took longer than {limit_ms} ms")
        self.limit_ms = limit_ms


class _OutOfTimeError(BaseException):
    """Raised in the middle of foreign code; no ``except Exception`` of its author catches it."""


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
        """Raise in the call's thread, if the call still goes on."""
        with self.lock:
            self.is_due = self.unbroken  # then it is met where the unbroken part ends
            if self.is_open and not self.unbroken:
                self.fired = True
                self.deadline = now + AGAIN_S
                _raise_in_thread(ctypes.c_ulong(self.thread), ctypes.py_object(_OutOfTimeError))

    def settle(self) -> None:
        """Wait for an attempt that is being made; what it raised is met here, when the lock is let go at the latest.

        Nothing is taken back: CPython 3.11 forgets then to lower its flag, and a traced call spins for ever.
        """
        with self.lock:
            pass
        for _ in _A_FEW_STEPS:  # each of them, too, is where the interpreter delivers what is on its way
            pass


class _Watchdog:
    """Looks at every call under a limit; sleeps while there has been none for some time."""

    def __init__(self) -> None:
        self.running: dict[int, _Slot] = {}
        self.asleep = True
        self._wake = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def rouse(self) -> None:
        """Make sure that somebody looks."""
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
        if not self.running:  # a call that began just before saw nobody asleep
            self._wake.wait()
        self.asleep = False


_watchdog = _Watchdog()


def _start_afresh() -> None:
    """A forked child has the forking thread only."""
    global _watchdog  # noqa: PLW0603 - one for each process
    _watchdog = _Watchdog()


os.register_at_fork(after_in_child=_start_afresh)


class TimeLimit:
    """How long one call of foreign code may take.

    Args:
        limit_ms: milliseconds, at least 1; None is no limit.
    """

    __slots__ = ("limit_ms",)

    def __init__(self, limit_ms: int | None = None) -> None:
        self.limit_ms = limit_ms

    def run(self, call: Callable[[], R], *, unbroken: bool = False) -> R:
        """Return what a call returns, if it ends in time; inside of another limited call that one's limit counts.

        Args:
            call: what is limited.
            unbroken: break it off only where ``breakable`` allows it.

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
        """Make the call; when this is left, nothing is on its way to this thread any more.

        From the end of the call to the closing of its slot no step of Python lies at which an exception could be
        delivered. Once it is closed, at most two are on their way: one raised before, and one just being raised.
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
    """Return what a call of our own returns that foreign code made and that must not be broken off in the middle.

    The time counts all the same: when the limit passes meanwhile, the foreign code is ended right afterwards.
    """
    return _with_breaks(call, allowed=False)


def breakable(call: Callable[[], R]) -> R:
    """Return what foreign code returns inside of an unbroken call; there, and only there, it may be broken off."""
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
        with slot.lock:  # what is on its way is met here, before anything else is done
            slot.unbroken = before
        if slot.is_due and not before and slot.is_open:
            slot.is_due, slot.fired = False, True
            raise _OutOfTimeError


def unlimited(call: Callable[[], R]) -> R:
    """Return what a call returns, without any limit on the calls inside of it; for rechecks, which hold no lock."""
    thread = threading.get_ident()
    running = _watchdog.running
    if thread in running:
        return call()
    running[thread] = _Slot(thread, float("inf"))
    try:
        return call()
    finally:
        running.pop(thread, None)
