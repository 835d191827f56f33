"""The Authority as the world sees it: pure, total, and bound by the actor's binding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import authority as room
from authority import Approve, Policy, PolicyRegistry, Reject, StandardAuthority, rule
from authority.authority import MAX_KNOWN_BINDINGS
from tests.authority.cases import AUTO, authority_with, by_people, by_policy, make_case, policy, scope
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import FrozenDict, FrozenList, thaw
from world.model.intent import IntentScope
from world.state.ports import Authority, Case

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-10, 10), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner)),
)
BINDINGS = st.one_of(
    JSON,
    st.sampled_from([AUTO, by_policy(), by_policy("gone"), by_people(), {"kind": "tribunal"}]),
    st.dictionaries(st.sampled_from(["kind", "policy", "ask", "timeoutMs"]), JSON),
)


def test_it_is_what_the_world_asks_for():
    asked: Authority = StandardAuthority(PolicyRegistry())
    assert asked.judge(make_case()).verdict == "approve"


@pytest.mark.requirement("INT-4.1", "WP-bind")
def test_an_auto_approve_binding_is_an_authority_like_any_other():
    ruling = authority_with().judge(make_case(AUTO))
    assert (ruling.verdict, ruling.authority, ruling.policy_hash) == ("approve", "auto_approve", None)
    assert ruling.reason


@pytest.mark.requirement("INT-13.1", "INT-13.3")
@pytest.mark.parametrize("proposed", [None, scope("data.a.*", "b"), scope(), IntentScope(note="anywhere")])
def test_auto_approval_copies_the_proposed_scope_and_null_is_no_restriction(proposed):
    ruling = authority_with().judge(make_case(AUTO, proposed=proposed))
    assert ruling.approved_scope == proposed
    assert "approvedScope" in ruling.to_wire()


@pytest.mark.requirement("WP-bind")
def test_each_actor_is_judged_by_its_own_binding_and_bindings_can_be_shared():
    authority = authority_with(policy(Reject("no"), name="strict"), policy(Approve(), name="mild"))
    strict, mild = by_policy("strict"), by_policy("mild")
    verdicts = {
        (actor, binding["policy"]): authority.judge(make_case(binding, actor_id=actor)).verdict
        for actor in ("ann", "ben")
        for binding in (strict, mild)
    }
    assert verdicts == {
        ("ann", "strict"): "reject",
        ("ben", "strict"): "reject",
        ("ann", "mild"): "approve",
        ("ben", "mild"): "approve",
    }


@given(BINDINGS, st.one_of(st.none(), st.just(scope("data.a"))))
def test_whatever_a_case_contains_is_judged_and_nothing_unreadable_is_approved(binding, proposed):
    authority = authority_with(policy(Approve()))
    ruling = authority.judge(make_case(binding, proposed=proposed))
    assert canonical_bytes(ruling.to_wire())
    if ruling.verdict != "reject":
        authority.check_binding(binding)


@pytest.mark.parametrize(
    "binding",
    [by_policy("gone"), FrozenDict({"kind": "tribunal"}), FrozenDict({}), {"kind": {1}}, None, object()],
)
def test_what_cannot_be_judged_is_rejected_with_the_reason(binding):
    ruling = authority_with().judge(make_case(binding))
    assert ruling.verdict == "reject"
    assert ruling.reason


def test_a_failure_of_the_authority_itself_rejects():
    class Broken(PolicyRegistry):
        def get(self, name):
            raise RuntimeError("out of order")

    ruling = StandardAuthority(Broken()).judge(make_case(by_policy()))
    assert (ruling.verdict, ruling.authority) == ("reject", "policy_rules:house")
    assert "out of order" in ruling.reason


@given(st.sampled_from([AUTO, by_people(), by_policy()]), st.one_of(st.none(), st.just(scope("data.a"))))
def test_judging_is_pure(binding, proposed):
    case = make_case(binding, proposed=proposed, data={"todos": [1, 2]})
    before = canonical_bytes(case.view.to_wire())
    authority = authority_with(policy(Approve()))
    assert authority.judge(case) == authority.judge(case) == authority_with(policy(Approve())).judge(case)
    assert canonical_bytes(case.view.to_wire()) == before


def test_rules_can_change_nothing_of_a_case_for_the_rules_after_them():
    seen: list[Case] = []

    @rule
    def meddler(case):
        seen.append(case)
        case.binding["policy"] = "mild"
        return Approve()

    @rule
    def meddles_with_lists(case):
        case.action["tags"].append("approved")
        return Approve()

    authority = authority_with(Policy("house", [meddler, meddles_with_lists]))
    binding = thaw(by_policy(ask=["alice"]))
    case = replace(make_case(binding), action={"tags": ["a"]}, manifest={"scope": []})
    ruling = authority.judge(case)
    assert [outcome.answer for outcome in ruling.trace] == ["error", "error"]
    assert binding == {"kind": "policy_rules", "policy": "house", "ask": ["alice"]}
    assert isinstance((seen[0].manifest or {})["scope"], FrozenList)


@pytest.mark.parametrize("part", ["binding", "action", "manifest"])
def test_each_part_of_a_case_is_frozen_before_rules_see_it(part):
    seen: list[Case] = []

    @rule
    def look(case):
        seen.append(case)
        return Approve()

    authority = authority_with(Policy("house", [look]))
    given: dict[str, Any] = {part: thaw(by_policy()) if part == "binding" else {"tags": ["a"]}}
    authority.judge(replace(make_case(by_policy()), **given))
    assert type(getattr(seen[0], part)) is FrozenDict


def test_very_many_bindings_do_not_fill_the_memory():
    authority = authority_with()
    for number in range(MAX_KNOWN_BINDINGS + 10):
        assert authority.judge(make_case(by_people(ask=[f"a{number}"]))).ask == (f"a{number}",)
    assert len(authority._known) <= MAX_KNOWN_BINDINGS


def test_a_description_of_no_policy_is_refused():
    with pytest.raises(RefusedError) as refused:
        authority_with().describe_policy("gone")
    assert refused.value.code == "UNKNOWN_POLICY"


def test_the_public_names_are_these():
    assert sorted(room.__all__) == [
        "AllOf",
        "AnyOf",
        "Approve",
        "AutoApproveBinding",
        "Binding",
        "BindingRegistry",
        "COMBINATION",
        "ENTRY_POINTS",
        "Escalate",
        "HitlBinding",
        "JudgingContext",
        "Narrow",
        "Opinion",
        "Policy",
        "PolicyRegistry",
        "PolicyRulesBinding",
        "PythonRule",
        "QuestionSettings",
        "Reject",
        "Rule",
        "RuleSource",
        "StandardAuthority",
        "TribunalBinding",
        "UnsafeApproveAll",
        "combine",
        "intersection",
        "is_policy_file",
        "is_within",
        "policy_from_file",
        "read_binding",
        "rebuilt_policy",
        "rebuilt_rules",
        "recheck_ruling",
        "restrict",
        "rule",
        "source_of",
    ]
    assert all(hasattr(room, name) for name in room.__all__)
