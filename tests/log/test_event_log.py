from __future__ import annotations

import threading
from hashlib import sha256
from typing import Any

import pytest
import rfc8785

from world.errors import RefusedError
from world.log import EventLog, NewEvent, TreeHead, list_logs, open_log, verify_consistency, verify_inclusion
from world.log.merkle import CHUNK_LEAVES, EMPTY_ROOT, tree_root
from world.log.transaction import MAX_STREAMS_REMEMBERED
from world.log.values import MAX_NAME_CHARS


def event(number: int = 0, stream: str = "s", **other: Any) -> NewEvent:
    fields: dict[str, Any] = {
        "stream": stream,
        "topic": "thing.happened",
        "schema_version": 1,
        "state": b'{"n":%d}' % number,
    }
    return NewEvent(**(fields | other))


def append(log: EventLog, *events: NewEvent) -> list[Any]:
    with log.write() as transaction:
        return transaction.append(events)


def fill(log: EventLog, count: int, per_commit: int = 50) -> None:
    for start in range(0, count, per_commit):
        numbers = range(start, min(count, start + per_commit))
        append(log, *(event(number, f"s{number % 7}") for number in numbers))


@pytest.fixture
def log(log_url: str) -> Any:
    with open_log(log_url, create=True) as opened:
        yield opened


def test_a_new_log_is_empty(log: EventLog) -> None:
    assert log.head() == TreeHead(0, EMPTY_ROOT)
    assert list(log.read()) == []
    assert list(log.heads()) == []
    assert log.stream("s") == []


@pytest.mark.requirement("CARD-log")
def test_events_get_gapless_positions_and_stream_versions(log: EventLog) -> None:
    append(log, event(1, "a"), event(2, "b"), event(3, "a"))
    append(log, event(4, "b"))
    assert [(e.position, e.stream, e.version) for e in log.read()] == [
        (1, "a", 1),
        (2, "b", 1),
        (3, "a", 2),
        (4, "b", 2),
    ]
    assert [e.state for e in log.stream("a")] == [b'{"n":1}', b'{"n":3}']


def test_what_append_returns_is_what_is_read(log: EventLog) -> None:
    appended = append(log, event(1, "Ünïcode \U0001f600"), event(2, 'quotes " and \\'))
    assert list(log.read()) == appended
    assert [log.event_at(1), log.event_at(2)] == appended


def test_a_leaf_is_the_hash_of_the_canonical_event(log: EventLog) -> None:
    state: Any = {"z": [1, 2.5, None], "a": "é\u0001"}
    stream = 'st"re\\am ☃'
    [logged] = append(log, event(stream=stream, schema_version=3, state=rfc8785.dumps(state)))
    content: Any = {
        "schemaVersion": 3,
        "state": state,
        "stream": stream,
        "topic": "thing.happened",
        "version": 1,
    }
    assert logged.leaf == sha256(b"\0" + rfc8785.dumps(content)).digest()


def test_every_commit_stores_the_tree_head_it_reached(log: EventLog) -> None:
    append(log, event(1), event(2))
    append(log, event(3))
    leaves = [e.leaf for e in log.read()]
    assert list(log.heads()) == [TreeHead(2, tree_root(leaves[:2])), TreeHead(3, tree_root(leaves))]
    assert list(log.heads(2)) == [log.head()]
    assert list(log.heads(0, 2)) == [TreeHead(2, tree_root(leaves[:2]))]


def test_a_block_that_raises_leaves_nothing(log: EventLog) -> None:
    append(log, event(1))

    def decide_otherwise() -> None:
        with log.write() as transaction:
            transaction.append([event(2)])
            raise RuntimeError("decided otherwise")

    with pytest.raises(RuntimeError, match="decided otherwise"):
        decide_otherwise()
    assert log.head().size == 1
    assert append(log, event(3))[0].position == 2


def test_a_write_without_events_commits_nothing(log: EventLog) -> None:
    with log.write() as transaction:
        assert transaction.head == TreeHead(0, EMPTY_ROOT)
    assert list(log.heads()) == []


