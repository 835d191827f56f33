"""Finding projections: by reference, or in installed packages."""

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
"""The group of entry points by which packages offer projections."""


def find_projections(
    references: Iterable[str] = (),
    *,
    entry_points: bool = True,
    base: Path | None = None,
    asking: InvocationMode | None = None,
) -> ProjectionRegistry:
    """Return a registry of all projections that are at hand.

    Args:
        references: ``package.module:attribute`` or ``file.py:attribute``, from the operator.
        entry_points: whether to take those that installed packages offer, too.
        base: the folder that relative file names start from; None is the current folder.
        asking: how they are asked; see ``ProjectionRegistry``.

    Raises:
        RefusedError: ``BAD_REFERENCE``, ``NOT_LOADED``, and what ``ProjectionRegistry.add`` refuses.
    """
    registry = ProjectionRegistry(asking=asking)
    for name, found in offered(ENTRY_POINTS) if entry_points else ():
        for projection in _several(f"the entry point {name!r}", found):
            registry.add(projection)
    for reference in references:
        for projection in load_projections(reference, base=base):
            registry.add(projection)
    return registry


def load_projections(reference: str, *, base: Path | None = None) -> list[Projection]:
    """Return the projections that a reference names: one, several, or a whole registry.

    Raises:
        RefusedError: ``BAD_REFERENCE``, ``NOT_LOADED``; ``INVALID_PROJECTION`` where it names something else.
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
