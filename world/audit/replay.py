"""Replay: reconstruction of all state by folding the events of a log (CARD-log, CARD-replay).

No domain, policy or handler is run, so the result depends on the events alone: equal events give equal state. Memory
use is bounded by the data of the branch heads and of the worlds at which later branches start, which share their equal
parts, and by the open proposals. Source: design sections 1, 2, 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.codec import INVALID, MALFORMED, TOPICS, decode_event, malformed
from world.events.proposal_events import DecisionMade, ProposalCompleted, ProposalFailed
from world.events.realm_events import BranchCreated, WorldSealed
from world.log import EventLog, TreeHead
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import apply_patches
from world.read_models.live.sealed_snapshot import SealedSnapshot, open_snapshot, realm_at
from world.state.realm_state import RealmState, apply_event

Progress = Callable[[int, int], None]
"""Called with the number of processed events and the total."""

_ENDINGS: Final[Mapping[str, str]] = {
    "proposal.completed": "completed",
    "proposal.failed": "failed",
    "proposal.superseded": "superseded",
}


class KnownWorld(msgspec.Struct, frozen=True, gc=False):
    """Sealed world that may still become a parent.

    Args:
        world_id: its id.
        parent: id of its parent, None for genesis.
        outcome: completed or failed.
        height: its distance from genesis, in worlds.
        data: its data; a failed world has its parent's.
    """

    world_id: str
    parent: str | None
    outcome: str
    height: int
    data: FrozenDict


class ForgottenWorldError(Exception):
    """An event refers to a world whose data was discarded; ``revisited_worlds`` returns the worlds to keep."""


class Lineages:
    """Worlds that events may still refer to: heads, failed worlds on them, the newest world, and requested ones."""

    __slots__ = ("_asked", "_failed", "_heads", "_kept", "_last")

    def __init__(self, asked: Collection[str] = ()) -> None:
        """Create an empty collection.

        Args:
            asked: ids of worlds to keep permanently; heads are always kept.
        """
        self._asked = frozenset(asked)
        self._kept: dict[str, KnownWorld] = {}
        self._heads: dict[str, int] = {}
        self._failed: dict[str, list[str]] = {}
        self._last: KnownWorld | None = None

    def restore(self, snapshot: SealedSnapshot) -> None:
        """Keep the worlds of a snapshot, and the heads of its branches, in place of what was sealed before."""
        for _, head, _ in snapshot.branches:
            self._heads[head] = self._heads.get(head, 0) + 1
        for world, data in snapshot.data():
            self._kept[world.world_id] = KnownWorld(world.world_id, world.parent, world.outcome, world.height, data)
            if world.outcome == "failed" and world.parent in self._heads:
                self._failed.setdefault(world.parent, []).append(world.world_id)

    def find(self, world_id: str | None) -> KnownWorld | None:
        """Return a kept world, or None."""
        last = self._last
        if last is not None and last.world_id == world_id:
            return last
        return self._kept.get(world_id or "")

    def get(self, world_id: str) -> KnownWorld:
        """Return a kept world; raises ``ForgottenWorldError``."""
        world = self.find(world_id)
        if world is None:
            raise ForgottenWorldError(world_id)
        return world

    def seal(self, event: WorldSealed, position: int) -> KnownWorld:
        """Add a world and return it with its data.

        Raises:
            DamagedLogError: ``BAD_WORLD`` when its parent is not a head, or its patches cannot be applied.
        """
        try:
            sealed = self._made(event)
        except RefusedError as refused:
            raise DamagedLogError(
                ErrorCode.BAD_WORLD,
                f"World {event.world_id} cannot be restored: {refused.message}",
                position=position,
                world_id=event.world_id,
            ) from None
        self._last = sealed
        if (
            sealed.outcome == "failed" and event.parent is not None and event.parent in self._heads
        ):  # the next execution may fail with the same world
            self._failed.setdefault(event.parent, []).append(event.world_id)
            self._kept[event.world_id] = sealed
        elif event.world_id in self._asked:
            self._kept[event.world_id] = sealed
        return sealed

    def begin_branch(self, world_id: str) -> KnownWorld:
        """Keep the world at which a branch starts; raises ``ForgottenWorldError``."""
        world = self.get(world_id)
        self._kept[world_id] = world
        self._heads[world_id] = self._heads.get(world_id, 0) + 1
        return world

    def move_head(self, old: str, new: str) -> None:
        """Keep a branch's new head in place of its old one; raises ``ForgottenWorldError`` for an unknown new one."""
        self._kept[new] = self.get(new)
        heads = self._heads
        heads[new] = heads.get(new, 0) + 1
        remaining = heads.get(old, 0) - 1
        if remaining > 0:
            heads[old] = remaining
            return
        heads.pop(old, None)
        for name in (old, *self._failed.pop(old, ())):
            if name not in self._asked and name not in heads:
                self._kept.pop(name, None)

    def _made(self, event: WorldSealed) -> KnownWorld:
        if event.parent is None:
            if event.data is None:
                raise RefusedError(ErrorCode.BAD_WORLD, "it has neither a parent nor data.")
            return KnownWorld(event.world_id, None, event.outcome, 0, freeze(event.data))
        parent = self.find(event.parent)
        if parent is None:
            raise RefusedError(ErrorCode.BAD_WORLD, f"its parent {event.parent} was not a head when it was sealed.")
        data = apply_patches(parent.data, event.patches) if event.patches else parent.data
        return KnownWorld(event.world_id, event.parent, event.outcome, parent.height + 1, data)


