"""Base class of values that cross a boundary: strict, closed, deeply frozen, camelCase on the wire.

``Value.read`` converts pydantic's validation errors into one ``RefusedError`` with the path of each field.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

import msgspec
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

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import MAX_SAFE_INTEGER, freeze

MAX_ID_LENGTH = 512
"""Maximum length of an identifier, in characters."""


def frozen_json(value: Any) -> Any:
    """Freeze a JSON value in a validator of pydantic."""
    if type(value) is str and value.isascii():
        return value
    try:
        return freeze(value)
    except RefusedError as refused:
        within = refused.details["path"].removeprefix("$")
        reason = refused.message.partition(": ")[2].rstrip(".")
        raise PydanticCustomError("not_canonical", "{reason}", {"reason": reason, "within": within}) from None


def is_ascii_id(value: object) -> bool:
    """Return whether a value is certain to be an ``Identifier``; one with other characters takes validation."""
    return type(value) is str and value.isascii() and 0 < len(value) <= MAX_ID_LENGTH


Identifier = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=MAX_ID_LENGTH),
    StringConstraints(min_length=1, max_length=MAX_ID_LENGTH),
    AfterValidator(frozen_json),
]
"""A non-empty string of at most ``MAX_ID_LENGTH`` characters."""

Text = Annotated[str, AfterValidator(frozen_json)]
"""Any string that can be encoded as UTF-8."""

Milliseconds = Annotated[int, Field(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]
"""A time in whole milliseconds since 1970-01-01 UTC, small enough for JSON."""

Json = Annotated[Any, BeforeValidator(frozen_json)]
"""Any canonical JSON value; validation freezes it."""


class Value(BaseModel):
    """Frozen record of the protocol; unknown fields and wrong types are refused."""

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
        """Return the value described by ``data`` (wire form or an instance).

        Args:
            data: the wire form, or an instance.
            path: path of the value in error messages.

        Raises:
            RefusedError: ``INVALID_VALUE``; the message and ``details["faults"]`` give the path of each invalid field.
        """
        try:
            return cls.model_validate(data, by_alias=True, by_name=False)
        except ValidationError as error:
            raise refused_value(error, what=cls.model_config.get("title") or cls.__name__, path=path) from None

    def to_wire(self) -> dict[str, Any]:
        """Return the camelCase wire form; absent optional fields are left out."""
        return self.model_dump(mode="python", by_alias=True, exclude_none=True)


def refused_value(error: ValidationError, *, what: str, path: str = "$") -> RefusedError:
    """Return the error that lists the invalid fields of a pydantic validation error."""
    faults = []
    for fault in error.errors(include_url=False, include_input=False):
        where = path + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault["loc"])
        where += fault.get("ctx", {}).get("within", "")
        message = fault["msg"].removeprefix("Value error, ")
        faults.append({"path": where, "message": message, "type": fault["type"]})
    listed = "; ".join(f"{fault['path']}: {fault['message']}" for fault in faults)
    return RefusedError(ErrorCode.INVALID_VALUE, f"This is not a valid {what}: {listed.rstrip('.')}.", faults=faults)
