"""Execution of a rollback plan; every step may be repeated, so that an interrupted rollback starts again.

First new entries are deleted, then directories are created, then files are put in place: written to the backup folder,
synced to the disk, and renamed over the current ones. Modes and times of directories come last. No step follows a
link: each starts from a handle of its folder, and a link in the place of a folder is replaced by a folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from host.backups.backup_folder import BackupFolder
from host.backups.backup_fs import OWN, WorkspaceFiles, attributes, parents, remove_tree, set_mode, split, widen
from host.backups.backup_set import BackupEntry
from host.backups.copying import copy_bytes
from host.backups.objects import ObjectStore, sync_files
from host.backups.plan import RestorePlan, has_same_metadata
from host.workspace.names import name_of

__all__ = ["Restored", "apply_plan"]

_FILES_AT_ONCE: Final = 256
_BYTES_AT_ONCE: Final = 64 << 20
_LOCATE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_STAGED_NAME: Final = b".klock-restored"
"""Temporary name beside a file on another file system; only one rollback runs at a time."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Result of a rollback.

    Args:
        restored: names of restored entries.
        removed: names of deleted entries, with everything below.
        failed: names of entries that could not be restored; the rollback may be repeated.
        backup_id: the backup.
        reasons: why, for each failed name.
    """

    restored: list[str]
    removed: list[str]
    failed: list[str]
    backup_id: str = ""
    reasons: dict[str, str] = field(default_factory=dict)


def apply_plan(
    files: WorkspaceFiles, backup_folder: BackupFolder, store: ObjectStore, plan: RestorePlan, *, backup_id: str
) -> Restored:
    """Apply a plan; a failed step is reported in the result and the others are still done."""
    work = _RestoreState(files, backup_folder, store, plan)
    for path in plan.remove:
        work.step(path, work.remove)
    for path in plan.remove_only:
        work.step(path, work.remove_only)
    work.make_folders()
    work.put_all()
    for path, (entry, inode) in plan.update_metadata.items():
        work.step(path, work.update_metadata, entry, inode)
    work.restore_folder_metadata()
    work.sync()
    return Restored(
        sorted(work.restored), sorted(work.removed), sorted(work.reasons), backup_id, dict(sorted(work.reasons.items()))
    )


class _RestoreState:
    def __init__(
        self, files: WorkspaceFiles, backup_folder: BackupFolder, store: ObjectStore, plan: RestorePlan
    ) -> None:
        self._files = files
        self._backup_folder = backup_folder
        self._store = store
        self._plan = plan
        self._changed_folders: set[bytes] = set()
        self._made: dict[bytes, BackupEntry] = {}
        self.restored: set[str] = set()
        self.removed: set[str] = set()
        self.reasons: dict[str, str] = {}

    def step(self, path: bytes, act: Callable[..., None], *arguments: Any) -> bool:
        """Do one step at a path; where a directory's mode denies it, the owner gets access until the end."""
        try:
            try:
                act(path, *arguments)
            except PermissionError:
                if not self._grant_access(path):
                    raise
                act(path, *arguments)
        except OSError as error:
            self.reasons[name_of(path)] = f"{error.strerror or error}"
            return False
        return True

    def _grant_access(self, path: bytes) -> bool:
        widened = [folder for folder in (b"", *parents(path)) if widen(self._files, folder)]
        return bool(widened)

    # removing

    def remove(self, path: bytes) -> None:
        """Delete an entry with everything below it."""
        self._remove(path, remove_tree)

    def remove_only(self, path: bytes) -> None:
        """Delete an entry without its content, which is not part of the backup."""
        self._remove(path, _remove_entry)

    def _remove(self, path: bytes, remove: Callable[[int, bytes], object]) -> None:
        folder, name = split(path)
        try:
            with self._files.folder(folder) as handle:
                remove(handle, name)
        except (FileNotFoundError, NotADirectoryError):
            return
        self._changed_folders.add(folder)
        self.removed.add(name_of(path))

    # directories

    def make_folders(self) -> None:
        needed = dict(self._plan.folders)
        for path in (*self._plan.folders, *self._plan.put):
            for folder in parents(path):
                entry = self._plan.saved_folders.get(folder) or self._plan.above.get(folder)
                if entry is not None:
                    needed.setdefault(folder, entry)
        for path, entry in sorted(needed.items()):
            self.step(path, self._make_folder, entry)

    def _make_folder(self, path: bytes, entry: BackupEntry) -> None:
        folder, name = split(path)
        with self._files.folder(folder) as handle:
            try:
                os.mkdir(name, OWN, dir_fd=handle)
            except FileExistsError:
                if stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
                    return
                os.unlink(name, dir_fd=handle)
                os.mkdir(name, OWN, dir_fd=handle)
        self._changed_folders.add(folder)
        self._made[path] = entry
        self.restored.add(name_of(path))

    def restore_folder_metadata(self) -> None:
        """Restore mode, owner and times of directories, the innermost first."""
        for path, entry in sorted({**self._made, **self._plan.saved_folders}.items(), reverse=True):
            self.step(path, self._restore_folder_metadata, entry)

    def _restore_folder_metadata(self, path: bytes, entry: BackupEntry) -> None:
        folder, name = split(path)
        with self._files.folder(folder) as handle:
            descriptor = os.open(name or b".", _LOCATE | os.O_DIRECTORY, dir_fd=handle)
            try:
                seen = os.fstat(descriptor)
                changed = path in self._made or seen.st_ctime_ns != int(entry.ctime_ns)
                if changed and _set_attributes(f"/proc/self/fd/{descriptor}", entry.xattrs):
                    self.restored.add(entry.name)
                if not has_same_metadata(entry, seen):
                    _set_metadata(f"/proc/self/fd/{descriptor}", entry, seen)
                    self._changed_folders.add(path)
                    if path in self._plan.changed_folders:
                        self.restored.add(entry.name)
            finally:
                os.close(descriptor)

        for path, entry in self._plan.above.items():
            if entry.mode & OWN != OWN and path not in self._made and path not in self._plan.saved_folders:
                self.step(path, self._restore_folder_mode, entry)

    def _restore_folder_mode(self, path: bytes, entry: BackupEntry) -> None:
        """Restore the mode of a folder above a saved path, after access was granted for the rollback."""
        folder, name = split(path)
        with self._files.folder(folder) as handle:
            set_mode(handle, name, stat.S_IMODE(entry.mode))

    # files, links and others

    def put_all(self) -> None:
        links = {}
        batch: list[tuple[bytes, BackupEntry, str, int]] = []
        size = 0
        for path, entry in self._plan.put.items():
            if entry.same_as and self._has_first(entry):
                links[path] = entry
                continue
            staged = self._stage(path, entry)
            if staged is None:
                continue
            batch.append(staged)
            size += entry.size
            if len(batch) >= _FILES_AT_ONCE or size >= _BYTES_AT_ONCE:
                self._put_batch(batch)
                batch, size = [], 0
        self._put_batch(batch)
        for path, entry in links.items():
            self.step(path, self._put_link, entry)

    def _has_first(self, entry: BackupEntry) -> bool:
        first = self._plan.first_of(entry)
        return first in self._plan.put or self._files.look(first) is not None

    def _stage(self, path: bytes, entry: BackupEntry) -> tuple[bytes, BackupEntry, str, int] | None:
        """Write an entry in the backup folder; return it with its open file, or -1 for no file."""
        file, name = self._backup_folder.temporary()
        try:
            if entry.kind == "file":
                self._fill(file, entry)
                return path, entry, name, file
            os.close(file)
            file = -1
            self._backup_folder.discard(name)
            self._make_special(name, entry)
        except OSError as error:
            if file >= 0:
                os.close(file)
            self._backup_folder.discard(name)
            self.reasons[entry.name] = f"{error.strerror or error}"
            return None
        return path, entry, name, -1

    def _fill(self, file: int, entry: BackupEntry) -> None:
        source = self._store.open(entry.sha256)
        try:
            copy_bytes(source, file, entry.size)
        finally:
            os.close(source)
        _set_metadata(file, entry, os.fstat(file))
        _set_attributes(file, entry.xattrs)

    def _make_special(self, name: str, entry: BackupEntry) -> None:
        handle = self._backup_folder.handle("temporary")
        if entry.kind == "link":
            os.symlink(entry.target_bytes, name, dir_fd=handle)
        else:
            os.mknod(name, entry.mode, entry.rdev, dir_fd=handle)
        _set_metadata_at(handle, os.fsencode(name), entry, os.stat(name, dir_fd=handle, follow_symlinks=False))

    def _put_batch(self, batch: list[tuple[bytes, BackupEntry, str, int]]) -> None:
        try:
            sync_files([file for *_, file in batch if file >= 0])
            for path, entry, name, _ in batch:
                self.step(path, self._put, entry, name)
        except OSError as error:
            for _, entry, _, _ in batch:
                self.reasons.setdefault(entry.name, f"{error.strerror or error}")
        finally:
            for _, _, name, file in batch:
                if file >= 0:
                    os.close(file)
                self._backup_folder.discard(name)

    def _put(self, path: bytes, entry: BackupEntry, staged: str) -> None:
        folder, name = split(path)
        with self._files.folder(folder) as handle:
            _remove_directory(handle, name, non_recursive=path in self._plan.non_recursive)
            try:
                os.rename(staged, name, src_dir_fd=self._backup_folder.handle("temporary"), dst_dir_fd=handle)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._put_on_other_file_system(handle, name, entry)
        self._changed_folders.add(folder)
        self._record_put(path, entry)

    def _record_put(self, path: bytes, entry: BackupEntry) -> None:
        if path not in self._plan.renewed:
            self.restored.add(entry.name)

    def _put_on_other_file_system(self, handle: int, name: bytes, entry: BackupEntry) -> None:
        """Put a file in place on another file system than that of the backups."""
        remove_tree(handle, _STAGED_NAME)
        try:
            if entry.kind == "file":
                file = os.open(_STAGED_NAME, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=handle)
                try:
                    self._fill(file, entry)
                    os.fsync(file)
                finally:
                    os.close(file)
            elif entry.kind == "link":
                os.symlink(entry.target_bytes, _STAGED_NAME, dir_fd=handle)
            else:
                os.mknod(_STAGED_NAME, entry.mode, entry.rdev, dir_fd=handle)
            _set_metadata_at(handle, _STAGED_NAME, entry, os.stat(_STAGED_NAME, dir_fd=handle, follow_symlinks=False))
            os.rename(_STAGED_NAME, name, src_dir_fd=handle, dst_dir_fd=handle)
        except BaseException:
            remove_tree(handle, _STAGED_NAME)
            raise

    def _put_link(self, path: bytes, entry: BackupEntry) -> None:
        """Restore a further name of a file that exists under its first name."""
        (first_folder, first_name), (folder, name) = split(self._plan.first_of(entry)), split(path)
        file, staged = self._backup_folder.temporary()
        os.close(file)
        self._backup_folder.discard(staged)
        temporary = self._backup_folder.handle("temporary")
        with self._files.folder(first_folder) as source, self._files.folder(folder) as handle:
            try:
                os.link(first_name, staged, src_dir_fd=source, dst_dir_fd=temporary, follow_symlinks=False)
                _remove_directory(handle, name, non_recursive=path in self._plan.non_recursive)
                os.rename(staged, name, src_dir_fd=temporary, dst_dir_fd=handle)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._put_on_other_file_system(handle, name, entry)
            finally:
                self._backup_folder.discard(staged)  # renaming a file over another of its names has no effect
        self._changed_folders.add(folder)
        self._record_put(path, entry)

    def update_metadata(self, path: bytes, entry: BackupEntry, inode: int) -> None:
        """Restore mode, owner and time of an entry that is otherwise unchanged."""
        folder, name = split(path)
        with self._files.folder(folder) as handle:
            seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if seen.st_ino != inode or (entry.kind == "file" and seen.st_nlink > entry.links):
                raise OSError(errno.EAGAIN, "it was changed during the rollback")
            _set_metadata_at(handle, name, entry, seen)
        self.restored.add(entry.name)
        self._changed_folders.add(folder)

    def sync(self) -> None:
        """Sync the changed folders to the disk."""
        for folder in sorted(self._changed_folders):
            try:
                with self._files.folder(folder) as handle:
                    os.fsync(handle)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                self.reasons.setdefault(name_of(folder), f"{error.strerror or error}")


