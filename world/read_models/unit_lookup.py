"""Lookups in the index: of a unit of work, with its own events that are not written yet, and of committed events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Unpack

from msgspec import Struct

from world.events.base import Event
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.log import LockedQuery, Transaction, ViewCursor
from world.log.url import Backend
from world.model.immutable_json import FrozenDict
from world.pipeline.unit_of_work import Emitted
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.index import IndexRows, history_query, statement
from world.read_models.request_keys import events_with_key, request_of
from world.state.ports import Earlier, LookupConditions

__all__ = ["CommittedLookup", "IntentNames", "UnitLookup", "intent_questions"]


class IntentNames(NamedTuple):
    """An intent that a command will submit: its intentId, and its intentKey."""

    intent_id: str
    intent_key: str


def intent_questions(intents: Iterable[IntentNames], log_id: int, backend: Backend) -> list[LockedQuery]:
    """Return the questions by which the submission of intents finds out whether they are known.

    Args:
        intents: that are to be submitted.
        log_id: the log.
        backend: its database.
    """
    query = statement("intent", backend)
    return [
        LockedQuery(query, {"of_log": log_id, "of_intent": one.intent_id, "of_key": one.intent_key}) for one in intents
    ]


class UnitLookup:
    """Lookups that include the unit's own events (``world.pipeline.unit_of_work.Lookup``)."""

    def __init__(self, transaction: Transaction, archive: Archive, emitted: Sequence[Emitted]) -> None:
        """Look up under the log's lock; ``emitted`` is the list to which the unit appends its events."""
        self._transaction = transaction
        self._archive = archive
        self._emitted = emitted
        self._taken = 0  # number of emitted events that are in the rows and maps below
        self._rows = IndexRows()
        self._worlds: dict[str, tuple[str, int]] = {}
        self._intents: dict[str, str] = {}
        self._earlier: dict[str, str | None] = {}
        self._tried: dict[str, int] = {}
        self._inputs: dict[str, Any] = {}
        self._attempts: dict[str, int] = {}
        self._keys: dict[tuple[str, str], list[Event]] = {}

    def take_answers(self, intents: Sequence[IntentNames]) -> None:
        """Take the answers to ``intent_questions``, which the transaction fetched when it was opened."""
        for names, rows in zip(intents, self._transaction.answers, strict=True):
            self._take(names, rows[0])

    def _take(self, names: IntentNames, row: Sequence[Any]) -> None:
        proposal_id, attempts = row
        self._earlier[names.intent_id] = None if proposal_id is None else str(proposal_id)
        self._tried[names.intent_key] = int(attempts or 0)
        if attempts:
            self._archive.attempts.learn(names.intent_key, int(attempts))

    def rows(self) -> IndexRows:
        """Return the rows of the unit's events that are not written to the tables yet."""
        new = self._emitted[self._taken :]
        self._taken += len(new)
        self._rows.add([(item.event, item.position) for item in new])
        for event in (item.event for item in new):
            if isinstance(event, ProposalSubmitted):
                self._intents[event.intent.intent_id] = event.proposal_id
                self._inputs[event.proposal_id] = event.intent.body.input
                self._attempts[event.intent.intent_key] = event.attempt
            elif isinstance(event, WorldSealed):
                self._worlds[event.world_id] = (event.outcome, event.height)
            requested = None if getattr(event, "verified", None) is None else request_of(event)
            if requested is not None:
                self._keys.setdefault(requested[:2], []).append(event)
        return self._rows

    def events_of_key(self, actor_id: str, key: str) -> Sequence[Any]:
        """Return the events of an earlier request with a key, also where they share the commit of this unit.

        Args:
            actor_id: the actor to whom the key belongs.
            key: the key.

        Raises:
            RefusedError: ``EVENT_ARCHIVED`` where they were removed from a cut log.
        """
        self.rows()
        known = self._keys.get((actor_id, key))
        if known:
            return known
        row = self._one("request", of_actor=actor_id, of_key=key)
        cursor = self._transaction.cursor()
        return () if row is None else events_with_key(cursor.contents, decoded, (actor_id, key), (row[1], row[2]))

    def proposal_of_intent(self, intent_id: str) -> str | None:
        """Return the proposal with an intentId, or None."""
        self.rows()
        known = self._intents.get(intent_id)
        if known is not None:
            return known
        if intent_id in self._earlier:
            return self._earlier[intent_id]
        row = self._one("by_intent", of_intent=intent_id)
        return None if row is None else str(row[0])

    def attempts(self, intent_key: str) -> int:
        """Return the number of proposals with an intentKey."""
        self.rows()
        known = self._attempts.get(intent_key)
        if known is not None:
            return known
        if intent_key in self._tried:
            return self._tried[intent_key]
        row = self._one("attempts", of_key=intent_key)
        return 0 if row is None or row[0] is None else int(row[0])

    def count(self, before: int, **conditions: Unpack[LookupConditions]) -> int:
        """Count earlier proposals; the unit's own events are written first, so that they are counted."""
        cursor = self._written()
        cursor.run(history_query(conditions, cursor.backend), of_log=cursor.log_id, before=before, **conditions)
        row = cursor.fetchone()
        return 0 if row is None else int(row[0])

    def earlier(self, before: int, most: int, **conditions: Unpack[LookupConditions]) -> list[Earlier]:
        """Return the first ``most`` of the proposals that ``count`` counts, in the order of the log."""
        cursor = self._written()
        query = history_query(conditions, cursor.backend, counted=False)
        cursor.run(query, of_log=cursor.log_id, before=before, most=most, **conditions)
        return [Earlier(*row) for row in cursor.fetchall()]

    def inputs(self, found: Sequence[Earlier]) -> list[tuple[str, Any]]:
        """Return the ids of proposals and the inputs of their intents, including the unit's own proposals."""
        stored = [one for one in found if one.proposal_id not in self._inputs]
        inputs = self._archive.inputs(stored)
        return inputs + [(one.proposal_id, self._inputs[one.proposal_id]) for one in found[len(stored) :]]

    def _written(self) -> ViewCursor:
        cursor = self._transaction.cursor()
        self.rows().write(cursor)
        return cursor

    def world_outcome(self, world_id: str, parent: str | None = None) -> tuple[str, int] | None:
        """Return a world's outcome and height."""
        self.rows()
        recent = self._archive.recent
        known = self._worlds.get(world_id) or recent.outcome(world_id)
        if known is not None:
            return known
        if parent is not None and (parent in self._worlds or recent.is_new(world_id, parent)):
            return None
        row = self._one("world", of_world=world_id)
        return None if row is None else (row[5], row[2])

    def sealed_at(self, world_id: str) -> int | None:
        """Return the position of the event that sealed a world; None where that is not committed."""
        row = self._one("world", of_world=world_id)
        return None if row is None else int(row[3])

    def checked_state(self, world_id: str) -> FrozenDict:
        """Return a world's data after comparing it with the world's snapshotHash."""
        return self._archive.checked_state(world_id)

    def _one(self, name: str, **values: Any) -> tuple[Any, ...] | None:
        cursor = self._transaction.cursor()
        cursor.run(statement(name, cursor.backend), of_log=cursor.log_id, **values)
        row = cursor.fetchone()
        return None if row is None else tuple(row)


