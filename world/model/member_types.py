"""Types of the members of records and values: identifiers, texts, times and JSON.

msgspec and pydantic read the same types. Pydantic, whose import takes as long as that of all else that lists a log, is
imported when it first needs one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import msgspec

from world.errors import RefusedError
from world.model.immutable_json import MAX_SAFE_INTEGER, freeze

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

__all__ = [
    "MAX_ID_LENGTH",
    "Identifier",
    "Json",
    "JsonObject",
    "MemberLimits",
    "MemberValidator",
    "Milliseconds",
    "Text",
    "frozen_json",
    "is_ascii_id",
]

MAX_ID_LENGTH: Final = 512
"""Maximum length of an identifier, in characters."""


class MemberLimits:
    """Annotation of a type: constraints of its schema in pydantic."""

    def __init__(self, constraints: Mapping[str, int]) -> None:
        """Name the constraints.

        Args:
            constraints: as schemas of ``pydantic_core`` have them, such as ``min_length`` of a text.
        """
        self._constraints = constraints

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the type with the constraints."""
        return cast("CoreSchema", {**handler(source), **self._constraints})


class MemberValidator:
    """Annotation of a type: a function that validates its values in pydantic.

    The annotation of pydantic that does this is made when pydantic asks for the schema.
    """

    def __init__(self, when: Literal["before", "after", "instead"], check: Callable[[Any], Any]) -> None:
        """Name the function.

        Args:
            when: before or after pydantic's own validation, or instead of it.
            check: returns the valid value; raises ``ValueError`` or an error of ``pydantic_core`` for any other.
        """
        self._when = when
        self._check = check

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the type with the function."""
        from pydantic import AfterValidator, BeforeValidator, PlainValidator

        kind = {"before": BeforeValidator, "after": AfterValidator, "instead": PlainValidator}[self._when]
        return cast("CoreSchema", kind(self._check).__get_pydantic_core_schema__(source, handler))


def frozen_json(value: Any) -> Any:
    """Freeze a JSON value in a validator of pydantic."""
    if type(value) is str and value.isascii():
        return value
    try:
        return freeze(value)
    except RefusedError as refused:
        from pydantic_core import PydanticCustomError

        within = refused.details["path"].removeprefix("$")
        reason = refused.message.partition(": ")[2].rstrip(".")
        raise PydanticCustomError("not_canonical", "{reason}", {"reason": reason, "within": within}) from None


def _frozen_object(value: Any) -> Any:
    frozen = frozen_json(value)
    if not isinstance(frozen, dict):
        raise ValueError("must be an object")
    return frozen


def is_ascii_id(value: object) -> bool:
    """Return whether a value is certain to be an ``Identifier``; one with other characters takes validation."""
    return type(value) is str and value.isascii() and 0 < len(value) <= MAX_ID_LENGTH


Identifier = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=MAX_ID_LENGTH),
    MemberLimits({"min_length": 1, "max_length": MAX_ID_LENGTH}),
    MemberValidator("after", frozen_json),
]
"""A non-empty string of at most ``MAX_ID_LENGTH`` characters."""

Text = Annotated[str, MemberValidator("after", frozen_json)]
"""Any string that can be encoded as UTF-8."""

Milliseconds = Annotated[int, MemberLimits({"ge": -MAX_SAFE_INTEGER, "le": MAX_SAFE_INTEGER})]
"""A time in whole milliseconds since 1970-01-01 UTC, small enough for JSON."""

Json = Annotated[Any, MemberValidator("before", frozen_json)]
"""Any canonical JSON value; validation freezes it."""

JsonObject = Annotated[dict[str, Any], MemberValidator("instead", _frozen_object)]
"""A canonical JSON object, frozen."""
