"""perform: one effect through its handler; whatever goes wrong there becomes an error value."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host import EffectFailure, EffectResult, Host, handler
from host.effect_answers import MAX_RESULT_BYTES
from host.worker import Finished, NotStarted, TimedOut, WorkerThreads
from tests.host.driving import NOW, Record, hosted, order, run
from tests.support.patience import PATIENCE_S
from world.core import EffectAnswer, merge, set_, unset
from world.model.canonical_json import canonical_bytes, read_json
from world.model.immutable_json import FrozenDict
from world.model.patch import Patch
from world.model.snapshot import ErrorValue

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Return what a handler may wait for as long as it likes: the test's end."""
    event = threading.Event()
    yield event
    event.set()


def performed(function: Any, **terms: Any) -> EffectAnswer:
    """Return what perform makes of a handler of ``pay``, as it would be read from the log."""
    host = hosted(handler("pay", **terms)(function))
    result = perform(host)
    assert EffectAnswer.from_wire(read_json(canonical_bytes(result.to_wire()))) == result
    return result


def perform(host: Host) -> EffectAnswer:
    current = order(host.domain, "buy", {"item": "tea"})
    (requirement,) = host.step(current).requirements
    return host.perform(current, requirement).result


def answered(value: Any) -> EffectAnswer:
    return performed(lambda params, call: value)


def error_of(result: EffectAnswer) -> ErrorValue:
    assert result.error is not None
    assert result.value is None
    assert result.patches == ()
    return result.error


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "text", [], [1, [2]], {"a": {"b": None}}])
def test_any_json_value_is_an_answer(value: Any) -> None:
    assert answered(value) == EffectAnswer(value=value)
    assert answered(EffectResult(value)) == EffectAnswer(value=value)


@pytest.mark.requirement("HC-handlers")
def test_a_handler_may_answer_patches_in_every_form() -> None:
    patches = (set_("stock", 1), unset("title"), merge("profile", {"a": 1}))
    for form in (list(patches), patches, EffectResult(patches=patches), EffectResult(patches=list(patches))):
        assert answered(form) == EffectAnswer(patches=patches)
    assert answered(patches[0]) == EffectAnswer(patches=patches[:1])
    assert answered(EffectResult({"id": 1}, patches)) == EffectAnswer({"id": 1}, patches)


def test_what_a_handler_answered_cannot_be_changed_by_it_later() -> None:
    mine = {"list": [1]}
    result = answered(mine)
    mine["list"].append(2)
    assert result.value == {"list": [1]}
    assert isinstance(result.value, FrozenDict)


def test_tuples_and_text_enums_become_plain_json() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    assert type(answered({"c": Colour.RED, "t": (1, 2)}).value["c"]) is str


def test_a_failure_keeps_its_code_its_words_and_its_facts() -> None:
    error = error_of(answered(EffectFailure("CARD_DECLINED", "No money.", {"attempts": 2})))
    assert (error.code, error.message, error.context) == ("CARD_DECLINED", "No money.", {"attempts": 2})
    assert (error.action_id, error.node_path, error.timestamp) == ("buy", "actions.buy.python[0]", NOW)


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


NONSENSE: dict[str, Any] = {
    "an object": object(),
    "bytes": b"bytes",
    "a set": {1, 2},
    "an object inside": {"a": object()},
    "a key that is no text": {1: 2},
    "not a number": float("nan"),
    "an integer that no double prints": 2**60 + 1,
    "half a character": "\ud800",
    "a value inside itself": CYCLE,
    "a function": lambda: 1,
    "a generator": (item for item in "ab"),
    "a list of patches and others": [set_("stock", 1), 3],
    "patches that are none": EffectResult(patches=[3]),  # type: ignore[list-item]
    "patches that are no list": EffectResult(patches=3),  # type: ignore[arg-type]
    "a patch of an unknown kind": EffectResult(patches=[Patch("grow", "stock", 1)]),  # type: ignore[arg-type]
    "a patch whose path is no text": EffectResult(patches=[Patch("set", 3, 1)]),  # type: ignore[arg-type]
    "a patch of half a character": EffectResult(patches=[set_("\ud800", 1)]),
    "a value that is no JSON": EffectResult(object()),
    "a failure without a code": EffectFailure("", "no code"),
    "a failure whose code is no text": EffectFailure(3, "no code"),  # type: ignore[arg-type]
    "a failure without words": EffectFailure("CODE", None),  # type: ignore[arg-type]
    "a failure whose facts are a list": EffectFailure("CODE", "m", [1]),  # type: ignore[arg-type]
    "a failure whose facts are no JSON": EffectFailure("CODE", "m", {"a": object()}),
    "too long a text": "x" * (MAX_RESULT_BYTES + 1),
    "a failure with too many words": EffectFailure("CODE", "x" * (MAX_RESULT_BYTES + 1)),
    "too long a patch": EffectResult(patches=[set_("title", "x" * MAX_RESULT_BYTES)]),
    "a result as the journal holds it": EffectAnswer(1),
}


