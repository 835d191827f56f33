"""Installed distributions of modules, with their versions."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import PurePath
from types import ModuleType
from typing import Final

__all__ = ["ENGINE", "INSTALLED", "distribution_of", "is_installed", "is_library", "owners_of", "version_of"]

ENGINE: Final = frozenset({"world", "projections", "authority", "host", "worldprotocol"})
"""The packages of this distribution."""

INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Names of folders of installed packages."""


def distribution_of(module: ModuleType) -> str | None:
    """Return names and versions of a module's distributions, None without any.

    Metadata is read only for a module in a folder of installed packages.
    """
    return ", ".join(f"{name} {version}" for name, version in _distributions(module)) or None


def _distributions(module: ModuleType) -> list[tuple[str, str]]:
    if not is_installed(module):
        return []
    owners = owners_of(tuple(sys.path)).get(module.__name__.partition(".")[0], ())
    return sorted((name, version_of(name)) for name in {name for name in owners if name})


def is_installed(module: ModuleType) -> bool:
    """Return whether a module is in a folder of installed packages."""
    return not INSTALLED.isdisjoint(PurePath(getattr(module, "__file__", None) or "").parts)


@functools.lru_cache(maxsize=4)
def owners_of(search_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """Return the distributions of each top-level module; takes tens of milliseconds."""
    return metadata.packages_distributions()


def is_library(module: str) -> bool:
    """Return whether a module belongs to the engine or the standard library."""
    top = module.partition(".")[0]
    return top in ENGINE or top in sys.stdlib_module_names


@functools.lru_cache(maxsize=256)
def version_of(name: str) -> str:
    """Return the version of a distribution, ``unknown`` if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
