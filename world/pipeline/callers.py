"""Calls of tools live as long as their callers: what ends with a caller, and what a late approval waits for.

Whether a caller is there is not in the log. So an attended call that is approved in a later unit than it was submitted
in requests no leases: it is held until its caller asks again, which a caller that waits does at once. A caller that
left ends its calls in one unit: what is not decided is superseded, what was not begun fails as not called, and of what
was begun the outcome is unknown. Source: docs/agents.md, "A call lives as long as its caller".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Struct

from world.events.caller_events import CALLER_LEFT, CallerLeft, CallerReturned, NoticedBy
from world.events.execution_events import EffectRequested, ExecutionCancelled
from world.events.proposal_events import ProposalHeld
from world.model.snapshot import EffectAnswer, ErrorValue
from world.pipeline.execution_state import NOT_CALLED, OUTCOME_UNKNOWN, lacks_workspace
from world.pipeline.leasing.klis_settings_in_force import is_arbitrated
from world.pipeline.leasing.proposal_manifest import needs_of
from world.pipeline.steps import Approvable, Approved, Decidable, EffectAnswered, Executing, LeftBehind, Step
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import INGRESS, Proposal
from world.state.proposal_queues import awaits_caller

__all__ = [
    "MOST_RETURNS",
    "Leaving",
    "calls_of",
    "goes_on",
    "hold_for_caller",
    "leave",
    "note_return",
    "resume_call",
    "returns_to",
]

MOST_RETURNS: Final = 100
"""How often the caller of one call may come to another server; after that, its call ends with its last connection."""

_NOT_CALLED: Final = "The caller left before the call was begun, so it was not made."
_UNKNOWN: Final = "The caller left; no result of this call was reported: it failed, or may have been made."


class Leaving(Struct, frozen=True):
    """A caller that left.

    Args:
        actor_id: its actor.
        client: the program, such as ``claude-code``.
        noticed_by: how it was noticed.
        session: its session; None without one.
        calls: ids of the proposals whose caller left; None is all calls of the session.
        running: ids of calls that a run makes, which is a caller of its own: they are cancelled, so that it ends them.
        not_made: ids of claimed calls that are known not to have been made.
        until: when its process ended, ms since 1970: a call that was begun later is that of a process which continues
            the session, and stays; None is now.
        continued: ids of calls that a process which continues the session asked again, which stay.
    """

    actor_id: str
    client: str
    noticed_by: NoticedBy
    session: str | None = None
    calls: Collection[str] | None = None
    running: Collection[str] = ()
    not_made: Collection[str] = ()
    until: int | None = None
    continued: Collection[str] = ()


def calls_of(work: UnitOfWork, left: Leaving) -> list[Proposal]:
    """Return the open calls that end with a caller; a call in doubt is left to a person."""
    return [
        one
        for one in _of_caller(work, left)
        if one.proposal_id not in left.running
        and not _is_later(one, left)
        and not one.in_doubt
        and (one.status in INGRESS or one.cancelled is None or bool(_tool_calls(one)))
    ]


def goes_on(work: UnitOfWork, left: Leaving) -> bool:
    """Return whether a session has a call that was begun after the process ended that left: another continues it."""
    return any(_is_later(one, left) for one in _of_caller(work, left))


def _of_caller(work: UnitOfWork, left: Leaving) -> list[Proposal]:
    realm = work.realm.proposals
    if left.calls is not None:
        found = [realm[name] for name in left.calls if name in realm]
    else:
        found = [one for one in realm.values() if one.session == left.session]
    return [one for one in found if one.submitted.actor.actor_id == left.actor_id]


def _is_later(proposal: Proposal, left: Leaving) -> bool:
    """Return whether a call was proposed, asked again, or claimed, after the process ended that left."""
    if left.until is None:
        return False
    return proposal.proposal_id in left.continued or any(
        at > left.until for at in (proposal.submitted.at, *(one.at for one in proposal.claims.values()))
    )


def leave(work: UnitOfWork, left: Leaving, *, is_known: bool = False) -> Iterator[Step]:
    """Record that a caller left, end its calls, and cancel those that runs make.

    Nothing is recorded where it has none and no session is known, or another process continues that.

    Args:
        work: the unit of work.
        left: the caller.
        is_known: whether the log has its session as one that has not ended.

    Raises:
        RefusedError: the codes of ``UnitOfWork.of_caller``, where the verified caller may not say so.
    """
    calls = calls_of(work, left)
    running = [one for one in _of_caller(work, left) if one.proposal_id in left.running and one.cancelled is None]
    running = [one for one in running if not _is_later(one, left)]
    if not calls and not running and (not is_known or goes_on(work, left)):
        return
    event = CallerLeft(
        at=work.at,
        client=left.client,
        actor_id=left.actor_id,
        calls=[one.proposal_id for one in calls],
        noticed_by=left.noticed_by,
        session=left.session,
    )
    work.emit(event.stream, work.of_caller(event))
    verified, work.verified = work.verified, None  # what follows is the engine's
    try:
        for proposal in running:
            _cancel(work, proposal)
        for proposal in calls:
            yield from _end(work, proposal, is_made=proposal.proposal_id not in left.not_made)
    finally:
        work.verified = verified


def _end(work: UnitOfWork, proposal: Proposal, *, is_made: bool) -> Iterator[Step]:
    """End a call whose caller left."""
    if proposal.status in INGRESS:
        yield LeftBehind(proposal, CALLER_LEFT)
        return
    if not _tool_calls(proposal):  # other effects come before it
        _cancel(work, proposal)
        if proposal.status == "executing" and not proposal.requested and not lacks_workspace(work, proposal):
            yield Executing(proposal)
            yield Approved(proposal.submitted.execution_key)
        return
    while calls := _tool_calls(proposal):  # an action may answer the failure of a call by another one
        asked = calls[0]
        claim = proposal.claims.get(asked.requirement.id)
        code, message = (OUTCOME_UNKNOWN, _UNKNOWN) if claim is not None and is_made else (NOT_CALLED, _NOT_CALLED)
        error = ErrorValue.at(code, message, asked.requirement.action_id, asked.requirement.node_path, work.at)
        reference = None if claim is None else claim.reference
        yield EffectAnswered(proposal, asked.requirement.id, EffectAnswer(error=error), asked.attempt, claim=reference)


def _cancel(work: UnitOfWork, proposal: Proposal) -> None:
    if proposal.cancelled is None:
        name, by = proposal.proposal_id, proposal.submitted.actor.actor_id
        work.emit(name, ExecutionCancelled(at=work.at, proposal_id=name, by=by, reason=CALLER_LEFT))


def _tool_calls(proposal: Proposal) -> list[EffectRequested]:
    """Return the requested effects that the actor of a proposal makes itself."""
    return [one for one in proposal.requested.values() if one.offer is not None and one.offer.by_actor]


def returns_to(proposal: Proposal, server: str) -> bool:
    """Return whether the caller of an open attended call comes from another server, as often as it may.

    Args:
        proposal: its proposal.
        server: id of the worker of the server at which it is now.
    """
    may_return = proposal.submitted.attended is not None and not proposal.is_terminal
    return may_return and proposal.caller_at != server and proposal.returns < MOST_RETURNS


def note_return(work: UnitOfWork, proposal_id: str, server: str) -> None:
    """Record that the caller of an open attended call asks again at a server, unless the log has it there.

    Args:
        work: the unit of work.
        proposal_id: its proposal.
        server: id of the worker of the server.
    """
    proposal = work.realm.proposals.get(proposal_id)
    if proposal is not None and returns_to(proposal, server):
        work.emit(proposal_id, CallerReturned(at=work.at, proposal_id=proposal_id, server=server))


# An approval that comes later


def hold_for_caller(work: UnitOfWork, proposal: Proposal) -> None:
    """Hold an attended call that was approved in a later unit than it was submitted in."""
    name = proposal.proposal_id
    work.emit(name, ProposalHeld(at=work.at, proposal_id=name, cause="caller", names=[]))


def resume_call(work: UnitOfWork, proposal_id: str) -> Iterator[Step]:
    """Request the leases of an approved call whose caller asked again; nothing is done where it does not wait for it.

    Args:
        work: the unit of work.
        proposal_id: its proposal.
    """
    proposal = work.realm.proposals.get(proposal_id)
    if proposal is None or not proposal.wants_leases or not awaits_caller(work.realm.klis, proposal):
        return
    ruling = proposal.last_ruling
    if is_arbitrated(work):
        yield Approvable(proposal, ruling, needs_of(work, proposal, ruling))
    else:
        yield Decidable(proposal, ruling)
