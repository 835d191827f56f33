"""Validators in Python run as part of the action; typed instances; what a portable schema cannot express is refused."""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    Json,
    NaiveDatetime,
    PastDate,
    RootModel,
    StringConstraints,
    computed_field,
    create_model,
    field_serializer,
    field_validator,
    model_validator,
)  # fmt: skip

from tests.core.test_state_models import CONTEXT, Anything, domain_of, made, refused, started
from tests.support.tables import for_each
from world.core import ActionContext, Domain, Invocation, compute, genesis, set_, unset
from world.errors import RefusedError


class Line(BaseModel):
    least: int = 0
    most: int = 10

    @model_validator(mode="after")
    def check(self) -> Line:
        if self.least > self.most:
            raise ValueError("least is above most")
        return self


def even(value: int) -> int:
    assert value % 2 == 0, "it is odd"
    return value


class Shelf(BaseModel):
    lines: dict[str, Line] = {}
    pairs: list[Annotated[int, AfterValidator(even)]] = []
    name: str = "shelf"
    total: int = 0

    @field_validator("name")
    @classmethod
    def no_spaces(cls, name: str) -> str:
        if " " in name:
            raise ValueError("it has a space")
        if name == "odd":
            raise KeyError("a fault of the validator")
        return name

    @model_validator(mode="after")
    def sums(self) -> Shelf:
        if self.total > 100:
            raise ValueError("the total is above 100")
        return self


DOMAIN = domain_of(Shelf)


@pytest.mark.requirement("IC-validate", "HC-compute")
@pytest.mark.parametrize(
    ("patches", "path", "words"),
    [
        ([set_("name", "a b")], "name", "name is refused: it has a space."),
        ([set_(r"lines.a\.b", {"least": 5}), set_(r"lines.a\.b.most", 3)], r"lines.a\.b", "least is above most"),
        ([set_("pairs", [2, 3])], "pairs.1", "pairs.1 is refused: it is odd"),
        ([set_("total", 101)], "", "the total is above 100"),
        ([set_("name", "odd")], "", "a validator raised KeyError"),
    ],
)
def test_what_a_validator_refuses_is_an_invalid_state_with_the_path(patches: Any, path: str, words: str) -> None:
    assert refused(*patches, domain=DOMAIN) == ("INVALID_STATE", [path])
    done = made(*patches, domain=DOMAIN)
    assert done.error is not None
    assert words in done.error.message
    assert done == made(*patches, domain=DOMAIN)  # it comes out again


def test_a_validator_sees_what_all_patches_leave_and_not_what_is_between() -> None:
    assert made(set_("total", 500), set_("total", 100), domain=DOMAIN).error is None
    assert made(set_("lines.a", {"least": 20, "most": 30}), domain=DOMAIN).error is None


def test_a_validator_guards_the_first_world_too() -> None:
    with pytest.raises(RefusedError, match="the total is above 100"):
        started(DOMAIN, total=101)


def test_the_code_of_validators_has_its_identity() -> None:
    assert str(DOMAIN.sources()["state:validators"]).startswith("tree-1:")
    assert "state:validators" not in domain_of(Anything).sources()


class Checked(BaseModel):
    total: int = 0

    def model_post_init(self, context: Any) -> None:
        if self.total > 7:
            raise ValueError("the total is above 7")


def test_what_a_model_checks_after_its_fields_is_a_validator_too() -> None:
    domain = domain_of(Checked)
    assert str(domain.sources()["state:validators"]).startswith("tree-1:")
    assert made(set_("total", 7), domain=domain).error is None
    assert refused(set_("total", 8), domain=domain) == ("INVALID_STATE", [""])


