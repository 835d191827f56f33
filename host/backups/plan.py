"""What a rollback has to do: what stands there now, compared with what a backup remembers. Nothing is changed here."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from host.backups.backup_fs import Ground, attributes, is_private, parents, split
from host.backups.copying import hash_of
from host.backups.sets import BackupEntry, BackupSet, kind_of
from host.backups.spellings import SavedSpellings
from host.workspace.names import path_of
from world.klis.resources.resource import Resource, recorded_resource

__all__ = ["RestorePlan", "is_settled", "make_plan"]

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PERMISSIONS: Final = 0o7777


@dataclass(slots=True)
class RestorePlan:
    """The steps of a rollback.

    Args:
        remove: what is to go, with everything below.
        remove_alone: entries that are to go without what may be in them, the innermost first: it is somebody else's.
        alone: places of which only the entry itself was saved, so that nothing below them may be removed.
        put: files, links and others to be put in place, the first name of a hard-linked file before the others.
        folders: directories to be made.
        renewed: those of ``put`` that are as they were, and are put anew all the same.
        settle: files and links of which only mode, owner or times differ, and their inode numbers.
        kept: every directory that was saved.
        askew: those of them whose mode, owner or times differ.
        above: the directories that lead to saved places, as they were.
        respelled: saved places that the file system lists under another spelling, with their paths now; all other
            members hold the paths as they are now.
    """

    remove: list[bytes] = field(default_factory=list)
    remove_alone: list[bytes] = field(default_factory=list)
    alone: set[bytes] = field(default_factory=set)
    put: dict[bytes, BackupEntry] = field(default_factory=dict)
    renewed: set[bytes] = field(default_factory=set)
    folders: dict[bytes, BackupEntry] = field(default_factory=dict)
    settle: dict[bytes, tuple[BackupEntry, int]] = field(default_factory=dict)
    kept: dict[bytes, BackupEntry] = field(default_factory=dict)
    askew: set[bytes] = field(default_factory=set)
    above: dict[bytes, BackupEntry] = field(default_factory=dict)
    respelled: dict[bytes, bytes] = field(default_factory=dict)

    def first_of(self, entry: BackupEntry) -> bytes:
        """Return the path of the first name of a hard link."""
        first = path_of(entry.same_as)
        return self.respelled.get(first, first)


def make_plan(
    ground: Ground,
    backup: BackupSet,
    *,
    also_remove: Iterable[bytes],
    only: Sequence[Resource] | None,
    fresh: bool = False,
) -> RestorePlan:
    """Compare a workspace with a backup.

    Args:
        ground: the workspace's files.
        backup: what it was like.
        also_remove: further paths that are to go, unless the backup knows that they were there.
        only: the resources that are to be restored; None for all.
        fresh: put files anew that are as they were, too.

    Raises:
        OSError: the workspace cannot be read.
    """
    return _Comparison(ground, backup, only, fresh).plan(also_remove)


class _Comparison:
    def __init__(self, ground: Ground, backup: BackupSet, only: Sequence[Resource] | None, fresh: bool) -> None:
        self._ground = ground
        self._backup = backup
        self._only = only
        self._fresh = fresh
        self._device = os.fstat(ground.workspace.fd).st_dev
        self._settled_ns = int(backup.settled_ns)
        there = {entry.relative: entry for entry in backup.entries if entry.kind != "missing"}
        self._standing = SavedSpellings(ground, [*there, *(entry.relative for entry in backup.above)])
        self._there = {self._standing.of(place): entry for place, entry in there.items()}
        self._leading = {folder for place in self._there for folder in parents(place)} | {b""}
        self._trees = {self._standing.of(path_of(place.name)) for place in backup.places if place.subtree}
        self._inodes: dict[str, tuple[int, int]] = {}
        self._plan = RestorePlan(above={self._standing.of(entry.relative): entry for entry in backup.above})
        self._plan.respelled = self._standing.differing()

    def plan(self, also_remove: Iterable[bytes]) -> RestorePlan:
        wanted = {
            place: entry
            for place, entry in self._there.items()
            if self._is_asked(place) or self._is_asked(entry.relative)
        }
        by_folder: dict[bytes, list[tuple[bytes, BackupEntry]]] = defaultdict(list)
        for place, entry in sorted(wanted.items()):
            by_folder[split(place)[0]].append((place, entry))
        for folder, entries in sorted(by_folder.items()):
            self._compare_folder(folder, entries)
        self._compare_links(wanted)
        extras, further = set(self._extras()), set(self._further(also_remove))
        alone = {place for place in extras - further if not self._is_in_tree(place)}
        self._plan.remove = _topmost((extras | further) - alone)
        self._plan.remove_alone = sorted(alone, reverse=True)
        self._plan.alone = {place for place in wanted if not self._is_in_tree(place)}
        return self._plan

    def _is_in_tree(self, place: bytes) -> bool:
        """Tell whether everything below a place was saved with it."""
        return place in self._trees or any(folder in self._trees for folder in (*parents(place), b""))

    def _is_asked(self, place: bytes) -> bool:
        if self._only is None:
            return True
        resource = self._ground.workspace.resource_at(place)
        return any(asked.covers(resource) for asked in self._only)

    # what is there and should not be

    def _extras(self) -> Iterable[bytes]:
        """Yield what came to be in the saved places."""
        for place in self._backup.places:
            relative = self._standing.of(path_of(place.name))
            if relative not in self._there or place.subtree:
                yield from self._extras_at(relative, below=place.subtree)
            if not self._ground.workspace.names.is_byte_wise:
                for spelled in self._ground.spellings(recorded_resource(place.resource)):
                    self._trees |= {spelled} if place.subtree else set()
                    yield from self._extras_at(spelled, below=place.subtree)

    def _extras_at(self, relative: bytes, *, below: bool) -> Iterable[bytes]:
        if self._ground.look(relative) is None:
            return
        if self._is_extra(relative):
            yield relative
        if below and (relative in self._there or self._only is not None):
            for found, _ in self._ground.walk(relative):
                if self._is_extra(found):
                    yield found

    def _is_extra(self, place: bytes) -> bool:
        return place not in self._there and place not in self._leading and self._is_asked(place)

    def _further(self, also_remove: Iterable[bytes]) -> Iterable[bytes]:
        for place in map(self._standing.of, also_remove):
            known = place in self._there or place in self._leading or place in self._plan.above
            if not (known or is_private(place)) and self._ground.look(place) is not None:
                yield place

    # what should be there

    def _compare_folder(self, folder: bytes, entries: list[tuple[bytes, BackupEntry]]) -> None:
        try:
            with self._ground.folder(folder) as handle:
                for place, entry in entries:
                    self._compare(place, entry, handle, split(place)[1] or b".")
        except (FileNotFoundError, NotADirectoryError):
            for place, entry in entries:
                self._make(place, entry)

    def _make(self, place: bytes, entry: BackupEntry) -> None:
        if entry.kind == "dir":
            self._plan.folders[place] = entry
            self._plan.kept[place] = entry
        else:
            self._plan.put[place] = entry

    def _compare(self, place: bytes, entry: BackupEntry, handle: int, name: bytes) -> None:
        try:
            seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            self._make(place, entry)
            return
        if kind_of(seen) != entry.kind:
            self._make(place, entry)
        elif entry.kind == "dir":
            self._plan.kept[place] = entry
            if not is_settled(entry, seen):
                self._plan.askew.add(place)
        elif not self._is_untouched(entry, seen) and not _SAME[entry.kind](entry, seen, handle, name):
            self._make(place, entry)
        elif not self._is_untouched(entry, seen) and not is_settled(entry, seen):
            self._settle(place, entry, seen)
        elif self._fresh and entry.kind == "file":
            self._make(place, entry)
            self._plan.renewed.add(place)
        if entry.kind == "file":
            self._inodes[entry.name] = (seen.st_dev, seen.st_ino)

    def _settle(self, place: bytes, entry: BackupEntry, seen: os.stat_result) -> None:
        if (entry.kind == "file" and self._fresh) or (entry.kind != "file" and seen.st_nlink > 1):
            self._make(place, entry)
        else:
            self._plan.settle[place] = (entry, seen.st_ino)

    def _is_untouched(self, entry: BackupEntry, seen: os.stat_result) -> bool:
        """Tell whether nothing at all was done since it was saved; times of change cannot be set by hand."""
        return (
            seen.st_dev == self._device
            and entry.ino == str(seen.st_ino)
            and entry.ctime_ns == str(seen.st_ctime_ns)
            and seen.st_ctime_ns < self._settled_ns
            and entry.mtime_ns == str(seen.st_mtime_ns)
            and (entry.kind != "file" or entry.size == seen.st_size)
        )

    def _compare_links(self, wanted: dict[bytes, BackupEntry]) -> None:
        """Put anew what became one file and was not, and hard links that are no longer the same file as their first."""
        files = [(place, entry) for place, entry in wanted.items() if entry.kind == "file"]
        taken: set[tuple[int, int]] = set()
        for place, entry in files:
            if not self._has_first(entry, wanted) and self._is_left(place):
                inode = self._inodes[entry.name]
                if inode in taken:
                    self._put_anew(place, entry)
                taken.add(inode)
        for place, entry in files:
            if self._has_first(entry, wanted) and self._is_left(place):
                first_is_new = not self._is_left(self._plan.first_of(entry))
                if first_is_new or self._inodes[entry.name] != self._inodes[entry.same_as]:
                    self._put_anew(place, entry)

    def _is_left(self, place: bytes) -> bool:
        return place not in self._plan.put or place in self._plan.renewed

    def _has_first(self, entry: BackupEntry, wanted: dict[bytes, BackupEntry]) -> bool:
        return bool(entry.same_as) and self._plan.first_of(entry) in wanted

    def _put_anew(self, place: bytes, entry: BackupEntry) -> None:
        self._plan.settle.pop(place, None)
        self._plan.renewed.discard(place)
        self._plan.put[place] = entry


def _same_file(entry: BackupEntry, seen: os.stat_result, handle: int, name: bytes) -> bool:
    """Tell whether a file holds the saved bytes, and has no further name by which somebody could change it."""
    if seen.st_size != entry.size or seen.st_nlink > entry.links:
        return False
    try:
        file = os.open(name, _READ, dir_fd=handle)
    except OSError:
        return False
    try:
        return hash_of(file)[0] == entry.sha256 and attributes(file) == entry.xattrs
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


def is_settled(entry: BackupEntry, seen: os.stat_result) -> bool:
    """Tell whether mode, owner and time are those of the entry."""
    return (
        (entry.kind == "link" or seen.st_mode == entry.mode)
        and (seen.st_uid, seen.st_gid) == (entry.uid, entry.gid)
        and seen.st_mtime_ns == entry.mtime
    )


def _topmost(places: set[bytes]) -> list[bytes]:
    return sorted(place for place in places if not any(folder in places for folder in parents(place)))
