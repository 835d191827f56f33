"""Generated portable schemas, for tests that print them as MEL."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from world.core.expressions.expression import OPERAND_LISTS, OPERANDS
from world.core.flows.causal_guard import GUARDS
from world.core.mel.flow_lowering import INTENT_ID, guard_id

NAMES = st.sampled_from(["count", "items", "type", "when", "état", "n"])
ODD = st.sampled_from(["two words", "a.b", "true", "1st", 'quo"te', "back\\slash", "$x", "count", "when"])
TEXTS = st.text(max_size=8) | st.sampled_from(["${x}", "`", "\n\t\\", "waiting for it", "\u2028", "😀"])
NUMBERS = (
    st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([1e21, -0.5])
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
JSON = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(TEXTS, one, max_size=3), max_leaves=5
)
ROOTS = ["count", "items", "type", "when", "état", "n", "two words", "bag"]
PATHS = st.sampled_from(
    [
        "count", "items", "items.0", "items.0.n", "items.length", "bag.any.where", "bag.a\\.b", "type", "when", "état",
        "two words", "computed.first", "computed.a.b", "computed.first.x", "input", "input.n", "input.count",
        "input.two words", "$item", "$item.id", "$index", "$system.uuid", "$system.timestamp", "meta.intentId",
        "meta.actor.kind", "system.status", "$mel.x", "nowhere", "bag.x y",
    ]
)  # fmt: skip
PLACES = st.sampled_from(["count", "items", "items.0", "items.0.n", "bag.any.where", "bag.a\\.b", "bag.01", "type",
                          "when", "état", "two words", "$mel.x", "bag"])  # fmt: skip
EFFECTS = st.sampled_from(["api.get", "array.map", "array.sort", "odd name", "x.y"])
PARAMS = st.sampled_from(["into", "source", "select", "where", "by", "a b"])
ROW = {"type": "object", "fields": {"n": {"type": "number"}}}
KINDS = sorted((OPERANDS.keys() | OPERAND_LISTS.keys()) - {"field", "append", "if"})


def lit(value: Any) -> dict[str, Any]:
    """Return the node of a JSON value."""
    return {"kind": "lit", "value": value}


def fields(depth: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    """Return field specs that the engine accepts or not; the printer takes each."""
    kinds: Any = st.sampled_from(["string", "number", "boolean", "null", "any", "object", "array"])
    enums = st.lists(st.none() | st.booleans() | st.integers(-3, 3) | TEXTS, min_size=1, max_size=3)
    own = {
        "required": st.booleans(),
        "description": TEXTS,
        "secret": st.booleans(),
        "default": JSON,
    }
    plain = st.fixed_dictionaries({"type": kinds | enums.map(lambda one: {"enum": one})}, optional=own)
    if not depth:
        return plain
    inner = fields(depth - 1)
    return st.one_of(
        plain,
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional=own),
        st.fixed_dictionaries(
            {"type": st.just("object"), "fields": st.dictionaries(NAMES | ODD, inner, max_size=2)}, optional=own
        ),
    )


@st.composite
def operations(draw: Any, inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Return an expression of any kind with these operands."""
    kind = draw(st.sampled_from(KINDS))
    node: dict[str, Any] = {"kind": kind}
    for name in OPERANDS.get(kind, ()):
        if not name.endswith("?") or draw(st.booleans()):
            node[name.removesuffix("?")] = draw(inner)
    if kind in OPERAND_LISTS:
        node[OPERAND_LISTS[kind]] = draw(st.lists(inner, max_size=3))
    if draw(st.integers(0, 20)) == 0:
        node["note"] = 1
    return node


def expressions() -> st.SearchStrategy[dict[str, Any]]:
    """Return expressions of all kinds."""
    leaves = JSON.map(lambda one: {"kind": "lit", "value": one}) | PATHS.map(lambda one: {"kind": "get", "path": one})

    def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            operations(inner),
            operations(inner),
            st.fixed_dictionaries({"kind": st.just("if"), "cond": inner, "then": inner, "else": inner}),
            st.fixed_dictionaries(
                {"kind": st.just("object"), "fields": st.dictionaries(NAMES | ODD, inner, max_size=2)}
            ),
            st.fixed_dictionaries({"kind": st.just("field"), "object": inner, "property": NAMES | ODD}),
            st.fixed_dictionaries({"kind": st.just("append"), "array": inner, "items": st.lists(inner, max_size=2)}),
        )

    return st.recursive(leaves, larger, max_leaves=6)


