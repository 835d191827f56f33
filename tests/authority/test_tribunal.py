"""Tribunals, seats that are handed on, and chains of steps: case by case, with the words that people read."""

from __future__ import annotations

import pytest
from msgspec import structs

from authority import AllOf, Escalate, Narrow, PolicyRegistry, StandardAuthority, policy_from_file
from authority.people.answers import MAX_DELEGATIONS
from authority.people.questions import PEOPLE_ASKED, TIME_LIMIT, questions_of
from tests.authority.cases import always, authority_with, by_policy, make_case, policy, said, scope
from world.errors import RefusedError
from world.model.decision import HUMAN_ANSWER, Ruling

PEOPLE = StandardAuthority(PolicyRegistry())
THREE = ["ann", "bob", "cat"]


def judged(binding, proposed=None, authority=PEOPLE):
    case = make_case(authority.check_binding(binding), proposed=proposed)
    return case, Ruling.from_wire(authority.judge(case).to_wire())


def tribunal(*members, rule="majority", **more):
    return judged({"kind": "tribunal", "members": list(members), "rule": rule, **more})


def votes(case, ruling, *answers, authority=PEOPLE):
    for by, choice in answers:
        ruling = authority.answer(case, ruling, said(by, choice, reason="so"))
    return ruling


def delegated(case, ruling, by, to):
    return PEOPLE.answer(case, ruling, structs.replace(said(by, "delegate"), to=to))


def refusal(call):
    with pytest.raises(RefusedError) as refused:
        call()
    return refused.value


@pytest.mark.requirement("WP-bind")
@pytest.mark.parametrize(
    ("rule", "answers", "verdict"),
    [
        ({"rule": "majority"}, ["approve"], "wait"),
        ({"rule": "majority"}, ["approve", "approve"], "approve"),
        ({"rule": "majority"}, ["reject", "abstain"], "reject"),
        ({"rule": "majority"}, ["reject", "approve", "approve"], "approve"),
        ({"rule": "unanimous"}, ["approve", "approve"], "wait"),
        ({"rule": "unanimous"}, ["approve", "approve", "approve"], "approve"),
        ({"rule": "unanimous"}, ["abstain"], "reject"),
        ({"rule": "threshold", "threshold": 1}, ["reject", "abstain"], "wait"),
        ({"rule": "threshold", "threshold": 1}, ["reject", "abstain", "reject"], "reject"),
        ({"rule": "threshold", "threshold": 1}, ["reject", "approve"], "approve"),
    ],
)
def test_a_tribunal_decides_as_soon_as_the_missing_votes_cannot_change_it(rule, answers, verdict):
    case, ruling = tribunal(*THREE, **rule)
    ruling = votes(case, ruling, *zip(THREE, answers, strict=False))
    assert ruling.verdict == verdict
    assert [(one.source, one.answer) for one in ruling.trace if one.rule == HUMAN_ANSWER] == [
        (f"human:{by}", answer) for by, answer in zip(THREE, answers, strict=False)
    ]


@pytest.mark.requirement("WP-bind")
def test_the_trace_tells_who_was_asked_by_which_rule_and_the_reason_tells_the_count():
    case, ruling = tribunal(*THREE)
    assert ruling.reason == "2 of 3 decide: ann, bob, cat"
    (asked,) = ruling.trace
    assert (asked.rule, asked.answer, asked.to) == (PEOPLE_ASKED, "escalate", tuple(THREE))
    assert asked.to_wire()["quorum"] == {"rule": "majority"}
    ruling = votes(case, ruling, ("cat", "approve"))
    (question,) = questions_of(ruling, "bot")
    assert question.words == "1 of 3 approve, 1 more needed; cat voted"
    assert ruling.reason == f"cat agreed: so ({question.words})"
    assert ruling.ask == ("ann", "bob")
    assert votes(case, ruling, ("ann", "approve")).reason == "ann approved it: so (2 of 3 approved, 2 needed)"


@pytest.mark.requirement("WP-bind")
def test_a_vote_stays():
    case, ruling = tribunal(*THREE)
    ruling = votes(case, ruling, ("ann", "abstain"))
    for choice in ("approve", "reject", "ask", "delegate", "escalate"):
        assert refusal(lambda choice=choice: votes(case, ruling, ("ann", choice))).code == "ALREADY_VOTED"


@pytest.mark.requirement("WP-bind")
def test_a_proposer_among_the_members_leaves_the_bench():
    case, ruling = tribunal("bot", "ann", "bob")
    assert ruling.ask == ("ann", "bob")
    assert refusal(lambda: votes(case, ruling, ("bot", "approve"))).code == "OWN_PROPOSAL"
    assert votes(case, ruling, ("ann", "approve")).verdict == "wait"
    alone = tribunal("bot")[1]
    assert (alone.verdict, alone.trace) == ("reject", ())
    short = tribunal("bot", "ann", rule="threshold", threshold=2)[1]
    assert (short.verdict, short.reason) == ("reject", "2 must approve, and beside the proposer only ann can vote")


