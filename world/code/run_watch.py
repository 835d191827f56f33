"""Watch of calls on their thread that stops at the first impure operation.

A profile function checks built-in and Python functions when they are called, whatever the name under which they were
imported. An audit hook (PEP 578) checks other accesses to the operating system. Both apply only to the thread of the
watched calls, and the previous state of the thread is restored afterwards. One watch serves several calls in sequence.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath
from random import Random
from types import FrameType, TracebackType
from typing import Any, Final, Self

from world.code.impurities import (
    HARMLESS,
    MODULES,
    PLAIN,
    Impurity,
    Kind,
    is_settled,
    of_builtin,
    of_event,
    of_function,
    seeded_in,
)
from world.code.references import FILE_MODULE_PREFIX

__all__ = ["Found", "RunWatch", "place_of", "watched"]

Found = tuple[Impurity, str]
"""An impure operation and its place: ``module:line``, ``file.py:line``, or empty."""

_IMPORTING: Final = ("<frozen importlib._bootstrap>", "_find_and_load")
_NEVER_BY_IMPORT: Final = frozenset({"network", "processes", "threads", "interpreter", "mutation"})
_LIBRARY: Final = sys.stdlib_module_names | {"world", "projections", "authority", "host", "pydantic"}


def watched(call: Callable[[], Any], *, but: frozenset[Kind] = frozenset()) -> tuple[Any, Found | None]:
    """Return the result of a call and its first impure operation.

    Kinds in ``but`` are allowed. An impure operation ends the call, and the result is None, unless the call caught the
    exception. Exceptions of a pure call are raised here.
    """
    with RunWatch(but=but) as watch:
        return watch.call(call)


def place_of(trace: TracebackType | None) -> str:
    """Return the innermost ``module:line`` of a traceback outside of libraries."""
    where = ""
    while trace is not None:
        where = _place_in(trace.tb_frame, trace.tb_lineno) or where
        trace = trace.tb_next
    return where


def _place_in(frame: FrameType, line: int) -> str:
    """Return ``module:line`` or ``file.py:line`` of a frame; empty for libraries."""
    module = str(frame.f_globals.get("__name__"))
    if module.partition(".")[0] in _LIBRARY:
        return ""
    if module.startswith(FILE_MODULE_PREFIX):
        module = PurePath(frame.f_code.co_filename).name
    return f"{module}:{line}"


class _EndedError(BaseException):
    """Ends a watched run; not caught by ``except Exception`` of the projection."""


class _ThreadState(threading.local):
    watch: RunWatch | None = None


_thread_state: Final = _ThreadState()
_installing: Final = threading.Lock()
_installed = False


@dataclass(slots=True, eq=False)
class RunWatch:
    """Watch of a thread; a context manager, within which ``call`` makes the watched calls.

    Args:
        but: kinds of impurity that are allowed.
    """

    but: frozenset[Kind] = frozenset()
    found: list[Found] = field(default_factory=list, init=False)
    seeded: dict[int, Random] = field(default_factory=dict, init=False)  # generators that the call seeded, by id
    active: bool = field(default=False, init=False)
    _outer: RunWatch | None = field(default=None, init=False)
    _was_active: bool = field(default=False, init=False)
    _profile: Any = field(default=None, init=False)

    def __enter__(self) -> Self:
        """Watch the thread instead of an outer watch, which must not see the calls made here."""
        self._outer = _thread_state.watch
        if self._outer is not None:
            self._was_active, self._outer.active = self._outer.active, False
        _install_hook()
        self._profile = sys.getprofile()
        _pause_collecting()  # finalizers of other objects would be attributed to the watched call
        _thread_state.watch = self
        _set_profile(None)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the previous state of the thread."""
        self.active = False
        _thread_state.watch = self._outer
        _resume_collecting()
        _restore_profiler(self._profile)
        if self._outer is not None:
            self._outer.active = self._was_active
        self._outer = None

    def call(self, call: Callable[..., Any], *given: Any) -> tuple[Any, Found | None]:
        """Return the result of a call and its first impure operation; see ``watched``.

        The profile function is set for the call alone: each of its events costs as much as a call.
        """
        self.found.clear()
        self.seeded.clear()
        answer = None
        try:
            _set_profile(self.on_profile)
            self.active = True
            answer = call(*given)
        except _EndedError:
            pass
        except (Exception, SystemExit):
            if not self.found:
                raise
        finally:
            self.active = False
            _set_profile(None)
        return answer, self.found[0] if self.found else None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Allow everything: the engine reads the log for the watched call."""
        was_active, self.active = self.active, False
        _set_profile(None)
        try:
            yield
        finally:
            _set_profile(self.on_profile)
            self.active = was_active

    def on_profile(self, frame: FrameType, event: str, arg: Any) -> None:
        """Check a function before its call, and raise to end the call."""
        if not self.active:
            return
        caller: FrameType | None = frame
        if event == "c_call":
            if arg in HARMLESS or type(getattr(arg, "__self__", None)) in PLAIN:
                return  # the most frequent case
            found = of_builtin(arg, frame, self.seeded)
        elif event == "call":
            if frame.f_globals.get("__name__") not in MODULES:
                return  # before ``f_code`` is read, which is an audit event
            found, caller = of_function(frame), frame.f_back
            generator = seeded_in(frame) if found is None else None
            if generator is not None:
                self.seeded[id(generator)] = generator
        else:
            return
        if found is not None:
            self.object_to(found, caller)

    def on_event(self, event: str, args: tuple[Any, ...]) -> None:
        """Check an audit event."""
        if self.active:
            found = of_event(event, args)
            if found is not None:
                self.object_to(found, sys._getframe(2))

    def object_to(self, found: Impurity, caller: FrameType | None) -> None:
        """Record an impure operation and end the run, unless it is exempt."""
        if found.kind in self.but:
            return
        where = ""
        frame = caller
        while frame is not None and (code := frame.f_code) is not _CALL:
            if (code.co_filename, code.co_name) == _IMPORTING and found.kind not in _NEVER_BY_IMPORT:
                return
            if is_settled(found, frame.f_globals.get("__name__")):
                return
            where = where or _place_in(frame, frame.f_lineno)
            frame = frame.f_back
        self.found.append((found, where))
        raise _EndedError


_CALL: Final = RunWatch.call.__code__
"""Code of the innermost frame of the engine below a watched call."""


class _Collecting:
    """Number of watched calls that pause the garbage collector, and its prior state."""

    lock = threading.Lock()
    waits_for = 0
    was_on = False


class _Profiling:
    """What threads share that set their profile functions."""

    lock = threading.RLock()


def _pause_collecting() -> None:
    with _Collecting.lock:
        if _Collecting.waits_for == 0:
            _Collecting.was_on = gc.isenabled()
            gc.disable()
        _Collecting.waits_for += 1


def _resume_collecting() -> None:
    with _Collecting.lock:
        _Collecting.waits_for -= 1
        if _Collecting.waits_for == 0 and _Collecting.was_on:
            gc.enable()


def _reset_after_fork() -> None:
    """Reset the pause in a forked child, which has only the forking thread."""
    is_watched = _thread_state.watch is not None
    _Collecting.lock, _Profiling.lock = threading.Lock(), threading.RLock()
    if not is_watched and _Collecting.waits_for:
        _Collecting.waits_for = 0
        if _Collecting.was_on:
            gc.enable()


os.register_at_fork(after_in_child=_reset_after_fork)


def _install_hook() -> None:
    """Add the audit hook once; the interpreter cannot remove it."""
    global _installed  # noqa: PLW0603  # the hook belongs to the process
    with _installing:
        if not _installed:
            sys.addaudithook(_hook)
            _installed = True


def _hook(event: str, args: tuple[Any, ...], state: _ThreadState = _thread_state) -> None:
    watch = state.watch
    if watch is not None:
        watch.on_event(event, args)


def _restore_profiler(profile: Any) -> None:
    """Restore the thread's previous profiler, which may be an object."""
    if profile is None or callable(profile):
        _set_profile(profile)
    else:
        with _Profiling.lock:
            profile.enable()


def _set_profile(function: Any) -> None:
    """Set the thread's profile function, while no other thread sets its own.

    CPython 3.11 refuses that, although the threads have nothing in common, where an audit hook gives
    way to the other one.
    """
    with _Profiling.lock:
        sys.setprofile(function)
