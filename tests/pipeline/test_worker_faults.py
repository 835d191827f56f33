"""Workers under faults: reports that cannot be printed, retries, a log that is away, and callers that err."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from host import EffectFailure, handler
from host.effects import EffectHandler
from tests.pipeline.offering import START, answered, claimed, offering, room, work_in
from tests.pipeline.test_worker import await_event, here, running, upper
from tests.pipeline.works import check_log, topics
from tests.support.patience import PATIENCE_S
from tests.waiting.till import until
from world.clock import ManualClock, SystemClock
from world.errors import LogBusyError, RefusedError, WorldProtocolError
from world.events.execution_events import EffectFulfilled
from world.model.snapshot import EffectAnswer
from worldprotocol import Worker
from worldprotocol.api.executing.effect_source import RealmSource
from worldprotocol.api.executing.worker import WorkerReport

pytestmark = pytest.mark.requirement("HC-journal", "HC-handlers")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


def failing_first(times: int, backoff_ms: int) -> tuple[EffectHandler, list[float]]:
    """Return a handler that fails at first, and the list of the times at which it was called."""
    calls: list[float] = []

    @handler("work", idempotent=True, retries=times, backoff_ms=backoff_ms)
    def unsteady(_params: Any, _call: Any) -> Any:
        calls.append(time.monotonic())
        return EffectFailure("BUSY", "later", retryable=True) if len(calls) <= times else "done"

    return unsteady, calls


def test_a_running_worker_makes_a_retry_when_its_backoff_ends(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It slept for a minute, because nothing is committed when a backoff ends."""
    pauses: list[float] = []
    pause = RealmSource.pause_s

    def noted(self: RealmSource, retry: int | None, now: int) -> float:
        pauses.append(pause(self, retry, now))
        return pauses[-1]

    monkeypatch.setattr(RealmSource, "pause_s", noted)
    unsteady, calls = failing_first(1, 300)
    with offering(address, clock=SystemClock(), idempotent=True, retries=1, backoff_ms=300) as realm:  # type: ignore[arg-type]
        with here(address, unsteady) as other, running(Worker(other)):
            name = work_in(realm, "a")
            await_event(realm, lambda event: isinstance(event, EffectFulfilled))
        assert realm.proposal(name).status == "completed"
    assert len(calls) == 2
    assert any(one <= 0.3 for one in pauses)
    check_log(address, domain=room)


def test_a_worker_that_runs_once_waits_for_the_retry_and_counts_the_effect_at_its_end(address: str) -> None:
    unsteady, calls = failing_first(2, 1)
    reports: list[WorkerReport] = []
    with offering(address, clock=SystemClock(), idempotent=True, retries=2, backoff_ms=1) as realm:  # type: ignore[arg-type]
        name = work_in(realm, "a")
        with here(address, unsteady) as other:
            summary = Worker(other, on_report=reports.append).run(once=True)
        assert realm.proposal(name).status == "completed"
    assert len(calls) == 3
    assert (summary.completed, summary.failed, summary.lost) == (1, 0, 0)
    assert [one.kind for one in reports if one.kind != "claimed"] == ["retried", "retried", "completed"]
    assert reports[1].code == "BUSY"


def test_a_report_that_raises_ends_the_worker_and_loses_no_effect(address: str) -> None:
    """A worker whose output was closed claimed every effect and performed none."""

    def closed(_report: WorkerReport) -> None:
        raise BrokenPipeError("the reader is gone")

    with offering(address, clock=SystemClock()) as realm:  # type: ignore[arg-type]
        first, second = work_in(realm, "a"), work_in(realm, "b")
        with here(address, upper) as other, pytest.raises(BrokenPipeError, match="the reader"):
            Worker(other, on_report=closed).run()
        assert realm.proposal(first).status == "completed"
        assert [one.state for one in realm.offered_effects()] == ["offered"]
        assert realm.proposal(second).status == "executing"
    check_log(address, domain=room)


