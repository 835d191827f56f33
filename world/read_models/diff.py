"""Differences of two worlds by path, and their causes on either side since the common ancestor.

Sources: CARD-audit ("any world can be compared and explained from the log alone"), IC-audit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from world.errors import RefusedError
from world.events.realm_events import WorldSealed
from world.model.canonical_json import canonical_bytes
from world.model.paths import Segments, look_up
from world.model.record import Record
from world.read_models.archive import Archive
from world.read_models.blame import origins_of
from world.read_models.lineage import common_ancestor
from world.read_models.provenance import Cause
from world.read_models.value_tracking import NOBODY, Tracker, joined


class Absent:
    """Marker of an absent value, as distinct from null."""

    def __repr__(self) -> str:
        """Return ``absent``."""
        return "absent"


ABSENT: Final = Absent()


class ValueChange(Record, frozen=True, omit_defaults=True):
    """Place at which two values differ.

    Args:
        path: the path as text.
        place: the path as names.
        before: the first value at the path, or ``ABSENT``.
        after: the second value at the path, or ``ABSENT``.
    """

    path: str
    place: Segments
    before: Any = ABSENT
    after: Any = ABSENT
    WIRE: ClassVar = "path before after"


def changes(before: Any, after: Any, path: str = "", place: Segments = ()) -> Iterator[ValueChange]:
    """Yield the deepest places of both JSON values at which they differ.

    Equal elements at the start and at the end of two lists are skipped; the others are compared by index, so that an
    added or removed element is one change.
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
    except RefusedError:  # a damaged log can hold values that are not JSON
        return bool(one == other)


class WorldChange(Record, frozen=True, omit_defaults=True):
    """Difference between two worlds, with its causes.

    Args:
        change: the difference.
        by_a: causes of the first world's value since the common ancestor, newest first. For elements of lists they
            include the removals (the newest ``MAX_MOVES``) that shifted another element to this index.
        by_b: causes of the second world's value.
    """

    change: ValueChange
    by_a: tuple[Cause, ...]
    by_b: tuple[Cause, ...]
    WIRE: ClassVar = "*change by"

    @property
    def by(self) -> dict[str, Any]:
        """The causes in both worlds."""
        return {"a": self.by_a, "b": self.by_b}


@dataclass(frozen=True, slots=True)
class Compared:
    """Comparison of two worlds.

    Args:
        a: the first world.
        b: the second world.
        ancestor: the newest common ancestor; one of the two where it is an ancestor of the other.
        differences: the differences of their data.
    """

    a: WorldSealed
    b: WorldSealed
    ancestor: str
    differences: tuple[WorldChange, ...]

    @property
    def same(self) -> bool:
        """Whether data, outcome, error and schema are equal, which contentId covers."""
        return self.a.content_id == self.b.content_id


def compare(archive: Archive, a: str, b: str) -> Compared:
    """Compare two worlds of a log.

    Args:
        archive: archive of the log.
        a: id of the first world.
        b: id of the second world.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``.
        DamagedLogError: ``STATE_DAMAGED``; an event was changed after it was logged.
    """
    before, after = archive.checked_state(a), archive.checked_state(b)
    ancestor = common_ancestor(archive, a, b)
    value_changes = list(changes(before, after))
    by_a = _causes(archive, a, ancestor, before, [(one.place, one.before) for one in value_changes])
    by_b = _causes(archive, b, ancestor, after, [(one.place, one.after) for one in value_changes])
    differences = tuple(WorldChange(*one) for one in zip(value_changes, by_a, by_b, strict=True))
    return Compared(archive.sealed(a), archive.sealed(b), ancestor, differences)


def _causes(
    archive: Archive, world_id: str, ancestor: str, data: Any, wanted: Sequence[tuple[Segments, Any]]
) -> list[tuple[Cause, ...]]:
    """Return, for each place in a world, the causes of its value since an ancestor."""
    tracker = Tracker(moves=True)
    assert tracker.moved is not None
    numbers = [tracker.follow(data, _tracked_place(data, place, value)) for place, value in wanted]
    origins = origins_of(archive, world_id, tracker, until=ancestor)
    firsts = []
    for those in numbers:
        moving = [number for at in those for number in tracker.moved.get(at, ())]
        owners = sorted({*moving, *(tracker.owners[at] for at in those)} - {NOBODY})
        firsts.append(list({origins.world_of(owner): owner for owner in reversed(owners)}.values())[::-1])
    patch_origins = origins.read({owner for owners in firsts for owner in owners})
    return [tuple(patch_origins[owner].cause for owner in owners) for owners in firsts]


def _tracked_place(data: Any, place: Segments, value: Any) -> Segments:
    """Return the place to track; for a missing list element, the index after the last element."""
    container = look_up(data, place[:-1]) if place else None
    if value is ABSENT and isinstance(container, list):
        return (*place[:-1], str(len(container)))
    return place
