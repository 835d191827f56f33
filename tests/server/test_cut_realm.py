"""A server of a realm that is cut while it runs: its lists, its pages, its feed, and repeated requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest

from tests.pages.pages_of import PAGES_PATH, signed_in
from tests.server.served import ORDER, PATH, Place, Served, founded, serving, stopped
from world.audit.sealing import last_commit
from worldprotocol.export.archive.cutting import CutPlan, cut, open_for_cutting
from worldprotocol.export.archive.manifest import ArchiveFolder

pytestmark = pytest.mark.slow

SOME_ARCHIVE = cast("ArchiveFolder", SimpleNamespace(digest="0" * 64))
ORDERS = 6


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return founded(tmp_path, server="requests_per_second = 10000\nburst = 10000")


@pytest.fixture
def served(place: Place) -> Iterator[Served]:
    with serving(place, "--sign-in", "aud") as running:
        yield running


def ordered(served: Served, number: int) -> httpx.Response:
    return served.submit("kid", ORDER | {"input": {"item": f"tea-{number}"}}, f"order-{number}")


def cut_now(place: Place) -> int:
    """Cut the log at its end, beside the server, and return where."""
    with open_for_cutting(place.log) as log:
        plan = CutPlan((SOME_ARCHIVE,), last_commit(log, log.head().size), 0)
        return cut(log, plan, by="operator", now_ms=0).upto


@pytest.mark.requirement("CARD-audit")
def test_a_server_goes_on_beside_a_cut_and_says_what_it_leaves_out(served: Served, place: Place) -> None:
    waiting = served.submit("bot", ORDER).json()["proposalId"]
    ended = [ordered(served, number).json()["proposalId"] for number in range(ORDERS)]
    with served.client("aud") as aud:
        assert "archivedUpto" not in aud.get(f"{PATH}/proposals").json()
        upto = cut_now(place)
        listed = aud.get(f"{PATH}/proposals").json()
        assert listed["archivedUpto"] == upto
        assert [one["proposalId"] for one in listed["proposals"]] == [waiting]
        later = ordered(served, ORDERS).json()
        assert later["status"] == "completed"
        events = aud.get(f"{PATH}/log", params={"after": upto, "limit": 500}).json()
        assert events["archivedUpto"] == upto
        assert [one["position"] for one in events["events"]] == list(range(upto + 1, events["upto"] + 1))
        assert aud.get(f"{PATH}/proposals/{ended[0]}").status_code == 410
        assert aud.get(f"{PATH}/proposals/{later['proposalId']}").json()["status"] == "completed"
        assert aud.get(f"{PATH}/worlds/HEAD/state").status_code == 200
        assert "archivedUpto" in aud.get(f"{PATH}/proposals", params={"actor": "kid"}).json()
        with aud.stream("GET", f"{PATH}/log/stream", params={"after": upto}) as stream:
            assert next(line for line in stream.iter_lines() if line.startswith("id:")) == f"id: {upto + 1}"
        for behind in ({"params": {"after": 0}}, {"headers": {"Last-Event-ID": str(upto - 1)}}):
            refused = aud.get(f"{PATH}/log/stream", **behind)
            assert (refused.status_code, refused.json()["code"]) == (410, "EVENT_ARCHIVED")
            assert f"after event {upto}" in refused.json()["detail"]
    with served.client("ann") as ann:
        answered = ann.post(f"{PATH}/proposals/{waiting}:answer", json={"choice": "approve"})
        assert answered.json()["status"] == "completed"


@pytest.mark.requirement("CARD-replay")
def test_a_repeated_request_of_an_archived_intent_is_answered_as_after_a_restart(served: Served, place: Place) -> None:
    assert ordered(served, 0).json()["status"] == "completed"
    assert ordered(served, 0).status_code == 200
    cut_now(place)
    before = ordered(served, 0)
    assert stopped(served) == 0
    with serving(place) as again:
        after = ordered(again, 0)
        assert (before.status_code, before.json()["code"]) == (410, "EVENT_ARCHIVED")
        assert (after.status_code, after.json()["code"]) == (410, "EVENT_ARCHIVED")


def test_the_pages_of_a_cut_realm_show_what_its_log_still_has(served: Served, place: Place) -> None:
    for number in range(ORDERS):
        ordered(served, number)
    cut_now(place)
    with signed_in(served, "aud") as aud:
        for page in ("proposals", "worlds", "leases", "log", "policies", "runs", "proof"):
            shown = aud.get(f"{PAGES_PATH}/{page}")
            assert shown.status_code == 200, (page, shown.text)
