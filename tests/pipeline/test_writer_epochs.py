"""Writer epochs: a log is written at one place, is closed to writers there, and goes on at another."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.works import Held, Outside, a_yard, acting, check_log, reopened, running, topics
from tests.support.engines import engine_of
from world.audit.verify import verify
from world.clock import ManualClock
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.codec import encode_event
from world.events.realm_events import EnforcementChosen
from world.events.writer_events import WriterClosed, WriterOpened
from world.log import NewEvent, open_log
from world.log.log import EventLog
from world.log.values import ServerPlace
from world.read_models.decoding import decoded, state_of
from worldprotocol.api.realm import Realm

A = "postgresql://db.example/worlds#main"


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Have all logs say that they are on a server."""

    def be(system: str, timeline: int) -> None:
        monkeypatch.setattr(EventLog, "place", lambda _log: ServerPlace(system, timeline))

    return be


def act(world: Realm) -> Any:
    return world.act("ann", "do", {"what": ["x"]})


def last(world: Realm) -> Any:
    size = world.log.head().size
    (logged,) = world.log.read(size - 1)
    return decoded(logged)


def founding(world: Realm) -> dict[str, Any]:
    """Return the state of the event that founded a log."""
    return dict(state_of(next(world.log.read())))


def of_writers(world: Realm) -> list[Any]:
    return [decoded(one) for one in world.log.read(topics=[WriterOpened.TOPIC, WriterClosed.TOPIC])]


# Closing and opening


def test_nothing_is_appended_after_the_log_was_closed_to_writers(address: str) -> None:
    with a_yard(address, Outside()) as world:
        act(world)
        assert engine_of(world).close_writer("move", by="ann", target=A) == 0
        size = world.log.head().size
        for attempt in (lambda: act(world), lambda: world.register("new", "human"), world.settle):
            with pytest.raises(RefusedError) as refused:
                attempt()
            assert refused.value.code == "LOG_FENCED"
            assert A not in refused.value.message  # the move may not have ended
        with pytest.raises(RefusedError, match="was closed to writers"):
            engine_of(world).close_writer("archive", by="ann")
        assert world.realm().next_due() is None
        assert world.log.head().size == size
    with pytest.raises(RefusedError, match="was closed to writers"):
        reopened(address, Outside())  # another process learns it from the log
    check_log(address)


def test_readers_of_a_closed_log_read_it(address: str) -> None:
    with a_yard(address, Outside()) as world:
        act(world)
        engine_of(world).close_writer("archive", by="ann")
    with Realm.open_read_only(address) as looked:
        assert looked.data()["done"] == ["x"]


def test_a_log_goes_on_with_the_next_epoch(address: str) -> None:
    with a_yard(address, Outside()) as world:
        act(world)
        engine_of(world).close_writer("move", by="ann", target=A)
        assert engine_of(world).open_writer("move", by="bob") == 1
        assert act(world).status == "completed"
        assert world.realm().writer.epoch == 1
        assert [event.TOPIC for event in of_writers(world)] == ["writer.closed", "writer.opened"]
        engine_of(world).close_writer("archive", by="ann")
        assert engine_of(world).open_writer("restore", by="ann") == 2
    with reopened(address, Outside()) as again:
        assert again.realm().writer == again._archive.fold_realm().writer
        assert act(again).status == "completed"
    check_log(address)


def test_an_open_log_is_not_opened_again(address: str) -> None:
    with a_yard(address, Outside()) as world:
        with pytest.raises(RefusedError) as refused:
            engine_of(world).open_writer("move", by="ann")
        assert refused.value.code == "WRITER_OPEN"
        assert of_writers(world) == []
        assert engine_of(world).open_writer("restore", by="ann") == 1  # a copy whose original was lost
        assert act(world).status == "completed"


