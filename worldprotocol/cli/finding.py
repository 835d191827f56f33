"""Finding what a person names: a position, or the beginning of an id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from world.errors import Refused
from world.events import DecisionMade
from world.views.archive import decoded

if TYPE_CHECKING:
    from worldprotocol.facade import World

MOST = 20
"""Candidates that are listed when a prefix is not unique."""


def candidates(world: World, prefix: str) -> list[tuple[str, str]]:
    """Return ``(kind, id)`` of the worlds, proposals, intents and decisions whose id begins like this.

    Args:
        world: an open realm.
        prefix: the beginning of an id. Decisions are looked for only where nothing else is found.
    """
    found: list[tuple[str, str]] = []
    bounds = {"low": prefix, "high": prefix + "\U0010ffff", "most": MOST}
    for kind in ("world", "proposal", "intent"):
        found += [(kind, str(row[0])) for row in world.archive.rows(f"{kind}_prefix", **bounds)]
    intents = {name for kind, name in found if kind == "proposal"}
    found = [one for at, one in enumerate(found) if one[0] != "intent" or one[1] not in intents]
    return found or list(_decisions(world, prefix))


def _decisions(world: World, prefix: str) -> Iterator[tuple[str, str]]:
    found = 0
    for logged in world.log.read(topics=[DecisionMade.TOPIC]):
        event = decoded(logged)
        if isinstance(event, DecisionMade) and event.decision["decisionId"].startswith(prefix):
            yield "decision", event.proposal_id
            found += 1
            if found == MOST:
                return


def find(world: World, named: str) -> tuple[str, str]:
    """Return the kind and id of the one thing that a prefix names.

    An intent and a decision are named by their proposal's id.

    Raises:
        Refused: ``NOT_FOUND``; ``AMBIGUOUS`` with the candidates.
    """
    if named == "HEAD" or named in {branch.name for branch in world.branches()}:
        return "world", world.branch(None if named == "HEAD" else named).head
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
    """Return a position that is given as such, or that of the sealing of a world, with the world's id.

    Raises:
        Refused: ``NOT_FOUND``, ``AMBIGUOUS``.
    """
    position = as_position(world, named)
    if position is not None:
        return position, None
    rows = world.archive.rows("world_prefix", low=named, high=named + "\U0010ffff", most=MOST)
    if len(rows) == 1:
        row = world.archive.world(str(rows[0][0]))
        return row.position, row.world_id
    if rows:
        find(world, named)
    raise Refused(
        "NOT_FOUND",
        f"{named!r} is neither a position up to {world.log.head().size} nor the beginning of a world's id; "
        "`worldctl worlds` lists them.",
    )
