"""Inbox: what waits for the caller, with everything that a decision needs, and the forms that answer.

An answer holds the hash of the entry that was shown, which the log records. Where an approval would do something else
by then, or other answers were given, the answer is refused and the inbox is shown again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response
from pydantic import ValidationError
from sse_starlette import ServerSentEvent

from authority.people.questions import Question, questions_of
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.access import right_fault
from worldprotocol.operations.visibility import Visibility
from worldprotocol.server.bodies import AnswerToGive
from worldprotocol.server.call import Call
from worldprotocol.server.operations.jobs import event_source
from worldprotocol.server.operations.proposals import give_answer
from worldprotocol.server.pages.page_call import PageCall, answerable, form_fault, open_form, open_page
from worldprotocol.server.pages.page_table import shows

MOST: Final = 50
MOST_PLACES: Final = 20
"""Paths of changes that the form of a narrower scope offers."""

LEAST_INTERVAL_S: Final = 0.25
"""Shortest time between two looks of a stream at the inbox, in seconds."""

CHOICES: Final = {
    "approve": "Approved",
    "narrow": "Approved with a narrower scope",
    "reject": "Rejected",
    "ask": "Question sent",
    "reply": "Reply sent",
    "delegate": "Delegated",
    "abstain": "Abstained",
    "escalate": "Passed to the next step",
}
"""Answers that the page offers, with the words that confirm each."""


@shows("inbox")
async def inbox(
    request: Request,
    done: Annotated[str, Query(max_length=20)] = "",
    proposal: Annotated[str, Query(max_length=200)] = "",
    left: Annotated[bool, Query(alias="caller-left")] = False,
) -> Response:
    """Show what waits for the caller, earliest deadline first, or the calls whose callers left."""
    opened = await open_page(request, "inbox.list")
    if left:
        found = await opened.read("inbox.list", {"limit": MOST, "left": True})
        return await opened.show("caller_left", {"title": "Caller left", "calls": found["callerLeft"]})
    return await _shown(opened, done=CHOICES.get(done, ""), proposal=proposal if done in CHOICES else "")


async def _shown(
    opened: PageCall,
    *,
    done: str = "",
    proposal: str = "",
    refusal: str = "",
    status: int = 200,
    kept: Mapping[str, Mapping[str, Any]] | None = None,
) -> Response:
    found = await opened.read("inbox.list", {"limit": MOST})
    entries = found["inbox"]
    values = {
        "title": "Inbox",
        "entries": entries,
        "more": found["more"],
        "done": done,
        "proposal": proposal,
        "refusal": refusal,
        "kept": kept or {},
        "seen": waiting_state(opened.call),
        "people": {one["proposalId"]: asked_people(one) for one in entries},
        "places": {one["proposalId"]: narrower_places(one) for one in entries},
        "further": {one["proposalId"] for one in entries if _has_further_step(opened.call, one["proposalId"])},
        "voted": {one["proposalId"] for one in entries if _is_vote(opened.call, one["proposalId"])},
        "handed": {one["proposalId"] for one in entries if _has_own_place(opened.call, one["proposalId"])},
        "actors": sorted(opened.call.view.actors) if opened.may("actors.list") else [],
        "may_approve": "approver" in opened.call.visibility.rights,
    }
    return await opened.show("inbox", values, status)


def _has_further_step(call: Call, proposal_id: str) -> bool:
    """Return whether people of a further step of its binding can be asked about a proposal."""
    proposal = call.view.proposals.get(proposal_id)
    if proposal is None or proposal.asked is None:
        return False
    return proposal.asked.step < len((proposal.binding or {}).get("then", ()))


def _is_vote(call: Call, proposal_id: str) -> bool:
    """Return whether the caller is asked to vote, and so may abstain."""
    kind = call.view.actors[call.actor_id].kind if call.actor_id in call.view.actors else ""
    return any(one.quorum is not None and one.is_asked(kind, call.actor_id) for one in _questions(call, proposal_id))


def _has_own_place(call: Call, proposal_id: str) -> bool:
    """Return whether the caller has a place of its own to hand on; one who is asked as any human has none."""
    return any(
        seat.holder == call.actor_id and seat.vote is None
        for question in _questions(call, proposal_id)
        if question.is_open
        for seat in question.seats
    )


def _questions(call: Call, proposal_id: str) -> Sequence[Question]:
    proposal = call.view.proposals.get(proposal_id)
    if proposal is None or proposal.asked is None:
        return ()
    return questions_of(proposal.asked, proposal.submitted.actor.actor_id)


def asked_people(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the actors that an entry asks, or asked before, each with its answers.

    Args:
        entry: an entry of the inbox.
    """
    escalated = (name for rule in entry["rules"] if rule["answer"] == "escalate" for name in rule.get("to", ()))
    replied = (name for one in entry["answers"] for name in (one["by"]["actorId"], one.get("to")) if name)
    names = dict.fromkeys([*escalated, *entry["waitsFor"], *replied])
    answers = entry["answers"]
    return [{"name": name, "answers": [one for one in answers if one["by"]["actorId"] == name]} for name in names]


