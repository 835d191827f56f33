"""Writes the file of statements compiled for SQLite, ``world/log/sql/sqlite_statements.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator

from world.log.sql.statement import STATEMENTS_FILE, SqlStatement
from world.log.statements import Statements, compiled_events_at_query, compiled_events_query
from world.read_models.index_sql.index_statements import SOURCES, compiled_statement

MAX_TOPICS = 12
"""Most topics of a query for events that is compiled beforehand."""


def compiled_statements() -> dict[str, SqlStatement]:
    """Return the statements that the file must have, by name, compiled now."""
    return dict(_all())


def write() -> None:
    """Write the file."""
    wire = {name: [one.sql, one.names, dict(one.constants)] for name, one in sorted(compiled_statements().items())}
    STATEMENTS_FILE.write_text(json.dumps(wire, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _all() -> Iterator[tuple[str, SqlStatement]]:
    for name, found in vars(Statements("sqlite")).items():
        yield f"log.{name}", found
    for topics in range(MAX_TOPICS + 1):
        yield f"events.{topics}.0.0", compiled_events_query("sqlite", topics=topics)
    for descending in (False, True):
        found = compiled_events_query("sqlite", stream=True, descending=descending)
        yield f"events.0.1.{descending:d}", found
    yield "events_at", compiled_events_at_query("sqlite")
    for name in SOURCES:
        yield f"index.{name}", compiled_statement(name, "sqlite")
