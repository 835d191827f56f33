"""Steps on directory handles that never follow a link by themselves.

Every function takes an open directory and one name in it, so that nobody can slip a link under a path that was
checked before: what is opened is what was looked at. Source: design section 8.
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
    "WalkEntry",
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
"""Bytes that are read or written at a time."""
_TRIES: Final = 8
_NO_REPLACE: Final = 1  # RENAME_NOREPLACE
_NOT_SUPPORTED: Final = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """What a folder holds under one name.

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


@dataclass(frozen=True, slots=True)
class WalkEntry:
    """What a walk came upon.

    Args:
        relative: the path below the workspace's root.
        stat: of the entry itself, links not followed.
    """

    relative: bytes
    stat: os.stat_result

    @property
    def kind(self) -> Kind:
        """Whether it is a file, a folder, a symbolic link or something else."""
        return kind_of(self.stat.st_mode)


def kind_of(mode: int) -> Kind:
    """Return the kind that a ``st_mode`` tells."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


def open_folder(name: bytes, folder: int) -> int:
    """Open a folder's folder as a place to go on from; a link is no folder (NotADirectoryError)."""
    return os.open(name, FOLDER, dir_fd=folder)


def link_target(name: bytes, folder: int) -> bytes | None:
    """Return where a symbolic link leads, None for everything else and for what is missing."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise


def exists(name: bytes, folder: int) -> os.stat_result | None:
    """Return the stat of an entry itself, None where there is none."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def entries(folder: int) -> list[FolderEntry]:
    """Return what a folder holds, sorted by name; what vanishes meanwhile is left out."""
    # A place to go on from cannot be read, and listing moves a handle's position: it gets a handle of its own.
    reading = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    found = []
    try:
        for name in sorted(map(os.fsencode, os.listdir(reading))):
            seen = exists(name, reading)
            if seen is not None:
                found.append(FolderEntry(name, seen))
    finally:
        os.close(reading)
    return found


def sync_folder(folder: int) -> None:
    """Make the names in a folder durable."""
    try:
        reading = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except PermissionError:
        os.sync()  # a folder that may be written but not read can be synced only with everything else
        return
    try:
        os.fsync(reading)
    finally:
        os.close(reading)


def write_all(target: int, data: bytes | Iterable[bytes]) -> None:
    """Write all of it, in as many calls as the system takes."""
    for piece in (data,) if isinstance(data, bytes) else data:
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(target, rest) :]


def replace_file(
    name: bytes,
    folder: int,
    data: bytes | Iterable[bytes],
    *,
    mode: int | None,
    like: os.stat_result | None,
    new: bool,
    beside: bytes | None = None,
) -> None:
    """Put a new file in a name's place at once and durably; whoever reads sees the old one or the new one.

    Args:
        name: in the folder.
        folder: an open directory.
        data: the content.
        mode: permission bits; None keeps those of ``like`` or, without it, what the process gives new files.
        like: the file that is replaced, whose owner is kept where the process may.
        new: whether the name must be free (FileExistsError).
        beside: the name under which the new file comes about, where a crash may leave it; whoever uses the same one
            again takes away what it left. None is a fresh name.
    """
    if beside is None:
        beside = b".klock-" + secrets.token_hex(8).encode()
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)
    kept = None if like is None else stat.S_IMODE(like.st_mode) & 0o1777  # a write takes set-id bits away
    mode = kept if mode is None else mode
    # Nobody may read the new bytes before the file has the permissions it shall have.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    target = os.open(beside, flags, 0o666 if mode is None else 0o600, dir_fd=folder)
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
            rename_new(beside, folder, name, folder)
        else:
            os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    sync_folder(folder)


def _keep_owner(target: int, like: os.stat_result) -> None:
    mine = os.fstat(target)
    if (mine.st_uid, mine.st_gid) != (like.st_uid, like.st_gid):
        with contextlib.suppress(PermissionError):  # only the superuser gives files away; others keep what they write
            os.fchown(target, like.st_uid, like.st_gid)


def rename_new(old: bytes, old_folder: int, new: bytes, new_folder: int) -> None:
    """Rename to a name that is free.

    Raises:
        FileExistsError: it is not.
    """
    failed = _rename_no_replace(old, old_folder, new, new_folder)
    if failed in _NOT_SUPPORTED:  # by this file system: look first, as good as it goes
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
    """Open a file; one that is opened for writing has no second name whose content would change with it.

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
    raise OSError(errno.EMLINK, "Somebody keeps giving the file second names", os.fsdecode(name))


def _copy_in_place(name: bytes, folder: int) -> None:
    """Put a copy of a file in its place, so that its other names keep the one that was."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=folder), "rb") as source:
        like = os.fstat(source.fileno())
        replace_file(name, folder, iter(lambda: source.read(CHUNK), b""), mode=None, like=like, new=False)
