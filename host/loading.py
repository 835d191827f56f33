"""Lookup of effect handlers: by reference, or in installed packages.

A reference is ``package.module:attribute`` or ``path/to/file.py:attribute``; the attribute is a handler, a registry, a
list of handlers, or ``*`` for every handler of the module. Packages offer theirs as entry points of the group
``worldprotocol.effects``. The built-in handlers (``host.builtin``) are always available, and any other handler of the
same type replaces one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from host.effect_registry import EffectRegistry
from host.effects import EffectHandler
from world.code.references import load_reference, offered
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["ENTRY_POINTS", "find_effects", "load_handlers"]

ENTRY_POINTS: Final = "worldprotocol.effects"
"""Group of entry points through which packages offer effect handlers."""


def find_effects(
    references: Iterable[str] = (),
    *,
    entry_points: bool = True,
    base: Path | None = None,
    builtin: bool = True,
) -> EffectRegistry:
    """Build a registry of all available handlers.

    Args:
        references: ``package.module:attribute`` or ``file.py:attribute``, from the operator.
        entry_points: whether to include the handlers of installed packages.
        base: the folder that relative file names start from; None is the current folder.
        builtin: whether to include the built-in handlers; any other handler of the same type replaces one.

    Raises:
        RefusedError: as ``load_handlers``; ``DUPLICATE_HANDLER`` for two handlers of one type of effect.
    """
    from host.builtin import BUILTIN  # imported late: only processes that run effects need it

    registry = EffectRegistry(builtin=BUILTIN if builtin else ())
    for name, value in offered(ENTRY_POINTS) if entry_points else ():
        for given in _handlers(f"the entry point {name!r}", value):
            registry.add(given)
    for reference in references:
        for given in load_handlers(reference, base=base):
            registry.add(given)
    return registry


def load_handlers(reference: str, *, base: Path | None = None) -> list[EffectHandler]:
    """Return the handlers that a reference names: one, several, or a whole registry.

    Args:
        reference: ``package.module:attribute`` or ``file.py:attribute``.
        base: the folder that relative file names start from; None is the current folder.

    Raises:
        RefusedError: ``BAD_REFERENCE``, ``NOT_LOADED``; ``INVALID_HANDLER`` for anything but handlers.
    """
    return _handlers(repr(reference), load_reference(reference, base=base))


def _handlers(owner: str, value: Any) -> list[EffectHandler]:
    if isinstance(value, ModuleType):
        return _of_module(owner, value)
    is_several = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping, type))
    several = list(value) if is_several else [value]
    for item in several:
        if not isinstance(item, EffectHandler):
            raise RefusedError(
                ErrorCode.INVALID_HANDLER,
                f"{owner} provides a {type(item).__name__}, which is not an effect handler; decorate the "
                "function with @handler(type), or provide a list of handlers or a registry.",
                given=type(item).__name__,
            )
    return several


def _of_module(owner: str, module: ModuleType) -> list[EffectHandler]:
    found: dict[int, EffectHandler] = {}
    for value in vars(module).values():
        for one in value if isinstance(value, EffectRegistry) else (value,):
            if isinstance(one, EffectHandler):
                found[id(one)] = one
    if not found:
        raise RefusedError(
            ErrorCode.INVALID_HANDLER,
            f"{owner} provides no effect handler; decorate a function of the module with @handler(type).",
            given="module",
        )
    return list(found.values())
