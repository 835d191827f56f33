"""Messages arrive exactly once by their ids and in order, though receivers and senders are killed at every place."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event

from tests.cli.realm import COMMAND, environment
from tests.feeds.feeding import SECRET, SIGNED, ChildReceiver, Feeding, act, delivering, progress, wait_until_waiting

pytestmark = pytest.mark.slow

PLACES = ("received", "stored", "answering", "answered")
FILE_CHILD = Path(__file__).with_name("file_child.py")


def first_of_each(messages: list[tuple[str, bytes]]) -> list[bytes]:
    """Return the bodies that a receiver takes which remembers ids; repetitions are the same."""
    taken: dict[str, bytes] = {}
    for message_id, body in messages:
        assert taken.setdefault(message_id, body) == body
    return list(taken.values())


def check(fed: Feeding, receiver: ChildReceiver) -> None:
    """Check that each event of the log arrived, once by its id, in order, and is what the log has."""
    found = [
        from_http_event(HTTPMessage({"content-type": "application/cloudevents+json"}, body))
        for body in first_of_each(receiver.messages())
    ]
    assert [int(one.get_id()) for one in found] == list(range(1, fed.size + 1))
    assert [one.get_data() for one in found] == [json.loads(event.state) for event in fed.realm.log.read()]


@pytest.mark.parametrize("lives", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_no_event_is_lost_or_doubled_where_the_receiver_is_killed_again_and_again(
    fed: Feeding, tmp_path: Path, lives: int
) -> None:
    receiver = ChildReceiver(tmp_path / "received.jsonl")
    with receiver.started():
        pass  # it has a port from now on
    act(fed.realm, 1 + lives // 8)
    feed = fed.feed(f'url = "{receiver.url}"\nmax_attempts = 1000000\n{SIGNED}')
    with delivering(feed) as steps:
        for life in range(lives):
            receiver.live(1 + life // len(PLACES) % 2, PLACES[life % len(PLACES)])
        act(fed.realm)
        with receiver.started():
            steps.wait("delivered", fed.size)
    check(fed, receiver)
    assert len(receiver.messages()) - fed.size >= lives // 4  # stored and not confirmed, they came again


def test_a_receiver_that_waits_before_its_port_is_read_is_seen_to_wait() -> None:
    both_at_once = "print('8000\\nwaiting', flush=True); input()"
    command = [sys.executable, "-I", "-S", "-c", both_at_once]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "8000\n"
        wait_until_waiting(child)
        child.kill()


def sender(fed: Feeding) -> subprocess.Popen[str]:
    """Start `worldctl feed run`."""
    return subprocess.Popen(
        [*COMMAND, "feed", "run"], cwd=fed.folder, env=environment() | {"FEED_HOOK": SECRET}, text=True
    )


@pytest.mark.parametrize("lives", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_no_event_is_lost_or_doubled_where_the_sender_is_killed(fed: Feeding, tmp_path: Path, lives: int) -> None:
    receiver = ChildReceiver(tmp_path / "received.jsonl")
    with receiver.started():
        pass
    act(fed.realm, 2)
    feed = fed.feed(f'url = "{receiver.url}"\nmax_attempts = 1000000\n{SIGNED}')
    for life in range(lives):
        with receiver.started(2, PLACES[(life + 1) % len(PLACES)]) as receiving, sender(fed) as sending:
            wait_until_waiting(receiving)
            sending.kill()
        assert sending.returncode == -signal.SIGKILL
    with receiver.started(), delivering(feed) as steps:
        steps.wait("delivered", fed.size)
    check(fed, receiver)


@pytest.mark.parametrize("place", ["torn", pytest.param("written", marks=pytest.mark.slow)])
def test_lines_of_a_file_are_there_once_where_the_writer_is_killed(fed: Feeding, place: str) -> None:
    file = fed.folder / "events.jsonl"
    act(fed.realm, 2)
    feed = fed.feed('file = "events.jsonl"\nbatch = 5')
    command = [sys.executable, str(FILE_CHILD), str(fed.folder), place, "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as child:
        wait_until_waiting(child)
        child.kill()
    assert file.stat().st_size > progress(feed).file_bytes > 0  # more was written than is stored
    with delivering(feed) as steps:
        steps.wait("delivered", fed.size)
    assert [json.loads(line)["id"] for line in file.read_text().splitlines()] == [
        str(position) for position in range(1, fed.size + 1)
    ]
    assert progress(feed).file_bytes == file.stat().st_size
