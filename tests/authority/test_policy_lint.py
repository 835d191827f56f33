"""What lint says of a policy is true: of names that do not exist, constant conditions, and rules that never matter."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from authority.lint.lint import LintContext, LintFinding, lint
from authority.lint.terms import ALWAYS, NEVER, constant, implies, term_of_cel
from authority.people.answers import QuestionSettings
from authority.policies.cedar import policy_from_cedar
from authority.policies.opinions import Approve
from authority.policies.policy import Policy
from authority.policies.policy_file import policy_from_text
from authority.policies.rule_composition import UnsafeApproveAll
from authority.policies.rules import rule
from authority.scope import is_within
from tests.authority.cases import make_case
from tests.support.tables import for_each
from world.core import ActionContext, Domain, Patch
from world.model.canonical_json import canonical_text
from world.model.intent import IntentScope


class Box(BaseModel):
    """The state."""

    balance: int = 0
    free: dict[str, int] = {}


class Payment(BaseModel):
    """An input."""

    to: str
    amount: int


box = Domain("urn:test:box", version="1.0.0", state=Box)


@box.action("pay", version="1")
def pay(ctx: ActionContext, input: Payment) -> list[Patch]:  # noqa: A002
    """Do nothing."""
    return []


@box.action("rest", version="1")
def rest(ctx: ActionContext) -> list[Patch]:
    """Do nothing."""
    return []


AROUND = LintContext(box.schema, {"ann": "human", "bot": "agent"})


def said(*rules: dict[str, Any], around: LintContext = AROUND) -> list[LintFinding]:
    named = [{"id": f"r{at}", "verdict": "approve", **one} for at, one in enumerate(rules)]
    return lint(policy_from_text(canonical_text({"name": "house", "rules": named}), "rules.yaml"), around)


def checks(*rules: dict[str, Any], around: LintContext = AROUND) -> list[tuple[str | None, str, str]]:
    return [(one.rule, one.level, one.check) for one in said(*rules, around=around)]


@pytest.mark.requirement("CARD-policy")
@for_each(
    ("wrong", "level", "check"),
    [
        ({"actions": ["pya"]}, "error", "unknown-action"),
        ({"actions": ["p*x"]}, "error", "unknown-action"),
        ({"when": "intent.type == 'pya'"}, "error", "unknown-action"),
        ({"when": "'pya' != intent.type"}, "error", "unknown-action"),
        ({"when": 'intent.type in ["pay", "pya"]'}, "error", "unknown-action"),
        ({"when": 'history.count({"action": "pya"}) > 1'}, "error", "unknown-action"),
        ({"when": "actor.kind == 'robot'"}, "error", "unknown-kind"),
        ({"when": "actor.actorId == 'zoe'"}, "warning", "unknown-actor"),
        ({"actors": ["zoe*"]}, "warning", "unknown-actor"),
        ({"when": "base.data.balnce > 1"}, "warning", "unknown-path"),
        ({"when": "has(base.data.balance.x)"}, "warning", "unknown-path"),
        ({"when": "base.computed.total > 1"}, "warning", "unknown-path"),
        ({"when": "intent.input.amont > 1", "actions": ["pay"]}, "error", "unknown-path"),
        ({"actions": ["pay"], "reason": "{intent.input.amont}"}, "error", "unknown-path"),
        ({"verdict": "narrow", "scope": ["data.blance.*"]}, "warning", "unknown-path"),
        ({"when": 'history.sum("amont", {"action": "pay"}) > 1'}, "warning", "unknown-path"),
        ({"when": "1 + (history.sum('to..b', {'since': now, 'action': 'pay'})) > 1"}, "warning", "unknown-path"),
        ({"when": "1 < 2"}, "warning", "constant"),
        ({"when": "true"}, "warning", "constant"),
        ({"when": "1 / 0 > 1"}, "error", "constant"),
        ({"when": "base.data.balance > 1 && base.data.balance <= 1"}, "warning", "constant"),
        ({"verdict": "escalate", "to": ["zoe"]}, "error", "nobody-to-ask"),
        *(
            ({"when": one, "actions": ["pay"]}, "error", "type")
            for one in (
                "intent.input.amount == '5'",
                "5 != intent.input.to",
                "intent.input.to > 5",
                "intent.input.amount < 'a == b'",
                "intent.input.to == true",
                "base.data.balance == 'many'",
                "intent.input.to == ['x']",
                "actor.kind == 'agent' && (intent.input.amount == '5' || intent.input.amount > 7)",
            )
        ),
    ],
)
def test_what_cannot_be_meant_is_found(wrong: dict[str, Any], level: str, check: str) -> None:
    assert checks(wrong) == [("r0", level, check)]


@for_each(
    "sound",
    [
        {"actions": ["p*"], "actors": ["b*"]},
        {"when": "base.data.free.anything > 1 && base.data.balance > 1"},
        {"when": "intent.type == 'pay' && intent.input.amount > 1"},
        {"when": "has(actor.meta.level) && actor.kind == 'agent'"},
        {
            "when": "intent.input.amount == -5 || intent.input.to == '5' || 1.5 < intent.input.amount",
            "actions": ["pay"],
        },
        {"when": "intent.input.to == '== 5' && base.data.free.x == 'any' && actor.meta.level == 5"},
        {"when": "base.data.free[intent.input.to] > 1"},
        {"when": 'history.sum("amount", {"actorId": actor.actorId, "action": "pay"}) > 1'},
        {"when": 'history.sum("amount", {"action": intent.type}) + history.sum("amount", {}) > 1'},
        {"verdict": "narrow", "scope": ["data.*", "balance"]},
        {"verdict": "escalate", "to": ["*"]},
        {"verdict": "escalate"},
    ],
)
def test_what_may_be_meant_is_left_alone(sound: dict[str, Any]) -> None:
    assert checks(sound) == []


def test_a_question_to_any_human_needs_one() -> None:
    lonely = LintContext(box.schema, {"bot": "agent"})
    assert checks({"verdict": "escalate"}, around=lonely) == [("r0", "error", "nobody-to-ask")]
    asks = LintContext(box.schema, {"bot": "agent"}, ("bot",))
    assert checks({"verdict": "escalate"}, around=asks) == []


def test_without_a_schema_and_actors_only_the_rules_themselves_are_looked_at() -> None:
    assert checks({"actions": ["pya"], "actors": ["zoe"], "when": "base.data.x > 1"}, around=LintContext()) == []


@pytest.mark.requirement("CARD-policy")
def test_contradictions_and_rules_that_never_matter_are_found() -> None:
    found = said(
        {"when": "intent.input.amount > 5"},
        {"when": "5 < intent.input.amount", "verdict": "reject"},
        {"when": "intent.input.amount > 5 && actor.kind == 'agent'", "actions": ["pay"]},
        {"verdict": "narrow", "scope": ["data.balance"], "actions": ["rest"]},
        {"actions": ["re*"]},
        {"verdict": "narrow", "scope": ["data.*"], "actions": ["rest"]},
    )
    assert [(one.rule, one.check) for one in found] == [
        ("r1", "contradiction"),
        ("r2", "never-matters"),
        ("r4", "never-matters"),
        ("r5", "never-matters"),
    ]
    assert found[1].line == 1
    assert "r0 approves all its cases before it" in found[1].message


def test_a_policy_that_never_approves_is_told() -> None:
    assert checks({"verdict": "reject"}) == [(None, "warning", "never-approves")]


def test_of_rules_in_python_only_is_told_what_can_be_known() -> None:
    @rule
    def fine(case: Any) -> Any:
        return Approve()

    told = lint(Policy("house", [fine, UnsafeApproveAll()]), AROUND)
    assert [(one.rule, one.check) for one in told] == [("unsafe_approve_all", "approves-all")]
    namespace: dict[str, Any] = {}
    exec("def hidden(case): return None", namespace)
    (one,) = lint(Policy("house", [rule(namespace["hidden"])]), AROUND)
    assert (one.level, one.check) == ("warning", "no-source")


@pytest.mark.requirement("CARD-policy")
def test_cedar_is_looked_at_likewise() -> None:
    text = """
    @id("a") permit(principal, action == Action::"pya", resource);
    @id("b") permit(principal == Actor::"zoe", action, resource) when { principal.kind == "robot" };
    @id("c") permit(principal, action, resource) when { context.input.amount > 5 && resource.data.balnce > 1 };
    @id("d") forbid(principal, action, resource) unless { !(resource.data.balnce > 1 && 5 < context.input.amount) };
    @id("e") permit(principal, action == Action::"pay", resource) when { true };
    """
    found = lint(policy_from_cedar(text, "house.cedar"), AROUND)
    assert [one.level for one in found if one.check == "unknown-path"] == ["error", "error"]  # Cedar fails there
    assert [(one.rule, one.check, one.line) for one in found if one.check != "type"] == [
        ("a", "unknown-action", 2),
        ("b", "unknown-kind", 3),
        ("b", "unknown-actor", 3),
        ("c", "unknown-path", 4),
        ("d", "unknown-path", 5),
        ("d", "contradiction", 5),
        ("e", "constant", 6),
    ]


@pytest.mark.requirement("CARD-policy")
def test_what_cedar_refuses_for_its_type_is_found_before_a_case_is_judged() -> None:
    text = """
    @id("a") permit(principal, action == Action::"pay", resource) when { context.input.to < 5 };
    @id("b") permit(principal, action == Action::"pay", resource) when { context.input.amount + 1 < 5 };
    @id("c") permit(principal, action == Action::"pay", resource) when {
        context.input.amount.lessThan(decimal("1.0")) };
    @id("d") permit(principal, action == Action::"pay", resource) when { context.input.to.lessThan(decimal("1.0")) };
    @id("e") permit(principal, action == Action::"pay", resource) when { context.input.to == "ann" };
    """
    found = lint(policy_from_cedar(text, "house.cedar"), AROUND)
    assert [(one.rule, one.level) for one in found if one.check == "type"] == [
        ("a", "error"),
        ("b", "warning"),
        ("c", "warning"),
        ("d", "error"),
    ]
    assert "it applies < to intent.input.to, which is string and no number: the rule fails there" in found[0].message


def test_a_missing_value_is_an_error_in_cedar_where_the_policy_does_not_ask_for_it() -> None:
    text = """
    @id("a") permit(principal, action, resource) when { resource.data.nothing == 1 };
    @id("b") permit(principal, action, resource) when { resource.data has nothing && resource.data.nothing == 1 };
    """
    found = lint(policy_from_cedar(text, "house.cedar"), AROUND)
    assert [(one.rule, one.level) for one in found if one.check == "unknown-path"] == [("a", "error"), ("b", "warning")]


def test_conditions_are_compared_as_far_as_their_comparisons_tell() -> None:
    def term(text: str) -> Any:
        from authority.cel.tokens import tokens_of

        return term_of_cel([token.text for token in tokens_of(text)])

    assert term("true") == ALWAYS
    assert term("((false))") == NEVER
    assert constant(term("base.data.a == 1 || !(1 == base.data.a)")) is True
    assert constant(term("base.data.a > 1 && base.data.a <= 1")) is False
    assert constant(term("base.data.a > 1 ? true : false")) is None
    assert implies(term("base.data.a > 1 && base.data.b"), term("1 < base.data.a"))
    assert not implies(term("1 < base.data.a"), term("base.data.a > 1 && base.data.b"))
    assert implies(term("!base.data.b"), term("!(base.data.b)"))
    assert not implies(term("!base.data.b == base.data.c"), term("!(base.data.b == base.data.c)"))
    many = " && ".join(f"base.data.a{number}" for number in range(20))
    assert constant(term(many)) is None
    assert implies(term(many), term(many))


PARTS = [
    "intent.input.a > 1",
    "1 < intent.input.a",
    "intent.input.a <= 1",
    "intent.input.b == 2",
    "2 != intent.input.b",
]
WHEN = st.recursive(
    st.sampled_from(PARTS),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["&&", "||"]), inner) | st.builds("!({})".format, inner)
    ),
    max_leaves=3,
)
EFFECTS: list[dict[str, Any]] = [
    {"verdict": "approve"},
    {"verdict": "reject"},
    {"verdict": "escalate", "to": ["ann"]},
    {"verdict": "narrow", "scope": ["data.x"]},
    {"verdict": "narrow", "scope": ["data.*", "data.y"]},
]
RULE = st.fixed_dictionaries(
    {},
    optional={
        "when": WHEN,
        "actions": st.sampled_from([["pay"], ["p*"], ["rest"], ["*"]]),
        "actors": st.sampled_from([["bot"], ["b*"]]),
    },
).flatmap(lambda one: st.sampled_from(EFFECTS).map(lambda effect: {**one, **effect}))
CASES = [
    make_case(action=action, given={"a": a, "b": b}, data={}, actor_id=actor)
    for action in ("pay", "rest")
    for a in (1, 2)
    for b in (2, 3)
    for actor in ("bot", "eve")
]


def ruled(rules: list[dict[str, Any]]) -> list[tuple[str, IntentScope | None]]:
    policy = policy_from_text(canonical_text({"name": "house", "rules": rules}), "rules.yaml")
    rulings = [policy.evaluate(case, QuestionSettings(("ann",), None, "reject")) for case in CASES]
    return [(ruling.verdict, ruling.approved_scope) for ruling in rulings]


def within(one: IntentScope | None, other: IntentScope | None) -> bool:
    """Tell whether a scope is within another one; None is no restriction."""
    if one is None or other is None:
        return one is other
    return is_within(one.allowed_paths or (), other.allowed_paths or ())


@pytest.mark.requirement("CARD-policy")
@settings(max_examples=150)
@given(st.lists(RULE, min_size=2, max_size=4))
@pytest.mark.slow
def test_a_rule_that_never_matters_can_be_left_out_and_nothing_is_decided_otherwise(
    drawn: list[dict[str, Any]],
) -> None:
    rules = [{"id": f"r{at}", **one} for at, one in enumerate(drawn)]
    found = said(*rules, around=LintContext())
    for finding in found:
        left = [one for one in rules if one["id"] != finding.rule]
        if finding.check == "never-matters" or "never true" in finding.message:
            for (before, wide), (after, narrow) in zip(ruled(rules), ruled(left), strict=True):
                assert before == after
                assert within(wide, narrow)
                assert within(narrow, wide)
        if finding.check == "constant":
            bare = [{name: part for name, part in one.items() if name != "when"} for one in rules]
            if "leave it out" in finding.message:
                changed = [new if new["id"] == finding.rule else old for old, new in zip(rules, bare, strict=True)]
                assert ruled(changed) == ruled(rules)
