"""Patches, paths, growth and Python actions at the edges of their rules, with the sentences of their errors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_domain import AddTodo, act, make, run
from tests.support.tables import for_each
from world.core import ActionContext, EffectAnswer, Patch, effect, merge, set_
from world.core import validate as growth
from world.core.derive import recompute
from world.core.python_action import ActionFailedError, ComputedView
from world.core.schema import load_schema
from world.core.state_model.dialect import DIALECT
from world.core.validate import MAX_FAULTS, MAX_NEW_NODES, MAX_STATE_DEPTH, check_input, check_patch, growth_fault
from world.errors import RefusedError
from world.model.immutable_json import MAX_DEPTH, FrozenDict, freeze
from world.model.patch import apply_patches, scope_allows, touched_paths, unset
from world.model.paths import array_index, format_path, look_up, parse_path
from world.model.snapshot import ErrorValue

DATA = freeze({"a": {"b": [1, {"c": 2}]}, "n": 5, "none": None, "l": []})


@for_each(
    ("patch", "expected"),
    [
        (set_("a.b.0", 9), {"a": {"b": [9, {"c": 2}]}}),
        (set_("a.b.2", 9), {"a": {"b": [1, {"c": 2}, 9]}}),
        (set_("a.b.1.c", 9), {"a": {"b": [1, {"c": 9}]}}),
        (set_("a.b.1.d.e", 9), {"a": {"b": [1, {"c": 2, "d": {"e": 9}}]}}),
        (set_("none.x", 1), {"none": {"x": 1}}),
        (set_("x.0", 1), {"x": {"0": 1}}),
        (unset("a.b.0"), {"a": {"b": [{"c": 2}]}}),
        (unset("a.b.1.c"), {"a": {"b": [1, {}]}}),
        (unset("a.b.5"), {}),
        (unset("a.b.5.x"), {}),
        (unset("a.x.y"), {}),
        (unset("n.x"), {}),
        (unset("n"), {"n": None}),
        (merge("a", {"x": 1}), {"a": {"b": [1, {"c": 2}], "x": 1}}),
        (merge("new.deep", {"x": 1}), {"new": {"deep": {"x": 1}}}),
        (merge("none", {"x": None}), {"none": {"x": None}}),
        (merge("a", {}), {}),
        (Patch("merge", "a", None), {}),
        (merge("a", {f"k{number}": number for number in range(9)}), None),
    ],
)
def test_a_patch_changes_its_place_and_nothing_else(patch: Patch, expected: dict[str, Any] | None) -> None:
    changed = apply_patches(DATA, [patch])
    if expected is None:
        assert changed["a"] == {**DATA["a"], **patch.value}
        return
    wanted = {**DATA, **expected}
    if patch == unset("n"):
        del wanted["n"]
    assert changed == freeze(wanted)


@for_each(
    ("patch", "code", "why"),
    [
        (unset(""), "TYPE_MISMATCH", "the data itself cannot be unset"),
        (set_("", 5), "TYPE_MISMATCH", "the data is an object and stays one"),
        (set_("", [1]), "TYPE_MISMATCH", "the data is an object and stays one"),
        (Patch("merge", "a", 5), "TYPE_MISMATCH", "merge needs an object, and an object or nothing where it goes"),
        (merge("n", {}), "TYPE_MISMATCH", "merge needs an object, and an object or nothing where it goes"),
        (merge("a.b", {}), "TYPE_MISMATCH", "merge needs an object, and an object or nothing where it goes"),
        (set_("a.b.3", 1), "PATH_NOT_FOUND", "the array there has 2 elements and none at '3'"),
        (set_("a.b.2.x", 1), "PATH_NOT_FOUND", "the array there has 2 elements and none at '2'"),
        (set_("a.b.x", 1), "PATH_NOT_FOUND", "the array there has 2 elements and none at 'x'"),
        (set_("a.b.00", 1), "PATH_NOT_FOUND", "the array there has 2 elements and none at '00'"),
        (set_("n.x", 1), "PATH_NOT_FOUND", "'x' would stand inside of a int"),
        (unset("a.b.x"), "PATH_NOT_FOUND", "'x' is no index of the array there"),
    ],
)
def test_a_patch_that_does_not_fit_says_why(patch: Patch, code: str, why: str) -> None:
    with pytest.raises(RefusedError) as caught:
        apply_patches(DATA, [patch])
    assert (caught.value.code, caught.value.details["path"]) == (code, patch.path)
    assert caught.value.message == f"The patch of {patch.path!r} does not fit the data: {why}."


def test_a_path_of_a_patch_is_as_deep_as_data_can_be() -> None:
    deepest = ".".join(["x"] * (MAX_DEPTH - 1))
    assert look_up(apply_patches(freeze({}), [set_(deepest, 1)]), parse_path(deepest)) == 1
    with pytest.raises(RefusedError, match=f"no data is deeper than {MAX_DEPTH} levels"):
        apply_patches(freeze({}), [unset(".".join(["x"] * (MAX_DEPTH + 1)))])
    assert apply_patches(freeze({}), [unset(".".join(["x"] * MAX_DEPTH))]) == {}


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (5, "INVALID_PATCH"),
        ({}, "INVALID_PATCH"),
        ({"op": "move", "path": "a", "value": 1}, "INVALID_PATCH"),
        ({"op": "set", "path": 5, "value": 1}, "INVALID_PATCH"),
        ({"op": "set", "path": "a"}, "INVALID_PATCH"),
        ({"op": "merge", "path": "a"}, "INVALID_PATCH"),
        ({"op": "unset", "path": "a", "value": None}, "INVALID_PATCH"),
        ({"op": "set", "path": "a", "value": 1, "x": 1}, "INVALID_PATCH"),
        ({"op": "set", "path": "a", "value": {1}}, "NOT_CANONICAL"),
    ],
)
def test_what_is_no_patch_is_refused(wire: Any, code: str) -> None:
    with pytest.raises(RefusedError) as caught:
        Patch.from_wire(wire)
    assert caught.value.code == code


@pytest.mark.requirement("INT-5.3")
@pytest.mark.parametrize(
    ("patch", "places"),
    [
        (set_("a.b", 1), [("a", "b")]),
        (set_("", {}), [()]),
        (unset("a.b"), [("a", "b")]),
        (unset("a.0"), [("a", None)]),
        (unset("a.0.x"), [("a", "0", "x")]),
        (unset(""), [()]),
        (set_("a.0", 1), [("a", "0")]),
        (merge("a", {"x": 1, "y": 2}), [("a", "x"), ("a", "y")]),
        (merge("a", {}), [("a",)]),
    ],
)
def test_the_places_that_a_patch_touches(patch: Patch, places: list[Any]) -> None:
    assert list(touched_paths(patch)) == places


@pytest.mark.requirement("INT-5.3")
@pytest.mark.parametrize(
    ("pattern", "allowed", "forbidden"),
    [
        ("data.a", ["a", "a.b", "a.0.x"], ["b", "", "ab"]),
        ("a", ["a", "a.b"], ["data", ""]),
        ("data", ["data", "data.x"], ["a", ""]),
        ("data.*", ["a", "a.b"], [""]),
        ("a.*", ["a.b", "a.b.c"], ["a", "b.a"]),
        ("a.*.c", ["a.b.c", "a.0.c", "a.b.c.d"], ["a.b", "a.b.d", "a.c"]),
        ("a.\\*", ["a.*"], ["a.b"]),
        ("data.data.x", ["data.x"], ["x"]),
    ],
)
def test_a_pattern_allows_its_place_and_what_is_below(pattern: str, allowed: list[str], forbidden: list[str]) -> None:
    for path in allowed:
        assert scope_allows([pattern], set_(path, {})), path
        assert scope_allows(["zzz", pattern], set_(path, {}))
    for path in forbidden:
        assert not scope_allows([pattern], set_(path, {})), path
    assert not scope_allows([], set_("a", 1))
    assert not scope_allows(["a.x"], merge("a", {"x": 1, "y": 2}))


def test_paths_are_split_and_joined_by_their_escapes() -> None:
    for path, names in [
        ("", ()), ("a", ("a",)), ("a.b", ("a", "b")), (".", ("", "")), ("a\\.b", ("a.b",)), ("a\\\\.b", ("a\\", "b")),
        ("a\\x", ("a\\x",)), ("a\\", ("a\\",)), ("\\.", (".",)),
    ]:  # fmt: skip
        assert parse_path(path) == names
        if path not in ("a\\x", "a\\"):
            assert format_path(names) == path
    assert [array_index(text) for text in ("0", "7", "10", "01", "-1", "x", "", "١", "999999999", "1000000000")] == [
        0, 7, 10, None, None, None, None, None, 999_999_999, None,
    ]  # fmt: skip
    for path, value in [("a.b.1.c", 2), ("a.b.length", 2), ("a.b.2", None), ("a.b.size", None), ("n.x", None),
                        ("none.x", None), ("l.length", 0), ("a.b.0", 1), ("zz", None)]:  # fmt: skip
        assert look_up(DATA, parse_path(path)) == value


# Growth and the state's spec


@pytest.mark.requirement("HC-flow")
def test_a_state_grows_by_so_many_values_and_levels_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (MAX_NEW_NODES, MAX_STATE_DEPTH) == (1_000_000, 128)
    monkeypatch.setattr(growth, "MAX_NEW_NODES", 10_000)  # the same rule, quicker
    too_many = "brings more than 10000 values into the state at once"
    assert growth_fault(freeze([0] * 10_000), None, 0) is None
    assert growth_fault(freeze([0] * 10_001), None, 0) == too_many
    assert growth_fault(freeze([[0] * 9_999]), None, 0) is None
    assert growth_fault(freeze([[0] * 10_000]), None, 0) == too_many
    letters = ["x" * 2**20]  # counts as one value and 1,024 kilobytes
    assert growth_fault(freeze([[], letters * 9]), None, 0) is None
    assert growth_fault(freeze([[], letters * 10]), None, 0) == too_many
    assert growth_fault(freeze(letters * 9), None, 0) is None
    assert growth_fault(freeze(letters * 10), None, 0) == too_many  # also where nothing comes after it
    own = freeze([[], letters * 5])
    assert growth_fault(freeze([*own, [], letters * 5]), own, 0) is None
    assert growth_fault(freeze([*own, own[1], [], letters * 5]), own, 0) == too_many
    assert growth_fault(5, None, 500) is None
    assert growth_fault(own, own, 500) is None
    deep = freeze([[1]])
    assert growth_fault(deep, None, MAX_STATE_DEPTH - 2) is None
    assert growth_fault(deep, None, MAX_STATE_DEPTH - 1) == "would nest the state deeper than 128 levels"
    flat = freeze([1])
    assert growth_fault(flat, None, MAX_STATE_DEPTH - 1) is None
    assert growth_fault(flat, None, MAX_STATE_DEPTH) == "would nest the state deeper than 128 levels"


FIELDS: dict[str, Any] = {
    "n": {"type": "number"},
    "o": {"type": "object", "fields": {"a": {"type": "string"}, "b": {"type": "any"}}},
    "free": {"type": "object"},
    "rows": {"type": "array", "items": {"type": "number"}},
    "any": {"type": "any"},
}
SCHEMA = load_schema(
    {
        "id": "urn:x:y",
        "version": "1.0.0",
        "state": {"fields": FIELDS},
        "actions": {"go": {"flow": {"kind": "halt"}}},
    }
)


NO_NUMBER = "must be a finite number, not 'x'"
NO_OBJECT = "is no object, and only an object can be merged into"


@pytest.mark.requirement("IC-validate", "HC-flow")
@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        (set_("n", "x"), "TYPE_MISMATCH", "The patch of 'n' does not fit: it must be a finite number, not 'x'."),
        (set_("o", {"a": 1}), "TYPE_MISMATCH", "The patch of 'o' does not fit: .a must be a text, not 1."),
        (set_("o.z", 1), "PATH_NOT_FOUND", "The state has no place 'o.z'."),
        (set_("rows.0", "x"), "TYPE_MISMATCH", f"The patch of 'rows.0' does not fit: it {NO_NUMBER}."),
        (merge("n", {}), "TYPE_MISMATCH", f"The patch of 'n' does not fit: it {NO_OBJECT}."),
        (Patch("merge", "o", 5), "TYPE_MISMATCH", "The patch of 'o' does not fit: it must be merged with an object."),
        (merge("o", {"z": 1}), "TYPE_MISMATCH", "The patch of 'o' does not fit: .z is not a known field."),
        (merge("o", {"a": 1}), "TYPE_MISMATCH", "The patch of 'o' does not fit: .a must be a text, not 1."),
        (set_("free." + ".".join("x" * 128), 1), "LIMIT_EXCEEDED", "A path leads through at most 128 levels."),
        (set_("free." + ".".join("x" * 127), {}), "LIMIT_EXCEEDED", None),
        (merge("free." + ".".join("x" * 127), {}), "LIMIT_EXCEEDED", None),
    ],
)  # fmt: skip
def test_a_patch_that_the_state_has_no_room_for_says_why(patch: Patch, code: str, message: str | None) -> None:
    fault = check_patch(SCHEMA, freeze({}), patch)
    assert fault is not None
    assert fault.code == code
    if message is None:
        message = f"The patch of {patch.path!r} would nest the state deeper than 128 levels."
    assert fault.message == message


def test_a_patch_that_fits_has_no_fault() -> None:
    for patch in (
        set_("n", 1), set_("n", None), set_("o", {"a": "x", "b": [1]}), merge("o", {"a": None, "b": 1}),
        Patch("merge", "o", None), merge("any", {"x": 1}), merge("free", {"x": 1}), unset("o"), unset("rows.0"),
        set_("rows", [1, 2]), set_("free." + ".".join("x" * 126), {}),
    ):  # fmt: skip
        assert check_patch(SCHEMA, freeze({"rows": [1]}), patch) is None, patch


@pytest.mark.requirement("IC-validate")
@pytest.mark.parametrize("is_model", [False, True])
def test_members_that_a_state_has_already_are_not_counted_again(
    is_model: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "MAX_NEW_NODES", 10)
    fields = {"fields": {"l": {"type": "array", "default": []}}}
    model = {"dialect": DIALECT, "schema": {"type": "object", "properties": {"l": {"type": "array", "default": []}}}}
    program = load_schema({**SCHEMA.portable, "hash": "", "state": model if is_model else fields})
    data = freeze({"l": [[number] for number in range(9)]})
    assert isinstance(data, FrozenDict)
    assert check_patch(program, data, set_("l", [*data["l"], "new"])) is None
    grown = check_patch(program, data, set_("l", [[number] for number in range(9)]))
    assert grown is not None
    assert (grown.code, "brings more than 10 values" in grown.message) == ("LIMIT_EXCEEDED", True)


@pytest.mark.requirement("IC-validate")
def test_the_faults_of_an_input_are_named_up_to_twenty() -> None:
    action = {"input": {"type": "array", "items": {"type": "number"}, "required": True}, "flow": {"kind": "halt"}}
    schema = load_schema({**SCHEMA.portable, "hash": "", "actions": {"go": action, "free": {"flow": {"kind": "halt"}}}})
    spec = schema.actions["go"].input
    found = check_input(spec, freeze(["x"] * 30))
    assert MAX_FAULTS == 20
    assert [fault.path for fault in found] == [f"input[{index}]" for index in range(20)]
    assert check_input(schema.actions["free"].input, freeze([1])) == []
    assert [fault.path for fault in check_input(spec, None)] == ["input"]


# Actions in Python


def error_of(function: Any, **given: Any) -> ErrorValue:
    error = act(function, **given).error
    assert isinstance(error, ErrorValue)
    assert (error.action_id, error.timestamp) == ("go", 5_000)
    return error


@pytest.mark.requirement("HC-handlers", "WP-hash")
def test_the_error_of_an_action_has_its_code_its_place_and_its_context() -> None:
    at = "actions.go.python"

    def raises(ctx: ActionContext) -> None:
        raise ValueError("x" * 600)

    found = error_of(raises)
    assert (found.code, found.node_path, found.context) == ("ACTION_RAISED", at, {"type": "ValueError"})
    assert found.message == "The action raised " + ("ValueError: " + "x" * 600)[:500]

    def deep(ctx: ActionContext) -> None:
        raise RecursionError

    found = error_of(deep)
    assert (found.code, found.node_path, found.message) == ("LIMIT_EXCEEDED", at, "The action calls itself too deep.")

    def fails(ctx: ActionContext) -> None:
        ctx.fail("NO", "not now")

    found = error_of(fails)
    assert (found.code, found.node_path, found.message, found.context) == ("NO", at, "not now", None)

    def wrong(ctx: ActionContext) -> Any:
        return [5]

    found = error_of(wrong)
    assert (found.code, found.node_path) == ("ACTION_INVALID_RESULT", at)
    assert found.message == "An action returns a list of patches and yields effects or patches, not list."

    def yields(ctx: ActionContext) -> Any:
        yield 5

    found = error_of(yields)
    assert (found.code, found.node_path) == ("ACTION_INVALID_RESULT", at)
    assert found.message.endswith("not int.")

    def misfit(ctx: ActionContext) -> Any:
        yield set_("todos", [])
        return set_("openLimit", "x")

    found = error_of(misfit)
    assert (found.code, found.node_path) == ("TYPE_MISMATCH", at)

    def odd(ctx: ActionContext) -> Any:
        yield effect("x")
        raise ActionFailedError("LATE", "after", {"n": 1})

    first = act(odd).requirements[0]
    assert (first.node_path, first.type, first.params, first.action_id) == (f"{at}[0]", "x", {}, "go")
    found = error_of(odd, journal={first.id: EffectAnswer()})
    assert (found.code, found.node_path, found.context) == ("LATE", at, {"n": 1})


@pytest.mark.requirement("IC-reqid", "IC-reentry")
def test_the_effects_of_an_action_are_told_apart_by_their_number() -> None:
    def twice(ctx: ActionContext) -> Any:
        one = yield effect("x", n=1)
        two = yield effect("x", n=1)
        return [set_("anything", [one, two])]

    first = act(twice).requirements[0]
    journal = {first.id: EffectAnswer(freeze("a"))}
    second = act(twice, journal=journal).requirements[0]
    assert [one.node_path for one in (first, second)] == ["actions.go.python[0]", "actions.go.python[1]"]
    done = act(twice, journal={**journal, second.id: EffectAnswer(freeze("b"))})
    assert done.snapshot.data["anything"] == ["a", "b"]
    assert done.answered == (first.id, second.id)


def test_computed_values_go_by_their_short_and_their_full_names() -> None:
    view = ComputedView({"computed.open": 1, "computed.more": 2})
    assert (view["open"], view["computed.open"], len(view), sorted(view)) == (1, 1, 2, ["more", "open"])
    assert dict(view) == {"open": 1, "more": 2}
    assert "none" not in view


def test_known_computed_values_are_taken_over_only_where_they_are_those_of_the_domain() -> None:
    domain = make()
    domain.flow("go", {"kind": "halt"})
    data = freeze({"todos": [], "openLimit": 10})
    whole = recompute(domain, data)
    assert set(whole) == {"computed.openCount", "computed.full"}
    assert recompute(domain, data, data, whole) is whole
    more = freeze({**whole, "computed.gone": 5})
    assert recompute(domain, data, data, more) == whole
    assert recompute(domain, data, data, freeze({"computed.openCount": 7})) == whole
    assert recompute(domain, data, None, freeze({**whole, "computed.openCount": 7})) == whole
    other = freeze({"todos": [], "openLimit": 0})
    assert recompute(domain, other, data, whole)["computed.full"] is True


@pytest.mark.requirement("IC-validate")
def test_a_model_that_refuses_an_input_names_its_fields() -> None:
    domain = make()

    def add(ctx: ActionContext, new: AddTodo) -> None:
        return None

    add.__annotations__["new"] = AddTodo
    domain.action("go", version="1")(add)
    error = run(domain, "go", {"title": ""}).error
    assert (error.code, error.node_path) == ("INVALID_INPUT", "")
    assert [fault["path"] for fault in error.context["faults"]] == ["input.title"]
    assert error.message.startswith("The input of 'go' does not fit: input.title ")
