"""Plan of a rollback: the current workspace compared with a backup. The workspace is not changed here."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from host.backups.backup_fs import WorkspaceFiles, attributes, is_private, parents, split
from host.backups.backup_set import BackupEntry, BackupSet
from host.backups.copying import has_hash
from host.backups.spellings import SavedSpellings
from host.workspace.names import path_of
from host.workspace.safe import kind_of
from world.klis.resources.resource import Resource, recorded_resource

__all__ = ["RestorePlan", "has_same_metadata", "make_plan"]

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PERMISSIONS: Final = 0o7777


@dataclass(slots=True)
class RestorePlan:
    """The steps of a rollback.

    Args:
        remove: paths to delete, with everything below.
        remove_only: entries to delete without their content, the innermost first: the content was not saved.
        non_recursive: paths of which only the entry itself was saved, so that nothing below them may be deleted.
        put: files, links and others to be put in place, the first name of a hard-linked file before the others.
        folders: directories to create.
        renewed: those of ``put`` that are unchanged, and are replaced all the same.
        update_metadata: files and links of which only mode, owner or times differ, and their inode numbers.
        saved_folders: every saved directory.
        changed_folders: those of them whose mode, owner or times differ.
        above: the directories that lead to saved paths, as saved.
        respelled: saved paths that the file system lists under another spelling, with their current paths; all other
            members hold current paths.
    """

    remove: list[bytes] = field(default_factory=list)
    remove_only: list[bytes] = field(default_factory=list)
    non_recursive: set[bytes] = field(default_factory=set)
    put: dict[bytes, BackupEntry] = field(default_factory=dict)
    renewed: set[bytes] = field(default_factory=set)
    folders: dict[bytes, BackupEntry] = field(default_factory=dict)
    update_metadata: dict[bytes, tuple[BackupEntry, int]] = field(default_factory=dict)
    saved_folders: dict[bytes, BackupEntry] = field(default_factory=dict)
    changed_folders: set[bytes] = field(default_factory=set)
    above: dict[bytes, BackupEntry] = field(default_factory=dict)
    respelled: dict[bytes, bytes] = field(default_factory=dict)

    def first_of(self, entry: BackupEntry) -> bytes:
        """Return the path of the first name of a hard link."""
        first = path_of(entry.same_as)
        return self.respelled.get(first, first)


def make_plan(
    files: WorkspaceFiles,
    backup: BackupSet,
    *,
    also_remove: Iterable[bytes],
    only: Sequence[Resource] | None,
    fresh: bool = False,
) -> RestorePlan:
    """Compare a workspace with a backup.

    Args:
        files: the workspace's files.
        backup: the backup.
        also_remove: further paths to delete, unless the backup contains them.
        only: the resources to restore; None for all.
        fresh: also replace unchanged files.

    Raises:
        OSError: the workspace cannot be read.
    """
    return _Comparison(files, backup, only, fresh).plan(also_remove)


class _Comparison:
    def __init__(self, files: WorkspaceFiles, backup: BackupSet, only: Sequence[Resource] | None, fresh: bool) -> None:
        self._files = files
        self._backup = backup
        self._only = only
        self._fresh = fresh
        self._device = os.fstat(files.workspace.fd).st_dev
        self._settled_ns = int(backup.settled_ns)
        saved_entries = {entry.relative: entry for entry in backup.entries if entry.kind != "missing"}
        self._spellings = SavedSpellings(files, [*saved_entries, *(entry.relative for entry in backup.above)])
        self._saved_entries = {self._spellings.of(path): entry for path, entry in saved_entries.items()}
        self._leading = {folder for path in self._saved_entries for folder in parents(path)} | {b""}
        self._trees = {self._spellings.of(path_of(path.name)) for path in backup.places if path.subtree}
        self._inodes: dict[str, tuple[int, int]] = {}
        self._plan = RestorePlan(above={self._spellings.of(entry.relative): entry for entry in backup.above})
        self._plan.respelled = self._spellings.differing()

    def plan(self, also_remove: Iterable[bytes]) -> RestorePlan:
        wanted = {
            path: entry
            for path, entry in self._saved_entries.items()
            if self._is_wanted(path) or self._is_wanted(entry.relative)
        }
        by_folder: dict[bytes, list[tuple[bytes, BackupEntry]]] = defaultdict(list)
        for path, entry in sorted(wanted.items()):
            by_folder[split(path)[0]].append((path, entry))
        for folder, entries in sorted(by_folder.items()):
            self._compare_folder(folder, entries)
        self._compare_links(wanted)
        extras, further = set(self._extras()), set(self._further_paths(also_remove))
        non_recursive = {path for path in extras - further if not self._is_in_tree(path)}
        self._plan.remove = _topmost((extras | further) - non_recursive)
        self._plan.remove_only = sorted(non_recursive, reverse=True)
        self._plan.non_recursive = {path for path in wanted if not self._is_in_tree(path)}
        return self._plan

    def _is_in_tree(self, path: bytes) -> bool:
        """Whether everything below a path was saved with it."""
        return path in self._trees or any(folder in self._trees for folder in (*parents(path), b""))

    def _is_wanted(self, path: bytes) -> bool:
        if self._only is None:
            return True
        resource = self._files.workspace.resource_at(path)
        return any(wanted_resource.covers(resource) for wanted_resource in self._only)

    # entries that exist and were not saved

    def _extras(self) -> Iterable[bytes]:
        """Yield the entries that were created in the saved paths."""
        for path in self._backup.places:
            relative = self._spellings.of(path_of(path.name))
            if relative not in self._saved_entries or path.subtree:
                yield from self._extras_at(relative, below=path.subtree)
            if not self._files.workspace.names.is_byte_wise:
                for spelled in self._files.spellings(recorded_resource(path.resource)):
                    self._trees |= {spelled} if path.subtree else set()
                    yield from self._extras_at(spelled, below=path.subtree)

    def _extras_at(self, relative: bytes, *, below: bool) -> Iterable[bytes]:
        if self._files.look(relative) is None:
            return
        if self._is_extra(relative):
            yield relative
        if below and (relative in self._saved_entries or self._only is not None):
            for found in self._files.walk(relative, lambda folder: not self._is_removed_whole(folder)):
                if self._is_extra(found):
                    yield found

    def _is_removed_whole(self, folder: bytes) -> bool:
        """Return whether a folder is deleted with everything below, which therefore needs no look."""
        return self._is_extra(folder) and self._is_in_tree(folder)

    def _is_extra(self, path: bytes) -> bool:
        return path not in self._saved_entries and path not in self._leading and self._is_wanted(path)

    def _further_paths(self, also_remove: Iterable[bytes]) -> Iterable[bytes]:
        for path in map(self._spellings.of, also_remove):
            is_saved = path in self._saved_entries or path in self._leading or path in self._plan.above
            if not (is_saved or is_private(path)) and self._files.look(path) is not None:
                yield path

    # entries that were saved

    def _compare_folder(self, folder: bytes, entries: list[tuple[bytes, BackupEntry]]) -> None:
        try:
            with self._files.folder(folder) as handle:
                for path, entry in entries:
                    self._compare(path, entry, handle, split(path)[1] or b".")
        except (FileNotFoundError, NotADirectoryError):
            for path, entry in entries:
                self._make(path, entry)

    def _make(self, path: bytes, entry: BackupEntry) -> None:
        if entry.kind == "dir":
            self._plan.folders[path] = entry
            self._plan.saved_folders[path] = entry
        else:
            self._plan.put[path] = entry

    def _compare(self, path: bytes, entry: BackupEntry, handle: int, name: bytes) -> None:
        try:
            seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            self._make(path, entry)
            return
        if kind_of(seen.st_mode) != entry.kind:
            self._make(path, entry)
        elif entry.kind == "dir":
            self._plan.saved_folders[path] = entry
            if not has_same_metadata(entry, seen):
                self._plan.changed_folders.add(path)
        elif not self._is_untouched(entry, seen) and not _SAME[entry.kind](entry, seen, handle, name):
            self._make(path, entry)
        elif not self._is_untouched(entry, seen) and not has_same_metadata(entry, seen):
            self._update_metadata(path, entry, seen)
        elif self._fresh and entry.kind == "file":
            self._make(path, entry)
            self._plan.renewed.add(path)
        if entry.kind == "file":
            self._inodes[entry.name] = (seen.st_dev, seen.st_ino)

    def _update_metadata(self, path: bytes, entry: BackupEntry, seen: os.stat_result) -> None:
        if (entry.kind == "file" and self._fresh) or (entry.kind != "file" and seen.st_nlink > 1):
            self._make(path, entry)
        else:
            self._plan.update_metadata[path] = (entry, seen.st_ino)

    def _is_untouched(self, entry: BackupEntry, seen: os.stat_result) -> bool:
        """Whether an entry is unchanged since it was saved; a process cannot set the time of change."""
        return (
            seen.st_dev == self._device
            and entry.ino == str(seen.st_ino)
            and entry.ctime_ns == str(seen.st_ctime_ns)
            and seen.st_ctime_ns < self._settled_ns
            and entry.mtime_ns == str(seen.st_mtime_ns)
            and (entry.kind != "file" or entry.size == seen.st_size)
        )

    def _compare_links(self, wanted: dict[bytes, BackupEntry]) -> None:
        """Replace files that share an inode and did not before, and hard links that differ from their first name."""
        files = [(path, entry) for path, entry in wanted.items() if entry.kind == "file"]
        seen_inodes: set[tuple[int, int]] = set()
        for path, entry in files:
            if not self._has_first(entry, wanted) and self._is_left(path):
                inode = self._inodes[entry.name]
                if inode in seen_inodes:
                    self._put_anew(path, entry)
                seen_inodes.add(inode)
        for path, entry in files:
            if self._has_first(entry, wanted) and self._is_left(path):
                first_is_new = not self._is_left(self._plan.first_of(entry))
                if first_is_new or self._inodes[entry.name] != self._inodes[entry.same_as]:
                    self._put_anew(path, entry)

    def _is_left(self, path: bytes) -> bool:
        return path not in self._plan.put or path in self._plan.renewed

    def _has_first(self, entry: BackupEntry, wanted: dict[bytes, BackupEntry]) -> bool:
        return bool(entry.same_as) and self._plan.first_of(entry) in wanted

    def _put_anew(self, path: bytes, entry: BackupEntry) -> None:
        self._plan.update_metadata.pop(path, None)
        self._plan.renewed.discard(path)
        self._plan.put[path] = entry


def _same_file(entry: BackupEntry, seen: os.stat_result, handle: int, name: bytes) -> bool:
    """Whether a file holds the saved bytes, and has no further name by which it could be changed."""
    if seen.st_size != entry.size or seen.st_nlink > entry.links:
        return False
    try:
        file = os.open(name, _READ, dir_fd=handle)
    except OSError:
        return False
    try:
        return has_hash(file, entry.sha256, entry.size) and attributes(file) == entry.xattrs
    except OSError:
        return False
    finally:
        os.close(file)


def _same_link(entry: BackupEntry, seen: os.stat_result, handle: int, name: bytes) -> bool:
    try:
        return os.readlink(name, dir_fd=handle) == entry.target_bytes
    except OSError:
        return False


def _same_other(entry: BackupEntry, seen: os.stat_result, handle: int, name: bytes) -> bool:
    return seen.st_mode & ~_PERMISSIONS == entry.mode & ~_PERMISSIONS and seen.st_rdev == entry.rdev


_SAME: Final[dict[str, Callable[[BackupEntry, os.stat_result, int, bytes], bool]]] = {
    "file": _same_file,
    "link": _same_link,
    "other": _same_other,
}


def has_same_metadata(entry: BackupEntry, seen: os.stat_result) -> bool:
    """Whether mode, owner and time are those of the entry."""
    return (
        (entry.kind == "link" or seen.st_mode == entry.mode)
        and (seen.st_uid, seen.st_gid) == (entry.uid, entry.gid)
        and seen.st_mtime_ns == entry.mtime
    )


def _topmost(places: set[bytes]) -> list[bytes]:
    return sorted(path for path in places if not any(folder in places for folder in parents(path)))
