"""Handlers by the name of their operation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from worldprotocol.server.operation_table import OPERATIONS

__all__ = ["HANDLERS", "handles"]

Handler = Callable[..., Awaitable[Any]]
HANDLERS: Final[dict[str, Handler]] = {}
"""The handlers that were declared."""


def handles(name: str) -> Callable[[Handler], Handler]:
    """Declare the handler of an operation.

    Raises:
        KeyError: the table has no such operation.
    """
    operation = OPERATIONS[name]

    def declare(handler: Handler) -> Handler:
        assert operation.name not in HANDLERS, f"{name} has two handlers"
        HANDLERS[operation.name] = handler
        return handler

    return declare
