"""Governed calls of tools: judged and leased before they are made, and reported afterwards.

A call has two phases. ``submit`` proposes it, ``look`` returns whether it is allowed, and claims its effect if so;
``report`` records its result. A call that was allowed and is never reported is in doubt once its time is over.

The key of a call is the caller's own id of it, so that a repeated request is the same call. A new call with the same
intentKey as an open one of the same actor that was not begun continues that proposal: an agent that had to return later
finds the decision of the people who were asked meanwhile; if attended, of its own session. Source: docs/agents.md.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any, Final

from host.external import external
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.claim_events import EffectClaimed
from world.model.intent import IntentInstance
from world.model.snapshot import EffectAnswer, ErrorValue
from world.state.effect_claim import EffectClaim
from world.state.ports import Performed
from world.state.proposal import Proposal
from world.state.proposal_queues import awaits_caller
from worldprotocol.agents.call_values import (
    ATTEMPT,
    EFFECT,
    Allowed,
    Answer,
    Denied,
    StillWaiting,
    ToolCall,
    is_claim_of,
    is_proposed_as,
)
from worldprotocol.agents.claim_keys import ended_claimed_by, have_one_caller, is_of_another
from worldprotocol.agents.command_runs import is_run
from worldprotocol.api.callers.keyed import caller_of, proposal_of_key, submit_once
from worldprotocol.api.callers.request_keys import check_key, key_conflict, keyed
from worldprotocol.api.callers.sessions import resume_held_call
from worldprotocol.api.realm import Realm
from worldprotocol.api.waiting.waiting_words import waits_for

__all__ = ["EFFECT", "TIME_LIMIT_MS", "TOOL_CALL", "ToolCalls"]

TIME_LIMIT_MS: Final = 3_600_000
"""Time for which a call may run before it is in doubt, in ms; a call may state a shorter one (``timeLimitMs``)."""

_UNKNOWN: Final = "No result of this call was reported: it failed, or may have been made."


def _time_limit(params: Any) -> int:
    stated = params.get("timeLimitMs") if isinstance(params, Mapping) else None
    is_usable = isinstance(stated, int | float) and not isinstance(stated, bool) and 1 <= stated <= TIME_LIMIT_MS
    return int(stated) if is_usable and stated is not None else TIME_LIMIT_MS


def _is_repeatable(params: Any) -> bool:
    return isinstance(params, Mapping) and params.get("idempotent") is True


TOOL_CALL: Final = external(EFFECT, time_limit_ms=_time_limit, idempotent=_is_repeatable, by_actor=True)
"""Declaration of the effect; ``effects = ["worldprotocol.agents.tool_calls:TOOL_CALL"]`` in ``world.toml``.

