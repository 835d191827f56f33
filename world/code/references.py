"""Loading of Python objects by reference or entry point.

Domains, projections, rules and effect handlers are loaded by ``package.module:attribute`` or
``path/to/file.py:attribute``. Loading runs foreign code; every exception becomes a refusal with the reference.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from functools import reduce
from importlib._bootstrap import _DeadlockError  # type: ignore[attr-defined]
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from world.code.entry_points import entry_points
from world.code.named_modules import admit, why_not_admitted
from world.code.source_modules import FromSource
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import sha256_hex

FILE_MODULE_PREFIX = "_worldprotocol_"
"""Prefix of the names of modules that were loaded from a file."""


class _FileFinder:
    """Finder of the modules that are loaded from files, so that Python's import locks each of them."""

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}

    def add(self, name: str, path: Path) -> None:
        """Let the module of a file be imported under a name."""
        self._paths[name] = path
        if self not in sys.meta_path:
            sys.meta_path.append(self)  # threads may add it twice, which has no effect

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of such a module; None for every other name."""
        file = self._paths.get(name)
        return None if file is None else spec_from_file_location(name, file, loader=FromSource(name, str(file)))


_files: Final = _FileFinder()


def load_reference(reference: str, *, base: Path | None = None) -> Any:
    """Return the object of a reference.

    Args:
        reference: ``package.module:attribute`` or ``file.py:attribute``; the attribute may be dotted, and ``*`` is the
            module itself.
        base: the folder that relative file names start from, and that the named module may be imported from where it
            is found nowhere else (``world.code.named_modules``); None is the current folder, and no folder for modules.

    Raises:
        RefusedError: ``BAD_REFERENCE`` for another form, ``NOT_LOADED`` when the module or attribute is missing or its
            code raises.
    """
    module_name, colon, attribute = reference.rpartition(":")
    if not colon or not module_name or not attribute:
        raise RefusedError(
            ErrorCode.BAD_REFERENCE,
            f"{reference!r} names nothing: write package.module:attribute or path/to/file.py:attribute.",
            reference=reference,
        )
    if base is not None:
        admit([reference], base)
    try:
        module = (
            _file_module(((base or Path()) / module_name).resolve())
            if module_name.endswith(".py")
            else importlib.import_module(module_name)
        )
        return module if attribute == "*" else reduce(getattr, attribute.split("."), module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # foreign code may raise anything, SystemExit too
        raise RefusedError(
            ErrorCode.NOT_LOADED,
            f"{reference!r} could not be loaded: {type(error).__name__}: {error}."
            f"{why_not_admitted(error, reference, base) if base is not None else ''}",
            reference=reference,
        ) from error


def _file_module(path: Path) -> ModuleType:
    """Load a file as a module; equal text and path give the same module."""
    text = path.read_bytes() if path.is_file() else b""
    identity = sha256_hex(str(path).encode() + bytes(1) + text)
    name = f"{FILE_MODULE_PREFIX}{identity[:16]}"
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    _files.add(name, path)
    try:
        return importlib.import_module(name)  # waits while another thread loads it
    except _DeadlockError:
        # Two files that load each other in two threads: one gets the other as it is, as in one thread.
        known = sys.modules.get(name)
        if known is None:
            raise
        return known


def offered(group: str) -> Iterator[tuple[str, Any]]:
    """Yield the objects of an entry point group by name.

    Raises:
        RefusedError: ``NOT_LOADED`` when one cannot be loaded.
    """
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        try:
            found = point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # foreign code may raise anything, SystemExit too
            raise RefusedError(
                ErrorCode.NOT_LOADED,
                f"The entry point {point.name!r} of {group} could not be loaded: {type(error).__name__}: {error}.",
                reference=point.value,
            ) from error
        yield point.name, found
