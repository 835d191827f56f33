"""Access to past worlds and ended proposals, read from the log through the index."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

import orjson

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import DomainAdopted, WorldSealed
from world.log import EventLog, LoggedEvent
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import apply_patches
from world.model.snapshot import error_state_hash
from world.read_models.decoding import decoded, registry_events
from world.read_models.index import VIEW_NAME, VIEW_VERSION, history_query, history_rows, statement
from world.read_models.live.expectations import Expectations
from world.read_models.live.live_state import LiveState
from world.read_models.live.state_loading import (
    check_recent,
    event_at,
    fold_realm,
    index_damaged,
    load_realm,
    stored_proposal,
)
from world.read_models.request_keys import events_with_key
from world.state.ports import Earlier, LookupConditions
from world.state.proposal import Proposal
from world.state.realm_state import RealmState
from world.state.realm_view import RealmView, view_of
from world.state.recent_commits import RecentAttempts, RecentWorlds

if TYPE_CHECKING:
    from world.pipeline.preparation.snapshots import SnapshotCache

KEPT_STATES: Final = 64
"""Number of states of worlds in the cache of recently used ones."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class WorldRow:
    """Position of a world in the lineage and in the log."""

    world_id: str
    parent: str | None
    height: int
    position: int
    branch: str
    outcome: str


def _input(event: Event) -> tuple[str, Any]:
    if not isinstance(event, ProposalSubmitted):
        raise index_damaged()
    return event.proposal_id, event.intent.body.input


