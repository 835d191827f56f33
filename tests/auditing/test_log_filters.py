"""Filters of /log: those of ``worldctl log``, page by page; conditional requests; redacted readers."""

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
    """Return a server of a realm with orders that were approved, rejected, and that wait."""
    place = founded_audited(tmp_path_factory.mktemp("filters"), LIMITS)
    with Realm.open(place.log, domain=kiosk, effects=handlers, on_change="hold") as realm:
        realm.access.grant("yak", "reader", by="operator", redaction=["inputs"])
    with serving(place) as running:
        for number in range(4):
            ordered(running, "pol", "tea" if number % 2 else "milk", f"n{number}")
        running.submit("bot", ORDER)
        yield running


def listed(served: Served, limit: int = 500, **query: Any) -> list[Any]:
    """Return all events, page by page."""
    found: list[Any] = []
    cursor: int | None = 0
    with served.client("aud") as aud:
        while cursor is not None:
            answer = aud.get(f"{PATH}/log", params={"after": cursor, "limit": limit, **query})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            assert len(page["events"]) <= limit
            found += page["events"]
            cursor = page["next"]
    return found


def said(served: Served, *words: str) -> list[Any]:
    return worldctl(served.place)("log", "--json", *words).lines


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, []),
        ({"actor": "pol"}, ["--actor", "pol"]),
        ({"actor": "operator"}, ["--actor", "operator"]),
        ({"action": "order.place"}, ["--type", "order.place"]),
        ({"status": "rejected"}, ["--status", "rejected"]),
        ({"status": "evaluating", "actor": "bot"}, ["--status", "evaluating", "--actor", "bot"]),
        ({"branch": "main"}, ["--branch", "main"]),
        ({"types": "decision.made,world.sealed"}, ["--topic", "decision.made", "--topic", "world.sealed"]),
        ({"types": "decision.made", "actor": "pol"}, ["--topic", "decision.made", "--actor", "pol"]),
        ({"since": "1d", "until": "2100-01-01"}, ["--since", "1d", "--until", "2100-01-01"]),
        ({"until": "2020-01-01"}, ["--until", "2020-01-01"]),
        ({"at": "75"}, ["--at", "75"]),
        ({"at": "82", "status": "rejected"}, ["--at", "82", "--status", "rejected"]),
    ],
    ids=str,
)
def test_events_are_those_that_the_command_lists(audited: Served, query: Any, words: list[str]) -> None:
    assert listed(audited, **query) == said(audited, *words)


def test_pages_are_in_order_and_complete(audited: Served) -> None:
    queries: list[dict[str, Any]] = [{}, {"actor": "pol"}, {"types": "decision.made"}, {"status": "rejected"}]
    for query in queries:
        assert listed(audited, limit=2, **query) == listed(audited, **query)


def test_the_events_of_a_proposal_are_listed(audited: Served) -> None:
    with audited.client("aud") as aud:
        [proposal, *_] = aud.get(f"{PATH}/proposals", params={"actor": "pol"}).json()["proposals"]
    name = proposal["proposalId"]
    found = listed(audited, proposal=name)
    assert found == said(audited, "--proposal", name[:30])
    assert {one["stream"] for one in found if one["topic"].startswith(("proposal.", "decision."))} == {name}
    assert len(found) >= 3
    assert listed(audited, proposal="none") == []


def test_conditions_that_cannot_be_are_refused(audited: Served) -> None:
    with audited.client("aud") as aud:
        for query, code in (
            ({"types": "none"}, "INVALID_VALUE"),
            ({"since": "never"}, "INVALID_VALUE"),
            ({"until": "9" * 101}, "INVALID_VALUE"),
            ({"actor": ""}, "INVALID_VALUE"),
            ({"after": -1}, "INVALID_VALUE"),
            ({"after": 2**64}, "INVALID_VALUE"),
            ({"limit": 0}, "INVALID_VALUE"),
            ({"limit": 501}, "INVALID_VALUE"),
            ({"at": "nothing"}, "NOT_FOUND"),
        ):
            answer = aud.get(f"{PATH}/log", params=query)
            assert (answer.json()["code"], answer.status_code < 500) == (code, True), (query, answer.text)
        for text in ("\u202e", "é" * 90, "' OR 1=1 --", "%", "\x00"):
            for name in ("actor", "action", "status", "branch", "proposal", "stream", "text"):
                found = aud.get(f"{PATH}/log", params={name: text}).json()
                assert (found["events"], found["next"]) == ([], None)
        found = aud.get(f"{PATH}/log", params={"after": 2**53}).json()
        assert (found["events"], found["next"]) == ([], None)


