"""Checks of callers that left: what ends for that reason has a record before it, and each call named there ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from world.audit.replay import Step
from world.error_codes import ErrorCode
from world.events.caller_events import CALLER_LEFT, CallerLeft
from world.events.execution_events import EffectFulfilled, ExecutionCancelled
from world.events.proposal_events import ProposalSuperseded
from world.pipeline.execution_state import NOT_CALLED
from world.state.realm_state import RealmState

__all__ = ["CallerChecks"]


class CallerChecks:
    """The calls whose caller left and that have not ended yet.

    Args:
        realm: the state before each event, which the caller folds.
        bad: called with a code and a sentence for each fault.
    """

    def __init__(self, realm: RealmState, bad: Callable[[ErrorCode, str], None]) -> None:
        self._realm = realm
        self._bad = bad
        self._open: set[str] = set()
        self.by_topic: Mapping[str, Step] = {
            CallerLeft.TOPIC: self._left,
            EffectFulfilled.TOPIC: self._fulfilled,
            ExecutionCancelled.TOPIC: self._cancelled,
        }

    def _left(self, event: CallerLeft, _: int) -> None:
        """Check the record of a caller that left, before which the calls of earlier ones have ended."""
        self.at_the_end()
        for name in event.calls:
            proposal = self._realm.proposals.get(name)
            if proposal is None or proposal.submitted.actor.actor_id != event.actor_id:
                self._bad(ErrorCode.BAD_REFERENCE, f"the call {name} is not an open proposal of {event.actor_id!r}")
            else:
                self._open.add(name)

    def superseded(self, event: ProposalSuperseded) -> None:
        """Check the end of an undecided call."""
        if event.reason == CALLER_LEFT and event.by is None and event.proposal_id not in self._open:
            self._bad(ErrorCode.CALLER_LEFT_OPEN, f"no {CallerLeft.TOPIC} names the call {event.proposal_id} before it")
        self._open.discard(event.proposal_id)

    def _fulfilled(self, event: EffectFulfilled, _: int) -> None:
        """Check the end of an allowed call."""
        name = event.proposal_id
        proposal = self._realm.proposals.get(name)
        asked = None if proposal is None else proposal.requested.get(event.requirement_id)
        is_attended = asked is not None and asked.offer is not None and asked.offer.attended is not None
        error = event.result.error
        is_withdrawn = event.claim is None and error is not None and error.code == NOT_CALLED
        if is_attended and is_withdrawn and name not in self._open:
            self._bad(ErrorCode.CALLER_LEFT_OPEN, f"no {CallerLeft.TOPIC} names the call {name} before it")
        self._open.discard(name)

    def _cancelled(self, event: ExecutionCancelled, _: int) -> None:
        """Note the end of a call that was not offered yet."""
        self._open.discard(event.proposal_id)

    def continues(self, proposal_id: str) -> None:
        """Check that a proposal that is decided, or whose effect is claimed, has its caller."""
        if proposal_id in self._open:
            self._bad(ErrorCode.CALLER_LEFT_OPEN, f"the call {proposal_id} continues after its caller left")

    def at_the_end(self) -> None:
        """Check that no call is left whose caller left."""
        for name in sorted(self._open):
            self._bad(ErrorCode.CALLER_LEFT_OPEN, f"the call {name}, whose caller left, did not end")
        self._open.clear()
