"""Checks of archives: each by itself, in a row, and against the log that they are of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log import EventLog, LoggedEvent, TreeHead
from world.log.merkle import CHUNK_LEAVES, HASH_BYTES, Chunk, Frontier
from worldprotocol.export.archive.manifest import EVENTS, TILES, ArchiveFolder, bad_archive, file_of, hash_of
from worldprotocol.export.jsonl_lines import ExportHeader, Hidden, Progress, read_items
from worldprotocol.export.proofs.checkpoint import Checkpoint, Trusted, read_checkpoint
from worldprotocol.export.proofs.receipt import event_text
from worldprotocol.export.proofs.tiles import MAX_ENTRY_BYTES, Tile

__all__ = ["CHECKPOINT", "bundle_path", "check_archive", "check_row", "checkpoint_in", "head_in", "tile_path"]

CHECKPOINT: Final = f"{TILES}/checkpoint"


def tile_path(level: int, tile: Tile) -> str:
    """Return the path of a tile in an archive."""
    return f"{TILES}/tile/{level}/{tile.path}"


def bundle_path(tile: Tile) -> str:
    """Return the path of a bundle of entries in an archive."""
    return f"{TILES}/tile/entries/{tile.path}"


def check_archive(archive: ArchiveFolder, progress: Progress | None = None) -> TreeHead:
    """Check that an archive is whole: its files, the hash of each event, each tree head, the tiles and the bundles.

    Tiles above level 1 are compared with the hashes in the manifest only, since they also cover earlier stretches.

    Args:
        archive: the archive.
        progress: called with the number of checked events and their total.

    Returns:
        The tree head at its last event, computed from the events and the tree before them.

    Raises:
        RefusedError: ``BAD_ARCHIVE`` with what is wrong first.
    """
    for one in archive.manifest.files:
        try:
            found = hash_of(archive.folder / one.path)
        except OSError as error:
            raise bad_archive(archive.folder, f"{one.path} cannot be read: {error.strerror}") from None
        if found != (one.size, one.sha256):
            raise bad_archive(archive.folder, f"{one.path} is not the file that its manifest names")
    frontier = _Pass(archive).over(progress)
    head = TreeHead(frontier.size, frontier.root())
    if head != archive.manifest.head:
        raise bad_archive(
            archive.folder, f"its events give the tree head {head}, but its manifest has {archive.manifest.head}"
        )
    checkpoint = checkpoint_in(archive)
    if checkpoint is not None and checkpoint.head != head:
        raise bad_archive(archive.folder, f"its checkpoint is about the tree head {checkpoint.head}, not {head}")
    return head


def head_in(archive: ArchiveFolder, size: int) -> TreeHead | None:
    """Return the tree head after so many events of the log, from the tiles of an archive that was checked.

    Args:
        archive: the archive.
        size: number of events from the first one of the log on.

    Returns:
        The tree head; None where the archive does not have the events up to there, or begins after them.

    Raises:
        RefusedError: ``BAD_ARCHIVE`` where a tile cannot be read.
    """
    frontier = archive.manifest.frontier()
    if not frontier.size <= size <= archive.manifest.size:
        return None
    while frontier.size < size:
        path = tile_path(0, Tile(frontier.size // CHUNK_LEAVES))
        with file_of(archive.folder, path) as file:
            data = file.read()
        leaves = [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]
        frontier = frontier.extended(leaves[: size - frontier.size])
    return TreeHead(frontier.size, frontier.root())


def checkpoint_in(archive: ArchiveFolder, trusted: Trusted | None = None) -> Checkpoint | None:
    """Return the checkpoint of an archive at its last event; None where it has none.

    Raises:
        RefusedError: ``BAD_ARCHIVE`` where it is none; with ``trusted``, ``NOT_SIGNED``, ``WRONG_ORIGIN`` or
            ``BAD_SIGNATURE`` where those keys did not sign it.
    """
    if all(one.path != CHECKPOINT for one in archive.manifest.files):
        if trusted is not None and trusted.keys:
            raise RefusedError(ErrorCode.NOT_SIGNED, f"{archive.folder} has no checkpoint, so it is not signed.")
        return None
    with file_of(archive.folder, CHECKPOINT) as file:
        data = file.read()
    try:
        checkpoint = read_checkpoint(data)
    except RefusedError as refused:
        raise bad_archive(archive.folder, f"its checkpoint is none ({refused.message})") from None
    if trusted is not None:
        trusted.check(checkpoint)
    return checkpoint


def check_row(archives: Sequence[ArchiveFolder], log: EventLog | None = None) -> None:
    """Check that archives follow one another from the first event on, and that a log continues them.

    Args:
        archives: in the order of their events.
        log: the log that they are of; None compares them with each other only.

    Raises:
        RefusedError: ``BAD_ARCHIVE``.
        DamagedLogError: the tree of the log is damaged.
    """
    before: ArchiveFolder | None = None
    for archive in archives:
        manifest = archive.manifest
        size, root, digest = (0, Frontier().root(), None) if before is None else _end(before)
        if (manifest.after, manifest.frontier().root()) != (size, root) or manifest.previous != digest:
            if before is None and manifest.after:
                raise RefusedError(
                    ErrorCode.BAD_ARCHIVE,
                    f"{archive.folder} begins after event {manifest.after} and does not follow event 0: name all "
                    "archives before it too, in order.",
                    folder=str(archive.folder),
                    position=manifest.after,
                )
            follows = f"event {size}" if before is None else f"{before.folder}, whose last event is {size}"
            raise bad_archive(
                archive.folder, f"it begins after event {manifest.after} and does not follow {follows}", manifest.after
            )
        if before is not None and before.manifest.log_id != manifest.log_id:
            raise bad_archive(archive.folder, f"it is of another log than {before.folder}")
        if log is not None and (log.head().size < manifest.size or log.root_at(manifest.size) != manifest.head):
            raise bad_archive(archive.folder, "its events are not those of this log", manifest.size)
        before = archive


def _end(archive: ArchiveFolder) -> tuple[int, bytes, str]:
    return archive.manifest.size, archive.manifest.head.root, archive.digest


class _Pass:
    """Pass over the events of an archive."""

    def __init__(self, archive: ArchiveFolder) -> None:
        self._archive = archive
        self._folder = archive.folder
        self._files = {one.path for one in archive.manifest.files}
        self._unbundled = set(archive.manifest.unbundled)
        self._frontier = archive.manifest.frontier()
        self._grown = self._frontier
        self._leaves: list[bytes] = []
        self._entries: list[bytes] = []
        self._roots: dict[int, bytes] = {}

    def over(self, progress: Progress | None) -> Frontier:
        """Check the events and what is derived from them; return the tree at the end."""
        last: TreeHead | None = None
        for number, item in self._items():
            if isinstance(item, ExportHeader):
                if item.redacted or item.salvaged is not None or item.start != self._archive.manifest.start:
                    raise self._bad("its events are not the stretch that its manifest names")
            elif isinstance(item, TreeHead):
                last = item
                self._grow()
                if item != TreeHead(self._grown.size, self._grown.root()):
                    raise self._bad(f"line {number} of {EVENTS} is not the tree head of the events before it")
            elif isinstance(item, Hidden):
                raise self._bad(f"line {number} of {EVENTS} hides an event")
            else:
                last = None
                self._take(item)
                if progress is not None and item.position % CHUNK_LEAVES == 0:
                    progress(item.position - self._archive.manifest.after, self._archive.events)
        if last is None or self._leaves or not self._roots:
            raise self._bad(f"{EVENTS} does not end with the tree head of whole chunks")
        self._check_upper()
        return self._frontier

    def _items(self) -> Iterator[tuple[int, ExportHeader | LoggedEvent | Hidden | TreeHead]]:
        try:
            with file_of(self._folder, EVENTS) as lines:
                yield from read_items(lines, lambda _: None)
        except RefusedError as refused:
            if refused.code == ErrorCode.BAD_ARCHIVE:
                raise
            why = refused.message.removesuffix(" Nothing was imported.").rstrip(".")
            raise self._bad(f"{EVENTS}: {why}") from None

    def _take(self, event: LoggedEvent) -> None:
        expected = self._frontier.size + len(self._leaves) + 1
        if event.position != expected:
            raise self._bad(f"event {event.position} is in the place of event {expected}", expected)
        self._leaves.append(event.leaf)
        try:
            self._entries.append(event_text(event).encode())
        except DamagedLogError as damaged:
            raise self._bad(damaged.message.rstrip("."), event.position) from None
        if len(self._leaves) == CHUNK_LEAVES:
            self._settle()

    def _settle(self) -> None:
        """Compare the tile and the bundle of a whole chunk, and grow the tree."""
        tile = Tile(self._frontier.size // CHUNK_LEAVES)
        self._compare(tile_path(0, tile), b"".join(self._leaves))
        if all(len(one) <= MAX_ENTRY_BYTES for one in self._entries) is (tile.index in self._unbundled):
            raise self._bad(f"it has no bundle, or one that cannot be, of the events after {self._frontier.size}")
        if tile.index not in self._unbundled:
            self._compare(bundle_path(tile), b"".join(len(e).to_bytes(2, "big") + e for e in self._entries))
        self._frontier = self._grow()
        self._leaves, self._entries = [], []

    def _grow(self) -> Frontier:
        """Return the tree with all events that were read."""
        filled: list[Chunk] = []
        self._grown = self._grown.extended(self._leaves[self._grown.size - self._frontier.size :], filled)
        self._roots.update((one.index, one.root) for one in filled)
        return self._grown

    def _check_upper(self) -> None:
        """Compare the tiles of level 1, as far as their hashes are of this stretch."""
        whole = self._frontier.size // CHUNK_LEAVES
        for index in range(min(self._roots) // CHUNK_LEAVES, -(-whole // CHUNK_LEAVES)):
            first = index * CHUNK_LEAVES
            tile = Tile(index, min(CHUNK_LEAVES, whole - first))
            found = self._read(tile_path(1, tile))
            for number in range(tile.width):
                known = self._roots.get(first + number)
                if known is not None and found[32 * number : 32 * number + 32] != known:
                    raise self._bad(f"{tile_path(1, tile)} is not that of its events")

    def _compare(self, path: str, expected: bytes) -> None:
        if self._read(path) != expected:
            raise self._bad(f"{path} is not that of its events")

    def _read(self, path: str) -> bytes:
        if path not in self._files:
            raise self._bad(f"its manifest names no {path}")
        with file_of(self._folder, path) as file:
            return file.read()

    def _bad(self, clause: str, position: int | None = None) -> RefusedError:
        return bad_archive(self._folder, clause, position)
