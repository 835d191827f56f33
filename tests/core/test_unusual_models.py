"""Unusual pydantic models: what they say is enforced, or refused with the field when the domain is loaded."""

from __future__ import annotations

import copy
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import UUID4, UUID7, BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import to_jsonable_python

from world.core import ActionContext, Domain, Patch, set_
from world.core.state_model.from_pydantic import input_model, state_model
from world.errors import RefusedError
from worldprotocol import Realm

ZERO = "00000000-0000-{}000-8000-000000000000"


@dataclass
class Plain:
    count: int = 0
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ValueError("13 is not allowed")


@dataclass(frozen=True, slots=True)
class Slotted:
    count: int = 0


class Pair(NamedTuple):
    left: list[int]
    right: int = 0


class Tagged(BaseModel):
    def __init_subclass__(cls, *, tag: str) -> None:
        super().__init_subclass__()


class Leaf(Tagged, tag="leaf"):
    names: list[str] = ["a"]


class Holder(BaseModel):
    model_config = ConfigDict(extra="allow")
    plain: Plain = Plain()
    slotted: Slotted = Slotted()
    pair: Pair = Pair([1])
    leaf: Leaf = Leaf()
    queue: deque[int] = deque([1])
    key: UUID4 | None = None
    later: UUID7 | None = None


class Put(BaseModel):
    path: str
    value: Any


def holder() -> Domain[Holder]:
    domain = Domain[Holder]("urn:test:unusual", version="1.0.0", state=Holder)

    @domain.action("put", version="1")
    def put(ctx: ActionContext[Holder], given: Put) -> list[Patch]:
        return [set_(given.path, given.value)]

    @domain.action("grasp", version="1")
    def grasp(ctx: ActionContext[Holder]) -> list[Patch]:
        state: Any = ctx.state
        changes: list[Any] = [
            lambda: setattr(state.plain, "count", 1),
            lambda: state.plain.names.append("x"),
            lambda: setattr(state.slotted, "count", 1),
            lambda: state.pair.left.append(2),
            lambda: state.leaf.names.append("x"),
            lambda: state.queue.append(2),
            lambda: state.more.append(2),
        ]
        for change in changes:
            with pytest.raises(TypeError):
                change()
        copied = copy.deepcopy(state.more)
        copied.append(3)
        return [set_("more", copied)]

    return domain


@pytest.mark.requirement("WP-schema")
@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("plain", {"count": 1, "names": ["a"]}, None),
        ("plain.names", [1], "TYPE_MISMATCH"),
        ("plain.count", 13, "INVALID_STATE"),
        ("pair", [[1], 2], None),
        ("pair", [[1], "x"], "TYPE_MISMATCH"),
        ("key", ZERO.format(4), None),
        ("key", ZERO.format(7), "INVALID_STATE"),
        ("later", ZERO.format(7), None),
        ("later", ZERO.format(4), "INVALID_STATE"),
    ],
)
def test_dataclasses_named_tuples_and_versions_of_uuids_are_enforced(path: str, value: Any, code: str | None) -> None:
    with Realm.create("sqlite:///:memory:", domain=holder(), data={"more": [1]}) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        done = realm.act("ann", "put", {"path": path, "value": value})
        assert (done.error.code if done.error else None) == code


@pytest.mark.requirement("WP-schema")
def test_the_typed_state_is_read_only_in_dataclasses_other_members_and_hooked_models() -> None:
    with Realm.create("sqlite:///:memory:", domain=holder(), data={"more": [1]}) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        done = realm.act("ann", "grasp")
        assert done.status == "completed", done.error
        assert to_jsonable_python(realm.data()["more"]) == [1, 3]


@pytest.mark.requirement("WP-schema")
def test_the_version_of_a_uuid_is_part_of_the_schema() -> None:
    key = state_model(Holder).spec["schema"]["properties"]["key"]
    assert key["anyOf"][0] == {"type": "string", "format": "uuid", "pattern": "^.{14}4"}


class SameName(BaseModel):  # type: ignore[no-redef]
    first: int = Field(0, alias="x")
    other: int = Field(0, alias="x")


class TakenName(BaseModel):  # type: ignore[no-redef]
    first: int = 0
    other: int = Field(0, alias="first")


class Wide(BaseModel):
    other: int = Field(0, le=10**30)


class Infinite(BaseModel):
    other: float = Field(0.0, lt=math.inf)


class Skipped(BaseModel):
    other: Annotated[int, SkipJsonSchema()] = 0


class Printed(BaseModel):
    other: Annotated[int, PlainSerializer(str)] = 0


class Written(BaseModel):
    other: Annotated[int, WithJsonSchema({"type": "string"})]


class Weakened(BaseModel):
    other: int = Field(0, ge=0, json_schema_extra={"minimum": -5})


class Opened(BaseModel):
    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})
    other: int = 0


class Rewritten(BaseModel):
    other: int = Field(0, json_schema_extra=lambda schema: schema.clear())


@pytest.mark.requirement("WP-schema")
@pytest.mark.parametrize(
    ("model", "place", "words"),
    [
        (SameName, "other", "JSON name 'x'"),
        (TakenName, "other", "JSON name 'first'"),
        (Wide, "other", "le=1000000000000000000000000000000"),
        (Infinite, "other", "lt=inf, which a portable schema cannot express; write no bound, or a finite one."),
        (Skipped, "other", "SkipJsonSchema"),
        (Printed, "other", "serializer"),
        (Written, "other", "WithJsonSchema"),
        (Weakened, "other", "json_schema_extra (minimum)"),
        (Opened, "", "Opened is a schema that is changed by json_schema_extra (additionalProperties)"),
        (Rewritten, "other", "json_schema_extra (a function)"),
    ],
)
def test_what_a_schema_would_leave_out_is_refused_with_the_field(
    model: type[BaseModel], place: str, words: str
) -> None:
    for read in (state_model, input_model):
        with pytest.raises(RefusedError) as refused:
            read(model)
        assert refused.value.code == "UNSUPPORTED_TYPE"
        assert refused.value.details["field"] == place
        assert refused.value.details["instead"]
        assert words in refused.value.message


class Stepped(BaseModel):
    steps: Annotated[int, PlainValidator(lambda value: value, json_schema_input_type=Annotated[int, Field(ge=0)])] = 0


@pytest.mark.requirement("WP-schema")
def test_a_validator_alone_that_says_what_it_reads_is_enforced_as_that() -> None:
    said = {"type": "integer", "minimum": 0, "default": 0}
    for read in (state_model, input_model):
        assert read(Stepped).spec["schema"]["properties"] == {"steps": said}
