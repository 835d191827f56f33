"""The id of a workspace, kept in the workspace itself: ``.klock/workspace-id``.

A realm records the id of its workspace (``workspace.registered``), so that a process can check whether it has the
folder that a handler or a rollback needs. The file is written once, atomically: of several processes that make an id at
the same time, all use the one that was there first. It records its own inode number besides the id. A copy of the
folder has another one, so that two folders never pass for one workspace; renaming the folder keeps it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Final

from host.workspace.root import PRIVATE, Workspace
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["ID_FILE", "give_workspace_id", "read_workspace_id"]

ID_FILE: Final = b"workspace-id"
"""Name of the file below ``.klock``."""

MAX_BYTES: Final = 256
"""Size of the file at most."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TEXT: Final = re.compile(rb"([0-9a-zA-Z-]{8,64}) inode ([0-9]{1,20})\n")


def read_workspace_id(workspace: Workspace) -> str | None:
    """Return the id of a workspace; None where it has none yet.

    Raises:
        RefusedError: ``WORKSPACE_COPIED`` where the folder was copied, or restored from a copy;
            ``WORKSPACE_ID_DAMAGED`` where the file has another form or cannot be read.
    """
    try:
        folder = os.open(PRIVATE, _FOLDER, dir_fd=workspace.fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(workspace, error.strerror or "it cannot be read") from error
    try:
        return _read(workspace, folder)
    finally:
        os.close(folder)


def _read(workspace: Workspace, folder: int) -> str | None:
    try:
        file = os.open(ID_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(workspace, error.strerror or "it cannot be read") from error
    try:
        found = _TEXT.fullmatch(os.read(file, MAX_BYTES))
        inode = os.fstat(file).st_ino
    except OSError as error:
        raise _damaged(workspace, error.strerror or "it cannot be read") from error
    finally:
        os.close(file)
    if found is None:
        raise _damaged(workspace, "its content is not an id")
    if int(found[2]) != inode:
        raise RefusedError(
            ErrorCode.WORKSPACE_COPIED,
            f"{workspace.root} is a copy of the workspace {found[1].decode()}: its .klock/workspace-id was written for "
            "another folder. If it was moved or restored and the other folder is gone, `worldctl workspace keep` keeps "
            "the id; `worldctl workspace register` gives this folder an id of its own, in place of the registered one.",
            path=str(workspace.root),
            workspace=found[1].decode(),
        )
    return found[1].decode()


def give_workspace_id(workspace: Workspace, new_id: str, *, replace: bool = False) -> str:
    """Give a workspace an id, unless it has one; return its id.

    Args:
        workspace: the folder; ``.klock`` is created where it is missing.
        new_id: the id to give.
        replace: give it in place of the one that the folder has: it was moved or restored, or its id was lost.

    Raises:
        RefusedError: as ``read_workspace_id``; ``WORKSPACE_ID_DAMAGED`` where the file cannot be written.
    """
    workspace.make_private()
    temporary = f"workspace-id.{os.getpid()}-{new_id}".encode()
    try:
        folder = os.open(PRIVATE, _FOLDER, dir_fd=workspace.fd)
    except OSError as error:
        raise _damaged(workspace, error.strerror or "it cannot be written") from error
    try:
        known = None if replace else _read(workspace, folder)
        if known is not None:
            return known
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            os.write(file, f"{new_id} inode {os.fstat(file).st_ino}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)
        if replace:
            os.rename(temporary, ID_FILE, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            with suppress(FileExistsError):
                os.link(temporary, ID_FILE, src_dir_fd=folder, dst_dir_fd=folder)
            os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)
        return _read(workspace, folder) or new_id
    except OSError as error:
        raise _damaged(workspace, error.strerror or "it cannot be written") from error
    finally:
        os.close(folder)


def _damaged(workspace: Workspace, why: str) -> RefusedError:
    return RefusedError(
        ErrorCode.WORKSPACE_ID_DAMAGED,
        f"The id of the workspace {workspace.root} (.klock/workspace-id) cannot be used: {why}. Correct the "
        "permissions, or write it again with `worldctl workspace keep`.",
        path=str(workspace.root),
    )
