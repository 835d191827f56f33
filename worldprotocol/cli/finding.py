"""Finding what a person names: a position, or the beginning of an id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from world.errors import Refused
from world.events import DecisionMade
from world.views.archive import decoded
from worldprotocol.requests import HEAD

if TYPE_CHECKING:
    from world.realm import Realm
    from worldprotocol.facade import World

EVERY = 1 << 40
"""Rows of all runs."""

MOST = 20
"""Candidates that are listed when a prefix is not unique."""

MIN_MS_DIGITS = 12
"""Digits that a time in ms since 1970 has at least, so that it is not taken for a position beyond the log: 1973."""

AT_METAVAR = "POSITION|WORLD|PROPOSAL|BRANCH|HEAD|TIME"
"""How the help writes what ``point_of`` takes."""


def candidates(world: World, prefix: str, *, decisions: bool = True) -> list[tuple[str, str]]:
    """Return ``(kind, id)`` of the worlds, proposals, intents, runs, sessions and decisions whose id begins like this.

    Args:
        world: an open realm.
        prefix: the beginning of an id. Sessions are looked for only where nothing of the former is found, or one has
            this very name; decisions only where nothing else is found.
        decisions: look for those at all: that reads the log.
    """
    found: list[tuple[str, str]] = []
    bounds = {"low": prefix, "high": prefix + "\U0010ffff", "most": MOST}
    for kind in ("world", "proposal", "intent", "run"):
        found += [(kind, str(row[0])) for row in world.archive.rows(f"{kind}_prefix", **bounds)]
    intents = {name for kind, name in found if kind == "proposal"}
    found = [one for at, one in enumerate(found) if one[0] != "intent" or one[1] not in intents]
    if not found or world.archive.rows("runs_of_session", of_session=prefix):
        found += [("session", name) for name in _sessions(world, prefix)]
    return found or (list(_decisions(world, prefix)) if decisions else [])


def _sessions(world: World, prefix: str) -> list[str]:
    """Return the sessions of governed runs whose name begins like this; a whole name is found without looking on."""
    if world.archive.rows("runs_of_session", of_session=prefix):
        return [prefix]
    rows = world.archive.rows("runs", most=EVERY)
    return sorted({str(session) for _, _, session, *_ in rows if str(session).startswith(prefix)})[:MOST]


def _decisions(world: World, prefix: str) -> Iterator[tuple[str, str]]:
    found = 0
    for logged in world.log.read(topics=[DecisionMade.TOPIC]):
        event = decoded(logged)
        if isinstance(event, DecisionMade) and event.decision["decisionId"].startswith(prefix):
            yield "decision", event.proposal_id
            found += 1
            if found == MOST:
                return


def head_named(world: World, named: str) -> str | None:
    """Return the head of the branch of this name, of the active one for ``HEAD``; None where there is none."""
    branches = {branch.name: branch.head for branch in world.branches()}
    if named == HEAD and branches:
        return world.branch().head
    return branches.get(named)


def find(world: World, named: str) -> tuple[str, str]:
    """Return the kind and id of the one thing that a prefix names.

    An intent and a decision are named by their proposal's id.

    Raises:
        Refused: ``NOT_FOUND``; ``AMBIGUOUS`` with the candidates.
    """
    head = head_named(world, named)
    if head is not None:
        return "world", head
    found = candidates(world, named) if named else []
    if not found:
        raise nothing_named(named)
    exact = [one for one in found if one[1] == named]
    if len(found) > 1 and len(exact) != 1:
        raise not_unique(named, found)
    return exact[0] if exact else found[0]


def nothing_named(named: str) -> Refused:
    """Return the error for a text that names nothing."""
    return Refused(
        "NOT_FOUND",
        f"Nothing has an id that begins with {named!r}; `worldctl log` and `worldctl worlds` list what there is.",
    )


def not_unique(named: str, found: list[tuple[str, str]]) -> Refused:
    """Return the error for a text that names several things, with the kind and id of each."""
    listed = "\n".join(f"  {kind} {name}" for kind, name in found)
    more = "\n  and perhaps more" if len(found) >= MOST else ""
    return Refused(
        "AMBIGUOUS",
        f"{named!r} could be any of these; write more of it:\n{listed}{more}",
        candidates=[{"kind": kind, "id": name} for kind, name in found],
    )


def as_position(world: World, named: str) -> int | None:
    """Return the position that a text is; None where it is none, or beyond the log: ids may begin with digits too."""
    if not (named.isascii() and named.isdigit()) or (named.startswith("0") and named != "0") or len(named) > 18:
        return None
    return int(named) if int(named) <= world.log.head().size else None


@dataclass(frozen=True, slots=True)
class Point:
    """A point in the past, as a person names one.

    Args:
        position: the last event that had happened then.
        kind: what was named: position, branch, world, proposal or time.
        world_id: the world that was named, or that the proposal made; None where the point names none.
        branch: the branch of the proposal that was named; None stands for the active one.
    """

    position: int
    kind: str
    world_id: str | None = None
    branch: str | None = None


def point_of(world: World, named: str) -> Point:
    """Return the point in the past that a text names.

    A position up to the end of the log; a branch or ``HEAD``; the beginning of the id of a world, a proposal, an
    intent or a decision; or a time as ``log --since`` takes it, which is the last event recorded by then. A world and a
    proposal stand for the end of the commit that sealed or ended them, so that what was committed with them belongs
    to it.

    Args:
        world: an open realm.
        named: what was typed. Digits are a position as far as the log goes, and beyond it ids or ms since 1970.

    Raises:
        Refused: ``NOT_FOUND``; ``AMBIGUOUS`` with the candidates.
    """
    position = as_position(world, named)
    if position is not None:
        return Point(position, "position")
    head = head_named(world, named)
    at_ms = _as_time(named)
    found = [] if head is not None or not named else _with_a_past(candidates(world, named, decisions=at_ms is None))
    exact = [one for one in found if one[1] == named]
    readings = exact or [*([("branch", named)] if head else []), *found, *([] if at_ms is None else [("time", named)])]
    if not readings:
        raise Refused(
            "NOT_FOUND",
            f"{named!r} names no point in the past: it is neither a position up to {world.log.head().size} nor a "
            "branch, HEAD, the beginning of the id of a world or proposal, or a time such as 2024-05-01T12:00:00Z, "
            "ms since 1970, or 2h; `worldctl worlds` and `worldctl branch list` list what there is.",
        )
    if len(readings) > 1:
        raise not_unique(named, readings)
    kind, name = readings[0]
    if kind == "time":
        from world.views.lineage import recorded_by

        return Point(recorded_by(world.archive, at_ms or 0), kind)
    if kind in ("branch", "world"):
        row = world.archive.world(head or name)
        return Point(end_of_commit(world, row.position), kind, row.world_id)
    return _point_of_proposal(world, kind, name)


def world_at(world: World, at: str | None, branch: str | None = None) -> tuple[str, Point]:
    """Return the world that stood at a point, and the point.

    Args:
        world: an open realm.
        at: what was typed; None is now.
        branch: whose head it is; None is the world that the point names, else the head of the active branch then.

    Raises:
        Refused: as ``point_of``; ``UNKNOWN_BRANCH`` where there was no such branch then.
    """
    from world.views.lineage import heads_at

    if at is None:
        return world.branch(branch).head, Point(world.log.head().size, "position")
    point = point_of(world, at)
    if branch is None and point.world_id is not None:
        return point.world_id, point
    return heads_at(world.archive, point.position).head(branch or point.branch), point


def realm_at(world: World, at: str) -> tuple[Realm, int]:
    """Return actors, branches and open proposals as they stood at a point, and when its last event was recorded, in ms.

    All events up to it are folded. Raises ``Refused`` as ``point_of``.
    """
    position = point_of(world, at).position
    realm = world.archive.fold_realm(position)
    return realm, decoded(world.log.event_at(position)).at if position else 0


def _with_a_past(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Leave out what has no one point in the past: runs and sessions last."""
    return [one for one in found if one[0] not in ("run", "session")]


def _point_of_proposal(world: World, kind: str, proposal_id: str) -> Point:
    events = world.log.stream(proposal_id)
    proposal = world.proposal(proposal_id)
    position = events[-1].position
    if kind == "decision":
        position = next(one.position for one in events if one.topic == DecisionMade.TOPIC)
    made = proposal.world_id if kind != "decision" else None
    return Point(end_of_commit(world, position), "proposal", made, proposal.branch)


def _as_time(named: str) -> int | None:
    """Return ms since 1970 of a time; None where a text is none. Few digits are none."""
    from world.clock import SystemClock
    from worldprotocol.cli.log import moment_given

    if named.isascii() and named.isdigit() and len(named) < MIN_MS_DIGITS:
        return None
    try:
        return moment_given(named, SystemClock().now_ms())
    except click.UsageError:
        return None


def end_of_commit(world: World, position: int) -> int:
    """Return the last position of the commit that an event belongs to: a tree head is stored with each commit."""
    head = next(world.log.heads(position - 1), None)
    return position if head is None else head.size
