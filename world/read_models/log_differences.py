"""Differences of two logs: their first different event, and its consequences in each log.

Two logs with a common prefix diverge at one event; later events are compared by ids instead of positions. An event
depends on the first different event if it concerns the same proposal, world, actor, branch or policy, or one that
depends on it. A new domain, new lease settings and another enforcement affect all later events. Sources: CARD-audit,
CARD-replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, Final

import orjson

from world.errors import DamagedLogError
from world.events.base import Event
from world.events.lease_events import KlisConfigured, VerdictGiven
from world.events.policy_events import PolicyAdopted
from world.events.proposal_events import (
    DecisionMade,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.events.realm_events import (
    ActorBound,
    ActorRegistered,
    BranchCreated,
    DomainAdopted,
    EnforcementChosen,
    LogFounded,
    WorkspaceRegistered,
    WorldSealed,
)
from world.events.writer_events import WriterClosed, WriterOpened
from world.log import EventLog, LoggedEvent
from world.model.actor import ActorRef
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.diff import ValueChange, changes

Progress = Callable[[int, int], None]

Name = tuple[str, str]
"""Kind of an entity and its id."""

EVERYTHING: Final = (
    DomainAdopted,
    EnforcementChosen,
    KlisConfigured,
    LogFounded,
    WorkspaceRegistered,
    WriterClosed,
    WriterOpened,
)
"""Events that affect all later events."""

REPORT_EVERY: Final = 10_000
"""Number of events between two calls of a progress callback."""


@dataclass(slots=True)
class Followed:
    """Contents of one log from the first different event on.

    Args:
        proposals: facts about each proposal, by id.
        worlds: facts about each sealed world, by id.
        dependent: the entities that depend on the first different event.
    """

    proposals: dict[str, dict[str, Any]] = field(default_factory=dict)
    worlds: dict[str, dict[str, Any]] = field(default_factory=dict)
    dependent: set[Name] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Parted:
    """Differences of two logs.

    Args:
        position: position of the first different event.
        events: that event in each log, None where the log ends before it.
        fields: the differences of the two events; empty where one log continues the other.
        proposals: ``(id, in the first, in the second, depends)`` of the different proposals; None is absent.
        worlds: the different worlds, likewise.
        heads: the different heads of branches by name, likewise.
        damage: damage of each log from that event on; with damage, proposals, worlds and heads are empty.
    """

    position: int
    events: tuple[LoggedEvent | None, LoggedEvent | None]
    fields: tuple[ValueChange, ...]
    proposals: tuple[tuple[str, Any, Any, bool], ...]
    worlds: tuple[tuple[str, Any, Any, bool], ...]
    heads: tuple[tuple[str, Any, Any, bool], ...]
    damage: tuple[str | None, str | None] = (None, None)

    def to_wire(self) -> dict[str, Any]:
        """Return the differences as JSON."""
        left_event, right_event = (None if one is None else _event(one) for one in self.events)
        wire: dict[str, Any] = {"position": self.position, "a": left_event, "b": right_event}
        wire["fields"] = [change.to_wire() for change in self.fields]
        wire["damage"] = {"a": self.damage[0], "b": self.damage[1]}
        for name in ("proposals", "worlds", "heads"):
            wire[name] = [
                {"id": one, "a": left, "b": right, "dependsOnIt": depends}
                for one, left, right, depends in getattr(self, name)
            ]
        return wire


def compare_logs(a: Archive, b: Archive, *, progress: Progress | None = None) -> Parted | None:
    """Return the differences of two logs, or None where they contain the same events.

    Args:
        a: archive of the first log.
        b: archive of the second log.
        progress: called with the number of compared events and the total.
    """
    position = first_difference(a.log, b.log, progress=progress)
    if position is None:
        return None
    left, right = _at(a.log, position), _at(b.log, position)
    fields = () if left is None or right is None else tuple(changes(_event(left), _event(right)))
    listed = tuple(change for change in fields if change.path != "leaf" or len(fields) == 1)
    (one, one_damage), (other, other_damage) = _followed_or_damage(a, position), _followed_or_damage(b, position)
    if one_damage or other_damage:
        return Parted(position, (left, right), listed, (), (), (), (one_damage, other_damage))
    dependent = one.dependent | other.dependent
    return Parted(
        position,
        (left, right),
        listed,
        tuple(_different(one.proposals, other.proposals, "proposal", dependent)),
        tuple(_different(one.worlds, other.worlds, "world", dependent)),
        tuple(_heads(a, b, dependent)),
    )


def first_difference(a: EventLog, b: EventLog, *, progress: Progress | None = None) -> int | None:
    """Return the first position at which the events differ or one log has ended; None where the logs are equal."""
    last = max(a.head().size, b.head().size)
    rows = zip_longest(chain.from_iterable(a.read_rows()), chain.from_iterable(b.read_rows()))
    for position, (left, right) in enumerate(rows, 1):
        if left != right:
            return position
        if progress is not None and position % REPORT_EVERY == 0:
            progress(position, last)
    return None


def _followed_or_damage(archive: Archive, position: int) -> tuple[Followed, str | None]:
    """Return the contents of a log from an event on, or a description of its damage."""
    try:
        return followed(archive, position), None
    except DamagedLogError as damage:
        return Followed(), damage.message


def followed(archive: Archive, position: int) -> Followed:
    """Return the contents of a log from an event on, with the entities that depend on that event.

    Args:
        archive: archive of the log.
        position: position of the event.

    Raises:
        DamagedLogError: an event was changed after it was logged.
    """
    contents = Followed()
    affects_all = False
    for logged in archive.log.read(position - 1):
        event = decoded(logged)
        changed = _changed(event)
        related = changed.union(_referenced(event))
        if affects_all or logged.position == position or not contents.dependent.isdisjoint(related):
            contents.dependent |= changed
            affects_all = affects_all or isinstance(event, EVERYTHING)
        _add_facts(contents, event, logged.position)
    return contents


def _referenced(event: Any) -> Iterator[Name]:
    """Yield the entities that an event refers to."""
    for kind, attributes in _REFERENCES.items():
        for attribute in attributes:
            value = getattr(event, attribute, None)
            if isinstance(value, str):
                yield kind, value
    actor = getattr(event, "actor", None)
    if isinstance(actor, ActorRef):
        yield "actor", actor.actor_id
    binding = getattr(event, "binding", None)
    if isinstance(binding, Mapping) and isinstance(binding.get("policy"), str):
        yield "policy", binding["policy"]


_REFERENCES: Final[Mapping[str, tuple[str, ...]]] = {
    "proposal": ("proposal_id", "created_by", "request_id"),
    "world": ("base_world", "parent", "on_world"),
    "actor": ("actor_id",),
}


def _changed(event: Any) -> set[Name]:
    """Return the entities that an event creates or changes."""
    if isinstance(event, WorldSealed):
        return {("world", event.world_id)}
    if isinstance(event, BranchCreated):
        return {("branch", event.branch)}
    if isinstance(event, PolicyAdopted):
        return {("policy", event.name)}
    if isinstance(event, ActorRegistered):
        return {("actor", event.actor.actor_id)}
    if isinstance(event, ActorBound):
        return {("actor", event.actor_id)}
    if isinstance(event, ProposalCompleted | ProposalFailed):
        return {("proposal", event.proposal_id), ("world", event.world_id)}
    if isinstance(event, VerdictGiven):
        return {("proposal", event.request_id)}
    proposal_id = getattr(event, "proposal_id", None)
    return set() if proposal_id is None else {("proposal", proposal_id)}


def _add_facts(contents: Followed, event: Event, position: int) -> None:
    """Add the facts of an event about a world or a proposal."""
    if isinstance(event, WorldSealed):
        facts = {"parent": event.parent, "createdBy": event.created_by, "outcome": event.outcome}
        contents.worlds[event.world_id] = {**facts, "branch": event.branch, "position": position}
    elif isinstance(event, ProposalSubmitted):
        facts = {"action": event.intent.body.type, "actorId": event.actor.actor_id, "branch": event.branch}
        contents.proposals[event.proposal_id] = {**facts, "baseWorld": event.base_world, "status": "submitted"}
    elif isinstance(event, ProposalJudged):
        _update_proposal(contents, event.proposal_id, {"status": "evaluating"})
    elif isinstance(event, DecisionMade):
        facts = {"authority": event.decision.authority, "reason": event.decision.reason}
        _update_proposal(contents, event.proposal_id, {"status": event.decision.decision, **facts})
    elif isinstance(event, ProposalCompleted):
        _update_proposal(contents, event.proposal_id, {"status": "completed", "worldId": event.world_id})
    elif isinstance(event, ProposalFailed):
        facts = {"status": "failed", "worldId": event.world_id, "error": event.error.code}
        _update_proposal(contents, event.proposal_id, facts)
    elif isinstance(event, ProposalSuperseded):
        _update_proposal(contents, event.proposal_id, {"status": "superseded"})


def _update_proposal(contents: Followed, proposal_id: str, facts: Mapping[str, Any]) -> None:
    contents.proposals.setdefault(proposal_id, {}).update(facts)


def _different(
    a: Mapping[str, Any], b: Mapping[str, Any], kind: str, dependent: set[Name]
) -> Iterator[tuple[str, Any, Any, bool]]:
    """Yield the entities that only one log has or whose facts differ; positions are not compared."""
    for name in dict.fromkeys([*a, *b]):
        left, right = a.get(name), b.get(name)
        if left is None or right is None or _facts(left) != _facts(right):
            yield name, left, right, (kind, name) in dependent


def _facts(entity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entity.items() if name != "position"}


def _heads(a: Archive, b: Archive, dependent: set[Name]) -> Iterator[tuple[str, Any, Any, bool]]:
    left, right = ({str(row[0]): str(row[1]) for row in archive.rows("branches")} for archive in (a, b))
    for name in dict.fromkeys([*left, *right]):
        one, other = left.get(name), right.get(name)
        if one != other:
            depends = ("branch", name) in dependent or any(
                ("world", head) in dependent for head in (one, other) if head
            )
            yield name, one, other, depends


def _at(log: EventLog, position: int) -> LoggedEvent | None:
    return log.event_at(position) if position <= log.head().size else None


def _event(logged: LoggedEvent) -> dict[str, Any]:
    """Return an event as JSON; a state that is not JSON is given as text."""
    try:
        state = orjson.loads(logged.state)
    except (ValueError, TypeError):
        state = repr(logged.state)
    return {
        "position": logged.position,
        "stream": logged.stream,
        "version": logged.version,
        "topic": logged.topic,
        "schemaVersion": logged.schema_version,
        "state": state,
        "leaf": logged.leaf.hex() if isinstance(logged.leaf, bytes) else repr(logged.leaf),
    }
