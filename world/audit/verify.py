"""Verify: everything a log says about itself, checked from the stored bytes in one pass.

The tree and the order of the events (``world.log.audit``); every event's topic, version, canonical text and stream;
what it names and every hash in it (``world.audit.event_checks``); the state machines (``world.state.realm_state``); ids
that must not come twice; the index beside the log, which must say what the events say; and the tables, which must be as
this program makes them (``world.log.schema``). Nothing is executed and no domain is needed.
Findings name the first bad event. Source: CARD-audit, WP-hash, WP-restore; design sections 1, 2, 9.

Memory is bounded by what is alive, as in ``world.audit.replay``, and 32 bytes for each proposal and 8 for each other id
that must not come twice, by which repeated ones are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from world.audit.event_checks import Checks
from world.audit.event_form import is_canonical, is_of_proposal, stream_of
from world.audit.index_checks import IndexAudit, table_faults
from world.audit.replay import (
    ForgottenWorldError,
    Kind,
    Lineages,
    Progress,
    branch_points,
    read_event,
    revisited_worlds,
    unknown_world,
)
from world.audit.unique_ids import NAMING, Repeats
from world.errors import DamagedLogError
from world.events.base import Event
from world.events.codec import TOPICS, decode_event
from world.events.malformed import MALFORMED, malformed
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.events.shapes import check_shapes
from world.log import EventLog, LogFinding, LoggedEvent, TreeHead
from world.log.audit import MAX_FINDINGS, verify_storage, verify_tree
from world.log.store import Row
from world.state.realm_state import RealmState, apply_event


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What a verification found.

    Args:
        findings: in order of position, those of the file as a whole (position 0) last; empty for a sound log.
        head: the newest tree head, under which everything was checked.
        events: how many events were looked at.
        worlds: how many states were restored and hashed.
        proposals: how many intents were hashed.
        index: how the index was compared: ``whole``, ``sample``, or ``none`` where it is not live.
        against: the tree heads saved elsewhere that the log was compared with.
        branched: how many of its first events are those of a real log, where the rest never was (``whatif``).
    """

    findings: tuple[LogFinding, ...]
    head: TreeHead
    events: int
    worlds: int
    proposals: int
    index: str
    against: tuple[TreeHead, ...] = ()
    branched: int | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_wire(self) -> dict[str, Any]:
        """Return the report as JSON."""
        told: dict[str, Any] = {} if self.branched is None else {"branched": self.branched}
        return {
            **told,
            "ok": self.ok,
            "head": {"size": self.head.size, "root": self.head.root_hex},
            "events": self.events,
            "worlds": self.worlds,
            "proposals": self.proposals,
            "index": self.index,
            "against": [str(head) for head in self.against],
            "findings": [
                {"code": f.code, "position": f.position, "message": f.message, "details": dict(f.details)}
                for f in self.findings
            ],
        }


def verify(
    log: EventLog,
    *,
    against: TreeHead | Sequence[TreeHead] | None = None,
    progress: Progress | None = None,
) -> VerificationReport:
    """Check all of a log.

    Args:
        log: the log; others may append to it meanwhile.
        against: tree heads saved elsewhere, of which the log must be a continuation.
        progress: called after every batch with events checked and events in all.

    Returns:
        The report; at most ``MAX_FINDINGS`` findings of the tree and as many of the events.
    """
    saved = (against,) if isinstance(against, TreeHead) else tuple(against or ())
    try:
        asked = branch_points(log, log.stored_head().size)
    except DamagedLogError:
        asked = set()  # the pass names what is wrong
    checker = _Checker(log, asked)
    try:
        found = verify_tree(log, saved, progress, checker.take)
    except ForgottenWorldError:  # a line of worlds was gone along again by another branch: once more, with those kept
        with suppress(DamagedLogError):  # as above
            asked |= revisited_worlds(log, log.stored_head().size)
        checker = _Checker(log, asked, is_last=True)
        found = verify_tree(log, saved, progress, checker.take)
    found += checker.finish()
    return VerificationReport(
        findings=(*sorted(found, key=lambda finding: finding.position), *_verify_tables(log), *verify_storage(log)),
        head=log.stored_head(),
        events=checker.seen,
        worlds=checker.count(WorldSealed.TOPIC),
        proposals=checker.count(ProposalSubmitted.TOPIC),
        index=checker.index.extent,
        against=saved,
        branched=checker.branched,
    )


def _verify_tables(log: EventLog) -> list[LogFinding]:
    """Compare the tables with those that this program makes; what cannot be read, others have named."""
    with suppress(DamagedLogError):
        return [
            LogFinding(
                "SCHEMA_DIFFERS",
                0,
                f"In the database {one.message}; {one.advice}.",
                {"name": one.name, "mendable": one.is_mendable},
            )
            for one in table_faults(log)[:MAX_FINDINGS]
        ]
    return []


