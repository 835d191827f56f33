"""An example of the body of each operation that has one, by name."""

from __future__ import annotations

from typing import Any

from worldprotocol.operations.registry import declared_operations
from worldprotocol.server.answers import BODIES
from worldprotocol.server.openapi import request_of

EXAMPLES: dict[str, Any] = BODIES | {
    name: request_of(one)["requestBody"]["content"]["application/json"]["example"]
    for name, one in declared_operations().items()
    if one.is_write
}
