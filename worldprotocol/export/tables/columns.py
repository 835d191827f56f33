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


_EVENTS: Final = (
    Column("log_position", "integer", "place in the log, from 1"),
    Column("recorded_at", "time", "recorded time"),
    Column("topic", "text", "type of the event"),
    Column("schema_version", "integer", "version of the type"),
    Column("stream", "text", "stream of the event: the id of its proposal, run, or other aggregate"),
    Column("version", "integer", "place in the stream, from 1"),
    Column("proposal_id", "text", "proposal that the event is about"),
    Column("branch", "text", "branch that the event names"),
    Column("leaf", "text", "leaf hash in the Merkle tree, in hex"),
    Column("tree_head", "text", "root of the tree head that was stored after the event, in hex; null within a commit"),
    Column("state", "json", "recorded text of the event"),
)
_PROPOSALS: Final = (
    Column("proposal_id", "text", "id of the proposal"),
    Column("intent_id", "text", "id of this attempt"),
    Column("intent_key", "text", "hash of the meaning"),
    Column("action", "text", "type of the intent"),
    Column("input", "json", "input of the action"),
    Column("actor_id", "text", "actor that proposed it"),
    Column("actor_kind", "text", "human, agent or system"),
    Column("branch", "text", "branch that it would move"),
    Column("base_world", "text", "head of the branch when it was submitted"),
    Column("schema_hash", "text", "hash of the domain's schema"),
    Column("attempt", "integer", "attempt of the intent, from 1"),
    Column("submitted_at", "time", "when it was submitted"),
    Column("submitted_position", "integer", "event that submitted it"),
    Column("projection_id", "text", "projection that selected the intent"),
    Column("source_kind", "text", "kind of the source event"),
    Column("source_id", "text", "id of the source event"),
    Column("verified", "json", "how its caller was verified; null for callers in the process itself"),
    Column("trace", "json", "ids with which the caller follows its request"),
    Column("status", "text", "status at the end of the export"),
    Column("asked", "texts", "people who are asked now, * for any; null if no person is asked"),
    Column("ended_at", "time", "when it ended; null if it is open"),
    Column("ended_position", "integer", "event that ended it"),
    Column("ended_by", "text", "actor that withdrew or cancelled it"),
    Column("ended_reason", "text", "why it was superseded, withdrawn or cancelled"),
    Column("decision_id", "text", "its decision; null if there is none"),
    Column("decision", "text", "approved or rejected"),
    Column("decided_at", "time", "when it was decided"),
    Column("world_id", "text", "world that its execution sealed"),
    Column("error_code", "text", "code of the error with which it failed"),
    Column("error_message", "text", "message of that error"),
    Column("effects", "integer", "effects with a recorded result"),
)
_DECISIONS: Final = (
    Column("decision_id", "text", "id of the decision"),
    Column("proposal_id", "text", "its proposal"),
    Column("log_position", "integer", "event that recorded it"),
    Column("decided_at", "time", "when it was decided"),
    Column("decision", "text", "approved or rejected"),
    Column("authority", "text", "authority that decided, such as policy_rules:house"),
    Column("reason", "text", "one sentence for people"),
    Column("policy_hash", "text", "hash of the policy that was applied"),
    Column("approved_paths", "texts", "paths that may be written; null is no restriction, or no approval"),
    Column("decisive_rules", "texts", "rules that decided"),
    Column("people", "texts", "people who approved, rejected or narrowed, in the order of their answers"),
    Column("rules", "json", "outcome of every rule, in order"),
    Column("verdict_id", "text", "verdict that granted its leases"),
    Column("has_backup", "flag", "whether a backup was made; null in earlier logs"),
)
_WORLDS: Final = (
    Column("world_id", "text", "id of the world"),
    Column("parent", "text", "world before it; null for genesis"),
    Column("height", "integer", "worlds between it and genesis"),
    Column("branch", "text", "branch on which it was sealed"),
    Column("proposal_id", "text", "proposal that made it; null for genesis"),
    Column("outcome", "text", "completed or failed"),
    Column("log_position", "integer", "event that sealed it"),
    Column("sealed_at", "time", "when it was sealed"),
    Column("content_id", "text", "hash of schema and data"),
    Column("snapshot_hash", "text", "hash of the data and the error"),
    Column("schema_hash", "text", "hash of the domain's schema"),
    Column("changed_paths", "texts", "paths that its patches name"),
    Column("patches", "json", "changes to its parent's data"),
    Column("data", "json", "complete data of genesis; null for all others"),
    Column("error_code", "text", "code of the error, if it failed"),
    Column("error_message", "text", "message of that error"),
)

TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "events": _EVENTS,
    "proposals": _PROPOSALS,
    "decisions": _DECISIONS,
    "worlds": _WORLDS,
}
"""The columns of each table, by its name."""
