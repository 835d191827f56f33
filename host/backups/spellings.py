"""Current spellings of saved paths: a file system may look up a name that it lists under another spelling.

Only the file system decides, not a setting: an entry that it looks up under a saved name is the saved
one, and is restored where it is listed; an entry that merely looks alike is another.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

from host.backups.backup_fs import WorkspaceFiles, parents, split
from host.workspace.folder_access import join

__all__ = ["SavedSpellings"]


class SavedSpellings:
    """The current spellings of saved paths.

    Args:
        files: the workspace's files.
        saved: all paths in a backup.
    """

    def __init__(self, files: WorkspaceFiles, saved: Iterable[bytes]) -> None:
        self._files = files
        self._saved: defaultdict[bytes, set[bytes]] = defaultdict(set)
        for path in saved:
            folder, name = split(path)
            self._saved[folder].add(name)
        self._listed: dict[bytes, frozenset[bytes]] = {}
        self._current: dict[bytes, bytes] = {b"": b""}

    def of(self, saved: bytes) -> bytes:
        """Return the path under which a saved path is listed; the saved path where nothing exists.

        Raises:
            OSError: a folder cannot be read.
        """
        current = self._current.get(saved)
        if current is not None:
            return current
        for path in (*parents(saved), saved):
            if path not in self._current:
                folder, name = split(path)
                self._current[path] = self._spelled(folder, name)
        return self._current[saved]

    def differing(self) -> dict[bytes, bytes]:
        """Return the looked-up paths whose spelling differs from the saved one, with their current paths."""
        return {saved: current for saved, current in self._current.items() if saved != current}

    def _spelled(self, folder: bytes, name: bytes) -> bytes:
        above = self._current[folder]
        listed = self._names(above)
        if not listed or name in listed:
            return join(above, name)
        saved = self._saved.get(folder, set())
        try:
            with self._files.folder(above) as handle:
                listed_name = self._files.listed_as(name, handle, listed - saved if name in saved else listed)
        except (FileNotFoundError, NotADirectoryError):  # the folder was deleted since it was listed
            listed_name = None
        return join(above, listed_name or name)

    def _names(self, folder: bytes) -> frozenset[bytes]:
        names = self._listed.get(folder)
        if names is None:
            try:
                with self._files.folder(folder) as handle:
                    names = frozenset(os.fsencode(name) for name in os.listdir(handle))
            except (FileNotFoundError, NotADirectoryError):
                names = frozenset()
            self._listed[folder] = names
        return names
