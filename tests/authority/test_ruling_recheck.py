"""A ruling is given again from its record, and every difference is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from authority import Approve, Escalate, Narrow, Reject, recheck_ruling
from tests.authority.cases import (
    AUTO,
    authority_with,
    by_people,
    by_policy,
    make_case,
    policy,
    said,
    scope,
)
from world.model.canonical_json import canonical_bytes, read_json
from world.model.decision import RuleOutcome, Ruling

OPINIONS = st.sampled_from(
    [None, Approve("a"), Reject("r"), Narrow("data.a.*", "n"), Escalate("alice", "e"), "nonsense"]
)


def recorded(ruling: Ruling) -> Ruling:
    """Return what the log gives back."""
    return Ruling.from_wire(read_json(canonical_bytes(ruling.to_wire())))


@given(st.lists(OPINIONS, max_size=4), st.sampled_from([None, scope("data.a"), scope("data.b")]))
@pytest.mark.requirement("CARD-replay")
def test_a_ruling_given_again_from_its_record_is_the_same(opinions, proposed):
    authority = authority_with(policy(*opinions))
    for binding in (AUTO, by_people(), by_policy()):
        case = make_case(binding, proposed=proposed)
        assert recheck_ruling(authority, case, recorded(authority.judge(case))) is None


@pytest.mark.requirement("CARD-replay")
def test_answers_and_time_outs_are_rechecked_as_well():
    authority = authority_with(policy(Escalate("alice"), Escalate("bob")))
    case = make_case(by_policy())
    asked = recorded(authority.judge(case))
    answer = said("alice", "approve")
    half = recorded(authority.answer(case, asked, answer))
    last = said("bob", "narrow", within=scope("data.a"))
    whole = recorded(authority.answer(case, half, last))
    late = recorded(authority.expire(case, half))
    assert recheck_ruling(authority, case, half, asked=asked, answer=answer) is None
    assert recheck_ruling(authority, case, whole, asked=half, answer=last) is None
    assert recheck_ruling(authority, case, late, asked=half) is None
    wrong = recheck_ruling(authority, case, late, asked=half, answer=last)
    assert wrong is not None
    assert wrong.details["differences"][0] == {"at": "verdict", "recorded": "reject", "now": "approve"}


def test_an_answer_that_would_be_refused_now_is_a_difference():
    authority = authority_with()
    case = make_case(by_people())
    asked = authority.judge(case)
    forged = structs.replace(asked, verdict="approve", ask=(), timeout_ms=None)
    found = recheck_ruling(authority, case, forged, asked=asked, answer=said("bot", "approve"))
    assert found is not None
    assert found.code == "RULING_DIVERGED"
    assert "cannot answer" in found.message


@pytest.mark.requirement("CARD-replay")
def test_a_changed_policy_is_told_with_verdict_scope_and_rule_by_rule():
    case = make_case(by_policy(), proposed=scope("data.a"))
    before = authority_with(policy(Approve("fine"), None)).judge(case)
    found = recheck_ruling(authority_with(policy(Narrow("data.a.b", "less"), None)), case, before)
    assert found is not None
    assert found.code == "RULING_DIVERGED"
    at = {one["at"]: one for one in found.details["differences"]}
    assert list(at) == ["approvedScope", "policyHash", "trace[0]", "reason"]
    assert at["approvedScope"]["recorded"] == {"allowedPaths": ["data.a"]}
    assert at["approvedScope"]["now"] == {"allowedPaths": ["data.a.b"]}
    assert at["trace[0]"]["now"]["answer"] == "narrow"
    assert "policy changed" in found.message


def test_a_rule_more_or_less_is_told_at_its_place():
    case = make_case(by_policy())
    before = authority_with(policy(Approve(), None)).judge(case)
    found = recheck_ruling(authority_with(policy(Approve())), case, before)
    assert found is not None
    places = {one["at"]: one for one in found.details["differences"]}
    assert places["trace[1]"]["recorded"]["rule"] == "r1"
    assert places["trace[1]"]["now"] is None


def test_a_missing_policy_is_no_other_ruling_but_one_that_cannot_be_rechecked():
    case = make_case(by_policy())
    before = authority_with(policy(Approve())).judge(case)
    found = recheck_ruling(authority_with(), case, before)
    assert found is not None
    assert found.code == "POLICY_NOT_AT_HAND"
    assert "house" in found.message


def test_a_record_that_was_changed_is_found():
    authority = authority_with(policy(Reject("no")))
    case = make_case(by_policy())
    ruling = authority.judge(case)
    forged = structs.replace(ruling, verdict="approve")
    outcome = RuleOutcome("r0", ruling.trace[0].source, "approve", decisive=True)
    for changed in (forged, structs.replace(ruling, trace=(outcome,)), structs.replace(ruling, reason="because")):
        assert recheck_ruling(authority, case, changed) is not None
