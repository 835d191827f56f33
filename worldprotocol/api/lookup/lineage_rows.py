"""Worlds and branches as JSON: rows of the lineage, newest first, one world with its patches; also in the past.

``worldctl worlds``, the HTTP API and the MCP server use it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from world.model.record import to_wire
from world.read_models.archive import Archive, WorldRow
from world.read_models.lineage import Heads, line

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LineageQuery", "branch_rows", "lineage_row", "lineage_rows", "sealed_row", "world_row"]

NEVER: Final = 1 << 53
"""Position behind every log."""


@dataclass(frozen=True, slots=True)
class LineageQuery:
    """Which worlds are wanted.

    Args:
        most: highest number of worlds.
        before: only worlds that were sealed before this position.
        branch: only the line of descent of this branch's head and tip; None is all worlds.
        under: only descendants of this world; None is all worlds.
        depth: generations of descendants.
    """

    most: int
    before: int = NEVER
    branch: str | None = None
    under: str | None = None
    depth: int = 1


def lineage_rows(archive: Archive, heads: Heads, query: LineageQuery) -> list[WorldRow]:
    """Return the wanted worlds, newest first.

    Args:
        archive: of the log.
        heads: the branches at the point in time that is looked at.
        query: which worlds are wanted.

    Raises:
        RefusedError: ``UNKNOWN_BRANCH``, ``UNKNOWN_WORLD``.
    """
    if query.branch is not None:
        found: Iterable[WorldRow] = _line_of(archive, heads, query.branch)
    elif query.under is not None:
        found = sorted(_descendants(archive, query), key=lambda row: -row.position)
    else:
        rows = archive.rows("worlds_before", {"before": query.before, "most": query.most})
        return [WorldRow(*row) for row in rows]
    return list(islice((row for row in found if row.position < query.before), query.most))


def _line_of(archive: Archive, heads: Heads, branch: str) -> Iterator[WorldRow]:
    """Yield the worlds from a branch's tip and head back to genesis."""
    head = heads.head(branch)
    tip = heads.branches[branch].tip
    if tip != head:
        yield archive.world(tip)
    yield from line(archive, head)


def _descendants(archive: Archive, query: LineageQuery) -> list[WorldRow]:
    """Return the worlds below a world, generation by generation."""
    generation = [archive.world(query.under or "").world_id]
    found: list[WorldRow] = []
    for _ in range(query.depth):
        children = [WorldRow(*row) for one in generation for row in archive.rows("children", {"of_world": one})]
        children = [row for row in children if row.position < query.before]
        found += children
        if not children:
            break
        generation = [row.world_id for row in children]
    return found


def world_row(row: WorldRow, shown: Collection[str] | None = None) -> dict[str, Any]:
    """Return a world as JSON.

    Args:
        row: the world.
        shown: names of the branches that the caller may read; None is all.
    """
    return {
        "worldId": row.world_id,
        "parent": row.parent,
        "height": row.height,
        "position": row.position,
        "branch": row.branch if shown is None or row.branch in shown else None,
        "outcome": row.outcome,
    }


def lineage_row(row: WorldRow, heads: Heads, shown: Collection[str] | None = None) -> dict[str, Any]:
    """Return a world as JSON, with the branches whose head or tip it is.

    Args:
        row: the world.
        heads: the branches at the point in time that is looked at.
        shown: names of the branches that the caller may read; None is all.
    """
    branches = [one for one in heads.branches.values() if shown is None or one.name in shown]
    return {
        **world_row(row, shown),
        "heads": [branch.name for branch in branches if branch.head == row.world_id],
        "tips": [branch.name for branch in branches if branch.tip == row.world_id != branch.head],
    }


def sealed_row(archive: Archive, row: WorldRow, shown: Collection[str] | None = None) -> dict[str, Any]:
    """Return a world as JSON, with its hashes and the patches from its parent.

    Args:
        archive: of the log.
        row: the world.
        shown: names of the branches that the caller may read; None is all.
    """
    sealed = archive.sealed(row.world_id)
    return {
        **world_row(row, shown),
        "createdBy": sealed.created_by,
        "createdAt": sealed.at,
        "contentId": sealed.content_id,
        "schemaHash": sealed.schema_hash,
        "snapshotHash": sealed.snapshot_hash,
        "patches": to_wire(sealed.patches),
        "error": to_wire(sealed.error),
    }


def branch_rows(heads: Heads, shown: Collection[str] | None = None) -> list[dict[str, Any]]:
    """Return the branches as JSON, in the order of creation.

    Args:
        heads: the branches at the point in time that is looked at.
        shown: names of those that the caller may read; None is all.
    """
    return [
        {"name": one.name, "head": one.head, "tip": one.tip, "active": one.name == heads.active}
        for one in heads.branches.values()
        if shown is None or one.name in shown
    ]
