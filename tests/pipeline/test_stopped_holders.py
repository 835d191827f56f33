"""A process that is stopped while it holds the log's lock on PostgreSQL: others end its unit, and it repeats it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.pipeline import held
from tests.pipeline.stopping_child import UNPREPARED, cells, counts
from tests.plugins.forms import scaled
from tests.support.engines import engine_of
from tests.support.patience import PATIENCE_S, until
from world.audit.verify import verify
from world.engine.observing import WriteTiming
from world.errors import RefusedError, UnitEndedError
from world.limits import Limits
from world.log import Pending
from world.log.backends import postgres, postgres_errors, postgres_lock
from world.pipeline.driver import submit
from world.pipeline.submit import Submission
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.api.telemetry.writes import time_writes

pytestmark = pytest.mark.requirement("LIVE-lock")

ROOT = Path(__file__).resolve().parents[2]

REPETITIONS = scaled(50, ci=2)
STOPS = scaled(200, ci=10)
AT_ONCE = 10
"""Logs in one database whose holders are stopped at the same time."""

HOLD_MS = 300
"""How long a unit may hold the lock in tests with shortened times."""

HOLDS = (
    "SELECT a.client_addr IS NOT NULL FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.granted "
    "AND l.locktype = 'advisory' AND l.objid = %s AND a.application_name LIKE 'worldprotocol unit %%'"
)
"""Whether the unit that holds the lock is connected by TCP; no row where none holds it."""


class Counting:
    """A process that counts in a log.

    Args:
        process: it.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.acknowledged: list[int] = []
        self.last = ""
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip().isdecimal():
                self.acknowledged.append(int(line))
            self.last = line.strip()

    def signal(self, which: signal.Signals) -> None:
        self.process.send_signal(which)

    def is_stopped(self) -> bool:
        status = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        return status.rpartition(")")[2].split()[0] == "T"

    def go_on(self) -> None:
        """Let it go on until it has counted further."""
        before = len(self.acknowledged)
        self.signal(signal.SIGCONT)
        until(lambda: len(self.acknowledged) > before + 1)

    def end(self) -> str:
        """Have it end, and return its last line."""
        assert self.process.stdin is not None
        self.process.stdin.write("end\n")
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0
        self._reading.join(PATIENCE_S)
        return self.last


@contextmanager
def counting(address: str) -> Iterator[Counting]:
    command = [sys.executable, "-m", "tests.pipeline.stopping_child", address, "stopped"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, env={**os.environ}) as process:
        one = Counting(process)
        try:
            yield one
        finally:
            process.kill()
            one._reading.join(PATIENCE_S)


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writers of this process end units sooner."""
    for module in (postgres, postgres_errors, postgres_lock):
        monkeypatch.setattr(module, "MAX_HOLD_MS", HOLD_MS)
    monkeypatch.setattr(postgres, "_LOOK_S", 0.05)
    monkeypatch.setattr(postgres, "_LOOK_AGAIN_S", 0.05)


def stop_as_holder(one: Counting, url: str, log_id: int) -> None:
    """Stop a process at a moment at which it holds the log's lock."""
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            time.sleep(random.uniform(0.0, 0.02))
            one.signal(signal.SIGSTOP)
            until(one.is_stopped)
            held_by_tcp = connection.execute(HOLDS, (log_id,)).fetchone()
            if held_by_tcp is not None:
                assert held_by_tcp == ("127.0.0.1" in url,)
                return
            one.signal(signal.SIGCONT)


def stop_and_end(one: Counting, world: Realm, url: str, number: int) -> float:
    """Stop the holder, write beside it until its unit was ended, let it go on, and return how long that took, in s."""
    while True:
        ended = world.log.units_ended
        stop_as_holder(one, url, world.log.log_id)
        stopped = time.monotonic()
        assert counts(world, "other", number)
        waited_s = time.monotonic() - stopped
        assert one.is_stopped()
        one.go_on()
        if world.log.units_ended > ended:  # otherwise it had sent its commit before it was stopped
            return waited_s


def check(one: Counting, world: Realm, last: int) -> None:
    """Let a process end, and hold what it left to what must be."""
    assert one.end() == "ended"  # nothing was refused: each unit that was ended was repeated
    put = [item.intent.body.input for item in world.proposals() if item.status == "completed"]
    numbers = sorted(item["number"] for item in put if item["name"] == "stopped")
    assert len(numbers) == len(set(numbers))
    assert set(one.acknowledged) <= set(numbers)
    assert world.data()["cells"] == {"stopped": numbers[-1], "other": last}
    assert verify(world.log).ok


def stop_once(url: str, name: str) -> float:
    """Stop a holder once, in a log of its own; return how long the others waited, in seconds."""
    address = f"{url}#{name}"
    with founded(address) as world, counting(address) as one:
        until(lambda: len(one.acknowledged) > 1)
        waited_s = stop_and_end(one, world, url, 1)
        check(one, world, 1)
        return waited_s


def founded(address: str) -> Realm:
    world = Realm.create(address, domain=cells, limits=UNPREPARED)
    world.register("ann", "human", binding={"kind": "auto_approve"})
    return world


