"""The journal of an execution, rebuilt from its events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host import DroppedResult, ExecutionJournal, rebuild_journal
from world.core import EffectAnswer, set_
from world.errors import DamagedLogError
from world.events.base import Event
from world.events.codec import decode_event, encode_event
from world.events.execution_events import EffectDropped, EffectFulfilled, EffectRequested
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.model.canonical_json import canonical_bytes
from world.model.snapshot import ErrorValue, Requirement


def requested(name: str, proposal: str = "p", attempt: int = 1) -> EffectRequested:
    asked = Requirement(name, "pay", {"n": name}, "buy", "actions.buy.python[0]")
    return EffectRequested(at=1, proposal_id=proposal, requirement=asked, idempotent=True, attempt=attempt, deadline=9)


def fulfilled(name: str, value: Any, proposal: str = "p", attempt: int = 1) -> EffectFulfilled:
    result = value if isinstance(value, EffectAnswer) else EffectAnswer(value)
    return EffectFulfilled(at=1, proposal_id=proposal, requirement_id=name, result=result, attempt=attempt)


def ended(kind: type[Any] = ProposalCompleted, **more: Any) -> Event:
    event: Event = kind(at=1, proposal_id="p", world_id="w", parent="v", branch="main", **more)
    return event


def stored(*events: Event) -> list[Event]:
    return [decode_event(event.TOPIC, event.VERSION, encode_event(event)) for event in events]


def test_nothing_recorded_is_an_empty_journal() -> None:
    assert rebuild_journal([], "p") == ExecutionJournal({}, (), ())


@pytest.mark.requirement("HC-journal")
def test_results_come_back_from_the_log_as_they_were() -> None:
    error = ErrorValue.at("NO", "m", "buy", "at", 5, {"a": 1})
    results = {
        "a": EffectAnswer({"x": [1.5, None, "é", 10**20 // 1.0]}),
        "b": EffectAnswer(patches=(set_("stock", 1),)),
        "c": EffectAnswer(error=error),
    }
    events = [event for name, given in results.items() for event in (requested(name), fulfilled(name, given))]
    journal = rebuild_journal(stored(*events), "p")
    assert journal.results == results
    assert [asked.id for asked in journal.requested] == ["a", "b", "c"]
    assert journal.in_doubt == ()


@pytest.mark.requirement("HC-journal")
def test_a_request_without_a_result_is_in_doubt() -> None:
    journal = rebuild_journal(stored(requested("a"), fulfilled("a", 1), requested("b")), "p")
    assert [asked.id for asked in journal.in_doubt] == ["b"]
    assert journal.in_doubt[0].params == {"n": "b"}


@pytest.mark.requirement("HC-compute", "IC-reentry")
def test_the_first_result_counts_and_a_second_one_is_dropped() -> None:
    again = stored(requested("a"), fulfilled("a", 1), requested("a", attempt=2), fulfilled("a", 2, attempt=2))
    journal = rebuild_journal(again, "p")
    assert journal.results == {"a": EffectAnswer(1)}
    assert len(journal.requested) == 1
    assert journal.dropped == (DroppedResult("a", "duplicate"),)


@pytest.mark.requirement("HC-compute")
@pytest.mark.parametrize("end", [ended(), ended(ProposalFailed, error=ErrorValue.at("NO", "no", "buy", "", 1))])
def test_a_result_behind_the_end_is_dropped(end: Event) -> None:
    journal = rebuild_journal(stored(requested("a"), end, fulfilled("a", 1)), "p")
    assert journal.results == {}
    assert journal.dropped == (DroppedResult("a", "late"),)


def test_what_the_log_already_dropped_is_no_result() -> None:
    dropped = EffectDropped(at=1, proposal_id="p", requirement_id="a", reason="late")
    assert rebuild_journal(stored(requested("a"), dropped), "p").results == {}


def test_other_proposals_have_their_own_journals() -> None:
    events = stored(requested("a"), requested("a", "q"), fulfilled("a", 1, "q"), fulfilled("a", 2))
    assert rebuild_journal(events, "p").results == {"a": EffectAnswer(2)}
    assert rebuild_journal(events, "q").results == {"a": EffectAnswer(1)}
    assert rebuild_journal(events, "r") == ExecutionJournal()


@pytest.mark.parametrize(
    "result", [{"patches": [{"op": "grow"}]}, {"patches": 3}, {"error": {"code": "NO"}}, {"error": 3}]
)
def test_a_result_that_is_none_is_a_damaged_log(result: dict[str, Any]) -> None:
    event = {"at": 1, "proposalId": "p", "requirementId": "a", "result": result, "attempt": 1}
    with pytest.raises(DamagedLogError, match=r"effect\.fulfilled") as damaged:
        decode_event("effect.fulfilled", 1, canonical_bytes(event), 7)
    assert damaged.value.code == "BAD_EVENT"


def test_a_request_that_is_none_is_a_damaged_log() -> None:
    event = {"at": 1, "proposalId": "p", "requirement": {"id": "a"}, "idempotent": True, "attempt": 1, "deadline": 9}
    with pytest.raises(DamagedLogError, match="request"):
        decode_event("effect.requested", 1, canonical_bytes(event), 7)


happenings = st.one_of(
    st.builds(requested, st.sampled_from("abc"), st.sampled_from("pq")),
    st.builds(fulfilled, st.sampled_from("abc"), st.integers(0, 5), st.sampled_from("pq")),
    st.just(ended()),
)


@pytest.mark.requirement("HC-journal", "HC-compute")
@given(st.lists(happenings, max_size=12), st.data())
def test_what_counted_once_counts_for_ever(events: list[Event], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(events)))
    early, late = rebuild_journal(events[:cut], "p"), rebuild_journal(events, "p")
    assert late.results.items() >= early.results.items()
    assert late.requested[: len(early.requested)] == early.requested
    told = [event for event in events if isinstance(event, EffectFulfilled) and event.proposal_id == "p"]
    assert len(late.results) + len(late.dropped) == len(told)
    if any(isinstance(event, ProposalCompleted) for event in events[:cut]):
        assert late.results == early.results
