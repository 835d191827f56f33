"""Domains written in Python: typed actions, generators with effects, computed functions, portable data."""

from __future__ import annotations

import enum
import functools
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Discriminator, Field, SecretStr, Tag
from pydantic.alias_generators import to_camel

from world.core import (
    ActionContext,
    ActionSteps,
    ComputeContext,
    Domain,
    EffectAnswer,
    EffectFailedError,
    Invocation,
    Patch,
    compute,
    effect,
    genesis,
    load_domain,
    merge,
    set_,
)
from world.core.compute import apply
from world.core.execution import MAX_EFFECTS
from world.core.fields_of import approximate_spec, input_spec, state_spec
from world.errors import RefusedError
from world.model.immutable_json import thaw
from world.model.snapshot import ErrorValue

CONTEXT = ComputeContext(now=5_000, random_seed="intent-1")


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Count(BaseModel):
    count: int = 0


class Todo(BaseModel):
    id: str
    title: str
    done: bool = False


class TodoState(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    todos: list[Todo] = []
    level: Level = Level.LOW
    mode: Literal["all", "open"] | None = None
    open_limit: int = 10
    owner: Todo | None = None
    notes: dict[str, str] = Field(default_factory=lambda: {"a": "b"})
    anything: Any = None


class AddTodo(BaseModel):
    title: str = Field(min_length=1)
    level: Level = Level.LOW
    tags: list[str] = []


class Pay(BaseModel):
    amount: float


def open_count(data: Any) -> int:
    return sum(not item["done"] for item in data["todos"])


def make() -> Domain:
    domain = Domain("urn:example:todo", version="1.0.0", state=TodoState)
    domain.computed("openCount", deps=["todos"])(open_count)
    domain.computed("full", expr={"kind": "gte", "left": {"kind": "get", "path": "computed.openCount"},
                                  "right": {"kind": "get", "path": "openLimit"}})  # fmt: skip
    return domain


def run(domain: Domain, action: str, value: Any = None, journal: Any = None, **data: Any) -> Any:
    base = genesis(domain, ComputeContext(1_000, "genesis"), data)
    return compute(domain, base, Invocation(action, value, "intent-1"), CONTEXT, journal or {})


def act(function: Any, **given: Any) -> Any:
    """Run one function as the action of a small domain."""
    domain = make()
    domain.action("go", version="1")(function)
    return run(domain, "go", **given)


@pytest.mark.requirement("IC-action", "IC-nostate")
def test_a_typed_function_is_an_action() -> None:
    domain = make()

    @domain.action("todo.add", version="1", available={"kind": "not", "arg": {"kind": "get", "path": "computed.full"}})
    def add(ctx: ActionContext, new: AddTodo) -> list[Patch]:
        """Add an entry.

        Its id comes from the context.
        """
        assert ctx.computed["openCount"] == ctx.computed["computed.openCount"] == len(ctx.data["todos"])
        return [set_("todos", [*ctx.data["todos"], {"id": ctx.new_id(), "title": new.title, "done": False}])]

    done = run(domain, "todo.add", {"title": "milk"})
    assert (done.status, done.snapshot.data["todos"][0]["title"]) == ("complete", "milk")
    assert done.snapshot.computed == {"computed.openCount": 1, "computed.full": False}
    assert done == run(domain, "todo.add", {"title": "milk"})
    assert run(domain, "todo.add", {"title": "milk"}, openLimit=0).error.code == "ACTION_UNAVAILABLE"
    spec = domain.schema.portable["actions"]["todo.add"]
    assert spec["description"] == "Add an entry."
    assert spec["python"] == {"name": "todo.add", "version": "1"}


@pytest.mark.requirement("IC-action")
def test_a_state_model_becomes_a_schema_with_defaults() -> None:
    domain = make()
    domain.flow("noop", {"kind": "seq", "steps": []})
    state = thaw(domain.schema.portable["state"])
    assert state["dialect"] == "urn:worldprotocol:state-model:1"
    schema = state["schema"]
    fields = schema["properties"]
    assert fields["level"] == {"$ref": "#/$defs/Level", "default": "low"}
    assert schema["$defs"]["Level"] == {"type": "string", "enum": ["low", "high"]}
    assert fields["mode"]["anyOf"] == [{"enum": ["all", "open"], "type": "string"}, {"type": "null"}]
    assert fields["openLimit"] == {"type": "integer", "default": 10}
    assert fields["owner"] == {"anyOf": [{"$ref": "#/$defs/Todo"}, {"type": "null"}], "default": None}
    assert schema["$defs"]["Todo"]["properties"]["done"] == {"type": "boolean", "default": False}
    assert schema["$defs"]["Todo"]["required"] == ["id", "title"]
    assert fields["notes"] == {"type": "object", "additionalProperties": {"type": "string"}, "default": {"a": "b"}}
    assert fields["anything"] == {"default": None}
    assert schema["required"] == ["todos", "level", "openLimit", "notes"]
    assert schema["additionalProperties"] is False
    assert genesis(domain, CONTEXT).data["notes"] == {"a": "b"}


@pytest.mark.requirement("IC-action", "CARD-replay")
def test_a_state_model_has_an_earlier_form_in_fields() -> None:
    class Numbered(TodoState):
        filled: int = Field(default_factory=len)

    fields = state_spec(Numbered)["fields"]
    assert fields["filled"] == {"type": "number", "required": True, "default": 0}
    assert fields["level"] == {"type": {"enum": ["low", "high"]}, "required": True, "default": "low"}
    assert fields["mode"]["type"] == {"enum": ["all", "open", None]}
    assert fields["openLimit"] == {"type": "number", "required": True, "default": 10}
    assert fields["owner"]["type"] == "object"
    assert fields["owner"]["fields"]["title"] == {"type": "string", "required": True}
    assert fields["todos"]["items"]["fields"]["done"] == {"type": "boolean", "required": False}
    assert fields["notes"] == {"type": "object", "required": True, "default": {"a": "b"}}
    assert fields["anything"]["type"] == "any"


@pytest.mark.requirement("IC-validate", "IC-action")
@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"title": 1},
        {"title": ""},
        {"title": "x", "level": "mid"},
        {"title": "x", "tags": [1]},
        {"title": "x", "y": 1},
    ],
)
def test_a_typed_input_is_checked(value: Any) -> None:
    def go(ctx: ActionContext, new: AddTodo) -> None:
        raise AssertionError("must not run")

    done = act(go, value=value)
    assert done.error.code == "INVALID_INPUT"
    assert done.error.context["faults"]


