"""In-process interception: stops undeclared operations of Python code before they happen (PEP 578).

One audit hook serves the process. Outside every session it tests one dictionary and returns; inside it determines the
operation with ``Operations`` and checks it with ``Watch`` (KO-2.1, KO-3). It fails closed: an operation that cannot be
checked is refused. By its nature it does not observe:

- extension modules that do their own IO (uvloop, native database drivers, Tcl, the key log of ``ssl``), and SQLite
  beyond the files that are connected to and attached,
- writes by ``mmap`` or to a file that was opened before the session, or in it and kept open after its end,
- work passed through a queue to an existing thread or process; ``ThreadPoolExecutor`` is followed,
- finalizers, suspended generators and callbacks of code that was loaded before the session and run after it, unless
    they were registered with ``atexit``, ``weakref.finalize`` or ``signal``; finalizers and signal handlers that run
    while a call is being checked,
- the end of the engine's own process (``os._exit``, a signal to itself), its limits, priority, environment, working
  directory and descriptors.

Code that deliberately deceives its interpreter can evade it. As KLIS-6 section 6 states, this level only directs
traffic; the barrier is the operating system's confinement of processes, and comparing contents finds the rest.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from host.confinement.naming import UnknowableError
from host.observation import deferred, library_wrappers
from host.observation.audit_handlers import HANDLERS, READY, Handler, NothingHappensError
from host.observation.operations import Operations
from host.observation.session_binding import (
    KLIS_UNOBSERVABLE,
    OWN_CODE,
    SavedBinding,
    SessionBinding,
    engaged,
    exempt,
    governing,
    mark_forked,
    register,
    thread_state,
)
from host.observation.session_watch import Watch
from world.errors import ScopeViolationError
from world.events.resource_values import ResourceClaim

__all__ = ["KLIS_UNOBSERVABLE", "Interception", "current", "exempt"]

_installing: Final = threading.Lock()
_installed: list[bool] = []


class Interception:
    """Observes the code that runs within it: its thread or task, and everything that these start.

    ``with Interception(watch, operations): ...`` outside an event loop covers the whole thread; within a coroutine
    it covers the task and not the other tasks of the loop. It must be left in the thread and task that entered it. A
    nested session is also checked against the outer one. Code that outlives its session can do nothing observable.
    """

    def __init__(self, watch: Watch, operations: Operations, *, keeps_code: bool = True) -> None:
        """Prepare.

        Args:
            watch: checks the observed operations.
            operations: maps calls to operations.
            keeps_code: whether code that the session loads, from the workspace or text, also belongs to it after its
                end; False for the operator's code, whose modules other code uses.
        """
        self.watch = watch
        self.operations = operations
        self._keeps_code = keeps_code
        self._bindings: list[SavedBinding] = []

    def __enter__(self) -> Self:
        """Begin; from now on every observed call is checked.

        Raises:
            ScopeViolationError: ``KLIS_UNOBSERVABLE`` where this interpreter accepts no audit hook.
        """
        _install()
        bond = SessionBinding(self, self.watch, self.operations, governing(), keeps_code=self._keeps_code)
        register(bond)
        binding = SavedBinding(bond)
        heard: list[bool] = []
        sys.audit(READY, heard)
        if not heard:
            binding.restore()
            bond.refuse("to run", "another audit hook of this process blocks the engine's own; remove it")
        self._bindings.append(binding)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; the thread or task is no longer observed."""
        binding = self._bindings.pop()
        binding.bond.has_ended = True
        binding.restore()


def current() -> Interception | None:
    """Return the session of the calling code, or None."""
    bond = governing()
    return bond.session if bond is not None else None


def _install() -> None:
    """Install hook and wrappers once in the life of a process: an audit hook cannot be removed."""
    with _installing:
        if _installed:
            return
        with exempt():
            library_wrappers.install_wrappers(_report)
            deferred.install_wrappers()
            ResourceClaim(predicate="", resource="").to_wire()  # its form cannot be derived at the interpreter's exit
            os.register_at_fork(after_in_child=mark_forked)
            sys.addaudithook(_hook)
        _installed.append(True)


# Everything that the hook needs is bound to it, so that it still works during the interpreter's shutdown.
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
    """Check a call that raises no audit event."""
    bond = governing()
    if bond is not None:
        _judge(bond, HANDLERS[event], args)


def _judge(bond: SessionBinding, handler: Handler, args: tuple[Any, ...]) -> None:
    """Check one call against the declaration of its session, and of every outer session.

    Raises:
        ScopeViolationError: it is not permitted, or cannot be checked.
    """
    thread_state.busy = True
    try:
        one: SessionBinding | None = bond
        while one is not None:
            one.meet(handler(one, args))
            one = one.outer
    except NothingHappensError:
        pass
    except UnknowableError as unknowable:  # the call fails as it would without observation
        raise OSError(unknowable.errno, os.strerror(unknowable.errno)) from None
    except ScopeViolationError as error:
        # The watch stores its error, whose traceback must not keep the agent's frames alive.
        stopped = ScopeViolationError(error.code, error.message, **error.details)
        error.__traceback__ = None
        if error.code == KLIS_UNOBSERVABLE:
            bond.watch.refused(stopped, depth="process")
        raise stopped from None
    except Exception as error:  # fails closed
        raise ScopeViolationError(
            KLIS_UNOBSERVABLE,
            f"An operation could not be checked and was stopped: {type(error).__name__}: {error}",
            arguments=repr(args)[:200],
        ) from error
    finally:
        thread_state.busy = False


OWN_CODE.append(globals())
