"""The index: tables beside the log that say where proposals, worlds and branches are, kept in every commit.

It holds nothing that the events do not say, and is rebuilt from them when it is missing or older. Checkpoints are
full states of every so many-th world on a line of descent, so that a past world is restored from a few patches; the
protocol adds them as it seals, and an index that is rebuilt makes them again (``world.views.checkpoints``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from world.canonical import canonical_text
from world.events import (
    BranchCreated,
    DecisionMade,
    Event,
    ExecutionStarted,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
    RunClosed,
    RunOpened,
    VerdictGiven,
    WorldSealed,
    decode_event,
)
from world.limits import Limits
from world.log import LoggedEvent, Statement, ViewCursor, compiled
from world.log.url import Backend
from world.realm import LANDMARKS
from world.replay import MALFORMED, malformed
from world.views.checkpoints import checkpoints

VIEW_NAME: Final = "world.index"
VIEW_VERSION: Final = 3

PLACES_AT_ONCE: Final = 64
"""Proposals whose places in the log are asked for at once; the statement ``places`` has a parameter for each."""

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
    Column("world_id", Text),
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
    sqlite_with_rowid=False,  # one tree to write, and verdict ids come in order
)
LEDGERS: Final = Table(
    "wp_ledger",
    METADATA,
    Column("log_id", Integer, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
)
"""The newest copy of the lease ledger: after which event of the log, and of the ledger's stream, and its JSON."""

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

_R = RUNS.c
_P, _W, _B, _V = PROPOSALS.c, WORLDS.c, BRANCHES.c, VERDICTS.c
_LOG: Final[Any] = bindparam("of_log")


def _after_update() -> Any:
    old = PROPOSALS.c
    return (
        update(PROPOSALS)
        .where(old.log_id == _LOG, old.proposal_id == bindparam("of_proposal"))
        .values(
            status=func.coalesce(bindparam("new_status", type_=Text), old.status),
            decision=func.coalesce(bindparam("new_decision", type_=Text), old.decision),
            decided_pos=func.coalesce(bindparam("new_decided", type_=BigInteger), old.decided_pos),
            ended_pos=func.coalesce(bindparam("new_ended", type_=BigInteger), old.ended_pos),
            world_id=func.coalesce(bindparam("new_world", type_=Text), old.world_id),
        )
    )


def _line() -> Any:
    """Return the query for a world and its ancestors, newest first, at most so many."""
    columns = (_W.world_id, _W.parent, _W.height, _W.position, _W.branch, _W.outcome)
    line = select(*columns).where(_W.log_id == _LOG, _W.world_id == bindparam("of_world")).cte("line", recursive=True)
    line = line.union_all(select(*columns).where(_W.log_id == _LOG, _W.world_id == line.c.parent))
    return select(*line.c).limit(bindparam("most"))


def _descendants() -> Any:
    """Return the query that counts the worlds below a world, as of a position."""
    mine = _W.log_id == _LOG, _W.position <= bindparam("upto")
    below = select(_W.world_id, _W.position).where(*mine, _W.parent == bindparam("of_world"))
    line = below.cte("below", recursive=True)
    later = _W.position > line.c.position  # else a damaged index could lead around for ever
    line = line.union_all(select(_W.world_id, _W.position).where(*mine, _W.parent == line.c.world_id, later))
    return select(func.count()).select_from(line)


