"""``worldctl feed``: run, list, status and resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import COMMAND, environment
from tests.feeds.feeding import SECRET, SIGNED, ChildReceiver, Feeding, act, receiving, wait_until_waiting
from tests.support.patience import PATIENCE_S
from world.error_codes import ErrorCode

TWO = """
[feeds.lines]
file = "lines.jsonl"
[feeds.audit]
file = "audit.jsonl"
format = "ocsf"
"""


def test_all_feeds_run_once_and_are_listed(fed: Feeding) -> None:
    act(fed.realm)
    fed.configure(TWO)
    realm = Inside(fed.folder)
    assert [one["state"] for one in realm("feed", "list", "--json").json] == ["new", "new"]
    assert not list(fed.folder.glob("world.db.feed-*"))  # looking makes nothing
    said = realm("feed", "run", "--once")
    assert said.out == ""
    assert sorted(said.err.splitlines()) == ["audit: 2 events delivered.", f"lines: {fed.size} events delivered."]
    rows = [line.split("\t") for line in realm("feed", "list").out.splitlines()]
    assert [row[:2] + row[3:] for row in rows] == [
        ["feed", "format", "state", "position", "lag"],
        ["lines", "cloudevents", "current", str(fed.size), "0"],
        ["audit", "ocsf", "current", str(fed.size), "0"],
    ]
    begun = fed.size
    act(fed.realm)
    assert realm("feed", "list", "--json").json[0]["state"] == "behind"
    [line] = realm("feed", "run", "lines", "--once", "--json").lines
    assert line == {"what": "delivered", "feed": "lines", "position": fed.size, "events": fed.size - begun}
    assert len((fed.folder / "lines.jsonl").read_text().splitlines()) == fed.size


def test_a_paused_feed_is_told_and_resumed(fed: Feeding) -> None:
    with receiving(204, 410) as receiver:
        fed.configure(f'[feeds.hook]\nurl = "{receiver.url}"\n{SIGNED}')
        realm = Inside(fed.folder)
        said = realm("feed", "run", "--once", FEED_HOOK=SECRET, code=1)
        assert "hook: The receiver answered 410. It is paused after event 1; `worldctl feed resume hook`" in said.err
        told = realm("feed", "status", "hook").out
        assert told.startswith(f"hook: paused; cloudevents to {receiver.url}\n  position 1 of {fed.size}, lag")
        assert "last failure at" in told
        assert "The receiver answered 410. [HTTP_STATUS]" in told
        [status] = realm("feed", "status", "--json").json
        assert (status["state"], status["underWay"], status["attempts"]) == ("paused", 2, 1)
        assert realm("feed", "resume", "hook", "--json").json == {"feed": "hook", "resumed": True}
        assert realm("feed", "resume", "hook").out == "hook was not paused.\n"
        lines = realm("feed", "run", "--once", "--json", FEED_HOOK=SECRET).lines
    assert [one["position"] for one in lines] == list(range(2, fed.size + 1))
    assert [one["what"] for one in lines] == ["delivered"] * len(lines)


def test_failures_are_lines_of_their_own(fed: Feeding) -> None:
    with receiving(500) as receiver:
        fed.configure(f'[feeds.hook]\nurl = "{receiver.url}"\n{SIGNED}')
        realm = Inside(fed.folder)
        first, *_ = realm("feed", "run", "--once", "--json", FEED_HOOK=SECRET).lines
        receiver.answers.append((500, {}))
        act(fed.realm)
        told = realm("feed", "run", "--once", FEED_HOOK=SECRET).err.splitlines()[0]
    assert first.pop("waitMs") <= 1
    assert first == {
        "what": "failed",
        "feed": "hook",
        "position": 0,
        "failure": {"code": "HTTP_STATUS", "message": "The receiver answered 500."},
        "attempts": 1,
    }
    assert told.startswith("hook: The receiver answered 500. Attempt 1 of the message after event ")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["feed", "run", "nothing"], ErrorCode.UNKNOWN_FEED, "its feeds: lines, audit"),
        (["feed", "status", "nothing"], ErrorCode.UNKNOWN_FEED, "its feeds: lines, audit"),
        (["feed", "resume", "nothing"], ErrorCode.UNKNOWN_FEED, "its feeds: lines, audit"),
        (["feed", "run", "--once", "--log", "none.db"], ErrorCode.LOG_NOT_FOUND, "none.db"),
    ],
)
def test_what_is_not_there_is_refused(fed: Feeding, words: list[str], code: ErrorCode, text: str) -> None:
    fed.configure(TWO)
    said = Inside(fed.folder)(*words, code=2)
    assert code in said.err
    assert text in said.err


def test_a_configuration_without_feeds_has_none(fed: Feeding) -> None:
    fed.configure()
    realm = Inside(fed.folder)
    assert realm("feed", "list", "--json").json == []
    assert "docs/feeds.md" in realm("feed", "run", code=2).err


def test_a_secret_that_is_missing_is_told_before_anything_is_sent(fed: Feeding) -> None:
    with receiving() as receiver:
        fed.configure(f'[feeds.hook]\nurl = "{receiver.url}"\nsecret = "${{secret:NONE}}"', TWO)
        said = Inside(fed.folder)("feed", "run", code=1)
    assert "Secret NONE is not defined" in said.err
    assert receiver.requests == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_signal_ends_it_between_two_requests(fed: Feeding, number: int) -> None:
    with receiving() as receiver:
        fed.configure(f'[feeds.hook]\nurl = "{receiver.url}"\n{SIGNED}')
        variables = environment() | {"FEED_HOOK": SECRET}
        command = [*COMMAND, "feed", "run", "--json"]
        with subprocess.Popen(command, cwd=fed.folder, env=variables, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if json.loads(line)["position"] == fed.size:
                    break
            os.kill(child.pid, number)
            assert child.stdout.read() == ""
        assert child.returncode == 0
    assert len(receiver.requests) == fed.size
    assert Path(fed.folder, "world.db.feed-hook").exists()


@pytest.mark.slow
def test_a_second_signal_ends_it_within_a_request(fed: Feeding, tmp_path: Path) -> None:
    receiver = ChildReceiver(tmp_path / "received.jsonl")
    with receiver.started():
        pass
    fed.configure(f'[feeds.hook]\nurl = "{receiver.url}"\ntimeout_s = 600\n{SIGNED}')
    variables = environment() | {"FEED_HOOK": SECRET}
    command = [*COMMAND, "feed", "run"]
    with (
        receiver.started(2) as receiving_one,
        subprocess.Popen(command, cwd=fed.folder, env=variables, stderr=subprocess.PIPE, text=True) as child,
    ):
        wait_until_waiting(receiving_one)
        child.send_signal(signal.SIGINT)
        assert child.stderr is not None
        assert child.stderr.readline() == "Ending after the requests that are under way.\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(PATIENCE_S) == 130
