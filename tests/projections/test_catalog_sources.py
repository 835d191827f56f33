"""What a catalog is made from, the actions of a domain, and why an action is in it or is not."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from projections.catalog import ProjectedAction, static_catalog
from projections.descriptors import ActionDescriptor, descriptors_of
from projections.explanation import explain_catalog
from tests.projections.catalogs import ANN, PROJECTOR, SIX, eq, get, lit, local, request, types
from world.core import Domain, LocalPredicate, availability, load_domain, recompute
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_text
from world.model.immutable_json import FrozenDict, freeze
from world.model.snapshot import SnapshotView

BOT = ActorRef(actor_id="bot", kind="agent")


class Sale(BaseModel):
    """What is sold."""

    title: str = Field(description="what it is called", max_length=9)
    count: int = Field(default=1, ge=1)
    tags: list[str] = []


class Stock(BaseModel):
    left: int = 3


def shop() -> Domain:
    domain = Domain("urn:test:shop", version="1.0.0", state=Stock)

    @domain.action("sell", version="1", label="Sell", available={"kind": "gt", "left": get("left"), "right": lit(0)})
    def sell(ctx: Any, sale: Sale) -> None:
        """Sell something."""

    @domain.action("close", version="1")
    def close(ctx: Any) -> None: ...

    @domain.available("close")
    def may_close(ctx: Any) -> bool:
        return bool(ctx.data["left"] == 0)

    return domain


@pytest.mark.requirement("INT-3.4c", "INT-3.4b", "IC-action")
def test_a_domains_actions_are_described_with_what_they_take() -> None:
    close, sell = descriptors_of(shop())
    assert (sell.type, sell.label, sell.description) == ("sell", "Sell", "Sell something.")
    assert sell.input_schema == {
        "description": "What is sold.",
        "type": "object",
        "properties": {
            "title": {"description": "what it is called", "maxLength": 9, "type": "string"},
            "count": {"default": 1, "minimum": 1, "type": "integer"},
            "tags": {"default": [], "items": {"type": "string"}, "type": "array"},
        },
        "required": ["title"],
        "additionalProperties": False,
    }
    assert (close.input_schema, type(close.available)) == (None, LocalPredicate)
    portable = descriptors_of(shop().schema)
    assert [one.available for one in portable] == [None, sell.available]
    assert portable[1].input_schema["properties"]["count"] == {"default": 1, "minimum": 1, "type": "integer"}
    assert portable[1].input_schema["properties"]["title"] == {"maxLength": 9, "type": "string"}


@pytest.mark.requirement("IC-action")
def test_a_portable_domains_actions_are_described_from_its_schema() -> None:
    domain = load_domain(
        {
            "id": "urn:test:portable",
            "version": "1.0.0",
            "state": {"fields": {"n": {"type": "number", "default": 0}}},
            "actions": {
                "add": {
                    "label": "Add",
                    "description": "Adds.",
                    "input": {"type": "object", "fields": {"by": {"type": "number", "required": True}}},
                    "flow": {"kind": "halt"},
                },
                "any": {"flow": {"kind": "halt"}},
            },
        }
    )
    add, anything = descriptors_of(domain)
    assert add.to_wire() == {
        "type": "add",
        "label": "Add",
        "description": "Adds.",
        "inputSchema": {
            "type": "object",
            "properties": {"by": {"type": "number"}},
            "required": ["by"],
            "additionalProperties": False,
        },
    }
    assert anything.to_wire() == {"type": "any"}


# --- why ----------------------------------------------------------------------------------------------


def test_every_action_is_explained_and_the_catalog_is_the_same() -> None:
    watch = ActionDescriptor("w.watch", available=local(lambda ctx: time.time() > 0))
    asks = ActionDescriptor("y.asks", available=local(lambda ctx: True))
    asked = request(*SIX, watch, asks, pruning={"maxActions": 5, "includeUnknown": False})
    catalog, why = explain_catalog(asked, PROJECTOR)
    assert catalog == PROJECTOR.project_action_catalog(asked)
    assert [one.type for one in why if one.offered] == types(catalog)
    assert sorted(one.type for one in why) == sorted(one.type for one in asked.actions)
    told_of = {one.type: one for one in why}
    assert told_of["n.none"].why == "it has no predicate"
    assert told_of["f.false"].why == "the predicate is false (off is false); unavailable actions are dropped"
    assert told_of["f.false"].reads == {"off": False}
    assert told_of["u.unknown"].why == "meta.actor.meta.rank is absent; unknown actions are left out"
    assert told_of["u.unknown"].missing == ("meta.actor.meta.rank",)
    assert (
        told_of["i.indet"].why == "the predicate gives a number, neither true nor false; unknown actions are left out"
    )
    assert "the_function uses time.time at tests.projections.test_catalog_sources:" in told_of["w.watch"].why
    assert told_of["y.asks"].why == "the_function returns True"
    assert told_of["w.watch"].to_wire()["predicate"] == {"kind": "fn", "name": "the_function"}
    assert json.loads(canonical_text(told_of["t.true"].to_wire())) == {
        "type": "t.true", "offered": True, "availability": {"status": "available"}, "why": "the predicate is true",
        "predicate": lit(True), "reads": {}, "missing": [],
    }  # fmt: skip


def test_what_a_cut_catalog_leaves_out_is_said() -> None:
    _, why = explain_catalog(request(*SIX, pruning={"maxActions": 1}), PROJECTOR)
    assert {one.type: one.why for one in why}["t.true"] == "the predicate is true; the catalog ends after 1"


def test_long_values_are_shortened_and_what_must_not_be_read_is_not() -> None:
    view = SnapshotView(freeze({"long": "x" * 500}), FrozenDict())
    actions = (
        ActionDescriptor("a", available=eq(get("long"), lit(""))),
        ActionDescriptor("b", available=get("$system.uuid")),
    )
    _, why = explain_catalog(request(*actions, view=view), PROJECTOR)
    told_of = {one.type: one for one in why}
    assert len(told_of["a"].why) < 150
    assert told_of["b"].reads == {}
    assert "cannot read $system.uuid" in told_of["b"].why


def test_a_projected_action_shows_what_it_has() -> None:
    (one,) = static_catalog(request(ActionDescriptor("a"))).actions
    assert one == ProjectedAction("a", one.availability)


# --- the catalog and the core -------------------------------------------------------------------------

LEAVES = st.sampled_from(
    [get("left"), get("computed.few"), get("meta.actor.kind"), get("meta.actor.meta.role"), get("meta.actor.meta.rank"),
     lit(True), lit(False), lit(None), lit(2), lit("editor"), lit("human")]
)  # fmt: skip
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["eq", "neq", "gt", "lt"]), inner, inner).map(
            lambda parts: {"kind": parts[0], "left": parts[1], "right": parts[2]}
        ),
        st.tuples(st.sampled_from(["and", "or", "coalesce"]), st.lists(inner, min_size=1, max_size=3)).map(
            lambda parts: {"kind": parts[0], "args": parts[1]}
        ),
        st.tuples(st.sampled_from(["not", "isNull"]), inner).map(lambda parts: {"kind": parts[0], "arg": parts[1]}),
    ),
    max_leaves=6,
)


@given(PREDICATES, st.integers(0, 3), st.sampled_from([ANN, BOT, None]))
@pytest.mark.requirement("INT-7.4.2a", "INT-7.4.5", "INV-AC5")
def test_what_a_catalog_is_sure_of_the_core_decides_in_the_same_way(
    predicate: Any, left: int, actor: ActorRef | None
) -> None:
    domain = Domain("urn:test:sure", version="1.0.0", state=Stock)
    domain.computed("few", expr={"kind": "lt", "left": get("left"), "right": lit(2)})
    domain.action("act", version="1", available=predicate)(lambda ctx: [])
    data = FrozenDict({"left": left})
    view = SnapshotView(data, recompute(domain, data))
    asked = request(*descriptors_of(domain), actor=actor, view=view, pruning={"policy": "mark_only"})
    (one,) = PROJECTOR.project_action_catalog(asked).actions
    decided = availability(domain, view, "act", actor)
    if one.availability.status != "unknown":
        assert decided is (one.availability.status == "available")
    if one.availability.reason == "missing_context" and actor is ANN:
        assert "meta.actor.meta.rank" in repr(predicate) or "None" in repr(predicate)
