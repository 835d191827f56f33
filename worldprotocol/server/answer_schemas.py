"""Parts of the JSON Schemas of answers, and values of their examples."""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "ACTOR",
    "FLAG",
    "HASH",
    "HOOK_ANSWER",
    "ID",
    "INT",
    "OBJECT",
    "TEXT",
    "Schema",
    "array",
    "or_null",
    "ref",
    "shape",
]

Schema = dict[str, Any]
TEXT: Final[Schema] = {"type": "string"}
INT: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
OBJECT: Final[Schema] = {"type": "object"}


def or_null(schema: Schema) -> Schema:
    """Return the schema of a value or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def array(schema: Schema) -> Schema:
    """Return the schema of an array of such values."""
    return {"type": "array", "items": schema}


def shape(_optional: str = "", **members: Schema) -> Schema:
    """Return the schema of an object that has these members; those named in ``_optional`` may be absent."""
    absent = _optional.split()
    return {"type": "object", "properties": members, "required": [name for name in members if name not in absent]}


def ref(name: str) -> Schema:
    """Return a reference to a shared schema."""
    return {"$ref": f"#/components/schemas/{name}"}


ID: Final = "0198b2c4-6f3e-7a10-8c55-2f6d1f0a9b01"
HASH: Final = "5b" * 32
ACTOR: Final = {"actorId": "bot", "kind": "agent"}

HOOK_ANSWER: Final = {
    "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow",
        "permissionDecisionReason": f"Allowed by proposal {ID}.",
    }
}
"""Example of the answer to a hook of Claude Code."""
