"""JSON Schemas of action inputs, for forms and tools (INT-3.4c).

Every value that is valid under such a schema passes the core's own check of the input. The schema is stricter in one
respect: an optional field is omitted, never null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

__all__ = ["schema_of_field", "schema_of_model"]

_NAMED: Final = ("properties", "$defs", "patternProperties")
_LISTED: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_VALUES: Final = frozenset({"const", "default", "enum"})
_SINGLE: Final = ("items", "not", "propertyNames")


def schema_of_field(spec: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the JSON Schema of a portable field spec or of an input in the dialect; empty for None (any value)."""
    if spec is None:
        return {}
    if "schema" in spec:
        schema: dict[str, Any] = _shown(spec["schema"])
        return schema
    kind = spec["type"]
    if isinstance(kind, Mapping):
        schema = {"enum": list(kind["enum"])}
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


def _shown(schema: Any) -> Any:
    """Return a schema of the dialect as plain JSON Schema, with secrets as passwords."""
    if isinstance(schema, list):
        return [_shown(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    if schema.get("secret") is True:
        kept = {key: value for key, value in schema.items() if key != "secret"}
        return {**kept, "format": "password", "writeOnly": True}
    shown = {key: value if key in _VALUES else _shown(value) for key, value in schema.items()}
    for key in ("properties", "$defs"):
        if key in schema:
            shown[key] = {name: _shown(inner) for name, inner in schema[key].items()}
    return shown


def schema_of_model(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a pydantic model without generated titles."""
    schema: dict[str, Any] = _tidied(model.model_json_schema(by_alias=True, mode="validation"))
    return schema


def _tidied(schema: Any) -> Any:
    """Return a schema without titles and with closed objects, as in the core."""
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