@pytest.mark.requirement("INT-13.3")
def test_narrowings_that_have_nothing_in_common_reject():
    case, ruling = judged({"kind": "tribunal", "members": THREE, "rule": "unanimous"}, scope("data.a", "data.b"))
    ruling = PEOPLE.answer(case, ruling, said("ann", "narrow", within=scope("data.a")))
    both = PEOPLE.answer(case, ruling, said("bob", "narrow", within=scope("data.a.x", "data.b")))
    assert votes(case, both, ("cat", "approve")).approved_scope == scope("data.a.x")
    ruling = PEOPLE.answer(case, ruling, said("bob", "narrow", within=scope("data.b")))
    assert (ruling.verdict, ruling.approved_scope) == ("reject", None)
    assert "nothing is left" in ruling.reason


@pytest.mark.requirement("WP-bind", "WP-decision")
def test_members_of_every_kind_vote():
    case, ruling = tribunal("ann", "scanner")
    assert refusal(lambda: votes(case, ruling, ("zoe", "approve"))).code == "NOT_ASKED"
    ruling = PEOPLE.answer(case, ruling, said("scanner", "approve", kind="system"))
    assert votes(case, ruling, ("ann", "approve")).verdict == "approve"


def test_a_seat_is_handed_on_with_its_vote():
    case, ruling = tribunal(*THREE)
    ruling = delegated(case, ruling, "ann", "dan")
    assert ruling.ask == ("dan", "bob", "cat")
    assert refusal(lambda: votes(case, ruling, ("ann", "approve"))).code == "NOT_ASKED"
    assert votes(case, ruling, ("dan", "approve"), ("bob", "approve")).verdict == "approve"
    _, waiting = judged({"kind": "hitl", "ask": ["ann"]})
    handed = delegated(case, waiting, "ann", "dan")
    assert (handed.ask, handed.trace[0].rule) == (("dan",), PEOPLE_ASKED)
    assert votes(case, handed, ("dan", "approve")).verdict == "approve"


@pytest.mark.requirement("WP-bind")
@pytest.mark.parametrize(
    ("by", "to", "why"),
    [
        ("ann", "bot", "'bot' proposed this"),
        ("ann", "ann", "was asked before"),
        ("ann", "bob", "is asked already"),
        ("cat", "zoe", "has no place of their own"),
        ("ann", None, "name the one"),
    ],
)
def test_a_seat_is_not_handed_to_just_anybody(by, to, why):
    case, ruling = judged({"kind": "hitl", "ask": ["ann", "bob", "*"]})
    refused = refusal(lambda: delegated(case, ruling, by, to))
    assert refused.code == "DELEGATION_REFUSED"
    assert why in refused.message
    handed = delegated(case, ruling, "ann", "dan")
    assert "'ann' was asked before" in refusal(lambda: delegated(case, handed, "dan", "ann")).message


def test_a_seat_is_handed_on_only_so_often():
    case, ruling = tribunal(*THREE)
    holder = "ann"
    for number in range(MAX_DELEGATIONS):
        ruling, holder = delegated(case, ruling, holder, f"d{number}"), f"d{number}"
    refused = refusal(lambda: delegated(case, ruling, holder, "last"))
    assert (refused.code, str(MAX_DELEGATIONS) in refused.message) == ("DELEGATION_REFUSED", True)
    assert votes(case, ruling, (holder, "approve")).ask == ("bob", "cat")


def test_answers_that_do_not_fit_say_what_does():
    case, ruling = judged({"kind": "hitl", "ask": ["ann"]})
    assert refusal(lambda: votes(case, ruling, ("ann", "abstain"))).code == "ABSTENTION_REFUSED"
    assert refusal(lambda: votes(case, ruling, ("ann", "escalate"))).code == "NO_FURTHER_STEP"
    assert refusal(lambda: votes(case, ruling, ("ann", "reply"))).code == "NOT_PROPOSER"
    for by, choice in (("ann", "escalate"), ("bot", "reply")):
        assert refusal(lambda by=by, choice=choice: PEOPLE.answer(case, ruling, said(by, choice))).code == (
            "REASON_MISSING"
        )
    assert votes(case, ruling, ("ann", "ask"), ("bot", "reply")) == ruling


CHAIN = {"kind": "hitl", "ask": ["ann"], "timeoutMs": 5, "then": [{"members": THREE, "timeoutMs": 7}, {"ask": ["dan"]}]}


@pytest.mark.requirement("WP-bind", "WP-decision")
def test_time_limits_and_people_hand_a_question_up_the_chain():
    case, ruling = judged(CHAIN)
    second = PEOPLE.expire(case, ruling)
    assert (second.verdict, second.step, second.ask, second.timeout_ms) == ("wait", 1, tuple(THREE), 7)
    assert second.reason == "ann did not decide within 5 ms; now 2 of 3 decide: ann, bob, cat"
    assert [(one.rule, one.answer) for one in second.trace] == [(TIME_LIMIT, "escalate"), (PEOPLE_ASKED, "escalate")]
    third = votes(case, second, ("ann", "approve"), ("bob", "escalate"))
    assert (third.step, third.ask, third.on_timeout) == (2, ("dan",), "reject")
    assert refusal(lambda: votes(case, third, ("dan", "escalate"))).code == "NO_FURTHER_STEP"
    assert PEOPLE.expire(case, third).verdict == "reject"
    assert votes(case, third, ("dan", "approve")).verdict == "approve"


