"""All statements that read and write the index, compiled once per database backend."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Table,
    Text,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from world.events.base import REALM_STREAM
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import BranchCreated, BranchSwitched, WorldSealed
from world.events.run_events import RunOpened
from world.log import SqlStatement, compiled
from world.log.sql.statement import dialect
from world.log.tables import EVENTS
from world.log.url import Backend
from world.read_models.index_sql.queries import PLACES_AT_ONCE
from world.read_models.index_tables import (
    BRANCHES,
    CHECKPOINTS,
    KEYS_METADATA,
    LANDMARK_ROWS,
    LEDGERS,
    METADATA,
    PROPOSALS,
    REQUESTS,
    RUNS,
    SETTINGS,
    VERDICTS,
    WORLDS,
)

_R = RUNS.c
_P, _W, _B, _V = PROPOSALS.c, WORLDS.c, BRANCHES.c, VERDICTS.c
_LOG: Final[Any] = bindparam("of_log")
_WORLD: Final = (_W.world_id, _W.parent, _W.height, _W.position, _W.branch, _W.outcome)
_RUN: Final = (_R.run_id, _R.agent_id, _R.session_id, _R.opened_pos, _R.closed_pos)


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
        )
    )


class _PlainText(ColumnElement[str]):
    """A text of the log in the collation of the index, whose indexes PostgreSQL does not use otherwise."""

    inherit_cache = False
    type = Text()

    def __init__(self, column: ColumnElement[str]) -> None:
        self.column = column


@compiles(_PlainText)
def _as_it_is(element: _PlainText, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.column, **options)


@compiles(_PlainText, "postgresql")
def _in_default_collation(element: _PlainText, compiler: SQLCompiler, **options: Any) -> str:
    return f'{compiler.process(element.column, **options)} COLLATE "default"'


def _recent() -> Any:
    """Return the query for the numbers of rows of ``RECENT_ROWS`` after a position, each with that of their events.

    All numbers are of the same moment. The query reads the events after the position.
    """

    def rows(table: Any, at: Any) -> Any:
        mine = table.c.log_id == _LOG, at > bindparam("since", type_=BigInteger)
        return select(func.count()).select_from(table).where(*mine).scalar_subquery()

    topic, of_registry = EVENTS.c.topic, EVENTS.c.stream == REALM_STREAM
    of_proposal = topic == ProposalSubmitted.TOPIC
    listed = (
        select(literal_column("1"))
        .where(_P.log_id == _LOG, _P.proposal_id == _PlainText(EVENTS.c.stream))
        .scalar_subquery()
    )
    pairs = (
        (rows(WORLDS, _W.position), topic == WorldSealed.TOPIC),
        (rows(BRANCHES, _B.created_pos), topic == BranchCreated.TOPIC),
        (func.count(case((of_proposal, listed))), of_proposal),  # each looked up: a join could read all proposals
        (rows(RUNS, _R.opened_pos), topic == RunOpened.TOPIC),
        (rows(LANDMARK_ROWS, LANDMARK_ROWS.c.position), of_registry | (topic == BranchSwitched.TOPIC)),
    )
    counts = [one for row, made in pairs for one in (row, func.count(case((made, 1))))]
    span = EVENTS.c.id > bindparam("low", type_=BigInteger), EVENTS.c.id <= bindparam("high", type_=BigInteger)
    return select(*counts).select_from(EVENTS).where(*span)


def _ends() -> Any:
    """Return the query for the topics of the first events of the streams with the smallest and the largest ids.

    They are those of proposals, whose ids begin with a hex digit, and of runs; at most four probes of the index.
    """
    mine = EVENTS.c.log_id == _LOG
    ends = [
        select(end(EVENTS.c.stream)).where(mine, EVENTS.c.stream >= low, EVENTS.c.stream < high).scalar_subquery()
        for low, high in (("0", "g"), ("run:", "run;"))
        for end in (func.min, func.max)
    ]
    return select(EVENTS.c.stream, EVENTS.c.topic).where(mine, EVENTS.c.stream.in_(ends), EVENTS.c.version == 1)


def _line() -> Any:
    """Return the query for a world and its ancestors, newest first, limited by ``most``."""
    line = select(*_WORLD).where(_W.log_id == _LOG, _W.world_id == bindparam("of_world")).cte("line", recursive=True)
    line = line.union_all(select(*_WORLD).where(_W.log_id == _LOG, _W.world_id == line.c.parent))
    return select(*line.c).limit(bindparam("most"))


def _descendants() -> Any:
    """Return the query that counts the descendants of a world as of a position, at most ``most``."""
    position = _W.position + 0  # by the column alone, SQLite would look worlds up by their position
    mine = _W.log_id == _LOG, position <= bindparam("upto")
    below = select(_W.world_id, _W.position).where(*mine, _W.parent == bindparam("of_world"))
    line = below.cte("below", recursive=True)
    later = position > line.c.position  # prevents an endless recursion in a damaged index
    line = line.union_all(select(_W.world_id, _W.position).where(*mine, _W.parent == line.c.world_id, later))
    return select(func.count()).select_from(select(line.c.world_id).limit(bindparam("most")).subquery())


def _prefix(found: Any, log_id: Any, key: Any) -> Any:
    """Return the query for rows of a log whose key has a prefix, given as its bounds."""
    bounds = key >= bindparam("low"), key < bindparam("high")
    return select(found).where(log_id == _LOG, *bounds).limit(bindparam("most"))


def _insert_request(backend: Backend) -> Any:
    """Return the statement that adds events to a key; its row has the first and the last one, applied in any order."""
    old = REQUESTS.c
    insertion: Any = (sqlite.insert if backend == "sqlite" else postgresql.insert)(REQUESTS)
    new = insertion.excluded
    is_first = new.first_pos < old.first_pos
    return insertion.on_conflict_do_update(
        index_elements=list(REQUESTS.primary_key),
        set_={
            "request": case((is_first, new.request), else_=old.request),
            "first_pos": case((is_first, new.first_pos), else_=old.first_pos),
            "last_pos": case((new.last_pos > old.last_pos, new.last_pos), else_=old.last_pos),
        },
    )


SOURCES: Final[Mapping[str, Any]] = {
    "insert_request": _insert_request("sqlite"),
    "requests": select(
        REQUESTS.c.actor_id, REQUESTS.c.key, REQUESTS.c.request, REQUESTS.c.first_pos, REQUESTS.c.last_pos
    ).where(REQUESTS.c.log_id == _LOG),
    "request": select(REQUESTS.c.request, REQUESTS.c.first_pos, REQUESTS.c.last_pos).where(
        REQUESTS.c.log_id == _LOG, REQUESTS.c.actor_id == bindparam("of_actor"), REQUESTS.c.key == bindparam("of_key")
    ),
    "recent": _recent(),
    "ends": _ends(),
    "line": _line(),
    "descendants": _descendants(),
    "worlds_upto": select(*_WORLD)
    .where(_W.log_id == _LOG, _W.position <= bindparam("upto"))
    .order_by(_W.position.desc())
    .limit(bindparam("most")),
    "branch_places": select(_B.name, _B.created_pos).where(_B.log_id == _LOG).order_by(_B.created_pos),
    "places": select(_P.proposal_id, _P.submitted_pos, _P.decided_pos).where(
        _P.log_id == _LOG, _P.proposal_id.in_([bindparam(f"proposal{n}") for n in range(PLACES_AT_ONCE)])
    ),
    "place": select(_P.submitted_pos).where(_P.log_id == _LOG, _P.proposal_id == bindparam("of_proposal")),
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
    "insert_settings": insert(SETTINGS),
    "settings": select(SETTINGS.c.checkpoint_every).where(SETTINGS.c.log_id == _LOG),
    "insert_verdict": insert(VERDICTS),
    "insert_ledger": insert(LEDGERS),
    "insert_run": insert(RUNS),
    "close_run": update(RUNS)
    .where(_R.log_id == _LOG, _R.run_id == bindparam("of_run"))
    .values(closed_pos=bindparam("new_closed")),
    "open_runs": select(_R.opened_pos).where(_R.log_id == _LOG, _R.closed_pos.is_(None)).order_by(_R.opened_pos),
    "runs": select(*_RUN)
    .where(_R.log_id == _LOG, _R.opened_pos < bindparam("before"))
    .order_by(_R.opened_pos.desc())
    .limit(bindparam("most")),
    "run": select(*_RUN).where(_R.log_id == _LOG, _R.run_id == bindparam("of_run")),
    "runs_of_session": select(_R.run_id)
    .where(_R.log_id == _LOG, _R.session_id == bindparam("of_session"))
    .order_by(_R.opened_pos),
    "run_prefix": _prefix(_R.run_id, _R.log_id, _R.run_id),
    "ledger": select(LEDGERS.c.position, LEDGERS.c.version, LEDGERS.c.state).where(LEDGERS.c.log_id == _LOG),
    "verdict": select(_V.position, _V.request_id, _V.status).where(
        _V.log_id == _LOG, _V.verdict_id == bindparam("of_verdict")
    ),
    "verdict_prefix": _prefix(_V.verdict_id, _V.log_id, _V.verdict_id),
    "by_intent": select(_P.proposal_id).where(_P.log_id == _LOG, _P.intent_id == bindparam("of_intent")),
    "intent": select(
        select(_P.proposal_id).where(_P.log_id == _LOG, _P.intent_id == bindparam("of_intent")).scalar_subquery(),
        select(func.max(_P.attempt)).where(_P.log_id == _LOG, _P.intent_key == bindparam("of_key")).scalar_subquery(),
    ),
    "attempts": select(func.max(_P.attempt)).where(_P.log_id == _LOG, _P.intent_key == bindparam("of_key")),
    "open_proposals": select(_P.proposal_id, _P.submitted_pos, _P.decided_pos)
    .where(_P.log_id == _LOG, _P.ended_pos.is_(None))
    .order_by(_P.submitted_pos),  # in another order, SQLite would read all proposals instead of the index of open ones
    "nth_last_proposal": select(_P.submitted_pos)
    .where(_P.log_id == _LOG)
    .order_by(_P.submitted_pos.desc())
    .offset(bindparam("number"))
    .limit(1),
    "newest_ended": select(_P.ended_pos)
    .where(
        _P.log_id == _LOG,
        _P.branch == bindparam("of_branch"),
        _P.status == bindparam("of_status"),
        _P.ended_pos <= bindparam("upto"),
    )
    .order_by(_P.ended_pos.desc())
    .limit(1),
    "branches": select(_B.name, _B.head, _B.tip).where(_B.log_id == _LOG).order_by(_B.created_pos),
    "landmarks": select(LANDMARK_ROWS.c.position)
    .where(LANDMARK_ROWS.c.log_id == _LOG)
    .order_by(LANDMARK_ROWS.c.position),
    "world": select(*_WORLD).where(_W.log_id == _LOG, _W.world_id == bindparam("of_world")),
    "children": select(*_WORLD)
    .where(_W.log_id == _LOG, _W.parent == bindparam("of_world"))
    .order_by(_W.position + 0),  # ordered by the column alone, SQLite would read all worlds in the order of an index
    "sealed": select(func.count()).where(
        EVENTS.c.id > bindparam("low", type_=BigInteger),
        EVENTS.c.id <= bindparam("high", type_=BigInteger),
        EVENTS.c.topic == WorldSealed.TOPIC,
    ),
    "worlds": select(*_WORLD).where(_W.log_id == _LOG).order_by(_W.position.desc()).limit(bindparam("most")),
    "worlds_before": select(*_WORLD)
    .where(_W.log_id == _LOG, _W.position < bindparam("before"))
    .order_by(_W.position.desc())
    .limit(bindparam("most")),
    "world_prefix": _prefix(_W.world_id, _W.log_id, _W.world_id),
    "proposal_prefix": _prefix(_P.proposal_id, _P.log_id, _P.proposal_id),
    "intent_prefix": _prefix(_P.proposal_id, _P.log_id, _P.intent_id),
    "proposals_by_key": select(_P.proposal_id)
    .where(_P.log_id == _LOG, _P.intent_key == bindparam("of_key"))
    .order_by(_P.attempt),
    "ended_counts": select(_P.status, func.count())
    .where(_P.log_id == _LOG, _P.ended_pos <= bindparam("upto"))
    .group_by(_P.status),
    "checkpoint": select(CHECKPOINTS.c.data).where(
        CHECKPOINTS.c.log_id == _LOG, CHECKPOINTS.c.world_id == bindparam("of_world")
    ),
} | {
    f"clear_{table.name}": delete(table).where(table.c.log_id == _LOG)
    for table in (*METADATA.tables.values(), *KEYS_METADATA.tables.values())
}


def compiled_statement(name: str, backend: Backend) -> SqlStatement:
    """Compile one of the index's statements for a backend."""
    return compiled(_insert_request(backend) if name == "insert_request" else SOURCES[name], backend)


