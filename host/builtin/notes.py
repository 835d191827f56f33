"""Notes of effects on files: the state before the first change, so that a repeated effect can continue.

A process may be killed between a change and the record of it. Before its first change an effect writes a note, durably,
under the hash of its idempotency key; a repetition reads the note and determines how far the effect had come. The note
is locked while the effect runs, so that an abandoned attempt and a new one never run at the same time.

A note that cannot be read was never completed, so nothing was changed. A note is obsolete once the effect's result
is in the log; ``prune_notes`` deletes notes by age. Source: HC-journal; design section 8.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from host.builtin.effect_support import EFFECT_CANCELLED, EFFECT_NO_WORKSPACE, EffectError
from host.effect_call import EffectCallInfo

__all__ = ["AttemptNote", "note_of", "prune_notes"]

_POLL_S: Final = 0.05
_MAX_BYTES: Final = 64 * 1024


class AttemptNote:
    """The note of an effect for later attempts; open and locked.

    Args:
        file: an open file.
        folder: the folder of the file, for durability.
        call: the effect.
    """

    def __init__(self, file: int, folder: Path, call: EffectCallInfo) -> None:
        """Read the note of an earlier attempt."""
        self._file = file
        self._folder = folder
        self._call = call
        self.before: Mapping[str, Any] | None = _content(file)

    def write(self, before: Mapping[str, Any]) -> None:
        """Record the current state durably; nothing may be changed before this returns.

        Raises:
            EffectError: ``FILE_NOTE_FAILED``.
        """
        data = json.dumps({"at": self._call.clock.now_ms(), "before": before}).encode()
        with _reporting_errors(self._call):
            os.ftruncate(self._file, 0)
            if os.pwrite(self._file, data, 0) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file)
            _sync(self._folder)
        self.before = before


def _content(file: int) -> Mapping[str, Any] | None:
    try:
        note = json.loads(os.pread(file, _MAX_BYTES, 0))
        before = note["before"]
    except (ValueError, KeyError, TypeError):
        return None
    return before if isinstance(before, dict) else None


@contextmanager
def note_of(call: EffectCallInfo) -> Iterator[AttemptNote]:
    """Open the note of an effect, and hold it exclusively until the end.

    Raises:
        EffectError: ``EFFECT_NO_WORKSPACE`` where there is no folder for it, ``EFFECT_CANCELLED`` where another attempt
            holds it and the effect was cancelled, ``FILE_NOTE_FAILED`` where it cannot be written.
    """
    with _reporting_errors(call):
        folder = _folder_of(call)
        path = folder / f"{hashlib.sha256(call.idempotency_key.encode()).hexdigest()}.json"
        file = _locked(path, call)
    try:
        yield AttemptNote(file, folder, call)
    finally:
        os.close(file)


@contextmanager
def _reporting_errors(call: EffectCallInfo) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"{call.effect_type} was not started, because its note cannot be written: {error.strerror}."
        raise EffectError("FILE_NOTE_FAILED", message, {"errno": errno.errorcode.get(error.errno or 0, "")}) from None


def _folder_of(call: EffectCallInfo) -> Path:
    if call.scratch is not None:
        folder = call.scratch
    elif call.workspace is not None:
        folder = call.workspace.private / "effects"
    else:
        raise EffectError(
            EFFECT_NO_WORKSPACE, f"{call.effect_type} needs a workspace; start the host with a workspace."
        )
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for made in (folder, folder.parent):  # the engine's folder itself is synced by the workspace
            with contextlib.suppress(OSError):
                _sync(made)
    return folder


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _locked(path: Path, call: EffectCallInfo) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            while not _lock(file):
                if call.is_cancelled():
                    raise EffectError(
                        EFFECT_CANCELLED, f"{call.effect_type} was cancelled while another attempt was running."
                    )
                time.sleep(_POLL_S)
        except BaseException:
            os.close(file)
            raise
        if os.fstat(file).st_nlink:
            return file
        os.close(file)  # the note was deleted between opening and locking


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def prune_notes(scratch: Path, now: int, max_age: int) -> int:
    """Delete the notes of effects whose results were recorded long ago.

    Args:
        scratch: the folder of the notes; may be missing.
        now: ms since 1970.
        max_age: milliseconds; must exceed the longest time of an execution without a recorded result.

    Returns:
        How many were deleted. A note whose effect is running is kept.
    """
    removed = 0
    for path in sorted(scratch.glob("*.json")):
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if _lock(file) and _age(file, now) > max_age:
                os.unlink(path)
                removed += 1
        except FileNotFoundError:
            continue
        finally:
            os.close(file)
    return removed


def _age(file: int, now: int) -> int:
    try:
        at = int(json.loads(os.pread(file, _MAX_BYTES, 0))["at"])
    except (ValueError, KeyError, TypeError):
        at = os.fstat(file).st_mtime_ns // 1_000_000
    return now - at
