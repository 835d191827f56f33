"""Blame: from a value in a world back to the patch, proposal, decision, intent, actor and source event behind it.

``blame`` tells who touched one place last. ``blame_values`` tells of every value below a path which patch put it there,
by the rules of ``world.read_models.value_tracking``. Sources: IC-audit, CARD-audit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from world.errors import RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.events.realm_events import WorldSealed
from world.model.decision import DecisionRecord
from world.model.intent import IntentInstance
from world.model.patch import Patch, Place, touched_paths
from world.model.paths import array_index, look_up, parse_path
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.lineage import sealed_line
from world.read_models.provenance import Cause, causes_of, projection_before
from world.read_models.value_tracking import Tracker, leaves
from world.state.proposal import Proposal

AT_ONCE: Final = 512
"""Values whose patches are read together."""

KEPT: Final = 4_096
"""Patches kept in memory while values are told, since many values often have the same."""

REPORT_EVERY: Final = 1_000
"""Worlds between two calls of a progress."""

Progress = Callable[[int, int], None]

COMPUTED: Final = "computed"
"""The first name of every path of a computed value; no field of a state has it."""

GENESIS: Final = -1
"""Stands for the number of a patch in genesis, which has none."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Who made a value what it is.

    Args:
        path: where the value stands, relative to the data.
        value: the value in the world that was asked about; None where it is absent.
        world: the world that set it last on this line of descent.
        patches: the patches of that world that touch the path; empty for genesis, which began with it.
        proposal: the proposal that made the world; None for genesis.
        projection: the record of the projection that selected the intent; None where there was none.
    """

    path: str
    value: Any
    world: WorldSealed
    patches: tuple[Patch, ...] = ()
    proposal: Proposal | None = None
    projection: ProjectionRecorded | None = None

    @property
    def intent(self) -> IntentInstance | None:
        """The intent that wanted it."""
        return None if self.proposal is None else self.proposal.intent

    @property
    def decision(self) -> DecisionRecord | None:
        """Why it was allowed."""
        return None if self.proposal is None else self.proposal.decision_record

    def to_wire(self) -> dict[str, Any]:
        """Return the answer as JSON."""
        wire: dict[str, Any] = {
            "path": self.path,
            "value": self.value,
            "worldId": self.world.world_id,
            "sealedAt": self.world.at,
            "patches": [patch.to_wire() for patch in self.patches],
        }
        if self.proposal is not None:
            wire["proposal"] = self.proposal.to_wire()
            wire["actor"] = self.proposal.submitted.actor
            wire["source"] = self.proposal.intent.meta.origin.source.to_wire()
        if self.projection is not None:
            wire["source"] = self.projection.source
            wire["projectionId"] = self.projection.projection_id
        return wire


def blame(archive: Archive, path: str, world_id: str) -> Blame:
    """Find who last touched a place, from a world back to genesis.

    Args:
        archive: of the log.
        path: relative to the data, such as ``todos.0.title``; a leading ``data.`` may stand before it.
        world_id: the world to begin with.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``, ``INVALID_PATH``, also for a computed value: see ``computed_from``.
    """
    data = archive.state(world_id)
    plain = plain_path(data, path)
    place = _written_place(plain)
    value = look_up(data, place)
    at = archive.sealed(world_id)
    while at.parent is not None:
        touching = tuple(patch for patch in map(Patch.from_wire, at.patches) if _touches(patch, place))
        if touching:
            proposal = archive.proposal(at.created_by or "")
            return Blame(plain, value, at, touching, proposal, _projection(archive, proposal))
        at = archive.sealed(at.parent)
    return Blame(plain, value, at)


def plain_path(data: Any, path: str) -> str:
    """Return a path relative to the data: without a leading ``data.``, unless the data have a member of that name."""
    return path if "data" in data else path.removeprefix("data.")


def _written_place(plain: str) -> tuple[str, ...]:
    place = parse_path(plain)
    if place[:1] == (COMPUTED,):
        raise RefusedError("INVALID_PATH", f"{plain} is computed from the state: nobody writes it.", path=plain)
    return place


def computed_from(archive: Archive, path: str, world_id: str) -> dict[str, list[str]] | None:
    """Return the computed values at, below or around a path, each with the places in the data that it follows from.

    Args:
        archive: of the log.
        path: relative to the data, such as ``computed.total``; ``computed`` is all of them.
        world_id: the world whose schema is asked.

    Returns:
        None where the path is one of the data.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``; ``NOT_FOUND`` where nothing of this name is computed.
    """
    if parse_path(path)[:1] != (COMPUTED,):
        return None
    schema_hash = archive.sealed(world_id).schema_hash
    schemas = [one.schema for one in archive.adopted_domains() if one.schema_hash == schema_hash]
    declared = (schemas[-1] if schemas else {}).get("computed", {}).get("fields", {})
    found = [name for name in declared if f"{name}.".startswith(f"{path}.") or path.startswith(f"{name}.")]
    if not found:
        known = ", ".join(declared) or "none"
        raise RefusedError("NOT_FOUND", f"Nothing is computed as {path!r} in world {world_id[:12]}; there is {known}.")
    return {name: _read_by(name, declared) for name in found}


def _read_by(name: str, declared: Mapping[str, Any]) -> list[str]:
    """Return the places in the data that a computed value reads, also through others."""
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


def _touches(patch: Patch, place: Place) -> bool:
    """Tell whether a patch changes a place, something in it, or something it lies in."""
    return any(
        all(ours is None or theirs is None or ours == theirs for ours, theirs in zip(touched, place, strict=False))
        for touched in touched_paths(patch)
    )


def _projection(archive: Archive, proposal: Proposal) -> ProjectionRecorded | None:
    """Return the projection record that was appended just before a proposal."""
    first = archive.log.stream(proposal.proposal_id, limit=1)[0]
    before = archive.log.event_at(first.position - 1) if first.position > 1 else None
    return projection_before(before, proposal.submitted)


class Blamed(NamedTuple):
    """A value, and who put it there.

    Args:
        path: where it stands, relative to the data.
        value: a scalar, or an empty object or list; None also where nothing stands there.
        origin: the number of the patch that put it there; 0 is the newest.
    """

    path: str
    value: Any
    origin: int


class Origin(NamedTuple):
    """A patch that put values where they are.

    Args:
        cause: the world it belongs to, and why that is there.
        patch: None for genesis, which began with its values.
    """

    cause: Cause
    patch: Patch | None


class PatchOrigins:
    """The patches that put values where they are, by number; only their places in the log are kept in memory."""

    def __init__(self, archive: Archive) -> None:
        """Know none yet."""
        self._archive = archive
        self._positions = array("q")
        self._patches = array("q")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._positions)

    def add(self, position: int, patch: int) -> None:
        """Take in a patch: the position of its world, and its number there."""
        self._positions.append(position)
        self._patches.append(patch)

    def world_of(self, number: int) -> int:
        """Return the position of the world that a patch belongs to."""
        return self._positions[number]

    def read(self, numbers: Iterable[int]) -> dict[int, Origin]:
        """Return some of them, read from the log.

        Raises:
            DamagedLogError: an event that is not what was logged.
        """
        wanted = list(numbers)
        positions = sorted({self._positions[number] for number in wanted})
        logged = (one for part in self._archive.log.events_at(positions) for one in part)
        worlds = [event for one in logged if isinstance(event := decoded(one), WorldSealed)]
        causes = dict(zip(positions, causes_of(self._archive, worlds), strict=True))
        found = {}
        for number in wanted:
            cause, at = causes[self._positions[number]], self._patches[number]
            found[number] = Origin(cause, None if at == GENESIS else Patch.from_wire(cause.sealed.patches[at]))
        return found


@dataclass(frozen=True, slots=True)
class BlamedValues:
    """Every value below a path, with the patch that put it there.

    Args:
        path: what was asked about.
        present: whether anything stands there.
        value: what stands there.
        origins: the patches, the newest first.
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
        """Return how many values there are; at least one, since what is absent is one too."""
        return len(self.owners)

    def told(self) -> Iterator[tuple[Blamed, Origin]]:
        """Yield the values with who put them there, in the order of the data; the log is read in batches."""
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
    """Find the patch that put each value below a path there, going along the line of descent once for all of them.

    Args:
        archive: of the log.
        path: relative to the data; a leading ``data.`` may stand before it, and ``""`` is everything.
        world_id: the world to begin with.
        progress: called with worlds gone back, and worlds down to genesis.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``; ``INVALID_PATH`` for a computed value: see ``computed_from``.
        DamagedLogError: ``STATE_DAMAGED``, and an event that is not what was logged.
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
    """Follow the values of a tracker back, and return the patches that took any; ``owners`` are their numbers.

    Args:
        archive: of the log.
        world_id: the world whose values are followed.
        tracker: follows them; changed.
        until: an ancestor at which to stop: what is older stays nobody's. None goes back to genesis.
        progress: called with worlds gone back, and worlds down to genesis.
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
        patches = [Patch.from_wire(wire) for wire in sealed.patches]
        first, last = len(origins), len(patches) - 1
        if patches and tracker.undo(patches, [first + last - at for at in range(len(patches))]):
            for at in range(last, -1, -1):  # the last patch of a world is its newest
                origins.add(position, at)
    return origins


def stands(data: Any, place: tuple[str, ...]) -> bool:
    """Tell whether anything stands at a place, null included."""
    for name in place:
        if isinstance(data, dict) and name in data:
            data = data[name]
        elif isinstance(data, list) and (index := array_index(name)) is not None and index < len(data):
            data = data[index]
        else:
            return False
    return True