_SOURCES: Final[Mapping[str, Any]] = {
    "line": _line(),
    "descendants": _descendants(),
    "worlds_upto": select(_W.world_id, _W.parent, _W.height, _W.position, _W.branch, _W.outcome)
    .where(_W.log_id == _LOG, _W.position <= bindparam("upto"))
    .order_by(_W.position.desc())
    .limit(bindparam("most")),
    "branch_places": select(_B.name, _B.created_pos).where(_B.log_id == _LOG).order_by(_B.created_pos),
    "places": select(_P.proposal_id, _P.submitted_pos, _P.decided_pos).where(
        _P.log_id == _LOG, _P.proposal_id.in_([bindparam(f"proposal{n}") for n in range(PLACES_AT_ONCE)])
    ),
    "verdicts_of_request": select(_V.position)
    .where(_V.log_id == _LOG, _V.request_id == bindparam("of_request"))
    .order_by(_V.position),
    "insert_proposal": insert(PROPOSALS),
    "update_proposal": _after_update(),
    "insert_world": insert(WORLDS),
    "insert_branch": insert(BRANCHES),
    "update_branch": update(BRANCHES)
    .where(_B.log_id == _LOG, _B.name == bindparam("of_branch"))
    .values(head=func.coalesce(bindparam("new_head", type_=Text), _B.head), tip=bindparam("new_tip")),
    "insert_landmark": insert(LANDMARK_ROWS),
    "insert_checkpoint": insert(CHECKPOINTS),
    "insert_verdict": insert(VERDICTS),
    "insert_ledger": insert(LEDGERS),
    "insert_run": insert(RUNS),
    "close_run": update(RUNS)
    .where(_R.log_id == _LOG, _R.run_id == bindparam("of_run"))
    .values(closed_pos=bindparam("new_closed")),
    "open_runs": select(_R.opened_pos).where(_R.log_id == _LOG, _R.closed_pos.is_(None)).order_by(_R.opened_pos),
    "runs": select(_R.run_id, _R.agent_id, _R.session_id, _R.opened_pos, _R.closed_pos)
    .where(_R.log_id == _LOG)
    .order_by(_R.opened_pos.desc())
    .limit(bindparam("most")),
    "run": select(_R.run_id, _R.agent_id, _R.session_id, _R.opened_pos, _R.closed_pos).where(
        _R.log_id == _LOG, _R.run_id == bindparam("of_run")
    ),
    "runs_of_session": select(_R.run_id)
    .where(_R.log_id == _LOG, _R.session_id == bindparam("of_session"))
    .order_by(_R.opened_pos),
    "run_prefix": select(_R.run_id)
    .where(_R.log_id == _LOG, _R.run_id >= bindparam("low"), _R.run_id < bindparam("high"))
    .limit(bindparam("most")),
    "ledger": select(LEDGERS.c.position, LEDGERS.c.version, LEDGERS.c.state).where(LEDGERS.c.log_id == _LOG),
    "verdict": select(_V.position, _V.request_id, _V.status).where(
        _V.log_id == _LOG, _V.verdict_id == bindparam("of_verdict")
    ),
    "verdict_prefix": select(_V.verdict_id)
    .where(_V.log_id == _LOG, _V.verdict_id >= bindparam("low"), _V.verdict_id < bindparam("high"))
    .limit(bindparam("most")),
    "by_intent": select(_P.proposal_id).where(_P.log_id == _LOG, _P.intent_id == bindparam("of_intent")),
    "attempts": select(func.max(_P.attempt)).where(_P.log_id == _LOG, _P.intent_key == bindparam("of_key")),
    "open_proposals": select(_P.proposal_id)
    .where(_P.log_id == _LOG, _P.ended_pos.is_(None))
    .order_by(func.coalesce(_P.decided_pos, 0), _P.submitted_pos),  # as their turns to execute come
    "branches": select(_B.name, _B.head, _B.tip).where(_B.log_id == _LOG).order_by(_B.created_pos),
    "landmarks": select(LANDMARK_ROWS.c.position)
    .where(LANDMARK_ROWS.c.log_id == _LOG)
    .order_by(LANDMARK_ROWS.c.position),
    "world": select(_W.world_id, _W.parent, _W.height, _W.position, _W.branch, _W.outcome).where(
        _W.log_id == _LOG, _W.world_id == bindparam("of_world")
    ),
    "children": select(_W.world_id, _W.parent, _W.height, _W.position, _W.branch, _W.outcome)
    .where(_W.log_id == _LOG, _W.parent == bindparam("of_world"))
    .order_by(_W.position),
    "worlds": select(_W.world_id, _W.parent, _W.height, _W.position, _W.branch, _W.outcome)
    .where(_W.log_id == _LOG)
    .order_by(_W.position.desc())
    .limit(bindparam("most")),
    "world_prefix": select(_W.world_id)
    .where(_W.log_id == _LOG, _W.world_id >= bindparam("low"), _W.world_id < bindparam("high"))
    .limit(bindparam("most")),
    "proposal_prefix": select(_P.proposal_id)
    .where(_P.log_id == _LOG, _P.proposal_id >= bindparam("low"), _P.proposal_id < bindparam("high"))
    .limit(bindparam("most")),
    "intent_prefix": select(_P.proposal_id)
    .where(_P.log_id == _LOG, _P.intent_id >= bindparam("low"), _P.intent_id < bindparam("high"))
    .limit(bindparam("most")),
    "proposals_by_key": select(_P.proposal_id)
    .where(_P.log_id == _LOG, _P.intent_key == bindparam("of_key"))
    .order_by(_P.attempt),
    "status_counts": select(_P.status, func.count()).where(_P.log_id == _LOG).group_by(_P.status),
    "checkpoint": select(CHECKPOINTS.c.data).where(
        CHECKPOINTS.c.log_id == _LOG, CHECKPOINTS.c.world_id == bindparam("of_world")
    ),
} | {
    f"clear_{table.name}": delete(table).where(table.c.log_id == _LOG)
    for table in (PROPOSALS, WORLDS, BRANCHES, LANDMARK_ROWS, CHECKPOINTS, VERDICTS, LEDGERS, RUNS)
}


