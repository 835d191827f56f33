"""A good schema has no fault; every single departure from it has exactly the fault that it should have."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.core.test_second_states import REFUSED
from tests.support.tables import for_each
from world.core.execution import MAX_FLOW_DEPTH
from world.core.fields import MAX_FIELD_DEPTH
from world.core.flows.flow_lint import MAX_FLOW_NODES
from world.core.lint import schema_faults
from world.core.state_model.dialect import DIALECT
from world.model.identity import schema_hash

GONE = object()
SENTENCES = Path(__file__).parent / "schema_sentences.txt"
HALT = {"kind": "halt", "reason": "enough"}


def lit(value: Any) -> dict[str, Any]:
    return {"kind": "lit", "value": value}


YES = {"type": "boolean", "required": True}


def get(path: str) -> dict[str, Any]:
    return {"kind": "get", "path": path}


def good() -> dict[str, Any]:
    """A schema in which every kind of part occurs."""
    return {
        "id": "urn:example:shop",
        "version": "1.0.0",
        "types": {},
        "description": "A shop.",
        "meta": {},
        "state": {
            "description": "What the shop holds.",
            "fields": {
                "count": {"type": "number", "required": True, "default": 0, "description": "How many."},
                "user": {"type": "object", "default": {}, "fields": {"name": {"type": "string"}}},
                "rows": {"type": "array", "default": [], "items": {"type": "object", "fields": {"n": {"type": "any"}}}},
                "bag": {"type": "object", "default": {"a": 1}},
                "list": {"type": "array", "default": []},
                "mood": {"type": {"enum": ["good", "bad", None]}, "default": "good"},
            },
        },
        "computed": {
            "fields": {
                "computed.open": {"deps": ["count", "user"], "expr": get("user.name"), "description": "The name."},
                "computed.more": {"deps": ["computed.open"], "expr": get("computed.open")},
                "computed.far": {"deps": ["count"], "python": {"name": "far", "version": "1"}},
            }
        },
        "actions": {
            "go": {
                "label": "Go",
                "description": "Goes.",
                "meta": {},
                "input": {"type": "object", "fields": {"page": {"type": "string", "required": True}, "sure": YES}},
                "available": get("count"),
                "manifest": [
                    {"predicate": "MUTATES", "resource": "FILE:/out/{input.page}.html", "confidence": 0.5},
                    {"predicate": "RENAMES", "resource": "FILE:/a/{$item}", "to": get("$item"), "each": get("list")},
                ],
                "flow": {
                    "kind": "seq",
                    "steps": [
                        {"kind": "if", "cond": get("count"), "then": HALT, "else": dict(HALT)},
                        {"kind": "patch", "op": "set", "path": "count", "value": lit(1)},
                        {"kind": "patch", "op": "unset", "path": "rows.0.n"},
                        {"kind": "effect", "type": "mail", "params": {"to": get("input.page")}},
                        {
                            "kind": "effect",
                            "type": "array.map",
                            "params": {"source": get("list"), "select": get("$item"), "into": lit("list")},
                        },
                        {"kind": "call", "flow": "stop"},
                        {"kind": "fail", "code": "NO", "message": lit("no")},
                    ],
                },
            },
            "stop": {"flow": {"kind": "halt", "reason": None}},
            "far": {"python": {"name": "far", "version": "1"}},
        },
    }


def faults(schema: Any) -> list[tuple[str, str]]:
    found = schema_faults(schema)
    assert all(fault.message for fault in found)
    return sorted((fault.code, fault.path) for fault in found)


def changed(place: str, value: Any) -> dict[str, Any]:
    """Return the good schema with one member replaced, added or (``GONE``) removed; ``/`` divides its place."""
    schema = copy.deepcopy(good())
    *above, last = place.split("/")
    node: Any = schema
    for name in above:
        node = node[int(name) if isinstance(node, list) else name]
    key: Any = int(last) if isinstance(node, list) else last
    if value is GONE:
        del node[key]
    else:
        node[key] = value
    return schema


def test_the_good_schema_has_no_fault() -> None:
    assert faults(good()) == []
    assert faults({**good(), "hash": schema_hash(good())}) == []
    assert faults({**good(), "hash": ""}) == []  # not yet hashed


S, READS, PLACE, FLOW, CIRCLE = "SCHEMA_ERROR", "V-001", "V-003", "V-004", "V-005"
OPEN, STEP = "computed/fields/computed.open", "actions/go/flow/steps"
AT_OPEN, AT_GO = "$.computed.fields.computed.open", "$.actions.go"
AT_STEP = f"{AT_GO}.flow.steps"
BOOK = "123e4567-e89b-12d3-a456-426614174000"


DEPARTURES: list[tuple[str, Any, list[tuple[str, str]]]] = [
    *(("id", value, [(S, "$.id")]) for value in (GONE, 5, "", "shop", "urn:", "urn:a b", "1:x", BOOK[:-1])),
    *(("version", value, [(S, "$.version")]) for value in (GONE, 1, "1", "1.0", "01.0.0", "1.0.0-", "v1.0.0")),
    ("hash", "0" * 64, [("HASH_MISMATCH", "$.hash")]),
    ("extra", 1, [(S, "$.extra")]),
    ("state/fields", [], [(S, "$.state")]),
    *(("state", value, [(S, "$.state")]) for value in (GONE, [], {}, 5)),
    ("state/extra", 1, [(S, "$.state.extra")]),
    ("state/fields/meta", {"type": "any"}, [(S, "$.state.fields.meta")]),
    ("computed", [], [(S, "$.computed")]),
    ("computed", {}, [(S, "$.computed")]),
    ("computed/fields/open", {"deps": [], "expr": lit(1)}, [(S, "$.computed.fields.open")]),
    ("computed/fields/computed.", {"deps": [], "expr": lit(1)}, [(S, "$.computed.fields.computed.")]),
    (OPEN, 5, [(S, AT_OPEN)]),
    (f"{OPEN}/expr", GONE, [(S, AT_OPEN)]),
    (f"{OPEN}/python", {"name": "f", "version": "1"}, [(S, AT_OPEN)]),
    (f"{OPEN}/extra", 1, [(S, f"{AT_OPEN}.extra")]),
    *((f"{OPEN}/deps", value, [(S, f"{AT_OPEN}.deps")]) for value in (GONE, "count", None, [1], [""])),
    (f"{OPEN}/deps", ["user", "none"], [(READS, f"{AT_OPEN}.deps")]),
    (f"{OPEN}/deps", ["user", "computed.none"], [(READS, f"{AT_OPEN}.deps")]),
    (f"{OPEN}/deps", ["user", "computed.farther"], [(READS, f"{AT_OPEN}.deps")]),
    (f"{OPEN}/deps", ["user", "list.x"], [(READS, f"{AT_OPEN}.deps")]),
    (f"{OPEN}/deps", ["user", "computed.far.deep"], []),
    (f"{OPEN}/deps", ["count"], [(READS, f"{AT_OPEN}.expr")]),
    (f"{OPEN}/deps", ["user.nam"], [(READS, f"{AT_OPEN}.deps"), (READS, f"{AT_OPEN}.expr")]),
    (f"{OPEN}/deps", ["use", "user.name"], [(READS, f"{AT_OPEN}.deps")]),
    (f"{OPEN}/expr", {"kind": "what"}, [(S, f"{AT_OPEN}.expr")]),
    (f"{OPEN}/expr", get("$system.time"), [(READS, f"{AT_OPEN}.expr")]),
    (f"{OPEN}/deps", ["user", "computed.more"], [("V-002", AT_OPEN)]),
    *(
        ("computed/fields/computed.far/python", value, [(S, "$.computed.fields.computed.far.python")])
        for value in (5, {}, {"name": "f"}, {"name": "", "version": "1"}, {"name": "f", "version": 1})
    ),
    ("actions", GONE, [(S, "$.actions")]),
    ("actions", {}, [(S, "$.actions")]),
    ("actions", [1], [(S, "$.actions")]),
    ("actions/stop", 5, [(S, "$.actions.stop"), (FLOW, f"{AT_STEP}[5]")]),
    ("actions/stop", {}, [(S, "$.actions.stop"), (FLOW, f"{AT_STEP}[5]")]),
    ("actions/stop/python", {"name": "f", "version": "1"}, [(S, "$.actions.stop")]),
    ("actions/stop/extra", 1, [(S, "$.actions.stop.extra")]),
    ("actions/stop/flow", {"kind": "call", "flow": "go"}, [(CIRCLE, AT_GO)]),
    ("actions/stop/input", 5, [(S, "$.actions.stop.input")]),
    ("actions/stop/input", None, []),
    ("actions/stop/available", None, []),
    ("actions/stop/manifest", None, []),
    ("actions/far/python/version", GONE, [(S, "$.actions.far.python")]),
    ("actions/go/available", {"kind": "what"}, [(S, f"{AT_GO}.available")]),
    ("actions/go/available", get("none"), [(PLACE, f"{AT_GO}.available")]),
    ("actions/go/available", get("input.page"), [(PLACE, f"{AT_GO}.available")]),
    ("actions/stop/confinement", None, []),
    *(
        ("actions/go/confinement", value, [(S, f"{AT_GO}.confinement")])
        for value in (True, {}, {"stated": "input.sure"}, {"stated": "input.sure", "exact": ["input.sure"], "more": 1})
    ),
    *(
        ("actions/go/confinement", {"stated": value, "exact": ["input.page"]}, [(S, f"{AT_GO}.confinement.stated")])
        for value in (1, "", "ok", "input", "input.none", "input.page", "state.ok", "input.sure.deep")
    ),
    *(
        ("actions/go/confinement", {"stated": "input.sure", "exact": value}, [(S, f"{AT_GO}.confinement.exact")])
        for value in (0, "input.page", None)
    ),
    (
        "actions/go/confinement",
        {"stated": "input.sure", "exact": ["input.page", "input.none"]},
        [(S, f"{AT_GO}.confinement.exact[1]")],
    ),
    ("actions/go/confinement", {"stated": "input.sure", "exact": ["input.page"]}, []),
    ("actions/go/manifest", "FILE:/x", [(S, f"{AT_GO}.manifest")]),
    ("actions/go/manifest", {"a": 1}, [(S, f"{AT_GO}.manifest")]),
    ("actions/go/manifest/0", 5, [(S, f"{AT_GO}.manifest[0]")]),
    ("actions/go/manifest/0/predicate", GONE, [(S, f"{AT_GO}.manifest[0]")]),
    ("actions/go/manifest/0/resource", GONE, [(S, f"{AT_GO}.manifest[0]")]),
    ("actions/go/manifest/0/predicate", "SEES", [(S, f"{AT_GO}.manifest[0].predicate")]),
    ("actions/go/manifest/0/extra", 1, [(S, f"{AT_GO}.manifest[0].extra")]),
    ("actions/go/manifest/0/to", "FILE:/b", [(S, f"{AT_GO}.manifest[0].to")]),
    ("actions/go/manifest/0/resource", 5, [(S, f"{AT_GO}.manifest[0].resource")]),
    ("actions/go/manifest/0/resource", "FILE:/{", [(S, f"{AT_GO}.manifest[0].resource")]),
    ("actions/go/manifest/0/resource", "FILE:/{}", [(S, f"{AT_GO}.manifest[0].resource")]),
    ("actions/go/manifest/0/resource", "FILE:/}", [(S, f"{AT_GO}.manifest[0].resource")]),
    ("actions/go/manifest/0/resource", "FILE:/{{}}", []),
    ("actions/go/manifest/0/resource", "FILE:/{$item}", [(S, f"{AT_GO}.manifest[0].resource")]),
    ("actions/go/manifest/0/resource", "FILE:/{input.none}", [(PLACE, f"{AT_GO}.manifest[0].resource")]),
    ("actions/go/manifest/1/each", get("none"), [(PLACE, f"{AT_GO}.manifest[1].each")]),
    ("actions/go/manifest/1/to", {"kind": "what"}, [(S, f"{AT_GO}.manifest[1].to")]),
    ("actions/go/flow", 5, [(S, f"{AT_GO}.flow")]),
    (STEP, GONE, [(S, f"{AT_GO}.flow")]),
    (STEP, {}, [(S, f"{AT_GO}.flow")]),
    (f"{STEP}/0/cond", GONE, [(S, f"{AT_STEP}[0]")]),
    (f"{STEP}/0/cond", get("none"), [(PLACE, f"{AT_STEP}[0].cond")]),
    (f"{STEP}/0/then", GONE, [(S, f"{AT_STEP}[0]")]),
    (f"{STEP}/0/then", {"kind": "what"}, [(S, f"{AT_STEP}[0].then")]),
    (f"{STEP}/0/else", {"kind": "what"}, [(S, f"{AT_STEP}[0].else")]),
    (f"{STEP}/0/else", None, []),
    (f"{STEP}/1/op", "move", [(S, f"{AT_STEP}[1]")]),
    (f"{STEP}/1/value", GONE, [(S, f"{AT_STEP}[1]")]),
    (f"{STEP}/1/value", get("input.none"), [(PLACE, f"{AT_STEP}[1].value")]),
    (f"{STEP}/1/value", get("none"), [(PLACE, f"{AT_STEP}[1].value")]),
    *(
        (f"{STEP}/1/value", get(path), [])
        for path in ("meta.version", "system.status", "$system.time", "$host.x", "input.page", "input", "list.7.x")
    ),
    (f"{STEP}/1/path", GONE, [(S, f"{AT_STEP}[1]")]),
    (f"{STEP}/1/path", 5, [(S, f"{AT_STEP}[1]")]),
    *(
        (f"{STEP}/1/path", path, [(PLACE, f"{AT_STEP}[1].path")])
        for path in (
            "none",
            "list.0",
            "rows.length",
            "rows.x",
            "count.x",
            "user.age",
            "computed.open",
            "input.page",
        )
    ),
    *((f"{STEP}/1/path", path, [(PLACE, f"{AT_STEP}[1].path")]) for path in ("$host.x", "$mel", "$mel.guards.intent")),
    *((f"{STEP}/1/path", path, []) for path in ("rows.0", "rows.0.n", "bag.x.y", "user.name")),
    *((f"{STEP}/3/type", value, [(S, f"{AT_STEP}[3]")]) for value in (GONE, 5, "")),
    (f"{STEP}/3/params", 5, [(S, f"{AT_STEP}[3]")]),
    (f"{STEP}/3/params", GONE, []),
    (f"{STEP}/3/params/to", 5, [(S, f"{AT_STEP}[3].params.to")]),
    *((f"{STEP}/4/params/{name}", GONE, [(S, f"{AT_STEP}[4]")]) for name in ("source", "select", "into")),
    (f"{STEP}/5/flow", 5, [(S, f"{AT_STEP}[5]")]),
    (f"{STEP}/5/flow", "none", [(FLOW, f"{AT_STEP}[5]")]),
    (f"{STEP}/5/flow", "far", [(FLOW, f"{AT_STEP}[5]")]),
    (f"{STEP}/0/then/reason", 5, [(S, f"{AT_STEP}[0].then")]),
    (f"{STEP}/6/code", GONE, [(S, f"{AT_STEP}[6]")]),
    (f"{STEP}/6/code", "", [(S, f"{AT_STEP}[6]")]),
    (f"{STEP}/6/message", get("none"), [(PLACE, f"{AT_STEP}[6].message")]),
    (f"{STEP}/6/message", None, []),
]
"""What is changed of the good schema, and the faults that follow."""

FIELD_DEPARTURES: list[tuple[Any, list[str]]] = [
    (5, [""]),
    ({}, [".type"]),
    ({"type": "text"}, [".type"]),
    ({"type": ["string"]}, [".type"]),
    ({"type": {"enum": []}}, [".type"]),
    ({"type": {"enum": "ab"}}, [".type"]),
    ({"type": {"enum": [1], "more": 1}}, [".type"]),
    ({"type": "any", "more": 1}, [".more"]),
    ({"type": "any", "required": None}, [".required"]),
    ({"type": "any", "secret": True}, []),
    ({"type": "string", "secret": True}, []),
    ({"type": "number", "secret": True}, [".secret"]),
    ({"type": "any", "secret": 1}, [".secret"]),
    ({"type": "string", "fields": {}}, [".fields"]),
    ({"type": "any", "items": {"type": "any"}}, [".items"]),
    ({"type": "object", "fields": 5}, [".fields"]),
    ({"type": "object", "fields": {"a": 5}}, [".fields.a"]),
    ({"type": "array", "items": None}, [".items"]),
    ({"type": "number", "default": "x"}, [".default"]),
    ({"type": "number", "default": None}, []),
    ({"type": "number", "default": {}}, [".default"]),
    ({"type": "object", "default": {}, "fields": {"a": {"type": "any", "required": True}}}, []),
    ({"type": "object", "default": {"b": 1}, "fields": {"a": {"type": "any"}}}, [".default.b"]),
    ({"type": "array", "default": [1, "x"], "items": {"type": "number"}}, [".default[1]"]),
    ({"type": {"enum": [1]}, "default": 2}, [".default"]),
]
"""Field specs, with the places of their faults."""


@pytest.mark.requirement("IC-action")
@for_each(("place", "value", "expected"), DEPARTURES)
def test_one_departure_has_its_fault_and_no_other(place: str, value: Any, expected: list[tuple[str, str]]) -> None:
    assert faults(changed(place, value)) == sorted(expected)


def sentences() -> list[str]:
    """Return every sentence about the departures, once."""
    departures = [(place, value) for place, value, _ in DEPARTURES]
    departures += [("actions/stop/input", spec) for spec, _ in FIELD_DEPARTURES]
    models = [schema for schema, _ in REFUSED if "pattern" not in schema]  # pydantic words what patterns lack
    departures += [("state", {"dialect": DIALECT, "schema": schema}) for schema in models]
    departures += [("state", {"dialect": DIALECT, **spec}) for spec in ({}, {"schema": {"$defs": 5}}, {"more": 1})]
    departures.append(("state", {"dialect": "urn:other", "schema": {}}))
    return sorted({fault.message for place, value in departures for fault in schema_faults(changed(place, value))})


def test_the_faults_of_schemas_are_told_in_these_sentences() -> None:
    """They are in ``schema_sentences.txt``; ``python -m tests.core.test_schema_faults`` writes it anew."""
    assert sentences() == SENTENCES.read_text(encoding="utf-8").splitlines()


def test_an_id_is_a_uri_or_a_uuid_and_a_version_is_semantic() -> None:
    for id_ in ("urn:x", "a+b.c-d:e", BOOK, BOOK.upper()):
        assert faults(changed("id", id_)) == []
    for version in ("0.0.0", "10.20.30", "1.0.0-rc.1", "1.0.0+b-1", "1.0.0-a+b"):
        assert faults(changed("version", version)) == []


@pytest.mark.requirement("HC-flow")
def test_a_flow_has_64_levels_and_no_more() -> None:
    flow: Any = HALT
    for _ in range(MAX_FLOW_DEPTH - 1):
        flow = {"kind": "seq", "steps": [flow]}
    assert MAX_FLOW_DEPTH == 64
    assert faults(changed("actions/stop/flow", flow)) == []
    deeper = {"kind": "seq", "steps": [flow, flow]}
    assert faults(changed("actions/stop/flow", deeper)) == [
        (S, "$.actions.stop.flow" + f".steps[{first}]" + ".steps[0]" * 63) for first in (0, 1)
    ]
    for name, last in (("then", ["then"]), ("else", ["else", "then"])):
        nested: Any = HALT
        for _ in range(MAX_FLOW_DEPTH):
            nested = {"kind": "if", "cond": lit(True), "then": HALT, name: nested}
        above = "$.actions.stop.flow" + f".{name}" * 63
        assert faults(changed("actions/stop/flow", nested)) == [(S, f"{above}.{one}") for one in last]


@pytest.mark.requirement("HC-flow")
def test_a_flow_has_10_000_nodes_and_no_more() -> None:
    assert MAX_FLOW_NODES == 10_000
    for steps, expected in ((9_999, []), (10_000, [9_999]), (10_002, [9_999])):
        flow = {"kind": "seq", "steps": [HALT] * steps}
        assert faults(changed("actions/stop/flow", flow)) == [
            (S, f"$.actions.stop.flow.steps[{index}]") for index in expected
        ]


def test_fields_have_50_levels_and_no_more() -> None:
    for member in ("items", "fields"):
        for levels, expected in ((49, 0), (50, 1)):
            spec: Any = {"type": "any"}
            where = "$.actions.stop.input"
            for _ in range(levels):
                inner = spec if member == "items" else {"x": spec}
                spec = {"type": "array" if member == "items" else "object", member: inner}
                where += ".items" if member == "items" else ".fields.x"
            assert faults(changed("actions/stop/input", spec)) == [(S, where)] * expected
    assert MAX_FIELD_DEPTH == 50


@pytest.mark.requirement("IC-validate")
@for_each(("spec", "expected"), FIELD_DEPARTURES)
def test_one_departure_of_a_field_has_its_fault_and_no_other(spec: Any, expected: list[str]) -> None:
    assert faults(changed("state/fields/extra", spec)) == [(S, f"$.state.fields.extra{path}") for path in expected]
    assert faults(changed("actions/stop/input", spec)) == [(S, f"$.actions.stop.input{path}") for path in expected]


if __name__ == "__main__":
    SENTENCES.write_text("\n".join(sentences()) + "\n", encoding="utf-8")
