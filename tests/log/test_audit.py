from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from world.log import EventLog, NewEvent, TreeHead, event_leaf, open_log
from world.log.audit import verify_storage, verify_tree
from world.log.merkle import CHUNK_LEAVES, Frontier
from world.log.sql.statement import LOG_SHIFT

COMMITS = 12
PER_COMMIT = 3


def fill(log: EventLog, commits: int = COMMITS, per_commit: int = PER_COMMIT) -> None:
    for commit in range(commits):
        with log.write() as transaction:
            transaction.append(
                NewEvent(f"s{number % 4}", "t", 1, b'{"n":%d}' % (commit * per_commit + number))
                for number in range(per_commit)
            )


class Tampering:
    """A log, and a hand that changes its store behind its back."""

    def __init__(self, url: str) -> None:
        self.url = url
        with open_log(url, create=True) as log:
            fill(log)
            self.log_id = log.log_id
            self.heads = list(log.heads())

    def key(self, position: int) -> int:
        return (self.log_id << LOG_SHIFT) + position

    def change(self, sql: str, *parameters: Any) -> None:
        if self.url.startswith("sqlite"):
            database = sqlite3.connect(self.url.removeprefix("sqlite:///"))
            with database:
                assert database.execute(sql, parameters).rowcount > 0
            database.close()
        else:
            with psycopg.connect(self.url.partition("#")[0]) as connection:
                assert connection.execute(sql.replace("?", "%s").encode(), parameters).rowcount > 0

    def rehash(self, position: int) -> None:
        """Make a changed event's leaf hash fit again."""
        with open_log(self.url, read_only=True) as log:
            event = log.event_at(position)
        leaf = event_leaf(event.stream, event.version, event.topic, event.schema_version, event.state)
        self.change("UPDATE wp_event SET leaf = ? WHERE id = ?", leaf, self.key(position))

    def rewrite_tree(self) -> None:
        """Make all stored heads and chunks fit the stored leaves."""
        with open_log(self.url, read_only=True) as log:
            events = list(log.read())
            heads = list(log.heads())
        for head in heads:
            frontier = Frontier().extended(event.leaf for event in events[: head.size])
            self.change("UPDATE wp_head SET root = ? WHERE id = ?", frontier.root(), self.key(head.size))

    def findings(self, *against: TreeHead) -> list[tuple[str, int]]:
        with open_log(self.url, read_only=True) as log:
            return [(finding.code, finding.position) for finding in verify_tree(log, against)]


@pytest.fixture
def store(shared_log_url: str) -> Tampering:
    return Tampering(shared_log_url)


def test_a_whole_log_has_no_findings(log_url: str) -> None:
    steps: list[tuple[int, int]] = []
    with open_log(log_url, create=True) as log:
        assert verify_tree(log) == []
        fill(log, 2 * CHUNK_LEAVES // 100, 100)
        heads = list(log.heads())
        assert verify_tree(log, heads, lambda done, of: steps.append((done, of))) == []
        assert verify_tree(log, heads[1]) == []
        assert verify_tree(log, TreeHead(0, Frontier().root())) == []
    assert steps[-1] == (heads[-1].size, heads[-1].size)


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE wp_event SET state = '{\"n\":99}' WHERE id = ?",
        "UPDATE wp_event SET state = 'no json' WHERE id = ?",
        "UPDATE wp_event SET topic = 'u' WHERE id = ?",
        "UPDATE wp_event SET schema_version = 2 WHERE id = ?",
        "UPDATE wp_event SET stream = 'else' WHERE id = ?",
        "UPDATE wp_event SET version = 70 WHERE id = ?",
        "UPDATE wp_event SET leaf = CAST(state || leaf AS BLOB) WHERE id = ?",
        "UPDATE wp_event SET topic = CAST(leaf AS TEXT) WHERE id = ?",
    ],
)
def test_a_changed_event_is_found_and_named(store: Tampering, sql: str) -> None:
    if "CAST" in sql and not store.url.startswith("sqlite"):
        sql = "UPDATE wp_event SET leaf = sha256(leaf) WHERE id = ?"
    store.change(sql, store.key(17))
    found = store.findings()
    assert ("EVENT_CHANGED", 17) in found
    assert {code for code, _ in found} <= {"EVENT_CHANGED", "STREAM_DISORDER"}


@pytest.mark.parametrize("change", ["version = 'x'", "leaf = 5", "state = x'ff'", "topic = NULL"])
def test_sqlite_keeps_no_event_of_impossible_types(tmp_path: Path, change: str) -> None:
    store = Tampering(f"sqlite:///{tmp_path / 'world.db'}")
    with pytest.raises(sqlite3.IntegrityError):
        store.change(f"UPDATE wp_event SET {change} WHERE id = ?", store.key(17))


