"""The JSON of what projections are given and answer, member by member, and the sentences of what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from projections import (
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
    record_of,
)
from projections.availability import Availability
from projections.catalog import ActionCatalog, CatalogRequest, ProjectedAction, Pruning
from projections.contract import check_projection_id, check_sources
from projections.descriptors import ActionDescriptor
from projections.recorder import is_refusal, routed_refusal
from projections.registry import read_acceptance, registered
from projections.results import failed, read_result
from tests.support.making_events import made
from world.clock import SequentialIds
from world.errors import DamagedLogError, RefusedError
from world.events.proposal_events import ProjectedResult, ProjectionRecorded
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict, freeze
from world.model.intent import IntentBody
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent

ANN_WIRE = {"actorId": "ann", "kind": "human"}
CLICK_WIRE = {"kind": "ui", "eventId": "e", "payload": {"x": 1}}
ANN, CLICK = ActorRef.read(ANN_WIRE), SourceEvent.read({**CLICK_WIRE, "occurredAt": 5})
VIEW = SnapshotView(freeze({"a": 1}), freeze({"computed.b": 2}))
BODY = IntentBody(type="save", input={"n": 1})
BODY_WIRE = {"type": "save", "input": {"n": 1}}
CHOSEN = Routed("till", ("early", "till"), Select(BODY))


@pytest.mark.requirement("INT-7.1", "INT-10.1", "INT-11.3")
def test_a_request_has_the_schema_the_view_the_actor_and_the_source_without_its_time() -> None:
    assert ProjectionRequest("h", VIEW, ANN, CLICK).to_wire() == {
        "schemaHash": "h",
        "snapshot": {"data": {"a": 1}, "computed": {"computed.b": 2}},
        "actor": ANN_WIRE,
        "source": CLICK_WIRE,
    }


@pytest.mark.requirement("INT-7.1")
def test_a_result_is_an_intent_or_nothing() -> None:
    for given, wire in [
        (Select(BODY), {"kind": "intent", "body": BODY_WIRE}),
        (BODY, {"kind": "intent", "body": BODY_WIRE}),
        ({"kind": "intent", "body": BODY_WIRE}, {"kind": "intent", "body": BODY_WIRE}),
        (None, {"kind": "none"}),
        (NoIntent(), {"kind": "none"}),
        (NoIntent(" "), {"kind": "none"}),
        (NoIntent("why"), {"kind": "none", "reason": "why"}),
        ({"kind": "none", "reason": "why"}, {"kind": "none", "reason": "why"}),
        ({"kind": "none"}, {"kind": "none"}),
    ]:
        assert read_result("p", given).to_wire() == wire
        assert read_result("p", given).kind == wire["kind"]


WANTED = 'Return None, NoIntent(reason), an IntentBody, or {"kind": "intent", "body": {...}}.'


@pytest.mark.requirement("INV-P4")
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (5, "it is int 5"),
        ([1], "it is list [1]"),
        ({}, "its kind is None, neither 'intent' nor 'none'"),
        ({"kind": "patch"}, "its kind is 'patch', neither 'intent' nor 'none'"),
        ({"kind": 5}, "its kind is 5, neither 'intent' nor 'none'"),
        ({"kind": "none", "body": {}, "also": 1}, "a result of kind 'none' has no also, body"),
        ({"kind": "intent", "body": BODY_WIRE, "patches": []}, "a result of kind 'intent' has no patches"),
        (Select("save"), "Select holds str 'save' in place of an IntentBody"),  # type: ignore[arg-type]
        ({"kind": "intent", "body": {"type": ""}}, None),
        ({"kind": "intent"}, None),
    ],
)
def test_what_is_no_result_is_refused_with_what_it_is(answer: Any, why: str | None) -> None:
    with pytest.raises(RefusedError) as caught:
        read_result("p", answer)
    assert (caught.value.code, caught.value.details["projection"]) == ("INVALID_PROJECTION_RESULT", "p")
    if why is None:
        assert "$.body" in caught.value.message
        assert ".. " not in caught.value.message
    else:
        assert caught.value.message == f"The projection 'p' gave no valid answer: {why}. {WANTED}"
    with pytest.raises(RefusedError, match="A reason is a string, not int 5"):
        NoIntent(5)  # type: ignore[arg-type]


@pytest.mark.requirement("INT-12.2", "INT-12.1")
def test_a_record_has_these_members_in_the_log_and_in_the_specifications_form() -> None:
    asked = IssueRequest("h", "till", ANN, CLICK, BODY, note="by hand")
    intent = Issuer(SequentialIds()).issue(asked)
    assert intent.meta.to_wire()["origin"] == {
        "projectionId": "till",
        "source": {"kind": "ui", "eventId": "e"},
        "actor": ANN_WIRE,
        "note": "by hand",
    }
    context = RecordContext(record_id="r", at=7, actor=ANN, source=CLICK, schema_hash="h", world_id="w")
    event = record_of(CHOSEN, context, intent=intent, proposal_id="p")
    assert event == made(
        ProjectionRecorded,
        at=7,
        record_id="r",
        projection_id="till",
        considered=["early", "till"],
        actor=ANN_WIRE,
        source={**CLICK_WIRE, "occurredAt": 5},
        schema_hash="h",
        world_id="w",
        result={"kind": "intent", "body": BODY_WIRE},
        proposal_id="p",
        intent_id=intent.intent_id,
        intent_key=intent.intent_key,
    )
    record = ProjectionRecord.from_event(event, snapshot_version=3)
    least = {
        "recordId": "r",
        "createdAt": 7,
        "projectionId": "till",
        "actor": ANN_WIRE,
        "source": {**CLICK_WIRE, "occurredAt": 5},
        "result": {"kind": "intent", "body": BODY_WIRE},
    }
    assert record.selected
    assert record.to_wire() == {
        **least,
        "snapshotVersion": 3,
        "intentId": intent.intent_id,
        "intentKey": intent.intent_key,
    }
    silent = record_of(Routed(None, ("early",), NoIntent("no")), context)
    assert silent is not None
    told = ProjectionRecord.from_event(silent)
    assert not told.selected
    assert told.to_wire() == {**least, "projectionId": "early", "result": {"kind": "none", "reason": "no"}}
    assert record_of(Routed(None, ("a", "b"), NoIntent()), context) is None
    both = record_of(Routed(None, ("a", "b"), NoIntent("no")), context)
    assert both is not None
    assert (both.projection_id, both.intent_id, both.intent_key, both.proposal_id) == ("router", None, None, None)
    parts = {one: getattr(event, one) for one in event.__struct_fields__} | {"result": ProjectedResult(kind="intent")}
    with pytest.raises(DamagedLogError) as caught:
        ProjectionRecord.from_event(ProjectionRecorded(**parts))
    assert (caught.value.code, caught.value.details["record"]) == ("BAD_RECORD", "r")


@pytest.mark.requirement("INT-12.1", "INT-9.2")
def test_an_impure_projection_is_recorded_with_its_refusal_and_no_other_is() -> None:
    impure = RefusedError("PROJECTION_IMPURE", "it read the clock.", projection="b", considered=["a", "b"])
    routed = routed_refusal(impure)
    assert routed == Routed("b", ("a", "b"), NoIntent("PROJECTION_IMPURE: it read the clock."))
    assert is_refusal(routed.result)
    for result in (Select(BODY), NoIntent(), NoIntent("PROJECTION_IMPURE"), NoIntent("why PROJECTION_IMPURE: x")):
        assert not is_refusal(result)
    assert routed_refusal(RefusedError("PROJECTION_FAILED", "no", projection="b", considered=[])) is None
    assert failed("p", ValueError()).details["projection"] == "p"
    assert "ValueError" in failed("p", ValueError("so.")).message


@pytest.mark.requirement("INT-3.4c", "INT-7.4.4b", "INT-7.4.3a")
def test_descriptors_catalogs_and_options_have_this_json() -> None:
    full = {
        "type": "act",
        "label": "Act",
        "description": "Acts.",
        "inputSchema": {"type": "object"},
        "available": {"kind": "lit", "value": True},
    }
    for wire in (full, {"type": "act"}, {"type": "act", "inputSchema": True}):
        assert ActionDescriptor.read(wire).to_wire() == wire
    shown = ProjectedAction("act", Availability("unknown", "missing_context"), "Act", "Acts.", freeze({}))
    shown_wire = {
        "type": "act",
        "label": "Act",
        "description": "Acts.",
        "inputSchema": {},
        "availability": {"status": "unknown", "reason": "missing_context"},
    }
    assert shown.to_wire() == shown_wire
    assert ProjectedAction("act", Availability("available")).to_wire() == {
        "type": "act",
        "availability": {"status": "available"},
    }
    assert ActionCatalog("h", "c", (shown,)).to_wire() == {
        "kind": "action_catalog",
        "schemaHash": "h",
        "catalogHash": "c",
        "actions": [shown_wire],
    }
    defaults = {"policy": "drop_unavailable", "includeUnknown": True, "sort": "type_lex", "maxActions": None}
    read = Pruning.read(dict.fromkeys(defaults))
    assert Pruning().model_dump(by_alias=True) == read.model_dump(by_alias=True) == defaults
    other = {"policy": "mark_only", "includeUnknown": False, "sort": "schema_order", "maxActions": 0}
    assert Pruning.read(other).model_dump(by_alias=True) == other
    keeps = {
        (policy, unknown): [
            Pruning.read({"policy": policy, "includeUnknown": unknown}).keeps(status)
            for status in ("available", "unavailable", "unknown")
        ]
        for policy in ("drop_unavailable", "mark_only")
        for unknown in (True, False)
    }
    assert keeps == {
        ("drop_unavailable", True): [True, False, True],
        ("drop_unavailable", False): [True, False, False],
        ("mark_only", True): [True, True, True],
        ("mark_only", False): [True, True, False],
    }


@pytest.mark.requirement("INT-7.4.1")
def test_a_catalog_request_is_read_with_its_defaults_and_refused_with_its_fault() -> None:
    least = {"schemaHash": "h", "snapshot": {"data": {}}, "actions": []}
    read = CatalogRequest.read(least)
    assert (read.actor, read.actions, read.mode, read.pruning) == (None, (), "llm", Pruning())
    assert read.snapshot == SnapshotView(FrozenDict(), FrozenDict())
    nulls = {"actor": None, "mode": None, "pruning": None}
    assert CatalogRequest.read({**least, **nulls}) == read
    more = {"actor": ANN_WIRE, "mode": "debug", "pruning": {"maxActions": 1}, "actions": [{"type": "a"}]}
    full = CatalogRequest.read({**least, **more})
    assert (full.actor, full.mode, full.pruning.max_actions, full.actions[0].type) == (ANN, "debug", 1, "a")
    for wrong, clause in [
        (5, "a request is an object with schemaHash, and besides it only "),
        ({**least, "more": 1}, "a request is an object with schemaHash, and besides it only "),
        ({**least, "schemaHash": 5}, "a request is an object with schemaHash, and besides it only "),
        ({**least, "snapshot": 5}, "a request has a snapshot, an object, and actions, an array"),
        ({**least, "actions": {}}, "a request has a snapshot, an object, and actions, an array"),
        ({**least, "snapshot": {"data": 5}}, "a snapshot has data and computed, both objects"),
        ({**least, "snapshot": {"data": {}, "computed": [1]}}, "a snapshot has data and computed, both objects"),
        ({**least, "mode": "x"}, "a mode is one of llm, ui, debug, not 'x'"),
        ({**least, "actions": [{"type": "a"}] * 2}, "there are two actions of type 'a'"),
    ]:
        with pytest.raises(RefusedError) as caught:
            CatalogRequest.read(wrong)
        assert caught.value.code == "INVALID_VALUE"
        assert caught.value.message.startswith(f"This is not a valid CatalogRequest: {clause}")


@pytest.mark.requirement("INT-7.1")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (5, "is not a valid id: use a printable string"),
        ("", "is not a valid id: use a printable string"),
        (" ", "is not a valid id: use a printable string"),
        ("a\n", "is not a valid id: use a printable string"),
        ("x" * 513, "has 513 characters; the limit is 512"),
        ("system:x", "begins with 'system:', which marks intents that no projection produced (SD-1)"),
        ("api:intent", "is reserved for intents that a caller submits itself"),
        ("router", "is reserved for the router in records"),
    ],
)
def test_an_id_that_no_projection_may_have_says_why(name: Any, fault: str) -> None:
    with pytest.raises(RefusedError) as caught:
        check_projection_id(name)
    assert caught.value.code == "INVALID_PROJECTION"
    assert caught.value.message == f"The projection id {repr(name)[:80]} {fault}."
    assert caught.value.details["projection"] == repr(name)[:80]


def test_what_says_when_a_projection_is_asked_is_checked_when_it_is_registered() -> None:
    check_projection_id("x" * 512)
    assert check_sources("p", ["ui", "api", "agent", "system"]) == {"ui", "api", "agent", "system"}
    for wrong in ("ui", ["none"], ["ui", "none"]):
        with pytest.raises(RefusedError) as caught:
            check_sources("p", wrong)
        assert (caught.value.code, caught.value.details) == ("INVALID_PROJECTION", {"projection": "p"})

    @projection("p", sources=["ui"], accepts=lambda source: True, priority=3)
    def one(req: ProjectionRequest) -> None:
        return None

    entry = registered(one)
    assert (entry.projection_id, entry.priority, entry.accepts is one.accepts) == ("p", 3, True)
    assert entry.sources == frozenset({"ui"})
    for priority in (True, False, "1", 1.0):
        with pytest.raises(RefusedError, match="The priority of projection 'p' is not an integer"):
            registered(one, priority=priority)  # type: ignore[arg-type]
    assert registered(one, priority=0).priority == 0
    assert registered(registered(one)).projection is one
    for answer in (1, None, "yes"):
        with pytest.raises(RefusedError) as caught:
            read_acceptance("p", answer)
        assert (caught.value.code, caught.value.details) == ("INVALID_PROJECTION_RESULT", {"projection": "p"})
    assert (read_acceptance("p", True), read_acceptance("p", False)) == (True, False)
    known = ProjectionRegistry([one])
    assert ("p" in known, "q" in known, len(known), known.projection_ids) == (True, False, 1, ("p",))
    with pytest.raises(RefusedError) as caught:
        known.add(one)
    assert (caught.value.code, caught.value.details) == ("DUPLICATE_PROJECTION", {"projection": "p"})
    with pytest.raises(RefusedError) as caught:
        known.route_among(["p", "q"], ProjectionRequest("h", VIEW, ANN, CLICK))
    assert (caught.value.code, caught.value.details) == ("UNKNOWN_PROJECTION", {"projection": "q", "known": ["p"]})


@pytest.mark.requirement("INT-7.1", "INT-12.1")
def test_several_projections_come_to_one_result_with_the_reasons_of_all() -> None:
    def saying(name: str, answer: Any, **when: Any) -> Any:
        return projection(name, **when)(lambda req: answer)

    request = ProjectionRequest("h", VIEW, ANN, CLICK)
    for entries, routed in [
        ([], Routed(None, (), NoIntent("no projection takes this event of kind ui"))),
        ([saying("a", None, sources=["api"])], Routed(None, (), NoIntent("no projection takes this event of kind ui"))),
        ([saying("a", None)], Routed(None, ("a",), NoIntent())),
        ([saying("a", NoIntent("x")), saying("b", None)], Routed(None, ("a", "b"), NoIntent("a: x"))),
        ([saying("a", NoIntent("x")), saying("b", NoIntent("y"))], Routed(None, ("a", "b"), NoIntent("a: x; b: y"))),
        ([saying("a", None), saying("b", None)], Routed(None, ("a", "b"), NoIntent())),
        ([saying("a", None), saying("b", BODY), saying("c", BODY)], Routed("b", ("a", "b"), Select(BODY))),
        ([saying("a", BODY), saying("b", BODY, priority=1)], Routed("b", ("b",), Select(BODY))),
        ([saying("a", BODY, accepts=lambda source: False), saying("b", None)], Routed(None, ("b",), NoIntent())),
    ]:
        assert ProjectionRegistry(entries).route(request) == routed
    assert [one.recorded_as for one in (CHOSEN, Routed(None, ("a",), NoIntent()), Routed(None, (), NoIntent()))] == [
        "till",
        "a",
        "router",
    ]
