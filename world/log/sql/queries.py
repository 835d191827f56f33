"""The statements of a log by name: from the file of compiled statements, else compiled by ``world.log.statements``."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from world.log.sql.statement import SqlStatement, prepared

if TYPE_CHECKING:
    from world.log.statements import Statements
    from world.log.url import Backend

__all__ = ["AT_ONCE", "BASE", "CHUNKS_AT_ONCE", "HIGH", "LOW", "events_at_query", "events_query", "statements"]

LOW: Final = "low"  # key before the first row wanted
HIGH: Final = "high"  # key of the last row wanted
BASE: Final = "base"  # key of position 0 of the log
AT_ONCE: Final = 64
"""Events that are fetched by their positions in one query."""

CHUNKS_AT_ONCE: Final = 16
"""Chunks of the tree that are fetched by their indexes in one query; a subtree takes one for each of its levels."""


class _PreparedStatements:
    """Statements of a log as attributes, each looked up when it is first used; see ``world.log.statements``."""

    def __init__(self, backend: Backend) -> None:
        self._backend: Backend = backend

    def __getattr__(self, name: str) -> SqlStatement:
        def compile_it() -> SqlStatement:
            from world.log.statements import Statements

            found: Any = getattr(Statements.of(self._backend), name)
            assert isinstance(found, SqlStatement)
            return found

        if name.startswith("_"):
            raise AttributeError(name)
        found = prepared(f"log.{name}", self._backend, compile_it)
        setattr(self, name, found)
        return found


@cache
def statements(backend: Backend) -> Statements:
    """Return the statements of a backend."""
    return cast("Statements", _PreparedStatements(backend))


@cache
def events_query(backend: Backend, *, topics: int = 0, stream: bool = False, descending: bool = False) -> SqlStatement:
    """Return the query for events with keys in (low, high], with ``count`` as its limit.

    Args:
        backend: the kind of database.
        topics: number of topics to select (parameters ``topic0``...); 0 selects all.
        stream: select one stream (parameter ``stream``), with versions in (``gt``, ``lte``], in order of version.
        descending: last one first.
    """

    def compile_it() -> SqlStatement:
        from world.log.statements import compiled_events_query

        return compiled_events_query(backend, topics=topics, stream=stream, descending=descending)

    return prepared(f"events.{topics}.{stream:d}.{descending:d}", backend, compile_it)


@cache
def events_at_query(backend: Backend) -> SqlStatement:
    """Return the query for ``AT_ONCE`` events by their keys (parameters ``key0``...), in the order of the log."""

    def compile_it() -> SqlStatement:
        from world.log.statements import compiled_events_at_query

        return compiled_events_at_query(backend)

    return prepared("events_at", backend, compile_it)
