"""The base of every value that crosses a boundary: strict, closed, deeply frozen, camelCase on the wire.

``Value.read`` turns pydantic's faults into one ``RefusedError`` that names the field's path.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from world.errors import RefusedError
from world.model.immutable_json import MAX_SAFE_INTEGER, freeze

MAX_ID_LENGTH = 512
"""Characters in an identifier; a longer one is refused."""


def _frozen_json(value: Any) -> Any:
    if type(value) is str and value.isascii():
        return value
    try:
        return freeze(value)
    except RefusedError as refused:
        within = refused.details["path"].removeprefix("$")
        reason = refused.message.partition(": ")[2].rstrip(".")
        raise PydanticCustomError("not_canonical", "{reason}", {"reason": reason, "within": within}) from None


Identifier = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID_LENGTH), AfterValidator(_frozen_json)]
"""A non-empty string of at most ``MAX_ID_LENGTH`` characters."""

Text = Annotated[str, AfterValidator(_frozen_json)]
"""Any string that UTF-8 can carry."""

Milliseconds = Annotated[int, Field(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]
"""A time in whole milliseconds since 1970-01-01 UTC, small enough for JSON."""

Json = Annotated[Any, BeforeValidator(_frozen_json)]
"""Any canonical JSON value; it is frozen on the way in."""


class Value(BaseModel):
    """A frozen record of the protocol; unknown fields and wrong types are refused."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
        revalidate_instances="never",
    )

    @classmethod
    def read(cls, data: Any, path: str = "$") -> Self:
        """Return the value that ``data`` (wire form or an instance) describes.

        Raises:
            RefusedError: ``INVALID_VALUE``; the message and ``details["faults"]`` name each faulty field's path.
        """
        try:
            return cls.model_validate(data, by_alias=True, by_name=False)
        except ValidationError as error:
            raise refused_value(error, what=cls.model_config.get("title") or cls.__name__, path=path) from None

    def to_wire(self) -> dict[str, Any]:
        """Return the camelCase wire form; absent optional fields are left out."""
        return self.model_dump(mode="python", by_alias=True, exclude_none=True)


def refused_value(error: ValidationError, *, what: str, path: str = "$") -> RefusedError:
    """Return the refusal that tells a person which fields are wrong, from pydantic's error."""
    faults = []
    for fault in error.errors(include_url=False, include_input=False):
        where = path + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault["loc"])
        where += fault.get("ctx", {}).get("within", "")
        message = fault["msg"].removeprefix("Value error, ")
        faults.append({"path": where, "message": message, "type": fault["type"]})
    told = "; ".join(f"{fault['path']}: {fault['message']}" for fault in faults)
    return RefusedError("INVALID_VALUE", f"This is no valid {what}: {told.rstrip('.')}.", faults=faults)
