"""A governed session of Python code: leases, interception in process, the record, and the rollback.

To be used as a context manager::

    with world.host.session(agent="ann", writes=["src/**"]) as session:
        edit_files()

``async with`` does the same in a task, without blocking its event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from host.environment import HostEnvironment
from host.observation.audit import Interception
from world.error_codes import ErrorCode
from world.errors import RefusedError, ScopeViolationError
from world.klis.observation import KLIS_SCOPE_VIOLATION
from worldprotocol.api.leases import Cancel
from worldprotocol.runs.governed import GovernedRun, Outcome

__all__ = ["GovernedSession"]

HELD_BY: Final = ("audit hooks", "content")
"""Mechanisms that enforce the declaration of Python code."""


class GovernedSession:
    """One governed session; made by ``Realm.host.session`` and used once, as a context manager.

    Leaving it raises ``ScopeViolationError`` where the code suppressed one in strict mode, and ``RefusedError``
    ``LEASE_LOST`` where the leases were lost.
    """

    def __init__(self, premises: HostEnvironment, begin: Callable[[Cancel], GovernedRun]) -> None:
        """Prepare; ``begin`` acquires the leases, unless it is cancelled."""
        self._cancel = Cancel()
        self._premises = premises
        self._begin = begin
        self._run: GovernedRun | None = None
        self._interception: Interception | None = None
        self.outcome: Outcome | None = None

    @property
    def run(self) -> GovernedRun:
        """The run of this session.

        Raises:
            RefusedError: ``NOT_BEGUN`` before the session was entered.
        """
        if self._run is None:
            raise RefusedError(ErrorCode.NOT_BEGUN, "The session has not begun; use it in a with statement.")
        return self._run

    def __enter__(self) -> Self:
        """Acquire the leases, and observe the calling thread or task.

        Raises:
            RefusedError: what ``Leases.acquire`` refuses.
        """
        self._open()
        self._watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Compare the content, undo a failure, record the end, and release the leases."""
        self._unwatch()
        self._close(error)

    async def __aenter__(self) -> Self:
        """Enter as ``with`` does, waiting in another thread."""
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._cancel.cancel()
            await asyncio.wait([opening])
            if opening.exception() is None:  # it had already begun
                await asyncio.to_thread(self._close, asyncio.CancelledError("cancelled while it began"))
            raise
        self._watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave as ``with`` does, comparing and undoing in another thread."""
        self._unwatch()
        await asyncio.shield(asyncio.to_thread(self._close, error))

    def _open(self) -> None:
        run = self._begin(self._cancel)
        run.open("python", stop=self._stop, held_by=HELD_BY)
        self._run = run

    def _watch(self) -> None:
        run = self.run
        self._interception = Interception(run.watch, self._premises.operations(run.watch.declaration))
        try:
            self._interception.__enter__()
        except BaseException as error:
            self._interception = None
            self._close(error)
            raise

    def _unwatch(self) -> None:
        if self._interception is not None:
            self._interception.__exit__(None, None, None)

    def _stop(self, why: str) -> None:
        watch = self.run.watch
        if not watch.is_over:
            declaration = watch.declaration
            details: dict[str, Any] = {"agent_id": declaration.agent_id, "session_id": declaration.session_id}
            watch.end(ScopeViolationError(KLIS_SCOPE_VIOLATION, why, **details))

    def _close(self, error: BaseException | None) -> None:
        run = self.run
        reason = None if error is None else f"{type(error).__name__}: {error}"
        self.outcome = run.end("completed" if error is None else "failed", reason=reason)
        if error is not None:
            return
        if self.outcome == "violated":
            raise run.watch.violations[0].error
        if self.outcome == "lost":
            raise RefusedError(
                ErrorCode.LEASE_LOST, f"{run.lost} Its changes may conflict with those of others; check them."
            )
