"""The tests of the library: a recorded log, scenes, and any case at all."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given as for_all

from authority.policies.loading import policy_from_reference
from world.state.ports import Case
from worldprotocol.testing import strategies as wp
from worldprotocol.testing.judging import judged
from worldprotocol.testing.recordings import Recordings
from worldprotocol.testing.scenarios import Given, event, intent, passes, registered, result

DAY_MS = 24 * 3_600_000
DESK = policy_from_reference("rules.toml", base=Path(__file__).parent)


def test_a_month_of_lending(recorded: Recordings) -> None:
    """``--record=all`` records it anew; otherwise it is checked and run again, and no mail is sent."""
    month = recorded("golden/month.jsonl")
    with month as realm:
        realm.register("ann", "human", binding={"kind": "policy_rules", "policy": "desk"})
        realm.register("bob", "human", binding={"kind": "policy_rules", "policy": "desk"})
        realm.act("ann", "borrow", {"title": "Emma", "reader": "ann"})
        realm.act("bob", "borrow", {"title": "Emma", "reader": "bob"})  # fails: it is lent
        month.clock.advance(20 * DAY_MS)
        realm.act("ann", "return", {"title": "Emma"})  # six days late: she gets a mail
        realm.act("bob", "borrow", {"title": "Emma", "reader": "bob"})
        realm.act("bob", "borrow", {"title": "Walden", "reader": "bob"})
        assert realm.act("bob", "borrow", {"title": "Ulysses", "reader": "bob"}).status == "rejected"
        assert sorted(realm.data()["loans"]) == ["Emma", "Walden"]


ANN = registered("ann", "human", policy="desk")
LENT = intent("borrow", {"title": "Emma", "reader": "ann"}, actor="ann")


def test_a_book_is_lent_once(given: Given) -> None:
    """A second borrower gets the date of the return; any member may return it."""
    scene = given(ANN, LENT)
    scene.when("borrow", {"title": "Emma", "reader": "bob"}, actor="bob").then_refused("LENT", because="Emma is lent")
    scene.when("return", {"title": "Emma"}, actor="bob").then(
        event("decision.made", decision={"decision": "approved"}),
        event("world.sealed", patches=[{"op": "unset", "path": "loans.Emma"}]),
        "proposal.completed",
    )


def test_who_is_late_gets_a_mail(given: Given) -> None:
    """No mail is sent: the test says what sending it gives back."""
    mail = {"to": "ann", "text": "Emma is late, by 1 d"}
    late = given(ANN, LENT, passes(15 * DAY_MS), results=[result("mail.send", mail, gives={"id": "m1"})])
    late.when("return", {"title": "Emma"}, actor="ann").then("effect.fulfilled", "proposal.completed").then_data(
        loans={}
    )


def test_nobody_has_more_than_two_books(given: Given) -> None:
    """The rule reads the history, which the first steps make."""
    walden = intent("borrow", {"title": "Walden", "reader": "ann"}, actor="ann")
    third = given(ANN, LENT, walden).when("borrow", {"title": "Ulysses", "reader": "ann"}, actor="ann")
    third.then_refused("REJECTED", because="no rule approved it")


@for_all(wp.cases())
def test_no_case_makes_a_rule_fail(case: Case) -> None:
    """No rule may raise for any actor, intent and state."""
    assert judged(DESK, case).decision != "error"
