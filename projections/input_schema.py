"""What an action takes, as JSON Schema: for forms and for the tools of language models (INT-3.4c).

Whatever fits such a schema passes the core's own check of the input. The schema is the narrower of the two in one
respect: an optional field is left out, never given as null. For other modules of this room.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

__all__ = ["schema_of_field", "schema_of_model"]

_NAMED: Final = ("properties", "$defs", "patternProperties")
_LISTED: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE: Final = ("items", "not", "propertyNames")


def schema_of_field(spec: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the JSON Schema of a portable field spec; of None, which takes anything, the empty one."""
    if spec is None:
        return {}
    kind = spec["type"]
    if isinstance(kind, Mapping):
        schema: dict[str, Any] = {"enum": list(kind["enum"])}
    else:
        schema = {} if kind == "any" else {"type": kind}
    if spec.get("description") is not None:
        schema["description"] = spec["description"]
    if spec.get("secret") is True:
        schema |= {"type": "string", "format": "password", "writeOnly": True}
    if spec.get("fields") is not None:
        fields = spec["fields"]
        schema["properties"] = {name: schema_of_field(inner) for name, inner in fields.items()}
        schema["required"] = [name for name, inner in fields.items() if inner.get("required") is True]
        schema["additionalProperties"] = False
    if spec.get("items") is not None:
        schema["items"] = schema_of_field(spec["items"])
    return schema


def schema_of_model(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a pydantic model, with its descriptions and constraints and without made-up titles."""
    schema: dict[str, Any] = _tidied(model.model_json_schema(by_alias=True, mode="validation"))
    return schema


def _tidied(schema: Any) -> Any:
    """Return a schema without titles, its objects closed as the core closes them; names of properties stay."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "title"}
    for key in _NAMED:
        if isinstance(kept.get(key), dict):
            kept[key] = {name: _tidied(inner) for name, inner in kept[key].items()}
    for key in _LISTED:
        if isinstance(kept.get(key), list):
            kept[key] = [_tidied(inner) for inner in kept[key]]
    for key in (*_SINGLE, "additionalProperties"):
        if key in kept:
            kept[key] = _tidied(kept[key])
    if "properties" in kept:
        kept["additionalProperties"] = False
    return kept
