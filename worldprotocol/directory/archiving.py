"""Archiving a realm in a folder, and restoring it from there.

An archive is the export of the whole log with its tree heads (``worldprotocol.export.jsonl``) and a checkpoint. The log
is closed to writers first, so that the archive is complete; it is read back before the directory records it. The log
stays where it was. A restored realm has the same events under the same tree head, which the directory has recorded.
Source: docs/realms.md, "Archives of realms".
"""

from __future__ import annotations

import os
from pathlib import Path

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log import EventLog, TreeHead, open_log
from world.log.url import parse_address
from world.private_files import open_private
from worldprotocol.directory.copying import growing_at
from worldprotocol.directory.directory_log import DirectoryLog, recorded_address
from worldprotocol.directory.events import RealmArchived, RealmRestored
from worldprotocol.directory.moving import abandoned, begin_work, check_work, close_whole
from worldprotocol.directory.writers import check_whole, open_place, writer_at
from worldprotocol.export.jsonl import check_export, export_log, import_log
from worldprotocol.export.jsonl_lines import Progress
from worldprotocol.export.proofs.checkpoint import checkpoint_of, default_origin

__all__ = ["archive_files", "archive_realm", "restore_realm"]


def archive_files(folder: str | Path, name: str) -> tuple[Path, Path]:
    """Return the files of an archive: the exported log, and the checkpoint over it."""
    return Path(folder) / f"{name}.jsonl", Path(folder) / f"{name}.checkpoint"


def archive_realm(directory: DirectoryLog, name: str, folder: str | Path, *, by: str, progress: Progress) -> TreeHead:
    """Close a realm and write it into a folder, or continue an archiving that was interrupted.

    Args:
        directory: the directory.
        name: of the realm.
        folder: of the archive; it is made where it does not exist. Files of an earlier archive of this realm are
            replaced.
        by: who archives it, for the record.
        progress: called with the number of written events and of all.

    Returns:
        The tree head of log and archive.

    Raises:
        RefusedError: ``UNKNOWN_REALM``, ``REALM_IN_WORK``, ``REALM_ARCHIVED``, ``WORK_ABANDONED``; ``EVENT_ARCHIVED``
            where the log was cut; ``INVALID_TARGET`` where the folder cannot be written.
        DamagedLogError: the log is damaged, or the archive is not what was written.
    """
    if not str(folder):
        raise RefusedError(ErrorCode.INVALID_TARGET, "The folder of the archive has no name; name one.")
    place = os.path.abspath(folder)
    entry = directory.state().entry(name)
    check_work(entry, "archive", place)
    if entry.status == "open":
        open_place(directory, name)
    with writer_at(entry.place) as writer:
        check_whole(writer)
        _make_folder(Path(place))
        _check_replaceable(archive_files(place, name)[0], writer.archive.log)
        begin_work(directory, name, "archive", place, by)
        head = close_whole(directory, name, writer, "archive", None, by=by)
        log, checkpoint = archive_files(place, name)
        try:
            _write(writer.archive.log, log, checkpoint, progress)
        except OSError as error:
            raise _unwritable(log, error) from None
    with log.open("rb") as written:
        if check_export(written) != head:
            raise DamagedLogError(
                ErrorCode.TREE_MISMATCH,
                f"{log} was read back with another tree head than the log has. Archive it again.",
            )
    with directory.change() as change:
        entry = change.state.entry(name)
        if (entry.work, entry.target) == ("archive", place):
            archived = RealmArchived(at=change.at, by=by, name=name, folder=place, size=head.size, root=head.root_hex)
            change.append(archived)
            return head
    if entry.status == "archived" and entry.head == head:
        return head  # by a process that continues the same archiving
    raise abandoned(directory, name, "archive")


def restore_realm(directory: DirectoryLog, name: str, to: str, *, by: str, progress: Progress) -> TreeHead:
    """Import the archive of a realm at a place and open it there, or continue a restoration that was interrupted.

    Args:
        directory: the directory.
        name: of the realm.
        to: address of its new place; a log that does not exist, or holds the beginning of the archive, or all of it.
        by: who restores it, for the record.
        progress: called with the number of processed bytes and the total.

    Returns:
        The tree head of log and archive.

    Raises:
        RefusedError: ``UNKNOWN_REALM``, ``REALM_NOT_ARCHIVED``, ``REALM_IN_WORK``, ``WORK_ABANDONED``;
            ``FILE_UNREADABLE``; ``BAD_EXPORT`` and ``LOG_NOT_EMPTY`` as ``worldprotocol.export.jsonl.import_log``.
        DamagedLogError: ``TREE_MISMATCH`` where the archive is not the one that the directory recorded.
    """
    place = recorded_address(to)
    directory.check_place(place)
    entry = directory.state().entry(name)
    if entry.status == "open" and entry.place == place and entry.head is not None:
        open_place(directory, name)
        return entry.head
    check_work(entry, "restore", place)
    log, _ = archive_files(entry.archive or "", name)
    try:
        source = log.open("rb")
    except OSError as error:
        why = f"The archive {log} cannot be read: {error.strerror}. Put it back, as it was written."
        raise RefusedError(ErrorCode.FILE_UNREADABLE, why, path=str(log)) from None
    with source:
        head = check_export(source)
        if head != entry.head:
            raise DamagedLogError(
                ErrorCode.TREE_MISMATCH,
                f"{log} has the tree head {head}, and the directory recorded {entry.head}: it is another "
                "archive. Nothing was restored.",
                position=head.size,
            )
        source.seek(0)
        begin_work(directory, name, "restore", place, by)
        growing = growing_at(place, entry.log_id)
        import_log(source, growing, progress=progress)
    with open_log(growing) as copy, directory.change() as change:
        entry = change.state.entry(name)
        if (entry.work, entry.target) == ("restore", place):
            copy.rename(parse_address(place).name)
            restored = RealmRestored(at=change.at, by=by, name=name, place=place, size=head.size, root=head.root_hex)
            change.append(restored)
        elif (entry.status, entry.place) != ("open", place):
            raise abandoned(directory, name, "restore")
    open_place(directory, name)
    return head


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise _unwritable(folder, error) from None


def _check_replaceable(file: Path, log: EventLog) -> None:
    """Refuse to replace a file that is no archive of the beginning of a log.

    Raises:
        RefusedError: ``INVALID_TARGET``.
    """
    if not file.exists():
        return
    try:
        with file.open("rb") as written:
            head = check_export(written)
        is_earlier = head.size <= log.head().size and log.root_at(head.size) == head
    except (OSError, RefusedError, DamagedLogError):
        is_earlier = False
    if not is_earlier:
        raise RefusedError(
            ErrorCode.INVALID_TARGET,
            f"{file} is not an earlier archive of this realm, and would be replaced; name another folder.",
            path=str(file),
        )


def _write(log: EventLog, file: Path, checkpoint: Path, progress: Progress) -> None:
    """Write export and checkpoint; a file is under its name once it is complete and stored."""
    part = file.with_name(f"{file.name}.part")
    with open_private(part) as out:
        head = export_log(log, out, progress=progress, every_head=True)
        out.flush()
        os.fsync(out.fileno())
    part.replace(file)
    text = checkpoint_of(head, default_origin(log)).to_text()
    with open_private(checkpoint) as out:
        out.write(text.encode())
        out.flush()
        os.fsync(out.fileno())


def _unwritable(path: Path, error: OSError) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_TARGET, f"{path} cannot be written: {error.strerror}.", path=str(path))
