"""Each wall in front of names that begin with ``$`` holds alone: loading, places, patches and once guards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_compute import domain, get, lit, put, run, seq
from tests.core.test_schema import faults, flow, patch, schema
from tests.support.tables import for_each
from world.core import Patch, load_schema, merge, set_, unset
from world.core.execution import MAX_FLOW_DEPTH
from world.core.validate import check_patch
from world.model.immutable_json import FrozenDict, freeze

pytestmark = pytest.mark.requirement("WP-dollar")

NUMBER = {"type": "number", "default": 0}
GUARDS = "$mel.guards.intent"
MARK: dict[str, Any] = {"kind": "object", "fields": {"a": get("meta.intentId")}}
UNMARKED = {"kind": "neq", "left": get(f"{GUARDS}.a"), "right": get("meta.intentId")}


def modelled(**properties: Any) -> dict[str, Any]:
    """Return a schema whose state is described in the dialect of models."""
    described = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema(state={"dialect": "urn:worldprotocol:state-model:1", "schema": described})


def once(**parts: Any) -> dict[str, Any]:
    """Return a once guard in the form of the reference compiler, with some parts replaced."""
    write = {"kind": "patch", "op": "merge", "path": GUARDS, "value": MARK} | parts.pop("write", {})
    return {"kind": "if", "cond": UNMARKED, "then": seq(write, put("count", lit(1)))} | parts


@pytest.mark.parametrize("name", ["$x", "$", "$mel", "$host"])
def test_a_state_that_declares_such_a_name_is_refused_when_it_is_loaded(name: str) -> None:
    fields = schema()
    fields["state"]["fields"][name] = {"type": "number", "default": 0}
    assert faults(fields) == [("SCHEMA_ERROR", f"$.state.fields.{name}")]
    assert faults(modelled(**{name: NUMBER})) == [("SCHEMA_ERROR", f"$.state.schema.properties.{name}")]


@for_each("path", ["$x", "$x.y", "$mel", "$host.jobs", GUARDS])
@for_each("op", ["set", "unset", "merge"])
def test_a_flow_that_writes_below_such_a_name_is_refused_when_it_is_loaded(path: str, op: str) -> None:
    value = None if op == "unset" else lit({})
    assert ("V-003", "$.actions.go.flow.path") in faults(flow(patch(path, value, op)))


@for_each(
    "patched",
    [
        set_("$x", 1), set_("$host", {}), set_("$mel.guards.intent.a", "i"), unset("$kept"), merge("$kept", {"a": 2}),
        merge("", {"$x": 1}), merge("", {"$kept": {"a": 2}}), set_("", {"count": 1, "$kept": {"a": 1}, "$x": 1}),
        set_("", {"count": 1}),
    ],
    ids=repr,
)  # fmt: skip
@for_each("model", [False, True])
def test_a_patch_that_writes_such_a_name_is_refused_whatever_describes_the_state(patched: Patch, model: bool) -> None:
    program = load_schema(modelled(count=NUMBER)) if model else domain(go=seq()).schema
    data = freeze({"count": 0, "$kept": {"a": 1}})
    assert isinstance(data, FrozenDict)
    fault = check_patch(program, data, patched)
    assert fault is not None
    assert (fault.code, "names that begin with $ belong to the engine" in fault.message) == ("PATH_NOT_FOUND", True)


@pytest.mark.parametrize("path", ["$x", "$mel.guards.intent", "$host"])
def test_a_schema_has_no_place_below_such_a_name_except_under_earlier_rules(path: str) -> None:
    assert load_schema(schema()).place(path) is None
    assert load_schema(schema(), 2).place(path) is not None
    model = modelled(count=NUMBER)
    assert load_schema(model).model_places(path) == ()
    assert load_schema(model, 2).model_places(path) != ()


@pytest.mark.requirement("HC-flow")
@pytest.mark.parametrize(("levels", "code"), [(MAX_FLOW_DEPTH - 2, None), (MAX_FLOW_DEPTH - 1, "LIMIT_EXCEEDED")])
def test_the_body_of_a_once_guard_is_nested_as_deep_as_it_is_written(levels: int, code: str | None) -> None:
    body = put("count", lit(2))
    for _ in range(levels - 1):
        body = seq(body)
    done = run(domain(unchecked=True, go=once(then=seq(once()["then"]["steps"][0], body))))
    assert (done.error.code if done.error else None, done.snapshot.data["count"]) == (code, 1 if code else 2)


NEARLY: dict[str, dict[str, Any]] = {
    "another place": once(write={"path": "$mel.guards"}),
    "set in place of merge": once(write={"op": "set"}),
    "another value": once(write={"value": {"kind": "object", "fields": {"a": lit(1)}}}),
    "two marks": once(write={"value": {"kind": "object", "fields": {**MARK["fields"], "b": get("meta.intentId")}}}),
    "another mark": once(cond={**UNMARKED, "left": get(f"{GUARDS}.b")}),
    "another comparison": once(cond={**UNMARKED, "kind": "eq"}),
    "a part of a mark": once(cond={**UNMARKED, "left": get(f"{GUARDS}.a.b")}),
    "an alternative": once(**{"else": put("count", lit(2))}),
    "a further write": once(then=seq(put("count", lit(1)), once()["then"]["steps"][0])),
}


def test_a_once_guard_is_accepted_in_exactly_its_form_alone() -> None:
    assert load_schema(flow(once())).actions.keys() == {"go"}
    for name, node in NEARLY.items():
        assert (name, {code for code, _ in faults(flow(node))}) == (name, {"V-003"})