def guarded(inner: st.SearchStrategy[Any], extra: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return flows like those of ``once`` and ``onceIntent``, and ones that almost are."""
    intent = {"kind": "get", "path": INTENT_ID}

    def built(parts: tuple[str, int, list[Any], Any, bool]) -> dict[str, Any]:
        action, index, steps, condition, is_own = parts
        name = guard_id(action, index)
        write: dict[str, Any] = {
            "kind": "patch",
            "op": "merge",
            "path": GUARDS,
            "value": {"kind": "object", "fields": {name: intent}},
        }
        marker = f"{GUARDS}.{name}"
        if is_own:
            marker = "type"
            write = {"kind": "patch", "op": "set", "path": marker, "value": intent}
        cond: dict[str, Any] = {"kind": "neq", "left": {"kind": "get", "path": marker}, "right": intent}
        if condition is not None:
            cond = {"kind": "and", "args": [cond, condition]}
        return {"kind": "if", "cond": cond, "then": {"kind": "seq", "steps": [write, *steps]}}

    return st.tuples(
        st.sampled_from(["go", "go.now"]),
        st.integers(0, 2),
        st.lists(inner, max_size=2),
        st.none() | extra,
        st.booleans(),
    ).map(built)


def flows() -> st.SearchStrategy[dict[str, Any]]:
    """Return flows of all kinds."""
    value = expressions()
    leaves = st.one_of(
        st.fixed_dictionaries(
            {"kind": st.just("patch"), "op": st.sampled_from(["set", "merge"]), "path": PLACES, "value": value}
        ),
        st.fixed_dictionaries({"kind": st.just("patch"), "op": st.just("unset"), "path": PLACES}),
        st.fixed_dictionaries(
            {"kind": st.just("effect"), "type": EFFECTS},
            optional={"params": st.dictionaries(PARAMS, value | PLACES.map(lit), max_size=3)},
        ),
        st.fixed_dictionaries(
            {"kind": st.just("fail"), "code": TEXTS.filter(bool)}, optional={"message": value | st.none()}
        ),
        st.fixed_dictionaries({"kind": st.just("halt")}, optional={"reason": TEXTS | st.none()}),
        st.fixed_dictionaries({"kind": st.just("call"), "flow": st.just("go")}),
    )  # fmt: skip

    def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.fixed_dictionaries({"kind": st.just("seq"), "steps": st.lists(inner, max_size=3)}),
            st.fixed_dictionaries(
                {"kind": st.just("if"), "cond": value, "then": inner}, optional={"else": inner | st.none()}
            ),
            guarded(inner, value),
        )

    return st.recursive(leaves, larger, max_leaves=4)


def actions() -> st.SearchStrategy[dict[str, Any]]:
    """Return actions."""
    inputs = st.fixed_dictionaries(
        {"type": st.just("object"), "fields": st.dictionaries(NAMES | ODD, fields(1), max_size=2)},
        optional={"required": st.booleans()},
    )
    refusal = st.just({"kind": "fail", "code": "INTENT_NOT_DISPATCHABLE"})
    gated = st.fixed_dictionaries({"kind": st.just("if"), "cond": expressions(), "then": flows(), "else": refusal})
    return st.fixed_dictionaries(
        {"flow": flows() | gated},
        optional={
            "input": inputs | st.none(),
            "available": expressions() | st.none(),
            "label": TEXTS,
            "description": TEXTS,
            "meta": JSON,
            "manifest": st.just([{"predicate": "MUTATES", "resource": "FILE:/{input.n}"}]),
        },
    )


@st.composite
def schemas(draw: Any) -> dict[str, Any]:
    """Return portable schemas, of the reference's form and of the usual one."""
    own = draw(st.dictionaries(NAMES | ODD.filter(lambda one: "." not in one), fields(), max_size=2))
    known: dict[str, Any] = {
        "count": {"type": "number", "required": True, "default": 0},
        "items": {"type": "array", "required": True, "items": ROW, "default": []},
        "type": {"type": "string", "required": True, "default": None},
        "bag": {"type": "object", "default": {}},
        "two words": {"type": "string"},
    }  # fmt: skip
    state: dict[str, Any] = {"fields": {**own, **known} if draw(st.booleans()) else {**known, **own}}
    if draw(st.booleans()):
        state["description"] = draw(TEXTS)
    computed = {}
    for name in draw(st.lists(st.sampled_from(["first", "a.b", "count", "odd name"]), unique=True)):
        computed[f"computed.{name}"] = {
            "deps": draw(st.lists(PATHS.filter(lambda one: not one.startswith("computed.")), max_size=2)),
            "expr": draw(expressions()),
        }
    schema: dict[str, Any] = {
        "state": state,
        "actions": draw(
            st.dictionaries(st.sampled_from(["go", "go.now", "state", "odd one"]), actions(), min_size=1, max_size=2)
        ),
    }
    if draw(st.booleans()):
        types = draw(st.sampled_from([{}, TYPES, {"Odd": 5}]))
        head = {"id": "mel:shop", "version": "1.0.0", "types": types, "meta": {"name": "Shop"}}
        return {**head, **schema, "computed": {"fields": computed}}
    head = {"id": draw(st.sampled_from(["urn:test:shop", "urn:1", "mel:shop"])), "version": "1.2.0"}
    optional = draw(st.fixed_dictionaries({}, optional={"description": TEXTS, "meta": JSON, "types": JSON}))
    return {
        **head,
        **optional,
        **schema,
        **({"computed": {"fields": computed}} if draw(st.booleans()) or computed else {}),
    }


NULL = {"kind": "literal", "value": None}
TYPES = {
    "Todo": {
        "name": "Todo",
        "definition": {
            "kind": "object",
            "fields": {
                "id": {"type": {"kind": "primitive", "type": "string"}, "optional": False},
                "next": {
                    "type": {"kind": "union", "types": [{"kind": "ref", "name": "Todo"}, NULL]},
                    "optional": True,
                },
                "all": {
                    "type": {
                        "kind": "record",
                        "key": {"kind": "primitive", "type": "string"},
                        "value": {"kind": "array", "element": {"kind": "literal", "value": -1}},
                    },
                    "optional": False,
                },
            },
        },
    }
}  # fmt: skip