def test_a_report_that_raises_while_the_worker_turns_stops_the_next_claim(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker had begun its turn before the report raised, and claimed another effect at the end of it."""
    turning = threading.Event()
    settle = RealmSource.settle

    def closed(report: WorkerReport) -> None:
        if report.kind == "claimed":
            assert turning.wait(PATIENCE_S)
            return
        raise BrokenPipeError("the reader is gone")

    with offering(address, clock=SystemClock()) as realm:  # type: ignore[arg-type]
        first, second = work_in(realm, "a"), work_in(realm, "b")
        with here(address, upper) as other:
            worker = Worker(other, on_report=closed)

            def settling(self: RealmSource, *, at_once: bool) -> None:
                if worker.under_way:
                    turning.set()
                    until(lambda: not worker.under_way)
                settle(self, at_once=at_once)

            monkeypatch.setattr(RealmSource, "settle", settling)
            with pytest.raises(BrokenPipeError, match="the reader"):
                worker.run()
        assert [realm.proposal(one).status for one in (first, second)] == ["completed", "executing"]
        assert [one.state for one in realm.offered_effects()] == ["offered"]
    check_log(address, domain=room)


@pytest.mark.parametrize("error", [LogBusyError("LOG_BUSY", "busy"), WorldProtocolError("LOG_UNAVAILABLE", "away")])
def test_a_result_is_reported_again_when_the_log_is_back(
    address: str, error: WorldProtocolError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worldprotocol.api.waiting.outages.FIRST_PAUSE_S", 0.001)
    with offering(address, clock=SystemClock()) as realm:  # type: ignore[arg-type]
        work_in(realm, "a")
        with here(address, upper) as other:
            refused: list[Any] = []
            complete = other.complete_effect

            def away(*given: Any) -> Any:
                if not refused:
                    refused.append(given)
                    raise error
                return complete(*given)

            monkeypatch.setattr(other, "complete_effect", away)
            assert Worker(other).run(once=True).completed == 1
        assert len(refused) == 1


def test_a_worker_that_runs_once_claims_again_where_the_log_was_busy(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worldprotocol.api.waiting.outages.FIRST_PAUSE_S", 0.001)
    with offering(address, clock=SystemClock()) as realm:  # type: ignore[arg-type]
        work_in(realm, "a")
        with here(address, upper) as other:
            refused: list[Any] = []
            claim = other.claim_effect

            def busy(*given: Any, **options: Any) -> Any:
                if len(refused) < 2:
                    refused.append(given)
                    raise LogBusyError("LOG_BUSY", "busy")
                return claim(*given, **options)

            monkeypatch.setattr(other, "claim_effect", busy)
            assert Worker(other).run(once=True).completed == 1


@pytest.mark.parametrize("given", ["homework", b"work", 7], ids=repr)
def test_a_text_in_place_of_types_or_workspaces_is_refused(address: str, given: Any) -> None:
    """Its letters were compared: ``homework`` claimed effects of the type ``work``."""
    with offering(address) as realm:
        realm.act("ann", "do", {})
        for options in ({"types": given}, {"workspaces": given}, {"wait_s": str(given)}, {"wait_s": None}):
            with pytest.raises(RefusedError) as refused:
                realm.claim_effect(worker="w", **options)
            assert refused.value.code == "INVALID_VALUE"
        with here(address, upper) as other, pytest.raises(RefusedError, match="types is"):
            Worker(other, types=given)
        assert claimed(realm).requirement.type == "work"


@pytest.mark.parametrize("given", [EffectAnswer("A"), "A", None], ids=repr)
def test_a_completion_with_something_else_than_a_performed_effect_is_refused(address: str, given: Any) -> None:
    with offering(address, clock=ManualClock(START)) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        claim = claimed(realm)
        before = topics(realm, name)
        with pytest.raises(RefusedError, match=r"Performed\(EffectAnswer\(value\)\)") as refused:
            realm.complete_effect(claim, given)
        assert refused.value.code == "INVALID_VALUE"
        assert topics(realm, name) == before
        assert realm.complete_effect(claim, answered("A")).status == "completed"
    check_log(address, domain=room)


def test_a_worker_that_waits_ends_when_the_log_was_moved(address: str) -> None:
    """It went on waiting, because looking for offers compared no files."""
    codes: list[str] = []
    with offering(address, clock=SystemClock()), here(address, upper) as other:  # type: ignore[arg-type]
        worker = Worker(other)

        def work() -> None:
            with pytest.raises(WorldProtocolError) as caught:
                worker.run()
            codes.append(caught.value.code)

        before = set(threading.enumerate())
        working = threading.Thread(target=work)
        working.start()
        until(lambda: any(one.name == "worldprotocol-worker-log" for one in set(threading.enumerate()) - before))
        Path(address).rename(f"{address}.elsewhere")
        working.join(PATIENCE_S)
        worker.stop()
        working.join(PATIENCE_S)
    assert codes == ["LOG_MOVED"]


def test_a_worker_that_fails_ends_and_reports_what_is_under_way(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()
    settle, stop, turns = RealmSource.settle, Worker.stop, itertools.count()

    @handler("work", idempotent=False)
    def held(_params: Any, _call: Any) -> Any:
        begun.set()
        assert may_end.wait(PATIENCE_S)
        return "done"

    def failing(self: RealmSource, *, at_once: bool) -> None:
        if next(turns):
            assert begun.wait(PATIENCE_S)
            raise RefusedError("LOG_MOVED", "The file is elsewhere.")
        settle(self, at_once=at_once)

    def stopping(self: Worker) -> None:
        stop(self)
        may_end.set()

    monkeypatch.setattr(RealmSource, "settle", failing)
    monkeypatch.setattr(Worker, "stop", stopping)
    with offering(address, clock=SystemClock()) as realm:  # type: ignore[arg-type]
        name = work_in(realm, "a")
        with here(address, held) as other:
            worker = Worker(other, concurrency=2)
            with pytest.raises(RefusedError, match="elsewhere"):
                worker.run()
        assert (worker.summary.completed, worker.summary.given_up) == (1, [])
        assert realm.proposal(name).status == "completed"
    check_log(address, domain=room)
