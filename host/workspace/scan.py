"""The content of a workspace before and after: what a session did that nobody saw it do.

``take`` looks at every entry and hashes every file; ``differences`` compares two such looks. A cache spares the
hashing of files that are as they were: same size, times, inode and device. The kernel sets the time of change
(ctime) at each write and lets nobody choose it, so a write cannot hide by setting the other times back; but two
writes within one tick of the clock leave the same time. What was changed in or after the tick in which a look began
is therefore hashed again at the next one (the rule for "racily clean" entries of git's index).
What the cache cannot notice is a program that began to write through a memory mapping before a look, and goes on
after it: the kernel sets no new time for that.
Source: design section 8; KO-5.2.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from host.workspace.names import name_of
from host.workspace.root import Workspace
from host.workspace.safe import CHUNK, Kind, exists, kind_of
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.private_files import open_private

__all__ = ["DifferenceKind", "EntryDifference", "Scan", "Stamp", "differences", "take"]

DifferenceKind = Literal["created", "changed", "deleted", "mode", "touched"]

_FORMAT: Final = b"world-protocol scan cache 1\n"
_DIGEST: Final = 32
_TRIES: Final = 8
_BECAME_ANOTHER: Final = {errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ESTALE}
"""What the system says of an entry that is no longer the kind of entry that was looked at."""
_READING: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


_SPARSE_BYTES: Final = 64 << 20
"""Files larger than this are digested by their data alone, where most of them is holes."""

_Known = tuple[int, int, int, int, int, bytes]
"""Size, mtime, ctime, inode, device, digest."""


class Stamp(NamedTuple):
    """What one entry was.

    Args:
        kind: file, dir, link or other.
        mode: permission bits, set-id and sticky ones included.
        uid: of its owner.
        gid: of its group.
        size: in bytes.
        mtime_ns: when its content was said to have changed, in nanoseconds since 1970.
        ctime_ns: when anything about it changed, by the kernel.
        ino: inode.
        dev: device.
        content: SHA-256 of a file's bytes, where a link leads, which device or socket it is; None for a file that
            may not be read and for a folder.
    """

    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int
    dev: int
    content: bytes | None

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of a file's bytes in hex, None for everything else."""
        return self.content.hex() if self.kind == "file" and self.content is not None else None


