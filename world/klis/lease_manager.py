"""The lease desk: commands on a ledger, each of which emits the events that make it so (KLIS-3, KLIS-4, KLIS-5).

Time and ids come from the caller. Before anything else a command lets time pass: requests that waited too long leave
the queue, leases whose time is over end, and whoever waited for them is judged again, oldest first. A command that is
refused changes nothing but that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from world.errors import RefusedError
from world.events.base import Event
from world.events.clock_events import ClockConfirmed
from world.events.lease_events import (
    AgentRegistered,
    KeyRegistered,
    KeyRevoked,
    KlisConfigured,
    LeaseRenewed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.klis.conflict import clash
from world.klis.kernel import arbitrate, judge
from world.klis.ledger import Ledger, Request
from world.klis.manifest import Manifest, Triple
from world.klis.predicate import Predicate
from world.klis.reevaluation_queue import Turns
from world.klis.resources.resource import STANDARD, ResourceTypes
from world.klis.session import Lease, Rank, Session
from world.klis.settings import KlisSettings

__all__ = ["BeforeGrant", "LeaseManager"]

BeforeGrant = Callable[[str, Session, tuple[Triple, ...], int], bool]
Existing = Callable[[Session, tuple[Triple, ...]], list[dict[str, Any]]]

MAX_ENDING: Final = 1_000
"""Leases whose end is told by one event."""


class LeaseManager:
    """Commands on one ledger."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        emit: Callable[[Event], None],
        new_id: Callable[[], str],
        before_grant: BeforeGrant | None = None,
        existing: Existing | None = None,
        now: Callable[[], int] | None = None,
        check: Callable[[str], None] | None = None,
    ) -> None:
        """Serve a ledger.

        Args:
            ledger: what stands; ``emit`` folds into it.
            emit: records an event and folds it into the ledger at once.
            new_id: makes an id that was never used.
            before_grant: told the verdict's id, the session and the triples before they are granted; returns whether it
                backed something up, and refuses where it should have and could not (KO-7).
            existing: told the session and the triples before they are granted; returns what it observed of resources
                that must exist, and refuses where one is absent.
            now: tells the time, ms since 1970, after a backup was made: that takes its time, and leases live from when
                it is done; None where a backup takes none.
            check: called before each request of the queue is judged again; it may raise, and then nothing is kept.
        """
        self._check = check
        self._now = now
        self._before_grant = before_grant
        self._existing = existing
        self._ledger = ledger
        self._emit = emit
        self._new_id = new_id

    @property
    def settings(self) -> KlisSettings:
        """The settings in force."""
        return self._ledger.in_force

    # Agents and keys

    def configure(self, settings: KlisSettings, now: int, *, by: str, types: ResourceTypes = STANDARD) -> bool:
        """Bring settings and resource types into force; returns False where they are in force already.

        Raises:
            RefusedError: ``CLOCK_STEPPED_BACK``.
        """
        told = types.to_wire()
        if settings == self._ledger.settings and told == self._ledger.types.to_wire():
            return False
        self._check_clock(now)
        self._emit(KlisConfigured(at=now, settings=settings.to_wire(), types=told, by=by))
        return True

    def register(self, agent_id: str, now: int, *, priority: int | None = None, by: str) -> Rank:
        """Register an agent; one that is known keeps the priority it has (KP-3c).

        Args:
            agent_id: the agent.
            now: ms since 1970.
            priority: a timestamp in ms; None is ``now``.
            by: who registers it.

        Returns:
            The agent's rank.

        Raises:
            RefusedError: ``INVALID_PRIORITY``, ``CLOCK_STEPPED_BACK``.
        """
        self._check_clock(now)
        known = self._ledger.agents.get(agent_id)
        if known is not None:
            return known
        given = now if priority is None else priority
        if type(given) is not int or not 0 <= given < 1 << 53:
            raise RefusedError(
                "INVALID_PRIORITY", f"{given!r} is no timestamp in ms: a whole number from 0 to 2^53 - 1."
            )
        self._emit(AgentRegistered(at=now, agent_id=agent_id, priority=given, by=by))
        return self._ledger.agents[agent_id]

    def register_key(self, agent_id: str, key_id: str, public_key: str, now: int, *, by: str) -> None:
        """Register a public key of an agent.

        Raises:
            RefusedError: ``KEY_EXISTS``.
        """
        self._check_clock(now)
        if key_id in self._ledger.keys:
            owner = self._ledger.keys[key_id].agent_id
            raise RefusedError("KEY_EXISTS", f"The key {key_id} is registered already, for {owner!r}.", key_id=key_id)
        self._emit(KeyRegistered(at=now, agent_id=agent_id, key_id=key_id, public_key=public_key, by=by))

    def revoke_key(self, key_id: str, now: int, *, by: str, reason: str) -> None:
        """Revoke a public key for good.

        Raises:
            RefusedError: ``UNKNOWN_KEY``.
        """
        self._check_clock(now)
        key = self._ledger.keys.get(key_id)
        if key is None or key.revoked:
            raise RefusedError("UNKNOWN_KEY", f"No key {key_id!r} is in force; `worldctl keys list` shows them.")
        self._emit(KeyRevoked(at=now, key_id=key_id, by=by, reason=reason))

    def confirm_clock(self, now: int, *, by: str, reason: str) -> ClockConfirmed:
        """Record an operator's statement that ``now`` (ms since 1970) is the time; lease time goes on from there.

        Raises:
            RefusedError: ``REASON_MISSING``.
        """
        if not reason.strip():
            raise RefusedError("REASON_MISSING", "To confirm the clock takes a reason; the log keeps it.")
        event = ClockConfirmed(at=now, lease_time=self._ledger.clock, by=by, reason=reason)
        self._emit(event)
        return event

    # Requests

    def request(
        self,
        manifest: Manifest,
        now: int,
        *,
        channel: Mapping[str, Any],
        ttl_ms: int | None = None,
        until_sealed: bool = False,
        queue: bool = False,
        wait_ms: int | None = None,
        request_id: str | None = None,
    ) -> VerdictGiven:
        """Ask for the leases of a manifest: all of them or none.

        Args:
            manifest: what is wanted, read and authenticated.
            now: ms since 1970.
            channel: how the manifest was authenticated, for the record.
            ttl_ms: how long the leases live without a heartbeat; None is the settings' default.
            until_sealed: the leases end with a proposal and not by the clock.
            queue: stay in the queue where the verdict is Wait.
            wait_ms: how long to stay there; None is for ever.
            request_id: the request's id; None makes one.

        Returns:
            The verdict, which is in the log then. A request in the queue may have a later one.

        Raises:
            RefusedError: ``CLOCK_STEPPED_BACK``, ``INVALID_TTL``, ``TERMINAL`` for a resource that the session holds
                DELETES on, ``QUEUE_FULL``, ``MANIFEST_REPLAYED``, ``INVALID_WAIT``, ``ALREADY_WAITING`` for the id of a
                request in the queue, ``RESOURCE_ABSENT`` where something does not exist that the manifest depends on.
        """
        now = self._advanced(now)
        ledger = self._ledger
        ttl = None if until_sealed else self._ttl(ttl_ms)
        if wait_ms is not None and (type(wait_ms) is not int or not 0 < wait_ms < 1 << 53):
            raise RefusedError("INVALID_WAIT", f"{wait_ms!r} is no time to wait in ms: a whole number of at least 1.")
        is_signed = channel.get("kind") == "signed"
        if is_signed and manifest.nonce is not None and (manifest.agent_id, manifest.nonce) in ledger.nonces:
            raise RefusedError("MANIFEST_REPLAYED", "This manifest was used before; sign a new one with a fresh nonce.")
        if request_id in ledger.requests:
            raise RefusedError("ALREADY_WAITING", f"Request {request_id} waits already.", request_id=request_id)
        if queue and len(ledger.requests) >= self.settings.max_waiting and self._would_wait(manifest, now):
            raise RefusedError(
                "QUEUE_FULL", f"{len(ledger.requests)} requests wait already (max_waiting); ask again later."
            )
        session = self._session(manifest, now)
        self._check_terminal(session, manifest.triples)
        verdict = self._give(
            session,
            manifest.triples,
            now,
            request_id=request_id or self._new_id(),
            cause="request",
            ttl=ttl,
            manifest=manifest,
            channel=channel,
            queue=queue,
            deadline=None if wait_ms is None else now + wait_ms,
        )
        if verdict.status == "Granted":
            self._judge_again(manifest.triples, now, also=session.waiting)
        elif verdict.queued:
            self._judge_again(manifest.triples, now, joined=verdict.request_id)
        return verdict

    def withdraw(self, request_id: str, now: int, *, reason: str = "cancelled") -> bool:
        """Take a request out of the queue; returns False where it does not wait (any more)."""
        now = self._advanced(now)
        request = self._ledger.requests.get(request_id)
        if request is None:
            return False
        self._emit(RequestWithdrawn(at=now, request_id=request_id, reason=reason))
        self._judge_again(request.triples, now)
        return True

    # Leases

    def heartbeat(
        self, lease_id: str, now: int, *, agent_id: str, session_id: str, ttl_ms: int | None = None
    ) -> LeaseRenewed:
        """Let a lease live for its time to live from now on, within the maximum hold time (KP-4b).

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
            raise RefusedError("LEASE_NOT_TIMED", f"Lease {lease_id} ends with its proposal; it needs no heartbeat.")
        ttl = lease.ttl_ms if ttl_ms is None else self._ttl(ttl_ms)
        event = LeaseRenewed(at=now, lease_id=lease_id, ttl_ms=ttl, expires_at=min(now + ttl, lease.hold_until))
        self._emit(event)
        return event

    def release(self, lease_ids: Iterable[str], now: int, *, agent_id: str, session_id: str) -> dict[str, str]:
        """Give leases back, all of them or, where one is not the caller's, none.

        Args:
            lease_ids: which.
            now: ms since 1970.
            agent_id: the holder.
            session_id: its session.

        Returns:
            The state of each; a lease that ended before keeps the state it has, and nothing is changed.

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
            self._judge_again([lease.triple for lease in active.values()], now)
        return states

    def release_session(self, agent_id: str, session_id: str, now: int) -> None:
        """Give back every lease of a session, if it has any.

        Raises:
            RefusedError: ``CLOCK_STEPPED_BACK``.
        """
        session = self._ledger.sessions.get((agent_id, session_id))
        if session is not None and session.places:
            leases = [lease.lease_id for lease in session.leases()]
            self.release(leases, now, agent_id=agent_id, session_id=session_id)

    def release_sessions(self, sessions: Iterable[tuple[str, str]], now: int) -> None:
        """Give back all that several sessions hold at one time, before whoever waits is judged again.

        Args:
            sessions: agent id and session id of each; one that holds nothing changes nothing.
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
        self._judge_again(freed, now)

    def revoke(self, lease_ids: Iterable[str], now: int, *, by: str, reason: str) -> dict[str, str]:
        """Take leases away from their holders; the caller answers for the right to do so (KP-4b).

        Raises:
            RefusedError: ``REASON_MISSING``, ``UNKNOWN_LEASE``, ``CLOCK_STEPPED_BACK``.
        """
        if not reason.strip():
            raise RefusedError("REASON_MISSING", "To revoke a lease takes a reason; the log keeps it.")
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
            self._judge_again([lease.triple for lease in active.values()], now)
        return states

    def advance(self, now: int) -> int:
        """Let time pass until ``now`` (ms): time-outs of waiting, then expiries, then whoever is free by that.

        Returns:
            How many leases expired.

        Raises:
            RefusedError: ``CLOCK_STEPPED_BACK``.
        """
        self._check_clock(now)
        ledger = self._ledger
        overdue, due = ledger.overdue(now), ledger.expired(now)
        if not overdue and not due:
            return 0
        for request in overdue:
            self._emit(RequestWithdrawn(at=now, request_id=request.request_id, reason="timeout"))
        for ids in batched(lease.lease_id for lease in due):
            self._emit(LeasesExpired(at=now, lease_ids=ids))
        changed = [triple for request in overdue for triple in request.triples]
        self._judge_again([*changed, *(lease.triple for lease in due)], now)
        return len(due)

    # Within

    def _advanced(self, now: int) -> int:
        """Let time pass until ``now``, and return what time it is then: a backup that was made meanwhile took its."""
        self.advance(now)
        while now < self._ledger.clock:
            now = self._ledger.clock
            self.advance(now)
        return now

    def _check_clock(self, now: int) -> None:
        if now < self._ledger.clock:
            raise RefusedError(
                "CLOCK_STEPPED_BACK",
                f"The time {now} is before {self._ledger.clock}, at which something was recorded; set the clock right.",
                now=now,
                recorded=self._ledger.clock,
            )

    def _ttl(self, ttl_ms: int | None) -> int:
        if ttl_ms is None:
            return self.settings.default_ttl_ms
        if type(ttl_ms) is not int or not 1 <= ttl_ms <= self.settings.max_ttl_ms:
            raise RefusedError(
                "INVALID_TTL",
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
        """Return what an agent's first manifest gives it: its own timestamp where that is allowed (KP-3e)."""
        asked = manifest.priority_timestamp if self.settings.accept_priority else None
        return now if asked is None else asked

    def _would_wait(self, manifest: Manifest, now: int) -> bool:
        ledger, agent, name = self._ledger, manifest.agent_id, manifest.session_id
        rank = ledger.agents.get(agent) or (self._first_priority(manifest, now), agent)
        session = ledger.sessions.get((agent, name)) or Session(agent, name, rank)
        return judge(ledger, session, manifest.triples) == "Wait"

    def _check_terminal(self, session: Session, triples: Iterable[Triple]) -> None:
        """Refuse a further predicate on what the session itself holds DELETES on (KM-3.3)."""
        triple = _terminal(session, triples)
        if triple is not None:
            lease = _deletion(session, triple)
            deleted, resource = lease.triple.resource.text, triple.resource.text
            raise RefusedError(
                "TERMINAL",
                f"The session holds DELETES on {deleted} (lease {lease.lease_id}), which is terminal; it cannot have "
                f"{triple.predicate} on {resource}.",
                lease_id=lease.lease_id,
                resource=resource,
            )

    def _own(self, lease_id: str, agent_id: str, session_id: str) -> Lease:
        lease = self._known(lease_id)
        if (lease.session.agent_id, lease.session.session_id) != (agent_id, session_id):
            raise RefusedError(
                "NOT_THE_HOLDER",
                f"Lease {lease_id} is not held by {agent_id!r} in session {session_id!r}.",
                lease_id=lease_id,
            )
        return lease

    def _known(self, lease_id: str) -> Lease:
        lease = self._ledger.leases.get(lease_id)
        if lease is None:
            state = self._ledger.ended.get(lease_id)
            if state is None:
                raise RefusedError("UNKNOWN_LEASE", f"No lease {lease_id!r} is in force.", lease_id=lease_id)
            raise RefusedError("LEASE_NOT_ACTIVE", f"Lease {lease_id} is {state}.", lease_id=lease_id, state=state)
        return lease

    def _give(
        self,
        session: Session,
        triples: tuple[Triple, ...],
        now: int,
        *,
        request_id: str,
        cause: str,
        ttl: int | None,
        manifest: Manifest | None = None,
        channel: Mapping[str, Any] | None = None,
        queue: bool = False,
        deadline: int | None = None,
    ) -> VerdictGiven:
        verdict = arbitrate(self._ledger, session, triples, now, queued=cause == "queue")
        leases = []
        verdict_id, backup = self._new_id(), False
        existence: list[dict[str, Any]] = []
        if verdict.status == "Granted":
            if self._existing is not None:
                existence = self._existing(session, triples)
            if self._before_grant is not None:
                backup = self._before_grant(verdict_id, session, triples, now)
                now = max(now, self._now()) if backup and self._now is not None else now
            token = self._ledger.last_token
            for triple in triples:
                token += 1
                leases.append(
                    {
                        "leaseId": self._new_id(),
                        "token": token,
                        "predicate": triple.predicate.value,
                        "resource": triple.resource.text,
                    }
                )
        stays = queue and verdict.status == "Wait"
        event = VerdictGiven(
            at=now,
            verdict_id=verdict_id,
            request_id=request_id,
            agent_id=session.agent_id,
            session_id=session.session_id,
            status=verdict.status,
            cause=cause,
            manifest=None if manifest is None else manifest.to_wire(),
            channel=None if channel is None else dict(channel),
            ttl_ms=ttl,
            leases=leases,
            backup=backup,
            conflicts=[conflict.to_wire() for conflict in verdict.conflicts],
            more_conflicts=verdict.more_conflicts,
            retry_after_ms=verdict.retry_after_ms,
            queued=stays,
            wanted=[_wanted(triple) for triple in triples] if stays else [],
            deadline=deadline if stays else None,
            existence=existence,
        )
        self._emit(event)
        return event

    def _give_queued(self, request: Request, now: int) -> None:
        """Give the verdict on a request in the queue; one that no event can hold ends the request."""
        name = request.request_id
        try:
            self._give(request.session, request.triples, now, request_id=name, cause="queue", ttl=request.ttl_ms)
        except RefusedError as refused:
            existence = refused.details.get("existence")
            self._emit(RequestWithdrawn(at=now, request_id=name, reason=refused.code, existence=existence))

    def _judge_again(
        self, changed: Iterable[Triple], now: int, *, also: Iterable[str] = (), joined: str | None = None
    ) -> None:
        """Judge again who waits behind what changed, oldest first: the free are granted, the younger die.

        What becomes of one, only those behind it and its session's other requests can feel; they are looked at again.

        Args:
            changed: what leases or requests came or went.
            now: ms since 1970.
            also: further requests to look at.
            joined: the request that came, where that is what changed: only sessions that hold something feel it.
        """
        ledger = self._ledger
        if not ledger.requests:
            return
        turns = Turns(ledger, but=joined)
        turns.add_behind(changed, only_holders=joined is not None)
        turns.add(also)
        for request in turns:
            if self._check is not None:
                self._check("the queue of requests for leases")
            now = max(now, ledger.clock)  # a backup for one before it took its time
            name, session, triples = request.request_id, request.session, request.triples
            if _terminal(session, triples):
                self._emit(RequestWithdrawn(at=now, request_id=name, reason="terminal"))
            elif judge(ledger, session, triples, queued=True) == "Wait":
                continue
            else:
                self._give_queued(request, now)
                turns.add(session.waiting)
            turns.add_behind(triples)


def _terminal(session: Session, triples: Iterable[Triple]) -> Triple | None:
    """Return the first of further triples that overlaps with a lease for DELETES of a session. O(depth) for each."""
    deletions = session.deletions
    if deletions is None:
        return None
    for triple in triples:
        if triple.predicate is not Predicate.DELETES and deletions.opposing(triple):
            return triple
    return None


def _deletion(session: Session, triple: Triple) -> Lease:
    """Return the lease for DELETES of a session that ``_terminal`` found a triple to overlap with."""
    resource, places = triple.resource, session.places
    keys = places if triple.covers else (*resource.ancestors, resource.key)
    there = (lease for key in keys for lease in places.get(key, ()))
    return next(held for held in there if held.triple.predicate is Predicate.DELETES and clash(held.triple, triple))


def batched(lease_ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield ids in lists that fit into an event, however many leases end at one time."""
    left = iter(lease_ids)
    while some := list(islice(left, MAX_ENDING)):
        yield some


def _wanted(triple: Triple) -> dict[str, Any]:
    return {"predicate": triple.predicate.value, "resource": triple.resource.text}