def test_an_event_changed_with_its_leaf_is_found_between_two_heads(store: Tampering) -> None:
    store.change("UPDATE wp_event SET state = '{\"n\":99}' WHERE id = ?", store.key(17))
    store.rehash(17)
    with open_log(store.url, read_only=True) as log:
        [finding] = verify_tree(log)
    assert (finding.code, finding.position) == ("TREE_MISMATCH", 16)
    assert finding.details == {"good": 15, "bad": 18}


def test_a_removed_event_is_found_and_named(store: Tampering) -> None:
    store.change("DELETE FROM wp_event WHERE id = ?", store.key(17))
    assert ("EVENT_MISSING", 17) in store.findings()


def test_a_removed_range_is_found_and_named(store: Tampering) -> None:
    store.change("DELETE FROM wp_event WHERE id BETWEEN ? AND ?", store.key(5), store.key(9))
    with open_log(store.url, read_only=True) as log:
        finding = verify_tree(log)[0]
    assert finding.code == "EVENT_MISSING"
    assert (finding.details["first"], finding.details["last"]) == (5, 9)


def test_swapped_events_are_found(store: Tampering) -> None:
    for old, new in ((17, 1000), (16, 17), (1000, 16)):
        store.change("UPDATE wp_event SET id = ? WHERE id = ?", store.key(new), store.key(old))
    assert ("TREE_MISMATCH", 16) in store.findings()


def test_an_inserted_event_at_the_end_is_found(store: Tampering) -> None:
    size = COMMITS * PER_COMMIT
    store.change(
        "INSERT INTO wp_event (id, log_id, stream, version, topic, schema_version, leaf, state) "
        "SELECT id + 1, log_id, 'new', 1, topic, schema_version, leaf, state FROM wp_event WHERE id = ?",
        store.key(size),
    )
    assert store.findings() == [("EVENT_UNSEALED", size + 1)]


def test_events_cut_from_the_end_are_found(store: Tampering) -> None:
    size = COMMITS * PER_COMMIT
    store.change("DELETE FROM wp_event WHERE id > ? AND id <= ?", store.key(30), store.key(size))
    assert store.findings()[0] == ("LOG_TRUNCATED", 31)


def test_a_log_cut_with_its_heads_is_found_by_a_saved_head(store: Tampering) -> None:
    size = COMMITS * PER_COMMIT
    for table in ("wp_event", "wp_head"):
        store.change(f"DELETE FROM {table} WHERE id > ? AND id <= ?", store.key(30), store.key(size))
    assert store.findings() == []
    assert store.findings(store.heads[-1]) == [("LOG_TRUNCATED", 31)]


def test_a_log_rewritten_completely_is_found_by_saved_heads(store: Tampering) -> None:
    store.change("UPDATE wp_event SET state = '{\"n\":99}' WHERE id = ?", store.key(17))
    store.rehash(17)
    store.rewrite_tree()
    assert store.findings() == []
    assert store.findings(store.heads[4]) == []
    assert store.findings(store.heads[-1]) == [("SAVED_HEAD_MISMATCH", 1)]
    found = store.findings(*store.heads)
    assert found[0] == ("SAVED_HEAD_MISMATCH", 16)
    assert len(found) == len(store.heads) - 5


def test_a_changed_head_is_told_from_changed_events(store: Tampering) -> None:
    store.change("UPDATE wp_head SET root = ? WHERE id = ?", b"\0" * 32, store.key(18))
    assert store.findings(store.heads[-1]) == [("HEAD_CHANGED", 18)]


def test_removed_heads_leave_events_unsealed(store: Tampering) -> None:
    store.change("DELETE FROM wp_head WHERE id > ? AND id <= ?", store.key(30), store.key(100))
    assert ("EVENT_UNSEALED", 31) in store.findings()


def test_a_saved_head_inside_a_commit_is_compared(store: Tampering) -> None:
    with open_log(store.url, read_only=True) as log:
        inside = log.root_at(17)
    assert store.findings(inside) == []
    assert store.findings(TreeHead(17, b"\1" * 32)) == [("SAVED_HEAD_MISMATCH", 1)]


@pytest.mark.parametrize(
    "sql",
    ["UPDATE wp_chunk SET root = ? WHERE id = ?", "UPDATE wp_chunk SET frontier = ? WHERE id = ?"],
)
def test_a_changed_part_of_the_stored_tree_is_found(shared_log_url: str, sql: str) -> None:
    store = Tampering(shared_log_url)
    with open_log(shared_log_url) as log:
        fill(log, 3, CHUNK_LEAVES)
    store.change(sql, b"\0" * 32, store.key(1))
    assert store.findings() == [("CHUNK_CHANGED", CHUNK_LEAVES + 1)]


