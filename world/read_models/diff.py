"""What two worlds differ in, by path, and who made it so on either side since their common ancestor.

Sources: CARD-audit ("any world can be compared and explained from the log alone"), IC-audit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from world.errors import RefusedError
from world.events.realm_events import WorldSealed
from world.model.canonical_json import canonical_bytes
from world.model.paths import Segments, look_up
from world.read_models.archive import Archive
from world.read_models.blame import origins_of
from world.read_models.lineage import common_ancestor
from world.read_models.provenance import Cause
from world.read_models.value_tracking import NOBODY, Tracker, joined


class Absent:
    """Stands where there is nothing, which null is not."""

    def __repr__(self) -> str:
        """Return the word for people."""
        return "absent"


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A place at which two values differ.

    Args:
        path: where, as it is written.
        place: the same as names.
        before: what stands there in the first; ``ABSENT`` where nothing does.
        after: what stands there in the second.
    """

    path: str
    place: Segments
    before: Any
    after: Any

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON; what is absent is left out."""
        wire: dict[str, Any] = {"path": self.path}
        if self.before is not ABSENT:
            wire["before"] = self.before
        if self.after is not ABSENT:
            wire["after"] = self.after
        return wire


def changes(before: Any, after: Any, path: str = "", place: Segments = ()) -> Iterator[ValueChange]:
    """Yield the places at which two JSON values differ, as deep as both have them.

    Elements that are equal at the beginning and at the end of two lists are passed over; those between are compared one
    by one, so that an element which was added or removed is one change.
    """
    if before is after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        names = [*before, *(key for key in after if key not in before)]
        for key in names:
            left, right = before.get(key, ABSENT), after.get(key, ABSENT)
            yield from changes(left, right, joined(path, key), (*place, key))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _elements(before, after, path, place)
    elif not _same(before, after):
        yield ValueChange(path, place, before, after)


def _elements(before: list[Any], after: list[Any], path: str, place: Segments) -> Iterator[ValueChange]:
    shorter = min(len(before), len(after))
    start = next((at for at in range(shorter) if not _same(before[at], after[at])), shorter)
    end = next((at for at in range(shorter - start) if not _same(before[-1 - at], after[-1 - at])), shorter - start)
    for at in range(start, max(len(before), len(after)) - end):
        left = before[at] if at < len(before) - end else ABSENT
        right = after[at] if at < len(after) - end else ABSENT
        yield from changes(left, right, joined(path, str(at)), (*place, str(at)))


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, Absent) or isinstance(other, Absent):
        return False
    if type(one) is not type(other):
        return False
    try:
        return canonical_bytes(one) == canonical_bytes(other)
    except RefusedError:  # of a damaged log: no JSON at all
        return bool(one == other)


@dataclass(frozen=True, slots=True)
class WorldChange:
    """A change between two worlds, and who made it.

    Args:
        change: what differs.
        by_a: why it is so in the first world: the causes since the common ancestor, the newest first. Of elements of
            lists these are also the removals (the newest ``MAX_MOVES``) that made another one stand there, or none.
        by_b: the same for the second world.
    """

    change: ValueChange
    by_a: tuple[Cause, ...]
    by_b: tuple[Cause, ...]

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON."""
        sides = {"a": self.by_a, "b": self.by_b}
        return {**self.change.to_wire(), "by": {name: [one.to_wire() for one in side] for name, side in sides.items()}}


@dataclass(frozen=True, slots=True)
class Compared:
    """Two worlds, compared.

    Args:
        a: the first world.
        b: the second.
        ancestor: the newest world both descend from; one of them where it is the other's ancestor.
        differences: of their data.
    """

    a: WorldSealed
    b: WorldSealed
    ancestor: str
    differences: tuple[WorldChange, ...]

    @property
    def same(self) -> bool:
        """Whether data, outcome, error and schema are the same: what contentId covers."""
        return self.a.content_id == self.b.content_id


def compare(archive: Archive, a: str, b: str) -> Compared:
    """Compare two worlds of a log.

    Args:
        archive: of the log.
        a: the first world's id.
        b: the second's.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``.
        DamagedLogError: ``STATE_DAMAGED``, and an event that is not what was logged.
    """
    before, after = archive.checked_state(a), archive.checked_state(b)
    ancestor = common_ancestor(archive, a, b)
    found = list(changes(before, after))
    by_a = _makers(archive, a, ancestor, before, [(one.place, one.before) for one in found])
    by_b = _makers(archive, b, ancestor, after, [(one.place, one.after) for one in found])
    told = [WorldChange(*one) for one in zip(found, by_a, by_b, strict=True)]
    return Compared(archive.sealed(a), archive.sealed(b), ancestor, tuple(told))


def _makers(
    archive: Archive, world_id: str, ancestor: str, data: Any, wanted: Sequence[tuple[Segments, Any]]
) -> list[tuple[Cause, ...]]:
    """Return for places in a world who made them what they are since an ancestor."""
    tracker = Tracker(moves=True)
    assert tracker.moved is not None
    numbers = [tracker.follow(data, _followed(data, place, value)) for place, value in wanted]
    origins = origins_of(archive, world_id, tracker, until=ancestor)
    firsts = []
    for those in numbers:
        moving = [number for at in those for number in tracker.moved.get(at, ())]
        owners = sorted({*moving, *(tracker.owners[at] for at in those)} - {NOBODY})
        firsts.append(list({origins.world_of(owner): owner for owner in reversed(owners)}.values())[::-1])
    told = origins.read({owner for owners in firsts for owner in owners})
    return [tuple(told[owner].cause for owner in owners) for owners in firsts]


def _followed(data: Any, place: Segments, value: Any) -> Segments:
    """Return the place to follow; what is missing from a list is followed behind its end."""
    inside = look_up(data, place[:-1]) if place else None
    if value is ABSENT and isinstance(inside, list):
        return (*place[:-1], str(len(inside)))
    return place
