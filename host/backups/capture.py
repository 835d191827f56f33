"""Looking at resources and copying what they hold into the object store.

A file must look the same before and after it is copied, or it is copied again; one that never holds still cannot be
saved. What vanishes while it is looked at counts as missing.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from host.backups.area import is_same_file, reason
from host.backups.backup_fs import Ground, attributes, children, join, parents, split
from host.backups.known import Known
from host.backups.objects import ObjectStore
from host.backups.sets import BackupEntry, entry_of, kind_of
from host.workspace.names import name_of
from world.errors import RefusedError

__all__ = ["Capture", "Progress"]

Progress = Callable[[int, int], None]
"""Is told from time to time how many files and folders were looked at and how many bytes were copied."""

_TRIES: Final = 6
_PAUSE_S: Final = 0.01
_TELL_EVERY: Final = 512
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _ChangedMeanwhileError(Exception):
    """A file was not the same after it was copied."""


class Capture:
    """One look at a set of places.

    Args:
        ground: the workspace's files.
        store: where contents are copied to.
        known: contents of files that need not be read again.
        now_ns: the file system's time when the look begins, in ns.
        device: of the workspace's root; only there do inode numbers and ``now_ns`` say something.
        progress: told how far it is.
    """

    def __init__(
        self, ground: Ground, store: ObjectStore, known: Known, *, now_ns: int, device: int, progress: Progress | None
    ) -> None:
        self._ground = ground
        self._store = store
        self._known = known
        self._now_ns = now_ns
        self._device = device
        self._progress = progress
        self._looked = 0
        self._inodes: dict[bytes, tuple[int, int]] = {}
        self.entries: dict[bytes, BackupEntry] = {}
        self.above: dict[bytes, BackupEntry] = {}

    def place(self, relative: bytes, *, subtree: bool) -> None:
        """Save a place, and everything below where it is a subtree.

        Raises:
            RefusedError: ``BACKUP_FAILED`` with the name of what cannot be saved.
        """
        for folder in parents(relative):
            self._save_above(folder)
        if relative not in self.entries:
            self._save_place(relative)
        if subtree:
            self._save_below(relative)

    def _save_above(self, folder: bytes) -> None:
        if folder not in self.above:
            found = self._ground.look(folder)
            if found is not None and stat.S_ISDIR(found.st_mode):
                self.above[folder] = entry_of(folder, found, trusted=False)

    def _save_place(self, relative: bytes) -> None:
        folder, name = split(relative)
        try:
            with self._ground.folder(folder) as handle:
                self._save(relative, handle, name or b".", None)
        except (FileNotFoundError, NotADirectoryError):
            self.entries[relative] = BackupEntry(kind="missing", name=name_of(relative))
        except OSError as error:
            raise _failed(relative, error) from error

    def _save_below(self, relative: bytes) -> None:
        waiting = [relative]
        while waiting:
            folder = waiting.pop()
            try:
                waiting += self._save_children(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _failed(folder, error) from error

    def _save_children(self, folder: bytes) -> list[bytes]:
        below = []
        with self._ground.folder(folder) as handle:
            for name, seen in children(handle, folder):
                relative = join(folder, name)
                if relative not in self.entries:
                    try:
                        self._save(relative, handle, name, seen)
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        raise _failed(relative, error) from error
                if self.entries[relative].kind == "dir":
                    below.append(relative)
        return below

    def _save(self, relative: bytes, handle: int, name: bytes, seen: os.stat_result | None) -> None:
        """Save one thing; ``seen`` is how it was seen a moment ago."""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S * attempt)
            if attempt or seen is None:
                seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
            try:
                self.entries[relative] = self._entry(relative, handle, name, seen)
                self._tell()
                return
            except _ChangedMeanwhileError:
                continue
        raise RefusedError(
            "BACKUP_FAILED",
            f"{name_of(relative)} changes all the time while it is saved; stop who writes it, and try again.",
            name=name_of(relative),
        )

    def _entry(self, relative: bytes, handle: int, name: bytes, seen: os.stat_result) -> BackupEntry:
        kind = kind_of(seen)
        trusted = seen.st_dev == self._device
        if kind == "file":
            return self._file(relative, handle, name, seen, trusted=trusted)
        if kind == "link":
            return entry_of(relative, seen, trusted=trusted, target=_target(handle, name, seen))
        if kind == "dir":
            return entry_of(relative, seen, trusted=trusted, xattrs=_folder_attributes(handle, name))
        return entry_of(relative, seen, trusted=trusted)

    def _file(self, relative: bytes, handle: int, name: bytes, seen: os.stat_result, *, trusted: bool) -> BackupEntry:
        if seen.st_nlink > 1:
            self._inodes[relative] = (seen.st_dev, seen.st_ino)
        sha256 = self._known.content(seen) if trusted else None
        if sha256 is not None and self._store.has(sha256, seen.st_size):
            return entry_of(relative, seen, trusted=trusted, sha256=sha256)
        file = _open(handle, name)
        try:
            if not is_same_file(seen, os.fstat(file)):
                raise _ChangedMeanwhileError
            sha256, size = self._copy(relative, file, seen.st_size)
            xattrs = attributes(file)
            if size != seen.st_size or not is_same_file(seen, os.fstat(file)):
                raise _ChangedMeanwhileError
        finally:
            os.close(file)
        if trusted and not xattrs:
            self._known.remember(seen, sha256, before_ns=self._now_ns)
        return entry_of(relative, seen, trusted=trusted, sha256=sha256, xattrs=xattrs)

    def _copy(self, relative: bytes, file: int, size: int) -> tuple[str, int]:
        try:
            return self._store.add(file, size)
        except FileNotFoundError as error:  # not the file, which is open, but where it is copied to
            raise _failed(relative, OSError(errno.ESTALE, "the folder .klock/backups was removed meanwhile")) from error

    def _tell(self) -> None:
        self._looked += 1
        if self._progress is not None and self._looked % _TELL_EVERY == 0:
            self._progress(self._looked, self._store.copied_bytes)

    def finish(self) -> None:
        """Tell the last progress."""
        if self._progress is not None:
            self._progress(self._looked, self._store.copied_bytes)

    def link_names(self, *, hard_links: Literal["refuse", "allow"]) -> None:
        """Note which names are one file.

        Raises:
            RefusedError: ``HARD_LINK_OUTSIDE`` for a file that has further names outside of what is saved, unless they
                are
                allowed: who writes to the file by such a name changes it here too, and a restored file is another one.
        """
        inside = Counter(self._inodes.values())
        first: dict[tuple[int, int], str] = {}
        for relative in sorted(self._inodes):
            entry, inode = self.entries[relative], self._inodes[relative]
            if entry.kind != "file":
                continue
            if hard_links == "refuse" and entry.links > inside[inode]:
                raise _hard_link(entry, entry.links - inside[inode])
            earlier = first.setdefault(inode, entry.name)
            if earlier != entry.name:
                self.entries[relative] = msgspec.structs.replace(entry, same_as=earlier)


def _hard_link(entry: BackupEntry, outside: int) -> RefusedError:
    return RefusedError(
        "HARD_LINK_OUTSIDE",
        f"{entry.name} has {outside} further name(s) (hard links) outside of what the manifest names, so a change of "
        "one is a change of the other and a rollback would part them. Name them all, replace the file by a copy of its "
        "own (cp, then mv), or allow them ([workspace] hard_links of world.toml).",
        name=entry.name,
        links=entry.links,
    )


def _open(handle: int, name: bytes) -> int:
    try:
        return os.open(name, _READ, dir_fd=handle)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # it has become a link or a pipe
            raise _ChangedMeanwhileError from error
        raise


def _target(handle: int, name: bytes, seen: os.stat_result) -> bytes:
    try:
        found = os.readlink(name, dir_fd=handle)
    except OSError as error:
        if error.errno == errno.EINVAL:  # no link any more
            raise _ChangedMeanwhileError from error
        raise
    if not is_same_file(seen, os.stat(name, dir_fd=handle, follow_symlinks=False)):
        raise _ChangedMeanwhileError
    return found


def _folder_attributes(handle: int, name: bytes) -> dict[str, str]:
    try:
        inside = os.open(name, _READ | os.O_DIRECTORY, dir_fd=handle)
    except NotADirectoryError as error:
        raise _ChangedMeanwhileError from error
    try:
        return attributes(inside)
    finally:
        os.close(inside)


def _failed(relative: bytes, error: OSError) -> RefusedError:
    name = name_of(relative)
    return RefusedError("BACKUP_FAILED", f"{name} could not be saved: {reason(error)}.", name=name, errno=error.errno)
