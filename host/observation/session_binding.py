"""Assignment of running code to sessions: the session of a thread, a task or a unit of work.

- A session entered without a running event loop owns the whole thread; one entered within a running loop owns the task.
- Tasks and ``asyncio.to_thread`` inherit it with their context; a new thread belongs to the session of its creator, and
  work submitted to a ``ThreadPoolExecutor`` to the session of the submitter, in any worker thread.
- Earlier tasks of the same loop, other threads and their pools belong to no session.
- Code that outlives its session still belongs to it and may do nothing observable, because no declaration covers it.
  This includes code that a session loaded, in any thread, and deferred calls (`host.observation.deferred`).
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from world.errors import ScopeViolationError
from world.klis.observation import KLIS_SCOPE_VIOLATION, Seen

if TYPE_CHECKING:
    from host.observation.operations import Operations
    from host.observation.session_watch import Watch

__all__ = [
    "KLIS_UNOBSERVABLE",
    "NO_SESSION",
    "OWN_CODE",
    "Owner",
    "SessionBinding",
    "as_of",
    "engaged",
    "exempt",
    "governing",
    "loaded",
    "own_code",
    "thread_state",
]

KLIS_UNOBSERVABLE: Final = "KLIS_UNOBSERVABLE"
"""Error code for a call that cannot be observed, and is refused independent of the declaration."""

_REMEMBERED_HOSTS: Final = 4_096


class _NoSession:
    """Marks code that belongs to no session, also within an enclosing session."""

    __slots__ = ()


NO_SESSION: Final = _NoSession()


class SessionBinding:
    """One entry into a session; held by the threads, tasks and contexts that belong to it.

    Args:
        session: the entered session.
        watch: checks the observed operations.
        operations: maps calls to operations.
        outer: the enclosing session, which is responsible for this one's operations too.
        keeps_code: whether the code that it loads belongs to it permanently.
    """

    __slots__ = (
        "__weakref__",
        "children",
        "has_ended",
        "hosts",
        "is_forked",
        "keeps_code",
        "operations",
        "outer",
        "session",
        "watch",
    )

    def __init__(
        self,
        session: Any,
        watch: Watch,
        operations: Operations,
        outer: SessionBinding | None,
        *,
        keeps_code: bool = True,
    ) -> None:
        """Begin; ``has_ended`` is set when the session is left."""
        self.session = session
        self.watch = watch
        self.operations = operations
        self.outer = outer
        self.has_ended = False
        self.is_forked = False
        self.keeps_code = keeps_code
        self.children: set[int] = set()
        self.hosts: dict[str, list[str]] = {}

    def meet(self, seen: Sequence[Seen]) -> None:
        """Check side effects; pass them or stop them (KO-3).

        Raises:
            ScopeViolationError: they are not declared, or the session has ended.
        """
        if not seen:
            return
        if self.is_forked:
            self.refuse(seen[0].call or "a side effect in a forked process", "start a process with subprocess instead")
        if self.has_ended and not self.watch.is_over:
            raise self._too_late(seen[0])
        self.watch.check(seen, depth="process")

    def refuse(self, what: str, instead: str) -> NoReturn:
        """Stop a call that cannot be observed.

        Raises:
            ScopeViolationError: always, with the code ``KLIS_UNOBSERVABLE``.
        """
        declaration = self.watch.declaration
        raise ScopeViolationError(
            KLIS_UNOBSERVABLE,
            f"Agent attempted {what}, which cannot be observed: {instead}. "
            f"The agent is {declaration.agent_id!r}, its session {declaration.session_id}.",
            agent_id=declaration.agent_id,
            session_id=declaration.session_id,
            call=what,
        )

    def learn(self, host: str, addresses: Sequence[str]) -> None:
        """Store the addresses of a name, so that a connection to them is recognized by the name."""
        for address in addresses:
            names = self.hosts.setdefault(address, [])
            if host not in names:
                names.append(host)
        while len(self.hosts) > _REMEMBERED_HOSTS:
            self.hosts.pop(next(iter(self.hosts)))

    def _too_late(self, seen: Seen) -> ScopeViolationError:
        declaration = self.watch.declaration
        return ScopeViolationError(
            KLIS_SCOPE_VIOLATION,
            f"Agent attempted {seen.predicate} on {seen.name} after its session has ended; end everything that a "
            f"session starts with it. The agent is {declaration.agent_id!r}, its session {declaration.session_id}.",
            agent_id=declaration.agent_id,
            session_id=declaration.session_id,
            declared=[],
            session_ended=True,
            **seen.claim().to_wire(),
        )


Owner = SessionBinding | _NoSession | None
"""A session, ``NO_SESSION`` for none, or None where nothing is set."""

OWN_CODE: Final[list[dict[str, Any]]] = []
"""Globals of the modules between an observed call and its caller."""

engaged: Final[dict[int, weakref.ref[SessionBinding]]] = {}
"""Every living bond. Usually empty, which is the first test of the hook."""


loaded: Final[dict[int, tuple[weakref.ref[CodeType], SessionBinding]]] = {}
"""Code loaded by sessions, by the id of its code object, each with its session."""


class _ThreadBinding(threading.local):
    """State of the current thread."""

    owner: Owner = None
    busy: bool = False  # during a check: operations of the engine itself are not observed
    dir_fd: int | None = None  # of the current os.open
    starting: bool = False  # a thread is being started through a wrapped function
    pooling: bool = False  # the thread being started serves a pool
    is_worker: bool = False  # this thread serves a pool
    tasks: dict[Any, SessionBinding] | None = None  # tasks that entered a session


thread_state: Final = _ThreadBinding()
_context: Final[ContextVar[Owner]] = ContextVar("worldprotocol_session", default=None)


def register(bond: SessionBinding) -> None:
    """Register a bond until it is garbage-collected."""
    key = id(bond)

    def forget(_: Any, held: dict[int, Any] = engaged) -> None:
        held.pop(key, None)

    engaged[key] = weakref.ref(bond, forget)


def governing() -> SessionBinding | None:
    """Return the session of the running code, or None."""
    owner = _context.get()
    if owner is None:
        owner = thread_state.owner
        if owner is None and thread_state.tasks:
            owner = thread_state.tasks.get(_current_task())
    if loaded and owner.__class__ is not SessionBinding:
        owner = _of_code(sys._getframe(1)) or owner
    return owner if owner.__class__ is SessionBinding and not thread_state.busy else None


def _of_code(frame: FrameType | None) -> SessionBinding | None:
    """Return the session that loaded the innermost session code on a stack."""
    while frame is not None:
        found = loaded.get(id(frame.f_code))
        if found is not None:
            return found[1]
        frame = frame.f_back
    return None


def own_code(code: CodeType, bond: SessionBinding) -> None:
    """Assign code, and all functions in it, to the session that loads it."""
    key = id(code)

    def forget(_: Any, held: dict[int, Any] = loaded) -> None:
        held.pop(key, None)

    loaded[key] = (weakref.ref(code, forget), bond)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            own_code(constant, bond)


@contextmanager
def as_of(bond: SessionBinding) -> Iterator[None]:
    """Run the enclosed code as part of a session, independent of the thread's state."""
    token, owner, busy = _context.set(bond), thread_state.owner, thread_state.busy
    thread_state.owner, thread_state.busy = bond, False
    try:
        yield
    finally:
        thread_state.owner, thread_state.busy = owner, busy
        _reset(token)


