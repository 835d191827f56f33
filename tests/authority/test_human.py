"""People: who may answer, what they may say, and what comes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority import Approve, Escalate, Narrow, PolicyRegistry, StandardAuthority
from authority.people.questions import TIME_LIMIT
from authority.scope import is_within
from tests.authority.cases import authority_with, by_people, by_policy, make_case, policy, said, scope
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from world.model.decision import HUMAN_ANSWER, Ruling
from world.model.intent import IntentScope

PEOPLE = StandardAuthority(PolicyRegistry())


def waiting(*, proposed: IntentScope | None = None, **binding):
    """Return a case bound to people, and the ruling that waits for them."""
    case = make_case(PEOPLE.check_binding(by_people(**binding)), proposed=proposed)
    asked = PEOPLE.judge(case)
    assert asked.verdict == "wait"
    return case, Ruling.from_wire(asked.to_wire())


def refusal(case, asked, answer):
    with pytest.raises(RefusedError) as refused:
        PEOPLE.answer(case, asked, answer)
    return refused.value.code


@pytest.mark.requirement("WP-bind")
def test_people_are_asked_as_the_binding_says():
    _, asked = waiting(ask=["alice", "bob"], timeoutMs=5_000, onTimeout="approve")
    assert (asked.ask, asked.timeout_ms, asked.on_timeout) == (("alice", "bob"), 5_000, "approve")
    assert asked.authority == "hitl"
    _, forever = waiting(timeoutMs=None)
    assert (forever.ask, forever.timeout_ms) == (("*",), None)


@pytest.mark.requirement("INT-13.3", "WP-decision")
@pytest.mark.parametrize("proposed", [None, scope("data.a.*")])
def test_an_approval_is_as_proposed(proposed):
    case, asked = waiting(proposed=proposed)
    ruling = PEOPLE.answer(case, asked, said("alice", "approve", reason="looks fine"))
    assert (ruling.verdict, ruling.approved_scope) == ("approve", proposed)
    assert ruling.reason == "alice approved it: looks fine"
    (outcome,) = ruling.trace
    assert (outcome.rule, outcome.source, outcome.answer) == (HUMAN_ANSWER, "human:alice", "approve")
    assert outcome.decisive


@pytest.mark.requirement("INT-13.3", "WP-decision")
def test_a_rejection_rejects_and_approves_no_scope():
    case, asked = waiting(proposed=scope("data.a"))
    ruling = PEOPLE.answer(case, asked, said("alice", "reject", reason="not now"))
    assert (ruling.verdict, ruling.approved_scope) == ("reject", None)
    assert "approvedScope" not in ruling.to_wire()


@pytest.mark.requirement("INT-13.3")
@pytest.mark.parametrize("proposed", [None, scope("data.a"), IntentScope(note="anywhere")])
def test_a_person_can_approve_less_than_was_proposed(proposed):
    case, asked = waiting(proposed=proposed)
    ruling = PEOPLE.answer(case, asked, said("alice", "narrow", within=scope("data.a.x")))
    assert (ruling.verdict, ruling.approved_scope) == ("approve", scope("data.a.x"))
    assert ruling.trace[0].scope == scope("data.a.x")


@pytest.mark.requirement("INT-13.3")
def test_a_person_cannot_approve_more_than_was_proposed():
    case, asked = waiting(proposed=scope("data.a"))
    with pytest.raises(RefusedError, match=r"data\.b") as refused:
        PEOPLE.answer(case, asked, said("alice", "narrow", within=scope("data.a.x", "data.b")))
    assert refused.value.code == "SCOPE_NOT_WITHIN"
    assert refused.value.details == {"outside": ["data.b"], "offered": ["data.a"]}


@pytest.mark.parametrize("within", [None, IntentScope(), scope()])
def test_a_narrowing_needs_a_scope(within):
    case, asked = waiting()
    assert refusal(case, asked, said("alice", "narrow", within=within)) == "SCOPE_MISSING"


@pytest.mark.parametrize("choice", ["approve", "reject", "ask"])
def test_a_scope_comes_with_a_narrowing_only(choice):
    case, asked = waiting()
    assert refusal(case, asked, said("alice", choice, within=scope("data.a"))) == "SCOPE_NOT_EXPECTED"


def test_asking_back_keeps_it_waiting_as_it_was():
    case, asked = waiting()
    assert PEOPLE.answer(case, asked, said("alice", "ask", reason="why?")) == asked


def test_only_those_who_are_asked_may_answer():
    case, asked = waiting(ask=["alice", "robot"])
    assert refusal(case, asked, said("mallory", "approve")) == "NOT_ASKED"
    assert PEOPLE.answer(case, asked, said("robot", "approve", kind="agent")).verdict == "approve"


@pytest.mark.parametrize("kind", ["agent", "system"])
def test_any_human_means_humans(kind):
    case, asked = waiting()
    assert refusal(case, asked, said("robot", "approve", kind=kind)) == "NOT_ASKED"


@pytest.mark.parametrize("choice", ["approve", "reject", "ask"])
@pytest.mark.parametrize("ask", [["*"], ["bot", "alice"]])
def test_nobody_answers_for_a_proposal_of_their_own(choice, ask):
    case, asked = waiting(ask=ask)
    assert refusal(case, asked, said("bot", choice)) == "OWN_PROPOSAL"


def test_a_proposal_that_only_its_proposer_could_answer_is_rejected_at_once():
    assert PEOPLE.judge(make_case(by_people(ask=["bot"]))).verdict == "reject"


def test_what_does_not_wait_cannot_be_answered_or_expire():
    case = make_case()
    for decided in (PEOPLE.judge(case), Ruling("reject", "hitl", "no")):
        assert refusal(case, decided, said("alice", "approve")) == "NOT_WAITING"
        with pytest.raises(RefusedError) as refused:
            PEOPLE.expire(case, decided)
        assert refused.value.code == "NOT_WAITING"


@pytest.mark.requirement("WP-bind")
@pytest.mark.parametrize(("on_timeout", "approved"), [("reject", None), ("approve", scope("data.a"))])
def test_when_the_time_is_over_the_binding_decides(on_timeout, approved):
    case, asked = waiting(proposed=scope("data.a"), onTimeout=on_timeout, timeoutMs=5_000)
    ruling = PEOPLE.expire(case, asked)
    assert (ruling.verdict, ruling.approved_scope) == (on_timeout, approved)
    assert "5000 ms" in ruling.reason
    assert [(one.rule, one.decisive) for one in ruling.trace] == [(TIME_LIMIT, True)]


def escalated(*opinions, proposed=None, **binding):
    authority = authority_with(policy(*opinions))
    case = make_case(authority.check_binding(by_policy(**binding)), proposed=proposed)
    asked = authority.judge(case)
    assert asked.verdict == "wait"
    return authority, case, asked


@pytest.mark.requirement("INT-13.3", "WP-decision")
def test_people_decide_what_rules_escalate_and_the_trace_tells_both():
    authority, case, asked = escalated(Approve("ok"), Escalate("alice", "big"), None)
    ruling = authority.answer(case, asked, said("alice", "approve"))
    assert ruling.verdict == "approve"
    assert ruling.policy_hash == asked.policy_hash
    assert ruling.authority == "policy_rules:house"
    assert [outcome.rule for outcome in ruling.trace] == ["r0", "r1", "r2", HUMAN_ANSWER]
    assert [outcome.decisive for outcome in ruling.trace] == [False, False, False, True]


@pytest.mark.requirement("INT-13.3")
def test_people_cannot_widen_what_rules_narrowed():
    opinions = (Narrow("data.a.*"), Escalate("alice"))
    authority, case, asked = escalated(*opinions, proposed=scope("data.a", "data.b"), onTimeout="approve")
    assert authority.answer(case, asked, said("alice", "approve")).approved_scope == scope("data.a.*")
    assert authority.expire(case, asked).approved_scope == scope("data.a.*")
    with pytest.raises(RefusedError) as refused:
        authority.answer(case, asked, said("alice", "narrow", within=scope("data.b")))
    assert refused.value.code == "SCOPE_NOT_WITHIN"


def test_every_escalation_needs_its_own_approval():
    authority, case, asked = escalated(Escalate("alice", "money"), Escalate(["bob", "carol"], "law"))
    assert asked.ask == ("alice", "bob", "carol")
    half = authority.answer(case, asked, said("alice", "narrow", within=scope("data.a")))
    assert (half.verdict, half.ask) == ("wait", ("bob", "carol"))
    assert half.timeout_ms == asked.timeout_ms
    half = Ruling.from_wire(read_json(canonical_bytes(half.to_wire())))
    with pytest.raises(RefusedError) as refused:
        authority.answer(case, half, said("alice", "approve"))
    assert refused.value.code == "NOT_ASKED"
    whole = authority.answer(case, half, said("carol", "approve"))
    assert (whole.verdict, whole.approved_scope) == ("approve", scope("data.a"))
    assert [one.source for one in whole.trace if one.decisive] == ["human:carol"]
    assert authority.answer(case, half, said("bob", "reject")).verdict == "reject"


def test_one_person_may_satisfy_several_escalations():
    authority, case, asked = escalated(Escalate(["alice", "bob"]), Escalate(reason="anybody"))
    assert authority.answer(case, asked, said("alice", "approve")).verdict == "approve"
    half = authority.answer(case, asked, said("zoe", "approve"))
    assert (half.verdict, half.ask) == ("wait", ("alice", "bob"))


def test_words_that_a_log_cannot_hold_do_not_reach_it():
    case, asked = waiting()
    ruling = PEOPLE.answer(case, asked, said("alice", "reject", reason="y" * 100_000))
    assert len(canonical_bytes(ruling.to_wire())) < 10_000


CHOICES = st.sampled_from(["approve", "reject", "narrow", "ask"])
NARROWER = st.lists(st.sampled_from(["data.a.*", "data.a.x", "data.*.y", "data.b"]), min_size=1, max_size=2)
WHO = st.sampled_from(["alice", "bob", "carol", "bot"])


@given(
    st.lists(st.one_of(st.builds(Escalate, st.lists(WHO, max_size=2)), st.builds(Narrow, NARROWER)), max_size=3),
    st.one_of(st.none(), NARROWER),
    st.lists(st.tuples(WHO, CHOICES, NARROWER), max_size=6),
)
def test_whatever_people_say_approval_is_theirs_and_within_what_was_allowed(opinions, proposed, answers):
    authority = authority_with(policy(Escalate("alice"), *opinions))
    case = make_case(by_policy(), proposed=None if proposed is None else scope(*proposed))
    ruling = authority.judge(case)
    approvers = set()
    for who, choice, within in answers:
        if ruling.verdict != "wait":
            break
        try:
            answer = said(who, choice, within=scope(*within) if choice == "narrow" else None)
            ruling = authority.answer(case, ruling, answer)
        except RefusedError:
            continue
        if choice in ("approve", "narrow"):
            approvers.add(who)
    if ruling.verdict == "approve":
        assert "bot" not in approvers
        for outcome in ruling.trace:
            if outcome.answer == "escalate":
                assert approvers & set(outcome.to) or "*" in outcome.to
        bounds = [one.scope.allowed_paths for one in ruling.trace if one.scope is not None]
        for bound in [*bounds, *([proposed] if proposed else [])]:
            assert ruling.approved_scope is not None
            assert ruling.approved_scope.allowed_paths is not None
            assert is_within(ruling.approved_scope.allowed_paths, bound)
    else:
        assert ruling.approved_scope is None