def paying(ctx: ActionContext, pay: Pay) -> ActionSteps:
    yield set_("notes.state", "paying")
    receipt = yield effect("http.post", url="https://pay", body={"amount": pay.amount, "key": ctx.new_id()})
    try:
        mail = yield effect("mail.send", to=receipt["mail"])
    except EffectFailedError as failed:
        mail = failed.code
    return [merge("notes", {"receipt": receipt["id"], "mail": mail, "random": str(ctx.random())})]


@pytest.mark.requirement("IC-effects", "IC-reentry", "HC-compute")
def test_a_generator_is_answered_from_the_journal() -> None:
    first = act(paying, value={"amount": 3})
    assert (first.status, first.snapshot.data["notes"]["state"]) == ("pending", "paying")
    (asked,) = first.requirements
    assert (asked.type, asked.params["body"]["amount"]) == ("http.post", 3)
    assert act(paying, value={"amount": 3}).requirements == (asked,)
    journal = {asked.id: EffectAnswer({"id": "r1", "mail": "a@b"})}
    (second,) = act(paying, value={"amount": 3}, journal=journal).requirements
    assert (second.type, second.params) == ("mail.send", {"to": "a@b"})
    error = ErrorValue.at("BOUNCED", "no such box", "go", second.node_path, 1)
    for result, told in [(EffectAnswer("sent"), "sent"), (EffectAnswer(error=error), "BOUNCED")]:
        done = act(paying, value={"amount": 3}, journal=journal | {second.id: result})
        assert done.status == "complete"
        assert done.snapshot.data["notes"]["mail"] == told
        assert done.snapshot.data["notes"]["receipt"] == "r1"
        assert done.answered == (asked.id, second.id)


