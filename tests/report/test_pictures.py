"""The pictures: numbers over time in spans that grow, and a lineage whose middle is condensed and says so."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.report.pages import every, parsed, reported, table, text, written
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.events.realm_events import BranchCreated, WorldSealed
from world.model.snapshot import ErrorValue
from worldprotocol.report.course import MAX_SPANS, TimeSeries
from worldprotocol.report.lineage import FIRST, NEWEST
from worldprotocol.report.picture import ROWS, chart

KINDS = ("granted", "released", "expired")
STEPS = st.lists(
    st.tuples(
        st.integers(-5_000, 50) | st.integers(0, 10**6) | st.integers(0, 10**11),
        st.integers(0, 9),
        st.sampled_from(KINDS),
    ),
    max_size=60,
)


@given(start=st.integers(0, 2 * 10**12), steps=STEPS)
def test_a_course_loses_no_change_and_no_peak(start, steps):
    course, now, newest, noted = TimeSeries(), start, start, []
    for gap, number, kind in steps:
        now = max(now + gap, 0)
        course.take(now, number, kind)
        newest = max(newest, now)
        noted.append((number, kind))
    spans = [span for _, span in course]
    assert len(spans) <= MAX_SPANS
    assert sum((span.changes for span in spans), Counter()) == Counter(kind for _, kind in noted)
    assert max((span.most for span in spans), default=0) == max((number for number, _ in noted), default=0)
    assert all(before.end == after.begin for before, after in pairwise(spans))
    assert all(max(span.begin, span.end) <= span.most for span in spans)
    if noted:
        assert spans[-1].end == noted[-1][0]
        began = [at for at, _ in course]
        assert all(after - before == course.width_ms for before, after in pairwise(began))
        assert chart(course) is not None


def test_a_quiet_time_between_two_changes_keeps_its_number():
    course = TimeSeries()
    course.take(0, 0)
    course.take(10, 3, "granted", 3)
    course.take(50, 1, "released", 2)
    told = course.to_wire()
    assert [(one["from"], one["begin"], one["most"], one["end"]) for one in told["rows"]] == [
        (10, 0, 3, 3),
        (50, 3, 3, 1),
    ]
    assert [span.most for at, span in course if 10 < at < 50] == [3] * 39


def sealed(number, branch="main", parent=None, *, failed=False):
    return WorldSealed(
        at=number,
        world_id=f"w{number:06}",
        content_id="c",
        schema_hash="s",
        snapshot_hash="n",
        parent=parent,
        created_by=f"p{number}",
        branch=branch,
        height=number,
        outcome="failed" if failed else "completed",
        error=ErrorValue.at("NO", "", "", "", 0) if failed else None,
    )


def line(worlds):
    """Yield a line of worlds, every tenth of which failed, and a branch that begins in its middle."""
    head = "w000000"
    yield sealed(0)
    yield BranchCreated(at=0, branch="main", world_id=head, by="o")
    for number in range(1, worlds):
        failed = number % 10 == 0
        world = sealed(number, parent=head, failed=failed)
        told = {"at": number, "proposal_id": f"p{number}", "world_id": world.world_id, "parent": head, "branch": "main"}
        yield world
        yield ProposalFailed(error=ErrorValue.at("NO", "", "", "", 0), **told) if failed else ProposalCompleted(**told)
        head = head if failed else world.world_id
        if number == worlds // 2:
            yield BranchCreated(at=number, branch="side", world_id=head, by="o")


def test_a_long_lineage_is_condensed_in_the_middle_and_says_so(tmp_path):
    worlds = 1_000
    made, page = reported(written(str(tmp_path / "long.db"), line(worlds)))
    lineage, root = made.to_wire()["lineage"], parsed(page)
    drawn = lineage["drawn"]
    assert len(drawn) <= FIRST + NEWEST + 6
    gaps = [one for one in drawn if "leftOut" in one]
    shown = [one for one in drawn if "worldId" in one]
    assert sum(one["leftOut"] for one in gaps) + len(shown) == lineage["worlds"] == worlds
    assert sum(one["failed"] for one in gaps) + sum(one["outcome"] == "failed" for one in shown) == 99
    assert [one["position"] for one in shown] == sorted(one["position"] for one in shown)
    side = table(root, "Branches")[1]
    assert side["branch"] == "side"
    assert side["head"] in {one["worldId"] for one in shown}
    pictures = [one for one in every(root, "svg") if text(every(one, "title")[0]).startswith("Lineage")]
    assert len(pictures) == -(-len(drawn) // ROWS)
    words = " ".join(text(one) for one in pictures)
    assert all(f"{one['leftOut']} worlds left out, {one['failed']} of them failed" in words for one in gaps)
    assert f"{sum(one['leftOut'] for one in gaps)} worlds in the middle are left out of the picture" in text(root)


def test_a_short_lineage_is_drawn_whole(tmp_path):
    made, page = reported(written(str(tmp_path / "short.db"), line(200)))
    assert all("worldId" in one for one in made.to_wire()["lineage"]["drawn"])
    assert "left out of the picture" not in page


def test_more_branches_than_there_are_lanes_are_drawn_together(tmp_path):
    def events():
        yield from line(30)
        for number in range(150):
            yield BranchCreated(at=number, branch=f"b{number}", world_id="w000001", by="o")
            yield sealed(1000 + number, f"b{number}", "w000001")
            moved = {"world_id": f"w{1000 + number:06}", "parent": "w000001", "branch": f"b{number}"}
            yield ProposalCompleted(at=number, proposal_id=f"p{1000 + number}", **moved)

    made, page = reported(written(str(tmp_path / "wide.db"), events()))
    rows = made.to_wire()["lineage"]["branches"]
    assert len(rows["rows"]) == 100
    assert rows["more"] == 52
    assert "52 more are left out" in text(parsed(page))
