"""Operations on proposals: list, read, preview, answer, cancel, settle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, convert, structs, to_builtins

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, Awaited, OperationCall, Paged, RequestForm, operation
from worldprotocol.operations.fields import ID, History, Limit, Name, Position, Reason, Seconds, ShownHistory
from worldprotocol.operations.inbox import PREVIEW, PreviewForm, inbox_entry, preview_wire
from worldprotocol.operations.records import PROPOSAL, Choice, ProposalForm, ProposalStatus

if TYPE_CHECKING:
    from world.events.proposal_events import ProposalSubmitted
    from world.state.proposal import Proposal

MAX_SCANNED: Final = 2_000
"""Submissions that one request for a list looks at."""

MAX_COMPARISONS: Final = 20
"""Times that what was shown is compared, because the state changed before the answer was recorded."""

OPEN: Final = frozenset({"submitted", "evaluating", "approved", "executing"})
UNDECIDED: Final = frozenset({"submitted", "evaluating"})

_ALL: Final = "reader auditor actor approver"


class ListProposals(RequestForm, frozen=True, kw_only=True):
    """Which proposals are wanted; times are in ms since 1970."""

    actor: Name | None = None
    status: ProposalStatus | None = None
    branch: Name | None = None
    since: Position | None = None
    until: Position | None = None
    after: Annotated[Position, Meta(description="Position of the last event of the page before: its `next`.")] = 0
    limit: Limit = 50
    history: History = False

    @property
    def is_filtered(self) -> bool:
        """Whether it has conditions."""
        return (self.actor, self.status, self.branch, self.since, self.until) != (None,) * 5

    def fits(self, event: ProposalSubmitted) -> bool:
        """Return whether a submission meets the conditions, but for the status."""
        return (
            self.actor in (None, event.actor.actor_id)
            and self.branch in (None, event.branch)
            and (self.since is None or event.at >= self.since)
            and (self.until is None or event.at <= self.until)
        )


class ListedProposals(AnswerForm, frozen=True, kw_only=True):
    """Proposals in the order of submission; `next` is `after` of the next page, null after the last one.

    ``archivedUpto`` is the event up to which a cut log leaves them out.
    """

    proposals: list[ProposalForm]
    next: int | None
    archived_upto: int | None = None


@operation(
    "proposals.list",
    "GET /proposals",
    _ALL,
    page=Paged("proposals", "after"),
    example=(
        ListProposals(actor="bot"),
        ListedProposals(proposals=[structs.replace(PROPOSAL, position=9)], next=None),
    ),
)
def list_proposals(call: OperationCall, request: ListProposals) -> ListedProposals:
    """List proposals in the order of submission, those that the caller may read.

    A request looks at 2,000 submissions at most; `next` continues also where none of them fits.
    """
    from world.events.proposal_events import ProposalSubmitted
    from world.read_models.decoding import decoded

    if call.visibility.rules and request.is_filtered:
        raise RefusedError(
            ErrorCode.RIGHT_MISSING,
            "A reader with redaction cannot filter proposals, because that shows what hidden ones contain; leave the "
            "conditions out.",
        )
    realm, log = call.hosted.realm, call.hosted.realm.log
    found: list[dict[str, Any]] = []
    scanned, cursor, position = 0, None, request.after
    for logged in log.read(request.after, topics=[ProposalSubmitted.TOPIC], skip_archived=True):
        if len(found) == request.limit or scanned == MAX_SCANNED:
            cursor = position
            break
        scanned, position = scanned + 1, logged.position
        event = decoded(logged)
        if isinstance(event, ProposalSubmitted) and request.fits(event):
            proposal = realm.proposal(event.proposal_id)
            if request.status in (None, proposal.status) and call.visibility.may_see(proposal):
                shown = call.visibility.proposal(proposal, log, history=request.history)
                found.append({"position": logged.position, **shown})
    return convert({"proposals": found, "next": cursor, **call.left_out()}, ListedProposals)


class ReadProposal(RequestForm, frozen=True, kw_only=True):
    """A proposal, and what of it is wanted."""

    proposal_id: Name
    wait: Annotated[Seconds, Meta(description="Seconds to wait for the outcome; the server limits them.")] = 0
    until: Annotated[Literal["ended", "decided"], Meta(description="What `wait` waits for.")] = "ended"
    history: History = False
    waits: Annotated[bool, Meta(description="Add what an open proposal waits for, or who withdrew it.")] = False


def _has_come(request: ReadProposal, found: ProposalForm) -> bool:
    """Return whether a proposal has come as far as is waited for."""
    return found.status not in (OPEN if request.until == "ended" else UNDECIDED)


@operation(
    "proposals.read",
    "GET /proposals/{proposal_id}",
    _ALL,
    awaited=Awaited(lambda request, _: request.proposal_id, _has_come),
    example=(ReadProposal(proposal_id="none"), PROPOSAL),
)
def read_proposal(call: OperationCall, request: ReadProposal) -> ProposalForm:
    """Return a proposal with its ruling, trace, answers and effects; `wait` returns it once it has ended."""
    realm = call.hosted.realm
    proposal = visible_proposal(call, request.proposal_id)
    shown = call.visibility.proposal(proposal, realm.log, history=request.history)
    if request.waits and not call.visibility.rules:  # what a proposal waits for is made of other events
        from worldprotocol.api.waiting.waiting_words import with_waits

        shown = {**with_waits(realm, proposal), **shown}
    return convert(shown, ProposalForm)


def visible_proposal(call: OperationCall, proposal_id: str) -> Proposal:
    """Return a proposal that the caller may read, or may change as an operator.

    Raises:
        RefusedError: ``UNKNOWN_PROPOSAL``.
    """
    from worldprotocol.operations.visibility import unknown_proposal

    try:
        proposal = call.hosted.realm.proposal(proposal_id)
    except RefusedError as refused:
        raise unknown_proposal(proposal_id) if refused.code == "UNKNOWN_PROPOSAL" else refused from None
    if not call.visibility.may_see(proposal) and "operator" not in call.visibility.rights:
        raise unknown_proposal(proposal_id)
    return proposal


class PreviewProposal(RequestForm, frozen=True, kw_only=True):
    """A waiting proposal."""

    proposal_id: Name


class WholePreview(PreviewForm, frozen=True, kw_only=True):
    """What an approval would do, with the data before and after it."""

    before: Any
    after: Any


@operation(
    "proposals.preview",
    "GET /proposals/{proposal_id}/preview",
    "reader auditor",
    kind="whole",
    example=(
        PreviewProposal(proposal_id="none"),
        WholePreview(
            **structs.asdict(PREVIEW),
            before={"orders": {}},
            after={"orders": {"1": {"item": "tea"}}},
        ),
    ),
)
def preview_proposal(call: OperationCall, request: PreviewProposal) -> WholePreview:
    """Return the data before and after the approval of a waiting proposal, computed and not recorded."""
    visible_proposal(call, request.proposal_id)
    found = call.hosted.realm.preview(request.proposal_id)
    return convert({**preview_wire(found), "before": found.before, "after": found.after}, WholePreview)


class ChangedProposal(RequestForm, frozen=True, kw_only=True):
    """A proposal that a request changes, and how it is answered."""

    proposal_id: Name
    history: ShownHistory = False


def _changed(call: OperationCall, request: ChangedProposal, _: Sequence[Any] = ()) -> ProposalForm:
    """Return a proposal as it is after a request, or after an equal one."""
    return changed_proposal(call, call.hosted.realm.proposal(request.proposal_id), history=request.history)


def changed_proposal(call: OperationCall, proposal: Proposal, *, history: bool) -> ProposalForm:
    """Return a proposal that the caller has just changed.

    Args:
        call: the call.
        proposal: the proposal.
        history: add its events.
    """
    shown = proposal.to_wire()
    if history:
        shown["history"] = call.visibility.history(call.hosted.realm.log.stream(proposal.proposal_id))
    return convert(shown, ProposalForm)


def _status(answer: ProposalForm) -> int:
    return 202 if answer.status in OPEN else 200


class AnswerScope(RequestForm, frozen=True, kw_only=True):
    """Paths to which an approval is narrowed."""

    allowed_paths: Annotated[list[Name], Meta(max_length=10_000)] | None = None
    note: Annotated[str, Meta(max_length=10_000)] | None = None


class AnswerProposal(ChangedProposal, frozen=True, kw_only=True):
    """A person's answer; `shown` is that of the entry of the inbox which the person was shown."""

    choice: Choice
    scope: AnswerScope | None = None
    to: Name | None = None
    reason: Annotated[str, Meta(max_length=10_000)] = ""
    shown: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