class CommittedLookup(Struct, frozen=True):
    """Look-ups in committed events (``world.pipeline.unit_of_work.Lookup``); a history reads only earlier ones."""

    archive: Archive

    def proposal_of_intent(self, intent_id: str) -> str | None:
        """Return the proposal with an intentId."""
        rows = self.archive.rows("by_intent", {"of_intent": intent_id})
        return str(rows[0][0]) if rows else None

    def attempts(self, intent_key: str) -> int:
        """Return the number of proposals with an intentKey as far as this process has seen them."""
        known = self.archive.attempts.of(intent_key)
        if known is not None:
            return known
        rows = self.archive.rows("attempts", {"of_key": intent_key})
        return int(rows[0][0] or 0) if rows else 0

    def count(self, before: int, **conditions: Unpack[LookupConditions]) -> int:
        """Count earlier proposals."""
        return self.archive.count(before, **conditions)

    def earlier(self, before: int, most: int, **conditions: Unpack[LookupConditions]) -> list[Earlier]:
        """Return at most ``most`` earlier proposals, in the order of the log."""
        return self.archive.earlier(before, most, **conditions)

    def inputs(self, found: Sequence[Earlier]) -> list[tuple[str, Any]]:
        """Return the inputs of their intents."""
        return self.archive.inputs(found)

    def world_outcome(self, world_id: str, parent: str | None = None) -> tuple[str, int] | None:
        """Return a world's outcome and height."""
        known = self.archive.recent.outcome(world_id)
        if known is not None:
            return known
        row = self.archive.find_world(world_id)
        return None if row is None else (row.outcome, row.height)

    def sealed_at(self, world_id: str) -> int | None:
        """Return the position of the event that sealed a world."""
        row = self.archive.find_world(world_id)
        return None if row is None else row.position

    def checked_state(self, world_id: str) -> FrozenDict:
        """Return a world's data after comparing it with the world's snapshotHash."""
        return self.archive.checked_state(world_id)
