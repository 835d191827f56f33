"""Rules made of rules."""

from __future__ import annotations

import pytest

from authority import AllOf, AnyOf, Approve, Escalate, Narrow, Policy, Reject, UnsafeApproveAll
from tests.authority.cases import ASKING, always, make_case, policy, raising
from world.errors import RefusedError


def heard(whole, *opinions):
    return whole("whole", tuple(always(one, f"r{at}") for at, one in enumerate(opinions)))(make_case())


@pytest.mark.parametrize(
    ("opinions", "answer"),
    [
        ((Approve("a"), Approve("b")), Approve("a; b")),
        ((Approve("a"), None), None),
        ((None, Reject("no")), Reject("no")),
        ((Escalate("alice", "big"), Reject("no")), Reject("no")),
        ((Escalate("alice", "big"), Approve("a")), Escalate("alice", "big")),
        ((Escalate("alice", "big"), Escalate("alice", "odd"), None), Escalate("alice", "big; odd")),
        ((Approve("a"), Narrow("data.x.*", "n")), Narrow("data.x.*", "a; n")),
        ((Narrow("data.x.*", "n"), Narrow("data.*.y", "m")), Narrow("data.x.y", "n; m")),
        ((Narrow("data.x"), Narrow("data.y")), Reject("together the narrowings leave nothing to write")),
    ],
)
def test_all_of_is_as_strict_as_its_strictest_rule(opinions, answer):
    assert heard(AllOf, *opinions) == answer


@pytest.mark.parametrize(
    "opinions",
    [(Escalate("alice"), Escalate("bob")), (Escalate("alice"), Narrow("data.x")), (Approve(), True)],
)
def test_all_of_refuses_what_one_opinion_cannot_say(opinions):
    with pytest.raises(RefusedError) as refused:
        heard(AllOf, *opinions)
    assert refused.value.code == "INVALID_OPINION"


@pytest.mark.parametrize(
    ("opinions", "answer"),
    [
        ((None, Reject("no"), Approve("a")), Approve("a")),
        ((Narrow("data.x", "n"), Approve("a")), Narrow("data.x", "n")),
        ((Reject("no"), Escalate("alice")), Escalate("alice")),
        ((None, Reject("no")), Reject("no")),
        ((None, None), None),
    ],
)
def test_any_of_is_as_mild_as_its_mildest_rule(opinions, answer):
    assert heard(AnyOf, *opinions) == answer


@pytest.mark.parametrize("whole", [AllOf, AnyOf])
def test_a_part_that_fails_makes_the_whole_fail_and_failures_refuse(whole):
    parts = (UnsafeApproveAll("fine"), raising(ValueError("broken")))
    ruling = Policy("p", [whole("whole", parts), UnsafeApproveAll()]).evaluate(make_case(), ASKING)
    assert ruling.verdict == "reject"
    assert "broken" in ruling.reason


def test_any_of_hears_nonsense_even_beside_an_approval():
    with pytest.raises(RefusedError):
        heard(AnyOf, Approve(), "yes")


@pytest.mark.parametrize("whole", [AllOf, AnyOf])
@pytest.mark.parametrize("parts", [(), (7,), (lambda case: None,)])
def test_a_rule_made_of_nothing_or_of_no_rules_is_refused(whole, parts):
    with pytest.raises(RefusedError) as refused:
        whole("whole", parts)
    assert refused.value.code == "INVALID_RULE"


def test_the_unsafe_rule_approves_everything_and_yields_to_a_rejection():
    assert Policy("p", [UnsafeApproveAll()]).evaluate(make_case(), ASKING).verdict == "approve"
    both = Policy("p", [UnsafeApproveAll(), *policy(Reject("no")).rules])
    assert both.evaluate(make_case(), ASKING).verdict == "reject"
