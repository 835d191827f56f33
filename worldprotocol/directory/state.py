"""State of a directory: the entry of each realm, folded from the directory's events. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.log import TreeHead
from worldprotocol.directory.events import (
    RealmArchived,
    RealmEvent,
    RealmListed,
    RealmMoved,
    RealmRestored,
    Work,
    WorkAbandoned,
    WorkBegun,
)

__all__ = ["DirectoryState", "RealmEntry", "Status", "archived"]

Status = Literal["open", "moving", "archiving", "archived", "restoring"]

_DURING: dict[Work, Status] = {"move": "moving", "archive": "archiving", "restore": "restoring"}


@dataclass(frozen=True, slots=True)
class RealmEntry:
    """A realm in a directory.

    Args:
        name: its name.
        log_id: id of its founding, the same at every place.
        place: address of its log, without a password; while it is archived, the last one.
        status: ``open`` or ``archived``, or what is under way.
        at: time of the last change of the entry, ms since 1970.
        by: who made it.
        work: what is under way; None if nothing is.
        target: address or folder that the work leads to.
        archive: folder of the archive, while there is no other place.
        size: events of the tree head at which it was last moved, archived or restored.
        root: root of that tree head, in hex.
        abandoned: what was abandoned last at this place, with the target of a move: it may have closed the log.
    """

    name: str
    log_id: str
    place: str
    status: Status
    at: int
    by: str
    work: Work | None = None
    target: str | None = None
    archive: str | None = None
    size: int | None = None
    root: str | None = None
    abandoned: tuple[Work, str | None] | None = None

    @property
    def head(self) -> TreeHead | None:
        """The tree head at which it was last moved, archived or restored; None if it never was."""
        return None if self.size is None or self.root is None else TreeHead.from_hex(self.size, self.root)


def archived(entry: RealmEntry) -> RefusedError:
    """Return the refusal of what an archived realm cannot do."""
    return RefusedError(
        ErrorCode.REALM_ARCHIVED,
        f"The realm {entry.name!r} is archived in {entry.archive}; restore it first (`worldctl realm restore`).",
        realm=entry.name,
        archive=entry.archive,
    )


@dataclass(slots=True)
class DirectoryState:
    """The entries of a directory, after so many of its events."""

    position: int = 0
    realms: dict[str, RealmEntry] = field(default_factory=dict)

    def entry(self, name: str) -> RealmEntry:
        """Return the entry of a realm.

        Raises:
            RefusedError: ``UNKNOWN_REALM``.
        """
        found = self.realms.get(name)
        if found is None:
            known = ", ".join(sorted(self.realms)[:10]) or "none"
            raise RefusedError(
                ErrorCode.UNKNOWN_REALM,
                f"The directory lists no realm {name!r}; it lists {known} (`worldctl realm list`).",
                realm=name,
            )
        return found

    def apply(self, position: int, event: Event) -> None:
        """Apply the event at a position.

        Raises:
            DamagedLogError: ``BAD_EVENT`` for an event that contradicts those before it.
        """
        if isinstance(event, RealmEvent):
            changed = _changed(self.realms.get(event.name), event)
            if changed is None:
                raise DamagedLogError(
                    ErrorCode.BAD_EVENT,
                    f"Event {position} of the directory, {event.TOPIC} of {event.name!r}, contradicts those before it; "
                    "run `worldctl verify` on the directory's copy, and restore it.",
                    position=position,
                )
            self.realms[event.name] = changed
        self.position = position


def _changed(entry: RealmEntry | None, event: RealmEvent) -> RealmEntry | None:
    """Return an entry after an event; None where the event cannot follow."""
    if isinstance(event, RealmListed):
        return None if entry else RealmEntry(event.name, event.log_id, event.place, "open", event.at, event.by)
    if entry is None:
        return None
    if isinstance(event, WorkBegun):
        before: Status = "archived" if event.work == "restore" else "open"
        begun = replace(
            entry, status=_DURING[event.work], at=event.at, by=event.by, work=event.work, target=event.target
        )
        return begun if entry.status == before else None
    ended: Work
    if isinstance(event, WorkAbandoned):
        given_up = event.work, entry.target if event.work == "move" else None
        ended, changed = event.work, replace(entry, status="archived" if event.work == "restore" else "open")
        changed = replace(changed, abandoned=given_up)
    elif isinstance(event, RealmArchived):
        ended, changed = "archive", replace(entry, status="archived", archive=event.folder)
    elif isinstance(event, (RealmMoved, RealmRestored)):
        ended = "move" if isinstance(event, RealmMoved) else "restore"
        changed = replace(entry, status="open", place=event.place, archive=None, abandoned=None)
    else:
        return None
    if isinstance(event, (RealmMoved, RealmArchived, RealmRestored)):
        changed = replace(changed, size=event.size, root=event.root)
    return replace(changed, at=event.at, by=event.by, work=None, target=None) if entry.work == ended else None
