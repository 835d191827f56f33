"""Handlers and registries: what is accepted, what is refused, and what they tell about themselves."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from host import DEFAULT_TIME_LIMIT_MS, EffectFailure, EffectHandler, EffectRegistry, handler, idempotency_key
from host.effects import MAX_RETRIES, MAX_TIME_LIMIT_MS, MAX_TYPE_CHARS
from tests.host.effect_calls import call_of
from world.errors import RefusedError
from world.model.immutable_json import freeze
from world.state.ports import EffectTerms


def answering(value: Any, effect_type: str = "x") -> EffectHandler:
    return handler(effect_type)(lambda params, call: value)


@handler("mail.send", time_limit_ms=10, idempotent=True, touches=[("MUTATES", "URL:https://mail.example/*")])
def send(params: Any, call: Any) -> Any:
    return params["to"]


def test_a_handler_says_what_it_promises_and_where_it_stands() -> None:
    assert send.terms == EffectTerms(time_limit_ms=10, idempotent=True)
    assert (send.type, send.source) == ("mail.send", f"{__name__}:send")
    assert send.touches == (("MUTATES", "URL:https://mail.example/*"),)


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
    with pytest.raises(RefusedError, match="two arguments") as refused:
        handler("x")(function)
    assert refused.value.code == "INVALID_HANDLER"


@pytest.mark.parametrize("name", ["", "x" * (MAX_TYPE_CHARS + 1), None, 3])
def test_an_effect_needs_a_name_of_bounded_length(name: Any) -> None:
    with pytest.raises(RefusedError, match="name"):
        handler(name)(lambda params, call: None)


@pytest.mark.parametrize("limit", [0, -1, MAX_TIME_LIMIT_MS + 1, 1.5, True, None])
def test_a_time_limit_is_a_positive_bounded_number_of_milliseconds(limit: Any) -> None:
    with pytest.raises(RefusedError, match="time limit"):
        handler("x", time_limit_ms=limit)(lambda params, call: None)


@pytest.mark.parametrize("touch", [("TOUCHES", "FILE:/a"), ("MUTATES", "/a"), ("MUTATES",), "MUTATES", 3])
def test_what_an_effect_touches_is_a_predicate_and_a_resource(touch: Any) -> None:
    with pytest.raises(RefusedError, match="touches"):
        handler("x", touches=[touch])(lambda params, call: None)


def test_two_handlers_of_one_effect_are_refused_whichever_comes_first() -> None:
    first, second = answering(1), answering(2)
    for pair in ((first, second), (second, first)):
        with pytest.raises(RefusedError, match="two handlers") as refused:
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

    assert [given.type for given in registry] == ["a", "b", "c"]
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


# --- parameters ------------------------------------------------------------------------------------


class User(BaseModel):
    name: str


class Mail(BaseModel):
    model_config = ConfigDict(extra="forbid")

    to: str = Field(alias="recipient")
    copies: int = 1
    user: User | None = None
    urgency: Literal["low", "high"] = "low"


class Note(TypedDict):
    text: str


def taking(type_: Any, **told: Any) -> EffectHandler:
    return handler("mail.send", input=type_, **told)(lambda params, call: params)


def made(given: EffectHandler, params: Any) -> Any:
    return given(freeze(params), call_of(given.type))


def test_a_handler_gets_its_parameters_as_the_type_it_declares() -> None:
    mail = made(taking(Mail), {"recipient": "ann", "user": {"name": "Ann"}})
    assert mail == Mail(recipient="ann", user=User(name="Ann"))
    assert made(taking(Note), {"text": "a"}) == {"text": "a"}
    assert made(taking(dict[str, list[int]]), {"a": [1, 2]}) == {"a": [1, 2]}


def test_all_faults_of_the_parameters_are_told_with_their_paths_and_the_handler_is_not_called() -> None:
    called = []
    given = handler("mail.send", input=Mail)(lambda params, call: called.append(params))
    answer = made(given, {"copies": "1", "user": {"name": 3}, "urgency": "none", "more": True})
    assert isinstance(answer, EffectFailure)
    assert answer.code == "EFFECT_INVALID_INPUT"
    assert answer.context is not None
    paths = [fault["path"] for fault in answer.context["faults"]]
    assert paths == ["$.recipient", "$.copies", "$.user.name", "$.urgency", "$.more"]
    assert all(path in answer.message for path in paths)
    assert called == []


@pytest.mark.parametrize(
    "params", [{"recipient": 1}, {"recipient": "a", "copies": True}, {"recipient": "a", "copies": 1.5}]
)
def test_parameters_are_not_converted(params: dict[str, Any]) -> None:
    assert isinstance(made(taking(Mail), params), EffectFailure)


@pytest.mark.parametrize("type_", ["no such type", object(), 3, lambda: 1])
def test_an_input_that_is_no_type_of_data_is_refused(type_: Any) -> None:
    with pytest.raises(RefusedError, match=r"mail\.send") as refused:
        taking(type_)
    assert refused.value.code == "INVALID_HANDLER"


# --- triples ---------------------------------------------------------------------------------------


def test_what_an_effect_touches_is_filled_in_from_its_parameters() -> None:
    given = handler(
        "x",
        touches=[
            ("MUTATES", "URL:https://mail.example/{to}/{user.name}/{lines.0.n}"),
            ("CONSUMES", "FILE:/fixed"),
            ("CONSUMES", "SYMBOL:{{to}}"),
            ("PROVIDES", lambda params: f"FILE:/out/{params['to']}"),
            ("DELETES", lambda params: [f"FILE:/{line['n']}" for line in params["lines"]]),
        ],
    )(lambda params, call: None)
    assert given.triples(freeze({"to": "ann", "user": {"name": "A"}, "lines": [{"n": 1}, {"n": 2}]})) == [
        ("MUTATES", "URL:https://mail.example/ann/A/1"),
        ("CONSUMES", "FILE:/fixed"),
        ("CONSUMES", "SYMBOL:{to}"),
        ("PROVIDES", "FILE:/out/ann"),
        ("DELETES", "FILE:/1"),
        ("DELETES", "FILE:/2"),
    ]


def test_places_are_filled_with_defaults_and_by_the_names_on_the_wire() -> None:
    given = taking(Mail, touches=[("MUTATES", "URL:https://mail.example/{recipient}/{copies}")])
    assert given.triples({"recipient": "ann"}) == [("MUTATES", "URL:https://mail.example/ann/1")]


def test_all_touches_may_be_one_function_of_the_parameters() -> None:
    given = taking(Mail, touches=lambda mail: [("MUTATES", f"URL:https://mail.example/{mail.to}")])
    assert given.triples({"recipient": "ann"}) == [("MUTATES", "URL:https://mail.example/ann")]


@pytest.mark.parametrize("params", [{}, {"to": None}, {"to": ""}, {"to": 1.5}, {"to": True}, {"to": ["a"]}, {"to": {}}])
def test_a_place_without_anything_to_fill_it_is_a_fault_of_the_parameters(params: dict[str, Any]) -> None:
    called = []
    given = handler("x", touches=[("MUTATES", "FILE:/{to}")])(lambda params, call: called.append(params))
    with pytest.raises(RefusedError) as refused:
        given.triples(params)
    assert refused.value.code == "EFFECT_INVALID_INPUT"
    assert refused.value.details["faults"][0]["path"] == "$.to"
    answer = made(given, params)
    assert isinstance(answer, EffectFailure)
    assert answer.code == "EFFECT_INVALID_INPUT"
    assert called == []


@pytest.mark.parametrize("touches", [[("MUTATES", "FILE:/{")], [("MUTATES", "FILE:/{}")], [("MUTATES", "FILE:/a}")]])
def test_a_brace_that_belongs_to_no_place_is_refused(touches: Any) -> None:
    with pytest.raises(RefusedError, match="brace"):
        handler("x", touches=touches)(lambda params, call: None)


def nonsense() -> Iterable[Any]:
    def raises(params: Any) -> Any:
        raise KeyError("no")

    yield from (raises, lambda params: [("MUTATES",)], lambda params: [("TOUCHES", "FILE:/a")], lambda params: 3)
    yield [("MUTATES", raises)]
    yield [("MUTATES", lambda params: "/a")]
    yield [("MUTATES", lambda params: [3])]


@pytest.mark.parametrize("touches", list(nonsense()))
def test_a_function_that_cannot_tell_what_is_touched_ends_the_effect_before_it_begins(touches: Any) -> None:
    given = handler("x", touches=touches)(lambda params, call: 1 // 0)
    answer = made(given, {})
    assert isinstance(answer, EffectFailure)
    assert answer.code == "EFFECT_INVALID_TOUCHES"


@given(st.text(max_size=8), st.text(max_size=8).filter(lambda text: text != ""))
def test_a_template_gives_back_every_text_around_and_in_its_place(around: str, value: str) -> None:
    template = "SYMBOL:x" + around.replace("{", "{{").replace("}", "}}") + "{to}"
    if "\n" in around:
        return
    assert handler("x", touches=[("MUTATES", template)])(lambda params, call: None).triples({"to": value}) == [
        ("MUTATES", "SYMBOL:x" + around + value)
    ]


# --- terms -----------------------------------------------------------------------------------------


def test_what_is_promised_may_depend_on_the_parameters() -> None:
    given = taking(
        Mail,
        idempotent=lambda mail: mail.copies == 1,
        time_limit_ms=lambda mail: mail.copies * 100,
        retries=3,
        backoff_ms=7,
    )
    assert given.terms_for({"recipient": "a"}) == EffectTerms(100, True, retries=3, backoff_ms=7)
    assert given.terms_for({"recipient": "a", "copies": 2}) == EffectTerms(200, False, retries=3, backoff_ms=7)
    assert given.terms == EffectTerms(DEFAULT_TIME_LIMIT_MS, False, retries=3, backoff_ms=7)
    registry = EffectRegistry([given])
    assert registry.terms("mail.send") == given.terms
    assert registry.terms("mail.send", {"recipient": "a"}).idempotent


@pytest.mark.parametrize(
    "params", [{}, {"recipient": "a", "copies": -1}, {"recipient": "a", "copies": MAX_TIME_LIMIT_MS}]
)
def test_what_cannot_be_told_from_the_parameters_is_promised_as_for_all(params: dict[str, Any]) -> None:
    given = taking(Mail, time_limit_ms=lambda mail: mail.copies * 1000)
    assert given.terms_for(params) == given.terms


@pytest.mark.parametrize("answer", ["yes", 1, None])
def test_only_true_is_a_promise_of_idempotence(answer: Any) -> None:
    assert not handler("x", idempotent=lambda params: answer)(lambda params, call: None).terms_for({}).idempotent

    def raises(params: Any) -> bool:
        raise KeyError("no")

    assert not handler("x", idempotent=raises)(lambda params, call: None).terms_for({}).idempotent


@pytest.mark.parametrize("told", [{"retries": -1}, {"retries": MAX_RETRIES + 1}, {"retries": 1.5}, {"backoff_ms": 0}])
def test_retries_and_backoff_are_bounded(told: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match=r"retries|backoff"):
        handler("x", **told)(lambda params, call: None)


# --- built-in ones ---------------------------------------------------------------------------------


def test_a_built_in_handler_gives_way_to_one_other_of_its_type() -> None:
    builtin, own, second = answering(1), answering(2), answering(3)
    registry = EffectRegistry([answering(0, "y")], builtin=[builtin])
    assert registry.find("x") is builtin
    registry.add(own)
    assert registry.find("x") is own
    with pytest.raises(RefusedError, match="two handlers"):
        registry.add(second)
    assert registry.builtin == frozenset()


def test_a_call_tells_sensible_things_where_nobody_fills_them_in() -> None:
    call = call_of("x")
    assert (call.attempt, call.requested_at, call.fencing_token) == (1, 0, 0)
    assert (call.workspace, call.scratch, call.is_cancelled()) == (None, None, False)
    call.check()
    assert call.clock.now_ms() > 0
