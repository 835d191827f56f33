"""Clocks that step back: what is recorded then, what the right clock may do afterwards, and who is told."""

from __future__ import annotations

import io
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.clock_child import Off
from tests.pipeline.shop import shop
from tests.pipeline.test_recorded_time import (
    DAY,
    MINUTE,
    START,
    TEN_YEARS,
    founded,
    refused_as_ahead,
    sound,
    take,
)
from tests.support.stepped_clock import act_off
from world.audit.verify import verify
from world.clock import ManualClock, SystemClock
from world.engine.clock_state import ClockState, clock_state
from world.pipeline.recorded_time import MAX_REST_MS, Evidence
from worldprotocol import Realm
from worldprotocol.export.jsonl import export_log, import_log

LIMIT = 300_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START, boot_id="a machine")


@pytest.fixture
def world(tmp_path: Path, clock: ManualClock) -> Iterator[Realm]:
    with founded(str(tmp_path / "w.db"), clock) as opened:
        yield opened


def state(world: Realm, clock: Any, limit_ms: int = LIMIT) -> ClockState:
    return clock_state(world.log, clock, limit_ms)


@pytest.mark.requirement("KP-4c")
def test_one_commit_under_a_clock_that_stepped_back_does_not_make_the_right_clock_refused(
    world: Realm, clock: ManualClock
) -> None:
    clock.set_off(-DAY)
    world.register("ann", "agent")
    clock.advance(10 * MINUTE)
    clock.set_off(DAY)
    assert take(world).at == START + 10 * MINUTE
    sound(world)


def test_after_a_step_back_the_limit_is_that_of_the_greatest_time_and_what_the_boot_clock_counted(
    world: Realm, clock: ManualClock
) -> None:
    clock.set_off(-DAY)
    for name in ("ann", "bob"):
        world.register(name, "agent")
        clock.advance(10 * MINUTE)
    clock.set_off(DAY + LIMIT + 1)
    refused = refused_as_ahead(world)
    assert refused.details["ahead_ms"] == LIMIT + 1
    assert (refused.details["recorded"], refused.details["expected"]) == (START, START + 20 * MINUTE)
    assert "the greatest recorded time is 2023-11-14T22:13:20.000Z" in refused.message
    assert "the boot clock counted 1200000 ms since then" in refused.message
    clock.set_off(-1)
    assert take(world).status == "Granted"


def test_a_second_step_back_keeps_the_greatest_time_and_a_later_time_takes_its_place(
    world: Realm, clock: ManualClock, tmp_path: Path
) -> None:
    def greatest() -> list[int]:
        with sqlite3.connect(tmp_path / "w.db") as database:
            return [at for (at,) in database.execute("SELECT recorded_ms FROM wp_clock WHERE log_id < 0")]

    assert greatest() == []
    clock.set_off(-DAY)
    world.register("ann", "agent")
    clock.set_off(-DAY)
    world.register("bob", "agent")
    assert greatest() == [START]
    clock.set_off(2 * DAY + MINUTE)
    world.register("eve", "agent")  # and the clock is right
    assert world.log.clocks().greatest_ms is None
    clock.set_off(-DAY)
    world.register("zoe", "agent")
    assert greatest() == [START + MINUTE]
    assert world.log.clocks().greatest_ms == START + MINUTE
    assert verify(world.log).ok


def test_a_machine_that_starts_with_a_clock_that_is_behind_goes_on_when_it_is_set(
    world: Realm, clock: ManualClock
) -> None:
    """As one without a battery does, until the network has told it the time."""
    clock.reboot(after_ms=-30 * DAY)
    world.register("ann", "agent")
    clock.advance(MINUTE)
    clock.set_off(37 * DAY)
    assert take(world).at == START + 7 * DAY + MINUTE
    clock.set_off(LIMIT + 1)
    refused_as_ahead(world)  # by the boot clock again


def test_after_a_restart_and_a_step_back_ten_years_are_refused(world: Realm, clock: ManualClock) -> None:
    clock.reboot(after_ms=-30 * DAY)
    world.register("ann", "agent")
    clock.set_off(30 * DAY + MAX_REST_MS + 1)
    assert "no boot clock covers the time since then" in refused_as_ahead(world).message


def test_after_a_restart_a_time_a_little_before_the_greatest_one_is_evidence(world: Realm, clock: ManualClock) -> None:
    clock.reboot(after_ms=-MINUTE)
    world.register("ann", "agent")
    clock.set_off(DAY)
    assert refused_as_ahead(world).details["ahead_ms"] == DAY - MINUTE


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_confirmation_takes_back_a_greatest_time_that_was_wrong(
    tmp_path: Path, clock: ManualClock, order: str
) -> None:
    clock.set_off(TEN_YEARS)
    with founded(str(tmp_path / "w.db"), clock) as world:  # nothing was there to compare the clock with
        clock.set_off(-TEN_YEARS)
        if order == "after":
            world.register("ann", "agent")
        assert world.confirm_clock(reason="the founding machine was ahead") is not None
        assert world.log.clocks().greatest_ms is None
        clock.set_off(LIMIT + 1)
        refused_as_ahead(world)
        clock.set_off(-1)
        assert take(world).status == "Granted"
        sound(world)


