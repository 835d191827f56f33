"""The index: tables beside the log with the positions of proposals, worlds and branches, updated in every commit.

It is derived from the events alone and rebuilt from them when it is missing or has an older version. Checkpoints are
complete states of worlds at regular heights, so that a past world is restored from few patches; sealing adds them, and
rebuilding the index creates them again (``world.read_models.checkpoints``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from world.events.base import KLIS_STREAM, Event
from world.events.codec import MALFORMED, decode_event, malformed
from world.events.execution_events import ExecutionStarted
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import (
    DecisionMade,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.events.realm_events import BranchCreated, WorldSealed
from world.events.run_events import RunClosed, RunOpened
from world.klis.ledger import Ledger
from world.klis.ledger_codec import ledger_to_wire, read_ledger
from world.limits import Limits
from world.log import LoggedEvent, ViewCursor
from world.model.canonical_json import canonical_text, read_json
from world.read_models.checkpoints import checkpoints
from world.read_models.index_sql.queries import LATER_INDEXES, PLACES_AT_ONCE, history_query, history_rows, statement
from world.read_models.index_sql.row_writing import write_rows
from world.read_models.request_keys import HAS_VERIFIED, request_of
from world.state.realm_state import LANDMARKS

if TYPE_CHECKING:
    from sqlalchemy import MetaData

__all__ = [
    "KEYS_NAME",
    "KEYS_VERSION",
    "LEDGER_EVERY",
    "PLACES_AT_ONCE",
    "VIEW_NAME",
    "VIEW_VERSION",
    "IndexRows",
    "KeyIndex",
    "WorldIndex",
    "has_new_copy",
    "history_query",
    "history_rows",
    "statement",
]

VIEW_NAME: Final = "world.index"
VIEW_VERSION: Final = 5
KEYS_NAME: Final = "world.requests"
KEYS_VERSION: Final = 1
LEDGER_EVERY: Final = 2_000
"""Minimum number of events of the lease ledger between two stored copies."""


def has_new_copy(version: int, kept: int, leases: int) -> bool:
    """Return whether to store a new copy of the lease ledger, because loading the later events would take long.

    Args:
        version: number of the ledger's events so far.
        kept: number of events that the newest copy covers; 0 without a copy.
        leases: number of leases in force.
    """
    return version - kept > max(LEDGER_EVERY, 2 * leases)


class IndexRows:
    """Collector of the table changes of a batch of events, which writes them in few statements.

    A batch often contains all events of a proposal; then one row is inserted, with the final state.
    """

    def __init__(self) -> None:
        """Create an empty collector."""
        self._new: dict[str, dict[str, Any]] = {}
        self._changed: dict[str, dict[str, Any]] = {}
        self._worlds: list[dict[str, Any]] = []
        self._new_branches: dict[str, list[Any]] = {}
        self._branches: dict[str, list[str | None]] = {}
        self._landmarks: list[int] = []
        self._checkpoints: list[tuple[str, str]] = []
        self._verdicts: list[dict[str, Any]] = []
        self._ledger: dict[str, Any] | None = None
        self._requests: dict[tuple[str, str], dict[str, Any]] = {}
        self._runs: dict[str, dict[str, Any]] = {}
        self._closed: list[dict[str, Any]] = []

    def add(self, events: Iterable[tuple[Event, int]]) -> None:
        """Add the changes of events, each with its position, in the order of the log."""
        for event, position in events:
            step = _ROW_STEPS.get(type(event))
            if step is not None:
                step(self, event, position)
            elif event.TOPIC in LANDMARKS:
                self._landmarks.append(position)
            if getattr(event, "verified", None) is not None:
                self.add_key(event, position)

    def add_key(self, event: Event, position: int) -> None:
        """Add an event to the key of the request that caused it, where it has one."""
        requested = request_of(event)
        if requested is None:
            return
        actor_id, key, request = requested
        row = self._requests.get((actor_id, key))
        if row is None:
            values = {"actor_id": actor_id, "key": key, "request": request}
            self._requests[actor_id, key] = {**values, "first_pos": position, "last_pos": position}
        else:
            row["last_pos"] = position

    def add_checkpoint(self, world_id: str, data: str) -> None:
        """Add the complete state of a world, as canonical JSON."""
        self._checkpoints.append((world_id, data))

    def add_ledger(self, position: int, version: int, state: str) -> None:
        """Add a copy of the lease ledger after an event, as canonical JSON; it replaces the previous copy."""
        self._ledger = {"position": position, "version": version, "state": state}

    def write(self, cursor: ViewCursor) -> None:
        """Write all collected changes and clear the collector."""
        write_rows(
            cursor,
            [
                ("insert_proposal", list(self._new.values())),
                ("update_proposal", list(self._changed.values())),
                ("insert_world", self._worlds),
                (
                    "insert_branch",
                    [
                        {"name": name, "head": head, "tip": tip, "created_pos": at}
                        for name, (head, tip, at) in self._new_branches.items()
                    ],
                ),
                (
                    "update_branch",
                    [{"of_branch": n, "new_head": h, "new_tip": t} for n, (h, t) in self._branches.items()],
                ),
                ("insert_landmark", [{"position": at} for at in self._landmarks]),
                ("insert_checkpoint", [{"world_id": w, "data": data} for w, data in self._checkpoints]),
                ("insert_verdict", self._verdicts),
                ("insert_run", list(self._runs.values())),
                ("close_run", self._closed),
                ("insert_request", list(self._requests.values())),
                ("clear_wp_ledger", [] if self._ledger is None else [{}]),
                ("insert_ledger", [] if self._ledger is None else [self._ledger]),
            ],
        )
        self.__init__()  # type: ignore[misc]  # clears all collections

    def _submitted(self, event: ProposalSubmitted, position: int) -> None:
        intent = event.intent
        self._new[event.proposal_id] = {
            "proposal_id": event.proposal_id,
            "intent_id": intent.intent_id,
            "intent_key": intent.intent_key,
            "attempt": event.attempt,
            "actor_id": event.actor.actor_id,
            "action": intent.body.type,
            "branch": event.branch,
            "status": "submitted",
            "submitted_at": event.at,
            "submitted_pos": position,
            "decision": None,
            "decided_pos": None,
            "ended_pos": None,
        }

    def _change(self, proposal_id: str, **columns: Any) -> None:
        row = self._new.get(proposal_id)
        if row is not None:
            row.update(columns)
            return
        row = self._changed.setdefault(proposal_id, dict(_NO_CHANGE, of_proposal=proposal_id))
        for name, value in columns.items():
            row[_NEW_NAMES[name]] = value

    def _judged(self, event: ProposalJudged, _: int) -> None:
        self._change(event.proposal_id, status="evaluating")

    def _decided(self, event: DecisionMade, position: int) -> None:
        decision = event.decision.decision
        ended = {"ended_pos": position} if decision == "rejected" else {}
        self._change(event.proposal_id, status=decision, decision=decision, decided_pos=position, **ended)

    def _superseded(self, event: ProposalSuperseded, position: int) -> None:
        self._change(event.proposal_id, status="superseded", ended_pos=position)

    def _started(self, event: ExecutionStarted, _: int) -> None:
        self._change(event.proposal_id, status="executing")

    def _completed(self, event: ProposalCompleted, position: int) -> None:
        self._change(event.proposal_id, status="completed", ended_pos=position)
        self._move(event.branch, event.world_id, event.world_id)

    def _failed(self, event: ProposalFailed, position: int) -> None:
        self._change(event.proposal_id, status="failed", ended_pos=position)
        self._move(event.branch, None, event.world_id)

    def _move(self, branch: str, head: str | None, tip: str) -> None:
        new = self._new_branches.get(branch)
        if new is not None:
            new[:2] = [head or new[0], tip]
            return
        known = self._branches.get(branch, [None, None])
        self._branches[branch] = [head or known[0], tip]

    def _sealed(self, event: WorldSealed, position: int) -> None:
        self._worlds.append(
            {
                "world_id": event.world_id,
                "parent": event.parent,
                "height": event.height,
                "position": position,
                "branch": event.branch,
                "outcome": event.outcome,
            }
        )

    def _verdict(self, event: VerdictGiven, position: int) -> None:
        self._verdicts.append(
            {
                "verdict_id": event.verdict_id,
                "position": position,
                "request_id": event.request_id,
                "status": event.status,
            }
        )

    def _opened(self, event: RunOpened, position: int) -> None:
        ids = {"run_id": event.run_id, "agent_id": event.agent_id, "session_id": event.session_id}
        self._runs[event.run_id] = {**ids, "opened_pos": position, "closed_pos": None}

    def _closed_run(self, event: RunClosed, position: int) -> None:
        opened = self._runs.get(event.run_id)
        if opened is not None:
            opened["closed_pos"] = position
        else:
            self._closed.append({"of_run": event.run_id, "new_closed": position})

    def _branched(self, event: BranchCreated, position: int) -> None:
        self._new_branches[event.branch] = [event.world_id, event.world_id, position]


_NEW_NAMES: Final = {
    "status": "new_status",
    "decision": "new_decision",
    "decided_pos": "new_decided",
    "ended_pos": "new_ended",
}
_NO_CHANGE: Final[Mapping[str, None]] = dict.fromkeys(_NEW_NAMES.values())
_ROW_STEPS: Final[Mapping[type[Event], Callable[[IndexRows, Any, int], None]]] = {
    RunOpened: IndexRows._opened,
    RunClosed: IndexRows._closed_run,
    ProposalSubmitted: IndexRows._submitted,
    ProposalJudged: IndexRows._judged,
    DecisionMade: IndexRows._decided,
    ProposalSuperseded: IndexRows._superseded,
    ExecutionStarted: IndexRows._started,
    ProposalCompleted: IndexRows._completed,
    ProposalFailed: IndexRows._failed,
    WorldSealed: IndexRows._sealed,
    BranchCreated: IndexRows._branched,
    VerdictGiven: IndexRows._verdict,
}


class KeyIndex:
    """The keys of requests as a persisted view beside the index, so that an earlier release that writes stops it."""

    name = KEYS_NAME
    version = KEYS_VERSION

    @property
    def metadata(self) -> MetaData:
        """The table of keys."""
        from world.read_models.index_tables import KEYS_METADATA

        return KEYS_METADATA

    def clear(self, cursor: ViewCursor) -> None:
        """Remove all keys of the cursor's log."""
        cursor.run(statement("clear_wp_request", cursor.backend), of_log=cursor.log_id)

    def apply(self, cursor: ViewCursor, events: Sequence[LoggedEvent]) -> None:
        """Add the keys of events; keys that the index added are added once.

        Raises:
            DamagedLogError: an event is not valid for its topic.
        """
        rows = IndexRows()
        for logged in events:
            if HAS_VERIFIED in logged.state:
                event = decode_event(logged.topic, logged.schema_version, logged.state, logged.position)
                rows.add_key(event, logged.position)
        rows.write(cursor)


