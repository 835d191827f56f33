"""Who made elements of lists stand where they do: who wrote them, and who removed what stood before them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from world.core import set_, unset
from world.model.patch import Patch
from world.read_models.value_tracking import MAX_MOVES, NOBODY, Tracker

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 4)),
        st.tuples(st.just("unset"), st.integers(0, 6)),
        st.tuples(st.just("all"), st.integers(0, 4)),
    ),
    max_size=12,
)


@dataclass
class Place:
    """What stands at an index, or behind the end: who wrote it, and who moved it there since."""

    writer: int = NOBODY
    movers: list[int] = field(default_factory=list)


def played(length: int, steps: list[tuple[str, int]]) -> tuple[list[Place], Place, list[tuple[Patch, int]]]:
    """Go forward, and return the elements, what is absent behind them, and the patches, numbered."""
    elements, behind, made = [Place() for _ in range(length)], Place(), []
    for number, (what, at) in enumerate(steps, 1):
        if what == "all":
            elements, behind = [Place(number) for _ in range(at)], Place(number)
            made.append((set_("list", [0] * at), number))
        elif what == "set" and at < len(elements):
            elements[at] = Place(number)
            made.append((set_(f"list.{at}", 1), number))
        elif what == "unset" and at < len(elements):
            del elements[at]
            for moved in (*elements[at:], behind):
                moved.movers.append(number)
            made.append((unset(f"list.{at}"), number))
    return elements, behind, made


@pytest.mark.requirement("IC-audit", "CARD-audit")
@given(st.integers(0, 5), STEPS)
def test_elements_and_their_absence_are_moved_by_the_removals_before_them(
    length: int, steps: list[tuple[str, int]]
) -> None:
    elements, behind, made = played(length, steps)
    tracker = Tracker(moves=True)
    data = {"list": [0] * len(elements)}
    for at in range(len(elements)):
        tracker.follow(data, ("list", str(at)))
    for _ in range(2):  # several may be missing at once
        tracker.follow(data, ("list", str(len(elements))))
    for patch, number in reversed(made):
        tracker.undo([patch], [number])
    assert tracker.moved is not None
    for at, expected in enumerate([*elements, behind, behind]):
        assert tracker.owners[at] == expected.writer
        assert tracker.moved.get(at, []) == expected.movers[::-1]


def test_of_many_removals_the_newest_are_kept() -> None:
    tracker = Tracker(moves=True)
    tracker.follow({"list": []}, ("list", "0"))
    for number in range(2 * MAX_MOVES, 0, -1):
        tracker.undo([unset("list.0")], [number])
    assert tracker.moved == {0: list(range(2 * MAX_MOVES, MAX_MOVES, -1))}
