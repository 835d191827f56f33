from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from eventsourcing.application import LocalNotificationLog
from eventsourcing.persistence import (
    DataError,
    DatetimeAsISO,
    EventStore,
    InfrastructureFactory,
    IntegrityError,
    Mapper,
    OperationalError,
    StoredEvent,
)

from world.log import EventLog, NewEvent, open_log
from world.log.audit import verify_tree
from world.log.persistence import (
    CanonicalTranscoder,
    LogFactory,
    RecordedEvent,
    RecordedEventMapper,
)


@dataclass(frozen=True)
class ThingHappened:
    originator_id: str
    originator_version: int
    timestamp: datetime
    zeta: int
    alpha: list[str]


@dataclass(frozen=True)
class UuidEvent:
    originator_id: UUID
    originator_version: int
    note: str


@pytest.fixture
def recorder(log_url: str) -> Iterator[EventLog]:
    with open_log(log_url, create=True) as log:
        yield log


def stored(stream: str, version: int, state: bytes = b"{}", topic: str = "t") -> StoredEvent:
    return StoredEvent(stream, version, topic, state)


def test_what_the_library_inserts_is_part_of_the_tree(recorder: EventLog) -> None:
    assert recorder.insert_events([stored("a", 1), stored("b", 1)]) == [1, 2]
    assert recorder.insert_events([stored("a", 2, b'{"x":1}')]) == [3]
    assert recorder.insert_events([]) == []
    assert recorder.max_notification_id() == 3
    assert [head.size for head in recorder.heads()] == [2, 3]
    assert verify_tree(recorder) == []


def test_an_empty_log_has_no_notification(recorder: EventLog) -> None:
    assert recorder.max_notification_id() is None
    assert recorder.select_notifications(None, 10) == []


@pytest.mark.parametrize("version", [1, 2, 4])
def test_a_version_conflict_is_the_librarys_integrity_error(recorder: EventLog, version: int) -> None:
    recorder.insert_events([stored("a", 1), stored("a", 2)])
    with pytest.raises(IntegrityError):
        recorder.insert_events([stored("b", 1), stored("a", version)])
    assert recorder.max_notification_id() == 2
    assert recorder.select_events("b") == []


@pytest.mark.parametrize("state", [b"no json", b'{"a": 1}', b'{"b":1,"a":1}', b"1.0", b"\xff", b"", b'{"a":1,"a":1}'])
def test_a_state_that_is_not_canonical_json_is_refused(recorder: EventLog, state: bytes) -> None:
    with pytest.raises(DataError):
        recorder.insert_events([stored("a", 1, state)])
    assert recorder.max_notification_id() is None


def test_the_library_selects_the_events_of_a_stream(recorder: EventLog) -> None:
    recorder.insert_events([stored("a", version, b"%d" % version) for version in range(1, 6)])
    assert [e.originator_version for e in recorder.select_events("a")] == [1, 2, 3, 4, 5]
    assert [e.state for e in recorder.select_events("a", gt=1, lte=4)] == [b"2", b"3", b"4"]
    assert [e.originator_version for e in recorder.select_events("a", desc=True, limit=2)] == [5, 4]
    assert recorder.select_events("a", gt=9) == []


def test_the_library_selects_notifications(recorder: EventLog) -> None:
    recorder.insert_events([stored("a", n, topic="odd" if n % 2 else "even") for n in range(1, 10)])
    select = recorder.select_notifications
    assert [n.id for n in select(None, 3)] == [1, 2, 3]
    assert [n.id for n in select(3, 10, 5)] == [3, 4, 5]
    assert [n.id for n in select(3, 10, 5, inclusive_of_start=False)] == [4, 5]
    assert [n.id for n in select(2, 3, topics=["odd"])] == [3, 5, 7]
    assert [n.id for n in select(0, 2)] == [1, 2]
    assert select(10, 5) == []


def test_the_librarys_event_store_writes_and_reads_our_log(recorder: EventLog) -> None:
    transcoder = CanonicalTranscoder()
    transcoder.register(DatetimeAsISO())
    store: EventStore[str] = EventStore(Mapper(transcoder), recorder)
    when = datetime(2024, 5, 1, tzinfo=UTC)
    events = [ThingHappened("s", version, when, version, ["x", "é"]) for version in (1, 2)]
    recordings = store.put(events)
    assert [recording.notification.id for recording in recordings] == [1, 2]
    assert list(store.get("s")) == events
    assert verify_tree(recorder) == []