@pytest.mark.requirement("IC-reqid")
def test_the_same_call_twice_is_two_effects() -> None:
    def twice(ctx: ActionContext) -> ActionSteps:
        one = yield effect("roll")
        two = yield effect("roll")
        return [set_("notes.sum", str(one + two))]

    first = act(twice).requirements[0]
    second = act(twice, journal={first.id: EffectAnswer(1)}).requirements[0]
    assert first.id != second.id
    done = act(twice, journal={first.id: EffectAnswer(1), second.id: EffectAnswer(5)})
    assert done.snapshot.data["notes"]["sum"] == "6"


@pytest.mark.requirement("HC-handlers")
def test_a_failed_effect_that_nobody_catches_is_the_error() -> None:
    def careless(ctx: ActionContext) -> ActionSteps:
        yield effect("x")
        return None

    asked = act(careless).requirements[0]
    error = ErrorValue.at("DOWN", "no answer", "go", asked.node_path, 1)
    done = act(careless, journal={asked.id: EffectAnswer(error=error)})
    assert (done.status, done.error) == ("error", error)


def test_a_cleanup_that_misbehaves_does_not_change_the_end() -> None:
    def stubborn(ctx: ActionContext) -> ActionSteps:
        try:
            yield effect("x")
        finally:
            yield effect("y")
        return None

    assert act(stubborn).status == "pending"


@pytest.mark.requirement("HC-flow")
def test_a_generator_that_never_ends_its_effects_is_stopped() -> None:
    def endless(ctx: ActionContext) -> ActionSteps:
        while True:
            yield effect("tick")

    class Anything(dict[str, EffectAnswer]):
        def __contains__(self, key: object) -> bool:
            return True

        def __missing__(self, key: str) -> EffectAnswer:
            return EffectAnswer()

    done = act(endless, journal=Anything(some=EffectAnswer()))
    assert done.error.code == "LIMIT_EXCEEDED"
    assert len(done.answered) == MAX_EFFECTS


def test_a_domain_failure_keeps_its_code() -> None:
    def go(ctx: ActionContext) -> None:
        ctx.fail("TOO_MANY", "there are too many", limit=3)

    error = act(go).error
    assert (error.code, error.message, error.context) == ("TOO_MANY", "there are too many", {"limit": 3})


@pytest.mark.parametrize("mistake", [KeyError("x"), ValueError("half \ud800"), RecursionError(), StopIteration(1)])
def test_whatever_an_action_raises_is_an_error_value(mistake: Exception) -> None:
    def go(ctx: ActionContext) -> None:
        raise mistake

    error = act(go).error
    assert error.code in ("ACTION_RAISED", "LIMIT_EXCEEDED")
    error.message.encode()


@pytest.mark.parametrize("answer", [5, "patch", [1], {"op": "set"}, [set_("notes", {}), None]])
def test_a_result_that_is_no_patches_is_an_error_value(answer: Any) -> None:
    def go(ctx: ActionContext) -> Any:
        return answer

    def step(ctx: ActionContext) -> Any:
        yield answer

    assert act(go).error.code == "ACTION_INVALID_RESULT"
    assert act(step).error.code == "ACTION_INVALID_RESULT"


def test_a_patch_that_does_not_fit_is_an_error_value() -> None:
    def go(ctx: ActionContext) -> list[Patch]:
        return [set_("openLimit", "many")]

    assert act(go).error.code == "TYPE_MISMATCH"