def narrower_places(entry: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return the paths to which an approval may be narrowed, each with whether it is ticked at first.

    These are the proposed ones, which are ticked, and those of the changes that the approval would make.

    Args:
        entry: an entry of the inbox.
    """
    proposed = (entry["wants"].get("scopeProposal") or {}).get("allowedPaths")
    changed = [one["path"] for one in entry["preview"].get("changes", ())]
    places = dict.fromkeys(changed[:MOST_PLACES], proposed is None)
    return [(path, True) for path in proposed or ()] + [one for one in places.items() if one[0] not in (proposed or ())]


def waiting_state(call: Call) -> str:
    """Return a digest of what waits for the caller, which changes whenever an entry of its inbox may."""
    view = call.view
    state = [
        (
            one.proposal_id,
            len(one.answers),
            one.deadline,
            None if one.asked is None else one.asked.step,
            view.branches[one.branch].head if one.branch in view.branches else None,
        )
        for one in answerable(call)
    ]
    return hashlib.sha256(repr((view.schema_hash, state)).encode()).hexdigest()[:32]


@shows("inbox_stream")
async def inbox_stream(request: Request, seen: Annotated[str, Query(max_length=64)] = "") -> Response:
    """Stream an event whenever the inbox of the caller may show something else (SSE)."""
    opened = await open_page(request, "inbox.list")
    call = opened.of("inbox.list")
    call.check_waits()
    return event_source(_changes(call, seen))


async def _changes(call: Call, seen: str) -> AsyncIterator[ServerSentEvent]:
    """Yield an event for each change; ends when the server stops, or the caller has lost its right."""
    with call.waits:
        after = call.view.position
        if (state := waiting_state(call)) != seen:
            seen = state
            yield ServerSentEvent(str(after), event="changed")
        async for _ in call.hosted.log_watch.events(after):
            current = await call.service.threads.run(lambda: _renewed(call))
            if current is None:
                return
            if (state := waiting_state(current)) != seen:
                seen = state
                yield ServerSentEvent(str(current.view.position), event="changed")
            await asyncio.sleep(LEAST_INTERVAL_S)  # what is committed meanwhile is looked at together


def _renewed(call: Call) -> Call | None:
    """Return the call on the present state; None where the caller has no right any more."""
    view = call.hosted.realm.realm()
    if right_fault(view, call.verified, call.operation.rights, call.service.clock.now_ms()) is not None:
        return None
    return replace(call, view=view, visibility=Visibility(view, call.verified, call.hosted.redactions))


@shows("answer")
async def answer(request: Request, proposal_id: str) -> Response:
    """Record an answer to what was shown."""
    opened, form = await open_form(request, "proposals.answer")
    call = opened.call
    choice = form.get("choice", "")
    if choice not in CHOICES:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"{choice[:40]!r} is not an answer; open the inbox again.")

    try:
        body = AnswerToGive(
            choice=choice,  # type: ignore[arg-type]  # one of CHOICES
            scope={"allowedPaths": _paths(form)} if choice == "narrow" else None,
            to=form.get("to") or None if choice == "delegate" else None,
            reason=form.get("reason", ""),
            shown=form.get("shown", ""),
        )
    except ValidationError as error:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"{form_fault(error)[0]} Open the inbox again.") from None

    def run() -> None:
        waiting = next((one for one in call.hosted.realm.inbox() if one.proposal_id == proposal_id), None)
        if waiting is None or not call.visibility.may_answer(waiting):
            raise RefusedError(
                ErrorCode.NOT_WAITING,
                f"Proposal {proposal_id[:80]} does not wait for you any more: nothing was answered."
                f"{_ended(call, proposal_id)}",
            )
        give_answer(call, call.realm, proposal_id, body)

    try:
        await call.run(run)
    except RefusedError as refused:
        words, status = form_fault(refused)
        return await _shown(opened, refusal=words, status=status, kept={proposal_id: _typed(form, choice)})
    return opened.redirect(f"inbox?done={choice}&proposal={proposal_id}")


def _ended(call: Call, proposal_id: str) -> str:
    """Return why a proposal ended that a caller may read, where it was not a person who ended it."""
    try:
        found = call.hosted.realm.proposal(proposal_id)
    except RefusedError:
        return ""
    is_shown = found.ended_reason is not None and call.visibility.may_see(found)
    return f" It ended: {found.ended_reason}." if is_shown else ""


def _paths(form: Mapping[str, str]) -> list[str]:
    """Return the scope of a form: the ticked paths, and one path a line."""
    lines = [line.strip() for line in form.get("paths", "").splitlines()]
    return list(dict.fromkeys([*_ticked(form), *(line for line in lines if line)]))


def _ticked(form: Mapping[str, str]) -> list[str]:
    return [value for name, value in form.items() if name.startswith("path") and name != "paths"]


def _typed(form: Mapping[str, str], choice: str) -> dict[str, Any]:
    """Return what was typed into a form whose answer was refused, to be shown in it again."""
    typed: dict[str, Any] = {name: form.get(name, "") for name in ("reason", "paths", "to")}
    return {**typed, "narrowed": choice == "narrow", "ticked": _ticked(form)}