def _remove_entry(handle: int, name: bytes) -> None:
    """Delete a file, a link or an empty directory."""
    try:
        os.unlink(name, dir_fd=handle)
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=handle)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            raise OSError(errno.ENOTEMPTY, "the folder has content that is not part of the backup") from None


def _remove_directory(handle: int, name: bytes, *, non_recursive: bool) -> None:
    """Delete a directory in the place of another kind of entry; other kinds are replaced by a rename.

    Args:
        handle: the folder.
        name: in it.
        non_recursive: whether the content of the directory must be kept.
    """
    try:
        seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(seen.st_mode):
        _remove_entry(handle, name) if non_recursive else remove_tree(handle, name)


def _set_metadata_at(handle: int, name: bytes, entry: BackupEntry, seen: os.stat_result) -> None:
    """Set mode, owner and time of an entry without following a link, if it is still the entry that was seen."""
    if entry.kind == "link":
        _set_owner(lambda: os.chown(name, entry.uid, entry.gid, dir_fd=handle, follow_symlinks=False), entry, seen)
        os.utime(name, ns=(seen.st_atime_ns, entry.mtime), dir_fd=handle, follow_symlinks=False)
        return
    descriptor = os.open(name, _LOCATE, dir_fd=handle)
    try:
        if os.fstat(descriptor).st_ino != seen.st_ino or stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise OSError(errno.EAGAIN, "it was changed during the rollback")
        _set_metadata(f"/proc/self/fd/{descriptor}", entry, seen)
    finally:
        os.close(descriptor)


