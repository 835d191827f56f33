"""What a session defers to a time after its end, told by thin wrappers: it belongs to the session then, too.

Functions given to ``atexit``, ``weakref.finalize``, ``signal.signal`` and the exit of `threading` are called as the
session's, in whatever thread: after its end they may do nothing observable. What a library registers while it is
imported belongs to no session.
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

from host.observation.belonging import OWN_CODE, Bond, as_of, engaged, exempt, governing

__all__ = ["put_in_place"]

_Function = Callable[..., Any]
_FINALIZERS: Final = weakref.finalize._exitfunc.__func__  # type: ignore[attr-defined]  # of all finalizers there are


class _Deferred:
    """A function that is called as a session's; equal to the function, so that it can be taken back."""

    __slots__ = ("__wrapped__", "_bond")

    def __init__(self, function: _Function, bond: Bond) -> None:
        self.__wrapped__ = function
        self._bond = bond

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with as_of(self._bond):
            return self.__wrapped__(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return bool(self.__wrapped__ == (other.__wrapped__ if isinstance(other, _Deferred) else other))

    def __hash__(self) -> int:
        return hash(self.__wrapped__)


def put_in_place() -> None:
    """Wrap them all, once in the life of a process."""
    atexit.register = _defers(atexit.register, at=0)
    threading._register_atexit = _defers(threading._register_atexit, at=0)  # type: ignore[attr-defined]
    signal.signal = _defers(signal.signal, at=1)
    weakref.finalize.__init__ = _defers(weakref.finalize.__init__, at=2)  # type: ignore[method-assign]


def _defers(original: Any, *, at: int) -> Any:
    """Return a wrapper of what takes a function to be called later as an argument."""

    @functools.wraps(original)
    def defer(*args: Any, **kwargs: Any) -> Any:
        bond = governing() if engaged else None
        function = args[at] if len(args) > at else None
        if bond is None or not callable(function) or _is_librarys(bond, function):
            return original(*args, **kwargs)
        told = original(*args[:at], _Deferred(function, bond), *args[at + 1 :], **kwargs)
        return function if told.__class__ is _Deferred else told

    return defer


def _is_librarys(bond: Bond, function: Any) -> bool:
    if getattr(function, "__func__", None) is _FINALIZERS:
        return True
    code = sys._getframe(2).f_code
    if code.co_name != "<module>" or code.co_filename.startswith("<"):
        return False
    with exempt():  # looking a name up is our own doing
        return not bond.operations.opened(os.path.abspath(code.co_filename), os.O_RDONLY)


OWN_CODE.append(globals())
