"""The picture of sessions: valid XML, and what it shows is what happened."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.klis_sessions import SessionTimes, read_sessions, run_sessions
from conformance.timeline import draw, select
from worldprotocol.duration_text import duration

SVG = "{http://www.w3.org/2000/svg}"


def courses(*sessions: tuple[str, str, int, int, str]) -> list[SessionTimes]:
    lines = [
        {
            "session": session,
            "agent": agent,
            "start_ms": start,
            "end_ms": end,
            "scope": [{"predicate": "MUTATES", "resource": f"FILE:/{name}"}],
        }
        for session, agent, start, end, name in sessions
    ]
    return run_sessions(read_sessions(enumerate((json.dumps(one).encode() for one in lines), 1)))[1]


STORY = (
    ("s0", "old", 0, 1, "y"),
    ("s1", "mid", 10, 5_000, "x"),
    ("s2", "old", 20, 30, "x"),
    ("s3", "new", 40, 50, "x"),
)


def parsed(drawn: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawn)


def words(drawn: str) -> list[str]:
    return [one.text or "" for one in parsed(drawn).iter(f"{SVG}text")]


def bars(drawn: str) -> dict[str, tuple[float, float, str]]:
    """Return left edge, width and colour of each bar by what is said about it."""
    found = {}
    for one in parsed(drawn).iter(f"{SVG}rect"):
        said = one.find(f"{SVG}title")
        if said is not None:
            found[said.text or ""] = (float(one.attrib["x"]), float(one.attrib["width"]), one.attrib["fill"])
    return found


def test_it_shows_who_held_and_who_waited_for_whom_and_what():
    drawn = draw(courses(*STORY), title="A story")
    told = words(drawn)
    assert told[0] == "A story"
    assert {"s1, mid", "s2, old", "s3, new"} <= set(told)
    assert "4 s 980 ms, s1 (FILE:/x)" in told
    shown = bars(drawn)
    held = shown["s1 holds MUTATES FILE:/x for 4 s 990 ms"]
    waited = shown["s2 waits for s1 (FILE:/x), 4 s 980 ms"]
    assert held[2] != waited[2]
    assert held[0] < waited[0]
    assert held[0] + held[1] == pytest.approx(waited[0] + waited[1], abs=0.2)
    assert any(said.startswith("s3 dies behind s1 (FILE:/x)") for said in shown)
    assert {"held its leases", "waited in the queue", "died, and requested again"} <= set(told)


def test_those_that_waited_longest_are_shown_with_those_they_stood_behind():
    happened = courses(*STORY, *((f"t{number}", "calm", number, number + 1, f"f{number}") for number in range(50)))
    assert [course.plan.session for course in select(happened, rows=3)] == ["s1", "s2", "s3"]
    assert len(select(happened, rows=1_000)) == 54
    drawn = draw(happened, title="x", rows=3)
    assert "3 of 54 sessions" in words(drawn)[1]


def test_a_window_shows_what_happened_in_it():
    happened = courses(*STORY)
    assert [course.plan.session for course in select(happened, rows=9, end=15)] == ["s0", "s1"]
    assert "s0" not in {course.plan.session for course in select(happened, rows=9, start=2)}
    left = [x for x, _, _ in bars(draw(happened, title="x", start=1_000, end=2_000)).values()]
    assert left
    assert min(left) >= 250
    assert len(set(left)) == 1  # all of it began before


def test_names_that_look_like_markup_are_text():
    happened = courses(('<b a="1">&', "]]>'", 0, 10, "<x>&amp;"), ("s\ufffe", "\uffff", 5, 6, "<x>&amp;"))
    told = words(draw(happened, title="</svg><script>"))
    assert told[0] == "</svg><script>"
    assert any(one.startswith('<b a="1">&') for one in told)
    assert any("FILE:/<x>&amp;" in one for one in told)


@pytest.mark.parametrize("given_", [(), STORY[:1], (("s0", "a", 5, 5, "x"),)])
def test_a_picture_of_little_or_nothing_is_still_one(given_: Any):
    assert parsed(draw(courses(*given_), title="little")).tag == f"{SVG}svg"


@given(st.integers(0, 10**12), st.integers(1, 10**12))
def test_the_axis_has_a_handful_of_ticks_whatever_the_span(start, span):
    drawn = draw(courses(("s0", "a", 5, 6, "x")), title="x", start=start, end=start + span)
    ticks = [one for one in parsed(drawn).iter(f"{SVG}text") if one.get("text-anchor") == "middle"]
    assert len(ticks) <= 10


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (0, "0"),
        (7, "7 ms"),
        (1_000, "1 s"),
        (1_234, "1 s 234 ms"),
        (170_403_000, "1 d 23 h"),
        (86_400_001, "1 d"),
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(ms, told):
    assert duration(ms) == told
