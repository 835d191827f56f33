"""Whether a realm would accept a write now: each cause that refuses a command is the answer before one is tried."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.counter import Counter, counter, house
from tests.log.test_sqlite_lock_holder import eventually, holding, is_stopped
from world.clock import ManualClock
from world.core import Domain, set_
from world.engine.writability import write_obstacle
from world.errors import RefusedError, WorldProtocolError
from world.events.verification import UNAUTHENTICATED
from world.log import open_log
from world.log.values import ServerPlace
from world.read_models.archive import Archive
from world.read_models.index import WorldIndex
from world.state.writer_epoch import WriterEpoch
from worldprotocol import Realm, Worker
from worldprotocol.api.waiting import outages

START = 1_700_000_000_000
DAY_MS = 86_400_000


def act(realm: Realm) -> str:
    return realm.act("ann", "sell", {"item": "tea"}).status


def code_of(error: WorldProtocolError | None) -> str | None:
    return None if error is None else error.code


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
        assert realm._acting.write_obstacle() is None
        assert realm.as_caller(UNAUTHENTICATED)._acting.write_obstacle() is None
        with Realm.open_read_only(shared_log_url) as looking:
            assert write_obstacle(looking.archive, ManualClock(START)) is None or realm.log.backend != "sqlite"
        assert realm.log.head() == before
        assert act(realm) == "completed"
        assert realm._acting.write_obstacle() is None


def test_a_log_that_was_not_founded_is_named(tmp_path: Path) -> None:
    place = str(tmp_path / "empty.db")
    with open_log(place, create=True, view=WorldIndex(checkpoint_every=16)) as log:
        assert code_of(write_obstacle(Archive(log), ManualClock(START))) == "NOT_FOUNDED"


def test_a_clock_that_commands_refuse_is_named_until_it_is_right(address: str) -> None:
    clock = ManualClock(START)
    with opened(address, clock=clock) as realm:
        assert act(realm) == "completed"
        clock.set_off(2 * DAY_MS)
        obstacle = realm._acting.write_obstacle()
        with pytest.raises(RefusedError) as refused:
            act(realm)
        assert obstacle is not None
        assert (obstacle.code, obstacle.message) == (refused.value.code, refused.value.message)
        with Realm.open_read_only(address) as looking:
            assert code_of(write_obstacle(looking.archive, clock)) == "CLOCK_AHEAD"
        clock.set_off(-2 * DAY_MS)
        assert realm._acting.write_obstacle() is None
        assert act(realm) == "completed"


def test_a_writer_epoch_at_another_place_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(address, clock=ManualClock(START)) as realm:
        view = realm.realm()
        monkeypatch.setattr(type(realm.log), "probe", lambda _log, _lock_s: ServerPlace("12", 3))
        assert realm._acting.write_obstacle() is None
        for writer in (WriterEpoch(2, "12", 4), WriterEpoch(2, "13", 3)):
            fenced = view.__class__(
                **{name: getattr(view, name) for name in view.__struct_fields__} | {"writer": writer}
            )
            monkeypatch.setattr(type(realm.archive), "realm", lambda _archive, fenced=fenced: fenced)
            assert code_of(realm._acting.write_obstacle()) == "WRITER_FENCED"


def test_a_domain_that_was_adopted_meanwhile_is_named(address: str) -> None:
    changed = Domain("urn:test:counter", version="9.0.0", state=Counter)
    changed.action("other", version="1")(lambda ctx: [set_("sold", ctx.data["sold"])])
    clock = ManualClock(START)
    with opened(address, clock=clock) as realm:
        with Realm.open_to_adopt(address, domain=changed, clock=clock):
            pass
        assert code_of(realm._acting.write_obstacle()) == "SCHEMA_MISMATCH"
        with pytest.raises(RefusedError) as refused:
            act(realm)
        assert refused.value.code == "SCHEMA_MISMATCH"


def test_a_moved_file_is_named(address: str) -> None:
    with opened(address, clock=ManualClock(START)) as realm:
        Path(address).rename(f"{address}.away")
        assert code_of(realm._acting.write_obstacle()) == "LOG_MOVED"
        Path(f"{address}.away").rename(address)


def test_a_stopped_process_with_the_lock_is_named_also_to_the_worker_that_waits_for_it(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "FIRST_PAUSE_S", 0.001)
    with opened(address, execute=False) as realm, holding(Path(address)) as process:
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: is_stopped(Path(address)))
        obstacle = realm._acting.write_obstacle()
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