class Archive:
    """Reader of one log through its index; thread-safe if the log is."""

    def __init__(self, log: EventLog) -> None:
        """Create a reader of an open log."""
        self._log = log
        self._states: OrderedDict[str, FrozenDict] = OrderedDict()
        self.missed = 0
        """How many look-ups needed contents that a cut removed; audits leave out what depends on them."""
        self.recent = RecentWorlds()
        """The worlds that were sealed lately; the state that is published adds them."""
        self.attempts = RecentAttempts()
        """How often intents were tried lately; only a hint, which a submission compares under the log's lock."""
        self._keeping = threading.Lock()
        self.expectations = Expectations(self._follow)
        """Futures of what the log will say; each publication of the state completes those that it concerns."""
        self._live = LiveState(
            log,
            lambda: self.load_realm(),  # noqa: PLW0108
            self._note,
            self._note_loaded,
            self.attempts.note_others,
        )

    @property
    def log(self) -> EventLog:
        """The log that is read."""
        return self._log

    def _follow(self) -> RealmView:
        """Return the state for waiting callers, who get ``LOG_MOVED`` where the file is not the log any more."""
        self._log.check_place()
        return self.realm()

    def rows(self, name: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one of the index's statements on committed data.

        Args:
            name: the statement (``world.read_models.index_sql.index_statements``).
            values: the statement's parameters, without the log.

        Raises:
            RefusedError: ``INDEX_NOT_CURRENT`` when the log was opened read-only and its index is behind it; a writer
                keeps the index current.
            DamagedLogError: ``LOG_DAMAGED`` when a table of the index is missing.
        """
        self._check_current()
        query = statement(name, self._log.backend)
        return [tuple(row) for row in self._log.query(query, of_log=self._log.log_id, **(values or {}))]

    def check_complete(self) -> None:
        """Compare the newest rows of the index with their events (``check_recent``).

        Callers that list rows call this first, so that missing rows cause an error instead of a shorter list.

        Raises:
            RefusedError: ``INDEX_NOT_CURRENT``; see ``rows``.
            DamagedLogError: ``INDEX_DAMAGED`` where there are too few or too many rows.
        """
        check_recent(self._log, self)

    def check_worlds(self, rows: Sequence[WorldRow], upto: int) -> None:
        """Compare the newest worlds up to a position, as the index lists them, with the events that sealed them.

        Args:
            rows: the worlds, newest first.
            upto: the position.

        Raises:
            DamagedLogError: ``INDEX_DAMAGED`` where a row is missing between them, or too many are there.
        """
        span = self._log.keys(rows[-1].position - 1 if rows else 0, upto)
        [(sealed,)] = self.rows("sealed", span)
        if sealed != len(rows):
            raise index_damaged(f"it has {len(rows)} worlds up to event {upto}, and the log {sealed}")

    @property
    def is_current(self) -> bool:
        """Whether the index covers all events of the log."""
        view = self._log.view_state(VIEW_NAME)
        return view is not None and view.live and view.version == VIEW_VERSION

    def _check_current(self) -> None:
        if self._log.read_only and not self.is_current and not self._log.derive_view():
            raise RefusedError(
                ErrorCode.INDEX_NOT_CURRENT,
                "The index does not cover all events of the log, and the log was opened read-only. Open it once for "
                "writing, or run `worldctl doctor --rebuild`.",
            )

    # Worlds

    def find_world(self, world_id: str) -> WorldRow | None:
        """Return the position of a world, or None when it does not exist."""
        rows = self.rows("world", {"of_world": world_id})
        if not rows:
            return None
        row = WorldRow(*rows[0])
        if type(row.position) is not int or type(row.height) is not int:
            raise index_damaged()
        return row

    def world(self, world_id: str) -> WorldRow:
        """Return the position of a world.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``.
        """
        row = self.find_world(world_id)
        if row is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_WORLD,
                f"World {world_id!r} does not exist; list them with `worldctl worlds`.",
                world_id=world_id,
            )
        return row

    def sealed(self, world_id: str) -> WorldSealed:
        """Return the event that sealed a world.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``.
        """
        return self.recent.sealed(world_id) or self._sealed_at(self.world(world_id))

    def state(self, world_id: str) -> FrozenDict:
        """Return the data of a world, restored from the nearest known state and the later patches (WP-restore).

        Raises:
            RefusedError: ``UNKNOWN_WORLD``.
        """
        data, chain = self._recent_state(world_id) or self._stored_state(world_id)
        for event in reversed(chain):
            data = apply_patches(data, event.patches)
        self.keep(world_id, data)
        return data

    def _recent_state(self, world_id: str) -> tuple[FrozenDict, list[WorldSealed]] | None:
        """Return the nearest cached state, and the worlds sealed after it, newest first; None where a query is needed.

        A process that takes in what others committed decides on the newest of their worlds under the log's lock, so
        a look for a checkpoint of each of them would keep all others waiting.
        """
        chain: list[WorldSealed] = []
        at: str | None = world_id
        while at is not None:
            data = self._states.get(at)
            if data is not None:
                return data, chain
            event = self.recent.sealed(at)
            if event is None:
                return None
            chain.append(event)
            at = event.parent
        return None

    def _stored_state(self, world_id: str) -> tuple[FrozenDict, list[WorldSealed]]:
        """Return the nearest state that is cached or stored, and the worlds after it, newest first."""
        chain: list[WorldSealed] = []
        at: str | None = world_id
        while at is not None:
            data = self._states.get(at) or self._checkpoint(at)
            if data is not None:
                return data, chain
            event = self.sealed(at) if at == world_id else self._parent(at)
            if event.data is not None:
                return freeze(event.data), chain
            chain.append(event)
            at = event.parent
        raise DamagedLogError(ErrorCode.NO_GENESIS, f"World {world_id} has no ancestor with data.", world_id=world_id)

    def checked_state(self, world_id: str) -> FrozenDict:
        """Return the data of a world after comparing it with the world's snapshotHash.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``.
            DamagedLogError: ``STATE_DAMAGED`` where patches or checkpoints yield a different hash.
        """
        sealed, data = self.sealed(world_id), self.state(world_id)
        if error_state_hash(data, sealed.error) != sealed.snapshot_hash:
            raise DamagedLogError(
                ErrorCode.STATE_DAMAGED,
                f"The restored data of world {world_id[:12]} does not have the sealed hash, so it is not used. Run "
                "`worldctl verify`.",
                world_id=world_id,
            )
        return data

    def keep(self, world_id: str, data: FrozenDict) -> None:
        """Cache the state of a world that is likely to be requested again."""
        with self._keeping:
            self._states[world_id] = data
            self._states.move_to_end(world_id)
            while len(self._states) > KEPT_STATES:
                self._states.popitem(last=False)

    def keep_states(self, events: Iterable[Event], snapshots: SnapshotCache) -> None:
        """Cache the states of the worlds that committed events sealed; ``snapshots`` may have them."""
        for event in events:
            if isinstance(event, WorldSealed) and (snapshot := snapshots.get(event.world_id)) is not None:
                self.keep(event.world_id, snapshot.data)

    def _checkpoint(self, world_id: str) -> FrozenDict | None:
        rows = self.rows("checkpoint", {"of_world": world_id})
        if not rows:
            return None
        try:
            data = freeze(orjson.loads(rows[0][0]))
        except (ValueError, TypeError, RefusedError):  # not JSON, or not a valid state
            data = None
        if not isinstance(data, FrozenDict):
            raise index_damaged(f"its checkpoint of world {world_id[:12]} cannot be read")
        return data

    def _parent(self, world_id: str) -> WorldSealed:
        known = self.recent.sealed(world_id)
        if known is not None:
            return known
        row = self.find_world(world_id)
        if row is None:  # the events refer to it, so the index is wrong
            raise index_damaged()
        return self._sealed_at(row)

    def event_at(self, position: int) -> LoggedEvent:
        """Return the event at a position from the index; see ``world.read_models.live.state_loading.event_at``."""
        return event_at(self._log, position)

    def _sealed_at(self, row: WorldRow) -> WorldSealed:
        event = decoded(self.event_at(row.position))
        if not isinstance(event, WorldSealed) or event.world_id != row.world_id:
            raise index_damaged()
        return event

    # Proposals

    def proposal(self, proposal_id: str, upto: int | None = None) -> Proposal:
        """Return an open or ended proposal, the caller's own.

        An open one is that of the live state; an ended one is folded from its stream, unless it ended lately.

        Args:
            proposal_id: the proposal.
            upto: position of the last event to apply; None applies all.

        Raises:
            RefusedError: ``UNKNOWN_PROPOSAL``; ``NOT_FOUND`` where it was submitted after ``upto``.
        """
        if upto is None:
            live = self._live.view().proposals.get(proposal_id) or self._live.ended(proposal_id)
            if live is not None:
                return live.copy()
        return stored_proposal(self._log, proposal_id, upto)

    def count(self, before: int, **conditions: Unpack[LookupConditions]) -> int:
        """Count proposals submitted before a position, under the conditions of ``world.state.ports.History``.

        Raises:
            RefusedError: as ``rows``.
            DamagedLogError: as ``rows``.
        """
        self._check_current()
        query = history_query(conditions, self._log.backend)
        rows = self._log.query(query, of_log=self._log.log_id, before=before, **conditions)
        return int(rows[0][0])

    def earlier(self, before: int, most: int, **conditions: Unpack[LookupConditions]) -> list[Earlier]:
        """Return the first ``most`` of the proposals that ``count`` counts, in the order of the log.

        Raises:
            RefusedError: as ``rows``.
            DamagedLogError: as ``rows``.
        """
        self._check_current()
        query = history_query(conditions, self._log.backend, counted=False)
        rows = self._log.query(query, of_log=self._log.log_id, before=before, most=most, **conditions)
        return [Earlier(*row) for row in rows]

    def moments(self, most: int, conditions: Mapping[str, str]) -> list[tuple[int, int]]:
        """Return up to ``most`` proposals that match conditions (``world.read_models.index.COMPARED``).

        Returns:
            For each its time of submission, ms since 1970-01-01 UTC, and the position from which on it matches; in no
            particular order.

        Raises:
            RefusedError: as ``rows``.
            DamagedLogError: as ``rows``.
        """
        self._check_current()
        query = history_rows(conditions, self._log.backend)
        return self._log.query(query, of_log=self._log.log_id, most=most, **conditions)

    def inputs(self, found: Sequence[Earlier]) -> list[tuple[str, Any]]:
        """Return the ids of proposals and the inputs of their intents.

        Args:
            found: proposals in the order of the log.

        Raises:
            RefusedError: ``EVENT_ARCHIVED`` where the content of one was removed.
            DamagedLogError: ``INDEX_DAMAGED`` where a proposal is not at its indexed position; ``EVENT_CHANGED``.
        """
        inputs: list[tuple[str, Any]] = []
        try:
            for logged in self._log.events_at([one.position for one in found]):
                inputs += [_input(decoded(one)) for one in logged]
        except RefusedError as refused:
            self.missed += refused.code == ErrorCode.EVENT_ARCHIVED
            raise
        if [proposal_id for proposal_id, _ in inputs] != [one.proposal_id for one in found]:
            raise index_damaged()
        return inputs

    # The realm

    @property
    def live(self) -> LiveState:
        """The live state of the log in this process."""
        return self._live

    def realm(self) -> RealmView:
        """Return the realm as of the last commit, an immutable view that all readers of the process share."""
        return self._live.view()

    def seen(self) -> RealmView:
        """Return the realm as this process saw it last, without a look for commits of others."""
        return self._live.published or self._live.view()

    def peek(self, question: Callable[[RealmView], R]) -> R:
        """Return the result of a function of the realm as of the last commit."""
        return question(self._live.view())

    def load_realm(self) -> RealmState:
        """Return the realm as of the last commit, from the index if it is live, otherwise by folding the log."""
        return load_realm(self._log, self)

    def fold_realm(self, upto: int | None = None) -> RealmView:
        """Return the realm after the event at a position, folded from the first event on; None folds all."""
        return view_of(fold_realm(self._log, upto))

    def _note(self, events: Sequence[Event]) -> None:
        """Remember worlds and attempts at intents, as they are published, and complete expectations."""
        for event in events:
            if isinstance(event, WorldSealed):
                self.recent.add(event)
            elif isinstance(event, ProposalSubmitted):
                self.attempts.add(event)
        self.expectations.note(events)

    def _note_loaded(self) -> None:
        """Forget what was remembered of publications: a loaded state replaces the present one."""
        self.recent.clear()
        self.attempts.note_others()
        self.expectations.note_all()

    def ledger_position(self) -> tuple[int, int]:
        """Return the log position and the ledger version of the ledger's stored copy; zeros without a copy."""
        rows = self.rows("ledger")
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    def checkpoint_every(self) -> int | None:
        """Return the number of worlds between two checkpoints of the index; None where it is not recorded."""
        rows = self.rows("settings")
        return int(rows[0][0]) if rows else None

    def events_of_key(self, actor_id: str, key: str) -> Sequence[Any]:
        """Return the committed events of the request that had a key; none where there was no such request.

        Args:
            actor_id: the actor to whom the key belongs.
            key: the key.

        Raises:
            RefusedError: ``EVENT_ARCHIVED`` where they were removed from a cut log.
            DamagedLogError: as ``rows``.
        """

        def read(after: int, upto: int) -> Iterator[LoggedEvent]:
            return self._log.read(after, upto, skip_archived=True)

        rows = self.rows("request", {"of_actor": actor_id, "of_key": key})
        return events_with_key(read, decoded, (actor_id, key), (rows[0][1], rows[0][2])) if rows else ()

    def adopted_domains(self) -> Iterator[DomainAdopted]:
        """Yield the domains in the order of their adoption."""
        for logged in registry_events(self._log, DomainAdopted):
            event = decoded(logged)
            if isinstance(event, DomainAdopted):
                yield event