Its parameter ``idempotent`` is computed by the action, from what people have pinned; without it, nothing is repeated.
"""


class ToolCalls:
    """The calls of one agent.

    Args:
        realm: the realm, open for acting; ``Realm.as_caller`` says who was verified.
        actor_id: the agent.
        worker: name that is recorded with its claims; the actor's id by default.
    """

    def __init__(self, realm: Realm, actor_id: str, worker: str | None = None) -> None:
        self._realm = realm
        self._actor_id = actor_id
        self._worker = worker or actor_id

    # Before the call

    def submit(self, call: ToolCall) -> Proposal:
        """Propose a call, or return an open proposal of the same meaning that was not begun.

        Args:
            call: the call.

        Raises:
            RefusedError: ``IDEMPOTENCY_CONFLICT`` where the key belongs to another call, ``INVALID_VALUE`` for the
                key, and the codes of ``Realm.submit``: ``UNKNOWN_ACTION`` where the domain has no such action.
        """
        check_key(call.key)
        known = self._known(call)
        issued = self._realm.issue(self._actor_id, call.action, dict(call.input), scope=call.scope)
        if known is None and call.has_own_id:
            known = ended_claimed_by(self._realm, self._actor_id, issued.intent_key, call.key)
        if known is not None:
            return self.resumed(_same(known, issued, call.key))
        waiting = self._open_twin(call, issued.intent_key)
        if waiting is not None:
            return self.resumed(waiting)
        if not call.has_own_id:
            return self._submitted(call, issued, None)
        for number in count(1):  # an equal call may have begun the earlier proposals of this one
            name = call.key if number == 1 else f"{call.key}{ATTEMPT}{number}"
            known = proposal_of_key(self._realm, self._actor_id, name)
            proposal = self._submitted(call, issued, name) if known is None else _same(known, issued, name)
            if not is_of_another(self._realm, call, proposal):
                break
        return proposal

    def _submitted(self, call: ToolCall, issued: IntentInstance, key: str | None) -> Proposal:
        """Submit a call with a key of its actor; a repeated one returns its proposal."""
        said = {"action": call.action, "input": call.input}
        owner = caller_of(self._realm, self._actor_id)
        caller = None if key is None else keyed(owner, key, "calls.begin", said, checks=False)
        return submit_once(self._realm, caller, issued, attended=call.attended, trace=call.trace, branch=call.branch)

    def look(self, call: ToolCall, proposal_id: str) -> Answer | None:
        """Return whether a call may be made; its effect is claimed where it may.

        Args:
            call: the call.
            proposal_id: its proposal, as ``submit`` returned it.

        Returns:
            The answer; None where another call took the proposal meanwhile, so that this one is to be submitted again.

        Raises:
            RefusedError: as ``Realm.claim_effect``; ``INVALID_ACTION`` where the action requests no such effect.
        """
        proposal = self._realm.proposal(proposal_id)
        if proposal.is_terminal:
            return self._ended(call, proposal)
        if self._is_begun_elsewhere(call, proposal):
            return self._equal(proposal)
        if not any(asked.requirement.type == EFFECT for asked in proposal.requested.values()):
            if proposal.in_doubt or any(one.is_answered for one in proposal.ended_claims.values()):
                return self._made(call, proposal)
            return StillWaiting(proposal, waits_for(self._realm, proposal))
        claim = self._realm.claim_effect([EFFECT], worker=self._worker, proposal_id=proposal_id, key=call.claim_key)
        if claim is None:
            return self._made(call, self._realm.proposal(proposal_id))
        if call.excludes_equal and self._is_second(proposal, claim):
            self._complete(claim, ("TOOL_NOT_CALLED", "An equal call was begun at the same time."))
            return None
        return Allowed(proposal, claim)

    def begin(self, call: ToolCall, wait_s: float = 0) -> Answer:
        """Propose a call, and wait until it may be made or must not.

        Args:
            call: the call.
            wait_s: longest wait, in seconds.

        Raises:
            RefusedError: as ``submit``.
        """
        end = time.monotonic() + wait_s
        while True:
            answer = self.look(call, self._answered(call, end))
            if answer is not None:
                return answer

    def is_answered(self, call: ToolCall, proposal: Proposal) -> bool:
        """Return whether ``look`` has an answer: the call may be made now, or must not.

        Args:
            call: the call.
            proposal: the proposal, as it is now.
        """
        if self._is_begun_elsewhere(call, proposal):
            return _is_in_doubt(proposal)
        effects = [*proposal.requested.values(), *proposal.in_doubt.values()]
        return proposal.is_terminal or any(asked.requirement.type == EFFECT for asked in effects)

    def is_next(self, call: ToolCall, proposal: Proposal) -> bool:
        """Return whether there is something to do for a call that waits: it is answered, or waits for its caller."""
        return self.is_answered(call, proposal) or self.awaits_caller(proposal)

    def awaits_caller(self, proposal: Proposal) -> bool:
        """Return whether an approved call, by its proposal as it is now, is held until its caller asks again."""
        return not proposal.is_terminal and awaits_caller(self._realm.realm().klis, proposal)

    def resumed(self, proposal: Proposal) -> Proposal:
        """Request the leases of an approved call whose caller is here, and return its proposal as it is then."""
        if not self.awaits_caller(proposal):
            return proposal
        resume_held_call(self._realm, proposal.proposal_id)
        return self._realm.proposal(proposal.proposal_id)

    def ask(self, call: ToolCall, wait_s: float = 0) -> Denied | StillWaiting | None:
        """Propose a call, and wait until it is decided; it is not begun.

        Args:
            call: the call.
            wait_s: longest wait, in seconds.

        Returns:
            The answer; None where it may be begun.

        Raises:
            RefusedError: as ``submit``.
        """
        return self.peek(call, self._answered(call, time.monotonic() + wait_s))

    def peek(self, call: ToolCall, proposal_id: str) -> Denied | StillWaiting | None:
        """Return why a call must not be begun, or not yet; nothing is claimed.

        Args:
            call: the call.
            proposal_id: its proposal.

        Returns:
            The answer; None where ``begin`` has it.
        """
        proposal = self._realm.proposal(proposal_id)
        if not self.is_answered(call, proposal):
            return StillWaiting(proposal, waits_for(self._realm, proposal))
        ended = self._ended(call, proposal) if proposal.is_terminal else None
        return ended if isinstance(ended, Denied) else None

    # During the call, and after it

    def report(self, key: str, value: Any = None, *, failure: tuple[str, str] | None = None) -> Proposal | None:
        """Record the result of a call.

        Args:
            key: the key with which it was begun.
            value: its result, JSON.
            failure: code and sentence where it failed.

        Returns:
            The proposal; None where no open call has this key, or its time was over: it is in doubt.

        Raises:
            RefusedError: ``CLAIM_LOST`` where the time of the call was over, which is recorded.
        """
        claim = self._claim(key)
        return None if claim is None else self._complete(claim, failure, value)

    def is_run(self, key: str) -> bool:
        """Return whether an open call is made by ``worldctl run --call``, whose report ends it.

        Args:
            key: the key with which it was begun.
        """
        claimed = self._claimed(key)
        return claimed is not None and is_run(self._realm.proposal(claimed.proposal_id))

    def extend(self, key: str) -> bool:
        """Extend the time of a call that is still being made.

        Args:
            key: the key with which it was begun.

        Returns:
            Whether it still counts as being made.

        Raises:
            RefusedError: ``CLAIM_LOST`` where the time of the call was over.
        """
        claim = self._claim(key)
        if claim is not None:
            self._realm.heartbeat_effect(claim)
        return claim is not None

    def give_up(self, key: str, reason: str) -> Proposal | None:
        """Record that a call is not made: report it where it was begun, else withdraw its own proposal.

        Args:
            key: its key.
            reason: why, for the record.

        Returns:
            The proposal; None where no open call has this key, such as one that continues the proposal of another.
        """
        reported = self.report(key, failure=("TOOL_NOT_CALLED", reason))
        if reported is not None:
            return reported
        own = [one for one in self._own() if is_proposed_as(key, one.submitted) and not one.claims]
        withdrawn = next((one for one in own if self._withdraw(one, reason)), None)  # an equal call may have begun one
        return None if withdrawn is None else self._realm.proposal(withdrawn.proposal_id)

    def conclude(self, session: str, reason: str, *, before: ToolCall) -> None:
        """Record that the results of earlier calls of a session are not known, so that their leases end.

        Args:
            session: the member ``session`` of their traces.
            reason: why they have ended.
            before: the next call: of the tool and the subagent (``agentId``) in its trace.
        """
        members = ("tool", "agentId")
        for proposal in self._own():
            trace = proposal.submitted.trace or {}
            if proposal.session != session:
                continue
            if any(trace.get(one) != (before.trace or {}).get(one) for one in members):
                continue
            for claim in proposal.claims.values():
                if claim.key is not None and claim.key != before.key:
                    self.report(claim.key, failure=("TOOL_OUTCOME_UNKNOWN", f"{reason} {_UNKNOWN}"))

    def _withdraw(self, proposal: Proposal, reason: str) -> bool:
        """Withdraw a proposal whose call was not begun, or report so where it was allowed; return whether it was."""
        if proposal.status in ("submitted", "evaluating"):
            self._realm.host.cancel(proposal.proposal_id, by=self._actor_id, reason=reason)
            return True
        claim = self._realm.claim_effect([EFFECT], worker=self._worker, proposal_id=proposal.proposal_id)
        if claim is None:
            return False
        self._complete(claim, ("TOOL_NOT_CALLED", reason))
        return True

    def _claim(self, key: str) -> EffectClaim | None:
        """Return the claim of a call that was begun with this key; None where it is no longer open."""
        claimed = self._claimed(key)
        if claimed is None:
            return None
        return self._realm.claim_effect([EFFECT], worker=self._worker, proposal_id=claimed.proposal_id, key=key)

    def _complete(self, claim: EffectClaim, failure: tuple[str, str] | None, value: Any = None) -> Proposal:
        error = (
            None if failure is None else ErrorValue.at(failure[0], failure[1], claim.intent.body.type, "", claim.now)
        )
        return self._realm.complete_effect(claim, Performed(EffectAnswer(None if error else value, error=error)))

    def _answered(self, call: ToolCall, end: float) -> str:
        """Propose a call, wait until it is answered or the time is over, and return its proposal."""
        while True:
            name = self.submit(call).proposal_id
            look = partial(self._next, call, name)
            found = self._realm.archive.expectations.wait(name, look, max(0.0, end - time.monotonic()))
            if found is None or not self.awaits_caller(self._realm.proposal(name)):
                return name

    def _next(self, call: ToolCall, proposal_id: str) -> bool | None:
        return self.is_next(call, self._realm.proposal(proposal_id)) or None

    # Finding

    def _own(self) -> list[Proposal]:
        actor = self._actor_id
        open_ones = self._realm.realm().proposals.values()
        return [one for one in open_ones if one.submitted.actor.actor_id == actor]

    def _claimed(self, key: str) -> EffectClaimed | None:
        claims = (claim for proposal in self._own() for claim in proposal.claims.values())
        return next((claim for claim in claims if is_claim_of(key, claim)), None)

    def _known(self, call: ToolCall) -> Proposal | None:
        """Return the open proposal of a call that was submitted or claimed with this key, also one that is in doubt."""
        claimed = self._claimed(call.key)
        if claimed is not None:
            return self._realm.proposal(claimed.proposal_id)
        found = [
            one
            for one in self._own()
            if is_proposed_as(call.key, one.submitted) or (call.has_own_id and one.ended_claims)
        ]
        return next((one for one in found if not is_of_another(self._realm, call, one)), None)

    def _open_twin(self, call: ToolCall, intent_key: str) -> Proposal | None:
        """Return an open proposal of the same meaning: one that was begun and excludes the call, or is continued."""
        twins = [one for one in self._own() if one.submitted.intent.intent_key == intent_key]
        begun = [one for one in twins if call.excludes_equal and (_claims(one) or _is_in_doubt(one))]
        joined = (one for one in twins if have_one_caller(call, one))
        waiting = (
            one for one in joined if not (one.claims or one.journal or one.in_doubt or one.cancelled is not None)
        )
        return next(iter(begun), None) or next(waiting, None)

    def _is_begun_elsewhere(self, call: ToolCall, proposal: Proposal) -> bool:
        """Return whether the call was begun by another process, or is excluded by an equal one that was begun."""
        if proposal.is_terminal:
            return False
        begun = _claims(proposal)
        if any(one.key == call.key and one.worker != self._worker for one in begun):
            return True
        return call.excludes_equal and (_is_in_doubt(proposal) or any(one.key != call.key for one in begun))

    def _is_second(self, proposal: Proposal, claim: EffectClaim) -> bool:
        """Return whether an equal call was claimed before and has not ended; of two, only one finds the other."""
        key = proposal.submitted.intent.intent_key
        others = (one for one in self._own() if one.proposal_id != proposal.proposal_id)
        twins = [one for one in others if one.submitted.intent.intent_key == key]
        return any(_is_in_doubt(one) or any(at.token < claim.token for at in _claims(one)) for one in twins)

    # Answers

    def _equal(self, proposal: Proposal) -> Answer:
        """Return the answer to a call that an equal one, which was begun, excludes."""
        name = proposal.proposal_id
        if not _is_in_doubt(proposal):
            return StillWaiting(proposal, f"the result of an equal call that was begun before ({name})")
        return Denied(
            proposal,
            "IN_DOUBT",
            f"An equal call was begun before ({name}), and it is not known whether it was made. It is not made "
            f"again until a person says what became of it: `worldctl resolve {name}`",
        )

    def _made(self, call: ToolCall, proposal: Proposal) -> Answer | None:
        """Return the answer about a proposal whose effect is claimed, in doubt or has a result."""
        if proposal.is_terminal:
            return self._ended(call, proposal)
        is_own = any(is_claim_of(call.key, claim) for claim in proposal.claims.values())
        if not is_own and is_of_another(self._realm, call, proposal):
            return None
        return Denied(
            proposal,
            "MADE_ALREADY",
            f"The call {call.key} was begun before ({proposal.proposal_id}); it is not made twice.",
        )

    def _ended(self, call: ToolCall, proposal: Proposal) -> Answer | None:
        if proposal.status == "rejected":
            decision = proposal.decision
            return Denied(proposal, "REJECTED", "" if decision is None else decision.reason)
        if call.has_own_id and is_of_another(self._realm, call, proposal):
            return None
        if proposal.status == "superseded":
            return Denied(proposal, "SUPERSEDED", "It was withdrawn, or the realm changed before it was decided.")
        if proposal.status == "failed" and proposal.error is not None:
            return Denied(proposal, proposal.error.code, proposal.error.message)
        return self._made_and_ended(call, proposal)

    def _made_and_ended(self, call: ToolCall, proposal: Proposal) -> Answer | None:
        if not call.has_own_id and not is_proposed_as(call.key, proposal.submitted):
            return None
        name = proposal.proposal_id
        ended = list(proposal.ended_claims.values())  # in order; a person may have answered in place of the last one
        if not ended:
            action = proposal.intent.body.type
            why = f"The action {action} requests no effect {EFFECT}, so there is no call to make (docs/agents.md)."
            raise RefusedError(ErrorCode.INVALID_ACTION, why, proposal_id=name)
        made = proposal.journal.get(ended[-1].requirement_id)
        return Denied(proposal, "MADE_ALREADY", f"The call {call.key} was made already ({name}).", made)


def _same(known: Proposal, issued: IntentInstance, key: str) -> Proposal:
    """Return the proposal of a call with a key.

    Raises:
        RefusedError: ``IDEMPOTENCY_CONFLICT`` where it is of another call.
    """
    asked = known.submitted.intent.body
    if (asked.type, asked.input) != (issued.body.type, issued.body.input):
        raise key_conflict(key, known.proposal_id)
    return known


def _claims(proposal: Proposal) -> list[EffectClaimed]:
    requested = proposal.requested
    return [one for name, one in proposal.claims.items() if requested[name].requirement.type == EFFECT]


def _is_in_doubt(proposal: Proposal) -> bool:
    return any(asked.requirement.type == EFFECT for asked in proposal.in_doubt.values())
