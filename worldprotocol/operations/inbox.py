"""The inbox: what waits for people, with a preview of each approval; and the calls whose callers left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType, convert, field

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, OperationCall, Paged, RequestForm, operation
from worldprotocol.operations.fields import HASH, ID, NOW, WORLD, At, History, Limit, NamedClaim
from worldprotocol.operations.records import (
    ACTOR,
    ActorForm,
    BodyForm,
    ErrorForm,
    GivenAnswer,
    LoggedForm,
    OutcomeForm,
    ProposalStatus,
)

if TYPE_CHECKING:
    from world.pipeline.preparation.preview import ApprovalPreview
    from world.state.proposal import Proposal
    from world.state.realm_view import RealmView
    from worldprotocol.operations.visibility import Visibility

MAX_CHANGES: Final = 500
"""Changes that a preview lists."""

PAST: Final = {"status": "unknown", "code": "NOT_WAITING", "reason": "This is the inbox of a point in the past."}
"""The preview of an entry of the past."""


class ListInbox(RequestForm, frozen=True, kw_only=True):
    """Whose inbox, and a point in the past, then without previews; absent, now."""

    limit: Limit = 50
    after: Annotated[str, Meta(max_length=1_000, description="`next` of the page before.")] | None = None
    history: History = False
    at: At | None = None
    everything: (
        Annotated[
            bool,
            Meta(
                description="List what waits for anybody, which needs the right reader or auditor. Absent: what waits "
                "for the caller, or for anybody where the caller can answer nothing."
            ),
        ]
        | None
    ) = field(name="all", default=None)
    left: Annotated[bool, Meta(description="List calls whose callers left instead.")] = field(
        name="callerLeft", default=False
    )


class ValueChangeForm(AnswerForm, frozen=True, kw_only=True):
    """A place at which an approval changes the data; a value that is not there is absent."""

    path: str
    before: Any = UNSET
    after: Any = UNSET


class EffectForm(AnswerForm, frozen=True, kw_only=True):
    """An effect that an approval requests first."""

    type: str
    params: Any


class PreviewForm(AnswerForm, frozen=True, kw_only=True):
    """What an approval would do; `unknown` has a code and a reason alone."""

    status: Literal["completed", "failed", "pending", "unknown"]
    on_world: str | None = None
    changes: list[ValueChangeForm] | None = None
    more_changes: bool | None = None
    changes_hash: str | None = None
    error: ErrorForm | UnsetType | None = UNSET
    effects: list[EffectForm] | None = None
    leases: list[NamedClaim] | None = None
    code: str | None = None
    reason: str | None = None


class InboxEntry(AnswerForm, frozen=True, kw_only=True):
    """A proposal that waits for people; `shown` is the hash of what a person decides by, for the answer."""

    proposal_id: str
    actor: ActorForm
    wants: BodyForm
    branch: str
    since: int
    deadline: int | None
    overdue: bool
    on_timeout: Literal["approve", "reject", "escalate"]
    waits_for: list[str]
    authority: str
    reason: str
    rules: list[OutcomeForm]
    answers: list[GivenAnswer]
    preview: PreviewForm
    shown: str
    history: list[LoggedForm] | None = None


class LeftCall(AnswerForm, frozen=True, kw_only=True):
    """A call whose caller left before it was decided."""

    proposal_id: str
    actor: ActorForm
    wants: BodyForm
    branch: str
    since: int
    left_at: int
    status: ProposalStatus
    ended_reason: str
    trace: dict[str, Any]


class HeldProposal(AnswerForm, frozen=True, kw_only=True):
    """A proposal that is held until the program has the code or the policies in force."""

    proposal_id: str
    held: str


class Inbox(AnswerForm, frozen=True, kw_only=True):
    """Entries, earliest deadline first; `next` is `after` of the next page, null after the last one.

    ``held`` is there where what waits for anybody is listed, as far as `limit` goes.
    """

    inbox: list[InboxEntry]
    more: bool
    next: str | None
    held: list[HeldProposal] | None = None
    caller_left: list[LeftCall] | None = None


PREVIEW: Final = PreviewForm(
    status="completed",
    on_world=WORLD,
    changes=[ValueChangeForm(path="orders.1", after={"item": "tea"})],
    more_changes=False,
    changes_hash=HASH,
    error=None,
    effects=[],
    leases=[NamedClaim(predicate="MUTATES", resource="STATE:main/orders")],
)


@operation(
    "inbox.list",
    "GET /inbox",
    "reader auditor actor approver",
    kind="personal",
    page=Paged("inbox", "after"),
    example=(
        ListInbox(limit=10),
        Inbox(
            inbox=[
                InboxEntry(
                    proposal_id=ID,
                    actor=ACTOR,
                    wants=BodyForm(type="order.place", input={"item": "tea"}),
                    branch="main",
                    since=NOW,
                    deadline=None,
                    overdue=False,
                    on_timeout="reject",
                    waits_for=["ann"],
                    authority="hitl",
                    reason="a person decides",
                    rules=[],
                    answers=[],
                    preview=PREVIEW,
                    shown=HASH,
                )
            ],
            more=False,
            next=None,
        ),
    ),
)
def list_inbox(call: OperationCall, request: ListInbox) -> Inbox:
    """List what waits for the caller, earliest deadline first, each with a preview of its approval.

    With `at` it is what waited then, without previews; it cannot be answered. With `callerLeft` nothing of that is
    listed, but the calls whose callers left before they were decided.
    """
    if request.left:
        return convert({"inbox": [], "more": False, "next": None, "callerLeft": _left(call, request)}, Inbox)
    from worldprotocol.api.requests import waiting_in

    is_whole = _is_whole(call.visibility, request)
    then = None if request.at is None else call.moment(request.at)
    view, now = call.view_at(request.at), call.clock.now_ms() if then is None else then.now
    asked = call.hosted.realm.inbox() if then is None else waiting_in(view)
    waiting = sorted(asked if is_whole else call.visibility.waiting(asked), key=_place)
    begin = None if request.after is None else _read_cursor(request.after)
    waiting = [one for one in waiting if begin is None or _place(one) > begin]
    shown, more = waiting[: request.limit], len(waiting) > request.limit
    entries = [inbox_entry(call, one, now, is_past=then is not None) for one in shown]
    if request.history:
        log = call.hosted.realm.log
        entries = [{**one, "history": call.visibility.history(log.stream(one["proposalId"]))} for one in entries]
    wire: dict[str, Any] = {"inbox": entries, "more": more, "next": _cursor(shown[-1]) if more else None}
    return convert(wire | ({"held": _held(view)[: request.limit]} if is_whole else {}), Inbox)


def _is_whole(visibility: Visibility, request: ListInbox) -> bool:
    """Return whether what waits for anybody is listed.

    Raises:
        RefusedError: ``RIGHT_MISSING``.
    """
    if request.everything is None:
        return visibility.reads_all and not visibility.rules and not {"approver", "actor"} & visibility.rights.keys()
    if request.everything:
        if not visibility.reads_all:
            raise RefusedError(
                ErrorCode.RIGHT_MISSING,
                "What waits for anybody (`all`) needs the right reader or auditor; leave `all` out.",
            )
        visibility.check_whole()
    return request.everything


Place = tuple[bool, int, int, str]


def _place(proposal: Proposal) -> Place:
    """Return the place of a proposal in the inbox: earliest deadline first, then the oldest one."""
    return proposal.deadline is None, proposal.deadline or 0, proposal.submitted.at, proposal.proposal_id


def _cursor(proposal: Proposal) -> str:
    deadline, at = proposal.deadline, proposal.submitted.at
    return f"{'none' if deadline is None else deadline}.{at}.{proposal.proposal_id}"


def _read_cursor(text: str) -> Place:
    """Return the place in the inbox that a cursor names.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    deadline, _, rest = text.partition(".")
    at, _, name = rest.partition(".")
    numbers = [at] if deadline == "none" else [deadline, at]
    if not name or not all(one.isascii() and one.isdecimal() and len(one) < 20 for one in numbers):
        raise RefusedError(ErrorCode.INVALID_VALUE, f"{text[:80]!r} is not the `next` of an inbox.")
    return deadline == "none", 0 if deadline == "none" else int(deadline), int(at), name