def test_uncommitted_events_are_seen_by_nobody(shared_log_url: str) -> None:
    with open_log(shared_log_url, create=True) as log, log.write() as transaction:
        transaction.append([event(1)])
        assert transaction.appended[0].position == 1
        assert list(log.read()) == []


def test_events_can_be_selected(log: EventLog) -> None:
    for number in range(10):
        append(log, event(number, f"s{number % 2}", topic=f"t.{number % 3}"))
    assert [e.position for e in log.read(3, 6)] == [4, 5, 6]
    assert [e.position for e in log.read(topics=["t.0", "t.2"], batch=2)] == [1, 3, 4, 6, 7, 9, 10]
    assert [e.position for e in log.read(stream="s1", batch=2)] == [2, 4, 6, 8, 10]
    assert [e.position for e in log.read(2, 9, stream="s1", topics=["t.0"])] == [4]
    assert list(log.read(topics=[])) == []
    assert [e.version for e in log.stream("s0", after=1, upto=4)] == [2, 3, 4]
    assert [e.version for e in log.stream("s0", limit=2, descending=True)] == [5, 4]


def test_reading_in_batches_of_any_size_gives_the_same(log: EventLog) -> None:
    fill(log, 300)
    whole = list(log.read())
    assert [e.position for e in whole] == list(range(1, 301))
    assert list(log.read(batch=1)) == list(log.read(batch=7)) == whole
    assert [row for rows in log.read_rows(batch=64) for row in rows] == [
        (e.position, e.stream, e.version, e.topic, e.schema_version, e.state, e.leaf) for e in whole
    ]


def test_a_read_that_began_earlier_ends_where_the_log_ended_then(log: EventLog) -> None:
    fill(log, 5)
    reading = log.read(batch=2)
    assert next(reading).position == 1
    fill(log, 5)
    assert [e.position for e in reading] == [2, 3, 4, 5]


@pytest.mark.parametrize("position", [-1, 0, 2])
def test_an_event_that_does_not_exist_is_refused(log: EventLog, position: int) -> None:
    append(log, event())
    with pytest.raises(RefusedError) as caught:
        log.event_at(position)
    assert caught.value.code == "NO_SUCH_EVENT"


def test_a_stream_version_that_is_taken_is_refused(log: EventLog) -> None:
    append(log, event(version=1), event(version=2))
    for version in (1, 2, 4):
        with pytest.raises(RefusedError) as caught:
            append(log, event(version=version))
        assert caught.value.code == "STREAM_CONFLICT"
    assert append(log, event(version=3))[0].version == 3


def test_a_conflict_is_found_by_a_program_that_never_saw_the_stream(shared_log_url: str) -> None:
    with open_log(shared_log_url, create=True) as first, open_log(shared_log_url) as second:
        append(first, event(version=1))
        with second.write():
            pass
        append(first, event(2, "other"))
        with open_log(shared_log_url) as third:
            for version in (1, 3):
                with pytest.raises(RefusedError) as caught:
                    append(third, event(version=version))
                assert caught.value.code == "STREAM_CONFLICT"
            assert append(third, event(version=2))[0].position == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": ""},
        {"stream": "a\nb"},
        {"stream": "x" * (MAX_NAME_CHARS + 1)},
        {"stream": "\ud800"},
        {"topic": ""},
        {"topic": "a\x00"},
        {"schema_version": 0},
        {"version": 0},
        {"schema_version": 2**31},
        {"state": b"\xff"},
    ],
)
def test_an_event_that_cannot_be_kept_is_refused(log: EventLog, wrong: dict[str, Any]) -> None:
    with pytest.raises(RefusedError) as caught:
        append(log, event(**wrong))
    assert caught.value.code == "INVALID_EVENT"
    assert log.head().size == 0


