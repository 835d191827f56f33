"""Capture of resources: reads their entries and copies their contents into the object store.

A file must be unchanged during its copy, or it is copied again; a file that changes permanently cannot be
saved. An entry that vanishes during the capture counts as missing.
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

from host.backups.backup_folder import is_same_file, reason
from host.backups.backup_fs import WorkspaceFiles, attributes, children, parents, split
from host.backups.backup_set import BackupEntry, entry_of
from host.backups.content_cache import ContentCache
from host.backups.objects import ObjectStore
from host.workspace.bounds import check_bounds
from host.workspace.folder_access import join
from host.workspace.names import name_of
from host.workspace.safe import kind_of
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["Capture", "Progress"]

Progress = Callable[[int, int], None]
"""Called at intervals with the number of entries read and the number of bytes copied."""

_TRIES: Final = 6
_PAUSE_S: Final = 0.01
_PROGRESS_INTERVAL: Final = 512
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _ChangedMeanwhileError(Exception):
    """A file changed while it was copied."""


class Capture:
    """One capture of a set of paths.

    Args:
        files: the workspace's files.
        store: the store that contents are copied to.
        content_cache: hashes of files that need not be read again.
        now_ns: the file system's time at the beginning of the capture, in ns.
        device: device of the workspace's root; only there are inode numbers and ``now_ns`` meaningful.
        progress: called with the progress.
    """

    def __init__(
        self,
        files: WorkspaceFiles,
        store: ObjectStore,
        content_cache: ContentCache,
        *,
        now_ns: int,
        device: int,
        progress: Progress | None,
    ) -> None:
        self._files = files
        self._store = store
        self._content_cache = content_cache
        self._now_ns = now_ns
        self._device = device
        self._progress = progress
        self._entries_seen = 0
        self._inodes: dict[bytes, tuple[int, int]] = {}
        self.entries: dict[bytes, BackupEntry] = {}
        self.above: dict[bytes, BackupEntry] = {}

    def place(self, relative: bytes, *, subtree: bool) -> None:
        """Save a path, and everything below it for a subtree.

        Raises:
            RefusedError: ``BACKUP_FAILED`` with the name of the entry that cannot be saved, ``WORKSPACE_TOO_LARGE``.
        """
        for folder in parents(relative):
            self._save_above(folder)
        if relative not in self.entries:
            self._save_place(relative)
        if subtree:
            self._save_below(relative)

    def _save_above(self, folder: bytes) -> None:
        if folder not in self.above:
            status = self._files.look(folder)
            if status is not None and stat.S_ISDIR(status.st_mode):
                self.above[folder] = entry_of(folder, status, trusted=False)

    def _save_place(self, relative: bytes) -> None:
        folder, name = split(relative)
        try:
            with self._files.folder(folder) as handle:
                self._save(relative, handle, name or b".", None)
        except (FileNotFoundError, NotADirectoryError):
            self.entries[relative] = BackupEntry(kind="missing", name=name_of(relative))
        except OSError as error:
            raise _failed(relative, error) from error

    def _save_below(self, relative: bytes) -> None:
        pending = [relative]
        while pending:
            folder = pending.pop()
            try:
                pending += self._save_children(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _failed(folder, error) from error

    def _save_children(self, folder: bytes) -> list[bytes]:
        below = []
        check_bounds(folder, len(self.entries))
        with self._files.folder(folder) as handle:
            for name, seen in children(handle, folder):
                check_bounds(folder, len(self.entries) + 1)
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
        """Save one entry; ``seen`` is its earlier status, if it was read."""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S * attempt)
            if attempt or seen is None:
                seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
            try:
                self.entries[relative] = self._entry(relative, handle, name, seen)
                self._report_progress()
                return
            except _ChangedMeanwhileError:
                continue
        raise RefusedError(
            ErrorCode.BACKUP_FAILED,
            f"{name_of(relative)} keeps changing while it is saved; stop the process that writes it, and try again.",
            name=name_of(relative),
        )

    def _entry(self, relative: bytes, handle: int, name: bytes, seen: os.stat_result) -> BackupEntry:
        kind = kind_of(seen.st_mode)
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
        sha256 = self._content_cache.content(seen) if trusted else None
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
            self._content_cache.remember(seen, sha256, before_ns=self._now_ns)
        return entry_of(relative, seen, trusted=trusted, sha256=sha256, xattrs=xattrs)

    def _copy(self, relative: bytes, file: int, size: int) -> tuple[str, int]:
        try:
            return self._store.add(file, size)
        except FileNotFoundError as error:  # the object store is gone; the file itself is open
            raise _failed(
                relative, OSError(errno.ESTALE, "the folder .klock/backups was deleted during the backup")
            ) from error

    def _report_progress(self) -> None:
        self._entries_seen += 1
        if self._progress is not None and self._entries_seen % _PROGRESS_INTERVAL == 0:
            self._progress(self._entries_seen, self._store.copied_bytes)

    def finish(self) -> None:
        """Report the final progress."""
        if self._progress is not None:
            self._progress(self._entries_seen, self._store.copied_bytes)

    def link_names(self, *, hard_links: Literal["refuse", "allow"]) -> None:
        """Record which names are hard links to one file.

        Raises:
            RefusedError: ``HARD_LINK_OUTSIDE`` for a file with further names outside the saved paths, unless they are
                allowed: a write through such a name changes the saved file too, and a rollback replaces the inode.
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
        ErrorCode.HARD_LINK_OUTSIDE,
        f"{entry.name} has {outside} further name(s) (hard links) outside the manifest, so a change of one is a change "
        "of the other and a rollback would separate them. Name them all, replace the file by its own copy "
        "(cp, then mv), or allow them ([workspace] hard_links of world.toml).",
        name=entry.name,
        links=entry.links,
    )


def _open(handle: int, name: bytes) -> int:
    try:
        return os.open(name, _READ, dir_fd=handle)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # replaced by a link or a pipe
            raise _ChangedMeanwhileError from error
        raise


def _target(handle: int, name: bytes, seen: os.stat_result) -> bytes:
    try:
        target = os.readlink(name, dir_fd=handle)
    except OSError as error:
        if error.errno == errno.EINVAL:  # not a link any more
            raise _ChangedMeanwhileError from error
        raise
    if not is_same_file(seen, os.stat(name, dir_fd=handle, follow_symlinks=False)):
        raise _ChangedMeanwhileError
    return target


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
    return RefusedError(
        ErrorCode.BACKUP_FAILED, f"{name} could not be saved: {reason(error)}.", name=name, errno=error.errno
    )
