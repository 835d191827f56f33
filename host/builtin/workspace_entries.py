"""Access to files of the workspace by the built-in effects: entries, stamps, and error values."""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, StringConstraints, model_validator

from host.builtin.effect_support import EFFECT_NO_WORKSPACE, EffectError, Params, check_before_change, file_resource
from host.builtin.notes import AttemptNote, note_of
from host.effect_call import EffectCallInfo
from host.workspace import Workspace, kind_of, name_of
from world.errors import RefusedError

__all__ = [
    "FILE_CHANGED_MEANWHILE",
    "FILE_EXISTS",
    "FILE_NOT_FOUND",
    "FILE_THROUGH_LINK",
    "Content",
    "FileEffect",
    "FilePath",
    "Mode",
    "Stamp",
    "WorkspaceEntry",
    "entry_of",
    "file_effect",
    "is_same",
    "read_entry",
    "reporting_errors",
    "stamp_of",
    "subtree_of",
    "workspace_of",
]

FILE_NOT_FOUND: Final = "FILE_NOT_FOUND"
FILE_EXISTS: Final = "FILE_EXISTS"
FILE_THROUGH_LINK: Final = "FILE_THROUGH_LINK"
"""Error code for a path through a symbolic link, whose target was not declared."""

FILE_CHANGED_MEANWHILE: Final = "FILE_CHANGED_MEANWHILE"
"""Error code for a repeated effect that finds neither the state before it nor the state after it."""

_CODES: Final = {
    errno.ENOENT: (FILE_NOT_FOUND, "the file or folder does not exist"),
    errno.EEXIST: (FILE_EXISTS, "the path already exists"),
    errno.EISDIR: ("FILE_IS_A_FOLDER", "it is a folder"),
    errno.ENOTDIR: ("FILE_NOT_A_FOLDER", "it, or a part of its path, is not a folder"),
    errno.ENOTEMPTY: ("FILE_NOT_EMPTY", "the folder is not empty; set tree to delete its content"),
    errno.EACCES: ("FILE_NOT_PERMITTED", "it is not permitted"),
    errno.EPERM: ("FILE_NOT_PERMITTED", "it is not permitted"),
    errno.EROFS: ("FILE_NOT_PERMITTED", "the file system is read-only"),
    errno.ENOSPC: ("FILE_DISK_FULL", "the disk is full"),
    errno.EDQUOT: ("FILE_DISK_FULL", "the disk quota is used up"),
}


def _canonical(path: str) -> str:
    try:
        return file_resource(path).text
    except RefusedError as refused:
        raise ValueError(refused.message.rstrip(".")) from None


FilePath = Annotated[str, AfterValidator(_canonical)]
"""A path as agents see it; converted to the canonical text of its resource."""

Mode = Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")]
"""Permissions in octal digits, such as ``"644"``."""

Stamp = Mapping[str, Any]
"""Identity of a file, which a replacement does not share."""


class Content(Params):
    """Content to write: a text, which becomes UTF-8, or bytes in base64."""

    text: str | None = None
    base64: str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Content:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("name either text or base64")
        try:
            self.data()
        except binascii.Error:
            raise ValueError("base64 is not valid base64") from None
        return self

    def data(self) -> bytes:
        """Return the bytes."""
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode(self.base64 or "", validate=True)


def subtree_of(path: str) -> str:
    """Return the subtree of a canonical resource."""
    return f"{path}*" if path.endswith("/") else f"{path}/*"


def stamp_of(status: os.stat_result | None) -> Stamp | None:
    """Return the stamp of a file, None for a missing one."""
    if status is None:
        return None
    stamp = {"kind": kind_of(status.st_mode), "dev": status.st_dev, "ino": status.st_ino}
    if stat.S_ISDIR(status.st_mode):
        return stamp  # the size and times of a folder change with its content
    return {**stamp, "size": status.st_size, "mtimeNs": status.st_mtime_ns}


def is_same(status: os.stat_result | None, before: Stamp | None) -> bool:
    """Whether a file has a stamp."""
    return stamp_of(status) == (None if before is None else dict(before))


@contextmanager
def reporting_errors(path: str) -> Iterator[None]:
    """Convert errors of a file operation to an ``EffectError`` that names the file.

    Args:
        path: the canonical resource.
    """
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        code, why = _CODES.get(number, ("FILE_FAILED", os.strerror(number) if number else str(error)))
        shown = path.removeprefix("FILE:")
        context = {"path": shown, "errno": errno.errorcode.get(number, "")}
        raise EffectError(code, f"{shown}: {why}.", context) from None
    except RefusedError as refused:
        raise EffectError(refused.code, refused.message, refused.details) from None


