"""The rows of the exported tables, made from the events of a log in their order.

Only open proposals are kept in memory: the row of a proposal is made when it ends, and those of open proposals when
the log ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from world.events.base import Event
from world.events.proposal_events import DecisionMade, ProposalSubmitted, ProposalSuperseded
from world.events.realm_events import WorldSealed
from world.log import LoggedEvent
from world.model.canonical_json import canonical_bytes
from world.model.decision import HumanAnswer
from world.model.record import to_wire
from world.read_models.decoding import decoded
from world.state.proposal import PROPOSAL_EVENTS, Proposal, fold_proposal
from worldprotocol.export.tables.columns import TABLES

__all__ = ["Row", "TableRows"]

Row = tuple[str, Mapping[str, Any]]
"""Name of a table, and the values of a row by column; times are in ms since 1970."""

VOTES: Final = frozenset({"approve", "reject", "narrow"})
"""Answers of people that count."""


class TableRows:
    """The rows of one log; an instance reads it once, from its first event.

    Args:
        tables: the tables that get rows.
    """

    def __init__(self, tables: Collection[str] = tuple(TABLES)) -> None:
        """Begin before the first event."""
        self._tables = tables
        self._open: dict[str, tuple[Proposal, int]] = {}

    @property
    def topics(self) -> list[str] | None:
        """Topics of the events that complete rows; None is all."""
        if "events" in self._tables:
            return None
        kinds: set[type[Event]] = {WorldSealed} if "worlds" in self._tables else set()
        if "proposals" in self._tables or "decisions" in self._tables:
            kinds |= PROPOSAL_EVENTS
        return sorted(kind.TOPIC for kind in kinds)

    def of_event(self, logged: LoggedEvent) -> Iterator[Row]:
        """Return the rows that an event completes.

        Args:
            logged: the event after the previous one, of those with one of ``topics``.

        Raises:
            DamagedLogError: ``EVENT_CHANGED``, ``BAD_EVENT`` or ``ILLEGAL_TRANSITION`` for an event that is not as it
                was recorded, or that cannot follow the events before it.
        """
        event = decoded(logged)
        tables = self._tables
        if "events" in tables:
            yield "events", _event_row(logged, event)
        if isinstance(event, WorldSealed) and "worlds" in tables:
            yield "worlds", _world_row(logged, event)
        if type(event) in PROPOSAL_EVENTS and ("proposals" in tables or "decisions" in tables):
            for table, row in self._of_proposal(logged, event):
                if table in tables:
                    yield table, row

    def of_open(self) -> Iterator[Row]:
        """Return the rows of the proposals that are open after the last event."""
        for proposal, position in self._open.values() if "proposals" in self._tables else ():
            yield "proposals", _proposal_row(proposal, position)

    def _of_proposal(self, logged: LoggedEvent, event: Event) -> Iterator[Row]:
        known = self._open.get(logged.stream)
        if known is None and not isinstance(event, ProposalSubmitted):
            return  # a late result of an effect: its proposal has ended
        before, position = (None, logged.position) if known is None else known
        proposal = fold_proposal(before, event)
        if isinstance(event, DecisionMade):
            yield "decisions", _decision_row(logged, event, proposal)
        if proposal.is_terminal:
            del self._open[logged.stream]
            yield "proposals", _proposal_row(proposal, position) | _end_of(logged, event, proposal)
        else:
            self._open[logged.stream] = proposal, position


def _json(value: Any) -> str | None:
    return None if value is None else canonical_bytes(to_wire(value)).decode()


def _event_row(logged: LoggedEvent, event: Event) -> dict[str, Any]:
    of_proposal = event.created_by if isinstance(event, WorldSealed) else getattr(event, "proposal_id", None)
    return {
        "log_position": logged.position,
        "recorded_at": event.at,
        "topic": logged.topic,
        "schema_version": logged.schema_version,
        "stream": logged.stream,
        "version": logged.version,
        "proposal_id": of_proposal,
        "branch": getattr(event, "branch", None),
        "leaf": logged.leaf.hex(),
        "state": logged.state.decode(),
    }


def _proposal_row(proposal: Proposal, position: int) -> dict[str, Any]:
    submitted, decision, error = proposal.submitted, proposal.decision, proposal.error
    intent, cancelled = submitted.intent, proposal.cancelled
    origin = intent.meta.origin
    return {
        "proposal_id": submitted.proposal_id,
        "intent_id": intent.intent_id,
        "intent_key": intent.intent_key,
        "action": intent.body.type,
        "input": _json(intent.body.input),
        "actor_id": submitted.actor.actor_id,
        "actor_kind": submitted.actor.kind,
        "branch": submitted.branch,
        "base_world": submitted.base_world,
        "schema_hash": submitted.schema_hash,
        "attempt": submitted.attempt,
        "submitted_at": submitted.at,
        "submitted_position": position,
        "projection_id": origin.projection_id,
        "source_kind": origin.source.kind,
        "source_id": origin.source.event_id,
        "verified": _json(submitted.verified),
        "trace": _json(submitted.trace),
        "status": proposal.status,
        "asked": None if proposal.asked is None else list(proposal.asked.ask),
        "ended_by": None if cancelled is None else cancelled.by,
        "ended_reason": None if cancelled is None else cancelled.reason,
        "decision_id": None if decision is None else decision.decision_id,
        "decision": None if decision is None else decision.decision,
        "decided_at": None if decision is None else decision.decided_at,
        "world_id": proposal.world_id,
        "error_code": None if error is None else error.code,
        "error_message": None if error is None else error.message,
        "effects": len(proposal.journal),
    }


def _end_of(logged: LoggedEvent, event: Event, proposal: Proposal) -> dict[str, Any]:
    end: dict[str, Any] = {"ended_at": event.at, "ended_position": logged.position}
    if isinstance(event, ProposalSuperseded):
        end |= {"ended_by": event.by, "ended_reason": event.reason}
    return end


def _decision_row(logged: LoggedEvent, event: DecisionMade, proposal: Proposal) -> dict[str, Any]:
    decision = event.decision
    scope = decision.approved_scope
    return {
        "decision_id": decision.decision_id,
        "proposal_id": decision.proposal_id,
        "log_position": logged.position,
        "decided_at": decision.decided_at,
        "decision": decision.decision,
        "authority": decision.authority,
        "reason": decision.reason,
        "policy_hash": decision.policy_hash,
        "approved_paths": None if scope is None or scope.allowed_paths is None else list(scope.allowed_paths),
        "decisive_rules": decision.decisive_rules,
        "people": _people(proposal.answers),
        "rules": _json([one.to_wire() for one in decision.trace]),
        "verdict_id": event.verdict_id,
        "has_backup": event.backup,
    }


def _people(answers: list[HumanAnswer]) -> list[str]:
    return [one.by.actor_id for one in answers if one.choice in VOTES]


def _world_row(logged: LoggedEvent, event: WorldSealed) -> dict[str, Any]:
    error = event.error
    return {
        "world_id": event.world_id,
        "parent": event.parent,
        "height": event.height,
        "branch": event.branch,
        "proposal_id": event.created_by,
        "outcome": event.outcome,
        "log_position": logged.position,
        "sealed_at": event.at,
        "content_id": event.content_id,
        "snapshot_hash": event.snapshot_hash,
        "schema_hash": event.schema_hash,
        "changed_paths": [one.path for one in event.patches],
        "patches": _json([to_wire(one) for one in event.patches]),
        "data": _json(event.data),
        "error_code": None if error is None else error.code,
        "error_message": None if error is None else error.message,
    }
