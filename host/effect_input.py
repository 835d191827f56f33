"""Validation of an effect's parameters against the type that its handler declares, before the effect runs.

Any type that pydantic can check is accepted: a model, a TypedDict, a dataclass, ``list[int]``. Parameters are read as
JSON in strict mode: no value is converted that JSON can express itself, and every fault is reported with its path.
Source: HC-handlers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from types import FunctionType
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import PydanticSerializationError

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from world.model.secrets.literal import marked_literals

__all__ = ["EFFECT_INVALID_INPUT", "EffectInput", "invalid_input"]

EFFECT_INVALID_INPUT: Final = "EFFECT_INVALID_INPUT"
"""Error code for an effect requested with parameters that its handler does not accept."""


def invalid_input(effect: str, faults: list[dict[str, str]]) -> RefusedError:
    """Return the error that names every fault of an effect's parameters.

    Args:
        effect: the effect's name.
        faults: each with ``path`` and ``message``.
    """
    described = "; ".join(f"{fault['path']}: {fault['message'].rstrip('.')}" for fault in faults)
    return RefusedError(
        EFFECT_INVALID_INPUT, f"The parameters of {effect} are invalid: {described}.", effect=effect, faults=faults
    )


class EffectInput:
    """The type of an effect's parameters.

    Args:
        effect: the effect's name, for errors.
        type_: the type that the parameters must have.

    Raises:
        RefusedError: ``INVALID_HANDLER`` for a type that pydantic cannot check.
    """

    def __init__(self, effect: str, type_: Any) -> None:
        """Compile the type."""
        self.type = type_
        self._effect = effect
        try:
            if isinstance(type_, str | FunctionType):
                raise TypeError(f"It is a {type(type_).__name__}")
            self._adapter: TypeAdapter[Any] = TypeAdapter(type_)
        except Exception as error:  # noqa: BLE001 - a foreign type may raise anything while pydantic inspects it
            first = str(error).partition("\n")[0].rstrip(".")
            raise RefusedError(
                ErrorCode.INVALID_HANDLER,
                f"The handler of effect {effect!r} cannot be used: its input is not a type that pydantic can check. "
                f"{first}.",
                effect=effect,
            ) from None

    def read(self, params: Mapping[str, Any]) -> Any:
        """Convert parameters to the declared type.

        Raises:
            RefusedError: ``EFFECT_INVALID_INPUT`` with ``faults``: path and message of each.
        """
        try:
            return self._adapter.validate_json(canonical_bytes(params), strict=True)
        except ValidationError as error:
            faults = [
                {"path": _path(fault["loc"]), "message": fault["msg"].removeprefix("Value error, ")}
                for fault in error.errors(include_url=False, include_input=False, include_context=False)
            ]
            raise invalid_input(self._effect, faults) from None

    def to_json(self, value: Any) -> Any:
        """Convert a value returned by ``read`` back to JSON, with its defaults and under its aliases.

        Raises:
            RefusedError: ``EFFECT_INVALID_INPUT`` for a value that its type cannot serialize as JSON.
        """
        try:
            return read_json(self._adapter.dump_json(value, by_alias=True))
        except (PydanticSerializationError, RefusedError) as error:
            raise invalid_input(
                self._effect, [{"path": "$", "message": f"not serializable as JSON. {error}"}]
            ) from None

    def literals(self, params: Mapping[str, Any]) -> list[str]:
        """Return the paths of literals in fields that the type marks as secret, by name and by alias."""
        return list(dict.fromkeys(path for one in self._secret_schemas for path in marked_literals(one, params)))

    @cached_property
    def _secret_schemas(self) -> list[dict[str, Any]]:
        """JSON Schemas by alias and by name, if they mark a field as secret."""
        try:
            made = [self._adapter.json_schema(by_alias=by_alias) for by_alias in (True, False)]
        except PydanticInvalidForJsonSchema:
            return []
        return [one for one in made if '"secret"' in (text := json.dumps(one)) or '"writeOnly"' in text]


def _path(steps: tuple[int | str, ...]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
