"""Writing archives: a stretch of a log as JSON lines, tiles and tables, put in place when it is whole.

An archive is written into a folder beside its place, synced, read back and compared with the tree of the log, and then
renamed; so a folder with the archive's name is a whole archive, whenever the program was ended.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.log import EventLog
from world.log.merkle import CHUNK_LEAVES
from world.private_files import open_private
from world.read_models.archive import Archive
from world.read_models.decoding import log_id_of
from worldprotocol.export.archive.checking import CHECKPOINT, bundle_path, check_archive, check_row, tile_path
from worldprotocol.export.archive.manifest import (
    EVENTS,
    FORMAT,
    MANIFEST,
    TABLES,
    TILES,
    ArchivedFile,
    ArchiveFolder,
    ArchiveManifest,
    bad_archive,
    hash_of,
    open_archive,
)
from worldprotocol.export.jsonl import export_log
from worldprotocol.export.jsonl_lines import Progress, Start
from worldprotocol.export.proofs.checkpoint import Checkpoint
from worldprotocol.export.proofs.tiles import WIDTH, Tile, entry_bundle
from worldprotocol.export.tables.parquet import export_tables

__all__ = ["ArchivePlan", "end_of_archive", "plan_archive", "write_archive"]

PART: Final = ".part"
"""End of the name of the folder in which an archive is written."""


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What an archive will hold.

    Args:
        previous: the archives before it, in order.
        after: position before its first event.
        upto: position of its last event.
        has_tables: whether Parquet files are written, which needs the extra ``sql``.
    """

    previous: tuple[ArchiveFolder, ...]
    after: int
    upto: int
    has_tables: bool

    @property
    def events(self) -> int:
        """Number of events."""
        return self.upto - self.after


def end_of_archive(archive: Archive, keep: int | None, upto: int | None) -> int:
    """Return the position at which an archive may end: whole chunks of 256 events, before what is kept.

    Args:
        archive: the log and its index.
        keep: how many of the newest proposals stay out of the archive, with all after the submission of the first one.
        upto: position of the last event that may be archived; None is the end of the log.
    """
    end = archive.log.head().size
    if upto is not None:
        end = min(end, upto)
    if keep:
        rows = archive.rows("nth_last_proposal", {"number": keep - 1})
        end = min(end, int(rows[0][0]) - 1) if rows else 0
    return end - end % CHUNK_LEAVES


def plan_archive(log: EventLog, previous: tuple[ArchiveFolder, ...], upto: int, *, has_tables: bool) -> ArchivePlan:
    """Return the plan of an archive that continues others.

    Raises:
        RefusedError: ``NOTHING_TO_ARCHIVE``; ``BAD_ARCHIVE`` where the previous ones are not of this log, or not in
            order; ``NO_SUCH_EVENT``.
    """
    check_row(previous, log)
    after = previous[-1].manifest.size if previous else 0
    if upto <= after:
        done = f"the log is archived up to event {after}" if after else "no chunk of it is whole"
        raise RefusedError(
            ErrorCode.NOTHING_TO_ARCHIVE,
            f"There is nothing to archive: archives have whole chunks of {CHUNK_LEAVES} events, and {done}. What may "
            f"be archived ends at event {upto}.",
            after=after,
            upto=upto,
        )
    return ArchivePlan(previous, after, upto, has_tables)


def write_archive(
    log: EventLog, folder: Path, plan: ArchivePlan, checkpoint: Checkpoint, progress: Progress | None = None
) -> ArchiveFolder:
    """Write an archive, read it back, compare it with the log, and put it in place.

    What an interrupted run has left in the folder beside it is removed first.

    Args:
        log: the log.
        folder: the place of the archive; nothing may be there.
        plan: what it holds.
        checkpoint: the tree head at its last event; with or without signatures.
        progress: called with the steps that are done and their number, over all parts of the work.

    Raises:
        RefusedError: ``INVALID_TARGET``, ``NO_SUCH_EVENT``, ``NOT_LOADED``.
        DamagedLogError: the first event that is not as it was recorded.
    """
    if not folder.name:
        raise RefusedError(
            ErrorCode.INVALID_TARGET, f"{folder} is there already; name a folder that does not exist.", path=str(folder)
        )
    part = folder.with_name(folder.name + PART)
    try:
        _clear(folder, part)
        part.mkdir(mode=0o700, parents=True)
        unbundled = _write_parts(log, part, plan, checkpoint, progress)
        manifest = _describe(log, part, plan, unbundled)
        with open_private(part / MANIFEST) as file:
            file.write(manifest.to_bytes())
        _sync(part)
        made = open_archive(part)
        if check_archive(made, _slice(progress, 3, 4)) != log.root_at(plan.upto):
            raise bad_archive(part, "what was read back is not what the log has")
        part.rename(folder)
        _sync_one(folder.parent)
    except OSError as error:
        raise RefusedError(
            ErrorCode.INVALID_TARGET, f"{folder} cannot be written: {error.strerror or error}.", path=str(folder)
        ) from None
    return ArchiveFolder(folder, made.manifest, made.digest)


