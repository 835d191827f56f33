"""Whether a realm would accept a write now: each cause that refuses a command is the answer before one is tried."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.counter import Counter, counter, house
from tests.log.test_sqlite_lock_holder import holding, is_stopped
from tests.support.patience import PATIENCE_S, until
from world.clock import Clock, ManualClock
from world.core import Domain, set_
from world.engine.writability import LockWatch, Writability, writability
from world.errors import LogBusyError, RefusedError, WorldProtocolError
from world.events.verification import UNAUTHENTICATED
from world.limits import Limits
from world.log import open_log
from world.log.values import ServerPlace
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.archive import Archive
from world.read_models.index import WorldIndex
from world.state.writer_epoch import WriterEpoch
from worldprotocol import Realm, Worker
from worldprotocol.api.waiting import outages

pytestmark = pytest.mark.requirement("LIVE-probe")

START = 1_700_000_000_000
DAY_MS = 86_400_000


def act(realm: Realm) -> str:
    return realm.act("ann", "sell", {"item": "tea"}).status


def code_of(error: WorldProtocolError | None) -> str | None:
    return None if error is None else error.code


def obstacle_of(archive: Archive, clock: Clock) -> WorldProtocolError | None:
    return writability(archive, clock, LockWatch(time.monotonic, Limits().max_unit_ms)).obstacle


def opened(address: str, **options: Any) -> Realm:
    return Realm.open(address, domain=counter, policies=[house], **options)


@pytest.fixture
def address(tmp_path: Path) -> str:
    place = str(tmp_path / "world.db")
    with Realm.create(place, domain=counter, policies=[house], clock=ManualClock(START)) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
    return place


def test_a_realm_that_accepts_writes_is_left_as_it_is(shared_log_url: str) -> None:
    with Realm.create(shared_log_url, domain=counter, policies=[house]) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        before = realm.log.head()
        assert realm._acting.writability().obstacle is None
        assert realm.as_caller(UNAUTHENTICATED)._acting.writability().obstacle is None
        with Realm.open_read_only(shared_log_url) as looking:
            assert obstacle_of(looking.archive, ManualClock(START)) is None or realm.log.backend != "sqlite"
        assert realm.log.head() == before
        assert act(realm) == "completed"
        assert realm._acting.writability().obstacle is None


def test_a_log_that_was_not_founded_is_named(tmp_path: Path) -> None:
    place = str(tmp_path / "empty.db")
    with open_log(place, create=True, view=WorldIndex(checkpoint_every=16)) as log:
        assert code_of(obstacle_of(Archive(log), ManualClock(START))) == "NOT_FOUNDED"


def test_a_clock_that_commands_refuse_is_named_until_it_is_right(address: str) -> None:
    clock = ManualClock(START)
    with opened(address, clock=clock) as realm:
        assert act(realm) == "completed"
        clock.set_off(2 * DAY_MS)
        obstacle = realm._acting.writability().obstacle
        with pytest.raises(RefusedError) as refused:
            act(realm)
        assert obstacle is not None
        assert (obstacle.code, obstacle.message) == (refused.value.code, refused.value.message)
        with Realm.open_read_only(address) as looking:
            assert code_of(obstacle_of(looking.archive, clock)) == "CLOCK_AHEAD"
        clock.set_off(-2 * DAY_MS)
        assert realm._acting.writability().obstacle is None
        assert act(realm) == "completed"


def test_a_writer_epoch_at_another_place_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(address, clock=ManualClock(START)) as realm:
        view = realm.realm()
        monkeypatch.setattr(type(realm.log), "probe", lambda _log, _lock_s: ServerPlace("12", 3))
        assert realm._acting.writability().obstacle is None
        for writer in (WriterEpoch(2, "12", 4), WriterEpoch(2, "13", 3)):
            fenced = view.__class__(
                **{name: getattr(view, name) for name in view.__struct_fields__} | {"writer": writer}
            )
            monkeypatch.setattr(type(realm.archive), "realm", lambda _archive, fenced=fenced: fenced)
            assert code_of(realm._acting.writability().obstacle) == "WRITER_FENCED"


def test_a_domain_that_was_adopted_meanwhile_is_named(address: str) -> None:
    changed = Domain("urn:test:counter", version="9.0.0", state=Counter)
    changed.action("other", version="1")(lambda ctx: [set_("sold", ctx.data["sold"])])
    clock = ManualClock(START)
    with opened(address, clock=clock) as realm:
        with Realm.open_to_adopt(address, domain=changed, clock=clock):
            pass
        assert code_of(realm._acting.writability().obstacle) == "SCHEMA_MISMATCH"
        with pytest.raises(RefusedError) as refused:
            act(realm)
        assert refused.value.code == "SCHEMA_MISMATCH"


def test_a_moved_file_is_named(address: str) -> None:
    with opened(address, clock=ManualClock(START)) as realm:
        Path(address).rename(f"{address}.away")
        assert code_of(realm._acting.writability().obstacle) == "LOG_MOVED"
        Path(f"{address}.away").rename(address)


def test_a_log_that_a_unit_holds_for_no_longer_than_it_may_is_busy(shared_log_url: str) -> None:
    limits = Limits(max_unit_ms=10**9)
    with Realm.create(shared_log_url, domain=counter, policies=[house], limits=limits) as realm:
        begun, may_end = threading.Event(), threading.Event()

        def unit(_work: UnitOfWork) -> None:
            begun.set()
            assert may_end.wait(PATIENCE_S)

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(realm._acting.run, unit)
            assert begun.wait(PATIENCE_S)
            found = realm._acting.writability()
            may_end.set()
            running.result(PATIENCE_S)
        assert found.obstacle is None
        assert found.busy is not None
        assert found.busy.code == "LOG_BUSY"
        assert 0 <= found.busy.details["held_ms"] < limits.max_unit_ms
        assert realm._acting.writability() == Writability()


def test_a_busy_realm_that_would_refuse_a_write_is_not_ready(address: str) -> None:
    clock = ManualClock(START)
    with opened(address, clock=clock, limits=Limits(max_unit_ms=10**9)) as realm:
        assert act(realm) == "completed"
        with holding(Path(address)):
            assert realm._acting.writability().obstacle is None
            clock.set_off(2 * DAY_MS)
            assert code_of(realm._acting.writability().obstacle) == "CLOCK_AHEAD"


def test_a_lock_is_held_too_long_when_probes_find_it_held_without_a_commit(address: str) -> None:
    seconds = [0.0]
    clock = ManualClock(START)
    with open_log(address) as log:
        archive, watch = Archive(log), LockWatch(lambda: seconds[0], 8_000)

        def found() -> Writability:
            return writability(archive, clock, watch, lock_s=0.001)

        with holding(Path(address)) as process:
            assert found().busy is not None
            seconds[0] = 8.0
            busy = found().busy
            assert busy is not None
            assert (busy.details["pid"], busy.details["held_ms"]) == (process.pid, 8_000)
            seconds[0] = 8.001
            obstacle = found().obstacle
            assert isinstance(obstacle, LogBusyError)
            assert (obstacle.details["pid"], obstacle.details["held_ms"]) == (process.pid, 8_001)
        assert found() == Writability()
        with holding(Path(address)):  # it was free meanwhile
            seconds[0] = 40.0
            assert found().busy is not None


def test_a_lock_that_was_released_between_two_probes_is_held_anew() -> None:
    seconds = [0.0]
    watch = LockWatch(lambda: seconds[0], 8_000)

    def is_busy(size: int, pid: int | None) -> bool:
        found = LogBusyError("LOG_BUSY", "Another writer keeps it locked.", **({} if pid is None else {"pid": pid}))
        return watch.note_held(found, size, seconds[0]).busy is not None

    assert is_busy(5, 1)
    seconds[0] = 9.0
    assert is_busy(6, 1)  # something was committed
    assert is_busy(6, 2)  # another process has it
    assert is_busy(6, None)
    seconds[0] = 18.0
    assert not is_busy(6, None)
    watch.note_free()
    assert is_busy(6, None)


def test_a_database_that_knows_for_how_long_the_lock_is_held_decides(postgres_database: str) -> None:
    address = f"{postgres_database}#counter"
    with Realm.create(address, domain=counter, policies=[house]) as realm, open_log(address) as other:
        archive, clock = Archive(realm.log), ManualClock(START)
        long_ago = LockWatch(lambda: 0.0, -1)
        not_yet = LockWatch(lambda: next(far), 10**9)
        far = iter(float(10**7 * number) for number in range(1, 10))
        with other.write(is_unit=True):
            busy = [writability(archive, clock, not_yet, lock_s=0.001).busy for _ in range(2)]
            assert all(one is not None and one.details["held_ms"] < 10**9 for one in busy)
            assert code_of(writability(archive, clock, long_ago, lock_s=0.001).obstacle) == "LOG_BUSY"


def test_a_stopped_process_with_the_lock_is_named_also_to_the_worker_that_waits_for_it(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "FIRST_PAUSE_S", 0.001)
    with opened(address, execute=False) as realm, holding(Path(address)) as process:
        process.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(Path(address)))
        obstacle = realm._acting.writability().obstacle
        assert obstacle is not None
        assert (obstacle.code, obstacle.details["pid"]) == ("LOG_BUSY", process.pid)
        worker = Worker(realm, types=["timer.wait"], name="mule-1")
        said: list[str] = []

        def stopping(_outage: outages.Outage, error: WorldProtocolError) -> bool:
            said.append(error.message)
            worker.stop()
            return True

        monkeypatch.setattr(outages.Outage, "wait", stopping)
        worker.run()
        assert f"process {process.pid}" in said[0]