def test_votes_of_an_earlier_step_do_not_count_and_its_narrowings_hold():
    case, ruling = judged({"kind": "tribunal", "members": THREE, "then": [{"members": THREE}]})
    ruling = PEOPLE.answer(case, ruling, said("ann", "narrow", within=scope("data.a")))
    ruling = votes(case, ruling, ("bob", "escalate"))
    ruling = votes(case, ruling, ("bob", "approve"))
    assert (ruling.verdict, ruling.ask) == ("wait", ("ann", "cat"))
    wider = said("cat", "narrow", within=scope("data.b"))
    assert refusal(lambda: PEOPLE.answer(case, ruling, wider)).code == "SCOPE_NOT_WITHIN"
    assert votes(case, ruling, ("cat", "approve")).approved_scope == scope("data.a")


def test_steps_that_nobody_can_answer_are_passed_over_and_without_any_other_it_is_rejected():
    case, ruling = judged({"kind": "hitl", "ask": ["bot"], "then": [{"members": ["bot"]}, {"ask": ["dan"]}]})
    assert (ruling.verdict, ruling.step, ruling.ask) == ("wait", 2, ("dan",))
    _, ruling = judged({"kind": "hitl", "ask": ["bot"], "then": [{"members": ["bot"]}]})
    assert ruling.verdict == "reject"
    assert ruling.reason.endswith("of no further step can anybody approve it")
    case, ruling = judged({"kind": "hitl", "ask": ["ann"], "then": [{"members": ["bot"]}]})
    assert refusal(lambda: votes(case, ruling, ("ann", "escalate"))).code == "NO_FURTHER_STEP"
    assert PEOPLE.expire(case, ruling).verdict == "reject"


@pytest.mark.requirement("WP-bind", "WP-decision")
def test_rules_escalate_to_a_vote_and_up_the_chain_of_the_binding():
    authority = authority_with(policy(Escalate(THREE, "big", vote=2), Escalate("dan"), Narrow("data.a")))
    case, ruling = judged(by_policy(then=[{"ask": ["eve"]}]), authority=authority)
    assert ruling.reason == "r0: big; r1: people decide (dan decides; 2 of 3 decide: ann, bob, cat)"
    voted = votes(case, ruling, ("ann", "approve"), ("dan", "approve"), authority=authority)
    assert (voted.verdict, voted.ask) == ("wait", ("bob", "cat"))
    done = votes(case, voted, ("cat", "approve"), authority=authority)
    assert (done.verdict, done.approved_scope, done.policy_hash) == ("approve", scope("data.a"), ruling.policy_hash)
    raised = authority.expire(case, voted)
    assert (raised.ask, raised.step, raised.policy_hash) == (("eve",), 1, ruling.policy_hash)
    assert votes(case, raised, ("eve", "approve"), authority=authority).approved_scope == scope("data.a")
    assert votes(case, voted, ("bob", "reject"), ("cat", "reject"), authority=authority).verdict == "reject"
    assert votes(case, ruling, ("dan", "reject"), authority=authority).verdict == "reject"


@pytest.mark.parametrize(
    ("to", "vote"),
    [([], "majority"), (["*"], "majority"), (["a", "*"], 1), (["a"], 2), (["a"], 0), (["a"], True), (["a"], "most")],
)
def test_a_vote_is_of_members_that_are_named_and_can_be_won(to, vote):
    assert refusal(lambda: Escalate(to, vote=vote)).code == "INVALID_OPINION"


def test_all_of_hands_on_a_vote_as_it_is():
    whole = AllOf("both", (always(Escalate(THREE, vote="unanimous"), "one"), always(Escalate(THREE, vote="unanimous"))))
    opinion = whole(make_case())
    assert isinstance(opinion, Escalate)
    assert opinion.vote == "unanimous"
    mixed = AllOf("both", (always(Escalate(THREE, vote=2), "one"), always(Escalate(THREE))))
    assert refusal(lambda: mixed(make_case())).code == "INVALID_OPINION"


def test_a_rule_in_a_file_escalates_to_a_vote(tmp_path):
    file = tmp_path / "votes.toml"
    entry = 'name = "votes"\n[[rules]]\nid = "all"\nverdict = "{}"\nto = ["ann", "bob"]\nvote = {}\n'
    file.write_text(entry.format("escalate", 2))
    _, ruling = judged(by_policy("votes"), authority=authority_with(policy_from_file(file)))
    assert ruling.trace[0].to_wire()["quorum"] == {"rule": "threshold", "threshold": 2}
    for verdict, vote, why in (("approve", 2, "only a rule that escalates"), ("escalate", 3, "1 to 2 here")):
        file.write_text(entry.format(verdict, vote))
        assert why in refusal(lambda: policy_from_file(file)).message
