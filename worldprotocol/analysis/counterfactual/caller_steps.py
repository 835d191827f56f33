"""Replay of callers in a counterfactual: those that left, and those that repeated an approved call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from world.events.base import Event
from world.events.caller_events import CallerLeft
from world.events.proposal_events import DecisionMade
from world.pipeline.callers import Leaving, leave, resume_call
from world.pipeline.driver import advance
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import INGRESS
from world.state.proposal_queues import awaits_caller

if TYPE_CHECKING:
    from worldprotocol.analysis.counterfactual.replaying import Replaying

__all__ = ["CALLER_STEPS", "resume"]


def _left(replaying: Replaying, event: CallerLeft) -> None:
    """End the undecided calls of a caller that left; of those that were allowed, the recorded results follow."""
    replaying.advance_to(event)

    def command(work: UnitOfWork) -> None:
        opened = work.realm.proposals
        calls = [name for name in event.calls if name in opened and opened[name].status in INGRESS]
        left = Leaving(event.actor_id, event.client, event.noticed_by, event.session, calls)
        advance(work, leave(work, left))

    replaying.attempt("caller", command)


def resume(replaying: Replaying, name: str, event: Event) -> None:
    """Request the leases of an approved call, which its caller repeated at the time of an event.

    Args:
        replaying: the replay.
        name: the proposal of the call.
        event: a recorded event that followed from it.
    """

    def waits(realm: Any) -> bool:
        proposal = realm.proposals.get(name)
        return proposal is not None and awaits_caller(realm.klis, proposal)

    if replaying.protocol.ask(waits):
        replaying.advance_to(event)
        replaying.attempt("call", lambda work: advance(work, resume_call(work, name)))


def _decided(replaying: Replaying, event: DecisionMade) -> None:
    resume(replaying, event.proposal_id, event)


CALLER_STEPS: Final[Mapping[type[Event], Callable[[Replaying, Any], None]]] = {
    CallerLeft: _left,
    DecisionMade: _decided,
}
"""Steps that repeat what callers did."""
