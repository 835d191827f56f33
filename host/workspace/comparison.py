"""Comparison of names by a file system: whether names that differ in case or Unicode normalization are one file.

A file is created and looked up under the other name. The result is recorded with the KLIS
settings when a realm is created, and resources follow the settings (``world.klis.resources.names``).
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
"""Signature of ``listed_as``."""


class Names(Protocol):
    """A folder, as needed by the test."""

    def make(self, name: str) -> None:
        """Create a new file."""
        ...

    def has(self, name: str) -> bool:
        """Whether a file is found under a name."""
        ...

    def remove(self, name: str) -> None:
        """Delete a file that ``make`` created."""
        ...


@dataclass(frozen=True, slots=True)
class FolderNames:
    """A folder of this machine."""

    folder: Path

    def make(self, name: str) -> None:
        """Create an empty file with access for its owner only."""
        os.close(os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def has(self, name: str) -> bool:
        """Whether the system finds a file under a name."""
        return os.path.lexists(self.folder / name)

    def remove(self, name: str) -> None:
        """Delete the file."""
        with suppress(FileNotFoundError):
            os.unlink(self.folder / name)


def compared_names(names: Names) -> NameComparison:
    """Determine how names of a folder are compared; a file is created there and deleted again.

    Raises:
        OSError: the file cannot be created.
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
    """Return the listed name of the file that is found under a name; None where none is found.

    The file system decides, not a setting: where it distinguishes names, a name is listed as itself or not at
    all.

    Args:
        name: in the folder.
        folder: an open directory.
        listed: all names in the folder's listing.
    """
    if name in listed:
        return name
    status = exists(name, folder)
    if status is None:
        return None
    statuses = {other: exists(other, folder) for other in listed}
    same = [other for other, seen in statuses.items() if seen is not None and os.path.samestat(seen, status)]
    wanted = _likeness(name)
    return next((other for other in same if _likeness(other) == wanted), same[0] if same else None)


def _likeness(name: bytes) -> str:
    """Return a key that different spellings of a name share; hard links of one file differ in it."""
    return unicodedata.normalize("NFC", name.decode("utf-8", "surrogateescape").casefold())
