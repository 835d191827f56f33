"""Under which spelling saved places stand now: a file system may find under a name what it lists under another one.

Only what the file system answers counts here, and no setting: an entry that it finds under a saved name is the saved
one, and is restored where it is listed; one that merely looks alike is another.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

from host.backups.backup_fs import Ground, join, parents, split

__all__ = ["SavedSpellings"]


class SavedSpellings:
    """The spellings of saved places.

    Args:
        ground: the workspace's files.
        saved: all paths that a backup remembers.
    """

    def __init__(self, ground: Ground, saved: Iterable[bytes]) -> None:
        self._ground = ground
        self._saved: defaultdict[bytes, set[bytes]] = defaultdict(set)
        for place in saved:
            folder, name = split(place)
            self._saved[folder].add(name)
        self._listed: dict[bytes, frozenset[bytes]] = {}
        self._found: dict[bytes, bytes] = {b"": b""}

    def of(self, saved: bytes) -> bytes:
        """Return the path under which a saved place is listed; as it was saved where nothing is found there.

        Raises:
            OSError: a folder cannot be read.
        """
        found = self._found.get(saved)
        if found is not None:
            return found
        for place in (*parents(saved), saved):
            if place not in self._found:
                folder, name = split(place)
                self._found[place] = self._spelled(folder, name)
        return self._found[saved]

    def differing(self) -> dict[bytes, bytes]:
        """Return the places asked for that are spelled otherwise than they were saved, with their paths now."""
        return {saved: found for saved, found in self._found.items() if saved != found}

    def _spelled(self, folder: bytes, name: bytes) -> bytes:
        above = self._found[folder]
        listed = self._names(above)
        if not listed or name in listed:
            return join(above, name)
        saved = self._saved.get(folder, set())
        try:
            with self._ground.folder(above) as handle:
                found = self._ground.listed_as(name, handle, listed - saved if name in saved else listed)
        except (FileNotFoundError, NotADirectoryError):  # the folder was taken away since it was listed
            found = None
        return join(above, found or name)

    def _names(self, folder: bytes) -> frozenset[bytes]:
        names = self._listed.get(folder)
        if names is None:
            try:
                with self._ground.folder(folder) as handle:
                    names = frozenset(os.fsencode(name) for name in os.listdir(handle))
            except (FileNotFoundError, NotADirectoryError):
                names = frozenset()
            self._listed[folder] = names
        return names
