"""Signed notes (C2SP signed-note): a text, an empty line, and a line for each signature over the text.

    example.com/log
    42
    xCtGkmOPXzPsTbM3L6pJ1YkOcFRMd0fh+yCIR2hxFLo=

    — example.com/log Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=

A signature is base64 of a key id of 4 bytes and the output of the key's algorithm. Name and id together identify a key.
Supported are Ed25519 over the text (type 1, used for the log) and the timestamped Ed25519 cosignature of witnesses
(type 4, C2SP tlog-cosignature). Keys have the text format of Go's ``note`` package. Parsing is strict: writing a parsed
note gives the same bytes. Signature lines of unknown keys are kept unchanged.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import is_encodable

__all__ = [
    "COSIGNATURE",
    "ED25519",
    "Signature",
    "SignedNote",
    "SigningKey",
    "VerifierKey",
    "check_signatures",
    "decoded_base64",
    "first_key",
    "is_key_name",
    "read_note",
]

ED25519: Final = 1
"""Type of a plain Ed25519 key."""

COSIGNATURE: Final = 4
"""Type of the Ed25519 key of a witness, whose signatures contain a time."""

MAX_NOTE_BYTES: Final = 1 << 20
MAX_SIGNATURES: Final = 100
"""Maximum number of signature lines, as in Go's package; the specification requires at least 16."""

_DASH: Final = "\u2014 "
_PRIVATE: Final = "PRIVATE+KEY+"
_KEY_BYTES: Final = 32
_ID_BYTES: Final = 4
_TIME_BYTES: Final = 8
_MAX_SECONDS: Final = 2**63 - 1
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature line.

    Args:
        name: name of the key.
        key_id: 4 bytes that distinguish keys of one name.
        value: output of the key's algorithm.
    """

    name: str
    key_id: bytes
    value: bytes

    @property
    def seconds(self) -> int:
        """When a witness signed, in seconds since 1970, where the key is of the type ``COSIGNATURE``."""
        return int.from_bytes(self.value[:_TIME_BYTES])

    def to_text(self) -> str:
        """Return the line, with its end."""
        return f"{_DASH}{self.name} {b64encode(self.key_id + self.value).decode()}\n"


@dataclass(frozen=True, slots=True)
class SignedNote:
    """Text with its signatures.

    Args:
        text: the text; every line ends with a newline.
        signatures: the signatures in the order of the note; empty for an unsigned text.
    """

    text: str
    signatures: tuple[Signature, ...] = ()

    def to_text(self) -> str:
        """Return the note as it is written to files; without signatures, the text alone."""
        lines = "".join(one.to_text() for one in self.signatures)
        return f"{self.text}\n{lines}" if lines else self.text

    def signed(self, key: SigningKey) -> SignedNote:
        """Return the note with one more signature; an earlier one of the same key is replaced, others stay."""
        mine = key.sign(self.text)
        others = tuple(one for one in self.signatures if (one.name, one.key_id) != (mine.name, mine.key_id))
        return replace(self, signatures=(*others, mine))


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """Public key with its name.

    Args:
        name: name of the signer; for a log it should be the origin of its checkpoints.
        public: 32 bytes.
        kind: ``ED25519`` or ``COSIGNATURE``.
    """

    name: str
    public: bytes
    kind: int = ED25519

    @property
    def key_id(self) -> bytes:
        """The first four bytes of SHA-256 over name, newline, type and public key."""
        return sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public).digest()[:_ID_BYTES]

    def to_text(self) -> str:
        """Return ``name+id+key``, as Go's package writes it."""
        return f"{self.name}+{self.key_id.hex()}+{b64encode(bytes([self.kind]) + self.public).decode()}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """Read what ``to_text`` wrote.

        Raises:
            RefusedError: ``INVALID_KEY`` for any other text, a key of another type, and a key whose id is not its own.
        """
        name, _, rest = text.partition("+")
        raw = decoded_base64(rest.partition("+")[2])
        if raw is not None and len(raw) == 1 + _KEY_BYTES and raw[0] in (ED25519, COSIGNATURE) and is_key_name(name):
            key = cls(name, raw[1:], raw[0])
            if key.to_text() == text:
                return key
        raise RefusedError(
            ErrorCode.INVALID_KEY,
            f"This is no verifier key of the form NAME+ID+KEY with Ed25519 (type 1 or 4): {text[:120]!r}.",
        )

    def made(self, text: str, signature: Signature) -> bool:
        """Return whether a signature over a text was made with this key."""
        value, signed = signature.value, text
        if self.kind == COSIGNATURE:
            if len(value) <= _TIME_BYTES or signature.seconds > _MAX_SECONDS:
                return False
            signed = f"cosignature/v1\ntime {signature.seconds}\n{text}"
            value = value[_TIME_BYTES:]
        return self.has_signed(signed.encode(), value)

    def has_signed(self, data: bytes, value: bytes) -> bool:
        """Return whether ``value`` is the Ed25519 signature of this key over ``data``."""
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(value, data)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class SigningKey:
    """Private key with its name; its text is a secret and is never part of an error.

    Args:
        name: the name of its verifier key.
        seed: the 32 bytes of the private Ed25519 key.
    """

    name: str
    seed: bytes

    def __repr__(self) -> str:
        return f"SigningKey({self.name!r})"

    @classmethod
    def generate(cls, name: str) -> SigningKey:
        """Make a new key.

        Raises:
            RefusedError: ``INVALID_KEY`` for a name that is empty or has spaces, a plus sign or control characters.
        """
        if not is_key_name(name):
            raise RefusedError(
                ErrorCode.INVALID_KEY, f"The name of a key has no spaces, no plus sign and some text: not {name!r}."
            )
        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def verifier(self) -> VerifierKey:
        """The public half."""
        return VerifierKey(self.name, Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw())

    def to_text(self) -> str:
        """Return ``PRIVATE+KEY+name+id+key``, as Go's package writes it."""
        encoded = b64encode(bytes([ED25519]) + self.seed).decode()
        return f"{_PRIVATE}{self.name}+{self.verifier.key_id.hex()}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> SigningKey:
        """Read what ``to_text`` wrote.

        Raises:
            RefusedError: ``INVALID_KEY`` for any other text, which the message does not contain.
        """
        name, _, rest = text.removeprefix(_PRIVATE).partition("+")
        raw = decoded_base64(rest.partition("+")[2])
        if raw is not None and len(raw) == 1 + _KEY_BYTES and is_key_name(name):
            key = cls(name, raw[1:])
            if key.to_text() == text:
                return key
        raise RefusedError(
            ErrorCode.INVALID_KEY, "This is no signing key of the form PRIVATE+KEY+NAME+ID+KEY with Ed25519 (type 1)."
        )

    def sign(self, text: str) -> Signature:
        """Sign a text."""
        return Signature(self.name, self.verifier.key_id, self.sign_bytes(text.encode()))

    def sign_bytes(self, data: bytes) -> bytes:
        """Return the Ed25519 signature over bytes, of 64 bytes."""
        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(data)


