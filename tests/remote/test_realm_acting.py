"""Acting on a realm: the same on this machine, over TCP and over a Unix socket."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.remote.yards import Yard
from tests.support.patience import PATIENCE_S, until
from world.errors import RefusedError, WaitTimeoutError
from world.events.verification import Verification
from world.model.snapshot import EffectAnswer
from world.state.ports import Performed
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(RefusedError) as refused:
        call()
    return str(refused.value.code)


def ordered(yard: Yard, actor: str, number: str, kind: str = "order.place", **options: Any) -> Any:
    given = {"item": "tea", "number": number}
    return yard.realm(actor).act(actor, kind, given, scope=[f"orders.{number}"], **options)


def test_an_intent_is_completed_and_its_proposal_is_that_of_the_log(yard: Yard) -> None:
    done = ordered(yard, "kid", "a1", note="for ann", trace={"step": 1}, wait=True)
    assert (done.status, done.error) == ("completed", None)
    assert done.submitted.intent.meta.origin.note == "for ann"
    assert done.submitted.trace == {"step": 1}
    with yard.reading() as log:
        assert log.proposal(done.proposal_id) == done
        assert log.data()["orders"]["a1"] == "tea"
    verified = done.submitted.verified
    assert isinstance(verified, Verification)
    assert (verified.method, verified.actor_id) == ("token", "kid")


def test_an_issued_intent_is_submitted(yard: Yard) -> None:
    realm = yard.realm("kid")
    intent = realm.issue("kid", "order.place", {"item": "tea", "number": "a2"}, note="later")
    assert intent.meta.origin.actor.actor_id == "kid"
    assert realm.submit(intent, wait=True).intent == intent


def test_a_fork_starts_from_a_past_world(yard: Yard) -> None:
    first = ordered(yard, "all", "f1", wait=True)
    second = ordered(yard, "all", "f2", wait=True)
    assert first.world_id != second.world_id
    done = ordered(yard, "all", "f3", base_world=first.world_id, fork_name="otherwise", wait=True)
    assert (done.status, done.submitted.branch, done.submitted.base_world) == ("completed", "otherwise", first.world_id)
    realm = yard.realm("all")
    assert set(realm.data(done.world_id)["orders"]) & {"f1", "f2", "f3"} == {"f1", "f3"}
    assert set(realm.data(second.world_id)["orders"]) & {"f1", "f2", "f3"} == {"f1", "f2"}
    assert refusal(lambda: ordered(yard, "all", "f4", base_world="none")) == "UNKNOWN_WORLD"
    assert refusal(lambda: ordered(yard, "all", "f4", base_world=first.world_id, branch="main")) == "STALE_BASE"
    if yard.kind != "local":
        assert refusal(lambda: ordered(yard, "kid", "f4", base_world=first.world_id)) == "RIGHT_MISSING"


def test_a_question_is_narrowed(yard: Yard) -> None:
    asked = yard.realm("bot").act("bot", "order.place", {"item": "cake", "number": "n1"}, scope=["orders"])
    assert asked.status == "evaluating"
    ann = yard.realm("ann")
    assert asked.proposal_id in [one.proposal_id for one in ann.inbox()]
    preview = ann.preview(asked.proposal_id)
    assert (preview.status, preview.after["orders"]["n1"]) == ("completed", "cake")
    assert [one.resource.text for one in preview.leases] == ["STATE:/main/orders/*"]
    assert refusal(lambda: yard.realm("bot").decide(asked.proposal_id, "approve", by="bot")) == "OWN_PROPOSAL"
    done = ann.decide(asked.proposal_id, "narrow", by="ann", scope=["orders.n1"], reason="only this one")
    assert done.status == "completed"
    assert done.approved_scope is not None
    assert done.approved_scope.allowed_paths == ("orders.n1",)
    assert done.answers[0].reason == "only this one"
    assert refusal(lambda: yard.realm("bob").decide(asked.proposal_id, "reject", by="bob")) == "NOT_WAITING"


def test_a_question_is_sent_back_answered_and_rejected(yard: Yard) -> None:
    asked = ordered(yard, "bot", "q1")
    yard.realm("ann").decide(asked.proposal_id, "ask", by="ann", reason="why?")
    [question] = yard.realm("bot").proposal(asked.proposal_id).open_questions
    assert question.reason == "why?"
    yard.realm("bot").decide(asked.proposal_id, "reply", by="bot", reason="because")
    done = yard.realm("bob").decide(asked.proposal_id, "reject", by="bob", reason="no")
    assert (done.status, [one.choice for one in done.answers]) == ("rejected", ["ask", "reply", "reject"])


def test_votes_are_counted(yard: Yard) -> None:
    asked = ordered(yard, "jury", "v1")
    assert yard.realm("ann").decide(asked.proposal_id, "approve", by="ann").status == "evaluating"
    assert refusal(lambda: yard.realm("ann").decide(asked.proposal_id, "approve", by="ann")) == "ALREADY_VOTED"
    assert yard.realm("bob").decide(asked.proposal_id, "approve", by="bob").status == "completed"


def test_a_wait_ends_with_the_decision_or_with_its_time(yard: Yard) -> None:
    asked = ordered(yard, "bot", "w1", wait=0.1)
    assert asked.status == "evaluating"
    with pytest.raises(WaitTimeoutError) as late:
        yard.realm("bot").wait(asked, 0.1)
    assert (late.value.code, late.value.details["proposal_id"]) == ("NOT_ENDED_IN_TIME", asked.proposal_id)
    found: list[Any] = []
    bot = yard.realm("bot")
    waiting = [
        threading.Thread(target=lambda until=until: found.append(bot.wait(asked, PATIENCE_S, until=until)))
        for until in ("ended", "decided")
    ]
    for one in waiting:
        one.start()
    done = yard.realm("ann").decide(asked.proposal_id, "approve", by="ann")
    for one in waiting:
        one.join(PATIENCE_S)
    assert [one.proposal_id for one in found] == [done.proposal_id] * 2
    assert {one.decision for one in found} == {done.decision}
    assert refusal(lambda: bot.wait(asked, -1)) == "INVALID_VALUE"
    assert refusal(lambda: bot.wait(asked, until="never")) == "INVALID_VALUE"  # type: ignore[arg-type]
    assert refusal(lambda: bot.wait("no proposal", 1)) == "UNKNOWN_PROPOSAL"


def test_a_decision_is_waited_for_while_the_effect_is_under_way(yard: Yard) -> None:
    asked = ordered(yard, "kid", "w2", "order.ship")
    assert yard.realm("kid").wait(asked, PATIENCE_S, until="decided").status == "executing"
    with pytest.raises(WaitTimeoutError):
        yard.realm("kid").wait(asked, 0.05)
    assert yard.realm("ops").host.cancel(asked.proposal_id, by="ops", reason="over").status == "failed"


def test_an_execution_is_cancelled(yard: Yard) -> None:
    asked = ordered(yard, "kid", "c1", "order.ship")
    ops = yard.realm("ops")
    done = ops.host.cancel(asked.proposal_id, by="ops", reason="over")
    assert done.status == "failed"
    assert done.error is not None
    assert done.error.code == "CANCELLED"
    assert refusal(lambda: ops.host.cancel(asked.proposal_id, by="ops", reason="again")) == "NOT_RUNNING"


def test_an_effect_is_claimed_extended_and_completed(yard: Yard) -> None:
    asked = ordered(yard, "kid", "e1", "order.ship")
    [offered] = [one for one in yard.realm("all").offered_effects() if one.proposal_id == asked.proposal_id]
    assert (offered.effect, offered.params, offered.state) == ("cart.ship", {"number": "e1"}, "offered")
    worker = yard.realm("all")
    claim = worker.claim_effect({"cart.ship"}, worker="mule-1", wait_s=1)
    assert claim is not None
    assert claim.proposal_id == asked.proposal_id
    assert worker.claim_effect({"cart.ship"}, worker="mule-2", wait_s=0.1) is None
    later = worker.heartbeat_effect(claim)
    assert later.deadline >= claim.deadline
    done = worker.complete_effect(later, Performed(EffectAnswer(value="shipped")))
    assert done.status == "completed"
    assert worker.complete_effect(later, Performed(EffectAnswer(value="twice"))) == done
    with yard.reading() as log:
        assert log.data()["orders"]["e1"] == "shipped"
    assert refusal(lambda: worker.heartbeat_effect(later)) == "CLAIM_LOST"
    assert refusal(lambda: worker.claim_effect("cart.ship", worker="mule-1")) == "INVALID_VALUE"


def test_an_effect_in_doubt_is_resolved(yard: Yard) -> None:
    asked = ordered(yard, "kid", "d1", "order.send")
    claim = yard.realm("all").claim_effect({"pigeon.send"}, worker="mule-1")  # it lapses after 1 ms
    assert claim is not None
    ops = yard.realm("ops")

    def lapsed() -> bool:
        if yard.shared is not None:
            yard.shared.settle()
        return asked.proposal_id in [one["proposalId"] for one in ops.host.stuck()]

    until(lapsed)
    [doubt] = [one for one in ops.host.stuck() if one["proposalId"] == asked.proposal_id]
    assert (doubt["effect"], doubt["requirementId"]) == ("pigeon.send", claim.requirement.id)
    done = ops.host.resolve(asked.proposal_id, "happened", by="ops", reason="it was seen", value="sent")
    assert done.status == "completed"
    again = {"by": "ops", "reason": "again"}
    assert refusal(lambda: ops.host.resolve(asked.proposal_id, "fail", **again)) == "NOT_IN_DOUBT"


def test_a_source_event_is_projected(yard: Yard) -> None:
    kid = yard.realm("kid")
    source = {"kind": "api", "eventId": "mail-1", "payload": {"item": "tea"}}
    done = kid.project(source, "kid", wait=True)
    assert (done.projection_id, done.reason) == ("mail", None)
    assert done.proposal is not None
    assert done.proposal.status == "completed"
    none = kid.project({"kind": "api", "eventId": "mail-2", "payload": {}}, "kid")
    assert (none.projection_id, none.reason, none.proposal) == ("mail", "no order", None)


def test_branches_are_created_used_and_switched(yard: Yard) -> None:
    ops, kid = yard.realm("ops"), yard.realm("kid")
    with yard.reading() as log:
        head = log.branch().head
    ops.create_branch("plan", head, by="ops")
    done = ordered(yard, "kid", "b1", branch="plan", execution_key="one")
    assert (done.status, done.branch, done.submitted.execution_key) == ("completed", "plan", "one")
    with yard.reading() as log:
        assert (log.branch("main").head, log.branch("plan").head) == (head, done.world_id)
    ops.switch_branch("plan", by="ops")
    with yard.reading() as log:
        assert log.branch().name == "plan"
    ops.switch_branch("main", by="ops")
    assert refusal(lambda: ops.create_branch("plan", head, by="ops")) == "BRANCH_EXISTS"
    assert refusal(lambda: ops.switch_branch("none", by="ops")) == "UNKNOWN_BRANCH"
    assert refusal(lambda: ops.switch_branch("main", by="ops")) == "BRANCH_IS_ACTIVE"
    assert refusal(lambda: kid.act("kid", "order.place", {"item": "x"}, branch="none")) == "UNKNOWN_BRANCH"


REFUSED: dict[str, tuple[str, Callable[[Realm], Any]]] = {
    "UNKNOWN_ACTION": ("kid", lambda realm: realm.act("kid", "no.action")),
    "INVALID_INPUT": ("kid", lambda realm: realm.act("kid", "order.place", {"number": 5})),
    "INVALID_VALUE": ("kid", lambda realm: realm.act("kid", "order.place", {"item": "x"}, scope={"paths": []})),
    "NOT_THE_VERIFIED_ACTOR": ("kid", lambda realm: realm.act("bot", "order.place", {"item": "tea"})),
    "RIGHT_MISSING": ("ann", lambda realm: realm.act("ann", "order.place", {"item": "tea"})),
    "UNKNOWN_PROPOSAL": ("ann", lambda realm: realm.proposal("none")),
    "REASON_MISSING": ("all", lambda realm: realm.leases.desk.revoke(["none"], by="all", reason=" ")),
    "UNKNOWN_LEASE": ("kid", lambda realm: realm.leases.desk.release(["none"], agent_id="kid", session_id="s")),
}
"""Refusals by code: the actor, and what is refused."""


@pytest.mark.parametrize("code", REFUSED)
def test_a_refusal_has_one_code(yard: Yard, code: str) -> None:
    actor, call = REFUSED[code]
    realm = yard.realm(actor)
    assert refusal(lambda: call(realm)) == code


def test_who_lacks_a_right_is_refused(yard: Yard) -> None:
    shipped = ordered(yard, "kid", "m1", "order.ship")
    calls: list[tuple[str, Callable[[Realm], Any]]] = [
        ("ann", lambda realm: realm.host.cancel(shipped.proposal_id, by="ann", reason="over")),
        ("kid", lambda realm: realm.create_branch("mine", by="kid")),
        ("kid", lambda realm: realm.claim_effect(["cart.ship"], worker="kid")),
        ("ann", lambda realm: realm.leases.acquire(agent="ann", resource="FILE:/m")),
    ]
    for actor, call in calls:
        assert refusal(lambda actor=actor, call=call: call(yard.realm(actor))) == "RIGHT_MISSING"  # type: ignore[misc]
    yard.realm("ops").host.cancel(shipped.proposal_id, by="ops", reason="over")
