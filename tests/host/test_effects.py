"""Handlers and registries: what is accepted, what is refused, and what they tell about themselves."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from host import DEFAULT_TIME_LIMIT_MS, EffectHandler, EffectRegistry, handler, idempotency_key
from host.effects import MAX_TIME_LIMIT_MS, MAX_TYPE_CHARS
from world.errors import Refused
from world.ports import EffectTerms


def answering(value: Any, effect_type: str = "x") -> EffectHandler:
    return handler(effect_type)(lambda params, call: value)


@handler("mail.send", time_limit_ms=10, idempotent=True, touches=[("MUTATES", "URL:https://mail.example/*")])
def send(params: Any, call: Any) -> Any:
    return params["to"]


def test_a_handler_says_what_it_promises_and_where_it_stands() -> None:
    assert send.terms == EffectTerms(time_limit_ms=10, idempotent=True)
    assert send.to_wire() == {
        "type": "mail.send",
        "source": f"{__name__}:send",
        "timeLimitMs": 10,
        "idempotent": True,
        "touches": [{"predicate": "MUTATES", "resource": "URL:https://mail.example/*"}],
    }


def test_a_handler_can_be_called_like_its_function() -> None:
    assert send({"to": "ann"}, None) == "ann"  # type: ignore[arg-type]


def test_a_handler_that_says_nothing_is_not_idempotent_and_has_the_usual_limit() -> None:
    assert answering(1).terms == EffectTerms(DEFAULT_TIME_LIMIT_MS, idempotent=False)


class Callable2:
    def __call__(self, params: Any, call: Any) -> Any:
        return None


@pytest.mark.parametrize(
    "function", [Callable2(), functools.partial(lambda a, b, c: c, 1), max, lambda *given: 1, dict]
)
def test_whatever_takes_two_arguments_can_be_a_handler(function: Any) -> None:
    made = handler("x")(function)
    assert ":" in made.source


@pytest.mark.parametrize("function", [None, 3, "text", lambda: 1, lambda params: 1, lambda a, b, c: 1])
def test_what_does_not_take_two_arguments_is_refused_as_a_handler(function: Any) -> None:
    with pytest.raises(Refused, match="two arguments") as refused:
        handler("x")(function)
    assert refused.value.code == "INVALID_HANDLER"


@pytest.mark.parametrize("name", ["", "x" * (MAX_TYPE_CHARS + 1), None, 3])
def test_an_effect_needs_a_name_of_bounded_length(name: Any) -> None:
    with pytest.raises(Refused, match="name"):
        handler(name)(lambda params, call: None)


@pytest.mark.parametrize("limit", [0, -1, MAX_TIME_LIMIT_MS + 1, 1.5, True, None])
def test_a_time_limit_is_a_positive_bounded_number_of_milliseconds(limit: Any) -> None:
    with pytest.raises(Refused, match="time limit"):
        handler("x", time_limit_ms=limit)(lambda params, call: None)


@pytest.mark.parametrize("touch", [("TOUCHES", "FILE:/a"), ("MUTATES", "/a"), ("MUTATES",), "MUTATES", 3])
def test_what_an_effect_touches_is_a_predicate_and_a_resource(touch: Any) -> None:
    with pytest.raises(Refused, match="touches"):
        handler("x", touches=[touch])(lambda params, call: None)


def test_two_handlers_of_one_effect_are_refused_whichever_comes_first() -> None:
    first, second = answering(1), answering(2)
    for pair in ((first, second), (second, first)):
        with pytest.raises(Refused, match="two handlers") as refused:
            EffectRegistry(pair)
        assert refused.value.code == "DUPLICATE_HANDLER"


def test_adding_the_same_handler_twice_changes_nothing() -> None:
    one = answering(1)
    assert list(EffectRegistry([one, one])) == [one]


def test_a_registry_lists_its_handlers_by_type() -> None:
    registry = EffectRegistry([answering(1, "b"), answering(1, "a")])

    @registry.handler("c", idempotent=True)
    def made(params: Any, call: Any) -> Any:
        return None

    assert [given["type"] for given in registry.to_wire()] == ["a", "b", "c"]
    assert len(registry) == 3
    assert "c" in registry
    assert registry.find("c") is made
    assert registry.terms("c").idempotent
    assert registry.find("d") is None


def test_an_unknown_effect_promises_nothing() -> None:
    assert EffectRegistry().terms("x") == EffectTerms(DEFAULT_TIME_LIMIT_MS, idempotent=False)


@pytest.mark.requirement("HC-journal")
def test_the_idempotency_key_is_the_intent_with_the_requirement() -> None:
    assert idempotency_key("intent-1", "ab") == "intent-1:ab"
    assert idempotency_key("intent-1", "ab") != idempotency_key("intent-2", "ab")
