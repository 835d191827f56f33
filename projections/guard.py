"""Asking projections without trusting them: twice, under watch, on copies (INT-9.2, INT-11.1, INT-11.3; INV-P1..P5).

Each run gets fresh copies of everything; in the second one the members of the snapshot stand in the opposite order.
Different answers mean that something other than the request decided. While a run goes on, its own thread is watched,
and only that one: built-in and Python functions about to be called by a profile function (so it makes no difference
how they were imported), and what reaches the operating system by an audit hook (PEP 578). The first thing that a
pure step does not do ends the run, and is told whether or not the projection lets the end happen.

Importing a module on first use is no impurity: what modules read while they are being imported is let be, as long as
it is no network, process or thread.

This finds honest mistakes; it is no sandbox. It does not see functions written in C that are called by C alone
(``functools.partial(time.time)()``), native libraries with a clock of their own, work handed to threads that already
run, nor what differs between processes only (the order of a set of texts): the two runs tell most of these, and a
recheck in another process tells the rest.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, dataclass, field
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from pydantic import ValidationError

from projections.contract import Projection, ProjectionRequest, ProjectionResult, read_result
from projections.purity import ADVICE, Impurity, of_builtin, of_event, of_function
from projections.registry import Registered, read_acceptance, registered
from world.actor import ActorRef
from world.canonical import canonical_bytes, canonical_text
from world.errors import Refused
from world.frozen import freeze, thaw
from world.snapshot import SnapshotView
from world.source import SourceEvent

__all__ = ["Guard", "guarded"]

R = TypeVar("R")

_IMPORTING: Final = ("<frozen importlib._bootstrap>", "_find_and_load")
_NEVER_BY_IMPORT: Final = frozenset({"network", "processes", "threads", "interpreter", "mutation"})


class Guard:
    """Asks every projection twice under watch (``projections.registry.Asking``); for tests and paranoid realms."""

    def accepts(self, asked: Registered, source: SourceEvent) -> bool:
        """Tell whether a projection wants to be asked about an event.

        Raises:
            Refused: ``PROJECTION_IMPURE``, ``PROJECTION_NOT_DETERMINISTIC``, and what ``Directly.accepts`` refuses.
        """
        accepts = asked.accepts
        if accepts is None:
            return True
        pristine = canonical_bytes(thaw(source.to_wire()))

        def once() -> bool:
            copy = _copied_source(source)
            answer = _watched(asked.projection_id, lambda: accepts(copy))
            _refuse_changed(asked.projection_id, pristine, copy.to_wire)
            return read_acceptance(asked.projection_id, answer)

        return _twice(asked.projection_id, once, once, repr)

    def project(self, asked: Projection, req: ProjectionRequest) -> ProjectionResult:
        """Return a projection's result.

        Raises:
            Refused: ``PROJECTION_IMPURE`` with ``kind``, ``attempt`` and ``where``;
                ``PROJECTION_NOT_DETERMINISTIC`` with both answers; and what ``projections.ask`` refuses.
        """
        pristine = canonical_bytes(thaw(req.to_wire()))

        def once(reverse: bool) -> ProjectionResult:
            copy = _copied(req, reverse=reverse)
            answer = _watched(asked.projection_id, lambda: asked.project(copy))
            _refuse_changed(asked.projection_id, pristine, copy.to_wire)
            return read_result(asked.projection_id, answer)

        return _twice(asked.projection_id, lambda: once(False), lambda: once(True), _told)


def guarded(projection: Projection, req: ProjectionRequest) -> ProjectionResult:
    """Ask one projection under guard; see ``Guard.project``.

    Raises:
        Refused: ``INVALID_PROJECTION`` for what is no projection, and what ``Guard.project`` refuses.
    """
    return Guard().project(registered(projection), req)


def _twice(
    projection_id: str, first: Callable[[], R], second: Callable[[], R], told: Callable[[R], str]
) -> R:
    """Return what both runs agree on."""
    answer = first()
    try:
        again = told(second())
    except Refused as refused:
        if refused.code == "PROJECTION_IMPURE":
            raise
        again = f"an error: {refused.message.rstrip('.')}"
    if told(answer) != again:
        raise Refused(
            "PROJECTION_NOT_DETERMINISTIC",
            f"The projection {projection_id!r} answered the same request with {told(answer)[:200]} and then with "
            f"{again[:200]}. Something other than the request decides: a value kept between calls, or the order of "
            "members in the snapshot.",
            projection=projection_id,
            first=told(answer),
            second=again,
        )
    return answer


def _told(result: ProjectionResult) -> str:
    return canonical_text(result.to_wire())


def _copied(req: ProjectionRequest, *, reverse: bool) -> ProjectionRequest:
    """Return a request that shares nothing changeable with this one."""
    order = _reversed if reverse else thaw
    view = SnapshotView(freeze(order(req.snapshot.data)), freeze(order(req.snapshot.computed)))
    actor = ActorRef.read(thaw(req.actor.to_wire()))
    return ProjectionRequest(req.schema_hash, view, actor, _copied_source(req.source))


def _copied_source(source: SourceEvent) -> SourceEvent:
    return SourceEvent.read(thaw(source.to_wire()))


def _reversed(value: Any) -> Any:
    """Return a plain copy in which the members of every object stand in the opposite order."""
    if isinstance(value, dict):
        return {key: _reversed(item) for key, item in reversed(value.items())}
    return [_reversed(item) for item in value] if isinstance(value, list) else value


def _refuse_changed(projection_id: str, pristine: bytes, wire: Callable[[], Any]) -> None:
    """Refuse a projection that got past the frozen values; ``thaw`` looks at them and not at texts they remember."""
    try:
        unchanged = canonical_bytes(thaw(wire())) == pristine
    except Exception:  # noqa: BLE001  # what was put there need not be JSON, nor need it be there any more
        unchanged = False
    if not unchanged:
        raise _impure(projection_id, Impurity("mutation", "what it was given"), "")


def _impure(projection_id: str, found: Impurity, where: str) -> Refused:
    did = "changes" if found.kind == "mutation" else "uses"
    at = f" at {where}" if where else ""
    return Refused(
        "PROJECTION_IMPURE",
        f"The projection {projection_id!r} {did} {found.what}{at}; {ADVICE[found.kind]}.",
        projection=projection_id,
        kind=found.kind,
        attempt=found.what,
        where=where,
    )


def _watched(projection_id: str, call: Callable[[], Any]) -> Any:
    """Return what a call into a projection returns, if nothing impure happened in it."""
    watch = _Watch()
    try:
        with watch.on_this_thread():
            answer = call()
    except _Ended:
        answer = None
    except Exception as error:  # noqa: BLE001  # somebody else's code
        watch.refuse_found(projection_id)
        raise _raised(projection_id, error) from error
    finally:
        watch.refuse_found(projection_id)
    return answer


def _raised(projection_id: str, error: Exception) -> Refused:
    frozen = isinstance(error, FrozenInstanceError) or (
        isinstance(error, ValidationError)
        and any(fault["type"] in ("frozen_instance", "frozen_field") for fault in error.errors())
    )
    if frozen:
        return _impure(projection_id, Impurity("mutation", "a frozen value"), _where_raised(error))
    told = f"{type(error).__name__}: {error}".removesuffix(".")
    return Refused(
        "PROJECTION_FAILED",
        f"The projection {projection_id!r} raised {told}.",
        projection=projection_id,
        error=type(error).__name__,
    )


class _Ended(BaseException):
    """Ends a watched run; no ``except Exception`` of the projection catches it."""


class _Here(threading.local):
    watch: _Watch | None = None


_here: Final = _Here()
_installing: Final = threading.Lock()
_installed = False


@dataclass(slots=True, eq=False)
class _Watch:
    """What one run did on its thread."""

    found: list[tuple[Impurity, str]] = field(default_factory=list)
    active: bool = False
    base: FrameType | None = None

    @contextmanager
    def on_this_thread(self) -> Iterator[None]:
        """Watch this thread; whatever watched it before does so again afterwards."""
        _install_hook()
        outer, profile = _here.watch, sys.getprofile()
        collects = gc.isenabled()
        gc.disable()  # finalizers of other people's objects would seem to be the projection's doing
        self.base, _here.watch, self.active = sys._getframe(), self, True
        sys.setprofile(self.on_profile)
        try:
            yield
        finally:
            self.active = False
            sys.setprofile(None)
            _here.watch, self.base = outer, None
            if collects:
                gc.enable()
            _profile_again(profile)

    def refuse_found(self, projection_id: str) -> None:
        """Raise the refusal for the first thing found, if there is any."""
        if self.found:
            raise _impure(projection_id, *self.found[0]) from None

    def on_profile(self, frame: FrameType, event: str, arg: Any) -> None:
        """Look at what is about to be called; the interpreter ends the call where this raises."""
        if not self.active:
            return
        if event == "c_call":
            found = of_builtin(arg, frame)
            caller: FrameType | None = frame
        elif event == "call":
            found, caller = of_function(frame), frame.f_back
        else:
            return
        if found is not None:
            self.object_to(found, caller)

    def on_event(self, event: str, args: tuple[Any, ...]) -> None:
        """Look at an audit event."""
        if self.active:
            found = of_event(event, args)
            if found is not None:
                self.object_to(found, sys._getframe(2))

    def object_to(self, found: Impurity, caller: FrameType | None) -> None:
        """Note something impure and end the run, unless an import does it."""
        where = ""
        frame = caller
        while frame is not None and frame is not self.base:
            code = frame.f_code
            if (code.co_filename, code.co_name) == _IMPORTING and found.kind not in _NEVER_BY_IMPORT:
                return
            module = str(frame.f_globals.get("__name__"))
            if not where and module.partition(".")[0] not in _LIBRARY:
                where = f"{module}:{frame.f_lineno}"
            frame = frame.f_back
        self.found.append((found, where))
        _end()


_LIBRARY: Final = sys.stdlib_module_names | {"world", "projections", "pydantic"}


def _end() -> NoReturn:
    raise _Ended


def _install_hook() -> None:
    """Add the audit hook, once and for good: the interpreter has no way to take one out."""
    global _installed  # noqa: PLW0603  # the hook belongs to the process
    with _installing:
        if not _installed:
            sys.addaudithook(_hook)
            _installed = True


def _hook(event: str, args: tuple[Any, ...], here: _Here = _here) -> None:
    watch = here.watch
    if watch is not None:
        watch.on_event(event, args)


def _profile_again(profile: Any) -> None:
    """Give the thread back to the profiler it had; the standard library's own is no function."""
    if profile is None or callable(profile):
        sys.setprofile(profile)
    else:
        profile.enable()


def _where_raised(error: BaseException) -> str:
    where = ""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _LIBRARY:
            where = f"{module}:{trace.tb_lineno}"
        trace = trace.tb_next
    return where
