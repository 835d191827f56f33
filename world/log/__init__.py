"""The append-only log: events with a Merkle tree over them, in SQLite or PostgreSQL (design section 2).

``open_log`` opens one. ``EventLog`` is an application recorder of the ``eventsourcing`` library, and its
``insert_events`` is the way to append. ``world.log.audit`` checks a stored log, with ``world.log.group_commit`` many
callers share a commit, ``world.log.persistence`` makes the library's applications find a log, and
``world.log.backends`` has the databases that store logs.
"""

from world.log.backends.registry import Durability
from world.log.following import Follower
from world.log.group_commit import GroupCommit, Pending
from world.log.log import EventLog, list_logs, open_log, rebuild_view
from world.log.merkle import root_from_beginning, root_from_leaf, verify_consistency, verify_inclusion
from world.log.recorder import LogNotification
from world.log.sql.statement import SqlStatement, compiled
from world.log.store import Clocks, LockedQuery
from world.log.transaction import Transaction
from world.log.tree import ConsistencyProof, InclusionProof
from world.log.url import LogAddress, parse_address
from world.log.values import (
    MAX_EVENT_BYTES,
    NEXT_VERSION,
    InvalidEventError,
    LogFinding,
    LoggedEvent,
    NewEvent,
    StreamConflictError,
    TreeHead,
    event_leaf,
    is_intact,
)
from world.log.views import PersistedView, ViewCursor, ViewState

__all__ = [
    "MAX_EVENT_BYTES",
    "NEXT_VERSION",
    "Clocks",
    "ConsistencyProof",
    "Durability",
    "EventLog",
    "Follower",
    "GroupCommit",
    "InclusionProof",
    "InvalidEventError",
    "LockedQuery",
    "LogAddress",
    "LogFinding",
    "LogNotification",
    "LoggedEvent",
    "NewEvent",
    "Pending",
    "PersistedView",
    "SqlStatement",
    "StreamConflictError",
    "Transaction",
    "TreeHead",
    "ViewCursor",
    "ViewState",
    "compiled",
    "event_leaf",
    "is_intact",
    "list_logs",
    "open_log",
    "parse_address",
    "rebuild_view",
    "root_from_beginning",
    "root_from_leaf",
    "verify_consistency",
    "verify_inclusion",
]
