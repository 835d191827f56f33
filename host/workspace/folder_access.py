"""Operations on the files below a folder, by directory handles; see ``host.workspace.root`` for the rules."""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from host.workspace.names import name_of
from host.workspace.path_resolution import MAX_LINKS, locate
from host.workspace.safe import (
    FolderEntry,
    entries,
    exists,
    open_folder,
    open_own,
    rename_new,
    replace_file,
    sync_folder,
    write_all,
)
from host.workspace.tree_walk import FolderChain, remove_all
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["FolderAccess", "join"]

_CHUNK: Final = 1 << 20
_Entries = list[FolderEntry]  # inside the class, list is a method


class FolderAccess(ABC):
    """Operations on the files below a folder; paths and errors as of ``host.workspace.root.Workspace``.

    Args:
        fd: handle of the folder.
    """

    fd: int

    @abstractmethod
    def _is_private(self, name: bytes) -> bool:
        """Whether a name at the root belongs to the engine."""

    @contextmanager
    def parent(self, relative: bytes, *, make: bool = False, follow: bool = False) -> Iterator[tuple[int, bytes]]:
        """Yield the open folder of a path's last name, and that name (``b"."`` for the root)."""
        folder, name = self._locate(relative, make=make, follow=follow)
        try:
            yield folder, name
        finally:
            os.close(folder)

    def open(self, relative: bytes, flags: int, mode: int = 0o666) -> int:
        """Open a file as ``os.open`` does and return its descriptor; a link inside is followed.

        A file with several names is replaced by its own copy before it is opened for writing.
        """
        exclusive = flags & os.O_CREAT and flags & os.O_EXCL
        follow = not (flags & os.O_NOFOLLOW or exclusive)
        for _ in range(MAX_LINKS):
            with self.parent(relative, follow=follow) as (folder, name):
                try:
                    return open_own(name, folder, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
                except OSError as error:
                    # A link was created since the check: resolve it again.
                    if error.errno != errno.ELOOP or not follow:
                        raise
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name_of(relative))

    def lstat(self, relative: bytes) -> os.stat_result | None:
        """Return the status of a path without following a link in its last name; None where nothing exists."""
        try:
            with self.parent(relative) as (folder, name):
                return exists(name, folder)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, relative: bytes, *, limit: int | None = None) -> bytes:
        """Return a file's content.

        Args:
            relative: below the root.
            limit: most bytes to read.

        Raises:
            RefusedError: ``NOT_A_REGULAR_FILE`` for a pipe, socket or device.
        """
        # Non-blocking, so that opening a pipe does not wait for its other end.
        source = self.open(relative, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            _check_regular(os.fstat(source), relative)
            pieces, left = [], limit
            while left is None or left > 0:
                piece = os.read(source, _CHUNK if left is None else min(left, _CHUNK))
                if not piece:
                    break
                pieces.append(piece)
                left = None if left is None else left - len(piece)
            return b"".join(pieces)
        finally:
            os.close(source)

    def write(
        self,
        relative: bytes,
        data: bytes | Iterable[bytes],
        *,
        mode: int | None = None,
        must: Literal["exist", "not exist"] | None = None,
        temporary_name: bytes | None = None,
    ) -> None:
        """Write a file atomically and durably: a reader or a crash finds the old or the new content.

        Args:
            relative: below the root; a link as its last name is followed inside.
            data: the whole content, or pieces of it.
            mode: permission bits; None keeps those of the file, or uses the defaults for a new one.
            must: ``exist`` or ``not exist`` to require it (FileNotFoundError, FileExistsError).
            temporary_name: name of the new file until it is complete; see ``host.workspace.safe.replace_file``.

        Raises:
            RefusedError: ``NOT_A_REGULAR_FILE`` where a pipe, socket or device has the name.
        """
        with self.parent(relative, follow=must != "not exist") as (folder, name):
            status = exists(name, folder)
            if status is None and must == "exist":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(relative))
            if status is not None and must == "not exist":
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(relative))
            if status is not None and stat.S_ISLNK(status.st_mode):
                status = None  # created since the check: it is replaced, not followed
            if status is not None:
                _check_regular(status, relative)
            replace_file(
                name, folder, data, mode=mode, like=status, new=must == "not exist", temporary_name=temporary_name
            )

    def append(self, relative: bytes, data: bytes | Iterable[bytes]) -> None:
        """Append to a file, which is created where missing; durable on return.

        Raises:
            RefusedError: ``NOT_A_REGULAR_FILE``.
        """
        target = self.open(relative, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            before = os.fstat(target)
            _check_regular(before, relative)
            write_all(target, data)
            os.fsync(target)
        finally:
            os.close(target)
        if before.st_size == 0:  # it may be new, so its name must be durable too
            with self.parent(relative, follow=True) as (folder, _):
                sync_folder(folder)

    def remove(self, relative: bytes) -> None:
        """Delete a file, a link itself, or an empty folder."""
        with self._named(relative) as (folder, name):
            try:
                os.unlink(name, dir_fd=folder)
            except (IsADirectoryError, PermissionError):
                status = exists(name, folder)
                if status is None or not stat.S_ISDIR(status.st_mode):
                    raise
                os.rmdir(name, dir_fd=folder)
            sync_folder(folder)

    def remove_tree(self, relative: bytes) -> None:
        """Delete an entry with everything below it; no link is followed."""
        with self._named(relative) as (folder, name):
            remove_all(name, folder)
            sync_folder(folder)

    def rename(self, old: bytes, new: bytes, *, replace: bool) -> None:
        """Rename a file, folder or link itself.

        Args:
            old: below the root.
            new: below the root, in an existing folder.
            replace: whether an existing target is replaced (FileExistsError otherwise).
        """
        with self._named(old) as (old_folder, old_name), self._named(new) as (new_folder, new_name):
            if replace:
                os.rename(old_name, new_name, src_dir_fd=old_folder, dst_dir_fd=new_folder)
            else:
                rename_new(old_name, old_folder, new_name, new_folder)
            sync_folder(new_folder)
            sync_folder(old_folder)

    def mkdir(self, relative: bytes, *, parents: bool = False) -> None:
        """Create a folder (FileExistsError where the path exists); ``parents`` also creates missing parents."""
        with self.parent(relative, make=parents) as (folder, name):
            os.mkdir(name, dir_fd=folder)
            sync_folder(folder)

    def list(self, relative: bytes = b"") -> _Entries:
        """Return the entries of a folder, sorted by name, without the engine's own folder."""
        with self._folder(relative) as folder:
            listing = entries(folder)
            at_root = os.path.samestat(os.fstat(folder), os.fstat(self.fd))
            return [entry for entry in listing if not (at_root and self._is_private(entry.name))]

    def walk(
        self, relative: bytes = b"", *, unreadable: Callable[[bytes, OSError], None] | None = None
    ) -> Iterator[tuple[bytes, os.stat_result]]:
        """Yield everything below a folder, its path and its stat, each folder before its content; no link is followed.

        Entries that vanish meanwhile and the engine's own folder are omitted.

        Args:
            relative: the folder; it is not yielded itself.
            unreadable: called with the path of a folder that may not be listed; None raises the PermissionError.
        """
        for path, _, listing in self.folders(relative, unreadable=unreadable):
            for entry in listing:
                yield join(path, entry.name), entry.stat

    def folders(
        self,
        relative: bytes = b"",
        *,
        ignore: Callable[[bytes], bool] | None = None,
        unreadable: Callable[[bytes, OSError], None] | None = None,
    ) -> Iterator[tuple[bytes, int, _Entries]]:
        """Yield a folder and every folder below it: its path, a handle valid until the next one, and its entries.

        Args:
            relative: the first folder; a link to one inside is followed.
            ignore: whether to omit a path, with everything below it.
            unreadable: as of ``walk``.
        """
        with self._folder(relative) as start, FolderChain(start) as chain:
            at_root = os.path.samestat(os.fstat(start), os.fstat(self.fd))
            pending = [(relative.strip(b"/"), b"", 0)]  # remaining folders: path, last name, depth
            while pending:
                path, name, depth = pending.pop()
                while name and len(chain) >= depth:
                    chain.pop()
                try:
                    if name:
                        chain.push(name)
                    listing = entries(chain.end())
                except (FileNotFoundError, NotADirectoryError):
                    if not name:
                        raise
                    continue
                except PermissionError as error:
                    if unreadable is None:
                        raise
                    unreadable(path, error)
                    continue
                if at_root and not name:
                    listing = [entry for entry in listing if not self._is_private(entry.name)]
                if ignore is not None:
                    listing = [entry for entry in listing if not ignore(join(path, entry.name))]
                yield path, chain.end(), listing
                below = [entry.name for entry in reversed(listing) if entry.kind == "dir"]
                pending += [(join(path, entry), entry, depth + 1) for entry in below]

    # Handles

    @contextmanager
    def _folder(self, relative: bytes) -> Iterator[int]:
        """Yield a folder's handle; a link to one inside is followed."""
        with self.parent(relative, follow=True) as (above, name):
            folder = os.dup(above) if name == b"." else open_folder(name, above)
            try:
                yield folder
            finally:
                os.close(folder)

    @contextmanager
    def _named(self, relative: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield a path's folder, for operations that are not possible on the root itself."""
        with self.parent(relative) as (folder, name):
            if name == b".":
                raise RefusedError(
                    ErrorCode.OUTSIDE_WORKSPACE,
                    "The root of the workspace can be neither deleted nor renamed; name a path below it.",
                )
            yield folder, name

    def _locate(self, relative: bytes, *, make: bool, follow: bool) -> tuple[int, bytes]:
        return locate(self.fd, relative, make=make, follow=follow, is_private=self._is_private)


def join(folder: bytes, name: bytes) -> bytes:
    """Return the path of a name in a folder."""
    return folder + b"/" + name if folder else name


def _check_regular(seen: os.stat_result, relative: bytes) -> None:
    shown = name_of(relative)
    if stat.S_ISDIR(seen.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
    if not stat.S_ISREG(seen.st_mode):
        raise RefusedError(
            ErrorCode.NOT_A_REGULAR_FILE,
            f"{shown} is a pipe, socket or device; only files have content here.",
            path=shown,
        )