@pytest.fixture(params=["postgres_database", "postgres_tcp_database"], ids=["socket", "tcp"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, by the socket of its server, and by TCP."""
    return str(request.getfixturevalue(request.param))


@pytest.mark.slow
def test_others_write_while_the_holder_is_stopped_and_nothing_acknowledged_is_lost(database: str) -> None:
    """A writer waits for the lock for 15 s at most and is refused then; no write is refused."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waited = list(pool.map(lambda at: stop_once(database, f"log-{at}"), range(REPETITIONS)))
    assert len(waited) == REPETITIONS
    print(f"others waited {min(waited):.1f} to {max(waited):.1f} s")


@pytest.mark.slow
def test_a_process_that_is_stopped_again_and_again_goes_on_each_time(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    address = f"{database}#often"
    with founded(address) as world, counting(address) as one:
        until(lambda: len(one.acknowledged) > 1)
        for number in range(1, STOPS + 1):
            stop_and_end(one, world, database, number)
        check(one, world, STOPS)
        assert world.log.units_ended >= STOPS
        assert recheck(world).ok


# In one process


@pytest.fixture
def gate() -> Iterator[held.Gate]:
    made = held.renew()
    yield made
    made.open()


def holder(address: str) -> Realm:
    """Open the realm whose actions are called under the log's lock, where the gate holds them."""
    return held.opened(address, replace(held.PATIENT, max_preparations=0))


@pytest.fixture
def held_address(postgres_database: str) -> str:
    with Realm.create(postgres_database, domain=held.HELD, policies=[held.HOUSE], projections=[held.clicks]) as world:
        world.adopt_policy("held")
        for name in ("ann", "eve"):
            world.register(name, "human", binding={"kind": "policy_rules", "policy": "held"})
    return postgres_database


def test_a_unit_that_was_ended_is_done_again_and_its_write_has_the_error(
    held_address: str, gate: held.Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    noted: list[WriteTiming] = []
    others: list[WriteTiming] = []
    with holder(held_address) as world, held.opened(held_address) as other, ThreadPoolExecutor(1) as pool:
        time_writes(world, noted.append)
        time_writes(other, others.append)
        asked = pool.submit(world.act, "eve", "count", {"hang": "action"})
        assert gate.entered.wait(PATIENCE_S)
        assert other.act("ann", "count", {"hang": ""}).status == "completed"
        assert sum(one.units_ended for one in others) == 1
        gate.open()
        assert asked.result(PATIENCE_S).status == "completed"
        assert [type(one.error) for one in noted if one.error is not None] == [UnitEndedError]
        assert other.data()["count"] == 2
        assert verify(other.log).ok


def test_a_command_whose_own_unit_is_ended_too_is_refused_and_the_others_are_done(
    held_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch)
    with held.opened(held_address) as world, held.opened(held_address) as other, ThreadPoolExecutor(1) as pool:
        entered, seen = threading.Semaphore(0), threading.Semaphore(0)
        intents = [world.issue(name, "count", {"hang": ""}) for name in ("ann", "eve", "ann")]

        def slow(work: Any) -> Any:
            done = submit(work, Submission(intents[1]), "slow")
            entered.release()
            assert seen.acquire(timeout=PATIENCE_S)
            return done

        batch: list[Any] = [
            Pending(lambda work: submit(work, Submission(intents[0]), "first")),
            Pending(slow),
            Pending(lambda work: submit(work, Submission(intents[2]), "last")),
        ]
        running = pool.submit(engine_of(world)._run_batch, batch)
        for _ in range(2):  # together with the others, and alone
            assert entered.acquire(timeout=PATIENCE_S)
            assert other.act("ann", "count", {"hang": ""}).status == "completed"
            seen.release()
        running.result(PATIENCE_S)
        assert [item.settled for item in batch] == [True] * 3
        with pytest.raises(RefusedError) as refused:
            batch[1].outcome()
        assert refused.value.code == "UNIT_TOO_LARGE"
        assert refused.value.details["limit_ms"] == HOLD_MS
        assert other.log.units_ended == 2
        assert {item.proposal_id for item in other.proposals()} >= {"first", "last"}
        assert "slow" not in {item.proposal_id for item in other.proposals()}
        assert other.data()["count"] == 4
        assert verify(other.log).ok


def test_a_command_that_is_over_its_time_is_done_again_where_its_unit_was_ended(
    held_address: str, gate: held.Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process learns first from its own clock that it took too long."""
    shorten(monkeypatch)
    limits = Limits(max_preparations=0, max_unit_ms=HOLD_MS)
    with held.opened(held_address, limits) as world, held.opened(held_address) as other, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(world.act, "eve", "count", {"hang": "action"})
        assert gate.entered.wait(PATIENCE_S)
        assert other.act("ann", "count", {"hang": ""}).status == "completed"
        gate.open()
        assert asked.result(PATIENCE_S).status == "completed"
        assert other.log.units_ended == 1
        assert other.data()["count"] == 2