def test_an_event_beyond_the_limit_is_refused(log_url: str) -> None:
    with open_log(log_url, create=True, max_event_bytes=100) as log:
        append(log, event(state=b'"' + b"x" * 98 + b'"'))
        with pytest.raises(RefusedError) as caught:
            append(log, event(state=b'"' + b"x" * 99 + b'"'))
        assert caught.value.code == "EVENT_TOO_LARGE"
        assert caught.value.details["limit_bytes"] == 100
        assert log.head().size == 1


@pytest.mark.slow
def test_large_events_are_read_in_small_batches(log: EventLog) -> None:
    large = b'"' + b"x" * 3_000_000 + b'"'
    append(log, *(event(state=large) for _ in range(12)))
    sizes = [len(rows) for rows in log.read_rows(batch=4)]
    assert sum(sizes) == 12
    assert all(e.state == large for e in log.read(batch=4))


def test_a_thread_cannot_begin_a_write_inside_its_own(log: EventLog) -> None:
    with log.write() as transaction:
        with pytest.raises(RefusedError) as caught, log.write():
            pass
        transaction.append([event()])
    assert caught.value.code == "LOG_BUSY"
    assert log.head().size == 1


def test_a_closed_log_says_so(log: EventLog) -> None:
    log.close()
    log.close()
    for use in (log.head, lambda: append(log, event())):
        with pytest.raises(RefusedError) as caught:
            use()
        assert caught.value.code == "LOG_CLOSED"


def test_programs_see_what_others_appended(shared_log_url: str) -> None:
    with open_log(shared_log_url, create=True) as first, open_log(shared_log_url) as second:
        append(first, event(1))
        append(second, event(2), event(3))
        with first.write() as transaction:
            assert transaction.head.size == 3
            assert [e.position for e in transaction.new_events(1)] == [2, 3]
            assert [e.position for e in transaction.new_events(2)] == [3]
            assert [e.position for e in transaction.new_events(0)] == [1, 2, 3]
            assert transaction.new_events(3) == []
            assert transaction.append([event(4)])[0].version == 4
        assert second.head() == first.head()
        assert [e.version for e in second.stream("s")] == [1, 2, 3, 4]


