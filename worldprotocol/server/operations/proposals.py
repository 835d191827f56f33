"""Operations on proposals: list, read, answer, cancel, settle; and the inbox."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Query, Response
from pydantic import BaseModel

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted
from world.events.verification import Verification
from world.model.canonical_json import canonical_bytes
from world.pipeline.preparation.preview import ApprovalPreview, basis_of
from world.read_models.decoding import decoded
from world.read_models.diff import changes
from world.state.proposal import Proposal
from worldprotocol.agents.waiting_words import with_waits
from worldprotocol.api.callers.request_keys import keyed, once
from worldprotocol.api.proposal_summary import calls_left, left_entry
from worldprotocol.api.realm import Realm
from worldprotocol.api.requests import scope_of, waiting_entry, waiting_in
from worldprotocol.operations.visibility import unknown_proposal
from worldprotocol.server.bodies import AnswerToGive, Cancellation, ProposalFilter, Settlement
from worldprotocol.server.call import Authorized, Call, answer
from worldprotocol.server.operation_table import handles
from worldprotocol.server.operations.acting import AsFar, History, Key, Wait, rendered, waited
from worldprotocol.server.operations.past import At

MAX_SCANNED: Final = 2_000
"""Submissions that one request for a list looks at."""

MAX_COMPARISONS: Final = 20
"""Times that what was shown is compared, because the state changed before the answer was recorded."""

MAX_CHANGES: Final = 500
"""Changes that a preview lists."""

Limit = Annotated[int, Query(ge=1, le=500, description="Most entries of the answer.")]
After = Annotated[int, Query(ge=0, le=2**53, description="Position of the last event of the page before: its `next`.")]

Waits = Annotated[bool, Query(description="Add what an open proposal waits for, or who withdrew it.")]


@handles("proposals.list")
async def list_proposals(
    call: Authorized,
    wanted: Annotated[ProposalFilter, Query()],
    after: After = 0,
    limit: Limit = 50,
    history: History = False,
) -> Response:
    """List proposals in the order of submission; `next` is the cursor of the next page, null after the last one."""
    if call.visibility.rules and wanted != ProposalFilter():
        raise RefusedError(
            ErrorCode.RIGHT_MISSING,
            "A reader with redaction cannot filter proposals, because that shows what hidden ones contain; leave the "
            "conditions out.",
        )

    def run() -> dict[str, Any]:
        realm, log = call.hosted.realm, call.hosted.realm.log
        found: list[dict[str, Any]] = []
        scanned, cursor, position = 0, None, after
        for logged in log.read(after, topics=[ProposalSubmitted.TOPIC], skip_archived=True):
            if len(found) == limit or scanned == MAX_SCANNED:
                cursor = position
                break
            scanned, position = scanned + 1, logged.position
            event = decoded(logged)
            if isinstance(event, ProposalSubmitted) and _matches(event, wanted):
                proposal = realm.proposal(event.proposal_id)
                if wanted.status in (None, proposal.status) and call.visibility.may_see(proposal):
                    shown = call.visibility.proposal(proposal, log, history=history)
                    if "redacted" in shown and _tells_more(wanted):
                        continue
                    found.append({"position": logged.position, **shown})
        return {"proposals": found, "next": cursor, **call.left_out()}

    return answer(await call.run(run))


def _tells_more(wanted: ProposalFilter) -> bool:
    """Return whether a match would disclose what a redacted proposal withholds."""
    return any(one is not None for one in (wanted.actor, wanted.branch, wanted.since, wanted.until))


def _matches(event: ProposalSubmitted, wanted: ProposalFilter) -> bool:
    return (
        wanted.actor in (None, event.actor.actor_id)
        and wanted.branch in (None, event.branch)
        and (wanted.since is None or event.at >= wanted.since)
        and (wanted.until is None or event.at <= wanted.until)
    )


@handles("proposals.read")
async def read_proposal(
    call: Authorized,
    proposal_id: str,
    wait: Wait = 0,
    until: AsFar = "ended",
    history: History = False,
    waits: Waits = False,
) -> Response:
    """Return a proposal with its ruling, trace, answers and effects; `wait` returns it once it has ended."""
    realm = call.hosted.realm
    proposal = await call.run(lambda: _visible(call, proposal_id))
    proposal = await waited(call, proposal, wait, until)

    def run() -> dict[str, Any]:
        shown = call.visibility.proposal(proposal, realm.log, history=history)
        is_whole = not call.visibility.rules  # what a proposal waits for is made of other events
        return {**with_waits(realm, proposal), **shown} if waits and is_whole else shown

    return answer(await call.run(run))


def _visible(call: Call, proposal_id: str) -> Proposal:
    """Return a proposal that the caller may read.

    Raises:
        RefusedError: ``UNKNOWN_PROPOSAL``.
    """
    try:
        proposal = call.hosted.realm.proposal(proposal_id)
    except RefusedError as refused:
        raise unknown_proposal(proposal_id) if refused.code == "UNKNOWN_PROPOSAL" else refused from None
    if not call.visibility.may_see(proposal) and "operator" not in call.visibility.rights:
        raise unknown_proposal(proposal_id)
    return proposal


@handles("proposals.answer")
async def answer_proposal(
    call: Authorized, proposal_id: str, body: AnswerToGive, history: History = False, idempotency_key: Key = None
) -> Response:
    """Answer a waiting proposal as the caller."""
    caller = _keyed(call, idempotency_key, proposal_id, body)
    give_once = _once(call, caller, lambda acting: give_answer(call, acting, proposal_id, body))
    return await _changed(call, proposal_id, give_once, history=history)


def _keyed(call: Call, key: str | None, proposal_id: str, body: BaseModel) -> Verification:
    return keyed(call.verified, key, call.operation.name, {"proposalId": proposal_id, **body.model_dump()})


def _once(call: Call, caller: Verification, command: Callable[[Realm], object]) -> Callable[[], object]:
    """Return the command of a request, which a repeated request does not run."""
    return partial(once, call.hosted.realm, caller, command, again=lambda _: None)


def give_answer(call: Call, realm: Realm, proposal_id: str, body: AnswerToGive) -> None:
    """Record an answer of the caller, where what was shown is still what an approval would do.

    The preview is computed without the log's lock. Under the lock, the state that it was made from is compared, and
    the preview is computed again where that changed meanwhile.

    Raises:
        RefusedError: ``SHOWN_CHANGED``, and the refusals of ``Realm.decide``.
    """
    given = {**body.model_dump(), "by": realm._actor(call.actor_id), "scope": scope_of(body.scope)}
    for attempt in range(1, MAX_COMPARISONS + 1):
        basis = None
        if body.shown is not None:
            basis = basis_of(call.hosted.realm.realm(), proposal_id)
            _check_shown(call, proposal_id, body.shown)
        try:
            realm._record_answer(proposal_id, given, basis)
        except RefusedError as refused:
            if refused.code != "SHOWN_CHANGED" or attempt == MAX_COMPARISONS:
                raise
        else:
            return


async def _changed(call: Call, proposal_id: str, command: Callable[[], object], *, history: bool) -> Response:
    """Run a command on a proposal that the caller may read, and return the proposal."""

    def run() -> Proposal:
        _visible(call, proposal_id)
        command()
        return call.hosted.realm.proposal(proposal_id)

    proposal = await call.run(run)
    return answer(await rendered(call, proposal, history=history), 200 if proposal.is_terminal else 202)


@handles("proposals.cancel")
async def cancel_proposal(
    call: Authorized, proposal_id: str, body: Cancellation, history: History = False, idempotency_key: Key = None
) -> Response:
    """Cancel a proposal: withdraw it where it is not decided, else end its execution as failed.

    An actor may only withdraw its own proposals.
    """
    caller = _keyed(call, idempotency_key, proposal_id, body)
    cancel = _once(call, caller, lambda acting: acting.host.cancel(proposal_id, by=call.actor_id, reason=body.reason))
    return await _changed(call, proposal_id, cancel, history=history)


@handles("proposals.settle")
async def settle_proposal(
    call: Authorized, proposal_id: str, body: Settlement, history: History = False, idempotency_key: Key = None
) -> Response:
    """Record what became of an effect in doubt; the execution continues."""
    caller, said = _keyed(call, idempotency_key, proposal_id, body), body.model_dump(exclude={"choice"})
    settle = _once(call, caller, lambda acting: acting.host.resolve(proposal_id, body.choice, by=call.actor_id, **said))
    return await _changed(call, proposal_id, settle, history=history)


@handles("inbox.list")
async def inbox(
    call: Authorized,
    limit: Limit = 50,
    history: History = False,
    at: At = None,
    left: Annotated[bool, Query(alias="callerLeft", description="List calls whose callers left instead.")] = False,
) -> Response:
    """List what waits for the caller, earliest deadline first, each with a preview of its approval.

    With `at` it is what waited for the caller then, without previews; it cannot be answered. With `callerLeft` nothing
    of that is listed, but the calls whose callers left before they were decided.
    """
    if left:
        return answer({"inbox": [], "more": False, "callerLeft": await call.run(lambda: _left(call, limit, at))})

    def run() -> dict[str, Any]:
        then = None if at is None else call.moment(at)
        asked = call.hosted.realm.inbox() if then is None else waiting_in(call.hosted.past.view(then.position))
        waiting = call.visibility.waiting(asked)
        now = call.service.clock.now_ms() if then is None else then.now
        entries = [inbox_entry(call, one, now, is_past=then is not None) for one in waiting[:limit]]
        if history:
            log = call.hosted.realm.log
            entries = [
                {**entry, "history": call.visibility.history(log.stream(entry["proposalId"]))} for entry in entries
            ]
        return {"inbox": entries, "more": len(waiting) > limit}

    return answer(await call.run(run))


def _left(call: Call, limit: int, at: str | None) -> list[dict[str, Any]]:
    """Return the calls of the active branch whose callers left, which the caller may read, newest first."""
    view = call.view if at is None else call.hosted.past.view(call.moment(at).position)
    found = calls_left(call.hosted.realm.archive, view.active, view.position)
    may_see = call.visibility.is_own if call.visibility.rules else call.visibility.may_see
    return [left_entry(one, left_at) for one, left_at in found if may_see(one)][:limit]


def _check_shown(call: Call, proposal_id: str, shown: str) -> None:
    """Refuse an answer to something else than what is shown now.

    Raises:
        RefusedError: ``SHOWN_CHANGED``.
    """
    proposal = call.hosted.realm.proposal(proposal_id)
    if proposal.asked is None:
        return  # the answer is refused: it does not wait any more
    entry = inbox_entry(call, proposal, call.service.clock.now_ms())
    if entry["shown"] != shown:
        raise RefusedError(
            ErrorCode.SHOWN_CHANGED,
            f"What an approval of {proposal_id} does, or who said what about it, is not what was shown with {shown}; "
            "read the inbox again and answer what it shows now.",
            proposal_id=proposal_id,
        )


def inbox_entry(call: Call, proposal: Proposal, now: int, *, is_past: bool = False) -> dict[str, Any]:
    """Return a waiting proposal as an entry of the inbox; ``shown`` is the hash of what a person decides by.

    Args:
        call: the request.
        proposal: a proposal that waits for people.
        now: ms since 1970.
        is_past: whether it is of a point in the past, for which no approval is previewed.
    """
    preview = PAST if is_past else _preview(call, proposal.proposal_id)
    entry: dict[str, Any] = {**waiting_entry(proposal, now), "preview": preview}
    by_preview = {name: value for name, value in preview.items() if name != "onWorld"}
    decided_by = {**entry, "overdue": None, "preview": by_preview}
    return {**entry, "shown": hashlib.sha256(canonical_bytes(decided_by)).hexdigest()}


PAST: Final = {"status": "unknown", "code": "NOT_WAITING", "reason": "This is the inbox of a point in the past."}
"""The preview of an entry of the past."""


def _preview(call: Call, proposal_id: str) -> dict[str, Any]:
    """Return what an approval would do, or why that cannot be computed; one entry must not fail the inbox."""
    try:
        found = call.hosted.realm.preview(proposal_id)
    except RefusedError as refused:
        return {"status": "unknown", "code": refused.code, "reason": refused.message}
    return _described(found)


@handles("proposals.preview")
async def preview(call: Authorized, proposal_id: str) -> Response:
    """Return the data before and after the approval of a waiting proposal, computed and not recorded."""

    def run() -> dict[str, Any]:
        _visible(call, proposal_id)
        found = call.hosted.realm.preview(proposal_id)
        return {**_described(found), "before": found.before, "after": found.after}

    return answer(await call.run(run))


def _described(found: ApprovalPreview) -> dict[str, Any]:
    differences = [one.to_wire() for one in changes(found.before, found.after)]
    return {
        "status": found.status,
        "onWorld": found.world,
        "changes": differences[:MAX_CHANGES],
        "moreChanges": len(differences) > MAX_CHANGES,
        "changesHash": hashlib.sha256(canonical_bytes(differences)).hexdigest(),
        "error": None if found.error is None else found.error.to_wire(),
        "effects": [{"type": kind, "params": params} for kind, params in found.effects],
        "leases": [{"predicate": one.predicate.value, "resource": one.resource.text} for one in found.leases],
    }
