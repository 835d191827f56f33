"""The statements of the index by name: from the file of compiled statements, else compiled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from world.log import SqlStatement
from world.log.sql.statement import prepared

if TYPE_CHECKING:
    from world.log.url import Backend

__all__ = [
    "LATER_INDEXES",
    "PLACES_AT_ONCE",
    "RECENT_ROWS",
    "execution_order",
    "history_query",
    "history_rows",
    "statement",
]

PLACES_AT_ONCE: Final = 64
"""Number of proposals that the statement ``places`` looks up at once; it has one parameter for each."""

RECENT_ROWS: Final = ("worlds", "branches", "proposals", "runs", "registrations and switches")
"""What the statement ``recent`` counts, each as rows of the index and as events."""

LATER_INDEXES: Final = frozenset(
    {
        "wp_proposal_ended",
        "wp_run_open",
        "wp_run_opened",
        "wp_verdict_request",
        "wp_world_position",
    }
)
"""Indexes that logs of earlier releases lack until they are opened for writing."""


@cache
def statement(name: str, backend: Backend) -> SqlStatement:
    """Return one of the index's statements (``world.read_models.index_sql.index_statements``)."""

    def compile_it() -> SqlStatement:
        from world.read_models.index_sql.index_statements import compiled_statement

        return compiled_statement(name, backend)

    return prepared(f"index.{name}", backend, compile_it)


def execution_order(open_proposals: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return the ids of open proposals in the order of their decisions, undecided ones first.

    Args:
        open_proposals: rows of the statement ``open_proposals``, in the order of submission.
    """
    return [row[0] for row in sorted(open_proposals, key=lambda row: row[2] if type(row[2]) is int else 0)]


def history_query(conditions: Iterable[str], backend: Backend, *, counted: bool = True) -> SqlStatement:
    """Return the statement that counts earlier proposals by conditions (``world.state.ports.History``).

    Args:
        conditions: names of the conditions.
        backend: the database backend.
        counted: False selects ids and positions of the first ``most`` proposals instead, in the order of the log.
    """
    from world.read_models.index_sql.index_statements import compiled_history

    return compiled_history(frozenset(conditions), backend, counted)


def history_rows(conditions: Iterable[str], backend: Backend) -> SqlStatement:
    """Return the statement that selects all proposals by conditions, at any position of the log.

    Allowed are the conditions of ``history_query`` that compare a column with a value
    (``COMPARED`` of ``index_statements``). The statement selects the submission time of each proposal, and the position
    from which on it matches.
    """
    from world.read_models.index_sql.index_statements import compiled_history_rows

    return compiled_history_rows(frozenset(conditions), backend)