def is_loop_running() -> bool:
    """Whether an event loop runs in this thread, so that sessions belong to its tasks."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _current_task() -> Any:
    return sys.modules["asyncio"].current_task() if is_loop_running() else None


class SavedBinding:
    """State before a session was entered, to be restored when it is left."""

    __slots__ = ("bond", "owner", "task", "token")

    def __init__(self, bond: SessionBinding) -> None:
        """Assign the thread or the task to a session."""
        self.bond = bond
        self.owner = thread_state.owner
        self.task = None
        self.token = _context.set(bond)
        if not is_loop_running():
            thread_state.owner = bond
            return
        self.task = _current_task()
        if self.task is not None:
            if thread_state.tasks is None:
                thread_state.tasks = {}
            thread_state.tasks[self.task] = bond

    def restore(self) -> None:
        """Restore the previous session."""
        _reset(self.token)
        if thread_state.owner is self.bond:
            thread_state.owner = self.owner
        if self.task is not None and thread_state.tasks is not None:
            if self.bond.outer is not None and not self.bond.outer.has_ended:
                thread_state.tasks[self.task] = self.bond.outer
            else:
                thread_state.tasks.pop(self.task, None)


@contextmanager
def exempt() -> Iterator[None]:
    """Run work of the engine inside a session without observing it, or the threads it starts."""
    token = _context.set(NO_SESSION)
    try:
        yield
    finally:
        _reset(token)


def _reset(token: Token[Owner]) -> None:
    try:
        _context.reset(token)
    except ValueError:  # left in another context than it was entered in, as by asynchronous generators
        before = token.old_value
        _context.set(None if before is Token.MISSING else before)


def mark_forked() -> None:
    """End every session in a forked process: its watch exists in the parent only."""
    for reference in tuple(engaged.values()):
        bond = reference()
        if bond is not None:
            bond.is_forked = True
    thread_state.busy = False


OWN_CODE.append(globals())
