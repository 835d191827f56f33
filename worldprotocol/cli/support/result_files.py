"""Files that commands write: whole or not at all, and never in place of a key, or of another file unless asked to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.private_files import FILE_MODE, open_private
from worldprotocol.cli.support.command_context import CommandContext

__all__ = ["check_target", "whole_file", "write_key", "written"]


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a file that exists, unless it may be replaced.

    Raises:
        RefusedError: ``INVALID_TARGET``.
    """
    if path.exists() and not force:
        raise RefusedError(ErrorCode.INVALID_TARGET, f"{path} is there already; --force replaces it.", path=str(path))


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Give a file for writing that takes its place when all of it is on the disk; where something fails, it does not.

    Raises:
        RefusedError: ``INVALID_TARGET``.
    """
    part = path.with_name(path.name + ".part")
    try:
        with open_private(part, replaces=path) as target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        part.replace(path)
    except OSError as error:
        raise RefusedError(
            ErrorCode.INVALID_TARGET, f"{path} cannot be written: {error.strerror or error}.", path=str(path)
        ) from None
    finally:
        part.unlink(missing_ok=True)


def written(desk: CommandContext, data: bytes, file: str | None) -> bool:
    """Write a result to a file, atomically, or to stdout; return whether there is a file.

    Raises:
        RefusedError: ``INVALID_TARGET``.
    """
    if file is None or file == "-":
        out = desk.streams.out
        out.flush()
        out.buffer.write(data)
        out.buffer.flush()
        return False
    with whole_file(Path(file)) as target:
        target.write(data)
    return True


def write_key(file: str | Path, content: bytes) -> None:
    """Write a private key into a new file that its owner alone can read.

    Raises:
        RefusedError: ``FILE_EXISTS``.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        raise RefusedError(
            ErrorCode.FILE_EXISTS, f"{file} is there already; a key is never overwritten.", path=str(file)
        ) from None
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
