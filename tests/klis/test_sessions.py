"""Sessions in virtual time: small cases by hand, and the recorded workload to the last number."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st

from world.errors import RefusedError
from world.events.base import Event
from world.events.lease_events import VerdictGiven
from world.klis.ledger import Ledger
from world.klis.settings import KlisSettings
from worldprotocol.cli.support.input_reading import read_lines
from worldprotocol.conformance.klis_sessions import SessionPlan, SessionTimes, read_sessions, run_sessions

WORKLOAD: Final = Path(__file__).resolve().parents[2] / "examples" / "repository" / "sessions.jsonl"


def line(session: str, agent: str, start: int, end: int, *files: str, predicate: str = "MUTATES") -> dict[str, Any]:
    scope = [{"predicate": predicate, "resource": f"FILE:/{name}"} for name in files]
    return {"session": session, "agent": agent, "start_ms": start, "end_ms": end, "scope": scope}


def plans(*lines: dict[str, Any]) -> list[SessionPlan]:
    return read_sessions(enumerate((json.dumps(one).encode() for one in lines), 1))


def spans(courses: list[SessionTimes]) -> dict[str, tuple[int | None, int | None]]:
    return {course.plan.session: (course.granted_at, course.released_at) for course in courses}


@pytest.mark.requirement("KP-3a", "KP-3b", "KP-3c", "KP-3d", "KP-5a")
@pytest.mark.slow
def test_the_recorded_workload_comes_to_these_totals():
    totals, courses = run_sessions(read_sessions(read_lines(str(WORKLOAD))))
    assert totals.to_wire() == {
        "sessions": 1722,
        "granted_at_once": 621,
        "waited": 314,
        "died": 1076,
        "retries": 258902,
        "max_held": 183,
        "total_wait_ms": 15502304348,
        "max_wait_ms": 170403000,
        "verdicts": {"Granted": 1722, "Wait": 398, "Die": 258902},
    }
    assert all(course.released_at == (course.granted_at or 0) + course.plan.hold_ms for course in courses)


@pytest.mark.requirement("KP-3a")
def test_a_younger_session_dies_and_asks_again_later_and_later():
    totals, courses = run_sessions(plans(line("s1", "a", 0, 10_000, "x"), line("s2", "b", 100, 200, "x")))
    assert spans(courses) == {"s1": (0, 10_000), "s2": (15_100, 15_200)}  # after 1, 2, 4 and 8 s
    assert (totals.died, totals.retries, totals.waited, totals.granted_at_once) == (1, 4, 0, 1)
    assert [(phase.kind, phase.since, phase.behind, phase.resource) for phase in courses[1].phases] == [
        ("retry", 100, "s1", "FILE:/x")
    ]


@pytest.mark.requirement("KP-3a", "KP-3d")
def test_an_older_session_waits_and_has_its_turn_at_the_release():
    given = plans(line("s0", "a", 0, 1, "y"), line("s1", "b", 10, 60, "x"), line("s2", "a", 20, 30, "x"))
    totals, courses = run_sessions(given)
    assert spans(courses)["s2"] == (60, 70)
    assert (totals.waited, totals.died, totals.total_wait_ms, totals.max_wait_ms) == (1, 0, 40, 40)
    assert totals.verdicts == {"Granted": 3, "Wait": 1, "Die": 0}


def test_at_equal_times_releases_come_first_then_the_queue_then_requests_by_session_id():
    told: list[tuple[str, str]] = []

    def hear(event: Event) -> None:
        if isinstance(event, VerdictGiven) and event.at == 100:
            told.append((event.session_id, event.status))

    lines = (
        line("w0", "old", 0, 0, "z"),
        line("h1", "b", 10, 100, "x"),
        line("h2", "b", 10, 100, "y"),
        line("q1", "old", 20, 50, "x", "y"),
        line("n2", "c", 100, 110, "v"),
        line("n1", "d", 100, 110, "x"),
    )
    totals, courses = run_sessions(plans(*lines), hear=hear)
    assert told == [("q1", "Granted"), ("n1", "Die"), ("n2", "Granted")]
    assert totals.max_held == 3
    assert spans(courses)["q1"] == (100, 130)


def test_all_releases_of_one_instant_come_before_the_first_of_the_queue_is_judged():
    told: list[tuple[str, str]] = []

    def hear(event: Event) -> None:
        if isinstance(event, VerdictGiven) and event.cause == "queue":
            told.append((event.session_id, event.status))

    lines = (
        line("a0", "oldest", 0, 0, "z"),
        line("b0", "older", 1, 1, "z"),
        line("h1", "c", 10, 100, "x"),
        line("h2", "d", 10, 100, "y"),
        line("q2", "older", 20, 50, "x"),
        line("q1", "oldest", 30, 50, "y"),
    )
    run_sessions(plans(*lines), hear=hear)
    assert told == [("q1", "Granted"), ("q2", "Granted")]


@pytest.mark.requirement("CARD-replay")
def test_the_order_of_the_lines_makes_no_difference_and_a_replay_of_the_events_gives_the_same_counts():
    lines = [json.loads(one) for one in WORKLOAD.read_text().splitlines()[:150]]
    events: list[Event] = []
    totals, courses = run_sessions(plans(*lines), hear=events.append)
    random.Random(7).shuffle(lines)
    assert run_sessions(plans(*lines)) == (totals, courses)
    again = Ledger()
    for event in events:
        again.fold(event)
    assert again.verdicts == totals.verdicts
    assert not again.leases
    assert not again.requests


SESSION = st.tuples(
    st.sampled_from("abc"), st.integers(0, 300), st.integers(0, 400), st.sets(st.sampled_from("xyz"), min_size=1)
)


@pytest.mark.requirement("KP-3d", "KP-7")
@trials(max_examples=60)
@given(st.lists(SESSION, max_size=12))
def test_every_session_is_granted_once_and_no_two_hold_one_file_at_one_time(drawn):
    lines = [
        line(f"s{number}", agent, start, start + took, *sorted(files))
        for number, (agent, start, took, files) in enumerate(drawn)
    ]
    totals, courses = run_sessions(plans(*lines), settings=KlisSettings(backoff_ms=7, max_backoff_ms=50))
    assert totals.verdicts["Granted"] == totals.sessions == len(drawn)
    held: dict[str, list[tuple[int, int]]] = {}
    for course in courses:
        assert course.granted_at is not None
        assert course.released_at == course.granted_at + course.plan.hold_ms
        assert course.granted_at >= course.plan.start_ms
        for triple in course.plan.manifest.triples:
            held.setdefault(triple.resource.text, []).append((course.granted_at, course.released_at))
    for intervals in held.values():
        ordered = sorted(intervals)
        assert all(one[1] <= other[0] for one, other in pairwise(ordered))


def test_each_bad_line_is_named_with_its_number_and_code():
    good = line("s1", "a", 0, 1, "x")
    bad: list[tuple[bytes | RefusedError, str]] = [
        (b"{", "MALFORMED_JSON"),
        (b"[]", "INVALID_SESSION"),
        (json.dumps({**good, "start_ms": "soon"}).encode(), "INVALID_SESSION"),
        (json.dumps({**good, "end_ms": -1}).encode(), "INVALID_SESSION"),
        (json.dumps({**good, "start_ms": 2, "end_ms": 1}).encode(), "INVALID_SESSION"),
        (json.dumps({**good, "colour": 1}).encode(), "INVALID_SESSION"),
        (json.dumps(good).encode(), "INVALID_SESSION"),
        (json.dumps({**good, "session": ""}).encode(), "MALFORMED_SCHEMA"),
        (json.dumps({**good, "session": "s3", "scope": []}).encode(), "MALFORMED_SCHEMA"),
        (json.dumps(line("s4", "a", 0, 1, "x", predicate="WRITE")).encode(), "INVALID_PREDICATE"),
        (json.dumps(line("s5", "a", 0, 1, "x/../y")).encode(), "AMBIGUOUS_RESOURCE"),
        (RefusedError("LINE_TOO_LONG", "The line is too long."), "LINE_TOO_LONG"),
    ]
    with pytest.raises(RefusedError) as caught:
        read_sessions(enumerate([json.dumps(good).encode(), *(one for one, _ in bad)], 1))
    assert caught.value.code == "INVALID_SESSIONS"
    assert caught.value.details["count"] == len(bad)
    faults = caught.value.details["faults"]
    assert [(one["line"], one["code"]) for one in faults] == [(at, code) for at, (_, code) in enumerate(bad, 2)]


def test_a_file_full_of_bad_lines_is_counted_and_not_told_whole():
    with pytest.raises(RefusedError) as caught:
        read_sessions((number, b"?") for number in range(1, 501))
    assert caught.value.details["count"] == 500
    assert len(caught.value.details["faults"]) == 100


def test_progress_is_told_and_nothing_at_all_is_nothing():
    told: list[tuple[int, int]] = []
    run_sessions(plans(line("s1", "a", 0, 1, "x")), progress=lambda done, total: told.append((done, total)))
    assert told[-1][1] == 1
    totals, courses = run_sessions([])
    assert (totals.sessions, totals.total_wait_ms, totals.max_wait_ms, courses) == (0, 0, 0, [])
