"""The log passes the test cases that the ``eventsourcing`` library ships for application recorders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from eventsourcing.persistence import (
    ApplicationRecorder,
    DataError,
    IntegrityError,
    Notification,
    OperationalError,
    StoredEvent,
    Subscription,
)
from eventsourcing.tests.persistence import ApplicationRecorderTestCase
from pydantic import BaseModel

from tests.plugins.backends import fresh_address
from world.errors import RefusedError
from world.log import EventLog, InvalidEventError, NewEvent, StreamConflictError, open_log
from world.log.audit import verify_tree
from world.log.recorder import LogNotification
from worldprotocol import ActionContext, Domain, Realm, set_


class Deviations(ApplicationRecorder):
    """What the library's test cases insert, within the two rules of a log that these test cases do not keep.

    - The state is canonical JSON, since it is part of the hashed leaf as it is; the test cases insert ``b"state1"``.
      It is inserted as the JSON string of that text, and returned as the text.
    - Versions of a stream begin at 1, so that a version is the number of its events; the concurrent test cases begin at
      0 whatever ``INITIAL_VERSION`` is. So all begin at 0 here; each version is inserted as the next higher number, and
      returned as it was.

    Streams are named by text (``new_originator_id`` is the library's way to say so). Nothing else is changed, and no
    test case is left out: those that the library calls optional are run, too.
    """

    def __init__(self, log: EventLog) -> None:
        self.log = log

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        return self.log.insert_events(
            [
                StoredEvent(
                    event.originator_id,
                    event.originator_version + 1,
                    event.topic,
                    json.dumps(event.state.decode()).encode(),
                )
                for event in stored_events
            ],
            **kwargs,
        )

    def select_events(self, originator_id: UUID | str, **kwargs: Any) -> Sequence[StoredEvent]:
        bounds = {name: None if kwargs.get(name) is None else kwargs[name] + 1 for name in ("gt", "lte")}
        found = self.log.select_events(originator_id, **{**kwargs, **bounds})
        return [
            StoredEvent(e.originator_id, e.originator_version - 1, e.topic, json.loads(e.state).encode()) for e in found
        ]

    def select_notifications(self, *args: Any, **kwargs: Any) -> Sequence[Notification]:
        return [_as_inserted(found) for found in self.log.select_notifications(*args, **kwargs)]

    def max_notification_id(self) -> int | None:
        return self.log.max_notification_id()

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        return cast("Subscription[ApplicationRecorder]", _AsInserted(self.log.subscribe(gt, topics)))


class _AsInserted(Iterator[Notification]):
    def __init__(self, subscription: Subscription[ApplicationRecorder]) -> None:
        self.subscription = subscription
        self.stop = subscription.stop

    def __enter__(self) -> _AsInserted:
        self.subscription.__enter__()
        return self

    def __exit__(self, *told: object) -> None:
        self.subscription.__exit__(*told)

    def __next__(self) -> Notification:
        return _as_inserted(next(self.subscription))


def _as_inserted(found: Notification) -> Notification:
    version, state = found.originator_version - 1, json.loads(found.state).encode()
    return Notification(found.originator_id, version, found.topic, state, found.id)


class LogRecorderTestCase(ApplicationRecorderTestCase[ApplicationRecorder]):
    INITIAL_VERSION = 0
    backend = ""
    logs: list[EventLog]

    @pytest.fixture(autouse=True)
    def _logs(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
        self.request, self.tmp_path, self.logs = request, tmp_path, []
        yield
        for log in self.logs:
            assert verify_tree(log) == []
            log.close()

    def new_originator_id(self) -> str:
        return str(uuid4())

    def create_recorder(self) -> ApplicationRecorder:
        log = open_log(fresh_address(self.backend, self.request, self.tmp_path), create=True)
        self.logs.append(log)
        return Deviations(log)

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestSqliteFile(LogRecorderTestCase):
    backend = "sqlite-file"


class TestSqliteMemory(LogRecorderTestCase):
    backend = "sqlite-memory"


class TestPostgres(LogRecorderTestCase):
    backend = "postgres"


del ApplicationRecorderTestCase, LogRecorderTestCase  # abstract; pytest would collect them


@pytest.fixture
def log(log_url: str) -> Iterator[EventLog]:
    with open_log(log_url, create=True) as log:
        yield log


def test_the_log_itself_is_the_recorder(log: EventLog) -> None:
    assert isinstance(log, ApplicationRecorder)
    assert EventLog.insert_events.__module__ == "world.log.log"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (StoredEvent("s", 0, "t", b"{}"), DataError),
        (StoredEvent("s", -1, "t", b"{}"), DataError),
        (StoredEvent("s", 3, "t", b"{}"), IntegrityError),
        (StoredEvent("s", 1, "t", b"{}"), IntegrityError),
        (StoredEvent("", 1, "t", b"{}"), DataError),
        (StoredEvent("s", 2, "t", b'{"b":1,"a":1}'), DataError),
        (StoredEvent("s", 2, "t", b'"%b"' % (b"x" * (5 << 20))), DataError),
    ],
)
def test_a_refusal_is_an_exception_of_the_engine_and_of_the_library(
    log: EventLog, event: StoredEvent, expected: type[Exception]
) -> None:
    log.insert_events([NewEvent("s", "t", 1, b"{}")])
    with pytest.raises(expected) as caught:
        log.insert_events([event])
    assert isinstance(caught.value, RefusedError)
    assert type(caught.value) in (StreamConflictError, InvalidEventError)
    assert log.max_notification_id() == 1


def test_a_conflict_found_by_the_database_is_the_same_exception(log: EventLog) -> None:
    log.insert_events([NewEvent("s", "t", 1, b"{}")])
    with open_log_again(log) as other, pytest.raises(IntegrityError) as caught:  # it remembers no stream
        other.insert_events([NewEvent("s", "t", 1, b"{}", 1)])
    assert isinstance(caught.value, StreamConflictError)


def open_log_again(log: EventLog) -> EventLog:
    """Return the log as another object; one in memory exists once, and forgets what it remembers of streams."""
    if log.address.path != ":memory:":
        return open_log(str(log.address) if log.address.url is None else _with_password(log))
    assert log._memory is not None
    log._memory.versions.clear()
    return log


def _with_password(log: EventLog) -> str:
    assert log.address.url is not None
    return f"{log.address.url.render_as_string(hide_password=False)}#{log.name}"


def test_failures_of_the_storage_are_the_librarys_operational_error(log: EventLog) -> None:
    log.close()
    for call in (
        lambda: log.insert_events([NewEvent("s", "t", 1, b"{}")]),
        lambda: log.select_events("s"),
        lambda: log.select_notifications(None, 1),
        log.max_notification_id,
        lambda: next(log.subscribe()),
    ):
        with pytest.raises(OperationalError) as caught:
            call()
        assert isinstance(caught.value.__cause__, RefusedError)
        assert caught.value.__cause__.code == "LOG_CLOSED"


def test_events_inserted_in_a_transaction_are_committed_with_it(log: EventLog) -> None:
    with pytest.raises(StreamConflictError), log.write() as transaction:
        log.insert_events([NewEvent("s", "t", 1, b"{}"), NewEvent("s", "t", 1, b"{}", 7)], transaction=transaction)
    assert log.max_notification_id() is None
    with log.write() as transaction:
        assert log.insert_events([NewEvent("s", "t", 1, b"1")], transaction=transaction) == [1]
        assert log.insert_events([NewEvent("s", "t", 7, b"2")], transaction=transaction) == [2]
    assert [head.size for head in log.heads()] == [2]
    (last,) = log.select_notifications(2, 1)
    assert last == LogNotification("s", 2, "t", b"2", 2, 7, log.event_at(2).leaf)


class Stock(BaseModel):
    stock: int = 0


class Addition(BaseModel):
    count: int


def shop_realm(folder: Path) -> Realm:
    """Return a new realm in a file, with an actor whose actions are approved."""
    shop = Domain("urn:example:stock", version="1.0.0", state=Stock)

    @shop.action("add", version="1")
    def add(ctx: ActionContext, input: Addition) -> list[Any]:  # noqa: A002
        return [set_("stock", ctx.data["stock"] + input.count)]

    realm = Realm.create(folder / "world.db", domain=shop)
    realm.register("ada", "human", binding={"kind": "auto_approve"})
    return realm


def test_the_engine_appends_through_the_recorder_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inserted: list[StoredEvent] = []
    insert = EventLog.insert_events

    def observed(self: EventLog, stored_events: Sequence[StoredEvent], **kwargs: Any) -> list[int]:
        inserted.extend(stored_events)
        return insert(self, stored_events, **kwargs)

    monkeypatch.setattr(EventLog, "insert_events", observed)
    with shop_realm(tmp_path) as realm:
        assert realm.act("ada", "add", {"count": 3}).status == "completed"
        logged = [(e.stream, e.topic, e.schema_version, e.state) for e in realm.log.read()]
    assert all(isinstance(event, StoredEvent) for event in inserted)
    assert [(e.originator_id, e.topic, getattr(e, "schema_version", 0), e.state) for e in inserted] == logged
    assert len(logged) > 5


def test_an_event_that_is_none_of_the_realms_is_not_inserted_into_its_log(tmp_path: Path) -> None:
    with shop_realm(tmp_path) as realm:
        size = realm.log.max_notification_id()
        with pytest.raises(OperationalError, match=r"order\.shipped"):
            realm.log.insert_events([StoredEvent("order-1", 1, "order.shipped", b"{}")])
        assert realm.log.max_notification_id() == size
        assert realm.act("ada", "add", {"count": 3}).status == "completed"
        assert realm.data() == {"stock": 3}


HEAVY = ("eventsourcing.application", "eventsourcing.projection", "eventsourcing.system", "eventsourcing.dcb")


def imported_by(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has imported after running a line."""
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules, sep='\\n')"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    return set(done.stdout.split("\n"))


def test_the_log_imports_the_librarys_recorders_and_neither_its_applications_nor_its_runners() -> None:
    modules = imported_by("import world.log, world.log.audit")
    assert "eventsourcing.persistence" in modules
    assert modules.isdisjoint(HEAVY)


def test_the_help_of_the_command_line_does_not_import_the_library() -> None:
    modules = imported_by(
        "from worldprotocol.cli.main import main\nimport sys\nsys.argv = ['worldctl', '--help']\n"
        "try: main()\nexcept SystemExit: pass"
    )
    assert "worldprotocol.cli.main" in modules
    assert not [name for name in modules if name.startswith(("eventsourcing", "world.log"))]
