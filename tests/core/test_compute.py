"""compute and apply: pure, total, bounded, and continued from a journal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from world.core import (
    ComputeContext,
    Domain,
    EffectAnswer,
    Invocation,
    apply,
    availability,
    compile_expression,
    compute,
    genesis,
    load_domain,
    recompute,
)
from world.core.execution import MAX_EFFECTS, MAX_FLOW_DEPTH
from world.core.expressions.scope import MAX_ITERATIONS, Scope
from world.core.expressions.string_functions import MAX_TEXT
from world.core.schema import unchecked_schema
from world.core.validate import MAX_STATE_DEPTH
from world.core.values import ExpressionError
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from world.model.identity import requirement_id, snapshot_hash
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import apply_patches, set_
from world.model.snapshot import ErrorValue, Snapshot, SnapshotView

CONTEXT = ComputeContext(now=5_000, random_seed="intent-1")


def lit(value: Any) -> dict[str, Any]:
    return {"kind": "lit", "value": value}


def get(path: str) -> dict[str, Any]:
    return {"kind": "get", "path": path}


def put(path: str, value: Any) -> dict[str, Any]:
    return {"kind": "patch", "op": "set", "path": path, "value": value}


def seq(*steps: Any) -> dict[str, Any]:
    return {"kind": "seq", "steps": list(steps)}


def effect_node(name: str, **params: Any) -> dict[str, Any]:
    return {"kind": "effect", "type": name, "params": {key: lit(value) for key, value in params.items()}}


FIELDS: dict[str, Any] = {
    "count": {"type": "number", "required": True, "default": 1},
    "name": {"type": "string", "required": True, "default": ""},
    "items": {
        "type": "array",
        "required": True,
        "default": [{"id": "a", "done": False}, {"id": "b", "done": True}],
        "items": {
            "type": "object",
            "fields": {"id": {"type": "string", "required": True}, "done": {"type": "boolean"}},
        },
    },
    "bag": {"type": "object", "required": True, "default": {}},
    "list": {"type": "array", "required": True, "default": []},
}
COMPUTED = {
    "computed.double": {
        "deps": ["count"],
        "expr": {"kind": "add", "left": get("count"), "right": get("count")},
    },
    "computed.quad": {
        "deps": ["computed.double"],
        "expr": {"kind": "add", "left": get("computed.double"), "right": get("computed.double")},
    },
    "computed.size": {"deps": ["items"], "expr": {"kind": "len", "arg": get("items")}},
    "computed.keys": {"deps": ["bag", "computed.size"], "expr": {"kind": "keys", "obj": get("bag")}},
}


def domain(*, unchecked: bool = False, **actions: Any) -> Domain:
    portable = {
        "id": "urn:test:compute",
        "version": "1.0.0",
        "state": {"fields": FIELDS},
        "computed": {"fields": COMPUTED},
        "actions": {name: {"flow": action} if "kind" in action else action for name, action in actions.items()},
    }
    return Domain.of_schema(unchecked_schema(portable)) if unchecked else load_domain(portable)


def start(program: Domain, **data: Any) -> Snapshot:
    return genesis(program, ComputeContext(1_000, "genesis"), data)


def run(program: Domain, action: str = "go", value: Any = None, journal: Any = None, **data: Any) -> Any:
    invocation = Invocation(action, value, "intent-1")
    return compute(program, start(program, **data), invocation, CONTEXT, journal or {})


# --- purity and the resulting snapshot ------------------------------------------------------------


@pytest.mark.requirement("HC-compute", "HC-context", "IC-nostate")
def test_equal_arguments_give_an_equal_computation() -> None:
    program = domain(go=seq(put("name", get("$system.uuid")), put("bag", lit({"t": 1})), put("list", get("items"))))
    base = start(program)
    before = canonical_bytes(base.to_wire())
    first, second = (compute(program, base, Invocation("go", None, "intent-1"), CONTEXT) for _ in range(2))
    assert first == second
    assert canonical_bytes(base.to_wire()) == before
    other = compute(program, base, Invocation("go", None, "intent-2"), ComputeContext(5_000, "intent-2"))
    assert other.snapshot.data["name"] != first.snapshot.data["name"]


@pytest.mark.requirement("HC-context")
def test_time_and_ids_come_from_the_context_alone() -> None:
    program = domain(
        go=seq(
            put("name", get("$system.timestamp")),
            put(
                "list",
                {"kind": "append", "array": lit([]), "items": [get("$system.uuid"), get("$system.uuid")]},
            ),
        )
    )
    data = run(program).snapshot.data
    assert data["name"] == "1970-01-01T00:00:05.000Z"
    assert len(set(data["list"])) == 2


@pytest.mark.requirement("HC-snapshot")
def test_a_snapshot_reads_back_from_its_canonical_text() -> None:
    program = domain(go=seq(put("bag", lit({"é": [1, 0.5, None]})), effect_node("http", url="u")))
    for snapshot in (start(program), run(program).snapshot, run(program, "nobody").snapshot):
        assert Snapshot.from_wire(read_json(canonical_bytes(snapshot.to_wire()))) == snapshot
        assert len(snapshot_hash(snapshot.to_wire())) == 64


@pytest.mark.requirement("HC-snapshot")
@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"data": {}},
        {"meta": {"version": 1, "timestamp": 1, "randomSeed": "", "schemaHash": ""}},
        {"data": [], "meta": {"version": 1, "timestamp": 1, "randomSeed": "", "schemaHash": ""}},
        {"data": {}, "meta": {"version": 1, "timestamp": 1, "randomSeed": ""}},
        {"data": [], "meta": {}},
        {"data": {}, "meta": {"version": "x"}},
        {
            "data": {},
            "meta": {"version": 1, "timestamp": 1, "randomSeed": "", "schemaHash": ""},
            "system": {"status": "?"},
        },
    ],
)
def test_a_malformed_snapshot_is_refused(wire: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        Snapshot.from_wire(wire)
    assert caught.value.code == "INVALID_SNAPSHOT"


@pytest.mark.requirement("HC-compute")
def test_a_failure_leaves_the_data_as_it_was_and_no_patches() -> None:
    program = domain(go=seq(put("count", lit(9)), {"kind": "fail", "code": "E_STOP", "message": lit("no")}))
    done = run(program)
    assert (done.status, done.patches, done.snapshot.data) == ("error", (), start(program).data)
    assert done.error == ErrorValue.at("E_STOP", "no", "go", "actions.go.flow.steps[1]", 5_000)
    assert done.snapshot.system.errors == (done.error,)


def test_errors_are_those_of_the_execution_that_made_the_snapshot() -> None:
    program = domain(go={"kind": "fail", "code": "E"}, ok=put("count", lit(2)))
    failed = run(program).snapshot
    again = compute(program, failed, Invocation("go", None, "intent-2"), CONTEXT).snapshot
    assert len(again.system.errors) == 1
    good = compute(program, failed, Invocation("ok", None, "intent-3"), CONTEXT).snapshot
    assert (good.system.errors, good.system.last_error, good.meta.version) == ((), None, 2)


@pytest.mark.requirement("HC-compute")
def test_a_flow_sees_computed_values_of_its_earlier_patches() -> None:
    done = run(
        domain(
            go=seq(
                put("count", lit(3)),
                put("list", {"kind": "append", "array": lit([]), "items": [get("computed.quad")]}),
            )
        )
    )
    assert done.snapshot.data["list"] == [12]


# --- any flow -------------------------------------------------------------------------------------

VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", 0.5, [], {}, [1, {"a": 2}]])
READS = st.sampled_from(["count", "name", "items", "items.0", "items.0.done", "bag", "bag.a", "list", "list.0"]).map(
    get
) | st.sampled_from(
    ["input", "input.x", "computed.double", "computed.keys", "$item", "$item.done", "$system.uuid"]
).map(get)
KINDS = st.sampled_from(["add", "sub", "mul", "div", "mod", "eq", "gt"])
EXPRESSIONS = st.recursive(
    VALUES.map(lit) | READS,
    lambda inner: (
        st.builds(lambda kind, left, right: {"kind": kind, "left": left, "right": right}, KINDS, inner, inner)
        | st.builds(
            lambda kind, args: {"kind": kind, "args": args},
            st.sampled_from(["concat", "and"]),
            st.lists(inner),
        )
        | st.builds(
            lambda a, items: {"kind": "append", "array": a, "items": items},
            inner,
            st.lists(inner, max_size=2),
        )
        | st.builds(lambda a, b: {"kind": "map", "array": a, "mapper": b}, inner, inner)
        | st.builds(lambda a: {"kind": "object", "fields": {"a": a}}, inner)
        | st.builds(lambda a: {"kind": "unique", "array": a}, inner)
    ),
    max_leaves=6,
)
TARGETS = st.sampled_from(["count", "name", "items", "items.0.done", "items.7", "bag", "bag.a.b", "list", "$mel.x"])
PATCHES = st.builds(
    lambda op, path, value: {"kind": "patch", "op": op, "path": path, "value": value},
    st.sampled_from(["set", "set", "merge", "unset"]),
    TARGETS,
    EXPRESSIONS,
)
FLOWS = st.recursive(
    PATCHES | st.sampled_from([{"kind": "halt"}, {"kind": "fail", "code": "E"}, effect_node("load", n=1)]),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda steps: seq(*steps))
        | st.builds(lambda c, t, e: {"kind": "if", "cond": c, "then": t, "else": e}, EXPRESSIONS, inner, inner)
    ),
    max_leaves=8,
)


@pytest.mark.requirement("HC-flow", "HC-compute")
@given(FLOWS, VALUES)
def test_any_flow_ends_in_a_value_and_its_patches_make_its_state(flow: Any, value: Any) -> None:
    program = domain(unchecked=True, go=flow)
    base = start(program, bag={"a": {"b": 1}}, list=[1, [2], {"a": 2}])
    intent = Invocation("go", {"x": value}, "intent-1")
    done = compute(program, base, intent, CONTEXT)
    assert done == compute(program, base, intent, CONTEXT)
    assert apply_patches(base.data, done.patches) == done.snapshot.data
    assert apply(program, base, done.patches, CONTEXT).data == done.snapshot.data
    assert recompute(program, done.snapshot.data) == done.snapshot.computed
    # A state that was read from its text answers exactly as the one that was computed.
    read = Snapshot.from_wire(read_json(canonical_bytes(base.to_wire())))
    assert compute(program, read, intent, CONTEXT) == done
    after = done.snapshot
    again = Snapshot.from_wire(read_json(canonical_bytes(after.to_wire())))
    assert compute(program, again, intent, CONTEXT) == compute(program, after, intent, CONTEXT)


@given(st.lists(st.tuples(TARGETS, VALUES), max_size=6))
def test_computed_values_always_equal_a_full_recomputation(changes: list[tuple[str, Any]]) -> None:
    program = domain(go=seq())
    snapshot = start(program)
    for path, value in changes:
        snapshot = apply(program, snapshot, [set_(path, value)], CONTEXT)
        assert snapshot.computed == recompute(program, snapshot.data)


# --- admission ------------------------------------------------------------------------------------


@pytest.mark.requirement("IC-validate")
def test_invalid_input_is_an_error_that_names_each_fault_and_the_flow_does_not_run() -> None:
    spec = {
        "type": "object",
        "required": True,
        "fields": {
            "title": {"type": "string", "required": True},
            "level": {"type": {"enum": ["low", "high"]}},
            "tags": {"type": "array", "items": {"type": "object", "fields": {"n": {"type": "number"}}}},
        },
    }
    program = domain(go={"flow": put("count", lit(5)), "input": spec})
    done = run(program, value={"level": "mid", "tags": [{"n": "x"}]})
    assert done.error.code == "INVALID_INPUT"
    paths = [fault["path"] for fault in done.error.context["faults"]]
    assert paths == ["input.level", "input.tags[0].n", "input.title"]
    assert done.snapshot.data["count"] == 1
    assert run(program, value={"title": "t", "level": "low", "tags": [{"n": 1}]}).status == "complete"


@pytest.mark.requirement("IC-validate")
@pytest.mark.parametrize("value", [float("nan"), {1, 2}, {"x": "\ud800"}, 2**53 + 1])
def test_input_that_is_no_json_is_an_error_value(value: Any) -> None:
    assert run(domain(go=seq()), value=value).error.code == "INVALID_INPUT"


@pytest.mark.requirement("IC-available")
def test_an_unavailable_action_is_an_error_and_does_not_run() -> None:
    program = domain(
        go={
            "flow": put("count", lit(5)),
            "available": {"kind": "gt", "left": get("computed.double"), "right": lit(2)},
        }
    )
    assert run(program).error.code == "ACTION_UNAVAILABLE"
    assert run(program).patches == ()
    assert run(program, count=2).status == "complete"


@pytest.mark.requirement("IC-available")
def test_availability_is_told_to_readers_of_a_view() -> None:
    program = domain(
        unchecked=True,
        go={"flow": seq(), "available": {"kind": "gt", "left": get("computed.size"), "right": lit(0)}},
        always=seq(),
        broken={"flow": seq(), "available": {"kind": "nope"}},
    )
    empty = SnapshotView(freeze({"items": []}), FrozenDict())
    assert availability(program, start(program).view, "go") is True
    assert availability(program, empty, "go") is False
    assert availability(program, empty, "always") is True
    assert availability(program, empty, "broken") is None
    assert availability(program, empty, "nobody") is False


# --- effects and re-entry -------------------------------------------------------------------------

LOADING = seq(
    put("count", lit(2)),
    effect_node("http.get", url="u"),
    put("name", lit("loaded")),
    effect_node("http.get", url="u"),
)


@pytest.mark.requirement("IC-effects", "IC-reentry", "HC-compute")
def test_an_execution_stops_at_an_effect_and_goes_on_from_the_journal() -> None:
    program = domain(go=LOADING)
    first = run(program)
    assert (first.status, first.snapshot.system.status) == ("pending", "pending")
    assert first.snapshot.data["count"] == 2
    (wait,) = first.requirements
    assert (wait.type, wait.params, wait.node_path) == ("http.get", {"url": "u"}, "actions.go.flow.steps[1]")
    journal = {wait.id: EffectAnswer(patches=(set_("bag", {"got": 1}),))}
    second = run(program, journal=journal)
    assert second.status == "pending"
    assert second.requirements[0].id != wait.id  # the same call at another place is another effect
    journal[second.requirements[0].id] = EffectAnswer()
    last = run(program, journal=journal)
    assert last.status == "complete"
    assert last.answered == (wait.id, second.requirements[0].id)
    assert [patch.path for patch in last.patches] == ["count", "bag", "name"]
    assert last == run(program, journal=journal)


@pytest.mark.requirement("IC-reqid", "IC-reentry")
def test_a_requirements_id_is_derived_from_what_names_it() -> None:
    program = domain(go=LOADING)
    (wait,) = run(program).requirements
    hashed = program.schema.hash
    assert wait.id == requirement_id(hashed, "intent-1", "go", "actions.go.flow.steps[1]", "http.get", {"url": "u"})
    assert run(program).requirements[0].id == wait.id
    other = compute(program, start(program), Invocation("go", None, "intent-2"), CONTEXT)
    assert other.requirements[0].id != wait.id


@pytest.mark.requirement("IC-reqid")
def test_a_flow_that_is_called_twice_makes_two_effects() -> None:
    call = {"kind": "call", "flow": "load"}
    program = domain(go=seq(call, call), load=effect_node("load"))
    first = run(program).requirements[0]
    second = run(program, journal={first.id: EffectAnswer()}).requirements[0]
    assert first.id != second.id
    assert run(program, journal={first.id: EffectAnswer(), second.id: EffectAnswer()}).status == "complete"


@pytest.mark.requirement("IC-available", "IC-reentry")
def test_availability_and_input_are_not_checked_again_at_reentry() -> None:
    program = domain(go={"flow": LOADING, "available": {"kind": "eq", "left": get("count"), "right": lit(1)}})
    (wait,) = run(program).requirements
    base = start(program, count=7)  # the branch moved on while the effect ran
    again = compute(program, base, Invocation("go", None, "intent-1"), CONTEXT, {wait.id: EffectAnswer()})
    assert again.status == "pending"


@pytest.mark.requirement("HC-handlers", "IC-effects")
def test_a_failed_effect_ends_a_flow_with_its_error_value() -> None:
    program = domain(go=LOADING)
    (wait,) = run(program).requirements
    error = ErrorValue.at("TIMEOUT", "too late", "go", wait.node_path, 6_000)
    done = run(program, journal={wait.id: EffectAnswer(error=error)})
    assert (done.status, done.error, done.patches) == ("error", error, ())


@pytest.mark.requirement("IC-effects")
def test_an_effects_patches_are_checked_like_any_other() -> None:
    program = domain(go=LOADING)
    (wait,) = run(program).requirements
    done = run(program, journal={wait.id: EffectAnswer(patches=(set_("count", "x"),))})
    assert done.error.code == "TYPE_MISMATCH"


def test_an_effect_result_reads_back_from_its_wire_form() -> None:
    for result in (
        EffectAnswer({"a": [1]}, (set_("count", 1),)),
        EffectAnswer(error=ErrorValue.at("E", "m", "a", "n", 1, {"k": 1})),
    ):
        assert EffectAnswer.from_wire(read_json(canonical_bytes(result.to_wire()))) == result


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.requirement("HC-flow")
def test_too_many_effects_are_an_error_value() -> None:
    program = domain(go=seq(*[effect_node("tick", n=at) for at in range(MAX_EFFECTS + 1)]))
    ids = [
        requirement_id(program.schema.hash, "intent-1", "go", f"actions.go.flow.steps[{at}]", "tick", {"n": at})
        for at in range(MAX_EFFECTS + 1)
    ]
    journal = {key: EffectAnswer() for key in ids}
    assert run(program, journal=journal).error.code == "LIMIT_EXCEEDED"


@pytest.mark.requirement("HC-flow")
def test_flows_that_call_each_other_end() -> None:
    program = domain(unchecked=True, go={"kind": "call", "flow": "back"}, back={"kind": "call", "flow": "go"})
    assert run(program).error.code == "LIMIT_EXCEEDED"
    nested: Any = {"kind": "halt"}
    for _ in range(MAX_FLOW_DEPTH - 1):
        nested = seq(nested)
    assert run(domain(unchecked=True, go=nested)).status == "halted"
    assert run(domain(unchecked=True, go=seq(nested))).error.code == "LIMIT_EXCEEDED"


@pytest.mark.requirement("HC-flow")
def test_nested_walks_are_bounded() -> None:
    many = lit(list(range(1_100)))
    walk = {"kind": "map", "array": many, "mapper": {"kind": "map", "array": many, "mapper": lit(1)}}
    assert MAX_ITERATIONS < 1_100**2
    with pytest.raises(ExpressionError) as caught:
        compile_expression(walk)(Scope(FrozenDict(), computed={}))
    assert caught.value.code == "LIMIT_EXCEEDED"


@pytest.mark.requirement("HC-flow")
def test_texts_and_arrays_that_double_are_bounded() -> None:
    twice = {"kind": "concat", "args": [get("name"), get("name")]}
    program = domain(go=seq(*[put("name", twice)] * 40))
    assert MAX_TEXT < 2**40
    assert run(program, name="x").error.code == "LIMIT_EXCEEDED"
    doubled = {"kind": "concat", "args": [get("list"), get("list")]}
    assert run(domain(go=seq(*[put("list", doubled)] * 40)), list=[1]).error.code == "LIMIT_EXCEEDED"


@pytest.mark.requirement("HC-flow")
@pytest.mark.parametrize(
    "grow",
    [
        {"kind": "object", "fields": {"a": get("bag"), "b": get("bag")}},
        {"kind": "object", "fields": {"a": get("bag")}},
    ],
)
@pytest.mark.slow
def test_a_state_that_is_put_into_itself_stays_bounded(grow: Any) -> None:
    program = domain(go=put("bag", grow))
    snapshot = start(program)
    for _ in range(MAX_STATE_DEPTH + 1):
        done = compute(program, snapshot, Invocation("go", None, "intent-1"), CONTEXT)
        if done.status == "error":
            break
        snapshot = done.snapshot
        assert snapshot_hash(snapshot.to_wire()) if snapshot.meta.version < 12 else True
    assert done.error is not None
    assert done.error.code == "LIMIT_EXCEEDED"


@pytest.mark.requirement("HC-flow")
@pytest.mark.parametrize("value", [1, {"x": 1}])
def test_a_path_does_not_lead_deeper_than_a_state_may_be(value: Any) -> None:
    program = domain(go=seq())
    base = start(program)
    deep = apply(program, base, [set_("bag" + ".a" * (MAX_STATE_DEPTH - 2), value)], CONTEXT)
    assert deep.system.last_error is None
    assert canonical_bytes(deep.to_wire())
    deeper = apply(program, base, [set_("bag" + ".a" * MAX_STATE_DEPTH, value)], CONTEXT)
    assert deeper.system.last_error is not None
    assert deeper.system.last_error.code == "LIMIT_EXCEEDED"


def test_a_value_that_is_no_json_never_reaches_the_state() -> None:
    infinite = {"kind": "mul", "left": lit(1e308), "right": lit(10)}
    half = {"kind": "first", "array": {"kind": "split", "str": lit("😀"), "delimiter": lit("")}}
    for value in (infinite, half, {"kind": "object", "fields": {"x": infinite}}):
        done = run(domain(go=put("bag", {"kind": "object", "fields": {"v": value}})))
        assert done.error.code == "TYPE_MISMATCH"
    pending = run(domain(go={"kind": "effect", "type": "http", "params": {"n": infinite}}))
    assert pending.error.code == "TYPE_MISMATCH"


def test_walked_names_return_after_an_inner_walk() -> None:
    inner = {
        "kind": "some",
        "array": lit([7]),
        "predicate": {"kind": "eq", "left": get("$item"), "right": lit(7)},
    }
    both = {"kind": "append", "array": lit([]), "items": [inner, get("$item"), get("$index")]}
    evaluate = compile_expression({"kind": "map", "array": lit(["a", "b"]), "mapper": both})
    scope = Scope(FrozenDict(), computed={})
    assert evaluate(scope) == [[True, "a", 0], [True, "b", 1]]
    assert (scope.item, scope.index, scope.array) == (None, None, None)


# --- genesis --------------------------------------------------------------------------------------


@pytest.mark.requirement("HC-snapshot")
def test_genesis_holds_the_defaults_and_what_is_given() -> None:
    program = domain(go=seq())
    snapshot = start(program, count=4)
    assert (snapshot.data["count"], snapshot.data["bag"], snapshot.computed["computed.quad"]) == (4, {}, 16)
    assert (snapshot.meta.version, snapshot.meta.schema_hash) == (0, program.schema.hash)
    with pytest.raises(RefusedError) as caught:
        start(program, count="x", nosuch=1)
    assert caught.value.code == "INVALID_DATA"
    assert len(caught.value.details["faults"]) == 2


@pytest.mark.requirement("HC-compute")
def test_apply_takes_all_patches_or_none() -> None:
    program = domain(go=seq())
    base = start(program)
    failed = apply(program, base, [set_("count", 2), set_("count", "x")], CONTEXT)
    assert failed.data is base.data
    assert failed.system.last_error is not None
    assert failed.system.last_error.code == "TYPE_MISMATCH"
    good = apply(program, failed, [set_("count", 2)], CONTEXT)
    assert (good.data["count"], good.computed["computed.double"], good.system.status) == (2, 4, "idle")


def test_a_small_change_of_a_large_state_shares_the_rest() -> None:
    program = domain(go=put("items.5000.done", lit(True)))
    items = [{"id": str(at), "done": False} for at in range(10_000)]
    base = start(program, items=items)
    done = compute(program, base, Invocation("go", None, "intent-1"), CONTEXT)
    before, after = base.data["items"], done.snapshot.data["items"]
    assert [at for at in range(10_000) if before[at] is not after[at]] == [5_000]
    assert done.snapshot.data["bag"] is base.data["bag"]