@dataclass(frozen=True, slots=True)
class Replayed:
    """State after the events up to a position.

    Args:
        position: the last folded event.
        head: the stored tree head of that size, or one computed from the stored hashes.
        realm: actors, bindings, policies, branches and open proposals.
        data: the data of every branch's head, by branch name.
        worlds: the data of the requested worlds, by id.
        topics: number of events per topic.
        statuses: number of proposals per status.
        sealed: number of worlds.
    """

    position: int
    head: TreeHead
    realm: RealmState
    data: Mapping[str, FrozenDict]
    worlds: Mapping[str, FrozenDict]
    topics: Mapping[str, int]
    statuses: Mapping[str, int]
    sealed: int

    def to_wire(self) -> dict[str, Any]:
        """Return the result as JSON; open proposals by id only."""
        realm = self.realm
        return {
            "position": self.position,
            "head": self.head.to_wire(),
            "schemaHash": realm.schema_hash,
            "enforcement": realm.enforcement,
            "active": realm.active,
            "epoch": realm.epoch,
            "branches": {
                name: {"head": branch.head, "tip": branch.tip, "data": self.data.get(name)}
                for name, branch in realm.branches.items()
            },
            "actors": list(realm.actors),
            "policies": {name: policy.policy_hash for name, policy in realm.policies.items()},
            "open": list(realm.proposals),
            "proposals": dict(sorted(self.statuses.items())),
            "worlds": self.sealed,
            "events": dict(sorted(self.topics.items())),
        }


def replay(
    log: EventLog, *, upto: int | None = None, keep: Collection[str] = (), progress: Progress | None = None
) -> Replayed:
    """Rebuild all state from the events of a log.

    Args:
        log: the log; concurrently appended events are left out.
        upto: the last position to fold; None is the newest event.
        keep: ids of worlds whose data is also returned.
        progress: called after every batch with the number of processed events and the total.

    Raises:
        DamagedLogError: the first event that cannot be read, or that contradicts the preceding events.
        RefusedError: ``NO_SUCH_EVENT`` for a position after the end of the log; ``EVENT_ARCHIVED`` for one before the
            snapshot of a cut log.
    """
    size = log.head().size
    last = size if upto is None else upto
    if not 0 <= last <= size:
        raise RefusedError(
            ErrorCode.NO_SUCH_EVENT,
            f"Event {last} does not exist; the log has {size} events. Name an event of the log.",
            position=last,
        )
    asked = branch_points(log, last) | set(keep)
    snapshot = open_snapshot(log)
    if snapshot is not None and last < snapshot.upto:
        snapshot = None  # reading the events is refused
    try:
        folding = _Folding(asked, log, snapshot)
        folding.run(log, last, progress)
    except ForgottenWorldError:  # another branch reached discarded worlds again; fold again and keep them
        after = 0 if snapshot is None else snapshot.upto
        folding = _Folding(asked | revisited_worlds(log, last, after=after), log, snapshot)
        try:
            folding.run(log, last, progress)
        except ForgottenWorldError as missing:
            raise unknown_world(str(missing), folding.realm.position + 1) from None
    return folding.result(log.root_at(last), keep)


def branch_points(log: EventLog, upto: int | None = None) -> set[str]:
    """Return the ids of the worlds at which branches start."""
    points = set()
    for logged in log.read(upto=upto, topics=[BranchCreated.TOPIC]):
        event = decode_event(logged.topic, logged.schema_version, logged.state, logged.position)
        if isinstance(event, BranchCreated):
            points.add(event.world_id)
    return points


def revisited_worlds(log: EventLog, upto: int | None = None, *, after: int = 0) -> set[str]:
    """Return the ids of the worlds that an execution reached after they had been sealed.

    Equal content with the same parent is the same world; it is recorded once, immediately before the end of the first
    execution that reached it.
    """
    topics = [WorldSealed.TOPIC, ProposalCompleted.TOPIC, ProposalFailed.TOPIC]
    revisited, sealed = set(), ""
    for logged in log.read(after, upto, topics=topics):
        event = decode_event(logged.topic, logged.schema_version, logged.state, logged.position)
        if isinstance(event, WorldSealed):
            sealed = event.world_id
        elif isinstance(event, (ProposalCompleted, ProposalFailed)) and event.world_id != sealed:
            revisited.add(event.world_id)
    return revisited


