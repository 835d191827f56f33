"""Rulings in full, word by word: of rules, of people and of the clock; and bindings with all their defaults."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from authority import AllOf, AnyOf, Approve, Escalate, Narrow, Policy, PythonRule, QuestionSettings, Reject
from authority.bindings.asking import DAY_MS, MAX_TIMEOUT_MS
from authority.bindings.auto_approve import AutoApproveBinding
from authority.bindings.registry import BUILT_IN, read_binding
from authority.bounded_text import MAX_WORDS, bounded, error_text
from authority.policies.combine import Combined, combine, reasons
from authority.policies.opinions import MAX_ASKED, RuleFault
from authority.scope import intersection, is_within
from tests.authority.cases import always, authority_with, by_policy, make_case, policy, raising, said, scope
from tests.support.tables import for_each
from world.errors import RefusedError
from world.model.decision import Quorum, Ruling
from world.model.intent import IntentScope


def judged(rules: list[Any], *, proposed: IntentScope | None = None, **binding: Any) -> dict[str, Any]:
    named = [PythonRule(f"r{at}", one.function) for at, one in enumerate(rules)]
    authority = authority_with(Policy("house", named))
    wire = authority.judge(make_case(by_policy(**binding), proposed=proposed)).to_wire()
    assert wire.pop("authority") == "policy_rules:house"
    assert wire.pop("policyHash") == Policy("house", named).hash
    for one in wire.get("trace", []):
        one.pop("source")
    return wire


def heard(*answers: str, **more: Any) -> list[dict[str, Any]]:
    """Return a trace: ``approve!`` decided; what stands behind a colon is the reason."""
    trace = []
    for at, text in enumerate(answers):
        answer, _, reason = text.partition(":")
        one: dict[str, Any] = {"rule": f"r{at}", "answer": answer.rstrip("!")}
        one |= {"reason": reason} if reason else {}
        one |= {"decisive": True} if answer.endswith("!") else {}
        trace.append(one | more.get(f"r{at}", {}))
    return trace


SOME = {"scope": {"allowedPaths": ["data.a"]}}
ASKS = {"ask": ["*"], "onTimeout": "reject", "timeoutMs": DAY_MS}
SILENT, YES, NO = always(None), always(Approve("yes")), always(Reject("no"))
NARROW, ELSEWHERE = always(Narrow("data.a", "less")), always(Narrow("data.b", "there"))
ANN = always(Escalate("ann", "ask ann"))
NOTHING = "no rule approved it: rejected by default"


@pytest.mark.requirement("CARD-policy", "INT-13.3")
@for_each(
    ("rules", "expected"),
    [
        ([YES], {"verdict": "approve", "reason": "r0: yes", "approvedScope": None, "trace": heard("approve!:yes")}),
        (
            [SILENT, YES, YES],
            {
                "verdict": "approve",
                "reason": "r1: yes",
                "approvedScope": None,
                "trace": heard("none", "approve!:yes", "approve:yes"),
            },
        ),
        (
            [always(Approve())],
            {"verdict": "approve", "reason": "r0", "approvedScope": None, "trace": heard("approve!")},
        ),
        ([YES, NO], {"verdict": "reject", "reason": "r1: no", "trace": heard("approve:yes", "reject!:no")}),
        ([NO, NO], {"verdict": "reject", "reason": "r0: no", "trace": heard("reject!:no", "reject:no")}),
        (
            [YES, NARROW],
            {
                "verdict": "approve",
                "reason": "r1: less",
                "approvedScope": {"allowedPaths": ["data.a"]},
                "trace": heard("approve:yes", "narrow!:less", r1=SOME),
            },
        ),
        (
            [NARROW, ELSEWHERE],
            {
                "verdict": "reject",
                "reason": "r0, r1: the narrowings leave nothing of the proposed scope to write",
                "trace": heard("narrow!:less", "narrow!:there", r0=SOME, r1={"scope": {"allowedPaths": ["data.b"]}}),
            },
        ),
        (
            [ANN, NARROW, YES],
            {
                "verdict": "wait",
                "reason": "r0: ask ann (ann decides)",
                **ASKS,
                "ask": ["ann"],
                "trace": heard("escalate!:ask ann", "narrow:less", "approve:yes", r0={"to": ["ann"]}, r1=SOME),
            },
        ),
        (
            [ANN, always(Escalate())],
            {
                "verdict": "wait",
                "reason": "r0: ask ann; r1: people decide (ann and any human decides)",
                **ASKS,
                "ask": ["ann", "*"],
                "trace": heard("escalate!:ask ann", "escalate!", r0={"to": ["ann"]}, r1={"to": ["*"]}),
            },
        ),
        (
            [always(Escalate(["ann", "bob", "cat"], "vote", vote="majority"))],
            {
                "verdict": "wait",
                "reason": "r0: vote (2 of 3 decide: ann, bob, cat)",
                **ASKS,
                "ask": ["ann", "bob", "cat"],
                "trace": heard("escalate!:vote", r0={"to": ["ann", "bob", "cat"], "quorum": {"rule": "majority"}}),
            },
        ),
        (
            [YES, always(Escalate("bot", "itself"))],
            {
                "verdict": "reject",
                "reason": "r1: nobody but the proposer is asked",
                "trace": heard("approve:yes", "escalate!:itself", r1={"to": ["bot"]}),
            },
        ),
        (
            [YES, raising(ValueError("broken"))],
            {
                "verdict": "reject",
                "reason": "r1: ValueError: broken",
                "trace": heard("approve:yes", "error!:ValueError: broken"),
            },
        ),
        (
            [always(5), NO],
            {
                "verdict": "reject",
                "reason": ("r0: r0 returned int; a rule returns Approve, Reject, Narrow, Escalate or None"),
                "trace": heard(
                    "error!:r0 returned int; a rule returns Approve, Reject, Narrow, Escalate or None", "reject:no"
                ),
            },
        ),
    ],
)
def test_what_rules_say_comes_to_this_ruling(rules: list[Any], expected: dict[str, Any]) -> None:
    found = judged(rules)
    if "nobody but" in expected["reason"]:
        assert found["verdict"] == "reject"
        assert found["reason"].startswith("r1: ")
        assert found["trace"] == expected["trace"]
        return
    assert found == expected


def test_without_an_opinion_nothing_is_approved() -> None:
    found = judged([SILENT, SILENT])
    assert (found["verdict"], found["trace"]) == ("reject", heard("none", "none"))
    assert found["reason"] == NOTHING


@pytest.mark.requirement("INT-13.3")
@pytest.mark.parametrize(
    ("proposed", "narrowings", "approved"),
    [
        (["data.a"], [["data.a.b"]], ("data.a.b",)),
        (["data.a.b"], [["data.a"]], ("data.a.b",)),
        (["data.a"], [["data.a"]], ("data.a",)),
        (None, [["data.a", "data.b"], ["data.b.c"]], ("data.b.c",)),
        (["data.*.x"], [["data.a"]], ("data.a.x",)),
        (["data.a"], [["data.b"]], None),
    ],
)
def test_narrowings_are_within_what_was_proposed(
    proposed: list[str] | None, narrowings: list[list[str]], approved: tuple[str, ...] | None
) -> None:
    found = judged([always(Narrow(one)) for one in narrowings], proposed=scope(*proposed) if proposed else None)
    assert found["verdict"] == ("reject" if approved is None else "approve")
    if approved is not None:
        assert found["approvedScope"] == {"allowedPaths": list(approved)}


@pytest.mark.requirement("CARD-policy")
def test_rules_made_of_rules_say_what_their_parts_say() -> None:
    case = make_case()
    approve, narrow = Approve("yes"), Narrow("data.a", "less")
    table: list[tuple[list[Any], Any, Any]] = [
        ([approve, approve], Approve("yes; yes"), approve),
        ([approve, None], None, approve),
        ([None, None], None, None),
        ([approve, Reject("no")], Reject("no"), approve),
        ([Reject("no"), Reject("never")], Reject("no; never"), Reject("no")),
        ([None, Reject("no")], Reject("no"), Reject("no")),
        ([approve, narrow], Narrow("data.a", "yes; less"), approve),
        ([narrow, approve], Narrow("data.a", "less; yes"), narrow),
        ([narrow, Narrow("data.b")], Reject("together the narrowings leave nothing to write"), narrow),
        ([Escalate("ann", "ask"), approve], Escalate("ann", "ask"), approve),
        ([Escalate("ann", "ask"), None], Escalate("ann", "ask"), Escalate("ann", "ask")),
        ([Escalate("ann", "a"), Escalate("ann", "b")], Escalate("ann", "a; b"), Escalate("ann", "a")),
        ([Reject("no"), Escalate("ann", "ask")], Reject("no"), Escalate("ann", "ask")),
        ([Escalate(["ann", "bob"], vote=2)], Escalate(["ann", "bob"], vote=2), Escalate(["ann", "bob"], vote=2)),
    ]
    for parts, all_of, any_of in table:
        rules = tuple(always(one, f"p{at}") for at, one in enumerate(parts))
        assert AllOf("all", rules)(case) == all_of, parts
        assert AnyOf("any", rules)(case) == any_of, parts
    for parts in ([Escalate("ann"), narrow], [Escalate("ann"), Escalate("bob")],
                  [Escalate(["ann", "bob"], vote=1), Escalate(["ann", "bob"], vote=2)]):  # fmt: skip
        with pytest.raises(RefusedError) as caught:
            AllOf("all", tuple(always(one, f"p{at}") for at, one in enumerate(parts)))(case)
        assert caught.value.code == "INVALID_OPINION"
    for kind in (AllOf, AnyOf):
        with pytest.raises(RefusedError) as caught:
            kind("none", ())
        assert (caught.value.code, "'none'" in caught.value.message) == ("INVALID_RULE", True)


# Bindings


FIRST = {"ask": ["*"], "timeoutMs": DAY_MS, "onTimeout": "reject"}
STEP = {"ask": ["ann"], "timeoutMs": DAY_MS, "onTimeout": "reject"}


@pytest.mark.requirement("WP-bind")
@pytest.mark.parametrize(
    ("given", "full"),
    [
        ({"kind": "auto_approve"}, {"kind": "auto_approve"}),
        ({"kind": "hitl"}, {"kind": "hitl", **FIRST}),
        ({"kind": "hitl", "timeoutMs": None}, {"kind": "hitl", **FIRST, "timeoutMs": None}),
        ({"kind": "hitl", "onTimeout": "approve"}, {"kind": "hitl", **FIRST, "onTimeout": "approve"}),
        ({"kind": "policy_rules", "policy": "p"}, {"kind": "policy_rules", "policy": "p", **FIRST}),
        (
            {"kind": "hitl", "then": [{"ask": ["ann"]}]},
            {"kind": "hitl", **FIRST, "onTimeout": "escalate", "then": [STEP]},
        ),
        (
            {"kind": "hitl", "then": [{"ask": ["ann"]}, {"members": ["bob"], "timeoutMs": 1}]},
            {
                "kind": "hitl",
                **FIRST,
                "onTimeout": "escalate",
                "then": [
                    {**STEP, "onTimeout": "escalate"},
                    {"members": ["bob"], "rule": "majority", "timeoutMs": 1, "onTimeout": "reject"},
                ],
            },
        ),
        (
            {"kind": "tribunal", "members": ["ann", "bob"], "rule": "threshold", "threshold": 2},
            {
                "kind": "tribunal",
                "members": ["ann", "bob"],
                "rule": "threshold",
                "threshold": 2,
                "timeoutMs": DAY_MS,
                "onTimeout": "reject",
            },
        ),
    ],
)
def test_a_binding_is_told_in_full(given: dict[str, Any], full: dict[str, Any]) -> None:
    read = read_binding(given)
    assert read.to_wire() == full
    assert read_binding(full).to_wire() == full


@pytest.mark.requirement("WP-bind")
@for_each(
    ("given", "code"),
    [
        (5, "UNKNOWN_BINDING"),
        ({}, "UNKNOWN_BINDING"),
        ({"kind": 5}, "UNKNOWN_BINDING"),
        ({"kind": "none"}, "UNKNOWN_BINDING"),
        ({"kind": "auto_approve", "ask": ["ann"]}, "INVALID_VALUE"),
        ({"kind": "policy_rules"}, "INVALID_VALUE"),
        ({"kind": "hitl", "ask": []}, "INVALID_VALUE"),
        ({"kind": "hitl", "ask": ["ann", "ann"]}, "INVALID_VALUE"),
        ({"kind": "hitl", "ask": [f"a{at}" for at in range(MAX_ASKED + 1)]}, "INVALID_VALUE"),
        ({"kind": "hitl", "timeoutMs": 0}, "INVALID_VALUE"),
        ({"kind": "hitl", "timeoutMs": MAX_TIMEOUT_MS + 1}, "INVALID_VALUE"),
        ({"kind": "hitl", "onTimeout": "escalate"}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"ask": ["ann"], "onTimeout": "escalate"}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"ask": ["ann"], "members": ["bob"]}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"ask": ["ann"], "rule": "majority"}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"ask": ["ann"], "threshold": 1}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"members": ["ann"], "threshold": 1}]}, "INVALID_VALUE"),
        ({"kind": "hitl", "then": [{"ask": ["ann"]}] * 9}, "INVALID_VALUE"),
        ({"kind": "tribunal"}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["*"]}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["ann"], "rule": "threshold"}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["ann"], "rule": "threshold", "threshold": 2}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["ann"], "rule": "threshold", "threshold": 0}, "INVALID_VALUE"),
        ({"kind": "tribunal", "members": ["ann"], "threshold": 1}, "INVALID_VALUE"),
    ],
)
def test_what_is_no_binding_is_refused(given: Any, code: str) -> None:
    with pytest.raises(RefusedError) as caught:
        read_binding(given)
    assert caught.value.code == code


@pytest.mark.requirement("WP-bind")
def test_the_limits_of_a_binding_are_taken_at_their_values() -> None:
    assert (DAY_MS, list(BUILT_IN)) == (86_400_000, ["auto_approve", "policy_rules", "hitl", "tribunal"])
    for given in (
        {"kind": "hitl", "timeoutMs": 1}, {"kind": "hitl", "timeoutMs": MAX_TIMEOUT_MS},
        {"kind": "hitl", "ask": [f"a{at}" for at in range(MAX_ASKED)]},
        {"kind": "hitl", "then": [{"ask": ["ann"]}] * 8},
        {"kind": "tribunal", "members": ["ann"], "rule": "threshold", "threshold": 1},
    ):  # fmt: skip
        assert read_binding(given).kind in BUILT_IN


@pytest.mark.requirement("INT-13.3", "INT-5.3")
def test_lists_of_patterns_are_compared_up_to_their_limits() -> None:
    for rules, patterns, names in ((1, 256, 2_048), (2, 10_000, 100_000)):
        most = [f"data.n{at}" for at in range(patterns)]
        assert is_within(most, most, rules)
        long = [".".join([f"x{at}"] * (names // 256)) for at in range(256)]
        long[0] += ".y" * (names % 256)
        assert is_within(long, long, rules)
        for too_large in ([*most, "data.more"], [*long[1:], long[0] + ".y"]):
            with pytest.raises(RefusedError) as caught:
                is_within(too_large, ["data"], rules)
            assert (caught.value.code, caught.value.details["patterns"]) == ("SCOPE_TOO_LARGE", len(too_large))
            with pytest.raises(RefusedError, match="too large to be compared"):
                is_within(["data"], too_large, rules)
            with pytest.raises(RefusedError, match="too large to be compared"):
                intersection(too_large, ["data"], rules)


# People


@pytest.mark.requirement("WP-bind", "WP-decision")
@for_each(
    ("answer", "code"),
    [
        (said("dan", "approve"), "NOT_ASKED"),
        (said("bot", "approve"), "OWN_PROPOSAL"),
        (said("ann", "reply", reason="x"), "NOT_PROPOSER"),
        (said("bot", "reply", reason=" "), "REASON_MISSING"),
        (said("ann", "escalate", reason=""), "REASON_MISSING"),
        (said("ann", "escalate", reason="up"), "NO_FURTHER_STEP"),
        (said("ann", "abstain"), "ABSTENTION_REFUSED"),
        (said("ann", "delegate"), "DELEGATION_REFUSED"),
        (said("ann", "approve", within=scope("data.a")), "SCOPE_NOT_EXPECTED"),
        (said("ann", "narrow"), "SCOPE_MISSING"),
        (said("ann", "narrow", within=scope("data.z")), "SCOPE_NOT_WITHIN"),
        (structs.replace(said("ann", "approve"), to="bob"), "DELEGATION_REFUSED"),
        (structs.replace(said("ann", "delegate"), to="bot"), "DELEGATION_REFUSED"),
        (structs.replace(said("ann", "delegate"), to="bob"), "DELEGATION_REFUSED"),
    ],
)
def test_every_answer_that_cannot_be_has_its_code(answer: Any, code: str) -> None:
    people = authority_with()
    case = make_case(people.check_binding({"kind": "hitl", "ask": ["ann", "bob"]}), proposed=scope("data.a"))
    asked = people.judge(case)
    assert asked == Ruling(
        "wait", "hitl", "ann or bob decides", ask=("ann", "bob"), timeout_ms=DAY_MS, on_timeout="reject"
    )
    with pytest.raises(RefusedError) as caught:
        people.answer(case, asked, answer)
    assert caught.value.code == code


@pytest.mark.requirement("WP-decision")
def test_when_nobody_answers_the_ruling_says_how_long_was_waited() -> None:
    people = authority_with()

    def over(**binding: Any) -> Ruling:
        case = make_case(people.check_binding({"kind": "hitl", "ask": ["ann"], **binding}), proposed=scope("data.a"))
        return people.expire(case, people.judge(case))

    rejected = over(timeoutMs=5)
    assert (rejected.verdict, rejected.reason) == ("reject", "ann did not decide within 5 ms")
    last = rejected.trace[-1]
    assert (last.rule, last.source, last.answer, last.decisive) == ("time limit", "binding", "reject", True)
    assert over(timeoutMs=None).reason == "ann did not decide in time"
    approved = over(timeoutMs=5, onTimeout="approve")
    assert (approved.verdict, approved.approved_scope) == ("approve", scope("data.a"))
    assert approved.reason == "ann did not decide within 5 ms; its binding approves then"
    further = over(timeoutMs=5, then=[{"ask": ["bot"]}, {"ask": ["cat"], "timeoutMs": 7}])
    assert (further.verdict, further.ask, further.timeout_ms, further.step) == ("wait", ("cat",), 7, 2)
    assert further.reason == "ann did not decide within 5 ms; now cat decides"
    stuck = over(timeoutMs=5, then=[{"ask": ["bot"]}])
    assert stuck.verdict == "reject"
    assert stuck.reason == "ann did not decide within 5 ms; and of no further step can anybody approve it"
    with pytest.raises(RefusedError) as caught:
        people.expire(make_case(people.check_binding({"kind": "hitl"})), Ruling("approve", "hitl", "yes"))
    assert (caught.value.code, caught.value.details) == ("NOT_WAITING", {"verdict": "approve"})


def test_words_for_the_log_are_bounded_and_the_same_in_every_run() -> None:
    assert bounded("x" * MAX_WORDS) == "x" * MAX_WORDS
    assert bounded("x" * (MAX_WORDS + 1)) == "x" * (MAX_WORDS - 1) + "…"
    assert bounded("\ud800é") == "\\ud800é"
    assert error_text(ValueError()) == "ValueError"
    assert error_text(ValueError("at <object at 0x7F12ab>")) == "ValueError: at <object>"

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_text(Mute()) == "Mute"
    assert policy(Approve()).hash != policy(Reject()).hash


@pytest.mark.requirement("WP-bind")
def test_how_a_binding_asks_follows_from_its_members() -> None:
    majority, both = Quorum("majority"), Quorum("threshold", 2)
    table: list[tuple[dict[str, Any], QuestionSettings]] = [
        ({"kind": "hitl"}, QuestionSettings(("*",), DAY_MS, "reject")),
        ({"kind": "policy_rules", "policy": "p", "ask": ["ann"]}, QuestionSettings(("ann",), DAY_MS, "reject")),
        ({"kind": "tribunal", "members": ["ann", "bob"]}, QuestionSettings(("ann", "bob"), DAY_MS, "reject", majority)),
        (
            {
                "kind": "hitl",
                "timeoutMs": 5,
                "then": [{"members": ["ann", "bob"]}, {"ask": ["cat"], "timeoutMs": None}],
            },
            QuestionSettings(
                ("*",),
                5,
                "escalate",
                None,
                (
                    QuestionSettings(("ann", "bob"), DAY_MS, "escalate", majority),
                    QuestionSettings(("cat",), None, "reject"),
                ),
            ),
        ),
        (
            {
                "kind": "hitl",
                "onTimeout": "approve",
                "then": [
                    {"members": ["ann", "bob"], "rule": "threshold", "threshold": 2, "onTimeout": "approve"},
                    {"ask": ["cat"], "onTimeout": "approve"},
                ],
            },
            QuestionSettings(
                ("*",),
                DAY_MS,
                "approve",
                None,
                (
                    QuestionSettings(("ann", "bob"), DAY_MS, "approve", both),
                    QuestionSettings(("cat",), DAY_MS, "approve"),
                ),
            ),
        ),
    ]
    for given, asking in table:
        read = read_binding(given)
        assert not isinstance(read, AutoApproveBinding)
        assert read.asking == asking


@pytest.mark.requirement("CARD-policy")
def test_opinions_come_to_one_answer_with_those_that_decided() -> None:
    yes, no, ask, fault = Approve("yes"), Reject("no"), Escalate("ann"), RuleFault("broken")
    less, there = Narrow("data.a"), Narrow("data.b")
    within, all_ = scope("data.a"), scope("data.*")
    table: list[tuple[list[Any], IntentScope | None, Combined]] = [
        ([], all_, Combined("reject", "none")),
        ([None, None], all_, Combined("reject", "none")),
        ([yes, None, yes], all_, Combined("approve", "approve", (0,), all_)),
        ([yes], None, Combined("approve", "approve", (0,))),
        ([yes, less, less], all_, Combined("approve", "narrow", (1, 2), within)),
        ([less, there], all_, Combined("reject", "narrow", (0, 1), is_empty=True)),
        ([None, there, yes], within, Combined("reject", "narrow", (1,), is_empty=True)),
        ([ask, less, ask], all_, Combined("wait", "escalate", (0, 2), within)),
        ([ask, yes], None, Combined("wait", "escalate", (0,))),
        ([ask, less, there], all_, Combined("reject", "narrow", (1, 2), is_empty=True)),
        ([yes, no, no, ask], all_, Combined("reject", "reject", (1,))),
        ([no, fault, fault], all_, Combined("reject", "error", (1,))),
    ]
    for given, proposed, expected in table:
        assert combine(given, proposed) == expected
    whole, other = [Narrow("data")], scope("other")  # `data` was the whole data under the first scope rules
    assert combine(whole, other, 1) == Combined("approve", "narrow", (0,), other)
    assert combine(whole, other, 2) == Combined("reject", "narrow", (0,), is_empty=True)
    assert reasons([yes, None, Approve(), no], [0, 1, 2, 3]) == "yes; no"
    assert reasons([yes, no], [1]) == "no"


@pytest.mark.requirement("WP-decision", "WP-bind")
def test_a_ruling_that_waits_on_says_who_answered_and_who_is_missing() -> None:
    rules = policy(Escalate("ann", "a"), Escalate(["bob", "cat"], "b"), Escalate(["ann", "dan", "eve"], "c", vote=2))
    people = authority_with(rules)
    case = make_case(people.check_binding(by_policy()), proposed=scope("data.a"))
    asked = people.judge(case)
    assert asked.reason == "r0: a; r1: b; r2: c (ann and bob or cat decides; 2 of 3 decide: ann, dan, eve)"
    first = people.answer(case, asked, said("bob", "approve", reason="fine"))
    assert first.reason == "bob agreed: fine (ann decides, too; 0 of 3 approve, 2 more needed; nobody has voted)"
    assert first.ask == ("ann", "dan", "eve")
    handed = people.answer(case, first, structs.replace(said("ann", "delegate", reason="away"), to="fay"))
    assert handed.reason == (
        "ann asks fay to answer: away (fay decides; 0 of 3 approve, 2 more needed; nobody has voted)"
    )
    voted = people.answer(case, handed, said("fay", "narrow", within=scope("data.a.b")))
    assert voted.reason == "fay agreed (1 of 3 approve, 1 more needed; fay voted)"
    abstained = people.answer(case, voted, said("dan", "abstain"))
    assert abstained.reason == "dan abstained (1 of 3 approve, 1 more needed; fay, dan voted)"
    done = people.answer(case, abstained, said("eve", "approve"))
    assert (done.verdict, done.approved_scope) == ("approve", scope("data.a.b"))
    assert done.reason == "eve approved it (2 of 3 approved, 2 needed)"
    lost = people.answer(case, abstained, said("eve", "reject", reason="never"))
    assert (lost.verdict, lost.reason) == ("reject", "eve rejected it: never (1 of 3 approved, 2 needed)")
    nothing = people.answer(case, handed, said("fay", "reject"))
    assert (nothing.verdict, nothing.reason) == ("reject", "fay rejected it (0 of 3 approved, 2 needed)")
