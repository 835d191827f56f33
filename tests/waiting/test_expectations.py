"""Expectations under every interleaving: what was published completes futures, and no thread stays."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.patience import PATIENCE_S
from tests.waiting.till import until
from world.errors import RefusedError
from world.read_models.live.expectations import Expectations

KEYS = ("a", "b", "c")
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("expect"), st.sampled_from(KEYS)),
        st.tuples(st.just("publish"), st.sampled_from(KEYS)),
        st.tuples(st.just("load"), st.sampled_from(KEYS)),
        st.tuples(st.just("cancel"), st.sampled_from(KEYS)),
    ),
    max_size=12,
)


class Bench:
    """A log in memory: what was committed, and the futures of those who wait for it."""

    def __init__(self) -> None:
        self.committed: dict[str, str] = {}
        self.futures: list[tuple[str, Future[str]]] = []
        self.expectations = Expectations(lambda: SimpleNamespace(due=None))

    def do(self, operations: list[tuple[str, str]]) -> None:
        for what, key in operations:
            getattr(self, what)(key)

    def expect(self, key: str) -> None:
        self.futures.append((key, self.expectations.expect(key, lambda: self.committed.get(key))))

    def publish(self, key: str) -> None:
        self.committed[key] = f"result of {key}"
        event: Any = SimpleNamespace(proposal_id=key)
        self.expectations.note([event])

    def load(self, key: str) -> None:
        """Commit without an event that is published by itself."""
        self.committed[key] = f"result of {key}"
        self.expectations.note_all()

    def cancel(self, key: str) -> None:
        for name, future in self.futures:
            if name == key:
                future.cancel()

    def check(self) -> None:
        for key, future in self.futures:
            if key in self.committed and not future.cancelled():
                assert future.result(PATIENCE_S) == f"result of {key}"
        left = [future for key, future in self.futures if not future.done()]
        until(lambda: self.expectations.count == len(left))  # a result is there before its future is dropped
        for future in left:
            future.cancel()
        until(lambda: self.expectations.count == 0)
        self.expectations.join()
        assert [one for one in self.expectations._stopped if one.is_alive()] == []
        assert self.expectations._looking is None


@given(OPERATIONS, OPERATIONS)
def test_every_interleaving_of_two_threads_completes_what_was_committed(
    mine: list[tuple[str, str]], theirs: list[tuple[str, str]]
) -> None:
    bench, begin = Bench(), threading.Barrier(2)

    def other() -> None:
        begin.wait()
        bench.do(theirs)

    thread = threading.Thread(target=other)
    thread.start()
    begin.wait()
    bench.do(mine)
    thread.join()
    bench.check()


def test_what_a_function_raises_is_the_error_of_its_future_alone() -> None:
    bench = Bench()

    def refuses() -> str:
        raise RefusedError("UNKNOWN_PROPOSAL", "There is none.")

    bench.expect("a")
    failed = bench.expectations.expect("b", refuses)
    with pytest.raises(RefusedError, match="There is none"):
        failed.result(PATIENCE_S)
    bench.publish("a")
    bench.check()


def test_closing_fails_all_and_later_ones() -> None:
    bench = Bench()
    bench.expect("a")
    bench.expectations.close()
    [(_, future)] = bench.futures
    assert isinstance(future.exception(0), RefusedError)
    with pytest.raises(RefusedError) as caught:
        bench.expect("b")
    assert caught.value.code == "LOG_CLOSED"
    assert bench.expectations._looking is None


def test_a_future_that_is_cancelled_already_expects_nothing() -> None:
    bench, future = Bench(), Future[str]()
    future.cancel()
    bench.expectations.expect("a", lambda: None, future)
    assert bench.expectations.count == 0


def test_who_waits_in_a_thread_hears_of_growth_by_others() -> None:
    state = SimpleNamespace(due=7)
    heard: list[int | None] = []
    expectations = Expectations(lambda: state)
    expectations.on_follow = heard.append
    future: Future[str] = expectations.expect("a", lambda: None)
    until(lambda: heard == [7])
    state = SimpleNamespace(due=None)
    until(lambda: heard == [7, None])
    future.cancel()
    expectations.join()


def test_a_wait_whose_time_is_over_leaves_nothing() -> None:
    expectations = Expectations(lambda: SimpleNamespace(due=None))
    assert expectations.wait("a", lambda: None, 0.001) is None
    assert expectations.count == 0
