"""Times of writes: how long they wait for the lock, how long they commit, and what is noted of one that fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.pipeline.shop import open_shop
from tests.support.engines import engine_of
from world.clock import wall_clock_ns
from world.engine.observing import WriteTiming
from world.errors import RefusedError
from world.log import open_log
from worldprotocol.api.telemetry.writes import time_writes

pytestmark = pytest.mark.slow

SLACK_NS = 50_000_000
"""What the wall clock may be set between two readings."""


def test_a_write_is_timed_from_its_wait_to_its_end(tmp_path: Path) -> None:
    address = str(tmp_path / "shop.db")
    with open_shop(address) as realm:
        noted: list[WriteTiming] = []
        threads: set[int] = set()

        def note(timing: WriteTiming) -> None:
            noted.append(timing)
            threads.add(threading.get_ident())

        time_writes(realm, note)
        size = realm.log.head().size
        with open_log(address) as other, other.write():
            waiting = threading.Thread(target=realm.act, args=("ann", "sell", {"item": "tea"}))
            waiting.start()
            while not engine_of(realm)._group._led:
                waiting.join(0.01)
            waiting.join(0.1)
            assert waiting.is_alive()
            freed = wall_clock_ns()
        waiting.join()
        assert threads == {waiting.ident}
        done = noted[-1]
        assert done.error is None
        assert done.events == realm.log.head().size - size > 0
        assert done.position == realm.log.head().size
        assert done.locked >= freed - SLACK_NS  # it held the lock after the other one
        assert done.began <= done.locked <= done.applied <= done.ended
        assert done.lock_wait_s == (done.locked - done.began) / 1e9
        assert done.commit_s == (done.ended - done.applied) / 1e9 > 0


def test_a_write_that_is_given_up_has_its_error_and_no_commit(tmp_path: Path) -> None:
    with open_shop(str(tmp_path / "shop.db")) as realm:
        noted: list[WriteTiming] = []
        time_writes(realm, noted.append)
        realm.log.close()
        with pytest.raises(RefusedError) as caught:
            realm.act("ann", "sell", {"item": "tea"})
        assert caught.value.code == "LOG_CLOSED"
    assert all(one.commit_s == 0 and one.events == 0 for one in noted)
    assert WriteTiming(began=5, ended=1_000_000_005).lock_wait_s == 1.0  # the lock was never held


def test_an_error_of_what_notes_a_write_is_logged_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def note(timing: WriteTiming) -> None:
        raise ValueError(timing.position)

    with open_shop(str(tmp_path / "shop.db")) as realm, caplog.at_level("ERROR", logger="worldprotocol"):
        time_writes(realm, note)
        assert realm.act("ann", "sell", {"item": "tea"}).status == "completed"
    assert {one.message for one in caplog.records} == {"A write was not noted."}