@operation(
    "proposals.answer",
    "POST /proposals/{proposal_id}:answer",
    "approver actor",
    again=_changed,
    status=_status,
    statuses=(200, 202),
    example=(AnswerProposal(proposal_id=ID, choice="approve", reason="agreed"), PROPOSAL),
)
def answer_proposal(call: OperationCall, request: AnswerProposal) -> ProposalForm:
    """Answer a waiting proposal as the caller; an actor may only reply to questions on its own."""
    visible_proposal(call, request.proposal_id)
    give_answer(call, request)
    return _changed(call, request)


def give_answer(call: OperationCall, request: AnswerProposal) -> None:
    """Record an answer of the caller, where what was shown is still what an approval would do.

    The preview is computed without the log's lock. Under the lock, the state that it was made from is compared, and
    the preview is computed again where that changed meanwhile.

    Raises:
        RefusedError: ``SHOWN_CHANGED``, and the refusals of ``Realm.decide``.
    """
    from world.pipeline.preparation.preview import basis_of
    from worldprotocol.api.requests import scope_of

    realm, name = call.realm, request.proposal_id
    given = {
        "choice": request.choice,
        "scope": scope_of(None if request.scope is None else to_builtins(request.scope)),
        "to": request.to,
        "reason": request.reason,
        "shown": request.shown,
        "by": realm._actor(call.actor_id),
    }
    for attempt in range(1, MAX_COMPARISONS + 1):
        basis = None
        if request.shown is not None:
            basis = basis_of(call.hosted.realm.realm(), name)
            _check_shown(call, name, request.shown)
        try:
            realm._record_answer(name, given, basis)
        except RefusedError as refused:
            if refused.code != "SHOWN_CHANGED" or attempt == MAX_COMPARISONS:
                raise
        else:
            return


