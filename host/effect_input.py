"""What an effect's parameters must be, where its handler says so: checked strictly, before anything is touched.

Whatever pydantic can describe describes parameters: a model, a TypedDict, a dataclass, ``list[int]``. Parameters
are read as the JSON they are: nothing is converted that JSON can say itself, and every fault is told with its path.
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

from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from world.model.literal_secrets import marked_literals

__all__ = ["EFFECT_INVALID_INPUT", "EffectInput", "invalid_input"]

EFFECT_INVALID_INPUT: Final = "EFFECT_INVALID_INPUT"
"""The error's code where an effect is asked for with parameters that its handler does not take."""


def invalid_input(effect: str, faults: list[dict[str, str]]) -> RefusedError:
    """Return the refusal that names every fault of an effect's parameters.

    Args:
        effect: the effect's name.
        faults: each with ``path`` and ``message``.
    """
    told = "; ".join(f"{fault['path']}: {fault['message'].rstrip('.')}" for fault in faults)
    return RefusedError(
        EFFECT_INVALID_INPUT, f"These are no parameters of {effect}: {told}.", effect=effect, faults=faults
    )


class EffectInput:
    """The type of an effect's parameters.

    Args:
        effect: the effect's name, for errors.
        type_: what they must be.

    Raises:
        RefusedError: ``INVALID_HANDLER`` for a type that nothing can be checked against.
    """

    def __init__(self, effect: str, type_: Any) -> None:
        """Compile the type."""
        self.type = type_
        self._effect = effect
        try:
            if isinstance(type_, str | FunctionType):
                raise TypeError(f"It is a {type(type_).__name__}")
            self._adapter: TypeAdapter[Any] = TypeAdapter(type_)
        except Exception as error:  # noqa: BLE001 - whatever a foreign type runs into when it is looked at
            first = str(error).partition("\n")[0].rstrip(".")
            raise RefusedError(
                "INVALID_HANDLER",
                f"The handler of effect {effect!r} cannot be used: its input is no type of data. {first}.",
                effect=effect,
            ) from None

    def read(self, params: Mapping[str, Any]) -> Any:
        """Return parameters as the type has them.

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

    def told(self, value: Any) -> Any:
        """Return what was read as JSON again: with the defaults, and under the names that the type gives.

        Raises:
            RefusedError: ``EFFECT_INVALID_INPUT`` for a value that its type cannot write as JSON.
        """
        try:
            return read_json(self._adapter.dump_json(value, by_alias=True))
        except (PydanticSerializationError, RefusedError) as error:
            raise invalid_input(self._effect, [{"path": "$", "message": f"they are no JSON. {error}"}]) from None

    def literals(self, params: Mapping[str, Any]) -> list[str]:
        """Return the paths of literals in the fields that the type marks as secret, under their names and aliases."""
        return list(dict.fromkeys(path for one in self._secret_schemas for path in marked_literals(one, params)))

    @cached_property
    def _secret_schemas(self) -> list[dict[str, Any]]:
        """The JSON Schemas by alias and by name, as far as they mark anything as secret."""
        try:
            made = [self._adapter.json_schema(by_alias=by_alias) for by_alias in (True, False)]
        except PydanticInvalidForJsonSchema:
            return []
        return [one for one in made if '"secret"' in (text := json.dumps(one)) or '"writeOnly"' in text]

    def to_wire(self) -> Any:
        """Return the JSON Schema, None where the type has none."""
        try:
            return self._adapter.json_schema(by_alias=True)
        except PydanticInvalidForJsonSchema:
            return None


def _path(steps: tuple[int | str, ...]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
