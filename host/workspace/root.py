"""The workspace itself: a folder whose inside can be worked on without ever touching its outside.

Rules, each of them against somebody who swaps folders for links while we work:

- every step down is an ``openat`` with ``O_NOFOLLOW`` from the handle of the folder above, never a path;
- a symbolic link is followed by reading it and walking its names from the handle where it stands, as long as it
  stays below the root; an absolute link, and one that leads out, is refused;
- a file is written beside its name and renamed into place, so a file that has a second name elsewhere is replaced
  and never written through;
- ``.klock`` at the root belongs to the engine and cannot be reached.

Source: design section 8, "Path safety".
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from host.workspace.names import name_of, path_of
from host.workspace.path_resolution import MAX_LINKS, locate, real_place
from host.workspace.safe import (
    FolderEntry,
    WalkEntry,
    entries,
    exists,
    open_folder,
    open_own,
    rename_new,
    replace_file,
    sync_folder,
    write_all,
)
from host.workspace.tree_walk import Trail, remove_all
from world.errors import RefusedError
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import canonical_resource

__all__ = ["IGNORE", "PRIVATE", "Workspace"]

PRIVATE: Final = b".klock"
"""The engine's own folder at the root."""
IGNORE: Final = b".gitignore"
"""A file in it that keeps it out of git, and that git may read."""
_CHUNK: Final = 1 << 20
_ANY_LENGTH: Final = 1 << 30
"""What stands on the disk has a name, however long; only manifests are held to lengths."""
_Entries = list[FolderEntry]  # inside the class, list is a method
StrPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class Workspace:
    """A folder that agents see as ``FILE:/``; safe to use from several threads.

    Args of the operations: ``relative`` is a path below the root in bytes, ``b""`` the root itself. Errors of the
    operating system pass through as OSError (FileNotFoundError, PermissionError, ...); besides, every operation
    refuses ``LINK_OUT_OF_WORKSPACE``, ``OUTSIDE_WORKSPACE`` and ``PRIVATE_PATH``.
    """

    def __init__(self, root: str | Path, *, names: NameComparison = BYTE_WISE) -> None:
        """Open a workspace.

        Args:
            root: an existing folder.
            names: which differences of names are ignored; ``names`` may be set anew at any time.

        Raises:
            RefusedError: ``WORKSPACE_MISSING``, ``NOT_A_FOLDER``.
        """
        real = os.path.realpath(os.fsencode(root))
        shown = os.fsdecode(real)
        try:
            self.fd = os.open(real, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise RefusedError(
                "WORKSPACE_MISSING", f"There is no folder {shown!r}; create it or name another.", path=shown
            ) from None
        except NotADirectoryError:
            raise RefusedError(
                "NOT_A_FOLDER", f"{shown!r} is no folder; name the folder to work in.", path=shown
            ) from None
        self.root_bytes: bytes = real
        self.root = Path(shown)
        self.private = self.root / os.fsdecode(PRIVATE)
        self.names = names
        self._below = real if real.endswith(b"/") else real + b"/"

    def close(self) -> None:
        """Close the handle of the root; every later operation fails with OSError."""
        # The number is forgotten first: another file may get it, and must not be taken for the root.
        folder, self.fd = self.fd, -1
        if folder >= 0:
            os.close(folder)

    def make_private(self) -> None:
        """Make the engine's own folder, kept out of git; where that cannot be, whoever needs it says so."""
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
        """Return where a path leads, below the root; None when it lies outside.

        Args:
            path: as a program names it; missing files are welcome.
            cwd: the absolute folder at which a relative path begins; None is the process's own.
            follow: whether a symbolic link as the last name is followed; those before it always are.
        """
        named = os.fsencode(path)
        if not named.startswith(b"/"):
            named = (os.getcwdb() if cwd is None else cwd) + b"/" + named
        place = real_place(named, self._below, follow=follow or named.endswith((b"/", b"/.")))
        if place == self.root_bytes:
            return b""
        return place[len(self._below) :] if place.startswith(self._below) else None

    def resource(
        self, path: StrPath, *, cwd: bytes | None = None, follow: bool = False, subtree: bool = False
    ) -> Resource | None:
        """Return the ``FILE:`` resource of a path, None when it lies outside; arguments as of ``relative``."""
        relative = self.relative(path, cwd=cwd, follow=follow)
        return None if relative is None else self.resource_at(relative, subtree=subtree)

    def resource_at(self, relative: bytes, *, subtree: bool = False) -> Resource:
        """Return the ``FILE:`` resource of a path below the root, with everything below it when ``subtree``."""
        name = name_of(relative)
        text = f"FILE:{name.removesuffix('/')}/*" if subtree else f"FILE:{name}"
        return _file_resource(text, names=self.names)

    def path_of(self, resource: Resource | str) -> bytes:
        """Return the path below the root that a resource names, without its ``/*``.

        Where a difference is ignored, the file that is there under any spelling is found; see ``paths_of``.

        Raises:
            RefusedError: ``NOT_A_FILE_RESOURCE``, ``OUTSIDE_WORKSPACE``; ``AMBIGUOUS_RESOURCE`` for a name that is not
                written as this workspace writes it.
        """
        path = self._spelled(resource)
        return path if self.names.is_byte_wise else self._as_it_stands(path)

    def paths_of(self, resource: Resource | str) -> list[bytes]:
        """Return every existing path that a resource names: one at most, but where a difference is ignored.

        Raises:
            RefusedError: as ``path_of``.
        """
        path = self._spelled(resource)
        if not self.names.is_byte_wise:
            return self._spellings(path)
        return [path] if not path or self.lstat(path) is not None else []

    def exists(self, resource: Resource | str) -> bool:
        """Tell whether something below the root has a resource's name, links followed; of a subtree its root counts.

        Raises:
            RefusedError: as ``path_of``.
        """
        path = self._spelled(resource)
        return any(self._leads_somewhere(one) for one in ([path] if self.names.is_byte_wise else self._spellings(path)))

    def _leads_somewhere(self, path: bytes) -> bool:
        try:
            place = self.relative(self._below + path, follow=True)
            found = None if place is None else self.lstat(place)
        except (OSError, RefusedError):  # what may not be looked at
            return False
        return found is not None and not stat.S_ISLNK(found.st_mode)  # what is left of a circle is a link

    def _spelled(self, resource: Resource | str) -> bytes:
        if isinstance(resource, str):
            resource = _file_resource(resource, names=self.names)
        if resource.type == "OUTSIDE":
            raise RefusedError(
                "OUTSIDE_WORKSPACE", f"{resource.text} lies outside of {self.root}.", resource=resource.text
            )
        if resource.type != "FILE":
            raise RefusedError(
                "NOT_A_FILE_RESOURCE", f"{resource.text} names no file; write FILE:/name.", resource=resource.text
            )
        return path_of(resource.key.removeprefix("FILE:"), names=self.names)

    def _as_it_stands(self, path: bytes) -> bytes:
        """Return a path in the spelling in which it exists, as far as it does."""
        done = b""
        for name in path.split(b"/") if path else ():
            found = self._like(done, name)
            done = _joined(done, name if name in found or not found else found[0])
        return done

    def _spellings(self, path: bytes) -> list[bytes]:
        """Return the existing paths that differ from this one at most in what is ignored, in order."""
        found = [b""]
        for name in path.split(b"/") if path else ():
            found = [_joined(folder, entry) for folder in found for entry in self._like(folder, name)]
        return found

    def _like(self, folder: bytes, name: bytes) -> list[bytes]:
        wanted = self.names.key(name_of(name))
        try:
            return [entry.name for entry in self.list(folder) if self.names.key(name_of(entry.name)) == wanted]
        except (OSError, RefusedError):  # what cannot be listed holds nothing that could be found
            return []

    # Operations

    @contextmanager
    def parent(self, relative: bytes, *, make: bool = False, follow: bool = False) -> Iterator[tuple[int, bytes]]:
        """Hold the open folder of a path's last name, and that name (``b"."`` for the root)."""
        folder, name = self._locate(relative, make=make, follow=follow)
        try:
            yield folder, name
        finally:
            os.close(folder)

    def open_parent(self, relative: bytes, *, make: bool = False) -> tuple[int, bytes]:
        """Return a handle of the folder of a path's last name, which the caller closes, and that name.

        Args:
            relative: below the root; a link as its last name is not followed.
            make: whether missing folders are made.
        """
        return self._locate(relative, make=make, follow=False)

    def open(self, relative: bytes, flags: int, mode: int = 0o666) -> int:
        """Open a file as ``os.open`` does and return its descriptor; a link as the last name is followed inside.

        A file with a second name is replaced by a copy of its own before it is opened for writing.
        """
        exclusive = flags & os.O_CREAT and flags & os.O_EXCL
        follow = not (flags & os.O_NOFOLLOW or exclusive)
        for _ in range(MAX_LINKS):
            with self.parent(relative, follow=follow) as (folder, name):
                try:
                    return open_own(name, folder, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
                except OSError as error:
                    # A link was put there since we looked: look again.
                    if error.errno != errno.ELOOP or not follow:
                        raise
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name_of(relative))

    def lstat(self, relative: bytes) -> os.stat_result | None:
        """Return the stat of a path, a link as its last name not followed; None where there is nothing."""
        try:
            with self.parent(relative) as (folder, name):
                return exists(name, folder)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, relative: bytes, *, limit: int | None = None) -> bytes:
        """Return a file's content.

        Args:
            relative: below the root.
            limit: bytes to read at most.

        Raises:
            RefusedError: ``NOT_A_REGULAR_FILE`` for a pipe, socket or device.
        """
        # Not to wait for somebody at the other end of a pipe before it is known for one.
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
        beside: bytes | None = None,
    ) -> None:
        """Give a file this content, at once and durably: a reader or a crash finds the old or the new one.

        Args:
            relative: below the root; a link as its last name is followed inside.
            data: the whole content, or pieces of it.
            mode: permission bits; None keeps those of the file, or gives a new one the usual ones.
            must: ``exist`` or ``not exist``, when only that will do (FileNotFoundError, FileExistsError).
            beside: the name under which the new file comes about; see ``host.workspace.safe.replace_file``.

        Raises:
            RefusedError: ``NOT_A_REGULAR_FILE`` where a pipe, socket or device has the name.
        """
        with self.parent(relative, follow=must != "not exist") as (folder, name):
            there = exists(name, folder)
            if there is None and must == "exist":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(relative))
            if there is not None and must == "not exist":
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(relative))
            if there is not None and stat.S_ISLNK(there.st_mode):
                there = None  # put there since we looked: it is replaced, not followed
            if there is not None:
                _check_regular(there, relative)
            replace_file(name, folder, data, mode=mode, like=there, new=must == "not exist", beside=beside)

    def append(self, relative: bytes, data: bytes | Iterable[bytes]) -> None:
        """Add to the end of a file, which is made where it is missing; durable when it returns.

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
        if before.st_size == 0:  # it may be new, so its name must last too
            with self.parent(relative, follow=True) as (folder, _):
                sync_folder(folder)

    def remove(self, relative: bytes) -> None:
        """Remove a file, a link itself, or an empty folder."""
        with self._named(relative) as (folder, name):
            try:
                os.unlink(name, dir_fd=folder)
            except (IsADirectoryError, PermissionError):
                there = exists(name, folder)
                if there is None or not stat.S_ISDIR(there.st_mode):
                    raise
                os.rmdir(name, dir_fd=folder)
            sync_folder(folder)

    def remove_tree(self, relative: bytes) -> None:
        """Remove whatever has this name, with everything below it; no link is followed."""
        with self._named(relative) as (folder, name):
            remove_all(name, folder)
            sync_folder(folder)

    def rename(self, old: bytes, new: bytes, *, replace: bool) -> None:
        """Rename a file, folder or link itself.

        Args:
            old: below the root.
            new: below the root, in an existing folder.
            replace: whether something may stand there already (FileExistsError otherwise).
        """
        with self._named(old) as (old_folder, old_name), self._named(new) as (new_folder, new_name):
            if replace:
                os.rename(old_name, new_name, src_dir_fd=old_folder, dst_dir_fd=new_folder)
            else:
                rename_new(old_name, old_folder, new_name, new_folder)
            sync_folder(new_folder)
            sync_folder(old_folder)

    def mkdir(self, relative: bytes, *, parents: bool = False) -> None:
        """Make a folder (FileExistsError where something is); ``parents`` makes the folders above it too."""
        with self.parent(relative, make=parents) as (folder, name):
            os.mkdir(name, dir_fd=folder)
            sync_folder(folder)

    def list(self, relative: bytes = b"") -> _Entries:
        """Return what a folder holds, sorted by name, without the engine's own folder."""
        with self._folder(relative) as folder:
            found = entries(folder)
            at_root = os.path.samestat(os.fstat(folder), os.fstat(self.fd))
            return [entry for entry in found if not (at_root and self._is_private(entry.name))]

    def walk(
        self, relative: bytes = b"", *, unreadable: Callable[[bytes, OSError], None] | None = None
    ) -> Iterator[WalkEntry]:
        """Yield everything below a folder, each folder before what it holds; no link is followed.

        What vanishes meanwhile is left out, and so is the engine's own folder.

        Args:
            relative: a folder; itself it is not yielded.
            unreadable: told of a folder that may not be listed, by its path; None raises the PermissionError.
        """
        for path, _, found in self.folders(relative, unreadable=unreadable):
            for entry in found:
                yield WalkEntry(_joined(path, entry.name), entry.stat)

    def folders(
        self,
        relative: bytes = b"",
        *,
        ignore: Callable[[bytes], bool] | None = None,
        unreadable: Callable[[bytes, OSError], None] | None = None,
    ) -> Iterator[tuple[bytes, int, _Entries]]:
        """Yield a folder and every folder below it: its path, a handle good until the next one, and its entries.

        Args:
            relative: the folder to begin with; a link to one inside is followed.
            ignore: tells of a path whether to leave it out, with everything below it.
            unreadable: as of ``walk``.
        """
        with self._folder(relative) as start, Trail(start) as trail:
            at_root = os.path.samestat(os.fstat(start), os.fstat(self.fd))
            pending = [(relative.strip(b"/"), b"", 0)]  # folders still to do: path, last name, how far down
            while pending:
                path, name, depth = pending.pop()
                while name and len(trail) >= depth:
                    trail.pop()
                try:
                    if name:
                        trail.push(name)
                    found = entries(trail.end())
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
                    found = [entry for entry in found if not self._is_private(entry.name)]
                if ignore is not None:
                    found = [entry for entry in found if not ignore(_joined(path, entry.name))]
                yield path, trail.end(), found
                below = [entry.name for entry in reversed(found) if entry.kind == "dir"]
                pending += [(_joined(path, entry), entry, depth + 1) for entry in below]

    # The way down

    @contextmanager
    def _folder(self, relative: bytes) -> Iterator[int]:
        """Hold a folder open; a link to one inside is followed."""
        with self.parent(relative, follow=True) as (above, name):
            folder = os.dup(above) if name == b"." else open_folder(name, above)
            try:
                yield folder
            finally:
                os.close(folder)

    @contextmanager
    def _named(self, relative: bytes) -> Iterator[tuple[int, bytes]]:
        """Hold a path's folder open, for what cannot be done to the root itself."""
        with self.parent(relative) as (folder, name):
            if name == b".":
                raise RefusedError(
                    "OUTSIDE_WORKSPACE", "The workspace's root itself can be neither removed nor renamed."
                )
            yield folder, name

    def _locate(self, relative: bytes, *, make: bool, follow: bool) -> tuple[int, bytes]:
        return locate(self.fd, relative, make=make, follow=follow, is_private=self._is_private)

    def _is_private(self, name: bytes) -> bool:
        if name == PRIVATE:
            return True
        if not self.names.is_byte_wise and self.names.key(name_of(name)) == "/.klock":
            return True
        if self.names.is_byte_wise and name.isascii() and name.lower() != PRIVATE:
            return False
        # A file system that ignores case may take further letters for the same: then it is the same folder.
        there, private = exists(name, self.fd), exists(PRIVATE, self.fd)
        return there is not None and private is not None and os.path.samestat(there, private)


def _joined(folder: bytes, name: bytes) -> bytes:
    return folder + b"/" + name if folder else name


def _file_resource(text: str, *, names: NameComparison) -> Resource:
    return canonical_resource(text, names=names, max_chars=_ANY_LENGTH, max_depth=_ANY_LENGTH)


def _check_regular(seen: os.stat_result, relative: bytes) -> None:
    shown = name_of(relative)
    if stat.S_ISDIR(seen.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
    if not stat.S_ISREG(seen.st_mode):
        raise RefusedError(
            "NOT_A_REGULAR_FILE", f"{shown} is a pipe, socket or device; only files have content here.", path=shown
        )