class Scan(Mapping[bytes, Stamp]):
    """One look at a workspace: stamps by path below the root, the root itself at ``b""``; immutable."""

    __slots__ = ("_stamps", "certain", "hashed", "unreadable")

    def __init__(
        self,
        stamps: Mapping[bytes, Stamp],
        *,
        hashed: int = 0,
        unreadable: tuple[bytes, ...] = (),
        certain: Mapping[bytes, _Known] | None = None,
    ) -> None:
        """Hold what a look found.

        Args:
            stamps: by path below the root.
            hashed: how many files were read; the others were known.
            unreadable: files that may not be read and folders that may not be listed.
            certain: what the next look may believe without reading.
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


@dataclass(frozen=True, slots=True)
class EntryDifference:
    """What became of one entry between two looks.

    Args:
        kind: ``created``; ``deleted``; ``changed``: other bytes, another target, or another kind of entry; ``mode``:
            permissions or owner alone; ``touched``: written, replaced or linked, yet with nothing to show for it.
        relative: its path below the root.
        before: its stamp at the first look, None if it was not there.
        after: its stamp at the second look, None if it is not there.
    """

    kind: DifferenceKind
    relative: bytes
    before: Stamp | None
    after: Stamp | None


def take(
    workspace: Workspace,
    *,
    ignore: Callable[[bytes], bool] | None = None,
    cache: Path | None,
    known: Scan | None = None,
    progress: Callable[[int], None] | None = None,
) -> Scan:
    """Look at everything in a workspace but the engine's own folder; no link is followed.

    Args:
        workspace: where.
        ignore: tells of a path below the root whether to leave it out, with everything below it.
        cache: a file of the last look, read where it is sound and written anew; None hashes everything. It must stand
            where agents cannot write.
        known: an earlier look of this process, which is believed in place of what the cache file says by now.
        progress: told after each folder how many entries were looked at.

    Raises:
        OSError: a file or folder could not be read for another reason than permissions.
    """
    look = _Look(_Cache(cache, None if known is None else known.certain))
    with workspace.parent(b"") as (root, name):
        look.add(b"", os.stat(name, dir_fd=root), root, name)
    for path, folder, found in workspace.folders(ignore=ignore, unreadable=look.cannot_list):
        for entry in found:
            look.add(path + b"/" + entry.name if path else entry.name, entry.stat, folder, entry.name)
        if progress is not None:
            progress(len(look.stamps))
    certain = look.cache.write(look.stamps)
    return Scan(look.stamps, hashed=look.hashed, unreadable=tuple(look.unreadable), certain=certain)


def differences(
    before: Mapping[bytes, Stamp], after: Mapping[bytes, Stamp], names: NameComparison = BYTE_WISE
) -> list[EntryDifference]:
    """Return what differs between two looks, sorted by path.

    A folder whose times tell only that entries were made, removed or replaced in it does not differ, for those tell
    it themselves; and the root is compared by kind and permissions alone. An entry that went and one that came are one
    that changed where their names are one, and no other entry has that name.

    Args:
        before: the first look.
        after: the second.
        names: which differences of names are ignored.
    """
    respelled = {} if names.is_byte_wise else _respelled(before, after, names)
    before = {respelled.get(path, path): was for path, was in before.items()}
    others = {now for was, now in respelled.items() if was.rpartition(b"/")[2] != now.rpartition(b"/")[2]}
    found = [EntryDifference("deleted", path, was, None) for path, was in before.items() if path not in after]
    folders = []
    for path, now in after.items():
        was = before.get(path)
        if was == now and path not in others:
            continue
        kind = "changed" if path in others else _kind(was, now)
        if kind == "touched" and now.kind == "dir":
            folders.append(EntryDifference(kind, path, was, now))
        else:
            found.append(EntryDifference(kind, path, was, now))
    explained = {_folder_of(each.relative) for each in found if _is_other_entry(each)}
    explained |= {_folder_of(each.relative) for each in folders if _is_other_entry(each)}
    found += [each for each in folders if each.relative and each.relative not in explained]
    return sorted(found, key=lambda each: each.relative)


def _respelled(
    before: Mapping[bytes, Stamp], after: Mapping[bytes, Stamp], names: NameComparison
) -> dict[bytes, bytes]:
    """Return the paths of the first look that stand under another spelling at the second, with that spelling."""
    gone, come = _alone(before, names), _alone(after, names)
    both = ((gone[key], come[key]) for key in gone.keys() & come.keys())
    return {was: now for was, now in both if was != now}


def _alone(paths: Iterable[bytes], names: NameComparison) -> dict[str, bytes]:
    """Return the paths by what they are compared by, without those that share it."""
    found: dict[str, list[bytes]] = defaultdict(list)
    for path in paths:
        found[names.key(name_of(path))].append(path)
    return {key: same[0] for key, same in found.items() if len(same) == 1}


def _kind(was: Stamp | None, now: Stamp) -> DifferenceKind:
    if was is None:
        return "created"
    if was.kind != now.kind or was.content != now.content:
        return "changed"
    unknown = now.content is None and now.kind == "file"
    if unknown and (was.size, was.mtime_ns, was.ino) != (now.size, now.mtime_ns, now.ino):
        return "changed"
    return "mode" if (was.mode, was.uid, was.gid) != (now.mode, now.uid, now.gid) else "touched"


def _is_other_entry(each: EntryDifference) -> bool:
    """Tell whether a name came, went, or stands for another inode, which its folder's times show."""
    if each.before is None or each.after is None:
        return True
    return (each.before.dev, each.before.ino) != (each.after.dev, each.after.ino)


def _folder_of(relative: bytes) -> bytes:
    return relative.rpartition(b"/")[0]


class _Look:
    """One look while it is taken."""

    def __init__(self, cache: _Cache) -> None:
        self.cache = cache
        self.stamps: dict[bytes, Stamp] = {}
        self.unreadable: list[bytes] = []
        self.hashed = 0

    def add(self, path: bytes, seen: os.stat_result, folder: int, name: bytes) -> None:
        """Take the stamp of an entry of an open folder; what vanished is left out."""
        known = self.cache.digest(path, seen)
        if known is not None:  # nearly every entry of nearly every look
            self.stamps[path] = _stamp("file", seen, known)
            return
        for last in (False,) * (_TRIES - 1) + (True,):
            try:
                self.stamps[path] = self._stamp(path, seen, folder, name)
                return
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in _BECAME_ANOTHER:
                    raise
                if last:  # it never stands still, so nobody can tell what it holds
                    self.unreadable.append(path)
                    self.stamps[path] = _stamp(kind_of(seen.st_mode), seen, None)
                    return
            again = exists(name, folder)
            if again is None:
                return
            seen = again

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
        return _stamp(kind, seen, content)

    def cannot_list(self, path: bytes, _: OSError) -> None:
        """Remember a folder whose inside nobody can tell about."""
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
            return _content(source)
        finally:
            os.close(source)


