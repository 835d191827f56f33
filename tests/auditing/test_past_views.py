"""The parameter ``at``: lineage, state, branches, leases and inbox as they were, as the command line shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.auditing.audited import founded_audited, ordered, worldctl
from tests.server.kiosk import handlers, kiosk
from tests.server.served import ORDER, PATH, Served, serving
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

LIMITS = "requests_per_second = 10000\nburst = 10000"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server of a realm with two branches, leases that ended, and answered questions."""
    place = founded_audited(tmp_path_factory.mktemp("past"), LIMITS)
    with Realm.open(place.log, domain=kiosk, effects=handlers, on_change="hold") as realm:
        realm.access.grant("yak", "reader", by="operator", redaction=["inputs"])
    with serving(place) as running:
        for number in range(3):
            ordered(running, "pol", "tea", f"n{number}")
        with running.client("all") as client:
            assert client.post(f"{PATH}/branches", json={"name": "plan"}).status_code == 201
            ordered(running, "kid", "tea", "later")
            waiting = running.submit("bot", ORDER).json()
            held = client.post(f"{PATH}/leases", json={"resources": ["FILE:/plan"], "sessionId": "s-1"}).json()
            lease = held["leases"][0]["leaseId"]
            assert client.post(f"{PATH}/leases:release", json={"leaseIds": [lease], "sessionId": "s-1"}).json()
        with running.client("ann") as ann:
            answer = ann.post(f"{PATH}/proposals/{waiting['proposalId']}:answer", json={"choice": "approve"})
            assert answer.status_code == 200, answer.text
        yield running


def read(served: Served, place: str, actor: str = "aud", **query: Any) -> Any:
    with served.client(actor) as client:
        answer = client.get(f"{PATH}{place}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


def points(served: Served) -> list[str]:
    """Return points in the past: positions, worlds, and the present."""
    size = read(served, "")["position"]
    worlds = [one["worldId"] for one in read(served, "/worlds")["worlds"]]
    return [str(size - 30), str(size - 16), str(size - 9), worlds[1], worlds[-1][:12], str(size), "HEAD"]


def test_the_lineage_is_that_of_the_command_line(audited: Served) -> None:
    wanted: list[tuple[list[str], dict[str, Any]]] = [
        ([], {}),
        (["--branch", "plan"], {"branch": "plan"}),
        (["--branch", "main", "--limit", "2"], {"branch": "main", "limit": 2}),
        *((["--at", at], {"at": at}) for at in points(audited)),
    ]
    for words, query in wanted:
        lines = worldctl(audited.place)("worlds", "--json", *words).lines
        assert read(audited, "/worlds", **query)["worlds"] == lines[::-1], query
        assert lines


def test_the_lineage_is_opened_generation_by_generation(audited: Served) -> None:
    everything = read(audited, "/worlds")["worlds"]
    genesis = everything[-1]["worldId"]
    children = read(audited, "/worlds", under=genesis)["worlds"]
    assert {one["parent"] for one in children} == {genesis}
    opened = [everything[-1]]
    for one in opened:
        opened += read(audited, "/worlds", under=one["worldId"])["worlds"]
    assert {one["worldId"] for one in opened} == {one["worldId"] for one in everything}
    assert read(audited, "/worlds", under=genesis, depth=16)["worlds"] == everything[:-1]
    two = read(audited, "/worlds", under=genesis, depth=2)["worlds"]
    assert {one["height"] for one in two} == {1, 2}
    past = everything[1]["position"] - 1
    assert read(audited, "/worlds", under=genesis, depth=16, at=str(past))["worlds"] == [
        {**one, "heads": found["heads"], "tips": found["tips"]}
        for one, found in zip(everything[2:-1], read(audited, "/worlds", at=str(past))["worlds"], strict=False)
    ]


def test_worlds_are_listed_page_by_page(audited: Served) -> None:
    everything = read(audited, "/worlds")["worlds"]
    pages: list[Any] = []
    before = 2**53
    while page := read(audited, "/worlds", limit=2, before=before)["worlds"]:
        pages += page
        before = page[-1]["position"]
    assert pages == everything


def test_the_state_is_that_of_the_command_line(audited: Served) -> None:
    seen = set()
    for at in points(audited):
        said = worldctl(audited.place)("state", "--at", at, "--json").json
        found = read(audited, "/worlds/HEAD/state", at=at)
        assert (found["worldId"], found["value"]) == (said["worldId"], said["data"])
        seen.add(found["worldId"])
        part = read(audited, "/worlds/HEAD/state", at=at, path="orders")
        assert part["value"] == said["data"]["orders"]
    assert len(seen) > 2


@pytest.mark.parametrize(
    ("path", "words"),
    [("branches", ["branch", "list"]), ("leases", ["lease", "list"])],
    ids=["branches", "leases"],
)
def test_lists_of_the_past_are_those_of_the_command_line(audited: Served, path: str, words: list[str]) -> None:
    seen = set()
    for at in [*points(audited), *(str(read(audited, "")["position"] - back) for back in range(8))]:
        found = read(audited, f"/{path}", at=at)[path]
        assert found == worldctl(audited.place)(*words, "--at", at, "--json").json[path]
        seen.add(str(found))
    assert len(seen) > 1


def test_the_inbox_of_the_past_shows_what_waited_and_previews_nothing(audited: Served) -> None:
    assert read(audited, "/inbox", "ann")["inbox"] == []
    size, seen = read(audited, "")["position"], 0
    for back in range(12):
        at = str(size - back)
        found = read(audited, "/inbox", "ann", at=at)["inbox"]
        said = worldctl(audited.place)("inbox", "--for", "ann", "--at", at, "--json").json
        shared = ("proposalId", "actor", "wants", "branch", "since", "deadline", "overdue", "waitsFor", "reason")
        assert [[one[name] for name in shared] for one in found] == [[one[name] for name in shared] for one in said]
        assert {one["preview"]["status"] for one in found} <= {"unknown"}
        seen += len(found)
    assert seen > 0


def test_what_came_later_is_not_found_in_the_past(audited: Served) -> None:
    newest, *_, genesis = read(audited, "/worlds")["worlds"]
    with audited.client("aud") as aud:
        for path in ("", "/state", "/computed"):
            answer = aud.get(f"{PATH}/worlds/{newest['worldId']}{path}", params={"at": str(newest["position"] - 1)})
            assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
            assert aud.get(f"{PATH}/worlds/{genesis['worldId']}{path}", params={"at": "HEAD"}).status_code == 200
        unknown: list[dict[str, Any]] = [{"branch": "none"}, {"under": "none"}, {"branch": "plan", "at": "20"}]
        for query in unknown:
            assert aud.get(f"{PATH}/worlds", params=query).status_code == 404
        for name, value in (
            ("depth", 0),
            ("depth", 17),
            ("before", -1),
            ("before", 2**64),
            ("under", ""),
            ("limit", "x"),
        ):
            assert aud.get(f"{PATH}/worlds", params={name: str(value)}).status_code == 400


def test_the_past_is_closed_to_readers_with_redaction_and_to_those_without_the_right_to_read(audited: Served) -> None:
    with audited.client("yak") as yak, audited.client("bob") as bob:
        assert yak.get(f"{PATH}/worlds").status_code == 200
        for path in ("worlds", "branches"):
            assert yak.get(f"{PATH}/{path}", params={"at": "9"}).json()["code"] == "RIGHT_MISSING"
        assert bob.get(f"{PATH}/inbox", params={"at": "9"}).json()["code"] == "RIGHT_MISSING"
