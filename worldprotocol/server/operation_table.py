"""The table of operations: name, method, path and the rights of which a caller needs one; and their handlers.

Declared operations (``worldprotocol.operations``) are in it, and need no handler here.

A route exists only for an operation of this table, and an operation without rights is refused unless it is public.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from typing import Any, Final

from world.events.verification import RIGHTS, Right
from worldprotocol.operations.declaring import REALM, Operation
from worldprotocol.operations.registry import declared_operations

__all__ = ["HANDLERS", "OPERATIONS", "STREAMS", "Handlers", "Operation", "all_operations", "handles", "streams"]

READ: Final[tuple[Right, ...]] = ("reader", "auditor")


def _in_realm(name: str, method: str, path: str, rights: tuple[Right, ...], summary: str, kind: str = "") -> Operation:
    """Return an operation on a realm; ``kind`` has the words ``whole``, ``waits`` and ``personal`` that apply."""
    whole, waits, personal = (one in kind for one in ("whole", "waits", "personal"))
    path = REALM + path
    return Operation(name, method, path, rights, summary, is_whole=whole, may_wait=waits, is_personal=personal)


_ACT: Final[tuple[Right, ...]] = ("actor",)
_AUDIT: Final[tuple[Right, ...]] = ("auditor", "operator")
_OPERATE: Final[tuple[Right, ...]] = ("operator",)

_COMMANDS: Final[tuple[Right, ...]] = ("reader", "auditor", "actor", "approver", "operator")
"""The table of the commands names the rights of each (``worldprotocol.server.commands.command_table``)."""

_ALL: Final = (
    Operation("realms.list", "GET", "/v1/realms", RIGHTS, "List the realms in which the caller has a right"),
    Operation("realms.identity", "GET", f"{REALM}/identity", (), "Return the id of a realm's log", is_public=True),
    _in_realm("commands.run", "POST", "/commands", _COMMANDS, "Run a command of worldctl as the caller", "waits"),
    _in_realm(
        "hooks.call",
        "POST",
        "/hooks/{client}",
        _ACT,
        "Judge a call of a tool that a coding agent's hook sends",
        "waits",
    ),
    Operation("errors.read", "GET", "/v1/errors/{code}", (), "Return what an error code means", is_public=True),
    Operation("server.health", "GET", "/healthz", (), "Return whether the process answers", is_public=True),
    Operation("server.ready", "GET", "/readyz", (), "Return whether all realms accept writes", is_public=True),
    Operation("server.metrics", "GET", "/metrics", ("operator", "auditor"), "Return metrics for Prometheus"),
)


def all_operations() -> dict[str, Operation]:
    """Return the rows of the table and the declared operations, by name.

    Raises:
        ValueError: two have one name, or one method and path.
    """
    rows = [*_ALL, *declared_operations().values()]
    found = {one.name: one for one in rows}
    if len(found) < len(rows) or len({(one.method, one.route) for one in rows}) < len(rows):
        taken = {one.name for one in _ALL} | {f"{one.method} {one.path}" for one in _ALL}
        at_fault = [one for one in declared_operations().values() if {one.name, f"{one.method} {one.path}"} & taken]
        raise ValueError(f"{at_fault[0].name} has the name, or method and path, of an operation of the server.")
    return found


OPERATIONS: Final = all_operations()
"""All operations, by name."""

Handler = Callable[..., Awaitable[Any]]


class Handlers(dict[str, Handler]):
    """The handlers of the rows of a table, by name, as far as they were declared.

    Args:
        table: the names of the rows.
    """

    def __init__(self, table: Container[str]) -> None:
        super().__init__()
        self._table = table

    def declare(self, name: str) -> Callable[[Handler], Handler]:
        """Return the decorator of the handler of a row.

        Raises:
            KeyError: the table has no such row, or it has a handler.
        """
        if name not in self._table or name in self:
            raise KeyError(name)
        return lambda handler: self.setdefault(name, handler)


HANDLERS: Final = Handlers(OPERATIONS)
"""The handlers of the operations."""

handles: Final = HANDLERS.declare
"""Declares the handler of an operation."""

STREAMS: Final = Handlers(OPERATIONS)
"""What streams the declared operations that do: from the call, the request and its answer."""

streams: Final = STREAMS.declare
"""Declares what streams an operation."""
