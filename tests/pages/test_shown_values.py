"""Values, differences, times and drawings as the pages show them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.tables import for_each
from world.read_models.archive import WorldRow
from worldprotocol.server.pages.lineage_drawing import draw
from worldprotocol.server.pages.page_call import _environment
from worldprotocol.server.pages.shown_times import relative, span_between
from worldprotocol.server.pages.shown_values import MAX_LINES, MAX_WORDS, as_text, shown_changes, value_lines
from worldprotocol.server.pages.wait_drawing import draw_waits

NOW = 1_767_225_600_000


@for_each(
    ("value", "text"),
    [
        ("tea", "tea"),
        ("two words", "two words"),
        (5, "5"),
        ("5", '"5"'),
        ("-1.5e3", '"-1.5e3"'),
        (True, "true"),
        ("true", '"true"'),
        (None, "null"),
        ("Null", '"Null"'),
        ("", '""'),
        (" tea", '" tea"'),
        ('"tea"', '"\\"tea\\""'),
        ("[1]", '"[1]"'),
        ({}, "{}"),
        ("{}", '"{}"'),
        ([], "[]"),
    ],
)
def test_a_text_is_never_taken_for_another_value(value: Any, text: str) -> None:
    assert as_text(value) == text


def test_a_value_is_shown_with_a_line_for_each_member() -> None:
    lines = value_lines({"a": {"b": [1, {"c": "x"}]}, "d": {}})
    assert [(one.depth, one.key, one.text) for one in lines] == [
        (0, "a", ""),
        (1, "b", ""),
        (2, "-", "1"),
        (2, "-", ""),
        (3, "c", "x"),
        (0, "d", "{}"),
    ]
    many = value_lines(list(range(MAX_LINES + 5)))
    assert (len(many), many[-1].text) == (MAX_LINES + 1, "… 5 more lines")
    deep: Any = "end"
    for _ in range(199):
        deep = [deep]
    assert value_lines(deep)[-1].text == "end"


def test_changes_show_the_words_that_differ() -> None:
    before = "The move is on Tuesday at nine; orders may be late, and support helps at any hour of the day."
    added, removed, short, long = shown_changes(
        [
            {"path": "a", "after": {"x": 1}},
            {"path": "b", "before": "gone"},
            {"path": "c", "before": 2, "after": "2"},
            {"path": "d", "before": before, "after": before.replace("Tuesday", "Thursday")},
        ]
    )
    assert (added.kind, [one.text for one in added.after_lines], added.before) == ("added", ["1"], ())
    assert (removed.kind, removed.before, removed.after) == ("removed", (("gone", False),), ())
    assert (short.kind, short.is_short, short.before, short.after) == (
        "changed",
        True,
        (("2", False),),
        (('"2"', False),),
    )
    assert (long.is_short, long.is_long) == (False, True)
    assert [text for text, differs in long.before if differs] == ["Tuesday"]
    assert [text for text, differs in long.after if differs] == ["Thursday"]
    assert "".join(text for text, _ in long.before) == before


def test_texts_that_are_long_or_many_are_not_compared_by_word() -> None:
    text = "a b " * MAX_WORDS
    [one] = shown_changes([{"path": "p", "before": text + "c", "after": text + "d"}])
    assert [differs for _, differs in (*one.before, *one.after)] == [False, False]
    words = "w " * 50
    changes = [{"path": str(at), "before": words + "x", "after": words + "y"} for at in range(40)]
    compared = [any(differs for _, differs in one.before) for one in shown_changes(changes)]
    assert compared == [True] * 30 + [False] * 10


def test_many_changes_are_folded_after_the_first() -> None:
    template = _environment().from_string('{% import "pieces.html.j2" as pieces %}{{ pieces.changes(list) }}')
    texts = [template.render(list=[{"path": f"p{at}", "after": at} for at in range(count)]) for count in (12, 15)]
    assert ["<details" in text for text in texts] == [False, True]
    assert "3 more changes" in texts[1]
    assert [text.count('<th scope="row">') for text in texts] == [12, 15]


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "now"),
        (999, "now"),
        (-5_000, "5 s ago"),
        (90_000, "in 1 min"),
        (-7_200_000, "2 h ago"),
        (172_800_000, "in 2 d"),
    ],
)
def test_a_time_is_relative_and_its_title_exact(ms: int, words: str) -> None:
    element = str(relative(NOW + ms, NOW))
    assert re.sub(r"<[^>]*>", "", element) == words
    assert re.search(r'title="20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"', element)


def test_a_span_has_two_units() -> None:
    spans = [span_between(NOW, NOW + ms) for ms in (-5, 120, 61_000, 3_660_000, 90_000_000)]
    assert spans == ["+0.00 s", "+0.12 s", "+1 min 1 s", "+1 h 1 min", "+1 d 1 h"]
    assert span_between(None, NOW) == ""


def lineage(number: int, fork: int | None = None) -> list[WorldRow]:
    """Return a line of worlds on main, newest first, with one world of canary on one of them."""
    made = [WorldRow(f"m{at}", f"m{at - 1}" if at else None, at, at + 1, "main", "completed") for at in range(number)]
    if fork is not None:
        made.append(WorldRow("c", f"m{fork}", fork + 1, number + 1, "canary", "completed"))
    return made[::-1]


def shown(rows: list[WorldRow], **view: Any) -> list[str]:
    drawing = draw(rows, {"main": 0, "canary": 1}, **view)
    return [row.world.world_id if row.world is not None else f"{row.folded} from {row.opens}" for row in drawing.rows]


def test_the_lineage_is_folded_around_heads_and_branch_points() -> None:
    rows = lineage(20, fork=10)
    marked = {"m19", "c"}
    assert shown(rows, marked=marked, depth=1) == [
        "c", "m19", "m18", "6 from m17", "m11", "m10", "m9", "7 from m8", "m1", "m0",
    ]  # fmt: skip
    assert shown(rows, marked=marked, depth=0) == ["c", "m19", "8 from m18", "m10", "9 from m9", "m0"]
    opened = shown(rows, marked=marked, depth=0, opened=["m9"])
    assert opened == ["c", "m19", "8 from m18", *(f"m{at}" for at in range(10, -1, -1))]
    assert shown(rows, marked=marked, depth=300) == ["c", *(f"m{at}" for at in range(19, -1, -1))]
    assert shown(lineage(3), marked={"m2"}, depth=0) == ["m2", "m1", "m0"]  # one world alone is not folded


def test_the_lines_of_the_lineage_meet() -> None:
    drawing = draw(lineage(20, fork=10), {"main": 0, "canary": 1}, marked={"m19", "c"}, depth=0)
    [fork] = [row for row in drawing.rows if row.world is not None and row.world.world_id == "m10"]
    assert sorted((one.lane, one.is_dashed) for one in fork.pieces) == [(0, True), (0, True), (1, False)]
    assert next(one.path for one in fork.pieces if one.lane == 1).startswith("M32 0C")
    assert drawing.rows[-1].pieces[0].path == "M14 0V20"  # genesis ends the line
    assert drawing.width == 46


def test_who_waits_for_whom_is_drawn_once_for_each_resource() -> None:
    conflict = {"predicate": "MUTATES", "resource": "FILE:/a", "holder": "bob", "session": "s", "leaseId": "l"}
    wait = {"agentId": "ann", "sessionId": "t", "waitsFor": [conflict, conflict]}
    drawing = draw_waits([wait, {**wait, "agentId": "eve"}])
    assert drawing is not None
    assert [(one.kind, one.title) for one in drawing.boxes] == [
        ("waits", "ann"), ("waits", "eve"), ("resource", "FILE:/a"), ("holds", "bob"),
    ]  # fmt: skip
    assert len(drawing.arrows) == 3
    assert draw_waits([]) is None
