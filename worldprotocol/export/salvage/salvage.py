"""Salvage of a damaged log: its longest sound prefix as an export, and beside it whatever else is intact.

The prefix is what `worldctl import` takes and `worldctl verify` finds sound; it ends under the largest tree head that
agrees with all before it. What else is intact is written to a second file, each event with its proof. The log itself
is read only. Sources: RFC 9162 section 2.1; CARD-audit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, ClassVar, Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log import TreeHead, parse_address
from world.log.merkle import Frontier
from world.log.url import MEMORY
from world.model.canonical_json import canonical_bytes
from world.model.record import WireForm
from world.private_files import open_private
from worldprotocol.export.jsonl_lines import (
    FORMAT,
    HEAD_EVERY,
    ExportHeader,
    Progress,
    SalvagedFrom,
    head_line,
    header_line,
)
from worldprotocol.export.proofs.exports import Spans, check_export, is_export
from worldprotocol.export.salvage.judging import ProvenEvents, judge
from worldprotocol.export.salvage.scratch import EventVersion, ScratchStore
from worldprotocol.export.salvage.server import read_server
from worldprotocol.export.salvage.sources import read_export, read_file

__all__ = ["Salvaged", "is_source", "salvage"]

MAX_LINES: Final = 1_000
_LOOK_AT: Final = 1 << 16
_SQLITE: Final = b"SQLite format 3\x00"


@dataclass(slots=True)
class Salvaged(WireForm):
    """Result of a salvage.

    Args:
        name: name of the log.
        expected: number of events of the log according to its tree heads.
        head: the tree head at the end of the prefix; its size is the number of exported events.
        vouched: origin of the tree head that covers the prefix: ``saved``, ``stored``, or ``none``.
        rest: number of intact events after the prefix, by the tree head that proves them: ``saved``, ``stored``,
            ``none``.
        lost: positions without any data.
        changed: positions whose content differs from the committed one.
        unreadable: positions with a leaf hash only, such as hidden events.
        contradicted: tree heads saved elsewhere that contradict the events.
        bad_lines: invalid lines of an export.
        cut: findings of the verification of longer prefixes, which were therefore shortened.
        before: facts in an export about the damaged log that it was salvaged from.
    """

    name: str
    expected: int = 0
    head: TreeHead = field(default_factory=lambda: TreeHead(0, Frontier().root()))
    vouched: str = "none"
    rest: dict[str, int] = field(default_factory=lambda: {"saved": 0, "stored": 0, "none": 0})
    lost: Spans = field(default_factory=Spans)
    changed: Spans = field(default_factory=Spans)
    unreadable: Spans = field(default_factory=Spans)
    contradicted: list[TreeHead] = field(default_factory=list)
    bad_lines: list[int] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    before: SalvagedFrom | None = None
    WIRE: ClassVar = (
        "name whole=is_whole expected events=head.size head vouched rest lost changed unreadable "
        "contradicted=against badLines=first_bad cut"
    )

    @property
    def is_whole(self) -> bool:
        """Whether the prefix has all events of the log and a tree head covers it."""
        rendered = self.lost.count or self.changed.count or self.unreadable.count or self.contradicted or self.bad_lines
        return self.vouched != "none" and self.head.size == self.expected and not (rendered or any(self.rest.values()))

    @property
    def against(self) -> list[str]:
        """The tree heads saved elsewhere that contradict the events, as texts."""
        return [str(head) for head in self.contradicted]

    @property
    def first_bad(self) -> list[int]:
        """The first of the invalid lines."""
        return self.bad_lines[:MAX_LINES]

    @property
    def beginning(self) -> int:
        """Number of leading events that match their own leaf hashes, with or without a tree head."""
        gaps = [spans.spans[0][0] for spans in (self.lost, self.changed, self.unreadable) if spans.spans]
        return min(gaps, default=self.expected + 1) - 1


def salvage(
    source: str,
    out: Path,
    rest: Path,
    *,
    against: Sequence[TreeHead] = (),
    unproven: bool = False,
    progress: Progress | None = None,
) -> Salvaged:
    """Write the intact events of a damaged log.

    Args:
        source: the address of a log, or the path of an export.
        out: path of the export of the longest valid prefix; not written for an empty prefix.
        rest: path of the file with all other intact events; not written where there are none.
        against: tree heads saved elsewhere, which prove more than those in the log.
        unproven: extend the prefix beyond the last tree head that agrees, as far as every event is what its own
            leaf hash says; it may end in the middle of a commit then.
        progress: called with the number of processed positions and the total.

    Raises:
        DamagedLogError: ``NOTHING_TO_SALVAGE`` where no intact event was found.
        RefusedError: ``LOG_NOT_FOUND``, ``INVALID_ADDRESS``, ``FILE_UNREADABLE``.
        OSError: a file cannot be written.
    """
    with ScratchStore() as scratch:
        done = Salvaged("main")
        log = _read(source, scratch, done)
        for head in against:
            scratch.add_head(log, head, saved=True)
        judged = judge(scratch, log, progress)
        done.expected, done.contradicted = scratch.extent(log), judged.contradicted
        if done.before is not None:
            done.expected = max(done.expected, done.before.expected)
        _write_prefix(scratch, log, judged, done, out, by_heads=judged.has_heads and not unproven)
        _write_rest(scratch, log, judged, done, rest)
    return done


def is_source(target: Path, source: str) -> bool:
    """Return whether a file is that of the log itself, or one that SQLite would read as a part of it."""
    path = parse_address(source).path
    if not path:
        return False
    own = [Path(path + part) for part in ("", "-wal", "-shm", "-journal")]
    return any(
        target.resolve() == one.resolve() or (one.exists() and target.exists() and target.samefile(one)) for one in own
    )


def _read(source: str, scratch: ScratchStore, done: Salvaged) -> int:
    """Collect all remaining data of the source; return the number of the requested log."""
    address = parse_address(source)
    if address.path == MEMORY:
        raise RefusedError(ErrorCode.INVALID_ADDRESS, f"{source!r} is a log in memory; name a file or a server.")
    done.name = address.name
    if address.scheme != "sqlite":
        known = read_server(source, scratch)
        log = _which(scratch, address.store(), address.name) if known is None else known
    elif _looks_like_export(address.path):
        with open(address.path, "rb") as lines:
            log, header = read_export(lines, scratch, done.bad_lines)
        done.name = address.name if header is None else header.name or address.name
        done.before = None if header is None else header.salvaged
    else:
        read_file(address.path, scratch)
        log = _which(scratch, address.path, address.name)
    if not scratch.logs().get(log):
        raise DamagedLogError(
            ErrorCode.NOTHING_TO_SALVAGE, f"No intact event was found in {address.store()}. Restore it from a copy."
        )
    return log


def _looks_like_export(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            beginning = file.read(_LOOK_AT)
    except FileNotFoundError:
        raise RefusedError(ErrorCode.LOG_NOT_FOUND, f"There is no file {path}. Check the path.") from None
    except OSError as error:
        raise RefusedError(ErrorCode.FILE_UNREADABLE, f"{path} cannot be read: {error.strerror}.", path=path) from None
    return is_export(beginning) or (not beginning.startswith(_SQLITE) and b'\n{"leaf":"' in beginning)


def _which(scratch: ScratchStore, path: str, name: str) -> int:
    logs = scratch.logs()
    wanted = scratch.named(name) & logs.keys()
    if name.isascii() and name.isdigit() and int(name) in logs:
        wanted = {int(name)}
    if not wanted and len(logs) <= 1:
        wanted = set(logs)
    if len(wanted) == 1:
        return wanted.pop()
    if not logs:
        return 0
    numbers = ", ".join(f"{path}#{number} ({count} events)" for number, count in logs.items())
    raise RefusedError(
        ErrorCode.LOG_NOT_FOUND,
        f"{path} holds several logs, and the name {name!r} does not identify one. Name one by its number: {numbers}.",
        numbers=list(logs),
    )


def _sound(scratch: ScratchStore, log: int, judged: ProvenEvents, by_heads: bool) -> int:
    """Return the position up to which all events are valid, and, on request, proven by the tree."""
    position = 0
    for position, versions in scratch.events(log):
        one = judged.choose(versions)
        if one is None or (by_heads and judged.proof(position) == "none"):
            return _gapless(scratch, log, position - 1)
    return _gapless(scratch, log, position)


def _gapless(scratch: ScratchStore, log: int, upto: int) -> int:
    expected = 0
    for expected, (position, _) in enumerate(scratch.events(log, 0, upto), 1):
        if position != expected:
            return expected - 1
    return expected


def _write_prefix(
    scratch: ScratchStore, log: int, judged: ProvenEvents, done: Salvaged, out: Path, *, by_heads: bool
) -> None:
    """Write the longest prefix that passes verification, and record it in the result."""
    size = _sound(scratch, log, judged, by_heads)
    if any(head.size > judged.by_saved for head in judged.contradicted):
        size = min(size, judged.by_saved)
    part = out.with_name(out.name + ".part")
    try:
        while size := judged.last_agreed(size) if by_heads else size:
            vouched = judged.proof(size)
            if vouched == "stored" and done.before is not None:
                vouched = done.before.vouched  # the tree heads in such a file were created when it was salvaged
            with open_private(part, replaces=out) as file:
                done.head = _write(scratch, log, judged, _header(done, size, vouched), size, file)
            bad, why = _first_bad(part)
            if bad is None:
                part.replace(out)
                done.vouched = vouched
                return
            done.cut.append(why)
            size = min(bad, size) - 1
        done.head = TreeHead(0, Frontier().root())
    finally:
        part.unlink(missing_ok=True)


def _header(done: Salvaged, size: int, vouched: str) -> ExportHeader:
    """Return the first line of the export, which marks an incomplete prefix and one without a tree head."""
    is_whole = size == done.expected and vouched != "none"
    return ExportHeader("log", FORMAT, done.name, salvaged=None if is_whole else SalvagedFrom(done.expected, vouched))


def _write(
    scratch: ScratchStore, log: int, judged: ProvenEvents, header: ExportHeader, size: int, file: IO[bytes]
) -> TreeHead:
    """Write the first events as an export, with the recovered tree heads and one at the end."""
    file.write(header_line(header))
    frontier, written = Frontier(), 0
    for position, leaf, line in _chosen(scratch, log, judged, size):
        file.write(line)
        frontier = frontier.extended([leaf])
        is_end = judged.last_agreed(position) == position if judged.has_heads else position - written >= HEAD_EVERY
        if is_end and position < size:
            file.write(head_line(TreeHead(position, frontier.root())))
            written = position
    head = TreeHead(size, frontier.root())
    file.write(head_line(head))
    return head


def _chosen(scratch: ScratchStore, log: int, judged: ProvenEvents, size: int) -> Iterator[tuple[int, bytes, bytes]]:
    for position, versions in scratch.events(log, 0, size):
        one = judged.choose(versions)
        assert one is not None  # all events of the prefix are valid
        assert one.line is not None
        assert one.computed is not None
        yield position, one.computed, one.line


def _first_bad(part: Path) -> tuple[int | None, str]:
    """Return the first invalid event of an export, with its finding; None for a valid export."""
    with part.open("rb") as source:
        try:
            report = check_export(source)
        except RefusedError as refused:
            return int(refused.details.get("position") or _position_of(part, refused.details["line"])), refused.message
    if report.ok:
        return None, ""
    found = report.findings[0]
    return max(found.position, 1), found.message


def _position_of(part: Path, line: int) -> int:
    """Return the number of events in a file up to a line."""
    with part.open("rb") as lines:
        return sum(number <= line and text.startswith(b'{"leaf":') for number, text in enumerate(lines, 1))


def _write_rest(scratch: ScratchStore, log: int, judged: ProvenEvents, done: Salvaged, rest: Path) -> None:
    """Write the intact events after the prefix, and record the others in the result."""
    part, file, expected = rest.with_name(rest.name + ".part"), None, done.head.size + 1
    try:
        for position, versions in scratch.events(log, done.head.size):
            done.lost.add(expected, position - 1)
            expected = position + 1
            one = judged.choose(versions)
            if one is None or one.line is None:
                rendered = done.unreadable if all(found.line is None for found in versions) else done.changed
                rendered.add(position, position)
                continue
            if file is None:
                file = open_private(part, replaces=rest)
                file.write(canonical_bytes({"worldProtocol": "salvage", "format": FORMAT, "name": done.name}) + b"\n")
            proof = judged.proof(position)
            done.rest[proof] += 1
            file.write(_with_proof(one, proof))
        done.lost.add(expected, done.expected)
        if file is not None:
            file.close()
            part.replace(rest)
    finally:
        if file is not None:
            file.close()
        part.unlink(missing_ok=True)


def _with_proof(one: EventVersion, proof: str) -> bytes:
    assert one.line is not None
    return one.line.replace(b',"schemaVersion":', b',"proof":"%b","schemaVersion":' % proof.encode(), 1)
