"""Past worlds and ended proposals, read back from the log with the help of the index."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

import orjson

from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.codec import decode_event
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import BranchCreated, DomainAdopted, WorldSealed
from world.klis.ledger_codec import read_ledger
from world.log import EventLog, LoggedEvent, is_intact
from world.model.canonical_json import read_json
from world.model.identity import state_hash
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import Patch, apply_patches
from world.pipeline.unit_of_work import KLIS_STREAM, Earlier
from world.read_models.index import VIEW_NAME, VIEW_VERSION, history_query, history_rows, statement
from world.state.proposal import Proposal, fold_proposal
from world.state.realm_state import Branch, RealmState, apply_event

KEPT_STATES: Final = 64
"""States of worlds kept in memory, those used last."""

TRIES: Final = 4
"""How often the realm is read from the index beside writers before it is folded at a fixed position."""

FOLD_AT_MOST: Final = 10_000
"""Events behind which a kept realm is loaded anew instead of being brought up to date."""

LEDGER_BATCH: Final = 2_000
"""Events of the lease ledger fetched at once when it is loaded."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class WorldRow:
    """Where a world is: its place in the lineage and in the log."""

    world_id: str
    parent: str | None
    height: int
    position: int
    branch: str
    outcome: str


KEPT_EVENTS: Final = 1_024
"""Payloads of events kept in memory, those of small states that were asked for last."""

SMALL_STATE: Final = 4_096
"""Bytes of a state up to which its payload is kept."""


def known(logged: LoggedEvent) -> Event:
    """Return the payload of a logged event for a fold, which changes nothing of it and may share it with others.

    One process folds each event several times: into the realm that commands run on, and into the one that is looked at.

    Raises:
        DamagedLogError: as ``decoded``.
    """
    is_small = type(logged.state) is bytes and len(logged.state) <= SMALL_STATE
    return _known(logged) if is_small else decoded(logged)


@lru_cache(maxsize=KEPT_EVENTS)
def _known(logged: LoggedEvent) -> Event:
    return decoded(logged)  # whatever of a row is another, its leaf hash too, makes it another key


def decoded(logged: LoggedEvent) -> Event:
    """Return the payload of a logged event.

    Raises:
        DamagedLogError: ``EVENT_CHANGED`` where content and leaf hash disagree, and as ``decode_event``.
    """
    _require_intact(logged)
    return decode_event(logged.topic, logged.schema_version, logged.state, logged.position)


def state_of(logged: LoggedEvent) -> Any:
    """Return the state of a logged event as JSON, whatever its topic.

    Raises:
        DamagedLogError: ``EVENT_CHANGED`` where content and leaf hash disagree, ``BAD_EVENT`` where it is no JSON.
    """
    _require_intact(logged)
    try:
        return orjson.loads(logged.state)
    except ValueError:
        raise DamagedLogError(
            "BAD_EVENT", f"Event {logged.position} holds no JSON; run `worldctl verify`.", position=logged.position
        ) from None


def _require_intact(logged: LoggedEvent) -> None:
    if not is_intact(logged):
        raise DamagedLogError(
            "EVENT_CHANGED",
            f"Event {logged.position} is not what was logged: its content and its leaf hash disagree. Run "
            "`worldctl verify`, and restore the log from a copy.",
            position=logged.position,
        )


def _index_damaged(why: str = "it names what is not there") -> DamagedLogError:
    return DamagedLogError(
        "INDEX_DAMAGED", f"The index does not fit its log: {why}; `worldctl doctor --rebuild` makes it again."
    )


def _input(event: Event) -> tuple[str, Any]:
    if not isinstance(event, ProposalSubmitted):
        raise _index_damaged()
    return event.proposal_id, event.intent["body"].get("input")


