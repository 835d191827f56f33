"""Record of signed tree heads per key and origin, in a file beside the key.

A signed checkpoint promises that all checkpoints with its origin are of one history (C2SP tlog-checkpoint). So a head
is signed only if the log contains all events that the key signed under this origin before, and the head is recorded on
disk before it is signed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

import msgspec

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log import EventLog, TreeHead
from world.private_files import open_private
from worldprotocol.export.proofs.note import VerifierKey

__all__ = ["SUFFIX", "promise"]

SUFFIX: Final = ".signed"
"""Suffix of the file beside a key."""


class _Signed(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Line of the file: a key, and the log and head that it signed."""

    key: str
    origin: str
    size: int
    root: str


def promise(keys: Iterable[tuple[Path, VerifierKey]], log: EventLog, origin: str, head: TreeHead) -> None:
    """Record that keys are about to sign a tree head of a log; nothing is recorded unless all of them may sign.

    Args:
        keys: the signing keys, each with the file of its record; keys can share a file, which is created if missing.
        log: the log of the head.
        origin: the name of the log in the checkpoint.
        head: the tree head to sign.

    Raises:
        DamagedLogError: ``SAVED_HEAD_MISMATCH``: the log does not contain the events that one of the keys signed.
        RefusedError: ``INVALID_TARGET`` where a file cannot be written, ``INVALID_PROMISE`` where it is malformed.
    """
    signing: dict[Path, list[VerifierKey]] = {}
    for path, key in keys:
        signing.setdefault(path.resolve(), []).append(key)
    with ExitStack() as stack:
        due: list[tuple[Path, IO[bytes], VerifierKey]] = []
        for path in sorted(signing):  # a fixed order of the locks prevents a deadlock of two signing processes
            file = _opened(path, stack)
            for key in signing[path]:
                newest = _newest(path, file, key, origin)
                if newest is not None:
                    _hold(path, log, key, origin, newest)
                if newest is None or head.size > newest.size:
                    due.append((path, file, key))
        for path, file, key in due:
            _note(path, file, _Signed(key.to_text(), origin, head.size, head.root_hex))


def _opened(path: Path, stack: ExitStack) -> IO[bytes]:
    """Open a file with an exclusive lock, held until the stack is closed."""
    try:
        file = stack.enter_context(open_private(path, "a+b"))
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        raise _unwritable(path, error) from None
    return file


def _unwritable(path: Path, error: OSError) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_TARGET,
        f"What is signed cannot be noted in {path}: {error.strerror or error}. Name a place for it in world.toml, as "
        "`signed` under [checkpoint].",
        path=str(path),
    )


def _newest(path: Path, file: IO[bytes], key: VerifierKey, origin: str) -> TreeHead | None:
    """Return the largest signed head; a truncated last line precedes a signature that was not made, and is removed."""
    signer = (key.to_text(), origin)
    file.seek(0)
    data = file.read()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        file.truncate(whole)
    heads = [head for one, head in _read(path, data[:whole].splitlines()) if (one.key, one.origin) == signer]
    return max(heads, key=lambda head: head.size, default=None)


def _read(path: Path, lines: Iterable[bytes]) -> list[tuple[_Signed, TreeHead]]:
    try:
        signed = [msgspec.json.decode(line, type=_Signed) for line in lines]
        return [(one, TreeHead.from_hex(one.size, one.root)) for one in signed]
    except (msgspec.MsgspecError, UnicodeError, RecursionError, RefusedError) as error:
        raise RefusedError(
            ErrorCode.INVALID_PROMISE, f"{path} does not record what was signed: {error}.", path=str(path)
        ) from None


def _hold(path: Path, log: EventLog, key: VerifierKey, origin: str, newest: TreeHead) -> None:
    size = log.head().size
    if newest.size <= size and log.root_at(newest.size) == newest:
        return
    why = f"has {size} events" if newest.size > size else "has others in their place"
    raise DamagedLogError(
        ErrorCode.SAVED_HEAD_MISMATCH,
        f"{key.name} has signed {newest.size} events of {origin}, and this log {why}: nothing was signed, so that one "
        f"name has one history. Sign another history under another --origin; {path} records what was signed.",
        position=newest.size,
    )


def _note(path: Path, file: IO[bytes], signed: _Signed) -> None:
    try:
        file.write(msgspec.json.encode(signed) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise _unwritable(path, error) from None
