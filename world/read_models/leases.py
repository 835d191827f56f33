"""Leases for people: what is held, who waits for whom, and why a verdict was what it was (KP-5b, KP-3b).

Pure views over a lease ledger and recorded verdicts; nothing here decides.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from world.errors import DamagedLogError
from world.events.lease_events import VerdictGiven
from world.klis.conflict import Conflict, find_conflicts
from world.klis.ledger import Ledger, Request
from world.klis.predicate import Predicate, compatible
from world.klis.session import Rank
from world.state.realm_state import RealmState

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
    "waits",
]

Shown = Callable[[str], str]
"""How a resource is shown: as it is, or by a digest."""

DIGITS: Final = 16
"""Hex digits of a digest: 64 bits, so that no two resources of a log look equal."""


def digests(key: bytes) -> Shown:
    """Return what shows a resource by its type alone, and a digest of its canonical text under a key (KM-7.3).

    Equal resources stay equal under one key. Who does not have it can neither confirm a guess nor tell whether a
    resource under another key is the same.

    Args:
        key: 32 random bytes.
    """

    def shown(resource: str) -> str:
        told = hmac.new(key, resource.encode(), sha256).hexdigest()
        return f"{resource.partition(':')[0]}:#{told[:DIGITS]}"

    return shown


def held(ledger: Ledger, *, now: int, agent: str | None = None, shown: Shown = str) -> list[dict[str, Any]]:
    """Return the leases in force, in order of their fencing tokens.

    Args:
        ledger: what stands.
        now: ms since 1970; what is over by then is left out, though its expiry is no event yet.
        agent: only this agent's.
        shown: how resources are shown.
    """
    leases = sorted(ledger.leases.values(), key=lambda lease: lease.token)
    return [
        {**lease.to_wire(), "resource": shown(lease.triple.resource.text)}
        for lease in leases
        if (agent is None or lease.session.agent_id == agent) and not (lease.expires_at or now) < now
    ]


@dataclass(frozen=True, slots=True)
class Wait:
    """A request in the queue and what it waits for.

    Args:
        request: what waits.
        conflicts: the leases, and the older requests, that are in its way.
        more: whether there are more than these.
    """

    request: Request
    conflicts: tuple[Conflict, ...]
    more: bool


def waits(ledger: Ledger) -> list[Wait]:
    """Return who waits for whom, the oldest first."""
    return [_wait(ledger, request) for request in sorted(ledger.requests.values(), key=lambda request: request.order)]


def _wait(ledger: Ledger, request: Request) -> Wait:
    limit = ledger.in_force.max_named_conflicts
    return Wait(request, *find_conflicts(ledger, request.session, request.triples, limit=limit))


@dataclass(frozen=True, slots=True)
class Lack:
    """Why a proposal that was judged well is not decided yet: its leases are missing (KP-5a).

    Args:
        proposal_id: the proposal, and its session.
        agent_id: its actor.
        priority: the actor's, ms since 1970; None before its first manifest.
        wait: its place in the queue; None where it holds none and is tried again.
        dies: how often in a row it was told Die.
        retry_at: from when it is tried again, ms since 1970; 0 is at once. Of no meaning in the queue.
    """

    proposal_id: str
    agent_id: str
    priority: int | None
    wait: Wait | None
    dies: int
    retry_at: int


def lack(realm: RealmState, proposal_id: str) -> Lack | None:
    """Return why a proposal waits for leases; None where it does not, or not any more."""
    proposal = realm.proposals.get(proposal_id)
    if proposal is None or not proposal.wants_leases:
        return None
    ledger, agent = realm.klis, str(proposal.submitted.actor["actorId"])
    request, session = ledger.requests.get(proposal_id), ledger.sessions.get((agent, proposal_id))
    return Lack(
        proposal_id,
        agent,
        ledger.agents[agent][0] if agent in ledger.agents else None,
        None if request is None else _wait(ledger, request),
        0 if session is None else session.dies,
        ledger.asks_again_at(agent, proposal_id),
    )


def lacks(realm: RealmState) -> list[Lack]:
    """Return the proposals that wait for leases, those submitted first first."""
    found = (lack(realm, name) for name in realm.proposals)
    return [one for one in found if one is not None]


def check_edges(ledger: Ledger, told: Iterable[Wait]) -> None:
    """Make sure that no circle of waits is possible (KP-3b).

    Whoever waits for a lease is older than its holder. Whoever waits for its turn behind an older request holds
    nothing that conflicts with anybody, so nobody waits for it.

    Raises:
        DamagedLogError: ``WAITS_THE_WRONG_WAY``: the ledger contradicts the protocol.
    """
    for wait in told:
        own = wait.request.session
        for conflict in wait.conflicts:
            other = ledger.agents[conflict.holder]
            is_right = own.rank < other if conflict.lease_id is not None else not own.places
            if not is_right:
                raise DamagedLogError(
                    "WAITS_THE_WRONG_WAY",
                    f"Request {wait.request.request_id} of {own.agent_id!r} waits for {conflict.holder!r} against the "
                    "order of age; `worldctl verify` and `worldctl recheck` find out why.",
                    request_id=wait.request.request_id,
                )


@dataclass(frozen=True, slots=True)
class Explained:
    """Why a verdict was what it was.

    Args:
        verdict: the recorded verdict.
        rank: the priority of who asked.
        asked: the triples of its manifest, or of the request that waited, in wire form.
        reasons: a sentence for each conflict that the verdict spells out.
        rule: the rule that made one verdict of them.
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


def explain(ledger: Ledger, verdict: VerdictGiven, asked: Iterable[Mapping[str, Any]], shown: Shown = str) -> Explained:
    """Say why a verdict was what it was: for each conflict the cell of the matrix, and the two ages.

    Args:
        ledger: any later state; only the agents' priorities are read, and these never change.
        verdict: the recorded verdict.
        asked: the effective triples that it is about, by the index that its conflicts name.
        shown: how resources are shown.
    """
    wanted, rank = tuple(asked), ledger.agents[verdict.agent_id]
    reasons = tuple(_reason(ledger, rank, wanted, conflict, shown) for conflict in verdict.conflicts)
    shown_wanted = tuple({**one, "resource": shown(one["resource"])} for one in wanted)
    return Explained(verdict, rank, shown_wanted, reasons, _RULES[verdict.status])


def _reason(
    ledger: Ledger, rank: Rank, wanted: tuple[Mapping[str, Any], ...], conflict: Mapping[str, Any], shown: Shown
) -> str:
    intent, other = wanted[conflict["intent"]], ledger.agents[conflict["holder"]]
    asked, has = Predicate(intent["predicate"]), Predicate(conflict["predicate"])
    cell = "may stand together" if compatible(has, asked) else "exclude each other"
    if "leaseId" in conflict:
        what = f"holds {has} on {shown(conflict['resource'])} (lease {conflict['leaseId']})"
    else:
        what = f"waits for {has} on {shown(conflict['resource'])} before it (request {conflict['requestId']})"
    return (
        f"{asked} on {shown(intent['resource'])}: {conflict['holder']!r}, session {conflict['session']}, {what}; "
        f"{has} and {asked} {cell}; its priority {other[0]} is {_compared(other, rank)} than {rank[0]}."
    )


def _compared(other: Rank, rank: Rank) -> str:
    if other == rank:
        return "the same agent's and no younger"
    return "older" if other < rank else "younger"
