"""Availability predicates: what they may read, what they need, and how the core decides them."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.support.tables import for_each
from world.core import (
    AvailabilityContext,
    Computation,
    ComputeContext,
    Domain,
    EffectAnswer,
    Invocation,
    availability,
    compute,
    effect,
    genesis,
    load_schema,
    set_,
)
from world.core.availability import actor_fields, impure_reads, needed, read_predicate
from world.core.expressions.scope import Scope
from world.core.values import ExpressionError
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict

CONTEXT = ComputeContext(1_000, "seed")
ANN = ActorRef(actor_id="ann", kind="human", name="Ann", meta={"role": "editor", "teams": ["a", "b"], "none": None})
BOT = ActorRef(actor_id="bot", kind="agent")


def get(path: str) -> dict[str, Any]:
    return {"kind": "get", "path": path}


def lit(value: Any) -> dict[str, Any]:
    return {"kind": "lit", "value": value}


def eq(left: Any, right: Any) -> dict[str, Any]:
    return {"kind": "eq", "left": left, "right": right}


def both(*args: Any) -> dict[str, Any]:
    return {"kind": "and", "args": list(args)}


class Door(BaseModel):
    locked: bool = False
    opened: int = 0


def door(available: Any = None) -> Domain:
    domain = Domain("urn:test:door", version="1.0.0", state=Door)
    domain.computed("open", expr={"kind": "not", "arg": get("locked")})

    @domain.action("enter", version="1", available=available)
    def enter(ctx: Any) -> Any:
        return [set_("opened", ctx.data["opened"] + 1)]

    return domain


def entered(domain: Domain, actor: ActorRef | None = None, **data: Any) -> Computation:
    return compute(domain, genesis(domain, CONTEXT, data), Invocation("enter", None, "intent-1", actor), CONTEXT)


# --- what a schema may say --------------------------------------------------------------------------


@pytest.mark.requirement("INT-7.4.2b", "INV-AC4")
@for_each(
    "path",
    [
        "$system.timestamp",
        "$system.uuid",
        "$input.x",
        "$meta.actor",
        "$host.jobs",
        "input",
        "input.x",
        "meta",
        "meta.timestamp",
        "meta.intentId",
        "meta.randomSeed",
        "meta.actor.password",
        "meta.actors",
        "system.status",
        "system",
    ],
)
def test_a_schema_is_refused_whose_availability_reads_what_is_impure(path: str) -> None:
    for expression in (get(path), both(lit(False), eq(get(path), lit(1))), {"kind": "isNull", "arg": get(path)}):
        with pytest.raises(RefusedError) as caught:
            _ = door(expression).schema
        assert [(fault["code"], fault["path"]) for fault in caught.value.details["faults"]] == [
            ("V-003", "$.actions.enter.available")
        ]
        assert repr(path) in caught.value.message


@pytest.mark.requirement("INT-3.4a", "INT-7.4.2a")
@pytest.mark.parametrize(
    "path",
    ["locked", "computed.open", "meta.actor", "meta.actor.actorId", "meta.actor.id", "meta.actor.kind",
     "meta.actor.type", "meta.actor.name", "meta.actor.meta", "meta.actor.meta.a.b"],
)  # fmt: skip
def test_availability_may_read_data_computed_values_and_the_actor(path: str) -> None:
    assert load_schema(door(get(path)).schema.portable).actions["enter"].available == get(path)


def test_a_walk_in_a_predicate_has_its_own_names() -> None:
    walk = {"kind": "some", "array": get("meta.actor.meta.teams"), "predicate": eq(get("$item"), lit("b"))}
    assert entered(door(walk), ANN).status == "complete"
    assert impure_reads(walk) == []


def test_a_place_that_does_not_exist_is_still_told() -> None:
    with pytest.raises(RefusedError, match=r"nothing to read at 'actor\.kind'"):
        _ = door(get("actor.kind")).schema


@pytest.mark.requirement("INT-7.4.2b", "INV-AC4")
@pytest.mark.parametrize("path", ["$system.timestamp", "input.x", "meta.timestamp"])
def test_an_impure_predicate_is_never_silently_evaluated(path: str) -> None:
    found = read_predicate({"kind": "isNull", "arg": get(path)})
    assert found.impure == (path,)
    with pytest.raises(ExpressionError, match="cannot read"):
        found.evaluate(Scope({}, computed={}))


def test_a_malformed_predicate_says_what_is_wrong_and_cannot_be_evaluated() -> None:
    found = read_predicate({"kind": "not", "arg": {"kind": "nope"}})
    assert found.faults == ("$.arg: Unknown expression kind: 'nope'.",)
    with pytest.raises(ExpressionError):
        found.evaluate(Scope({}, computed={}))


# --- what a predicate needs -------------------------------------------------------------------------


@pytest.mark.requirement("INT-7.4.2e")
@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (eq(get("meta.actor.meta.role"), lit("x")), ["meta.actor.meta.role"]),
        (both(lit(False), get("meta.actor.meta.role")), ["meta.actor.meta.role"]),
        ({"kind": "or", "args": [lit(True), get("computed.open")]}, ["computed.open"]),
        ({"kind": "if", "cond": lit(True), "then": lit(1), "else": get("meta.actor.name")}, ["meta.actor.name"]),
        ({"kind": "field", "object": get("meta.actor.meta"), "property": "role"}, ["meta.actor.meta.role"]),
        ({"kind": "isNull", "arg": get("meta.actor.meta.role")}, []),
        ({"kind": "isNull", "arg": {"kind": "len", "arg": get("meta.actor.name")}}, ["meta.actor.name"]),
        ({"kind": "coalesce", "args": [get("meta.actor.meta.role"), lit("guest")]}, []),
        ({"kind": "coalesce", "args": [lit(1), get("meta.actor.meta.role")]}, ["meta.actor.meta.role"]),
        (eq(get("locked"), get("$item")), []),
    ],
)
def test_what_a_predicate_needs_is_found_without_evaluating_it(expression: Any, wanted: list[str]) -> None:
    assert list(needed(expression)) == wanted


@pytest.mark.requirement("INT-7.4.2e")
@for_each(
    ("path", "absent"),
    [
        ("meta.actor.meta.role", False),
        ("meta.actor.meta.none", False),
        ("meta.actor.meta.rank", True),
        ("meta.actor.meta.role.x", True),
        ("meta.actor.meta.a\\.b", True),
        ("meta.actor.meta.teams.1", False),
        ("meta.actor.meta.teams.2", True),
        ("meta.actor.meta.teams.length", False),
        ("meta.actor.name", False),
        ("computed.open", False),
        ("computed.open.inner", False),
        ("computed.other", True),
    ],
)
def test_a_key_that_holds_null_is_there_and_one_that_does_not_exist_is_absent(path: str, absent: bool) -> None:
    missing = read_predicate(get(path)).missing(actor_fields(ANN), {"computed.open": None})
    assert missing == ([path] if absent else [])


def test_without_an_actor_everything_of_the_actor_is_absent() -> None:
    assert read_predicate(get("meta.actor.kind")).missing(actor_fields(None), {}) == ["meta.actor.kind"]


@given(st.recursive(
    st.sampled_from([get("meta.actor.meta.k"), lit(True), get("locked")]),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda args: both(*args))
    | st.lists(inner, min_size=1, max_size=3).map(lambda args: {"kind": "or", "args": args})
    | inner.map(lambda arg: {"kind": "not", "arg": arg}),
))  # fmt: skip
@pytest.mark.requirement("INT-7.4.2e")
def test_a_key_is_needed_wherever_a_connective_may_hide_it(expression: Any) -> None:
    assert ("meta.actor.meta.k" in set(needed(expression))) is ("meta.actor.meta.k" in repr(expression))


# --- how the core decides ---------------------------------------------------------------------------


@pytest.mark.requirement("IC-available", "INT-7.4.2a")
@pytest.mark.parametrize(
    ("expression", "actor", "status"),
    [
        (eq(get("meta.actor.kind"), lit("human")), ANN, "complete"),
        (eq(get("meta.actor.kind"), lit("human")), BOT, "error"),
        (eq(get("meta.actor.type"), get("meta.actor.kind")), BOT, "complete"),
        (eq(get("meta.actor.id"), lit("bot")), BOT, "complete"),
        (eq(get("meta.actor.meta.role"), lit("editor")), ANN, "complete"),
        (both(get("computed.open"), eq(get("meta.actor.actorId"), lit("ann"))), ANN, "complete"),
    ],
)
def test_the_core_admits_by_the_actor_too(expression: Any, actor: ActorRef, status: str) -> None:
    done = entered(door(expression), actor)
    assert done.status == status
    if status == "error":
        assert done.error is not None
        assert done.error.code == "ACTION_UNAVAILABLE"
        assert done.patches == ()


@pytest.mark.requirement("INT-7.4.5", "INV-AC5")
@pytest.mark.parametrize(
    ("expression", "status"),
    [
        (eq(get("meta.actor.meta.role"), lit("editor")), "error"),
        ({"kind": "neq", "left": get("meta.actor.meta.role"), "right": lit("guest")}, "complete"),
    ],
)
def test_the_core_decides_what_a_catalog_does_not_know(expression: Any, status: str) -> None:
    assert read_predicate(expression).missing(actor_fields(BOT), {}) == ["meta.actor.meta.role"]
    assert entered(door(expression), BOT).status == status


@pytest.mark.requirement("IC-available", "INT-3.4b")
def test_a_local_function_is_asked_before_the_action_runs() -> None:
    domain = door()
    seen: list[AvailabilityContext] = []

    @domain.available("enter")
    def may_enter(ctx: AvailabilityContext) -> bool:
        seen.append(ctx)
        return bool(ctx.computed["open"]) and ctx.computed["computed.open"] is not ctx.data["locked"]

    assert entered(domain, ANN).status == "complete"
    assert seen[0].actor is ANN
    locked = entered(domain, ANN, locked=True)
    assert locked.error is not None
    assert (locked.error.code, locked.patches) == ("ACTION_UNAVAILABLE", ())


@pytest.mark.requirement("IC-available", "INT-3.4b")
@pytest.mark.parametrize("answer", [1, "yes", "no", [0], 0, "", None, {}])
def test_an_availability_that_is_no_boolean_is_an_error_and_makes_the_action_unavailable(answer: Any) -> None:
    in_python = door()
    in_python.available("enter")(lambda ctx: answer)
    for domain in (in_python, door(lit(answer))):
        error = entered(domain).error
        assert error is not None
        assert error.code == "ACTION_UNAVAILABLE"
        assert "neither true nor false" in error.message


@pytest.mark.requirement("IC-available", "INT-3.4b")
def test_an_availability_is_true_or_false() -> None:
    for answer, status in ((True, "complete"), (False, "error")):
        in_python = door()
        in_python.available("enter")(lambda ctx, answer=answer: answer)
        for domain in (in_python, door(lit(answer))):
            done = entered(domain)
            assert done.status == status
            assert done.error is None or "neither" not in done.error.message


@pytest.mark.requirement("IC-available", "CARD-replay")
@pytest.mark.parametrize(("answer", "status"), [(1, "complete"), ("no", "complete"), ([0], "complete"), (0, "error")])
def test_under_the_rules_of_older_logs_an_availability_counts_by_its_truth(answer: Any, status: str) -> None:
    in_python = door()
    in_python.available("enter")(lambda ctx: answer)
    for domain in (in_python, door(lit(answer))):
        assert domain.take_form(domain.schema.hash, 1)
        assert entered(domain).status == status


@pytest.mark.requirement("CARD-replay")
@pytest.mark.parametrize("taken", [1, 2, 3])
def test_an_adoption_that_names_no_rules_has_the_first_ones(taken: int) -> None:
    domain = door()
    assert domain.take_form(domain.schema.hash, taken)
    assert domain.is_form(domain.schema.hash, None) is (taken == 1)
    in_form = domain.in_form(domain.schema.hash, None)
    assert in_form is not None
    assert (in_form.schema.rules, domain.schema.rules) == (1, taken)


@pytest.mark.requirement("IC-available", "CARD-replay")
@pytest.mark.parametrize(("rules", "is_said"), [(1, False), (2, True), (3, True)])
def test_an_error_under_the_rules_of_older_logs_has_the_sentence_of_then(rules: int, is_said: bool) -> None:
    domain = door()
    domain.available("enter")(lambda ctx: 1 // 0)
    assert domain.take_form(domain.schema.hash, rules)
    error = entered(domain).error
    assert error is not None
    why = ": its availability is neither true nor false" if is_said else ""
    assert error.message == f"The action 'enter' is not available in this state{why}."


@pytest.mark.requirement("IC-available", "INT-3.4b")
@pytest.mark.parametrize(
    "function",
    [lambda ctx: None, lambda ctx: 1 // 0, lambda ctx: object(), lambda ctx: ctx.data.update(x=1), lambda ctx: 0],
)
def test_a_local_function_that_does_not_say_yes_admits_nobody(function: Any) -> None:
    domain = door()
    domain.available("enter")(function)
    done = entered(domain)
    assert done.error is not None
    assert done.error.code == "ACTION_UNAVAILABLE"


@pytest.mark.requirement("IC-available", "IC-reentry")
def test_a_local_function_is_not_asked_again_at_reentry() -> None:
    domain = Domain("urn:test:door", version="1.0.0", state=Door)
    asked: list[int] = []

    @domain.action("enter", version="1")
    def enter(ctx: Any) -> Any:
        yield effect("door.open")
        return [set_("opened", 1)]

    @domain.available("enter")
    def once(ctx: AvailabilityContext) -> bool:
        asked.append(1)
        return True

    (wait,) = entered(domain).requirements
    again = compute(
        domain,
        genesis(domain, CONTEXT, {}),
        Invocation("enter", None, "intent-1"),
        CONTEXT,
        {wait.id: EffectAnswer()},
    )
    assert (again.status, len(asked)) == ("complete", 1)


@pytest.mark.requirement("INT-3.4b")
def test_a_local_function_is_no_part_of_the_portable_schema() -> None:
    plain, local = door(), door()
    local.available("enter")(lambda ctx: True)
    assert local.schema.portable == plain.schema.portable
    assert local.schema.hash == plain.schema.hash
    assert set(local.sources()) - set(plain.sources()) == {"available:enter"}


@pytest.mark.requirement("INT-3.4b")
def test_an_action_has_one_predicate_and_it_answers_at_once() -> None:
    async def later(ctx: Any) -> bool:
        return True

    def bit_by_bit(ctx: Any) -> Any:
        yield True

    def codes(domain: Domain, action: str, function: Any) -> str:
        with pytest.raises(RefusedError) as caught:
            domain.available(action)(function)
        return caught.value.code

    domain = door()
    assert codes(domain, "leave", len) == "INVALID_ACTION"
    assert codes(domain, "enter", later) == "INVALID_ACTION"
    assert codes(domain, "enter", bit_by_bit) == "INVALID_ACTION"
    domain.available("enter")(functools.partial(bool))
    assert codes(domain, "enter", len) == "DUPLICATE_NAME"
    assert codes(door(lit(True)), "enter", len) == "DUPLICATE_NAME"
    found = domain.local_predicate("enter")
    assert found is not None
    assert (found.kind, domain.local_predicate("leave")) == ("fn", None)


def test_availability_is_told_to_readers_for_an_actor() -> None:
    domain = door(eq(get("meta.actor.kind"), lit("human")))
    view = genesis(domain, CONTEXT, {}).view
    assert availability(domain, view, "enter", ANN) is True
    assert availability(domain, view, "enter", BOT) is False
    assert availability(domain, view, "enter") is False
    assert availability(domain, view, "leave", ANN) is False


def test_the_actors_fields_are_frozen() -> None:
    fields = actor_fields(ANN)
    assert isinstance(fields, FrozenDict)
    with pytest.raises(TypeError):
        fields["actor"]["meta"]["role"] = "x"
