"""Performing a rollback, step by step; every step may be repeated, so that one that was cut off is simply done again.

First what came to be is removed, then directories are made, then files are put in place: written beside the backups,
brought to the disk, and renamed over what is there. Modes and times of directories come last. Nothing is done through
a link: every step starts from a handle of its folder, and a link in a folder's place is replaced by a folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from host.backups.area import Area
from host.backups.backup_fs import OWN, Ground, attributes, parents, remove_tree, set_mode, split, widen
from host.backups.copying import copy_bytes
from host.backups.objects import ObjectStore, sync_files
from host.backups.plan import RestorePlan, is_settled
from host.backups.sets import BackupEntry
from host.workspace.names import name_of

__all__ = ["Restored", "carry_out"]

_FILES_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 64 << 20
_LOCATE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_BESIDE: Final = b".klock-restored"
"""Stands beside a file on another file system for a moment; rollbacks are one at a time."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a rollback did.

    Args:
        restored: names of what was put back or set right.
        removed: names of what was removed, with everything below.
        failed: names of what could not be; the rollback may be asked for again.
        backup_id: which backup.
        reasons: why, for each name that failed.
    """

    restored: list[str]
    removed: list[str]
    failed: list[str]
    backup_id: str = ""
    reasons: dict[str, str] = field(default_factory=dict)


def carry_out(ground: Ground, area: Area, store: ObjectStore, plan: RestorePlan, *, backup_id: str) -> Restored:
    """Do what a plan says and return what was done; what fails is told and does not keep the rest from being done."""
    work = _RestoreState(ground, area, store, plan)
    for place in plan.remove:
        work.step(place, work.remove)
    for place in plan.remove_alone:
        work.step(place, work.remove_alone)
    work.make_folders()
    work.put_all()
    for place, (entry, inode) in plan.settle.items():
        work.step(place, work.settle, entry, inode)
    work.settle_folders()
    work.sync()
    return Restored(
        sorted(work.restored), sorted(work.removed), sorted(work.reasons), backup_id, dict(sorted(work.reasons.items()))
    )


class _RestoreState:
    def __init__(self, ground: Ground, area: Area, store: ObjectStore, plan: RestorePlan) -> None:
        self._ground = ground
        self._area = area
        self._store = store
        self._plan = plan
        self._touched: set[bytes] = set()
        self._made: dict[bytes, BackupEntry] = {}
        self.restored: set[str] = set()
        self.removed: set[str] = set()
        self.reasons: dict[str, str] = {}

    def step(self, place: bytes, act: Callable[..., None], *told: Any) -> bool:
        """Do one thing at a place; where a directory's mode forbids it, the mode is widened until the end."""
        try:
            try:
                act(place, *told)
            except PermissionError:
                if not self._unlock(place):
                    raise
                act(place, *told)
        except OSError as error:
            self.reasons[name_of(place)] = f"{error.strerror or error}"
            return False
        return True

    def _unlock(self, place: bytes) -> bool:
        widened = [folder for folder in (b"", *parents(place)) if widen(self._ground, folder)]
        return bool(widened)

    # removing

    def remove(self, place: bytes) -> None:
        folder, name = split(place)
        try:
            with self._ground.folder(folder) as handle:
                remove_tree(handle, name)
        except (FileNotFoundError, NotADirectoryError):
            return
        self._touched.add(folder)
        self.removed.add(name_of(place))

    def remove_alone(self, place: bytes) -> None:
        """Remove an entry, but nothing that is in it: only the entry was anybody's to make."""
        folder, name = split(place)
        try:
            with self._ground.folder(folder) as handle:
                _remove_entry(handle, name)
        except (FileNotFoundError, NotADirectoryError):
            return
        self._touched.add(folder)
        self.removed.add(name_of(place))

    # directories

    def make_folders(self) -> None:
        needed = dict(self._plan.folders)
        for place in (*self._plan.folders, *self._plan.put):
            for folder in parents(place):
                entry = self._plan.kept.get(folder) or self._plan.above.get(folder)
                if entry is not None:
                    needed.setdefault(folder, entry)
        for place, entry in sorted(needed.items()):
            self.step(place, self._make_folder, entry)

    def _make_folder(self, place: bytes, entry: BackupEntry) -> None:
        folder, name = split(place)
        with self._ground.folder(folder) as handle:
            try:
                os.mkdir(name, OWN, dir_fd=handle)
            except FileExistsError:
                if stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                    return
                os.unlink(name, dir_fd=handle)
                os.mkdir(name, OWN, dir_fd=handle)
        self._touched.add(folder)
        self._made[place] = entry
        self.restored.add(name_of(place))

    def settle_folders(self) -> None:
        """Give directories their mode, owner and times back, the innermost first."""
        for place, entry in sorted({**self._made, **self._plan.kept}.items(), reverse=True):
            self.step(place, self._settle_folder, entry)

    def _settle_folder(self, place: bytes, entry: BackupEntry) -> None:
        folder, name = split(place)
        with self._ground.folder(folder) as handle:
            found = os.open(name or b".", _LOCATE | os.O_DIRECTORY, dir_fd=handle)
            try:
                seen = os.fstat(found)
                changed = place in self._made or seen.st_ctime_ns != int(entry.ctime_ns)
                if changed and _set_attributes(f"/proc/self/fd/{found}", entry.xattrs):
                    self.restored.add(entry.name)
                if not is_settled(entry, seen):
                    _settle(f"/proc/self/fd/{found}", entry, seen)
                    self._touched.add(place)
                    if place in self._plan.askew:
                        self.restored.add(entry.name)
            finally:
                os.close(found)

        for place, entry in self._plan.above.items():
            if entry.mode & OWN != OWN and place not in self._made and place not in self._plan.kept:
                self.step(place, self._close_folder, entry)

    def _close_folder(self, place: bytes, entry: BackupEntry) -> None:
        """Take back what was allowed to the owner of a folder that leads to what was saved."""
        folder, name = split(place)
        with self._ground.folder(folder) as handle:
            set_mode(handle, name, stat.S_IMODE(entry.mode))

    # files, links and others

    def put_all(self) -> None:
        links = {}
        batch: list[tuple[bytes, BackupEntry, str, int]] = []
        size = 0
        for place, entry in self._plan.put.items():
            if entry.same_as and self._has_first(entry):
                links[place] = entry
                continue
            staged = self._stage(place, entry)
            if staged is None:
                continue
            batch.append(staged)
            size += entry.size
            if len(batch) >= _FILES_AT_ONCE or size >= _BYTES_AT_ONCE:
                self._put_batch(batch)
                batch, size = [], 0
        self._put_batch(batch)
        for place, entry in links.items():
            self.step(place, self._put_link, entry)

    def _has_first(self, entry: BackupEntry) -> bool:
        first = self._plan.first_of(entry)
        return first in self._plan.put or self._ground.look(first) is not None

    def _stage(self, place: bytes, entry: BackupEntry) -> tuple[bytes, BackupEntry, str, int] | None:
        """Write what is to be put in place, beside the backups; return it with its open file, or -1 for no file."""
        file, name = self._area.temporary()
        try:
            if entry.kind == "file":
                self._fill(file, entry)
                return place, entry, name, file
            os.close(file)
            file = -1
            self._area.discard(name)
            self._make_special(name, entry)
        except OSError as error:
            if file >= 0:
                os.close(file)
            self._area.discard(name)
            self.reasons[entry.name] = f"{error.strerror or error}"
            return None
        return place, entry, name, -1

    def _fill(self, file: int, entry: BackupEntry) -> None:
        source = self._store.open(entry.sha256)
        try:
            copy_bytes(source, file, entry.size)
        finally:
            os.close(source)
        _settle(file, entry, os.fstat(file))
        _set_attributes(file, entry.xattrs)

    def _make_special(self, name: str, entry: BackupEntry) -> None:
        handle = self._area.handle("temporary")
        if entry.kind == "link":
            os.symlink(entry.target_bytes, name, dir_fd=handle)
        else:
            os.mknod(name, entry.mode, entry.rdev, dir_fd=handle)
        _settle_name(handle, os.fsencode(name), entry, os.stat(name, dir_fd=handle, follow_symlinks=False))

    def _put_batch(self, batch: list[tuple[bytes, BackupEntry, str, int]]) -> None:
        try:
            sync_files([file for *_, file in batch if file >= 0])
            for place, entry, name, _ in batch:
                self.step(place, self._put, entry, name)
        except OSError as error:
            for _, entry, _, _ in batch:
                self.reasons.setdefault(entry.name, f"{error.strerror or error}")
        finally:
            for _, _, name, file in batch:
                if file >= 0:
                    os.close(file)
                self._area.discard(name)

    def _put(self, place: bytes, entry: BackupEntry, staged: str) -> None:
        folder, name = split(place)
        with self._ground.folder(folder) as handle:
            _make_way(handle, name, alone=place in self._plan.alone)
            try:
                os.rename(staged, name, src_dir_fd=self._area.handle("temporary"), dst_dir_fd=handle)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._put_beside(handle, name, entry)
        self._touched.add(folder)
        self._tell_put(place, entry)

    def _tell_put(self, place: bytes, entry: BackupEntry) -> None:
        if place not in self._plan.renewed:
            self.restored.add(entry.name)

    def _put_beside(self, handle: int, name: bytes, entry: BackupEntry) -> None:
        """Put a file in place on another file system than that of the backups."""
        remove_tree(handle, _BESIDE)
        try:
            if entry.kind == "file":
                file = os.open(_BESIDE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=handle)
                try:
                    self._fill(file, entry)
                    os.fsync(file)
                finally:
                    os.close(file)
            elif entry.kind == "link":
                os.symlink(entry.target_bytes, _BESIDE, dir_fd=handle)
            else:
                os.mknod(_BESIDE, entry.mode, entry.rdev, dir_fd=handle)
            _settle_name(handle, _BESIDE, entry, os.stat(_BESIDE, dir_fd=handle, follow_symlinks=False))
            os.rename(_BESIDE, name, src_dir_fd=handle, dst_dir_fd=handle)
        except BaseException:
            remove_tree(handle, _BESIDE)
            raise

    def _put_link(self, place: bytes, entry: BackupEntry) -> None:
        """Give a file that stands under its first name its further name again."""
        (first_folder, first_name), (folder, name) = split(self._plan.first_of(entry)), split(place)
        file, beside = self._area.temporary()
        os.close(file)
        self._area.discard(beside)
        temporary = self._area.handle("temporary")
        with self._ground.folder(first_folder) as source, self._ground.folder(folder) as handle:
            try:
                os.link(first_name, beside, src_dir_fd=source, dst_dir_fd=temporary, follow_symlinks=False)
                _make_way(handle, name, alone=place in self._plan.alone)
                os.rename(beside, name, src_dir_fd=temporary, dst_dir_fd=handle)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._put_beside(handle, name, entry)
            finally:
                self._area.discard(beside)  # a rename of a file over another name of it does nothing
        self._touched.add(folder)
        self._tell_put(place, entry)

    def settle(self, place: bytes, entry: BackupEntry, inode: int) -> None:
        """Set mode, owner and time right of what is otherwise as it was."""
        folder, name = split(place)
        with self._ground.folder(folder) as handle:
            seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if seen.st_ino != inode or (entry.kind == "file" and seen.st_nlink > entry.links):
                raise OSError(errno.EAGAIN, "it was changed while it was restored")
            _settle_name(handle, name, entry, seen)
        self.restored.add(entry.name)
        self._touched.add(folder)

    def sync(self) -> None:
        """Bring names to the disk."""
        for folder in sorted(self._touched):
            try:
                with self._ground.folder(folder) as handle:
                    os.fsync(handle)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.reasons.setdefault(name_of(folder), f"{error.strerror or error}")


