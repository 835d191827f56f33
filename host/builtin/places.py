"""Files of the workspace as the built-in effects reach them: places, stamps, and what went wrong in words."""

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

from host.builtin.effect_support import EFFECT_NO_WORKSPACE, EffectError, Params, file_resource, last_look
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
    "changing",
    "is_same",
    "looking",
    "place_of",
    "stamp_of",
    "subtree_of",
    "telling",
    "workspace_of",
]

FILE_NOT_FOUND: Final = "FILE_NOT_FOUND"
FILE_EXISTS: Final = "FILE_EXISTS"
FILE_THROUGH_LINK: Final = "FILE_THROUGH_LINK"
"""The error's code where a name leads to another one, which nobody declared."""

FILE_CHANGED_MEANWHILE: Final = "FILE_CHANGED_MEANWHILE"
"""The error's code where a repeated effect finds neither what was there before nor what it would have made of it."""

_CODES: Final = {
    errno.ENOENT: (FILE_NOT_FOUND, "there is no such file or folder"),
    errno.EEXIST: (FILE_EXISTS, "something is there already"),
    errno.EISDIR: ("FILE_IS_A_FOLDER", "it is a folder"),
    errno.ENOTDIR: ("FILE_NOT_A_FOLDER", "it, or what leads to it, is no folder"),
    errno.ENOTEMPTY: ("FILE_NOT_EMPTY", "the folder is not empty; say tree to delete all that is in it"),
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
"""A path as agents see it; read into the canonical text of its resource."""

Mode = Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")]
"""Permissions in octal digits, such as ``"644"``."""

Stamp = Mapping[str, Any]
"""What tells one file from another that is put in its place."""


class Content(Params):
    """What is written: a text, which becomes UTF-8, or bytes in base64."""

    text: str | None = None
    base64: str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Content:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("name either text or base64")
        try:
            self.data()
        except binascii.Error:
            raise ValueError("base64 holds no base64") from None
        return self

    def data(self) -> bytes:
        """Return the bytes."""
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode(self.base64 or "", validate=True)


def subtree_of(path: str) -> str:
    """Return the resource of all that stands at and below a canonical one."""
    return f"{path}*" if path.endswith("/") else f"{path}/*"


def stamp_of(found: os.stat_result | None) -> Stamp | None:
    """Return what must be remembered of a file, None for what is missing."""
    if found is None:
        return None
    stamp = {"kind": kind_of(found.st_mode), "dev": found.st_dev, "ino": found.st_ino}
    if stat.S_ISDIR(found.st_mode):
        return stamp  # what is in a folder changes its size and times
    return {**stamp, "size": found.st_size, "mtimeNs": found.st_mtime_ns}


def is_same(found: os.stat_result | None, before: Stamp | None) -> bool:
    """Tell whether a file is the one that was remembered."""
    return stamp_of(found) == (None if before is None else dict(before))


@contextmanager
def telling(path: str) -> Iterator[None]:
    """Turn what goes wrong with a file into a ``EffectError`` that names it.

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
        workspace: where it stands.
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
        """Return what is there, links not followed; None where nothing is.

        Raises:
            EffectError: for what cannot be looked at.
        """
        with telling(self.resource):
            return self.workspace.lstat(self.relative)

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Open it for reading; it must be a regular file.

        Raises:
            EffectError: ``FILE_NOT_REGULAR`` and whatever keeps it from being opened.
        """
        with telling(self.resource):
            file = self.workspace.open(self.relative, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(file).st_mode
            if stat.S_ISDIR(mode):
                with telling(self.resource):
                    raise IsADirectoryError(errno.EISDIR, "")
            if not stat.S_ISREG(mode):
                raise EffectError("FILE_NOT_REGULAR", f"{self.name}: it is no regular file.", {"path": self.name})
            yield file
        finally:
            os.close(file)

    def size(self) -> int | None:
        """Return how many bytes the file has, links followed; None where there is none."""
        try:
            with self.reading() as file:
                return os.fstat(file).st_size
        except EffectError as fault:
            if fault.failed.code == FILE_NOT_FOUND:
                return None
            raise

    def piece(self, offset: int, length: int) -> bytes:
        """Return some of the file's bytes."""
        with self.reading() as file, telling(self.resource):
            return read_at(file, offset, length)

    def holds(self, data: bytes) -> bool:
        """Tell whether these bytes are all that the file holds."""
        size = self.size()
        return size == len(data) and hashlib.sha256(self.piece(0, size)).digest() == hashlib.sha256(data).digest()


def read_at(file: int, offset: int, length: int) -> bytes:
    """Return up to so many bytes from an offset, fewer only at the end of the file."""
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
        call: what the handler was told.
        workspace: where the files are.
        note: what an earlier attempt remembered.
    """

    call: EffectCallInfo
    workspace: Workspace
    note: AttemptNote

    @property
    def beside(self) -> bytes:
        """The name under which a new file comes about: the same in every attempt, which clears up after the last."""
        return b".klock-" + hashlib.sha256(self.call.idempotency_key.encode()).hexdigest()[:16].encode()

    def place(self, path: str, *, follow: bool = True) -> WorkspaceEntry:
        """Return a place by its canonical resource; arguments and faults are those of ``place_of``."""
        return place_of(self.workspace, path, follow=follow)

    @contextmanager
    def change(self, place: WorkspaceEntry) -> Iterator[None]:
        """Change something, if it may still be changed.

        Raises:
            EffectError: ``EFFECT_CANCELLED``, or what went wrong. What ``call.check`` raises passes through.
        """
        last_look(self.call)
        with telling(place.resource):
            yield

    def changed_meanwhile(self, place: WorkspaceEntry, told: str) -> EffectError:
        """Return the failure of a repeated effect that finds what it does not know."""
        return EffectError(
            FILE_CHANGED_MEANWHILE,
            f"{place.name}: {told} since {self.call.effect_type} was begun; it is left as it is.",
            {"path": place.name},
        )


def workspace_of(call: EffectCallInfo) -> Workspace:
    """Return the call's workspace.

    Raises:
        EffectError: ``EFFECT_NO_WORKSPACE``.
    """
    if call.workspace is None:
        raise EffectError(EFFECT_NO_WORKSPACE, f"{call.effect_type} needs a workspace, and there is none.")
    return call.workspace


def looking(call: EffectCallInfo, path: str) -> WorkspaceEntry:
    """Return the place that an effect only looks at.

    Raises:
        EffectError: ``EFFECT_NO_WORKSPACE``, ``FILE_THROUGH_LINK``, or for what does not belong to the agents.
    """
    return place_of(workspace_of(call), path)


def place_of(workspace: Workspace, path: str, *, follow: bool = True) -> WorkspaceEntry:
    """Return a place by its canonical resource.

    What was declared and leased is the name, so a name that leads to another one by a link is refused.

    Args:
        workspace: where it stands.
        path: the canonical resource.
        follow: whether what is done to it follows a link of its last name; those before it always are.

    Raises:
        EffectError: ``FILE_THROUGH_LINK``, or for what does not belong to the agents.
    """
    with telling(path):
        place = WorkspaceEntry(workspace, path, workspace.path_of(path))
        real = workspace.relative(place.relative, cwd=workspace.root_bytes, follow=follow)
    if real is not None and real != place.relative:  # what leads outside, the workspace itself refuses
        told = f"{place.name} leads to {name_of(real)} by a symbolic link; name that instead."
        raise EffectError(FILE_THROUGH_LINK, told, {"path": place.name, "target": name_of(real)})
    return place


@contextmanager
def changing(call: EffectCallInfo) -> Iterator[FileEffect]:
    """Begin an effect that changes files, with its note.

    Raises:
        EffectError: ``EFFECT_NO_WORKSPACE``, ``EFFECT_CANCELLED``.
    """
    workspace = workspace_of(call)
    with note_of(call) as note:
        yield FileEffect(call, workspace, note)
