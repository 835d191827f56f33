from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from world.log import EventLog, NewEvent, open_log
from world.log.audit import verify_tree

WRITER = """
import sys
from world.log import NewEvent, open_log
address, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open_log(address, create=True) as log:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        with log.write() as transaction:
            transaction.append([NewEvent(name, "t", 1, b'{"n":%d}' % number)])
        print(number, flush=True)
"""


def start(*arguments: str, code: str = WRITER) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )


def go(*processes: subprocess.Popen[bytes]) -> None:
    """Let processes begin together, once all of them are ready."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()


def finish(process: subprocess.Popen[bytes]) -> bytes:
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    return output


@pytest.mark.slow
def test_processes_that_create_one_store_together_do_not_race(shared_log_url: str) -> None:
    writers = [start(shared_log_url, f"writer-{number}", "3") for number in range(4)]
    go(*writers)
    for writer in writers:
        finish(writer)
    with open_log(shared_log_url) as log:
        assert log.head().size == 12
        assert verify_tree(log) == []


@pytest.mark.slow
def test_two_processes_write_one_log_and_both_make_progress(shared_log_url: str) -> None:
    open_log(shared_log_url, create=True).close()
    writers = [start(shared_log_url, name, "150") for name in ("a", "b")]
    go(*writers)
    for writer in writers:
        finish(writer)
    with open_log(shared_log_url, read_only=True) as log:
        assert verify_tree(log) == []
        order = [event.stream for event in log.read()]
    assert (order.count("a"), order.count("b")) == (150, 150)
    turns = sum(1 for before, after in itertools.pairwise(order) if before != after)
    assert turns >= 4


@pytest.mark.slow
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    path = str(tmp_path / "world.db")
    acknowledged = 0
    for attempt in range(4):
        writer = start(path, f"writer-{attempt}", "100000")
        go(writer)
        assert writer.stdout is not None
        for _ in range(20 + 7 * attempt):
            line = writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()  # with what the pipe's reader has buffered already
        writer.communicate()
        last = int((rest.split() or [line])[-1])
        with open_log(path) as log:
            states = [event.state for event in log.stream(f"writer-{attempt}")]
            assert states[: last + 1] == [b'{"n":%d}' % number for number in range(last + 1)]
            assert len(states) - (last + 1) in (0, 1)
            assert verify_tree(log) == []
            acknowledged += len(states)
            assert log.head().size == acknowledged


READER = """
import sys
from world.log import open_log
address, count = sys.argv[1], int(sys.argv[2])
with open_log(address, read_only=True) as log, log.follow(poll_ms=1) as follower:
    print("ready", flush=True)
    positions = [next(follower).position for _ in range(count)]
assert positions == list(range(1, count + 1)), "events were missed"
"""


@pytest.mark.slow
def test_a_reader_beside_eight_writers_misses_no_event(shared_log_url: str) -> None:
    each = 40
    open_log(shared_log_url, create=True).close()
    reader = start(shared_log_url, str(8 * each), code=READER)
    writers = [start(shared_log_url, f"writer-{number}", str(each)) for number in range(8)]
    go(reader, *writers)
    for writer in writers:
        finish(writer)
    finish(reader)


@pytest.mark.slow
def test_a_read_beside_writing_processes_is_always_a_whole_beginning(shared_log_url: str) -> None:
    with open_log(shared_log_url, create=True) as log:
        writers = [start(shared_log_url, f"writer-{number}", "60") for number in range(2)]
        go(*writers)
        looks = _look_until(log, 120)
        for writer in writers:
            finish(writer)
    assert looks[-1] == 120


def _look_until(log: EventLog, size: int) -> list[int]:
    looks = [0]
    while looks[-1] < size:
        head = log.head()
        events = list(log.read(upto=head.size))
        assert [event.position for event in events] == list(range(1, head.size + 1))
        assert log.root_at(head.size) == head
        looks.append(head.size)
    return looks


@pytest.mark.slow
def test_a_log_moves_between_processes_in_turns(shared_log_url: str) -> None:
    with open_log(shared_log_url, create=True) as log:
        for turn in range(3):
            writer = start(shared_log_url, "shared", "2")
            go(writer)
            finish(writer)
            with log.write() as transaction:
                [event] = transaction.append([NewEvent("shared", "t", 1, b"{}")])
            assert event.version == 3 * (turn + 1)
