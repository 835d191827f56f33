"""Action catalogs: what is offered, what is known of it, in which order, and under which hash."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.catalog import (
    ActionCatalog,
    CatalogProjector,
    CatalogRequest,
    Pruning,
    static_catalog,
)
from projections.descriptors import ActionDescriptor
from tests.projections.catalogs import (
    ANN,
    PROJECTOR,
    SCHEMA,
    SIX,
    VIEW,
    eq,
    get,
    lit,
    local,
    request,
    told,
    types,
)
from tests.support.tables import for_each
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_text
from world.model.identity import catalog_hash
from world.model.immutable_json import FrozenDict, freeze
from world.model.snapshot import SnapshotView

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "catalog_hash.json").read_text())["cases"]

# --- the hash and the list, as the vectors say -------------------------------------------------------

PARTS = ("predicate ", "fn ", "unknown reason", "no actions", "maxActions=-1", "maxActions=1.5")
WHOLE = [case for case in VECTORS if not case["name"].startswith(PARTS)]


@pytest.mark.requirement("INT-7.4.1", "INT-7.4.3a", "INT-7.4.3b", "INT-7.4.4a", "INV-AC1", "INV-AC2")
@for_each("case", WHOLE, ids=[case["name"] for case in WHOLE])
def test_a_catalog_of_six_actions_has_the_list_and_the_hash_of_its_vector(case: dict[str, Any]) -> None:
    given_ = case["input"]
    catalog = PROJECTOR.project_action_catalog(request(*SIX, schema=given_["schemaHash"], pruning=given_["pruning"]))
    listed = [
        {"type": one.type, "status": one.availability.status, "reason": one.availability.reason}
        for one in catalog.actions
    ]
    assert listed == given_["actions"]
    assert catalog.catalog_hash == case["expected"]["catalogHash"]


def test_enough_vectors_are_whole_catalogs() -> None:
    assert len(WHOLE) >= 17


# --- what is known of an action ----------------------------------------------------------------------


@pytest.mark.requirement("INT-3.4b", "INT-7.4.2a")
@pytest.mark.parametrize("actor", [ANN, None])
def test_an_action_without_a_predicate_is_available(actor: ActorRef | None) -> None:
    assert told(None, actor) == ("available", None)


@pytest.mark.requirement("INT-7.4.2a", "INT-7.4.2d")
@for_each(
    ("expression", "expected"),
    [
        (get("flag"), ("available", None)),
        (get("off"), ("unavailable", None)),
        (get("computed.ready"), ("available", None)),
        (eq(get("meta.actor.actorId"), lit("ann")), ("available", None)),
        (eq(get("meta.actor.kind"), lit("agent")), ("unavailable", None)),
        (eq(get("meta.actor.meta.role"), lit("editor")), ("available", None)),
        (lit(0), ("unknown", "indeterminate")),
        (lit(1.5), ("unknown", "indeterminate")),
        (lit(""), ("unknown", "indeterminate")),
        (lit("true"), ("unknown", "indeterminate")),
        (lit([]), ("unknown", "indeterminate")),
        (lit({}), ("unknown", "indeterminate")),
        (get("nil"), ("unknown", "missing_context")),
        (get("nowhere"), ("unknown", "missing_context")),
        (get("computed.missing"), ("unknown", "missing_context")),
        ({"kind": "nope"}, ("unknown", "indeterminate")),
        ("flag", ("unknown", "indeterminate")),
        ({"kind": "isNull", "arg": get("nil")}, ("available", None)),
    ],
)
def test_a_predicate_is_decided_from_data_computed_values_and_the_actor(expression: Any, expected: Any) -> None:
    assert told(expression) == expected


@pytest.mark.requirement("INT-7.4.2b", "INT-7.4.2d", "INV-AC4")
@pytest.mark.parametrize(
    "path", ["$system.timestamp", "$system.uuid", "$input.x", "input.x", "input", "meta.timestamp", "system.status"]
)
def test_what_needs_the_time_or_an_input_is_indeterminate_and_not_evaluated(path: str) -> None:
    assert told(get(path)) == ("unknown", "indeterminate")
    assert told({"kind": "isNull", "arg": get(path)}) == ("unknown", "indeterminate")
    assert told({"kind": "or", "args": [lit(True), get(path)]}) == ("unknown", "indeterminate")


def picked(*keys: str) -> Any:
    return {"kind": "pick", "obj": get("meta.actor.meta"), "keys": lit(list(keys))}


@pytest.mark.requirement("INT-7.4.2c", "INT-7.4.2e", "INV-AC5")
@pytest.mark.parametrize(
    "expression",
    [
        eq(get("meta.actor.meta.rank"), lit(1)),
        {"kind": "and", "args": [lit(False), eq(get("meta.actor.meta.rank"), lit(1))]},
        {"kind": "or", "args": [lit(True), get("meta.actor.meta.rank")]},
        {"kind": "not", "arg": get("meta.actor.meta.rank")},
        {"kind": "and", "args": [get("off"), get("computed.missing")]},
        {"kind": "if", "cond": get("off"), "then": get("meta.actor.name"), "else": lit(False)},
        eq({"kind": "field", "object": get("meta.actor.meta"), "property": "org.role"}, lit(1)),
        eq({"kind": "field", "object": get("meta.actor.meta"), "property": "a\\.b"}, lit(1)),
        eq({"kind": "at", "array": get("meta.actor.meta"), "index": lit("rank")}, lit(1)),
        eq({"kind": "field", "object": picked("rank"), "property": "rank"}, lit(1)),
    ],
)
def test_an_absent_key_makes_an_action_unknown_and_never_unavailable(expression: Any) -> None:
    assert told(expression) == ("unknown", "missing_context")


@pytest.mark.requirement("INT-7.4.2c")
def test_without_an_actor_what_depends_on_the_actor_is_unknown() -> None:
    assert told(eq(get("meta.actor.kind"), lit("human")), None) == ("unknown", "missing_context")
    assert told(get("flag"), None) == ("available", None)
    assert told(local(lambda ctx: ctx.actor.kind == "human"), None) == ("unknown", "missing_context")
    assert told(local(lambda ctx: ctx.data["flag"]), None) == ("available", None)


@pytest.mark.requirement("INT-7.4.2e")
def test_a_predicate_that_provides_for_an_absent_key_is_decided() -> None:
    rank = {"kind": "coalesce", "args": [get("meta.actor.meta.rank"), lit(0)]}
    assert told({"kind": "gt", "left": rank, "right": lit(1)}) == ("unavailable", None)
    assert told({"kind": "isNull", "arg": get("meta.actor.meta.rank")}) == ("available", None)


@pytest.mark.requirement("INT-7.4.2d")
def test_a_predicate_past_a_bound_is_indeterminate() -> None:
    deep: Any = get("flag")
    for _ in range(101):
        deep = {"kind": "not", "arg": deep}
    assert told(deep) == ("unknown", "indeterminate")
    nested: Any = get("$item")
    for _ in range(4):
        nested = {"kind": "map", "array": get("many"), "mapper": nested}
    view = SnapshotView(freeze({"many": list(range(100))}), FrozenDict())
    asked = request(ActionDescriptor("p", available=nested), view=view)
    assert PROJECTOR.project_action_catalog(asked).actions[0].availability.reason == "indeterminate"


# --- local functions ---------------------------------------------------------------------------------


@pytest.mark.requirement("INT-3.4b")
@for_each(
    ("function", "expected"),
    [
        (lambda ctx: True, ("available", None)),
        (lambda ctx: None, ("unknown", "indeterminate")),
        (lambda ctx: 1, ("unknown", "indeterminate")),
        (lambda ctx: "yes", ("unknown", "indeterminate")),
        (lambda ctx: ctx.data["flag"], ("available", None)),
        (lambda ctx: ctx.computed["ready"] and ctx.computed["computed.ready"], ("available", None)),
        (lambda ctx: ctx.actor.kind == "agent", ("unavailable", None)),
        (lambda ctx: 1 // 0, ("unknown", "indeterminate")),
        (lambda ctx: exit(), ("unknown", "indeterminate")),
        (lambda ctx: object(), ("unknown", "indeterminate")),
        (lambda ctx: ctx.actor.meta["rank"] == 1, ("unknown", "missing_context")),
        (lambda ctx: (ctx.actor.meta or {}).get("rank") == 1, ("unknown", "missing_context")),
        (lambda ctx: ctx.actor.meta.get("rank") is None, ("available", None)),
        (lambda ctx: ctx.actor.meta.get("rank", 0) == 1, ("unavailable", None)),
        (lambda ctx: "rank" in ctx.actor.meta and ctx.actor.meta["rank"] == 1, ("unavailable", None)),
        (lambda ctx: ctx.computed["computed.missing"], ("unknown", "missing_context")),
        (lambda ctx: ctx.computed.get("missing"), ("unknown", "missing_context")),
    ],
)
def test_a_local_function_tells_availability_and_one_that_raises_is_unknown(function: Any, expected: Any) -> None:
    assert told(local(function)) == expected
    given_ = {"type": "p", "available": {"kind": "fn", "evaluate": function}}
    asked = request(ActionDescriptor.read(given_), pruning={"policy": "mark_only"})
    (one,) = PROJECTOR.project_action_catalog(asked).actions
    assert (one.availability.status, one.availability.reason) == expected


@pytest.mark.requirement("INT-7.4.2b", "INV-AC4", "INV-AC1")
@pytest.mark.parametrize(
    "function",
    [
        lambda ctx: time.time() > 0,
        lambda ctx: random.random() < 2,
        lambda ctx: Path("notes.txt").read_text(),
        lambda ctx: ctx.data.update(flag=False),
        lambda ctx: print("hello"),
    ],
)
def test_a_local_function_that_is_not_pure_is_indeterminate(function: Any) -> None:
    assert told(local(function)) == ("unknown", "indeterminate")


@pytest.mark.requirement("INV-AC1", "INV-AC4")
def test_a_local_function_that_changes_its_mind_is_indeterminate() -> None:
    kept: list[int] = []

    def fickle(ctx: Any) -> bool:
        kept.append(1)
        return len(kept) % 2 == 1

    assert told(local(fickle)) == ("unknown", "indeterminate")


def test_a_local_function_that_does_not_end_is_indeterminate() -> None:
    def endless(ctx: Any) -> bool:
        while True:
            pass

    assert told(local(endless), ANN, CatalogProjector(TimeLimit(50))) == ("unknown", "indeterminate")


@pytest.mark.requirement("INT-3.4b")
def test_a_local_function_never_leaves_the_process() -> None:
    for call in (
        lambda: ActionDescriptor("p", available=local(lambda ctx: True)).to_wire(),
        lambda: ActionDescriptor.read({"type": "p", "available": {"kind": "fn"}}),
        lambda: ActionDescriptor.read({"type": "p", "available": {"kind": "fn", "evaluate": "name"}}),
    ):
        with pytest.raises(RefusedError) as caught:
            call()
        assert caught.value.code == "LOCAL_PREDICATE"


# --- pruning, order, modes ---------------------------------------------------------------------------


@pytest.mark.requirement("INT-7.4.3a")
def test_unavailable_actions_are_dropped_unless_they_are_to_be_marked() -> None:
    assert types(PROJECTOR.project_action_catalog(request(*SIX))) == [
        "i.indet", "n.none", "t.true", "u.unknown", "z.null",
    ]  # fmt: skip
    marked = PROJECTOR.project_action_catalog(request(*SIX, pruning={"policy": "mark_only"}))
    assert {one.type: one.availability.status for one in marked.actions}["f.false"] == "unavailable"
    certain = request(*SIX, pruning={"includeUnknown": False})
    assert types(PROJECTOR.project_action_catalog(certain)) == ["n.none", "t.true", "z.null"]


@pytest.mark.requirement("INT-7.4.3a")
def test_pruning_that_says_nothing_or_null_is_the_default() -> None:
    nothing = {"policy": None, "includeUnknown": None, "sort": None, "maxActions": None}
    assert Pruning.read({}) == Pruning.read(nothing) == Pruning()
    assert Pruning().model_dump(by_alias=True) == {
        "policy": "drop_unavailable", "includeUnknown": True, "sort": "type_lex", "maxActions": None,
    }  # fmt: skip


@pytest.mark.requirement("INT-7.4.3b")
def test_the_first_actions_are_kept_after_sorting() -> None:
    by_type = PROJECTOR.project_action_catalog(request(*SIX, pruning={"maxActions": 2}))
    as_given = PROJECTOR.project_action_catalog(request(*SIX, pruning={"maxActions": 2, "sort": "schema_order"}))
    assert (types(by_type), types(as_given)) == (["i.indet", "n.none"], ["t.true", "u.unknown"])
    assert types(PROJECTOR.project_action_catalog(request(*SIX, pruning={"maxActions": 0}))) == []


@pytest.mark.requirement("INT-7.4.3b")
def test_types_are_sorted_by_utf16_code_units() -> None:
    names = ["\uff61", "\U00010000", "b", "B", "a.b", "a", "é", "a-b"]
    catalog = PROJECTOR.project_action_catalog(request(*(ActionDescriptor(name) for name in names)))
    assert types(catalog) == ["B", "a", "a-b", "a.b", "b", "é", "\U00010000", "\uff61"]


@pytest.mark.requirement("INT-7.4.4b", "INT-7.4.1", "INT-3.4c")
def test_a_mode_chooses_fields_and_nothing_else() -> None:
    shown = {
        mode: PROJECTOR.project_action_catalog(request(*SIX, mode=mode, pruning={"policy": "mark_only"}))
        for mode in ("llm", "ui", "debug")
    }
    assert len({catalog.catalog_hash for catalog in shown.values()}) == 1
    assert len({tuple(types(catalog)) for catalog in shown.values()}) == 1
    fields = {
        mode: {one.type: one.to_wire() for one in catalog.actions}["t.true"].keys() for mode, catalog in shown.items()
    }
    both = {"type", "label", "inputSchema", "availability"}
    assert fields == {"llm": {*both, "description"}, "ui": both, "debug": {*both, "description"}}
    reasons = {
        mode: {one.type: one.availability.reason for one in catalog.actions}["f.false"]
        for mode, catalog in shown.items()
    }
    assert reasons == {"llm": None, "ui": None, "debug": "the predicate is false (off is false)"}


@pytest.mark.requirement("INT-3.4c")
def test_a_catalog_has_its_wire_form() -> None:
    catalog = PROJECTOR.project_action_catalog(request(SIX[0], SIX[2]))
    assert json.loads(canonical_text(catalog.to_wire())) == {
        "kind": "action_catalog",
        "schemaHash": SCHEMA,
        "catalogHash": catalog.catalog_hash,
        "actions": [
            {
                "type": "t.true",
                "label": "True",
                "description": "Says yes.",
                "inputSchema": {"type": "object"},
                "availability": {"status": "available"},
            },
            {"type": "u.unknown", "availability": {"status": "unknown", "reason": "missing_context"}},
        ],
    }


# --- requests ----------------------------------------------------------------------------------------


@pytest.mark.requirement("INT-7.4.1", "INT-3.4a")
def test_a_request_is_read_from_its_wire_form() -> None:
    wire = {
        "schemaHash": SCHEMA,
        "snapshot": VIEW.to_wire(),
        "actor": ANN.to_wire(),
        "actions": [action.to_wire() for action in SIX],
        "mode": "ui",
        "pruning": {"policy": "mark_only"},
    }
    read = CatalogRequest.read(json.loads(canonical_text(wire)))
    assert read == request(*SIX, mode="ui", pruning={"policy": "mark_only"})
    del wire["mode"], wire["pruning"]
    assert CatalogRequest.read(wire) == request(*SIX)
    assert CatalogRequest.read({**wire, "actor": None, "mode": None, "pruning": None}).mode == "llm"


@for_each(
    "change",
    [
        {"mode": "all"},
        {"snapshot": None},
        {"snapshot": {"data": [1], "computed": {}}},
        {"snapshot": {"data": {}, "computed": [1]}},
        {"actions": {}},
        {"actions": [{"type": "a"}, {"type": "a"}]},
        {"actions": [{"type": ""}]},
        {"actions": [{"name": "a"}]},
        {"actions": [7]},
        {"schemaHash": 1},
        {"pruning": {"maxActions": -1}},
        {"pruning": {"maxActions": 1.5}},
        {"pruning": {"policy": "drop"}},
        {"pruning": {"sort": "random"}},
        {"pruning": {"max": 1}},
        {"pruning": 3},
        {"actor": {"actorId": "ann"}},
        {"now": 3},
    ],
)
def test_a_request_that_means_nothing_is_refused(change: dict[str, Any]) -> None:
    good: dict[str, Any] = {"schemaHash": SCHEMA, "snapshot": VIEW.to_wire(), "actor": ANN.to_wire(), "actions": []}
    with pytest.raises(RefusedError) as caught:
        CatalogRequest.read({**good, **change})
    assert caught.value.code == "INVALID_VALUE"
    with pytest.raises(RefusedError):
        CatalogRequest.read([])


def test_a_request_names_what_is_wrong_by_public_names_and_never_fails_otherwise() -> None:
    good: dict[str, Any] = {"schemaHash": SCHEMA, "snapshot": VIEW.to_wire(), "actor": ANN.to_wire(), "actions": []}
    with pytest.raises(RefusedError) as caught:
        CatalogRequest.read({**good, "schemaHash": "\ud800"})
    assert (caught.value.code, caught.value.details["path"]) == ("NOT_CANONICAL", "$.schemaHash")
    with pytest.raises(RefusedError, match="not a valid ActionDescriptor"):
        CatalogRequest.read({**good, "actions": [{"name": "a"}]})


# --- projections invent nothing and depend on nothing else --------------------------------------------

PREDICATES = st.sampled_from(
    [None, lit(True), lit(False), lit(3), get("flag"), get("off"), get("meta.actor.meta.rank"), get("$system.uuid")]
)
ACTIONS = st.lists(
    st.tuples(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8), PREDICATES),
    max_size=8,
    unique_by=lambda one: one[0],
)
PRUNINGS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(["drop_unavailable", "mark_only"]),
        "includeUnknown": st.booleans(),
        "sort": st.sampled_from(["type_lex", "schema_order"]),
        "maxActions": st.none() | st.integers(0, 9),
    }
)


@given(ACTIONS, PRUNINGS, st.sampled_from(["llm", "ui", "debug"]))
@pytest.mark.requirement("INV-P6", "INV-AC1", "INV-AC2", "INV-AC5", "INT-7.4.4a")
def test_a_catalog_is_deterministic_and_invents_nothing(
    actions: list[tuple[str, Any]], pruning: dict[str, Any], mode: Any
) -> None:
    def made() -> ActionCatalog:
        described = (ActionDescriptor(name, available=available) for name, available in actions)
        return PROJECTOR.project_action_catalog(request(*described, mode=mode, pruning=pruning))

    catalog = made()
    assert canonical_text(made().to_wire()) == canonical_text(catalog.to_wire())
    assert set(types(catalog)) <= {name for name, _ in actions}
    listed = [
        {"type": one.type, "status": one.availability.status, "reason": one.availability.reason}
        for one in catalog.actions
    ]
    assert catalog.catalog_hash == catalog_hash(SCHEMA, listed, pruning)
    if pruning["maxActions"] is None and pruning["includeUnknown"]:
        gone = {name: available for name, available in actions if name not in types(catalog)}
        assert all(available in (lit(False), get("off")) for available in gone.values())


@pytest.mark.requirement("INV-P6", "INV-P3")
def test_nothing_in_a_catalog_or_a_request_can_be_changed() -> None:
    asked = request(*SIX)
    catalog = PROJECTOR.project_action_catalog(asked)
    for change in (
        lambda: asked.snapshot.data.update(flag=False),
        lambda: catalog.actions[2].input_schema.update(x=1),
        lambda: setattr(catalog, "actions", ()),
        lambda: setattr(asked, "actor", None),
    ):
        with pytest.raises((TypeError, AttributeError)):
            change()


@pytest.mark.requirement("INT-15.5")
def test_a_static_catalog_has_every_action_as_available() -> None:
    catalog = static_catalog(request(*SIX))
    assert types(catalog) == sorted(one.type for one in SIX)
    assert {one.availability.status for one in catalog.actions} == {"available"}
    assert catalog.catalog_hash == catalog_hash(
        SCHEMA, [{"type": name, "status": "available", "reason": None} for name in types(catalog)]
    )
