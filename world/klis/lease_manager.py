"""Lease manager: commands on a ledger that emit events (KLIS-3, KLIS-4, KLIS-5).

Time and ids come from the caller. Every command first advances the time: overdue requests leave the queue, expired
leases end, and what waited for them or died of them is judged again, oldest first. A refused command does no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.lease_events import (
    LeaseRenewed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.events.resource_values import read_existence
from world.klis.conflict import deletion_lease, terminal_triple
from world.klis.kernel import judge
from world.klis.manifest import Manifest, Triple
from world.klis.reevaluation_queue import ReevaluationQueue
from world.klis.session import Lease, RefusedRequest, Request, Session
from world.klis.verdict_emitter import RequestContext, VerdictEmitter

__all__ = ["LeaseManager", "RequestOptions"]

MAX_ENDING: Final = 1_000
"""Maximum number of lease ids in one event."""


class RequestOptions(Struct, frozen=True, kw_only=True):
    """Options of a request for leases.

    Args:
        ttl_ms: time to live of the leases without a heartbeat, in ms; None is the default of the settings.
        until_sealed: whether the leases end with a proposal instead of a time.
        queue: whether the request stays in the queue if the verdict is Wait.
        wait_ms: maximum time in the queue, in ms; None is unlimited.
        request_id: id of the request; None makes one.
    """

    ttl_ms: int | None = None
    until_sealed: bool = False
    queue: bool = False
    wait_ms: int | None = None
    request_id: str | None = None


NO_OPTIONS: Final = RequestOptions()
"""The defaults of a request."""


class LeaseManager(VerdictEmitter):
    """Commands on one ledger; arguments as of ``VerdictEmitter``."""

    # Requests

    def request(
        self,
        manifest: Manifest,
        now: int,
        *,
        channel: Mapping[str, Any],
        options: RequestOptions = NO_OPTIONS,
    ) -> VerdictGiven:
        """Request the leases of a manifest: all of them or none.

        Args:
            manifest: the manifest, read and authenticated.
            now: ms since 1970.
            channel: how the manifest was authenticated, for the record.
            options: times, queueing and id of the request.

        Returns:
            The recorded verdict. A queued request may get a later one, and so may any of a proposal.

        Raises:
            RefusedError: ``CLOCK_STEPPED_BACK``, ``INVALID_TTL``, ``TERMINAL`` for a resource that the session holds
                DELETES on, ``QUEUE_FULL``, ``MANIFEST_REPLAYED``, ``INVALID_WAIT``, ``ALREADY_WAITING`` for the id of a
                request in the queue, ``RESOURCE_ABSENT`` where a resource of a DEPENDS_ON does not exist.
        """
        now = self._advanced(now)
        ledger = self._ledger
        wait_ms, queue, request_id = options.wait_ms, options.queue, options.request_id
        ttl = None if options.until_sealed else self._ttl(options.ttl_ms)
        if wait_ms is not None and (type(wait_ms) is not int or not 0 < wait_ms < 1 << 53):
            raise RefusedError(
                ErrorCode.INVALID_WAIT, f"{wait_ms!r} is no time to wait in ms: a whole number of at least 1."
            )
        is_signed = channel.get("kind") == "signed"
        if is_signed and manifest.nonce is not None and (manifest.agent_id, manifest.nonce) in ledger.nonces:
            raise RefusedError(
                ErrorCode.MANIFEST_REPLAYED, "This manifest was used before; sign a new one with a fresh nonce."
            )
        if request_id in ledger.requests:
            raise RefusedError(ErrorCode.ALREADY_WAITING, f"Request {request_id} waits already.", request_id=request_id)
        settings = self.settings
        is_full, is_woken = len(ledger.requests) >= settings.max_waiting, settings.wake_rules >= 2
        if queue and is_full and not (is_woken and options.until_sealed) and self._would_wait(manifest, now):
            raise RefusedError(
                ErrorCode.QUEUE_FULL, f"{len(ledger.requests)} requests wait already (max_waiting); ask again later."
            )
        session = self._session(manifest, now)
        self._check_terminal(session, manifest.triples)
        context = RequestContext(
            request_id=request_id or self._new_id(),
            cause="request",
            ttl=ttl,
            manifest=manifest,
            channel=channel,
            queue=queue and not is_full,
            deadline=None if wait_ms is None else now + wait_ms,
        )
        verdict = self._give(session, manifest.triples, now, context)
        if verdict.status == "Granted":
            self.judge_again(manifest.triples, now, also=session.waiting)
        elif verdict.queued:
            self.judge_again(manifest.triples, now, joined=verdict.request_id)
        return verdict

    def withdraw(self, request_id: str, now: int, *, reason: str = "cancelled") -> bool:
        """Remove a request from the queue, or from those that died; return False where it is in neither."""
        now = self._advanced(now)
        request = self._ledger.requests.get(request_id)
        if request is None and request_id not in self._ledger.refused:
            return False
        self._emit(RequestWithdrawn(at=now, request_id=request_id, reason=reason))
        self.judge_again(() if request is None else request.triples, now)
        return True

    # Leases

    def heartbeat(
        self, lease_id: str, now: int, *, agent_id: str, session_id: str, ttl_ms: int | None = None
    ) -> LeaseRenewed:
        """Renew a lease for its time to live, within the maximum hold time (KP-4b).

        Args:
            lease_id: the lease.
            now: ms since 1970.
            agent_id: the holder.
            session_id: its session.
            ttl_ms: another time to live; None keeps it.

        Raises:
            RefusedError: ``LEASE_NOT_ACTIVE``, ``NOT_THE_HOLDER``, ``INVALID_TTL``, ``CLOCK_STEPPED_BACK``.
        """
        now = self._advanced(now)
        lease = self._own(lease_id, agent_id, session_id)
        if lease.expires_at is None or lease.ttl_ms is None or lease.hold_until is None:
            raise RefusedError(
                ErrorCode.LEASE_NOT_TIMED, f"Lease {lease_id} ends with its proposal; it needs no heartbeat."
            )
        ttl = lease.ttl_ms if ttl_ms is None else self._ttl(ttl_ms)
        event = LeaseRenewed(at=now, lease_id=lease_id, ttl_ms=ttl, expires_at=min(now + ttl, lease.hold_until))
        self._emit(event)
        return event

    def release(self, lease_ids: Iterable[str], now: int, *, agent_id: str, session_id: str) -> dict[str, str]:
        """Release leases: all, or none if one is not held by the caller.

        Args:
            lease_ids: the leases.
            now: ms since 1970.
            agent_id: the holder.
            session_id: its session.

        Returns:
            The state of each; a lease that ended before keeps its state.

        Raises:
            RefusedError: ``UNKNOWN_LEASE``, ``NOT_THE_HOLDER``, ``CLOCK_STEPPED_BACK``.
        """
        now = self._advanced(now)
        states: dict[str, str] = {}
        active: dict[str, Lease] = {}
        for lease_id in lease_ids:
            ended = self._ledger.ended.get(lease_id)
            if ended is not None:
                states[lease_id] = ended
            else:
                active[lease_id] = self._own(lease_id, agent_id, session_id)
                states[lease_id] = "Released"
        if active:
            for ids in batched(active):
                self._emit(LeasesReleased(at=now, lease_ids=ids, agent_id=agent_id, session_id=session_id))
            self.judge_again([lease.triple for lease in active.values()], now)
        return states

    def release_session(self, agent_id: str, session_id: str, now: int) -> None:
        """Release the leases that a session holds before the call.

        Raises:
            RefusedError: ``CLOCK_STEPPED_BACK``.
        """
        session = self._ledger.sessions.get((agent_id, session_id))
        if session is not None and session.places:
            leases = [lease.lease_id for lease in session.leases()]  # those that are granted now stay
            self.release(leases, now, agent_id=agent_id, session_id=session_id)

    def release_sessions(self, sessions: Iterable[tuple[str, str]], now: int) -> None:
        """Release all leases of several sessions before queued requests are judged again.

        Args:
            sessions: agent id and session id of each; a session without leases has no effect.
            now: ms since 1970.

        Raises:
            RefusedError: ``CLOCK_STEPPED_BACK``.
        """
        now = self._advanced(now)
        freed: list[Triple] = []
        for agent_id, session_id in sessions:
            session = self._ledger.sessions.get((agent_id, session_id))
            leases = [] if session is None else session.leases()
            if leases:
                for ids in batched(lease.lease_id for lease in leases):
                    self._emit(LeasesReleased(at=now, lease_ids=ids, agent_id=agent_id, session_id=session_id))
                freed += [lease.triple for lease in leases]
        self.judge_again(freed, now)

    def revoke(self, lease_ids: Iterable[str], now: int, *, by: str, reason: str) -> dict[str, str]:
        """Revoke leases of their holders; the caller checks the permission (KP-4b).

        Raises:
            RefusedError: ``REASON_MISSING``, ``UNKNOWN_LEASE``, ``CLOCK_STEPPED_BACK``.
        """
        if not reason.strip():
            raise RefusedError(ErrorCode.REASON_MISSING, "A revocation of leases needs a reason; give one.")
        now = self._advanced(now)
        states: dict[str, str] = {}
        active = {}
        for lease_id in lease_ids:
            ended = self._ledger.ended.get(lease_id)
            if ended is None:
                active[lease_id] = self._known(lease_id)
            states[lease_id] = ended or "Revoked"
        if active:
            for ids in batched(active):
                self._emit(LeasesRevoked(at=now, lease_ids=ids, by=by, reason=reason))
            self.judge_again([lease.triple for lease in active.values()], now)
        return states

    def advance(self, now: int) -> int:
        """Advance the time to ``now`` (ms): end overdue requests and expired leases, and wake what was left to wake.

        Returns:
            The number of leases that expired.

        Raises:
            RefusedError: ``CLOCK_STEPPED_BACK``.
        """
        ledger = self._ledger
        if now < ledger.clock:
            self._check_clock(now)
        overdue, due = ledger.overdue(now), ledger.expired(now)
        if not overdue and not due and not ledger.refusals.freed:
            return 0
        for request in overdue:
            self._emit(RequestWithdrawn(at=now, request_id=request.request_id, reason="timeout"))
        for ids in batched(lease.lease_id for lease in due):
            self._emit(LeasesExpired(at=now, lease_ids=ids))
        changed = [triple for request in overdue for triple in request.triples]
        self.judge_again([*changed, *(lease.triple for lease in due)], now)
        return len(due)

    def judge_left(self, concerns: Callable[[Iterable[Triple]], bool], now: int) -> None:
        """Judge the queued requests again whose triples a function returns True for.

        Raises:
            RefusedError: ``CLOCK_STEPPED_BACK``.
        """
        now = self._advanced(now)
        names = [name for name, request in self._ledger.requests.items() if concerns(request.triples)]
        self.judge_again([], now, also=names)

    # Within

    def _advanced(self, now: int) -> int:
        """Advance to ``now`` and return the time, which backups may have advanced."""
        self.advance(now)
        while now < self._ledger.clock:
            now = self._ledger.clock
            self.advance(now)
        return now

    def _ttl(self, ttl_ms: int | None) -> int:
        if ttl_ms is None:
            return self.settings.default_ttl_ms
        if type(ttl_ms) is not int or not 1 <= ttl_ms <= self.settings.max_ttl_ms:
            raise RefusedError(
                ErrorCode.INVALID_TTL,
                f"{ttl_ms!r} is no time to live: from 1 to {self.settings.max_ttl_ms} ms (max_ttl_ms).",
                ttl_ms=str(ttl_ms),
            )
        return ttl_ms

    def _session(self, manifest: Manifest, now: int) -> Session:
        agent = manifest.agent_id
        if agent not in self._ledger.agents:
            self.register(agent, now, priority=self._first_priority(manifest, now), by=agent)
        return self._ledger.session(agent, manifest.session_id)

    def _first_priority(self, manifest: Manifest, now: int) -> int:
        """Return the priority of an agent's first manifest: its own if accepted (KP-3e)."""
        asked = manifest.priority_timestamp if self.settings.accept_priority else None
        return now if asked is None else asked

    def _would_wait(self, manifest: Manifest, now: int) -> bool:
        ledger, agent, name = self._ledger, manifest.agent_id, manifest.session_id
        rank = ledger.agents.get(agent) or (self._first_priority(manifest, now), agent)
        session = ledger.sessions.get((agent, name)) or Session(agent, name, rank)
        return judge(ledger, session, manifest.triples) == "Wait"

    def _check_terminal(self, session: Session, triples: Iterable[Triple]) -> None:
        """Raise for a predicate on a resource that the session holds DELETES on (KM-3.3)."""
        triple = terminal_triple(session, triples)
        if triple is not None:
            lease = deletion_lease(session, triple)
            deleted, resource = lease.triple.resource.text, triple.resource.text
            raise RefusedError(
                ErrorCode.TERMINAL,
                f"The session holds DELETES on {deleted} (lease {lease.lease_id}), which is terminal; it cannot have "
                f"{triple.predicate} on {resource}.",
                lease_id=lease.lease_id,
                resource=resource,
            )

    def _own(self, lease_id: str, agent_id: str, session_id: str) -> Lease:
        lease = self._known(lease_id)
        if (lease.session.agent_id, lease.session.session_id) != (agent_id, session_id):
            raise RefusedError(
                ErrorCode.NOT_THE_HOLDER,
                f"Lease {lease_id} is not held by {agent_id!r} in session {session_id!r}.",
                lease_id=lease_id,
            )
        return lease

    def _known(self, lease_id: str) -> Lease:
        lease = self._ledger.leases.get(lease_id)
        if lease is None:
            state = self._ledger.ended.get(lease_id)
            if state is None:
                raise RefusedError(ErrorCode.UNKNOWN_LEASE, f"No lease {lease_id!r} is in force.", lease_id=lease_id)
            raise RefusedError(
                ErrorCode.LEASE_NOT_ACTIVE, f"Lease {lease_id} is {state}.", lease_id=lease_id, state=state
            )
        return lease

    def _give_again(self, request: Request | RefusedRequest, now: int) -> bool:
        """Emit the verdict on a request that waited or died; a refused grant withdraws it.

        Returns:
            False where the request stays what it was: a process with the workspace has to make its backup.
        """
        name = request.request_id
        try:
            if isinstance(request, Request):
                context = RequestContext(request_id=name, cause="queue", ttl=request.ttl_ms)
            else:
                context = RequestContext(request_id=name, cause="wake", ttl=None, queue=True)
            session = self._ledger.session(request.session.agent_id, request.session.session_id)
            self._give(session, request.triples, now, context)
        except RefusedError as refused:
            if refused.code == ErrorCode.WORKSPACE_ELSEWHERE:
                return False
            existence = read_existence(refused.details)
            self._emit(RequestWithdrawn(at=now, request_id=name, reason=refused.code, existence=existence))
        return True

    def judge_again(
        self, changed: Iterable[Triple], now: int, *, also: Iterable[str] = (), joined: str | None = None
    ) -> None:
        """Judge the requests again that a change can affect, those that wait and those that died, oldest first.

        A verdict can affect only the requests behind it and the other requests of its session; those are added. What
        died is judged where its place was freed, which the ledger notes.

        Args:
            changed: triples of leases or requests that were added or removed.
            now: ms since 1970.
            also: further requests to judge.
            joined: the request that was queued, if any; it can affect only sessions that hold leases.
        """
        ledger = self._ledger
        if not ledger.requests and not ledger.refusals.freed:
            return
        queue = ReevaluationQueue(ledger, but=joined)
        queue.add_behind(changed, only_holders=joined is not None)
        queue.add(also)
        try:
            self._judge_queue(queue, now)
        finally:
            queue.end()

    def _judge_queue(self, queue: ReevaluationQueue, now: int) -> None:
        ledger = self._ledger
        for request in queue:
            may_wake = self._check is None or self._check("the requests for leases that wait or died")
            now = max(now, ledger.clock)  # a backup for an earlier request may have advanced the time
            if isinstance(request, RefusedRequest):
                self._wake(request, now, queue) if may_wake else queue.leave()
                continue
            name, session, triples = request.request_id, ledger.named(request.session), request.triples
            if terminal_triple(session, triples):
                self._emit(RequestWithdrawn(at=now, request_id=name, reason="terminal"))
            elif judge(ledger, session, triples, queued=True) == "Wait":
                continue
            elif self._give_again(request, now):
                queue.add(session.waiting)
            else:
                continue
            queue.add_behind(triples)

    def _wake(self, request: RefusedRequest, now: int, queue: ReevaluationQueue) -> None:
        """Judge a request of a freed place again; one that dies or finds no room is put behind what blocks it."""
        ledger, name, triples = self._ledger, request.request_id, request.triples
        session = ledger.session(request.session.agent_id, request.session.session_id)
        is_full = len(ledger.requests) >= self.settings.max_waiting
        stays = ("Die", "Wait") if is_full else ("Die",)
        blocked = ledger.refusals.blocked(name)
        if (status := judge(ledger, session, triples[blocked : blocked + 1])) in stays:
            queue.block()
        elif (status := judge(ledger, session, triples)) in stays:
            each = (judge(ledger, session, [triple]) for triple in triples)
            blocked, status = next((at, one) for at, one in enumerate(each) if one in stays)
            ledger.refusals.put(request, blocked)
        elif not self._give_again(request, now):
            queue.pass_over(request)
        else:
            queue.wake(request, is_queued=status == "Wait")
        if status == "Wait" and name in ledger.refused:
            ledger.refusals.await_room(name)


def batched(lease_ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield ids in lists of at most ``MAX_ENDING``."""
    left = iter(lease_ids)
    while some := list(islice(left, MAX_ENDING)):
        yield some
