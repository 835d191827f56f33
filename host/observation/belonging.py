"""Whose code is running: the session that a thread, a task or a piece of work belongs to.

- A session entered where no event loop runs has the whole thread; one entered within a running loop has the task.
- Tasks and ``asyncio.to_thread`` inherit it with their context; threads belong to whoever started them, and work
  handed to a ``ThreadPoolExecutor`` to whoever handed it in, whichever thread then does it.
- What was there before is nobody's: other tasks of the same loop, other threads, their pools.
- What outlives its session belongs to it still, and may do nothing observable any more: nothing covers it. That is so
  for code that a session loaded, whichever thread runs it, and for what it defers (`host.observation.deferred`).
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
    from host.observation.watch import Watch

__all__ = [
    "KLIS_UNOBSERVABLE",
    "NOBODY",
    "OWN_CODE",
    "Bond",
    "Owner",
    "as_of",
    "engaged",
    "exempt",
    "governing",
    "here",
    "loaded",
    "own_code",
]

KLIS_UNOBSERVABLE: Final = "KLIS_UNOBSERVABLE"
"""The error's code where a call cannot be followed, so that it is refused whatever was declared."""

_REMEMBERED_HOSTS: Final = 4_096


class _Nobody:
    """Says that no session has this code, where saying nothing would let an enclosing one have it."""

    __slots__ = ()


NOBODY: Final = _Nobody()


class Bond:
    """One entering of a session; threads, tasks and contexts that belong to it hold it.

    Args:
        session: what was entered.
        watch: judges what is seen.
        operations: tells what calls do.
        outer: the session within which this one was entered; what this one does, that one did.
        keeps_code: whether the code that it loads belongs to it for good.
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
        self, session: Any, watch: Watch, operations: Operations, outer: Bond | None, *, keeps_code: bool = True
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
        """Let side effects pass, or stop them (KO-3).

        Raises:
            ScopeViolationError: they lie outside of the declaration, or the session has ended.
        """
        if not seen:
            return
        if self.is_forked:
            self.refuse(seen[0].call or "a side effect in a forked process", "start a process with subprocess instead")
        if self.has_ended and not self.watch.is_over:
            raise self._too_late(seen[0])
        self.watch.check(seen, depth="process")

    def refuse(self, what: str, instead: str) -> NoReturn:
        """Stop a call that nothing can follow.

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
        """Remember to which addresses a name led, so that a connection to them is known by the name."""
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
            f"Agent attempted {seen.predicate} on {seen.name} but its session has ended: what a session starts "
            f"has to end with it. The agent is {declaration.agent_id!r}, its session {declaration.session_id}.",
            agent_id=declaration.agent_id,
            session_id=declaration.session_id,
            declared=[],
            session_ended=True,
            **seen.to_wire(),
        )


Owner = Bond | _Nobody | None
"""A session, nobody, or None where nothing is said."""

OWN_CODE: Final[list[dict[str, Any]]] = []
"""The globals of the modules that stand between a call and its caller."""

engaged: Final[dict[int, weakref.ref[Bond]]] = {}
"""Every bond that something still holds. Empty is the first and usually only thing that the hook looks at."""


loaded: Final[dict[int, tuple[weakref.ref[CodeType], Bond]]] = {}
"""The code that sessions loaded, by the id of its code object, each with its session."""


class _ThreadBinding(threading.local):
    """What is known of the thread at hand."""

    owner: Owner = None
    busy: bool = False  # judging: what the engine does meanwhile is its own
    dir_fd: int | None = None  # of the os.open under way
    starting: bool = False  # a thread, by a way that is followed
    pooling: bool = False  # the thread that is started now serves a pool
    is_worker: bool = False  # this thread serves a pool
    tasks: dict[Any, Bond] | None = None  # those that entered a session


here: Final = _ThreadBinding()
_context: Final[ContextVar[Owner]] = ContextVar("worldprotocol_session", default=None)


def engage(bond: Bond) -> None:
    """Count a bond in for as long as anything holds it."""
    key = id(bond)

    def forget(_: Any, held: dict[int, Any] = engaged) -> None:
        held.pop(key, None)

    engaged[key] = weakref.ref(bond, forget)


def governing() -> Bond | None:
    """Return the session of the code that is running, None where it is nobody's."""
    owner = _context.get()
    if owner is None:
        owner = here.owner
        if owner is None and here.tasks:
            owner = here.tasks.get(_current_task())
    if loaded and owner.__class__ is not Bond:
        owner = _of_code(sys._getframe(1)) or owner
    return owner if owner.__class__ is Bond and not here.busy else None


def _of_code(frame: FrameType | None) -> Bond | None:
    """Return the session that loaded the innermost code of a stack that any session loaded."""
    while frame is not None:
        found = loaded.get(id(frame.f_code))
        if found is not None:
            return found[1]
        frame = frame.f_back
    return None


def own_code(code: CodeType, bond: Bond) -> None:
    """Give code, and all functions in it, to the session that loads it."""
    key = id(code)

    def forget(_: Any, held: dict[int, Any] = loaded) -> None:
        held.pop(key, None)

    loaded[key] = (weakref.ref(code, forget), bond)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            own_code(constant, bond)


@contextmanager
def as_of(bond: Bond) -> Iterator[None]:
    """Run the code within for a session, whatever this thread was doing."""
    token, owner, busy = _context.set(bond), here.owner, here.busy
    here.owner, here.busy = bond, False
    try:
        yield
    finally:
        here.owner, here.busy = owner, busy
        _reset(token)


def is_loop_running() -> bool:
    """Tell whether an event loop runs in this thread, so that it is its tasks that own what happens."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _current_task() -> Any:
    return sys.modules["asyncio"].current_task() if is_loop_running() else None


class SavedBinding:
    """Where a session was entered, to be restored when it is left."""

    __slots__ = ("bond", "owner", "task", "token")

    def __init__(self, bond: Bond) -> None:
        """Give the thread, or the task, to a session."""
        self.bond = bond
        self.owner = here.owner
        self.task = None
        self.token = _context.set(bond)
        if not is_loop_running():
            here.owner = bond
            return
        self.task = _current_task()
        if self.task is not None:
            if here.tasks is None:
                here.tasks = {}
            here.tasks[self.task] = bond

    def restore(self) -> None:
        """Give it back to whoever had it before."""
        _reset(self.token)
        if here.owner is self.bond:
            here.owner = self.owner
        if self.task is not None and here.tasks is not None:
            if self.bond.outer is not None and not self.bond.outer.has_ended:
                here.tasks[self.task] = self.bond.outer
            else:
                here.tasks.pop(self.task, None)


@contextmanager
def exempt() -> Iterator[None]:
    """Let the engine do its own work inside a session: what happens within, and what it starts, is nobody's."""
    token = _context.set(NOBODY)
    try:
        yield
    finally:
        _reset(token)


def _reset(token: Token[Owner]) -> None:
    try:
        _context.reset(token)
    except ValueError:  # left in another context than it was entered in, as asynchronous generators do
        before = token.old_value
        _context.set(None if before is Token.MISSING else before)


def mark_forked() -> None:
    """Let no session go on in a forked process: its watch stayed behind in the parent."""
    for reference in tuple(engaged.values()):
        bond = reference()
        if bond is not None:
            bond.is_forked = True
    here.busy = False


OWN_CODE.append(globals())
