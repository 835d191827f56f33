"""Modules of a user that have the names of this project's packages, and would be imported in their place.

A file ``world.py`` beside a program is found before the package ``world``. Importing the engine would then fail with a
sentence about a missing submodule. Nothing is imported or run here to find out: only where a name leads is looked up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Final

__all__ = ["PACKAGES", "clash", "refuse_clashes"]

PACKAGES: Final = ("world", "projections", "authority", "host")
"""Packages that are installed beside ``worldprotocol``."""

_HOME: Final = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def refuse_clashes() -> None:
    """Refuse to go on where a package of this project is shadowed.

    Raises:
        ImportError: with the file that has the package's name, and that it must be renamed.
    """
    for name in PACKAGES:
        told = _told(name, _resolved(name))
        if told is not None:
            raise ImportError(told, name=name)


def clash(folder: str, names: Sequence[str] = (*PACKAGES, "worldprotocol")) -> str | None:
    """Return a sentence about the first module in a folder that would shadow a package of this project, or None.

    Args:
        folder: a folder that is, or is about to be, on the path that modules are imported from.
        names: packages of this project.
    """
    found = (_told(name, PathFinder.find_spec(name, [folder])) for name in names)
    return next((told for told in found if told is not None), None)


def _resolved(name: str) -> ModuleSpec | None:
    """Return where ``import name`` leads; for a module that is imported already, where it came from."""
    known = sys.modules.get(name)
    if known is not None:
        return getattr(known, "__spec__", None)
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find is None else find(name, None)
        if spec is not None:
            return spec
    return None


def _told(name: str, spec: ModuleSpec | None) -> str | None:
    """Return what is wrong where a name leads to another place than beside this package, or None."""
    if spec is None or spec.origin is None or not spec.has_location:  # none, or a folder without modules
        return None
    origin = os.path.realpath(spec.origin)
    if os.path.dirname(os.path.dirname(origin)) == _HOME:
        return None
    shown = os.path.dirname(spec.origin) if spec.submodule_search_locations is not None else spec.origin
    shown = os.path.abspath(shown)
    return (
        f"{shown} has the name of the package {name!r} of World Protocol and would be imported in its place. Rename "
        f"{os.path.basename(shown)}; the names {', '.join(PACKAGES)} and worldprotocol are taken."
    )