def _remove_entry(handle: int, name: bytes) -> None:
    """Remove a file, a link or an empty directory."""
    try:
        os.unlink(name, dir_fd=handle)
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=handle)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            raise OSError(errno.ENOTEMPTY, "it is a folder with something in it that is not part of this") from None


def _make_way(handle: int, name: bytes, *, alone: bool) -> None:
    """Remove a directory that stands where something else belongs; all else is simply renamed over.

    Args:
        handle: the folder.
        name: in it.
        alone: what is in the directory may not go.
    """
    try:
        seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(seen.st_mode):
        _remove_entry(handle, name) if alone else remove_tree(handle, name)


def _settle_name(handle: int, name: bytes, entry: BackupEntry, seen: os.stat_result) -> None:
    """Set mode, owner and time of what stands at a name; not through a link, and not of another file than was seen."""
    if entry.kind == "link":
        _own(lambda: os.chown(name, entry.uid, entry.gid, dir_fd=handle, follow_symlinks=False), entry, seen)
        os.utime(name, ns=(seen.st_atime_ns, entry.mtime), dir_fd=handle, follow_symlinks=False)
        return
    found = os.open(name, _LOCATE, dir_fd=handle)
    try:
        if os.fstat(found).st_ino != seen.st_ino or stat.S_ISLNK(os.fstat(found).st_mode):
            raise OSError(errno.EAGAIN, "it was changed while it was restored")
        _settle(f"/proc/self/fd/{found}", entry, seen)
    finally:
        os.close(found)


