"""The workspace as backups walk it: from directory handle to directory handle, and never through a link.

Whatever stands at a name is taken for what it is: a link in the place of a directory is a link, wherever it leads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from host.backups.area import DIRECTORY
from host.workspace.comparison import ListedAs, listed_as
from host.workspace.names import name_of
from host.workspace.root import PRIVATE, Workspace
from world.errors import RefusedError
from world.klis.resources.resource import Resource

__all__ = ["Ground", "children", "is_below", "is_private", "join", "parents"]

OWN: Final = 0o700
"""What the owner of a folder needs to work in it."""
_KEPT: Final = ("user.", "system.posix_acl_", "security.capability")
"""Extended attributes that are the user's own; the others are made by the system."""


def join(folder: bytes, name: bytes) -> bytes:
    """Return the path of a name in a folder."""
    return b"%s/%s" % (folder, name) if folder else name


def split(relative: bytes) -> tuple[bytes, bytes]:
    """Return a path's folder and last name."""
    folder, _, name = relative.rpartition(b"/")
    return folder, name


def parents(relative: bytes) -> list[bytes]:
    """Return the folders that lead to a path, the outermost first, the root left out."""
    parts = relative.split(b"/")[:-1]
    return [b"/".join(parts[: count + 1]) for count in range(len(parts))]


def is_below(relative: bytes, folder: bytes) -> bool:
    """Tell whether a path is in a folder, at any depth."""
    return relative != folder and (not folder or relative.startswith(folder + b"/"))


def is_plain(relative: bytes) -> bool:
    """Tell whether a path is one below the root, without detours."""
    return bool(relative) and not any(part in {b"", b".", b".."} or b"\0" in part for part in relative.split(b"/"))


def is_private(relative: bytes) -> bool:
    """Tell whether a path is the engine's own."""
    return relative == PRIVATE or relative.startswith(PRIVATE + b"/")