def _check_shown(call: OperationCall, proposal_id: str, shown: str) -> None:
    """Refuse an answer to something else than what is shown now.

    Raises:
        RefusedError: ``SHOWN_CHANGED``.
    """
    proposal = call.hosted.realm.proposal(proposal_id)
    if proposal.asked is None:
        return  # the answer is refused: it does not wait any more
    entry = inbox_entry(call, proposal, call.clock.now_ms())
    if entry["shown"] != shown:
        raise RefusedError(
            ErrorCode.SHOWN_CHANGED,
            f"What an approval of {proposal_id} does, or who said what about it, is not what was shown with {shown}; "
            "read the inbox again and answer what it shows now.",
            proposal_id=proposal_id,
        )


class CancelProposal(ChangedProposal, frozen=True, kw_only=True):
    """Why a proposal is cancelled."""

    reason: Reason


@operation(
    "proposals.cancel",
    "POST /proposals/{proposal_id}:cancel",
    "operator actor",
    again=_changed,
    status=_status,
    statuses=(200, 202),
    example=(CancelProposal(proposal_id=ID, reason="no longer wanted"), PROPOSAL),
)
def cancel_proposal(call: OperationCall, request: CancelProposal) -> ProposalForm:
    """Cancel a proposal: withdraw it where it is not decided, else end its execution as failed.

    An actor may only withdraw its own proposals.
    """
    visible_proposal(call, request.proposal_id)
    call.realm.host.cancel(request.proposal_id, by=call.actor_id, reason=request.reason)
    return _changed(call, request)


class SettleProposal(ChangedProposal, frozen=True, kw_only=True):
    """What became of an effect in doubt: it happened with this value, it is made again, or it failed."""

    choice: Literal["happened", "retry", "fail"]
    reason: Reason
    effect: Name | None = None
    value: Any = None


@operation(
    "proposals.settle",
    "POST /proposals/{proposal_id}:settle",
    "operator",
    again=_changed,
    status=_status,
    statuses=(200, 202),
    example=(SettleProposal(proposal_id=ID, choice="fail", reason="the supplier has no record of it"), PROPOSAL),
)
def settle_proposal(call: OperationCall, request: SettleProposal) -> ProposalForm:
    """Record what became of an effect in doubt; the execution continues."""
    visible_proposal(call, request.proposal_id)
    call.realm.host.resolve(
        request.proposal_id,
        request.choice,
        by=call.actor_id,
        reason=request.reason,
        effect=request.effect,
        value=request.value,
    )
    return _changed(call, request)
