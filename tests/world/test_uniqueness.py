"""Ids that must not come twice, from those of proposals to those of leases."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.garden import FOLDER
from tests.golden.generate import rehashed
from world.audit.unique_ids import NAMING, Repeats
from world.audit.verify import verify
from world.errors import RefusedError
from world.events.access_events import TokenCreated
from world.events.claim_events import EffectClaimed
from world.events.codec import decode_event
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import DecisionMade, HumanAnswered, ProjectionRecorded, ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes
from worldprotocol.export.jsonl import import_log
from worldprotocol.export.proofs.exports import check_export

GOLDEN = FOLDER / "garden-leased.jsonl"
WHERE: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "proposal": (ProposalSubmitted.TOPIC, lambda state: state, "proposalId"),
    "intent": (ProposalSubmitted.TOPIC, lambda state: state["intent"], "intentId"),
    "decision": (DecisionMade.TOPIC, lambda state: state["decision"], "decisionId"),
    "verdict": (VerdictGiven.TOPIC, lambda state: state, "verdictId"),
    "answer": (HumanAnswered.TOPIC, lambda state: state["answer"], "answerId"),
    "record": (ProjectionRecorded.TOPIC, lambda state: state, "recordId"),
    "lease": (VerdictGiven.TOPIC, lambda state: state["leases"][0], "leaseId"),
    "world": (WorldSealed.TOPIC, lambda state: state, "worldId"),
    "claim": (EffectClaimed.TOPIC, lambda state: state, "claimId"),
}
OTHER_LOGS = {"claim": FOLDER / "couriers.jsonl"}


def repeated(what: str) -> tuple[list[dict[str, Any]], int, str]:
    """Return the lines of a log in which an event has the id of an earlier one, which event that is, and the id."""
    told = [json.loads(line) for line in OTHER_LOGS.get(what, GOLDEN).read_bytes().splitlines()]
    topic, place, name = WHERE[what]
    made = [line for line in told if line.get("topic") == topic]
    first, second = [line for line in made if what != "lease" or line["state"].get("leases")][:2]
    known = place(second["state"])[name] = place(first["state"])[name]
    return [json.loads(line) for line in rehashed(told)], second["position"], known


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("what", WHERE)
def test_an_id_that_comes_twice_is_found(tmp_path: Path, what: str) -> None:
    told, position, name = repeated(what)
    words = f"the {what} {name} was recorded before"
    with pytest.raises(RefusedError, match=words) as refused:
        import_log(io.BytesIO(b"".join(canonical_bytes(line) + b"\n" for line in told)), str(tmp_path / "copy.db"))
    assert refused.value.details["position"] == position
    with open_log(str(tmp_path / "odd.db"), create=True) as log, log.write() as transaction:
        transaction.append(
            NewEvent(line["stream"], line["topic"], line["schemaVersion"], canonical_bytes(line["state"]))
            for line in told
            if "topic" in line
        )
    with open_log(str(tmp_path / "odd.db"), read_only=True) as log:
        found = verify(log).findings
    if what != "world":  # whose id is a hash, so that another finding ends the pass before
        assert position in [one.position for one in found if one.code != "INDEX_DIFFERS"]
    if what in ("decision", "intent", "answer"):
        assert (position, "DUPLICATE_ID") in [(one.position, one.code) for one in found]


@pytest.mark.requirement("KM-7.3", "CARD-audit")
@pytest.mark.parametrize("what", sorted(WHERE.keys() - OTHER_LOGS))
def test_an_id_that_comes_twice_is_found_beside_hidden_events(what: str) -> None:
    told, position, name = repeated(what)
    told[0]["redacted"] = ["topic"]
    hidden = next(line for line in told if line.get("topic") == "policy.adopted")
    told[told.index(hidden)] = {"leaf": hidden["leaf"], "position": hidden["position"], "redacted": True}
    report = check_export(io.BytesIO(b"".join(canonical_bytes(line) + b"\n" for line in told)))
    assert (report.hidden, report.whole) == (1, None)
    assert (position, "DUPLICATE_ID") in [(one.position, one.code) for one in report.findings]
    assert any(f"the {what} {name} was recorded before" in one.message for one in report.findings)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.booleans()), max_size=8))
def test_of_attempts_of_which_some_are_hidden_only_the_order_is_checked(made: list[tuple[str, int, bool]]) -> None:
    line = next(json.loads(line) for line in GOLDEN.read_bytes().splitlines() if b'"proposal.submitted"' in line)
    events = []
    for at, (key, attempt, is_shown) in enumerate(made):
        state = line["state"] | {"attempt": attempt, "proposalId": f"p{at}"}
        state["intent"] = state["intent"] | {"intentId": f"i{at}", "intentKey": key}
        if is_shown:
            events.append((at, decode_event(line["topic"], 1, canonical_bytes(state))))
    for is_whole in (True, False):
        repeats, last, wrong = Repeats(is_whole=is_whole), dict.fromkeys("abc", 0), []
        for at, event in events:
            repeats.take(event)
            key, attempt, _ = made[at]
            if attempt != last[key] + 1 if is_whole else attempt <= last[key]:
                wrong.append(at)
            last[key] = last[key] + 1 if is_whole else max(last[key] + 1, attempt)
        assert [at for at, _ in repeats.found(lambda: events)] == wrong


def test_every_event_that_brings_in_an_id_is_asked_for_again() -> None:
    assert set(NAMING) == {topic for topic, _, _ in WHERE.values()} | {TokenCreated.TOPIC}


def test_a_token_that_is_created_twice_is_found() -> None:
    lines = map(json.loads, (FOLDER / "access.jsonl").read_bytes().splitlines())
    line = next(one for one in lines if one.get("topic") == TokenCreated.TOPIC)
    token = decode_event(line["topic"], line["schemaVersion"], canonical_bytes(line["state"]))
    repeats = Repeats()
    for _ in range(2):
        repeats.take(token)
    assert isinstance(token, TokenCreated)
    assert list(repeats.found(lambda: [(4, token), (9, token)])) == [
        (9, f"the token {token.token_id} was recorded before")
    ]
