"""Direct use of leases: acquire, hold, release.

As a context manager::

    with world.leases.acquire(agent="ann", resource="FILE:/src/a.py", predicate="MUTATES", timeout=30) as held:
        write(token=held.token)

While a lease is held, a thread sends heartbeats. A request waits in a queue of the log: the oldest agent comes first, a
younger one gets Die in place of Wait (KP-3a), so that deadlocks are impossible. Thread-safe and process-safe.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypedDict, Unpack

from world.clock import IdSource
from world.code.keyword_options import check_names
from world.engine.lease_commands import LeaseCommands
from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.lease_events import VerdictGiven
from world.state.ports import BackupService
from worldprotocol.api.leasing.acquiring import Acquisition, Cancel, InThread, Steps, run_steps, run_steps_async
from worldprotocol.api.leasing.async_calls import in_thread, run_to_end
from worldprotocol.api.leasing.handle import LeaseHandle
from worldprotocol.api.waiting.proposals import timeout_seconds

__all__ = ["Cancel", "LeaseOptions", "Leases", "manifest_of"]


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

    def __init__(self, protocol: Writer, ids: IdSource, backup_service: BackupService | None = None) -> None:
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
        verdict = run_steps(self._steps(options), self._archive.expectations.join)
        return self._handle(verdict)

    def _steps(self, options: LeaseOptions) -> Steps:
        """Return the steps of an acquisition.

        Raises:
            RefusedError: ``INVALID_VALUE``; ``CALL_FROM_HANDLER`` and ``CALL_FROM_WITHIN`` where commands are refused.
        """
        check_names(options, LeaseOptions)
        self._protocol.refuse_waiting()
        agent, request = options.get("agent"), manifest_of(options, self._ids.new_id)
        acquisition = Acquisition(
            commands=self.desk,
            archive=self._archive,
            backup_service=self._backup_service,
            new_id=self._ids.new_id,
            manifest=request,
            caller={
                "by": options.get("by") or agent,
                "ttl_ms": options.get("ttl_ms"),
                "require_signature": options.get("require_signature", False),
                "run_id": options.get("run_id"),
            },
            limit=timeout_seconds(options.get("timeout")),
            retry=options.get("retry", False),
            cancel=options.get("cancel"),
        )
        return acquisition.steps()

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
        return await self.acquire_in(partial(in_thread, name="worldprotocol-acquire"), **options)

    async def acquire_in(self, threads: InThread, **options: Unpack[LeaseOptions]) -> LeaseHandle:
        """Acquire leases in asyncio, with blocking calls in the given threads; a wait holds no thread.

        Args:
            threads: runs a call in another thread.
            **options: see ``LeaseOptions``.

        Raises:
            RefusedError: as ``acquire``.
        """
        return self._handle(await run_steps_async(self._steps(options), threads))

    def _handle(self, verdict: VerdictGiven) -> LeaseHandle:
        return LeaseHandle(self.desk, self._archive, verdict, now_ms=self._now_ms)


def manifest_of(options: LeaseOptions, new_id: Callable[[], str]) -> Mapping[str, Any]:
    """Return the manifest that the options of an acquisition describe.

    Args:
        options: the options.
        new_id: returns the id of a new session.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    session = options.get("session") or new_id()
    resources = [*_one(options.get("resource")), *_several(options.get("resources", ()))]
    predicate = options.get("predicate", "MUTATES")
    return _manifest(options.get("manifest"), options.get("agent"), session, resources, predicate)


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
