"""Layout of the drawings: the lineage, newest first, and held leases over time.

The page's template draws the results and escapes every text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from worldprotocol.report.course import TimeSeries
from worldprotocol.report.lineage import Gap, LineagePart, Node

__all__ = ["Chart", "Mark", "Sheet", "chart", "sheets"]

ROWS: Final = 40
"""Rows of one sheet, to fit on a printed page."""

LANES: Final = 16
"""Number of lanes; further branches share the last one."""

ROW: Final = 20
LANE: Final = 16
LEFT: Final = 14
TEXT: Final = 680
"""Width of the text beside the lanes."""

WIDTH: Final = 720
HEIGHT: Final = 180
PLOT: Final = (56, 12, 704, 140)
"""The chart's plot: left, top, right, bottom."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One row: a world, or a gap.

    Args:
        y: its vertical centre.
        x: the horizontal centre of its lane.
        lane: the lane's number, for its colour.
        node: the world; None for a gap.
        gap: the gap; None for a world.
        labels: labels of heads and tips.
    """

    y: int
    x: int
    lane: int
    node: Node | None
    gap: Gap | None
    labels: tuple[str, ...]


@dataclass(slots=True)
class Sheet:
    """Rows of one drawing.

    Args:
        number: from 1.
        lines: ``(lane, x1, y1, x2, y2, dashed)``.
    """

    number: int
    width: int
    height: int
    text: int
    marks: list[Mark] = field(default_factory=list)
    lines: list[tuple[int, int, int, int, int, bool]] = field(default_factory=list)


def sheets(lineage: LineagePart) -> list[Sheet]:
    """Return the lineage as sheets, newest worlds first."""
    items = list(lineage.drawn())[::-1]
    if not items:
        return []
    lanes = _lanes(lineage, items)
    spans = [(lane, *_extent(lineage, name, items)) for name, lane in lanes.items()]
    wide = LEFT + LANE * (max(lanes.values(), default=0) + 1)
    made = []
    for first in range(0, len(items), ROWS):
        part = items[first : first + ROWS]
        sheet = Sheet(first // ROWS + 1, wide + TEXT, len(part) * ROW, wide + 6)
        for place, item in enumerate(part):
            sheet.marks.append(_mark(lineage, lanes, item, place))
        for lane, top, bottom, fork in spans:
            sheet.lines += _lane_lines(items, lane, (top, bottom), first, len(part))
            if fork is not None and first <= bottom < first + ROWS:
                y = (bottom - first) * ROW + ROW // 2
                sheet.lines.append((lane, _x(lane), y, _x(lanes.get(fork, LANES - 1)), y, False))
        made.append(sheet)
    return made


def _x(lane: int) -> int:
    return LEFT + lane * LANE


def _lanes(lineage: LineagePart, items: Sequence[Node | Gap]) -> dict[str, int]:
    """Return the lane of each branch with drawn worlds, in order of creation."""
    present = {one.branch for one in items if isinstance(one, Node)}
    ordered = [name for name in lineage.branches if name in present]
    ordered += sorted(present.difference(ordered))
    return {name: min(place, LANES - 1) for place, name in enumerate(ordered)}


def _extent(lineage: LineagePart, name: str, items: Sequence[Node | Gap]) -> tuple[int, int, str | None]:
    """Return a branch's first and last row, and its parent branch."""
    own = [place for place, one in enumerate(items) if isinstance(one, Node) and one.branch == name]
    twig = lineage.branches.get(name)
    if twig is None or twig.start_position is None:
        return own[0], own[-1], None
    for place, one in enumerate(items):
        if (one.position if isinstance(one, Node) else one.after + 1) <= twig.start_position:
            base = one if isinstance(one, Node) and one.world_id == twig.start else None
            fork = None if base is None or base.branch == name else base.branch
            return own[0], max(place, own[-1]), fork
    return own[0], own[-1], None


def _lane_lines(
    items: Sequence[Node | Gap], lane: int, span: tuple[int, int], first: int, count: int
) -> list[tuple[int, int, int, int, int, bool]]:
    """Return the lines of a lane on a sheet, dashed at gaps."""
    top, bottom = span
    pieces: list[tuple[int, int, int, int, int, bool]] = []
    for place in range(max(top, first), min(bottom, first + count - 1) + 1):
        begin = (place - first) * ROW + (ROW // 2 if place == top else 0)
        end = (place - first) * ROW + (ROW // 2 if place == bottom else ROW)
        dashed = isinstance(items[place], Gap)
        if pieces and pieces[-1][5] == dashed and pieces[-1][4] == begin:
            begin = pieces.pop()[2]
        if end > begin:
            pieces.append((lane, _x(lane), begin, _x(lane), end, dashed))
    return pieces


def _mark(lineage: LineagePart, lanes: dict[str, int], item: Node | Gap, place: int) -> Mark:
    y = place * ROW + ROW // 2
    if isinstance(item, Gap):
        return Mark(y, _x(0), 0, None, item, ())
    heads = [f"head of {one.name}" for one in lineage.branches.values() if one.head == item.world_id]
    tips = [f"tip of {one.name}" for one in lineage.branches.values() if one.tip == item.world_id != one.head]
    lane = lanes[item.branch]
    return Mark(y, _x(lane), lane, item, None, (*heads, *tips))


@dataclass(frozen=True, slots=True)
class Chart:
    """Step chart of a time series.

    Args:
        line: path of the maximum of each span.
        area: closed path of the area below the line.
        ticks: ``(x, time in ms)``.
        levels: ``(y, number)``.
    """

    line: str
    area: str
    ticks: list[tuple[float, int]]
    levels: list[tuple[float, int]]
    most: int


def chart(course: TimeSeries) -> Chart | None:
    """Return the chart of a time series; None for an empty one."""
    spans = list(course)
    if not spans or not any(span.changes or span.most for _, span in spans):
        return None
    left, top, right, bottom = PLOT
    most = max(span.most for _, span in spans)
    step, each = _step(most), (right - left) / len(spans)
    ceiling = max(-(-most // step) * step, 1)

    def height(number: int) -> float:
        return round(bottom - (bottom - top) * number / ceiling, 1)

    points = [f"M{left} {height(spans[0][1].most)}"]
    for place, (_, span) in enumerate(spans):
        points.append(f"V{height(span.most)}H{round(left + each * (place + 1), 1)}")
    line = "".join(points)
    shown = range(0, len(spans), max(-(-len(spans) // 6), 1))
    return Chart(
        line=line,
        area=f"{line}V{bottom}H{left}Z",
        ticks=[(round(left + each * place, 1), spans[place][0]) for place in shown],
        levels=[(height(number), number) for number in range(0, ceiling + 1, step)],
        most=most,
    )


def _step(most: int) -> int:
    """Return the step of an axis with at most five levels: 1, 2 or 5 times a power of 10."""
    power = 1
    while True:
        for base in (1, 2, 5):
            if most <= 4 * base * power:
                return base * power
        power *= 10