@pytest.mark.requirement("WP-exec", "HC-journal")
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_was_under_way_when_the_log_was_closed_is_continued_by_the_next_epoch(
    address: str, idempotent: bool
) -> None:
    held, outside = Held(), Outside()
    with a_yard(address, Outside(held), idempotent=idempotent) as world:
        parts = {"clock": ManualClock(2_000, 1)}
        with reopened(address, outside, parts=parts, idempotent=idempotent) as other:
            with acting(world, "ann", "do", {"what": ["x"]}) as ended:
                held.begun.wait()
                name = running(world)
                engine_of(other).close_writer("move", by="ann", target=A)
                held.may_go.set()
            assert isinstance(ended[0], RefusedError)
            assert ended[0].code == "LOG_FENCED"
            assert "effect.fulfilled" not in topics(world, name)  # what comes in too late is not recorded
            engine_of(other).open_writer("move", by="ann")
            other.settle()
            if idempotent:
                assert outside.keys == [held.call.idempotency_key]
                assert other.proposal(name).status == "completed"
            else:
                assert outside.done == []
                assert [one["proposalId"] for one in other.host.stuck()] == [name]
    check_log(address)


def test_an_effect_that_the_closing_unit_takes_over_is_left_to_the_next_epoch(address: str) -> None:
    held, outside = Held(), Outside()
    with a_yard(address, Outside(held), idempotent=True) as world, acting(world, "ann", "do", {"what": ["x"]}):
        held.begun.wait()
        clock = ManualClock(2_000, 1)
        with reopened(address, outside, parts={"clock": clock}, idempotent=True) as other:
            clock.advance(10_000_000)  # the effect is overdue, so that the unit takes it over before it closes
            assert engine_of(other).close_writer("move", by="ann", target=A) == 0
            assert outside.keys == []
            engine_of(other).open_writer("move", by="ann")
            other.settle()
            assert outside.keys == [held.call.idempotency_key]
            held.may_go.set()
    check_log(address)


def test_an_effect_that_was_requested_before_the_log_was_closed_is_not_begun(address: str) -> None:
    outside = Outside()
    with a_yard(address, outside) as world:
        engine = engine_of(world)

        perform = engine.perform

        def closed_first(task: Any) -> Any:
            engine.perform = perform  # type: ignore[method-assign]
            engine.close_writer("archive", by="ann")
            return perform(task)

        engine.perform = closed_first  # type: ignore[method-assign]
        with pytest.raises(RefusedError, match="was closed to writers"):
            act(world)
        assert outside.done == []


# Database servers


def test_a_log_that_was_founded_in_a_file_belongs_to_timeline_1_of_any_server(
    address: str, server: Callable[[str, int], None]
) -> None:
    with a_yard(address, Outside()) as world:
        act(world)
        assert set(founding(world)) == {"at", "enforcement", "format", "logId", "logic"}
        for system in ("7001", "7002"):
            server(system, 1)
            act(world)
        assert of_writers(world) == []


def test_a_copy_of_a_log_in_its_first_epoch_is_refused_on_another_server(
    address: str, server: Callable[[str, int], None]
) -> None:
    server("7001", 1)
    with a_yard(address, Outside()) as world:
        act(world)
        assert {"system": "7001", "timeline": 1}.items() <= founding(world).items()
        size = world.log.head().size
        server("7002", 1)
        with pytest.raises(RefusedError) as refused:
            act(world)
        assert refused.value.code == "WRITER_FENCED"
        assert "Since epoch 0" in refused.value.message
        with pytest.raises(RefusedError, match="a copy"):
            reopened(address, Outside())
        assert world.log.head().size == size
        engine_of(world).open_writer("restore", by="ann")
        assert act(world).status == "completed"
    check_log(address)


def test_the_first_writer_on_a_new_timeline_begins_the_next_epoch(
    address: str, server: Callable[[str, int], None]
) -> None:
    server("7001", 1)
    with a_yard(address, Outside()) as world:
        act(world)
        server("7001", 2)
        act(world)
        act(world)
        assert [(one.epoch, one.reason, one.timeline) for one in of_writers(world)] == [(1, "failover", 2)]
        with reopened(address, Outside()) as other:
            act(other)
            server("7001", 5)
            act(other)
        act(world)
        assert [(one.epoch, one.timeline) for one in of_writers(world)] == [(1, 2), (2, 5)]
    check_log(address)


