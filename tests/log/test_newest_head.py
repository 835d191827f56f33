"""The newest tree head in a SQLite file is read again only after a commit of another process."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from world.errors import DamagedLogError
from world.log import NewEvent, open_log
from world.log.backends.sqlite_reading import fetch


def statements_of(work: Callable[[], object]) -> int:
    """Return how many reading statements a piece of work runs."""
    count = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is fetch.__code__

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def appended(number: int) -> list[NewEvent]:
    return [NewEvent("stream", "test.event", 1, b'{"number":%d}' % number)]


@pytest.mark.requirement("CARD-log")
def test_the_head_is_read_once_for_each_commit_of_another_process_and_never_for_an_own_one(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    with open_log(path, create=True) as log, open_log(path) as other:
        log.head()
        for number in range(1, 6):
            writer = log if number % 2 else other
            writer.insert_events(appended(number))
            for reader in (log, other):
                reads = statements_of(lambda reader=reader: [reader.head() for _ in range(10)])  # type: ignore[misc]
                assert reads == (reader is not writer)
                assert reader.head().size == number
        assert statements_of(log.head) == 0


@pytest.mark.requirement("CARD-log")
def test_a_head_that_was_changed_behind_the_log_is_not_remembered(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    with open_log(path, create=True) as log:
        log.insert_events(appended(1))
        log.insert_events(appended(2))
        assert log.head().size == 2
        intruder = sqlite3.connect(path)
        intruder.execute("DELETE FROM wp_head WHERE id = (SELECT max(id) FROM wp_head)")
        intruder.commit()
        intruder.close()
        with pytest.raises(DamagedLogError) as damaged:
            log.head()
        assert damaged.value.code == "EVENT_UNSEALED"
