"""Finding handlers: by reference, or in installed packages.

A reference is ``package.module:attribute`` or ``path/to/file.py:attribute``; the attribute is a handler, a registry, or
a list of handlers. Packages offer theirs as entry points of the group ``worldprotocol.effects``. What is built in
(``host.builtin``) is always at hand, and any handler of the same type takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from host.effects import EffectHandler, EffectRegistry
from world.code.references import load_reference, offered
from world.errors import RefusedError

__all__ = ["ENTRY_POINTS", "find_effects", "load_handlers"]

ENTRY_POINTS: Final = "worldprotocol.effects"
"""The group of entry points by which packages offer effect handlers."""


def find_effects(
    references: Iterable[str] = (),
    *,
    entry_points: bool = True,
    base: Path | None = None,
    builtin: bool = True,
) -> EffectRegistry:
    """Return a registry of all handlers that are at hand.

    Args:
        references: ``package.module:attribute`` or ``file.py:attribute``, from the operator.
        entry_points: whether to take those that installed packages offer, too.
        base: the folder that relative file names start from; None is the current folder.
        builtin: whether the built-in ones are among them; any other handler of their type takes their place.

    Raises:
        RefusedError: as ``load_handlers``; ``DUPLICATE_HANDLER`` where two handlers stand for one type of effect.
    """
    from host.builtin import BUILTIN  # only who makes effects pays for it

    registry = EffectRegistry(builtin=BUILTIN if builtin else ())
    for name, found in offered(ENTRY_POINTS) if entry_points else ():
        for given in _handlers(f"the entry point {name!r}", found):
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
        RefusedError: ``BAD_REFERENCE``, ``NOT_LOADED``; ``INVALID_HANDLER`` where it names something else.
    """
    return _handlers(repr(reference), load_reference(reference, base=base))


def _handlers(owner: str, found: Any) -> list[EffectHandler]:
    is_several = isinstance(found, Iterable) and not isinstance(found, (str, bytes, Mapping, type))
    several = list(found) if is_several else [found]
    for given in several:
        if not isinstance(given, EffectHandler):
            raise RefusedError(
                "INVALID_HANDLER",
                f"From {owner}: {type(given).__name__} is no effect handler; a function becomes one by @handler(type), "
                "and several may come as a list or a registry.",
                given=type(given).__name__,
            )
    return several
