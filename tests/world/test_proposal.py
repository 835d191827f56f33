"""The Proposal aggregate against an independent table of what may follow what."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.making_events import made
from world.errors import DamagedLogError
from world.events.base import Event
from world.events.codec import decode_event, encode_event
from world.events.execution_events import (
    EffectDropped,
    EffectFulfilled,
    EffectInDoubt,
    EffectRequested,
    EffectResolved,
    EffectRetried,
    ExecutionCancelled,
    ExecutionStarted,
)
from world.events.policy_events import ProposalShadowed
from world.events.proposal_events import (
    DecisionMade,
    HumanAnswered,
    HumanTimedOut,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.events.realm_events import BranchSwitched
from world.model.actor import ActorRef
from world.model.decision import DecisionRecord, HumanAnswer, Ruling
from world.model.intent import IntentInstance
from world.model.snapshot import EffectAnswer, ErrorValue, Requirement
from world.state.proposal import TERMINAL, Proposal, Status, fold_proposal

ACTOR = ActorRef(actor_id="ann", kind="human")
INTENT = IntentInstance.read(
    {
        "body": {"type": "todo.add", "input": {"title": "tea"}},
        "intentId": "i-1",
        "intentKey": "k-1",
        "meta": {"origin": {"projectionId": "p", "source": {"kind": "ui", "eventId": "e"}, "actor": ACTOR}},
    }
)


def submitted() -> Proposal:
    return fold_proposal(
        None,
        ProposalSubmitted(
            at=1,
            proposal_id="p1",
            actor=ACTOR,
            intent=INTENT,
            branch="main",
            base_world="w0",
            epoch=0,
            execution_key="branch:main",
            schema_hash="s",
            attempt=1,
        ),
    )


def decision(word: str) -> Event:
    wire: dict[str, Any] = {
        "decisionId": "d",
        "proposalId": "p1",
        "authority": "auto_approve",
        "decision": word,
        "reason": "",
        "decidedAt": 2,
    }
    if word == "approved":
        wire["approvedScope"] = None
    return DecisionMade(at=2, proposal_id="p1", decision=DecisionRecord.from_wire(wire))


def started(attempt: int = 1, now: int = 3) -> Event:
    return ExecutionStarted(
        at=3,
        proposal_id="p1",
        on_world="w0",
        now=now,
        seed="i-1",
        enforcement="enforcing",
        attempt=attempt,
        worker="w",
    )


def requested(name: str) -> Event:
    requirement = Requirement(name, "t", {}, "a", "n")
    return EffectRequested(at=3, proposal_id="p1", requirement=requirement, idempotent=False, attempt=1, deadline=9)


def fulfilled(name: str) -> Event:
    result = EffectAnswer(1)
    return EffectFulfilled(at=4, proposal_id="p1", requirement_id=name, result=result, attempt=1)


JUDGED = ProposalJudged(
    at=2,
    proposal_id="p1",
    ruling=Ruling("wait", "hitl", "", ask=("*",)),
    binding={"kind": "hitl"},
)
ENDED: dict[str, Any] = {"at": 5, "proposal_id": "p1", "world_id": "w1", "parent": "w0", "branch": "main"}
STEPS: dict[str, Event] = {
    "judged": JUDGED,
    "answered": HumanAnswered(at=2, proposal_id="p1", answer=HumanAnswer(answer_id="a", by=ACTOR, choice="ask")),
    "timed_out": HumanTimedOut(at=2, proposal_id="p1", deadline=2),
    "approved": decision("approved"),
    "rejected": decision("rejected"),
    "superseded": ProposalSuperseded(at=2, proposal_id="p1", epoch=1),
    "started": started(),
    "completed": ProposalCompleted(**ENDED),
    "failed": ProposalFailed(**ENDED, error=ErrorValue.at("X", "", "", "", 0)),
}
# the model: from each status, what each step leads to; a missing step is refused
MODEL: dict[str, dict[str, str]] = {
    "submitted": {"judged": "evaluating", "rejected": "rejected", "superseded": "superseded"},
    "evaluating": {
        "judged": "evaluating",
        "answered": "evaluating",
        "timed_out": "evaluating",
        "approved": "approved",
        "rejected": "rejected",
        "superseded": "superseded",
    },
    "approved": {"started": "executing"},
    "executing": {"started": "executing", "completed": "completed", "failed": "failed"},
    "rejected": {},
    "superseded": {},
    "completed": {},
    "failed": {},
}


@pytest.mark.requirement("WP-fsm", "CARD-log")
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=12))
def test_a_proposal_takes_exactly_the_steps_its_status_allows(steps: list[str]) -> None:
    proposal, status = submitted(), "submitted"
    for step in steps:
        if step in MODEL[status]:
            status = MODEL[status][step]
            proposal = fold_proposal(proposal, STEPS[step])
        else:
            with pytest.raises(DamagedLogError) as refused:
                fold_proposal(proposal, STEPS[step])
            assert refused.value.code == "ILLEGAL_TRANSITION"
        assert proposal.status == status
        assert proposal.is_terminal == (not MODEL[status]) == (status in TERMINAL)


@pytest.mark.requirement("WP-fsm")
def test_the_statuses_that_proposals_reach_are_those_that_have_a_name() -> None:
    reached, waiting = {"submitted"}, [submitted()]
    while waiting:
        before = waiting.pop()
        for step in MODEL[before.status]:
            after = fold_proposal(before.copy(), STEPS[step])
            if after.status not in reached:
                reached.add(after.status)
                waiting.append(after)
    assert reached == set(get_args(Status))


@pytest.mark.requirement("WP-decision", "WP-fsm")
def test_a_second_decision_is_refused() -> None:
    proposal = submitted()
    for step in ("judged", "approved"):
        proposal = fold_proposal(proposal, STEPS[step])
    for again in ("approved", "rejected"):
        with pytest.raises(DamagedLogError):
            fold_proposal(proposal, STEPS[again])
    record = proposal.decision
    assert record is not None
    assert record.decision == "approved"
    assert record.to_wire()["approvedScope"] is None


@pytest.mark.requirement("WP-decision")
def test_only_decided_proposals_have_a_decision_record() -> None:
    proposal = fold_proposal(submitted(), STEPS["superseded"])
    assert proposal.decision is None
    assert "approvedScope" not in proposal.to_wire()


def executing() -> Proposal:
    proposal = submitted()
    for step in ("judged", "approved", "started"):
        proposal = fold_proposal(proposal, STEPS[step])
    return proposal


@pytest.mark.requirement("HC-journal")
def test_an_effect_is_fulfilled_once_and_only_when_requested() -> None:
    proposal = executing()
    with pytest.raises(DamagedLogError):
        fold_proposal(proposal, fulfilled("r1"))
    fold_proposal(proposal, requested("r1"))
    fold_proposal(proposal, fulfilled("r1"))
    assert proposal.effect_journal()["r1"].value == 1
    with pytest.raises(DamagedLogError):
        fold_proposal(proposal, fulfilled("r1"))


@pytest.mark.requirement("HC-context", "INV-I5")
def test_time_and_seed_stay_frozen_through_every_attempt() -> None:
    proposal = executing()
    fold_proposal(proposal, started(attempt=2))
    with pytest.raises(DamagedLogError):
        fold_proposal(proposal, started(attempt=3, now=99))


@given(st.sampled_from(sorted(STEPS)))
def test_every_event_reads_back_as_it_was_written(step: str) -> None:
    event = STEPS[step]
    text = encode_event(event)
    assert decode_event(event.TOPIC, event.VERSION, text) == event
    assert encode_event(decode_event(event.TOPIC, event.VERSION, text)) == text


def test_an_event_of_an_unknown_topic_or_version_names_itself() -> None:
    for topic, version, state in (("no.such", 1, b"{}"), ("proposal.submitted", 99, b"{}")):
        with pytest.raises(DamagedLogError) as damage:
            decode_event(topic, version, state, 7)
        assert damage.value.code == "UNKNOWN_EVENT"
        assert damage.value.details["position"] == 7
    with pytest.raises(DamagedLogError) as damage:
        decode_event("proposal.submitted", 1, b'{"at":1}', 7)
    assert damage.value.code == "BAD_EVENT"


# What each event of an execution does, in every state of its effect


def folded(*events: Event) -> Proposal:
    proposal = executing()
    for event in events:
        fold_proposal(proposal, event)
    return proposal


def retried(name: str, code: str = "X", failures: int = 1) -> Event:
    error = ErrorValue.at(code, "m", "", "", 0)
    return EffectRetried(at=5, proposal_id="p1", requirement_id=name, error=error, failures=failures, due=9)


def doubted(name: str) -> Event:
    return EffectInDoubt(at=5, proposal_id="p1", requirement_id=name, reason="its worker vanished")


def resolved(name: str) -> Event:
    return EffectResolved(at=6, proposal_id="p1", requirement_id=name, choice="retry", by="ann", reason="looked")


def ended_with(name: str, code: str) -> Event:
    result = EffectAnswer(error=ErrorValue.at(code, "m", "", "", 0))
    return EffectFulfilled(at=4, proposal_id="p1", requirement_id=name, result=result, attempt=1)


def rollback_requested() -> Event:
    requirement = Requirement("rb", "workspace.restore", {}, "a", "$rollback")
    return EffectRequested(at=3, proposal_id="p1", requirement=requirement, idempotent=True, attempt=1, deadline=9)


CANCELLED = ExecutionCancelled(at=4, proposal_id="p1", by="ann", reason="not any more")
EFFECT_EVENTS: dict[str, Event] = {
    "requested": requested("r1"),
    "fulfilled": fulfilled("r1"),
    "retried": retried("r1"),
    "doubted": doubted("r1"),
    "resolved": resolved("r1"),
}
# from each state of an effect, what each event leads to; a missing one is refused
EFFECT_MODEL: dict[str, dict[str, str]] = {
    "new": {"requested": "under way"},
    "under way": {"requested": "under way", "fulfilled": "done", "retried": "under way", "doubted": "in doubt"},
    "in doubt": {"fulfilled": "done", "doubted": "in doubt", "resolved": "under way"},
    "done": {"requested": "done again"},
    "done again": {"requested": "done again", "retried": "done again", "doubted": "done in doubt"},
    "done in doubt": {"doubted": "done in doubt", "resolved": "done again"},
}


@pytest.mark.requirement("HC-journal", "WP-fsm")
@given(st.lists(st.sampled_from(sorted(EFFECT_EVENTS)), max_size=8))
def test_an_effect_takes_exactly_the_steps_its_state_allows(steps: list[str]) -> None:
    proposal, state = executing(), "new"
    for step in steps:
        if step in EFFECT_MODEL[state]:
            state = EFFECT_MODEL[state][step]
            fold_proposal(proposal, EFFECT_EVENTS[step])
        else:
            with pytest.raises(DamagedLogError) as refused:
                fold_proposal(proposal, EFFECT_EVENTS[step])
            assert refused.value.code == "ILLEGAL_TRANSITION"
            assert refused.value.details == {"proposal_id": "p1", "topic": EFFECT_EVENTS[step].TOPIC}
        assert ("r1" in proposal.requested) is (state in ("under way", "done again"))
        assert ("r1" in proposal.in_doubt) is (state in ("in doubt", "done in doubt"))
        assert ("r1" in proposal.journal) is state.startswith("done")


@pytest.mark.requirement("WP-fsm")
@pytest.mark.parametrize("status", ["submitted", "evaluating", "approved", "completed", "rejected"])
def test_an_event_of_an_execution_belongs_to_one_that_is_under_way(status: str) -> None:
    ways = {
        "submitted": [],
        "evaluating": ["judged"],
        "approved": ["judged", "approved"],
        "completed": ["judged", "approved", "started", "completed"],
        "rejected": ["rejected"],
    }
    proposal = submitted()
    for step in ways[status]:
        fold_proposal(proposal, STEPS[step])
    for event in EFFECT_EVENTS.values():
        with pytest.raises(DamagedLogError) as caught:
            fold_proposal(proposal, event)
        assert caught.value.code == "ILLEGAL_TRANSITION"
        expected = f"Proposal p1 cannot take {event.TOPIC}: the proposal is {status}, not executing."
        assert caught.value.message == expected
    if status != "approved":
        with pytest.raises(DamagedLogError, match=f"the proposal is {status}"):
            fold_proposal(proposal, CANCELLED)
        assert proposal.cancelled is None


def test_a_cancellation_is_of_what_is_approved_or_under_way() -> None:
    approved = submitted()
    for step in ("judged", "approved"):
        fold_proposal(approved, STEPS[step])
    for proposal in (approved, executing()):
        assert fold_proposal(proposal, CANCELLED).cancelled is CANCELLED
        assert proposal.to_wire()["cancelled"] == {"by": "ann", "reason": "not any more", "at": 4}


@pytest.mark.requirement("HC-journal")
def test_a_failure_is_kept_until_its_effect_has_a_result() -> None:
    first, second = retried("r1"), retried("r1", failures=2)
    proposal = folded(requested("r1"), first, second)
    assert proposal.failures == {"r1": second}
    assert proposal.requested_at == {"r1": 3}
    fold_proposal(proposal, fulfilled("r1"))
    assert (proposal.failures, proposal.requested_at, proposal.requested) == ({}, {}, {})


@pytest.mark.requirement("KO-3.3")
def test_what_may_linger_is_known_from_the_codes_and_from_a_second_start() -> None:
    assert not folded(requested("r1"), fulfilled("r1")).may_linger
    assert not folded(requested("r1"), ended_with("r1", "DOWN")).may_linger
    assert not folded(requested("r1"), retried("r1")).may_linger
    for code in ("EFFECT_TIMED_OUT", "CANCELLED", "LEASES_REVOKED", "NOT_WANTED", "KLIS_SCOPE_VIOLATION"):
        assert folded(requested("r1"), ended_with("r1", code)).may_linger
        assert folded(requested("r1"), retried("r1", code)).may_linger
        later = folded(requested("r1"), retried("r1", code), fulfilled("r1"))
        assert later.may_linger
        again = folded(requested("r1"), ended_with("r1", code), requested("r2"), retried("r2"), fulfilled("r2"))
        assert again.may_linger
    assert folded(started(attempt=2)).may_linger


@pytest.mark.requirement("KO-3.3", "INT-14.4")
def test_the_result_of_a_rollback_is_no_result_of_the_execution() -> None:
    proposal = folded(requested("r1"), fulfilled("r1"), rollback_requested())
    result = EffectAnswer({"restored": ["/a"]})
    done = EffectFulfilled(at=4, proposal_id="p1", requirement_id="rb", result=result, attempt=1)
    fold_proposal(proposal, done)
    assert proposal.rollback == result
    assert list(proposal.journal) == ["r1"]
    assert proposal.to_wire()["rollback"] == {"restored": ["/a"]}


def test_an_end_leaves_no_effect_under_way_and_a_dropped_result_is_counted() -> None:
    for end, world_id in ((STEPS["completed"], "w1"), (STEPS["failed"], "w1")):
        proposal = folded(requested("r1"), requested("r2"), doubted("r2"), end)
        assert (proposal.requested, proposal.in_doubt, proposal.world_id) == ({}, {}, world_id)
        for count in (1, 2, 3):
            fold_proposal(proposal, EffectDropped(at=9, proposal_id="p1", requirement_id="r1", reason="late"))
            assert proposal.dropped == count
    assert folded(STEPS["failed"]).to_wire()["error"] == ErrorValue.at("X", "", "", "", 0).to_wire()


def test_an_answer_counts_questions_until_they_are_replied_to() -> None:
    proposal = fold_proposal(submitted(), JUDGED)
    for choices, expected in [
        (["ask"], 1),
        (["ask"], 2),
        (["approve"], 2),
        (["reply"], 0),
        (["ask", "reject"], 1),
    ]:
        for choice in choices:
            answer = {"answerId": "a", "by": ACTOR, "choice": choice}
            fold_proposal(proposal, made(HumanAnswered, at=2, proposal_id="p1", answer=answer))
        assert [one.choice for one in proposal.open_questions] == ["ask"] * expected
    assert len(proposal.to_wire()["answers"]) == 6


@pytest.mark.requirement("INT-14.4")
def test_the_wire_form_tells_all_that_is_known() -> None:
    least = {
        "proposalId": "p1",
        "status": "submitted",
        "actor": ACTOR.to_wire(),
        "intent": INTENT.to_wire(),
        "branch": "main",
        "baseWorld": "w0",
        "epoch": 0,
        "executionKey": "branch:main",
        "schemaHash": "s",
        "attempt": 1,
        "submittedAt": 1,
    }
    assert submitted().to_wire() == least
    waiting = fold_proposal(submitted(), JUDGED)
    assert waiting.to_wire() == {**least, "status": "evaluating", "ruling": JUDGED.ruling.to_wire()}
    waiting.deadline = 7
    assert waiting.to_wire()["deadline"] == 7
    effects = folded(requested("r2"), requested("r1"), requested("r3"), fulfilled("r3"), doubted("r2")).to_wire()
    assert effects["effects"] == {"fulfilled": 1, "underWay": ["r1"], "inDoubt": ["r2"]}
    assert folded(requested("r1")).to_wire()["effects"] == {"fulfilled": 0, "underWay": ["r1"]}
    done = folded(STEPS["completed"]).to_wire()
    assert (done["status"], done["worldId"], done["approvedScope"]) == ("completed", "w1", None)
    assert "deadline" not in done
    assert "effects" not in done


def test_a_copy_of_a_proposal_is_one_of_its_own() -> None:
    proposal = folded(requested("r1"), fulfilled("r1"), requested("r2"), retried("r2"))
    twin = proposal.copy()
    assert twin == proposal
    fold_proposal(twin, fulfilled("r2"))
    twin.answers.append(HumanAnswer(answer_id="a", by=ACTOR, choice="ask"))
    assert (list(proposal.journal), list(proposal.requested), proposal.answers) == (["r1"], ["r2"], [])
    assert (list(proposal.failures), list(proposal.requested_at)) == (["r2"], ["r2"])
    assert set(twin.effect_journal()) == {"r1", "r2"}
    assert set(proposal.effect_journal()) == {"r1"}
    doubtful = folded(requested("r1"), doubted("r1"))
    fold_proposal(doubtful.copy(), resolved("r1"))
    assert list(doubtful.in_doubt) == ["r1"]


def test_a_stream_begins_with_its_submission_and_holds_no_other_events() -> None:
    with pytest.raises(DamagedLogError, match=r"begins with proposal.submitted, not proposal.judged"):
        fold_proposal(None, JUDGED)
    with pytest.raises(DamagedLogError, match="the event does not belong there"):
        fold_proposal(submitted(), BranchSwitched(at=1, branch="main", epoch=1, by="ann"))


def test_a_proposal_is_shadowed_once_and_before_it_is_judged() -> None:
    shadowed = ProposalShadowed(at=2, proposal_id="p1", name="n", policy_hash="h", ruling=JUDGED.ruling)
    proposal = fold_proposal(submitted(), shadowed)
    assert proposal.is_shadowed
    with pytest.raises(DamagedLogError, match="it was shadowed before"):
        fold_proposal(proposal, shadowed)
    with pytest.raises(DamagedLogError, match="the proposal is evaluating, not submitted"):
        fold_proposal(fold_proposal(submitted(), JUDGED), shadowed)


@pytest.mark.requirement("WP-decision")
def test_only_a_ruling_that_waits_asks_and_only_an_approval_wants_leases() -> None:
    def judged(verdict: str) -> Proposal:
        ruling = {"verdict": verdict, "authority": "a", "reason": ""}
        judged = made(ProposalJudged, at=2, proposal_id="p1", ruling=ruling, binding={"kind": "hitl"})
        return fold_proposal(submitted(), judged)

    assert [judged(verdict).wants_leases for verdict in ("approve", "reject", "wait")] == [True, False, False]
    assert [judged(verdict).asked is None for verdict in ("approve", "reject", "wait")] == [True, True, False]
    assert submitted().asked is None
    assert not submitted().wants_leases
    waiting = fold_proposal(fold_proposal(submitted(), JUDGED), STEPS["rejected"])
    assert waiting.asked is None
