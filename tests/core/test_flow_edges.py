"""Flows: every end has its status, its code, its place and its sentence; every bound holds at its value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_compute import CONTEXT, domain, effect_node, get, lit, put, run, seq, start
from tests.support.tables import for_each
from world.core import Domain, EffectAnswer, Invocation, apply, compute, genesis
from world.core.availability import ACTOR
from world.core.execution import MAX_EFFECTS, MAX_FLOW_DEPTH, MAX_PATCHES, Execution, StopError
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.immutable_json import freeze
from world.model.patch import Patch, set_, unset
from world.model.snapshot import ErrorValue

AT = "actions.go.flow"
FAIL = {"kind": "fail", "code": "NO"}
HALF = "the text holds half of a surrogate pair, which UTF-8 cannot carry."


@pytest.mark.requirement("HC-flow", "WP-hash")
@for_each(
    ("node", "code", "place", "message"),
    [
        ({"kind": "what"}, "INTERNAL_ERROR", "", "Unknown flow kind: what"),
        (5, "INTERNAL_ERROR", "", "Unknown flow kind: None"),
        ({"kind": "seq"}, "INTERNAL_ERROR", "", "Malformed flow node of kind seq."),
        ({"kind": "if", "cond": lit(1)}, "INTERNAL_ERROR", "", "Malformed flow node of kind if."),
        ({"kind": "patch", "op": "move", "path": "count"}, "INTERNAL_ERROR", "", "Malformed flow node of kind patch."),
        ({"kind": "patch", "op": "set", "path": "count"}, "TYPE_MISMATCH", "", "The patch of 'count' has no value."),
        ({"kind": "effect"}, "INTERNAL_ERROR", "", "Malformed flow node of kind effect."),
        ({"kind": "fail"}, "INTERNAL_ERROR", "", "Malformed flow node of kind fail."),
        (FAIL, "NO", "", "NO"),
        ({**FAIL, "message": lit("so")}, "NO", "", "so"),
        ({**FAIL, "message": lit("")}, "NO", "", "NO"),
        ({**FAIL, "message": {"kind": "what"}}, "NO", "", "NO"),
        ({**FAIL, "message": lit("é")}, "NO", "", "é"),
        (seq(put("count", lit(2)), FAIL), "NO", ".steps[1]", "NO"),
        ({"kind": "if", "cond": lit(0), "then": FAIL}, "NO", ".then", "NO"),
        ({"kind": "if", "cond": lit(False), "then": {"kind": "halt"}, "else": FAIL}, "NO", ".else", "NO"),
        ({"kind": "if", "cond": lit(None), "then": {"kind": "halt"}, "else": FAIL}, "NO", ".else", "NO"),
        (
            {"kind": "if", "cond": {"kind": "what"}, "then": FAIL},
            "INTERNAL_ERROR",
            "",
            "Unknown expression kind: what",
        ),
        (seq({"kind": "call", "flow": "other"}), "NO", ".steps[0]>actions.other.flow.steps[0]", "NO"),
        ({"kind": "call", "flow": "none"}, "UNKNOWN_FLOW", "", "There is no flow 'none' to call."),
        (put("none", lit(1)), "PATH_NOT_FOUND", "", "The state has no place 'none'."),
        (put("count", {"kind": "what"}), "INTERNAL_ERROR", "", "Unknown expression kind: what"),
        (
            put("bag", {"kind": "split", "str": lit("\U0001f600"), "delimiter": lit("")}),
            "TYPE_MISMATCH",
            "",
            f"The patch of 'bag' does not fit. At $[0]: {HALF}",
        ),
        (
            {
                "kind": "effect",
                "type": "x",
                "params": {"a": {"kind": "substring", "str": lit("\U0001f600"), "start": lit(0), "end": lit(1)}},
            },
            "TYPE_MISMATCH",
            "",
            f"The arguments of x are no JSON. At $.a: {HALF}",
        ),
        ({"kind": "effect", "type": "x", "params": {"a": {"kind": "what"}}}, "INTERNAL_ERROR", "", None),
        (
            {"kind": "effect", "type": "array.map", "params": {"source": get("list")}},
            "INVALID_INPUT",
            "",
            "array.map lacks select, into.",
        ),
        (
            {"kind": "effect", "type": "array.filter"},
            "INVALID_INPUT",
            "",
            "array.filter lacks source, where, into.",
        ),
        (
            {
                "kind": "effect",
                "type": "array.map",
                "params": {"source": get("list"), "select": get("$item"), "into": lit(5)},
            },
            "INVALID_INPUT",
            "",
            "array.map needs a path in into.",
        ),
    ],
)  # fmt: skip
def test_an_error_of_a_flow_is_at_its_node(node: Any, code: str, place: str, message: str | None) -> None:
    program = domain(unchecked=True, go={"flow": node}, other=seq(FAIL))
    done = run(program)
    error = done.error
    assert (done.status, done.patches, done.requirements) == ("error", (), ())
    assert (error.code, error.node_path, error.action_id, error.timestamp) == (code, AT + place, "go", 5_000)
    assert message is None or error.message == message
    assert (done.snapshot.system.status, done.snapshot.system.last_error) == ("error", error)
    assert done.snapshot.system.errors == (error,)
    assert done.snapshot.data == start(program).data


@pytest.mark.requirement("HC-flow")
@pytest.mark.parametrize(
    ("node", "status", "count"),
    [
        (seq(), "complete", 1),
        (seq(put("count", lit(2)), {"kind": "halt"}, put("count", lit(3))), "halted", 2),
        ({"kind": "if", "cond": lit(""), "then": put("count", lit(2)), "else": FAIL}, "complete", 2),
        ({"kind": "if", "cond": lit(False), "then": FAIL}, "complete", 1),
        ({"kind": "if", "cond": lit(None), "then": FAIL, "else": None}, "complete", 1),
        (seq({"kind": "call", "flow": "two"}, put("name", lit("x"))), "complete", 2),
        (seq({"kind": "call", "flow": "stops"}, put("count", lit(9))), "halted", 1),
    ],
)
def test_a_flow_ends_as_its_nodes_say(node: Any, status: str, count: int) -> None:
    done = run(domain(go=node, two=put("count", lit(2)), stops={"kind": "halt"}))
    assert (done.status, done.snapshot.data["count"], done.error) == (status, count, None)
    assert (done.snapshot.system.status, done.snapshot.system.current_action) == ("idle", None)


@pytest.mark.requirement("HC-flow")
def test_arrays_are_mapped_and_filtered_at_once() -> None:
    def inline(name: str, parameter: str, inner: Any) -> Any:
        return {
            "kind": "effect",
            "type": name,
            "params": {"source": get("items"), parameter: inner, "into": lit("list")},
        }

    done = run(domain(go=inline("array.map", "select", get("$item.id"))))
    assert (done.status, done.snapshot.data["list"], done.requirements) == ("complete", ["a", "b"], ())
    done = run(domain(go=inline("array.filter", "where", get("$item.done"))))
    assert done.snapshot.data["list"] == [{"id": "b", "done": True}]


@pytest.mark.requirement("IC-effects", "IC-reqid")
def test_a_pending_computation_says_what_it_waits_for() -> None:
    program = domain(go=seq(put("count", lit(2)), effect_node("mail", to="ann"), put("name", lit("sent"))))
    done = run(program)
    (wanted,) = done.requirements
    assert done.status == "pending"
    assert (wanted.type, wanted.params, wanted.action_id, wanted.node_path) == (
        "mail",
        {"to": "ann"},
        "go",
        f"{AT}.steps[1]",
    )
    system = done.snapshot.system
    assert (system.status, system.pending_requirements, system.current_action) == ("pending", (wanted,), "go")
    assert done.snapshot.data["count"] == 2
    journal = {wanted.id: EffectAnswer(patches=(set_("name", "x"), set_("count", 7)))}
    later = run(program, journal=journal)
    assert (later.status, later.answered) == ("complete", (wanted.id,))
    assert (later.snapshot.data["name"], later.snapshot.data["count"]) == ("sent", 7)
    assert [patch.path for patch in later.patches] == ["count", "name", "count", "name"]
    error = ErrorValue.at("DOWN", "no", "go", "x", 1)
    failed = run(program, journal={wanted.id: EffectAnswer(error=error, patches=(set_("name", "x"),))})
    assert (failed.status, failed.error, failed.answered) == ("error", error, (wanted.id,))
    misfit = run(program, journal={wanted.id: EffectAnswer(patches=(set_("count", "x"),))})
    assert (misfit.error.code, misfit.error.node_path) == ("TYPE_MISMATCH", f"{AT}.steps[1]")
    no_params = run(domain(go={"kind": "effect", "type": "x"})).requirements[0]
    assert no_params.params == {}


@pytest.mark.requirement("HC-flow")
def test_flows_are_nested_through_calls_as_deep_as_in_themselves() -> None:
    def flows(levels: int) -> Any:
        chain = {f"f{at}": {"kind": "call", "flow": f"f{at + 1}"} for at in range(levels)}
        return domain(unchecked=True, go={"kind": "call", "flow": "f0"}, **chain, **{f"f{levels}": {"kind": "halt"}})

    assert MAX_FLOW_DEPTH == 64
    assert run(flows(63)).status == "halted"
    error = run(flows(64)).error
    assert (error.code, error.message) == ("LIMIT_EXCEEDED", "Flows call each other deeper than 64 levels.")
    assert error.node_path == AT + "".join(f">actions.f{at}.flow" for at in range(64))
    again = seq(*[{"kind": "call", "flow": "leaf"}] * 200)  # depth is given back after each call
    assert run(domain(go=again, leaf=seq())).status == "complete"
    nested: Any = {"kind": "halt"}
    for _ in range(63):
        nested = seq(nested)
    assert run(domain(unchecked=True, go=nested)).status == "halted"
    error = run(domain(unchecked=True, go=seq(nested))).error
    assert (error.code, error.message) == ("LIMIT_EXCEEDED", "Flow nodes are nested deeper than 64 levels.")
    assert error.node_path == AT + ".steps[0]" * 64
    half: Any = {"kind": "call", "flow": "deep"}
    deep: Any = {"kind": "call", "flow": "leaf"}
    for _ in range(31):
        half, deep = seq(half), seq(deep)
    assert run(domain(unchecked=True, go=half, deep=deep, leaf=seq())).status == "complete"
    assert run(domain(unchecked=True, go=seq(half), deep=deep, leaf=seq())).error.code == "LIMIT_EXCEEDED"
    for _ in range(3):  # the depth of the first call is given back before the second
        assert run(domain(unchecked=True, go=seq(*[{"kind": "call", "flow": "deep"}] * 3), deep=deep, leaf=seq())
                   ).status == "complete"  # fmt: skip


@pytest.mark.requirement("HC-flow")
def test_an_execution_makes_so_many_effects_and_patches_and_no_more() -> None:
    class Anything(dict[str, EffectAnswer]):
        def __contains__(self, key: object) -> bool:
            return True

        def __missing__(self, key: str) -> EffectAnswer:
            return EffectAnswer()

    assert (MAX_EFFECTS, MAX_PATCHES) == (1_000, 100_000)
    journal = Anything(some=EffectAnswer())
    ends = {}
    for count in (1_000, 1_001):
        done = run(domain(unchecked=True, go=seq(*[effect_node("x")] * count)), journal=journal)
        ends[count] = (done.status, len(done.answered))
    assert ends == {1_000: ("complete", 1_000), 1_001: ("error", 1_000)}
    assert done.error.message == "One execution makes more than 1000 effects."
    assert done.error.node_path == f"{AT}.steps[1000]"
    program = domain(go=seq())
    execution = Execution(program, start(program), Invocation("go", None, "i"), CONTEXT, {})
    execution.patches = [unset("name")] * (MAX_PATCHES - 1)
    execution.apply(set_("count", 2), "here")
    with pytest.raises(StopError) as caught:
        execution.apply(set_("count", 3), "here")
    assert caught.value.error is not None
    assert (caught.value.error.code, caught.value.error.node_path) == ("LIMIT_EXCEEDED", "here")
    assert caught.value.error.message == "One execution makes more than 100000 patches."
    assert execution.data["count"] == 2


@pytest.mark.requirement("IC-available", "IC-validate", "IC-nostate", "HC-snapshot")
def test_what_cannot_begin_is_an_error_outside_of_the_flow() -> None:
    action = {
        "flow": put("count", lit(2)),
        "available": {"kind": "lt", "left": get("count"), "right": lit(5)},
        "input": {"type": "object", "fields": {"n": {"type": "number", "required": True}}},
    }
    program = domain(go=action)

    def error(action: str = "go", value: Any = None, intent_id: str = "i", **data: Any) -> ErrorValue:
        found = compute(program, start(program, **data), Invocation(action, value, intent_id), CONTEXT).error
        assert found is not None
        assert found.node_path == ""
        return found

    assert error("none").code == "UNKNOWN_ACTION"
    assert error("none").message == "The domain has no action 'none'."
    assert error(intent_id="").code == "INVALID_INPUT"
    assert error(intent_id="").message == "An intent needs an intentId."
    assert error(value={"n": 1}, count=5).code == "ACTION_UNAVAILABLE"
    assert error(value={"n": 1}, count=5).message == "The action 'go' is not available in this state."
    wrong = error(value={"n": "x", "m": 1})
    assert (wrong.code, wrong.context) == (
        "INVALID_INPUT",
        {
            "faults": [
                {"path": "input.n", "message": "must be a finite number, not 'x'"},
                {"path": "input.m", "message": "is not a known field"},
            ]
        },
    )
    assert wrong.message == (
        "The input of 'go' does not fit: input.n must be a finite number, not 'x'; input.m is not a known field."
    )
    odd = error(value={"n": float("nan")})
    assert (odd.code, odd.message) == ("INVALID_INPUT", "At $.n: nan is no JSON number.")
    refused = compute(program, start(program), Invocation("go", {"n": float("nan")}, "i"), CONTEXT)
    assert (refused.status, refused.snapshot.input) == ("error", None)
    done = run(program, value={"n": 1})
    assert (done.snapshot.input, done.snapshot.meta.version) == ({"n": 1}, 1)
    assert (done.snapshot.meta.timestamp, done.snapshot.meta.random_seed) == (5_000, "intent-1")
    assert done.snapshot.meta.schema_hash == program.schema.hash


@pytest.mark.requirement("IC-available", "INT-7.4.5")
def test_availability_is_that_of_the_actor_who_acts() -> None:
    mine = {"kind": "eq", "left": get(f"{ACTOR}.actorId"), "right": lit("ann")}
    program = domain(unchecked=True, go={"flow": put("count", lit(2)), "available": mine})
    for actor, status in ((ActorRef(actor_id="ann", kind="human"), "complete"), (None, "error"),
                          (ActorRef(actor_id="bob", kind="human"), "error")):  # fmt: skip
        assert compute(program, start(program), Invocation("go", None, "i", actor), CONTEXT).status == status


# apply and genesis


@pytest.mark.requirement("HC-compute", "HC-snapshot")
def test_patches_are_applied_all_or_none_and_leave_the_meta_alone() -> None:
    program = domain(go=seq())
    base = start(program)
    done = apply(program, base, [set_("count", 2), set_("meta.version", 99), set_("meta", {})], CONTEXT)
    assert (done.data["count"], done.meta.version, done.computed["computed.double"]) == (2, 1, 4)
    assert "meta" not in done.data
    for patch, code in ((set_("none", 1), "PATH_NOT_FOUND"), (set_("items.9", {"id": "x"}), "PATH_NOT_FOUND")):
        failed = apply(program, base, [set_("count", 2), patch], CONTEXT)
        error = failed.system.last_error
        assert error is not None
        assert (error.code, error.node_path, error.action_id, error.timestamp) == (code, patch.path, "", 5_000)
        assert (failed.data, failed.system.status, failed.system.errors) == (base.data, "error", (error,))
        assert failed.meta.version == 1
        mended = apply(program, failed, [set_("count", 3)], CONTEXT)
        assert (mended.system.status, mended.system.last_error, mended.system.errors) == ("idle", None, ())
    pending = run(domain(go=effect_node("x"))).snapshot
    kept = apply(program, pending, [Patch("set", "count", 5)], CONTEXT)
    assert (kept.system.status, kept.system.pending_requirements) == ("pending", pending.system.pending_requirements)


@pytest.mark.requirement("HC-snapshot")
def test_genesis_is_refused_with_every_fault() -> None:
    program = domain(go=seq())
    with pytest.raises(RefusedError) as caught:
        genesis(program, CONTEXT, {"count": "x", "none": 1, "a.b": 1})
    assert caught.value.code == "INVALID_DATA"
    assert caught.value.details["faults"] == [
        "The state has no place 'a\\\\.b'.",
        "The patch of 'count' does not fit: it must be a finite number, not 'x'.",
        "The state has no place 'none'.",
    ]
    assert caught.value.message == "The data cannot start like this: " + " ".join(caught.value.details["faults"])
    first = genesis(program, CONTEXT, {"count": 4})
    assert (first.data["count"], first.meta.version, first.meta.timestamp, first.input) == (4, 0, 5_000, None)
    assert first.computed["computed.quad"] == 16
    assert freeze(first.system.to_wire())["status"] == "idle"


@pytest.mark.requirement("HC-snapshot")
def test_a_field_may_have_any_name_that_paths_can_write() -> None:
    names = ["a.b", "a\\b", "a\\.b", "é", " "]
    fields = {name: {"type": "number"} for name in names}
    program = Domain("urn:test:names", version="1.0.0", state={"fields": fields})
    program.flow("go", {"kind": "halt"})
    for name in names:
        assert genesis(program, CONTEXT, {name: 3}).data == {name: 3}
        with pytest.raises(RefusedError) as caught:
            genesis(program, CONTEXT, {name: "x"})
        assert caught.value.code == "INVALID_DATA"