class Plain(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    title: str = "a"
    tags: list[str] = []
    day: datetime.date | None = None
    id: uuid.UUID | None = None
    lines: dict[str, Line] = {}
    pair: tuple[int, str] = (1, "a")


@pytest.mark.requirement("HC-context")
def test_an_action_reads_its_state_as_a_frozen_instance_of_the_model() -> None:
    domain = domain_of(Plain)
    seen: list[Any] = []

    @domain.action("look", version="1")
    def look(ctx: ActionContext[Plain]) -> Any:
        state = ctx.state
        assert state is ctx.state  # it is made once
        seen.append((type(state).__name__, state.title, state.day, state.id, state.lines["x"].most, state.pair))
        assert isinstance(state, Plain)
        for change in (
            lambda: setattr(state, "title", "b"), lambda: state.tags.append("x"), lambda: state.lines.clear(),
            lambda: setattr(state.lines["x"], "most", 3), lambda: state.__delattr__("title"),
        ):  # fmt: skip
            with pytest.raises(TypeError, match="read-only"):
                change()
        yield set_("title", "b")
        assert ctx.state.title == "b"
        return [set_("title", ctx.state.title + state.title)]

    name = "0b9f7c1e-3a52-4d7e-9a55-6f1f0c2f8a11"
    base = genesis(domain, CONTEXT, {"day": "2024-02-29", "id": name, "lines": {"x": {}}})
    done = compute(domain, base, Invocation("look", None, "intent-1"), CONTEXT)
    assert done.error is None, done.error
    assert done.snapshot.data["title"] == "ba"
    assert seen == [("Plain", "a", datetime.date(2024, 2, 29), uuid.UUID(name), 10, (1, "a"))]


def test_a_portable_state_has_no_typed_instance() -> None:
    domain = Domain("urn:x:p", version="1.0.0", state={"fields": {"n": {"type": "number", "default": 0}}})
    domain.action("look", version="1")(lambda ctx: ctx.state)
    done = compute(domain, genesis(domain, CONTEXT), Invocation("look", None, "intent-1"), CONTEXT)
    assert done.error is not None
    assert "has no model; read ctx.data" in done.error.message


class Serialized(BaseModel):
    x: int = 0

    @field_serializer("x")
    def shown(self, x: int) -> str:
        return str(x)


class Derived(BaseModel):
    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2


class Opaque:
    pass


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (decimal.Decimal, {}, "write int in the smallest unit"),
    (bytes, {}, "write str, with the bytes in base64"),
    (set[int], {}, "write list[T]"),
    (frozenset[str], {}, "write list[T]"),
    (list[set[int]], {}, "write list[T]"),
    (dict[str, decimal.Decimal], {}, "write int in the smallest unit"),
    (datetime.time, {}, "write str with a pattern"),
    (datetime.timedelta, {}, "write int for the milliseconds"),
    (NaiveDatetime, {}, "write AwareDatetime"),
    (PastDate, {}, "with ctx.now"),
    (datetime.date, {"gt": datetime.date(2020, 1, 1)}, "write a field_validator"),
    (complex, {}, "write two floats"),
    (HttpUrl, {}, "for another one use a pattern"),
    (dict[int, str], {}, "write dict[str, T]"),
    (dict[Literal["a", 1], str], {}, "write dict[str, T]"),
    (dict[tuple[int, int], str], {}, "write dict[str, T]"),
    (Callable[[], int], {}, "write a BaseModel"),
    (Opaque, {}, "write a BaseModel"),
    (Iterable[int], {}, "write list[T]"),
    (Json[int], {}, "write the type of the value itself"),
    (float, {"allow_inf_nan": True}, "write float | None"),
    (Annotated[str, StringConstraints(to_lower=True)], {}, "the changed text in the action"),
    (Annotated[str, StringConstraints(strip_whitespace=True)], {}, "the changed text in the action"),
    (str, {"pattern": re.compile("a", re.IGNORECASE)}, "the flags in the pattern"),
    (str, {"json_schema_extra": {"contentEncoding": "base64"}}, "contentEncoding"),
    (int, {"validation_alias": "y", "serialization_alias": "z"}, "alias= with one name"),
    (int, {"validation_alias": AliasChoices("y", "z")}, "alias= with one name"),
    (int, {"serialization_alias": "z"}, "alias= with one name"),
    (uuid.UUID, {"default_factory": uuid.uuid4}, "a field without default"),
    (int, {"default": -1, "ge": 0}, "must be at least 0"),
    (float, {"default": float("inf")}, "no JSON"),
    (Serialized, {}, "the JSON form as the type"),
    (Derived, {}, "@domain.computed"),
]


@pytest.mark.requirement("IC-action")
@for_each(("kind", "field", "instead"), REFUSED, ids=[str(at) for at in range(len(REFUSED))])
def test_what_a_portable_schema_cannot_express_is_refused_with_the_field_and_what_to_write(
    kind: Any, field: dict[str, Any], instead: str
) -> None:
    model = create_model("Odd", __config__=ConfigDict(arbitrary_types_allowed=True), inner=(kind, Field(**field)))
    with pytest.raises(RefusedError) as caught:
        Domain("urn:x:odd", version="1.0.0", state=model)
    assert caught.value.code == "UNSUPPORTED_TYPE"
    assert caught.value.details["field"].partition(".")[0] == "inner"
    assert "inner" in caught.value.message
    assert instead in caught.value.message


@pytest.mark.requirement("IC-action")
def test_a_refusal_names_the_nested_field_and_holds_for_inputs_too() -> None:
    inner = create_model("Inner", price=(decimal.Decimal, ...))
    outer = create_model("Outer", rows=(list[inner], ...))
    domain = domain_of(Plain)

    def buy(ctx: Any, order: Any) -> None: ...

    buy.__annotations__["order"] = outer
    with pytest.raises(RefusedError) as caught:
        domain.action("buy", version="1")(buy)
    assert caught.value.details["field"] == "rows.price"
    with pytest.raises(RefusedError, match="no object"):
        Domain("urn:x:root", version="1.0.0", state=RootModel[list[int]])


@pytest.mark.requirement("IC-validate")
def test_unset_of_an_optional_field_leaves_a_state_that_fits() -> None:
    domain = domain_of(Plain)
    assert made(unset("day"), domain=domain).error is None
    assert refused(unset("title"), domain=domain) == ("INVALID_STATE", ["title"])
