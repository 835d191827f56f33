"""Loading of projections by reference and from installed packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from projections.contract import Projection
from projections.registry import InvocationMode, ProjectionRegistry, registered
from world.code.references import load_reference, offered
from world.errors import RefusedError

__all__ = ["ENTRY_POINTS", "find_projections", "load_projections"]

ENTRY_POINTS: Final = "worldprotocol.projections"
"""The entry point group of packages that provide projections."""


def find_projections(
    references: Iterable[str] = (),
    *,
    entry_points: bool = True,
    base: Path | None = None,
    invocation_mode: InvocationMode | None = None,
) -> ProjectionRegistry:
    """Return a registry of the referenced and installed projections.

    Args:
        references: ``package.module:attribute`` or ``file.py:attribute``, from the operator.
        entry_points: whether to add the projections of installed packages.
        base: the folder of relative file names; None is the current folder.
        invocation_mode: how they are called; see ``ProjectionRegistry``.

    Raises:
        RefusedError: ``BAD_REFERENCE``, ``NOT_LOADED``, and what ``ProjectionRegistry.add`` refuses.
    """
    registry = ProjectionRegistry(invocation_mode=invocation_mode)
    for name, found in offered(ENTRY_POINTS) if entry_points else ():
        for projection in _several(f"the entry point {name!r}", found):
            registry.add(projection)
    for reference in references:
        for projection in load_projections(reference, base=base):
            registry.add(projection)
    return registry


def load_projections(reference: str, *, base: Path | None = None) -> list[Projection]:
    """Return the projections of a reference: one, a collection, or a registry.

    Raises:
        RefusedError: ``BAD_REFERENCE``, ``NOT_LOADED``; ``INVALID_PROJECTION`` where it names another object.
    """
    return _several(repr(reference), load_reference(reference, base=base))


def _several(owner: str, found: Any) -> list[Projection]:
    if isinstance(found, Iterable) and not isinstance(found, (str, bytes, Mapping, type)):
        several = list(found)
    else:
        several = [found]
    for given in several:
        try:
            registered(given)
        except RefusedError as refused:
            raise RefusedError(refused.code, f"From {owner}: {refused.message}", **refused.details) from None
    return several