@dataclass(frozen=True, slots=True)
class WorkspaceEntry:
    """One file or folder of the workspace.

    Args:
        workspace: its workspace.
        resource: its canonical text.
        relative: its path below the root.
    """

    workspace: Workspace
    resource: str
    relative: bytes

    @property
    def name(self) -> str:
        """The path as agents see it."""
        return name_of(self.relative)

    def lstat(self) -> os.stat_result | None:
        """Return the status without following links; None where nothing exists.

        Raises:
            EffectError: the status cannot be read.
        """
        with reporting_errors(self.resource):
            return self.workspace.lstat(self.relative)

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Open it for reading; it must be a regular file.

        Raises:
            EffectError: ``FILE_NOT_REGULAR``, or the reason why it cannot be opened.
        """
        with reporting_errors(self.resource):
            file = self.workspace.open(self.relative, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(file).st_mode
            if stat.S_ISDIR(mode):
                with reporting_errors(self.resource):
                    raise IsADirectoryError(errno.EISDIR, "")
            if not stat.S_ISREG(mode):
                raise EffectError("FILE_NOT_REGULAR", f"{self.name}: it is not a regular file.", {"path": self.name})
            yield file
        finally:
            os.close(file)

    def size(self) -> int | None:
        """Return the size of the file in bytes, links followed; None where it does not exist."""
        try:
            with self.reading() as file:
                return os.fstat(file).st_size
        except EffectError as fault:
            if fault.failed.code == FILE_NOT_FOUND:
                return None
            raise

    def piece(self, offset: int, length: int) -> bytes:
        """Return a part of the file's bytes."""
        with self.reading() as file, reporting_errors(self.resource):
            return read_at(file, offset, length)

    def holds(self, data: bytes) -> bool:
        """Whether the file's content equals these bytes."""
        size = self.size()
        return size == len(data) and hashlib.sha256(self.piece(0, size)).digest() == hashlib.sha256(data).digest()


def read_at(file: int, offset: int, length: int) -> bytes:
    """Read up to a number of bytes from an offset, fewer only at the end of the file."""
    pieces = []
    while length > 0 and (piece := os.pread(file, min(length, 1 << 20), offset)):
        pieces.append(piece)
        offset += len(piece)
        length -= len(piece)
    return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class FileEffect:
    """One effect that changes files.

    Args:
        call: the facts of the call.
        workspace: the workspace of the files.
        note: the note of an earlier attempt.
    """

    call: EffectCallInfo
    workspace: Workspace
    note: AttemptNote

    @property
    def temporary_name(self) -> bytes:
        """Temporary name of a new file: the same in every attempt, so that a later one replaces it."""
        return b".klock-" + hashlib.sha256(self.call.idempotency_key.encode()).hexdigest()[:16].encode()

    def entry(self, path: str, *, follow: bool = True) -> WorkspaceEntry:
        """Return an entry by its canonical resource; arguments and errors are those of ``entry_of``."""
        return entry_of(self.workspace, path, follow=follow)

    @contextmanager
    def change(self, entry: WorkspaceEntry) -> Iterator[None]:
        """Check that a change is still permitted, and report its errors.

        Raises:
            EffectError: ``EFFECT_CANCELLED``, or the failure. An exception of ``call.check`` is passed on.
        """
        check_before_change(self.call)
        with reporting_errors(entry.resource):
            yield

    def changed_meanwhile(self, entry: WorkspaceEntry, message: str) -> EffectError:
        """Return the failure of a repeated effect that finds an unexpected state."""
        return EffectError(
            FILE_CHANGED_MEANWHILE,
            f"{entry.name}: {message} since {self.call.effect_type} began; it was left unchanged.",
            {"path": entry.name},
        )


def workspace_of(call: EffectCallInfo) -> Workspace:
    """Return the call's workspace.

    Raises:
        EffectError: ``EFFECT_NO_WORKSPACE``.
    """
    if call.workspace is None:
        raise EffectError(
            EFFECT_NO_WORKSPACE, f"{call.effect_type} needs a workspace; start the host with a workspace."
        )
    return call.workspace


def read_entry(call: EffectCallInfo, path: str) -> WorkspaceEntry:
    """Return the entry that an effect only reads.

    Raises:
        EffectError: ``EFFECT_NO_WORKSPACE``, ``FILE_THROUGH_LINK``, or for a path that belongs to the engine.
    """
    return entry_of(workspace_of(call), path)


def entry_of(workspace: Workspace, path: str, *, follow: bool = True) -> WorkspaceEntry:
    """Return an entry by its canonical resource.

    The declaration and the lease name the path, so a path that leads through a link to another one is refused.

    Args:
        workspace: its workspace.
        path: the canonical resource.
        follow: whether operations follow a link in the last name; links in earlier names are always followed.

    Raises:
        EffectError: ``FILE_THROUGH_LINK``, or for a path that belongs to the engine.
    """
    with reporting_errors(path):
        entry = WorkspaceEntry(workspace, path, workspace.path_of(path))
        real = workspace.relative(entry.relative, cwd=workspace.root_bytes, follow=follow)
    if real is not None and real != entry.relative:  # the workspace itself refuses paths that lead outside
        message = f"{entry.name} leads to {name_of(real)} through a symbolic link; name the target instead."
        raise EffectError(FILE_THROUGH_LINK, message, {"path": entry.name, "target": name_of(real)})
    return entry


@contextmanager
def file_effect(call: EffectCallInfo) -> Iterator[FileEffect]:
    """Begin an effect that changes files, with its note.

    Raises:
        EffectError: ``EFFECT_NO_WORKSPACE``, ``EFFECT_CANCELLED``.
    """
    workspace = workspace_of(call)
    with note_of(call) as note:
        yield FileEffect(call, workspace, note)
