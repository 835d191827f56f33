"""The engine's desk and the simple ledger side by side: every move is made on both, and both must say the same.

A third ledger is folded from the events as they would be stored and read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from tests.klis.simple_ledger import SimpleLease, SimpleLedger, SimpleRequest, Triple, Who, exclude
from world.errors import RefusedError
from world.events.base import Event
from world.events.codec import decode_event, encode_event
from world.events.lease_events import (
    LeaseRenewed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.events.resource_values import GrantedLease
from world.klis.lease_manager import LeaseManager, RequestOptions
from world.klis.ledger import Ledger
from world.klis.manifest import Manifest, read_manifest
from world.klis.settings import KlisSettings

__all__ = ["AGENTS", "Ask", "Game", "Move", "Told", "contended_moves", "moves", "read_wanted", "wanted_triples"]

AGENTS = ("ann", "bob", "cleo", "dan")
SESSIONS = ("s1", "s2")
CHANNEL = {"kind": "vouched", "by": "test"}
SETTINGS = KlisSettings(max_hold_ms=3_000, max_named_conflicts=1_000)
_RESOURCES = (
    "FILE:/a",
    "FILE:/b",
    "FILE:/a/a",
    "FILE:/a/b",
    "FILE:/a/b/a",
    "FILE:/a/b/b",
    "FILE:/a/*",
    "FILE:/a/b/*",
    "FILE:/b/*",
)
_PREDICATES = ("PROVIDES", "CONSUMES", "MUTATES", "DELETES", "DEPENDS_ON", "RENAMES")


class Ask(NamedTuple):
    """A session asks for leases."""

    who: Who
    wanted: tuple[Triple, ...]
    ttl: int
    queue: bool
    wait: int | None


class Move(NamedTuple):
    """Anything else: what is done, to which of the leases or requests there ever were, with which number."""

    kind: str
    which: int
    number: int


class Told(NamedTuple):
    """What an agent was told about a lease it holds."""

    who: Who
    triple: Triple
    expires_at: int


def read_wanted(who: Who, wanted: Iterable[Triple]) -> Manifest:
    """Return a manifest for triples."""
    scope = [{"predicate": predicate, "resource": resource} for predicate, resource in wanted]
    told = {"ver": "1.0", "agent_id": who[0], "session_id": who[1], "scope": scope}
    return read_manifest(told, settings=SETTINGS)


def _may_be_asked(wanted: tuple[Triple, ...]) -> bool:
    try:
        read_wanted(("ann", "s1"), wanted)
    except RefusedError:
        return False
    return True


def wanted_triples() -> st.SearchStrategy[tuple[Triple, ...]]:
    """Draw the triples of a manifest that is not refused."""
    one = st.tuples(st.sampled_from(_PREDICATES), st.sampled_from(_RESOURCES))
    few = st.lists(one, min_size=1, max_size=3).map(tuple)
    return few.filter(_may_be_asked)


def moves() -> st.SearchStrategy[Ask | Move]:
    """Draw one move."""
    who = st.tuples(st.sampled_from(AGENTS), st.sampled_from(SESSIONS))
    wait = st.none() | st.integers(1, 2_000)
    ask = st.builds(Ask, who, wanted_triples(), st.integers(1, 4_000), st.booleans(), wait)
    kinds = st.sampled_from(("heartbeat", "release", "release", "revoke", "withdraw", "tick"))
    return st.one_of(ask, ask, st.builds(Move, kinds, st.integers(0, 50), st.integers(0, 2_000)))


def contended_moves() -> st.SearchStrategy[Ask | Move]:
    """Draw one move of a game in which few things are fought for and everybody is patient."""
    who = st.tuples(st.sampled_from(AGENTS), st.sampled_from(SESSIONS[:1]))
    one = st.tuples(st.sampled_from(("MUTATES", "MUTATES", "CONSUMES")), st.sampled_from(("FILE:/a", "FILE:/b")))
    ask = st.builds(
        Ask, who, st.lists(one, min_size=1, max_size=2).map(tuple), st.just(3_000), st.just(True), st.none()
    )
    kinds = st.sampled_from(("release", "revoke", "tick"))
    return st.one_of(ask, ask, st.builds(Move, kinds, st.integers(0, 50), st.integers(0, 1_023)))


class Game:
    """A desk and the simple ledger that get the same moves."""

    def __init__(self, priorities: Iterable[int]) -> None:
        """Register the agents, one priority each."""
        self.now = 1_000
        self.ledger, self.twin, self.model = Ledger(), Ledger(), SimpleLedger(max_hold=SETTINGS.max_hold_ms)
        self.events: list[Event] = []
        self.told: dict[str, Told] = {}
        self.ever: list[SimpleLease] = []
        self.ever_waited: list[SimpleRequest] = []
        self.last_verdict: VerdictGiven | None = None
        self.ids = 0
        self.desk = LeaseManager(self.ledger, emit=self._emit, new_id=self._new_id)
        self.desk.configure(SETTINGS, self.now, by="test")
        for agent, priority in zip(AGENTS, priorities, strict=False):
            self.desk.register(agent, self.now, priority=priority, by="test")
            self.model.register(agent, priority)

    def play(self, move: Ask | Move) -> None:
        """Make a move on both sides and compare what they say and what is then."""
        if isinstance(move, Ask):
            self._ask(move)
        else:
            getattr(self, f"_{move.kind}")(move.which, move.number)
        self.compare()

    def _new_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"

    def _emit(self, event: Event) -> None:
        self.ledger.fold(event)
        self.events.append(event)
        self.twin.fold(decode_event(event.TOPIC, event.VERSION, encode_event(event)))
        self._tell(event)

    def _tell(self, event: Event) -> None:
        """Keep what agents are told: this is all that they know about their leases."""
        if isinstance(event, VerdictGiven):
            assert event.ttl_ms is not None
            for lease in event.leases:
                assert lease.lease_id not in self.told
                until = event.at + min(event.ttl_ms, SETTINGS.max_hold_ms)
                triple = (lease.predicate, lease.resource)
                self.told[lease.lease_id] = Told((event.agent_id, event.session_id), triple, until)
        elif isinstance(event, LeaseRenewed):
            self.told[event.lease_id] = self.told[event.lease_id]._replace(expires_at=event.expires_at)
        elif isinstance(event, LeasesReleased | LeasesRevoked | LeasesExpired):
            for lease_id in event.lease_ids:
                del self.told[lease_id]

    # Moves

    def _ask(self, ask: Ask) -> None:
        manifest = read_wanted(ask.who, ask.wanted)
        triples = [(triple.predicate.value, triple.resource.text) for triple in manifest.triples]
        before = len(self.events)
        self.model.pass_time(self.now)
        if self.model.is_terminal(ask.who, triples):
            with pytest.raises(RefusedError) as refused:
                self._request(manifest, ask)
            assert refused.value.code == "TERMINAL"
            self._settle(before)
            return
        in_the_way = self._named(ask.who, triples)
        verdict = self.last_verdict = self._request(manifest, ask)
        status, after, granted = self.model.request(ask.who, triples, self.now, ask.ttl, queue=ask.queue, wait=ask.wait)
        assert (verdict.status, verdict.retry_after_ms) == (status, after)
        assert verdict.queued is (status == "Wait" and ask.queue)
        assert [_without_ids(conflict.to_wire()) for conflict in verdict.conflicts] == (
            [] if status == "Granted" else in_the_way
        )
        for lease, told in zip(granted, verdict.leases, strict=True):
            self._name(lease, told)
        if verdict.queued:
            waiting = next(one for one in [*self.model.queue, *self._told_requests()] if not one.request_id)
            waiting.request_id = verdict.request_id
            self.ever_waited.append(waiting)
        self._settle(before, but=verdict)

    def _request(self, manifest: Manifest, ask: Ask) -> VerdictGiven:
        return self.desk.request(
            manifest,
            self.now,
            channel=CHANNEL,
            options=RequestOptions(ttl_ms=ask.ttl, queue=ask.queue, wait_ms=ask.wait if ask.queue else None),
        )

    def _named(self, who: Who, triples: list[Triple]) -> list[dict[str, Any]]:
        """Return the conflicts that a verdict has to name, in order."""
        found = []
        for intent, wanted in enumerate(triples):
            leases = self.model.in_the_way(who, [wanted])
            leases.sort(key=lambda lease: (self.model.rank(lease.who), lease.who[1], lease.triple[1], lease.triple[0]))
            found += [_conflict(intent, lease.who, lease.triple) for lease in leases]
            ahead = self.model.ahead(who, [wanted])
            ahead.sort(key=lambda one: (self.model.rank(one.who), one.who[1], one.number))
            for request in ahead:
                clashing = [one for one in request.triples if exclude(one, wanted)]
                clashing.sort(key=lambda one: (one[1], one[0]))
                found += [_conflict(intent, request.who, one) for one in clashing]
        return found

    def _heartbeat(self, index: int, number: int) -> None:
        if not self.ever:
            return
        lease = self.ever[index % len(self.ever)]
        before = len(self.events)
        renewed = self.model.heartbeat(lease, self.now, number + 1)
        agent, session = lease.who
        if renewed:
            event = self.desk.heartbeat(lease.lease_id, self.now, agent_id=agent, session_id=session, ttl_ms=number + 1)
            assert event.expires_at == lease.expires_at
        else:
            with pytest.raises(RefusedError) as refused:
                self.desk.heartbeat(lease.lease_id, self.now, agent_id=agent, session_id=session)
            assert refused.value.code == "LEASE_NOT_ACTIVE"
        self._settle(before)

    def _release(self, index: int, number: int) -> None:
        if not self.ever:
            return
        who = self.ever[index % len(self.ever)].who
        own = [lease for lease in self.ever if lease.who == who]
        some = [lease for place, lease in enumerate(own) if number >> (place % 10) & 1]
        before = len(self.events)
        self.model.end(some, self.now, "Released")
        states = self.desk.release([lease.lease_id for lease in some], self.now, agent_id=who[0], session_id=who[1])
        assert states == {lease.lease_id: lease.state for lease in some}
        self._settle(before)

    def _revoke(self, index: int, number: int) -> None:
        if not self.ever:
            return
        lease = self.ever[index % len(self.ever)]
        before = len(self.events)
        self.model.end([lease], self.now, "Revoked")
        done = self.desk.revoke([lease.lease_id], self.now, by="operator", reason="test")
        assert done == {lease.lease_id: lease.state}
        self._settle(before)

    def _withdraw(self, index: int, number: int) -> None:
        if not self.ever_waited:
            return
        request = self.ever_waited[index % len(self.ever_waited)]
        before = len(self.events)
        self.model.pass_time(self.now)
        waits = request in self.model.queue
        self.model.withdraw(request, self.now)
        assert self.desk.withdraw(request.request_id, self.now) is waits
        self._settle(before)

    def _tick(self, index: int, number: int) -> None:
        self.now += number
        before = len(self.events)
        self.model.pass_time(self.now)
        self.desk.advance(self.now)
        self._settle(before)

    # Comparison

    def _told_requests(self) -> Iterator[SimpleRequest]:
        return (request for request, _, _ in self.model.told)

    def _name(self, lease: SimpleLease, told: GrantedLease) -> None:
        assert (told.predicate, told.resource) == lease.triple
        lease.lease_id = told.lease_id
        self.ever.append(lease)

    def _settle(self, before: int, but: VerdictGiven | None = None) -> None:
        """Compare what the queue was told since an event, and learn the ids of the leases it got."""
        answers = {
            event.request_id: event
            for event in self.events[before:]
            if isinstance(event, VerdictGiven) and (but is None or event.verdict_id != but.verdict_id)
        }
        withdrawn = {
            event.request_id: event.reason for event in self.events[before:] if isinstance(event, RequestWithdrawn)
        }
        for request, status, granted in self.model.told:
            if status == "Terminal":
                assert withdrawn[request.request_id] == "terminal"
                continue
            answer = answers.pop(request.request_id)
            assert (answer.status, answer.cause) == (status, "queue")
            for lease, told in zip(granted, answer.leases, strict=True):
                self._name(lease, told)
        assert not answers
        self.model.told.clear()

    def compare(self) -> None:
        """Compare the states of desk, stored ledger and simple ledger."""
        leases = sorted((lease.lease_id, *lease.who, *lease.triple, lease.expires_at) for lease in self.model.active())
        order = sorted(self.model.queue, key=lambda one: (self.model.rank(one.who), one.number))
        queue = [(one.request_id, *one.who, tuple(one.triples), one.deadline) for one in order]
        for ledger in (self.ledger, self.twin):
            assert _leases(ledger) == leases
            assert _queue(ledger) == queue
            assert {agent: rank[0] for agent, rank in ledger.agents.items()} == self.model.priorities
            dies = {(one.agent_id, one.session_id): one.dies for one in ledger.sessions.values() if one.dies}
            assert dies == self.model.dies
        assert fingerprint(self.ledger) == fingerprint(self.twin)


def fingerprint(ledger: Ledger) -> tuple[Any, ...]:
    """Return everything that makes two ledgers the same."""
    return (
        [lease.to_wire() for lease in ledger.leases.values()],
        _queue(ledger),
        ledger.agents,
        ledger.clock,
        ledger.last_token,
        ledger.ended,
        ledger.verdicts,
        ledger.settings,
        sorted(ledger.sessions),
        ledger.sequence,
    )


def _leases(ledger: Ledger) -> list[tuple[Any, ...]]:
    return sorted(
        (
            lease.lease_id,
            lease.session.agent_id,
            lease.session.session_id,
            lease.triple.predicate.value,
            lease.triple.resource.text,
            lease.expires_at,
        )
        for lease in ledger.leases.values()
    )


def _queue(ledger: Ledger) -> list[tuple[Any, ...]]:
    return [
        (
            one.request_id,
            one.session.agent_id,
            one.session.session_id,
            tuple((triple.predicate.value, triple.resource.text) for triple in one.triples),
            one.deadline,
        )
        for one in sorted(ledger.requests.values(), key=lambda one: one.order)
    ]


def _conflict(intent: int, who: Who, triple: Triple) -> dict[str, Any]:
    return {"intent": intent, "holder": who[0], "session": who[1], "predicate": triple[0], "resource": triple[1]}


def _without_ids(conflict: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in conflict.items() if name not in ("leaseId", "requestId")}
