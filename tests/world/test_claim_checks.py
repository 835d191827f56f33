"""Verification finds every contradiction in the claims of a log whose hashes were made to fit (HC-journal).

The second implementation, which was written from the description of the format alone, finds it at the same event.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import second_implementation as second
from tests.golden.generate import rehashed
from world.audit.verify import VerificationReport, verify
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.requirement("CARD-audit", "HC-journal")

GOLDEN = (Path(__file__).parents[1] / "golden" / "couriers.jsonl").read_bytes().splitlines(keepends=True)
Line = dict[str, Any]
Lines = list[Line]


def of(told: Lines, topic: str, nth: int = 0) -> Line:
    """Return an event by its topic."""
    return [line for line in told if line.get("topic") == topic][nth]


def next_of(told: Lines, line: Line, topic: str) -> Line:
    """Return the next event of a topic about the same effect."""
    later = [one for one in told[told.index(line) + 1 :] if one.get("topic") == topic]
    asked = line["state"].get("requirementId") or line["state"]["requirement"]["id"]
    return next(one for one in later if asked in (one["state"].get("requirementId"), _requirement(one)))


def last_of(told: Lines, line: Line, topic: str) -> Line:
    """Return the last event of a topic about the same effect before one."""
    asked = line["state"]["requirementId"]
    before = [one for one in told[: told.index(line)] if one.get("topic") == topic]
    return [one for one in before if asked in (one["state"].get("requirementId"), _requirement(one))][-1]


def _requirement(line: Line) -> Any:
    return line["state"].get("requirement", {}).get("id")


def report_of(tmp_path: Path, told: Lines) -> VerificationReport:
    """Return what verification says of a log with these events, whose leaves and heads fit."""
    address = str(tmp_path / "forged.db")
    with open_log(address, create=True) as log, log.write() as transaction:  # without the index and its constraints
        events = (line for line in told if "leaf" in line)
        transaction.append(
            NewEvent(e["stream"], e["topic"], e["schemaVersion"], canonical_bytes(e["state"])) for e in events
        )
    with Realm.open_read_only(address) as realm:
        return verify(realm.log)


def changed(topic: str, nth: int = 0, /, **members: Any) -> Callable[[Lines], Line]:
    """Return a forgery that changes members of an event, which is the one that is found."""

    def alter(told: Lines) -> Line:
        line = of(told, topic, nth)
        line["state"] |= members
        return line

    return alter


def by(topic: str, nth: int, member: str, amount: int) -> Callable[[Lines], Line]:
    """Return a forgery that adds to a number of an event, which is the one that is found."""

    def alter(told: Lines) -> Line:
        line = of(told, topic, nth)
        line["state"][member] += amount
        return line

    return alter


def renamed(topic: str, **members: Any) -> Callable[[Lines], Line]:
    """Return a forgery of the claim that a result names."""

    def alter(told: Lines) -> Line:
        line = next(one for one in told if one.get("topic") == topic and one["state"].get("claim"))
        line["state"]["claim"] |= members
        return line

    return alter


def of_no_claim(told: Lines) -> Line:
    line = of(told, "effect.fulfilled")
    del line["state"]["claim"]
    return line


def under_a_claim_that_nobody_has(told: Lines) -> Line:
    line = next(one for one in told if one.get("topic") == "effect.fulfilled" and "claim" not in one["state"])
    line["state"]["claim"] = {"claimId": "c", "token": 5, "worker": "w"}
    return line


def not_offered(told: Lines) -> Line:
    del of(told, "effect.requested")["state"]["offer"]
    return of(told, "effect.claimed")


def offered_on_other_terms(told: Lines) -> Line:
    line = next_of(told, of(told, "effect.retried"), "effect.requested")
    line["state"]["offer"]["retries"] = 5
    return line


def offered_on_no_terms(told: Lines) -> Line:
    line = of(told, "effect.requested")
    line["state"]["offer"]["timeLimitMs"] = 0
    return line


def claimed_before_its_backoff_is_over(told: Lines) -> Line:
    failed = of(told, "effect.retried")
    failed["state"]["due"] += 1
    return next_of(told, failed, "effect.claimed")


def claimed_twice(told: Lines) -> Line:
    line = of(told, "effect.lapsed")
    claim = last_of(told, line, "effect.claimed")
    line |= {"topic": "effect.extended", "state": {**line["state"], "deadline": claim["state"]["deadline"] + 10}}
    return next_of(told, line, "effect.claimed")


def extended_after_it_was_called_off(told: Lines) -> Line:
    cancelled = of(told, "execution.cancelled", 2)
    line = next(one for one in told[told.index(cancelled) :] if one.get("topic") == "effect.lapsed")
    line |= {"topic": "effect.extended", "state": {**line["state"], "deadline": line["state"]["at"] + 10}}
    return line


def claimed_after_it_was_called_off(told: Lines) -> Line:
    cancelled = of(told, "execution.cancelled", 1)
    at = told.index(cancelled)
    claim = told[at - 1]
    assert claim["topic"] == "effect.claimed"
    for member in ("topic", "state"):
        claim[member], cancelled[member] = cancelled[member], claim[member]
    cancelled["state"]["token"] = cancelled["position"]
    return cancelled


def lapsed_before_the_deadline(told: Lines) -> Line:
    line = of(told, "effect.lapsed")
    last_of(told, line, "effect.claimed")["state"]["deadline"] = line["state"]["at"]
    return line


def lapsed_though_it_must_not_be_repeated(told: Lines) -> Line:
    line = of(told, "effect.lapsed")
    last_of(told, line, "effect.requested")["state"]["idempotent"] = False
    return line


def in_doubt_before_the_deadline(told: Lines) -> Line:
    line = of(told, "effect.in_doubt")
    last_of(told, line, "effect.claimed")["state"]["deadline"] = line["state"]["at"]
    return line


def in_doubt_though_it_may_be_repeated(told: Lines) -> Line:
    line = of(told, "effect.in_doubt")
    last_of(told, line, "effect.requested")["state"]["idempotent"] = True
    return line


def in_doubt_though_nobody_claimed_it(told: Lines) -> Line:
    line = of(told, "effect.claimed")
    state = {"at": line["state"]["at"], "reason": "made up"}
    state |= {name: line["state"][name] for name in ("proposalId", "requirementId")}
    line |= {"topic": "effect.in_doubt", "state": state}
    return line


def no_retry_was_left(told: Lines) -> Line:
    line = of(told, "effect.retried")
    last_of(told, line, "effect.requested")["state"]["offer"]["retries"] = 0
    return line


def the_result_of_the_holder_dropped(told: Lines) -> Line:
    line = of(told, "effect.dropped")
    held = last_of(told, line, "effect.claimed")["state"]
    line["state"]["claim"] = {name: held[name] for name in ("claimId", "token", "worker")}
    return line


FORGERIES: dict[str, Callable[[Lines], Line]] = {
    "a token that is larger": by("effect.claimed", 0, "token", 1),
    "a token that is not larger than before": by("effect.claimed", 1, "token", -10),
    "the number of the attempt": by("effect.claimed", 0, "attempt", 1),
    "a deadline before the claim": changed("effect.claimed", deadline=5),
    "a claim of what is not offered": not_offered,
    "a claim of what is claimed": claimed_twice,
    "a claim before its backoff is over": claimed_before_its_backoff_is_over,
    "a claim after the execution was called off": claimed_after_it_was_called_off,
    "an offer with a deadline": changed("effect.requested", deadline=9),
    "an offer on other terms": offered_on_other_terms,
    "an offer on no terms": offered_on_no_terms,
    "the token of a heartbeat": by("effect.extended", 0, "token", 1),
    "the claim of a heartbeat": changed("effect.extended", claimId="another"),
    "a heartbeat into the past": changed("effect.extended", deadline=5),
    "a heartbeat after the execution was called off": extended_after_it_was_called_off,
    "the token of a lapse": by("effect.lapsed", 0, "token", 1),
    "the claim of a lapse": changed("effect.lapsed", claimId="another"),
    "a lapse before the deadline": lapsed_before_the_deadline,
    "a lapse of what must not be repeated": lapsed_though_it_must_not_be_repeated,
    "a doubt before the deadline": in_doubt_before_the_deadline,
    "a doubt about what may be repeated": in_doubt_though_it_may_be_repeated,
    "a doubt about what nobody claimed": in_doubt_though_nobody_claimed_it,
    "a result with an older token": renamed("effect.fulfilled", token=3),
    "a result of another worker": renamed("effect.fulfilled", worker="eve"),
    "a result of another claim": renamed("effect.fulfilled", claimId="another"),
    "a result without its claim": of_no_claim,
    "a result under a claim that nobody has": under_a_claim_that_nobody_has,
    "a failure with an older token": renamed("effect.retried", token=3),
    "the number of failures": by("effect.retried", 0, "failures", 1),
    "a retry that was not left": no_retry_was_left,
    "the result of the holder, dropped": the_result_of_the_holder_dropped,
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_contradiction_in_the_claims_is_a_finding_at_its_event(tmp_path: Path, what: str) -> None:
    told: Lines = [json.loads(line) for line in GOLDEN]
    position = FORGERIES[what](told)["position"]
    report = report_of(tmp_path, told)
    assert [(one.code, one.position) for one in report.findings][:1] == [("BAD_CLAIM", position)]
    found = second.verify(line.decode() for line in rehashed(told))
    assert (found["sound"], found["firstBad"]) == (False, position), found


def test_a_claim_that_comes_twice_is_named(tmp_path: Path) -> None:
    told: Lines = [json.loads(line) for line in GOLDEN]
    first, other = of(told, "effect.claimed"), of(told, "effect.claimed", 1)
    next_of(told, other, "effect.fulfilled")["state"]["claim"]["claimId"] = first["state"]["claimId"]
    other["state"]["claimId"] = first["state"]["claimId"]
    report = report_of(tmp_path, told)
    assert [(one.code, one.position) for one in report.findings][:1] == [("DUPLICATE_ID", other["position"])]
    assert second.verify(line.decode() for line in rehashed(told))["firstBad"] == other["position"]


def test_the_log_itself_has_no_finding(tmp_path: Path) -> None:
    told: Lines = [json.loads(line) for line in GOLDEN]
    assert report_of(tmp_path, told).ok
    assert second.verify(line.decode() for line in rehashed(told))["sound"]