@pytest.mark.requirement("HC-handlers")
@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_an_error_value(name: str) -> None:
    error = error_of(answered(NONSENSE[name]))
    assert error.code == "EFFECT_INVALID_RESULT"
    assert len(error.message) < 700


def test_the_error_of_an_answer_that_is_no_json_says_where() -> None:
    assert "$.a[1]" in error_of(answered({"a": [1, object()]})).message


def test_the_largest_answer_fits() -> None:
    frame = len(canonical_bytes(EffectAnswer("").to_wire()))
    assert answered("x" * (MAX_RESULT_BYTES - frame)).error is None
    assert error_of(answered("x" * (MAX_RESULT_BYTES - frame + 1))).code == "EFFECT_INVALID_RESULT"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.requirement("HC-handlers", "WP-exec")
@given(
    st.one_of(
        anything, st.builds(EffectResult, anything, anything), st.builds(EffectFailure, anything, anything, anything)
    )
)
def test_whatever_a_handler_answers_the_execution_ends(answer: Any) -> None:
    for action in ("buy", "fetch"):
        host = hosted(*(handler(name)(lambda params, call: answer) for name in ("pay", "http.get")))
        outcome = run(host, order(host.domain, action, {"item": "tea"} if action == "buy" else None))
        assert outcome.status in ("completed", "failed")
        assert (outcome.error is None) == (outcome.status == "completed")


# --- handlers that raise --------------------------------------------------------------------------


@pytest.mark.requirement("HC-handlers")
@pytest.mark.parametrize("kind", [ValueError, OSError, MemoryError, RecursionError, SystemExit, GeneratorExit])
def test_a_handler_that_raises_is_an_error_value_with_type_and_message(kind: type[BaseException]) -> None:
    def fails(params: Any, call: Any) -> Any:
        raise kind("no such thing")

    error = error_of(performed(fails))
    assert error.code == "EFFECT_RAISED"
    assert error.message == f"The handler of pay raised {kind.__name__}: no such thing"
    assert error.context == {"type": kind.__name__}


def test_an_exception_that_cannot_say_what_it_is_is_still_an_error_value() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    class Loud(Exception):
        pass

    for raised in (Mute(), Loud("x" * 10_000), Loud("\ud800")):

        def fails(params: Any, call: Any, raised: Exception = raised) -> Any:
            raise raised

        error = error_of(performed(fails))
        assert error.code == "EFFECT_RAISED"
        assert len(error.message) < 600


def test_an_answer_that_raises_when_it_is_read_is_an_error_value() -> None:
    class Trap(dict[str, Any]):
        def items(self) -> Any:
            raise ValueError("do not look")

    assert error_of(answered(Trap(a=1))).code == "EFFECT_RAISED"
    assert error_of(answered(EffectFailure("CODE", "m", Trap(a=1)))).code in ("EFFECT_RAISED", "CODE")


@pytest.mark.requirement("HC-handlers")
def test_an_effect_without_a_handler_is_an_error_value_that_names_those_there_are() -> None:
    host = hosted(handler("http.get")(lambda params, call: None))
    error = error_of(perform(host))
    assert error.code == "EFFECT_NO_HANDLER"
    assert "'pay'" in error.message
    assert "http.get" in error.message
    assert "types: none" in error_of(perform(hosted())).message


