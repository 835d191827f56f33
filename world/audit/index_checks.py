"""Comparison of the index with the events: complete for a small log, by samples for a large one.

Always compared are branches, landmarks, row counts, every checkpoint (states are restored from them) and the copy of
the lease ledger; missing checkpoints and copies are reported. Of a large log only every n-th proposal and world is
compared. Tables of an index that ``wp_view`` does not record are reported too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final
from zlib import crc32

from sqlalchemy import bindparam, func, select

from world.audit.replay import KnownWorld
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import BranchCreated, WorldSealed
from world.events.run_events import RunClosed, RunOpened
from world.klis.ledger import Ledger
from world.klis.ledger_codec import read_ledger
from world.log import EventLog, SqlStatement, compiled
from world.log.schema import LogSchemaFault, schema_faults
from world.log.sql.queries import statements
from world.log.url import Backend
from world.log.views import OF_ALL_LOGS, ViewState
from world.model.canonical_json import canonical_bytes, read_json
from world.read_models.checkpoints import MAX_STEPS
from world.read_models.index import KEYS_NAME, KEYS_VERSION, VIEW_NAME, VIEW_VERSION, has_new_copy, statement
from world.read_models.index_tables import CHECKPOINTS, KEYS_METADATA, METADATA, PROPOSALS, RUNS, VERDICTS, WORLDS
from world.read_models.request_keys import request_of
from world.state.proposal import PROPOSAL_EVENTS
from world.state.realm_state import LANDMARKS, RealmState

WHOLE: Final = 20_000
"""Maximum size of a log whose index is compared completely, in events."""

SAMPLES: Final = 2_000
"""Approximate number of proposals, and of worlds, that are compared for a larger log."""

KEYS_EACH: Final = 64
"""Of how many keys of a larger log one is compared."""

_COUNTED: Final[dict[type[Event], str]] = {
    ProposalSubmitted: "proposals",
    WorldSealed: "worlds",
    VerdictGiven: "verdicts",
    RunOpened: "runs",
}
"""Tables of which each event of a type has a row."""

_ENDED: Final = {"proposal.completed": "completed", "proposal.failed": "failed", "proposal.superseded": "superseded"}


def unreadable(log: EventLog) -> str | None:
    """Return why a table of the index cannot be read, for example because it is missing; None if all can be read."""
    try:
        keys = KEYS_METADATA.sorted_tables if _has_keys(log) else ()
        for table in (*METADATA.sorted_tables, *keys):
            log.query(compiled(select(func.max(table.c.log_id)), log.backend))
    except DamagedLogError as damage:
        return str(damage.details.get("reason", damage.code))
    return None


def table_faults(log: EventLog) -> list[LogSchemaFault]:
    """Compare the tables of the log's store and of its index with those that this program creates.

    The tables of an index of another version are left out, because opening the log for writing rebuilds them.

    Raises:
        DamagedLogError: the database cannot read its own schema.
    """
    rows = log.query(statements(log.backend).read_views, view_log=OF_ALL_LOGS)
    versions = {name: version for name, version, _ in rows}
    known = {VIEW_NAME: (VIEW_VERSION, METADATA), KEYS_NAME: (KEYS_VERSION, KEYS_METADATA)}
    views = {name: tables for name, (version, tables) in known.items() if versions.get(name) == version}
    return schema_faults(log.query, log.backend, views)


def _has_keys(log: EventLog) -> bool:
    """Return whether the log keeps the keys of requests, up to its last event; one of an earlier release does not."""
    view = log.view_state(KEYS_NAME)
    return view is not None and view.live and view.version == KEYS_VERSION


Note = Callable[[Any, int, KnownWorld | None], None]
"""Adds an event to the expected rows: the event, its position and the world that was restored last."""


class IndexAudit:
    """Comparison of the index with the rows that are expected from the events of one pass."""

    def __init__(self, log: EventLog) -> None:
        """Read the state of the log's index."""
        self._size = size = log.stored_head().size  # read first: later reads may include later events
        view = log.view_state(VIEW_NAME)
        is_live = view is not None and view.live and view.version == VIEW_VERSION
        self.extent = "none" if not is_live else "whole" if size <= WHOLE else "sample"
        self._log = log
        self._every = 1 if size <= WHOLE else max(1, size // (6 * SAMPLES))
        self._proposals: dict[str, dict[str, Any]] = {}
        self._worlds: dict[str, tuple[Any, ...]] = {}
        self._landmarks: list[int] = []
        self._places: dict[str, int] = {}  # positions of the creation of branches
        self._counts: Counter[str] = Counter()
        self._lost: DamagedLogError | None = None
        self._unrecorded = _unrecorded(log, view)
        self._interval = self._recorded_interval() if is_live else None
        self._checkpoints = self._checkpointed() if is_live else set()
        self._bad_checkpoints: list[tuple[int, str]] = []
        self._kept = self._kept_ledger() if is_live else None
        self._has_copy = self._kept is not None
        self.copied_at = None if self._kept is None else self._kept[0]  # an event after which a copy is compared
        self._verdicts: dict[str, tuple[int, str, str]] = {}
        self._runs: dict[str, list[Any]] = {}
        self._keys: KeyAudit | None = KeyAudit(log) if is_live and _has_keys(log) else None

    def take(self, event: Event, position: int, world: KnownWorld | None) -> None:
        """Add a folded event to the expected rows.

        Args:
            event: the event.
            position: its position.
            world: the world that was restored last.
        """
        note = self.note_of(type(event))
        if note is not None:
            note(event, position, world)

    def note_of(self, kind: type[Event]) -> Note | None:
        """Return the function that ``take`` calls with an event of a type; None where it adds nothing."""
        if self.extent == "none":
            return None
        note, keys = self._note_of(kind), self._keys
        if keys is None or "verified" not in kind.__struct_fields__:
            return note

        def both(event: Event, position: int, world: KnownWorld | None) -> None:
            keys.take(event, position)
            if note is not None:
                note(event, position, world)

        return both

    def _note_of(self, kind: type[Event]) -> Note | None:
        if kind is ProposalSubmitted:
            return self._submitted
        if kind in PROPOSAL_EVENTS:
            return self._proposal
        notes: Mapping[type[Event], Note] = {
            BranchCreated: self._branched,
            WorldSealed: self._sealed,
            VerdictGiven: self._verdict,
            RunOpened: self._opened,
            RunClosed: self._closed,
        }
        return notes.get(kind) or (self._landmark if kind.TOPIC in LANDMARKS else None)

    def pass_over(self, kind: type[Event]) -> None:
        """Count an event whose content was removed."""
        name = _COUNTED.get(kind)
        if name is not None:
            self._counts[name] += 1

    def take_ledger(self, position: int, ledger: Ledger) -> None:
        """Compare the stored copy of the lease ledger if it was taken after the event at a position."""
        if self._kept is not None and position == self._kept[0]:
            if not self._is_copy_of(self._kept[2], ledger):
                self._bad_checkpoints.append((position, "the copy of the lease ledger differs from the events"))
            self._kept = self.copied_at = None

    def problems(self, realm: RealmState) -> Iterator[tuple[int, str]]:
        """Yield a position and a sentence for each difference between the index and the events.

        If events were appended during the pass, the index cannot be compared with the checked ones: nothing is yielded,
        and ``extent`` is ``none``.
        """
        found = list(self._problems(realm))
        if self._size == realm.position and not self._log.audit_rows(realm.position, 1):
            yield from found
        else:  # a concurrent append, or the last tree heads are missing
            self.extent = "none"

    def _problems(self, realm: RealmState) -> Iterator[tuple[int, str]]:
        advice = "; rebuild the index with `worldctl doctor --rebuild`"
        if self._unrecorded is not None:
            yield realm.position, self._unrecorded + advice
        if self.extent == "none":
            return
        try:
            if self._lost is not None:
                raise self._lost
            for position, message in self._differences(realm):
                yield position, message + advice
        except DamagedLogError as damage:  # a table is missing, or its pages are damaged
            yield realm.position, f"the index cannot be read ({damage.details.get('reason', damage.code)}){advice}"

    def _checkpointed(self) -> set[str]:
        """Return the ids of the worlds with checkpoints."""
        try:
            return {row[0] for row in self._rows("checkpointed")}
        except DamagedLogError as damage:
            self._lost = damage
            return set()

    def _recorded_interval(self) -> int | None:
        """Return the recorded number of worlds between two checkpoints."""
        try:
            rows = self._indexed("settings")
        except DamagedLogError as damage:
            self._lost = damage
            return None
        return int(rows[0][0]) if rows and type(rows[0][0]) is int and rows[0][0] > 0 else None

    @staticmethod
    def _is_copy_of(copy: str, ledger: Ledger) -> bool:
        """Return whether a copy decodes to the ledger; copies of earlier programs can have another text."""
        try:
            return read_ledger(read_json(copy)) == ledger
        except (RefusedError, DamagedLogError):
            return False

    def _kept_ledger(self) -> tuple[Any, ...] | None:
        """Return the copy of the lease ledger: position, version, JSON."""
        try:
            rows = self._indexed("ledger")
        except DamagedLogError as damage:
            self._lost = damage
            return None
        return tuple(rows[0]) if rows else None

    def _differences(self, realm: RealmState) -> Iterator[tuple[int, str]]:
        yield from self._bad_checkpoints
        if self._kept is not None:
            yield (
                realm.position,
                f"the copy of the lease ledger has the position {self._kept[0]}, which is not an event of the log",
            )
        if not self._has_copy and has_new_copy(realm.klis_version, 0, len(realm.klis.leases)):
            yield realm.position, f"the copy of the lease ledger is missing after {realm.klis_version} events of leases"
        if self._interval is None:
            yield realm.position, "the index does not record the number of worlds between two checkpoints"
        stored = {name: (head, tip) for name, head, tip in self._indexed("branches")}
        if stored != {name: (branch.head, branch.tip) for name, branch in realm.branches.items()}:
            yield realm.position, "the branches in the index differ from those of the events"
        if dict(map(tuple, self._indexed("branch_places"))) != self._places:
            yield realm.position, "the positions of the branches in the index differ from those of the events"
        if [row[0] for row in self._indexed("landmarks")] != self._landmarks:
            yield realm.position, "the landmarks in the index differ from those of the events"
        for name in ("proposals", "worlds", "verdicts", "runs"):
            [(number,)] = self._rows(f"count_{name}")
            if number != self._counts[name]:
                yield realm.position, f"the index has {number} {name}, the events have {self._counts[name]}"
        if self._keys is not None:
            for message in self._keys.differences(0 if realm.archived is None else realm.archived.upto):
                yield realm.position, message
        yield from self._row_differences()

    def _row_differences(self) -> Iterator[tuple[int, str]]:
        for verdict_id, verdict in self._verdicts.items():
            rows = [tuple(row) for row in self._indexed("verdict", of_verdict=verdict_id)]
            if rows != [verdict]:
                yield verdict[0], f"the index has {rows} for verdict {verdict_id}"
        for run_id, line in self._runs.items():
            rows = [tuple(row) for row in self._indexed("run", of_run=run_id)]
            if rows != [tuple(line)]:
                yield line[3], f"the index has {rows} for run {run_id}"
        for world_id, expected in self._worlds.items():
            rows = [tuple(row) for row in self._indexed("world", of_world=world_id)]
            if rows != [expected]:
                yield expected[3], f"the index has {rows} for world {world_id}"
        for proposal_id, row in self._proposals.items():
            rows = self._rows("proposal", of_proposal=proposal_id)
            if [tuple(values) for values in rows] != [tuple(row.values())]:
                yield row["submitted_pos"], f"the index has {rows} for proposal {proposal_id}"

    def _branched(self, event: BranchCreated, position: int, _: KnownWorld | None) -> None:
        self._places[event.branch] = position

    def _landmark(self, _event: Event, position: int, _: KnownWorld | None) -> None:
        self._landmarks.append(position)

    def _verdict(self, event: VerdictGiven, position: int, _: KnownWorld | None) -> None:
        self._counts["verdicts"] += 1
        if self._counts["verdicts"] % self._every == 0:
            self._verdicts[event.verdict_id] = position, event.request_id, event.status

    def _opened(self, event: RunOpened, position: int, _: KnownWorld | None) -> None:
        self._counts["runs"] += 1
        if self._counts["runs"] % self._every == 0:
            self._runs[event.run_id] = [event.run_id, event.agent_id, event.session_id, position, None]

    def _closed(self, event: RunClosed, position: int, _: KnownWorld | None) -> None:
        if event.run_id in self._runs:
            self._runs[event.run_id][-1] = position

    def _sealed(self, event: WorldSealed, position: int, world: KnownWorld | None) -> None:
        self._counts["worlds"] += 1
        if self._counts["worlds"] % self._every == 0:
            row = event.world_id, event.parent, event.height, position, event.branch, event.outcome
            self._worlds[event.world_id] = row
        if event.world_id in self._checkpoints and world is not None:
            try:
                [(data,)] = self._indexed("checkpoint", of_world=event.world_id)
            except DamagedLogError as damage:
                self._lost = damage
                return
            if not isinstance(data, str) or data.encode("utf-8", "surrogateescape") != canonical_bytes(world.data):
                self._bad_checkpoints.append(
                    (position, f"the checkpoint of world {event.world_id} differs from its data")
                )
        elif world is not None and 0 < (self._interval or 0) <= MAX_STEPS and event.height % (self._interval or 1) == 0:
            self._bad_checkpoints.append((position, f"the checkpoint of world {event.world_id} is missing"))

    def _submitted(self, event: ProposalSubmitted, position: int, _: KnownWorld | None) -> None:
        self._counts["proposals"] += 1
        if self._counts["proposals"] % self._every == 0:
            self._proposals[event.proposal_id] = _new_row(event, position)

    def _proposal(self, event: Any, position: int, _: KnownWorld | None) -> None:
        row = self._proposals.get(event.proposal_id)
        if row is None:
            return
        topic = event.TOPIC
        if topic == "proposal.judged":
            row["status"] = "evaluating"
        elif topic == "execution.started":
            row["status"] = "executing"
        elif topic == "decision.made":
            decision = event.decision.decision
            row |= {"status": decision, "decision": decision, "decided_pos": position}
            if decision == "rejected":
                row["ended_pos"] = position
        elif topic in _ENDED:
            row |= {"status": _ENDED[topic], "ended_pos": position}

    def _indexed(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._log.query(statement(name, self._log.backend), of_log=self._log.log_id, **values)

    def _rows(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._log.query(_statement(name, self._log.backend), of_log=self._log.log_id, **values)


class KeyAudit:
    """Comparison of the keys of requests with the events; of a large log, of one key among many.

    Args:
        log: the log, which keeps them.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._every = 1 if log.stored_head().size <= WHOLE else KEYS_EACH
        self._rows: dict[tuple[str, str], list[Any]] = {}

    def take(self, event: Event, position: int) -> None:
        """Add an event to the expected rows."""
        requested = request_of(event)
        if requested is not None and crc32(requested.key.encode()) % self._every == 0:
            row = self._rows.setdefault((requested.actor_id, requested.key), [requested.request, position, position])
            row[2] = position

    def differences(self, archived: int) -> Iterator[str]:
        """Yield a sentence for each difference; of a cut log, keys of removed events may be there.

        Args:
            archived: position up to which contents of events may have been removed.
        """
        stored = self._stored()
        for owner, row in self._rows.items():
            found = stored.pop(owner, None)
            if found is None or (found != row and not (_reaches(found, archived) and found[2] == row[2])):
                yield f"the index has {found} for the key {owner[1]} of {owner[0]!r}, and the events {row}"
        for (actor_id, key), row in stored.items():
            if not _reaches(row, archived):
                yield f"the index has a key {key} of {actor_id!r}, which no event has"

    def _stored(self) -> dict[tuple[str, str], list[Any]]:
        """Return the stored rows: all of them, or those of the keys that are compared."""
        log, mine = self._log, {"of_log": self._log.log_id}
        if self._every == 1:
            rows = log.query(statement("requests", log.backend), **mine)
            return {(actor_id, key): row for actor_id, key, *row in rows}
        one = statement("request", log.backend)
        found = {owner: log.query(one, **mine, of_actor=owner[0], of_key=owner[1]) for owner in self._rows}
        return {owner: list(rows[0]) for owner, rows in found.items() if rows}


def _reaches(row: Sequence[Any], archived: int) -> bool:
    """Return whether the first event of a key may be one whose content was removed."""
    return type(row[1]) is int and row[1] <= archived


def _unrecorded(log: EventLog, view: ViewState | None) -> str | None:
    """Return a sentence if ``wp_view`` does not record an existing index; None otherwise."""
    try:
        recorded = {name for name, *_ in log.query(statements(log.backend).read_views, view_log=OF_ALL_LOGS)}
        rows = [log.query(_statement(f"any_{table.name}", log.backend), of_log=log.log_id) for table in _TABLES]
    except DamagedLogError:
        return None  # the tables are missing or damaged, which other checks report
    if VIEW_NAME not in recorded:
        return "wp_view does not record the version of the tables of the index"
    return "wp_view does not record the position of the index" if view is None and any(rows) else None


def _new_row(event: ProposalSubmitted, position: int) -> dict[str, Any]:
    """Return the row of a new proposal, made without the code of the index that is checked."""
    return {
        "intent_id": event.intent.intent_id,
        "intent_key": event.intent.intent_key,
        "attempt": event.attempt,
        "actor_id": event.actor.actor_id,
        "action": event.intent.body.type,
        "branch": event.branch,
        "status": "submitted",
        "submitted_at": event.at,
        "submitted_pos": position,
        "decision": None,
        "decided_pos": None,
        "ended_pos": None,
    }


_TABLES: Final = tuple(METADATA.sorted_tables)
_COLUMNS: Final = tuple(column for column in PROPOSALS.c if column.name not in ("log_id", "proposal_id"))


@cache
def _statement(name: str, backend: Backend) -> SqlStatement:
    """Return one of this module's statements, compiled for a backend."""
    mine: Any = bindparam("of_log")
    sources: dict[str, Any] = {
        "proposal": select(*_COLUMNS).where(
            PROPOSALS.c.log_id == mine, PROPOSALS.c.proposal_id == bindparam("of_proposal")
        ),
        "count_proposals": select(func.count()).select_from(PROPOSALS).where(PROPOSALS.c.log_id == mine),
        "count_worlds": select(func.count()).select_from(WORLDS).where(WORLDS.c.log_id == mine),
        "count_runs": select(func.count()).select_from(RUNS).where(RUNS.c.log_id == mine),
        "count_verdicts": select(func.count()).select_from(VERDICTS).where(VERDICTS.c.log_id == mine),
        **{
            f"any_{table.name}": select(table.c.log_id).where(table.c.log_id == mine).limit(1)
            for table in METADATA.tables.values()
        },
        "checkpointed": select(CHECKPOINTS.c.world_id).where(CHECKPOINTS.c.log_id == mine),
    }
    return compiled(sources[name], backend)
