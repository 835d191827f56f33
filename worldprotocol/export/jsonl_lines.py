"""Lines of an export: header, events, hidden events and tree heads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Final

import msgspec

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log import LoggedEvent, TreeHead, event_leaf, is_intact
from world.log.merkle import Frontier
from world.model.canonical_json import canonical_bytes
from world.model.record import Record
from worldprotocol.export.redaction import Redaction

__all__ = [
    "ExportHeader",
    "Hidden",
    "Progress",
    "SalvagedFrom",
    "Start",
    "as_written",
    "cut_off",
    "damaged_head",
    "event_line",
    "head_line",
    "header_line",
    "read_header",
    "read_items",
    "read_line",
]


FORMAT: Final = 1
"""Version of the file format."""

HEAD_EVERY: Final = 1_000
"""Minimum number of events between two tree heads in a file."""

MAX_LINE_BYTES: Final = 64 << 20
"""Maximum length of a line, in bytes."""

_NOT_AS_WRITTEN: Final = "it is not written as an export is, in canonical JSON with every member once"
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*")


class SalvagedFrom(Record, frozen=True):
    """Facts in an export about the damaged log that it was salvaged from.

    ``expected`` is the number of events of the damaged log. ``vouched`` is the origin of the tree head that covers the
    salvaged events: ``saved`` (elsewhere), ``stored`` (in the damaged log), or ``none``.
    """

    expected: int
    vouched: str


class Start(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Tree before the first event of an export that does not begin with the log: its size, and its nodes in hex.

    The nodes are the roots of its complete subtrees, largest first, one for each bit of the size.
    """

    size: int
    nodes: list[str]

    @classmethod
    def of(cls, frontier: Frontier) -> Start:
        """Return a tree as an export names it."""
        return cls(frontier.size, [node.hex() for node in frontier.nodes])

    def frontier(self) -> Frontier:
        """Return the tree, ready to grow.

        Raises:
            RefusedError: ``BAD_EXPORT`` without a line where the nodes are not those of a tree of that size.
        """
        try:
            if self.size < 1:
                raise ValueError(self.size)
            frontier = Frontier.from_bytes(self.size, bytes.fromhex("".join(self.nodes)))
        except (ValueError, DamagedLogError):
            frontier = None
        if frontier is None or Start.of(frontier) != self:
            raise RefusedError(ErrorCode.BAD_EXPORT, f"its beginning names no tree of {self.size} events")
        return frontier


class ExportHeader(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """First line of an export.

    ``redacted`` lists the kinds of rules by which events are hidden; ``salvaged`` marks the prefix of a damaged log;
    ``start`` is there where the first event of the file is not the first one of the log.
    """

    world_protocol: str
    format: int
    name: str
    redacted: list[str] = []
    salvaged: SalvagedFrom | None = None
    start: Start | None = None


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


@dataclass(frozen=True, slots=True)
class Hidden:
    """Hidden event of a redacted export.

    Args:
        position: its position in the log.
        leaf: its leaf hash.
    """

    position: int
    leaf: bytes


_HEADER: Final = msgspec.json.Decoder(ExportHeader)
_EVENT: Final = msgspec.json.Decoder(_EventLine)
_HEAD: Final = msgspec.json.Decoder(_HeadLine)

Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""

Item = ExportHeader | LoggedEvent | Hidden | TreeHead
"""Content of a line: the header, an event, a hidden event, or a tree head."""


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
        raise RefusedError(
            ErrorCode.BAD_EXPORT, "The file is empty, so it is not an export of a log. Export the log again."
        )


def _lines(lines: IO[bytes]) -> Iterable[bytes]:
    while line := lines.readline(MAX_LINE_BYTES):
        yield line


def read_header(line: bytes) -> ExportHeader:
    """Parse the first line of an export.

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
            ErrorCode.LOG_FORMAT,
            f"The file has format {header.format}; this program supports {FORMAT}. Use the release that wrote it.",
            found=header.format,
            known=FORMAT,
        )
    return header


def read_line(line: bytes) -> LoggedEvent | Hidden | TreeHead:
    """Parse a line of an export after the first, without a check of the leaf hash.

    Of repeated members the last one is used; a comparison with ``as_written`` detects them.

    Raises:
        RefusedError: ``BAD_EXPORT`` without a line number, for a line that is neither an event nor a tree head.
    """
    try:
        if line.startswith(b'{"head":'):
            head = _HEAD.decode(line).head
            return TreeHead.from_hex(head.size, head.root)
        event = _EVENT.decode(line)
        leaf = TreeHead.from_hex(0, event.leaf).root
        if leaf.hex() != event.leaf:
            raise RefusedError(ErrorCode.BAD_EXPORT, "its leaf hash is not written in 64 lower-case hex digits")
    except RecursionError:
        raise RefusedError(ErrorCode.BAD_EXPORT, "it is nested too deeply to be an event or a tree head") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise RefusedError(ErrorCode.BAD_EXPORT, f"it is neither an event nor a tree head ({error})") from None
    if event.redacted:
        if event != _EventLine(event.position, event.leaf, redacted=True):
            raise RefusedError(ErrorCode.BAD_EXPORT, "it is redacted, but has members of the event")
        return Hidden(event.position, leaf)
    return LoggedEvent(
        event.position, event.stream, event.version, event.topic, event.schema_version, bytes(event.state), leaf
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
    return RefusedError(ErrorCode.BAD_EXPORT, f"Line {number}: {why}. Nothing was imported.", line=number, **place)


def event_line(event: LoggedEvent, redaction: Redaction | None = None) -> bytes:
    """Return the line of an export for an event.

    Raises:
        DamagedLogError: ``EVENT_CHANGED`` where its content and its leaf hash differ.
    """
    if not is_intact(event):
        raise DamagedLogError(
            ErrorCode.EVENT_CHANGED,
            f"Event {event.position} was changed: its content and leaf hash disagree; `worldctl verify` shows more.",
            position=event.position,
        )
    return as_written(Hidden(event.position, event.leaf) if redaction and redaction.hides(event) else event)


def as_written(item: LoggedEvent | Hidden | TreeHead) -> bytes:
    """Return the only valid text of a line after the first; the state of an event is copied unchanged."""
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
    return canonical_bytes({"head": head.to_wire()}) + b"\n"


def cut_off() -> RefusedError:
    """Return the refusal of an export without a tree head at its end."""
    return RefusedError(
        ErrorCode.BAD_EXPORT, "The file is cut off: it does not end with a tree head. Export the log again."
    )


def damaged_head(head: TreeHead) -> DamagedLogError:
    """Return the error of events that do not give a stored tree head."""
    return DamagedLogError(
        ErrorCode.TREE_MISMATCH,
        f"The events up to {head.size} do not give the tree head stored for them; `worldctl verify` shows more.",
        position=head.size,
    )