@cache
def compiled_history(conditions: frozenset[str], backend: Backend, counted: bool) -> SqlStatement:
    """Compile ``world.read_models.index_sql.queries.history_query``."""
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
    first = select(_P.proposal_id, _P.submitted_pos).order_by(_P.submitted_pos).limit(bindparam("most"))
    query = select(func.count()).select_from(PROPOSALS) if counted else first
    query = query.where(_P.log_id == _LOG, _P.submitted_pos < before)
    for name in sorted(conditions):
        query = query.where(tests[name])
    return compiled(query, backend)


COMPARED: Final[Mapping[str, Any]] = {
    "actor_id": _P.actor_id,
    "action": _P.action,
    "intent_key": _P.intent_key,
    "decision": _P.decision,
    "outcome": _P.status,
}
"""Column that each condition of a history compares with its value."""


@cache
def compiled_history_rows(conditions: frozenset[str], backend: Backend) -> SqlStatement:
    """Compile ``world.read_models.index_sql.queries.history_rows``."""
    since: Any = _P.submitted_pos
    if "outcome" in conditions:
        since = _P.ended_pos
    elif "decision" in conditions:
        since = _P.decided_pos
    query = select(_P.submitted_at, since).where(_P.log_id == _LOG, since.is_not(None)).limit(bindparam("most"))
    for name in sorted(conditions):
        query = query.where(COMPARED[name] == bindparam(name))
    return compiled(query, backend)


