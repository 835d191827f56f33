"""Checkpoints (C2SP tlog-checkpoint): tree heads as signed notes that witnesses of transparency logs can cosign.

The text of the note is the origin, which permanently names the log, the size in decimal, the root in base64, and
optional extension lines. A signature promises that all signed heads with this origin are of one history.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log import EventLog, TreeHead
from world.log.merkle import HASH_BYTES
from world.read_models.decoding import log_id_of
from worldprotocol.export.proofs.note import (
    SignedNote,
    SigningKey,
    VerifierKey,
    check_signatures,
    decoded_base64,
    read_note,
)

__all__ = ["Checkpoint", "Trusted", "checkpoint_of", "default_origin", "is_checkpoint", "read_checkpoint"]

_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_MAX_SIZE: Final = 2**63 - 1
_MAX_ORIGIN: Final = 1_000
_SHOWN: Final = re.compile(r"[^\x00-\x1f\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tree head with the name of its log and signatures.

    Args:
        origin: the line that names the log.
        head: size and root.
        note: the original text with its signatures, which may be empty.
        extensions: further lines of the text, which are not interpreted.
    """

    origin: str
    head: TreeHead
    note: SignedNote
    extensions: tuple[str, ...] = ()

    def to_text(self) -> str:
        """Return the text of a checkpoint file."""
        return self.note.to_text()

    def signed(self, keys: Iterable[SigningKey]) -> Checkpoint:
        """Return the checkpoint with signatures by these keys added."""
        note = self.note
        for key in keys:
            note = note.signed(key)
        return Checkpoint(self.origin, self.head, note, self.extensions)


@dataclass(frozen=True, slots=True)
class Trusted:
    """Trusted keys and the expected log of a check.

    Args:
        keys: keys of which each must have signed; empty disables the check of signatures.
        origin: the expected origin; None expects the name of one of the keys.
    """

    keys: tuple[VerifierKey, ...] = ()
    origin: str | None = None

    def check(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        """Check origin and signatures of a checkpoint.

        Returns:
            The names in the signature lines that were not checked.

        Raises:
            RefusedError: ``WRONG_ORIGIN``, ``NOT_SIGNED``, ``BAD_SIGNATURE``.
        """
        unknown = check_signatures(checkpoint.note, self.keys)
        self.check_origin(checkpoint.origin)
        return tuple(one.name for one in unknown)

    def check_origin(self, origin: str) -> None:
        """Check that an origin is that of the expected log.

        Raises:
            RefusedError: ``WRONG_ORIGIN``.
        """
        if self.origin is not None and origin != self.origin:
            raise RefusedError(ErrorCode.WRONG_ORIGIN, f"It belongs to the log {origin!r}, not to {self.origin!r}.")
        if self.origin is None and self.keys and origin not in {key.name for key in self.keys}:
            raise RefusedError(
                ErrorCode.WRONG_ORIGIN,
                f"It belongs to the log {origin!r}, and no given key has this name. If that is the log "
                f"you mean, say so with --origin {origin}.",
                origin=origin,
            )


def checkpoint_of(head: TreeHead, origin: str, keys: Iterable[SigningKey] = ()) -> Checkpoint:
    """Return the checkpoint of a tree head, signed with these keys.

    Raises:
        RefusedError: ``INVALID_CHECKPOINT`` for an origin that is no line of text, or a very long one.
    """
    if not _SHOWN.fullmatch(origin) or len(origin) > _MAX_ORIGIN:
        raise RefusedError(
            ErrorCode.INVALID_CHECKPOINT,
            f"An origin is one line of text without control characters, of at most {_MAX_ORIGIN} characters: "
            f"{origin[:120]!r}.",
        )
    text = f"{origin}\n{head.size}\n{b64encode(head.root).decode()}\n"
    return Checkpoint(origin, head, SignedNote(text)).signed(keys)


def is_checkpoint(data: bytes) -> bool:
    """Return whether a file has the form of a checkpoint, signed or not, instead of plain tree heads."""
    lines = data[:4096].split(b"\n", 3)
    return b"\n\n\xe2\x80\x94 " in data or (len(lines) == 4 and lines[1].isdigit() and b":" not in lines[2])


def read_checkpoint(data: bytes) -> Checkpoint:
    """Read a checkpoint, strictly; one without signatures is read too.

    Raises:
        RefusedError: ``INVALID_NOTE``, ``INVALID_CHECKPOINT``.
    """
    note = read_note(data)
    origin, *rest = note.text[:-1].split("\n")
    if len(rest) < 2 or not all((origin, *rest)):
        raise _invalid("has fewer than three lines, or an empty one")
    size, encoded, *extensions = rest
    root = decoded_base64(encoded)
    if not _SIZE.fullmatch(size) or int(size) > _MAX_SIZE:
        raise _invalid(f"has no number of leaves in its second line, but {size[:40]!r}")
    if root is None or len(root) != HASH_BYTES:
        raise _invalid(f"has no root of {HASH_BYTES} bytes in base64 in its third line, but {encoded[:80]!r}")
    return Checkpoint(origin, TreeHead(int(size), root), note, tuple(extensions))


def default_origin(log: EventLog) -> str:
    """Return the default origin of a log, derived from its id, which does not change when the log is moved.

    Raises:
        RefusedError: ``NO_SUCH_EVENT`` for an empty log.
        DamagedLogError: its first event cannot be read.
    """
    log_id = log_id_of(log)
    if log_id is None:
        raise DamagedLogError(ErrorCode.BAD_REFERENCE, "The log does not begin with its founding.", position=1)
    return f"world-protocol/{log_id}"


def _invalid(clause: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_CHECKPOINT, f"The checkpoint {clause}.")
