"""Search for the first world of a line of descent in which a path has a value, or another test holds.

``worldctl bisect`` and the HTTP API use it. Source: CARD-audit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from world.model.paths import look_up, parse_path
from world.model.record import WireForm
from world.read_models.bisect import Bisected, Progress, Test, bisect
from world.read_models.blame import COMPUTED, plain_path, stands
from world.read_models.lineage import line
from world.read_models.provenance import Cause, causes_of

if TYPE_CHECKING:
    from world.read_models.archive import Archive
    from worldprotocol.api.past_values import PastValues
    from worldprotocol.api.read_only import RealmReader

__all__ = ["FoundWorlds", "ValueTest", "line_to", "search"]

MOST_CAUSES: Final = 20
"""Candidates whose causes are read, where the first world could not be determined."""


class ValueTest:
    """Test whether a path has a value in a world; None where a computed value cannot be made.

    Args:
        archive: archive of the log.
        path: a place in the data, or the name of a computed value.
        becomes: the value as JSON; what is no JSON is a text.
        computed: returns the computed values of a world.

    Raises:
        RefusedError: ``INVALID_PATH``.
    """

    def __init__(self, archive: Archive, path: str, becomes: str, computed: Callable[[str], PastValues]) -> None:
        self._archive = archive
        self._path = path
        self._is_computed = parse_path(path)[:1] == (COMPUTED,)
        self._expected = canonical_bytes(_value(becomes))
        self._computed = computed
        self.by_other_code: set[str] = set()
        """Computed values that other code evaluated than that of then."""

    def __call__(self, world_id: str) -> bool | None:
        """Return whether the path has the value in a world."""
        if self._is_computed:
            return self._has_computed(self._computed(world_id))
        data = self._archive.checked_state(world_id)
        place = parse_path(plain_path(data, self._path))
        return stands(data, place) and canonical_bytes(look_up(data, place)) == self._expected

    def _has_computed(self, found: PastValues) -> bool | None:
        name = self._path
        self.by_other_code |= {name} & {*found.by_other_code}
        if name in found.missing:
            return None
        return name in found.values and canonical_bytes(found.values[name]) == self._expected


class FoundWorlds(WireForm):
    """Result of a search, with the causes of the first worlds.

    Args:
        found: the result.
        causes: of the first ``MOST_CAUSES`` candidates.
        worlds: length of the line.
        by_other_code: computed values that other code evaluated than that of then.
    """

    def __init__(self, found: Bisected, causes: list[Cause], worlds: int, by_other_code: set[str]) -> None:
        self.found = found
        self.causes = causes
        self.worlds = worlds
        self.by_other_code = sorted(by_other_code) or None

    WIRE: ClassVar = (
        "first candidates=found.first before=found.before tested=found.tested worlds untestable=found.untestable "
        "computedByOtherCode=by_other_code?"
    )

    @property
    def first(self) -> Cause | None:
        """The cause of the first world; None where one of several candidates is the first world."""
        return self.causes[0] if len(self.found.first) == 1 else None


def line_to(archive: Archive, newest: str, oldest: str | None) -> list[str]:
    """Return the ids of the worlds from one to another, oldest first; None begins at genesis.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``; ``NOT_BISECTABLE`` where the one is no ancestor of the other.
    """
    found = []
    for row in line(archive, newest):
        found.append(row.world_id)
        if row.world_id == oldest:
            break
    else:
        if oldest is not None:
            raise RefusedError(
                ErrorCode.NOT_BISECTABLE,
                f"World {oldest[:12]} is no ancestor of world {newest[:12]}; `worldctl worlds` draws how they descend.",
            )
    found.reverse()
    return found


def search(realm: RealmReader, worlds: list[str], test: Test, *, progress: Progress | None = None) -> FoundWorlds:
    """Return the first world in which a test holds.

    Args:
        realm: an open realm.
        worlds: as ``line_to`` returns them.
        test: the test of a world.
        progress: called with the number of completed tests and their estimated total.

    Raises:
        RefusedError: ``NOT_BISECTABLE``, and those of the test.
    """
    from_genesis = realm.archive.world(worlds[0]).parent is None
    found = bisect(worlds, test, from_genesis=from_genesis, progress=progress)
    causes = causes_of(realm.archive, [realm.sealed(name) for name in found.first[:MOST_CAUSES]])
    return FoundWorlds(found, causes, len(worlds), test.by_other_code if isinstance(test, ValueTest) else set())


def _value(text: str) -> Any:
    try:
        return read_json(text)
    except RefusedError:
        return text
