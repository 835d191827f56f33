"""Acquiring leases as steps that a thread or an asyncio task performs.

``Acquisition.steps`` is a generator: it yields what has to be done, and gets the result. ``run_steps`` performs the
steps in the calling thread; ``run_steps_async`` performs the calls in other threads and holds none while it waits.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

from world.engine.lease_commands import LeaseCommands
from world.errors import RefusedError, WorldProtocolError
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.klis.manifest import read_manifest
from world.klis.session import Rank
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.leases import still_blocks
from world.read_models.live.expectations import outcome
from world.state.ports import BackupService
from worldprotocol.api.bootstrap import LoggedEvent
from worldprotocol.api.leasing.async_calls import result_of, wait_for_end
from worldprotocol.api.leasing.errors import cancelled, died, ended, retry_ms, timed_out
from worldprotocol.api.waiting.steps import drive, drive_async

__all__ = ["Acquisition", "Cancel", "InThread", "Steps", "run_steps", "run_steps_async"]

FinalEvent: TypeAlias = VerdictGiven | RequestWithdrawn


class InThread(Protocol):
    """Runs a blocking call in another thread; cancelling the future does not stop a call that runs."""

    def __call__(
        self, call: Callable[[], Any], *, unclaimed: Callable[[Any], object] | None = None
    ) -> asyncio.Future[Any]:
        """Start a call; ``unclaimed`` is called with the result if the loop was closed meanwhile."""
        ...


class Cancel:
    """Token with which another thread cancels a wait."""

    def __init__(self) -> None:
        """Create a token that is not cancelled."""
        self.is_cancelled = threading.Event()
        self._waiting: Future[Any] | None = None
        self._mutex = threading.Lock()

    def watch(self, waiting: Future[Any]) -> None:
        """Cancel this future when the wait is cancelled."""
        with self._mutex:
            self._waiting = waiting
        if self.is_cancelled.is_set():
            waiting.cancel()

    def cancel(self) -> None:
        """Cancel the wait."""
        with self._mutex:
            self.is_cancelled.set()
            waiting = self._waiting
        if waiting is not None:
            waiting.cancel()


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that may block for a while; its result is the result of the step, or is passed to ``unclaimed``."""

    call: Callable[[], Any]
    unclaimed: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True)
class _Wait:
    """A wait for a future; the step has no result where the time is over, in seconds, or the future was cancelled."""

    future: Future[Any]
    timeout: float | None
    unclaimed: Callable[[Any], object] | None = None


Steps: TypeAlias = Generator[_Call | _Wait, Any, VerdictGiven]
_SomeSteps: TypeAlias = Generator[_Call | _Wait, Any, FinalEvent | None]