def children(handle: int, folder: bytes) -> list[tuple[bytes, os.stat_result]]:
    """Return what stands in an open folder, by name; what vanishes meanwhile and what is private is left out."""
    found = []
    with os.scandir(handle) as entries:
        for entry in entries:
            name = os.fsencode(entry.name)
            if not folder and name == PRIVATE:
                continue
            try:
                found.append((name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                continue
    found.sort(key=lambda child: child[0])
    return found


def attributes(file: int | str) -> dict[str, str]:
    """Return the extended attributes of an open file or directory, in hexadecimal text."""
    try:
        names = os.listxattr(file)
        return {name: os.getxattr(file, name).hex() for name in sorted(names) if name.startswith(_KEPT)}
    except OSError:
        return {}  # the file system has none


class Ground:
    """A workspace's files.

    Args:
        workspace: whose.
        listed_as: how its file system finds names; see ``host.workspace.comparison``.
    """

    def __init__(self, workspace: Workspace, *, listed_as: ListedAs = listed_as) -> None:
        self.workspace = workspace
        self.listed_as = listed_as

    @contextmanager
    def folder(self, relative: bytes) -> Iterator[int]:
        """Open a folder.

        Raises:
            FileNotFoundError: there is none.
            NotADirectoryError: something else stands there, or on the way.
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
        """Return what stands at a place, or nothing."""
        folder, name = split(relative)
        try:
            with self.folder(folder) as handle:
                return os.stat(name or b".", dir_fd=handle, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def walk(self, relative: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        """Yield everything below a folder, folders before what is in them; nothing where there is no folder."""
        waiting = [relative]
        while waiting:
            folder = waiting.pop()
            try:
                with self.folder(folder) as handle:
                    found = children(handle, folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for name, seen in found:
                yield join(folder, name), seen
            waiting.extend(join(folder, name) for name, seen in reversed(found) if stat.S_ISDIR(seen.st_mode))

    def places(self, resource: Resource) -> list[bytes]:
        """Return where a resource stands: one place, but several where names differ only by what is ignored.

        Raises:
            RefusedError: ``LINK_OUT_OF_WORKSPACE`` for a resource that a link takes out of the workspace,
                ``PRIVATE_PATH``.
        """
        found = [self._resolved(place, resource) for place in self.spellings(resource)]
        return sorted(set(found))

    def spellings(self, resource: Resource) -> list[bytes]:
        """Return a resource's path, and where differences are ignored the paths of all that are spelled otherwise."""
        told = self.workspace.path_of(resource)
        if self.workspace.names.is_byte_wise or not told:
            return [told]
        found = [b""]
        for name in told.split(b"/"):
            found = [join(folder, spelled) for folder in found for spelled in self._spelled(folder, name)]
        return found

    def _spelled(self, folder: bytes, name: bytes) -> list[bytes]:
        key = self.workspace.names.key
        wanted = key(name_of(name))
        try:
            with self.folder(folder) as handle:
                names = [os.fsencode(found) for found in os.listdir(handle)]
        except (FileNotFoundError, NotADirectoryError):
            names = []
        return [found for found in names if key(name_of(found)) == wanted] or [name]

    def _resolved(self, place: bytes, resource: Resource) -> bytes:
        found = self.workspace.relative(join(self.workspace.root_bytes, place)) if place else place
        if found is None:
            raise RefusedError(
                "LINK_OUT_OF_WORKSPACE",
                f"{resource.text} is reached by a link that leads out of the workspace, so it cannot be saved or "
                "restored; name a place inside, or remove the link.",
                resource=resource.text,
            )
        if is_private(found):
            raise RefusedError(
                "PRIVATE_PATH", f"{resource.text} is the engine's own folder; leave it out.", resource=resource.text
            )
        return found


def set_mode(handle: int, name: bytes, mode: int) -> None:
    """Set the mode of what stands at a name in an open folder, but not of where a link leads."""
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
    try:
        if not stat.S_ISLNK(os.fstat(found).st_mode):
            os.chmod(f"/proc/self/fd/{found}", mode)
    finally:
        os.close(found)


def widen(ground: Ground, folder: bytes) -> bool:
    """Let the owner use a folder whose mode forbids it; tell whether that was so."""
    seen = ground.look(folder)
    if seen is None or not stat.S_ISDIR(seen.st_mode) or seen.st_mode & OWN == OWN:
        return False
    above, name = split(folder)
    with ground.folder(above) as handle:
        set_mode(handle, name or b".", stat.S_IMODE(seen.st_mode) | OWN)
    return True


def widen_all(ground: Ground, place: bytes, *, subtree: bool) -> None:
    """Let the owner use the folders that lead to a place and, where it is a subtree, those below it."""
    for folder in (b"", *parents(place), place):
        widen(ground, folder)
    waiting = [place] if subtree else []
    while waiting:
        folder = waiting.pop()
        try:
            with ground.folder(folder) as handle:
                below = [join(folder, name) for name, seen in children(handle, folder) if stat.S_ISDIR(seen.st_mode)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        for found in below:
            widen(ground, found)
        waiting += below


def remove_tree(handle: int, name: bytes) -> None:
    """Remove what stands at a name in an open folder, with everything below; links are removed and never followed.

    Raises:
        OSError: something cannot be removed.
    """
    waiting: list[tuple[bytes, ...]] = [(name,)]
    while waiting:
        path = waiting[-1]
        folder = _open_chain(handle, path[:-1])
        try:
            below = _remove_one(folder, path[-1])
        finally:
            os.close(folder)
        if below is None:
            waiting.pop()
        else:
            waiting.extend((*path, found) for found in below)


def _open_chain(handle: int, names: Iterable[bytes]) -> int:
    here = os.open(b".", DIRECTORY, dir_fd=handle)
    try:
        for name in names:
            below = os.open(name, DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
    except BaseException:
        os.close(here)
        raise
    return here


def _remove_one(folder: int, name: bytes) -> list[bytes] | None:
    """Remove a file or empty folder; return the names of the folders that are in the way, once its files are gone."""
    try:
        os.unlink(name, dir_fd=folder)
        return None
    except FileNotFoundError:
        return None
    except (IsADirectoryError, PermissionError):
        pass
    try:
        inside = os.open(name, DIRECTORY, dir_fd=folder)
    except PermissionError:
        set_mode(folder, name, OWN)
        inside = os.open(name, DIRECTORY, dir_fd=folder)
    try:
        found = os.fstat(inside)
        if found.st_mode & OWN != OWN and found.st_uid == os.geteuid():
            os.fchmod(inside, found.st_mode | OWN)
        below = []
        for child, seen in children(inside, b"/"):
            if stat.S_ISDIR(seen.st_mode):
                below.append(child)
            else:
                os.unlink(child, dir_fd=inside)
    finally:
        os.close(inside)
    if below:
        return below
    os.rmdir(name, dir_fd=folder)
    return None
