"""Import of modules from source only.

Python prefers compiled files: extension modules and packages precede ``name.py``, and a cache in
``__pycache__`` is used without a comparison with the source where its header says so. So code can run that no
configuration names and that no comparison of sources shows. Modules of a configuration are found and loaded here:
caches are neither read nor written, compiled files without source are not found, and where several files have the name
of one name none is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["FromSource", "SourceFinder", "spec_in"]

_SOURCE: Final = ".py"
_OURS: Final = object()
"""Mark of specs that this module made."""


class FromSource(SourceFileLoader):
    """Loader that compiles the source and ignores ``__pycache__``."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the module's source.

        Raises:
            OSError: the source cannot be read.
            SyntaxError: the source is not Python.
        """
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def spec_in(name: str, folder: str) -> ModuleSpec | None:
    """Return the spec of a module in a folder, or None.

    Args:
        name: name of the module, with the names of its packages.
        folder: absolute.

    Raises:
        RefusedError: ``NOT_LOADED`` where more than one file has the name.
    """
    last = name.rpartition(".")[2]
    suffixes = (_SOURCE, *EXTENSION_SUFFIXES)
    places = [f"{last}{suffix}" for suffix in suffixes] + [f"{last}/__init__{suffix}" for suffix in suffixes]
    paths = (Path(folder, place) for place in places)
    there = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if len(there) > 1:
        raise RefusedError(
            ErrorCode.NOT_LOADED,
            f"{' and '.join(there)} all have the name of the module {name!r}; which one is meant is unclear. "
            "None was loaded. Remove or rename what does not belong there.",
            module=name,
            files=there,
        )
    finder = FileFinder(folder, (ExtensionFileLoader, EXTENSION_SUFFIXES), (FromSource, [_SOURCE]))
    spec = finder.find_spec(name)
    if spec is not None:
        spec.loader_state = _OURS
        if spec.loader is None and spec.submodule_search_locations is not None:
            # A folder without __init__.py: a plain list, for the path of a namespace package would follow sys.path.
            spec.submodule_search_locations = [str(Path(folder, last))]
    return spec


class SourceFinder:
    """Finder of the modules of packages that ``spec_in`` found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of such a package, or None.

        Raises:
            RefusedError: as ``spec_in``.
        """
        if path is None or not _is_ours(name):
            return None
        found = (spec_in(name, str(place)) for place in path)
        return next((spec for spec in found if spec is not None), None)


def _is_ours(name: str) -> bool:
    """Return whether a module's package, or one above it, was found by ``spec_in``."""
    above = sys.modules.get(name.rpartition(".")[0])
    spec = getattr(above, "__spec__", None)
    return isinstance(spec, ModuleSpec) and spec.loader_state is _OURS