class _Checker:
    """One pass over the events, fed with the rows that the tree's pass reads."""

    def __init__(self, log: EventLog, asked: set[str], *, is_last: bool = False) -> None:
        self.seen = 0
        self.index = IndexAudit(log)
        self._log = log
        self._is_last = is_last
        self._realm = RealmState()
        self._lineages = Lineages(asked)
        self._repeats = Repeats()
        self._findings: list[LogFinding] = []
        self._follows = True  # so far the realm is what the events make it
        self._fractions = 0
        self._checks = Checks(self._realm, self._lineages, self._bad)
        self._kinds = {
            topic: Kind(kind, self._checks.by_topic.get(topic), self._fraction) for topic, kind in TOPICS.items()
        }

    @property
    def branched(self) -> int | None:
        """How many events there are of a real log, where the others never were."""
        return None if self._realm.branched is None else self._realm.branched.size

    def count(self, topic: str) -> int:
        """Return how many events of a topic there are."""
        return self._kinds[topic].count

    def take(self, rows: Sequence[Row]) -> None:
        """Look at a batch of stored rows."""
        kinds = self._kinds
        for position, stream, version, topic, schema_version, state, *_ in rows:
            self.seen += 1
            if position != self.seen:
                self._follows = False  # something is missing; the tree's findings name it
            kind, self._fractions = kinds.get(topic), 0
            self._checks.version = schema_version
            try:
                event = read_event(kind, topic, schema_version, state, position)
                check_shapes(topic, event)
            except msgspec.ValidationError as error:
                told = f"Event {position} is not a valid {topic!r}: {error}."
                self._stop(DamagedLogError("BAD_EVENT", told, position=position, topic=topic), position)
                continue
            except DamagedLogError as damage:
                self._stop(damage, position)
                continue
            if not is_canonical(state, has_fraction=self._fractions > 0):
                self._add("NOT_CANONICAL", position, "its state is no canonical JSON")
            if kind is not None:
                kind.count += 1
                if self._follows:
                    self._follow(kind, event, position, stream, version)

    def finish(self) -> list[LogFinding]:
        """Return all findings, those included that only the whole log tells."""
        if self._follows:
            self._checks.at_the_end()
        for position, message in self._repeats.found(self._again):
            self._add("DUPLICATE_ID", position, message)
        if self._follows:
            for position, message in self.index.problems(self._realm):
                self._add("INDEX_DIFFERS", position, message)
        return self._findings

    def _again(self) -> Iterator[tuple[int, Event]]:
        """Read once more the events whose ids must not repeat, as far as they can be read."""
        for logged in self._repeated():
            with suppress(DamagedLogError, *MALFORMED):
                yield logged.position, decode_event(logged.topic, logged.schema_version, logged.state, logged.position)

    def _repeated(self) -> Iterator[LoggedEvent]:
        with suppress(DamagedLogError):  # which the pass has named
            yield from self._log.read(upto=self._log.stored_head().size, topics=NAMING)

    def _follow(self, kind: Kind, event: Event, position: int, stream: str, version: int) -> None:
        """Check an event against what came before it, and fold it."""
        expected = stream_of(event)
        if stream != expected:
            self._add("WRONG_STREAM", position, f"it stands in the stream {stream!r} and belongs to {expected!r}")
        elif version == 1 and is_of_proposal(event) and event.TOPIC != ProposalSubmitted.TOPIC:
            self._add("WRONG_STREAM", position, "the stream of a proposal begins with its submission")
        if position == 1:
            self._checks.at_the_beginning(event)
        try:
            if kind.step is not None:
                kind.step(event, position)
            self._repeats.take(event)
            apply_event(self._realm, event, position)
            self.index.take(event, position, self._checks.world)
            self.index.take_ledger(position, self._realm.klis)
        except ForgottenWorldError as missing:
            if not self._is_last:
                raise
            self._stop(unknown_world(str(missing), position), position)
        except DamagedLogError as damage:
            self._stop(damage, position)
        except MALFORMED as error:
            self._stop(malformed(position, error), position)

    def _fraction(self, text: str) -> float:
        self._fractions += 1
        return float(text)

    def _bad(self, code: str, message: str) -> None:
        self._add(code, self.seen, message)

    def _add(self, code: str, position: int, message: str) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(LogFinding(code, position, f"Event {position}: {message}."))

    def _stop(self, damage: DamagedLogError, position: int) -> None:
        """Take in damage after which the realm is unknown; later events are checked for their form alone."""
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(LogFinding(damage.code, position, damage.message, damage.details))
        self._follows = False
