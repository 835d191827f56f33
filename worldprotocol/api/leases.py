"""Direct use of leases: acquire, hold, release.

As a context manager::

    with world.leases.acquire(agent="ann", resource="FILE:/src/a.py", predicate="MUTATES", timeout=30) as held:
        write(token=held.token)

While a lease is held, a thread sends heartbeats. A request waits in a queue of the log: the oldest agent comes first, a
younger one gets Die in place of Wait (KP-3a), so that deadlocks are impossible. Thread-safe and process-safe.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypedDict, Unpack

from world.clock import IdSource
from world.code.keyword_options import check_names
from world.engine.lease_commands import LeaseCommands
from world.engine.protocol import WorldProtocol
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.klis.manifest import read_manifest
from world.klis.session import Rank
from world.read_models.decoding import decoded
from world.state.ports import BackupService
from worldprotocol.api.bootstrap import Follower, LoggedEvent
from worldprotocol.api.leasing.async_calls import in_thread, run_to_end, wait_for_end
from worldprotocol.api.leasing.errors import cancelled, died, timed_out
from worldprotocol.api.leasing.handle import LeaseHandle

__all__ = ["Cancel", "LeaseOptions", "Leases"]

POLL_MS: Final = 100
"""Interval, in ms, at which a waiting request polls for events of other processes; those of this process notify it."""


class Cancel:
    """Token with which another thread cancels a wait."""

    def __init__(self) -> None:
        """Create a token that is not cancelled."""
        self.is_cancelled = threading.Event()
        self._follower: Follower | None = None
        self._mutex = threading.Lock()

    def watch(self, follower: Follower) -> None:
        """Stop this follower when the wait is cancelled."""
        with self._mutex:
            self._follower = follower
            if self.is_cancelled.is_set():
                follower.stop()

    def cancel(self) -> None:
        """Cancel the wait."""
        with self._mutex:
            self.is_cancelled.set()
            if self._follower is not None:
                self._follower.stop()


class LeaseOptions(TypedDict, total=False):
    """Resources to acquire, the requesting agent, and the timeout.

    Args:
        agent: requesting agent; with ``manifest``, its agent_id counts.
        session: unit of work; leases of one session never conflict with each other. None begins a session.
        resource: requested resource, such as ``FILE:/src/*``.
        resources: further resources (a string is one resource); all or none are granted.
        predicate: one of the six KLIS predicates, ``MUTATES`` by default.
        manifest: a manifest in place of the five above, with or without a signature.
        ttl_ms: time to live of a lease without a heartbeat, in ms; None is the value of the KLIS settings.
        timeout: longest wait in seconds; None and infinity are unlimited, 0 does not wait.
        retry: request again after Die, at the time given by the verdict, until the timeout.
        by: identity of the caller, which authenticates a request in its own name. None is ``agent``; with
            ``manifest`` the caller is anonymous, so that the manifest needs a signature unless the setting
            ``authentication`` is ``open``.
        require_signature: accept a signed manifest only.
        run_id: id of the open run that requests; used by the engine.
        cancel: token with which another thread cancels the wait.
    """

    agent: str | None
    session: str | None
    resource: str | None
    resources: Iterable[str]
    predicate: str
    manifest: Mapping[str, Any] | None
    ttl_ms: int | None
    timeout: float | None
    retry: bool
    by: str | None
    require_signature: bool
    run_id: str | None
    cancel: Cancel | None


class Leases:
    """Direct use of leases; ``Realm.leases``."""

    def __init__(self, protocol: WorldProtocol, ids: IdSource, backup_service: BackupService | None = None) -> None:
        """Use the lease commands of the log's writer.

        Args:
            protocol: writer of the log.
            ids: source of ids of sessions and requests.
            backup_service: copies files for backups in advance, outside of the log's lock.
        """
        self._backup_service = backup_service
        self._protocol = protocol
        self._archive = protocol.archive
        self._ids = ids
        self._now_ms = protocol.now_ms

    @property
    def desk(self) -> LeaseCommands:
        """The individual commands, such as request, heartbeat, release and revoke."""
        return self._protocol.leasing

    def acquire(self, **options: Unpack[LeaseOptions]) -> LeaseHandle:
        """Acquire leases, and wait if Wait-Die permits; the result is a context manager.

        Args:
            **options: see ``LeaseOptions``.

        Returns:
            The leases. Heartbeats start when the context is entered or ``keep_alive`` is called.

        Raises:
            RefusedError: ``DIED`` with ``retry_after_ms`` and ``conflicts``, ``WAIT_TIMED_OUT``, ``WAIT_CANCELLED``,
                ``INVALID_VALUE``, and the codes of ``LeaseCommands.request``.
        """
        check_names(options, LeaseOptions)
        agent, manifest, run_id = options.get("agent"), options.get("manifest"), options.get("run_id")
        cancel, retry = options.get("cancel"), options.get("retry", False)
        session = options.get("session") or self._ids.new_id()
        resources = [*_one(options.get("resource")), *_several(options.get("resources", ()))]
        request = _manifest(manifest, agent, session, resources, options.get("predicate", "MUTATES"))
        limit = _seconds(options.get("timeout"))
        caller: dict[str, Any] = {
            "by": options.get("by") or agent,
            "ttl_ms": options.get("ttl_ms"),
            "require_signature": options.get("require_signature", False),
            "run_id": run_id,
        }
        until = None if limit is None else time.monotonic() + limit
        while True:
            self._copy_ahead(request, run_id)
            left = None if until is None else until - time.monotonic()
            verdict = self._request(request, left, cancel, caller)
            if verdict.status == "Granted":
                return LeaseHandle(self.desk, self._archive, verdict, now_ms=self._now_ms)
            pause = (verdict.retry_after_ms or 0) / 1000
            is_signed = "signature" in request  # its nonce has been used
            if not retry or is_signed or (until is not None and time.monotonic() + pause > until):
                raise died(verdict, self._ranks(verdict))
            waker = cancel.is_cancelled if cancel is not None else threading.Event()
            if waker.wait(pause):
                raise cancelled(verdict.request_id)

    @asynccontextmanager
    async def hold_async(self, **options: Unpack[LeaseOptions]) -> AsyncIterator[LeaseHandle]:
        """Hold leases in ``async with``; arguments as for ``acquire``.

        If the task is cancelled, the waiting request is withdrawn and held leases are released.

        Raises:
            RefusedError: as ``acquire``.
        """
        held = await self.acquire_async(**options)
        try:
            held.keep_alive()
            yield held
        finally:
            await run_to_end(held.release)

    async def acquire_async(self, **options: Unpack[LeaseOptions]) -> LeaseHandle:
        """Acquire leases without blocking the event loop; see ``acquire``."""
        options["cancel"] = cancel = Cancel()
        acquiring = in_thread(
            lambda: self.acquire(**options),
            "worldprotocol-acquire",
            unclaimed=LeaseHandle.release,
        )
        try:
            await asyncio.wait([acquiring])
        except asyncio.CancelledError:
            cancel.cancel()
            await wait_for_end(acquiring)
            if acquiring.exception() is None:
                await run_to_end(acquiring.result().release)
            raise
        return acquiring.result()

    # Internals

    def _copy_ahead(self, manifest: Mapping[str, Any], run_id: str | None) -> None:
        if self._backup_service is None:
            return
        settings, types = self._archive.peek(lambda realm: (realm.klis.in_force, realm.klis.types))
        read = read_manifest(manifest, settings=settings, types=types, on_the_way=run_id is not None)
        self._backup_service.prepare(read.triples)

    def _request(
        self,
        manifest: Mapping[str, Any],
        left: float | None,
        cancel: Cancel | None,
        caller: Mapping[str, Any],
    ) -> VerdictGiven:
        """Request once, wait if the verdict is Wait, and return the last verdict."""
        may_wait = left is None or left > 0
        request_id = self._ids.new_id()
        position = self._archive.log.head().size
        try:
            verdict = self.desk.request(
                manifest,
                queue=may_wait,
                wait_ms=None if left is None or not may_wait else max(1, math.ceil(left * 1000)),
                request_id=request_id,
                **caller,
            )
            if verdict.status != "Wait":
                return verdict
            if not verdict.queued:
                raise timed_out(request_id, verdict)
            final = self._wait(request_id, position, left, cancel)
        except RefusedError:
            raise
        except BaseException:  # the call was interrupted: neither a queued request nor leases may remain
            with suppress(WorldProtocolError):
                self._clean_up(request_id, position)
            raise
        if isinstance(final, VerdictGiven):
            return final
        is_over = final is None and (cancel is None or not cancel.is_cancelled.is_set())
        if final is not None and final.reason not in ("timeout", "cancelled"):
            raise RefusedError(
                final.reason.upper(),
                f"The waiting request {request_id} was evaluated again and not granted: {final.reason}. Correct the "
                "cause and request again.",
                request_id=request_id,
            )
        if is_over or (final is not None and final.reason == "timeout"):
            raise timed_out(request_id, verdict)
        raise cancelled(request_id)

    def _wait(
        self, request_id: str, position: int, left: float | None, cancel: Cancel | None
    ) -> VerdictGiven | RequestWithdrawn | None:
        """Wait for the final event of a request; None if this call withdrew it."""
        topics = [VerdictGiven.TOPIC, RequestWithdrawn.TOPIC]
        follower = self._archive.log.follow(position, poll_ms=POLL_MS, topics=topics)
        timer = None if left is None else threading.Timer(left, follower.stop)
        if timer is not None:
            timer.daemon = True
            timer.start()
        if cancel is not None:
            cancel.watch(follower)
        try:
            end = _final_event(follower, request_id)
        finally:
            if timer is not None:
                timer.cancel()
        if end is None and not self.desk.withdraw(request_id):  # it may have been granted at the last moment
            end = _final_event(follower.poll(), request_id)
        return end

    def _ranks(self, verdict: VerdictGiven) -> dict[str, Rank]:
        """Return the priorities of the requesting and the conflicting agents."""
        names = {verdict.agent_id, *(conflict.holder for conflict in verdict.conflicts)}
        return self._archive.peek(lambda realm: {name: realm.klis.agents[name] for name in names})

    def _clean_up(self, request_id: str, position: int) -> None:
        if self.desk.withdraw(request_id):
            return
        end = _final_event(self._archive.log.read(position, topics=[VerdictGiven.TOPIC]), request_id)
        if isinstance(end, VerdictGiven) and end.leases:
            ids = [lease.lease_id for lease in end.leases]
            self.desk.release(ids, agent_id=end.agent_id, session_id=end.session_id)


def _final_event(logged: Iterable[LoggedEvent], request_id: str) -> VerdictGiven | RequestWithdrawn | None:
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


def _manifest(
    manifest: object, agent: str | None, session: str, resources: list[str], predicate: str
) -> Mapping[str, Any]:
    if manifest is not None:
        if not isinstance(manifest, Mapping):
            kind = type(manifest).__name__
            raise RefusedError(
                ErrorCode.INVALID_VALUE, f"A manifest is a mapping, such as the result of json.loads; this is a {kind}."
            )
        if agent is not None or resources:
            raise RefusedError(ErrorCode.INVALID_VALUE, "Give a manifest, or an agent with resources, but not both.")
        return manifest
    if agent is None or not resources:
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            "The request has no agent or no resource; give agent and resource(s), or a manifest.",
        )
    scope = [{"predicate": predicate, "resource": one} for one in resources]
    return {"ver": "1.0", "session_id": session, "agent_id": agent, "scope": scope}


def _one(resource: str | None) -> list[str]:
    return [] if resource is None else [resource]


def _several(resources: object) -> list[str]:
    if isinstance(resources, str):  # one resource, not a sequence of letters
        return [resources]
    if not isinstance(resources, Iterable):
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"resources is {resources!r:.100}; it must be a list of strings such as 'FILE:/src/*'.",
        )
    return list(resources)


def _seconds(timeout: object) -> float | None:
    """Check a timeout in seconds; return None for no limit.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:  # refuses NaN too
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"timeout is {timeout!r:.100}; it must be a number of seconds from 0, or None for no limit.",
        )
    return None if timeout >= threading.TIMEOUT_MAX else float(timeout)  # the longest wait of the threading module
