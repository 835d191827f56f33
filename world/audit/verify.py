"""Verification of a log from its stored bytes, in one pass.

Checked are: the tree and the order of the events (``world.log.audit``); every event's topic, version, canonical text
and stream; its references and hashes (``world.audit.event_checks``); the state machines
(``world.state.realm_state``); the uniqueness of ids; the index, which must agree with the events; and the tables, which
must be those that this program creates (``world.log.schema``). Nothing is executed and no domain is needed.
Findings start with the first invalid event. Source: CARD-audit, WP-hash, WP-restore; design sections 1, 2, 9.

Memory use is that of ``world.audit.replay``, plus 32 bytes per proposal and 8 bytes per other unique id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import msgspec

from world.audit.event_checks import Checks
from world.audit.event_form import is_canonical, stream_of, stream_rule
from world.audit.index_checks import IndexAudit, Note, table_faults
from world.audit.replay import (
    ForgottenWorldError,
    Kind,
    Lineages,
    Progress,
    Step,
    branch_points,
    read_event,
    revisited_worlds,
    unknown_world,
)
from world.audit.unique_ids import NAMING, NAMING_TYPES, Repeats
from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.codec import MALFORMED, TOPICS, decode_event, malformed
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import EnforcementChosen, LogBranched, LogFounded, WorldSealed
from world.events.writer_events import WriterClosed, WriterOpened
from world.log import EventLog, LogFinding, LoggedEvent, TreeHead
from world.log.audit import MAX_FINDINGS, verify_storage, verify_tree
from world.log.store import Row
from world.model.record import Record
from world.model.snapshot import error_state_hash
from world.read_models.live.sealed_snapshot import SealedSnapshot, open_snapshot, realm_at
from world.state.access import NEEDING_RIGHTS, access_fault
from world.state.proposal import PROPOSAL_EVENTS
from world.state.realm_state import RealmState, apply_event

_OPENING = (WriterOpened, LogBranched)
"""Events that may follow the end of a writer epoch."""


class VerificationReport(Record, frozen=True, omit_defaults=True):
    """Result of a verification.

    Args:
        findings: in order of position, those about the complete file (position 0) last; empty for a valid log.
        head: the tree head of the checked events.
        events: number of checked events.
        worlds: number of states that were restored and hashed.
        proposals: number of intents that were hashed.
        index: extent of the comparison of the index: ``whole``, ``sample``, or ``none`` where it is not live or
            where events were appended during the pass.
        against: the tree heads saved elsewhere that the log was compared with.
        archived: for a log without the contents of its first events, how many are missing and up to where.
        branched: for a hypothetical log (``whatif``), the number of its events that come from the original log.
        closed: the event that closed the log to writers, its last one; None while it is open.
    """

    findings: tuple[LogFinding, ...]
    head: TreeHead
    events: int
    worlds: int
    proposals: int
    index: str
    against: tuple[TreeHead, ...] = ()
    branched: int | None = None
    archived: ArchivedEvents | None = None
    closed: WriterClosed | None = None
    WIRE: ClassVar = "branched archived closed=closing? ok head events worlds proposals index against=saved findings"

    @property
    def ok(self) -> bool:
        """Whether the report has no findings."""
        return not self.findings

    @property
    def closing(self) -> dict[str, Any] | None:
        """Epoch and reason of the end of the log."""
        return None if self.closed is None else {"epoch": self.closed.epoch, "reason": self.closed.reason}

    @property
    def saved(self) -> list[str]:
        """The tree heads saved elsewhere, as texts."""
        return [str(head) for head in self.against]


class ArchivedEvents(Record, frozen=True):
    """Events whose contents are not in the log any more.

    Args:
        upto: position of the last event before the cut.
        removed: how many events up to there have no content.
        manifest: hash of the manifest of the archive that was there when the log was cut.
    """

    upto: int
    removed: int
    manifest: str


def verify(
    log: EventLog,
    *,
    against: TreeHead | Sequence[TreeHead] | None = None,
    progress: Progress | None = None,
) -> VerificationReport:
    """Verify a log.

    Args:
        log: the log; other processes may append to it concurrently.
        against: tree heads saved elsewhere; the log must be a continuation of each.
        progress: called after every batch with the number of checked events and the total.

    Returns:
        The report; at most ``MAX_FINDINGS`` findings of the tree and as many of the events.
    """
    snapshot = _starting_point(log)
    saved = (against,) if isinstance(against, TreeHead) else tuple(against or ())
    head = log.stored_head()  # what is appended from here on is not checked, and no branch of it is asked for
    try:
        asked = branch_points(log, head.size)
    except (DamagedLogError, RefusedError):
        asked = set()  # the pass reports the damage
    checker = _Checker(log, asked, snapshot)
    try:
        findings = verify_tree(log, saved, progress, checker.take, checker.is_removed, size=head.size)
    except ForgottenWorldError:  # another branch reached discarded worlds again; check again and keep them
        with suppress(DamagedLogError):  # the pass reports the damage
            asked |= revisited_worlds(log, head.size, after=checker.upto)
        checker = _Checker(log, asked, snapshot, is_last=True)
        findings = verify_tree(log, saved, progress, checker.take, checker.is_removed, size=head.size)
    findings += checker.finish()
    return VerificationReport(
        findings=(*sorted(findings, key=lambda finding: finding.position), *_verify_tables(log), *verify_storage(log)),
        head=head,
        events=checker.seen,
        worlds=checker.count(WorldSealed.TOPIC),
        proposals=checker.count(ProposalSubmitted.TOPIC),
        index=checker.index.extent,
        against=saved,
        branched=checker.branched,
        archived=checker.archived,
        closed=checker.closed,
    )


def _starting_point(log: EventLog) -> SealedSnapshot | DamagedLogError | None:
    """Return the snapshot of a cut log, or why there is none; None for a log that is complete."""
    try:
        return open_snapshot(log)
    except DamagedLogError as damage:
        return damage if damage.code == ErrorCode.SNAPSHOT_CHANGED else None  # the pass reports other damage
    except RefusedError:
        return None


def _verify_tables(log: EventLog) -> list[LogFinding]:
    """Compare the tables with those that this program creates; other checks report unreadable tables."""
    with suppress(DamagedLogError):
        return [
            LogFinding(
                ErrorCode.SCHEMA_DIFFERS,
                0,
                f"In the database {one.message}; {one.advice}.",
                {"name": one.name, "mendable": one.is_mendable},
            )
            for one in table_faults(log)[:MAX_FINDINGS]
        ]
    return []


class _CheckedKind(Kind):
    """Topic in a verification, with what depends on the type of its events alone."""

    __slots__ = ("may_need_right", "may_open", "names", "note", "stream")

    def __init__(
        self, kind: type[Event], step: Step | None, float_hook: Callable[[str], float], note: Note | None
    ) -> None:
        super().__init__(kind, step, float_hook)
        self.stream = stream_rule(kind)
        self.may_open = kind is ProposalSubmitted or kind not in PROPOSAL_EVENTS
        self.may_need_right = kind in NEEDING_RIGHTS
        self.names = kind in NAMING_TYPES
        self.note = note


class _Checker:
    """Checks of the events, called with the rows that the pass over the tree reads."""

    def __init__(
        self,
        log: EventLog,
        asked: set[str],
        start: SealedSnapshot | DamagedLogError | None,
        *,
        is_last: bool = False,
    ) -> None:
        self.seen = 0
        self.removed = 0
        self._snapshot = start if isinstance(start, SealedSnapshot) else None
        self._start_fault = start if isinstance(start, DamagedLogError) else None
        self._kept = frozenset[int]() if self._snapshot is None else frozenset(self._snapshot.kept)
        self.upto = self._snapshot.upto if self._snapshot is not None else 0
        if self._start_fault is not None:
            self.upto = int(self._start_fault.details["position"])
        self.index = IndexAudit(log)
        self._log = log
        self._is_last = is_last
        self._lineages = Lineages(asked)
        self._realm = self._start()
        self._repeats = Repeats(is_whole=self.upto == 0)
        self._findings: list[LogFinding] = []
        self._follows = self._start_fault is None  # False after damage, from which on the realm is unknown
        self._fractions = 0
        self._checks = Checks(self._realm, self._lineages, self._bad)
        self._kinds = {
            topic: _CheckedKind(kind, self._checks.by_topic.get(topic), self._fraction, self.index.note_of(kind))
            for topic, kind in TOPICS.items()
        }

    def _start(self) -> RealmState:
        """Return the state from which the events are folded."""
        if self._snapshot is None:
            return RealmState()
        try:
            realm = realm_at(self._log, self._snapshot)
        except DamagedLogError as damage:
            self._start_fault = damage
        except RefusedError as refused:  # the content of a kept event is gone
            self._start_fault = DamagedLogError(ErrorCode.EVENT_CHANGED, refused.message, **refused.details)
        else:
            self._lineages.restore(self._snapshot)
            return realm
        return RealmState()

    def is_removed(self, position: int) -> bool:
        """Return whether the content of an event may have been removed: before the cut, and not kept."""
        return position <= self.upto and position not in self._kept

    @property
    def archived(self) -> ArchivedEvents | None:
        """What is missing of a cut log."""
        event = self._realm.archived
        if event is None or not self.upto:
            return None
        return ArchivedEvents(event.upto, self.removed, event.manifest)

    @property
    def closed(self) -> WriterClosed | None:
        """The event that closed the log to writers."""
        return None if self._realm.branched is not None else self._realm.writer.closed

    @property
    def branched(self) -> int | None:
        """Number of events from the original log, for a hypothetical log; None for another log."""
        return None if self._realm.branched is None else self._realm.branched.size

    def count(self, topic: str) -> int:
        """Return the number of events of a topic."""
        return self._kinds[topic].count

    def take(self, rows: Sequence[Row]) -> None:
        """Check a batch of stored rows."""
        kinds, upto = self._kinds, self.upto
        for position, stream, version, topic, schema_version, state, _, _ in rows:
            self.seen += 1
            if position == upto + 1 > 1:
                self.index.take_ledger(upto, self._realm.klis)
            if position != self.seen:
                self._follows = False  # an event is missing; the findings of the tree report it
            kind, self._fractions = kinds.get(topic), 0
            if not state and self.is_removed(position):
                self._pass_over(kind)
                continue
            self._checks.version = schema_version
            try:
                event = read_event(kind, topic, schema_version, state, position)
            except msgspec.ValidationError as error:
                message = f"Event {position} is not a valid {topic!r}: {error}."
                self._stop(DamagedLogError(ErrorCode.BAD_EVENT, message, position=position, topic=topic), position)
                continue
            except DamagedLogError as damage:
                self._stop(damage, position)
                continue
            if not is_canonical(state, has_fraction=self._fractions > 0):
                self._add(ErrorCode.NOT_CANONICAL, position, "its state is not canonical JSON")
            if kind is not None:
                kind.count += 1
                if position <= upto:
                    self._look_back(event, position, stream)
                elif self._follows:
                    self._follow(kind, event, position, stream, version)

    def _pass_over(self, kind: Kind | None) -> None:
        """Count an event whose content was removed."""
        self.removed += 1
        if kind is not None:
            kind.count += 1
            self.index.pass_over(kind.type)

    def _look_back(self, event: Event, position: int, stream: str) -> None:
        """Check what can be checked of an event before the snapshot, which has its effects already."""
        expected = stream_of(event)
        if stream != expected:
            self._add(ErrorCode.WRONG_STREAM, position, f"it is in the stream {stream!r} and belongs to {expected!r}")
        if position == 1:
            self._checks.at_the_beginning(event)
        if isinstance(event, LogFounded | EnforcementChosen):
            self._checks.note_mode(event)
        elif isinstance(event, VerdictGiven):
            self._checks.note_backup(event)
        self._repeats.take(event)
        world = self._lineages.find(event.world_id) if isinstance(event, WorldSealed) else None
        if isinstance(event, WorldSealed) and world is not None:
            expected = error_state_hash(world.data, event.error)
            if expected != event.snapshot_hash:
                message = f"the snapshotHash of the state in the snapshot is {expected}, not {event.snapshot_hash}"
                self._add(ErrorCode.WRONG_HASH, position, message)
        self.index.take(event, position, world)

    def finish(self) -> list[LogFinding]:
        """Return all findings, including those that require the complete log."""
        if self._start_fault is not None:
            self._stop(self._start_fault, self._start_fault.details.get("position", self.upto))
        if self._follows:
            self._checks.at_the_end()
        for position, message in self._repeats.found(self._again):
            self._add(ErrorCode.DUPLICATE_ID, position, message)
        if self._follows:
            for position, message in self.index.problems(self._realm):
                self._add(ErrorCode.INDEX_DIFFERS, position, message)
        return self._findings

    def _again(self) -> Iterator[tuple[int, Event]]:
        """Yield the readable events whose ids must be unique again."""
        for logged in self._naming_events():
            with suppress(DamagedLogError, *MALFORMED):
                yield logged.position, decode_event(logged.topic, logged.schema_version, logged.state, logged.position)

    def _naming_events(self) -> Iterator[LoggedEvent]:
        with suppress(DamagedLogError):  # the pass has reported the damage
            yield from self._log.read(self.upto, self._log.stored_head().size, topics=NAMING)

    def _follow(self, kind: _CheckedKind, event: Event, position: int, stream: str, version: int) -> None:
        """Check an event against the preceding events, and fold it."""
        expected = kind.stream(event)
        if stream != expected or version == 1 or position == 1:
            self._check_place(kind, event, position, (stream, expected, version))
        realm, index = self._realm, self.index
        if realm.writer.closed is not None and realm.branched is None and type(event) not in _OPENING:
            self._add(ErrorCode.BAD_EPOCH, position, "the log was closed to writers before it")
        try:
            if kind.step is not None:
                kind.step(event, position)
            if kind.may_need_right and (fault := access_fault(realm, event)) is not None:
                self._add(ErrorCode.WITHOUT_RIGHT, position, fault.message)
            if kind.names:
                self._repeats.take(event)
            apply_event(realm, event, position)
            if kind.note is not None:
                kind.note(event, position, self._checks.world)
            if position == index.copied_at:
                index.take_ledger(position, realm.klis)
        except ForgottenWorldError as missing:
            if not self._is_last:
                raise
            self._stop(unknown_world(str(missing), position), position)
        except DamagedLogError as damage:
            self._stop(damage, position)
        except MALFORMED as error:
            self._stop(malformed(position, error), position)

    def _check_place(self, kind: _CheckedKind, event: Event, position: int, place: tuple[str, str, int]) -> None:
        """Check the stream of an event, given with the expected one and its version, and the beginning of the log."""
        stream, expected, version = place
        if stream != expected:
            self._add(ErrorCode.WRONG_STREAM, position, f"it is in the stream {stream!r} and belongs to {expected!r}")
        elif version == 1 and not kind.may_open:
            self._add(ErrorCode.WRONG_STREAM, position, "the stream of a proposal begins with its submission")
        if position == 1:
            self._checks.at_the_beginning(event)

    def _fraction(self, text: str) -> float:
        self._fractions += 1
        return float(text)

    def _bad(self, code: ErrorCode, message: str) -> None:
        self._add(code, self.seen, message)

    def _add(self, code: ErrorCode, position: int, message: str) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(LogFinding(code, position, f"Event {position}: {message}."))

    def _stop(self, damage: DamagedLogError, position: int) -> None:
        """Add damage after which the realm is unknown; only the form of later events is checked."""
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(LogFinding(ErrorCode(damage.code), position, damage.message, damage.details))
        self._follows = False
