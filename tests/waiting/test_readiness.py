"""The probe of a realm is answered in time, whatever hangs, by one thread for all who ask."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tests.support.patience import PATIENCE_S
from world.engine.writability import Writability
from world.errors import LogBusyError, WorldProtocolError
from worldprotocol.api.waiting import readiness
from worldprotocol.api.waiting.readiness import WriteProbe

pytestmark = pytest.mark.requirement("LIVE-probe")

BUSY = LogBusyError("LOG_BUSY", "Another writer keeps it locked.")


class Looks:
    """A look that counts, and waits until it may go on.

    Args:
        answer: what it returns, or raises.
    """

    def __init__(self, answer: Exception | None = None, *, hangs: bool = False) -> None:
        self.count = 0
        self.may_end = threading.Event()
        self._answer = answer
        if not hangs:
            self.may_end.set()

    def __call__(self) -> Writability:
        self.count += 1
        assert self.may_end.wait(PATIENCE_S)
        if isinstance(self._answer, WorldProtocolError) or self._answer is None:
            return Writability(self._answer)
        raise self._answer


@pytest.mark.parametrize("answer", [None, BUSY], ids=["nothing", "a lock"])
def test_what_is_in_the_way_is_answered(answer: WorldProtocolError | None) -> None:
    probe = WriteProbe(Looks(answer))
    assert probe.answer(PATIENCE_S).obstacle is answer
    assert asyncio.run(probe.answer_async(PATIENCE_S)).obstacle is answer


def test_a_look_that_hangs_is_answered_in_time_by_one_thread_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(hangs=True)
    probe = WriteProbe(looks)
    before = set(threading.enumerate())

    async def all_at_once() -> list[Writability]:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(probe.answer_async(0.05)) for _ in range(50)]
        return [one.result() for one in asked]

    begin = time.monotonic()
    found = [one.obstacle for one in (probe.answer(0.05), *asyncio.run(all_at_once()))]
    assert time.monotonic() - begin < PATIENCE_S
    assert {one.code for one in found if one is not None} == {"LOG_UNAVAILABLE"}
    assert len(found) == 51
    assert all("has not answered for" in one.message for one in found if one is not None)
    names = [one.name for one in set(threading.enumerate()) - before]
    own = [name for name in names if name.startswith(("worldprotocol-probe", "asyncio"))]
    assert (looks.count, own) == (1, ["worldprotocol-probe"])
    looks.may_end.set()
    assert probe.answer(PATIENCE_S).obstacle is None
    probe.join(PATIENCE_S)


def test_an_answer_holds_for_a_time_and_is_found_out_again_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH_S", PATIENCE_S)
    looks = Looks()
    probe = WriteProbe(looks)
    for _ in range(20):
        assert probe.answer(PATIENCE_S).obstacle is None
    assert looks.count == 1
    monkeypatch.setattr(readiness, "FRESH_S", 0.0)
    for _ in range(3):
        assert probe.answer(PATIENCE_S).obstacle is None
    assert looks.count == 4


def test_a_look_that_raises_is_in_the_way_of_writes() -> None:
    found = WriteProbe(Looks(ValueError("odd"))).answer(PATIENCE_S).obstacle
    assert found is not None
    assert (found.code, found.message) == ("LOG_FAILED", "The log cannot be probed: ValueError: odd.")


def test_a_caller_that_is_cancelled_leaves_the_probe_to_the_others() -> None:
    looks = Looks(BUSY, hangs=True)
    probe = WriteProbe(looks)

    async def cancelled() -> WorldProtocolError | None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await probe.answer_async(PATIENCE_S)
        looks.may_end.set()
        return (await probe.answer_async(PATIENCE_S)).obstacle

    assert asyncio.run(cancelled()) is BUSY
    assert looks.count == 1