class Archive:
    """Looks things up in one log; safe in many threads as far as the log is."""

    def __init__(self, log: EventLog) -> None:
        """Read from an open log."""
        self._log = log
        self._states: OrderedDict[str, FrozenDict] = OrderedDict()
        self._realm: RealmState | None = None
        self._reading = threading.Lock()

    @property
    def log(self) -> EventLog:
        """The log it reads."""
        return self._log

    def rows(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run one of the index's statements on committed data.

        Raises:
            RefusedError: ``INDEX_NOT_CURRENT`` when the log was opened to be read only and its index is behind it; who
                may write keeps the index current.
            DamagedLogError: ``LOG_DAMAGED`` when a table of the index is lost.
        """
        self._check_current()
        told = statement(name, self._log.backend)
        return [tuple(row) for row in self._log.query(told, of_log=self._log.log_id, **values)]

    def check_complete(self) -> None:
        """Compare the index's rows of worlds, branches and proposals with the number of events that make them.

        What lists rows calls it, so that lost rows are not shown as an empty or a shorter list.

        Raises:
            RefusedError: ``INDEX_NOT_CURRENT``; see ``rows``.
            DamagedLogError: ``INDEX_DAMAGED`` where rows are missing, or there are too many.
        """
        [counts] = self.rows("counts")
        for name, found, made in zip(("worlds", "branches", "proposals"), counts[::2], counts[1::2], strict=True):
            if found != made:
                raise _index_damaged(f"it holds {found} {name}, and the events make {made}")

    def _is_current(self) -> bool:
        view = self._log.view_state(VIEW_NAME)
        return view is not None and view.live and view.version == VIEW_VERSION

    def _check_current(self) -> None:
        if self._log.read_only and not self._is_current():
            raise RefusedError(
                "INDEX_NOT_CURRENT",
                "The index of the log does not cover all its events, and the log was opened to be read only. Open it "
                "once for writing, or run `worldctl doctor --rebuild`.",
            )

    # Worlds

    def find_world(self, world_id: str) -> WorldRow | None:
        """Return where a world is, None when there is no such world."""
        rows = self.rows("world", of_world=world_id)
        if not rows:
            return None
        row = WorldRow(*rows[0])
        if type(row.position) is not int or type(row.height) is not int:
            raise _index_damaged()
        return row

    def world(self, world_id: str) -> WorldRow:
        """Return where a world is.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``.
        """
        row = self.find_world(world_id)
        if row is None:
            raise RefusedError(
                "UNKNOWN_WORLD", f"There is no world {world_id!r}; `worldctl worlds` lists them.", world_id=world_id
            )
        return row

    def sealed(self, world_id: str) -> WorldSealed:
        """Return the event that sealed a world.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``.
        """
        return self._sealed_at(self.world(world_id))

    def state(self, world_id: str) -> FrozenDict:
        """Return the data of any world, from the nearest state known and the patches since (WP-restore).

        Raises:
            RefusedError: ``UNKNOWN_WORLD``.
        """
        chain: list[WorldSealed] = []
        at: str | None = world_id
        data: FrozenDict | None = None
        while data is None:
            if at is None:
                raise DamagedLogError("NO_GENESIS", f"World {world_id} has no ancestor with data.", world_id=world_id)
            data = self._states.get(at) or self._checkpoint(at)
            if data is None:
                event = self.sealed(at) if at == world_id else self._parent(at)
                if event.data is not None:
                    data = freeze(event.data)
                else:
                    chain.append(event)
                    at = event.parent
        for event in reversed(chain):
            data = apply_patches(data, [Patch.from_wire(patch) for patch in event.patches])
        self.keep(world_id, data)
        return data

    def checked_state(self, world_id: str) -> FrozenDict:
        """Return the data of a world after comparing it with the world's snapshotHash.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``.
            DamagedLogError: ``STATE_DAMAGED`` where patches or checkpoints do not give what was sealed.
        """
        sealed, data = self.sealed(world_id), self.state(world_id)
        errors = () if sealed.error is None else (sealed.error,)
        if state_hash(data, errors=errors, last_error=sealed.error) != sealed.snapshot_hash:
            raise DamagedLogError(
                "STATE_DAMAGED",
                f"The data of world {world_id[:12]} is not what was sealed; nothing is built on it. Run "
                "`worldctl verify`.",
                world_id=world_id,
            )
        return data

    def keep(self, world_id: str, data: FrozenDict) -> None:
        """Remember the state of a world that is likely to be asked for again."""
        self._states[world_id] = data
        self._states.move_to_end(world_id)
        while len(self._states) > KEPT_STATES:
            self._states.popitem(last=False)

    def _checkpoint(self, world_id: str) -> FrozenDict | None:
        rows = self.rows("checkpoint", of_world=world_id)
        if not rows:
            return None
        try:
            data = freeze(orjson.loads(rows[0][0]))
        except (ValueError, TypeError, RefusedError):  # no JSON, or none that a state can be
            data = None
        if not isinstance(data, FrozenDict):
            raise _index_damaged(f"its checkpoint of world {world_id[:12]} cannot be read")
        return data

    def _parent(self, world_id: str) -> WorldSealed:
        row = self.find_world(world_id)
        if row is None:  # the events name it, so only the index can be at fault
            raise _index_damaged()
        return self._sealed_at(row)

    def event_at(self, position: int) -> LoggedEvent:
        """Return the event at a position that the index names.

        Raises:
            DamagedLogError: ``INDEX_DAMAGED`` where the log has no such position; ``LOG_GAP``.
        """
        try:
            return self._log.event_at(position)
        except RefusedError:
            raise _index_damaged() from None

    def _sealed_at(self, row: WorldRow) -> WorldSealed:
        event = decoded(self.event_at(row.position))
        if not isinstance(event, WorldSealed) or event.world_id != row.world_id:
            raise _index_damaged()
        return event

    # Proposals

    def proposal(self, proposal_id: str, upto: int | None = None) -> Proposal:
        """Return a proposal, open or ended, folded from its stream; as it stood after an event, where one is given.

        Raises:
            RefusedError: ``UNKNOWN_PROPOSAL``; ``NOT_FOUND`` where it was submitted only later.
        """
        state: Proposal | None = None
        for logged in self._log.stream(proposal_id):
            if upto is None or logged.position <= upto:
                state = fold_proposal(state, decoded(logged))
            elif state is None:
                told = f"Proposal {proposal_id} was submitted by event {logged.position}, which is after event {upto}."
                raise RefusedError("NOT_FOUND", told, position=logged.position)
        if state is None:
            raise RefusedError("UNKNOWN_PROPOSAL", f"There is no proposal {proposal_id!r}.", proposal_id=proposal_id)
        return state

    def count(self, before: int, **conditions: Any) -> int:
        """Count proposals submitted before a position, under the conditions of ``world.state.ports.History``.

        Raises:
            RefusedError: as ``rows``.
            DamagedLogError: as ``rows``.
        """
        self._check_current()
        told = history_query(conditions, self._log.backend)
        rows = self._log.query(told, of_log=self._log.log_id, before=before, **conditions)
        return int(rows[0][0])

    def earlier(self, before: int, most: int, **conditions: Any) -> list[Earlier]:
        """Return the first of the proposals that ``count`` counts, in the order of the log.

        Raises:
            RefusedError: as ``rows``.
            DamagedLogError: as ``rows``.
        """
        self._check_current()
        told = history_query(conditions, self._log.backend, counted=False)
        rows = self._log.query(told, of_log=self._log.log_id, before=before, most=most, **conditions)
        return [Earlier(*row) for row in rows]

    def moments(self, most: int, **conditions: Any) -> list[tuple[int, int]]:
        """Return at most so many of the proposals under conditions (``world.read_models.index.COMPARED``), whenever
        judged.

        Returns:
            for each when it was submitted, ms since 1970, and from which position on it counts; in no order.

        Raises:
            RefusedError: as ``rows``.
            DamagedLogError: as ``rows``.
        """
        self._check_current()
        told = history_rows(conditions, self._log.backend)
        return self._log.query(told, of_log=self._log.log_id, most=most, **conditions)

    def inputs(self, found: Sequence[Earlier]) -> list[tuple[str, Any]]:
        """Return the ids of proposals and the inputs of their intents.

        Args:
            found: proposals in the order of the log.

        Raises:
            DamagedLogError: ``INDEX_DAMAGED`` where a proposal is not where the index says; ``EVENT_CHANGED``.
        """
        given: list[tuple[str, Any]] = []
        for logged in self._log.events_at([one.position for one in found]):
            given += [_input(decoded(one)) for one in logged]
        if [proposal_id for proposal_id, _ in given] != [one.proposal_id for one in found]:
            raise _index_damaged()
        return given

    # The realm

    def realm(self) -> RealmState:
        """Return the realm as of the last commit, a copy that is the caller's own."""
        return self.peek(RealmState.copy)

    def peek(self, question: Callable[[RealmState], R]) -> R:
        """Ask the realm as of the last commit something, without copying it; the question changes nothing."""
        with self._reading:
            size = self._log.head().size
            past, self._realm = self._realm, None  # forgotten, should what follows be broken off
            if past is None or size - past.position > FOLD_AT_MOST:
                past = self.load_realm()
            elif size > past.position:
                for logged in self._log.read(past.position, size):
                    apply_event(past, known(logged), logged.position)
            self._realm = past
            return question(past)

    def load_realm(self) -> RealmState:
        """Return the realm as of the last commit, from the index where it is live, else by folding the log."""
        for _ in range(TRIES):
            size = self._log.head().size
            try:
                realm = self._load_from_index()
            except DamagedLogError:
                if self._log.head().size == size:
                    raise
                continue  # a writer came between two questions
            if self._log.head().size == size:
                realm.position = size
                return realm
        return self.fold_realm(self._log.head().size)  # others keep writing

    def _load_from_index(self) -> RealmState:
        if not self._is_current():
            return self.fold_realm()
        realm = RealmState()
        self._load_ledger(realm)
        landmarks = [position for (position,) in self.rows("landmarks")]
        if any(type(position) is not int for position in landmarks):
            raise _index_damaged()
        for logged in self._log.events_at(landmarks):
            for one in logged:
                apply_event(realm, known(one), one.position)
        active = realm.active
        for name, head, tip in self.rows("branches"):
            if not all(type(one) is str for one in (name, head, tip)):
                raise _index_damaged()
            self._check_head(name, head)
            realm.branches[name] = Branch(name, head, tip)
            active = active or name
        realm.active = active
        found = self.rows("open_proposals")
        for proposal_id, _ in found:
            realm.take_in(self.proposal(proposal_id))
        in_order = sorted(found, key=lambda row: row[1])
        realm.proposals = {proposal_id: realm.proposals[proposal_id] for proposal_id, _ in in_order}
        for (position,) in self.rows("open_runs"):
            apply_event(realm, known(self.event_at(position)), position)
        return realm

    def _load_ledger(self, realm: RealmState) -> None:
        """Bring in the lease ledger: the copy kept beside the log, and the events since."""
        for _, version, state in self.rows("ledger"):
            try:
                realm.klis, realm.klis_version = read_ledger(read_json(state)), version
            except RefusedError as refused:  # no JSON, or settings that nobody could have chosen
                raise _index_damaged(f"its copy of the lease ledger cannot be read ({refused.message})") from None
        while logged := self._log.stream(KLIS_STREAM, after=realm.klis_version, limit=LEDGER_BATCH):
            for one in logged:
                realm.klis.fold(known(one))
                realm.klis_version += 1

    def ledger_position(self) -> tuple[int, int]:
        """Return after which event, and which of the ledger's own, its copy was taken; zeros where there is none."""
        rows = self.rows("ledger")
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)

    def checkpoint_every(self) -> int | None:
        """Return how many worlds lie between two checkpoints of the index; None where it does not say."""
        rows = self.rows("settings")
        return int(rows[0][0]) if rows else None

    def _check_head(self, branch: str, head: str) -> None:
        """Refuse an index whose branch could have a newer head: nothing is built on a wrong one."""
        children = [WorldRow(*row) for row in self.rows("children", of_world=head)]
        if any(child.branch == branch and child.outcome == "completed" for child in children):
            raise DamagedLogError(
                "INDEX_DAMAGED",
                f"The index gives {branch!r} a head that is not its newest; `worldctl doctor --rebuild` makes it "
                "again.",
                branch=branch,
            )

    def fold_realm(self, upto: int | None = None) -> RealmState:
        """Return the realm after a position by folding all events before it."""
        realm = RealmState()
        for logged in self._log.read(upto=upto):
            apply_event(realm, decoded(logged), logged.position)
        return realm

    def adopted_domains(self) -> Iterator[DomainAdopted]:
        """Yield the domains in the order of their adoption."""
        for logged in self._log.read(topics=[DomainAdopted.TOPIC]):
            event = decoded(logged)
            if isinstance(event, DomainAdopted):
                yield event

    def branch_points(self) -> set[str]:
        """Return the ids of the worlds at which branches were created."""
        found = (decoded(logged) for logged in self._log.read(topics=[BranchCreated.TOPIC]))
        return {event.world_id for event in found if isinstance(event, BranchCreated)}
