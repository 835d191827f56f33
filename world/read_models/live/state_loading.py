"""Loading the state of a realm from storage: from the index, or by folding the log.

A process does this once for each log; afterwards ``world.read_models.live.live_state`` applies what is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import KLIS_STREAM, REALM_STREAM
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import BranchSwitched
from world.events.run_events import RunOpened
from world.klis.ledger_codec import read_ledger
from world.log import EventLog, LoggedEvent
from world.model.canonical_json import read_json
from world.read_models.decoding import decoded, known
from world.read_models.index_sql.queries import RECENT_ROWS, execution_order
from world.read_models.live.sealed_snapshot import open_snapshot, realm_at
from world.state.branches import Branch
from world.state.offers import order_offers
from world.state.proposal import Proposal, fold_proposal
from world.state.realm_state import RealmState, apply_event

__all__ = [
    "RECENT",
    "IndexReader",
    "check_recent",
    "event_at",
    "fold_realm",
    "index_damaged",
    "load_realm",
    "stored_proposal",
]

TRIES: Final = 4
"""Attempts to read the realm from the index while others write, before it is folded at a fixed position."""

RECENT: Final = 1_000
"""Newest events whose rows of the index are counted before it is used."""

STREAM_BATCH: Final = 2_000
"""Events of a stream that are fetched at once."""


class IndexReader(Protocol):
    """The statements of an index; ``world.read_models.archive.Archive`` runs them."""

    def rows(self, name: str, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one of the index's statements on committed data."""
        ...

    @property
    def is_current(self) -> bool:
        """Whether the index covers all events of the log."""
        ...


def index_damaged(why: str = "it refers to an event that the log does not contain") -> DamagedLogError:
    """Return the error for an index that contradicts its log."""
    return DamagedLogError(
        ErrorCode.INDEX_DAMAGED, f"The index contradicts its log: {why}. Rebuild it with `worldctl doctor --rebuild`."
    )


def load_realm(log: EventLog, index: IndexReader) -> RealmState:
    """Return the realm as of the last commit, from the index if it is live, otherwise by folding the log.

    Raises:
        DamagedLogError: ``INDEX_DAMAGED``, or the log is damaged.
    """
    for _ in range(TRIES):
        size = log.head().size
        try:
            realm = _from_index(log, index)
        except DamagedLogError:
            if log.head().size == size:
                raise
            continue  # a commit occurred between two queries
        if log.head().size == size:
            realm.position = size
            return realm
    return fold_realm(log, log.head().size)  # others write continuously


def fold_realm(log: EventLog, upto: int | None = None) -> RealmState:
    """Return the realm after the event at a position, folded from the first event on; None folds all.

    A log without the contents of its first events is folded from its snapshot.

    Raises:
        RefusedError: ``EVENT_ARCHIVED`` for a position before the snapshot of such a log.
        DamagedLogError: ``SNAPSHOT_CHANGED``, or the log is damaged.
    """
    snapshot = open_snapshot(log)
    is_cut = snapshot is not None and (upto is None or upto >= snapshot.upto)
    realm = realm_at(log, snapshot) if snapshot is not None and is_cut else RealmState()
    for logged in log.read(realm.position, upto):
        apply_event(realm, decoded(logged), logged.position)
    return realm


def stored_proposal(log: EventLog, proposal_id: str, upto: int | None = None) -> Proposal:
    """Return an open or ended proposal, folded from its stream.

    Args:
        log: the log.
        proposal_id: the proposal.
        upto: position of the last event to apply; None applies all.

    Raises:
        RefusedError: ``UNKNOWN_PROPOSAL``; ``NOT_FOUND`` where it was submitted after ``upto``.
    """
    state: Proposal | None = None
    for logged in log.stream(proposal_id):
        if upto is None or logged.position <= upto:
            state = fold_proposal(state, decoded(logged))
        elif state is None:
            message = f"Proposal {proposal_id} was submitted by event {logged.position}, which is after event {upto}."
            raise RefusedError(ErrorCode.NOT_FOUND, message, position=logged.position)
    if state is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_PROPOSAL, f"Proposal {proposal_id!r} does not exist.", proposal_id=proposal_id
        )
    return state