@pytest.mark.requirement("HC-context")
def test_an_action_cannot_change_what_it_reads() -> None:
    def go(ctx: ActionContext) -> None:
        ctx.data["todos"].append({})

    assert act(go).error.message.startswith("The action raised TypeError")

    def computed(ctx: ActionContext) -> None:
        ctx.computed["openCount"] = 5  # type: ignore[index]

    assert act(computed).error.code == "ACTION_RAISED"


@pytest.mark.requirement("HC-context")
def test_time_ids_and_chance_repeat_with_the_context() -> None:
    def go(ctx: ActionContext) -> list[Patch]:
        return [set_("anything", [ctx.now, ctx.intent_id, ctx.new_id(), ctx.new_id(), ctx.random(), ctx.random()])]

    told = act(go).snapshot.data["anything"]
    assert told == act(go).snapshot.data["anything"]
    assert told[:2] == [5_000, "intent-1"]
    assert len(set(told)) == 6
    assert all(0 <= number < 1 for number in told[4:])


def test_a_computed_function_sees_what_it_declares_and_its_errors_are_null() -> None:
    domain = make()
    domain.computed("bad", deps=["todos"])(lambda data: data["openLimit"])
    domain.computed("nothing", deps=["todos"])(lambda data: float("nan"))
    domain.computed("next", deps=["computed.openCount"])(lambda data: data["computed.openCount"] + 1)
    domain.flow("noop", {"kind": "halt"})
    computed = genesis(domain, CONTEXT).computed
    assert computed["computed.bad"] is None
    assert computed["computed.nothing"] is None
    assert computed["computed.next"] == 1


@pytest.mark.requirement("HC-flow")
def test_patches_compute_a_value_again_only_where_its_dependencies_changed() -> None:
    domain, calls = make(), []

    @domain.computed("count", deps=["todos"])
    def count(data: Any) -> int:
        calls.append(len(data["todos"]))
        return calls[-1]

    domain.flow("go", {"kind": "halt"})
    snapshot = genesis(domain, CONTEXT)
    calls.clear()
    apply(domain, snapshot, [set_("openLimit", 3)], CONTEXT)
    assert calls == []
    apply(domain, snapshot, [set_("todos", [{"id": "a", "title": "b"}])], CONTEXT)
    assert calls == [1]


def test_a_version_is_part_of_the_schemas_identity_and_the_source_is_told() -> None:
    def one(version: str) -> Domain:
        domain = make()
        domain.action("pay", version=version)(paying)
        return domain

    assert one("1").schema.hash == one("1").schema.hash != one("2").schema.hash
    sources = one("1").sources()
    assert set(sources) == {"action:pay", "computed:openCount"}
    assert all(len(str(hashed)) == 64 for hashed in one("1").own_sources().values())
    hidden = make()
    hidden.computed("built", deps=[])(eval("lambda data: 1"))
    assert hidden.sources()["computed:built"] is None


@pytest.mark.parametrize("state", [int, dict, None, Level])
def test_a_state_that_is_no_model_is_refused_with_what_to_write(state: Any) -> None:
    with pytest.raises(RefusedError, match=r"a class derived from pydantic\.BaseModel") as refused:
        Domain("urn:example:other", version="1.0.0", state=state)
    assert refused.value.code == "UNSUPPORTED_TYPE"


def test_a_declaration_that_could_only_fail_is_refused() -> None:
    async def late(ctx):
        return []

    def keyed(ctx: ActionContext, *, given: Count) -> list[Patch]:
        return []

    domain: Any = Domain("urn:example:late", version="2.0.0", state=Count)
    wrong = (
        lambda: domain.migration(dict),
        lambda: domain.computed(len),
        lambda: domain.computed("sum", deps=["count"])(late),
        lambda: domain.computed("sum", deps=["count"])(lambda data, more: 1),
        lambda: domain.computed("sum", deps="count"),
        lambda: domain.action("late", version="1")(late),
        lambda: domain.action("keyed", version="1")(keyed),
    )
    for declare in wrong:
        with pytest.raises(RefusedError) as refused:
            declare()
        assert refused.value.code == "INVALID_ACTION"


