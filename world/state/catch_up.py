"""Applying what other writers appended: only the events that change what a decision reads are decoded.

A proposal that was submitted and has ended within these events leaves the branch that it moved, and nothing else, in
the state. Its submission, ruling, decision and executions are not decoded. Leases, worlds and all other events are
applied one by one. The state is then the same as if every event had been applied, except for times in the heaps of
deadlines that name an ended proposal, which are dropped when their turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from world.errors import DamagedLogError
from world.events.base import Event
from world.events.proposal_events import (
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.events.run_events import RunAmended, RunCompared, RunObserved, RunRolledBack, RunViolated
from world.state.branches import move_branch
from world.state.realm_state import RealmState, apply_event

__all__ = ["apply_others"]

_MOVES: Final = frozenset(kind.TOPIC for kind in (ProposalCompleted, ProposalFailed))
_ENDS: Final = _MOVES | {ProposalSuperseded.TOPIC}
_STATELESS: Final = frozenset(
    kind.TOPIC for kind in (ProjectionRecorded, RunObserved, RunViolated, RunAmended, RunRolledBack, RunCompared)
)


class CaughtUpEvent(Protocol):
    """An event of the log, as far as this module reads it."""

    @property
    def position(self) -> int:
        """Return the place in the log."""

    @property
    def stream(self) -> str:
        """Return the id of the stream."""

    @property
    def topic(self) -> str:
        """Return the kind of event."""


R = TypeVar("R", bound=CaughtUpEvent)


def apply_others(realm: RealmState, events: Sequence[R], decode: Callable[[R], Event]) -> list[Event]:
    """Apply events that follow the last one of a realm, in order.

    Args:
        realm: changed in place.
        events: without a gap.
        decode: returns the payload of an event.

    Returns:
        The decoded events; the last event is always one of them.

    Raises:
        DamagedLogError: when an event cannot follow the events before it, or cannot be decoded.
    """
    begun = {event.stream for event in events if event.topic == ProposalSubmitted.TOPIC}
    passed = {event.stream for event in events if event.topic in _ENDS} & begun
    applied: list[Event] = []
    for event in events:
        is_last = event is events[-1]
        if event.topic in _STATELESS or event.stream in passed:
            if event.topic in _MOVES:
                payload: Any = decode(event)
                _apply_end(realm, payload, event.position)
                applied.append(payload)
            elif is_last:
                applied.append(decode(event))
            realm.position = event.position
            continue
        payload = decode(event)
        apply_event(realm, payload, event.position)
        applied.append(payload)
    return applied


def _apply_end(realm: RealmState, event: ProposalCompleted | ProposalFailed, position: int) -> None:
    """Move the branch of a proposal that has ended and that the realm never held.

    Args:
        realm: changed in place.
        event: the proposal's last event.
        position: its place in the log.

    Raises:
        DamagedLogError: ``WRONG_PARENT`` when its world does not follow the head of the branch.
    """
    try:
        move_branch(realm.branches, event)
    except DamagedLogError as damage:
        damage.details.setdefault("position", position)
        raise
    realm.position = position
