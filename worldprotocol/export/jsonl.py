"""Export and import of a log as JSON lines, with tree heads that prove its completeness (design sections 2, 10).

    {"format":1,"name":"main","worldProtocol":"log"}
    {"leaf":"..","position":1,"schemaVersion":1,"state":{..},"stream":"realm","topic":"log.founded","version":1}
    ...
    {"head":{"root":"..","size":1006}}

Every line is canonical JSON, and an event's state is the stored text, so the export is lossless. A tree head follows
the last event, and the last one of each commit or about every thousand events; a file without its last line is refused.
An imported log has identical events, byte by byte, and the tree heads of the file, in every store.

The header of a log that was salvaged incompletely, or without a tree head, from a damaged log records that:
``"salvaged":{"expected":36,"vouched":"none"}``.

The header of a stretch that begins after an event of the log records the tree before it:
``"start":{"nodes":["..",".."],"size":768}``. Its tree heads are those of the whole log, and it is imported into a log
that has the events before it.

The header of a redacted export (KM-7.3) lists the kinds of its rules. A hidden event is replaced completely by
``{"leaf":"..","position":7,"redacted":true}``. All tree heads can still be computed from the leaves; the file cannot be
imported. See ``worldprotocol.export.redaction``.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import msgspec

from world.audit.unique_ids import Repeats
from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.codec import decode_event
from world.log import EventLog, LoggedEvent, NewEvent, Transaction, TreeHead, open_log, parse_address
from world.log.merkle import Frontier
from world.log.url import MEMORY, LogAddress
from world.masking import masked
from world.read_models.index import WorldIndex
from worldprotocol.export.jsonl_lines import (
    _HEAD,
    FORMAT,
    HEAD_EVERY,
    ExportHeader,
    Hidden,
    Progress,
    SalvagedFrom,
    Start,
    _bad,
    cut_off,
    damaged_head,
    event_line,
    head_line,
    header_line,
    read_items,
)
from worldprotocol.export.redaction import Redaction

APPENDED: Final = 8_000
"""Events that an import appends in one transaction.

