"""Policies in Cedar: permit approves, forbid rejects, and what Cedar passes over refuses."""

from __future__ import annotations

import pickle
import sys

import cedarpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority import PolicyRegistry, StandardAuthority, policy_from_file, rebuilt_policy, recheck_ruling
from authority.policies.cedar import policy_from_cedar
from tests.authority.cases import ASKING, by_policy, make_case, scope
from tests.support.tables import for_each
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from world.model.immutable_json import thaw

SCOPE = scope("data.balance")
HOUSE = """\
// What the house allows.
@id("small")
@reason("small enough")
permit(principal, action == Action::"pay", resource)
when { context.input has amount && context.input.amount <= 20 };

@id("covered") forbid(principal, action, resource) // ; no more than there is
when { context.input has amount && context.input.amount > resource.data.balance };

@id("people")
@reason("people may; always")
permit(principal, action, resource) when { principal.kind == "human" };
"""


def house():
    return policy_from_cedar(HOUSE, "house.cedar")


def a_case(amount=5, balance=100, **more):
    given_ = {} if amount is None else {"amount": amount}
    return make_case(by_policy(), given=given_, data={"balance": balance}, action="pay", **more)


@pytest.mark.parametrize(
    ("case", "verdict", "answers"),
    [
        (a_case(), "approve", ["approve", "none", "none"]),
        (a_case(50), "reject", ["none", "none", "none"]),
        (a_case(50, kind="human"), "approve", ["none", "none", "approve"]),
        (a_case(5, 3), "reject", ["approve", "reject", "none"]),
        (a_case(5, 3, kind="human"), "reject", ["approve", "reject", "approve"]),
        (a_case(None), "reject", ["none", "none", "none"]),
        (a_case("5"), "reject", ["error", "error", "none"]),
        (a_case(5, None), "reject", ["approve", "error", "none"]),
        (a_case(5, 0.12345), "reject", ["approve", "error", "none"]),
    ],
)
@pytest.mark.requirement("CARD-policy")
def test_a_cedar_file_is_a_policy_that_judges(case, verdict, answers):
    ruling = house().evaluate(case, ASKING)
    assert (ruling.verdict, [one.answer for one in ruling.trace]) == (verdict, answers)


@pytest.mark.requirement("CARD-policy")
def test_a_cedar_rule_keeps_its_file_its_line_and_its_text():
    told = house().description
    assert [(one["rule"], one["source"], one["language"]) for one in told["rules"]] == [
        ("small", "house.cedar:2", "cedar"),
        ("covered", "house.cedar:7", "cedar"),
        ("people", "house.cedar:10", "cedar"),
    ]
    assert told["rules"][0]["description"] == "small enough"
    assert told["rules"][1]["parameters"]["policy"].startswith('@id("covered") forbid(')
    assert read_json(canonical_bytes(told)) == told
    assert policy_from_cedar(HOUSE.replace("20", "21"), "house.cedar").hash != house().hash
    assert policy_from_cedar(HOUSE.replace("What the house", "What"), "house.cedar").hash == house().hash


@pytest.mark.parametrize(
    ("policy", "more", "holds"),
    [
        ('principal == Actor::"bot" && principal.kind == "agent" && !(principal has name)', {}, True),
        ('action == Action::"pay" && resource == Branch::"main" && resource.world == "world-1"', {}, True),
        ('context.nowMs == 1700000000000 && context.now == datetime("2023-11-14T22:13:20.000Z")', {}, True),
        (
            'context.scope.contains("data.balance") && context.earlierAttempts == 0',
            {"proposed": SCOPE},
            True,
        ),
        ("context has scope", {}, False),
        ('context.manifest.isEmpty() && context.key != ""', {}, True),
        ('principal.meta has team && principal.meta.team == "blue"', {}, False),
        ("context.input has nothing", {}, False),
    ],
)
def test_a_cedar_policy_reads_what_a_case_holds(policy, more, holds):
    text = f'@id("a") permit(principal, action, resource) when {{ {policy} }};'
    ruling = policy_from_cedar(text, "a.cedar").evaluate(a_case(**more), ASKING)
    assert [one.answer for one in ruling.trace] == ["approve" if holds else "none"], ruling.reason


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        ({"amount": [1, None]}, "context.input.amount[1] is null"),
        ({"amount": 1e300}, "context.input.amount is 1e+300"),
        ({"amount": 2.5}, "type error: expected long"),
    ],
)
def test_what_cedar_cannot_hold_refuses_and_the_trace_says_so(given_, why):
    ruling = house().evaluate(make_case(given=given_, data={"balance": 9}, action="pay", kind="human"), ASKING)
    assert ruling.verdict == "reject"
    assert why in ruling.reason


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "holds no policy"),
        ("// nothing\n", 1, "holds no policy"),
        ("\npermit(principal, action, resource);", 2, "it has no @id"),
        ('@id("a b") permit(principal, action, resource);', 1, "it has no @id"),
        ('@id("a") permit(principal, action, resource)', 1, ""),
        ('@id("a")\npermit(principal ==, action, resource);', 1, "unexpected token"),
        ('@id("a") permit(principal == ?principal, action, resource);', 1, "template"),
    ],
)
def test_a_cedar_file_that_is_wrong_is_refused_with_the_line(text, line, words):
    with pytest.raises(RefusedError) as refused:
        policy_from_cedar(text, "house.cedar")
    assert refused.value.code == "INVALID_POLICY"
    assert [fault["line"] for fault in refused.value.details["faults"]] == [line]
    assert words in refused.value.message


