"""The Proposal aggregate against an independent table of what may follow what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from world.errors import DamagedLog
from world.events import (
    DecisionMade,
    EffectFulfilled,
    EffectRequested,
    Event,
    ExecutionStarted,
    HumanAnswered,
    HumanTimedOut,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
    decode_event,
    encode_event,
)
from world.proposal import TERMINAL, Proposal, fold_proposal

ACTOR = {"actorId": "ann", "kind": "human"}
INTENT = {
    "body": {"type": "todo.add", "input": {"title": "tea"}},
    "intentId": "i-1",
    "intentKey": "k-1",
    "meta": {"origin": {"projectionId": "p", "source": {"kind": "ui", "eventId": "e"}, "actor": ACTOR}},
}


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
    return DecisionMade(at=2, proposal_id="p1", decision=wire)


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
    requirement = {"id": name, "type": "t", "params": {}, "actionId": "a", "nodePath": "n"}
    return EffectRequested(at=3, proposal_id="p1", requirement=requirement, idempotent=False, attempt=1, deadline=9)


def fulfilled(name: str) -> Event:
    result = {"value": 1, "patches": [], "error": None}
    return EffectFulfilled(at=4, proposal_id="p1", requirement_id=name, result=result, attempt=1)


JUDGED = ProposalJudged(
    at=2,
    proposal_id="p1",
    ruling={"verdict": "wait", "authority": "hitl", "reason": "", "ask": ["*"], "onTimeout": "reject"},
    binding={"kind": "hitl"},
)
ENDED: dict[str, Any] = {"at": 5, "proposal_id": "p1", "world_id": "w1", "parent": "w0", "branch": "main"}
STEPS: dict[str, Event] = {
    "judged": JUDGED,
    "answered": HumanAnswered(at=2, proposal_id="p1", answer={"answerId": "a", "by": ACTOR, "choice": "ask"}),
    "timed_out": HumanTimedOut(at=2, proposal_id="p1", deadline=2),
    "approved": decision("approved"),
    "rejected": decision("rejected"),
    "superseded": ProposalSuperseded(at=2, proposal_id="p1", epoch=1),
    "started": started(),
    "completed": ProposalCompleted(**ENDED),
    "failed": ProposalFailed(**ENDED, error={"code": "X"}),
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
            with pytest.raises(DamagedLog) as refused:
                fold_proposal(proposal, STEPS[step])
            assert refused.value.code == "ILLEGAL_TRANSITION"
        assert proposal.status == status
        assert proposal.is_terminal == (not MODEL[status]) == (status in TERMINAL)


@pytest.mark.requirement("WP-decision", "WP-fsm")
def test_a_second_decision_is_refused() -> None:
    proposal = submitted()
    for step in ("judged", "approved"):
        proposal = fold_proposal(proposal, STEPS[step])
    for again in ("approved", "rejected"):
        with pytest.raises(DamagedLog):
            fold_proposal(proposal, STEPS[again])
    record = proposal.decision_record
    assert record is not None
    assert record.decision == "approved"
    assert record.to_wire()["approvedScope"] is None


@pytest.mark.requirement("WP-decision")
def test_only_decided_proposals_have_a_decision_record() -> None:
    proposal = fold_proposal(submitted(), STEPS["superseded"])
    assert proposal.decision_record is None
    assert "approvedScope" not in proposal.to_wire()


def executing() -> Proposal:
    proposal = submitted()
    for step in ("judged", "approved", "started"):
        proposal = fold_proposal(proposal, STEPS[step])
    return proposal


@pytest.mark.requirement("HC-journal")
def test_an_effect_is_fulfilled_once_and_only_when_requested() -> None:
    proposal = executing()
    with pytest.raises(DamagedLog):
        fold_proposal(proposal, fulfilled("r1"))
    fold_proposal(proposal, requested("r1"))
    fold_proposal(proposal, fulfilled("r1"))
    assert proposal.effect_journal()["r1"].value == 1
    with pytest.raises(DamagedLog):
        fold_proposal(proposal, fulfilled("r1"))


@pytest.mark.requirement("HC-context", "INV-I5")
def test_time_and_seed_stay_frozen_through_every_attempt() -> None:
    proposal = executing()
    fold_proposal(proposal, started(attempt=2))
    with pytest.raises(DamagedLog):
        fold_proposal(proposal, started(attempt=3, now=99))


@given(st.sampled_from(sorted(STEPS)))
def test_every_event_reads_back_as_it_was_written(step: str) -> None:
    event = STEPS[step]
    text = encode_event(event)
    assert decode_event(event.TOPIC, event.VERSION, text) == event
    assert encode_event(decode_event(event.TOPIC, event.VERSION, text)) == text


def test_an_event_of_an_unknown_topic_or_version_names_itself() -> None:
    for topic, version, state in (("no.such", 1, b"{}"), ("proposal.submitted", 99, b"{}")):
        with pytest.raises(DamagedLog) as damage:
            decode_event(topic, version, state, 7)
        assert damage.value.code == "UNKNOWN_EVENT"
        assert damage.value.details["position"] == 7
    with pytest.raises(DamagedLog) as damage:
        decode_event("proposal.submitted", 1, b'{"at":1}', 7)
    assert damage.value.code == "BAD_EVENT"
