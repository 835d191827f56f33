"""The JSON Schema 2020-12 of a domain's state and inputs, for other programs.

A state or an input in the dialect is published as it is. Field specs are translated; in their state null is allowed
anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from world.core.schema import DomainSchema
from world.core.state_model.dialect import is_model
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import thaw

__all__ = ["METASCHEMA", "published_input", "published_state"]

METASCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"
"""The metaschema of what is published."""


def published_state(schema: DomainSchema) -> dict[str, Any]:
    """Return the JSON Schema of a domain's state, with its id, version and schemaHash."""
    state = schema.portable["state"]
    return _published(schema, "state", state, {"type": "object", **state} if not is_model(state) else state)


def published_input(schema: DomainSchema, action: str) -> dict[str, Any]:
    """Return the JSON Schema of an action's input; an action without one takes anything.

    Raises:
        RefusedError: ``UNKNOWN_ACTION``.
    """
    if action not in schema.actions:
        known = sorted(schema.actions)
        raise RefusedError(
            ErrorCode.UNKNOWN_ACTION, f"The domain has no action {action!r}; it has {', '.join(known)}.", known=known
        )
    spec = schema.portable["actions"][action].get("input")
    return _published(schema, f"input of {action}", spec, spec)


def _published(schema: DomainSchema, what: str, own: Any, spec: Any) -> dict[str, Any]:
    found = {} if spec is None else thaw(spec["schema"]) if is_model(own) else _of_field(spec, what == "state")
    head = {"$schema": METASCHEMA, "title": f"{schema.id} {schema.version}: {what}", "$comment": schema.hash}
    return {**head, **found}


def _of_field(spec: Mapping[str, Any], is_state: bool) -> dict[str, Any]:
    """Return the JSON Schema of a field spec."""
    kind = spec.get("type", "object")
    found: dict[str, Any] = {}
    if isinstance(kind, Mapping):
        found["enum"] = [*thaw(kind["enum"]), *([None] if is_state and None not in kind["enum"] else [])]
    elif kind != "any":
        found["type"] = [kind, "null"] if is_state and kind != "null" else kind
    for key in ("description", "default"):
        if key in spec:
            found[key] = thaw(spec[key])
    if spec.get("secret") is True:
        found["secret"] = True
    if spec.get("fields") is not None:
        fields = spec["fields"]
        required = {name for name, inner in fields.items() if inner.get("required") is True}
        found["properties"] = {
            name: _nullable(_of_field(inner, is_state), optional=name not in required) for name, inner in fields.items()
        }
        found["required"] = [name for name in fields if name in required]
        found["additionalProperties"] = False
    if spec.get("items") is not None:
        found["items"] = _of_field(spec["items"], is_state)
    return found


def _nullable(found: dict[str, Any], *, optional: bool) -> dict[str, Any]:
    """Return a schema that allows null too, where the field is optional."""
    if optional and isinstance(found.get("type"), str) and found["type"] != "null":
        return {**found, "type": [found["type"], "null"]}
    if optional and "enum" in found and None not in found["enum"]:
        return {**found, "enum": [*found["enum"], None]}
    return found