@cache
def statement(name: str, backend: Backend) -> Statement:
    """Return one of the index's statements, compiled for a backend."""
    return compiled(_SOURCES[name], backend)


def history_query(conditions: Iterable[str], backend: Backend, *, counted: bool = True) -> Statement:
    """Return the statement that counts earlier proposals under the named conditions (see ``world.ports.History``).

    Args:
        conditions: their names.
        backend: the kind of database.
        counted: else the ids and positions of the first ``most`` of them are selected, in the order of the log.
    """
    return _history(frozenset(conditions), backend, counted)


@cache
def _history(conditions: frozenset[str], backend: Backend, counted: bool) -> Statement:
    before: Any = bindparam("before")
    tests = {
        "actor_id": _P.actor_id == bindparam("actor_id"),
        "action": _P.action == bindparam("action"),
        "intent_key": _P.intent_key == bindparam("intent_key"),
        "decision": (_P.decision == bindparam("decision")) & (_P.decided_pos < before),
        "outcome": (_P.status == bindparam("outcome")) & (_P.ended_pos < before),
        "since_ms": _P.submitted_at >= bindparam("since_ms"),
        "other_than": _P.proposal_id != bindparam("other_than"),
    }
    found = select(_P.proposal_id, _P.submitted_pos).order_by(_P.submitted_pos).limit(bindparam("most"))
    query = select(func.count()).select_from(PROPOSALS) if counted else found
    query = query.where(_P.log_id == _LOG, _P.submitted_pos < before)
    for name in sorted(conditions):
        query = query.where(tests[name])
    return compiled(query, backend)


def history_rows(conditions: Iterable[str], backend: Backend) -> Statement:
    """Return the statement that tells of all proposals under the named conditions, whatever came before what.

    It takes those conditions of ``history_query`` that compare a column with a value (``COMPARED``), and gives for each
    proposal when it was submitted, and from which position on it counts.
    """
    return _history_rows(frozenset(conditions), backend)


COMPARED: Final[Mapping[str, Any]] = {
    "actor_id": _P.actor_id,
    "action": _P.action,
    "intent_key": _P.intent_key,
    "decision": _P.decision,
    "outcome": _P.status,
}
"""The columns with which conditions of a history compare their values."""


@cache
def _history_rows(conditions: frozenset[str], backend: Backend) -> Statement:
    since: Any = _P.submitted_pos
    if "outcome" in conditions:
        since = _P.ended_pos
    elif "decision" in conditions:
        since = _P.decided_pos
    query = select(_P.submitted_at, since).where(_P.log_id == _LOG, since.is_not(None)).limit(bindparam("most"))
    for name in sorted(conditions):
        query = query.where(COMPARED[name] == bindparam(name))
    return compiled(query, backend)


