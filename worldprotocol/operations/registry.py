"""The declared operations by name: those of the product's subjects, and those of installed packages.

A package registers a module under the entry-point group ``worldprotocol.operations``; its operations are the module's
members.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, Final

from msgspec.json import Decoder

from worldprotocol.operations.declaring import Declared

__all__ = ["GROUP", "SUBJECTS", "declared_operations"]

GROUP: Final = "worldprotocol.operations"
SUBJECTS: Final = (
    *("realms", "names", "acting.intents", "proposals", "explanations", "inbox", "worlds", "acting.branches"),
    *("acting.leases", "acting.lease_requests", "acting.effects", "acting.calls", "acting.sessions"),
    *("runs", "policies", "access", "log", "proofs", "jobs"),
)
"""Modules of this package with the operations of the product."""


@cache
def declared_operations() -> dict[str, Declared[Any, Any]]:
    """Return all operations by name, in the order of declaration; threads may convert to their types at once.

    Raises:
        ValueError: two have one name, or one method and path.
    """
    modules = [import_module(f"worldprotocol.operations.{one}") for one in SUBJECTS]
    modules += [entry.load() for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)]
    found: dict[str, Declared[Any, Any]] = {}
    routes: dict[tuple[str, str], str] = {}
    for one in (operation for module in modules for operation in _operations_of(module)):
        earlier = found.get(one.name) or found.get(routes.setdefault((one.method, one.path), one.name))
        if earlier is not None:
            raise ValueError(f"The operations {earlier.name} and {one.name} have one name, or one method and path.")
        found[one.name] = one
        for kind in (one.request, one.answer):
            Decoder(kind)  # msgspec learns a type at its first use, and crashes where two threads are the first ones
    return found


def _operations_of(module: ModuleType) -> list[Declared[Any, Any]]:
    return [one for one in vars(module).values() if isinstance(one, Declared)]
