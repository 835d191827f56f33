"""Import of the modules that a configuration names from its folder.

A reference such as ``shop.domain:shop`` allows the one name ``shop`` to be imported from the folder of the
configuration: ``shop.py``, or the package ``shop`` with all that is in it. No folder is put on ``sys.path``, so a file
with another name there is never imported. The finder is the last one: a module of the standard library, of an
installed distribution, or of a program that uses the engine as a library is always found before it. All of them are
loaded from their source (``world.code.source_modules``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

from world.code.source_modules import SourceFinder, spec_in
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["admit", "admitted_packages", "candidate", "why_not_admitted"]


class _Finder:
    """Finder of the allowed top-level names, each in its folder."""

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an allowed module; None for every other name."""
        folder = self.folders.get(name) if path is None else None
        return None if folder is None else spec_in(name, folder)


_finder: Final = _Finder()
_within: Final = SourceFinder()


def admit(references: Iterable[str], base: Path) -> None:
    """Allow the modules of references to be imported from a folder.

    Args:
        references: references of a configuration; files (``shop.py:shop``, ``rules.toml``) have no effect.
        base: the folder of the configuration.

    Raises:
        RefusedError: ``NOT_LOADED`` where a module of that name was loaded from the folder of another configuration, or
            where several files have its name.
    """
    folder = str(base.resolve())
    for name in {_top(one) for one in references} - {""}:
        if candidate(name, base) is None:
            continue
        _refuse_another(name, folder)
        _finder.folders[name] = folder
        if _finder not in sys.meta_path:
            sys.meta_path.append(_finder)
            sys.meta_path.insert(0, _within)


def admitted_packages() -> tuple[str, ...]:
    """Return the folders of the allowed packages."""
    found = (spec_in(name, folder) for name, folder in tuple(_finder.folders.items()))
    return tuple(place for spec in found if spec is not None for place in spec.submodule_search_locations or ())


def candidate(name: str, base: Path) -> str | None:
    """Return the file or package folder of a top-level name in a folder, or None.

    Raises:
        RefusedError: ``NOT_LOADED`` where several files have its name.
    """
    spec = spec_in(name, str(base.resolve()))
    if spec is None:
        return None
    return spec.submodule_search_locations[0] if spec.submodule_search_locations else spec.origin


def why_not_admitted(error: BaseException, reference: str, base: Path) -> str:
    """Return advice for a module that could not be imported, or an empty text.

    Args:
        error: the exception of loading the reference.
        reference: the reference.
        base: the folder of the configuration.
    """
    top = _top(reference)
    place = candidate(top, base) if top else None
    known = sys.modules.get(top)
    if place is not None and known is not None and not _is_from(known, place):
        found = getattr(known, "__file__", None) or "part of Python"
        return (
            f" The name {top!r} is that of another module, {found}, which comes before {place}. Rename {place} and the "
            "reference."
        )
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    place = candidate(missing, base) if missing and missing != top else None
    if place is None:
        return ""
    return (
        f" {place} is not imported, since no reference of the configuration names it. Put it into one package with the "
        f"module that imports it (shop/__init__.py, shop/domain.py, shop/{missing}.py; the reference is then "
        f"shop.domain:..., the import `from shop import {missing}`), or install it."
    )


def _top(reference: str) -> str:
    """Return the top-level name of ``package.module:attribute``, else empty."""
    module, colon, _ = reference.rpartition(":")
    top = module.partition(".")[0]
    return top if colon and top.isidentifier() and not module.endswith(".py") else ""


def _is_from(module: ModuleType, place: str) -> bool:
    file = getattr(module, "__file__", None)
    paths = [*getattr(module, "__path__", []), *([file] if file else [])]
    return any(Path(one).resolve() == Path(place).resolve() for one in paths)


def _refuse_another(name: str, folder: str) -> None:
    before = _finder.folders.get(name, folder)
    known = sys.modules.get(name)
    place = None if before == folder else candidate(name, Path(before))
    if known is not None and place is not None and _is_from(known, place):
        raise RefusedError(
            ErrorCode.NOT_LOADED,
            f"The module {name!r} was loaded from {before} in this process, and {folder} has another of that name. "
            "Give it another name, or open the second configuration in a process of its own.",
            reference=name,
        )
