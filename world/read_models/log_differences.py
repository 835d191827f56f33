"""Where two logs part: the first event in which they differ, and what follows from it in each.

Two logs with the same beginning part at one event; from there on positions say nothing, and ids do. An event depends on
the parting one if it is about the same proposal, world, actor, branch or policy, or about one that depends on it. A new
domain, new lease settings and another enforcement concern everything after them. Sources: CARD-audit, CARD-replay.
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
    WorldSealed,
)
from world.log import EventLog, LoggedEvent
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.diff import ValueChange, changes

Progress = Callable[[int, int], None]

Name = tuple[str, str]
"""A kind of thing and its id."""

EVERYTHING: Final = (DomainAdopted, EnforcementChosen, KlisConfigured, LogFounded)
"""Events that concern whatever comes after them."""

REPORT_EVERY: Final = 10_000
"""Events between two calls of a progress."""


@dataclass(slots=True)
class Followed:
    """What one log says from the parting event on.

    Args:
        proposals: what is known of each proposal that is spoken of.
        worlds: what is known of each world that was sealed.
        dependent: the names that depend on the parting event.
    """

    proposals: dict[str, dict[str, Any]] = field(default_factory=dict)
    worlds: dict[str, dict[str, Any]] = field(default_factory=dict)
    dependent: set[Name] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Parted:
    """Two logs that differ.

    Args:
        position: of the first event that differs.
        events: that event in either log, None where the log ends before it.
        fields: in what they differ; empty where one log only goes on.
        proposals: ``(id, in the first, in the second, depends)`` of those that differ; None is absent.
        worlds: the same for worlds.
        heads: the same for the heads of branches, by name.
        damage: what is wrong with either log from that event on; where anything is, nothing is said of what follows.
    """

    position: int
    events: tuple[LoggedEvent | None, LoggedEvent | None]
    fields: tuple[ValueChange, ...]
    proposals: tuple[tuple[str, Any, Any, bool], ...]
    worlds: tuple[tuple[str, Any, Any, bool], ...]
    heads: tuple[tuple[str, Any, Any, bool], ...]
    damage: tuple[str | None, str | None] = (None, None)

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON."""
        told = [None if one is None else _event(one) for one in self.events]
        wire: dict[str, Any] = {"position": self.position, "a": told[0], "b": told[1]}
        wire["fields"] = [change.to_wire() for change in self.fields]
        wire["damage"] = {"a": self.damage[0], "b": self.damage[1]}
        for name in ("proposals", "worlds", "heads"):
            wire[name] = [
                {"id": one, "a": left, "b": right, "dependsOnIt": depends}
                for one, left, right, depends in getattr(self, name)
            ]
        return wire


def compare_logs(a: Archive, b: Archive, *, progress: Progress | None = None) -> Parted | None:
    """Return where two logs part, None where they hold the same events.

    Args:
        a: of the first log.
        b: of the second.
        progress: called with events compared and events in all.
    """
    position = first_difference(a.log, b.log, progress=progress)
    if position is None:
        return None
    left, right = _at(a.log, position), _at(b.log, position)
    fields = () if left is None or right is None else tuple(changes(_event(left), _event(right)))
    told = tuple(change for change in fields if change.path != "leaf" or len(fields) == 1)
    (one, wrong), (other, also_wrong) = _followed(a, position), _followed(b, position)
    if wrong or also_wrong:
        return Parted(position, (left, right), told, (), (), (), (wrong, also_wrong))
    dependent = one.dependent | other.dependent
    return Parted(
        position,
        (left, right),
        told,
        tuple(_different(one.proposals, other.proposals, "proposal", dependent)),
        tuple(_different(one.worlds, other.worlds, "world", dependent)),
        tuple(_heads(a, b, dependent)),
    )


def first_difference(a: EventLog, b: EventLog, *, progress: Progress | None = None) -> int | None:
    """Return the first position at which two logs hold other events, or only one of them any."""
    last = max(a.head().size, b.head().size)
    rows = zip_longest(chain.from_iterable(a.read_rows()), chain.from_iterable(b.read_rows()))
    for position, (left, right) in enumerate(rows, 1):
        if left != right:
            return position
        if progress is not None and position % REPORT_EVERY == 0:
            progress(position, last)
    return None


def _followed(archive: Archive, position: int) -> tuple[Followed, str | None]:
    """Return what a log says from an event on, and what is wrong with it, where it cannot be read."""
    try:
        return followed(archive, position), None
    except DamagedLogError as damage:
        return Followed(), damage.message


