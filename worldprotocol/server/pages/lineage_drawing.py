"""Drawing of the lineage: rows of worlds, newest first, runs of worlds that are folded, and the lines between them.

Heads, tips, branch points and genesis are always shown, with their neighbours up to a depth. The other worlds are
folded into one row for each run, which the address opens by its first world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from world.read_models.archive import WorldRow

__all__ = ["Drawing", "DrawnRow", "Piece", "draw"]

ROW: Final = 40
"""Height of a row, in pixels; the style sheet has the same."""

LANE: Final = 18
LEFT: Final = 14
LANES: Final = 8
"""Lanes; further branches share the last one."""

LEAST_FOLDED: Final = 2
"""Worlds of a run from which on they are folded."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A line in one row.

    Args:
        lane: number of its colour.
        path: the path as SVG draws it.
        is_dashed: whether worlds on it are folded.
    """

    lane: int
    path: str
    is_dashed: bool


@dataclass(slots=True)
class DrawnRow:
    """A row: a world, or a run of folded worlds.

    Args:
        world: the world; None for a folded run.
        x: horizontal centre of its lane.
        lane: number of its colour.
        folded: number of worlds of a folded run.
        opens: id of the first world of a folded run.
        pieces: the lines of the row.
    """

    world: WorldRow | None
    x: int
    lane: int
    folded: int = 0
    opens: str = ""
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Drawing:
    """Rows of the lineage.

    Args:
        rows: the rows, newest first.
        width: width of the lanes, in pixels.
        height: height of a row, in pixels.
    """

    rows: list[DrawnRow]
    width: int
    height: int = ROW


def draw(
    worlds: Sequence[WorldRow],
    lanes: Mapping[str, int],
    *,
    marked: Collection[str],
    depth: int,
    opened: Collection[str] = (),
) -> Drawing:
    """Return the drawing of worlds.

    Args:
        worlds: the worlds, newest first.
        lanes: by branch, the number of its lane.
        marked: ids of the worlds that are always shown; a world with two children and genesis are, too.
        depth: steps up to which the neighbours of these are shown.
        opened: ids of the first worlds of the runs that are opened.
    """
    known = {one.world_id: one for one in worlds}
    children = Counter(one.parent for one in worlds)
    keys = {one.world_id for one in worlds if one.parent is None or children[one.world_id] > 1} | set(marked)
    shown = _near(worlds, known, keys & set(known), depth)
    runs = _runs(worlds, known, shown, set(opened))
    rows: list[DrawnRow] = []
    ends: list[tuple[int, str | None, bool]] = []  # by row: the next world below, and whether worlds are folded
    for one in worlds:
        if one.world_id not in shown:
            continue
        lane = min(lanes.get(one.branch, LANES - 1), LANES - 1)
        rows.append(DrawnRow(one, LEFT + lane * LANE, lane))
        run = runs.get(one.world_id)
        ends.append((len(rows) - 1, one.parent if run is None else None, False))
        if run is not None:
            first, number, below = run
            rows.append(DrawnRow(None, LEFT + lane * LANE, lane, number, first))
            ends[-1] = (len(rows) - 2, first, True)
            ends.append((len(rows) - 1, below, True))
    _connect(rows, ends)
    most = max((row.lane for row in rows), default=0)
    return Drawing(rows, 2 * LEFT + most * LANE)


def _near(worlds: Sequence[WorldRow], known: Mapping[str, WorldRow], keys: set[str], depth: int) -> set[str]:
    """Return the ids of worlds at most ``depth`` steps from a key along the lines."""
    below: dict[str, list[str]] = {}
    for one in worlds:
        if one.parent in known:
            below.setdefault(str(one.parent), []).append(one.world_id)
    shown, edge = set(keys), set(keys)
    for _ in range(depth):
        parents = {known[name].parent for name in edge}
        edge = {str(name) for name in parents if name in known} | {one for name in edge for one in below.get(name, ())}
        edge -= shown
        if not edge:
            break
        shown |= edge
    return shown


def _runs(
    worlds: Iterable[WorldRow], known: Mapping[str, WorldRow], shown: set[str], opened: set[str]
) -> dict[str, tuple[str, int, str | None]]:
    """Return the folded run below each shown world: its first world, its length, and the world after it.

    The worlds of runs that are opened, and of those that are too short, are added to ``shown``.
    """
    runs: dict[str, tuple[str, int, str | None]] = {}
    for one in worlds:
        if one.world_id not in shown or one.parent in shown or one.parent not in known:
            continue
        run, at = [], one.parent
        while at is not None and at in known and at not in shown:
            run.append(at)
            at = known[at].parent
        if run[0] in opened or len(run) < LEAST_FOLDED:
            shown.update(run)
        else:
            runs[one.world_id] = run[0], len(run), at
    return runs


def _connect(rows: list[DrawnRow], ends: Sequence[tuple[int, str | None, bool]]) -> None:
    """Draw the line of each row to the row of the next world below."""
    places = {row.world.world_id if row.world is not None else row.opens: at for at, row in enumerate(rows)}
    middle = ROW // 2
    for at, below, is_dashed in ends:
        upper = rows[at]
        if below is None:
            continue
        end = places.get(below)
        if end is None:  # it is older than the oldest row
            end = len(rows)
        upper.pieces.append(Piece(upper.lane, f"M{upper.x} {middle}V{ROW}", is_dashed))
        for row in rows[at + 1 : end]:
            row.pieces.append(Piece(upper.lane, f"M{upper.x} 0V{ROW}", is_dashed))
        if end < len(rows):
            lower = rows[end]
            bend = "" if lower.x == upper.x else f"M{upper.x} 0C{upper.x} {middle} {lower.x} 4 {lower.x} {middle}"
            lower.pieces.append(Piece(upper.lane, bend or f"M{upper.x} 0V{middle}", is_dashed))
