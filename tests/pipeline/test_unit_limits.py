"""What one unit of work may cost under the log's lock: commands by a time, what is due by itself by numbers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import world.pipeline.arbitrate
import world.pipeline.judge
import world.pipeline.unit_of_work
from host import handler
from tests.pipeline.shop import open_shop
from tests.support.engines import engine_of
from world.audit.verify import verify
from world.clock import ManualClock
from world.core import ActionContext, Domain, effect, set_
from world.errors import RefusedError
from world.events.execution_events import ExecutionStarted
from world.limits import Limits
from world.log import Pending
from world.model.intent import IntentInstance
from world.model.patch import Patch
from world.pipeline.driver import submit
from world.pipeline.submit import Submission
from world.pipeline.unit_of_work import UnitOfWork
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import recheck


class Stopwatch:
    """A monotonic clock that a test sets: every reading takes ``step_s`` seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


class Cells(BaseModel):
    cells: dict[str, int] = {}


class Cell(BaseModel):
    name: str


cells = Domain("urn:test:cells", version="1.0.0", state=Cells)


@cells.action("put", version="1")
def put(ctx: ActionContext, input: Cell) -> list[Patch]:  # noqa: A002
    return [set_(f"cells.{input.name}", 1)]


@cells.action("call", version="1")
def call(ctx: ActionContext, input: Cell) -> Any:  # noqa: A002
    yield effect("ring", name=input.name)
    return [set_(f"cells.{input.name}", 2)]


@handler("ring", idempotent=True)
def ring(params: Any, info: Any) -> str:
    return "rung"


@pytest.fixture
def stopwatch() -> Stopwatch:
    return Stopwatch()


@pytest.fixture
def realm(log_url: str, stopwatch: Stopwatch) -> Iterator[Realm]:
    with Realm.create(log_url, domain=cells, effects=[ring], limits=Limits(max_unit_ms=3_000)) as opened:
        opened.register("ann", "human", binding={"kind": "auto_approve"})
        engine_of(opened)._stopwatch = stopwatch
        yield opened