def followed(archive: Archive, position: int) -> Followed:
    """Return what a log says from an event on, and what of it depends on that event.

    Raises:
        DamagedLogError: an event from there on is not what was logged.
    """
    found = Followed()
    everything = False
    for logged in archive.log.read(position - 1):
        event = decoded(logged)
        about, made = _about(event), _made(event)
        if everything or logged.position == position or not found.dependent.isdisjoint(about):
            found.dependent |= made
            everything = everything or isinstance(event, EVERYTHING)
        _note(found, event, logged.position)
    return found


def _about(event: Any) -> set[Name]:
    """Return the names of what an event is about or builds on."""
    return set(_names(event)) | _made(event)


def _names(event: Any) -> Iterator[Name]:
    for kind, attributes in _REFERENCES.items():
        for attribute in attributes:
            value = getattr(event, attribute, None)
            if isinstance(value, str):
                yield kind, value
    actor = getattr(event, "actor", None)
    if isinstance(actor, Mapping):
        yield "actor", actor["actorId"]
    binding = getattr(event, "binding", None)
    if isinstance(binding, Mapping) and isinstance(binding.get("policy"), str):
        yield "policy", binding["policy"]


_REFERENCES: Final[Mapping[str, tuple[str, ...]]] = {
    "proposal": ("proposal_id", "created_by", "request_id"),
    "world": ("base_world", "parent", "on_world"),
    "actor": ("actor_id",),
}


def _made(event: Any) -> set[Name]:
    """Return the names of what an event makes, or makes another."""
    if isinstance(event, WorldSealed):
        return {("world", event.world_id)}
    if isinstance(event, BranchCreated):
        return {("branch", event.branch)}
    if isinstance(event, PolicyAdopted):
        return {("policy", event.name)}
    if isinstance(event, ActorRegistered):
        return {("actor", event.actor["actorId"])}
    if isinstance(event, ActorBound):
        return {("actor", event.actor_id)}
    if isinstance(event, ProposalCompleted | ProposalFailed):
        return {("proposal", event.proposal_id), ("world", event.world_id)}
    if isinstance(event, VerdictGiven):
        return {("proposal", event.request_id)}
    proposal_id = getattr(event, "proposal_id", None)
    return set() if proposal_id is None else {("proposal", proposal_id)}


def _note(found: Followed, event: Event, position: int) -> None:
    """Take in what an event says of a world or a proposal."""
    if isinstance(event, WorldSealed):
        told = {"parent": event.parent, "createdBy": event.created_by, "outcome": event.outcome, "branch": event.branch}
        found.worlds[event.world_id] = {**told, "position": position}
    elif isinstance(event, ProposalSubmitted):
        body = event.intent["body"]
        told = {"action": body["type"], "actorId": event.actor["actorId"], "branch": event.branch}
        found.proposals[event.proposal_id] = {**told, "baseWorld": event.base_world, "status": "submitted"}
    elif isinstance(event, ProposalJudged):
        _said(found, event.proposal_id, status="evaluating")
    elif isinstance(event, DecisionMade):
        told = {name: event.decision[name] for name in ("authority", "reason")}
        _said(found, event.proposal_id, status=event.decision["decision"], **told)
    elif isinstance(event, ProposalCompleted):
        _said(found, event.proposal_id, status="completed", worldId=event.world_id)
    elif isinstance(event, ProposalFailed):
        _said(found, event.proposal_id, status="failed", worldId=event.world_id, error=event.error["code"])
    elif isinstance(event, ProposalSuperseded):
        _said(found, event.proposal_id, status="superseded")


def _said(found: Followed, proposal_id: str, **told: Any) -> None:
    found.proposals.setdefault(proposal_id, {}).update(told)


def _different(
    a: Mapping[str, Any], b: Mapping[str, Any], kind: str, dependent: set[Name]
) -> Iterator[tuple[str, Any, Any, bool]]:
    """Yield what is in one log only, or is another thing in the other; where in the log it stands does not count."""
    for name in dict.fromkeys([*a, *b]):
        left, right = a.get(name), b.get(name)
        if left is None or right is None or _facts(left) != _facts(right):
            yield name, left, right, (kind, name) in dependent


def _facts(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name != "position"}


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
    """Return an event as JSON; a state that is none is given as text."""
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