class WorldIndex:
    """The index as a persisted view of the log, with the keys of requests beside it."""

    name = VIEW_NAME
    version = VIEW_VERSION
    later_indexes = LATER_INDEXES
    beside = (KeyIndex(),)

    @property
    def metadata(self) -> MetaData:
        """The tables of the index."""
        from world.read_models.index_tables import METADATA

        return METADATA

    def __init__(self, *, checkpoint_every: int = Limits().checkpoint_every) -> None:
        """Create the view.

        Args:
            checkpoint_every: number of worlds between two checkpoints on a line of descent (``world.limits``). It is
                recorded when an index is built and applies until it is rebuilt.
        """
        self._every = checkpoint_every

    def clear(self, cursor: ViewCursor) -> None:
        """Remove all rows of the cursor's log, and record the current settings of the index."""
        for table in self.metadata.tables.values():
            cursor.run(statement(f"clear_{table.name}", cursor.backend), of_log=cursor.log_id)
        query = statement("insert_settings", cursor.backend)
        cursor.run(query, log_id=cursor.log_id, checkpoint_every=self._every)

    def apply(self, cursor: ViewCursor, events: Sequence[LoggedEvent]) -> None:
        """Apply events to the index, with checkpoints and the copy of the lease ledger.

        Raises:
            DamagedLogError: an event is not valid for its topic.
        """
        rows, worlds = IndexRows(), _IndexedWorlds(cursor)
        for logged in events:
            event = decode_event(logged.topic, logged.schema_version, logged.state, logged.position)
            try:
                rows.add([(event, logged.position)])
            except MALFORMED as error:
                raise malformed(logged.position, error) from None
            if isinstance(event, WorldSealed):
                worlds.new[event.world_id] = event
        for world_id, data in checkpoints(worlds.new.values(), worlds, every=self._interval(cursor)):
            rows.add_checkpoint(world_id, canonical_text(data))
        of_leases = [logged for logged in events if logged.stream == KLIS_STREAM]
        if of_leases:
            _keep_ledger(cursor, rows, of_leases, events[-1].position)
        rows.write(cursor)

    def _interval(self, cursor: ViewCursor) -> int:
        """Return the recorded number of worlds between two checkpoints."""
        cursor.run(statement("settings", cursor.backend), of_log=cursor.log_id)
        row = cursor.fetchone()
        return self._every if row is None else int(row[0])


