"""From a body to one attempt at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from projections import Issuer, IssueRequest, Trigger, check_direct, direct, is_direct
from world.clock import SequentialIds, SystemIds
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes
from world.model.identity import intent_key
from world.model.intent import IntentBody, IntentInstance
from world.model.source import SourceEvent
from worldprotocol.testing import strategies as wp

SCHEMA = "5c" * 32
ANN = ActorRef(actor_id="ann", kind="human", name="Ann", meta={"roles": ["editor"]})
CRON = ActorRef(actor_id="cron", kind="system")
CLICK = SourceEvent(kind="ui", event_id="click-1", payload={"secret": 1}, occurred_at=17)

ids, json_values, bodies = wp.identifiers(), wp.json_values(), wp.intent_bodies()
issue_requests = st.builds(
    IssueRequest,
    schema_hash=ids,
    projection_id=ids,
    actor=wp.actors(),
    source=wp.source_events(),
    body=bodies,
    note=st.none() | st.text(max_size=5),
)


def request(**parts: Any) -> IssueRequest:
    whole = {
        "schema_hash": SCHEMA,
        "projection_id": "form",
        "actor": ANN,
        "source": CLICK,
        "body": IntentBody(type="todo.save", input={"title": "T"}),
    }
    return IssueRequest(**{**whole, **parts})


def refused(code: str, call: Callable[[], Any]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value


# Issuing


@pytest.mark.requirement("INT-7.2a", "INT-11.2", "INT-6.4", "INV-I4", "INV-IS1", "INV-IS2")
@given(asked=issue_requests)
def test_issuing_twice_gives_equal_keys_and_origins_and_different_ids(asked):
    issuer = Issuer(SystemIds())
    first, second = issuer.issue(asked), issuer.issue(asked)
    assert first.intent_key == second.intent_key
    assert first.meta == second.meta
    assert first.intent_id != second.intent_id
    assert first != second
    assert first.means_the_same_as(second)


@pytest.mark.requirement("INT-7.2a", "INT-6.2.1", "INV-I2", "INV-IS2", "INT-5.2")
@given(asked=issue_requests)
def test_key_and_origin_follow_from_the_request(asked):
    instance = Issuer(SequentialIds()).issue(asked)
    body = asked.body.to_wire()
    key = intent_key(asked.schema_hash, body["type"], body.get("input"), body.get("scopeProposal"))
    assert instance.intent_key == key
    origin = instance.meta.origin
    assert (origin.projection_id, origin.actor, origin.note) == (asked.projection_id, asked.actor, asked.note)
    assert (origin.source.kind, origin.source.event_id) == (asked.source.kind, asked.source.event_id)


@pytest.mark.requirement("INT-7.2b", "INV-IS3")
@given(asked=issue_requests)
def test_the_body_is_carried_on_as_it_is(asked):
    before = canonical_bytes(asked.body.to_wire())
    instance = Issuer(SequentialIds()).issue(asked)
    assert instance.body is asked.body
    assert canonical_bytes(instance.body.to_wire()) == before


@pytest.mark.requirement("INT-6.2.2", "INT-5.2", "INT-6.1.1", "INV-I3")
@given(first=issue_requests, second=issue_requests)
def test_the_key_depends_on_body_and_schema_only(first, second):
    issuer = Issuer(SequentialIds())
    other = IssueRequest(
        first.schema_hash, second.projection_id, second.actor, second.source, first.body, note=second.note
    )
    assert issuer.issue(first).intent_key == issuer.issue(other).intent_key


@pytest.mark.requirement("INT-6.4", "INV-I4")
@given(body=bodies, value=json_values)
def test_a_changed_input_is_another_meaning(body, value):
    issuer = Issuer(SequentialIds())
    changed = structs.replace(body, input=IntentBody(type="t", input=value).input)
    same = canonical_bytes(body.input) == canonical_bytes(changed.input)
    keys = [issuer.issue(request(body=one)).intent_key for one in (body, changed)]
    assert (keys[0] == keys[1]) is same


@pytest.mark.requirement("INT-5.1", "INT-7.2a")
def test_an_instance_has_this_form_on_the_wire():
    instance = Issuer(SequentialIds()).issue(request(note="by hand"))
    assert instance.to_wire() == {
        "body": {"type": "todo.save", "input": {"title": "T"}},
        "intentId": instance.intent_id,
        "intentKey": intent_key(SCHEMA, "todo.save", {"title": "T"}),
        "meta": {
            "origin": {
                "projectionId": "form",
                "source": {"kind": "ui", "eventId": "click-1"},
                "actor": {"actorId": "ann", "kind": "human", "name": "Ann", "meta": {"roles": ["editor"]}},
                "note": "by hand",
            }
        },
    }
    assert IntentInstance.read(instance.to_wire()).to_wire() == instance.to_wire()


@pytest.mark.requirement("INT-7.2a", "INT-4.2", "INV-I1", "INV-IS4")
@pytest.mark.parametrize(
    "change",
    [
        lambda i: setattr(i, "intent_id", "x"),
        lambda i: setattr(i.body, "type", "x"),
        lambda i: i.body.input.update(title="x"),
        lambda i: setattr(i.meta.origin, "note", "x"),
        lambda i: i.meta.origin.actor.meta["roles"].append("x"),
    ],
)
def test_an_issued_instance_cannot_be_changed(change):
    instance = Issuer(SequentialIds()).issue(request())
    before = canonical_bytes(instance.to_wire())
    with pytest.raises((AttributeError, TypeError)):
        change(instance)
    assert canonical_bytes(instance.to_wire()) == before


@pytest.mark.requirement("INT-6.1.1", "INT-6.1.4", "INV-IS1")
def test_every_attempt_has_an_id_of_its_own():
    issuer = Issuer(SystemIds())
    made = [issuer.issue(request()).intent_id for _ in range(1_000)]
    assert len(set(made)) == 1_000


def test_what_cannot_be_issued_is_refused_before_an_id_is_taken():
    refused("INVALID_ISSUE", lambda: request(body={"type": "t"}))
    refused("INVALID_ISSUE", lambda: request(schema_hash=""))
    source = SequentialIds()
    fault = refused("INVALID_VALUE", lambda: Issuer(source).issue(request(projection_id="")))
    assert fault.details["faults"][0]["path"] == "$.projectionId"
    assert source.new_id() == SequentialIds().new_id()


# Direct intents

CLEANUP = IntentBody(type="maintenance.cleanup", input={"olderThanDays": 30})


def scheduled(**parts: Any) -> IntentInstance:
    of_trigger = {name: parts.pop(name) for name in ("event_id", "job", "payload") if name in parts}
    trigger = Trigger(**{"event_id": "cron-daily-001", **of_trigger})
    whole: dict[str, Any] = {"schema_hash": SCHEMA, "actor": CRON, "body": CLEANUP}
    return direct(Issuer(SystemIds()), trigger=trigger, **{**whole, **parts})


@pytest.mark.requirement("INT-8.1", "INT-8.2", "INV-SD1", "INV-SD2", "INV-SD3")
def test_a_system_issues_an_intent_without_a_projection():
    instance = scheduled(job="scheduler", payload={"run": 1}, note="every night")
    origin = instance.meta.origin
    assert (origin.projection_id, origin.source.kind, origin.actor) == ("system:scheduler", "system", CRON)
    assert (origin.source.event_id, origin.note) == ("cron-daily-001", "every night")
    assert instance.body is CLEANUP
    assert instance.intent_key == CLEANUP.key(SCHEMA)
    assert is_direct(instance)
    check_direct(instance, SCHEMA)


@pytest.mark.requirement("INT-8.2", "INV-SD3", "INT-11.2")
@given(body=bodies, event_id=ids)
def test_all_that_holds_for_intents_holds_for_direct_ones(body, event_id):
    first, second = scheduled(body=body, event_id=event_id), scheduled(body=body, event_id=event_id)
    assert first.meta == second.meta
    assert first.meta.origin.projection_id == "system:direct"
    assert first.intent_key == second.intent_key == body.key(SCHEMA)
    assert first.intent_id != second.intent_id


@pytest.mark.requirement("INT-8.2", "INV-SD1", "INV-SD2")
@pytest.mark.parametrize("actor", [ANN, ActorRef(actor_id="bot", kind="agent")])
def test_only_systems_issue_directly(actor):
    assert actor.actor_id in refused("NOT_A_DIRECT_INTENT", lambda: scheduled(actor=actor)).message


@pytest.mark.parametrize("job", ["", "system:scheduler", "a b", "é", ".x", "x" * 200, "a\n", None, 5])
def test_a_job_has_a_plain_name(job):
    refused("NOT_A_DIRECT_INTENT", lambda: scheduled(job=job))


@pytest.mark.parametrize(("part", "value"), [("event_id", ""), ("event_id", 5), ("payload", object())])
def test_what_triggered_a_job_must_be_a_source_event(part, value):
    refused("INVALID_VALUE", lambda: scheduled(**{part: value}))


def claimed(projection_id: str, kind: str, actor: ActorRef) -> IntentInstance:
    source = SourceEvent.read({"kind": kind, "eventId": "e"})
    return Issuer(SequentialIds()).issue(request(projection_id=projection_id, source=source, actor=actor))


@pytest.mark.requirement("INT-8.2", "INV-SD1", "INV-SD2")
@pytest.mark.parametrize(
    ("projection_id", "kind", "actor"),
    [("system:direct", "ui", CRON), ("system:direct", "system", ANN), ("system:", "system", CRON)],
)
def test_an_instance_that_only_claims_to_be_direct_is_refused(projection_id, kind, actor):
    refused("NOT_A_DIRECT_INTENT", lambda: check_direct(claimed(projection_id, kind, actor)))


@pytest.mark.requirement("INT-8.2")
def test_other_instances_pass_whatever_their_source_is():
    for kind, actor in (("ui", ANN), ("system", CRON), ("api", CRON)):
        check_direct(claimed("form", kind, actor), "another schema")


@pytest.mark.requirement("INV-SD3", "INV-I2")
def test_a_direct_intent_with_a_key_that_does_not_follow_from_it_is_refused():
    instance = scheduled()
    refused("WRONG_SCHEMA", lambda: check_direct(instance, "ab" * 32))
    check_direct(instance)