def _clear(folder: Path, part: Path) -> None:
    if folder.exists() or folder.is_symlink():
        raise RefusedError(
            ErrorCode.INVALID_TARGET,
            f"{folder} is there already, and an archive is never replaced: name another folder.",
            path=str(folder),
        )
    if not part.exists():
        return
    if part.is_symlink() or {one.name for one in part.iterdir()} - {EVENTS, TILES, TABLES, MANIFEST}:
        raise RefusedError(
            ErrorCode.INVALID_TARGET,
            f"{part} holds something else than an archive in the making; move it away, or name another folder.",
            path=str(part),
        )
    shutil.rmtree(part)


def _write_parts(
    log: EventLog, part: Path, plan: ArchivePlan, checkpoint: Checkpoint, progress: Progress | None
) -> list[int]:
    """Write the events, the tiles and the tables; return the tiles without a bundle."""
    with open_private(part / EVENTS) as out:
        export_log(log, out, after=plan.after, upto=plan.upto, progress=_slice(progress, 0, 4), every_head=True)
    unbundled = _write_tiles(log, part, plan, _slice(progress, 1, 4))
    _write(part / CHECKPOINT, checkpoint.to_text().encode())
    if plan.has_tables:
        part.joinpath(TABLES).mkdir(mode=0o700)
        export_tables(log, part / TABLES, after=plan.after, upto=plan.upto, progress=_slice(progress, 2, 4))
    return unbundled


def _write_tiles(log: EventLog, part: Path, plan: ArchivePlan, progress: Progress) -> list[int]:
    unbundled = []
    first, last = plan.after // WIDTH, plan.upto // WIDTH
    for index in range(first, last):
        tile = Tile(index)
        _write(part / tile_path(0, tile), log.tile(0, index, WIDTH))
        try:
            _write(part / bundle_path(tile), entry_bundle(log, tile))
        except RefusedError as refused:
            if refused.code != ErrorCode.NOT_FOUND:  # an entry is too long
                raise
            unbundled.append(index)
        progress(index + 1 - first, last - first)
    level, done, size = 1, first, last
    while size:
        for index in range(done // WIDTH, -(-size // WIDTH)):
            tile = Tile(index, min(WIDTH, size - index * WIDTH))
            _write(part / tile_path(level, tile), log.tile(level, index, tile.width))
        level, done, size = level + 1, done // WIDTH, size // WIDTH
    return unbundled


def _describe(log: EventLog, part: Path, plan: ArchivePlan, unbundled: list[int]) -> ArchiveManifest:
    head = log.root_at(plan.upto)
    files = sorted(str(one.relative_to(part)) for one in part.rglob("*") if one.is_file())
    return ArchiveManifest(
        "archive",
        FORMAT,
        log_id_of(log) or "",
        log.name,
        head.size,
        head.root_hex,
        [ArchivedFile(path, *hash_of(part / path)) for path in files],
        start=Start.of(log.frontier(plan.after)) if plan.after else None,
        previous=plan.previous[-1].digest if plan.previous else None,
        unbundled=unbundled,
    )


def _write(path: Path, data: bytes) -> None:
    _make_folder(path.parent)
    with open_private(path) as file:
        file.write(data)


def _make_folder(folder: Path) -> None:
    """Make a folder that only the owner can read, and its missing parents, to which ``mkdir`` gives another mode."""
    if not folder.exists():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700)


def _sync(folder: Path) -> None:
    """Bring all files and folders below a folder to the disk."""
    for path in (folder, *folder.rglob("*")):
        _sync_one(path)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _slice(progress: Progress | None, number: int, count: int) -> Progress:
    """Return the progress of one of several parts of the work."""
    if progress is None:
        return lambda _done, _whole: None
    return lambda done, whole: progress(number * max(whole, 1) + done, count * max(whole, 1))
