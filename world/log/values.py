"""What a log takes and gives: new events, logged events, tree heads and findings, and the content of a leaf.

A leaf's content is the canonical JSON of ``{"schemaVersion", "state", "stream", "topic", "version"}`` where
``state`` is the event's JSON value itself. The stored state is canonical already, so its bytes stand in the
leaf unchanged; a change of the stream, version, topic, schema version or state changes the leaf. The order of
events is the tree's. Design section 2; the stored form is described in docs/reference/log-format.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, ClassVar, Final

import msgspec
from eventsourcing.persistence import DataError, IntegrityError, StoredEvent

from world.error_codes import ErrorCode
from world.errors import RefusedError, with_single_stops
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import is_encodable
from world.model.record import Record
from world.model.short_repr import short_repr


class StreamConflictError(RefusedError, IntegrityError):
    """The expected version of a stream is taken, or is not its next one (``STREAM_CONFLICT``)."""


class InvalidEventError(RefusedError, DataError):
    """The log cannot store an event (``INVALID_EVENT``, ``EVENT_TOO_LARGE``)."""


MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
"""Default limit of one event's state, in bytes."""

MAX_NAME_CHARS: Final = 512
"""Longest stream id and topic, in characters."""

MAX_NUMBER: Final = 2**31 - 1
"""Largest stream version and schema version."""

NEXT_VERSION: Final = -1
"""Version of a new event that gets the next version of its stream, whichever that is."""

NO_EVENT: Final = (TypeError, AttributeError, UnicodeError, RefusedError)
"""Errors of ``event_leaf`` for stored columns that no event can have."""

_FIRST_VERSION: Final = sha256(b'\x00{"schemaVersion":1,"state":')
"""Hash of the beginning of most leaves; a copy costs less than hashing a joined text."""

_PLAIN = re.compile(r"[ !#-\[\]-~]+")  # printable ASCII that JSON prints as itself
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, init=False)
class NewEvent(StoredEvent):
    """An event to append: the library's stored event with the version of its schema, its state in canonical form.

    Args:
        stream: id of the stream, any text without control characters, up to ``MAX_NAME_CHARS``.
        topic: stable name of the kind of event.
        schema_version: version of the state's schema, from 1.
        state: canonical JSON (RFC 8785) in UTF-8; the caller has encoded it so.
        version: the stream version this event must get; with ``NEXT_VERSION`` the log counts. Callers that pass it
            save the log a look-up, and are refused when another writer was quicker.
    """

    originator_id: str
    schema_version: int

    def __init__(self, stream: str, topic: str, schema_version: int, state: bytes, version: int = NEXT_VERSION) -> None:
        fields = self.__dict__  # half the time of the method that a frozen dataclass generates
        fields["originator_id"] = stream
        fields["originator_version"] = version
        fields["topic"] = topic
        fields["state"] = state
        fields["schema_version"] = schema_version


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """A database server as a place at which logs are written.

    Args:
        system: identifier of the database system; its standbys have the same one.
        timeline: number of the timeline, which increases with each promotion of a standby.
    """

    system: str
    timeline: int


class LoggedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of the log.

    Args:
        position: place in the log, from 1 without gaps.
        stream: id of the stream.
        version: place in the stream, from 1 without gaps.
        topic: stable name of the kind of event.
        schema_version: version of the state's schema.
        state: canonical JSON in UTF-8.
        leaf: the leaf hash, 32 bytes.
    """

    position: int
    stream: str
    version: int
    topic: str
    schema_version: int
    state: bytes
    leaf: bytes

    def __repr__(self) -> str:
        return short_repr(
            self, f"{self.position} {self.topic}", f"stream {self.stream}", self.state[:80].decode(errors="replace")
        )


class TreeHead(Record, frozen=True):
    """The root of the Merkle tree over the first ``size`` events of a log."""

    size: int
    root: bytes
    WIRE: ClassVar = "size root=root_hex"

    @property
    def root_hex(self) -> str:
        """Return the root as 64 lower-case hex digits."""
        return self.root.hex()

    def __str__(self) -> str:
        return f"{self.size}:{self.root.hex()}"

    @classmethod
    def from_hex(cls, size: int, root: str) -> TreeHead:
        """Make a head from a root in hex.

        Raises:
            RefusedError: ``INVALID_TREE_HEAD`` when the root is not 64 hex digits or the size is negative.
        """
        try:
            raw = bytes.fromhex(root)
        except ValueError:
            raw = b""
        if len(raw) != sha256().digest_size or size < 0:
            raise RefusedError(
                ErrorCode.INVALID_TREE_HEAD, f"A tree head is a size and 64 hex digits, not {size}:{root}."
            )
        return cls(size, raw)

    @classmethod
    def parse(cls, text: str) -> TreeHead:
        """Read what ``str`` wrote: ``size:root``.

        Raises:
            RefusedError: ``INVALID_TREE_HEAD`` for other text.
        """
        size, _, root = text.partition(":")
        if not (size.isascii() and size.isdigit()):
            raise RefusedError(ErrorCode.INVALID_TREE_HEAD, f"A tree head is written size:root, not {text!r}.")
        return cls.from_hex(int(size), root)


class LogFinding(Record, frozen=True):
    """One way in which a stored log contradicts itself or a head saved elsewhere.

    Args:
        code: the finding's code, such as ``EVENT_CHANGED``.
        position: the first event concerned; the fault is at it or after it.
        message: a sentence for people.
        details: typed facts (sizes, expected and stored hashes in hex).
    """

    code: ErrorCode
    position: int
    message: str
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """End every sentence of the message in one full stop, whatever it quotes."""
        msgspec.structs.force_setattr(self, "message", with_single_stops(self.message))

    @property
    def is_derived(self) -> bool:
        """Whether it is about tables that `worldctl doctor --rebuild`, or the next commit, makes again."""
        return self.code in _DERIVED or bool(self.details.get("mendable"))


_DERIVED: Final = frozenset({ErrorCode.INDEX_DIFFERS, ErrorCode.CHUNK_CHANGED, ErrorCode.CLOCK_MISSING})


def event_leaf(stream: str, version: int, topic: str, schema_version: int, state: bytes) -> bytes:
    """Return the leaf hash of an event: SHA-256 of 0x00 and the leaf's content."""
    if schema_version == 1:
        found = _FIRST_VERSION.copy()
    else:
        found = sha256(b'\x00{"schemaVersion":%d,"state":' % schema_version)
    found.update(state)
    found.update(b',"stream":%b,"topic":%b,"version":%d}' % (_stream_text(stream), _topic_text(topic), version))
    return found.digest()


def is_intact(event: LoggedEvent) -> bool:
    """Return whether a stored event's content and leaf hash agree; columns of a damaged row may hold anything."""
    try:
        return event_leaf(event.stream, event.version, event.topic, event.schema_version, event.state) == event.leaf
    except NO_EVENT:
        return False


def check_event(event: NewEvent, max_bytes: int) -> None:
    """Refuse an event that the log cannot keep.

    Args:
        event: the event to append.
        max_bytes: limit of its state, in bytes.

    Raises:
        InvalidEventError: ``EVENT_TOO_LARGE`` or ``INVALID_EVENT``.
    """
    if len(event.state) > max_bytes:
        raise InvalidEventError(
            "EVENT_TOO_LARGE",
            f"The event {event.topic} has {len(event.state)} bytes; the limit is {max_bytes}. "
            "Store large content elsewhere and log its hash.",
            topic=event.topic,
            size_bytes=len(event.state),
            limit_bytes=max_bytes,
        )
    check_name("stream", event.originator_id)
    check_type(event.topic, event.schema_version)
    version = event.originator_version
    if version != NEXT_VERSION and not 1 <= version <= MAX_NUMBER:
        raise InvalidEventError("INVALID_EVENT", f"The stream version {version} is not within 1..{MAX_NUMBER}.")


@lru_cache(maxsize=1024)
def check_type(topic: str, schema_version: int) -> None:
    """Refuse a topic or a schema version that the log cannot keep.

    Raises:
        InvalidEventError: ``INVALID_EVENT``.
    """
    check_name("topic", topic)
    if not 1 <= schema_version <= MAX_NUMBER:
        raise InvalidEventError("INVALID_EVENT", f"The schema version {schema_version} is not within 1..{MAX_NUMBER}.")


def check_name(what: str, name: str) -> None:
    """Refuse a stream id or topic that not every backend can keep.

    Raises:
        InvalidEventError: ``INVALID_EVENT`` when it is empty, too long, or holds control characters or half surrogates.
    """
    sound = _PLAIN.fullmatch(name) or (not _CONTROL.search(name) and is_encodable(name))
    if sound and 0 < len(name) <= MAX_NAME_CHARS:
        return
    raise InvalidEventError(
        "INVALID_EVENT",
        f"A {what} is 1 to {MAX_NAME_CHARS} characters without control characters, not {name[:80]!r}.",
    )


@lru_cache(maxsize=1024)  # events of one stream often stand near each other
def _stream_text(stream: str) -> bytes:
    return b'"' + stream.encode() + b'"' if _PLAIN.fullmatch(stream) else canonical_bytes(stream)


@lru_cache(maxsize=1024)
def _topic_text(topic: str) -> bytes:
    check_name("topic", topic)
    return canonical_bytes(topic)
