from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.support.patience import PATIENCE_S
from world.errors import RefusedError, WorldProtocolError
from world.log import GroupCommit, NewEvent, Pending, open_log
from world.log.audit import verify_tree


def in_threads(count: int, work: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


class Gate:
    """Runs batches, the first of them only when the queue behind it is as long as wished."""

    def __init__(self, waiting: int, max_batch: int = 256) -> None:
        self.batches: list[list[int]] = []
        self.group: GroupCommit[int, int] = GroupCommit(self.run, max_batch=max_batch)
        self._waiting = waiting
        self.full = threading.Event()

    def run(self, batch: list[Pending[int, int]]) -> None:
        if not self.batches:
            assert self.full.wait(PATIENCE_S)
        self.batches.append([item.command for item in batch])
        for item in batch:
            item.succeed(item.command * 10)

    def submit_all(self, count: int) -> dict[int, int]:
        results: dict[int, int] = {}
        threads = in_threads(count, lambda number: results.update({number: self.group.submit(number)}))
        while len(self.group._queue) < self._waiting:
            threading.Event().wait(0.001)
        self.full.set()
        for thread in threads:
            thread.join()
        return results


def test_a_lone_caller_runs_its_command_in_its_own_thread() -> None:
    seen: list[int] = []

    def run(batch: list[Pending[str, str]]) -> None:
        seen.append(threading.get_ident())
        for item in batch:
            item.succeed(item.command.upper())

    assert GroupCommit(run).submit("a") == "A"
    assert seen == [threading.get_ident()]


def test_callers_that_wait_share_the_next_batch() -> None:
    gate = Gate(waiting=9)
    assert gate.submit_all(10) == {number: number * 10 for number in range(10)}
    assert [len(batch) for batch in gate.batches] == [1, 9]


def test_a_batch_has_a_limit() -> None:
    gate = Gate(waiting=9, max_batch=4)
    gate.submit_all(10)
    assert [len(batch) for batch in gate.batches] == [1, 4, 4, 1]
    assert sorted(number for batch in gate.batches for number in batch) == list(range(10))


def test_each_caller_gets_its_own_result_or_error() -> None:
    def run(batch: list[Pending[int, int]]) -> None:
        for item in batch:
            if item.command % 2:
                item.fail(ValueError(item.command))
            else:
                item.succeed(item.command)

    group = GroupCommit(run)
    assert group.submit(2) == 2
    with pytest.raises(ValueError, match="3"):
        group.submit(3)


def test_a_batch_that_raises_fails_those_it_left_open() -> None:
    gate = Gate(waiting=3)
    outcomes: dict[int, object] = {}

    def run(batch: list[Pending[int, int]]) -> None:
        if len(batch) == 1:
            gate.run(batch)
            return
        batch[0].succeed(1)
        raise RuntimeError("the disk is gone")

    gate.group = GroupCommit(run)

    def work(number: int) -> None:
        try:
            outcomes[number] = gate.group.submit(number)
        except RuntimeError as error:
            outcomes[number] = str(error)

    threads = in_threads(4, work)
    while len(gate.group._queue) < 3:
        threading.Event().wait(0.001)
    gate.full.set()
    for thread in threads:
        thread.join()
    assert sorted(map(str, outcomes.values()))[1:] == ["1", "the disk is gone", "the disk is gone"]


def test_a_command_that_nobody_settled_fails() -> None:
    with pytest.raises(WorldProtocolError) as caught:
        GroupCommit[int, int](lambda batch: None).submit(1)
    assert caught.value.code == "NOT_SETTLED"


def test_a_batch_that_calls_for_another_in_its_own_thread_is_refused_and_not_waited_for() -> None:
    def run(batch: list[Pending[int, int]]) -> None:
        for item in batch:
            try:
                item.succeed(item.command if item.command == 0 else group.submit(item.command - 1))
            except RefusedError as refused:
                item.fail(refused)

    codes: list[str] = []

    def work(number: int) -> None:
        for _ in range(2):  # the refusal leaves nothing behind
            with pytest.raises(RefusedError) as caught:
                group.submit(1)
            codes.append(caught.value.code)
            assert group.submit(0) == 0

    group = GroupCommit(run)
    thread = threading.Thread(target=work, args=(0,), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert codes == ["CALL_FROM_WITHIN", "CALL_FROM_WITHIN"]


def test_a_thread_whose_batch_was_interrupted_may_call_again() -> None:
    ending = [KeyboardInterrupt()]

    def run(batch: list[Pending[int, int]]) -> None:
        if ending:
            raise ending.pop()
        for item in batch:
            item.succeed(item.command)

    group = GroupCommit(run)
    with pytest.raises(KeyboardInterrupt):
        group.submit(1)
    assert group.submit(2) == 2


def test_an_interrupted_leader_hands_over_and_its_followers_hear_of_it() -> None:
    outcomes: dict[int, str] = {}
    entered, go = threading.Event(), threading.Event()
    runs: list[int] = []

    def run(batch: list[Pending[int, int]]) -> None:
        runs.append(len(batch))
        if len(runs) == 1:
            entered.set()
            assert go.wait(PATIENCE_S)
        if len(runs) == 2:
            batch[0].succeed(0)
            raise KeyboardInterrupt
        for item in batch:
            item.succeed(item.command)

    group = GroupCommit(run, max_batch=3)

    def work(number: int) -> None:
        try:
            outcomes[number] = f"result {group.submit(number)}"
        except WorldProtocolError as error:
            outcomes[number] = error.code
        except KeyboardInterrupt:
            outcomes[number] = "interrupted"

    threads = in_threads(6, work)
    assert entered.wait(PATIENCE_S)
    while len(group._queue) < 5:
        threading.Event().wait(0.001)
    go.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    values = sorted(outcomes.values())
    assert values.count("interrupted") == 1
    assert values.count("BATCH_INTERRUPTED") == 2
    assert sum(value.startswith("result") for value in values) == 3
    assert group.submit(7) == 7


def test_a_caller_interrupted_in_the_queue_takes_its_command_back() -> None:
    gate = Gate(waiting=0)
    results: list[int] = []
    threads = in_threads(1, lambda number: results.append(gate.group.submit(number)))
    while not gate.group._led or gate.group._queue:
        threading.Event().wait(0.001)

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pending, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gate.group.submit(5)
    gate.full.set()
    for thread in threads:
        thread.join()
    assert (gate.batches, results) == ([[0]], [0])
    assert gate.group.submit(6) == 60


def test_a_caller_interrupted_just_when_it_should_lead_passes_the_lead_on() -> None:
    gate = Gate(waiting=0)
    gate.full.set()
    group = gate.group
    mine: Pending[int, int] = Pending(1)
    next_one: Pending[int, int] = Pending(2)
    mine.leads, group._led = True, True
    group._queue.extend([mine, next_one])
    group._abandon(mine)
    assert next_one.leads
    next_one.wait()
    group._lead(next_one)
    assert next_one.outcome() == 20
    assert not group._led


def test_many_threads_append_to_a_log_through_one_queue(log_url: str) -> None:
    with open_log(log_url, create=True) as log:

        def run(batch: list[Pending[NewEvent, int]]) -> None:
            with log.write() as transaction:
                logged = transaction.append([item.command for item in batch])
            for item, event in zip(batch, logged, strict=True):
                item.succeed(event.position)

        group = GroupCommit(run)
        positions: list[int] = []

        def work(number: int) -> None:
            positions.extend(group.submit(NewEvent(f"s{number}", "t", 1, b"{}")) for _ in range(10))

        for thread in in_threads(16, work):
            thread.join()
        assert sorted(positions) == list(range(1, 161))
        assert verify_tree(log) == []
