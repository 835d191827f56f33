"""Export and import: a log as JSON lines, with the tree heads that prove it whole (design sections 2, 10).

    {"format":1,"name":"main","worldProtocol":"log"}
    {"leaf":"..","position":1,"schemaVersion":1,"state":{..},"stream":"realm","topic":"log.founded","version":1}
    ...
    {"head":{"root":"..","size":1006}}

Every line is canonical JSON, and an event's state is the stored text itself, so that nothing is lost on the way. A tree
head stands after every thousand events or so, where a commit ended, and at the end; a file without its last line is
refused. What was imported has the same events byte by byte and the same heads, in whatever store.

What was salvaged from a damaged log, and is less than that or under no tree head, says so in its header, for honest
readers: ``"salvaged":{"expected":36,"vouched":"none"}``.

A redacted export (KM-7.3) says in its header by what rules, and hides events whole: of such an event there is nothing
but ``{"leaf":"..","position":7,"redacted":true}``. All tree heads can still be computed from the leaves; it cannot be
imported. See ``worldprotocol.export.redaction``.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Final

import msgspec

from world.audit.unique_ids import Repeats
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.codec import decode_event
from world.log import EventLog, LoggedEvent, NewEvent, TreeHead, event_leaf, is_intact, open_log, parse_address
from world.log.merkle import Frontier
from world.log.url import MEMORY
from world.masking import masked
from world.model.canonical_json import canonical_bytes
from world.read_models.index import WorldIndex
from worldprotocol.export.redaction import Redaction

FORMAT: Final = 1
"""Version of the file's form."""

HEAD_EVERY: Final = 1_000
"""Events between two tree heads in a file, at least."""

MAX_LINE_BYTES: Final = 64 << 20
"""Longest line that is read, in bytes."""

Progress = Callable[[int, int], None]


