"""Event consumers process each event exactly once, though their processes are killed between events and within one."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.persistence import IntegrityError, Tracking
from eventsourcing.projection import Projection
from eventsourcing.sqlite import SQLiteTrackingRecorder
from pydantic import BaseModel
from sqlalchemy import make_url

from tests.plugins.backends import fresh_address
from tests.support.patience import PATIENCE_S
from world.errors import DamagedLogError, RefusedError
from world.events.proposal_events import DecisionMade
from world.events.realm_events import WorldSealed
from world.log import NewEvent, open_log
from worldprotocol import ActionContext, Domain, Realm, set_
from worldprotocol.api.consumers import run_consumer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("consumer_child.py")


class Stock(BaseModel):
    stock: int = 0


class Addition(BaseModel):
    count: int


def stock() -> Domain:
    """Return a domain with one action."""
    domain = Domain("urn:example:stock", version="1.0.0", state=Stock)

    @domain.action("add", version="1")
    def add(ctx: ActionContext, input: Addition) -> list[Any]:  # noqa: A002
        return [set_("stock", ctx.data["stock"] + input.count)]

    return domain


@dataclass(frozen=True)
class Database:
    """The database of a consumer: settings by the library's names, how its table is read, and a log of its kind."""

    log: str
    settings: dict[str, str]
    rows: Callable[[], list[tuple[int, str]]]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Return an empty database for a consumer."""
    query = "SELECT position, topic FROM seen ORDER BY position"
    if request.param == "sqlite":
        file = tmp_path / "seen.db"

        def sqlite_rows() -> list[tuple[int, str]]:
            with closing(sqlite3.connect(file)) as connection:
                return connection.execute(query).fetchall()

        made = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(file)}
        return Database("sqlite-file", made, sqlite_rows)
    text = request.getfixturevalue("postgres_database")
    url = make_url(text)

    def postgres_rows() -> list[tuple[int, str]]:
        with psycopg.connect(text) as connection:
            return connection.execute(query).fetchall()

    settings = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": str(url.database),
        "POSTGRES_HOST": str(url.query["host"]),
        "POSTGRES_PORT": str(url.port or 5432),
        "POSTGRES_USER": str(url.username),
        "POSTGRES_PASSWORD": str(url.password or ""),
    }
    return Database("postgres", settings, postgres_rows)


def founded(address: str) -> Realm:
    """Return a new realm with some events in it."""
    realm = Realm.create(address, domain=stock())
    realm.register("ada", "human", binding={"kind": "auto_approve"})
    act(realm)
    return realm


@pytest.fixture
def realm(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Iterator[tuple[str, Realm]]:
    """Return the address of a realm, on the same kind of database as the consumer's, and the realm."""
    address = fresh_address(database.log, request, tmp_path)
    with founded(address) as realm:
        yield address, realm


@pytest.fixture
def filed(tmp_path: Path) -> Iterator[tuple[str, Realm]]:
    """Return the address of a realm in a file, and the realm."""
    address = str(tmp_path / "filed.db")
    with founded(address) as realm:
        yield address, realm


def act(realm: Realm) -> None:
    """Append the events of one proposal."""
    assert realm.act("ada", "add", {"count": 1}).status == "completed"