def test_a_filter_of_a_reader_with_redaction_leaves_out_what_is_hidden(audited: Served) -> None:
    """Neither events nor cursors depend on the content of hidden events."""
    with audited.client("yak") as yak:
        shown = yak.get(f"{PATH}/log", params={"limit": 500}).json()["events"]
        hidden = {one["position"] for one in shown if "redacted" in one}
        whole = listed(audited)
        by_position = {one["position"]: one for one in whole}
        [topic, *_] = sorted({by_position[one]["topic"] for one in hidden})
        some = by_position[min(hidden)]
        for query in (
            {"types": topic},
            {"stream": some["stream"]},
            {"actor": "pol"},
            {"text": "milk"},
            {"since": "1d"},
            {"proposal": some["stream"]},
        ):
            page = yak.get(f"{PATH}/log", params={"limit": 500, **query}).json()
            found = {one["position"] for one in page["events"]}
            matching = {one["position"] for one in listed(audited, **query)}
            assert found <= matching - hidden, query
            assert page["upto"] == len(whole), query
        for query in ({"action": "order.place"}, {"status": "rejected"}, {"at": "9"}):
            answer = yak.get(f"{PATH}/log", params=query)
            assert (answer.status_code, answer.json()["code"]) == (403, "RIGHT_MISSING")


def test_the_newest_events_come_first_between_two_positions(audited: Served) -> None:
    whole = listed(audited, actor="pol")
    after, before = whole[1]["position"], whole[-2]["position"]
    found: list[Any] = []
    with audited.client("aud") as aud:
        cursor: int | None = before
        while cursor is not None:
            query = {"actor": "pol", "order": "newest", "after": after, "before": cursor, "limit": 3}
            page = aud.get(f"{PATH}/log", params=query).json()
            found += page["events"]
            cursor = page["next"]
        once = aud.get(f"{PATH}/log", params={"actor": "pol", "after": after, "before": before, "limit": 500}).json()
    assert found[::-1] == once["events"] == whole[2:-2]


@pytest.mark.parametrize("query", [{"text": "TEA"}, {"types": "decision.made"}, {"actor": "pol"}, {"branch": "main"}])
def test_a_stream_has_the_events_that_the_log_has(audited: Served, query: dict[str, Any]) -> None:
    wanted = [one["position"] for one in listed(audited, **query)]
    assert len(wanted) > 1
    found: list[int] = []
    with audited.client("aud") as aud, aud.stream("GET", f"{PATH}/log/stream", params={"after": 0, **query}) as stream:
        for line in stream.iter_lines():
            if line.startswith("id: "):
                found.append(int(line.removeprefix("id: ")))
            if len(found) == len(wanted):
                break
    assert found == wanted


def test_a_page_that_did_not_change_is_not_sent_again(audited: Served) -> None:
    with audited.client("aud") as aud, audited.client("yak") as yak:
        query = {"limit": 70}
        first = aud.get(f"{PATH}/log", params=query)
        tag = first.headers["etag"]
        assert "private" in first.headers["cache-control"]
        again = aud.get(f"{PATH}/log", params=query, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        other = aud.get(f"{PATH}/log", params={"limit": 69}, headers={"If-None-Match": tag})
        assert other.status_code == 200
        redacted = yak.get(f"{PATH}/log", params={"limit": 500}, headers={"If-None-Match": tag})
        assert redacted.status_code == 200
