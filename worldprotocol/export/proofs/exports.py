"""Checks of export files, without the log that they were exported from.

A complete export is imported into a temporary log and verified like any other log. Of a redacted export, all leaves,
heads and positions are checked, and of every shown event: its leaf hash, its version in its stream, its topic and
canonical text, the hashes that it contains (of worlds, schemas, policies and intents), and the uniqueness of its ids
among the shown events. Checks that need the hidden events (state machines, references, states) are reported as
omitted.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, ClassVar, Final

import msgspec

from world.audit.event_form import is_canonical, stream_of
from world.audit.unique_ids import Repeats
from world.audit.verify import VerificationReport, verify
from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.codec import decode_event
from world.events.policy_events import PolicyAdopted, ShadowConfigured
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import DomainAdopted, WorldSealed
from world.log import LogFinding, LoggedEvent, TreeHead, open_log
from world.log.merkle import Frontier
from world.model.identity import content_id, policy_hash, schema_hash, world_id
from world.model.record import Record, WireForm
from worldprotocol.export.jsonl import import_log
from worldprotocol.export.jsonl_lines import (
    ExportHeader,
    Hidden,
    Progress,
    SalvagedFrom,
    cut_off,
    header_line,
    read_items,
)

__all__ = ["ExportReport", "Spans", "check_export", "is_export"]

MAX_SPANS: Final = 1_000
"""Maximum number of spans of positions that are listed."""

MAX_FINDINGS: Final = 100


@dataclass(slots=True)
class Spans(WireForm):
    """Spans of consecutive positions, and their total number of positions."""

    count: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)
    WIRE: ClassVar = "count spans"

    def add(self, first: int, last: int) -> None:
        """Add the positions from the first to the last; spans are added in ascending order."""
        if last < first:
            return
        self.count += last - first + 1
        if self.spans and self.spans[-1][1] == first - 1:
            self.spans[-1] = self.spans[-1][0], last
        elif len(self.spans) < MAX_SPANS:
            self.spans.append((first, last))


class ExportReport(Record, frozen=True):
    """Result of the check of an export.

    Args:
        name: name of the exported log.
        head: the tree head at the end of the file.
        findings: empty for a valid file.
        events: number of events, including hidden ones.
        hidden: number of hidden events.
        spans: first and last position of each span of hidden events, at most ``MAX_SPANS``.
        rules: the kinds of rules by which events were hidden.
        whole: the verification report of a complete export; None for a redacted one.
        salvaged: facts about the damaged log that the file was salvaged from.
    """

    name: str
    head: TreeHead
    findings: tuple[LogFinding, ...]
    events: int
    hidden: int = 0
    spans: tuple[tuple[int, int], ...] = ()
    rules: tuple[str, ...] = ()
    whole: VerificationReport | None = None
    salvaged: SalvagedFrom | None = None
    kind: ClassVar = "export"
    WIRE: ClassVar = "*whole? kind name ok head events hidden hiddenSpans=spans redacted=rules salvaged findings"

    @property
    def ok(self) -> bool:
        """Whether the report has no findings."""
        return not self.findings


def is_export(data: bytes) -> bool:
    """Return whether the first bytes of a file are those of an export of a log."""
    return data.startswith(b'{"format":') and b'"worldProtocol":"log"' in data.partition(b"\n")[0]


def check_export(
    source: IO[bytes], *, against: Sequence[TreeHead] = (), progress: Progress | None = None
) -> ExportReport:
    """Check an export.

    Args:
        source: the file; it is read twice.
        against: tree heads saved elsewhere; the events must be a continuation of each.
        progress: called with the amount of processed input and the total.

    Raises:
        RefusedError: ``BAD_EXPORT`` where the file is truncated or not an export, ``LOG_FORMAT``.
    """
    header = next(read_items(source, lambda _: None), (0, None))[1]
    source.seek(0)
    if isinstance(header, ExportHeader) and header.start is not None:
        raise RefusedError(
            ErrorCode.BAD_EXPORT,
            f"The file begins after event {header.start.size}, so it cannot be checked alone: check the archive that "
            "it is of, or import it after the events before it and verify the log.",
        )
    if not isinstance(header, ExportHeader) or not header.redacted:
        return _whole(source, against, progress)
    report = _ExportPass(header, tuple(against)).over(source, progress)
    if report.hidden or report.findings:
        return report
    with tempfile.TemporaryFile() as shown:  # the header lists rules, but no event is hidden
        source.seek(0)
        source.readline()
        shown.write(header_line(msgspec.structs.replace(header, redacted=[])))
        shutil.copyfileobj(source, shown)
        shown.seek(0)
        return msgspec.structs.replace(_whole(shown, against, progress), rules=report.rules)


def _whole(source: IO[bytes], against: Sequence[TreeHead], progress: Progress | None) -> ExportReport:
    """Check a complete export by verification of the imported log."""
    with tempfile.TemporaryDirectory(prefix="export-") as folder:
        address = str(Path(folder, "scratch.db"))
        done = import_log(source, address, progress=progress)
        with open_log(address, read_only=True) as log:
            report = verify(log, against=against, progress=progress)
    return ExportReport(done.name, report.head, report.findings, report.events, whole=report, salvaged=done.salvaged)


@dataclass(slots=True)
class _ExportPass:
    """Pass over a redacted export."""

    header: ExportHeader
    against: tuple[TreeHead, ...]
    frontier: Frontier = field(default_factory=Frontier)
    hidden: Spans = field(default_factory=Spans)
    findings: list[LogFinding] = field(default_factory=list)
    repeats: Repeats = field(default_factory=lambda: Repeats(is_whole=False))
    streams: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # last version, and number of hidden events so far

    def over(self, source: IO[bytes], progress: Progress | None) -> ExportReport:
        size = source.seek(0, 2)
        source.seek(0)
        tell = (lambda _: None) if progress is None else (lambda done: progress(done, max(size, 1)))
        last: TreeHead | None = None
        saved = sorted(self.against, key=lambda head: head.size)
        for number, item in read_items(source, tell):
            last = None
            while saved and saved[0].size == self.frontier.size:
                self._compare(saved.pop(0))
            if isinstance(item, TreeHead):
                last = item
                if item != TreeHead(self.frontier.size, self.frontier.root()):
                    why = f"the tree head {item.size} is not that of the events before it"
                    raise _bad(number, why, self.frontier.size)
            elif not isinstance(item, ExportHeader):
                self._take(number, item)
        if last is None:
            raise cut_off()
        for head in saved:
            self._compare(head)
        for position, message in self.repeats.found(lambda: _shown(source)):
            self._find(ErrorCode.DUPLICATE_ID, position, f"Event {position}: {message}.")
        report = tuple(sorted(self.findings, key=lambda finding: finding.position))
        rules, events = tuple(self.header.redacted), self.frontier.size
        return ExportReport(
            self.header.name,
            last,
            report,
            events,
            self.hidden.count,
            tuple(self.hidden.spans),
            rules,
            salvaged=self.header.salvaged,
        )

    def _take(self, number: int, item: LoggedEvent | Hidden) -> None:
        if item.position != self.frontier.size + 1:
            raise _bad(number, f"event {item.position} follows event {self.frontier.size}", self.frontier.size + 1)
        self.frontier = self.frontier.extended([item.leaf])
        if isinstance(item, LoggedEvent):
            for code, message in self._faults(item):
                self._find(code, item.position, f"Event {item.position}: {message}.")
            self.streams[item.stream] = item.version, self.hidden.count
        else:
            self.hidden.add(item.position, item.position)

    def _faults(self, item: LoggedEvent) -> Iterator[tuple[ErrorCode, str]]:
        version, hidden = self.streams.get(item.stream, (0, 0))
        if not version < item.version <= version + 1 + self.hidden.count - hidden:
            yield ErrorCode.STREAM_DISORDER, f"version {item.version} of the stream {item.stream!r} is out of order"
        try:
            event = decode_event(item.topic, item.schema_version, item.state, item.position)
        except DamagedLogError as damage:
            yield ErrorCode(damage.code), damage.message.rstrip(".")
            return
        self.repeats.take(event)
        if stream_of(event) != item.stream:
            yield ErrorCode.WRONG_STREAM, f"it is in the stream {item.stream!r} and belongs to {stream_of(event)!r}"
        if not is_canonical(item.state):
            yield ErrorCode.NOT_CANONICAL, "its state is not canonical JSON"
            return
        for what, recorded, expected in _hashes(event):
            if recorded != expected:
                yield ErrorCode.WRONG_HASH, f"the {what} is {expected}, not {recorded}"

    def _compare(self, head: TreeHead) -> None:
        if head.size > self.frontier.size:
            message = f"The head {head} covers {head.size} events; the file has {self.frontier.size}."
            self._find(ErrorCode.LOG_TRUNCATED, self.frontier.size + 1, message)
        elif head.root != self.frontier.root():
            self._find(
                ErrorCode.SAVED_HEAD_MISMATCH, head.size, f"The first {head.size} events are not those under {head}."
            )

    def _find(self, code: ErrorCode, position: int, message: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(LogFinding(code, position, message))


def _hashes(event: Event) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the hashes in an event that can be computed from it: description, recorded and expected hash."""
    if isinstance(event, WorldSealed):
        yield "contentId", event.content_id, content_id(event.schema_hash, event.snapshot_hash)
        yield "worldId", event.world_id, world_id(event.schema_hash, event.snapshot_hash, event.parent)
    elif isinstance(event, DomainAdopted):
        yield "schemaHash of the schema", event.schema_hash, schema_hash(event.schema)
    elif isinstance(event, PolicyAdopted | ShadowConfigured) and event.policy is not None:
        yield "hash in the policy", event.policy_hash, event.policy["hash"]
        yield "policyHash of the policy", event.policy_hash, policy_hash(event.policy)
    elif isinstance(event, ProposalSubmitted):
        expected = event.intent.body.key(event.schema_hash)
        yield "intentKey of the intent", event.intent.intent_key, expected


def _shown(source: IO[bytes]) -> Iterator[tuple[int, Event]]:
    """Yield the readable shown events again."""
    source.seek(0)
    for _, item in read_items(source, lambda _: None):
        if isinstance(item, LoggedEvent):
            with suppress(DamagedLogError):
                yield item.position, decode_event(item.topic, item.schema_version, item.state, item.position)


def _bad(number: int, why: str, position: int) -> RefusedError:
    return RefusedError(ErrorCode.BAD_EXPORT, f"Line {number}: {why}.", line=number, position=position)
