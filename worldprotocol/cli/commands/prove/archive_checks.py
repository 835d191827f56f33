"""What ``worldctl verify`` says about archives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.record import WireForm
from worldprotocol.cli.commands.prove.archive import archive_wire
from worldprotocol.cli.support.command_context import CommandContext
from worldprotocol.cli.support.output import counted

if TYPE_CHECKING:
    from worldprotocol.api.bootstrap import EventLog, TreeHead
    from worldprotocol.export.archive.manifest import ArchiveFolder
    from worldprotocol.export.proofs.checkpoint import Trusted

__all__ = ["CheckedArchives", "check_archives", "naming_archives", "verify_archive"]


@dataclass(frozen=True, slots=True)
class CheckedArchives(WireForm):
    """Archives that were found sound, and to be of the log."""

    desk: CommandContext
    archives: Sequence[ArchiveFolder]
    WIRE: ClassVar = "archives=shown?"

    @property
    def shown(self) -> list[dict[str, object]] | None:
        """The archives as JSON."""
        return [archive_wire(one) for one in self.archives] or None

    def tell(self) -> None:
        """Print a line for each."""
        for one in self.archives:
            self.desk.out.text(_sentence(one))


@contextmanager
def naming_archives() -> Iterator[None]:
    """Say of an archive's folder, which was given as a log, what it is and which command checks it.

    Raises:
        RefusedError: ``NOT_A_LOG``.
    """
    from worldprotocol.export.archive.manifest import MANIFEST

    try:
        yield
    except RefusedError as refused:
        folder = Path(str(refused.details.get("path", "")))
        if refused.code != ErrorCode.NOT_A_LOG or not folder.is_dir():
            raise
        exports = [one for one in sorted(folder.glob("*.jsonl")) if one.with_suffix(".checkpoint").exists()]
        if (folder / MANIFEST).exists():
            what, checked = "an archive of `worldctl archive`", [folder]
        elif exports:
            what, checked = "an archive of `worldctl realm archive`", exports
        else:
            raise
        commands = ", ".join(f"`worldctl verify {one}`" for one in checked)
        message = f"{folder} is no log: it is {what}. Check it with {commands}."
        raise RefusedError(ErrorCode.NOT_A_LOG, message, **refused.details) from None


def check_archives(desk: CommandContext, folders: Sequence[str], log: EventLog) -> CheckedArchives:
    """Check archives by themselves, in their order, and against a log.

    Raises:
        RefusedError: ``BAD_ARCHIVE`` with what is wrong first.
        DamagedLogError: ``SNAPSHOT_CHANGED`` where the log was cut and its snapshot does not follow from them.
    """
    from worldprotocol.export.archive.checking import check_archive, check_row
    from worldprotocol.export.archive.cutting import check_cut
    from worldprotocol.export.archive.manifest import open_archive

    archives = [open_archive(Path(one)) for one in folders]
    check_row(archives, log)
    for one in archives:
        with desk.progress(f"Checking {one.folder}") as progress:
            check_archive(one, progress)
    with desk.progress("Folding the archives") as progress:
        check_cut(log, archives, progress)
    return CheckedArchives(desk, archives)


def verify_archive(desk: CommandContext, folder: Path, trust: Trusted, saved: Sequence[TreeHead]) -> int:
    """Check an archive by itself, with the keys that have to have signed its checkpoint and the heads that were kept.

    Raises:
        RefusedError: ``BAD_ARCHIVE``, also where it has another tree head than one that was kept;
            ``INVALID_TREE_HEAD`` for one about events that it does not have; ``NOT_SIGNED``, ``WRONG_ORIGIN``,
            ``BAD_SIGNATURE``.
    """
    from worldprotocol.export.archive.checking import check_archive, checkpoint_in, head_in
    from worldprotocol.export.archive.manifest import open_archive

    archive = open_archive(folder)
    with desk.progress("Verifying") as progress:
        head = check_archive(archive, progress)
    for one in saved:
        found = head_in(archive, one.size)
        if found is None:
            raise RefusedError(
                ErrorCode.INVALID_TREE_HEAD,
                f"{folder} has the events {archive.manifest.after + 1} to {head.size}, which cannot be compared with a "
                f"tree head over {one.size}. Compare it with the log (`worldctl verify --against`).",
                folder=str(folder),
            )
        if found != one:
            raise RefusedError(
                ErrorCode.BAD_ARCHIVE,
                f"{folder} has the tree head {found}, which is not the one that was kept ({one}).",
                folder=str(folder),
            )
    checkpoint = checkpoint_in(archive, trust) if trust.keys else checkpoint_in(archive)
    signers = [key.name for key in trust.keys]
    rendered = {"kind": "archive", "ok": True, **archive_wire(archive), "signedBy": signers}
    rendered["origin"] = None if checkpoint is None else checkpoint.origin
    against = f", against {counted(len(saved), 'saved tree head')}" if saved else ""
    desk.out.tell(rendered, _sentence(archive) + against + (f"; signed by {', '.join(signers)}" if signers else ""))
    return 0


def _sentence(archive: ArchiveFolder) -> str:
    manifest = archive.manifest
    stretch = f"{counted(archive.events, 'event')}, {manifest.after + 1} to {manifest.size}"
    return f"sound archive {archive.folder}: {stretch}; tree head {manifest.head}; manifest {archive.digest}"
