"""Base class of values that cross a boundary: strict, closed, deeply frozen, camelCase on the wire.

``Value.read`` converts pydantic's validation errors into one ``RefusedError`` with the path of each field.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["Value", "refused_value"]


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