# Writing rows

_INSERTED: Final[Mapping[str, Table]] = {
    "insert_proposal": PROPOSALS,
    "insert_world": WORLDS,
    "insert_branch": BRANCHES,
    "insert_landmark": LANDMARK_ROWS,
    "insert_verdict": VERDICTS,
    "insert_run": RUNS,
    "insert_request": REQUESTS,
}
_UPDATED: Final[Mapping[str, tuple[Table, Mapping[str, str], Mapping[str, str], bool]]] = {
    "update_proposal": (
        PROPOSALS,
        {"proposal_id": "of_proposal"},
        {"status": "new_status", "decision": "new_decision", "decided_pos": "new_decided", "ended_pos": "new_ended"},
        True,
    ),
    "update_branch": (BRANCHES, {"name": "of_branch"}, {"head": "new_head", "tip": "new_tip"}, True),
    "close_run": (RUNS, {"run_id": "of_run"}, {"closed_pos": "new_closed"}, False),
}
"""Of each update: the table, its keys and its changed columns with the members that hold them, and whether an absent
value leaves the column as it is."""


@cache
def written_at_once(names: tuple[str, ...]) -> str:
    """Return one statement for several changes; the parameters of each are its rows as JSON, and the log."""
    parts = [_insertion(_INSERTED[name]) if name in _INSERTED else _update(*_UPDATED[name]) for name in names]
    before = ", ".join(f"change{number} AS ({part})" for number, part in enumerate(parts[:-1]))
    return f"WITH {before} {parts[-1]}" if before else parts[-1]


