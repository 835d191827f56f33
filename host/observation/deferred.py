"""Wrappers for calls that a session defers until after its end: they belong to the session then, too.

Functions registered with ``atexit``, ``weakref.finalize``, ``signal.signal`` and the exit of `threading` are called as
part of the session, in any thread: after its end they may do nothing observable. Functions that a library registers
during its import belong to no session.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from host.observation.session_binding import OWN_CODE, SessionBinding, as_of, engaged, exempt, governing

__all__ = ["install_wrappers"]

_Function = Callable[..., Any]
_FINALIZERS: Final = weakref.finalize._exitfunc.__func__  # type: ignore[attr-defined]  # of all finalizers there are


class _Deferred:
    """A function that is called as part of a session; equal to the function, so that it can be unregistered."""

    __slots__ = ("__wrapped__", "_bond")

    def __init__(self, function: _Function, bond: SessionBinding) -> None:
        self.__wrapped__ = function
        self._bond = bond

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with as_of(self._bond):
            return self.__wrapped__(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return bool(self.__wrapped__ == (other.__wrapped__ if isinstance(other, _Deferred) else other))

    def __hash__(self) -> int:
        return hash(self.__wrapped__)


def install_wrappers() -> None:
    """Install all wrappers, once in the life of a process."""
    atexit.register = _defers(atexit.register, at=0)
    threading._register_atexit = _defers(threading._register_atexit, at=0)  # type: ignore[attr-defined]
    signal.signal = _defers(signal.signal, at=1)
    weakref.finalize.__init__ = _defers(weakref.finalize.__init__, at=2)  # type: ignore[method-assign]


def _defers(original: Any, *, at: int) -> Any:
    """Wrap a function that takes a later-called function as an argument."""

    @functools.wraps(original)
    def defer(*args: Any, **kwargs: Any) -> Any:
        bond = governing() if engaged else None
        function = args[at] if len(args) > at else None
        if bond is None or not callable(function) or _is_from_library(bond, function):
            return original(*args, **kwargs)
        registered = original(*args[:at], _Deferred(function, bond), *args[at + 1 :], **kwargs)
        return function if registered.__class__ is _Deferred else registered

    return defer


def _is_from_library(bond: SessionBinding, function: Any) -> bool:
    if getattr(function, "__func__", None) is _FINALIZERS:
        return True
    code = sys._getframe(2).f_code
    if code.co_name != "<module>" or code.co_filename.startswith("<"):
        return False
    with exempt():  # the name lookup belongs to the engine
        return not bond.operations.opened(os.path.abspath(code.co_filename), os.O_RDONLY)


OWN_CODE.append(globals())
