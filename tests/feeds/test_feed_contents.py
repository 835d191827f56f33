"""What feeds send: the events that are selected, in each form, without what is hidden; and how files are written."""

from __future__ import annotations

import json
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.feeds.feeding import SIGNED, Feeding, act, deliver, depot, receiving, state_of
from tests.support.tables import for_each
from world.errors import DamagedLogError
from world.events.codec import TOPICS
from worldprotocol import Realm
from worldprotocol.api.config import Config, read_config
from worldprotocol.api.sections.feeds import FeedConfig
from worldprotocol.export.feeds import messages
from worldprotocol.export.feeds.running import configured_feeds, opened_state


def lines(fed: Feeding, settings: str = "", name: str = "events") -> list[Any]:
    """Deliver a feed to a file of its own, and return the lines."""
    deliver(fed.feed(f'file = "{name}.jsonl"\n{settings}', name=name))
    file = fed.folder / f"{name}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_events_are_selected_by_topic_and_the_position_passes_the_others(fed: Feeding) -> None:
    act(fed.realm, 2)
    found = lines(fed, 'events = ["decision.*", "world.sealed"]\nformat = "json"')
    assert [one["position"] for one in found] == [
        event.position for event in fed.realm.log.read(topics=["decision.made", "world.sealed"])
    ]
    told = state_of(fed.configure('[feeds.events]\nfile = "events.jsonl"')[0])
    assert (told["position"], told["lag"], told["sent"]) == (fed.size, 0, len(found))


def test_a_feed_that_selects_nothing_stores_its_position(fed: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_SCANNED", 2)
    feed = fed.feed('file = "none.jsonl"\nevents = ["run.opened"]')
    reports = deliver(feed)
    assert [one.position for one in reports] == [*range(2, fed.size, 2), fed.size]
    assert not (fed.folder / "none.jsonl").exists()


def test_hidden_events_are_sent_as_their_leaf_hashes(fed: Feeding) -> None:
    act(fed.realm)
    found = lines(fed, 'redact = ["inputs"]')
    hidden = [one for one in found if one["type"] == "world-protocol.redacted"]
    logged = list(fed.realm.log.read())
    assert [one["leaf"] for one in found] == [event.leaf.hex() for event in logged]
    topics = {logged[int(one["id"]) - 1].topic for one in hidden}
    assert topics == {"world.sealed", "proposal.submitted"}
    assert all(one.keys() == {"specversion", "id", "source", "type", "leaf"} for one in hidden)
    again = lines(fed, 'redact = ["inputs"]\nformat = "json"', name="plain")
    assert [one["position"] for one in again if one.get("redacted")] == [int(one["id"]) for one in hidden]


def test_hidden_events_are_left_out_where_a_feed_selects(fed: Feeding) -> None:
    act(fed.realm)
    found = lines(fed, 'redact = ["inputs"]\nevents = ["proposal.*"]')
    assert {one["type"] for one in found} == {"world-protocol.proposal.judged", "world-protocol.proposal.completed"}


def test_the_names_of_actors_are_hidden_that_are_registered_while_the_feed_is_stopped(fed: Feeding) -> None:
    settings = 'redact = ["actors"]\nformat = "json"'
    lines(fed, settings)
    fed.realm.register("zoe", "human", binding={"kind": "auto_approve"})
    fed.realm.act("zoe", "add", {"count": 1})
    found = lines(fed, settings)
    assert "zoe" not in json.dumps(found)
    assert len(found) == fed.size


def test_a_feed_that_begins_at_the_end_sends_what_comes_after_its_first_run(fed: Feeding) -> None:
    begun = fed.size
    assert lines(fed, 'start = "end"') == []
    act(fed.realm)
    assert [int(one["id"]) for one in lines(fed, 'start = "end"')] == list(range(begun + 1, fed.size + 1))


def test_a_large_message_takes_no_further_event(fed: Feeding, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_MESSAGE_BYTES", 1)
    with receiving() as receiver:
        deliver(fed.feed(f'url = "{receiver.url}"\nbatch = 100\n{SIGNED}'))
    assert len(receiver.requests) == fed.size


def test_a_file_that_others_changed_is_not_written(fed: Feeding) -> None:
    file = fed.folder / "events.jsonl"
    file.write_text("what is important\n")
    feed = fed.feed('file = "events.jsonl"')
    assert [one.kind for one in deliver(feed)] == ["paused"]
    assert file.read_text() == "what is important\n"
    assert state_of(feed)["lastFailure"]["code"] == "FILE_CHANGED_MEANWHILE"


def test_a_file_that_was_cut_is_refused_and_one_that_was_moved_away_is_made_anew(fed: Feeding) -> None:
    first = lines(fed)
    file = fed.folder / "events.jsonl"
    file.write_bytes(file.read_bytes()[:-1])
    act(fed.realm)
    feed = fed.feed('file = "events.jsonl"', name="events")
    assert [one.kind for one in deliver(feed)] == ["paused"]
    file.rename(fed.folder / "moved.jsonl")
    with opened_state(feed) as state:
        state.resume()
    second = lines(fed)
    assert [int(one["id"]) for one in first + second] == list(range(1, fed.size + 1))
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_tried_again(fed: Feeding) -> None:
    feed = fed.feed('file = "missing/events.jsonl"\nfirst_wait_ms = 1\nmax_attempts = 3')
    assert [one.kind for one in deliver(feed)] == ["failed", "failed", "paused"]
    assert state_of(feed)["lastFailure"]["code"] == "FILE_FAILED"


@for_each(
    ("given", "words"),
    [
        ({}, "either a url or a file"),
        ({"url": "https://a.example/", "file": "x"}, "either a url or a file"),
        ({"file": "x", "secret": "${secret:A}"}, "for feeds with a url"),
        ({"url": "http://a.example/", "secret": "${secret:A}"}, "use https"),
        ({"url": "http://10.0.0.1/", "secret": "${secret:A}"}, "use https"),
        ({"url": "http://localhost.example/", "secret": "${secret:A}"}, "use https"),
        ({"url": "http://127.0.0.1@a.example/", "secret": "${secret:A}"}, "names a user"),
        ({"url": "ftp://a.example/", "secret": "${secret:A}"}, "not http or https"),
        ({"url": "https://${secret:A}/", "secret": "${secret:A}"}, "not http or https"),
        ({"url": "https://a.example/"}, "a feed with a url has a secret"),
        ({"url": "https://a.example/", "secret": "whsec_abc"}, "secret is a reference"),
        ({"url": "https://a.example/", "headers": {"Authorization": "Bearer x"}}, "write a reference"),
        ({"url": "https://a.example/", "headers": {"Webhook-Id": "x"}}, "set by the feed"),
        ({"url": "https://a.example/", "headers": {"X": "a\nb"}}, "printable"),
        ({"file": "x", "events": ["decision.mad"]}, "no event has the topic"),
        ({"file": "x", "events": []}, "at least 1"),
        ({"file": "x", "batch": 0}, "greater than or equal to 1"),
        ({"file": "x", "colour": "red"}, "Extra inputs"),
    ],
)
def test_a_feed_that_cannot_be_meant_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        FeedConfig(**given)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "[::1]"])
def test_http_without_tls_stays_on_this_machine_unless_that_is_said(host: str) -> None:
    FeedConfig(url=f"http://{host}:8000/", secret="${secret:A}")
    FeedConfig(url="http://a.example/", secret="${secret:A}", unsafe_plain_http=True)


