"""The values that cross boundaries: closed, strict, camelCase on the wire, frozen through and through."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.tables import for_each
from world.clock import ManualClock, SequentialIds, SystemClock, SystemIds, uuid7
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes, read_json
from world.model.immutable_json import FrozenDict, FrozenList
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin, IntentScope
from world.model.member_types import MAX_ID_LENGTH
from world.model.record import WireForm
from world.model.snapshot import IDLE, Meta, Snapshot, SnapshotView
from world.model.source import SourceEvent, SourceRef
from world.model.value import Value
from worldprotocol.testing import strategies as wp

SCHEMA = "5c" * 32

ids, texts, json_values, objects = wp.identifiers(), wp.texts(), wp.json_values(), wp.json_objects()


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return wire forms in which each of these may be absent."""
    return st.fixed_dictionaries({}, optional=fields)


def wire_of(required: dict[str, Any], **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Return wire forms with these members, some of which may be absent."""
    return st.fixed_dictionaries(required, optional=fields)


scopes = optional(allowedPaths=st.lists(ids, max_size=3), note=texts)
present = json_values.filter(lambda value: value is not None)
bodies = wire_of({"type": ids}, input=present, scopeProposal=scopes)
actors = wire_of({"actorId": ids, "kind": st.sampled_from(["human", "agent", "system"])}, name=texts, meta=objects)
refs = wire_of({"kind": st.sampled_from(["ui", "api", "agent", "system"]), "eventId": ids})
sources = wire_of(
    {"kind": st.sampled_from(["ui", "api", "agent", "system"]), "eventId": ids},
    payload=present,
    occurredAt=st.integers(-(2**53) + 1, 2**53 - 1),
)
origins = wire_of({"projectionId": ids, "source": refs, "actor": actors}, note=texts)
instances = st.fixed_dictionaries(
    {"body": bodies, "intentId": ids, "intentKey": ids, "meta": st.fixed_dictionaries({"origin": origins})}
)

BODY = {"type": "todo.create", "input": {"title": "T", "tags": ["a"]}, "scopeProposal": {"allowedPaths": ["data.*"]}}
ACTOR = {"actorId": "ann", "kind": "human", "name": "Ann", "meta": {"roles": ["editor"]}}
SOURCE = {"kind": "ui", "eventId": "click-1", "payload": {"button": "save"}, "occurredAt": 5}
INSTANCE = {
    "body": BODY,
    "intentId": "i-1",
    "intentKey": "k-1",
    "meta": {"origin": {"projectionId": "p", "source": {"kind": "ui", "eventId": "click-1"}, "actor": ACTOR}},
}


def faults(kind: type[Value], data: Any) -> dict[str, str]:
    """Return path and message of each fault in data that is refused."""
    with pytest.raises(RefusedError) as caught:
        kind.read(data)
    assert caught.value.code == "INVALID_VALUE"
    assert kind.__name__ in caught.value.message
    found = {fault["path"]: fault["message"] for fault in caught.value.details["faults"]}
    assert all(path in caught.value.message for path in found)
    return found


# Reading and writing


@pytest.mark.requirement("INT-3.1", "INT-3.2", "INT-5.1", "INT-5.2", "INT-5.3")
@pytest.mark.parametrize(
    ("kind", "wires"),
    [
        (IntentScope, scopes),
        (IntentBody, bodies),
        (ActorRef, actors),
        (SourceRef, refs),
        (SourceEvent, sources),
        (IntentOrigin, origins),
        (IntentInstance, instances),
    ],
)
def test_what_is_read_is_written_again_as_it_was(kind, wires):
    @given(wires)
    def is_written_again(wire):
        value = kind.read(wire)
        assert canonical_bytes(value.to_wire()) == canonical_bytes(wire)
        assert canonical_bytes(kind.read(read_json(canonical_bytes(wire))).to_wire()) == canonical_bytes(wire)
        assert kind.read(value) is value

    is_written_again()


@pytest.mark.requirement("INT-5.1")
def test_wire_names_are_in_camel_case_and_python_names_are_not():
    origin = IntentOrigin(projection_id="p", source=SourceRef(kind="ui", event_id="e"), actor=ActorRef.read(ACTOR))
    assert origin.to_wire() == {
        "projectionId": "p",
        "source": {"kind": "ui", "eventId": "e"},
        "actor": ACTOR,
    }


@pytest.mark.parametrize(
    ("kind", "wire", "path"),
    [
        (ActorRef, {"actor_id": "a", "kind": "human"}, "$.actor_id"),
        (SourceEvent, {"kind": "ui", "eventId": "e", "occurred_at": 1}, "$.occurred_at"),
        (IntentBody, {"type": "t", "scope_proposal": {}}, "$.scope_proposal"),
        (IntentInstance, {**INSTANCE, "meta": {"origin": {"projection_id": "p"}}}, "$.meta.origin.projection_id"),
    ],
)
def test_one_field_has_one_name_on_the_wire(kind, wire, path):
    assert path in faults(kind, wire)


# Strictness


@pytest.mark.requirement("INT-3.1", "INT-3.2", "INT-5.1", "INT-5.2", "INT-5.3")
@for_each(
    ("kind", "data", "path"),
    [
        (ActorRef, {"actorId": "", "kind": "human"}, "$.actorId"),
        (ActorRef, {"actorId": 5, "kind": "human"}, "$.actorId"),
        (ActorRef, {"actorId": "a" * (MAX_ID_LENGTH + 1), "kind": "human"}, "$.actorId"),
        (ActorRef, {"actorId": "a", "kind": "robot"}, "$.kind"),
        (ActorRef, {"kind": "human"}, "$.actorId"),
        (ActorRef, {"actorId": "a", "kind": "human", "meta": [1]}, "$.meta"),
        (ActorRef, {"actorId": "a", "kind": "human", "meta": {"x": {"y": [float("nan")]}}}, "$.meta.x.y[0]"),
        (ActorRef, {"actorId": "a", "kind": "human", "admin": True}, "$.admin"),
        (SourceEvent, {"kind": "cron", "eventId": "e"}, "$.kind"),
        (SourceEvent, {"kind": "ui", "eventId": "\ud800"}, "$.eventId"),
        (SourceEvent, {"kind": "ui", "eventId": "e", "occurredAt": "5"}, "$.occurredAt"),
        (SourceEvent, {"kind": "ui", "eventId": "e", "occurredAt": True}, "$.occurredAt"),
        (SourceEvent, {"kind": "ui", "eventId": "e", "occurredAt": 1.5}, "$.occurredAt"),
        (SourceEvent, {"kind": "ui", "eventId": "e", "occurredAt": 2**53}, "$.occurredAt"),
        (SourceEvent, {"kind": "ui", "eventId": "e", "payload": {"a": [1, object()]}}, "$.payload.a[1]"),
        (IntentBody, {"type": ""}, "$.type"),
        (IntentBody, {"type": "t", "input": {1: 2}}, "$.input[1]"),
        (IntentBody, {"type": "t", "patches": []}, "$.patches"),
        (IntentBody, {"type": "t", "scopeProposal": {"allowedPaths": "data.*"}}, "$.scopeProposal.allowedPaths"),
        (IntentBody, {"type": "t", "scopeProposal": {"allowedPaths": ["a", 5]}}, "$.scopeProposal.allowedPaths[1]"),
        (IntentInstance, {**INSTANCE, "intentId": None}, "$.intentId"),
        (IntentInstance, {"body": BODY}, "$.meta"),
        (IntentInstance, [], "$"),
        (IntentInstance, None, "$"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_path_of_the_field(kind, data, path):
    assert path in faults(kind, data)


def test_every_fault_is_told_at_once_and_reads_as_a_sentence():
    with pytest.raises(RefusedError) as caught:
        SourceEvent.read({"kind": "cron", "payload": [float("inf")], "more": 1}, "$.source")
    paths = [fault["path"] for fault in caught.value.details["faults"]]
    assert paths == ["$.source.kind", "$.source.eventId", "$.source.payload[0]", "$.source.more"]
    assert "$.source.payload[0]: inf is no JSON number" in caught.value.message
    assert caught.value.message.endswith(".")
    assert not caught.value.message.endswith("..")


def test_a_refusal_does_not_repeat_what_was_sent():
    with pytest.raises(RefusedError) as caught:
        ActorRef.read({"actorId": "a", "kind": "human", "name": 5, "token": "secret-value"})
    assert "secret-value" not in caught.value.message + str(caught.value.details)


# Immutability


@pytest.mark.requirement("INT-4.2", "INV-I1")
@for_each(
    "change",
    [
        lambda i: setattr(i, "intent_id", "other"),
        lambda i: setattr(i, "intent_key", "other"),
        lambda i: setattr(i, "new", 1),
        lambda i: delattr(i, "body"),
        lambda i: setattr(i.body, "type", "other"),
        lambda i: setattr(i.body, "input", None),
        lambda i: i.body.input.update(title="other"),
        lambda i: i.body.input["tags"].append("b"),
        lambda i: setattr(i.body.scope_proposal, "allowed_paths", None),
        lambda i: i.body.scope_proposal.allowed_paths.append("data.more"),
        lambda i: setattr(i.meta, "origin", None),
        lambda i: setattr(i.meta.origin, "projection_id", "other"),
        lambda i: setattr(i.meta.origin.source, "event_id", "other"),
        lambda i: setattr(i.meta.origin.actor, "kind", "system"),
        lambda i: i.meta.origin.actor.meta["roles"].append("admin"),
        lambda i: i.meta.origin.actor.meta.__delitem__("roles"),
    ],
)
def test_nothing_in_an_instance_can_be_changed(change):
    instance = IntentInstance.read(INSTANCE)
    with pytest.raises((ValidationError, TypeError, AttributeError)):
        change(instance)
    assert instance.to_wire() == INSTANCE


@pytest.mark.requirement("INT-4.2", "INV-I1")
@given(value=objects)
def test_what_a_value_was_made_from_may_change_afterwards_and_the_value_does_not(value):
    before = canonical_bytes(value)
    body = IntentBody(type="t", input=value)
    value["new"] = [1]
    assert canonical_bytes(body.input) == before
    assert isinstance(body.input, FrozenDict)


@pytest.mark.requirement("INV-I1")
def test_copies_and_pickles_of_an_instance_are_the_same_attempt():
    instance = IntentInstance.read(INSTANCE)
    for again in (copy.copy(instance), copy.deepcopy(instance), pickle.loads(pickle.dumps(instance))):
        assert again == instance
        assert again.to_wire() == INSTANCE
        assert isinstance(again.body.input, FrozenDict)
        assert isinstance(again.body.input["tags"], FrozenList)


def test_writing_gives_a_copy_that_changes_nothing():
    source = SourceEvent.read(SOURCE)
    wire = source.to_wire()
    with pytest.raises(TypeError, match="frozen"):
        wire["payload"]["button"] = "other"
    wire["payload"] = None
    assert source.to_wire() == SOURCE


def test_members_that_hold_null_are_kept_inside_of_json():
    wire = {"kind": "api", "eventId": "e", "payload": {"a": None, "b": [None, {"c": None}]}}
    assert SourceEvent.read(wire).to_wire() == wire
    assert ActorRef.read({**ACTOR, "meta": {"team": None}}).to_wire()["meta"] == {"team": None}


# Identity


def instance_of(body: IntentBody, intent_id: str, **origin: Any) -> IntentInstance:
    told = {
        "projectionId": "p",
        "source": {"kind": "ui", "eventId": "e"},
        "actor": {"actorId": "a", "kind": "human"},
    }
    meta = IntentMeta(origin=IntentOrigin.read({**told, **origin}))
    return IntentInstance(body=body, intent_id=intent_id, intent_key=body.key(SCHEMA), meta=meta)


@pytest.mark.requirement("INT-6.3")
@given(first=bodies, second=bodies)
def test_an_attempt_is_known_by_its_id_and_a_meaning_by_its_key(first, second):
    one, other = (instance_of(IntentBody.read(wire), name) for wire, name in ((first, "1"), (second, "2")))
    again = instance_of(IntentBody.read(second), "1")
    assert one != other
    assert one == again
    assert hash(one) == hash(again)
    assert len({one, other, again}) == 2
    assert one != "1"
    assert one.means_the_same_as(other) is (canonical_bytes(first) == canonical_bytes(second))


@pytest.mark.requirement("INT-5.2", "INT-6.2.2", "INV-I3")
@given(wire=bodies, first=origins, second=origins)
def test_where_an_intent_came_from_is_no_part_of_its_meaning(wire, first, second):
    body = IntentBody.read(wire)
    one, other = instance_of(body, "1", **first), instance_of(body, "2", **second)
    assert one.intent_key == other.intent_key
    assert one.means_the_same_as(other)


@pytest.mark.requirement("INT-6.2.1", "INT-6.4")
def test_type_input_scope_and_schema_each_are_part_of_the_meaning():
    body = IntentBody.read(BODY)
    others = [
        {**BODY, "type": "todo.rename"},
        {**BODY, "input": {"title": "U", "tags": ["a"]}},
        {**BODY, "scopeProposal": {"allowedPaths": ["data.todos.*"]}},
        {**BODY, "scopeProposal": {"allowedPaths": ["data.*"], "note": "n"}},
        {key: value for key, value in BODY.items() if key != "scopeProposal"},
    ]
    keys = {body.key(SCHEMA), body.key("ab" * 32), *(IntentBody.read(other).key(SCHEMA) for other in others)}
    assert len(keys) == 7


@pytest.mark.requirement("INT-6.2.1")
def test_an_absent_input_and_a_null_one_mean_the_same():
    assert IntentBody.read({"type": "t"}).key(SCHEMA) == IntentBody.read({"type": "t", "input": None}).key(SCHEMA)
    assert IntentBody.read({"type": "t", "input": None}).to_wire() == {"type": "t"}


# What readers see of a snapshot

SNAPSHOT = Snapshot.from_wire(
    {
        "data": {"todos": [{"done": False}]},
        "computed": {"computed.open": 1},
        "system": IDLE.to_wire(),
        "input": {"secret": 1},
        "meta": Meta(7, 123, "seed", SCHEMA).to_wire(),
    }
)


@pytest.mark.requirement("INT-3.3", "INT-10.1", "INV-P3")
def test_a_view_has_data_and_computed_values_and_nothing_else():
    view = SNAPSHOT.view
    assert view.to_wire() == {"data": {"todos": [{"done": False}]}, "computed": {"computed.open": 1}}
    assert {name for name in dir(view) if not name.startswith("_")} - set(dir(WireForm)) == {"data", "computed"}
    for name in ("meta", "system", "input", "version", "timestamp"):
        assert not hasattr(view, name)


@pytest.mark.requirement("INT-3.3", "INT-10.1", "INV-P3")
@pytest.mark.parametrize(
    "change",
    [
        lambda view: setattr(view, "data", {}),
        lambda view: setattr(view, "more", 1),
        lambda view: view.data.update(more=1),
        lambda view: view.data["todos"].append(1),
        lambda view: view.data["todos"][0].__setitem__("done", True),
        lambda view: view.computed.clear(),
    ],
)
def test_a_view_cannot_be_changed(change):
    view = SNAPSHOT.view
    with pytest.raises((TypeError, AttributeError)):
        change(view)
    assert SNAPSHOT.view == SnapshotView(SNAPSHOT.data, SNAPSHOT.computed)
    assert canonical_bytes(view.to_wire()) == b'{"computed":{"computed.open":1},"data":{"todos":[{"done":false}]}}'


# Clocks and ids


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_a_uuid7_carries_its_time_version_and_variant(unix_ms, entropy):
    text = uuid7(unix_ms, entropy)
    digits = text.replace("-", "")
    assert [len(part) for part in text.split("-")] == [8, 4, 4, 4, 12]
    assert int(digits[:12], 16) == unix_ms
    assert digits[12] == "7"
    assert digits[16] in "89ab"


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10), st.binary(min_size=10, max_size=10))
def test_a_uuid7_holds_74_bits_of_what_it_was_given(unix_ms, first, second):
    def kept(entropy: bytes) -> tuple[int, int]:
        bits = int.from_bytes(entropy, "big")
        return bits >> 68, bits & (2**62 - 1)

    assert (uuid7(unix_ms, first) == uuid7(unix_ms, second)) is (kept(first) == kept(second))


@pytest.mark.requirement("INT-6.1.4")
def test_ids_of_the_system_do_not_repeat_and_carry_the_time():
    source, clock = SystemIds(), SystemClock()
    before = clock.now_ms()
    made = [source.intent_id() for _ in range(2_000)] + [source.new_id() for _ in range(2_000)]
    after = clock.now_ms()
    assert len(set(made)) == 4_000
    assert all(before <= int(name.replace("-", "")[:12], 16) <= after for name in made)
    assert all(name[14] == "7" for name in made)


def test_sequential_ids_are_the_same_in_every_run_and_never_repeat():
    first, second, other = SequentialIds("a"), SequentialIds("a"), SequentialIds("b")
    made = [first.new_id(), first.intent_id(), first.new_id()]
    assert made == [second.new_id(), second.intent_id(), second.new_id()]
    assert len({*made, other.new_id()}) == 4
    assert made == sorted(made)


def test_a_manual_clock_moves_when_it_is_told_to():
    clock = ManualClock(start_ms=100, step_ms=2)
    assert [clock.now_ms(), clock.now_ms()] == [100, 102]
    clock.advance(-50)
    assert clock.now_ms() == 54


@pytest.mark.requirement("INT-6.1.4")
def test_every_random_bit_of_an_intent_id_takes_both_values():
    """74 bits, each of them 0 and 1 in 200 ids: a fixed bit would pass with a chance below 2**-190."""
    source = SystemIds()
    made = [int(source.intent_id().replace("-", ""), 16) for _ in range(200)]
    random = [(number >> 64 & 0xFFF) << 62 | number & (2**62 - 1) for number in made]
    assert all(0 < sum(number >> bit & 1 for number in random) < 200 for bit in range(74))
    steps = {second - first for first, second in itertools.pairwise(random)}
    assert len(steps) == 199
