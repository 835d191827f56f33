"""Scan of a workspace: its content before and after a session, to find unobserved changes.

``take`` reads every entry and hashes every file; ``host.workspace.differences`` compares two scans. A cache avoids
hashing unchanged files: same size, times, inode and device. The kernel sets the time of change
(ctime) at each write and no program can choose it, so a write cannot be hidden by setting the other times; but two
writes within one tick of the clock have the same time. A file changed in or after the tick in which a scan began
is therefore hashed again by the next one (the rule for "racily clean" entries of git's index).
The cache cannot recognize a program that began to write through a memory mapping before a scan and continues
after it: the kernel does not update the time then.
Source: design section 8; KO-5.2.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from host.workspace.bounds import check_bounds
from host.workspace.root import Workspace
from host.workspace.safe import exists, kind_of
from host.workspace.scan_cache import CachedDigest, ScanCache
from host.workspace.stamps import MAX_TRIES, Stamp, hash_content, stamp_of

__all__ = ["Scan", "take"]


_REPLACED: Final = {errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ESTALE}
"""Errors for an entry that was replaced by another kind since it was read."""
_READING: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Scan(Mapping[bytes, Stamp]):
    """One scan of a workspace: stamps by path below the root, the root itself at ``b""``; immutable."""

    __slots__ = ("_stamps", "certain", "hashed", "unreadable")

    def __init__(
        self,
        stamps: Mapping[bytes, Stamp],
        *,
        hashed: int = 0,
        unreadable: tuple[bytes, ...] = (),
        certain: Mapping[bytes, CachedDigest] | None = None,
    ) -> None:
        """Store the result of a scan.

        Args:
            stamps: by path below the root.
            hashed: number of files that were read; the others were cached.
            unreadable: files that may not be read and folders that may not be listed.
            certain: digests that the next scan may use without reading.
        """
        self.certain = certain or {}
        self._stamps = dict(stamps)
        self.hashed = hashed
        self.unreadable = unreadable

    def __getitem__(self, relative: bytes) -> Stamp:
        return self._stamps[relative]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stamps)

    def __len__(self) -> int:
        return len(self._stamps)


def take(
    workspace: Workspace,
    *,
    ignore: Callable[[bytes], bool] | None = None,
    cache: Path | None,
    known: Scan | None = None,
    progress: Callable[[int], None] | None = None,
) -> Scan:
    """Scan a workspace without the engine's own folder; no link is followed.

    Args:
        workspace: the workspace.
        ignore: whether to omit a path below the root, with everything below it.
        cache: file of the last scan, read where it is valid and rewritten; None hashes everything. Agents must not be
            able to write it.
        known: an earlier scan of this process, which is used instead of the cache file.
        progress: called after each folder with the number of entries read.

    Raises:
        OSError: a file or folder could not be read for another reason than permissions.
        RefusedError: ``WORKSPACE_TOO_LARGE``; see ``host.workspace.bounds``.
    """
    state = _ScanState(ScanCache(cache, None if known is None else known.certain))
    with workspace.parent(b"") as (root, name):
        state.add(b"", os.stat(name, dir_fd=root), root, name)
    for path, folder, results in workspace.folders(ignore=ignore, unreadable=state.cannot_list):
        check_bounds(path, len(state.stamps) + len(results))
        for entry in results:
            state.add(path + b"/" + entry.name if path else entry.name, entry.stat, folder, entry.name)
        if progress is not None:
            progress(len(state.stamps))
    certain = state.cache.write(state.stamps)
    return Scan(state.stamps, hashed=state.hashed, unreadable=tuple(state.unreadable), certain=certain)


class _ScanState:
    """State of a running scan."""

    def __init__(self, cache: ScanCache) -> None:
        self.cache = cache
        self.stamps: dict[bytes, Stamp] = {}
        self.unreadable: list[bytes] = []
        self.hashed = 0

    def add(self, path: bytes, seen: os.stat_result, folder: int, name: bytes) -> None:
        """Add the stamp of an entry of an open folder; a vanished entry is omitted."""
        digest = self.cache.digest(path, seen)
        if digest is not None:  # the common case
            self.stamps[path] = stamp_of("file", seen, digest)
            return
        for last in (False,) * (MAX_TRIES - 1) + (True,):
            try:
                self.stamps[path] = self._stamp(path, seen, folder, name)
                return
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in _REPLACED:
                    raise
                if last:  # it keeps changing, so its content is unknown
                    self.unreadable.append(path)
                    self.stamps[path] = stamp_of(kind_of(seen.st_mode), seen, None)
                    return
            current = exists(name, folder)
            if current is None:
                return
            seen = current

    def _stamp(self, path: bytes, seen: os.stat_result, folder: int, name: bytes) -> Stamp:
        kind = kind_of(seen.st_mode)
        content: bytes | None = None
        if kind == "file":
            content = self.cache.digest(path, seen)
            if content is None:
                seen, content = self._hash(path, seen, folder, name)
        elif kind == "link":
            content = os.readlink(name, dir_fd=folder)
        elif kind == "other":
            content = f"{stat.S_IFMT(seen.st_mode):o} {seen.st_rdev}".encode()
        return stamp_of(kind, seen, content)

    def cannot_list(self, path: bytes, _: OSError) -> None:
        """Record a folder whose content is unknown."""
        self.unreadable.append(path)

    def _hash(self, path: bytes, seen: os.stat_result, folder: int, name: bytes) -> tuple[os.stat_result, bytes | None]:
        try:
            source = os.open(name, _READING, dir_fd=folder)
        except PermissionError:
            self.unreadable.append(path)
            return seen, None
        try:
            if not stat.S_ISREG(os.fstat(source).st_mode):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), os.fsdecode(path))
            self.hashed += 1
            return hash_content(source)
        finally:
            os.close(source)