def unknown_world(world_id: str, position: int) -> DamagedLogError:
    """Return the error for an event that refers to a world that was not sealed before it."""
    return DamagedLogError(
        ErrorCode.UNKNOWN_WORLD,
        f"Event {position} names world {world_id}, which was not sealed before it.",
        position=position,
        world_id=world_id,
    )


Step = Callable[[Any, int], None]
"""Processes an event at a position, before it is folded into the realm."""


class Kind:
    """Topic in a pass over many events: its current version, a fast decoder, and the number of its events."""

    __slots__ = ("count", "decode", "step", "type", "version")

    def __init__(self, kind: type[Event], step: Step | None, float_hook: Callable[[str], float] | None = None) -> None:
        """Create the topic with the count 0.

        Args:
            kind: the payload's type.
            step: called with every event of the topic.
            float_hook: converts numbers with a fraction or an exponent; None converts them as usual.
        """
        self.type = kind
        self.version = kind.VERSION
        self.decode = msgspec.json.Decoder(kind, float_hook=float_hook).decode
        self.step = step
        self.count = 0


def read_event(kind: Kind | None, topic: str, version: int, state: bytes, position: int) -> Event:
    """Return a stored event's payload: by the fast decoder for the current version, otherwise by ``decode_event``."""
    if kind is not None and kind.version == version:
        try:
            return kind.decode(state)
        except INVALID:
            pass  # decode_event raises the error with details
    try:
        return decode_event(topic, version, state, position)
    except UnicodeError as error:
        raise malformed(position, error) from None


class _Folding:
    """Pass over the events that folds them."""

    def __init__(self, asked: Collection[str], log: EventLog, snapshot: SealedSnapshot | None) -> None:
        self.realm = RealmState() if snapshot is None else realm_at(log, snapshot)
        self._asked = asked
        self._lineages = Lineages(asked)
        self._rejected = 0
        steps = self._steps()
        self._kinds = {topic: Kind(kind, steps.get(topic)) for topic, kind in TOPICS.items()}
        if snapshot is not None:
            self._lineages.restore(snapshot)
            self._rejected = snapshot.rejected
            for topic, count in snapshot.topics.items():
                self._kinds[topic].count = count

    def run(self, log: EventLog, last: int, progress: Progress | None) -> None:
        realm = self.realm
        for rows in log.read_rows(realm.position, last):
            try:
                self._take(rows)
            except MALFORMED as error:
                raise malformed(realm.position + 1, error) from error
            if progress is not None:
                progress(realm.position, last)

    def _take(self, rows: Sequence[tuple[Any, ...]]) -> None:
        realm, kinds = self.realm, self._kinds
        for position, _stream, _version, topic, schema_version, state, _leaf in rows:
            kind = kinds.get(topic)
            if kind is None or kind.version != schema_version:
                event = read_event(kind, topic, schema_version, state, position)
            else:
                try:
                    event = kind.decode(state)
                except INVALID:  # it raises the error with details
                    event = read_event(None, topic, schema_version, state, position)
            if kind is not None:
                kind.count += 1
                step = kind.step
                if step is not None:
                    step(event, position)
            apply_event(realm, event, position)

    def result(self, head: TreeHead, keep: Collection[str]) -> Replayed:
        """Return the folded state."""
        topics = {topic: kind.count for topic, kind in self._kinds.items() if kind.count}
        statuses = Counter[str](proposal.status for proposal in self.realm.proposals.values())
        statuses.update({status: topics.get(topic, 0) for topic, status in _ENDINGS.items()})
        statuses["rejected"] += self._rejected
        get = self._lineages.get
        return Replayed(
            position=self.realm.position,
            head=head,
            realm=self.realm,
            data={name: get(branch.head).data for name, branch in self.realm.branches.items()},
            worlds={name: world.data for name in keep if (world := self._lineages.find(name)) is not None},
            topics=topics,
            statuses={status: count for status, count in statuses.items() if count},
            sealed=topics.get(WorldSealed.TOPIC, 0),
        )

    def _steps(self) -> Mapping[str, Step]:
        """Return the steps before the fold, for the topics that concern data or counts."""
        lineages, branches = self._lineages, self.realm.branches

        def sealed(event: WorldSealed, position: int) -> None:
            lineages.seal(event, position)

        def branched(event: BranchCreated, _: int) -> None:
            lineages.begin_branch(event.world_id)

        def completed(event: ProposalCompleted, _: int) -> None:
            branch = branches.get(event.branch)
            if branch is not None:
                lineages.move_head(branch.head, event.world_id)

        def decided(event: DecisionMade, _: int) -> None:
            self._rejected += event.decision.decision == "rejected"

        return {
            WorldSealed.TOPIC: sealed,
            BranchCreated.TOPIC: branched,
            ProposalCompleted.TOPIC: completed,
            DecisionMade.TOPIC: decided,
        }
