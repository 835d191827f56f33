"""External effects: offered, claimed by one worker at a time, completed under the claim that holds (HC-journal)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from host import external
from tests.pipeline.offering import (
    GRACE_MS,
    LIMIT_MS,
    START,
    Room,
    answered,
    claimed,
    failing,
    offering,
    open_again,
    room,
    work_in,
)
from tests.pipeline.works import check_log, events, topics
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock, SequentialIds
from world.core import Domain, set_
from world.errors import RefusedError
from world.events.claim_events import EffectClaimed
from world.events.execution_events import EffectDropped, EffectFulfilled, EffectRequested, EffectRetried
from world.model.canonical_json import canonical_bytes
from world.state.effect_claim import EffectClaim
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.requirement("HC-journal", "HC-handlers", "WP-exec")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


def lost(realm: Realm, call: Any, *given: Any) -> str:
    """Return why a command about a claim is refused."""
    with pytest.raises(RefusedError) as refused:
        call(*given)
    assert refused.value.code == "CLAIM_LOST"
    return str(refused.value.details["why"])


# The simple course


def test_an_external_effect_is_offered_claimed_completed_and_the_execution_goes_on(address: str) -> None:
    with offering(address) as realm:
        waiting = realm.act("ann", "do", {"what": ["a", "b"]})
        assert waiting.status == "executing"
        assert waiting.to_wire()["effects"]["offered"] == list(waiting.requested)
        first = claimed(realm)
        assert (first.requirement.type, first.requirement.params) == ("work", {"what": "a"})
        assert realm.claim_effect(worker="w2") is None
        assert realm.complete_effect(first, answered("A")).status == "executing"
        done = realm.complete_effect(claimed(realm, "w2"), answered("B"))
        assert done.status == "completed"
        assert realm.data()["done"] == ["A", "B"]
        assert topics(realm, done.proposal_id) == [
            "execution.started",
            *["effect.requested", "effect.claimed", "effect.fulfilled"] * 2,
            "proposal.completed",
        ]
        (asked, _) = [one for one in events(realm, done.proposal_id) if isinstance(one, EffectRequested)]
        assert asked.offer is not None
        assert (asked.deadline, asked.offer.time_limit_ms, asked.offer.workspace) == (0, LIMIT_MS, None)
        assert realm.offered_effects() == []
    check_log(address, domain=room)


@pytest.mark.requirement("HC-context")
def test_a_claim_has_what_performing_the_effect_needs_and_travels_as_json(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock, idempotent=True) as realm:
        waiting = realm.act("ann", "do", {})
        clock.advance(7)
        claim = claimed(realm)
        intent = waiting.submitted.intent
        assert claim.idempotency_key == f"{intent.intent_id}:{claim.requirement.id}"
        assert (claim.proposal_id, claim.worker, claim.attempt) == (waiting.proposal_id, "w1", 1)
        assert (claim.deadline, claim.time_limit_ms, claim.idempotent) == (
            START + 7 + LIMIT_MS + GRACE_MS,
            LIMIT_MS,
            True,
        )
        assert (claim.intent, claim.now, claim.seed) == (intent, START, intent.intent_id)
        assert EffectClaim.from_wire(msgspec.json.decode(canonical_bytes(claim.to_wire()))) == claim
        assert EffectClaim.read(claim.to_wire()) == claim
        order, attempt = realm.claimed_order(claim)
        assert (order.proposal_id, order.snapshot.data["done"], order.journal) == (waiting.proposal_id, [], {})
        assert (attempt.attempt, attempt.requested_at, attempt.why_over()) == (1, START, None)


def test_tokens_grow_with_every_claim_of_the_realm(address: str) -> None:
    with offering(address, idempotent=True) as realm:
        for box in "abc":
            work_in(realm, box)
        claims = [claimed(realm) for _ in range(3)]
        assert [one.token for one in claims] == sorted({one.token for one in claims})
        positions = [at for at, event in realm.events() if isinstance(event, EffectClaimed)]
        assert [one.token for one in claims] == positions


def test_the_effect_that_was_offered_first_is_claimed_first_also_after_a_restart(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm:
        names = []
        for box in "abc":
            names.append(work_in(realm, box))
            clock.advance(1)
        assert claimed(realm).proposal_id == names[0]
    with open_again(address, clock, "again") as realm:
        assert [claimed(realm).proposal_id, claimed(realm).proposal_id] == names[1:]


def test_a_worker_claims_only_the_types_that_it_performs(address: str) -> None:
    with offering(address) as realm:
        realm.act("ann", "do", {})
        assert realm.claim_effect({"mail.send"}, worker="w1") is None
        assert claimed(realm, types={"work", "mail.send"}).requirement.type == "work"


def test_a_worker_without_a_proper_name_is_refused(address: str) -> None:
    with offering(address) as realm:
        for name in ("", "a b", "w" * 129):
            with pytest.raises(RefusedError, match="worker") as refused:
                realm.claim_effect(worker=name)
            assert refused.value.code == "INVALID_ID"
        with pytest.raises(RefusedError, match="wait_s"):
            realm.claim_effect(worker="w", wait_s=-1)


def test_looking_for_work_in_vain_writes_nothing(address: str) -> None:
    with offering(address) as realm:
        size = realm.log.head().size
        assert realm.claim_effect(worker="w1") is None
        assert realm.log.head().size == size


# Completions


def test_the_same_completion_twice_changes_nothing_and_gets_the_recorded_outcome(address: str) -> None:
    with offering(address) as realm:
        realm.act("ann", "do", {"what": ["a", "b"]})
        claim = claimed(realm)
        realm.complete_effect(claim, answered("A"))
        size = realm.log.head().size
        again = realm.complete_effect(claim, answered("another answer"))
        assert (again.status, again.journal[claim.requirement.id].value) == ("executing", "A")
        last = claimed(realm)
        realm.complete_effect(last, answered("B"))
        after_the_end = realm.complete_effect(last, answered("something else"))
        assert after_the_end.status == "completed"
        assert realm.complete_effect(claim, answered("A")).status == "completed"
        assert realm.data()["done"] == ["A", "B"]
        assert [one for one in events(realm, claim.proposal_id) if isinstance(one, EffectDropped)] == []
        assert realm.log.head().size > size
    check_log(address, domain=room)


def test_a_late_completion_is_refused_and_recorded_with_its_token(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock, idempotent=True) as realm:
        realm.act("ann", "do", {})
        slow = claimed(realm, "slow")
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        quick = claimed(realm, "quick")
        assert quick.requirement == slow.requirement
        assert quick.token > slow.token
        assert lost(realm, realm.complete_effect, slow, answered("old")) == "OTHER_CLAIM"
        assert realm.complete_effect(quick, answered("new")).status == "completed"
        assert lost(realm, realm.complete_effect, slow, answered("old")) == "ENDED"
        assert realm.data()["done"] == ["new"]
        dropped = [one for one in events(realm, slow.proposal_id) if isinstance(one, EffectDropped)]
        assert [one.claim and one.claim.token for one in dropped] == [slow.token]
        assert [one.reason.split(":")[0] for one in dropped] == ["OTHER_CLAIM"]
        (made,) = [one for one in events(realm, slow.proposal_id) if isinstance(one, EffectFulfilled)]
        assert made.claim is not None
        assert (made.claim.token, made.claim.worker) == (quick.token, "quick")
    check_log(address, domain=room)


@pytest.mark.parametrize(
    "forged", [{"worker": "eve"}, {"token": 1}, {"claim_id": "another"}, {"token": 9_999}], ids=str
)
def test_a_completion_under_an_invented_claim_is_refused_without_a_record(address: str, forged: dict[str, Any]) -> None:
    with offering(address) as realm:
        realm.act("ann", "do", {})
        claim = claimed(realm)
        false = msgspec.structs.replace(claim, **forged)
        assert lost(realm, realm.complete_effect, false, answered("mine")) == "NOT_HOLDER"
        assert lost(realm, realm.heartbeat_effect, false) == "NOT_HOLDER"
        assert [one for one in events(realm, claim.proposal_id) if isinstance(one, EffectDropped)] == []
        assert realm.complete_effect(claim, answered("A")).status == "completed"
    check_log(address, domain=room)


def test_a_completion_for_a_proposal_that_does_not_exist_is_refused_without_a_record(address: str) -> None:
    with offering(address) as realm:
        realm.act("ann", "do", {})
        claim = claimed(realm)
        size = realm.log.head().size
        for forged, code in (({"proposal_id": "none"}, "UNKNOWN_PROPOSAL"), ({"worker": "a b"}, "INVALID_ID")):
            with pytest.raises(RefusedError) as refused:
                realm.complete_effect(msgspec.structs.replace(claim, **forged), answered("A"))
            assert refused.value.code == code
        assert realm.log.head().size == size


# Heartbeats and deadlines


def test_a_heartbeat_extends_the_claim_from_now(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock, idempotent=True) as realm:
        realm.act("ann", "do", {})
        claim = claimed(realm)
        for _ in range(3):
            clock.advance(LIMIT_MS)
            claim = realm.heartbeat_effect(claim)
            assert claim.deadline == clock.now_ms() + LIMIT_MS + GRACE_MS
            assert realm.claim_effect(worker="w2") is None
        clock.advance(LIMIT_MS + GRACE_MS)
        realm.settle()
        assert realm.offered_effects()[0].state == "claimed"  # the deadline has not passed
        clock.advance(1)
        assert claimed(realm, "w2").token > claim.token
        assert lost(realm, realm.heartbeat_effect, claim) == "OTHER_CLAIM"
        assert "effect.lapsed" in topics(realm, claim.proposal_id)
    check_log(address, domain=room)


def test_a_lapsed_claim_may_not_go_on_and_its_effect_is_offered_after_the_others(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock, idempotent=True) as realm:
        first = work_in(realm, "a")
        claim = claimed(realm)
        clock.advance(1)
        second = work_in(realm, "b")
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        realm.settle()
        assert lost(realm, realm.heartbeat_effect, claim) == "LAPSED"
        assert lost(realm, realm.complete_effect, claim, answered("late")) == "LAPSED"
        assert [claimed(realm).proposal_id, claimed(realm).proposal_id] == [second, first]
    check_log(address, domain=room)


def test_a_claim_without_a_report_is_in_doubt_where_a_repetition_is_harmful(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        claim = claimed(realm)
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        assert realm.claim_effect(worker="w2") is None
        (stuck,) = realm.host.stuck()
        assert (stuck["proposalId"], stuck["idempotencyKey"]) == (name, claim.idempotency_key)
        assert lost(realm, realm.complete_effect, claim, answered("late")) == "LAPSED"
        (listed,) = realm.offered_effects()
        assert (listed.state, listed.worker) == ("in doubt", None)
        realm.host.resolve(name, "retry", by="bob", reason="nothing there")
        again = claimed(realm, "w2")
        assert again.requirement == claim.requirement
        assert again.token > claim.token
        assert realm.complete_effect(again, answered("A")).status == "completed"
    check_log(address, domain=room)


@pytest.mark.parametrize(("choice", "value", "status"), [("happened", "seen", "completed"), ("fail", None, "failed")])
def test_a_person_settles_an_external_effect_in_doubt(address: str, choice: Any, value: Any, status: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        claimed(realm)
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        realm.settle()
        assert realm.host.resolve(name, choice, by="bob", reason="asked", value=value).status == status
        assert realm.claim_effect(worker="w2") is None
    check_log(address, domain=room)


def test_a_failure_that_may_be_temporary_is_offered_again_after_its_backoff(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock, idempotent=True, retries=1, backoff_ms=300) as realm:
        realm.act("ann", "do", {})
        first = claimed(realm)
        assert realm.complete_effect(first, failing()).status == "executing"
        assert realm.complete_effect(first, failing()).status == "executing"
        (retried,) = [one for one in events(realm, first.proposal_id) if isinstance(one, EffectRetried)]
        assert retried.claim is not None
        assert (retried.claim.token, retried.failures, retried.due) == (first.token, 1, START + 300)
        clock.advance(299)
        assert realm.claim_effect(worker="w1") is None
        clock.advance(1)
        second = claimed(realm)
        assert (second.attempt, second.idempotency_key) == (2, first.idempotency_key)
        failed = realm.complete_effect(second, failing())
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error.code == "BUSY"
    check_log(address, domain=room)


@pytest.mark.parametrize("terms", [{"idempotent": False, "retries": 3}, {"idempotent": True, "retries": 0}], ids=str)
def test_a_failure_that_must_not_be_repeated_is_the_result(address: str, terms: dict[str, Any]) -> None:
    with offering(address, **terms) as realm:
        realm.act("ann", "do", {})
        assert realm.complete_effect(claimed(realm), failing()).status == "failed"
    check_log(address, domain=room)


# Cancelling and revoking


def test_cancelling_ends_an_execution_whose_effect_no_worker_has(address: str) -> None:
    with offering(address) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        ended = realm.host.cancel(name, by="bob", reason="not needed")
        assert ended.status == "failed"
        assert ended.error is not None
        assert ended.error.code == "CANCELLED"
        assert realm.claim_effect(worker="w1") is None
    check_log(address, domain=room)


def test_a_heartbeat_tells_a_worker_that_the_execution_was_cancelled(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock, idempotent=True) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        claim = claimed(realm)
        assert realm.host.cancel(name, by="bob", reason="not needed").status == "executing"
        assert lost(realm, realm.heartbeat_effect, claim) == "CANCELLED"
        _, attempt = realm.claimed_order(claim)
        assert (attempt.why_over() or ("",))[0] == "CANCELLED"
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        realm.settle()
        ended = realm.proposal(name)
        assert ended.status == "failed"
        assert ended.error is not None
        assert ended.error.code == "CANCELLED"
        assert lost(realm, realm.complete_effect, claim, answered("late")) == "ENDED"
        assert topics(realm, name)[-4:] == ["effect.lapsed", "effect.fulfilled", "proposal.failed", "effect.dropped"]
    check_log(address, domain=room)


def test_the_result_of_a_worker_that_held_its_claim_ends_a_cancelled_execution(address: str) -> None:
    with offering(address) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        claim = claimed(realm)
        realm.host.cancel(name, by="bob", reason="not needed")
        ended = realm.complete_effect(claim, answered("done all the same"))
        assert ended.status == "failed"
        assert ended.error is not None
        assert ended.error.code == "CANCELLED"
        assert ended.journal[claim.requirement.id].value == "done all the same"
    check_log(address, domain=room)


# Processes


def test_an_offer_survives_its_process_and_is_completed_in_another(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm:
        name = realm.act("ann", "do", {"what": ["a", "b"]}).proposal_id
        claim = claimed(realm)
    with open_again(address, clock, "again") as realm:
        realm.settle()
        assert realm.proposal(name).status == "executing"
        assert realm.complete_effect(claim, answered("A")).status == "executing"
        assert realm.complete_effect(claimed(realm), answered("B")).status == "completed"
        assert topics(realm, name).count("execution.started") == 1
    check_log(address, domain=room)


def test_a_worker_that_waits_gets_the_effect_as_soon_as_it_is_offered(address: str) -> None:
    found: list[EffectClaim | None] = []
    with offering(address) as realm:
        waiting = threading.Thread(target=lambda: found.append(realm.claim_effect(worker="w1", wait_s=PATIENCE_S)))
        waiting.start()
        name = realm.act("ann", "do", {}).proposal_id
        waiting.join(PATIENCE_S)
        assert [one and one.proposal_id for one in found] == [name]
        assert realm.claim_effect(worker="w2", wait_s=0.01) is None


def test_a_waiting_worker_gets_the_effect_of_another_process(address: str) -> None:
    found: list[EffectClaim | None] = []
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm, open_again(address, clock, "other") as other:
        waiting = threading.Thread(target=lambda: found.append(other.claim_effect(worker="w1", wait_s=PATIENCE_S)))
        waiting.start()
        name = realm.act("ann", "do", {}).proposal_id
        waiting.join(PATIENCE_S)
        assert [one and one.proposal_id for one in found] == [name]


# Declarations


def test_a_declaration_describes_itself_and_answers_a_direct_call_with_an_error() -> None:
    declared = external("mail.send", time_limit_ms=7, idempotent=True, retries=2, needs_workspace=True)
    terms = declared.terms
    assert (terms.external, terms.needs_workspace, terms.time_limit_ms, terms.retries) == (True, True, 7, 2)
    assert declared.terms_for({}) == declared.terms
    depends = external("mail.send", idempotent=lambda params: params["quiet"])
    assert depends.terms_for({"quiet": True}).external
    with pytest.raises(TypeError, match="isolation"):
        external("mail.send", isolation="process")  # type: ignore[call-arg]


def test_a_realm_that_is_open_for_reading_lists_offered_effects_and_claims_none(address: str) -> None:
    with offering(address) as realm:
        work_in(realm, "a")
        claimed(realm)
        work_in(realm, "b")
    with Realm.open_read_only(address) as reading:
        listed = reading.offered_effects()
        assert [(one.state, one.worker, one.deadline) for one in listed] == [
            ("claimed", "w1", START + LIMIT_MS + GRACE_MS),
            ("offered", None, None),
        ]
        with pytest.raises(RefusedError) as refused:
            reading.claim_effect(worker="w1")
        assert refused.value.code == "LOG_READ_ONLY"


class Larger(Room):
    more: int = 0


def test_a_result_is_recorded_by_a_program_with_another_schema_and_one_with_the_adopted_one_continues(
    address: str,
) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        claim = claimed(realm)
    larger = Domain("urn:test:offering", version="1.0.1", state=Larger)
    larger.action("grow", version="1")(lambda _ctx: [set_("more", 1)])
    with Realm.open(address, domain=larger, clock=clock, ids=SequentialIds("larger"), on_change="hold") as realm:
        claim = realm.heartbeat_effect(claim)
        assert realm.complete_effect(claim, answered("A")).status == "executing"
    with open_again(address, clock, "again") as realm:
        realm.settle()
        assert realm.proposal(name).status == "completed"
        assert realm.data()["done"] == ["A"]
    check_log(address, domain=room)