def _held(view: RealmView) -> Sequence[dict[str, Any]]:
    """Return the proposals that are held, and why."""
    from world.state.proposal import held_words

    events = [view.proposals[name].held for name in view.held]
    return [
        {"proposalId": one.proposal_id, "held": held_words(one)}
        for one in events
        if one is not None and one.cause != "caller"
    ]


def _left(call: OperationCall, request: ListInbox) -> list[dict[str, Any]]:
    """Return the calls of the active branch whose callers left, which the caller may read, newest first."""
    from worldprotocol.api.proposal_summary import calls_left, left_entry

    view = call.view_at(request.at)
    found = calls_left(call.hosted.realm.archive, view.active, view.position)
    may_see = call.visibility.is_own if call.visibility.rules else call.visibility.may_see
    return [left_entry(one, left_at) for one, left_at in found if may_see(one)][: request.limit]


def inbox_entry(call: OperationCall, proposal: Proposal, now: int, *, is_past: bool = False) -> dict[str, Any]:
    """Return a waiting proposal as an entry of the inbox; ``shown`` is the hash of what a person decides by.

    Args:
        call: the request.
        proposal: a proposal that waits for people.
        now: ms since 1970.
        is_past: whether it is of a point in the past, for which no approval is previewed.
    """
    from hashlib import sha256

    from world.model.canonical_json import canonical_bytes
    from worldprotocol.api.requests import waiting_entry

    preview = PAST if is_past else _preview(call, proposal.proposal_id)
    entry: dict[str, Any] = {**waiting_entry(proposal, now), "preview": preview}
    by_preview = {name: value for name, value in preview.items() if name != "onWorld"}
    decided_by = {**entry, "overdue": None, "preview": by_preview}
    return {**entry, "shown": sha256(canonical_bytes(decided_by)).hexdigest()}


def _preview(call: OperationCall, proposal_id: str) -> dict[str, Any]:
    """Return what an approval would do, or why that cannot be computed; one entry must not fail the inbox."""
    try:
        found = call.hosted.realm.preview(proposal_id)
    except RefusedError as refused:
        return {"status": "unknown", "code": refused.code, "reason": refused.message}
    return preview_wire(found)


def preview_wire(found: ApprovalPreview) -> dict[str, Any]:
    """Return what an approval would do as JSON, without the data before and after it."""
    from hashlib import sha256

    from world.model.canonical_json import canonical_bytes
    from world.read_models.diff import changes

    differences = [one.to_wire() for one in changes(found.before, found.after)]
    return {
        "status": found.status,
        "onWorld": found.world,
        "changes": differences[:MAX_CHANGES],
        "moreChanges": len(differences) > MAX_CHANGES,
        "changesHash": sha256(canonical_bytes(differences)).hexdigest(),
        "error": None if found.error is None else found.error.to_wire(),
        "effects": [{"type": kind, "params": params} for kind, params in found.effects],
        "leases": [{"predicate": one.predicate.value, "resource": one.resource.text} for one in found.leases],
    }