READS_PRICE = """
@id("cheap") permit(principal, action, resource) when { resource.data.price.lessThan(decimal("1.5")) };
@id("named") forbid(principal, action, resource) when { context.input has note && context.input.note == "no" };
@id("dear") forbid(principal, action, resource) when { resource.data.price.greaterThan(decimal("9.5")) };
"""


@pytest.mark.requirement("CARD-policy")
def test_values_that_no_policy_reads_are_left_out_whatever_they_hold():
    unread = {"far": 1e300, "fine": 0.123456789, "list": [None], "by": {"__entity": {"type": "Actor", "id": "ann"}}}
    case = make_case(given={"amount": 5, **unread}, data={"balance": 9, **unread}, action="pay")
    ruling = house().evaluate(case, ASKING)
    assert (ruling.verdict, [one.answer for one in ruling.trace]) == ("approve", ["approve", "none", "none"])


@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_a_number_that_cedar_would_round_refuses_and_a_recorded_policy_rounds_it_as_before():
    policy = policy_from_cedar(READS_PRICE, "prices.cedar")
    case = make_case(given={}, data={"price": 1.23456})
    assert policy.evaluate(case, ASKING).verdict == "reject"
    assert "resource.data.price is 1.23456" in policy.evaluate(case, ASKING).reason
    assert policy.evaluate(make_case(given={}, data={"price": 1.2345}), ASKING).verdict == "approve"
    earlier = policy_from_cedar(READS_PRICE, "prices.cedar", values={one.name: "read" for one in policy.rules})
    ruling = earlier.evaluate(case, ASKING)
    assert [one.answer for one in ruling.trace] == ["approve", "none", "none"]
    assert "resource.data.price is 1.23456 and was read as 1.2346" in ruling.reason


def test_a_policy_that_asks_only_whether_something_is_there_is_given_no_more_than_that():
    text = '@id("a") permit(principal, action, resource) when { resource.data has list && context has input };'
    ruling = policy_from_cedar(text, "a.cedar").evaluate(make_case(given={}, data={"list": [None]}), ASKING)
    assert ruling.verdict == "approve"


@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_a_policy_that_was_adopted_before_values_were_left_out_judges_as_it_did():
    old = policy_from_cedar(HOUSE, "house.cedar", values={})
    assert old.hash != house().hash
    assert all("values" not in one["parameters"] for one in old.description["rules"])
    assert [one.answer for one in old.evaluate(a_case(5, 0.12345), ASKING).trace] == ["error"] * 3
    for policy in (old, house()):
        again = rebuilt_policy(policy.description, policy.hash)
        assert again is not None
        assert again.evaluate(a_case(5, 0.12345), ASKING) == policy.evaluate(a_case(5, 0.12345), ASKING)
    unknown = thaw(house().description)
    unknown["rules"][0]["parameters"]["values"] = "of another version"
    assert rebuilt_policy(unknown, house().hash) is None


def test_two_cedar_policies_of_one_name_are_refused_with_the_line():
    with pytest.raises(RefusedError, match="line 2 has the @id small, too") as refused:
        policy_from_cedar(HOUSE.replace('"covered"', '"small"'), "house.cedar")
    assert refused.value.code == "INVALID_POLICY"
    line = HOUSE[: HOUSE.index('@id("covered")')].count("\n") + 1
    assert [fault["line"] for fault in refused.value.details["faults"]] == [line]


def test_a_number_that_no_json_carries_is_refused_with_the_file_and_the_line():
    text = HOUSE + '\n@id("far")\npermit(principal, action, resource) when { context.input.n == 9007199254740993 };\n'
    with pytest.raises(RefusedError, match=r"house\.cedar") as refused:
        policy_from_cedar(text, "house.cedar")
    assert refused.value.code == "INVALID_POLICY"
    assert [fault["line"] for fault in refused.value.details["faults"]] == [HOUSE.count("\n") + 2]


def test_without_its_package_a_cedar_file_is_refused_with_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "house.cedar").write_text(HOUSE, encoding="utf-8")
    assert PolicyRegistry().load("house.cedar", base=tmp_path).hash == house().hash
    monkeypatch.setitem(sys.modules, "cedarpy", None)
    with pytest.raises(RefusedError, match=r"world-protocol\[cedar\]") as refused:
        policy_from_file(tmp_path / "house.cedar")
    assert refused.value.code == "NOT_LOADED"