def started(address: str, database: Database, mode: str, stop_at: int = 0) -> subprocess.Popen[str]:
    """Start the consumer."""
    settings = {f"SEEN_{name}": value for name, value in database.settings.items()}
    return subprocess.Popen(
        [sys.executable, str(CHILD), address, mode, str(stop_at)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | settings | {"PYTHONPATH": str(ROOT)},
    )


def killed(address: str, database: Database, mode: str, stop_at: int) -> list[int]:
    """Run the consumer up to an event, kill it there, and return the positions it has reported."""
    with started(address, database, mode, stop_at) as child:
        lines = _lines(child)
        reported = []
        for line in lines:
            if line == "waiting":
                child.send_signal(signal.SIGKILL)
                break
            reported.append(int(line))
        else:
            raise AssertionError("the consumer ended by itself")
    assert child.returncode == -signal.SIGKILL
    return reported


def finished(address: str, database: Database, upto: int, mode: str = "after") -> list[int]:
    """Run the consumer up to a position, have it end, and return the positions it has reported."""
    with started(address, database, mode) as child:
        reported = []
        for line in _lines(child):
            reported.append(int(line))
            if reported[-1] == upto:
                break
        assert child.stdin is not None
        child.stdin.close()
        reported += [int(line) for line in _lines(child)]
    assert child.returncode == 0
    return reported


def _lines(child: subprocess.Popen[str]) -> Iterator[str]:
    assert child.stdout is not None
    return (line.strip() for line in child.stdout)


@pytest.mark.parametrize("mode", ["after", "inside"])
def test_a_consumer_that_is_killed_processes_each_event_exactly_once(
    realm: tuple[str, Realm], database: Database, mode: str
) -> None:
    address, acting = realm
    first = killed(address, database, mode, 3)
    assert first == ([1, 2, 3] if mode == "after" else [1, 2])
    second = killed(address, database, mode, 2)
    act(acting)
    size = acting.log.head().size
    third = finished(address, database, size)
    assert first + second + third == list(range(1, size + 1))
    assert database.rows() == [(event.position, event.topic) for event in acting.log.read()]


def test_a_consumer_that_stores_the_position_apart_processes_an_event_twice(
    realm: tuple[str, Realm], database: Database
) -> None:
    address, acting = realm  # it shows that the test above would find that
    killed(address, database, "apart", 3)
    size = acting.log.head().size
    finished(address, database, size)
    assert [position for position, _ in database.rows()] == [1, 2, 3, *range(3, size + 1)]


def test_the_position_is_that_of_the_log_and_not_of_the_database_it_is_in(tmp_path: Path, database: Database) -> None:
    original, copy = tmp_path / "world.db", tmp_path / "copy.db"
    with Realm.create(original, domain=stock()) as acting:
        acting.register("ada", "human", binding={"kind": "auto_approve"})
        size = acting.log.head().size
    with closing(sqlite3.connect(original)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    assert finished(str(original), database, size) == list(range(1, size + 1))
    with Realm.open(copy, domain=stock()) as acting:
        act(acting)
        grown = acting.log.head().size
    assert finished(str(copy), database, grown) == list(range(size + 1, grown + 1))


class Sums(SQLiteTrackingRecorder):
    """What the consumer in this process has processed."""

    processed: list[tuple[int, Any]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.processed = []


class Outcomes(Projection[Sums]):
    """Takes in decisions and worlds, each by the type of the event."""

    topics = (DecisionMade.TOPIC, WorldSealed.TOPIC)

    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        raise AssertionError(f"{domain_event} has another topic")

    @process_event.register
    def _decided(self, domain_event: DecisionMade, tracking: Tracking) -> None:
        self.view.processed.append((tracking.notification_id, domain_event.TOPIC))
        self.view.insert_tracking(tracking)

    @process_event.register
    def _sealed(self, domain_event: WorldSealed, tracking: Tracking) -> None:
        self.view.processed.append((tracking.notification_id, domain_event.TOPIC))
        self.view.insert_tracking(tracking)


def settings(tmp_path: Path) -> dict[str, str]:
    return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(tmp_path / "sums.db")}


def test_a_consumer_is_given_typed_events_of_its_topics_as_they_are_recorded(
    filed: tuple[str, Realm], tmp_path: Path
) -> None:
    address, acting = filed
    with run_consumer(address, Outcomes, Sums, settings(tmp_path)) as runner:
        act(acting)
        expected = [(e.position, e.topic) for e in acting.log.read(topics=Outcomes.topics)]
        runner.wait(expected[-1][0], timeout=PATIENCE_S)
        assert runner.view.processed == expected
        assert runner.app.name == f"world-protocol/{next(iter(acting.events()))[1].log_id}"
        recorder: Any = runner.app.recorder
        assert recorder.read_only
    assert len(expected) == 5  # genesis, and a decision and a world for each of two proposals


def test_a_position_that_is_stored_is_not_stored_again(filed: tuple[str, Realm], tmp_path: Path) -> None:
    address, acting = filed  # so that of two processes of one consumer the slower one fails
    last = [e.position for e in acting.log.read(topics=Outcomes.topics)][-1]
    with run_consumer(address, Outcomes, Sums, settings(tmp_path)) as runner:
        runner.wait(last, timeout=PATIENCE_S)
        with pytest.raises(IntegrityError):
            runner.view.insert_tracking(Tracking(runner.app_name, last))


def test_a_consumer_that_is_ahead_of_its_log_is_refused(filed: tuple[str, Realm], tmp_path: Path) -> None:
    address, acting = filed
    last = [e.position for e in acting.log.read(topics=Outcomes.topics)][-1]
    with run_consumer(address, Outcomes, Sums, settings(tmp_path)) as runner:
        runner.wait(last, timeout=PATIENCE_S)
        runner.view.insert_tracking(Tracking(runner.app_name, 1_000))
    with pytest.raises(RefusedError) as caught:
        run_consumer(address, Outcomes, Sums, settings(tmp_path))
    assert caught.value.code == "CONSUMER_AHEAD"
    assert caught.value.details == {"consumer": "Outcomes", "processed": 1_000, "events": acting.log.head().size}


def test_an_event_that_was_changed_in_the_store_is_not_processed(tmp_path: Path) -> None:
    file = tmp_path / "world.db"
    with Realm.create(file, domain=stock()) as acting:
        acting.register("ada", "human", binding={"kind": "auto_approve"})
        act(acting)
        decided = next(e.position for e in acting.log.read(topics=[DecisionMade.TOPIC]))
        log_id = acting.log.log_id
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(
            "UPDATE wp_event SET state = replace(state, 'auto', 'hand') WHERE log_id = ? AND topic = ?",
            (log_id, DecisionMade.TOPIC),
        )
        assert database.total_changes == 1
    runner = run_consumer(file, Outcomes, Sums, settings(tmp_path))
    with pytest.raises(DamagedLogError, match=str(decided)), runner:
        runner.run_forever(timeout=PATIENCE_S)


@pytest.mark.parametrize("events", [[], [NewEvent("s", "order.shipped", 1, b"{}")]])
def test_a_log_that_is_no_realms_has_no_consumers(tmp_path: Path, events: list[NewEvent]) -> None:
    with open_log(str(tmp_path / "log.db"), create=True) as log:
        log.insert_events(events)
    with pytest.raises(RefusedError, match="founded") if not events else pytest.raises(DamagedLogError):
        run_consumer(tmp_path / "log.db", Outcomes, Sums, settings(tmp_path))