def _from_index(log: EventLog, index: IndexReader) -> RealmState:
    if not index.is_current:
        return fold_realm(log)
    realm = RealmState()
    try:
        _load_ledger(log, index, realm)
    except RefusedError as refused:
        if refused.code != ErrorCode.EVENT_ARCHIVED:
            raise
        return fold_realm(log)  # the copy of the ledger of a cut log is lost; its sealed snapshot has one
    check_recent(log, index)
    _load_registry(log, index, realm)
    active = realm.active
    for name, head, tip in index.rows("branches"):
        if not all(type(one) is str for one in (name, head, tip)):
            raise index_damaged()
        _check_head(index, name, head)
        realm.branches[name] = Branch(name, head, tip)
        active = active or name
    realm.active = active
    open_proposals = index.rows("open_proposals")
    for proposal_id in execution_order(open_proposals):
        realm.take_in(stored_proposal(log, proposal_id))
    realm.proposals = {proposal_id: realm.proposals[proposal_id] for proposal_id, *_ in open_proposals}
    order_offers(realm)
    for (position,) in index.rows("open_runs"):
        apply_event(realm, known(event_at(log, position)), position)
    return realm


def _load_registry(log: EventLog, index: IndexReader, realm: RealmState) -> None:
    """Load the registry from its events and the branch switches through the index.

    So an index without rows cannot make a founded log look like one that is not.
    """
    landmarks = {position for (position,) in index.rows("landmarks")}
    if any(type(position) is not int for position in landmarks):
        raise index_damaged()
    for logged in _whole_stream(log, REALM_STREAM):
        if logged.position not in landmarks:
            raise index_damaged(f"it does not list event {logged.position} ({logged.topic})")
        landmarks.remove(logged.position)
        apply_event(realm, known(logged), logged.position)
    for batch in log.events_at(sorted(landmarks)):
        for one in batch:
            if one.topic != BranchSwitched.TOPIC:
                raise index_damaged()
            apply_event(realm, known(one), one.position)


def check_recent(log: EventLog, index: IndexReader) -> None:
    """Refuse an index that lacks rows which decisions are made by: a missing row would mean that nothing happened.

    The rows of the newest ``RECENT`` events are counted. Of all proposals and runs, those with the smallest and the
    largest id are looked up, which finds an empty table. So the cost does not grow with the log; ``verify`` compares
    all rows.

    Raises:
        DamagedLogError: ``INDEX_DAMAGED`` where there are too few or too many rows.
    """
    since = max(0, log.head().size - RECENT)
    [counts] = index.rows("recent", {"since": since, **log.keys(since)})
    for kind, indexed, recorded in zip(RECENT_ROWS, counts[::2], counts[1::2], strict=True):
        if indexed != recorded:
            raise index_damaged(f"it has {indexed} {kind} after event {since}, and the log {recorded}")
    for stream, topic in index.rows("ends"):
        if topic == ProposalSubmitted.TOPIC and not index.rows("place", {"of_proposal": stream}):
            raise index_damaged(f"it does not list proposal {stream}")
        run_id = stream.removeprefix("run:")
        if topic == RunOpened.TOPIC and not index.rows("run", {"of_run": run_id}):
            raise index_damaged(f"it does not list run {run_id}")


def _whole_stream(log: EventLog, stream: str, after: int = 0) -> Iterator[LoggedEvent]:
    """Yield the events of a stream after a version, in order."""
    while batch := log.stream(stream, after=after, limit=STREAM_BATCH):
        yield from batch
        after = batch[-1].version


def event_at(log: EventLog, position: int) -> LoggedEvent:
    """Return the event at a position from the index.

    Raises:
        RefusedError: ``EVENT_ARCHIVED``.
        DamagedLogError: ``INDEX_DAMAGED`` where the log has no such position; ``LOG_GAP``.
    """
    try:
        return log.event_at(position)
    except RefusedError as refused:
        if refused.code == ErrorCode.EVENT_ARCHIVED:
            raise
        raise index_damaged() from None


def _load_ledger(log: EventLog, index: IndexReader, realm: RealmState) -> None:
    """Load the lease ledger from its stored copy and the later events."""
    for _, version, state in index.rows("ledger"):
        try:
            realm.klis, realm.klis_version = read_ledger(read_json(state)), version
        except RefusedError as refused:  # not JSON, or invalid settings
            raise index_damaged(f"its copy of the lease ledger cannot be read ({refused.message})") from None
    for one in _whole_stream(log, KLIS_STREAM, realm.klis_version):
        realm.klis.fold(known(one))
        realm.klis_version += 1


def _check_head(index: IndexReader, branch: str, head: str) -> None:
    """Refuse an index that lists an outdated head of a branch."""
    for _, _, _, _, child_branch, outcome in index.rows("children", {"of_world": head}):
        if child_branch == branch and outcome == "completed":
            raise DamagedLogError(
                ErrorCode.INDEX_DAMAGED,
                f"The index lists an outdated head of the branch {branch!r}. Rebuild it with "
                "`worldctl doctor --rebuild`.",
                branch=branch,
            )
