"""Field specs of pydantic models, the earlier form of a state and of an input.

Logs that adopted a domain in this form go on under it. A field spec expresses nested models, lists, ``Literal`` and
``Enum``, optional fields and aliases; everything else accepts any value. A domain that is adopted now has the form of
``world.core.state_model``. The approximation is also what field specs of such a domain are read from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic_core import PydanticUndefined

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.secrets.literal import is_secret_schema

__all__ = ["approximate_spec", "earlier_form", "input_spec", "state_spec"]

_SIMPLE: Final = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
}


def approximate_spec(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field spec that approximates a JSON Schema; members of its root keep their defaults."""
    found = _spec(schema, schema.get("$defs", {}), ())
    for name, inner in schema.get("properties", {}).items():
        if "default" in inner and "fields" in found:
            found["fields"][name]["default"] = inner["default"]
    return found


def input_spec(model: type[BaseModel]) -> dict[str, Any]:
    """Return the field spec of an action's input.

    Raises:
        RefusedError: ``UNSUPPORTED_TYPE`` for a model that has no JSON Schema.
    """
    document = _json_schema(model)
    return {**_spec(document, document.get("$defs", {}), ()), "required": bool(document.get("required"))}


def state_spec(model: type[BaseModel]) -> dict[str, Any]:
    """Return ``{"fields": ...}`` of a state model with its defaults.

    Raises:
        RefusedError: ``UNSUPPORTED_TYPE`` for a model that has no JSON Schema, or a default that is no JSON.
    """
    document = _json_schema(model)
    fields = _members(document, document.get("$defs", {}), ())
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        if default is not PydanticUndefined:
            wire = field.alias or name
            fields[wire] = {
                **fields[wire],
                "required": True,
                "default": _plain(model, name, field.annotation, default),
            }
    return {"fields": fields}


def _plain(model: type[BaseModel], name: str, annotation: Any, default: Any) -> Any:
    try:
        return TypeAdapter(annotation).dump_python(default, mode="json", by_alias=True)
    except Exception as error:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_TYPE, f"The default of {model.__name__}.{name} is no JSON: {error}", field=name
        ) from error


def _json_schema(model: type[BaseModel]) -> dict[str, Any]:
    try:
        return model.model_json_schema(by_alias=True, mode="validation")
    except Exception as error:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_TYPE, f"{model.__name__} has no JSON form: {error}", model=model.__name__
        ) from error


def _members(schema: Mapping[str, Any], named: Mapping[str, Any], above: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    required = schema.get("required", ())
    return {
        name: {**_spec(inner, named, above), "required": name in required}
        for name, inner in schema.get("properties", {}).items()
    }


def _spec(schema: Mapping[str, Any], named: Mapping[str, Any], above: tuple[str, ...]) -> dict[str, Any]:
    """Return the spec of a JSON Schema; unsupported parts accept any value.

    Raises:
        RefusedError: ``UNSUPPORTED_TYPE`` for a secret that is no text.
    """
    if is_secret_schema(schema):
        rendered = _spec(
            {key: value for key, value in schema.items() if key not in ("secret", "writeOnly")}, named, above
        )
        if rendered["type"] not in ("string", "any"):
            raise RefusedError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"A secret field is a text, not {rendered['type']}: use SecretStr or a secret str.",
            )
        return {**rendered, "secret": True}
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        # A recursive model has no finite spec; from its second level on it accepts any value.
        return {"type": "any"} if name in above else _spec(named[name], named, (*above, name))
    if "enum" in schema or "const" in schema:
        return {"type": {"enum": list(schema.get("enum", [schema.get("const")]))}}
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        return _one_of([_spec(option, named, above) for option in options])
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items") or {}
        if not items or "prefixItems" in schema:
            return {"type": "array"}
        return {"type": "array", "items": _spec(items, named, above)}
    if kind == "object":
        closed = "properties" in schema or schema.get("additionalProperties") is False
        return {"type": "object", "fields": _members(schema, named, above)} if closed else {"type": "object"}
    return {"type": _SIMPLE.get(str(kind), "any")}


def _one_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the spec of alternatives: of ``X | None`` it is that of X, of enums their union, otherwise
    anything.
    """
    others = [option for option in options if option["type"] != "null"]
    if len(others) > 1 and any(option.get("secret") for option in others):
        return {"type": "any", "secret": True}
    nullable = len(others) < len(options)
    if others and all(isinstance(option["type"], dict) for option in others):
        values = [value for option in others for value in option["type"]["enum"]]
        return {"type": {"enum": values + [None] * (nullable and None not in values)}}
    return others[0] if len(others) == 1 else {"type": "any" if others else "null"}


def earlier_form(
    portable: Mapping[str, Any], state: type[BaseModel] | None, inputs: Mapping[str, type[BaseModel] | None]
) -> dict[str, Any]:
    """Return the portable schema with the state and the inputs of models as field specs.

    Args:
        portable: the schema in its present form.
        state: the model of the state; None keeps the state.
        inputs: the models of inputs by action; others are kept.

    Raises:
        RefusedError: ``UNSUPPORTED_TYPE`` for a model that has no such form.
    """
    actions = dict(portable["actions"])
    for name, model in inputs.items():
        if model is not None:
            actions[name] = {**actions[name], "input": input_spec(model)}
    return {**portable, "actions": actions, **({} if state is None else {"state": state_spec(state)})}
