"""Finding what a person names: a position, or the beginning of an id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from world.errors import Refused
from world.events import DecisionMade
from world.views.archive import decoded
from worldprotocol.requests import HEAD

if TYPE_CHECKING:
    from worldprotocol.facade import World

EVERY = 1 << 40
"""Rows of all runs."""

MOST = 20
"""Candidates that are listed when a prefix is not unique."""


def candidates(world: World, prefix: str) -> list[tuple[str, str]]:
    """Return ``(kind, id)`` of the worlds, proposals, intents, runs, sessions and decisions whose id begins like this.

    Args:
        world: an open realm.
        prefix: the beginning of an id. Sessions are looked for only where nothing of the former is found, or one has
            this very name; decisions only where nothing else is found.
    """
    found: list[tuple[str, str]] = []
    bounds = {"low": prefix, "high": prefix + "\U0010ffff", "most": MOST}
    for kind in ("world", "proposal", "intent", "run"):
        found += [(kind, str(row[0])) for row in world.archive.rows(f"{kind}_prefix", **bounds)]
    intents = {name for kind, name in found if kind == "proposal"}
    found = [one for at, one in enumerate(found) if one[0] != "intent" or one[1] not in intents]
    if not found or world.archive.rows("runs_of_session", of_session=prefix):
        found += [("session", name) for name in _sessions(world, prefix)]
    return found or list(_decisions(world, prefix))


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
        raise Refused(
            "NOT_FOUND",
            f"Nothing has an id that begins with {named!r}; `worldctl log` and `worldctl worlds` list what there is.",
        )
    exact = [one for one in found if one[1] == named]
    if len(found) > 1 and len(exact) != 1:
        listed = "\n".join(f"  {kind} {name}" for kind, name in found)
        more = "\n  and perhaps more" if len(found) >= MOST else ""
        raise Refused(
            "AMBIGUOUS",
            f"{named!r} begins {len(found)} ids; write more of it:\n{listed}{more}",
            candidates=[{"kind": kind, "id": name} for kind, name in found],
        )
    return exact[0] if exact else found[0]


def as_position(world: World, named: str) -> int | None:
    """Return the position that a text is; None where it is none, or beyond the log: ids may begin with digits too."""
    if not (named.isascii() and named.isdigit()) or (named.startswith("0") and named != "0") or len(named) > 18:
        return None
    return int(named) if int(named) <= world.log.head().size else None


def position_of(world: World, named: str) -> tuple[int, str | None]:
    """Return a position that is given as such, or where the commit ends that sealed a world, with the world's id.

    A world is named by the beginning of its id, by the branch whose head it is, or by ``HEAD``. What was committed
    with it, such as the end of its proposal, belongs to it.

    Raises:
        Refused: ``NOT_FOUND``, ``AMBIGUOUS``.
    """
    position = as_position(world, named)
    if position is not None:
        return position, None
    head = head_named(world, named)
    rows = world.archive.rows("world_prefix", low=named, high=named + "\U0010ffff", most=MOST) if head is None else []
    if head is not None or len(rows) == 1:
        row = world.archive.world(head or str(rows[0][0]))
        return end_of_commit(world, row.position), row.world_id
    if rows:
        find(world, named)
    raise Refused(
        "NOT_FOUND",
        f"{named!r} is neither a position up to {world.log.head().size} nor a branch, HEAD or the beginning of a "
        "world's id; `worldctl worlds` and `worldctl branch list` list them.",
    )


def end_of_commit(world: World, position: int) -> int:
    """Return the last position of the commit that an event belongs to: a tree head is stored with each commit."""
    head = next(world.log.heads(position - 1), None)
    return position if head is None else head.size