def units(opened: Realm, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of events of every unit from here on."""
    sizes: list[int] = []
    run = engine_of(opened)._run_unit

    def counted(commands: Any, **options: Any) -> Any:
        work = run(commands, **options)
        sizes.append(len(work.emitted))
        return work

    monkeypatch.setattr(engine_of(opened), "_run_unit", counted)
    return sizes


def taken_over(opened: Realm, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets how many executions each unit took over; units that took over none are left out.

    The executions report on threads of their own: between and in these units, as it comes.
    """
    numbers: list[int] = []
    run = engine_of(opened)._run_unit

    def counted(commands: Any, **options: Any) -> Any:
        work = run(commands, **options)
        if number := sum(isinstance(item.event, ExecutionStarted) for item in work.emitted):
            numbers.append(number)
        return work

    monkeypatch.setattr(engine_of(opened), "_run_unit", counted)
    return numbers


def test_a_command_that_takes_too_long_is_refused_and_leaves_nothing(realm: Realm, stopwatch: Stopwatch) -> None:
    before = realm.log.head()
    stopwatch.step_s = 1.0
    with pytest.raises(RefusedError) as refused:
        realm.act("ann", "put", {"name": "a"})
    assert refused.value.code == "UNIT_TOO_LARGE"
    assert refused.value.details["limit_ms"] == 3_000
    assert refused.value.details["events"] >= 1
    assert "max_unit_ms" in refused.value.message
    assert realm.log.head() == before
    assert not realm.realm().proposals
    stopwatch.step_s = 0.0
    assert realm.act("ann", "put", {"name": "a"}).status == "completed"
    assert verify(realm.log).ok


def test_the_other_commands_of_the_commit_are_done_without_it(realm: Realm, stopwatch: Stopwatch) -> None:
    def slow(work: Any) -> None:
        submit(work, Submission(realm.issue("ann", "put", {"name": "slow"})), "slow")
        stopwatch.now_s += 10
        work.budget.check("the test")

    intents = [realm.issue("ann", "put", {"name": name}) for name in ("a", "b")]
    batch: list[Any] = [
        Pending(lambda work: submit(work, Submission(intents[0]), "first")),
        Pending(slow),
        Pending(lambda work: submit(work, Submission(intents[1]), "last")),
    ]
    engine_of(realm)._run_batch(batch)
    assert [item.settled for item in batch] == [True] * 3
    with pytest.raises(RefusedError) as refused:
        batch[1].outcome()
    assert refused.value.code == "UNIT_TOO_LARGE"
    assert realm.data() == {"cells": {"a": 1, "b": 1}}


def test_commands_that_together_take_too_long_are_divided_among_commits(
    realm: Realm, stopwatch: Stopwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = units(realm, monkeypatch)

    def slow(name: str) -> Any:
        intent = realm.issue("ann", "put", {"name": name})

        def command(work: Any) -> None:
            submit(work, Submission(intent), name)
            stopwatch.now_s += 2  # less than the limit, for each of them

        return command

    batch: list[Any] = [Pending(slow(name)) for name in ("a", "b", "c")]
    engine_of(realm)._run_batch(batch)
    assert [item.outcome() is not None for item in batch] == [True] * 3
    assert len(sizes) == 2
    assert realm.data() == {"cells": {"a": 1, "b": 1, "c": 1}}


def test_time_outs_are_divided_and_come_before_the_next_command(log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.pipeline.judge, "DUE_AT_ONCE", 3)
    clock = ManualClock(1_000, 1)
    with open_shop(log_url, clock=clock) as opened:
        waiting = [opened.act("kid", "sell", {"item": "tea"}).proposal_id for _ in range(8)]
        clock.advance(60_000)
        sizes = units(opened, monkeypatch)
        done = opened.act("ann", "sell", {"item": "tea"})
        assert done.status == "completed"
        assert len([size for size in sizes if size]) == 3  # 3, 3, and 2 with the command
        assert {opened.proposal(one).status for one in waiting} == {"rejected"}
        topics = [event.topic for event in opened.log.read()]
        last = len(topics) - 1 - topics[::-1].index("human.timed_out")
        assert topics[last:].count("proposal.submitted") == 1
        assert verify(opened.log).ok


def submit_as(work: UnitOfWork, *, intent: IntentInstance, name: str) -> None:
    submit(work, Submission(intent), name)


def test_recovery_is_divided_until_nothing_is_left(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"p{number}" for number in range(7)]
    for name in names:  # requested, and the worker forgets about it
        intent = realm.issue("ann", "call", {"name": name}, scope=[f"data.cells.{name}"])
        engine_of(realm)._group.submit(partial(submit_as, intent=intent, name=name))
    engine_of(realm)._backlog.performing.clear()
    monkeypatch.setattr(world.pipeline.unit_of_work, "DUE_AT_ONCE", 2)
    numbers = taken_over(realm, monkeypatch)
    realm.settle()
    assert numbers == [2, 2, 2, 1]
    started = [realm.proposal(name).started for name in names]
    assert {one.attempt for one in started if one is not None} == {2}
    assert verify(realm.log).ok


def test_executions_that_are_taken_over_are_divided_by_time_too(
    realm: Realm, stopwatch: Stopwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may call foreign code, and others wait for the lock."""
    names = [f"p{number}" for number in range(7)]
    for name in names:
        intent = realm.issue("ann", "call", {"name": name}, scope=[f"data.cells.{name}"])
        engine_of(realm)._group.submit(partial(submit_as, intent=intent, name=name))
    engine_of(realm)._backlog.performing.clear()
    numbers = taken_over(realm, monkeypatch)
    stopwatch.step_s = 1.0
    realm.settle()
    assert numbers == [4, 3]  # within the 3 s of a unit
    started = [realm.proposal(name).started for name in names]
    assert {one.attempt for one in started if one is not None} == {2}
    assert verify(realm.log).ok


def test_a_recheck_is_held_to_no_time(realm: Realm, stopwatch: Stopwatch) -> None:
    realm.act("ann", "put", {"name": "a"})
    stopwatch.step_s = 60.0  # whoever read it would be refused
    assert recheck(realm).first is None


def test_a_wish_to_recover_that_comes_during_a_unit_which_recovers_is_kept(realm: Realm) -> None:
    backlog = engine_of(realm)._backlog

    def breaks_off(_: UnitOfWork) -> None:
        assert backlog.take().must_recover
        backlog.recover_soon()  # as another thread does

    backlog.recover_soon()
    engine_of(realm)._group.submit(breaks_off)
    assert backlog.take().must_recover
    realm.settle()
    assert not backlog.take().must_recover


def test_a_wish_to_recover_is_kept_where_the_domain_does_not_fit(tmp_path: Path) -> None:
    path, other = tmp_path / "world.db", Domain("urn:test:cells", version="2.0.0", state=Cells)

    @other.action("clear", version="1")
    def clear(ctx: ActionContext) -> Any:
        return [set_("cells", {})]

    Realm.create(path, domain=cells, effects=[ring]).close()
    with Realm.open(path, domain=other, effects=[ring], on_change="hold") as opened:
        backlog = engine_of(opened)._backlog
        backlog.recover_soon()
        with pytest.raises(RefusedError, match="Another domain"):
            engine_of(opened)._group.submit(lambda work: None)
        assert backlog.take().must_recover
