"""Watching one call on its own thread, so that whatever is impure in it is found and ends it (PEP 578).

Built-in and Python functions are looked at by a profile function when they are about to be called, so it
makes no difference under which name they were imported. What reaches the operating system on any other way
meets an audit hook. Both see only the thread that makes the watched call, and everything is as before when it
is over.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath
from random import Random
from types import FrameType, TracebackType
from typing import Any, Final

from projections.purity.source_checks import (
    HARMLESS,
    NAMES,
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

__all__ = ["Found", "place_of", "watched"]

Found = tuple[Impurity, str]
"""Something impure, and where: ``module:line``, ``file.py:line``, or the empty text."""

_IMPORTING: Final = ("<frozen importlib._bootstrap>", "_find_and_load")
_NEVER_BY_IMPORT: Final = frozenset({"network", "processes", "threads", "interpreter", "mutation"})
_LIBRARY: Final = sys.stdlib_module_names | {"world", "projections", "host", "pydantic"}


def watched(call: Callable[[], Any], *, but: frozenset[Kind] = frozenset()) -> tuple[Any, Found | None]:
    """Return what a call returns, and the first impure thing it did or tried to do; kinds in ``but`` are let be.

    An impure call is ended where it happens; its result is None, unless it kept itself from being ended.
    What the call raises is raised here, unless it was impure.
    """
    watch = _RunWatch(base=sys._getframe(), but=but)
    answer = None
    try:
        answer = watch.run(call)
    except _EndedError:
        pass
    except (Exception, SystemExit):
        if not watch.found:
            raise
    return answer, watch.found[0] if watch.found else None


def place_of(trace: TracebackType | None) -> str:
    """Return the innermost ``module:line`` (``file.py:line``) of a traceback that is no library code, if any."""
    where = ""
    while trace is not None:
        where = _told(trace.tb_frame, trace.tb_lineno) or where
        trace = trace.tb_next
    return where


def _told(frame: FrameType, line: int) -> str:
    """Return where a frame stands, with the file's name for a module that was loaded from a bare file.

    Library code has no place.
    """
    module = str(frame.f_globals.get("__name__"))
    if module.partition(".")[0] in _LIBRARY:
        return ""
    if module.startswith(FILE_MODULE_PREFIX):
        module = PurePath(frame.f_code.co_filename).name
    return f"{module}:{line}"


class _EndedError(BaseException):
    """Ends a watched run; no ``except Exception`` of the projection catches it."""


class _ThreadState(threading.local):
    watch: _RunWatch | None = None


_here: Final = _ThreadState()
_installing: Final = threading.Lock()
_installed = False


@dataclass(slots=True, eq=False)
class _RunWatch:
    """What one run did on its thread; ``seeded`` are the random generators that it gave a seed, by id."""

    base: FrameType | None
    but: frozenset[Kind]
    found: list[Found] = field(default_factory=list)
    seeded: dict[int, Random] = field(default_factory=dict)
    active: bool = False

    def run(self, call: Callable[[], Any]) -> Any:
        """Make a call, watching this thread; whatever watched it before does so again afterwards."""
        outer = _here.watch
        watched_before = outer is not None and outer.active
        if outer is not None:
            outer.active = False  # what is done here to watch is not the outer call's doing
        _install_hook()
        profile = sys.getprofile()
        _pause_collecting()  # finalizers of objects of others would seem to be the projection's doing
        try:
            _here.watch = self
            sys.setprofile(self.on_profile)
            self.active = True
            return call()
        finally:
            self.active = False
            sys.setprofile(None)
            _here.watch, self.base = outer, None
            _collect_again()
            _profile_again(profile)
            if outer is not None:
                outer.active = watched_before

    def on_profile(self, frame: FrameType, event: str, arg: Any) -> None:
        """Look at what is about to be called; the interpreter ends the call where this raises."""
        caller: FrameType | None = frame
        if event == "c_call":
            if arg in HARMLESS or type(getattr(arg, "__self__", None)) in PLAIN:
                return  # what nearly every call is
            found = of_builtin(arg, frame, self.seeded)
        elif event == "call":
            if frame.f_code.co_name not in NAMES:
                return
            found, caller = of_function(frame), frame.f_back
            generator = seeded_in(frame) if found is None else None
            if generator is not None:
                self.seeded[id(generator)] = generator
        else:
            return
        if found is not None and self.active:
            self.object_to(found, caller)

    def on_event(self, event: str, args: tuple[Any, ...]) -> None:
        """Look at an audit event."""
        if self.active:
            found = of_event(event, args)
            if found is not None:
                self.object_to(found, sys._getframe(2))

    def object_to(self, found: Impurity, caller: FrameType | None) -> None:
        """Note something impure and end the run, unless it is let be: by kind, in an import, in a settled library."""
        if found.kind in self.but:
            return
        where = ""
        frame = caller
        while frame is not None and frame is not self.base:
            code = frame.f_code
            if (code.co_filename, code.co_name) == _IMPORTING and found.kind not in _NEVER_BY_IMPORT:
                return
            if is_settled(found, frame.f_globals.get("__name__")):
                return
            where = where or _told(frame, frame.f_lineno)
            frame = frame.f_back
        self.found.append((found, where))
        raise _EndedError


class _Collecting:
    """How many watched calls the garbage collector waits for, and whether it was on before the first of them."""

    lock = threading.Lock()
    waits_for = 0
    was_on = False


def _pause_collecting() -> None:
    with _Collecting.lock:
        if _Collecting.waits_for == 0:
            _Collecting.was_on = gc.isenabled()
            gc.disable()
        _Collecting.waits_for += 1


def _collect_again() -> None:
    with _Collecting.lock:
        _Collecting.waits_for -= 1
        if _Collecting.waits_for == 0 and _Collecting.was_on:
            gc.enable()


def _start_afresh() -> None:
    """A forked child has the forking thread only; its collector waits for the calls of that thread."""
    is_watched = _here.watch is not None
    _Collecting.lock = threading.Lock()
    if not is_watched and _Collecting.waits_for:
        _Collecting.waits_for = 0
        if _Collecting.was_on:
            gc.enable()


os.register_at_fork(after_in_child=_start_afresh)


def _install_hook() -> None:
    """Add the audit hook, once and for good: the interpreter has no way to take one out."""
    global _installed  # noqa: PLW0603  # the hook belongs to the process
    with _installing:
        if not _installed:
            sys.addaudithook(_hook)
            _installed = True


def _hook(event: str, args: tuple[Any, ...], here: _ThreadState = _here) -> None:
    watch = here.watch
    if watch is not None:
        watch.on_event(event, args)


def _profile_again(profile: Any) -> None:
    """Give the thread back to the profiler it had; the standard library's own is no function."""
    if profile is None or callable(profile):
        sys.setprofile(profile)
    else:
        profile.enable()