def test_a_removed_part_of_the_stored_tree_is_found(shared_log_url: str) -> None:
    store = Tampering(shared_log_url)
    with open_log(shared_log_url) as log:
        fill(log, 3, CHUNK_LEAVES)
    store.change("DELETE FROM wp_chunk WHERE id = ?", store.key(0))
    assert store.findings() == [("CHUNK_CHANGED", 1)]


def test_a_part_of_the_tree_beyond_the_events_is_found_and_does_not_hold_up_the_log(shared_log_url: str) -> None:
    store = Tampering(shared_log_url)
    stray = "INSERT INTO wp_chunk (id, root, frontier) VALUES (?, ?, ?)"
    store.change(stray, store.key(0), b"\0" * 32, b"\0" * 32)
    store.change(stray, store.key(7), b"\0" * 32, b"\0" * 32)
    assert store.findings() == [("CHUNK_CHANGED", 1), ("CHUNK_CHANGED", 7 * CHUNK_LEAVES + 1)]
    with open_log(shared_log_url) as log:
        fill(log, 3, CHUNK_LEAVES)
    assert store.findings() == [("CHUNK_CHANGED", 7 * CHUNK_LEAVES + 1)]


def test_every_single_change_anywhere_is_found(tmp_path: Path) -> None:
    changes: list[Callable[[Tampering, int], None]] = [
        lambda s, n: s.change("UPDATE wp_event SET state = '1' WHERE id = ?", s.key(n)),
        lambda s, n: s.change("UPDATE wp_event SET leaf = zeroblob(32) WHERE id = ?", s.key(n)),
        lambda s, n: s.change("DELETE FROM wp_event WHERE id = ?", s.key(n)),
    ]
    for number, change in enumerate(changes):
        for position in (1, 2, 18, COMMITS * PER_COMMIT):
            directory = tmp_path / f"{number}-{position}"
            directory.mkdir()
            store = Tampering(f"sqlite:///{directory / 'world.db'}")
            change(store, position)
            found = store.findings()
            assert found
            assert found[0][1] == position


def test_damaged_storage_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "world.db"
    with open_log(str(path), create=True) as log:
        fill(log, 40, 40)
    data = bytearray(path.read_bytes())
    with open_log(str(path), read_only=True) as log:
        leaf = log.event_at(900).leaf
    page = data.index(leaf) // 4096
    data[page * 4096 : page * 4096 + 100] = b"\xff" * 100
    path.write_bytes(data)
    with open_log(str(path), read_only=True) as log:
        findings = verify_tree(log)
    assert findings[0].code in ("STORAGE_DAMAGED", "EVENT_MISSING")
    assert findings[0].position <= 900


def test_a_log_that_grows_while_it_is_checked_is_whole(shared_log_url: str) -> None:
    with open_log(shared_log_url, create=True) as log:
        fill(log, 10, 50)
        assert verify_tree(log, progress=lambda done, of: fill(log, 1, 2)) == []


@pytest.mark.parametrize(
    "sql",
    ["DELETE FROM wp_clock", "UPDATE wp_clock SET size = size - 1", "DROP TABLE wp_clock"],
)
def test_deleted_clocks_of_the_last_commit_are_found_until_the_next_one(tmp_path: Path, sql: str) -> None:
    url = f"sqlite:///{tmp_path / 'w.db'}"
    with open_log(url, create=True) as log:
        fill(log, 1)
        assert verify_storage(log) == []
    with sqlite3.connect(tmp_path / "w.db") as database:
        database.execute(sql)
    with open_log(url, read_only=True) as log:
        [found] = verify_storage(log)
        assert (found.code, found.position, found.is_derived) == ("CLOCK_MISSING", 0, True)
    with open_log(url) as log:
        fill(log, 1)
        assert verify_storage(log) == []


def test_a_log_without_commits_and_one_of_an_earlier_release_lack_no_clocks(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'w.db'}"
    with open_log(url, create=True) as log:
        assert verify_storage(log) == []
        fill(log, 1)
    with sqlite3.connect(tmp_path / "w.db") as database:
        database.execute("DROP TABLE wp_clock")
        database.execute("UPDATE wp_head SET before = NULL")  # as a row of an earlier release
    for is_read_only in (True, False):  # the second one makes the table
        with open_log(url, read_only=is_read_only) as log:
            assert verify_storage(log) == []