def test_a_confirmation_with_nothing_to_confirm_keeps_the_greatest_time(world: Realm, clock: ManualClock) -> None:
    clock.set_off(-MINUTE)
    world.register("ann", "agent")
    assert world.confirm_clock(reason="nothing is wrong") is None
    assert world.log.clocks().greatest_ms == START


def test_a_step_back_is_warned_about_once_until_the_clock_is_right_again(
    world: Realm, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.advance(DAY)
    with caplog.at_level(logging.WARNING, logger="worldprotocol"):
        clock.set_off(-LIMIT)
        world.register("ann", "agent")
        assert caplog.messages == []  # as far behind as it may be, says the boot clock
        for name in ("bob", "eve"):
            clock.set_off(-DAY)
            world.register(name, "agent")
        [message] = caplog.messages
        assert f"the clock is {DAY} ms behind, and the limit is {LIMIT} ms" in message
        clock.set_off(2 * DAY + LIMIT)
        world.register("zoe", "agent")
        clock.set_off(-LIMIT - 1)
        world.register("kim", "agent")
        assert len(caplog.messages) == 2


def test_the_state_of_the_clock_is_told_without_writing(world: Realm, clock: ManualClock) -> None:
    clock.advance(DAY)
    head = world.log.head()
    right = state(world, clock)
    assert (right.kind, right.cause, right.is_refused) == ("right", "", False)
    assert (right.now_ms, right.expected_ms) == (START + DAY, START + DAY)
    clock.set_off(LIMIT + 1)
    ahead = state(world, clock)
    assert (ahead.kind, ahead.is_refused, ahead.expected_ms) == ("ahead", True, START + DAY)
    assert "300001 ms ahead" in ahead.cause
    clock.set_off(-LIMIT - 1 - LIMIT - 1)
    behind = state(world, clock)
    assert (behind.kind, behind.is_refused, behind.expected_ms) == ("behind", False, START + DAY)
    assert "300001 ms behind" in behind.cause
    assert "worldctl clock confirm" in behind.cause
    assert world.log.head() == head


def test_the_state_is_told_of_logs_that_have_no_clocks(tmp_path: Path, world: Realm, clock: ManualClock) -> None:
    exported = io.BytesIO()
    export_log(world.log, exported)
    exported.seek(0)
    import_log(exported, str(tmp_path / "copy.db"))
    with Realm.open_read_only(tmp_path / "copy.db") as copy:
        assert state(copy, clock).kind == "right"
        clock.set_off(-LIMIT - 1)
        assert state(copy, clock).kind == "behind"
    with sqlite3.connect(tmp_path / "copy.db") as database:
        database.execute("DROP TABLE wp_clock")
    with Realm.open_read_only(tmp_path / "copy.db") as copy:
        assert state(copy, clock).kind == "behind"


def test_an_earlier_release_reads_and_continues_a_log_with_a_greatest_time(
    world: Realm, clock: ManualClock, tmp_path: Path
) -> None:
    """It looks at the row of the log's own number alone."""
    clock.set_off(-DAY)
    world.register("ann", "agent")
    with sqlite3.connect(tmp_path / "w.db") as database:
        rows = database.execute("SELECT size, recorded_ms FROM wp_clock WHERE log_id = ?", (world.log.log_id,))
        assert rows.fetchall() == [(world.log.head().size, START - DAY)]
        assert [row[1] for row in database.execute("PRAGMA table_info(wp_clock)")] == [
            *("log_id", "size", "boot_id", "boot_ms", "recorded_ms"),
        ]


@pytest.mark.requirement("KP-4c")
@pytest.mark.slow
def test_a_process_whose_machine_stepped_back_a_day_keeps_nobody_from_writing(shared_log_url: str) -> None:
    founded(shared_log_url).close()
    back = act_off(shared_log_url, -DAY, "lease", "bob", "FILE:/b")
    assert back["done"]["status"] == "Granted"
    right = act_off(shared_log_url, 0, "lease", "ann", "FILE:/a")
    assert right["done"]["status"] == "Granted"
    ahead = act_off(shared_log_url, DAY, "lease", "eve", "FILE:/e")
    assert ahead["refused"] == "CLOCK_AHEAD"
    assert abs(ahead["ahead_ms"] - DAY) < 10 * MINUTE
    with Realm.open(shared_log_url, domain=shop) as world:
        assert take(world, "FILE:/c").status == "Granted"
        assert state(world, SystemClock()).kind == "right"
        behind = state(world, Off(-DAY))
        assert behind.kind == "behind"
        assert verify(world.log).ok


@pytest.mark.parametrize(
    ("evidence", "wall", "is_behind"),
    [
        (Evidence(START, None, START, 1_000), START - 1_000, False),
        (Evidence(START - DAY, None, START, 1_000), START - 1_001, True),
        (Evidence(START, 5_000, None, 1_000), START + 4_000, False),
        (Evidence(START, 5_000, None, 1_000), START + 3_999, True),
        (Evidence(START - DAY, 5_000, None, 1_000, True, START, 6_000), START + 5_000, False),
        (Evidence(START - DAY, 5_000, None, 1_000, True, START, 6_000), START + 4_999, True),
        (Evidence(None, None, None, 1_000), 0, False),
    ],
)
def test_a_clock_is_behind_what_other_clocks_and_recorded_times_say(
    evidence: Evidence, wall: int, is_behind: bool
) -> None:
    assert evidence.is_behind(wall) is is_behind
