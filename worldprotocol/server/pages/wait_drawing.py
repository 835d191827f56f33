"""Drawing of who waits for whom: sessions that wait, the resources, and the sessions that are in their way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Arrow", "Box", "WaitDrawing", "draw_waits"]

MOST: Final = 40
"""Arrows that are drawn; the list beside the drawing has all."""

BOX: Final = 236
HEIGHT: Final = 44
GAP: Final = 14
BETWEEN: Final = 84
MARGIN: Final = 8


@dataclass(frozen=True, slots=True)
class Box:
    """A session or a resource.

    Args:
        kind: waits, resource or holds.
        x: left edge.
        y: upper edge.
        title: first line.
        note: second line.
    """

    kind: str
    x: int
    y: int
    title: str
    note: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow between two boxes.

    Args:
        path: the line as SVG draws it.
        tip: the points of its tip.
    """

    path: str
    tip: str


@dataclass(frozen=True, slots=True)
class WaitDrawing:
    """Boxes in three columns, and arrows from left to right."""

    boxes: list[Box]
    arrows: list[Arrow]
    width: int
    height: int


def draw_waits(waits: Sequence[Mapping[str, Any]]) -> WaitDrawing | None:
    """Return the drawing of requests that wait; None where none does.

    Args:
        waits: requests as the API lists them.
    """
    columns: list[dict[Any, tuple[str, str]]] = [{}, {}, {}]
    links: dict[tuple[int, Any, Any], None] = {}
    for wait in waits:
        for conflict in wait["waitsFor"]:
            if len(links) >= MOST:
                break
            waiter = wait["agentId"], wait["sessionId"]
            holder = conflict["holder"], conflict["session"], conflict["leaseId"] is None
            columns[0][waiter] = wait["agentId"], f"session {wait['sessionId']}"
            columns[1][conflict["resource"]] = conflict["resource"], conflict["predicate"]
            words = "waits before it" if conflict["leaseId"] is None else "holds it"
            columns[2][holder] = conflict["holder"], f"{words}, session {conflict['session']}"
            links[(0, waiter, conflict["resource"])] = None
            links[(1, conflict["resource"], holder)] = None
    if not links:
        return None
    places = [
        {name: (MARGIN + at * (BOX + BETWEEN), MARGIN + row * (HEIGHT + GAP)) for row, name in enumerate(column)}
        for at, column in enumerate(columns)
    ]
    boxes = [
        Box(kind, *places[at][name], title, note)
        for at, kind in enumerate(("waits", "resource", "holds"))
        for name, (title, note) in columns[at].items()
    ]
    arrows = [_arrow(places[at][begin], places[at + 1][end]) for at, begin, end in links]
    rows = max(len(column) for column in columns)
    return WaitDrawing(boxes, arrows, 2 * MARGIN + 3 * BOX + 2 * BETWEEN, 2 * MARGIN + rows * (HEIGHT + GAP) - GAP)


def _arrow(begin: tuple[int, int], end: tuple[int, int]) -> Arrow:
    left, top = begin[0] + BOX, begin[1] + HEIGHT // 2
    right, bottom = end[0], end[1] + HEIGHT // 2
    middle = (left + right) // 2
    path = f"M{left} {top}C{middle} {top} {middle} {bottom} {right - 8} {bottom}"
    return Arrow(path, f"{right},{bottom} {right - 9},{bottom - 5} {right - 9},{bottom + 5}")