def test_a_decorator_may_pass_other_arguments_than_it_is_given() -> None:
    def doubling(function: Any) -> Any:
        return functools.wraps(function)(lambda data: function(data, factor=2))

    def naming(function: Any) -> Any:
        return functools.wraps(function)(lambda ctx, given: function(ctx, given=given))

    domain: Any = Domain("urn:example:decorated", version="1.0.0", state=Count)

    @domain.computed("double", deps=["count"])
    @doubling
    def double(data: Any, *, factor: int) -> int:
        return int(data["count"] * factor)

    @domain.action("put", version="1")
    @naming
    def put(ctx: ActionContext, *, given: Count) -> list[Patch]:
        return [set_("count", given.count)]

    assert double({"count": 3}) == 6


def test_wrong_declarations_are_refused() -> None:
    domain = make()
    domain.flow("go", {"kind": "halt"})
    for declare in (
        lambda: domain.flow("go", {"kind": "halt"}),
        lambda: domain.action("go", version="1"),
        lambda: domain.computed("openCount", expr={"kind": "lit", "value": 1}),
    ):
        with pytest.raises(RefusedError) as caught:
            declare()
        assert caught.value.code == "DUPLICATE_NAME"

    def untyped(ctx, new): ...
    def three(ctx, new: AddTodo, more): ...
    def none(): ...

    functions: list[Any] = [untyped, three, none]
    for function in functions:
        with pytest.raises(RefusedError) as caught:
            domain.action("new", version="1")(function)
        assert caught.value.code == "INVALID_ACTION"
    with pytest.raises(RefusedError) as caught:
        domain.flow("new", {"kind": "halt"}, label=5)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.details) == ("INVALID_ACTION", {"action": "new", "argument": "label"})


def test_a_domain_is_checked_when_its_schema_is_asked_for() -> None:
    domain = make()
    with pytest.raises(RefusedError) as caught:
        _ = domain.schema
    assert [fault["path"] for fault in caught.value.details["faults"]] == ["$.actions"]
    domain.flow("go", {"kind": "patch", "op": "set", "path": "nosuch", "value": {"kind": "lit", "value": 1}})
    with pytest.raises(RefusedError):
        _ = domain.schema


def test_a_model_inside_itself_is_checked_at_every_depth() -> None:
    class Tree(BaseModel):
        name: str = ""
        below: list[Tree] = []

    Tree.model_rebuild(_types_namespace={"Tree": Tree})

    class Holder(BaseModel):
        tree: Tree = Tree()

    domain = Domain("urn:x:tree", version="1.0.0", state=Holder)
    domain.flow("go", {"kind": "halt"})
    data = {"tree": {"name": "a", "below": [{"name": "b", "below": [{"name": "c"}]}]}}
    assert genesis(domain, CONTEXT, data).data == data
    wrong = {"tree": {"name": "a", "below": [{"name": "b", "below": [{"x": 1}]}]}}
    with pytest.raises(RefusedError, match=r"below\.0\.below\.0\.x is not a known field"):
        genesis(domain, CONTEXT, wrong)


def test_a_model_without_json_is_refused() -> None:
    class Worse(BaseModel):
        call: Any = make

    with pytest.raises(RefusedError) as caught:
        Domain("urn:x:odd", version="1.0.0", state=Worse)
    assert caught.value.code == "UNSUPPORTED_TYPE"


@pytest.mark.requirement("IC-action")
@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_portable_domain_is_read_from_a_file(tmp_path: Path, suffix: str) -> None:
    domain = Domain("urn:example:count", version="1.0.0", state={"fields": {"n": {"type": "number", "default": 0}}})
    step = {
        "kind": "add",
        "left": {"kind": "get", "path": "n"},
        "right": {"kind": "get", "path": "input.amount"},
    }
    domain.flow("more", {"kind": "patch", "op": "set", "path": "n", "value": step}, input=Pay, label="More")
    path = tmp_path / f"domain{suffix}"
    path.write_text(json.dumps(thaw(domain.schema.portable)))  # JSON is YAML, too
    loaded = load_domain(path)
    assert loaded.schema.hash == domain.schema.hash
    assert run(loaded, "more", {"amount": 2}).snapshot.data == {"n": 2}


