"""The workspace: a folder whose content can be changed without ever touching anything outside it.

Rules, each of them against a process that concurrently replaces folders by links:

- every step down is an ``openat`` with ``O_NOFOLLOW`` from the handle of the parent folder, never a path;
- a symbolic link is followed by reading it and resolving its names from the handle of its folder, as long as it
  stays below the root; an absolute link, and one that leads out, is refused;
- a file is written under a temporary name and renamed, so a file that has a second name elsewhere is replaced
  and never written through;
- ``.klock`` at the root belongs to the engine and cannot be accessed.

Source: design section 8, "Path safety".
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from host.workspace.folder_access import FolderAccess, join
from host.workspace.names import name_of, path_of
from host.workspace.path_resolution import resolve_path
from host.workspace.safe import exists
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import canonical_resource

__all__ = ["IGNORE", "PRIVATE", "Workspace"]

PRIVATE: Final = b".klock"
"""The engine's own folder at the root."""
IGNORE: Final = b".gitignore"
"""A file in it that excludes it from git, and that git may read."""
_ANY_LENGTH: Final = 1 << 30
"""Existing files may have names of any length; only manifests are limited."""
StrPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class Workspace(FolderAccess):
    """A folder that agents see as ``FILE:/``; safe to use from several threads.

    Args of the operations: ``relative`` is a path below the root in bytes, ``b""`` the root itself. Errors of the
    operating system pass through as OSError (FileNotFoundError, PermissionError, ...); besides, every operation
    raises ``LINK_OUT_OF_WORKSPACE``, ``OUTSIDE_WORKSPACE`` and ``PRIVATE_PATH``.
    """

    def __init__(self, root: str | Path, *, names: NameComparison = BYTE_WISE) -> None:
        """Open a workspace.

        Args:
            root: an existing folder.
            names: which differences of names are ignored; ``names`` may be changed at any time.

        Raises:
            RefusedError: ``WORKSPACE_MISSING``, ``NOT_A_FOLDER``.
        """
        real = os.path.realpath(os.fsencode(root))
        shown = os.fsdecode(real)
        try:
            self.fd = os.open(real, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise RefusedError(
                ErrorCode.WORKSPACE_MISSING, f"Folder {shown!r} does not exist; create it or name another.", path=shown
            ) from None
        except NotADirectoryError:
            raise RefusedError(
                ErrorCode.NOT_A_FOLDER, f"{shown!r} is not a folder; name the folder to work in.", path=shown
            ) from None
        self.root_bytes: bytes = real
        self.root = Path(shown)
        self.private = self.root / os.fsdecode(PRIVATE)
        self.names = names
        self._below = real if real.endswith(b"/") else real + b"/"

    def close(self) -> None:
        """Close the handle of the root; later operations fail with OSError."""
        # The number is cleared first: it may be reused by another file, which must not be taken for the root.
        folder, self.fd = self.fd, -1
        if folder >= 0:
            os.close(folder)

    def make_private(self) -> None:
        """Create the engine's own folder, excluded from git; failures are left to later operations."""
        with suppress(OSError):
            with suppress(FileExistsError):
                os.mkdir(PRIVATE, 0o700, dir_fd=self.fd)
            folder = os.open(PRIVATE, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.open(IGNORE, flags, 0o600, dir_fd=folder)
                try:
                    os.write(file, b"*\n")
                finally:
                    os.close(file)
            finally:
                os.close(folder)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Workspace({str(self.root)!r})"

    # Names

    def relative(self, path: StrPath, *, cwd: bytes | None = None, follow: bool = False) -> bytes | None:
        """Resolve a path to a path below the root; None when it is outside.

        Args:
            path: any path; it need not exist.
            cwd: the absolute folder of a relative path; None is that of the process.
            follow: whether a symbolic link as the last name is followed; earlier links always are.
        """
        named = os.fsencode(path)
        if not named.startswith(b"/"):
            named = (os.getcwdb() if cwd is None else cwd) + b"/" + named
        place = resolve_path(named, self._below, follow=follow or named.endswith((b"/", b"/.")))
        if place == self.root_bytes:
            return b""
        return place[len(self._below) :] if place.startswith(self._below) else None

    def resource(
        self, path: StrPath, *, cwd: bytes | None = None, follow: bool = False, subtree: bool = False
    ) -> Resource | None:
        """Return the ``FILE:`` resource of a path, None when it is outside; arguments as of ``relative``."""
        relative = self.relative(path, cwd=cwd, follow=follow)
        return None if relative is None else self.resource_at(relative, subtree=subtree)

    def resource_at(self, relative: bytes, *, subtree: bool = False) -> Resource:
        """Return the ``FILE:`` resource of a path below the root, with everything below it when ``subtree``."""
        name = name_of(relative)
        text = f"FILE:{name.removesuffix('/')}/*" if subtree else f"FILE:{name}"
        return _file_resource(text, names=self.names)

    def path_of(self, resource: Resource | str) -> bytes:
        """Return the path below the root of a resource, without its ``/*``.

        Where a difference is ignored, the existing file with any spelling is found.

        Raises:
            RefusedError: ``NOT_A_FILE_RESOURCE``, ``OUTSIDE_WORKSPACE``; ``AMBIGUOUS_RESOURCE`` for a name that is not
                in this workspace's canonical form.
        """
        path = self._parse_name(resource)
        return path if self.names.is_byte_wise else self._existing_spelling(path)

    def exists(self, resource: Resource | str) -> bool:
        """Whether a resource exists below the root, links followed; of a subtree its root counts.

        Raises:
            RefusedError: as ``path_of``.
        """
        path = self._parse_name(resource)
        paths = [path] if self.names.is_byte_wise else self._spellings(path)
        return any(self._is_target_existing(one) for one in paths)

    def _is_target_existing(self, path: bytes) -> bool:
        try:
            place = self.relative(self._below + path, follow=True)
            status = None if place is None else self.lstat(place)
        except (OSError, RefusedError):  # not readable
            return False
        return status is not None and not stat.S_ISLNK(status.st_mode)  # a link that remains is part of a cycle

    def _parse_name(self, resource: Resource | str) -> bytes:
        if isinstance(resource, str):
            resource = _file_resource(resource, names=self.names)
        if resource.type == "OUTSIDE":
            raise RefusedError(
                ErrorCode.OUTSIDE_WORKSPACE,
                f"{resource.text} is outside of {self.root}; name a path inside it.",
                resource=resource.text,
            )
        if resource.type != "FILE":
            raise RefusedError(
                ErrorCode.NOT_A_FILE_RESOURCE,
                f"{resource.text} does not name a file; write FILE:/name.",
                resource=resource.text,
            )
        return path_of(resource.key.removeprefix("FILE:"), names=self.names)

    def _existing_spelling(self, path: bytes) -> bytes:
        """Return a path with existing names in their existing spelling."""
        done = b""
        for name in path.split(b"/") if path else ():
            matches = self._matching_names(done, name)
            done = join(done, name if name in matches or not matches else matches[0])
        return done

    def _spellings(self, path: bytes) -> list[bytes]:
        """Return the existing paths that differ from this one only in ignored ways, in order."""
        matches = [b""]
        for name in path.split(b"/") if path else ():
            matches = [join(folder, entry) for folder in matches for entry in self._matching_names(folder, name)]
        return matches

    def _matching_names(self, folder: bytes, name: bytes) -> list[bytes]:
        wanted = self.names.key(name_of(name))
        try:
            return [entry.name for entry in self.list(folder) if self.names.key(name_of(entry.name)) == wanted]
        except (OSError, RefusedError):  # not listable
            return []

    def _is_private(self, name: bytes) -> bool:
        if name == PRIVATE:
            return True
        if not self.names.is_byte_wise and self.names.key(name_of(name)) == "/.klock":
            return True
        if self.names.is_byte_wise and name.isascii() and name.lower() != PRIVATE:
            return False
        # A file system that ignores case may treat further letters as equal: then it is the same folder.
        status, private = exists(name, self.fd), exists(PRIVATE, self.fd)
        return status is not None and private is not None and os.path.samestat(status, private)


def _file_resource(text: str, *, names: NameComparison) -> Resource:
    return canonical_resource(text, names=names, max_chars=_ANY_LENGTH, max_depth=_ANY_LENGTH)