class SalvagedFrom(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What an export tells of the damaged log that it was salvaged from.

    ``expected`` is how many events that had, ``vouched`` under what tree head these are: ``saved`` (one kept
    elsewhere), ``stored`` (one of the damaged log), or ``none``.
    """

    expected: int
    vouched: str


class ExportHeader(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The first line of an export.

    ``redacted`` says by what kinds of rules events are hidden in it, ``salvaged`` that it is the beginning of a damaged
    log.
    """

    world_protocol: str
    format: int
    name: str
    redacted: list[str] = []
    salvaged: SalvagedFrom | None = None


class _EventLine(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    position: int
    leaf: str
    stream: str = ""
    version: int = 0
    topic: str = ""
    schema_version: int = 0
    state: msgspec.Raw = msgspec.Raw()
    redacted: bool = False


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    size: int
    root: str


class _HeadLine(msgspec.Struct, forbid_unknown_fields=True):
    head: _Head


_HEADER: Final = msgspec.json.Decoder(ExportHeader)
_EVENT: Final = msgspec.json.Decoder(_EventLine)
_HEAD: Final = msgspec.json.Decoder(_HeadLine)
_NOT_AS_WRITTEN: Final = "it is not written as an export is, in canonical JSON with every member once"
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*")


@dataclass(frozen=True, slots=True)
class Hidden:
    """What a redacted export tells of an event.

    Args:
        position: place in the log.
        leaf: its leaf hash.
    """

    position: int
    leaf: bytes


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did.

    Args:
        name: the log's name where it was exported.
        added: events appended now.
        head: the tree head of the log.
        salvaged: what the file tells of the damaged log that it was salvaged from; None for any other.
    """

    name: str
    added: int
    head: TreeHead
    salvaged: SalvagedFrom | None = None


Item = ExportHeader | LoggedEvent | Hidden | TreeHead
"""A line of an export: the first one, an event as it is or hidden, or a tree head."""


def export_log(
    log: EventLog, out: IO[bytes], *, progress: Progress | None = None, redaction: Redaction | None = None
) -> TreeHead:
    """Write a log as JSON lines; what others append meanwhile is left out.

    Args:
        log: the log.
        out: where the lines go.
        progress: called with events written and events in all.
        redaction: which events are replaced by their leaf hashes; such an export cannot be imported (KM-7.3).

    Returns:
        The tree head in the last line.

    Raises:
        DamagedLogError: the first event or head that is not what its hash says; the lines before it are sound.
    """
    last = log.head()
    header = ExportHeader("log", FORMAT, log.name)
    if redaction:
        redaction.learn(log)
        header.redacted = list(redaction.kinds)
    out.write(header_line(header))
    heads = log.heads(0, last.size)
    frontier, written = Frontier(), 0
    for rows in log.read_rows(upto=last.size):
        for row in rows:
            out.write(event_line(LoggedEvent(*row), redaction))
        frontier = frontier.extended(row[6] for row in rows)
        position = rows[-1][0]
        if position - written >= HEAD_EVERY and position < last.size:
            head = TreeHead(position, frontier.root())
            stored = next((head for head in heads if head.size >= position), last)
            if stored.size == position and stored.root != head.root:
                raise _damaged_head(stored)
            out.write(head_line(head))
            written = position
        if progress is not None:
            progress(position, last.size)
    if frontier.root() != last.root:
        raise _damaged_head(last)
    out.write(head_line(last))
    return last


def import_log(source: IO[bytes], address: str, *, progress: Progress | None = None) -> Imported:
    """Append a file's events to a new log, or to one that the file continues.

    The whole file is checked before the first event is written, so that a damaged or truncated one leaves nothing
    behind. An import that was cut off goes on when it is begun again.

    Args:
        source: the lines; what cannot be read twice is kept in a temporary file meanwhile.
        address: the log to append to; it is made where it does not exist.
        progress: called with events done and events in all; checking and writing count half each.

    Raises:
        RefusedError: ``BAD_EXPORT`` with the line, for anything but a whole export; ``LOG_NOT_EMPTY`` when the log
            holds other events than the file, or more; ``LOG_FORMAT`` for a later form of the file; ``INVALID_ADDRESS``
            for a log in memory, which would be gone when the import ends.
    """
    if parse_address(address).path == MEMORY:
        raise RefusedError(
            "INVALID_ADDRESS",
            f"{masked(address)!r} is a log in memory, which would end with the import; name a file or a server.",
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


def read_heads(lines: Iterable[bytes]) -> list[TreeHead]:
    """Return the tree heads in a text: ``SIZE:ROOT`` alone on a line, or the head lines of an export.

    Raises:
        RefusedError: ``INVALID_TREE_HEAD`` for a line that is neither, nor any other line of an export.
    """
    heads = []
    for line in lines:
        if line.startswith(b'{"head":'):
            try:
                told = _HEAD.decode(line).head
                head = TreeHead.from_hex(told.size, told.root)
                is_canonical = head_line(head).strip() == line.strip()
            except (msgspec.MsgspecError, UnicodeError, RecursionError, RefusedError):
                is_canonical = False
            if not is_canonical:
                raise RefusedError("INVALID_TREE_HEAD", f"This is no tree head: {line[:120]!r}.")
            heads.append(head)
        elif line.strip() and not line.startswith((b'{"leaf":', b'{"format":')):
            heads.append(TreeHead.parse(line.decode("utf-8", "replace").strip()))
    return heads


def _tell(progress: Progress | None, done: int, whole: int) -> None:
    if progress is not None:
        progress(done, max(whole, 1))


def _known_head(address: str) -> TreeHead:
    """Return the head of the log at an address; that of no events where there is none."""
    nothing = TreeHead(0, Frontier().root())
    try:
        with open_log(address, read_only=True) as log:
            return log.head()
    except RefusedError as refused:
        if refused.code not in ("LOG_NOT_FOUND", "NOT_A_LOG"):
            raise
        return nothing  # what cannot become a log is refused when it is opened to be written


def _check_target(known: TreeHead, last: TreeHead, found: TreeHead | None) -> None:
    if known.size == 0:
        return
    if found is None:
        raise RefusedError(
            "LOG_NOT_EMPTY",
            f"The log holds {known.size} events and the file {last.size}: the file does not continue it. Import into a "
            "new log.",
            events=known.size,
            in_file=last.size,
        )
    if found.root != known.root:
        raise RefusedError(
            "LOG_NOT_EMPTY",
            f"The log holds {known.size} events, which are not those of the file. Import into a new log.",
            events=known.size,
            root=known.root_hex,
            in_file=found.root_hex,
        )


def _check(lines: IO[bytes], size: int, tell: Callable[[int], None]) -> tuple[ExportHeader, TreeHead, TreeHead | None]:
    """Check a whole file; return its header, its last head, and its head over the first ``size`` events."""
    header, frontier, found = ExportHeader("log", FORMAT, ""), Frontier(), None
    pending: list[bytes] = []
    versions: dict[str, int] = {}
    last: TreeHead | None = None
    repeats, start = Repeats(), lines.tell()
    if size == 0:
        found = TreeHead(0, frontier.root())
    for number, item in _whole_items(lines, tell):
        last = None
        if isinstance(item, ExportHeader):
            header = item
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
                before = frontier.size + len(pending)
                raise _bad(number, f"event {item.position} follows event {before}", before + 1)
            if item.version != versions.get(item.stream, 0) + 1:
                why = f"version {item.version} of the stream {item.stream!r} is out of order"
                raise _bad(number, why, item.position)
            versions[item.stream] = item.version
            repeats.take(_decoded(number, item))
            pending.append(item.leaf)
            if item.position == size:
                frontier, pending = frontier.extended(pending), []
                found = TreeHead(size, frontier.root())
    if last is None:
        raise RefusedError("BAD_EXPORT", "The file is cut off: it does not end with a tree head. Export the log again.")
    for position, message in repeats.found(lambda: _events(lines, start)):
        raise RefusedError("BAD_EXPORT", f"Event {position}: {message}. Nothing was imported.", position=position)
    return header, last, found


def _whole_items(
    lines: IO[bytes], tell: Callable[[int], None]
) -> Iterator[tuple[int, ExportHeader | LoggedEvent | TreeHead]]:
    """Yield what ``read_items`` does, of an export that hides nothing."""
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


def _append(lines: IO[bytes], address: str, done: Imported, tell: Callable[[int], None]) -> Imported:
    view = WorldIndex()
    with open_log(address, create=True, durability="full", view=view) as log:
        size, batch, added = log.head().size, [], 0
        for number, item in read_items(lines, tell):
            if isinstance(item, LoggedEvent):
                if item.position > size:
                    batch.append(item)
            elif isinstance(item, TreeHead) and batch:
                with log.write() as transaction:
                    if transaction.head.size != size:
                        raise RefusedError(
                            "LOG_NOT_EMPTY", "Somebody appended to the log meanwhile; import into a new one."
                        )
                    logged = transaction.append(
                        NewEvent(event.stream, event.topic, event.schema_version, event.state, event.version)
                        for event in batch
                    )
                    view.apply(transaction.cursor(), logged)
                added, size, batch = added + len(batch), item.size, []
                if log.head() != item:
                    raise DamagedLogError(
                        "TREE_DAMAGED", f"After line {number} the log has another tree head than the file."
                    )
        return Imported(done.name, added, log.head(), done.salvaged)


def read_items(lines: IO[bytes], tell: Callable[[int], None]) -> Iterator[tuple[int, Item]]:
    """Yield the number and the content of every line of an export, each checked by itself.

    Raises:
        RefusedError: ``BAD_EXPORT`` with the line, ``LOG_FORMAT``.
    """
    number, read = 0, 0
    for number, line in enumerate(_lines(lines), 1):
        read += len(line)
        if not line.endswith(b"\n"):
            raise _bad(number, "the file is cut off in the middle of the line")
        yield number, read_header(line) if number == 1 else _item(number, line)
        if number % HEAD_EVERY == 0:
            tell(read)
    if number == 0:
        raise RefusedError("BAD_EXPORT", "The file is empty; it is no export of a log.")


def _lines(lines: IO[bytes]) -> Iterable[bytes]:
    while line := lines.readline(MAX_LINE_BYTES):
        yield line


def read_header(line: bytes) -> ExportHeader:
    """Return what the first line of an export says.

    Raises:
        RefusedError: ``BAD_EXPORT``, ``LOG_FORMAT``.
    """
    try:
        header = _HEADER.decode(line)
        is_canonical = header_line(header) == line
    except (msgspec.MsgspecError, UnicodeError, RecursionError, RefusedError):
        header = None
    if header is None or header.world_protocol != "log":
        raise _bad(1, "this is no export of a log")
    if not is_canonical and header.format == FORMAT:
        raise _bad(1, _NOT_AS_WRITTEN)
    if header.format != FORMAT:
        raise RefusedError(
            "LOG_FORMAT",
            f"The file has format {header.format}; this program knows {FORMAT}. Use the release that wrote it.",
            found=header.format,
            known=FORMAT,
        )
    return header


def read_line(line: bytes) -> LoggedEvent | Hidden | TreeHead:
    """Return what a line of an export after the first says; whether an event's leaf hash fits is not looked at.

    Of members that stand twice, which readers understand in different ways, the last is taken; ``as_written`` tells.

    Raises:
        RefusedError: ``BAD_EXPORT`` without a line, for what says nothing.
    """
    try:
        if line.startswith(b'{"head":'):
            head = _HEAD.decode(line).head
            return TreeHead.from_hex(head.size, head.root)
        told = _EVENT.decode(line)
        leaf = TreeHead.from_hex(0, told.leaf).root
        if leaf.hex() != told.leaf:
            raise RefusedError("BAD_EXPORT", "its leaf hash is not written in 64 lower-case hex digits")
    except RecursionError:
        raise RefusedError("BAD_EXPORT", "it is nested too deep to be an event or a tree head") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise RefusedError("BAD_EXPORT", f"it is neither an event nor a tree head ({error})") from None
    if told.redacted:
        if told != _EventLine(told.position, told.leaf, redacted=True):
            raise RefusedError("BAD_EXPORT", "it is redacted, and tells of the event all the same")
        return Hidden(told.position, leaf)
    return LoggedEvent(
        told.position, told.stream, told.version, told.topic, told.schema_version, bytes(told.state), leaf
    )


def _item(number: int, line: bytes) -> LoggedEvent | Hidden | TreeHead:
    try:
        item = read_line(line)
        if isinstance(item, LoggedEvent) and item.leaf != event_leaf(
            item.stream, item.version, item.topic, item.schema_version, item.state
        ):
            why = f"event {item.position} was changed: its content and its leaf hash disagree"
            raise _bad(number, why, item.position)
        if as_written(item) != line:
            raise _bad(number, _NOT_AS_WRITTEN, None if isinstance(item, TreeHead) else item.position)
    except UnicodeError as error:
        raise _bad(number, f"it is neither an event nor a tree head ({error})") from None
    except RefusedError as refused:
        raise refused if "line" in refused.details else _bad(number, refused.message) from None
    return item


def _bad(number: int, why: str, position: int | None = None) -> RefusedError:
    place = {} if position is None else {"position": position}
    return RefusedError("BAD_EXPORT", f"Line {number}: {why}. Nothing was imported.", line=number, **place)


def event_line(event: LoggedEvent, redaction: Redaction | None = None) -> bytes:
    """Return the line of an export for an event.

    Raises:
        DamagedLogError: ``EVENT_CHANGED`` where its content and its leaf hash disagree.
    """
    if not is_intact(event):
        raise DamagedLogError(
            "EVENT_CHANGED",
            f"Event {event.position} was changed: its content and leaf hash disagree; `worldctl verify` tells more.",
            position=event.position,
        )
    return as_written(Hidden(event.position, event.leaf) if redaction and redaction.hides(event) else event)


def as_written(item: LoggedEvent | Hidden | TreeHead) -> bytes:
    """Return the one way to write a line of an export after the first; the state of an event stands as it is."""
    if isinstance(item, TreeHead):
        return head_line(item)
    if isinstance(item, Hidden):
        return b'{"leaf":"%b","position":%d,"redacted":true}\n' % (item.leaf.hex().encode(), item.position)
    return b'{"leaf":"%b","position":%d,"schemaVersion":%d,"state":%b,"stream":%b,"topic":%b,"version":%d}\n' % (
        item.leaf.hex().encode(),
        item.position,
        item.schema_version,
        item.state,
        _text(item.stream),
        _text(item.topic),
        item.version,
    )


@lru_cache(maxsize=4_096)
def _text(text: str) -> bytes:
    return b'"' + text.encode() + b'"' if _PLAIN.fullmatch(text) else canonical_bytes(text)


def header_line(header: ExportHeader) -> bytes:
    """Return the first line of an export."""
    return canonical_bytes(msgspec.to_builtins(header)) + b"\n"


def head_line(head: TreeHead) -> bytes:
    """Return the line of an export for a tree head."""
    return canonical_bytes({"head": {"size": head.size, "root": head.root_hex}}) + b"\n"


def _damaged_head(head: TreeHead) -> DamagedLogError:
    return DamagedLogError(
        "TREE_MISMATCH",
        f"The events up to {head.size} do not give the tree head stored for them; `worldctl verify` tells more.",
        position=head.size,
    )
