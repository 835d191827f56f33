"""Names of files with secrets: ``[workspace] hidden``. A confined command finds them empty, at any depth."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final

from host.workspace.root import PRIVATE
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["HIDDEN", "hidden_below", "is_hidden"]

HIDDEN: Final = (
    ".env",
    ".env.*",
    ".netrc",
    ".npmrc",
    ".pypirc",
    "credentials",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_rsa",
    "*.key",
    "*.p12",
    "*.pem",
    "*.pfx",
)
"""Names that are hidden where the configuration names none."""

MAX_ENTRIES: Final = 2_000_000
"""Most entries of a workspace in which hidden names are searched."""


def is_hidden(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one name of a path is hidden; case and the form of Unicode are ignored.

    Args:
        name: the name, without folders.
        patterns: as ``fnmatch`` takes them.
    """
    folded = _folded(name)
    return any(fnmatchcase(folded, _folded(one)) for one in patterns)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def hidden_below(root: bytes, patterns: Iterable[str]) -> Iterator[bytes]:
    """Yield the absolute paths below a folder whose last names are hidden; links to folders are not followed.

    Args:
        root: the folder.
        patterns: as for ``is_hidden``.

    Raises:
        RefusedError: ``WORKSPACE_TOO_LARGE`` where there are more than ``MAX_ENTRIES`` entries.
    """
    listed, known, pending = list(patterns), dict[str, bool](), [root]
    left = MAX_ENTRIES
    while pending:
        try:
            entries = os.scandir(pending.pop())
        except OSError:  # a folder that cannot be listed cannot be read by the command either
            continue
        with entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    raise _too_large(root)
                name = os.fsdecode(entry.name)
                if name not in known:
                    known[name] = is_hidden(name, listed)
                if known[name]:
                    yield entry.path
                elif entry.is_dir(follow_symlinks=False) and entry.name != PRIVATE:
                    pending.append(entry.path)


def _too_large(root: bytes) -> RefusedError:
    return RefusedError(
        ErrorCode.WORKSPACE_TOO_LARGE,
        f"{os.fsdecode(root)} has more than {MAX_ENTRIES:,} entries, so names that are hidden cannot be found in it. "
        "Delete what is not needed, or set `[workspace] hidden = []`.",
    )
