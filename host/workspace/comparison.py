"""How a file system compares names: whether names that differ in case, or in Unicode normalisation, are one file.

This is found out by making a file and looking for it under the other name. Resources tell such names apart, unless
``[klis] lower_case`` says that case does not count.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

__all__ = ["FolderNames", "NameComparison", "Names", "compared_names"]

_COMPOSED: Final = "\u00e9"
_DECOMPOSED: Final = "e\u0301"


@dataclass(frozen=True, slots=True)
class NameComparison:
    """Which differences of names a file system ignores.

    Args:
        ignores_case: whether ``a`` and ``A`` are one file.
        ignores_normal_form: whether the composed and the decomposed form of a letter are one file.
    """

    ignores_case: bool
    ignores_normal_form: bool


class Names(Protocol):
    """A folder, as far as the probe needs one."""

    def make(self, name: str) -> None:
        """Make a file that did not exist."""
        ...

    def has(self, name: str) -> bool:
        """Return whether a file is found under a name."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file that ``make`` made."""
        ...


@dataclass(frozen=True, slots=True)
class FolderNames:
    """A folder of this machine."""

    folder: Path

    def make(self, name: str) -> None:
        """Make an empty file for its owner alone."""
        os.close(os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def has(self, name: str) -> bool:
        """Return whether the system finds a file under a name."""
        return os.path.lexists(self.folder / name)

    def remove(self, name: str) -> None:
        """Remove the file."""
        with suppress(FileNotFoundError):
            os.unlink(self.folder / name)


def compared_names(names: Names) -> NameComparison:
    """Return how names of a folder are compared; a file is made there and removed again.

    Raises:
        OSError: the file cannot be made.
    """
    stem = f"names-{secrets.token_hex(8)}-x"
    made = stem + _COMPOSED
    names.make(made)
    try:
        return NameComparison(
            ignores_case=names.has(stem.upper() + _COMPOSED), ignores_normal_form=names.has(stem + _DECOMPOSED)
        )
    finally:
        names.remove(made)
