"""Operations on directory handles that do not follow links.

Every function takes an open directory and one name in it, so that a checked path cannot be replaced by a link:
the entry that is opened is the one that was checked. Source: design section 8.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "CHUNK",
    "FolderEntry",
    "Kind",
    "entries",
    "exists",
    "kind_of",
    "link_target",
    "open_folder",
    "open_own",
    "rename_new",
    "replace_file",
    "sync_folder",
    "write_all",
]

Kind = Literal["file", "dir", "link", "other"]

FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CHUNK: Final = 1 << 20
"""Bytes per read or write."""
_TRIES: Final = 8
_NO_REPLACE: Final = 1  # RENAME_NOREPLACE
_NOT_SUPPORTED: Final = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One entry of a folder.

    Args:
        name: the last name alone.
        stat: of the entry itself, links not followed.
    """

    name: bytes
    stat: os.stat_result

    @property
    def kind(self) -> Kind:
        """Whether it is a file, a folder, a symbolic link or something else."""
        return kind_of(self.stat.st_mode)


def kind_of(mode: int) -> Kind:
    """Return the kind in a ``st_mode``."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


def open_folder(name: bytes, folder: int) -> int:
    """Open a subfolder as a starting point; a link is not a folder (NotADirectoryError)."""
    return os.open(name, FOLDER, dir_fd=folder)


def link_target(name: bytes, folder: int) -> bytes | None:
    """Return the target of a symbolic link, None for other and for missing entries."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def exists(name: bytes, folder: int) -> os.stat_result | None:
    """Return the status of an entry without following a link, None where it does not exist."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def entries(folder: int) -> list[FolderEntry]:
    """Return the entries of a folder, sorted by name, without those that vanish meanwhile."""
    # An O_PATH handle cannot be read, and listing moves a handle's position, so a new handle is opened.
    reading = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    listed = []
    try:
        for name in sorted(map(os.fsencode, os.listdir(reading))):
            seen = exists(name, reading)
            if seen is not None:
                listed.append(FolderEntry(name, seen))
    finally:
        os.close(reading)
    return listed


def sync_folder(folder: int) -> None:
    """Make the names in a folder durable."""
    try:
        reading = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except PermissionError:
        os.sync()  # a folder that is writable but not readable can only be synced with everything else
        return
    try:
        os.fsync(reading)
    finally:
        os.close(reading)


def write_all(target: int, data: bytes | Iterable[bytes]) -> None:
    """Write all data, in as many calls as needed."""
    for piece in (data,) if isinstance(data, bytes) else data:
        remaining = memoryview(piece)
        while remaining:
            remaining = remaining[os.write(target, remaining) :]


def replace_file(
    name: bytes,
    folder: int,
    data: bytes | Iterable[bytes],
    *,
    mode: int | None,
    like: os.stat_result | None,
    new: bool,
    temporary_name: bytes | None = None,
) -> None:
    """Replace a file atomically and durably; a reader sees the old or the new one.

    Args:
        name: in the folder.
        folder: an open directory.
        data: the content.
        mode: permission bits; None keeps those of ``like`` or, without it, uses the defaults of the process.
        like: the replaced file, whose owner is kept where permitted.
        new: whether the name must be free (FileExistsError).
        temporary_name: name of the new file until it is complete, which a crash may leave; a later call with the same
            name deletes it. None generates a name.
    """
    if temporary_name is None:
        temporary_name = b".klock-" + secrets.token_hex(8).encode()
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary_name, dir_fd=folder)
    kept = None if like is None else stat.S_IMODE(like.st_mode) & 0o1777  # a write takes set-id bits away
    mode = kept if mode is None else mode
    # The new bytes must not be readable before the file has its final permissions.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    target = os.open(temporary_name, flags, 0o666 if mode is None else 0o600, dir_fd=folder)
    try:
        try:
            write_all(target, data)
            if like is not None:
                _keep_owner(target, like)
            if mode is not None:
                os.fchmod(target, mode)
            os.fsync(target)
        finally:
            os.close(target)
        if new:
            rename_new(temporary_name, folder, name, folder)
        else:
            os.rename(temporary_name, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary_name, dir_fd=folder)
        raise
    sync_folder(folder)


def _keep_owner(target: int, like: os.stat_result) -> None:
    status = os.fstat(target)
    if (status.st_uid, status.st_gid) != (like.st_uid, like.st_gid):
        with contextlib.suppress(PermissionError):  # only the superuser may change owners
            os.fchown(target, like.st_uid, like.st_gid)


def rename_new(old: bytes, old_folder: int, new: bytes, new_folder: int) -> None:
    """Rename an entry to a free name.

    Raises:
        FileExistsError: the name is taken.
    """
    failed = _rename_no_replace(old, old_folder, new, new_folder)
    if failed in _NOT_SUPPORTED:  # by this file system: check first, which is not atomic
        if exists(new, new_folder) is not None:
            failed = errno.EEXIST
        else:
            os.rename(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)
            failed = 0
    if failed:
        raise OSError(failed, os.strerror(failed), os.fsdecode(new))


def _rename_no_replace(old: bytes, old_folder: int, new: bytes, new_folder: int) -> int:
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return errno.ENOSYS
    done = renameat2(
        ctypes.c_int(old_folder),
        ctypes.c_char_p(old),
        ctypes.c_int(new_folder),
        ctypes.c_char_p(new),
        ctypes.c_uint(_NO_REPLACE),
    )
    return 0 if done == 0 else ctypes.get_errno()


def open_own(name: bytes, folder: int, flags: int, mode: int) -> int:
    """Open a file; a file with several names is replaced by its own copy before it is opened for writing.

    Args:
        name: in the folder.
        folder: an open directory.
        flags: those of ``os.open``.
        mode: permission bits of a new file.
    """
    if flags & os.O_ACCMODE == os.O_RDONLY or flags & os.O_PATH:
        return os.open(name, flags, mode, dir_fd=folder)
    for _ in range(_TRIES):
        target = os.open(name, flags & ~os.O_TRUNC, mode, dir_fd=folder)
        try:
            seen = os.fstat(target)
            if not stat.S_ISREG(seen.st_mode) or seen.st_nlink <= 1:
                if flags & os.O_TRUNC and stat.S_ISREG(seen.st_mode):
                    os.ftruncate(target, 0)
                return target
            _copy_in_place(name, folder)
        except BaseException:
            os.close(target)
            raise
        os.close(target)
    raise OSError(errno.EMLINK, "Another process keeps adding hard links to the file", os.fsdecode(name))


def _copy_in_place(name: bytes, folder: int) -> None:
    """Replace a file by its copy, so that its other names keep the original."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=folder), "rb") as source:
        like = os.fstat(source.fileno())
        replace_file(name, folder, iter(lambda: source.read(CHUNK), b""), mode=None, like=like, new=False)
