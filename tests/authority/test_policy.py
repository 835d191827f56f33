"""Policies: every rule is asked, and what they say comes to one ruling."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from authority import COMBINATION, Approve, Escalate, Narrow, Policy, PythonRule, QuestionSettings, Reject, rule
from authority.policies.policy import MAX_RULES
from authority.scope import is_within
from tests.authority.cases import (
    ASKING,
    NoHistory,
    always,
    authority_with,
    by_policy,
    make_case,
    policy,
    raising,
    scope,
)
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, digest, read_json
from world.model.decision import Ruling
from world.sizes import MAX_SCOPE_PATTERNS

PATTERNS = st.sampled_from(["data.a.*", "data.a.x", "data.*.y", "data.b", "data"])
SCOPES = st.lists(PATTERNS, min_size=1, max_size=3).map(lambda patterns: scope(*patterns))
WORDS = st.text(max_size=10)
PEOPLE = st.lists(st.sampled_from(["alice", "bob", "*", "bot"]), max_size=3)
OPINIONS = st.one_of(
    st.none(),
    st.builds(Approve, WORDS),
    st.builds(Reject, WORDS),
    st.builds(Narrow, SCOPES, WORDS),
    st.builds(Escalate, PEOPLE, WORDS),
)
NONSENSE = st.sampled_from([True, False, "approve", 1, {"answer": "approve"}, Approve, [Approve()]])
FAILURES = st.sampled_from(
    [ValueError("broken"), KeyError("x"), RecursionError(), SystemExit(0), asyncio.CancelledError()]
)
RULES = st.one_of(
    OPINIONS.map(always),
    OPINIONS.map(always),
    NONSENSE.map(always),
    FAILURES.map(raising),
)
BROKEN = st.one_of(NONSENSE.map(always), FAILURES.map(raising))
PROPOSED = st.one_of(st.none(), SCOPES)


def numbered(rules):
    """Return a policy of these rules, each under a name of its own."""
    return Policy("house", [PythonRule(f"r{at}", one.function) for at, one in enumerate(rules)])


def judged(rules, proposed=None):
    return numbered(rules).evaluate(make_case(proposed=proposed), ASKING)


@given(st.lists(RULES, max_size=5), PROPOSED, st.integers(0, 5))
def test_a_further_approval_never_turns_what_a_rule_rejected(rules, proposed, at):
    before = judged(rules, proposed)
    after = judged([*rules[:at], always(Approve("me, too")), *rules[at:]], proposed)
    is_default = all(outcome.answer == "none" for outcome in before.trace)
    if before.verdict != "approve" and not is_default:
        assert after.verdict == before.verdict
        assert after.ask == before.ask
    else:
        assert after.verdict == "approve"


@given(st.lists(RULES, max_size=4), BROKEN, PROPOSED, st.integers(0, 4))
def test_a_rule_that_fails_never_approves(rules, broken, proposed, at):
    ruling = judged([*rules[:at], broken, *rules[at:]], proposed)
    assert ruling.verdict == "reject"
    assert ruling.approved_scope is None
    assert [outcome.answer for outcome in ruling.trace if outcome.decisive] == ["error"]


@given(st.lists(RULES, max_size=5), PROPOSED)
@pytest.mark.requirement("WP-decision")
def test_the_trace_holds_every_rule_in_order_and_marks_what_decided(rules, proposed):
    ruling = judged(rules, proposed)
    assert [outcome.rule for outcome in ruling.trace] == [f"r{at}" for at in range(len(rules))]
    decisive = [outcome for outcome in ruling.trace if outcome.decisive]
    if any(outcome.answer != "none" for outcome in ruling.trace):
        assert decisive
        assert all(outcome.rule in ruling.reason for outcome in decisive)
    else:
        assert not decisive
        assert ruling.verdict == "reject"


@given(st.lists(RULES, max_size=5), PROPOSED)
def test_a_ruling_is_read_back_from_its_record_as_it_was(rules, proposed):
    ruling = judged(rules, proposed)
    wire = read_json(canonical_bytes(ruling.to_wire()))
    assert Ruling.from_wire(wire) == ruling


@given(st.lists(RULES, max_size=5), PROPOSED)
def test_the_same_case_gets_the_same_ruling(rules, proposed):
    assert judged(rules, proposed) == judged(rules, proposed)


@given(st.lists(RULES, max_size=5), PROPOSED)
@pytest.mark.requirement("INT-13.1", "INT-13.3")
def test_what_is_approved_lies_within_the_proposed_scope_and_every_narrowing(rules, proposed):
    ruling = judged(rules, proposed)
    narrowings = [outcome.scope for outcome in ruling.trace if outcome.scope is not None]
    if ruling.verdict != "approve" or (proposed is None and not narrowings):
        assert ruling.approved_scope is None
    else:
        assert ruling.approved_scope is not None
        for bound in [*narrowings, *([proposed] if proposed else [])]:
            assert is_within(ruling.approved_scope.allowed_paths, bound.allowed_paths)


@pytest.mark.requirement("CARD-policy")
def test_where_no_rule_approves_the_answer_is_no():
    for empty in (policy(), policy(None, None)):
        ruling = empty.evaluate(make_case(), ASKING)
        assert ruling.verdict == "reject"
        assert "default" in ruling.reason


@pytest.mark.parametrize(
    ("opinions", "verdict", "decisive"),
    [
        ([Approve("a"), Reject("no"), Escalate("x"), True], "reject", [3]),
        ([Approve("a"), Reject("no"), Reject("never"), Escalate("x")], "reject", [1]),
        ([Approve("a"), Escalate("x"), Narrow("data.a"), Escalate("y")], "wait", [1, 3]),
        ([Approve("a"), Narrow("data.a"), Narrow("data.a.b")], "approve", [1, 2]),
        ([None, Approve("a"), Approve("b")], "approve", [1]),
        ([None, Narrow("data.a"), Narrow("data.b"), Approve()], "reject", [1, 2]),
    ],
)
@pytest.mark.requirement("CARD-policy")
def test_the_strongest_answer_decides(opinions, verdict, decisive):
    ruling = policy(*opinions).evaluate(make_case(), ASKING)
    assert ruling.verdict == verdict
    assert [at for at, outcome in enumerate(ruling.trace) if outcome.decisive] == decisive


@pytest.mark.requirement("INT-13.3")
def test_an_approval_copies_the_proposed_scope():
    proposed = structs.replace(scope("data.a.*"), note="mine")
    assert policy(Approve()).evaluate(make_case(proposed=proposed), ASKING).approved_scope == proposed


@pytest.mark.requirement("INT-13.3")
def test_a_narrowing_narrows_what_was_proposed():
    ruling = policy(Approve(), Narrow("data.*.x")).evaluate(make_case(proposed=scope("data.a")), ASKING)
    assert ruling.approved_scope == scope("data.a.x")
    free = policy(Narrow("data.*.x")).evaluate(make_case(), ASKING)
    assert free.approved_scope == scope("data.*.x")


def test_narrowings_that_leave_nothing_reject_before_people_are_asked():
    ruling = policy(Escalate("alice"), Narrow("data.b")).evaluate(make_case(proposed=scope("data.a")), ASKING)
    assert ruling.verdict == "reject"
    assert "nothing" in ruling.reason


def test_an_escalation_without_names_asks_whom_the_binding_names():
    asking = QuestionSettings(("carol",), 5_000, "approve")
    ruling = policy(Escalate(reason="big"), Escalate("alice", "odd")).evaluate(make_case(), asking)
    assert (ruling.verdict, ruling.ask) == ("wait", ("carol", "alice"))
    assert (ruling.timeout_ms, ruling.on_timeout) == (5_000, "approve")
    assert [outcome.to for outcome in ruling.trace] == [("carol",), ("alice",)]


def test_an_escalation_to_the_proposer_alone_rejects_at_once():
    ruling = policy(Escalate("bot"), Approve()).evaluate(make_case(actor_id="bot"), ASKING)
    assert ruling.verdict == "reject"
    assert "own" in ruling.reason


def test_an_interrupt_by_the_operator_is_no_failure_of_a_rule():
    with pytest.raises(KeyboardInterrupt):
        numbered([raising(KeyboardInterrupt())]).evaluate(make_case(), ASKING)


def test_a_rule_that_tries_to_change_the_state_refuses():
    @rule
    def meddler(case):
        case.view.data["approved"] = True
        return Approve()

    ruling = Policy("p", [meddler]).evaluate(make_case(data={"approved": False}), ASKING)
    assert ruling.verdict == "reject"
    assert ruling.trace[0].reason.startswith("RULE_IMPURE: it changes a frozen value at tests.authority.test_policy:")


def test_a_scope_too_large_to_be_narrowed_is_refused_and_never_approved():
    proposed = scope(*(f"data.p{number}" for number in range(MAX_SCOPE_PATTERNS + 1)))
    case = make_case(by_policy(), proposed=proposed)
    ruling = authority_with(policy(Narrow("data.a"))).judge(case)
    assert ruling.verdict == "reject"
    assert "too large" in ruling.reason
    assert authority_with(policy(Approve())).judge(case).approved_scope == proposed


@pytest.mark.requirement("CARD-policy")
def test_a_description_names_every_rule_and_its_hash_follows_from_it():
    house = policy(Approve(), Reject(), name="house")
    told = house.description
    assert told["name"] == "house"
    assert told["combination"] == COMBINATION
    assert [one["rule"] for one in told["rules"]] == ["r0", "r1"]
    for one in told["rules"]:
        assert {"source", "sourceHash", "moduleHash", "language", "line", "module", "qualname", "identity"} <= set(one)
    assert told["hash"] == house.hash
    head = {"name": "house", "combination": COMBINATION, "identity": "rules-2"}
    assert house.hash == digest({**head, "rules": [[one["rule"], one["identity"]] for one in told["rules"]]})
    assert canonical_bytes(told)


def test_the_hash_covers_name_version_and_the_order_of_rules():
    rules = policy(Approve(), Reject()).rules
    hashes = {
        Policy("p", rules).hash,
        Policy("q", rules).hash,
        Policy("p", rules, version="2").hash,
        Policy("p", rules[::-1]).hash,
        Policy("p", rules[:1]).hash,
    }
    assert len(hashes) == 5


def test_every_outcome_names_the_source_that_the_description_names():
    house = policy(Approve(), None)
    ruling = house.evaluate(make_case(), ASKING)
    assert [one.source for one in ruling.trace] == [one["source"] for one in house.description["rules"]]
    assert ruling.policy_hash == house.hash
    assert ruling.authority == "policy_rules:house"


@pytest.mark.parametrize("name", ["", "a b", 7, None, "x" * 200])
def test_a_policy_needs_a_proper_name(name):
    with pytest.raises(RefusedError) as refused:
        Policy(name, [])
    assert refused.value.code == "INVALID_POLICY"


def test_a_policy_is_refused_for_rules_of_one_name_too_many_rules_or_none_at_all():
    twice = [always(None, "same"), always(Approve(), "same")]
    many = [always(None, f"r{at}") for at in range(MAX_RULES + 1)]
    wrong: list[tuple[Any, str]] = [
        (twice, "INVALID_POLICY"),
        (many, "INVALID_POLICY"),
        ([7], "INVALID_RULE"),
    ]
    for rules, code in wrong:
        with pytest.raises(RefusedError) as refused:
            Policy("p", rules)
        assert refused.value.code == code
    three: Any = 3
    with pytest.raises(RefusedError):
        Policy("p", [], version=three)


def test_a_rule_may_ask_what_happened_before():
    @rule
    def seldom(case):
        return Reject("too often") if case.history.count(actor_id=case.actor.actor_id) > 3 else Approve()

    assert isinstance(make_case().history, NoHistory)
    assert Policy("p", [seldom]).evaluate(make_case(), ASKING).verdict == "approve"


def test_a_policy_is_shown_with_the_names_of_its_rules():
    shown = repr(Policy("house", [always(None, "first"), always(None, "second")]))
    assert shown.endswith("rules: first, second>"), shown
