"""Views of leases: held leases, waiting requests, and explanations of verdicts (KP-5b, KP-3b).

They are pure functions of a lease ledger and recorded verdicts, without influence on decisions.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.lease_events import VerdictGiven
from world.events.resource_values import NamedConflict
from world.klis.conflict import Conflict, find_conflicts
from world.klis.ledger import Ledger
from world.klis.ledger_view import ReadableLedger
from world.klis.predicate import Predicate, compatible
from world.klis.session import Rank, Request
from world.state.proposal_queues import awaits_caller
from world.state.realm_view import RealmView

__all__ = [
    "Explained",
    "Lack",
    "Wait",
    "check_edges",
    "digests",
    "explain",
    "held",
    "lack",
    "lacks",
    "still_blocks",
    "verdict_row",
    "waits",
]

Shown = Callable[[str], str]

KEY_BYTES: Final = 32
"""Bytes of a key that digests of resources are made with."""
"""Returns the displayed form of a resource: its text, or a digest."""

DIGITS: Final = 16
"""Hex digits of a displayed digest, 64 bits; enough to distinguish the resources of a log."""


def digests(key: bytes) -> Shown:
    """Return a function that displays a resource as its type and a keyed digest of its canonical text (KM-7.3).

    Equal resources have equal digests under one key. Without the key, a reader can neither confirm a guessed resource
    nor relate digests under different keys.

    Args:
        key: 32 random bytes.
    """

    def shown(resource: str) -> str:
        digest = hmac.new(key, resource.encode(), sha256).hexdigest()
        return f"{resource.partition(':')[0]}:#{digest[:DIGITS]}"

    return shown


def verdict_row(verdict: VerdictGiven) -> dict[str, Any]:
    """Return a verdict as JSON, with the leases that it grants and the conflicts that it names.

    Args:
        verdict: the recorded verdict.
    """
    return {
        "verdictId": verdict.verdict_id,
        "requestId": verdict.request_id,
        "status": verdict.status,
        "agentId": verdict.agent_id,
        "sessionId": verdict.session_id,
        "queued": verdict.queued,
        "ttlMs": verdict.ttl_ms,
        "retryAfterMs": verdict.retry_after_ms,
        "leases": [
            {"leaseId": one.lease_id, "token": one.token, "predicate": one.predicate, "resource": one.resource}
            for one in verdict.leases
        ],
        "conflicts": [
            {"predicate": one.predicate, "resource": one.resource, "holder": one.holder} for one in verdict.conflicts
        ],
    }


def held(ledger: ReadableLedger, *, now: int, agent: str | None = None, shown: Shown = str) -> list[dict[str, Any]]:
    """Return the leases in force, in order of their fencing tokens.

    Args:
        ledger: the lease ledger.
        now: ms since 1970-01-01 UTC; leases that end before it are left out, even without an expiry event.
        agent: limits the result to the leases of this agent.
        shown: returns the displayed form of a resource.
    """
    leases = sorted(ledger.leases.values(), key=lambda lease: lease.token)
    return [
        {**lease.to_wire(), "resource": shown(lease.triple.resource.text)}
        for lease in leases
        if (agent is None or lease.session.agent_id == agent) and not (lease.expires_at or now) < now
    ]


@dataclass(frozen=True, slots=True)
class Wait:
    """Request in the queue with its conflicts.

    Args:
        request: the waiting request.
        conflicts: the conflicting leases and older requests.
        more: whether there are further conflicts.
    """

    request: Request
    conflicts: tuple[Conflict, ...]
    more: bool


def waits(ledger: Ledger) -> list[Wait]:
    """Return the waiting requests with their conflicts, oldest first."""
    return [_wait(ledger, request) for request in sorted(ledger.requests.values(), key=lambda request: request.order)]


def _wait(ledger: Ledger, request: Request) -> Wait:
    limit = ledger.in_force.max_named_conflicts
    return Wait(request, *find_conflicts(ledger, ledger.named(request.session), request.triples, limit=limit))


@dataclass(frozen=True, slots=True)
class Lack:
    """Missing leases of an approved proposal that is not decided yet (KP-5a).

    Args:
        proposal_id: the proposal, and its session.
        agent_id: its actor.
        priority: the actor's priority, ms since 1970-01-01 UTC; None before its first manifest.
        wait: its request in the queue; None where it is not queued and will be retried.
        dies: number of consecutive Die verdicts.
        retry_at: earliest time of the next attempt, ms since 1970-01-01 UTC; 0 is immediately. Unused in the queue.
    """

    proposal_id: str
    agent_id: str
    priority: int | None
    wait: Wait | None
    dies: int
    retry_at: int


def still_blocks(klis: ReadableLedger, verdict: VerdictGiven) -> str | None:
    """Return the id of a lease or of a queued request that a request died of; None where all is free.

    Args:
        klis: the leases and the queue.
        verdict: a Die verdict; of the conflicts that it names those with sessions that are not younger count, if any.
    """
    own = klis.agents[verdict.agent_id]
    older = [one for one in verdict.conflicts if klis.agents[one.holder] <= own]
    for one in older or verdict.conflicts:
        if one.lease_id in klis.leases or one.request_id in klis.requests:
            return one.lease_id or one.request_id
    return None


def lack(realm: RealmView, proposal_id: str) -> Lack | None:
    """Return the missing leases of a proposal; None where it does not wait for leases."""
    return _lack(realm, proposal_id, realm.klis.ledger)


def lacks(realm: RealmView) -> list[Lack]:
    """Return the proposals that wait for leases, in order of submission."""
    whole = cache(realm.klis.ledger)
    candidates = (_lack(realm, name, whole) for name in realm.proposals)
    return [one for one in candidates if one is not None]


def _lack(realm: RealmView, proposal_id: str, whole: Callable[[], Ledger]) -> Lack | None:
    """Return the missing leases of a proposal; ``whole`` returns the ledger, for what a queued request waits for."""
    proposal = realm.proposals.get(proposal_id)
    if proposal is None or not proposal.wants_leases or awaits_caller(realm.klis, proposal):
        return None
    klis, agent = realm.klis, str(proposal.submitted.actor.actor_id)
    request = klis.requests.get(proposal_id)
    return Lack(
        proposal_id,
        agent,
        klis.agents[agent][0] if agent in klis.agents else None,
        None if request is None else _wait(whole(), request),
        klis.dies(agent, proposal_id),
        klis.asks_again_at(agent, proposal_id),
    )


def check_edges(ledger: Ledger, pending: Iterable[Wait]) -> None:
    """Check that a cycle of waits is impossible (KP-3b).

    An agent that waits for a lease must be older than its holder. A session that waits behind an older request must
    hold no leases, so that no other session waits for it.

    Raises:
        DamagedLogError: ``WAITS_THE_WRONG_WAY``: the ledger contradicts the protocol.
    """
    for wait in pending:
        own = ledger.named(wait.request.session)
        for conflict in wait.conflicts:
            other = ledger.agents[conflict.holder]
            is_right = own.rank < other if conflict.lease_id is not None else not own.places
            if not is_right:
                raise DamagedLogError(
                    ErrorCode.WAITS_THE_WRONG_WAY,
                    f"Request {wait.request.request_id} of {own.agent_id!r} waits for {conflict.holder!r} against the "
                    "order of age; `worldctl verify` and `worldctl recheck` find out why.",
                    request_id=wait.request.request_id,
                )


@dataclass(frozen=True, slots=True)
class Explained:
    """Explanation of a verdict.

    Args:
        verdict: the recorded verdict.
        rank: the priority of the requesting agent.
        asked: the triples of its manifest, or of the waiting request, in wire form.
        reasons: a sentence for each conflict that the verdict lists.
        rule: the rule that determined the verdict.
    """

    verdict: VerdictGiven
    rank: Rank
    asked: tuple[Mapping[str, Any], ...]
    reasons: tuple[str, ...]
    rule: str


_RULES = {
    "Granted": "Nothing that is held, and nothing older that waits, is in the way of any of them.",
    "Wait": "It is older than every agent in its way, so it waits; only the old wait for the young.",
    "Die": "One in its way is as old or older, or waits before it, so it must not wait; it asks again later.",
}


def explain(
    ledger: ReadableLedger, verdict: VerdictGiven, asked: Iterable[Mapping[str, Any]], shown: Shown = str
) -> Explained:
    """Explain a verdict: for each conflict the cell of the matrix, and the two priorities.

    Args:
        ledger: any later state; only the agents' priorities are read, which never change.
        verdict: the recorded verdict.
        asked: the effective triples of the request; the conflicts refer to them by index.
        shown: returns the displayed form of a resource.
    """
    wanted, rank = tuple(asked), ledger.agents[verdict.agent_id]
    reasons = tuple(_reason(ledger, rank, wanted, conflict, shown) for conflict in verdict.conflicts)
    shown_wanted = tuple({**one, "resource": shown(one["resource"])} for one in wanted)
    return Explained(verdict, rank, shown_wanted, reasons, _RULES[verdict.status])


def _reason(
    ledger: ReadableLedger, rank: Rank, wanted: tuple[Mapping[str, Any], ...], conflict: NamedConflict, shown: Shown
) -> str:
    intent, other = wanted[conflict.intent], ledger.agents[conflict.holder]
    asked, has = Predicate(intent["predicate"]), Predicate(conflict.predicate)
    cell = "are compatible" if compatible(has, asked) else "exclude each other"
    if conflict.lease_id is not None:
        what = f"holds {has} on {shown(conflict.resource)} (lease {conflict.lease_id})"
    else:
        what = f"waits for {has} on {shown(conflict.resource)} before it (request {conflict.request_id})"
    return (
        f"{asked} on {shown(intent['resource'])}: {conflict.holder!r}, session {conflict.session}, {what}; "
        f"{has} and {asked} {cell}; its priority {other[0]} is {_compared(other, rank)} than {rank[0]}."
    )


def _compared(other: Rank, rank: Rank) -> str:
    if other == rank:
        return "the same agent's and no younger"
    return "older" if other < rank else "younger"
