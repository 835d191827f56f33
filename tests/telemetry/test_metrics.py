"""Metrics of a server: their names, their labels, and that they say what the API says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.served import PATH, Served, founded, serving
from tests.telemetry.metric_names import Scrape

pytestmark = pytest.mark.slow

BOUNDED = {"realm", "operation", "status", "code", "outcome", "state", "le"}
"""Labels of our own metrics; none is an actor, a path or another text of a caller."""

OTHERS = ("process_", "python_")
SUFFIXES = ("_seconds", "_bytes", "_info")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server with proposals in every state."""
    folder: Path = tmp_path_factory.mktemp("metrics")
    with serving(founded(folder, server="max_body_bytes = 10000")) as running:
        for actor in ("kid", "kid", "bot", "bot", "bot"):
            assert running.submit(actor).status_code in (200, 202)
        bake = {"type": "order.bake", "input": {"item": "cake"}, "scopeProposal": {"allowedPaths": ["orders.bake"]}}
        ship = {"type": "order.ship", "input": {"item": "cake"}, "scopeProposal": {"allowedPaths": ["orders.ship"]}}
        assert running.submit("kid", bake).status_code == 202
        assert running.submit("kid", ship).status_code == 202
        with running.client("ann") as ann, running.client("mule") as mule, running.client("kid") as kid:
            waiting = ann.get(f"{PATH}/proposals").json()["proposals"]
            first = next(one["proposalId"] for one in waiting if one["status"] == "evaluating")
            no = {"choice": "reject", "reason": "no"}
            assert ann.post(f"{PATH}/proposals/{first}:answer", json=no).status_code == 200
            claimed = mule.post(f"{PATH}/effects:claim", json={"worker": "mule-1", "types": ["cart.ship"]})
            assert claimed.json()["claim"] is not None, claimed.text
            assert kid.get(f"{PATH}/rights").status_code == 403
            assert kid.post(f"{PATH}/intents", content=b"x" * 20_000).status_code == 413
        yield running


def scrape(served: Served) -> Scrape:
    with served.client("ops") as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return Scrape(answer.text)


def test_the_numbers_are_those_of_the_api(served: Served) -> None:
    found = scrape(served)
    with served.client("aud") as client:
        proposals = client.get(f"{PATH}/proposals", params={"limit": 100}).json()["proposals"]
        leases = client.get(f"{PATH}/leases").json()["leases"]
        effects = client.get(f"{PATH}/effects").json()["effects"]
        position = client.get(PATH).json()["position"]
    statuses = [one["status"] for one in proposals]
    for outcome in ("completed", "rejected"):
        wanted = found.value("worldprotocol_proposals_total", realm="main", outcome=outcome)
        assert wanted == statuses.count(outcome) > 0
    ended = ("completed", "failed", "rejected", "superseded")
    assert found.value("worldprotocol_open_proposals", realm="main") == sum(one not in ended for one in statuses) == 4
    assert found.value("worldprotocol_waiting_for_people", realm="main") == statuses.count("evaluating") == 2
    assert (found.value("worldprotocol_waiting_for_people_oldest_seconds", realm="main") or 0) > 0
    assert found.value("worldprotocol_leases_held", realm="main") == len(leases) > 0
    assert found.value("worldprotocol_effects_requested", realm="main") == len(effects) == 2
    assert found.value("worldprotocol_effects_offered", realm="main", state="offered") == 1
    assert found.value("worldprotocol_effects_offered", realm="main", state="claimed") == 1
    assert found.value("worldprotocol_effects_in_doubt", realm="main") == 0
    assert found.value("worldprotocol_workers", realm="main") == 1
    assert found.value("worldprotocol_log_position", realm="main") == position
    assert found.value("worldprotocol_log_available", realm="main") == 1
    files = [Path(f"{served.place.log}{ending}") for ending in ("", "-wal")]
    assert found.value("worldprotocol_log_bytes", realm="main") == sum(one.stat().st_size for one in files)
    assert (found.value("worldprotocol_storage_free_bytes", realm="main") or 0) > 0
    assert found.value("worldprotocol_jobs_running", realm="main") == 0


def test_refusals_and_times_are_counted_by_operation(served: Served) -> None:
    before = scrape(served)
    assert before.value("worldprotocol_refused_total", operation="rights.list", code="RIGHT_MISSING") == 1
    assert before.value("worldprotocol_refused_total", operation="intents.submit", code="REQUEST_TOO_LARGE") == 1
    assert before.value("worldprotocol_requests_total", operation="intents.submit", status="413") == 1
    submitted = before.value("worldprotocol_request_duration_seconds_count", operation="intents.submit") or 0
    commits = before.value("worldprotocol_commit_duration_seconds_count", realm="main") or 0
    waits = before.value("worldprotocol_lock_wait_seconds_count", realm="main") or 0
    assert served.submit("kid").status_code in (200, 202)
    after = scrape(served)
    assert after.value("worldprotocol_request_duration_seconds_count", operation="intents.submit") == submitted + 1
    assert (after.value("worldprotocol_commit_duration_seconds_count", realm="main") or 0) > commits > 0
    assert (after.value("worldprotocol_commit_duration_seconds_sum", realm="main") or 0) > 0
    assert (after.value("worldprotocol_lock_wait_seconds_count", realm="main") or 0) > waits > 0


def test_the_readers_of_streams_and_the_process_are_measured(served: Served) -> None:
    with served.client("aud") as client, client.stream("GET", f"{PATH}/log/stream", params={"after": 0}) as stream:
        lines = stream.iter_lines()  # kept: without it the stream would be closed
        while not next(lines).startswith("id:"):
            pass
        assert scrape(served).value("worldprotocol_stream_readers", realm="main") == 1
    found = scrape(served)
    assert (found.value("process_resident_memory_bytes") or 0) > 0
    assert (found.value("process_open_fds") or 0) > 0


def test_names_and_labels_keep_the_conventions(served: Served) -> None:
    found = scrape(served)
    assert len({one.name for one in found.families}) == len(found.families)  # each is described once
    for family in found.families:
        assert family.documentation, family.name
        if family.name.startswith(OTHERS):
            continue
        assert re.fullmatch(r"worldprotocol_[a-z]+(_[a-z]+)*", family.name)
        assert family.documentation.endswith("."), family.name
        if family.type == "counter":
            assert all(one.name.endswith(("_total", "_created")) for one in family.samples)
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
        if family.type == "gauge":
            assert not family.name.endswith("_total")
        assert not re.search(r"_(ms|millis|kb|mb|minutes)(_|$)", family.name)
        for sample in family.samples:
            assert set(sample.labels) <= BOUNDED, sample
    actors = {"ann", "bob", "bot", "kid", "ops", "aud", "mule", "mule-1"}
    values = {value for family in found.families for one in family.samples for value in one.labels.values()}
    assert values.isdisjoint(actors)
    assert not any("/" in value for value in values)


def test_a_caller_without_the_right_and_one_without_a_token_are_refused(served: Served) -> None:
    for actor, status in (("kid", 403), (None, 401)):
        with served.client(actor) as client:
            assert client.get("/metrics").status_code == status