def _insertion(table: Table) -> str:
    columns = [column.name for column in table.columns if column.name != "log_id"]
    names = ", ".join(columns)
    given = _given(table, {name: name for name in columns})
    insertion = f"INSERT INTO {table.name} ({names}, log_id) SELECT {names}, known.log_id FROM {given}, {_OF_LOG}"
    if table is not REQUESTS:
        return insertion
    return (
        f"{insertion} ON CONFLICT{compiled_statement('insert_request', 'postgresql').sql.partition(' ON CONFLICT')[2]}"
    )


def _update(table: Table, keys: Mapping[str, str], changed: Mapping[str, str], keeps: bool) -> str:
    def value(column: str, member: str) -> str:
        return f"coalesce(given.{member}, {table.name}.{column})" if keeps else f"given.{member}"

    sets = ", ".join(f"{column} = {value(column, member)}" for column, member in changed.items())
    same = " AND ".join(f"{table.name}.{column} = given.{member}" for column, member in keys.items())
    given = _given(table, {**keys, **changed})
    return f"UPDATE {table.name} SET {sets} FROM {given}, {_OF_LOG} WHERE {table.name}.log_id = known.log_id AND {same}"


_OF_LOG: Final = "(SELECT %s::INTEGER AS log_id) AS known"


def _given(table: Table, members: Mapping[str, str]) -> str:
    """Return the rows of a JSON parameter, with the types of the columns that its members are for."""
    spoken = dialect("postgresql")
    types = (f"{member} {table.c[column].type.compile(dialect=spoken)}" for column, member in members.items())
    return f"json_to_recordset(%s::json) AS given ({', '.join(types)})"
