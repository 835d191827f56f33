"""What is written down about a projection, and how it is performed again from that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from projections import (
    ROUTER,
    FunctionProjection,
    Guard,
    Issuer,
    IssueRequest,
    NoIntent,
    ProjectionRecord,
    ProjectionRegistry,
    ProjectionRequest,
    RecordContext,
    Routed,
    Select,
    projection,
    recheck_projection,
    record_of,
    worth_recording,
)
from world.clock import SequentialIds
from world.errors import DamagedLogError, DivergenceError
from world.events.codec import decode_event, encode_event
from world.events.proposal_events import ProjectedResult, ProjectionRecorded
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes, read_json
from world.model.immutable_json import FrozenDict
from world.model.intent import IntentBody, IntentInstance
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent

SCHEMA = "5c" * 32
WORLD = "ab" * 32
ANN = ActorRef(actor_id="ann", kind="human", meta={"roles": ["editor"], "age": None})
VIEW = SnapshotView(FrozenDict({"done": 2}), FrozenDict({"computed.canSave": True}))

payloads = st.dictionaries(
    st.text(max_size=4), st.none() | st.booleans() | st.text(max_size=4) | st.lists(st.integers(0, 9)), max_size=4
)


@projection("saving", sources=["ui"])
def saving(req: ProjectionRequest) -> Any:
    if "save" not in req.source.payload:
        return None
    if not req.snapshot.computed["computed.canSave"]:
        return NoIntent("saving is not available")
    return {"kind": "intent", "body": {"type": "save", "input": req.source.payload}}


@projection("closing", priority=-1)
def closing(req: ProjectionRequest) -> Any:
    return IntentBody(type="close") if "close" in req.source.payload else NoIntent("nothing to close")


REGISTRY = ProjectionRegistry([saving, closing])


def performed(
    payload: Any, registry: ProjectionRegistry = REGISTRY, view: SnapshotView = VIEW
) -> tuple[ProjectionRecorded | None, IntentInstance | None]:
    """Return the record and the intent that come of a click, the record as it comes back from a log."""
    source = SourceEvent(kind="ui", event_id="click-1", payload=payload, occurred_at=17)
    routed = registry.route(ProjectionRequest(SCHEMA, view, ANN, source))
    intent = None
    if isinstance(routed.result, Select):
        asked = IssueRequest(SCHEMA, routed.recorded_as, ANN, source, routed.result.body)
        intent = Issuer(SequentialIds()).issue(asked)
    event = record_of(
        routed,
        RecordContext("r-1", at=1_000, actor=ANN, source=source, schema_hash=SCHEMA, world_id=WORLD),
        intent=intent,
        proposal_id=None if intent is None else "p-1",
    )
    if event is None:
        return None, intent
    again = decode_event(event.TOPIC, event.VERSION, encode_event(event))
    assert again == event
    assert isinstance(again, ProjectionRecorded)
    return again, intent


def record(payload: Any, **parts: Any) -> ProjectionRecorded:
    event, _ = performed(payload, **parts)
    assert event is not None
    return event


# Recording


@pytest.mark.requirement("INT-12.1", "INT-12.2")
def test_an_intent_is_recorded_with_everything_that_led_to_it():
    event, intent = performed({"save": True})
    assert event is not None
    assert intent is not None
    assert ProjectionRecord.from_event(event, snapshot_version=7).to_wire() == {
        "recordId": "r-1",
        "createdAt": 1_000,
        "projectionId": "saving",
        "actor": {"actorId": "ann", "kind": "human", "meta": {"roles": ["editor"], "age": None}},
        "source": {"kind": "ui", "eventId": "click-1", "payload": {"save": True}, "occurredAt": 17},
        "snapshotVersion": 7,
        "result": {"kind": "intent", "body": {"type": "save", "input": {"save": True}}},
        "intentId": intent.intent_id,
        "intentKey": intent.intent_key,
    }
    assert (event.world_id, event.schema_hash, event.considered) == (WORLD, SCHEMA, ["saving"])
    assert event.proposal_id == "p-1"


@pytest.mark.requirement("INT-12.1", "INT-12.2")
def test_nothing_with_a_reason_is_recorded_and_without_one_it_is_not():
    told = ProjectionRecord.from_event(record({"open": 1}))
    assert told.to_wire()["result"] == {"kind": "none", "reason": "closing: nothing to close"}
    assert (told.projection_id, told.intent_id, told.intent_key) == (ROUTER, None, None)
    assert {"intentId", "intentKey", "snapshotVersion"}.isdisjoint(told.to_wire())
    assert not told.selected
    assert performed({"open": 1}, ProjectionRegistry([saving])) == (None, None)


@pytest.mark.requirement("INT-12.1")
def test_every_result_but_nothing_without_a_reason_is_worth_recording():
    assert worth_recording(Select(IntentBody(type="t")))
    assert worth_recording(NoIntent("because"))
    assert not worth_recording(NoIntent())
    assert not worth_recording(NoIntent(" "))


@pytest.mark.requirement("INT-12.1", "INT-12.2")
@given(payload=payloads)
def test_recording_and_reading_changes_nothing(payload):
    event, intent = performed(payload)
    assert event is not None
    told = ProjectionRecord.from_event(event)
    assert told.source == SourceEvent(kind="ui", event_id="click-1", payload=payload, occurred_at=17)
    assert told.actor == ANN
    assert told.selected is (intent is not None)
    assert told.intent_id == (None if intent is None else intent.intent_id)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("actor", {"actorId": "a", "kind": "robot"}),
        ("source", {"kind": "ui"}),
        ("result", {"kind": "maybe"}),
        ("result", {"kind": "intent", "body": {"type": ""}}),
    ],
)
def test_a_record_that_is_none_is_damage(part, value):
    event = record({"save": True})
    state = {**read_json(encode_event(event)), part: value}
    with pytest.raises(DamagedLogError) as caught:
        decode_event(event.TOPIC, event.VERSION, canonical_bytes(state), 7)
    assert (caught.value.code, caught.value.details["position"]) == ("BAD_EVENT", 7)


@pytest.mark.parametrize("value", [{"kind": "intent"}, {"kind": "none", "body": {"type": "t"}}])
def test_a_record_with_a_contradictory_result_is_damage(value):
    event = altered(record({"save": True}), result=ProjectedResult.from_wire(value))
    for read in (lambda: ProjectionRecord.from_event(event), lambda: recheck_projection(REGISTRY, event, VIEW)):
        with pytest.raises(DamagedLogError) as caught:
            read()
        assert caught.value.code == "BAD_RECORD"
        assert caught.value.details["record"] == "r-1"


def altered(event: ProjectionRecorded, **parts: Any) -> ProjectionRecorded:
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return ProjectionRecorded(**{**fields, **parts})


# Performing it again


@pytest.mark.requirement("INT-12.2", "INT-11.1")
@given(payload=payloads, extra=st.sampled_from([{}, {"save": 1}, {"close": 1}, {"save": 1, "close": 1}]))
def test_a_record_comes_out_the_same_again(payload, extra):
    event = record({**payload, **extra})
    assert recheck_projection(REGISTRY, event, VIEW) is None
    assert recheck_projection(ProjectionRegistry(REGISTRY, invocation_mode=Guard()), event, VIEW) is None


@pytest.mark.requirement("INT-12.2")
def test_projections_that_came_later_play_no_part():
    first = projection("first", priority=9)(lambda req: IntentBody(type="other"))
    grown = ProjectionRegistry([saving, closing, first])
    assert recheck_projection(grown, record({"save": 1}), VIEW) is None
    assert recheck_projection(grown, record({"open": 1}), VIEW) is None
    assert recheck_projection(grown, record({}, registry=ProjectionRegistry()), VIEW) is None


def test_another_order_of_today_plays_no_part():
    today = ProjectionRegistry([closing])
    today.add(saving, priority=-5)
    assert recheck_projection(today, record({"close": 1, "save": 1}), VIEW) is None
    assert recheck_projection(today, record({"open": 1}), VIEW) is None


def diverged(registry: ProjectionRegistry, event: ProjectionRecorded, view: SnapshotView = VIEW) -> DivergenceError:
    difference = recheck_projection(registry, event, view)
    assert difference is not None
    assert difference.details["record"] == "r-1"
    return difference


def test_a_projection_that_is_not_at_hand_cannot_be_rechecked():
    difference = diverged(ProjectionRegistry([saving]), record({"close": 1}))
    assert difference.code == "CANNOT_RECHECK"
    assert difference.message == "Cannot recheck record r-1: projection closing is not registered; register it."


def like(name: str, answer: Any, **when: Any) -> FunctionProjection:
    return projection(name, **when)(lambda req: answer)


@pytest.mark.requirement("INT-12.2", "INT-11.1", "INV-P2")
@pytest.mark.parametrize(
    ("changed", "payload", "what"),
    [
        (like("saving", None), {"save": 1}, "the result"),
        (like("saving", IntentBody(type="save", input={"save": 2})), {"save": 1}, "the result"),
        (like("saving", IntentBody(type="keep", input={"save": 1})), {"save": 1}, "the result"),
        (like("saving", IntentBody(type="save")), {"open": 1}, "the result"),
        (like("saving", NoIntent("no")), {"open": 1}, "the result"),
        (like("saving", None, sources=["api"]), {"open": 1}, "the result"),
        (like("saving", None, sources=["api"]), {"close": 1}, "which projections were asked"),
    ],
)
def test_a_projection_that_answers_otherwise_than_recorded_is_reported(changed, payload, what):
    difference = diverged(ProjectionRegistry([changed, closing]), record(payload))
    assert (difference.code, difference.details["what"]) == ("PROJECTION_DIVERGED", what)
    assert difference.details["recorded"] != difference.details["computed"]


def test_a_projection_that_fails_now_is_reported():
    def fails(req: ProjectionRequest) -> Any:
        return req.source.payload["no such thing"]

    difference = diverged(ProjectionRegistry([projection("saving")(fails), closing]), record({"save": 1}))
    assert difference.code == "PROJECTION_DIVERGED"
    assert "KeyError" in difference.message


@pytest.mark.requirement("INT-11.1")
def test_the_view_of_another_world_is_another_result():
    view = SnapshotView(VIEW.data, FrozenDict({"computed.canSave": False}))
    difference = diverged(REGISTRY, record({"save": 1}), view)
    assert difference.details["what"] == "the result"


@pytest.mark.requirement("INT-12.2", "INV-I2")
@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"intent_key": "00" * 32}, "the intentKey"),
        ({"projection_id": "closing"}, "which projection answered"),
        ({"schema_hash": "ab" * 32}, "the intentKey"),
        ({"considered": ["saving", "closing"]}, "which projections were asked"),
    ],
)
def test_a_record_that_was_changed_is_reported(parts, what):
    difference = diverged(REGISTRY, altered(record({"save": 1}), **parts))
    assert difference.details["what"] == what


@pytest.mark.requirement("INT-3.2", "INT-11.3")
def test_the_time_of_occurrence_is_recorded_and_makes_no_difference():
    event = record({"save": 1})
    assert event.source.occurred_at == 17
    assert (
        recheck_projection(REGISTRY, altered(event, source=structs.replace(event.source, occurred_at=99)), VIEW) is None
    )


def test_a_routing_that_nobody_took_part_in_is_named_after_the_router():
    assert Routed(None, (), NoIntent("x")).recorded_as == ROUTER
    assert Routed(None, ("a",), NoIntent("x")).recorded_as == "a"
    assert Routed("b", ("a", "b"), Select(IntentBody(type="t"))).recorded_as == "b"


@pytest.mark.requirement("INT-12.2", "INT-3.1")
def test_a_record_keeps_the_whole_actor_and_the_whole_source():
    actor = ActorRef(actor_id="ann", kind="human", name="Ann Example", meta={"roles": ["editor"], "level": 3})
    source = SourceEvent(kind="ui", event_id="click-2", payload={"save": [1, None]}, occurred_at=23)
    routed = REGISTRY.route(ProjectionRequest(SCHEMA, VIEW, actor, source))
    context = RecordContext("r-2", at=1_000, actor=actor, source=source, schema_hash=SCHEMA, world_id=WORLD)
    event = record_of(routed, context)
    assert event is not None
    again = decode_event(event.TOPIC, event.VERSION, encode_event(event))
    assert isinstance(again, ProjectionRecorded)
    told = ProjectionRecord.from_event(again)
    assert (told.actor, told.source) == (actor, source)
    wire = told.to_wire()
    assert wire["actor"] == {
        "actorId": "ann",
        "kind": "human",
        "name": "Ann Example",
        "meta": {"roles": ["editor"], "level": 3},
    }
    assert wire["source"] == {
        "kind": "ui",
        "eventId": "click-2",
        "payload": {"save": [1, None]},
        "occurredAt": 23,
    }