def test_the_page_names_every_key_with_its_default() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "feeds.md"
    shown = tomllib.loads(page.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0])
    told = Config(**shown).feeds
    assert told is not None
    assert told["audit"].model_fields_set == FeedConfig.model_fields.keys() - {"file"}
    for name in ("timeout_s", "first_wait_ms", "longest_wait_ms", "max_attempts", "unsafe_plain_http"):
        assert getattr(told["audit"], name) == FeedConfig.model_fields[name].default


def test_a_changed_event_is_not_delivered_nor_those_after_it(fed: Feeding) -> None:
    act(fed.realm)
    [changed] = [event.position for event in fed.realm.log.read(topics=["proposal.completed"])]
    with closing(sqlite3.connect(fed.folder / "world.db")) as database, database:
        database.execute(
            "UPDATE wp_event SET state = replace(state, 'main', 'maim') WHERE topic = 'proposal.completed'"
        )
        assert database.total_changes == 1
    with pytest.raises(DamagedLogError, match=str(changed)):
        lines(fed, "batch = 1")
    file = fed.folder / "events.jsonl"
    assert len(file.read_text().splitlines()) == changed - 1


def test_a_broken_database_of_a_feed_is_told(fed: Feeding) -> None:
    feed = fed.feed('file = "x.jsonl"')
    feed.state.write_bytes(b"no database " * 500)
    with pytest.raises(OSError, match="the database of feed hook failed"):
        deliver(feed)


@pytest.mark.slow
def test_events_of_a_log_on_postgresql_are_delivered(fed: Feeding, postgres_database: str) -> None:
    fed.configure('[feeds.events]\nfile = "events.jsonl"\nformat = "json"')
    [feed] = configured_feeds(read_config(fed.folder / "world.toml"), postgres_database)
    with Realm.create(postgres_database, domain=depot) as realm:
        deliver(feed)
        realm.register("ada", "human", binding={"kind": "auto_approve"})
        act(realm)
        deliver(feed)
        assert feed.state == fed.folder / "world.feed-events"
        found = [json.loads(line) for line in (fed.folder / "events.jsonl").read_text().splitlines()]
        assert [one["leaf"] for one in found] == [event.leaf.hex() for event in realm.log.read()]


def test_every_topic_can_be_selected() -> None:
    assert FeedConfig(file="x", events=[*TOPICS]).events == [*TOPICS]
