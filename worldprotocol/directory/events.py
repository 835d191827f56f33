"""Events of a directory: which realm was listed at which place, moved, archived and restored, when and by whom.

No event of a realm has one of these topics. An address in an event has no password. The events of one realm are one
stream; ``worldprotocol.directory.state`` folds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal

import msgspec

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.base import Event
from world.log import LoggedEvent, NewEvent
from world.model.canonical_json import canonical_bytes
from world.read_models.decoding import state_of

__all__ = [
    "FOUNDING_STREAM",
    "DirectoryFounded",
    "RealmArchived",
    "RealmEvent",
    "RealmListed",
    "RealmMoved",
    "RealmRestored",
    "Work",
    "WorkAbandoned",
    "WorkBegun",
    "decode_directory_event",
    "new_directory_event",
]

Work = Literal["move", "archive", "restore"]
"""What may be under way with a realm."""

FOUNDING_STREAM: Final = "directory"


class DirectoryFounded(Event, frozen=True, kw_only=True):
    """The directory was created; the first event of its log."""

    TOPIC: ClassVar[str] = "directory.founded"
    directory_id: str
    by: str


class RealmEvent(Event, frozen=True, kw_only=True):
    """Base class of the events of one realm."""

    name: str
    by: str


class RealmListed(RealmEvent, frozen=True, kw_only=True):
    """A realm got a name in the directory; ``log_id`` is that of its founding."""

    TOPIC: ClassVar[str] = "directory.realm_listed"
    place: str
    log_id: str


class WorkBegun(RealmEvent, frozen=True, kw_only=True):
    """A move, an archiving or a restoration began; ``target`` is an address, or the folder of the archive."""

    TOPIC: ClassVar[str] = "directory.work_begun"
    work: Work
    target: str


class WorkAbandoned(RealmEvent, frozen=True, kw_only=True):
    """What was under way was given up, and the realm stays where it was."""

    TOPIC: ClassVar[str] = "directory.work_abandoned"
    work: Work


class RealmMoved(RealmEvent, frozen=True, kw_only=True):
    """The realm is at its new place from here on; ``size`` and ``root`` are the tree head that both places had."""

    TOPIC: ClassVar[str] = "directory.realm_moved"
    place: str
    size: int
    root: str


class RealmArchived(RealmEvent, frozen=True, kw_only=True):
    """The realm is an archive in a folder from here on; ``size`` and ``root`` are its tree head."""

    TOPIC: ClassVar[str] = "directory.realm_archived"
    folder: str
    size: int
    root: str


class RealmRestored(RealmEvent, frozen=True, kw_only=True):
    """The realm is at a place again, from its archive; ``size`` and ``root`` are the tree head of both."""

    TOPIC: ClassVar[str] = "directory.realm_restored"
    place: str
    size: int
    root: str


_KINDS: Final[Mapping[str, type[Event]]] = {
    kind.TOPIC: kind
    for kind in (DirectoryFounded, RealmListed, WorkBegun, WorkAbandoned, RealmMoved, RealmArchived, RealmRestored)
}


def new_directory_event(event: DirectoryFounded | RealmEvent) -> NewEvent:
    """Return an event as a directory's log appends it."""
    stream = f"realm/{event.name}" if isinstance(event, RealmEvent) else FOUNDING_STREAM
    return NewEvent(stream, event.TOPIC, event.VERSION, canonical_bytes(msgspec.to_builtins(event)))


def decode_directory_event(logged: LoggedEvent) -> DirectoryFounded | RealmEvent:
    """Return the payload of a logged event.

    Raises:
        DamagedLogError: ``UNKNOWN_EVENT`` for another topic or version, ``BAD_EVENT``, ``EVENT_CHANGED``.
    """
    kind = _KINDS.get(logged.topic)
    if kind is None or logged.schema_version != kind.VERSION:
        raise DamagedLogError(
            ErrorCode.UNKNOWN_EVENT,
            f"Event {logged.position} has topic {logged.topic!r} in version {logged.schema_version}, which is none of "
            "a directory that this release supports.",
            position=logged.position,
            topic=logged.topic,
        )
    try:
        found = msgspec.convert(state_of(logged), kind)
    except msgspec.ValidationError as error:
        raise DamagedLogError(
            ErrorCode.BAD_EVENT,
            f"Event {logged.position} is not a valid {logged.topic!r}: {error}.",
            position=logged.position,
        ) from None
    assert isinstance(found, (DirectoryFounded, RealmEvent))
    return found
