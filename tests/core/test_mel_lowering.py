"""What MEL means: the portable schema of each construct, and what a realm does with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.tables import for_each
from world.core import load_domain, load_schema
from world.core.mel.compiling import compile_mel
from world.core.mel.flow_lowering import guard_id
from world.core.mel.loading import schema_of_mel
from world.core.mel.printing import mel_of_schema
from worldprotocol import Realm

pytestmark = pytest.mark.requirement("IC-mel")

HEAD = """domain D {
  type Row = { id: string, n: number }
  state { count: number = 0 name: string = "" rows: Array<Row> = [] bag: Record<string, Row> = {}
    mark: string | null = null }
  computed total = len(rows)
"""


def schema(body: str) -> dict[str, Any]:
    """Return the schema of a domain with some state and this body."""
    compiled = compile_mel(f"{HEAD}{body}\n}}", "d.mel")
    assert compiled.schema is not None, compiled.show()
    load_schema(
        compiled.schema | {"actions": compiled.schema["actions"] or {"x": {"flow": {"kind": "halt"}}}, "hash": ""}
    )
    return compiled.schema


def expression(source: str) -> Any:
    """Return the expression of a computed value."""
    return schema(f"computed c = {source}")["computed"]["fields"]["computed.c"]["expr"]


def flow(statements: str, params: str = "id: string, n: number") -> Any:
    """Return the flow of an action with these statements."""
    return schema(f"action act({params}) {{ {statements} }}")["actions"]["act"]["flow"]


def get(path: str) -> dict[str, Any]:
    return {"kind": "get", "path": path}


def lit(value: Any) -> dict[str, Any]:
    return {"kind": "lit", "value": value}


INTENT = get("meta.intentId")


@for_each(
    ("source", "lowered"),
    [
        ("1 + 2 * 3", {"kind": "add", "left": lit(1), "right": {"kind": "mul", "left": lit(2), "right": lit(3)}}),
        ("-5", lit(-5)),
        ("-count", {"kind": "neg", "arg": get("count")}),
        ("0xFF", lit(255)),
        ("'it\\'s'", lit("it's")),
        ('"\\u{1F600}\\n"', lit("😀\n")),
        ("mark ?? name", {"kind": "coalesce", "args": [get("mark"), get("name")]}),
        ("total", get("computed.total")),
        ("rows.length", get("rows.length")),
        (
            "rows[0].n",
            {"kind": "field", "object": {"kind": "at", "array": get("rows"), "index": lit(0)}, "property": "n"},
        ),
        ("[1, { a: 2 }]", lit([1, {"a": 2}])),
        ("[count, 1]", {"kind": "append", "array": lit([]), "items": [get("count"), lit(1)]}),
        ("{ a: 1 }", {"kind": "object", "fields": {"a": lit(1)}}),
        (
            "{ a: 1, ...bag.x, b: 2, c: 3 }",
            {
                "kind": "merge",
                "objects": [
                    {"kind": "object", "fields": {"a": lit(1)}},
                    get("bag.x"),
                    {"kind": "object", "fields": {"b": lit(2), "c": lit(3)}},
                ],
            },
        ),
        (
            "`n: ${count}, ${name}`",
            {"kind": "concat", "args": [lit("n: "), {"kind": "toString", "arg": get("count")}, lit(", "), get("name")]},
        ),
        ("``", lit("")),
        ("isNotNull(mark)", {"kind": "not", "arg": {"kind": "isNull", "arg": get("mark")}}),
        ("idiv(count, 2)", {"kind": "floor", "arg": {"kind": "div", "left": get("count"), "right": lit(2)}}),
        ("clamp(count, 0, 9)", {"kind": "min", "args": [{"kind": "max", "args": [get("count"), lit(0)]}, lit(9)]}),
        ("substr(name, 1)", {"kind": "substring", "str": get("name"), "start": lit(1)}),
        ("sum(rows)", {"kind": "sumArray", "array": get("rows")}),
        (
            'match(name, ["a", 1], 0)',
            {
                "kind": "if",
                "cond": {"kind": "eq", "left": get("name"), "right": lit("a")},
                "then": lit(1),
                "else": lit(0),
            },
        ),
        (
            "findById(rows, name)",
            {
                "kind": "find",
                "array": get("rows"),
                "predicate": {"kind": "eq", "left": get("$item.id"), "right": get("name")},
            },
        ),
        ('@schema({ kind: "typeof", arg: { kind: "get", path: "count" } })', {"kind": "typeof", "arg": get("count")}),
        ('get("bag.a\\\\.b")', get("bag.a\\.b")),
    ],
)
def test_an_expression_lowers_to_its_node(source: str, lowered: Any) -> None:
    assert expression(source) == lowered


@pytest.mark.parametrize(
    ("statements", "lowered"),
    [
        ("", {"kind": "seq", "steps": []}),
        ("stop", {"kind": "halt"}),
        (
            'when n > 1 { stop "done" }',
            {
                "kind": "if",
                "cond": {"kind": "gt", "left": get("input.n"), "right": lit(1)},
                "then": {"kind": "halt", "reason": "done"},
            },
        ),
        (
            'fail "NO" with concat("no ", id)',
            {"kind": "fail", "code": "NO", "message": {"kind": "concat", "args": [lit("no "), get("input.id")]}},
        ),
        ("patch bag.x.n = $input.n", {"kind": "patch", "op": "set", "path": "bag.x.n", "value": get("input.n")}),
        ("patch rows[0] unset", {"kind": "patch", "op": "unset", "path": "rows.0"}),
        (
            'patch bag["a.b"] = { id: id, n: n }',
            {
                "kind": "patch",
                "op": "set",
                "path": "bag.a\\.b",
                "value": {"kind": "object", "fields": {"id": get("input.id"), "n": get("input.n")}},
            },
        ),
        ("{ stop }", {"kind": "seq", "steps": [{"kind": "halt"}]}),
        ('@schema({ kind: "call", flow: "act2" })', {"kind": "call", "flow": "act2"}),
        (
            "once(mark) when n > 1 { patch count = 1 }",
            {
                "kind": "if",
                "cond": {
                    "kind": "and",
                    "args": [
                        {"kind": "neq", "left": get("mark"), "right": INTENT},
                        {"kind": "gt", "left": get("input.n"), "right": lit(1)},
                    ],
                },
                "then": {
                    "kind": "seq",
                    "steps": [
                        {"kind": "patch", "op": "set", "path": "mark", "value": INTENT},
                        {"kind": "patch", "op": "set", "path": "count", "value": lit(1)},
                    ],
                },
            },
        ),
        (
            "effect array.map({ source: rows, select: $item.n, into: bag.all })",
            {
                "kind": "effect",
                "type": "array.map",
                "params": {"source": get("rows"), "select": get("$item.n"), "into": lit("bag.all")},
            },
        ),
    ],
)
def test_a_statement_lowers_to_its_node(statements: str, lowered: Any) -> None:
    found = compile_mel(f"{HEAD} action act(id: string, n: number) {{ {statements} }} }}")
    assert found.schema is not None, found.show()
    assert found.schema["actions"]["act"]["flow"] == lowered


def test_a_marker_that_the_source_writes_itself_is_written_once() -> None:
    written = flow("once(mark) { patch mark = $meta.intentId patch count = 1 }")
    assert written == flow("once(mark) { patch count = 1 }")


def test_the_blocks_of_once_intent_have_ids_of_their_own() -> None:
    found = flow("onceIntent { patch count = 1 } onceIntent when n > 1 { patch count = 2 }")
    markers = [step["then"]["steps"][0]["value"]["fields"].keys() for step in found["steps"]]
    assert markers == [{guard_id("act", 0)}, {guard_id("act", 1)}]


def test_an_included_flow_is_expanded_with_its_arguments() -> None:
    body = 'flow need(value: number, what: string) { when value == 0 { fail "NEED" with concat(what, "!") } }'
    found = schema(f"{body} action act(n: number) {{ include need(n + 1, name) patch count = n }}")
    step = {
        "kind": "if",
        "cond": {"kind": "eq", "left": {"kind": "add", "left": get("input.n"), "right": lit(1)}, "right": lit(0)},
        "then": {"kind": "fail", "code": "NEED", "message": {"kind": "concat", "args": [get("name"), lit("!")]}},
    }
    patch = {"kind": "patch", "op": "set", "path": "count", "value": get("input.n")}
    assert found["actions"]["act"]["flow"] == {"kind": "seq", "steps": [step, patch]}


def test_availability_is_a_member_and_dispatchability_the_first_condition() -> None:
    found = schema(
        'action act(n: number) available when total > 0 && $meta.actor.kind != "x" dispatchable when n > 1 { stop }'
    )
    action = found["actions"]["act"]
    assert action["available"]["kind"] == "and"
    refusal = {"kind": "fail", "code": "INTENT_NOT_DISPATCHABLE"}
    gate = {"kind": "gt", "left": get("input.n"), "right": lit(1)}
    assert action["flow"] == {"kind": "if", "cond": gate, "then": {"kind": "halt"}, "else": refusal}


@pytest.mark.parametrize(
    ("written", "state", "given"),
    [
        ("string", {"type": "string", "required": True}, {"type": "string", "required": True}),
        ("any", {"type": "any", "required": True}, {"type": "any", "required": True}),
        ("string | null", {"type": "string", "required": True}, {"type": "string", "required": False}),
        (
            "{ a: Array<number | null> }",
            {
                "type": "object",
                "required": True,
                "fields": {"a": {"type": "array", "required": True, "items": {"type": "number", "required": True}}},
            },
            {
                "type": "object",
                "required": True,
                "fields": {"a": {"type": "array", "required": True, "items": {"type": "number", "required": False}}},
            },
        ),
        (
            '"a" | "b"',
            {"type": {"enum": ["a", "b"]}, "required": True},
            {"type": {"enum": ["a", "b"]}, "required": True},
        ),
        (
            '"a" | -1 | true | null',
            {"type": {"enum": ["a", -1, True, None]}, "required": True},
            {"type": {"enum": ["a", -1, True, None]}, "required": True},
        ),
        ("Record<string, number>", {"type": "object", "required": True}, {"type": "object", "required": True}),
        (
            "Array<number?>",
            {"type": "array", "required": True, "items": {"type": "number"}},
            {"type": "array", "required": True, "items": {"type": "number"}},
        ),
        (
            "{ a?: number, b: null }",
            {
                "type": "object",
                "required": True,
                "fields": {"a": {"type": "number"}, "b": {"type": "null", "required": True}},
            },
            {
                "type": "object",
                "required": True,
                "fields": {"a": {"type": "number"}, "b": {"type": "null", "required": True}},
            },
        ),
        (
            '@schema({ type: "string", secret: true })',
            {"type": "string", "secret": True},
            {"type": "string", "secret": True},
        ),
    ],
)
def test_a_type_lowers_to_its_field_spec(written: str, state: Any, given: Any) -> None:
    found = compile_mel(f"domain D {{ state {{ x: {written} = null }} action act(x: {written}) {{ stop }} }}").schema
    assert found is not None
    assert found["state"]["fields"]["x"] == {**state, "default": None}
    assert found["actions"]["act"]["input"]["fields"]["x"] == given


@pytest.mark.requirement("IC-mel")
def test_a_field_of_the_state_without_an_initializer_is_that_of_yaml() -> None:
    source = """@schema({ id: "urn:example:shop", version: "1.0.0" }) domain Shop {
      state { stock: number  note?: string }  action go() { stop } }"""
    fields = {"stock": {"type": "number", "required": True}, "note": {"type": "string"}}
    of_yaml = {
        "id": "urn:example:shop",
        "version": "1.0.0",
        "state": {"fields": fields},
        "actions": {"go": {"flow": {"kind": "halt"}}},
    }
    assert schema_of_mel(source, "shop.mel")["hash"] == load_domain(of_yaml).schema.hash
    assert "stock: number\n" in mel_of_schema(of_yaml)


def test_a_domain_with_an_id_of_its_own_has_the_form_that_is_usual_in_yaml() -> None:
    source = """@schema({ id: "urn:example:shop", version: "2.0.0", description: "A shop" })
    domain Shop {
      @schema({ description: "open orders" }) state { @schema({ description: "in pieces" }) stock?: number = 3 }
      @schema({ label: "Sell", meta: { a: [1] } })
      @meta("ui:button", { kind: "big" })
      action shop.sell(n?: number) { stop }
    }"""
    assert compile_mel(source).schema == {
        "id": "urn:example:shop",
        "version": "2.0.0",
        "description": "A shop",
        "state": {
            "fields": {"stock": {"type": "number", "default": 3, "description": "in pieces"}},
            "description": "open orders",
        },
        "actions": {
            "shop.sell": {
                "input": {"type": "object", "fields": {"n": {"type": "number"}}},
                "flow": {"kind": "halt"},
                "label": "Sell",
                "meta": {"a": [1]},
            }
        },
        "hash": compile_mel(source).schema["hash"],  # type: ignore[index]
    }


def test_a_name_means_a_parameter_before_a_computed_value_before_the_state() -> None:
    found = schema(
        "computed count = 1 action b() { patch count = count } "
        "action act(count: number) { patch name = toString(count) }"
    )
    assert found["actions"]["act"]["flow"]["value"]["arg"] == get("input.count")
    assert found["actions"]["b"]["flow"]["value"] == get("computed.count")


def test_words_of_the_grammar_are_names_where_no_keyword_is_expected() -> None:
    words = [
        "type",
        "state",
        "computed",
        "action",
        "flow",
        "when",
        "once",
        "patch",
        "merge",
        "unset",
        "with",
        "stop",
        "include",
        "available",
        "else",
    ]
    fields = " ".join(f"{word}: number = {at}" for at, word in enumerate(words))
    total = " + ".join(words)
    compiled = compile_mel(
        f"domain D {{ state {{ {fields} }} computed sum = {total} action go() {{ patch when = type }} }}"
    )
    assert compiled.schema is not None, compiled.show()
    assert list(compiled.schema["state"]["fields"]) == words


SEEDS = [
    """domain TodoDomain { state { todos: Array<string> = [] }
       action addTodo(title: string) { patch todos = append(todos, title) } }""",
    """domain TodoDomain { state { todos: Array<string> = [] }
       action addTodo(title: string, priority: "low" | "medium" | "high" | null) {
         when eq(trim(title), "") { fail "TITLE_REQUIRED" } patch todos = append(todos, title) } }""",
    """domain Example { state { completedCount: number = 0 }
       action clearCompleted() available when gt(completedCount, 0) { patch completedCount = 0 } }""",
]


@pytest.mark.requirement("IC-available")
def test_the_examples_of_the_specification_compile_and_work(tmp_path: Path) -> None:
    realms = []
    for at, source in enumerate(SEEDS):
        (tmp_path / f"{at}.mel").write_text(source)
        realm = Realm.create("sqlite:///:memory:", domain=tmp_path / f"{at}.mel")
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        realms.append(realm)
    adding, checking, clearing = realms
    assert adding.act("ann", "addTodo", {"title": "tea"}).status == "completed"
    assert adding.data()["todos"] == ["tea"]
    assert (
        getattr(checking.act("ann", "addTodo", {"title": " ", "priority": "low"}).error, "code", None)
        == "TITLE_REQUIRED"
    )
    assert checking.act("ann", "addTodo", {"title": "tea", "priority": None}).status == "completed"
    assert getattr(clearing.act("ann", "clearCompleted").error, "code", None) == "ACTION_UNAVAILABLE"
    for realm in realms:
        realm.close()


def test_patches_with_computed_keys_change_the_one_place(tmp_path: Path) -> None:
    (tmp_path / "d.mel").write_text(
        HEAD
        + """
        action add(id: string, n: number) {
          patch bag[id] = { id: id, n: n }
          patch rows = append(rows, { id: id, n: n })
        }
        action raise(id: string, at: number) { patch bag[id].n = bag[id].n + 1 patch rows[at].n = rows[at].n + 1 }
        action join(id: string, at: number) { patch bag[id] merge { n: 7 } patch rows[at] merge { n: 7 } }
        action drop(id: string) { patch bag[id] unset }
        }"""
    )
    with Realm.create("sqlite:///:memory:", domain=str(tmp_path / "d.mel")) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        for id_ in ("a.b", "c"):
            assert realm.act("ann", "add", {"id": id_, "n": 1}).status == "completed"
        realm.act("ann", "raise", {"id": "a.b", "at": 1})
        assert realm.data()["bag"] == {"a.b": {"id": "a.b", "n": 2}, "c": {"id": "c", "n": 1}}
        assert [row["n"] for row in realm.data()["rows"]] == [1, 2]
        realm.act("ann", "join", {"id": "c", "at": 0})
        assert realm.data()["bag"]["c"] == {"id": "c", "n": 7}
        assert [row["n"] for row in realm.data()["rows"]] == [7, 2]
        realm.act("ann", "drop", {"id": "a.b"})
        assert realm.data()["bag"] == {"c": {"id": "c", "n": 7}}


@pytest.mark.parametrize(("name", "winner"), [("argmax", "b"), ("argmin", "a")])
@pytest.mark.parametrize("tie", ["first", "last"])
def test_ranks_choose_the_documented_candidate(name: str, winner: str, tie: str) -> None:
    from world.core import Scope, compile_expression

    def of(*rows: tuple[str, bool, int]) -> Any:
        candidates = ", ".join(f'["{label}", {str(ok).lower()}, {score}]' for label, ok, score in rows)
        found = compile_mel(f'domain D {{ computed c = {name}({candidates}, "{tie}") }}').schema
        assert found is not None
        return compile_expression(found["computed"]["fields"]["computed.c"]["expr"])(Scope({}, computed={}))

    assert of(("a", True, 1), ("b", True, 2)) == winner
    assert of(("a", True, 1), ("b", True, 1), ("c", True, 1)) == ("a" if tie == "first" else "c")
    assert of(("a", False, 1), ("b", True, 1), ("c", True, 1)) == ("b" if tie == "first" else "c")
    assert of(("a", False, 1), ("b", False, 2)) is None


def test_every_function_has_a_node_or_is_sugar_and_its_documented_arity() -> None:
    from world.core.expressions.expression import KINDS as NODES
    from world.core.mel.functions import KINDS, SUGAR

    assert set(KINDS.values()) <= NODES
    made = {*KINDS.values(), "minArray", "maxArray", "lit", "get", "object", "field"}
    assert made == NODES
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "mel.md").read_text()
    assert {*KINDS, *SUGAR} <= set(re.findall(r"`(\w+)", page))