@dataclass(frozen=True, slots=True)
class Acquisition:
    """A request for leases, repeated after Die if that is wanted.

    Args:
        commands: commands of leases.
        archive: of the log.
        backup_service: copies files for backups in advance, outside of the log's lock.
        new_id: returns ids of requests.
        manifest: requested leases.
        caller: further arguments of ``LeaseCommands.request``.
        limit: longest wait in seconds; None is unlimited.
        retry: request again after Die, when what the request died of is free.
        cancel: token with which another thread cancels the wait.
    """

    commands: LeaseCommands
    archive: Archive
    backup_service: BackupService | None
    new_id: Callable[[], str]
    manifest: Mapping[str, Any]
    caller: Mapping[str, Any]
    limit: float | None
    retry: bool
    cancel: Cancel | None

    def steps(self) -> Steps:
        """Yield the steps; the result is the verdict that grants the leases.

        Raises:
            RefusedError: see ``worldprotocol.api.leases.Leases.acquire``.
        """
        until = None if self.limit is None else time.monotonic() + self.limit
        while True:
            if self.backup_service is not None:
                yield _Call(self._copy_ahead)
            verdict = yield from self._request(None if until is None else until - time.monotonic())
            if verdict.status == "Granted":
                return verdict
            is_signed = "signature" in self.manifest  # its nonce has been used
            if not self.retry or is_signed or not (yield from self._until_free(verdict, until)):
                raise died(verdict, (yield _Call(partial(self._ranks, verdict))))
            if self._is_cancelled:
                raise cancelled(verdict.request_id)

    def _until_free(self, verdict: VerdictGiven, until: float | None) -> Generator[_Call | _Wait, Any, bool]:
        """Wait until what a request died of is free, or for the time that its verdict gives.

        Args:
            verdict: the Die verdict.
            until: the end of the acquisition, as of ``time.monotonic``; None is none.

        Returns:
            Whether to request again; False where the end comes before.
        """
        end = time.monotonic() + retry_ms(verdict) / 1000
        while not self._is_cancelled:
            blocking: str | None = yield _Call(partial(self._still_blocks, verdict))
            if blocking is None or time.monotonic() >= end:
                return True
            if until is not None and time.monotonic() >= until:
                return False
            future = self._watched(Future[bool]())
            self.archive.expectations.expect(blocking, partial(self._has_ended, blocking), future)
            yield _Wait(future, max(0.0, (end if until is None else min(end, until)) - time.monotonic()))
        return True

    def _still_blocks(self, verdict: VerdictGiven) -> str | None:
        return self.archive.peek(lambda realm: still_blocks(realm.klis, verdict))

    def _has_ended(self, name: str) -> bool | None:
        """Return True where a lease or a queued request has ended."""
        return self.archive.peek(
            lambda realm: None if name in realm.klis.leases or name in realm.klis.requests else True
        )

    def _request(self, left: float | None) -> Steps:
        """Request once, wait if the verdict is Wait, and return the last verdict."""
        may_wait = left is None or left > 0
        request_id = self.new_id()
        position: int = yield _Call(lambda: self.archive.log.head().size)
        request = partial(
            self.commands.request,
            self.manifest,
            queue=may_wait,
            wait_ms=None if left is None or not may_wait else max(1, math.ceil(left * 1000)),
            request_id=request_id,
            **self.caller,
        )

        def clean_up(_: object = None) -> None:
            self._clean_up(request_id, position)

        try:
            verdict: VerdictGiven = yield _Call(request, clean_up)
            if verdict.status != "Wait":
                return verdict
            if not verdict.queued:
                raise timed_out(request_id, verdict)
            final = yield from self._wait(request_id, partial(self._final_event, request_id, position), left, clean_up)
        except (RefusedError, GeneratorExit):
            raise
        except BaseException:  # the call was interrupted: neither a queued request nor leases may remain
            with suppress(WorldProtocolError):
                yield _Call(clean_up)
            raise
        if isinstance(final, VerdictGiven):
            return final
        is_over = final is None and not self._is_cancelled
        if final is not None and final.reason not in ("timeout", "cancelled"):
            raise ended(request_id, final.reason)
        if is_over or (final is not None and final.reason == "timeout"):
            raise timed_out(request_id, verdict)
        raise cancelled(request_id)

    def _wait(
        self,
        request_id: str,
        look: Callable[[], FinalEvent | None],
        left: float | None,
        unclaimed: Callable[[Any], object],
    ) -> _SomeSteps:
        """Wait for the final event of a request; None if this call withdrew it."""
        future: Future[FinalEvent] = self._watched(Future())
        self.archive.expectations.expect(request_id, look, future)
        end: FinalEvent | None = yield _Wait(future, left, unclaimed)
        if end is None and not (yield _Call(partial(self.commands.withdraw, request_id))):
            end = yield _Call(look)  # it was granted at the last moment
        return end

    @property
    def _is_cancelled(self) -> bool:
        return self.cancel is not None and self.cancel.is_cancelled.is_set()

    def _watched(self, future: Future[Any]) -> Future[Any]:
        """Return a future that the token cancels."""
        if self.cancel is not None:
            self.cancel.watch(future)
        return future

    def _copy_ahead(self) -> None:
        assert self.backup_service is not None
        settings, types = self.archive.peek(lambda realm: (realm.klis.in_force, realm.klis.types))
        on_the_way = self.caller.get("run_id") is not None
        read = read_manifest(self.manifest, settings=settings, types=types, on_the_way=on_the_way)
        self.backup_service.prepare(read.triples)

    def _ranks(self, verdict: VerdictGiven) -> dict[str, Rank]:
        """Return the priorities of the requesting and the conflicting agents."""
        names = {verdict.agent_id, *(conflict.holder for conflict in verdict.conflicts)}
        return self.archive.peek(lambda realm: {name: realm.klis.agents[name] for name in names})

    def _clean_up(self, request_id: str, position: int) -> None:
        if self.commands.withdraw(request_id):
            return
        end = self._final_event(request_id, position)
        if isinstance(end, VerdictGiven) and end.leases:
            ids = [lease.lease_id for lease in end.leases]
            self.commands.release(ids, agent_id=end.agent_id, session_id=end.session_id)

    def _final_event(self, request_id: str, position: int) -> FinalEvent | None:
        """Return the event after a position that ends the wait of a request."""
        topics = [VerdictGiven.TOPIC, RequestWithdrawn.TOPIC]
        return _final(self.archive.log.read(position, topics=topics), request_id)


def run_steps(steps: Steps, join: Callable[[], None]) -> VerdictGiven:
    """Perform the steps in the calling thread.

    Args:
        steps: the steps.
        join: called after each wait, to wait for the end of the thread that completed it.

    Raises:
        RefusedError: what the steps raise.
    """

    def perform(step: _Call | _Wait) -> Any:
        if isinstance(step, _Call):
            return step.call()
        try:
            return outcome(step.future, step.timeout)
        except CancelledError:
            return None
        finally:
            step.future.cancel()
            join()

    return drive(steps, perform)


async def run_steps_async(steps: Steps, in_thread: InThread) -> VerdictGiven:
    """Perform the calls in other threads; a cancelled task performs those that withdraw and release, and is cancelled.

    Args:
        steps: the steps.
        in_thread: runs a call in another thread.

    Raises:
        RefusedError: what the steps raise.
    """

    async def perform(step: _Call | _Wait) -> Any:
        if isinstance(step, _Wait):
            return await result_of(step.future, step.timeout, step.unclaimed)
        running = in_thread(step.call, unclaimed=step.unclaimed)
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            await wait_for_end(running)
            running.exception()  # retrieved, because the cancellation has priority
            raise
        return running.result()

    return await drive_async(steps, perform)


def _final(logged: Iterable[LoggedEvent], request_id: str) -> FinalEvent | None:
    """Return the event that ends the wait of a request."""
    needle = request_id.encode()
    for one in logged:
        if needle not in one.state:
            continue
        event = decoded(one)
        if isinstance(event, RequestWithdrawn) and event.request_id == request_id:
            return event
        if isinstance(event, VerdictGiven) and event.request_id == request_id and event.status != "Wait":
            return event
    return None
