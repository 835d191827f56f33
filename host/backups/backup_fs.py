"""Access to the workspace's files for backups: by directory handles, without following links.

A link in the place of a directory is treated as a link, whatever its target.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from host.backups.backup_folder import DIRECTORY
from host.workspace.comparison import ListedAs, listed_as
from host.workspace.folder_access import join
from host.workspace.names import name_of
from host.workspace.root import PRIVATE, Workspace
from host.workspace.tree_walk import FolderChain
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.resources.resource import Resource

__all__ = ["WorkspaceFiles", "children", "is_private", "parents"]

OWN: Final = 0o700
"""Permissions that the owner of a folder needs to change it."""
_KEPT: Final = ("user.", "system.posix_acl_", "security.capability")
"""Extended attributes of the user; the system sets the others."""


def split(relative: bytes) -> tuple[bytes, bytes]:
    """Return a path's folder and last name."""
    folder, _, name = relative.rpartition(b"/")
    return folder, name


def parents(relative: bytes) -> list[bytes]:
    """Return the folders that lead to a path, the outermost first, the root left out."""
    parts = relative.split(b"/")[:-1]
    return [b"/".join(parts[: count + 1]) for count in range(len(parts))]


def is_plain(relative: bytes) -> bool:
    """Whether a path is below the root and normalized."""
    return bool(relative) and not any(part in {b"", b".", b".."} or b"\0" in part for part in relative.split(b"/"))


def is_private(relative: bytes) -> bool:
    """Whether a path belongs to the engine."""
    return relative == PRIVATE or relative.startswith(PRIVATE + b"/")


