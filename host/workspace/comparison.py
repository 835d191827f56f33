"""How a file system compares names: whether names that differ in case, or in Unicode normalisation, are one file.

This is found out by making a file and looking for it under the other name. The answer is recorded with the KLIS
settings when a realm is founded, and resources follow the settings (``world.klis.resources.names``).
"""

from __future__ import annotations

import os
import secrets
import unicodedata
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from host.workspace.safe import exists
from world.klis.resources.names import NameComparison

__all__ = ["FolderNames", "ListedAs", "Names", "compared_names", "listed_as"]

_COMPOSED: Final = "\u00e9"
_DECOMPOSED: Final = "e\u0301"

ListedAs = Callable[[bytes, int, Collection[bytes]], bytes | None]
"""Answers as ``listed_as`` does."""


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


def listed_as(name: bytes, folder: int, listed: Collection[bytes]) -> bytes | None:
    """Return the name under which a folder lists what the file system finds under a name; None where it finds nothing.

    This is what the file system does and no setting: where it tells names apart, a name is listed as itself or not at
    all.

    Args:
        name: in the folder.
        folder: an open directory.
        listed: all names that the folder lists.
    """
    if name in listed:
        return name
    found = exists(name, folder)
    if found is None:
        return None
    there = {other: exists(other, folder) for other in listed}
    same = [other for other, seen in there.items() if seen is not None and os.path.samestat(seen, found)]
    wanted = _likeness(name)
    return next((other for other in same if _likeness(other) == wanted), same[0] if same else None)


def _likeness(name: bytes) -> str:
    """Return what spellings of a name have in common; hard links of one file differ in it."""
    return unicodedata.normalize("NFC", name.decode("utf-8", "surrogateescape").casefold())