def test_a_cedar_policy_travels_between_processes():
    assert pickle.loads(pickle.dumps(house())).evaluate(a_case(), ASKING) == house().evaluate(a_case(), ASKING)


AMOUNTS = st.none() | st.integers(-5, 120)


@given(AMOUNTS, st.integers(0, 100), st.sampled_from(["human", "agent"]), st.sampled_from(["pay", "look"]))
@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_where_nothing_fails_the_ruling_is_what_cedar_says_of_all_policies_together(amount, balance, kind, action):
    given_ = {} if amount is None else {"amount": amount}
    case = make_case(by_policy(), given=given_, data={"balance": balance}, action=action, kind=kind)
    request = {"principal": 'Actor::"bot"', "action": f'Action::"{action}"', "resource": 'Branch::"main"'}
    entities: list[dict] = [
        {"uid": {"type": "Actor", "id": "bot"}, "attrs": {"kind": kind}, "parents": []},
        {"uid": {"type": "Branch", "id": "main"}, "attrs": {"data": {"balance": balance}}, "parents": []},
    ]
    told = cedarpy.is_authorized({**request, "context": {"input": given_}}, HOUSE, entities)
    authority = StandardAuthority(PolicyRegistry([house()]))
    ruling = authority.judge(case)
    assert (ruling.verdict == "approve") is told.allowed
    assert recheck_ruling(StandardAuthority(PolicyRegistry([house()])), case, ruling) is None


@for_each(
    ("text", "words"),
    [
        ("forbid(principal is User, action, resource);", "no entity type User"),
        ('forbid(principal, action, resource == Repo::"main");', "no entity type Repo"),
        ('forbid(principal, action == Ns::Action::"pay", resource);', "without a namespace"),
        ('forbid(principal == Branch::"main", action, resource);', "principal is never of the type Branch"),
        ("forbid(principal, action in [], resource);", "is never true"),
        ('forbid(principal, action, resource) when { principal in User::"a" };', "no entity type User"),
        ("forbid(principal, action, resource) when { principal is Branch };", "principal is never of the type"),
        ("forbid(principal, action, resource) when { context has inputs };", "did you mean context.input?"),
        ("forbid(principal, action, resource) when { principal has role };", "no attribute role"),
        ('forbid(principal, action, resource) when { principal.hasTag("x") };', "no entity here has tags"),
        ('forbid(principal, action, resource) when { Actor::"bot" has kind };', "something other than principal"),
        ("forbid(principal == ?principal, action, resource);", "a template has no values"),
        *(
            (f"forbid(principal, action, resource) when {{ {one} }};", "write 5")
            for one in (
                'context.input.x == decimal("5.0")',
                'decimal("5.00") != resource.data.x',
                '[decimal("1.5"), decimal("5.0")].contains(context.input.x)',
                'context.input.list.containsAny([decimal("5.0")])',
            )
        ),
        *(
            (f"forbid(principal, action, resource) when {{ {one} }};", "are never equal")
            for one in (
                'principal == "bot"',
                '"pay" == action',
                'resource != "main"',
                "principal.kind == 1",
                'context.nowMs == "1"',
                '(context.input.to == "x") == "true"',
                '["bot", "x"].contains(principal)',
                'resource.world == decimal("1.0")',
                "context.key == [1]",
            )
        ),
    ],
)
@pytest.mark.requirement("CARD-policy", "WALL-policy")
def test_a_name_that_never_applies_is_refused_when_a_cedar_file_is_loaded(text, words):
    with pytest.raises(RefusedError) as refused:
        policy_from_cedar(f'// first\n@id("a") {text}', "a.cedar")
    (fault,) = refused.value.details["faults"]
    assert words in fault["message"]
    assert fault["line"] == 2


@pytest.mark.parametrize(
    "one",
    [
        'principal.kind == "agent" && context.input.to == 5',
        '["agent", "human"].contains(principal.kind)',
        '[1, "a", context.input.to].contains(principal.kind)',
        'principal == Actor::"bot" || action != Action::"pay" || context.nowMs == 1 + 2',
        "(context.input.to == 5) == true",
        'context.input.x == decimal("5.5") || decimal(context.input.text) == decimal("5.0")',
        "(principal has name) == true",
    ],
)
def test_values_that_may_be_equal_are_compared(one):
    policy_from_cedar(f'@id("a") forbid(principal, action, resource) when {{ {one} }};', "a.cedar")


def test_a_forbid_for_another_branch_does_not_outweigh_a_permit_for_lint():
    from authority.lint.lint import LintContext, lint

    text = '@id("a") permit(principal, action, resource);\n@id("b") forbid(principal, action, resource == Branch::"x");'
    assert [one.check for one in lint(policy_from_cedar(text, "a.cedar"), LintContext())] == []
