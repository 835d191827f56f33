"""The built-in wait: counted from its request, so that a crash does not begin it anew."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from host import EffectFailure
from host.builtin.timers import MAX_WAIT_MS
from tests.host.effect_calls import HANDLERS, make
from tests.support.patience import PATIENCE_S
from world.clock import SystemClock

NOW = 1_700_000_000_000


class At:
    """A clock that stands still."""

    def __init__(self, now: int) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now


def test_a_wait_takes_as_long_as_it_says() -> None:
    began, asked = time.monotonic(), SystemClock().now_ms()
    told = make("timer.wait", {"ms": 150})
    assert time.monotonic() - began >= 0.15
    assert told["until"] >= asked + 150


@pytest.mark.requirement("HC-journal")
def test_a_wait_that_was_cut_off_goes_on_from_its_first_request() -> None:
    began = time.monotonic()
    first = make("timer.wait", {"ms": 3_600_000}, clock=At(NOW + 3_599_900), requested_at=NOW)
    late = make("timer.wait", {"ms": 3_600_000}, clock=At(NOW + 9_999_999), requested_at=NOW, attempt=2)
    assert time.monotonic() - began < 3_600  # the wait that was asked for first
    assert first == late == {"until": NOW + 3_600_000}


def test_a_wait_until_a_time_that_has_passed_is_over_at_once() -> None:
    assert make("timer.wait", {"until": 5}) == {"until": 5}
    assert make("timer.wait", {"ms": 0}, clock=At(NOW)) == {"until": NOW}


def test_a_wait_can_be_cancelled() -> None:
    cancelled, answers = threading.Event(), []
    waiting = threading.Thread(
        target=lambda: answers.append(make("timer.wait", {"ms": MAX_WAIT_MS}, is_cancelled=cancelled.is_set))
    )
    waiting.start()
    cancelled.set()
    waiting.join(PATIENCE_S)
    (answer,) = answers
    assert isinstance(answer, EffectFailure)
    assert answer.code == "EFFECT_CANCELLED"


@pytest.mark.parametrize(
    "params", [{}, {"ms": 1, "until": 1}, {"ms": -1}, {"ms": MAX_WAIT_MS + 1}, {"ms": 1.5}, {"ms": "1"}, {"until": -1}]
)
def test_a_wait_that_makes_no_sense_is_refused(params: dict[str, Any]) -> None:
    answer = make("timer.wait", params)
    assert isinstance(answer, EffectFailure)
    assert answer.code == "EFFECT_INVALID_INPUT"


def test_nobody_waits_for_longer_than_a_week() -> None:
    answer = make("timer.wait", {"until": NOW + MAX_WAIT_MS + 1}, clock=At(NOW))
    assert isinstance(answer, EffectFailure)
    assert answer.code == "EFFECT_INVALID_INPUT"


def test_a_wait_touches_nothing_and_has_the_time_it_needs() -> None:
    given = HANDLERS["timer.wait"]
    assert given.triples({"ms": 1}) == []
    assert given.terms_for({"ms": MAX_WAIT_MS}).time_limit_ms > MAX_WAIT_MS
    assert given.terms_for({"ms": 10}).time_limit_ms < 60_000
    assert given.terms_for({"until": NOW}).time_limit_ms > MAX_WAIT_MS
    assert given.terms_for({"ms": 10}).idempotent
