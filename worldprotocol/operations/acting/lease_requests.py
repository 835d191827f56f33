"""Operations on requests for leases: acquire, read what became of one, withdraw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, convert, structs

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, Awaited, OperationCall, RequestForm, operation
from worldprotocol.operations.fields import ID, NOW, EventForm, Name, NamedClaim, Position, Seconds, Ttl, recorded

if TYPE_CHECKING:
    from world.events.lease_events import VerdictGiven

Predicate = Literal["PROVIDES", "CONSUMES", "MUTATES", "DELETES", "DEPENDS_ON", "RENAMES"]
RequestId = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._:~-]{0,199}$")]

_KLIS: Final = "klis"


class Acquire(RequestForm, frozen=True, kw_only=True):
    """Resources to lease, all or none; or a signed manifest in their place."""

    resources: Annotated[list[Name], Meta(max_length=1_000)] | None = None
    predicate: Predicate = "MUTATES"
    manifest: dict[str, Any] | None = None
    session_id: Name | None = None
    ttl_ms: Ttl | None = None
    queue: bool = False
    wait_ms: Annotated[int, Meta(ge=1)] | None = None
    request_id: RequestId | None = None
    require_signature: bool = False


class Granted(NamedClaim, frozen=True, kw_only=True):
    """A granted lease with its fencing token."""

    lease_id: str
    token: int


class VerdictConflict(NamedClaim, frozen=True, kw_only=True):
    """What a request conflicts with, and whose it is."""

    holder: str


class VerdictAnswer(AnswerForm, frozen=True, kw_only=True):
    """A verdict: Granted, Wait or Die.

    ``queued`` says whether the request waits in the queue; ``priorities`` has the priority of each named agent, in ms
    since 1970; ``event`` is what the log records; ``after`` is a position before the request.
    """

    verdict_id: str
    request_id: str
    status: str
    agent_id: str
    session_id: str
    queued: bool
    ttl_ms: int | None
    retry_after_ms: int | None
    leases: list[Granted]
    conflicts: list[VerdictConflict]
    priorities: dict[str, int]
    event: EventForm
    after: int | None = None


_VERDICT: Final = VerdictAnswer(
    verdict_id=ID,
    request_id=ID,
    status="Granted",
    agent_id="bot",
    session_id="s-1",
    queued=False,
    ttl_ms=60_000,
    retry_after_ms=None,
    leases=[Granted(lease_id=ID, token=12, predicate="MUTATES", resource="FILE:/docs/plan")],
    conflicts=[],
    priorities={"bot": NOW},
    event=EventForm(topic="verdict.given", schema_version=1, state={"verdictId": ID, "status": "Granted"}),
    after=40,
)


def _verdict(call: OperationCall, verdict: VerdictGiven, after: int | None = None) -> VerdictAnswer:
    """Return a recorded verdict as an answer."""
    from world.read_models.leases import verdict_row

    agents = call.hosted.realm.realm().klis.agents
    names = dict.fromkeys([verdict.agent_id, *(one.holder for one in verdict.conflicts)])
    priorities = {name: agents[name][0] for name in names if name in agents}
    wire = {**verdict_row(verdict), "priorities": priorities, "event": recorded(verdict), "after": after}
    return convert(wire, VerdictAnswer)


def _last(call: OperationCall, request: Acquire, events: Sequence[Any]) -> VerdictAnswer:
    """Return the verdict that ended the wait of an earlier request, else its first one."""
    from world.read_models.live.request_events import events_of_request

    first: VerdictGiven = events[0]
    if not first.queued or first.request_id is None:
        return _verdict(call, first, 0)
    for _, event in events_of_request(call.hosted.realm.archive, first.request_id):
        if event.TOPIC != first.TOPIC:  # it was withdrawn
            return _verdict(call, structs.replace(first, queued=False), 0)
        if not event.queued:  # type: ignore[union-attr]  # a verdict
            return _verdict(call, event, 0)  # type: ignore[arg-type]
    return _verdict(call, first, 0)


@operation(
    "leases.acquire",
    "POST /leases",
    "actor",
    again=_last,
    status=lambda answer: 202 if answer.queued else 200,
    statuses=(200, 202),
    example=(Acquire(resources=["FILE:/docs/plan"], session_id="s-1"), _VERDICT),
)
def acquire(call: OperationCall, request: Acquire) -> VerdictAnswer:
    """Request leases for the caller, all or none; 202 where the request waits in the queue."""
    if (request.manifest is None) == (not request.resources):
        raise RefusedError(ErrorCode.INVALID_VALUE, "Name `resources`, or give a `manifest` in their place.")
    manifest = request.manifest or {
        "ver": "1.0",
        "agent_id": call.actor_id,
        "session_id": request.session_id or call.realm.new_id(),
        "scope": [{"predicate": request.predicate, "resource": one} for one in request.resources or ()],
    }
    before = call.hosted.realm.realm().position
    verdict = call.realm.leases.desk.request(
        manifest,
        by=call.actor_id,
        ttl_ms=request.ttl_ms,
        queue=request.queue,
        wait_ms=request.wait_ms,
        request_id=request.request_id,
        require_signature=request.require_signature,
    )
    return _verdict(call, verdict, before)


class ReadRequest(RequestForm, frozen=True, kw_only=True):
    """A request for leases; `after` is that of the answer to it."""

    request_id: Name
    after: Position = 0
    wait: Annotated[Seconds, Meta(description="Seconds to wait; the server limits them.")] = 0
    free: Annotated[bool, Meta(description="Wait also, where it died, until what it died of is free.")] = False


class RequestState(AnswerForm, frozen=True, kw_only=True):
    """What became of a request: whether it waits, its last verdict, and why it was withdrawn.

    ``isFree`` says of one that died whether what it died of is free; else it is null.
    """

    request_id: str
    is_waiting: bool
    is_free: bool | None
    verdict: VerdictAnswer | None
    withdrawn: str | None


@operation(
    "leases.request",
    "GET /leases/requests/{request_id}",
    "actor",
    awaited=Awaited(
        _KLIS, lambda request, found: not found.is_waiting and not (request.free and found.is_free is False)
    ),
    example=(
        ReadRequest(request_id="none"),
        RequestState(
            request_id=ID,
            is_waiting=False,
            is_free=None,
            verdict=structs.replace(_VERDICT, after=None),
            withdrawn=None,
        ),
    ),
)
def read_request(call: OperationCall, request: ReadRequest) -> RequestState:
    """Return what became of a request of the caller; `wait` returns it once it does not wait in the queue any more.

    With `free`, a request that died is returned once what it died of is free.
    """
    from world.read_models.leases import still_blocks

    verdict, withdrawn = _events_of(call, request.request_id, request.after)
    klis = call.hosted.realm.realm().klis
    if request.request_id in klis.requests:
        return RequestState(request_id=request.request_id, is_waiting=True, is_free=None, verdict=None, withdrawn=None)
    return RequestState(
        request_id=request.request_id,
        is_waiting=False,
        is_free=still_blocks(klis, verdict) is None if verdict.status == "Die" else None,
        verdict=_verdict(call, verdict),
        withdrawn=withdrawn,
    )


def _events_of(call: OperationCall, request_id: str, after: int) -> tuple[VerdictGiven, str | None]:
    """Return the last verdict on a request of the caller, and why it was withdrawn; None where it was not.

    Raises:
        RefusedError: ``UNKNOWN_REQUEST`` for the request of another caller.
    """
    from world.events.lease_events import VerdictGiven
    from world.read_models.live.request_events import events_of_request

    verdict = withdrawn = None
    is_own = False
    for _, event in events_of_request(call.hosted.realm.archive, request_id, after=after):
        if isinstance(event, VerdictGiven):
            verdict = event
            is_own = is_own or call.actor_id in (event.agent_id, (event.channel or {}).get("by"))
        else:
            withdrawn = event.reason
    if verdict is None or not is_own:
        raise RefusedError(
            ErrorCode.UNKNOWN_REQUEST,
            f"{call.actor_id!r} has made no request {request_id!r} for leases after event {after}; request them again.",
            request_id=request_id,
        )
    return verdict, withdrawn


class Withdraw(RequestForm, frozen=True, kw_only=True):
    """A request to take out of the queue; `after` is that of the answer to the request."""

    request_id: Name
    after: Position = 0


class Withdrawn(AnswerForm, frozen=True, kw_only=True):
    """Whether a request waited, and was taken out of the queue."""

    request_id: str
    withdrawn: bool


@operation(
    "leases.withdraw",
    "POST /leases/requests/{request_id}:withdraw",
    "actor",
    again=lambda _, request, __: Withdrawn(request_id=request.request_id, withdrawn=True),
    example=(Withdraw(request_id="none", after=40), Withdrawn(request_id=ID, withdrawn=True)),
)
def withdraw(call: OperationCall, request: Withdraw) -> Withdrawn:
    """Take a request of the caller out of the queue."""
    _events_of(call, request.request_id, request.after)
    is_withdrawn = call.realm.leases.desk.withdraw(request.request_id)
    return Withdrawn(request_id=request.request_id, withdrawn=is_withdrawn)
