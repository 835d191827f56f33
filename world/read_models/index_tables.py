"""Tables of the index, stored beside those of the log."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, Text

from world.log.tables import LATER
from world.read_models.index_sql.queries import LATER_INDEXES

METADATA: Final = MetaData()
PROPOSALS: Final = Table(
    "wp_proposal",
    METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("proposal_id", Text, primary_key=True),
    Column("intent_id", Text, nullable=False),
    Column("intent_key", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("actor_id", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("branch", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("submitted_at", BigInteger, nullable=False),
    Column("submitted_pos", BigInteger, nullable=False),
    Column("decision", Text),
    Column("decided_pos", BigInteger),
    Column("ended_pos", BigInteger),
)
Index("wp_proposal_intent", PROPOSALS.c.log_id, PROPOSALS.c.intent_id, unique=True)
Index("wp_proposal_key", PROPOSALS.c.log_id, PROPOSALS.c.intent_key, PROPOSALS.c.attempt)
Index("wp_proposal_actor", PROPOSALS.c.log_id, PROPOSALS.c.actor_id, PROPOSALS.c.submitted_pos)
Index(
    "wp_proposal_open",
    PROPOSALS.c.log_id,
    PROPOSALS.c.submitted_pos,
    sqlite_where=PROPOSALS.c.ended_pos.is_(None),
    postgresql_where=PROPOSALS.c.ended_pos.is_(None),
)
Index(
    "wp_proposal_ended",
    PROPOSALS.c.log_id,
    PROPOSALS.c.branch,
    PROPOSALS.c.status,
    PROPOSALS.c.ended_pos,
    sqlite_where=PROPOSALS.c.ended_pos.is_not(None),
    postgresql_where=PROPOSALS.c.ended_pos.is_not(None),
)
WORLDS: Final = Table(
    "wp_world",
    METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("world_id", Text, primary_key=True),
    Column("parent", Text),
    Column("height", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("branch", Text, nullable=False),
    Column("outcome", Text, nullable=False),
)
Index("wp_world_parent", WORLDS.c.log_id, WORLDS.c.parent)
Index("wp_world_position", WORLDS.c.log_id, WORLDS.c.position)
BRANCHES: Final = Table(
    "wp_branch",
    METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("head", Text, nullable=False),
    Column("tip", Text, nullable=False),
    Column("created_pos", BigInteger, nullable=False),
)
LANDMARK_ROWS: Final = Table(
    "wp_landmark",
    METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("position", BigInteger, primary_key=True),
)
SETTINGS: Final = Table(
    "wp_index",
    METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("checkpoint_every", BigInteger, nullable=False),
)
"""Settings of a log's index: number of worlds between two checkpoints on a line of descent."""

CHECKPOINTS: Final = Table(
    "wp_checkpoint",
    METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("world_id", Text, primary_key=True),
    Column("data", Text, nullable=False),
)
VERDICTS: Final = Table(
    "wp_verdict",
    METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("verdict_id", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    sqlite_with_rowid=False,  # a single tree to write; verdict ids are ascending
)
Index("wp_verdict_request", VERDICTS.c.log_id, VERDICTS.c.request_id, VERDICTS.c.position)
LEDGERS: Final = Table(
    "wp_ledger",
    METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
)
"""Newest copy of the lease ledger: position in the log, version of the ledger's stream, and its JSON."""

RUNS: Final = Table(
    "wp_run",
    METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("agent_id", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("opened_pos", BigInteger, nullable=False),
    Column("closed_pos", BigInteger),
)
Index("wp_run_session", RUNS.c.log_id, RUNS.c.session_id)
Index("wp_run_opened", RUNS.c.log_id, RUNS.c.opened_pos)
Index(
    "wp_run_open",
    RUNS.c.log_id,
    RUNS.c.closed_pos,  # so that SQLite, which has no statistics, prefers it to the other index in that order
    RUNS.c.opened_pos,
    sqlite_where=RUNS.c.closed_pos.is_(None),
    postgresql_where=RUNS.c.closed_pos.is_(None),
)

KEYS_METADATA: Final = MetaData()
REQUESTS: Final = Table(
    "wp_request",
    KEYS_METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("actor_id", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request", Text),
    Column("first_pos", BigInteger, nullable=False),
    Column("last_pos", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""Keys of requests: whose, the digest of the first request with it, and the first and the last event that have it."""

for _table in METADATA.tables.values():
    for _index in _table.indexes:
        _index.info[LATER] = _index.name in LATER_INDEXES