class IndexRows:
    """Collects what events mean for the tables, and writes it in few statements.

    One batch of events often takes a proposal through its whole life; then one row is inserted, in its last state.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self._new: dict[str, dict[str, Any]] = {}
        self._changed: dict[str, dict[str, Any]] = {}
        self._worlds: list[tuple[Any, ...]] = []
        self._new_branches: dict[str, list[Any]] = {}
        self._branches: dict[str, list[str | None]] = {}
        self._landmarks: list[int] = []
        self._checkpoints: list[tuple[str, str]] = []
        self._verdicts: list[dict[str, Any]] = []
        self._ledger: dict[str, Any] | None = None
        self._runs: list[dict[str, Any]] = []
        self._closed: list[dict[str, Any]] = []

    def add(self, event: Event, position: int) -> None:
        """Take one event in."""
        step = _ROW_STEPS.get(type(event))
        if step is not None:
            step(self, event, position)
        elif event.TOPIC in LANDMARKS:
            self._landmarks.append(position)

    def add_checkpoint(self, world_id: str, data: str) -> None:
        """Take in the full state of a world, canonical JSON."""
        self._checkpoints.append((world_id, data))

    def add_ledger(self, position: int, version: int, state: str) -> None:
        """Take in the lease ledger as it is after an event, canonical JSON; it replaces the one before."""
        self._ledger = {"position": position, "version": version, "state": state}

    def write(self, cursor: ViewCursor) -> None:
        """Write everything collected, and forget it."""
        backend, log_id = cursor.backend, cursor.log_id
        many: list[tuple[str, list[dict[str, Any]]]] = [
            ("insert_proposal", list(self._new.values())),
            ("update_proposal", list(self._changed.values())),
            ("insert_world", [dict(zip(_WORLD_NAMES, row, strict=True)) for row in self._worlds]),
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
            ("insert_run", self._runs),
            ("close_run", self._closed),
        ]
        if self._ledger is not None:
            many += [("clear_wp_ledger", [{}]), ("insert_ledger", [self._ledger])]
        for name, rows in many:
            if rows:
                told = statement(name, backend)
                cursor.executemany(told.sql, [told.bind(log_id=log_id, of_log=log_id, **row) for row in rows])
        self.__init__()  # type: ignore[misc]  # as empty as at the beginning

    def _submitted(self, event: ProposalSubmitted, position: int) -> None:
        intent = event.intent
        self._new[event.proposal_id] = {
            "proposal_id": event.proposal_id,
            "intent_id": intent["intentId"],
            "intent_key": intent["intentKey"],
            "attempt": event.attempt,
            "actor_id": event.actor["actorId"],
            "action": intent["body"]["type"],
            "branch": event.branch,
            "status": "submitted",
            "submitted_at": event.at,
            "submitted_pos": position,
            "decision": None,
            "decided_pos": None,
            "ended_pos": None,
            "world_id": None,
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
        decision = event.decision["decision"]
        ended = {"ended_pos": position} if decision == "rejected" else {}
        self._change(event.proposal_id, status=decision, decision=decision, decided_pos=position, **ended)

    def _superseded(self, event: ProposalSuperseded, position: int) -> None:
        self._change(event.proposal_id, status="superseded", ended_pos=position)

    def _started(self, event: ExecutionStarted, _: int) -> None:
        self._change(event.proposal_id, status="executing")

    def _completed(self, event: ProposalCompleted, position: int) -> None:
        self._change(event.proposal_id, status="completed", ended_pos=position, world_id=event.world_id)
        self._move(event.branch, event.world_id, event.world_id)

    def _failed(self, event: ProposalFailed, position: int) -> None:
        self._change(event.proposal_id, status="failed", ended_pos=position, world_id=event.world_id)
        self._move(event.branch, None, event.world_id)

    def _move(self, branch: str, head: str | None, tip: str) -> None:
        new = self._new_branches.get(branch)
        if new is not None:
            new[:2] = [head or new[0], tip]
            return
        known = self._branches.get(branch, [None, None])
        self._branches[branch] = [head or known[0], tip]

    def _sealed(self, event: WorldSealed, position: int) -> None:
        self._worlds.append((event.world_id, event.parent, event.height, position, event.branch, event.outcome))

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
        told = {"run_id": event.run_id, "agent_id": event.agent_id, "session_id": event.session_id}
        self._runs.append({**told, "opened_pos": position, "closed_pos": None})

    def _closed_run(self, event: RunClosed, position: int) -> None:
        self._closed.append({"of_run": event.run_id, "new_closed": position})

    def _branched(self, event: BranchCreated, position: int) -> None:
        self._new_branches[event.branch] = [event.world_id, event.world_id, position]


_WORLD_NAMES: Final = ("world_id", "parent", "height", "position", "branch", "outcome")
_NEW_NAMES: Final = {
    "status": "new_status",
    "decision": "new_decision",
    "decided_pos": "new_decided",
    "ended_pos": "new_ended",
    "world_id": "new_world",
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


class WorldIndex:
    """The index as a persisted view of the log."""

    name = VIEW_NAME
    version = VIEW_VERSION
    metadata = METADATA

    def __init__(self, *, checkpoint_every: int = Limits().checkpoint_every) -> None:
        """Keep a checkpoint of every so many-th world on a line of descent; see ``world.limits``."""
        self._every = checkpoint_every

    def clear(self, cursor: ViewCursor) -> None:
        """Remove everything the index holds about the cursor's log."""
        for table in (PROPOSALS, WORLDS, BRANCHES, LANDMARK_ROWS, CHECKPOINTS, VERDICTS, LEDGERS):
            cursor.run(statement(f"clear_{table.name}", cursor.backend), of_log=cursor.log_id)

    def apply(self, cursor: ViewCursor, events: Sequence[LoggedEvent]) -> None:
        """Bring the index from before these events to after them, checkpoints included.

        Raises:
            DamagedLog: an event that is not what its topic says.
        """
        rows, worlds = IndexRows(), _IndexedWorlds(cursor)
        for logged in events:
            event = decode_event(logged.topic, logged.schema_version, logged.state, logged.position)
            try:
                rows.add(event, logged.position)
            except MALFORMED as error:
                raise malformed(logged.position, error) from None
            if isinstance(event, WorldSealed):
                worlds.new[event.world_id] = event
        for world_id, data in checkpoints(worlds.new.values(), worlds, every=self._every):
            rows.add_checkpoint(world_id, canonical_text(data))
        rows.write(cursor)


class _IndexedWorlds:
    """The worlds of one batch, and those that were indexed before it (``world.views.checkpoints.Worlds``)."""

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