def test_a_file_that_is_no_domain_is_refused(tmp_path: Path) -> None:
    for name, content, code in [
        ("a.json", "{", "MALFORMED_JSON"),
        ("b.yaml", "a: [", "MALFORMED_YAML"),
        ("c.yaml", "5", "INVALID_SCHEMA"),
    ]:
        (tmp_path / name).write_text(content)
        with pytest.raises(RefusedError) as caught:
            load_domain(tmp_path / name)
        assert caught.value.code == code
    with pytest.raises(RefusedError) as caught:
        load_domain(tmp_path / "missing.json")
    assert caught.value.code == "FILE_UNREADABLE"


def test_portable_data_that_names_python_functions_is_refused_with_what_to_do() -> None:
    domain = make()
    domain.action("pay", version="1")(paying)
    with pytest.raises(RefusedError) as caught:
        load_domain(domain.schema.portable)
    assert caught.value.code == "PYTHON_REQUIRED"
    assert caught.value.details["names"] == ["action pay", "computed value computed.openCount"]
    assert "module:name" in caught.value.message


class Kinds(BaseModel):
    either: str | int
    maybe: int | None
    tagged: Annotated[Annotated[int, Tag("a")] | Annotated[None, Tag("b")], Discriminator(lambda value: "a")]
    nothing: None
    words: Literal["x"] | Literal[1]
    word: Literal["x"] | None
    several: list[int | str]
    secret: SecretStr
    hidden: SecretStr | None
    pair: tuple[int, str]
    table: dict[str, int]


@pytest.mark.requirement("IC-action")
def test_types_of_python_become_the_narrowest_spec_that_can_say_them():
    """Alternatives of one kind and null are that kind; of several kinds, what a spec cannot say counts as anything."""
    kinds: dict[str, dict[str, Any]] = {
        "either": {"type": "any"},
        "maybe": {"type": "number"},
        "tagged": {"type": "number"},
        "nothing": {"type": "null"},
        "words": {"type": {"enum": ["x", 1]}},
        "word": {"type": {"enum": ["x", None]}},
        "several": {"type": "array", "items": {"type": "any"}},
        "secret": {"type": "string", "secret": True},
        "hidden": {"type": "string", "secret": True},
        "pair": {"type": "array"},
        "table": {"type": "object"},
    }
    fields = {name: {**kind, "required": True} for name, kind in kinds.items()}
    assert input_spec(Kinds) == {"type": "object", "fields": fields, "required": True}
    assert approximate_spec({"type": "object", "additionalProperties": False}) == {"type": "object", "fields": {}}


@pytest.mark.requirement("IC-action")
def test_a_name_that_is_taken_is_named_with_its_kind() -> None:
    domain = make()
    domain.flow("go", {"kind": "halt"})
    one = {"kind": "lit", "value": 1}
    for declare, kind, name in (
        (lambda: domain.computed("openCount", expr=one), "computed value", "computed.openCount"),
        (lambda: domain.computed("openCount")(open_count), "computed value", "computed.openCount"),
        (lambda: domain.action("go", version="1"), "action", "go"),
        (lambda: domain.flow("go", {"kind": "halt"}), "action", "go"),
    ):
        with pytest.raises(RefusedError) as caught:
            declare()
        assert caught.value.code == "DUPLICATE_NAME"
        assert kind in caught.value.message
        assert repr(name) in caught.value.message
    first, second = domain.computed("later"), domain.computed("computed.later")
    first(open_count)
    with pytest.raises(RefusedError, match=r"a computed value called 'computed\.later'"):
        second(open_count)
    go, again = domain.action("act", version="1"), domain.action("act", version="1")
    go(lambda ctx: None)
    with pytest.raises(RefusedError, match="action called 'act'"):
        again(lambda ctx: None)
