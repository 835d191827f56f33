"""The columns of the exported tables.

``TABLES`` is what documentation and writers read. Kinds of columns: ``text``, ``json`` (a text that is JSON),
``integer``, ``time`` (ms since 1970, UTC), ``flag`` and ``texts`` (a list). Source: docs/sql.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["TABLES", "Column", "ColumnKind"]

ColumnKind = Literal["text", "json", "integer", "time", "flag", "texts"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        name: in snake case.
        kind: of its values.
        text: its meaning.
    """

    name: str
    kind: ColumnKind
    text: str


def _column(name: str, kind: ColumnKind, text: str) -> Column:
    return Column(name, kind, text)


_EVENTS: Final = (
    _column("log_position", "integer", "place in the log, from 1"),
    _column("recorded_at", "time", "recorded time"),
    _column("topic", "text", "type of the event"),
    _column("schema_version", "integer", "version of the type"),
    _column("stream", "text", "stream of the event: the id of its proposal, run, or other aggregate"),
    _column("version", "integer", "place in the stream, from 1"),
    _column("proposal_id", "text", "proposal that the event is about"),
    _column("branch", "text", "branch that the event names"),
    _column("leaf", "text", "leaf hash in the Merkle tree, in hex"),
    _column("tree_head", "text", "root of the tree head that was stored after the event, in hex; null within a commit"),
    _column("state", "json", "recorded text of the event"),
)
_PROPOSALS: Final = (
    _column("proposal_id", "text", "id of the proposal"),
    _column("intent_id", "text", "id of this attempt"),
    _column("intent_key", "text", "hash of the meaning"),
    _column("action", "text", "type of the intent"),
    _column("input", "json", "input of the action"),
    _column("actor_id", "text", "actor that proposed it"),
    _column("actor_kind", "text", "human, agent or system"),
    _column("branch", "text", "branch that it would move"),
    _column("base_world", "text", "head of the branch when it was submitted"),
    _column("schema_hash", "text", "hash of the domain's schema"),
    _column("attempt", "integer", "attempt of the intent, from 1"),
    _column("submitted_at", "time", "when it was submitted"),
    _column("submitted_position", "integer", "event that submitted it"),
    _column("projection_id", "text", "projection that selected the intent"),
    _column("source_kind", "text", "kind of the source event"),
    _column("source_id", "text", "id of the source event"),
    _column("verified", "json", "how its caller was verified; null for callers in the process itself"),
    _column("trace", "json", "ids with which the caller follows its request"),
    _column("status", "text", "status at the end of the export"),
    _column("asked", "texts", "people who are asked now, * for any; null if no person is asked"),
    _column("ended_at", "time", "when it ended; null if it is open"),
    _column("ended_position", "integer", "event that ended it"),
    _column("ended_by", "text", "actor that withdrew or cancelled it"),
    _column("ended_reason", "text", "why it was superseded, withdrawn or cancelled"),
    _column("decision_id", "text", "its decision; null if there is none"),
    _column("decision", "text", "approved or rejected"),
    _column("decided_at", "time", "when it was decided"),
    _column("world_id", "text", "world that its execution sealed"),
    _column("error_code", "text", "code of the error with which it failed"),
    _column("error_message", "text", "message of that error"),
    _column("effects", "integer", "effects with a recorded result"),
)
_DECISIONS: Final = (
    _column("decision_id", "text", "id of the decision"),
    _column("proposal_id", "text", "its proposal"),
    _column("log_position", "integer", "event that recorded it"),
    _column("decided_at", "time", "when it was decided"),
    _column("decision", "text", "approved or rejected"),
    _column("authority", "text", "authority that decided, such as policy_rules:house"),
    _column("reason", "text", "one sentence for people"),
    _column("policy_hash", "text", "hash of the policy that was applied"),
    _column("approved_paths", "texts", "paths that may be written; null is no restriction, or no approval"),
    _column("decisive_rules", "texts", "rules that decided"),
    _column("people", "texts", "people who approved, rejected or narrowed, in the order of their answers"),
    _column("rules", "json", "outcome of every rule, in order"),
    _column("verdict_id", "text", "verdict that granted its leases"),
    _column("has_backup", "flag", "whether a backup was made; null in earlier logs"),
)
_WORLDS: Final = (
    _column("world_id", "text", "id of the world"),
    _column("parent", "text", "world before it; null for genesis"),
    _column("height", "integer", "worlds between it and genesis"),
    _column("branch", "text", "branch on which it was sealed"),
    _column("proposal_id", "text", "proposal that made it; null for genesis"),
    _column("outcome", "text", "completed or failed"),
    _column("log_position", "integer", "event that sealed it"),
    _column("sealed_at", "time", "when it was sealed"),
    _column("content_id", "text", "hash of schema and data"),
    _column("snapshot_hash", "text", "hash of the data and the error"),
    _column("schema_hash", "text", "hash of the domain's schema"),
    _column("changed_paths", "texts", "paths that its patches name"),
    _column("patches", "json", "changes to its parent's data"),
    _column("data", "json", "complete data of genesis; null for all others"),
    _column("error_code", "text", "code of the error, if it failed"),
    _column("error_message", "text", "message of that error"),
)

TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "events": _EVENTS,
    "proposals": _PROPOSALS,
    "decisions": _DECISIONS,
    "worlds": _WORLDS,
}
"""The columns of each table, by its name."""
