"""Plans of prepared statements on PostgreSQL: those that were made while the tables were empty do not stay."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.directory.yard import yard
from worldprotocol import Realm

ROWS_OF_ANOTHER_LOG = (
    "INSERT INTO wp_proposal (log_id, proposal_id, intent_id, intent_key, attempt, actor_id, action, branch, status, "
    "submitted_at, submitted_pos) "
    "SELECT 1000, 'p' || n, 'i' || n, 'k' || n, 1, 'ann', 'count', 'main', 'completed', 1, n "
    "FROM generate_series(1, 2000) n"
)
"""They fill more than the ten pages that PostgreSQL assumes of any table without statistics."""


def test_a_submission_looks_an_intent_up_by_its_own_index_once_the_log_has_grown(postgres_database: str) -> None:
    """Without statistics every index of an empty table is equally good, and the connection keeps its plan."""
    with Realm.create(postgres_database, domain=yard) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        for _ in range(10):  # a plan for all values is made and kept after some executions
            realm.act("ann", "count", {"who": "ann"})
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute(ROWS_OF_ANOTHER_LOG)
        while realm.log.head().size < 700:
            realm.act("ann", "count", {"who": "ann"})
        with realm.log.write() as transaction:
            assert "Index Scan using wp_proposal_intent on wp_proposal" in plan_of_intents(transaction.cursor())


def plan_of_intents(cursor: Any) -> str:
    """Return the plan of the look-up of an intent on the connection for writing."""
    cursor.execute(
        "SELECT name FROM pg_prepared_statements WHERE statement LIKE %s AND statement LIKE %s",
        ("%intent_id = $2%", "%max(wp_proposal.attempt)%"),
    )
    [(name,)] = cursor.fetchall()
    cursor.execute(f"EXPLAIN EXECUTE {name} (1, 'a', 1, 'b')")
    return "\n".join(line for (line,) in cursor.fetchall())