def test_a_realm_may_be_founded_on_a_later_timeline(address: str, server: Callable[[str, int], None]) -> None:
    server("7001", 3)
    with a_yard(address, Outside()) as world:
        assert {"system": "7001", "timeline": 3}.items() <= founding(world).items()
        act(world)
        assert of_writers(world) == []
        server("7001", 2)
        with pytest.raises(RefusedError, match="another server was promoted"):
            act(world)
    check_log(address)


@pytest.mark.parametrize(("system", "timeline"), [("7001", 1), ("7002", 2), ("7002", 9)])
def test_an_old_primary_and_a_copy_are_refused(
    address: str, server: Callable[[str, int], None], system: str, timeline: int
) -> None:
    server("7001", 2)
    with a_yard(address, Outside()) as world:
        act(world)
        size = world.log.head().size
        server(system, timeline)
        with pytest.raises(RefusedError) as refused:
            act(world)
        assert refused.value.code == "WRITER_FENCED"
        assert world.log.head().size == size
        server("7001", 2)
        assert act(world).status == "completed"


def test_a_copy_goes_on_when_somebody_says_so(address: str, server: Callable[[str, int], None]) -> None:
    server("7001", 2)
    with a_yard(address, Outside()) as world:
        server("7002", 1)
        engine_of(world).open_writer("restore", by="ann")
        assert act(world).status == "completed"
        server("7001", 2)
        with pytest.raises(RefusedError, match="the log is written on"):
            act(world)
    check_log(address)


def test_a_postgres_server_says_where_it_is(postgres_url: str) -> None:
    with open_log(f"{postgres_url}#place", create=True) as log:
        assert log.place() is None  # it is asked with the first write
        with log.write():
            place = log.place()
        assert place is not None
        assert place.system.isdecimal()
        assert place.timeline == 1


def test_a_file_is_no_server(address: str) -> None:
    with open_log(address, create=True) as log, log.write():
        assert log.place() is None


# Verification


def test_an_event_after_the_end_of_an_epoch_is_found(address: str) -> None:
    with a_yard(address, Outside()) as world:
        act(world)
        engine_of(world).close_writer("archive", by="ann")
        later = EnforcementChosen(at=10**12, enforcement="trusting", by="mallory")
        world.log.insert_events([NewEvent("realm", later.TOPIC, 1, encode_event(later))])
    with open_log(address, read_only=True) as log:
        found = verify(log)
        assert next((one.code, one.position) for one in found.findings) == (ErrorCode.BAD_EPOCH, log.head().size)


@pytest.mark.parametrize(
    "event",
    [
        WriterOpened(at=10**12, epoch=2, reason="restore", by="mallory"),
        WriterClosed(at=10**12, epoch=1, reason="archive", by="mallory"),
    ],
)
def test_an_epoch_that_does_not_follow_is_found(address: str, event: Any) -> None:
    with a_yard(address, Outside()) as world:
        act(world)
    with open_log(address) as log:
        log.insert_events([NewEvent("realm", event.TOPIC, 1, encode_event(event))])
    with open_log(address, read_only=True) as log:
        codes = {one.code for one in verify(log).findings}
    assert ErrorCode.BAD_EPOCH in codes


def test_the_events_are_written_as_they_were_in_the_first_release(address: str) -> None:
    with a_yard(address, Outside()) as world:
        engine_of(world).close_writer("move", by="ann", target=A)
        engine_of(world).open_writer("move", by="bob")
    with sqlite3.connect(address) as connection:
        stored = connection.execute("SELECT topic, state FROM wp_event WHERE topic LIKE 'writer.%' ORDER BY id")
        texts = [(topic, state.partition(',"')[2]) for topic, state in stored]
    assert texts == [
        ("writer.closed", f'by":"ann","epoch":0,"reason":"move","target":"{A}"}}'),
        ("writer.opened", 'by":"bob","epoch":1,"reason":"move"}'),
    ]