def _set_metadata(target: int | str, entry: BackupEntry, seen: os.stat_result) -> None:
    mode = stat.S_IMODE(entry.mode)
    if not _set_owner(lambda: os.chown(target, entry.uid, entry.gid), entry, seen):
        mode &= ~(stat.S_ISUID | stat.S_ISGID)  # with another owner the file would run with other privileges
    os.chmod(target, mode)
    os.utime(target, ns=(seen.st_atime_ns, entry.mtime))


def _set_owner(change: Callable[[], None], entry: BackupEntry, seen: os.stat_result) -> bool:
    """Restore the owner where that is permitted; return whether the owner is correct."""
    if (seen.st_uid, seen.st_gid) == (entry.uid, entry.gid):
        return True
    try:
        change()
    except PermissionError:
        return False
    return True


def _set_attributes(target: int | str, wanted: dict[str, str]) -> bool:
    """Set extended attributes where the file system permits it; return whether any differed."""
    current = attributes(target)
    if current == wanted:
        return False
    _try_each(current.keys() - wanted.keys(), lambda name: os.removexattr(target, name))
    _try_each(wanted, lambda name: os.setxattr(target, name, bytes.fromhex(wanted[name])))
    return True


def _try_each(names: Iterable[str], act: Callable[[str], None]) -> None:
    for name in sorted(names):
        try:
            act(name)
        except OSError:
            continue
