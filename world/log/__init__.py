"""The append-only log: events with a Merkle tree over them, in SQLite or PostgreSQL (design section 2).

``open_log`` opens one; ``EventLog.write`` is the only way to append. ``world.log.audit`` checks a stored log,
``world.log.group_commit`` lets many callers share a commit, ``world.log.persistence`` serves the tools of
``eventsourcing``.
"""

from world.log.following import Follower
from world.log.group_commit import GroupCommit, Pending
from world.log.log import EventLog, list_logs, open_log, rebuild_view
from world.log.merkle import verify_consistency, verify_inclusion
from world.log.tables import SqlStatement, compiled
from world.log.transaction import Transaction
from world.log.tree import ConsistencyProof, InclusionProof
from world.log.url import LogAddress, parse_address
from world.log.values import MAX_EVENT_BYTES, LogFinding, LoggedEvent, NewEvent, TreeHead, event_leaf, is_intact
from world.log.views import PersistedView, ViewCursor, ViewState

__all__ = [
    "MAX_EVENT_BYTES",
    "ConsistencyProof",
    "EventLog",
    "Follower",
    "GroupCommit",
    "InclusionProof",
    "LogAddress",
    "LogFinding",
    "LoggedEvent",
    "NewEvent",
    "Pending",
    "PersistedView",
    "SqlStatement",
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
    "verify_consistency",
    "verify_inclusion",
]
