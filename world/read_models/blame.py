"""Origin of values: the patch, proposal, decision, intent, actor and source event that set a value in a world.

``blame`` finds the last change of one place. ``blame_values`` finds, for every value below a path, the patch that set
it, by the rules of ``world.read_models.value_tracking``. Sources: IC-audit, CARD-audit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final, NamedTuple

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.events.realm_events import WorldSealed
from world.model.decision import DecisionRecord
from world.model.intent import IntentInstance
from world.model.patch import Patch, Place, touched_paths
from world.model.paths import array_index, look_up, parse_path
from world.model.record import Record, Shown
from world.model.source import SourceEvent, SourceRef
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.lineage import sealed_line
from world.read_models.provenance import Cause, causes_of, projection_before
from world.read_models.value_tracking import Tracker, leaves
from world.state.proposal import Proposal

AT_ONCE: Final = 512
"""Number of values whose patches are read together."""

KEPT: Final = 4_096
"""Number of cached patches during an iteration; many values often have the same patch."""

REPORT_EVERY: Final = 1_000
"""Number of worlds between two calls of a progress callback."""

Progress = Callable[[int, int], None]

COMPUTED: Final = "computed"
"""First name of every path of a computed value; reserved, so no field of a state has it."""

GENESIS: Final = -1
"""Patch number of values of genesis, which has no patches."""


class Blame(Record, frozen=True, omit_defaults=True):
    """Last change of a value.

    Args:
        path: path of the value, relative to the data.
        value: the value in the requested world; None where it is absent.
        world: the last world on this line of descent that changed it.
        patches: the patches of that world that touch the path; empty for genesis.
        proposal: the proposal that produced the world; None for genesis.
        projection: the record of the projection that selected the intent; None without a projection.
    """

    path: str
    value: Any
    world: WorldSealed
    patches: tuple[Patch, ...] = ()
    proposal: Proposal | None = None
    projection: ProjectionRecorded | None = None
    SHOWN: ClassVar = {"patches": Shown()}
    WIRE: ClassVar = (
        "path value worldId=world.world_id sealedAt=world.at patches proposal actor=proposal.submitted.actor? "
        "source? projectionId=projection.projection_id?"
    )

    @property
    def source(self) -> SourceEvent | SourceRef | None:
        """The source event that the intent was selected for; None at genesis."""
        if self.projection is not None:
            return self.projection.source
        return None if self.proposal is None else self.proposal.intent.meta.origin.source

    @property
    def intent(self) -> IntentInstance | None:
        """The intent of the proposal, or None for genesis."""
        return None if self.proposal is None else self.proposal.intent

    @property
    def decision(self) -> DecisionRecord | None:
        """The decision about the proposal, or None for genesis."""
        return None if self.proposal is None else self.proposal.decision


def blame(archive: Archive, path: str, world_id: str) -> Blame:
    """Find the last change of a place, from a world back to genesis.

    Args:
        archive: archive of the log.
        path: relative to the data, such as ``todos.0.title``; a leading ``data.`` is allowed.
        world_id: the world to start from.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``, ``INVALID_PATH``, also for a computed value: see ``computed_from``.
    """
    data = archive.state(world_id)
    plain = plain_path(data, path)
    place = _written_place(plain)
    value = look_up(data, place)
    at = archive.sealed(world_id)
    while at.parent is not None:
        touching = tuple(patch for patch in at.patches if touches(patch, place))
        if touching:
            proposal = archive.proposal(at.created_by or "")
            return Blame(plain, value, at, touching, proposal, _projection(archive, proposal))
        at = archive.sealed(at.parent)
    return Blame(plain, value, at)


def plain_path(data: Any, path: str) -> str:
    """Return a path without a leading ``data.``, unless the data has a member of that name."""
    return path if "data" in data else path.removeprefix("data.")


def _written_place(plain: str) -> tuple[str, ...]:
    place = parse_path(plain)
    if place[:1] == (COMPUTED,):
        raise RefusedError(
            ErrorCode.INVALID_PATH,
            f"{plain} is computed from the state and never written; name a path of the data.",
            path=plain,
        )
    return place


def computed_from(archive: Archive, path: str, world_id: str) -> dict[str, list[str]] | None:
    """Return the computed values at, below or above a path, each with the places in the data that it is derived from.

    Args:
        archive: archive of the log.
        path: such as ``computed.total``; ``computed`` means all of them.
        world_id: the world whose schema is used.

    Returns:
        None for a path of the data.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``; ``NOT_FOUND`` where the schema has no such computed value.
    """
    if parse_path(path)[:1] != (COMPUTED,):
        return None
    schema_hash = archive.sealed(world_id).schema_hash
    schemas = [one.schema for one in archive.adopted_domains() if one.schema_hash == schema_hash]
    declared = (schemas[-1] if schemas else {}).get("computed", {}).get("fields", {})
    matching = [name for name in declared if f"{name}.".startswith(f"{path}.") or path.startswith(f"{name}.")]
    if not matching:
        known = ", ".join(declared) or "none"
        raise RefusedError(
            ErrorCode.NOT_FOUND, f"World {world_id[:12]} has no computed value {path!r}; its computed values: {known}."
        )
    return {name: _read_by(name, declared) for name in matching}


def _read_by(name: str, declared: Mapping[str, Any]) -> list[str]:
    """Return the places in the data that a computed value reads, directly or through other computed values."""
    places: dict[str, None] = {}
    seen, waiting = {name}, [name]
    while waiting:
        for read in declared[waiting.pop()].get("deps", ()):
            through = [one for one in declared if f"{read}.".startswith(f"{one}.")]
            if not through:
                places[read] = None
            waiting += [one for one in through if one not in seen]
            seen.update(through)
    return sorted(places)


def touches(patch: Patch, place: Place) -> bool:
    """Return whether a patch changes a place, a part of it, or a value that contains it."""
    return any(
        all(ours is None or theirs is None or ours == theirs for ours, theirs in zip(touched, place, strict=False))
        for touched in touched_paths(patch)
    )


def _projection(archive: Archive, proposal: Proposal) -> ProjectionRecorded | None:
    """Return the projection record that immediately precedes a proposal."""
    first = archive.log.stream(proposal.proposal_id, limit=1)[0]
    before = archive.log.event_at(first.position - 1) if first.position > 1 else None
    return projection_before(before, proposal.submitted)


class Blamed(NamedTuple):
    """Value with the number of the patch that set it.

    Args:
        path: path of the value, relative to the data.
        value: a scalar, or an empty object or list; None also where the value is absent.
        origin: the number of the patch that set it; 0 is the newest.
    """

    path: str
    value: Any
    origin: int


class Origin(NamedTuple):
    """Patch that set values.

    Args:
        cause: the world of the patch, with the cause of that world.
        patch: the patch; None for genesis.
    """

    cause: Cause
    patch: Patch | None


class PatchOrigins:
    """Patches that set values, by number; only their positions in the log are kept in memory."""

    def __init__(self, archive: Archive) -> None:
        """Create an empty collection."""
        self._archive = archive
        self._positions = array("q")
        self._patches = array("q")

    def __len__(self) -> int:
        """Return the number of patches."""
        return len(self._positions)

    def add(self, position: int, patch: int) -> None:
        """Add a patch by the position of its world and its number there."""
        self._positions.append(position)
        self._patches.append(patch)

    def world_of(self, number: int) -> int:
        """Return the position of the world that a patch belongs to."""
        return self._positions[number]

    def read(self, numbers: Iterable[int]) -> dict[int, Origin]:
        """Return some of the patches, read from the log.

        Raises:
            DamagedLogError: an event was changed after it was logged.
        """
        wanted = list(numbers)
        positions = sorted({self._positions[number] for number in wanted})
        logged = (one for part in self._archive.log.events_at(positions) for one in part)
        worlds = [event for one in logged if isinstance(event := decoded(one), WorldSealed)]
        causes = dict(zip(positions, causes_of(self._archive, worlds), strict=True))
        origins = {}
        for number in wanted:
            cause, at = causes[self._positions[number]], self._patches[number]
            origins[number] = Origin(cause, None if at == GENESIS else cause.sealed.patches[at])
        return origins


@dataclass(frozen=True, slots=True)
class BlamedValues:
    """All values below a path, with the patches that set them.

    Args:
        path: the requested path.
        present: whether the path has a value.
        value: the value at the path.
        origins: the patches, newest first.
        owners: the number of the patch of each value.
    """

    path: str
    present: bool
    value: Any
    origins: PatchOrigins
    owners: Sequence[int]

    def __iter__(self) -> Iterator[Blamed]:
        """Yield the values in the order of the data."""
        for (path, value), owner in zip(leaves(self.value, self.path), self.owners, strict=True):
            yield Blamed(path, value, owner)

    def __len__(self) -> int:
        """Return the number of values; at least one, because an absent value counts."""
        return len(self.owners)

    def with_origins(self) -> Iterator[tuple[Blamed, Origin]]:
        """Yield the values with their origins, in the order of the data; the log is read in batches."""
        known: dict[int, Origin] = {}
        values = iter(self)
        while batch := list(islice(values, AT_ONCE)):
            lacking = {one.origin for one in batch} - known.keys()
            if len(known) + len(lacking) > KEPT:
                known, lacking = {}, {one.origin for one in batch}
            known |= self.origins.read(lacking)
            for one in batch:
                yield one, known[one.origin]


def blame_values(archive: Archive, path: str, world_id: str, *, progress: Progress | None = None) -> BlamedValues:
    """Find the patch that set each value below a path, in one pass over the line of descent.

    Args:
        archive: archive of the log.
        path: relative to the data; a leading ``data.`` is allowed, and ``""`` is the whole data.
        world_id: the world to start from.
        progress: called with the number of visited worlds, and of worlds down to genesis.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``; ``INVALID_PATH`` for a computed value: see ``computed_from``.
        DamagedLogError: ``STATE_DAMAGED``; an event was changed after it was logged.
    """
    data = archive.checked_state(world_id)
    plain = plain_path(data, path)
    place = _written_place(plain)
    tracker = Tracker()
    tracker.follow(data, place)
    origins = origins_of(archive, world_id, tracker, progress=progress)
    present = stands(data, place)
    return BlamedValues(plain, present, look_up(data, place) if present else None, origins, tracker.owners)


def origins_of(
    archive: Archive,
    world_id: str,
    tracker: Tracker,
    *,
    until: str | None = None,
    progress: Progress | None = None,
) -> PatchOrigins:
    """Return the patches that set the values of a tracker; its ``owners`` become their numbers.

    Args:
        archive: archive of the log.
        world_id: the world whose values are tracked.
        tracker: the tracked values; modified.
        until: ancestor at which the search stops; older values keep the owner ``NOBODY``. None searches to genesis.
        progress: called with the number of visited worlds, and of worlds down to genesis.
    """
    origins, worlds = PatchOrigins(archive), archive.world(world_id).height + 1
    for done, (position, sealed) in enumerate(sealed_line(archive, world_id)):
        if progress is not None and done % REPORT_EVERY == REPORT_EVERY - 1:
            progress(done, worlds)
        if not tracker.remaining or sealed.world_id == until:
            break
        if sealed.parent is None:
            tracker.take_rest(len(origins))
            origins.add(position, GENESIS)
            break
        patches = sealed.patches
        first, last = len(origins), len(patches) - 1
        if patches and tracker.undo(patches, [first + last - at for at in range(len(patches))]):
            for at in range(last, -1, -1):  # the last patch of a world is its newest
                origins.add(position, at)
    return origins


def stands(data: Any, place: tuple[str, ...]) -> bool:
    """Return whether a place has a value, including null."""
    for name in place:
        if isinstance(data, dict) and name in data:
            data = data[name]
        elif isinstance(data, list) and (index := array_index(name)) is not None and index < len(data):
            data = data[index]
        else:
            return False
    return True
