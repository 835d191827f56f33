"""The sealed snapshot of a cut log: the state after an event, from which the log is folded without the events before.

It has what no kept event says: the lease ledger, where the branches are, and the data of the worlds that later events
may refer to. Everything else is in the events before it that are kept, whose positions it lists: the registry, and all
events of what was open. ``log.archived`` has the SHA-256 of its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import msgspec

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.realm_events import BranchCreated, LogArchived
from world.klis.ledger_codec import read_ledger
from world.log import EventLog, LoggedEvent
from world.log.log import READ_BATCH
from world.model.canonical_json import canonical_text, read_json
from world.model.immutable_json import FrozenDict, freeze
from world.read_models.decoding import decoded, known, registry_events
from world.state.branches import Branch
from world.state.offers import order_offers
from world.state.proposal import Proposal, fold_proposal
from world.state.realm_state import LANDMARKS, RealmState, apply_event

__all__ = [
    "KEPT_TOPICS",
    "SealedSnapshot",
    "SealedWorld",
    "archived_event",
    "archived_upto",
    "kept_events",
    "open_snapshot",
    "read_snapshot",
    "realm_at",
    "snapshot_hash",
]

_LOOKED_AT: Final = 64
"""Events at the beginning of a log among which the first removed content is looked for first."""

KEPT_TOPICS: Final = LANDMARKS | {BranchCreated.TOPIC}
"""Topics of the events whose contents are never removed."""


class SealedWorld(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """World that later events may refer to; ``data`` is null where it is that of the parent, which comes before it."""

    world_id: str
    parent: str | None
    outcome: str
    height: int
    data: dict[str, Any] | None


class SealedSnapshot(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """State after the event at ``upto``.

    ``branches`` has name, head and tip of each, in order of creation. ``ledger`` is the lease ledger after
    ``ledger_version`` events. ``proposals`` are those that are open, in the order of their submission, ``decided`` the
    same in the order of their decisions, undecided ones first. ``runs`` are the positions at which open runs began.
    ``kept`` are the positions of all events whose contents stay. ``topics``, ``statuses`` and ``rejected`` count.
    """

    upto: int
    root: str
    branches: list[tuple[str, str, str]]
    ledger: dict[str, Any]
    ledger_version: int
    proposals: list[str]
    decided: list[str]
    runs: list[int]
    kept: list[int]
    worlds: list[SealedWorld]
    topics: dict[str, int]
    rejected: int

    def to_text(self) -> str:
        """Return the text that is stored and hashed."""
        return canonical_text(msgspec.to_builtins(self))

    def data(self) -> Iterator[tuple[SealedWorld, FrozenDict]]:
        """Yield each world with its data."""
        known: dict[str | None, FrozenDict] = {}
        for world in self.worlds:
            found: FrozenDict = known[world.parent] if world.data is None else freeze(world.data)
            known[world.world_id] = found
            yield world, found


def snapshot_hash(text: str) -> str:
    """Return the hash of a snapshot's text in hex."""
    return sha256(text.encode()).hexdigest()


def archived_event(log: EventLog) -> LogArchived | None:
    """Return the event that permits the removal of contents, the last one; None where the log was never cut."""
    found = None
    for logged in registry_events(log, LogArchived):
        event = decoded(logged)
        if isinstance(event, LogArchived):
            found = event
    return found


def archived_upto(log: EventLog) -> int:
    """Return the position up to which contents of events are missing from a log; 0 where none is."""
    event = archived_event(log)
    return event.upto if event is not None and _is_cut(log, event.upto) else 0


def open_snapshot(log: EventLog) -> SealedSnapshot | None:
    """Return the snapshot from which a log has to be folded; None where no content is missing.

    Raises:
        DamagedLogError: ``SNAPSHOT_CHANGED``.
    """
    event = archived_event(log)
    if event is None or not _is_cut(log, event.upto):
        return None
    return read_snapshot(log, event)


def read_snapshot(log: EventLog, event: LogArchived) -> SealedSnapshot:
    """Return the stored snapshot that an event sealed.

    Raises:
        DamagedLogError: ``SNAPSHOT_CHANGED``.
    """
    text = log.snapshot(event.upto)
    if text is None or snapshot_hash(text) != event.snapshot:
        state = "missing" if text is None else "not the one that the log sealed"
        raise DamagedLogError(
            ErrorCode.SNAPSHOT_CHANGED,
            f"The log was cut after event {event.upto}, and the snapshot of the state there is {state}. Restore the "
            "log from a copy, or give the archives back with `worldctl cut --undo`.",
            position=event.upto,
        )
    return msgspec.convert(read_json(text), SealedSnapshot)


def _is_cut(log: EventLog, upto: int) -> bool:
    """Return whether a content is missing; the first one that may be is removed first, and comes back last."""
    after, count = 0, _LOOKED_AT
    while after < upto and (rows := log.audit_rows(after, count)):
        if any(not row[5] for row in rows if row[0] <= upto):
            return True
        after, count = rows[-1][0], READ_BATCH
    return False


def kept_events(log: EventLog, snapshot: SealedSnapshot) -> Iterator[LoggedEvent]:
    """Yield the events before a cut whose contents are kept, in the order of the log."""
    for batch in log.events_at(snapshot.kept):
        yield from batch


def realm_at(log: EventLog, snapshot: SealedSnapshot) -> RealmState:
    """Return the state at a cut, from its snapshot and the kept events.

    Raises:
        DamagedLogError: ``LOG_GAP``, ``EVENT_CHANGED`` where a kept event is missing or changed.
        RefusedError: ``EVENT_ARCHIVED`` where the content of one was removed.
    """
    realm = RealmState()
    realm.klis, realm.klis_version = read_ledger(snapshot.ledger), snapshot.ledger_version
    proposals: dict[str, Proposal | None] = dict.fromkeys(snapshot.proposals)
    runs = set(snapshot.runs)
    opened: list[LoggedEvent] = []
    for logged in kept_events(log, snapshot):
        if logged.topic in LANDMARKS:
            apply_event(realm, known(logged), logged.position)
        elif logged.stream in proposals:
            proposals[logged.stream] = fold_proposal(proposals[logged.stream], decoded(logged))
        elif logged.position in runs:
            opened.append(logged)
    active = realm.active
    realm.branches = {name: Branch(name, head, tip) for name, head, tip in snapshot.branches}
    realm.active = active or next(iter(realm.branches), "")
    for proposal_id in snapshot.decided:
        proposal = proposals[proposal_id]
        assert proposal is not None
        realm.take_in(proposal)
    realm.proposals = {name: realm.proposals[name] for name in snapshot.proposals}
    order_offers(realm)
    for logged in opened:
        apply_event(realm, known(logged), logged.position)
    realm.position = snapshot.upto
    return realm