def _settle(target: int | str, entry: BackupEntry, seen: os.stat_result) -> None:
    mode = stat.S_IMODE(entry.mode)
    if not _own(lambda: os.chown(target, entry.uid, entry.gid), entry, seen):
        mode &= ~(stat.S_ISUID | stat.S_ISGID)  # who runs it would get other rights than before
    os.chmod(target, mode)
    os.utime(target, ns=(seen.st_atime_ns, entry.mtime))


def _own(change: Callable[[], None], entry: BackupEntry, seen: os.stat_result) -> bool:
    """Give the owner back where that is allowed, and tell whether the owner is right."""
    if (seen.st_uid, seen.st_gid) == (entry.uid, entry.gid):
        return True
    try:
        change()
    except PermissionError:
        return False
    return True


def _set_attributes(target: int | str, wanted: dict[str, str]) -> bool:
    """Set extended attributes where the file system and the rights allow it; tell whether anything was changed."""
    found = attributes(target)
    if found == wanted:
        return False
    _try_each(found.keys() - wanted.keys(), lambda name: os.removexattr(target, name))
    _try_each(wanted, lambda name: os.setxattr(target, name, bytes.fromhex(wanted[name])))
    return True


def _try_each(names: Iterable[str], act: Callable[[str], None]) -> None:
    for name in sorted(names):
        try:
            act(name)
        except OSError:
            continue
