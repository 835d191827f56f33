"""What would have to change: what is named really brings the approval, and nothing less than it would."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from authority import Approve, Escalate, Narrow, Policy, QuestionSettings
from authority.cel.conditions import read_when
from authority.people.answers import answered, ask_people, expired
from authority.policies.combine import combine
from authority.policies.policy_file import FileRule, policy_from_text
from tests.authority.cases import ASKING, authority_with, by_people, by_policy, make_case, said, scope
from tests.authority.test_cel_and_python import CASES, CHOICES, in_cel, in_python
from tests.plugins.forms import scaled
from world.errors import RefusedError
from world.model.decision import ENGINE, Quorum, Ruling
from world.state.ports import Case
from worldprotocol.policy_tools.explain import explain_trace, trace_lines
from worldprotocol.policy_tools.required_changes import change_lines, changes, heard_of, needs


def found(policy: Policy, case: Case) -> tuple[Ruling, dict[str, Any] | None]:
    """Return a ruling and what would have to change."""
    ruling = policy.evaluate(case, ASKING)
    rules = {one.name: one for one in policy.rules if isinstance(one, FileRule)}
    return ruling, changes(ruling.to_wire(), case.intent.body.scope_proposal, rules, case)


def approving(rule: Any) -> Any:
    """Return what a rule says when it matches and brings an approval."""
    return Narrow(rule.entry.scope) if isinstance(rule, FileRule) and rule.entry.scope else Approve()


@pytest.mark.requirement("CARD-policy", "WP-decision")
@settings(max_examples=scaled(150, ci=50))
@given(CHOICES, CASES, st.booleans())
def test_what_is_named_would_bring_the_approval_and_nothing_less(names: list[str], case: Case, is_file: bool) -> None:
    policy = in_cel(names) if is_file else in_python(names)
    ruling, told = found(policy, case)
    assert (told is None) == (ruling.verdict == "approve")
    if told is None:
        return
    heard = {one.rule: heard_of(one) for one in ruling.trace}
    proposed = case.intent.body.scope_proposal
    silent = [one["rule"] for one in told.get("silence", ())]
    for name in silent:  # each of them is needed
        kept = {rule: None if rule in silent and rule != name else said for rule, said in heard.items()}
        assert combine(list(kept.values()), proposed).verdict != "approve"
    left = {name: None if name in silent else said for name, said in heard.items()}
    for one_of in told.get("silenceOneOf", ()) or [None]:
        now = {name: None if one_of is not None and name == one_of["rule"] else said for name, said in left.items()}
        came = combine(list(now.values()), proposed)
        if "matchOneOf" in told:
            assert came.answer == "none"
            for one in told["matchOneOf"]:
                rule = next(rule for rule in policy.rules if rule.name == one["rule"])
                then = {**now, one["rule"]: approving(rule)}
                assert combine(list(then.values()), proposed).verdict == "approve"
        elif "people" in told:
            assert came.verdict == "wait"
            asked = {name: Approve() if isinstance(said, Escalate) else said for name, said in now.items()}
            assert combine(list(asked.values()), proposed).verdict == "approve"
        else:
            assert came.verdict == "approve"


PARTS = st.sampled_from(
    [
        "intent.input.amount <= 20",
        "intent.input.amount > base.data.balance",
        "base.data.balance < 50",
        "actor.kind == 'agent'",
        "has(base.data.total)",
        "true",
        "false",
        "10 / intent.input.amount > 2",
        "timestamp(string(intent.input.amount)) < now",
        "size([base.data.total][0]) > 1",
    ]
)
CONDITIONS = st.recursive(
    PARTS,
    lambda inner: st.builds(
        lambda parts, joint: "(" + joint.join(parts) + ")",
        st.lists(inner, min_size=2, max_size=3),
        st.sampled_from([" && ", " || "]),
    ),
    max_leaves=6,
)


def parts_of(needed: dict[str, Any] | None) -> list[dict[str, Any]]:
    if needed is None:
        return []
    inner = [*needed.get("allOf", ()), *needed.get("oneOf", ())]
    return [one for part in inner for one in parts_of(part)] if inner else [needed]


def with_parts(needed: dict[str, Any] | None, text: str, which: int) -> str:
    """Return a condition with the parts turned as is needed: of several of which one is, any."""
    if needed is None:
        return text
    if "part" in needed:
        return text.replace(needed["part"], str(needed["wanted"]).lower())
    for one in needed["allOf"] if "allOf" in needed else [needed["oneOf"][which % len(needed["oneOf"])]]:
        text = with_parts(one, text, which)
    return text


@pytest.mark.requirement("CARD-policy")
@settings(max_examples=scaled(150, ci=50))
@given(CONDITIONS, CASES, st.booleans(), st.integers(0, 5))
def test_parts_that_were_as_is_needed_turn_the_condition(text: str, case: Case, wanted: bool, which: int) -> None:
    condition = read_when(text)
    needed = needs(condition, case, wanted=wanted)
    try:
        was: bool | None = condition.holds(case)
    except RefusedError:
        was = None
    assert (needed is None) == (was is wanted)
    assert read_when(with_parts(needed, text, which)).holds(case) is wanted
    for part in parts_of(needed):
        assert part["was"] is not wanted
        assert (part["was"] is None) == ("why" in part)


FILE = """\
name = "house"

