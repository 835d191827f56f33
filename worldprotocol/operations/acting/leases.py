"""Operations on leases in force and on the queue: lists, waits, heartbeat, release, revocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, convert

from worldprotocol.operations import AnswerForm, OperationCall, RequestForm, operation
from worldprotocol.operations.commands import BY_OPERATOR, AnswerView, Caller, Command, IdOf, Table
from worldprotocol.operations.fields import (
    ID,
    NOW,
    AtPoint,
    EventForm,
    Name,
    NamedClaim,
    Reason,
    Ttl,
    recorded,
    shown_retry,
    shown_time,
)

if TYPE_CHECKING:
    from world.klis.conflict import Conflict
    from world.klis.triple import Triple

LeaseIds = Annotated[list[Annotated[Name, IdOf("lease")]], Meta(min_length=1, max_length=1_000)]
Session = Annotated[Name, Meta(description="The session of the holder.", extra={"metavar": "ID"})]
Redacts = Annotated[bool, Meta(description="Show resources by their type and a digest: `TYPE:#digest` (KM-7.3).")]

_HOLDER: Final = Caller("--agent", None, "The holder.")
_LEASE: Final = {"session_id": "--session"}

NO_CIRCLE: Final = (
    "No circle is possible: who waits for a lease is older than its holder, and who waits for its turn behind an older "
    "request holds nothing that anybody waits for."
)


class ListLeases(AtPoint, frozen=True, kw_only=True):
    """Leases, of one agent or of all; with a point in the past those in force then, by the time of then."""

    agent_id: Annotated[Name, Meta(description="Only of this agent.", extra={"metavar": "ID"})] | None = None
    redact: Redacts = False


class ListWaits(AtPoint, frozen=True, kw_only=True):
    """Requests that wait now, or waited at a point in the past."""

    redact: Redacts = False


class Own(RequestForm, frozen=True, kw_only=True):
    """What concerns the caller."""


class HeldLease(AnswerForm, frozen=True, kw_only=True):
    """A lease in force; times are in ms since 1970."""

    lease_id: str
    token: int
    state: str
    agent_id: str
    session_id: str
    predicate: str
    resource: str
    granted_at: int
    ttl_ms: int | None
    expires_at: int | None
    hold_until: int | None
    verdict_id: str


class HeldLeases(AnswerForm, frozen=True, kw_only=True):
    """Leases in the order of their fencing tokens."""

    leases: list[HeldLease]


_HELD: Final = HeldLease(
    lease_id=ID,
    token=12,
    state="Active",
    agent_id="bot",
    session_id="s-1",
    predicate="MUTATES",
    resource="FILE:/docs/plan",
    granted_at=NOW,
    ttl_ms=60_000,
    expires_at=NOW + 60_000,
    hold_until=None,
    verdict_id=ID,
)


def _listed(answer: HeldLeases) -> Table:
    rows = [
        (
            one.lease_id,
            one.token,
            one.agent_id,
            one.session_id,
            one.predicate,
            one.resource,
            "with its proposal" if one.expires_at is None else shown_time(one.expires_at),
        )
        for one in answer.leases
    ]
    heads = ("lease", "token", "agent", "session", "predicate", "resource", "ends")
    return Table(heads, rows, empty="No lease is in force.")


@operation(
    "leases.list",
    "GET /leases",
    "reader auditor",
    kind="whole",
    command=Command(words="lease list", options={"agent_id": "--agent"}, view=_listed),
    example=(ListLeases(at="HEAD"), HeldLeases(leases=[_HELD])),
)
def list_leases(call: OperationCall, request: ListLeases) -> HeldLeases:
    """List the leases in force, in the order of their fencing tokens."""
    from world.read_models.leases import held

    then = None if request.at is None else call.moment(request.at)
    ledger, now = (call.view.klis, call.clock.now_ms()) if then is None else (then.ledger(), then.now)
    shown = call.hosted.resource_digests() if request.redact else str
    return convert({"leases": held(ledger, now=now, agent=request.agent_id, shown=shown)}, HeldLeases)


@operation("leases.held", "GET /leases/held", "actor", example=(Own(), HeldLeases(leases=[_HELD])))
def list_own_leases(call: OperationCall, request: Own) -> HeldLeases:
    """List the leases in force of the caller, in the order of their fencing tokens."""
    from world.read_models.leases import held

    return convert({"leases": held(call.view.klis, now=call.clock.now_ms(), agent=call.actor_id)}, HeldLeases)


class Blocker(NamedClaim, frozen=True, kw_only=True):
    """A lease, or an older request, that conflicts with what a waiting request wants."""

    wants: NamedClaim
    holder: str
    holder_priority: int
    session: str
    lease_id: str | None
    request_id: str | None


class QueuedRequest(AnswerForm, frozen=True, kw_only=True):
    """A request in the queue with what it waits for; times and the priority of its agent are in ms since 1970."""

    request_id: str
    agent_id: str
    session_id: str
    priority: int
    since: int
    deadline: int | None
    resources: list[NamedClaim]
    waits_for: list[Blocker]
    more: bool


class Retried(AnswerForm, frozen=True, kw_only=True):
    """A proposal without a place in the queue, which is tried again at `retryAt`, or is due for it."""

    proposal_id: str
    agent_id: str
    priority: int | None
    attempts: int
    retry_at: int
    is_due: bool


class QueuedRequests(AnswerForm, frozen=True, kw_only=True):
    """Requests in the queue, oldest first, and proposals that are tried again later, at a time in ms since 1970."""

    waits: list[QueuedRequest]
    retrying: list[Retried]


_WANTED: Final = NamedClaim(predicate="MUTATES", resource="FILE:/docs/plan")


def _waits(answer: QueuedRequests) -> AnswerView:
    rows = [
        (
            one.request_id,
            f"{one.agent_id} ({one.priority})",
            f"{edge.wants.predicate} {edge.wants.resource}",
            "its turn comes after" if edge.lease_id is None else "older than the holder of",
            f"{edge.holder} ({edge.holder_priority})",
            f"{edge.predicate} {edge.resource}",
        )
        for one in answer.waits
        for edge in one.waits_for
    ]
    heads = ("request", "who waits (priority)", "for", "being", "whom (priority)", "what is in the way")
    parts: list[Table | str] = []
    if rows or not answer.retrying:
        parts.append(Table(heads, rows, empty="No request waits for a lease."))
    if rows:
        parts.append(NO_CIRCLE)
    if answer.retrying:
        later = [
            (
                one.proposal_id,
                f"{one.agent_id} ({one.priority})",
                one.attempts,
                shown_retry(one.retry_at, is_due=one.is_due),
            )
            for one in answer.retrying
        ]
        parts.append(Table(("proposal", "who tries again (priority)", "attempts", "again"), later))
    return AnswerView(parts)


@operation(
    "leases.waits",
    "GET /leases/waits",
    "reader auditor",
    kind="whole",
    command=Command(words="waits", view=_waits),
    example=(
        ListWaits(at="HEAD"),
        QueuedRequests(
            waits=[
                QueuedRequest(
                    request_id=ID,
                    agent_id="bot",
                    session_id="s-1",
                    priority=NOW - 9,
                    since=NOW,
                    deadline=None,
                    resources=[_WANTED],
                    waits_for=[
                        Blocker(
                            wants=_WANTED,
                            predicate="MUTATES",
                            resource="FILE:/docs",
                            holder="ann",
                            holder_priority=NOW - 5,
                            session="s-2",
                            lease_id=ID,
                            request_id=None,
                        )
                    ],
                    more=False,
                )
            ],
            retrying=[
                Retried(proposal_id=ID, agent_id="bot", priority=NOW - 9, attempts=1, retry_at=NOW + 9, is_due=False)
            ],
        ),
    ),
)
def list_waits(call: OperationCall, request: ListWaits) -> QueuedRequests:
    """List the requests that wait in the queue, with what each waits for, and the proposals that are tried again."""
    from world.read_models.leases import check_edges, lacks, waits

    then = None if request.at is None else call.moment(request.at)
    view, now = (call.view, call.clock.now_ms()) if then is None else (call.view_at(request.at), then.now)
    shown = call.hosted.resource_digests() if request.redact else str
    ledger = view.klis.ledger()
    found = waits(ledger)
    check_edges(ledger, found)

    def claim(triple: Triple) -> NamedClaim:
        return NamedClaim(predicate=triple.predicate.value, resource=shown(triple.resource.text))

    def blocker(one: Conflict, wanted: Triple) -> Blocker:
        return Blocker(
            wants=claim(wanted),
            predicate=one.predicate,
            resource=shown(one.resource),
            holder=one.holder,
            holder_priority=ledger.agents[one.holder][0],
            session=one.session,
            lease_id=one.lease_id,
            request_id=one.request_id,
        )

    return QueuedRequests(
        waits=[
            QueuedRequest(
                request_id=one.request.request_id,
                agent_id=one.request.session.agent_id,
                session_id=one.request.session.session_id,
                priority=one.request.session.rank[0],
                since=one.request.since,
                deadline=one.request.deadline,
                resources=[claim(triple) for triple in one.request.triples],
                waits_for=[blocker(way, one.request.triples[way.intent]) for way in one.conflicts],
                more=one.more,
            )
            for one in found
        ],
        retrying=[
            Retried(
                proposal_id=one.proposal_id,
                agent_id=one.agent_id,
                priority=one.priority,
                attempts=one.dies,
                retry_at=one.retry_at,
                is_due=one.retry_at <= now,
            )
            for one in lacks(view)
            if one.wait is None
        ],
    )


class Heartbeat(RequestForm, frozen=True, kw_only=True):
    """Leases to renew."""

    lease_ids: LeaseIds
    session_id: Session
    ttl_ms: Ttl | None = None


class Renewal(AnswerForm, frozen=True, kw_only=True):
    """A renewed lease; `expiresAt` is in ms since 1970."""

    lease_id: str
    expires_at: int
    event: EventForm


class Renewals(AnswerForm, frozen=True, kw_only=True):
    """Renewed leases."""

    leases: list[Renewal]


def _renewals(events: Sequence[Any]) -> Renewals:
    return Renewals(
        leases=[Renewal(lease_id=one.lease_id, expires_at=one.expires_at, event=recorded(one)) for one in events]
    )


@operation(
    "leases.heartbeat",
    "POST /leases:heartbeat",
    "actor",
    command=Command(
        words="lease heartbeat",
        arguments=("lease_ids",),
        options=_LEASE,
        caller=_HOLDER,
        view=lambda answer: Table(("lease", "expires at"), [(one.lease_id, one.expires_at) for one in answer.leases]),
    ),
    again=lambda _, __, events: _renewals(events),
    example=(
        Heartbeat(lease_ids=[ID], session_id="s-1"),
        Renewals(
            leases=[
                Renewal(
                    lease_id=ID,
                    expires_at=NOW + 60_000,
                    event=EventForm(topic="lease.renewed", schema_version=1, state={"leaseId": ID}),
                )
            ]
        ),
    ),
)
def heartbeat(call: OperationCall, request: Heartbeat) -> Renewals:
    """Renew leases of the caller, all or none."""
    return _renewals(
        call.realm.leases.desk.heartbeat(
            request.lease_ids, agent_id=call.actor_id, session_id=request.session_id, ttl_ms=request.ttl_ms
        )
    )


class Release(RequestForm, frozen=True, kw_only=True):
    """Leases to release."""

    lease_ids: LeaseIds
    session_id: Session


class Revoke(RequestForm, frozen=True, kw_only=True):
    """Leases to revoke, and why."""

    lease_ids: LeaseIds
    reason: Reason


class States(AnswerForm, frozen=True, kw_only=True):
    """The state of each lease."""

    states: dict[str, str]


def _states(answer: States) -> Table:
    return Table(("lease", "state"), list(answer.states.items()))


def _ended(call: OperationCall, request: Release | Revoke, events: Sequence[Any]) -> States:
    """Return the states of leases that an earlier request ended; the ledger forgets old ones."""
    ended = "Released" if isinstance(request, Release) else "Revoked"
    known = call.hosted.realm.realm().klis.ended
    return States(states={one: known.get(one, ended) for one in request.lease_ids})


@operation(
    "leases.release",
    "POST /leases:release",
    "actor",
    again=_ended,
    command=Command(words="lease release", arguments=("lease_ids",), options=_LEASE, caller=_HOLDER, view=_states),
    example=(Release(lease_ids=[ID], session_id="s-1"), States(states={ID: "Released"})),
)
def release(call: OperationCall, request: Release) -> States:
    """Release leases of the caller, all or none."""
    return States(
        states=call.realm.leases.desk.release(request.lease_ids, agent_id=call.actor_id, session_id=request.session_id)
    )


@operation(
    "leases.revoke",
    "POST /leases:revoke",
    "operator",
    again=_ended,
    command=Command(words="lease revoke", arguments=("lease_ids",), caller=BY_OPERATOR, view=_states),
    example=(Revoke(lease_ids=[ID], reason="the holder is gone"), States(states={ID: "Revoked"})),
)
def revoke(call: OperationCall, request: Revoke) -> States:
    """Revoke leases of any holder; the actor also has to be an administrator of leases."""
    return States(states=call.realm.leases.desk.revoke(request.lease_ids, by=call.actor_id, reason=request.reason))