def test_a_program_catches_up_over_any_distance(shared_log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("world.log.transaction.CATCH_UP_EVENTS", 300)
    with open_log(shared_log_url, create=True) as first, open_log(shared_log_url) as second:
        append(second, event())
        fill(first, 1000, per_commit=250)
        with second.write() as transaction:
            assert transaction.head == first.head()
            assert [e.position for e in transaction.new_events(990)] == list(range(991, 1002))
            assert len(transaction.new_events(1)) == 1000
            transaction.append([event(1, "s0")])
        assert second.head() == second.root_at(1002)


def test_a_reopened_log_goes_on_where_it_was(shared_log_url: str) -> None:
    size = 2 * CHUNK_LEAVES + 3
    with open_log(shared_log_url, create=True) as log:
        fill(log, size, per_commit=37)
        head = log.head()
    with open_log(shared_log_url) as log:
        assert log.head() == head
        assert append(log, event(stream="s0"))[0].position == size + 1
        assert log.head().root == tree_root([e.leaf for e in log.read()])


def test_many_streams_are_forgotten_and_found_again(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_STREAMS_REMEMBERED > 1000
    monkeypatch.setattr("world.log.transaction.MAX_STREAMS_REMEMBERED", 3)
    for number in range(20):
        append(log, event(number, f"s{number % 5}"))
    assert [e.version for e in log.stream("s4")] == [1, 2, 3, 4]


@pytest.mark.parametrize("size", [1, 5, CHUNK_LEAVES, CHUNK_LEAVES + 1, 3 * CHUNK_LEAVES + 70])
def test_proofs_of_a_log_convince_an_outsider(log: EventLog, size: int) -> None:
    fill(log, size, per_commit=64)
    head = log.head()
    assert log.root_at(size) == head
    for position in {1, size // 2 or 1, size}:
        proof = log.prove_inclusion(position)
        assert proof.head == head
        assert verify_inclusion(proof.leaf, position - 1, size, proof.path, head.root)
    for first in {0, 1, size // 3, size - 1, size}:
        consistent = log.prove_consistency(first)
        assert consistent.second == head
        assert verify_consistency(first, size, consistent.first.root, head.root, consistent.path)


def test_what_is_beyond_the_log_cannot_be_proved(log: EventLog) -> None:
    fill(log, 3)
    for ask in (
        lambda: log.prove_inclusion(4),
        lambda: log.prove_inclusion(0),
        lambda: log.prove_inclusion(3, 2),
        lambda: log.prove_inclusion(1, 4),
        lambda: log.prove_consistency(2, 4),
        lambda: log.root_at(4),
    ):
        with pytest.raises(RefusedError) as caught:
            ask()
        assert caught.value.code == "NO_SUCH_EVENT"
    with pytest.raises(RefusedError, match="does not begin"):
        log.prove_consistency(2, 1)


def test_a_store_keeps_many_logs_apart(shared_log_url: str) -> None:
    base, _, name = shared_log_url.partition("#")
    other = f"{base}#other-{name or 'main'}"
    with open_log(shared_log_url, create=True) as one, open_log(other, create=True) as two:
        append(one, event(1))
        append(two, event(2), event(3))
        append(one, event(4))
        assert [e.state for e in one.read()] == [b'{"n":1}', b'{"n":4}']
        assert [e.version for e in two.read()] == [1, 2]
        assert {one.name, two.name} <= set(list_logs(base))


def test_a_log_that_does_not_exist_is_refused_with_the_names_there_are(shared_log_url: str) -> None:
    base, _, name = shared_log_url.partition("#")
    open_log(shared_log_url, create=True).close()
    with pytest.raises(RefusedError) as caught:
        open_log(f"{base}#nobody")
    assert caught.value.code == "LOG_NOT_FOUND"
    assert (name or "main") in caught.value.details["names"]


def test_a_log_opened_to_be_read_refuses_to_write(shared_log_url: str) -> None:
    with open_log(shared_log_url, create=True) as log:
        append(log, event())
        with open_log(shared_log_url, read_only=True) as reader:
            assert reader.read_only
            assert list(reader.read()) == list(log.read())
            with pytest.raises(RefusedError) as caught:
                append(reader, event())
            assert caught.value.code == "LOG_READ_ONLY"
            append(log, event(2))
            assert reader.head() == log.head()


def test_threads_write_and_read_one_log(log: EventLog) -> None:
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(20):
                append(log, event(number, name))
                positions = [e.position for e in log.read()]
                assert positions == list(range(1, len(positions) + 1))
        except BaseException as error:  # noqa: BLE001  # the test reports it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"thread-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert log.head().size == 80
    assert log.head().root == tree_root([e.leaf for e in log.read()])


def test_a_follower_gets_what_is_there_and_what_comes(log: EventLog) -> None:
    fill(log, 3)
    with log.follow(1, poll_ms=60_000) as follower:
        assert [next(follower).position for _ in range(2)] == [2, 3]
        writer = threading.Thread(target=fill, args=(log, 2))
        writer.start()
        assert [next(follower).position for _ in range(2)] == [4, 5]
        writer.join()
        assert follower.position == 5
        assert follower.poll() == []


def test_a_waiting_follower_can_be_stopped(log: EventLog) -> None:
    follower = log.follow(poll_ms=60_000)
    stopper = threading.Thread(target=follower.stop)
    stopper.start()
    assert list(follower) == []
    stopper.join()


def test_a_follower_selects_topics_and_polls(log: EventLog) -> None:
    append(log, event(1, topic="a"), event(2, topic="b"), event(3, topic="a"), event(4, topic="b"))
    follower = log.follow(topics=["a"])
    assert [e.position for e in follower.poll()] == [1, 3]
    assert follower.position == 4


def test_a_follower_sees_another_program(shared_log_url: str) -> None:
    with (
        open_log(shared_log_url, create=True) as log,
        open_log(shared_log_url) as other,
        other.follow(poll_ms=1) as follower,
    ):
        append(log, event(7))
        assert next(follower).state == b'{"n":7}'