def test_events_with_uuids_keep_them_as_text(recorder: EventLog) -> None:
    store: EventStore[UUID] = EventStore(Mapper(CanonicalTranscoder()), recorder)
    event = UuidEvent(uuid4(), 1, "x")
    store.put([event])
    assert recorder.event_at(1).stream == str(event.originator_id)
    assert [e.originator_version for e in recorder.select_events(event.originator_id)] == [1]


def test_the_librarys_notification_log_reads_what_the_engine_wrote(recorder: EventLog) -> None:
    with recorder.write() as transaction:
        transaction.append([NewEvent("s", "proposal.submitted", 1, b'{"n":%d}' % n) for n in range(25)])
    section = LocalNotificationLog(recorder, section_size=10)["11,20"]
    assert [item.id for item in section.items] == list(range(11, 21))
    assert section.items[0].state == b'{"n":10}'


def test_events_of_any_topic_are_read_without_a_class(recorder: EventLog) -> None:
    with recorder.write() as transaction:
        transaction.append([NewEvent("s", "proposal.submitted", 1, b'{"n":1}')])
    store: EventStore[str] = EventStore(RecordedEventMapper(CanonicalTranscoder()), recorder)
    assert list(store.get("s")) == [RecordedEvent("s", 1, "proposal.submitted", {"n": 1})]
    store.put([RecordedEvent("s", 2, "proposal.decided", {"b": 1, "a": 2})])
    assert recorder.event_at(2).state == b'{"a":2,"b":1}'


def test_a_subscription_gets_what_is_there_and_what_comes(recorder: EventLog) -> None:
    recorder.insert_events([stored("a", n, topic="odd" if n % 2 else "even") for n in range(1, 4)])
    with recorder.subscribe(gt=1) as subscription:
        assert [next(subscription).id for _ in range(2)] == [2, 3]
        writer = threading.Thread(target=recorder.insert_events, args=([stored("b", 1)],))
        writer.start()
        assert next(subscription).id == 4
        writer.join()
        subscription.stop()
        assert list(subscription) == []
    with recorder.subscribe(topics=["even"]) as subscription:
        assert next(subscription).id == 2


def test_the_library_finds_the_log_by_its_environment(shared_log_url: str) -> None:
    env = {"PERSISTENCE_MODULE": "world.log.persistence", "WORLD_LOG": shared_log_url}
    factory: InfrastructureFactory[Any] = InfrastructureFactory.construct(env)
    assert isinstance(factory, LogFactory)
    with factory:
        recorder = factory.application_recorder()
        assert isinstance(factory.transcoder(), CanonicalTranscoder)
        store: EventStore[UUID] = factory.event_store()
        store.put([UuidEvent(uuid4(), 1, "x")])
        assert recorder.max_notification_id() == 1
        assert factory.aggregate_recorder().select_events("nobody") == []
        for refused in (
            factory.process_recorder,
            factory.tracking_recorder,
            lambda: factory.aggregate_recorder("snapshots"),
        ):
            with pytest.raises(NotImplementedError):
                refused()
    factory.close()
    factory.close()


def test_an_environment_without_an_address_is_refused(tmp_path: Any) -> None:
    with pytest.raises(OSError, match="WORLD_LOG"):
        LogFactory({})
    with pytest.raises(OperationalError, match="no file"):
        LogFactory({"WORLD_LOG": str(tmp_path / "no.db"), "CREATE_TABLE": "no"}).application_recorder()


def test_what_imports_the_library_s_domain_layer_is_as_the_decision_record_says() -> None:
    """ADR 2: the package alone does not, its public names do, and dataclasses of others stay as they are."""
    code = """
import dataclasses, sys
import worldprotocol
assert "eventsourcing.domain" not in sys.modules
from worldprotocol import Realm
assert "eventsourcing.domain" in sys.modules

@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int = 1

assert (Point(), Point.__slots__) == (Point(1), ("x",))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
