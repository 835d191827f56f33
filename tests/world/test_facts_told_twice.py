"""What stands in two places of a log is the same in both, and an id is given once: else verification names the event.

The logs are forged so that every leaf hash and tree head fits.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from authority import Policy, rule
from tests.golden.garden import FOLDER
from tests.golden.generate import rehashed
from tests.pipeline.till import HOUSE, till
from tests.second_forms import Bad
from tests.second_implementation import Replay
from world.audit.verify import verify
from world.errors import RefusedError
from world.state.ports import Case
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import export_log, import_log
from worldprotocol.export.proofs.exports import check_export

Lines = list[dict[str, Any]]
Forge = Callable[[dict[str, Any]], object]

CEDAR = '@id("small")\n@verdict("approve")\npermit(principal, action, resource) when { context.input.amount < 9 };\n'


def recorded(name: str = "garden-leased") -> Lines:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines()]


def of(told: Lines, topic: str, **having: Any) -> Lines:
    """Return the events of a topic whose state has these members."""
    return [one for one in told if one.get("topic") == topic and having.items() <= one["state"].items()]


def found(told: Lines) -> list[tuple[str, int]]:
    report = check_export(io.BytesIO(b"".join(rehashed(told))))
    return [(finding.code, finding.position) for finding in report.findings]


def decision(change: Forge) -> tuple[str, Forge]:
    return "decision.made", lambda state: change(state["decision"])


BY_ENGINE = {"rule": "the engine", "source": "case", "answer": "reject", "decisive": True}
FORGED: dict[str, tuple[tuple[str, Forge], str]] = {
    "a rule of a policy": (("policy.adopted", lambda e: e["policy"]["rules"].pop()), "WRONG_HASH"),
    "a policy's own hash": (("policy.adopted", lambda e: e["policy"].update(hash="0" * 64)), "WRONG_HASH"),
    "the code of an error": (("proposal.failed", lambda e: e["error"].update(code="OTHER")), "BAD_EVENT"),
    "the words of an error": (("proposal.failed", lambda e: e["error"].update(message="all is well")), "BAD_EVENT"),
    "the authority that decided": (decision(lambda one: one.update(authority="human:eve")), "BAD_EVENT"),
    "why it was decided": (decision(lambda one: one.update(reason="because")), "BAD_EVENT"),
    "by what policy": (decision(lambda one: one.update(policyHash="0" * 64)), "BAD_EVENT"),
    "when it was decided": (decision(lambda one: one.update(decidedAt=5)), "BAD_EVENT"),
    "that the engine decided": (decision(lambda one: one.update(trace=[BY_ENGINE])), "BAD_EVENT"),
    "that there is a backup": (("decision.made", lambda e: e.update(backup=not e.get("backup"))), "BAD_REFERENCE"),
    "how scopes were enforced": (("execution.started", lambda e: e.update(enforcement="trusting")), "BAD_REFERENCE"),
    "an enforcement that is none": (("log.founded", lambda e: e.update(enforcement="lenient")), "BAD_EVENT"),
    "another logic": (("log.founded", lambda e: e.update(logic=["newer"])), "BAD_EVENT"),
}


@pytest.mark.requirement("CARD-audit", "WP-decision", "WP-hash")
@pytest.mark.parametrize("what", FORGED)
def test_what_is_told_otherwise_in_a_second_place_is_named(what: str) -> None:
    (topic, forge), code = FORGED[what]
    told = recorded()
    event = of(told, topic)[0]
    if what == "that the engine decided":
        event["schemaVersion"] = 2  # the first one of which such an outcome is known
    forge(event["state"])
    assert (code, event["position"]) in found(told)


@pytest.mark.requirement("CARD-audit", "WP-decision")
def test_the_end_of_the_time_leads_to_what_the_ruling_said() -> None:
    told = recorded()
    over = of(told, "human.timed_out")[0]
    later = [one for one in told if one.get("stream") == over["stream"] and one["position"] > over["position"]]
    judged = next(one for one in later if one["topic"] == "proposal.judged")
    assert judged["state"]["ruling"]["verdict"] == "reject"
    judged["state"]["ruling"] |= {"verdict": "approve", "approvedScope": None}
    assert ("BAD_EVENT", judged["position"]) in found(told)


def _get(state: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        state = state[int(name) if name.isdigit() else name]
    return state


IDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "decision": ("decision.made", ("decision", "decisionId")),
    "verdict": ("verdict.given", ("verdictId",)),
    "lease": ("verdict.given", ("leases", "0", "leaseId")),
    "answer": ("human.answered", ("answer", "answerId")),
    "record": ("projection.recorded", ("recordId",)),
    "proposal": ("proposal.submitted", ("proposalId",)),
}


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("what", IDS)
def test_an_id_that_is_given_twice_is_named_and_not_imported(tmp_path: Path, what: str) -> None:
    topic, path = IDS[what]
    told = recorded()
    first, second = [one for one in of(told, topic) if one["state"].get(path[0])][:2]
    old, new = _get(second["state"], path), _get(first["state"], path)
    if what == "lease":  # its end goes with it
        told = json.loads(json.dumps(told).replace(old, new))
    else:
        _get(second["state"], path[:-1])[path[-1]] = new
    position = second["position"]
    with pytest.raises(RefusedError) as refused:
        import_log(io.BytesIO(b"".join(rehashed(told))), str(tmp_path / "import.db"))
    assert (refused.value.code, refused.value.details.get("position")) == ("BAD_EXPORT", position), refused.value
    assert f"the {what} {new} was recorded before" in str(refused.value)


@rule
def little(case: Case) -> None:
    """Has no opinion; its policy is Python code."""


@pytest.mark.requirement("CARD-audit", "CARD-policy")
def test_the_hash_of_every_kind_of_policy_follows_from_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "cedar.cedar").write_text(CEDAR, encoding="utf-8")
    policies = ("house.toml", "cedar.cedar", Policy("code", [little]))
    (tmp_path / "house.toml").write_text(HOUSE, encoding="utf-8")
    with Realm.create("sqlite:///:memory:", domain=till, policies=policies, folder=tmp_path) as world:
        for name in ("house", "cedar", "code"):
            world.adopt_policy(name)
        world.shadow("code")
        export_log(world.log, out := io.BytesIO())
        assert verify(world.log).ok
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    events = [*of(told, "policy.adopted"), *of(told, "shadow.configured")]
    assert {one["state"]["policy"]["name"] for one in events} == {"house", "cedar", "code"}
    for at in [one["position"] for one in events]:
        forged = [json.loads(line) for line in out.getvalue().splitlines()]
        forged[at]["state"]["policy"]["rules"][0]["rule"] += "x"
        assert ("WRONG_HASH", at) in found(forged)


@pytest.mark.parametrize("name", ["garden", "garden-leased", "ledger", "ledger-leased", "harbour"])
def test_logs_of_earlier_versions_are_sound(name: str) -> None:
    assert found(recorded(name)) == []


@pytest.mark.requirement("KM-7.1", "CARD-audit")
@pytest.mark.parametrize(
    "channel",
    [
        {"kind": "vouched", "by": "gateway"},
        {"kind": "signed", "keyId": "0123456789abcdef"},
        {"kind": "run", "runId": "r"},
        {"kind": "engine"},
        {"kind": "other"},
    ],
)
def test_a_verdict_on_a_manifest_that_was_not_authenticated_is_named(tmp_path: Path, channel: dict[str, str]) -> None:
    with Realm.create(tmp_path / "w.db", domain=till) as world:
        world.leases.acquire(agent="ann", resource="FILE:/a")
        out = io.BytesIO()
        export_log(world.log, out)
    told: Lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert found(told) == []
    _replay(told)
    [event] = of(told, "verdict.given")
    event["state"]["channel"] = channel
    assert found(told) == [("BAD_EVENT", event["position"])]
    with pytest.raises(Bad):
        _replay(told)


def _replay(told: Lines) -> None:
    replay = Replay()
    for one in told:
        if "topic" in one:
            replay.take(one)
