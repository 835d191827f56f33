"""In-process interception: stops what Python code attempts outside of its declaration, before it happens (PEP 578).

One audit hook serves the process. Outside of every session it looks at one dictionary and returns; inside it asks
``Operations`` what the call does and lets ``Watch`` judge (KO-2.1, KO-3). It fails closed: what it cannot judge, it
refuses. What it does not see, by its nature:

- extension modules that do their own IO (uvloop, native database drivers, Tcl, the key log of ``ssl``), and SQLite
  beyond the files that are connected to and attached,
- writes by ``mmap`` or to a file that was opened before the session, or in it and kept open after its end,
- work handed over a queue to a thread, or a process, that was there before; ``ThreadPoolExecutor`` is followed,
- finalizers, suspended generators and callbacks of code that was loaded before the session and run after it, unless
  they were given to ``atexit``, ``weakref.finalize`` or ``signal``; finalizers and signal handlers that happen to run
  while a call is being judged,
- the end of the engine's own process (``os._exit``, a signal to itself), its limits, priority, environment, working
  directory and descriptors.

Code that sets out to deceive the interpreter it runs in can do so. KLIS-6 section 6 has it: this is the traffic cop;
the concrete wall is the operating system's confinement of processes, and the comparison of contents finds the rest.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from host.confinement.naming import UnknowableError
from host.observation import deferred, wrapped
from host.observation.audited import HANDLERS, READY, Handler, NothingHappensError
from host.observation.belonging import (
    KLIS_UNOBSERVABLE,
    OWN_CODE,
    Bond,
    SavedBinding,
    engage,
    engaged,
    exempt,
    governing,
    here,
    mark_forked,
)
from host.observation.operations import Operations
from host.observation.watch import Watch
from world.errors import ScopeViolationError

__all__ = ["KLIS_UNOBSERVABLE", "Interception", "current", "exempt"]

_installing: Final = threading.Lock()
_installed: list[bool] = []


class Interception:
    """Puts the code that runs within it under a watch: its thread or task, and all that these start.

    ``with Interception(watch, operations): ...`` where no event loop runs takes the whole thread; within a coroutine it
    takes the task and leaves the other tasks of the loop alone. It is left in the thread and task that entered it. A
    session within a session answers to both. What outlives its session can do nothing observable any more.
    """

    def __init__(self, watch: Watch, operations: Operations, *, keeps_code: bool = True) -> None:
        """Prepare.

        Args:
            watch: judges what is seen.
            operations: tells what calls do.
            keeps_code: whether code that the session loads, from the workspace or from text, belongs to it after its
                end, too; False where the operator's code runs, whose modules are used by others.
        """
        self.watch = watch
        self.operations = operations
        self._keeps_code = keeps_code
        self._places: list[SavedBinding] = []

    def __enter__(self) -> Self:
        """Begin; from here on every observed call is judged.

        Raises:
            ScopeViolationError: ``KLIS_UNOBSERVABLE`` where this interpreter lets no audit hook in.
        """
        _install()
        bond = Bond(self, self.watch, self.operations, governing(), keeps_code=self._keeps_code)
        engage(bond)
        place = SavedBinding(bond)
        heard: list[bool] = []
        sys.audit(READY, heard)
        if not heard:
            place.restore()
            bond.refuse("to run", "another audit hook of this process keeps the engine's own out; take it away")
        self._places.append(place)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; the thread or task is its own again."""
        place = self._places.pop()
        place.bond.has_ended = True
        place.restore()


def current() -> Interception | None:
    """Return the session that the calling code belongs to, None where it is nobody's."""
    bond = governing()
    return bond.session if bond is not None else None


def _install() -> None:
    """Put hook and wrappers in place, once in the life of a process: an audit hook cannot be taken away."""
    with _installing:
        if _installed:
            return
        with exempt():
            wrapped.put_in_place(_report)
            deferred.put_in_place()
            os.register_at_fork(after_in_child=mark_forked)
            sys.addaudithook(_hook)
        _installed.append(True)


# Everything that the hook needs is bound to it, so that it still works while the interpreter takes its modules apart.
def _hook(
    event: str,
    args: tuple[Any, ...],
    *,
    _engaged: dict[int, Any] = engaged,
    _handlers: Mapping[str, Handler] = HANDLERS,
    _governing: Any = governing,
) -> None:
    if not _engaged:
        return
    handler = _handlers.get(event)
    if handler is None:
        return
    bond = _governing()
    if bond is not None:
        _judge(bond, handler, args)


def _report(event: str, args: tuple[Any, ...]) -> None:
    """Take in what raises no event of its own."""
    bond = governing()
    if bond is not None:
        _judge(bond, HANDLERS[event], args)


def _judge(bond: Bond, handler: Handler, args: tuple[Any, ...]) -> None:
    """Hold one call against the declaration of its session, and of every session around that one.

    Raises:
        ScopeViolationError: it is not allowed, or nobody can tell.
    """
    here.busy = True
    try:
        one: Bond | None = bond
        while one is not None:
            one.meet(handler(one, args))
            one = one.outer
    except NothingHappensError:
        pass
    except UnknowableError as unknowable:  # so the call fails, as it would by itself where nothing has changed since
        raise OSError(unknowable.errno, os.strerror(unknowable.errno)) from None
    except ScopeViolationError as error:
        # The watch remembers its error, which must not hold the agent's frames by its trace for as long.
        stopped = ScopeViolationError(error.code, error.message, **error.details)
        error.__traceback__ = None
        if error.code == KLIS_UNOBSERVABLE:
            bond.watch.refused(stopped, depth="process")
        raise stopped from None
    except Exception as error:  # fails closed
        if sys is not None and not sys.is_finalizing():
            raise ScopeViolationError(
                KLIS_UNOBSERVABLE,
                f"What the agent attempted could not be judged, so it was stopped: {type(error).__name__}: {error}",
                arguments=repr(args)[:200],
            ) from error
    finally:
        here.busy = False


OWN_CODE.append(globals())