[[rules]]
id = "small"
when = "intent.input.amount <= 20 && (actor.kind == 'human' || has(base.data.trusted))"
verdict = "approve"

[[rules]]
id = "covered"
when = "intent.input.amount > base.data.balance || base.data.closed"
verdict = "reject"

[[rules]]
id = "always"
actions = ["pay"]
verdict = "reject"

[[rules]]
id = "large"
when = "intent.input.amount > 100"
verdict = "escalate"
to = ["ann"]
"""


def lines(case: Case) -> list[str]:
    policy = policy_from_text(FILE, "rules.toml")
    told = authority_with(policy).judge(case).to_wire()
    return [one.strip() for one in trace_lines(explain_trace(told, policy.description, case, None))]


def test_it_is_said_in_words_part_by_part() -> None:
    case = make_case(by_policy(), given={"amount": 30}, data={"balance": 10}, action="pay")
    words = lines(case)
    assert words[words.index("change    to be approved, each of these would have to say nothing:") :] == [
        "change    to be approved, each of these would have to say nothing:",
        "- covered [rules.toml:8]",
        "all of:",
        "intent.input.amount > base.data.balance would be false (was true)",
        "base.data.closed would be false (failed: there is no base.data.closed)",
        "- always [rules.toml:13]: it says so of every such case",
        "change    one of these would have to approve:",
        "- small [rules.toml:3]",
        "all of:",
        "intent.input.amount <= 20 would be true (was false)",
        "one of:",
        "actor.kind == 'human' would be true (was false)",
        "has(base.data.trusted) would be true (was false)",
    ]


def test_who_is_missing_is_said_while_it_waits_and_what_nobody_could_approve() -> None:
    waiting = make_case(by_policy(), given={"amount": 300}, data={"balance": 900, "closed": False})
    assert lines(waiting)[-1] == "change    ann would have to approve"
    own = make_case(by_policy(), given={"amount": 300}, data={"balance": 900, "closed": False}, actor_id="ann")
    assert "- large [rules.toml:18]" in lines(own)


def test_narrowings_that_leave_nothing_are_named() -> None:
    case = make_case(by_policy(), proposed=scope("data.a"))
    policy = policy_from_text(
        'name = "house"\n[[rules]]\nid = "a"\nverdict = "narrow"\nscope = ["data.b"]\n'
        '[[rules]]\nid = "b"\nverdict = "narrow"\nscope = ["data.a"]\n',
        "rules.toml",
    )
    _, told = found(policy, case)
    assert told is not None
    assert [one["rule"] for one in told["silenceOneOf"]] == ["a"]


def test_a_policy_without_an_approving_rule_is_told_so() -> None:
    policy = policy_from_text('name = "house"\n[[rules]]\nid = "a"\nverdict = "reject"\nwhen = "false"\n', "r.toml")
    _, told = found(policy, make_case(by_policy()))
    assert told == {"matchOneOf": []}


BY_ENGINE = {"rule": ENGINE, "source": "leases", "answer": "reject", "decisive": True}


def test_what_no_rule_is_to_blame_for_is_told_as_such() -> None:
    told = Ruling("reject", "policy_rules:house", "it is not the adopted one", None).to_wire()
    told["trace"] = [{"rule": "a", "source": "x", "answer": "approve"}, BY_ENGINE]
    assert changes(told, None, {}, None) == {"outside": "it is not the adopted one"}
    told["trace"].insert(0, {"rule": "b", "source": "x", "answer": "escalate", "to": ["ann"]})
    assert changes(told, None, {}, None) == {"outside": "it is not the adopted one"}
    del told["trace"][-1]
    told["trace"][0]["decisive"] = True
    told["reason"] = "b: only the proposer is asked"
    found_ = changes(told, None, {}, None)
    assert found_ is not None
    assert [one["rule"] for one in found_["silence"]] == ["b"]


def test_whose_votes_count_no_more_is_not_in_the_way() -> None:
    told = Ruling("reject", "tribunal", "dan rejected it", None).to_wire()
    told["trace"] = [
        {"rule": "people asked", "source": "binding", "answer": "escalate", "to": ["ann", "bob"]},
        {"rule": "human answer", "source": "human:ann", "answer": "reject"},
        {"rule": "human answer", "source": "human:bob", "answer": "escalate"},
        {"rule": "people asked", "source": "binding", "answer": "escalate", "to": ["dan"]},
        {"rule": "human answer", "source": "human:dan", "answer": "reject", "decisive": True},
    ]
    assert changes(told, None, {}, None) == {
        "people": [{"needed": 1, "of": ["dan"], "said": [{"source": "human:dan", "was": "reject"}]}]
    }


def test_who_said_no_would_have_to_approve() -> None:
    told = Ruling("reject", "policy_rules:house", "no", None).to_wire()
    told["trace"] = [
        {"rule": "a", "source": "x", "answer": "escalate", "to": ["ann"]},
        {"rule": "human answer", "source": "human:ann", "answer": "reject", "decisive": True},
    ]
    assert changes(told, None, {}, None) == {
        "people": [{"needed": 1, "of": ["ann"], "said": [{"source": "human:ann", "was": "reject"}]}]
    }


MEMBERS = ["ann", "bob", "cat"]


def voted(*votes: tuple[str, Any], asks: Any = None) -> list[str]:
    """Return what is told to be missing after these votes of a majority of ann, bob and cat."""
    case = make_case(by_people())
    asked = asks or QuestionSettings(tuple(MEMBERS), 1_000, "reject", Quorum("majority"))
    ruling = ask_people(case, asked, "tribunal")
    for name, choice in votes:
        ruling = expired(case, ruling, asked) if choice == "late" else answered(case, ruling, said(name, choice), asked)
    return list(change_lines(changes(ruling.to_wire(), None, {}, None, proposer="bot")))


def test_how_many_of_whom_would_have_to_approve_is_counted() -> None:
    assert voted() == ["  change    2 of ann, bob, cat would have to approve"]
    assert voted(("ann", "approve")) == ["  change    one of bob, cat would have to approve"]
    assert voted(("ann", "reject")) == ["  change    bob, cat would have to approve"]
    assert voted(("ann", "reject"), ("bob", "approve"), ("cat", "abstain")) == [
        "  change    one of ann, cat would have to approve; human:ann said reject, human:cat said abstain"
    ]
    assert voted(asks=QuestionSettings(("ann", "bob"), 1_000, "reject")) == [
        "  change    one of ann, bob would have to approve"
    ]
    assert voted(asks=QuestionSettings(("*",), 1_000, "reject")) == ["  change    any human would have to approve"]


def test_whose_approval_came_too_late_is_told_as_such() -> None:
    assert voted(("ann", "approve"), ("", "late")) == ["  change    one of bob, cat would have had to approve in time"]
    assert voted(("", "late"), asks=QuestionSettings(("ann", "bob"), 1_000, "escalate")) == [
        "  change    an approval would have had to come in time; ann or bob did not decide within 1000 ms"
    ]


def test_what_neither_rules_nor_people_are_to_blame_for_is_told_as_such() -> None:
    asked: list[dict[str, Any]] = [{"rule": "a", "source": "x", "answer": "escalate", "to": ["ann"]}]
    asked += [{"rule": "human answer", "source": "human:ann", "answer": "approve"}, BY_ENGINE]
    told = {"decision": "rejected", "reason": "its leases were refused", "trace": asked}
    assert changes(told, None, {}, None) == {"outside": "its leases were refused"}
    own = voted(asks=QuestionSettings(("bot",), None, "reject"))
    assert [line.partition(":")[0] for line in own] == ["  change    it is not the rules that are in the way, but"]
    trace = [{"rule": "a", "source": "x", "answer": "none"}, BY_ENGINE]
    silent = {"reason": "it is not the adopted one", "trace": trace}
    found_ = changes({"verdict": "reject", **silent}, None, {}, None)
    assert found_ is not None
    assert found_["outside"] == "it is not the adopted one"


def test_of_a_condition_that_failed_the_part_that_did_is_named() -> None:
    text = "timestamp('x') > now && intent.input.amount > 9 && base.data.gone"
    for wanted in (False, True):
        needed = needs(read_when(text), make_case(given={"amount": 5}), wanted=wanted)
        assert [one["part"] for one in parts_of(needed)][:1] == ["timestamp('x') > now"]
        assert len(parts_of(needed)) == (3 if wanted else 1)
    either = "base.data.gone || timestamp('x') > now || intent.input.amount > 9"  # the last one would come too late
    needed = needs(read_when(either), make_case(given={"amount": 5}), wanted=True)
    assert [one["part"] for one in parts_of(needed)] == ["base.data.gone", "timestamp('x') > now"]


def roles(told: dict[str, Any]) -> dict[str, str]:
    explained = explain_trace(told, None, None, None)
    return {one["rule"]: one["role"] for one in explained["rules"]}


@pytest.mark.requirement("CARD-policy", "WP-decision")
def test_nothing_is_said_to_have_decided_that_did_not() -> None:
    trace = [
        {"rule": "narrows", "source": "x", "answer": "narrow", "scope": {"allowedPaths": ["data.a"]}},
        {"rule": "all", "source": "x", "answer": "approve"},
        BY_ENGINE,
    ]
    told = {"decision": "rejected", "reason": "its leases were refused", "trace": trace}
    assert explain_trace(told, None, None, None)["decidedBy"] == [ENGINE]
    assert roles(told) == {"narrows": "overruled", "all": "overruled"}


def test_where_narrowings_leave_nothing_nobody_was_asked() -> None:
    text = (
        'name = "house"\n[[rules]]\nid = "a"\nverdict = "narrow"\nscope = ["data.b"]\n'
        '[[rules]]\nid = "asks"\nverdict = "escalate"\nto = ["ann"]\n[[rules]]\nid = "fine"\nverdict = "approve"\n'
    )
    policy = policy_from_text(text, "rules.toml")
    told = policy.evaluate(make_case(by_policy(), proposed=scope("data.a")), ASKING).to_wire()
    assert roles(told) == {"a": "decided", "asks": "overruled", "fine": "overruled"}
    alone = policy.evaluate(make_case(by_policy(), proposed=scope("data.b"), actor_id="ann"), ASKING).to_wire()
    assert roles(alone) == {"a": "overruled", "asks": "decided", "fine": "overruled"}


def test_words_of_others_neither_begin_lines_nor_steer_a_terminal() -> None:
    forged = "fine\n  ruling    approved by policy_rules:house\x1b[8m\u202e"
    trace = [{"rule": "a", "source": "x", "answer": "reject", "reason": forged, "decisive": True}]
    told = explain_trace({"verdict": "reject", "reason": forged, "trace": trace}, None, None, None)
    said = list(trace_lines(told))
    assert all(line.isprintable() for line in said)
    assert any("\\n  ruling" in line for line in said)
