"""Parameters, bodies and answers of declared operations in the API description, from their types and examples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import structs, to_builtins
from msgspec.json import schema_components

from worldprotocol.operations.declaring import Declared
from worldprotocol.server.endpoints import IDEMPOTENCY_KEY

__all__ = ["answer_of", "components_of", "request_of"]

REFERENCE: Final = "#/components/schemas/{name}"
JSON: Final = "application/json"

KEY: Final = {
    "name": IDEMPOTENCY_KEY.title(),
    "in": "header",
    "required": False,
    "description": "Key of the request: a repeated request records nothing, and has the same answer.",
    "schema": {"type": "string"},
}
"""The header field of requests that may be repeated."""


def components_of(operations: Iterable[Declared[Any, Any]]) -> dict[str, Any]:
    """Return the schemas that the answers of operations consist of, by name."""
    _, components = schema_components([one.answer for one in operations], ref_template=REFERENCE)
    return components


def answer_of(operation: Declared[Any, Any]) -> tuple[dict[str, Any], Any]:
    """Return schema and example of an operation's answer."""
    return {"$ref": REFERENCE.format(name=operation.answer.__name__)}, to_builtins(operation.example.answer)


def request_of(operation: Declared[Any, Any]) -> dict[str, Any]:
    """Return the parameters of an operation, and its body if it has one."""
    schema, example = _request_schema(operation.request), to_builtins(operation.example.request)
    parameters: list[dict[str, Any]] = []
    properties: dict[str, Any] = {}
    for field in structs.fields(operation.request):
        name, property_ = field.encode_name, schema["properties"][field.encode_name]
        if f"{{{field.name}}}" in operation.path:
            parameters.append(_parameter(field.name, "path", property_, is_required=True))
            example.pop(name, None)
        elif operation.is_write:
            properties[name] = property_
        else:
            parameters.append(_parameter(name, "query", property_, is_required=field.required))
    if not operation.is_write:
        return {"parameters": parameters}
    required = [name for name in schema.get("required", ()) if name in properties]
    body = {**schema, "properties": properties, "required": required, "additionalProperties": False}
    return {
        "parameters": [*parameters, KEY],
        "requestBody": {"required": bool(required), "content": {JSON: {"schema": body, "example": example}}},
    }


def _parameter(name: str, where: str, schema: dict[str, Any], *, is_required: bool) -> dict[str, Any]:
    described = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": where, "required": is_required, "schema": schema, **described}


def _request_schema(request: Any) -> dict[str, Any]:
    _, components = schema_components([request], ref_template=REFERENCE)
    found: dict[str, Any] = components[request.__name__]
    return found
