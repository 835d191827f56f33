"""Leases of a realm on a server: request, wait, keep alive, release; a wait is a request that the server answers late.

A request whose answer was lost is sent again with its key, so no lease is taken twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Unpack

from world.clock import IdSource
from world.code.keyword_options import check_names
from world.engine.lease_commands import LeaseCommands
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.lease_events import LeaseRenewed, VerdictGiven
from world.klis.manifest import manifest_document
from world.klis.session import Rank
from worldprotocol.api.leases import Cancel, LeaseOptions, Leases, manifest_of
from worldprotocol.api.leasing.acquiring import InThread
from worldprotocol.api.leasing.async_calls import in_thread, run_to_end
from worldprotocol.api.leasing.errors import cancelled, died, ended, retry_ms, timed_out
from worldprotocol.api.leasing.handle import LeaseHandle
from worldprotocol.api.remote.connection import RealmRequest, RemoteSteps, ServerConnection, resource
from worldprotocol.api.remote.elsewhere import refuses_elsewhere
from worldprotocol.api.remote.event_forms import read_event
from worldprotocol.api.waiting.proposals import timeout_seconds

__all__ = ["RemoteDesk", "RemoteLeaseHandle", "RemoteLeases"]

WAIT_S: Final = 20.0
"""Longest wait of one request, in seconds."""

CANCELLABLE_WAIT_S: Final = 0.5
"""Longest wait of one request, and of a pause, that another thread may cancel, in seconds."""


@refuses_elsewhere("Realm.leases.desk")
class RemoteDesk(LeaseCommands):
    """The individual commands on leases, as the caller; see ``LeaseCommands``.

    Args:
        connection: the client of the realm.
        new_id: returns keys of requests.
    """

    __slots__ = ("_connection", "_new_id")

    def __init__(self, connection: ServerConnection, new_id: Callable[[], str]) -> None:
        """Use a connection."""
        self._connection = connection
        self._new_id = new_id

    def request(
        self,
        manifest: Mapping[str, Any] | str | bytes,
        *,
        by: str | None,
        ttl_ms: int | None = None,
        queue: bool = False,
        wait_ms: int | None = None,
        request_id: str | None = None,
        require_signature: bool = False,
        run_id: str | None = None,
        yaml: bool = False,
    ) -> VerdictGiven:
        """Ask for the leases of a manifest, all or none; see ``LeaseCommands.request``. The server verifies the caller.

        Raises:
            RefusedError: ``NOT_REMOTE`` with ``run_id``; the codes of ``LeaseCommands.request``.
        """
        if run_id is not None:
            raise RefusedError(ErrorCode.NOT_REMOTE, "A run is on the machine of its workspace; leave run_id out.")
        document = manifest_document(manifest, yaml=yaml) if isinstance(manifest, str | bytes) else manifest
        asked = asking(document, ttl_ms, require_signature=require_signature)
        asked |= {"queue": queue, "waitMs": wait_ms, "requestId": request_id}
        verdict: VerdictGiven = read_event(self._connection.post("/leases", asked, key=self._new_id())["event"])
        return verdict

    def heartbeat(
        self, lease_ids: Iterable[str], *, agent_id: str, session_id: str, ttl_ms: int | None = None
    ) -> list[LeaseRenewed]:
        """Let leases live on from now, all or none; see ``LeaseCommands.heartbeat``."""
        body = {"leaseIds": list(lease_ids), "sessionId": session_id, "ttlMs": ttl_ms}
        return [read_event(one["event"]) for one in self._connection.post("/leases:heartbeat", body)["leases"]]

    def release(self, lease_ids: Iterable[str], *, agent_id: str, session_id: str) -> dict[str, str]:
        """Give leases back, all or none, and return the state of each; see ``LeaseCommands.release``."""
        body = {"leaseIds": list(lease_ids), "sessionId": session_id}
        states: dict[str, str] = self._connection.post("/leases:release", body, key=self._new_id())["states"]
        return states

    def revoke(self, lease_ids: Iterable[str], *, by: str, reason: str) -> dict[str, str]:
        """Revoke leases of any holder; see ``LeaseCommands.revoke``."""
        body = {"leaseIds": list(lease_ids), "reason": reason}
        states: dict[str, str] = self._connection.post("/leases:revoke", body, key=self._new_id())["states"]
        return states

    def withdraw(self, request_id: str, *, reason: str = "cancelled") -> bool:
        """Take a request of the caller out of the queue; False where it does not wait (any more).

        Args:
            request_id: the request.
            reason: ``cancelled``; the server records no other one.
        """
        path = resource("leases/requests", request_id) + ":withdraw"
        withdrawn: bool = self._connection.post(path, {}, key=self._new_id())["withdrawn"]
        return withdrawn

    def held(self) -> list[dict[str, Any]]:
        """Return the leases in force of the caller, JSON."""
        found: list[dict[str, Any]] = self._connection.get("/leases/held")["leases"]
        return found


class RemoteLeaseHandle(LeaseHandle):
    """Leases of a realm on a server that were granted together; see ``LeaseHandle``."""

    def __init__(self, desk: RemoteDesk, verdict: VerdictGiven) -> None:
        """Hold the leases of a granted verdict; ``keep_alive`` starts the heartbeats."""
        super().__init__(desk, None, verdict, now_ms=_no_time)
        self._desk = desk

    def _why_lost(self) -> str | None:
        if self._lost is None:
            in_force = {one["leaseId"] for one in self._desk.held()}
            for name in self.lease_ids:
                if name not in in_force:
                    self._lose(f"Lease {name} has ended: it expired or was revoked.")
        return self._lost


class RemoteLeases(Leases):
    """Direct use of leases of a realm on a server; see ``Leases``.

    Args:
        connection: the client of the realm.
        ids: source of ids of sessions and requests.
    """

    def __init__(self, connection: ServerConnection, ids: IdSource) -> None:
        """Use a connection."""
        self._connection = connection
        self._ids = ids

    @property
    def desk(self) -> RemoteDesk:
        """The individual commands, such as request, heartbeat, release and revoke."""
        return RemoteDesk(self._connection, self._ids.new_id)

    def waits(self) -> list[dict[str, Any]]:
        """Return the requests that wait, with what each waits for, JSON; raises ``RefusedError`` ``RIGHT_MISSING``."""
        found: list[dict[str, Any]] = self._connection.get("/leases/waits")["waits"]
        return found

    def in_force(self) -> list[dict[str, Any]]:
        """Return the leases in force of all holders, JSON; raises ``RefusedError`` ``RIGHT_MISSING``."""
        found: list[dict[str, Any]] = self._connection.get("/leases")["leases"]
        return found

    def acquire(self, **options: Unpack[LeaseOptions]) -> LeaseHandle:
        """Acquire leases, and wait if Wait-Die permits; the result is a context manager. See ``Leases.acquire``."""
        body: dict[str, Any] = {}
        try:
            return RemoteLeaseHandle(self.desk, self._connection.perform(self._requests(options, body)))
        except RefusedError:
            raise
        except BaseException:  # the wait was interrupted: neither a queued request nor leases may remain
            self._clean_up(body)
            raise

    async def acquire_async(self, **options: Unpack[LeaseOptions]) -> LeaseHandle:
        """Acquire leases without blocking the event loop; see ``acquire``."""
        return await self.acquire_in(partial(in_thread, name="worldprotocol-acquire"), **options)

    async def acquire_in(self, threads: InThread, **options: Unpack[LeaseOptions]) -> LeaseHandle:
        """Acquire leases in asyncio without holding a thread.

        Args:
            threads: not used: no call blocks.
            **options: see ``LeaseOptions``.

        Raises:
            RefusedError: as ``acquire``.
        """
        body: dict[str, Any] = {}
        try:
            verdict = await self._connection.perform_async(self._requests(options, body))
            return RemoteLeaseHandle(self.desk, verdict)
        except RefusedError:
            raise
        except BaseException:
            await run_to_end(partial(self._clean_up, body))
            raise

    def _requests(self, options: LeaseOptions, body: dict[str, Any]) -> RemoteSteps[VerdictGiven]:
        """Yield the requests of an acquisition; the result is the verdict that grants the leases.

        Args:
            options: of the acquisition.
            body: filled with the body of the last request for leases.
        """
        check_names(options, LeaseOptions)
        self._connection.before_write()
        if options.get("run_id") is not None:
            raise RefusedError(ErrorCode.NOT_REMOTE, "A run is on the machine of its workspace; leave run_id out.")
        manifest = manifest_of(options, self._ids.new_id)
        limit, cancel = timeout_seconds(options.get("timeout")), options.get("cancel")
        until = None if limit is None else time.monotonic() + limit
        longest = WAIT_S if cancel is None else CANCELLABLE_WAIT_S
        body |= asking(manifest, options.get("ttl_ms"), require_signature=options.get("require_signature", False))
        while True:
            body["requestId"] = request_id = self._ids.new_id()
            left = None if until is None else until - time.monotonic()
            verdict, ranks, after = yield from self._request(body, left, longest, cancel)
            if verdict.status == "Granted":
                return verdict
            if not options.get("retry", False) or "signature" in manifest:
                raise died(verdict, ranks)
            end = time.monotonic() + retry_ms(verdict) / 1000
            path, query = resource("leases/requests", request_id), {"after": after, "free": True}
            while (rest := min(end, end if until is None else until) - time.monotonic()) > 0:
                found = yield RealmRequest(method="GET", path=path, query=query, wait_s=min(rest, longest))
                if cancel is not None and cancel.is_cancelled.is_set():
                    raise cancelled(request_id)
                if found["isFree"]:
                    break
            else:
                if until is not None and until < end:
                    raise died(verdict, ranks)

    def _request(
        self, body: dict[str, Any], left: float | None, longest: float, cancel: Cancel | None
    ) -> RemoteSteps[tuple[VerdictGiven, dict[str, Rank], int]]:
        """Request once, wait if the verdict is Wait, and return the last verdict.

        Returns:
            The verdict, the priorities of the agents, and the position after which the log has the request.
        """
        request_id: str = body["requestId"]
        may_wait = left is None or left > 0
        body["queue"] = may_wait
        body["waitMs"] = None if left is None or not may_wait else max(1, math.ceil(left * 1000))
        form = yield RealmRequest(method="POST", path="/leases", body=body, key=request_id)
        first: VerdictGiven = read_event(form["event"])
        if first.status != "Wait":
            return first, _ranks(form), form["after"]
        if not first.queued:
            raise timed_out(request_id, first)
        path, query = resource("leases/requests", request_id), {"after": form["after"]}
        while True:
            found = yield RealmRequest(method="GET", path=path, query=query, wait_s=longest)
            if not found["isWaiting"]:
                break
            if cancel is not None and cancel.is_cancelled.is_set():
                yield RealmRequest(method="POST", path=f"{path}:withdraw", body=query, key=self._ids.new_id())
        why = found["withdrawn"]
        if why is None:
            return read_event(found["verdict"]["event"]), _ranks(found["verdict"]), form["after"]
        if why == "timeout":
            raise timed_out(request_id, first)
        raise cancelled(request_id) if why == "cancelled" else ended(request_id, why)

    def _clean_up(self, body: Mapping[str, Any]) -> None:
        """Withdraw the request with this body, or release what it was granted."""
        if "requestId" not in body:
            return
        request_id = body["requestId"]
        with suppress(RefusedError):
            if self.desk.withdraw(request_id):
                return
            found = self._connection.get(resource("leases/requests", request_id))
            if found["verdict"] is not None and found["verdict"]["leases"]:
                verdict = read_event(found["verdict"]["event"])
                ids = [lease.lease_id for lease in verdict.leases]
                self.desk.release(ids, agent_id=verdict.agent_id, session_id=verdict.session_id)


def asking(manifest: Mapping[str, Any], ttl_ms: int | None, *, require_signature: bool) -> dict[str, Any]:
    """Return the body of a request for the leases of a manifest."""
    return {"manifest": dict(manifest), "ttlMs": ttl_ms, "requireSignature": require_signature}


def _ranks(form: Mapping[str, Any]) -> dict[str, Rank]:
    return {name: (priority, name) for name, priority in form["priorities"].items()}


def _no_time() -> int:
    return 0
