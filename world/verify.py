"""Verify: everything a log says about itself, checked from the stored bytes in one pass.

The tree and the order of the events (``world.log.audit``); every event's topic, version, canonical text and stream;
what it names and every hash in it (``world.checking``); the state machines (``world.realm``); ids that must not come
twice; and the index beside the log, which must say what the events say. Nothing is executed and no domain is needed.
Findings name the first bad event. Source: CARD-audit, WP-hash, WP-restore; design sections 1, 2, 9.

Memory is bounded by what is alive, as in ``world.replay``, and 24 bytes for each proposal and 8 for each world, by
which repeated ids are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from world.checking import Checks, is_canonical, stream_of
from world.errors import DamagedLog, Refused
from world.events import TOPICS, BranchCreated, Event, WorldSealed
from world.log import EventLog, Finding, TreeHead
from world.log.audit import MAX_FINDINGS, verify_tree
from world.log.store import Row
from world.realm import Realm, fold
from world.replay import (
    ForgottenWorld,
    Kind,
    Lineages,
    Progress,
    branch_points,
    read_event,
    revisited_worlds,
    unknown_world,
)
from world.uniqueness import Repeats
from world.views.audit import IndexAudit

_MALFORMED: Final = (KeyError, TypeError, AttributeError, ValueError, Refused)
"""What looking into an event raises whose embedded values are not what its topic says."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a verification found.

    Args:
        findings: in order of position; empty for a sound log.
        head: the newest tree head, under which everything was checked.
        events: how many events were looked at.
        worlds: how many states were restored and hashed.
        proposals: how many intents were hashed.
        index: how the index was compared: ``whole``, ``sample``, or ``none`` where it is not live.
        against: the tree heads saved elsewhere that the log was compared with.
    """

    findings: tuple[Finding, ...]
    head: TreeHead
    events: int
    worlds: int
    proposals: int
    index: str
    against: tuple[TreeHead, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_wire(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return {
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
) -> Report:
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
        asked = branch_points(log)
    except DamagedLog:
        asked = set()  # the pass names what is wrong
    checker = _Checker(log, asked)
    try:
        found = verify_tree(log, saved, progress, checker.take)
    except ForgottenWorld:  # a line of worlds was gone along again by another branch: once more, with those kept
        checker = _Checker(log, asked | revisited_worlds(log), is_last=True)
        found = verify_tree(log, saved, progress, checker.take)
    found += checker.finish()
    return Report(
        findings=tuple(sorted(found, key=lambda finding: finding.position)),
        head=log.head(),
        events=checker.seen,
        worlds=checker.count(WorldSealed.TOPIC),
        proposals=checker.count("proposal.submitted"),
        index=checker.index.extent,
        against=saved,
    )


class _Checker:
    """One pass over the events, fed with the rows that the tree's pass reads."""

    def __init__(self, log: EventLog, asked: set[str], *, is_last: bool = False) -> None:
        self.seen = 0
        self.index = IndexAudit(log)
        self._log = log
        self._is_last = is_last
        self._realm = Realm()
        self._lineages = Lineages(asked)
        self._checks = Checks(self._realm, self._lineages)
        self._kinds = {topic: Kind(kind, None) for topic, kind in TOPICS.items()}
        self._repeats = Repeats()
        self._findings: list[Finding] = []
        self._follows = True  # so far the realm is what the events make it

    def count(self, topic: str) -> int:
        """Return how many events of a topic there are."""
        return self._kinds[topic].count

    def take(self, rows: Sequence[Row]) -> None:
        """Look at a batch of stored rows."""
        for position, stream, version, topic, schema_version, state, *_ in rows:
            self.seen += 1
            if position != self.seen and self._follows:
                self._follows = False  # something is missing; the tree's findings name it
            kind = self._kinds.get(topic)
            try:
                event = read_event(kind, topic, schema_version, state, position)
            except DamagedLog as damage:
                self._stop(damage, position)
                continue
            if not is_canonical(state):
                self._add("NOT_CANONICAL", position, "its state is no canonical JSON")
            if kind is not None:
                kind.count += 1
            if self._follows:
                self._follow(event, position, stream, version)

    def finish(self) -> list[Finding]:
        """Return all findings, those included that only the whole log tells."""
        for code, message in self._checks.at_the_end() if self._follows else ():
            self._add(code, self.seen, message)
        for position, message in self._repeats.found(self._log):
            self._add("DUPLICATE_ID", position, message)
        if self._follows:
            for position, message in self.index.problems(self._realm):
                self._add("INDEX_DIFFERS", position, message)
        return self._findings

    def _follow(self, event: Event, position: int, stream: str, version: int) -> None:
        """Check an event against what came before it, and fold it."""
        try:
            for code, message in self._problems(event, stream, version):
                self._add(code, position, message)
            self._repeats.take(event)
            fold(self._realm, event, position)
            self.index.take(event, position, self._checks.world)
        except ForgottenWorld as missing:
            if not self._is_last:
                raise
            self._stop(unknown_world(str(missing), position), position)
        except DamagedLog as damage:
            self._stop(damage, position)
        except _MALFORMED as error:
            told = f"a part is missing or wrong ({type(error).__name__}: {error})"
            self._stop(DamagedLog("BAD_EVENT", f"Event {position} is no valid {event.TOPIC}: {told}."), position)

    def _problems(self, event: Event, stream: str, version: int) -> Iterator[tuple[str, str]]:
        expected = stream_of(event)
        if stream != expected:
            yield "WRONG_STREAM", f"it stands in the stream {stream!r} and belongs to {expected!r}"
        topic = event.TOPIC
        if (topic == "proposal.submitted") is not (version == 1) and stream == expected and topic.startswith("proposal."):
            yield "WRONG_STREAM", "a proposal's stream begins with its submission, and only there"
        check = self._checks.by_topic.get(topic)
        if check is not None:
            yield from check(event)
        if isinstance(event, BranchCreated):
            self._lineages.begin_branch(event.world_id)

    def _add(self, code: str, position: int, message: str) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(Finding(code, position, f"Event {position}: {message}."))

    def _stop(self, damage: DamagedLog, position: int) -> None:
        """Take in damage after which the realm is unknown; later events are checked for their form alone."""
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(Finding(damage.code, position, damage.message, damage.details))
        self._follows = False
