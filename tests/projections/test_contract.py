"""What projections are given, and what they may answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from pydantic import ValidationError

from projections import (
    FunctionProjection,
    NoIntent,
    ProjectionRequest,
    Select,
    ask,
    projection,
)
from tests.support.tables import for_each
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes, read_json
from world.model.immutable_json import FrozenDict
from world.model.intent import IntentBody
from world.model.patch import set_
from world.model.record import WireForm
from world.model.snapshot import SnapshotView
from world.model.source import SourceEvent
from worldprotocol.testing import strategies as wp

SCHEMA = "5c" * 32
ANN = ActorRef(actor_id="ann", kind="human", meta={"roles": ["editor"], "age": 40})
CLICK = SourceEvent(kind="ui", event_id="click-1", payload={"title": "T", "button": "save"}, occurred_at=17)
VIEW = SnapshotView(FrozenDict({"todos": [{"done": False}]}), FrozenDict({"computed.canSave": True}))
SAVE = IntentBody(type="todo.save", input={"title": "T"})


def request(**parts: Any) -> ProjectionRequest:
    whole: dict[str, Any] = {"schema_hash": SCHEMA, "snapshot": VIEW, "actor": ANN, "source": CLICK}
    return ProjectionRequest(**{**whole, **parts})


def answering(answer: Any) -> FunctionProjection:
    """Return a projection that always gives this answer."""
    return projection("fixed")(lambda req: answer)


def refused(code: str, call: Callable[[], Any]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value


# What is given


@pytest.mark.requirement("INT-3.2", "INT-11.3")
def test_a_projection_does_not_see_when_something_occurred():
    seen = request().source
    assert seen.occurred_at is None
    assert "occurredAt" not in seen.to_wire()
    assert (seen.kind, seen.event_id, seen.payload) == (CLICK.kind, CLICK.event_id, CLICK.payload)
    assert CLICK.occurred_at == 17


@pytest.mark.requirement("INT-3.2", "INT-11.1", "INT-11.3")
@given(first=st.none() | st.integers(0, 2**52), second=st.none() | st.integers(0, 2**52))
def test_requests_that_differ_in_the_time_of_occurrence_only_are_equal(first, second):
    one, other = (request(source=structs.replace(CLICK, occurred_at=at)) for at in (first, second))
    assert one == other
    assert canonical_bytes(one.to_wire()) == canonical_bytes(other.to_wire())


@pytest.mark.requirement("INT-3.3", "INT-10.1", "INV-P3")
def test_a_request_holds_the_schema_the_view_the_actor_and_the_source_and_nothing_else():
    req = request()
    seen = {name for name in dir(req) if not name.startswith("_")} - {*dir(WireForm)}
    assert seen == {"schema_hash", "snapshot", "actor", "source"}
    assert {name for name in dir(req.snapshot) if not name.startswith("_")} - {*dir(WireForm)} == {"data", "computed"}


@pytest.mark.requirement("INT-10.1", "INV-P3", "INV-P1")
@pytest.mark.parametrize(
    "change",
    [
        lambda req: setattr(req, "schema_hash", ""),
        lambda req: setattr(req.snapshot, "data", {}),
        lambda req: req.snapshot.data["todos"][0].update(done=True),
        lambda req: req.snapshot.data["todos"].append({}),
        lambda req: req.snapshot.computed.clear(),
        lambda req: req.source.payload.pop("title"),
        lambda req: setattr(req.source, "kind", "system"),
        lambda req: setattr(req.actor, "kind", "system"),
        lambda req: req.actor.meta["roles"].append("admin"),
    ],
)
def test_a_write_attempt_raises_and_changes_nothing(change):
    req = request()
    before = canonical_bytes(req.to_wire())
    with pytest.raises((TypeError, AttributeError, ValidationError)):
        change(req)
    assert canonical_bytes(req.to_wire()) == before
    assert (
        refused("PROJECTION_FAILED", lambda: ask(projection("writer")(change), req)).details["projection"] == "writer"
    )


@pytest.mark.requirement("INT-10.1")
def test_a_view_made_of_plain_values_is_frozen_on_the_way_in():
    data = {"todos": [1]}
    req = request(snapshot=SnapshotView(data, {"computed.n": 1.0}))  # type: ignore[arg-type]
    data["todos"].append(2)
    assert req.snapshot.data == {"todos": [1]}
    assert isinstance(req.snapshot.computed, FrozenDict)
    fault = refused("NOT_CANONICAL", lambda: request(snapshot=SnapshotView({"a": {1}}, {})))  # type: ignore[arg-type]
    assert fault.details["path"] == "$.data.a"


@pytest.mark.requirement("INT-11.1", "INT-12.2")
@given(payload=wp.json_values(), meta=wp.json_objects())
def test_what_is_given_is_the_same_before_and_after_it_was_written_to_a_log(payload, meta):
    source = SourceEvent(kind="api", event_id="e", payload=payload)
    actor = ActorRef(actor_id="a", kind="agent", meta=meta)
    before = request(source=source, actor=actor)
    after = request(
        source=SourceEvent.read(read_json(canonical_bytes(source.to_wire()))),
        actor=ActorRef.read(read_json(canonical_bytes(actor.to_wire()))),
    )
    assert repr(before) == repr(after)  # with types, and with the order of members


# What may be answered


@pytest.mark.requirement("INT-7.1")
@for_each(
    ("answer", "wire"),
    [
        (None, {"kind": "none"}),
        (NoIntent(), {"kind": "none"}),
        (NoIntent("not now"), {"kind": "none", "reason": "not now"}),
        (NoIntent("  "), {"kind": "none"}),
        ({"kind": "none"}, {"kind": "none"}),
        ({"kind": "none", "reason": "not now"}, {"kind": "none", "reason": "not now"}),
        ({"kind": "none", "reason": None}, {"kind": "none"}),
        (SAVE, {"kind": "intent", "body": SAVE.to_wire()}),
        (Select(SAVE), {"kind": "intent", "body": SAVE.to_wire()}),
        ({"kind": "intent", "body": SAVE}, {"kind": "intent", "body": SAVE.to_wire()}),
        ({"kind": "intent", "body": {"type": "a"}}, {"kind": "intent", "body": {"type": "a"}}),
        (FrozenDict({"kind": "intent", "body": {"type": "a"}}), {"kind": "intent", "body": {"type": "a"}}),
    ],
)
def test_an_answer_means_nothing_or_one_intent(answer, wire):
    result = ask(answering(answer), request())
    assert result.to_wire() == wire
    assert result.kind == wire["kind"]


async def later() -> None:
    """Stand for an answer that is not there yet."""


@pytest.mark.requirement("INT-7.1", "INT-9.2", "INV-P1")
@for_each(
    ("make", "told"),
    [
        (lambda: 5, "int 5"),
        (lambda: True, "bool"),
        (lambda: "save", "str 'save'"),
        (lambda: [SAVE], "list"),
        (lambda: IntentBody, "IntentBody"),
        (lambda: iter([]), "list_iterator"),
        (later, "coroutine"),
        (dict, "kind is None"),
        (lambda: {"type": "todo.save"}, "kind is None"),
        (lambda: {"kind": "patch"}, "kind is 'patch'"),
        (lambda: {"kind": ["intent"]}, "kind is ['intent']"),
        (lambda: {"kind": "intent"}, "$.body"),
        (lambda: {"kind": "intent", "body": None}, "$.body"),
        (lambda: {"kind": "intent", "body": {"type": ""}}, "$.body.type"),
        (lambda: {"kind": "intent", "body": {"type": "t", "input": {"at": object()}}}, "$.body.input.at"),
        (lambda: {"kind": "intent", "body": {"type": "t", "patches": []}}, "$.body.patches"),
        (lambda: {"kind": "intent", "body": {"type": "t"}, "patches": []}, "has no patches"),
        (lambda: {"kind": "none", "body": {"type": "t"}}, "has no body"),
        (lambda: {"kind": "none", "reason": 5}, "A reason is a string"),
        (lambda: Select({"type": "t"}), "Select holds dict"),  # type: ignore[arg-type]
    ],
)
def test_any_other_answer_is_refused_and_the_projection_is_named(make, told):
    fault = refused("INVALID_PROJECTION_RESULT", lambda: ask(projection("careless")(lambda req: make()), request()))
    assert "'careless'" in fault.message
    assert told in fault.message
    assert fault.details["projection"] == "careless"


@pytest.mark.requirement("INT-9.1")
def test_an_answer_is_brought_to_json_without_loss():
    answer = {"kind": "intent", "body": {"type": "t", "input": {"price": 2.0, "tags": ("a", "b")}}}
    result = ask(answering(answer), request())
    assert result.to_wire()["body"]["input"] == {"price": 2, "tags": ["a", "b"]}


@pytest.mark.requirement("INT-9.1", "INV-P4")
@pytest.mark.parametrize(("can_save", "kind"), [(True, "intent"), (False, "none")])
def test_a_projection_selects_by_identifiers_gates_on_computed_values_and_proposes_scope(can_save, kind):
    @projection("form", sources=["ui"])
    def form(req: ProjectionRequest) -> Any:
        if req.source.payload["button"] != "save":
            return None
        if not req.snapshot.computed["computed.canSave"]:
            return NoIntent("Saving is not available.")
        return {
            "kind": "intent",
            "body": {
                "type": "todo.save",
                "input": {"title": req.source.payload["title"]},
                "scopeProposal": {"allowedPaths": ["data.todos.*"]},
            },
        }

    result = form(request(snapshot=SnapshotView(VIEW.data, FrozenDict({"computed.canSave": can_save}))))
    assert result.kind == kind
    if isinstance(result, Select):
        assert result.body.input == {"title": "T"}
        assert result.body.scope_proposal is not None
        assert result.body.scope_proposal.allowed_paths == ("data.todos.*",)


@pytest.mark.requirement("INT-4.2", "INT-7.1")
def test_a_selected_body_does_not_change_with_what_it_was_made_from():
    title = {"title": "T"}
    result = ask(answering({"kind": "intent", "body": {"type": "t", "input": title}}), request())
    title["title"] = "other"
    assert result.to_wire()["body"]["input"] == {"title": "T"}
    with pytest.raises(AttributeError):
        result.body = SAVE  # type: ignore[misc,union-attr]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (KeyError("button"), "KeyError: 'button'"),
        (ValueError(), "raised ValueError."),
        (SystemExit(3), "SystemExit: 3"),
        (RefusedError("X", "It is not so."), "RefusedError: It is not so."),
    ],
)
def test_a_projection_that_raises_is_refused_and_named(fault, told):
    def raises(req: ProjectionRequest) -> Any:
        raise fault

    refusal = refused("PROJECTION_FAILED", lambda: ask(projection("hasty")(raises), request()))
    assert "'hasty'" in refusal.message
    assert told in refusal.message
    assert refusal.__cause__ is fault


def test_an_interrupt_is_not_taken_for_an_answer():
    def stopped(req: ProjectionRequest) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(projection("p")(stopped), request())


# How a projection is marked


@pytest.mark.requirement("INT-8.2", "INV-SD1")
@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "\ud800", "x" * 513, 5, None, "router", "system:", "system:direct", "system:scheduler"]
)
def test_names_that_are_none_or_that_stand_for_something_else_are_refused(name):
    refused("INVALID_PROJECTION", lambda: projection(name)(lambda req: None))


@pytest.mark.parametrize("sources", ["ui", ["cron"], ["ui", 5]])
def test_kinds_of_events_that_do_not_exist_are_refused(sources):
    assert "agent, api, system, ui" in refused("INVALID_PROJECTION", lambda: projection("p", sources=sources)).message


def test_functions_that_only_begin_when_they_are_called_are_refused():
    async def asynchronous(req: Any) -> None:
        return None

    def generator(req: Any) -> Any:
        yield None

    functions: tuple[Any, ...] = (asynchronous, generator, 5)
    for function in functions:
        refused("INVALID_PROJECTION", partial(projection("p"), function))


@pytest.mark.requirement("INV-P4", "INT-9.2", "INV-P1", "INT-7.1")
@for_each(
    "answer",
    [
        set_("todos", []),
        [set_("todos", [])],
        {"kind": "patches", "patches": [{"op": "set", "path": "todos", "value": []}]},
        {"kind": "intent", "body": SAVE.to_wire(), "patches": [{"op": "set", "path": "todos", "value": []}]},
        {"kind": "intent", "body": SAVE.to_wire(), "effects": [{"type": "http.post", "params": {}}]},
        {"kind": "intent", "body": SAVE.to_wire(), "approvedScope": {"allowedPaths": ["data.*"]}},
        {"kind": "intent", "body": SAVE.to_wire(), "decision": "approved"},
        {"kind": "intent", "body": SAVE.to_wire(), "intentId": "mine"},
        {"kind": "intent", "body": {**SAVE.to_wire(), "patches": []}},
        {"kind": "intents", "bodies": [SAVE.to_wire(), SAVE.to_wire()]},
        [SAVE, SAVE],
        {"kind": "snapshot", "data": {"todos": []}},
        True,
    ],
)
def test_what_does_more_than_select_one_intent_is_no_answer_of_a_projection(answer):
    fault = refused("INVALID_PROJECTION_RESULT", lambda: ask(answering(answer), request()))
    assert fault.details["projection"] == "fixed"


@pytest.mark.requirement("INV-P4", "INV-P3", "INT-9.2")
def test_a_projection_that_carries_out_what_it_should_only_select_is_refused():
    @projection("strong")
    def strong(req: ProjectionRequest) -> Any:
        req.snapshot.data["todos"] = []
        return None

    before = dict(VIEW.data)
    refused("PROJECTION_FAILED", lambda: ask(strong, request()))
    assert dict(VIEW.data) == before


@pytest.mark.requirement("INT-3.2")
def test_a_projection_from_a_function_receives_every_kind_of_event_unless_it_declares_some() -> None:
    made = FunctionProjection("any", lambda req: NoIntent())
    assert made == FunctionProjection("any", made.function, None, None, 0)
    assert made == projection("any")(made.function)