@pytest.mark.requirement("HC-handlers", "WP-exec")
@pytest.mark.parametrize(
    ("code", "handlers"),
    [
        ("EFFECT_NO_HANDLER", []),
        ("EFFECT_RAISED", [handler("pay")(lambda params, call: 1 // 0)]),
        ("EFFECT_INVALID_RESULT", [handler("pay")(lambda params, call: object())]),
        (
            "EFFECT_TIMED_OUT",
            [handler("pay", time_limit_ms=1)(lambda params, call: threading.Event().wait(60))],
        ),
        ("CARD_DECLINED", [handler("pay")(lambda params, call: EffectFailure("CARD_DECLINED", "no"))]),
    ],
)
def test_a_failed_effect_ends_the_proposal_as_failed_with_the_data_it_started_from(
    code: str, handlers: list[Any]
) -> None:
    host = hosted(*handlers)
    current = order(host.domain, "buy", {"item": "tea"})
    outcome = run(host, current)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == code
    assert outcome.snapshot.data == current.snapshot.data  # though the action had taken one from the stock
    assert outcome.snapshot.system.last_error == outcome.error
    assert outcome.patches == ()


def test_an_action_may_catch_the_failure_of_an_effect() -> None:
    host = hosted(handler("pay")(lambda params, call: EffectFailure("CARD_DECLINED", "no")))
    outcome = run(host, order(host.domain, "ask", {"effects": [{"type": "pay"}, {"type": "?"}], "catch": True}))
    assert outcome.status == "completed"
    assert outcome.snapshot.data["receipt"] == [{"caught": "CARD_DECLINED"}, {"caught": "EFFECT_NO_HANDLER"}]


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.requirement("HC-handlers")
def test_a_handler_that_hangs_is_given_up_and_its_late_answer_is_dropped(released: threading.Event) -> None:
    answered_late = threading.Event()

    def hangs(params: Any, call: Any) -> Any:
        released.wait()
        answered_late.set()
        return {"late": True}

    host = hosted(handler("pay", time_limit_ms=10)(hangs))
    record = Record(order(host.domain, "buy", {"item": "tea"}))
    outcome = record.run(host)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.message) == (
        "EFFECT_TIMED_OUT",
        "The handler of pay took longer than 10 ms; whether the effect happened is unknown.",
    )
    released.set()
    assert answered_late.wait(PATIENCE_S)
    assert host.step(record.order()) == outcome


def test_reading_an_answer_takes_part_in_the_time_limit(released: threading.Event) -> None:
    class Slow(dict[str, Any]):
        def items(self) -> Any:
            released.wait()
            return super().items()

    assert error_of(performed(lambda params, call: Slow(a=1), time_limit_ms=10)).code == "EFFECT_TIMED_OUT"


def test_a_timeout_raised_by_a_handler_itself_is_told_from_the_hosts() -> None:
    def times_out(params: Any, call: Any) -> Any:
        raise TimeoutError("the server")

    assert error_of(performed(times_out)).code == "EFFECT_RAISED"


@pytest.mark.slow
def test_too_many_hanging_handlers_stop_further_ones_until_one_ends(released: threading.Event) -> None:
    workers = WorkerThreads(max_abandoned=2)

    def hang() -> None:
        released.wait()

    for _ in range(2):
        assert workers.run("hangs", hang, lambda value: value, time_limit_ms=1) == TimedOut()
    refused = workers.run("next", lambda: 1, lambda value: value, time_limit_ms=1_000)
    assert isinstance(refused, NotStarted)
    assert "2 handlers" in refused.reason
    released.set()
    for thread in list(workers._abandoned):
        thread.join(PATIENCE_S)
    ended = workers.run("next", lambda: 1, lambda value: value + 1, time_limit_ms=10_000)
    assert isinstance(ended, Finished)
    assert ended.value == 2


@pytest.mark.requirement("HC-handlers")
def test_an_effect_that_cannot_be_started_is_an_error_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    host = hosted(handler("pay")(lambda params, call: 1))
    monkeypatch.setattr(threading.Thread, "start", no_more)
    error = error_of(perform(host))
    assert error.code == "LIMIT_EXCEEDED"
    assert "can't start new thread" in error.message


CHILD = """
    import sys, threading
    from host import handler
    from tests.host.driving import hosted, order, run

    def hangs(params, call):
        print("begun", flush=True)
        threading.Event().wait()

    async def hangs_awaiting(params, call):
        import asyncio
        await asyncio.Event().wait()

    pay = handler("pay", time_limit_ms={limit})(hangs)
    host = hosted(pay, handler("slow", time_limit_ms=20)(hangs_awaiting))
    asked = dict(effects=[dict(type="slow"), dict(type="pay")], catch=True)
    print(run(host, order(host.domain, "ask", asked)).snapshot.data["receipt"], flush=True)
"""


def child(limit_ms: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(CHILD.format(limit=limit_ms))]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.slow
def test_a_handler_that_hangs_does_not_keep_the_process_alive() -> None:
    with child(20) as process:
        told, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert told.count("EFFECT_TIMED_OUT") == 2


def test_an_interrupt_from_the_keyboard_passes_while_a_handler_hangs() -> None:
    with child(3_600_000) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors


# --- async handlers -------------------------------------------------------------------------------


def test_an_async_handler_is_awaited() -> None:
    async def works(params: Any, call: Any) -> Any:
        await asyncio.sleep(0)
        return EffectResult({"item": params["item"]}, [set_("stock", 1)])

    assert performed(works) == EffectAnswer({"item": "tea"}, (set_("stock", 1),))


def test_an_async_handler_that_raises_or_is_cancelled_from_within_is_an_error_value() -> None:
    async def raises(params: Any, call: Any) -> Any:
        raise ValueError("no")

    async def cancels(params: Any, call: Any) -> Any:
        raise asyncio.CancelledError("by itself")

    assert error_of(performed(raises)).context == {"type": "ValueError"}
    assert error_of(performed(cancels)).context == {"type": "CancelledError"}


def test_an_async_handler_that_takes_too_long_is_cancelled() -> None:
    cancelled = threading.Event()

    async def hangs(params: Any, call: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    assert error_of(performed(hangs, time_limit_ms=300)).code == "EFFECT_TIMED_OUT"
    assert cancelled.wait(PATIENCE_S)


def test_a_plain_handler_may_return_something_to_await() -> None:
    async def later() -> Any:
        return 7

    assert performed(lambda params, call: later()).value == 7


# --- what a handler is told -----------------------------------------------------------------------


@pytest.mark.requirement("IC-effects", "IC-reentry", "INV-I5", "HC-context", "HC-journal")
def test_a_handler_is_told_the_attempt_and_a_key_that_stays_the_same() -> None:
    calls: list[Any] = []

    def pay(params: Any, call: Any) -> Any:
        calls.append(call)
        return None

    host = hosted(handler("pay", time_limit_ms=1_234)(pay))
    given = order(host.domain, "ask", {"effects": [{"type": "pay"}, {"type": "pay"}]}, intent_id="mine")
    for _ in range(2):
        run(host, given)
    first, second, *again = calls
    assert (first.intent_id, first.proposal_id, first.effect_type) == ("mine", "proposal-1", "pay")
    assert (first.now, first.time_limit_ms) == (NOW, 1_234)
    assert first.idempotency_key.startswith("mine:")
    assert first.idempotency_key != second.idempotency_key
    assert [call.idempotency_key for call in again] == [first.idempotency_key, second.idempotency_key]


def test_the_parameters_are_the_actions_own_and_frozen() -> None:
    def pay(params: Any, call: Any) -> Any:
        params["item"] = "other"

    assert "TypeError" in error_of(performed(pay)).message
    assert performed(lambda params, call: params).value == {"item": "tea", "stock": 2}


@pytest.mark.requirement("HC-compute")
def test_a_handler_sees_the_state_with_the_patches_made_before_it() -> None:
    views: list[Any] = []

    def pay(params: Any, call: Any) -> Any:
        views.append(call.view)
        return None

    performed(pay)
    (view,) = views
    assert view.data["stock"] == 2
    assert view.computed == {"computed.lineCount": 0}
    with pytest.raises(TypeError):
        view.data["stock"] = 5


def test_context_variables_reach_the_handler() -> None:
    session: contextvars.ContextVar[str] = contextvars.ContextVar("session")
    session.set("s-1")
    assert performed(lambda params, call: session.get()).value == "s-1"


class ProcessEnds(BaseException):
    """What kills a process in the middle of an effect, as far as a test can."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ProcessEnds])
def test_what_ends_the_process_passes_through(kind: type[BaseException]) -> None:
    def ends(params: Any, call: Any) -> Any:
        raise kind

    with pytest.raises(kind):
        performed(ends)