def _stamp(kind: Kind, seen: os.stat_result, content: bytes | None) -> Stamp:
    return Stamp._make(
        (
            kind,
            stat.S_IMODE(seen.st_mode),
            seen.st_uid,
            seen.st_gid,
            seen.st_size,
            seen.st_mtime_ns,
            seen.st_ctime_ns,
            seen.st_ino,
            seen.st_dev,
            content,
        )
    )


def _is_mostly_holes(seen: os.stat_result) -> bool:
    return seen.st_size > _SPARSE_BYTES and seen.st_blocks * 512 < seen.st_size // 2


def _plain(source: int, seen: os.stat_result) -> Any:
    digest = hashlib.sha256()
    os.lseek(source, 0, os.SEEK_SET)
    while piece := os.read(source, min(seen.st_size + 1, CHUNK)):
        digest.update(piece)
    return digest


def _sparse(source: int, seen: os.stat_result) -> Any:
    """Digest a file of holes by where its data are: to read 300 GB of nothing would take an hour."""
    digest = hashlib.sha256(b"sparse %d" % seen.st_size)
    place = 0
    while place < seen.st_size:
        try:
            start = os.lseek(source, place, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # no data up to the end
                raise
            break
        place = os.lseek(source, start, os.SEEK_HOLE)
        digest.update(b"at %d, %d:" % (start, place - start))
        os.lseek(source, start, os.SEEK_SET)
        left = place - start
        while left and (piece := os.read(source, min(left, CHUNK))):
            digest.update(piece)
            left -= len(piece)
    return digest


def _content(source: int) -> tuple[os.stat_result, bytes]:
    """Return the stat and SHA-256 of a file, of one moment unless somebody never stops writing."""
    seen = os.fstat(source)
    for _ in range(_TRIES):
        before = seen
        digest = _sparse(source, before) if _is_mostly_holes(before) else _plain(source, before)
        seen = os.fstat(source)
        if (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns) == (
            before.st_size,
            before.st_mtime_ns,
            before.st_ctime_ns,
        ):
            break
    return seen, digest.digest()


class _Cache:
    """The digests of the last look, for files that are as they were."""

    def __init__(self, place: Path | None, believed: Mapping[bytes, _Known] | None = None) -> None:
        self._place = place
        self._known: Mapping[bytes, _Known] = believed or {}
        self._began: os.stat_result | None = None
        if place is None:
            return
        with contextlib.suppress(OSError):  # where no cache can be, everything is hashed
            place.parent.mkdir(parents=True, exist_ok=True)
            self._began = _now_there(place)
        if believed is None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                self._known = _read(place)

    def digest(self, path: bytes, seen: os.stat_result) -> bytes | None:
        """Return what a file holds, None where that is not certain, and for everything else than a file."""
        known = self._known.get(path)
        if known is None or not stat.S_ISREG(seen.st_mode):
            return None
        size, mtime, ctime, ino, dev, content = known
        is_same = (
            ctime == seen.st_ctime_ns
            and mtime == seen.st_mtime_ns
            and size == seen.st_size
            and ino == seen.st_ino
            and dev == seen.st_dev
        )
        return content if is_same else None

    def write(self, stamps: Mapping[bytes, Stamp]) -> Mapping[bytes, _Known]:
        """Keep what will still be certain at the next look; a cache that cannot be written is not worth an error."""
        if self._place is None or self._began is None:
            return {}
        # Another device has a clock of its own, so nothing is certain about when its files changed.
        began, device = self._began.st_mtime_ns, self._began.st_dev
        known = {
            path: (size, mtime, ctime, ino, dev, content)
            for path, (kind, _, _, _, size, mtime, ctime, ino, dev, content) in stamps.items()
            if kind == "file" and content and dev == device and mtime < began and ctime < began
        }
        if known == self._known:
            return known
        body = msgspec.msgpack.encode(known)
        beside = self._place.with_name(f"{self._place.name}.{secrets.token_hex(8)}")
        with contextlib.suppress(OSError):
            try:
                with open_private(beside) as file:
                    file.write(_FORMAT + hashlib.sha256(body).digest() + body)
                beside.replace(self._place)
            finally:
                beside.unlink(missing_ok=True)
        return known


def _now_there(place: Path) -> os.stat_result:
    """Return the stat of a file made this moment, whose times are by the clock of its file system."""
    fresh = place.with_name(f"{place.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)
    finally:
        fresh.unlink(missing_ok=True)


def _read(place: Path) -> dict[bytes, _Known]:
    """Return the recorded digests, nothing where the file is not as it was written."""
    data = place.read_bytes()
    head = len(_FORMAT) + _DIGEST
    body = memoryview(data)[head:]
    if data[:head] != _FORMAT + hashlib.sha256(body).digest():
        return {}
    return msgspec.msgpack.decode(body, type=dict[bytes, _Known])
