"""The JSON of every value of the engine, member by member: complete, with its least, and read back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tables import for_each
from world.core import EffectAnswer
from world.errors import RefusedError
from world.klis.conflict import Conflict
from world.klis.ledger import Ledger
from world.klis.manifest import manifest_schema
from world.klis.observation import Seen
from world.klis.predicate import Predicate
from world.klis.resources.resource_reading import read_resource
from world.klis.session import Lease, LeaseTerms, Session, SessionName
from world.klis.settings import KlisSettings
from world.klis.triple import Confidence, Triple
from world.model.actor import ActorRef
from world.model.decision import DecisionRecord, Quorum, RuleOutcome, Ruling, voters
from world.model.immutable_json import freeze
from world.model.intent import IntentInstance, IntentScope
from world.model.patch import Patch, set_, unset
from world.model.snapshot import ErrorValue, Meta, Requirement, Snapshot, SnapshotView, System
from world.model.source import SourceEvent

FILE = read_resource("FILE:/a/*")
SCOPE = IntentScope(allowed_paths=("data.a",), note="why")
ERROR = ErrorValue.at("CODE", "A sentence.", "act", "flow.steps[0]", 7, freeze({"n": 1}))
ERROR_WIRE: dict[str, Any] = {
    "code": "CODE",
    "message": "A sentence.",
    "source": {"actionId": "act", "nodePath": "flow.steps[0]"},
    "timestamp": 7,
    "context": {"n": 1},
}
PLAIN_ERROR = ErrorValue.at("C", "m", "", "", 0)
PLAIN_ERROR_WIRE = {"code": "C", "message": "m", "source": {"actionId": "", "nodePath": ""}, "timestamp": 0}
NEED = Requirement("r1", "mail", freeze({"to": "ann"}), "act", "flow")
NEED_WIRE = {"id": "r1", "type": "mail", "params": {"to": "ann"}, "actionId": "act", "nodePath": "flow"}
OUTCOME = RuleOutcome(
    "rule", "module:3", "escalate", "because", SCOPE, ("ann", "bob"), decisive=True, quorum=Quorum("threshold", 2)
)
OUTCOME_WIRE = {
    "rule": "rule",
    "source": "module:3",
    "answer": "escalate",
    "reason": "because",
    "scope": {"allowedPaths": ("data.a",), "note": "why"},
    "to": ["ann", "bob"],
    "quorum": {"rule": "threshold", "threshold": 2},
    "decisive": True,
}
LEAST_OUTCOME = RuleOutcome("rule", "s", "none")
WAITING = Ruling(
    "wait",
    "hitl",
    "asked",
    trace=(LEAST_OUTCOME,),
    policy_hash="p",
    ask=("ann",),
    timeout_ms=5,
    on_timeout="escalate",
    step=1,
)
RECORD: dict[str, Any] = {
    "decision_id": "d",
    "proposal_id": "p",
    "authority": "a",
    "reason": "r",
    "decided_at": 3,
}
RECORD_WIRE = {"decisionId": "d", "proposalId": "p", "authority": "a", "reason": "r", "decidedAt": 3}
SYSTEM = System("error", ERROR, (ERROR, PLAIN_ERROR), (NEED,), "act")
SYSTEM_WIRE = {
    "status": "error",
    "lastError": ERROR_WIRE,
    "errors": [ERROR_WIRE, PLAIN_ERROR_WIRE],
    "pendingRequirements": [NEED_WIRE],
    "currentAction": "act",
}
EMPTY_SYSTEM_WIRE: dict[str, Any] = {
    "status": "idle",
    "lastError": None,
    "errors": [],
    "pendingRequirements": [],
    "currentAction": None,
}
META_WIRE = {"version": 2, "timestamp": 9, "randomSeed": "s", "schemaHash": "h"}
SNAPSHOT = Snapshot(freeze({"a": 1}), freeze({"computed.x": 2}), SYSTEM, freeze({"in": 3}), Meta(2, 9, "s", "h"))

BOTH_WAYS: list[Any] = [
    (Quorum("majority"), {"rule": "majority"}),
    (Quorum("threshold", 2), {"rule": "threshold", "threshold": 2}),
    (OUTCOME, OUTCOME_WIRE),
    (LEAST_OUTCOME, {"rule": "rule", "source": "s", "answer": "none"}),
    (
        WAITING,
        {
            "verdict": "wait",
            "authority": "hitl",
            "reason": "asked",
            "trace": [{"rule": "rule", "source": "s", "answer": "none"}],
            "policyHash": "p",
            "ask": ["ann"],
            "onTimeout": "escalate",
            "timeoutMs": 5,
            "step": 1,
        },
    ),
    (
        Ruling("wait", "hitl", "asked", ask=("ann",)),
        {"verdict": "wait", "authority": "hitl", "reason": "asked", "ask": ["ann"], "onTimeout": "reject"},
    ),
    (Ruling("reject", "a", "no"), {"verdict": "reject", "authority": "a", "reason": "no"}),
    (
        Ruling("approve", "a", "yes", SCOPE),
        {
            "verdict": "approve",
            "authority": "a",
            "reason": "yes",
            "approvedScope": {"allowedPaths": ("data.a",), "note": "why"},
        },
    ),
    (
        Ruling("approve", "a", "yes"),
        {"verdict": "approve", "authority": "a", "reason": "yes", "approvedScope": None},
    ),
    (DecisionRecord(decision="rejected", **RECORD), {**RECORD_WIRE, "decision": "rejected"}),
    (
        DecisionRecord(decision="approved", approved_scope=SCOPE, policy_hash="p", trace=(LEAST_OUTCOME,), **RECORD),
        {
            **RECORD_WIRE,
            "decision": "approved",
            "approvedScope": {"allowedPaths": ("data.a",), "note": "why"},
            "policyHash": "p",
            "trace": [{"rule": "rule", "source": "s", "answer": "none"}],
        },
    ),
    (
        DecisionRecord(decision="approved", approved_scope=None, **RECORD),
        {**RECORD_WIRE, "decision": "approved", "approvedScope": None},
    ),
    (ERROR, ERROR_WIRE),
    (PLAIN_ERROR, PLAIN_ERROR_WIRE),
    (NEED, NEED_WIRE),
    (SYSTEM, SYSTEM_WIRE),
    (System(), EMPTY_SYSTEM_WIRE),
    (
        SNAPSHOT,
        {
            "data": {"a": 1},
            "computed": {"computed.x": 2},
            "system": SYSTEM_WIRE,
            "input": {"in": 3},
            "meta": META_WIRE,
        },
    ),
    (set_("a.b", [1]), {"op": "set", "path": "a.b", "value": [1]}),
    (unset("a.b"), {"op": "unset", "path": "a.b"}),
    (Patch("merge", "a", {"x": None}), {"op": "merge", "path": "a", "value": {"x": None}}),
    (
        EffectAnswer(freeze([1]), (unset("a"),), ERROR),
        {"value": [1], "patches": [{"op": "unset", "path": "a"}], "error": ERROR_WIRE},
    ),
    (EffectAnswer(), {"value": None, "patches": [], "error": None}),
]


@pytest.mark.requirement("INT-14.4", "HC-snapshot", "WP-decision")
@for_each(("value", "wire"), BOTH_WAYS, ids=lambda one: type(one).__name__)
def test_a_value_has_this_json_and_is_read_from_it(value: Any, wire: dict[str, Any]) -> None:
    assert freeze(value.to_wire()) == freeze(wire)
    assert type(value).from_wire(freeze(wire)) == value


@pytest.mark.parametrize(
    ("kind", "wire", "lacking"),
    [
        (ErrorValue, ERROR_WIRE, ("code", "message", "source", "timestamp")),
        (Requirement, NEED_WIRE, ("id", "type", "params", "actionId", "nodePath")),
    ],
)
def test_a_value_that_lacks_a_member_is_refused(kind: Any, wire: dict[str, Any], lacking: tuple[str, ...]) -> None:
    for name in lacking:
        with pytest.raises(RefusedError) as caught:
            kind.from_wire({key: value for key, value in wire.items() if key != name})
        assert caught.value.code == "INVALID_SNAPSHOT"


def test_a_requirement_may_name_its_place_as_a_flow_position() -> None:
    wire = {key: value for key, value in NEED_WIRE.items() if key != "nodePath"}
    assert Requirement.from_wire({**wire, "flowPosition": {"nodePath": "flow"}}) == NEED


def test_what_readers_see_of_a_snapshot_is_its_data_and_computed_values() -> None:
    assert SNAPSHOT.view == SnapshotView(freeze({"a": 1}), freeze({"computed.x": 2}))
    assert SNAPSHOT.view.to_wire() == {"data": {"a": 1}, "computed": {"computed.x": 2}}


@pytest.mark.requirement("WP-bind")
def test_a_quorum_needs_all_more_than_half_or_so_many() -> None:
    assert [Quorum("unanimous").needed(count) for count in (1, 2, 5)] == [1, 2, 5]
    assert [Quorum("majority").needed(count) for count in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    assert [Quorum("threshold", 2).needed(count) for count in (2, 5)] == [2, 2]
    assert Quorum("threshold").needed(3) == 1


@pytest.mark.requirement("WP-bind")
def test_the_voters_of_a_binding_are_those_of_all_its_steps() -> None:
    binding = {"members": ["ann", "bob"], "then": [{"members": ["cat"]}, {"actors": ["dan"]}]}
    assert voters(binding) == ["ann", "bob", "cat"]
    assert voters({"kind": "auto_approve"}) == []


@pytest.mark.requirement("KP-0", "KM-2.1")
def test_a_lease_a_conflict_and_a_triple_have_this_json() -> None:
    session = SessionName("ann", "s1", (5, "ann"))
    triple = Triple(Predicate.MUTATES, FILE, Confidence.LOW)
    lease = Lease.granted("l1", 3, session, triple, "v1", LeaseTerms(100, 50, 70))
    assert lease.to_wire() == {
        "leaseId": "l1",
        "token": 3,
        "state": "Active",
        "agentId": "ann",
        "sessionId": "s1",
        "predicate": "MUTATES",
        "resource": "FILE:/a/*",
        "grantedAt": 100,
        "ttlMs": 50,
        "expiresAt": 150,
        "holdUntil": 170,
        "verdictId": "v1",
    }
    short = Lease.granted("l2", 4, session, triple, "v1", LeaseTerms(100, 90, 70))
    assert (short.expires_at, short.hold_until) == (170, 170)
    sealed = Lease.granted("l3", 5, session, triple, "v1", LeaseTerms(100, None, 70))
    assert (sealed.expires_at, sealed.hold_until) == (None, None)
    assert triple.to_wire() == {"predicate": "MUTATES", "resource": "FILE:/a/*", "confidence": "Low"}
    assert Seen(Predicate.MUTATES, FILE).claim().to_wire() == {"predicate": "MUTATES", "resource": "FILE:/a/*"}
    plain = {"intent": 2, "holder": "ann", "session": "s1", "predicate": "MUTATES", "resource": "FILE:/a/*"}
    told = (2, "ann", "s1", Predicate.MUTATES, "FILE:/a/*")
    assert Conflict(*told, lease_id="l1").named().to_wire() == {**plain, "leaseId": "l1"}
    assert Conflict(*told, request_id="q1").named().to_wire() == {**plain, "requestId": "q1"}


@pytest.mark.requirement("KP-7")
def test_the_leases_of_a_session_are_in_the_order_of_their_tokens() -> None:
    session = Session("ann", "s1", (5, "ann"))
    assert session.order == (5, "ann", "s1")
    assert session.is_idle
    for token, key in ((3, "b"), (1, "a"), (2, "b")):
        triple = Triple(Predicate.CONSUMES, FILE)
        lease = Lease.granted(f"l{token}", token, session.name, triple, "v", LeaseTerms(0, 1, 1))
        session.places.setdefault(key, []).append(lease)
    assert [lease.token for lease in session.leases()] == [1, 2, 3]
    assert not session.is_idle
    for busy in ({"waiting": {"q"}}, {"dies": 1}):
        other = Session("ann", "s2", (5, "ann"))
        for name, value in busy.items():
            setattr(other, name, value)
        assert not other.is_idle


@pytest.mark.requirement("KM-5")
def test_the_json_schema_of_manifests_is_this_one() -> None:
    name = {
        "type": "string",
        "minLength": 1,
        "maxLength": 256,
        "not": {"pattern": r"[\u0000-\u001f\u007f-\u009f\u2028\u2029]"},
    }
    ms = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}

    def text(most: int) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": most}

    def expected(triples: int, chars: int) -> dict[str, Any]:
        fields: dict[str, dict[str, Any]] = {
            "ver": {"type": "string", "pattern": r"^1\.[0-9]{1,9}$"},
            "session_id": name,
            "agent_id": name,
            "scope": {"type": "array", "items": {"$ref": "#/$defs/Intent"}, "minItems": 1, "maxItems": triples},
            "priority_timestamp": ms,
            "ordered": {"type": "boolean"},
            "issued_at": ms,
            "nonce": name,
            "signature": {"type": "string", "maxLength": 1_024},
        }
        confidence = [
            {"enum": ["High", "Medium", "Low"], "type": "string"},
            {"type": "number", "minimum": 0, "maximum": 1},
        ]
        predicates = ["PROVIDES", "CONSUMES", "MUTATES", "DELETES", "DEPENDS_ON", "RENAMES"]
        intent = {
            "title": "Intent",
            "type": "object",
            "additionalProperties": False,
            "required": ["predicate", "resource"],
            "properties": {
                "predicate": {"title": "Predicate", "enum": predicates},
                "resource": {"title": "Resource", **text(chars)},
                "confidence": {"title": "Confidence", "anyOf": confidence},
                "to": {"title": "To", **text(chars)},
            },
            "dependentSchemas": {"to": {"properties": {"predicate": {"const": "RENAMES"}}}},
        }
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Intent manifest",
            "type": "object",
            "additionalProperties": False,
            "required": ["ver", "session_id", "agent_id", "scope"],
            "properties": {key: {"title": key.replace("_", " ").title(), **value} for key, value in fields.items()},
            "$defs": {"Intent": intent},
        }

    assert manifest_schema() == expected(10_000, 4_096)
    assert manifest_schema(KlisSettings(max_triples=7, max_resource_chars=9)) == expected(7, 9)


@pytest.mark.requirement("KP-0")
def test_the_settings_of_klis_have_these_defaults() -> None:
    assert KlisSettings().to_wire() == {
        "max_triples": 10_000,
        "max_resource_chars": 4_096,
        "max_depth": 256,
        "min_subtree_depth": 1,
        "default_ttl_ms": 60_000,
        "max_ttl_ms": 86_400_000,
        "max_hold_ms": 604_800_000,
        "max_waiting": 100_000,
        "backoff_ms": 1_000,
        "max_backoff_ms": 60_000,
        "max_named_conflicts": 16,
        "max_proposal_retries": 30,
        "accept_priority": False,
        "max_signature_age_ms": 300_000,
        "administrators": "operator",
        "lower_case": False,
        "authentication": "channel",
        "manifest_rules": 3,
        "wake_rules": 2,
    }
    assert Ledger().in_force == KlisSettings()


@pytest.mark.requirement("INT-3.1", "INT-3.2", "INT-14.4")
def test_actors_sources_and_intents_have_this_json() -> None:
    actor = {"actorId": "ann", "kind": "human", "name": "Ann", "meta": {"team": "x"}}
    assert ActorRef.read(actor).to_wire() == actor
    source = {"kind": "ui", "eventId": "e", "payload": {"x": None}, "occurredAt": 5}
    assert SourceEvent.read(source).to_wire() == source
    intent = {
        "body": {"type": "act", "input": {"n": 1}, "scopeProposal": {"allowedPaths": ["data.a"], "note": "why"}},
        "intentId": "i",
        "intentKey": "k",
        "meta": {
            "origin": {
                "projectionId": "p",
                "source": {"kind": "ui", "eventId": "e"},
                "actor": {"actorId": "ann", "kind": "human"},
                "note": "by hand",
            }
        },
    }
    read = IntentInstance.read(intent)
    assert freeze(read.to_wire()) == freeze(intent)
    assert hash(read) == hash(IntentInstance.read({**intent, "intentKey": "other"}))
    assert hash(read) != hash(IntentInstance.read({**intent, "intentId": "j"}))