def _keep_ledger(cursor: ViewCursor, rows: IndexRows, latest: Sequence[LoggedEvent], position: int) -> None:
    """Store a copy of the lease ledger if the previous one is too old, as the engine does after a commit.

    Args:
        cursor: cursor of the log, which stores the events before ``latest``; a transaction stores those that it appends
            when it commits.
        rows: receives the copy.
        latest: the new events of the ledger's stream, in order; at least one.
        position: position of the last event that the index covers afterwards.
    """
    version = latest[-1].version
    cursor.run(statement("ledger", cursor.backend), of_log=cursor.log_id)
    copy = cursor.fetchone()
    kept = 0 if copy is None else int(copy[1])
    if not has_new_copy(version, kept, 0):
        return
    ledger = Ledger() if copy is None else read_ledger(read_json(copy[2]))
    earlier = cursor.stream(KLIS_STREAM, kept, latest[0].version - 1)
    for logged in (*earlier, *latest):
        event = decode_event(logged.topic, logged.schema_version, logged.state, logged.position)
        try:
            ledger.fold(event)
        except MALFORMED as error:
            raise malformed(logged.position, error) from None
    if has_new_copy(version, kept, len(ledger.leases)):
        rows.add_ledger(position, version, canonical_text(ledger_to_wire(ledger)))


class _IndexedWorlds:
    """Worlds of one batch and of the index before it (``world.read_models.checkpoints.Worlds``)."""

    def __init__(self, cursor: ViewCursor) -> None:
        self.new: dict[str, WorldSealed] = {}
        self._cursor = cursor

    def sealed(self, world_id: str) -> WorldSealed | None:
        """Return the event that sealed a world."""
        known = self.new.get(world_id)
        if known is not None:
            return known
        row = self._row("world", world_id)
        logged = None if row is None else self._cursor.event_at(row[3])
        if logged is None:
            return None
        event = decode_event(logged.topic, logged.schema_version, logged.state, logged.position)
        return event if isinstance(event, WorldSealed) and event.world_id == world_id else None

    def checkpoint(self, world_id: str) -> str | None:
        """Return the stored state of a world, as JSON."""
        row = None if world_id in self.new else self._row("checkpoint", world_id)
        return None if row is None else str(row[0])

    def _row(self, name: str, world_id: str) -> tuple[Any, ...] | None:
        cursor = self._cursor
        cursor.run(statement(name, cursor.backend), of_log=cursor.log_id, of_world=world_id)
        return cursor.fetchone()