Ids and hashes are spread over the indexes of a large log: in a larger transaction, fewer pages are written for each.
"""

APPENDED_BYTES: Final = 16 << 20
"""Size of their states from which a transaction has fewer events, in bytes."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import.

    Args:
        name: name of the exported log.
        added: number of events that this import appended.
        head: the tree head of the log.
        salvaged: facts about the damaged log that the file was salvaged from; None for other files.
    """

    name: str
    added: int
    head: TreeHead
    salvaged: SalvagedFrom | None = None


def export_log(
    log: EventLog,
    out: IO[bytes],
    *,
    after: int = 0,
    upto: int | None = None,
    progress: Progress | None = None,
    redaction: Redaction | None = None,
    every_head: bool = False,
) -> TreeHead:
    """Write a log as JSON lines, without concurrently appended events.

    Args:
        log: the log.
        out: binary file that receives the lines.
        after: position before the first event; the header then records the tree up to it.
        upto: position of the last event; None is the end of the log.
        progress: called with the position of the last written event and that of the last one.
        redaction: rules for the events to hide; such an export cannot be imported (KM-7.3).
        every_head: whether each tree head of the log is written, so that an imported log has the ends of commits;
            otherwise one for about every thousand events.

    Returns:
        The tree head in the last line.

    Raises:
        RefusedError: ``NO_SUCH_EVENT`` when the log is shorter.
        DamagedLogError: the first event or head that contradicts its hash; the lines before it are valid.
    """
    last = log.head() if upto is None else log.root_at(upto)
    frontier = log.frontier(after)
    header = ExportHeader("log", FORMAT, log.name, start=Start.of(frontier) if after else None)
    if redaction:
        redaction.learn(log)
        header.redacted = list(redaction.kinds)
    out.write(header_line(header))
    heads, written = log.heads(after, last.size), after
    for rows in log.read_rows(after, last.size):
        if every_head:
            ends = [head for head in log.heads(rows[0][0] - 1, rows[-1][0]) if head.size < last.size]
            frontier = _write_commits(rows, ends, frontier, out, redaction)
        else:
            for row in rows:
                out.write(event_line(LoggedEvent(*row), redaction))
            frontier = frontier.extended(row[6] for row in rows)
        position = rows[-1][0]
        if not every_head and position - written >= HEAD_EVERY and position < last.size:
            head = TreeHead(position, frontier.root())
            stored = next((head for head in heads if head.size >= position), last)
            if stored.size == position and stored.root != head.root:
                raise damaged_head(stored)
            out.write(head_line(head))
            written = position
        if progress is not None:
            progress(position, last.size)
    if frontier.root() != last.root:
        raise damaged_head(last)
    out.write(head_line(last))
    return last


def _write_commits(
    rows: list[tuple[Any, ...]], ends: list[TreeHead], frontier: Frontier, out: IO[bytes], redaction: Redaction | None
) -> Frontier:
    """Write events, and the tree heads at the ends of their commits; return the tree with them.

    Raises:
        DamagedLogError: ``TREE_DAMAGED`` for a head that is not that of the events before it.
    """
    first, taken = rows[0][0], 0
    for head in [*ends, None]:
        count = len(rows) if head is None else head.size - first + 1
        for row in rows[taken:count]:
            out.write(event_line(LoggedEvent(*row), redaction))
        frontier, taken = frontier.extended(row[6] for row in rows[taken:count]), count
        if head is not None:
            if head.root != frontier.root():
                raise damaged_head(head)
            out.write(head_line(head))
    return frontier


def import_log(source: IO[bytes], address: str | LogAddress, *, progress: Progress | None = None) -> Imported:
    """Append a file's events to a new log, or to a log that the file continues.

    The complete file is checked before the first event is written, so that a damaged or truncated file changes
    nothing. An interrupted import continues when it is repeated.

    Args:
        source: the lines; a stream without seek is copied to a temporary file.
        address: the log to append to; it is created if it does not exist.
        progress: called with the number of processed bytes and the total; checking and writing count half each.

    Raises:
        RefusedError: ``BAD_EXPORT`` with the line, for anything but a complete export; ``LOG_NOT_EMPTY`` when the log
            has other or more events than the file, or lacks events before it; ``STREAM_CONFLICT`` where a file that
            begins after an event does not continue a stream; ``LOG_FORMAT`` for a later format of the file;
            ``INVALID_ADDRESS`` for a log in memory, which would be lost when the import ends.
    """
    if (address if isinstance(address, LogAddress) else parse_address(address)).path == MEMORY:
        raise RefusedError(
            ErrorCode.INVALID_ADDRESS,
            f"{masked(str(address))!r} is a log in memory, which would end with the import; name a file or a server.",
        )
    with tempfile.TemporaryFile() as spool:
        lines = source if source.seekable() else spool
        if lines is spool:
            for block in iter(lambda: source.read(1 << 20), b""):
                spool.write(block)
            spool.seek(0)
        start = lines.tell()
        total = lines.seek(0, io.SEEK_END)
        lines.seek(start)
        known = _known_head(address)
        header, last, agrees = _check(lines, known.size, lambda at: _tell(progress, at, 2 * total))
        _check_target(known, last, agrees)
        lines.seek(start)
        return _append(
            lines,
            address,
            Imported(header.name, 0, last, header.salvaged),
            lambda at: _tell(progress, total + at, 2 * total),
        )


def check_export(lines: IO[bytes]) -> TreeHead:
    """Check a complete export, as ``import_log`` does before it writes, and return its last tree head.

    Raises:
        RefusedError: ``BAD_EXPORT`` with the line, ``LOG_FORMAT``.
    """
    return _check(lines, 0, lambda _: None)[1]


def read_heads(lines: Iterable[bytes]) -> list[TreeHead]:
    """Return the tree heads in a text: ``SIZE:ROOT`` alone on a line, or the head lines of an export.

    Raises:
        RefusedError: ``INVALID_TREE_HEAD`` for a line that is neither a tree head nor another line of an export.
    """
    heads = []
    for line in lines:
        if line.startswith(b'{"head":'):
            try:
                wire = _HEAD.decode(line).head
                head = TreeHead.from_hex(wire.size, wire.root)
                is_canonical = head_line(head).strip() == line.strip()
            except (msgspec.MsgspecError, UnicodeError, RecursionError, RefusedError):
                is_canonical = False
            if not is_canonical:
                raise RefusedError(ErrorCode.INVALID_TREE_HEAD, f"This is no tree head: {line[:120]!r}.")
            heads.append(head)
        elif line.strip() and not line.startswith((b'{"leaf":', b'{"format":')):
            heads.append(TreeHead.parse(line.decode("utf-8", "replace").strip()))
    return heads


def _tell(progress: Progress | None, done: int, whole: int) -> None:
    if progress is not None:
        progress(done, max(whole, 1))


def _known_head(address: str | LogAddress) -> TreeHead:
    """Return the head of the log at an address, or the head of an empty log where none exists."""
    empty = TreeHead(0, Frontier().root())
    try:
        with open_log(address, read_only=True) as log:
            return log.head()
    except RefusedError as refused:
        if refused.code not in ("LOG_NOT_FOUND", "NOT_A_LOG"):
            raise
        return empty  # opening the address for writing refuses one that cannot become a log


def _check_target(known: TreeHead, last: TreeHead, found: TreeHead | None) -> None:
    if known.size == 0:
        return
    if found is None:
        raise RefusedError(
            ErrorCode.LOG_NOT_EMPTY,
            f"The log holds {known.size} events and the file {last.size}: the file does not continue it. Import into a "
            "new log.",
            events=known.size,
            in_file=last.size,
        )
    if found.root != known.root:
        raise RefusedError(
            ErrorCode.LOG_NOT_EMPTY,
            f"The log holds {known.size} events, which are not those of the file. Import into a new log.",
            events=known.size,
            root=known.root_hex,
            in_file=found.root_hex,
        )


def _check(lines: IO[bytes], size: int, tell: Callable[[int], None]) -> tuple[ExportHeader, TreeHead, TreeHead | None]:
    """Check a complete file; return its header, its last head, and its head over the first ``size`` events."""
    header, frontier, known = ExportHeader("log", FORMAT, ""), Frontier(), None
    pending: list[bytes] = []
    versions: dict[str, int] = {}
    last: TreeHead | None = None
    repeats, start = Repeats(), lines.tell()
    for number, item in _whole_items(lines, tell):
        last = None
        if isinstance(item, ExportHeader):
            header, frontier = item, _beginning(item, size)
            repeats = Repeats(is_whole=item.start is None)
            if frontier.size == size:
                known = TreeHead(size, frontier.root())
        elif isinstance(item, TreeHead):
            frontier, pending = frontier.extended(pending), []
            if item != TreeHead(frontier.size, frontier.root()):
                raise _bad(
                    number,
                    f"the tree head {item.size} is not that of the {frontier.size} events before it",
                    frontier.size,
                )
            last = item
        else:
            if item.position != frontier.size + len(pending) + 1:
                place = frontier.size + len(pending)
                raise _bad(number, f"event {item.position} follows event {place}", place + 1)
            before = versions.get(item.stream, item.version - 1 if header.start is not None else 0)
            if item.version != before + 1:
                why = f"version {item.version} of the stream {item.stream!r} is out of order"
                raise _bad(number, why, item.position)
            versions[item.stream] = item.version
            repeats.take(_decoded(number, item))
            pending.append(item.leaf)
            if item.position == size:
                frontier, pending = frontier.extended(pending), []
                known = TreeHead(size, frontier.root())
    if last is None:
        raise cut_off()
    for position, message in repeats.found(lambda: _events(lines, start)):
        raise RefusedError(
            ErrorCode.BAD_EXPORT, f"Event {position}: {message}. Nothing was imported.", position=position
        )
    return header, last, known


def _beginning(header: ExportHeader, size: int) -> Frontier:
    """Return the tree before the first event of a file.

    Raises:
        RefusedError: ``BAD_EXPORT``; ``LOG_NOT_EMPTY`` where the log, with ``size`` events, lacks events before it.
    """
    if header.start is None:
        return Frontier()
    try:
        frontier = header.start.frontier()
    except RefusedError as refused:
        raise _bad(1, refused.message) from None
    if frontier.size > size:
        raise RefusedError(
            ErrorCode.LOG_NOT_EMPTY,
            f"The file begins after event {frontier.size}, and the log has {size}: import the events before it first.",
            events=size,
            after=frontier.size,
        )
    return frontier


def _whole_items(
    lines: IO[bytes], tell: Callable[[int], None]
) -> Iterator[tuple[int, ExportHeader | LoggedEvent | TreeHead]]:
    """Yield the items of an export, and refuse a redacted one."""
    for number, item in read_items(lines, tell):
        if isinstance(item, Hidden) or (isinstance(item, ExportHeader) and item.redacted):
            raise _bad(number, "it is redacted; only a whole export can become a log")
        yield number, item


def _events(lines: IO[bytes], start: int) -> Iterator[tuple[int, Event]]:
    lines.seek(start)
    for number, item in read_items(lines, lambda _: None):
        if isinstance(item, LoggedEvent):
            yield item.position, _decoded(number, item)


def _decoded(number: int, item: LoggedEvent) -> Event:
    try:
        return decode_event(item.topic, item.schema_version, item.state, item.position)
    except DamagedLogError as damage:
        raise _bad(number, damage.message.rstrip("."), item.position) from None
    except UnicodeError as error:
        raise _bad(number, f"its state is no UTF-8 text ({error})", item.position) from None


def _append(lines: IO[bytes], address: str | LogAddress, done: Imported, tell: Callable[[int], None]) -> Imported:
    view = WorldIndex()
    with open_log(address, create=True, durability="full", view=view) as log:
        size = log.head().size
        batch: list[LoggedEvent] = []
        ends: list[TreeHead] = []
        added = size_of_states = 0
        for _, item in read_items(lines, tell):
            if isinstance(item, LoggedEvent) and item.position > size:
                batch.append(item)
                size_of_states += len(item.state)
            elif isinstance(item, TreeHead) and batch:
                ends.append(item)
                if len(batch) >= APPENDED or size_of_states >= APPENDED_BYTES or item == done.head:
                    _append_commits(log, view, batch, ends)
                    added, size, batch, ends, size_of_states = added + len(batch), item.size, [], [], 0
        return Imported(done.name, added, log.head(), done.salvaged)


def append_copies(
    log: EventLog, view: WorldIndex, transaction: Transaction, events: Sequence[LoggedEvent], ends: Sequence[int]
) -> None:
    """Append events of another log as they are, with the tree heads at the ends of their commits.

    Args:
        log: the log.
        view: its index.
        transaction: the write.
        events: what to append.
        ends: sizes of the log at the ends of commits.
    """
    copies = [NewEvent(one.stream, one.topic, one.schema_version, one.state, one.version) for one in events]
    log.insert_events(copies, transaction=transaction)
    transaction.keep_heads(list(ends))
    view.apply(transaction.cursor(), transaction.appended)


def _append_commits(log: EventLog, view: WorldIndex, events: list[LoggedEvent], ends: list[TreeHead]) -> None:
    """Append events in one transaction, with the tree heads at the ends of their commits."""
    size = events[0].position - 1
    with log.write() as transaction:
        if transaction.head.size != size:
            raise RefusedError(
                ErrorCode.LOG_NOT_EMPTY,
                f"The log grew from {size} to {transaction.head.size} events during the import. Import into a new log.",
            )
        append_copies(log, view, transaction, events, [head.size for head in ends])
    if log.head() != ends[-1]:
        raise DamagedLogError(
            ErrorCode.TREE_DAMAGED, f"After event {ends[-1].size} the log has another tree head than the file."
        )