def children(handle: int, folder: bytes) -> list[tuple[bytes, os.stat_result]]:
    """Return the entries of an open folder, by name, without private ones and those that vanish meanwhile."""
    entries_found = []
    with os.scandir(handle) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            if not folder and name == PRIVATE:
                continue
            try:
                entries_found.append((name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                continue
    entries_found.sort(key=lambda child: child[0])
    return entries_found


def attributes(file: int | str) -> dict[str, str]:
    """Return the extended attributes of an open file or directory, in hexadecimal text."""
    try:
        names = os.listxattr(file)
        return {name: os.getxattr(file, name).hex() for name in sorted(names) if name.startswith(_KEPT)}
    except OSError:
        return {}  # the file system has none


class WorkspaceFiles:
    """The files of a workspace.

    Args:
        workspace: the workspace.
        listed_as: how its file system looks up names; see ``host.workspace.comparison``.
    """

    def __init__(self, workspace: Workspace, *, listed_as: ListedAs = listed_as) -> None:
        self.workspace = workspace
        self.listed_as = listed_as

    @contextmanager
    def folder(self, relative: bytes) -> Iterator[int]:
        """Open a folder.

        Raises:
            FileNotFoundError: the folder does not exist.
            NotADirectoryError: the path or a part of it is not a directory.
        """
        handle = os.open(b".", DIRECTORY, dir_fd=self.workspace.fd)
        try:
            for name in relative.split(b"/") if relative else ():
                below = os.open(name, DIRECTORY, dir_fd=handle)
                os.close(handle)
                handle = below
            yield handle
        finally:
            os.close(handle)

    def look(self, relative: bytes) -> os.stat_result | None:
        """Return the status of a path without following a link, or None."""
        folder, name = split(relative)
        try:
            with self.folder(folder) as handle:
                return os.stat(name or b".", dir_fd=handle, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def walk(self, relative: bytes, enters: Callable[[bytes], bool]) -> Iterator[bytes]:
        """Yield everything below a folder, folders before their content; nothing for a missing folder.

        Args:
            relative: the folder.
            enters: whether what is below a folder is yielded; the folder itself is.
        """
        pending = [relative]
        while pending:
            folder = pending.pop()
            try:
                with self.folder(folder) as handle:
                    entries = children(handle, folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            yield from (join(folder, name) for name, _ in entries)
            below = (join(folder, name) for name, seen in reversed(entries) if stat.S_ISDIR(seen.st_mode))
            pending.extend(filter(enters, below))

    def places(self, resource: Resource) -> list[bytes]:
        """Return the paths of a resource: one, or several where names differ only in ignored ways.

        Raises:
            RefusedError: ``LINK_OUT_OF_WORKSPACE`` for a resource that a link leads out of the workspace,
                ``PRIVATE_PATH``.
        """
        paths = [self._resolved(place, resource) for place in self.spellings(resource)]
        return sorted(set(paths))

    def spellings(self, resource: Resource) -> list[bytes]:
        """Return a resource's path, and the paths of other spellings where differences are ignored."""
        path = self.workspace.path_of(resource)
        if self.workspace.names.is_byte_wise or not path:
            return [path]
        paths = [b""]
        for name in path.split(b"/"):
            paths = [join(folder, spelled) for folder in paths for spelled in self._spelled(folder, name)]
        return paths

    def _spelled(self, folder: bytes, name: bytes) -> list[bytes]:
        key = self.workspace.names.key
        wanted = key(name_of(name))
        try:
            with self.folder(folder) as handle:
                names = [os.fsencode(listed) for listed in os.listdir(handle)]
        except (FileNotFoundError, NotADirectoryError):
            names = []
        return [listed for listed in names if key(name_of(listed)) == wanted] or [name]

    def _resolved(self, place: bytes, resource: Resource) -> bytes:
        path = self.workspace.relative(join(self.workspace.root_bytes, place)) if place else place
        if path is None:
            raise RefusedError(
                ErrorCode.LINK_OUT_OF_WORKSPACE,
                f"{resource.text} leads out of the workspace through a link and cannot be saved or restored; "
                "name a path inside the workspace, or remove the link.",
                resource=resource.text,
            )
        if is_private(path):
            raise RefusedError(
                ErrorCode.PRIVATE_PATH,
                f"{resource.text} belongs to the engine; remove it from the manifest.",
                resource=resource.text,
            )
        return path


def set_mode(handle: int, name: bytes, mode: int) -> None:
    """Set the mode of an entry of an open folder without following a link."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
    try:
        if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
            os.chmod(f"/proc/self/fd/{descriptor}", mode)
    finally:
        os.close(descriptor)


def widen(files: WorkspaceFiles, folder: bytes) -> bool:
    """Grant the owner access to a folder whose mode denies it; return whether the mode was changed."""
    seen = files.look(folder)
    if seen is None or not stat.S_ISDIR(seen.st_mode) or seen.st_mode & OWN == OWN:
        return False
    above, name = split(folder)
    with files.folder(above) as handle:
        set_mode(handle, name or b".", stat.S_IMODE(seen.st_mode) | OWN)
    return True


def widen_all(files: WorkspaceFiles, place: bytes) -> None:
    """Grant the owner access to the parents of a path, and to the folders below it."""
    for folder in (b"", *parents(place), place):
        widen(files, folder)
    pending = [place]
    while pending:
        folder = pending.pop()
        try:
            with files.folder(folder) as handle:
                below = [join(folder, name) for name, seen in children(handle, folder) if stat.S_ISDIR(seen.st_mode)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        for subfolder in below:
            widen(files, subfolder)
        pending += below


def remove_tree(handle: int, name: bytes) -> None:
    """Delete an entry of an open folder with everything below; links are deleted and never followed.

    Raises:
        OSError: something cannot be deleted.
    """
    if not _is_folder_left(handle, name):
        return
    with FolderChain(handle) as chain:
        pending = [[name]]
        while pending:
            if pending[-1]:
                folder = pending[-1].pop()
                if _is_folder_left(chain.end(), folder):
                    _enter(chain, folder)
                    pending.append(_emptied_of_files(chain.end()))
            else:
                pending.pop()
                if pending:
                    removed = chain.pop()
                    os.rmdir(removed, dir_fd=chain.end())


def _is_folder_left(folder: int, name: bytes) -> bool:
    """Delete an entry that is no folder; return whether it is one."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    except (IsADirectoryError, PermissionError):
        return True
    return False


def _enter(chain: FolderChain, name: bytes) -> None:
    """Enter a folder of the current one, and grant the owner access to it."""
    above = chain.end()
    status = chain.push(name)
    if status.st_mode & OWN != OWN and status.st_uid == os.geteuid():
        set_mode(above, name, stat.S_IMODE(status.st_mode) | OWN)


def _emptied_of_files(folder: int) -> list[bytes]:
    """Delete what is no folder in an open one, and return the names of the folders."""
    inside = os.open(b".", DIRECTORY, dir_fd=folder)
    try:
        below = []
        for child, seen in children(inside, b"/"):
            if stat.S_ISDIR(seen.st_mode):
                below.append(child)
            else:
                os.unlink(child, dir_fd=inside)
        return below
    finally:
        os.close(inside)