def first_key(keys: Sequence[SigningKey]) -> SigningKey:
    """Return the first of the keys that sign.

    Raises:
        RefusedError: ``NO_KEY`` where there is none.
    """
    if not keys:
        raise RefusedError(
            ErrorCode.NO_KEY,
            "There is no key to sign with: name one with --key, or in world.toml under [checkpoint]; "
            "`worldctl checkpoint keygen NAME` makes one.",
        )
    return keys[0]


def is_key_name(name: str) -> bool:
    """Return whether a text is a valid name of a key: not empty, without spaces, plus signs and control characters."""
    plain = not any(one.isspace() or one == "+" for one in name) and not _CONTROL.search(name)
    return bool(name) and plain and is_encodable(name)


def read_note(data: bytes) -> SignedNote:
    """Read a note, or a text without signatures and without empty lines.

    Raises:
        RefusedError: ``INVALID_NOTE`` for anything but the output of ``to_text``.
    """
    if len(data) > MAX_NOTE_BYTES:
        raise _invalid(f"has more than {MAX_NOTE_BYTES} bytes")
    try:
        whole = data.decode()
    except UnicodeDecodeError:
        raise _invalid("is no UTF-8 text") from None
    if _CONTROL.search(whole):
        raise _invalid("has control characters")
    if not whole.endswith("\n") or len(whole) == 1:
        raise _invalid("does not end with a newline")
    if "\n\n" not in whole:
        return SignedNote(whole)
    at = whole.rindex("\n\n")
    lines = whole[at + 2 :].split("\n")[:-1]
    if not 0 < len(lines) <= MAX_SIGNATURES:
        raise _invalid(f"has {len(lines)} signatures, not 1 to {MAX_SIGNATURES}")
    return SignedNote(whole[: at + 1], tuple(_signature(line) for line in lines))


def check_signatures(note: SignedNote, keys: Iterable[VerifierKey]) -> tuple[Signature, ...]:
    """Check that each of these keys signed a note.

    Args:
        note: the note.
        keys: the trusted keys, each of which must have signed.

    Returns:
        The signatures by other keys, which were not checked.

    Raises:
        RefusedError: ``BAD_SIGNATURE`` where a line of one of the keys is not its signature over the text,
            ``NOT_SIGNED`` where one of them has no line.
    """
    unknown = list(note.signatures)
    for key in keys:
        mine = [one for one in note.signatures if (one.name, one.key_id) == (key.name, key.key_id)]
        if not mine:
            raise RefusedError(
                ErrorCode.NOT_SIGNED, f"It is not signed with the key {key.to_text()}.", key=key.to_text()
            )
        for one in mine:
            if not key.made(note.text, one):
                raise RefusedError(
                    ErrorCode.BAD_SIGNATURE,
                    f"The signature by {key.name} is wrong: the text or the signature was changed.",
                    key=key.to_text(),
                )
        unknown = [one for one in unknown if one not in mine]
    return tuple(unknown)


def _signature(line: str) -> Signature:
    name, _, encoded = line.removeprefix(_DASH).partition(" ")
    raw = decoded_base64(encoded)
    if not line.startswith(_DASH) or not is_key_name(name) or raw is None or len(raw) <= _ID_BYTES:
        raise _invalid(f"has a line that is no signature: {line[:120]!r}")
    return Signature(name, raw[:_ID_BYTES], raw[_ID_BYTES:])


def decoded_base64(encoded: str) -> bytes | None:
    """Return the bytes of a text in canonical base64; None for any other text."""
    try:
        raw = b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if b64encode(raw).decode() == encoded else None


def _invalid(clause: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_NOTE, f"The signed note {clause}.")
