"""Receipts and consistency proofs as COSE Receipts (RFC 9942), which other programs check too. Extra ``cose``.

Each is a tagged COSE_Sign1 (RFC 9052) by a key of checkpoints. What is signed is the root of the newer tree, as a
detached payload: it follows from the proof, which is in the unprotected header (RFC 9162 with SHA-256).

- The root alone does not say how large the tree is, and without that the path fits several indexes. The size is
  therefore protected too, under a label of the private range, beside the origin (``iss``) and the subject (``sub``) as
  CWT claims (RFC 9597) and the id of the key.
- A receipt also has the text of its event, in the unprotected header: it is proven by the path.
- A consistency proof does not have the root of the older tree; a verifier has it already.
- The encoding is deterministic (RFC 8949 section 4.2.1); written in any other way, a file proves nothing.

A key of checkpoints also signs notes. Neither signature passes for the other: the text of a note is UTF-8, and what
COSE signs begins with the byte 0x84, with which no text in UTF-8 begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.extras import needs_extra
from world.log import EventLog, TreeHead, root_from_beginning, root_from_leaf
from world.log.merkle import HASH_BYTES
from worldprotocol.export.proofs.checkpoint import Checkpoint, Trusted, checkpoint_of
from worldprotocol.export.proofs.note import ED25519, SigningKey
from worldprotocol.export.proofs.receipt import (
    Subject,
    VerifiedProof,
    bad_proof,
    check_subject,
    event_text,
    prove_event,
    prove_growth,
    read_event_text,
    refusing_malformed,
)

with needs_extra("Receipts in COSE", "cose"):
    import cbor2

__all__ = ["ENTRY", "MAX_BYTES", "MEDIA_TYPE", "SIZE", "check_cose", "cose_consistency", "cose_receipt"]

MEDIA_TYPE: Final = 'application/cose; cose-type="cose-sign1"'
"""Media type of both (RFC 9052 section 2)."""

MAX_BYTES: Final = 64 << 20
"""Longest file that is read; an event has at most 4 MiB unless a log permits more."""

SIZE: Final = -70_001
"""Label of the protected header: leaves in the tree whose root is signed (private range)."""

ENTRY: Final = -70_002
"""Label of the unprotected header: text of the event, which is the entry of the log (private range)."""

_SIGN1, _ALG, _KID, _CLAIMS, _VDS, _VDP = 18, 1, 4, 15, 395, 396
_ISS, _SUB = 1, 2
_EDDSA: Final = -8
_RFC9162_SHA256: Final = 1
_INCLUSION, _CONSISTENCY = -1, -2
_MAX_NODES: Final = 128
_MAX_DEPTH: Final = 16

_T = TypeVar("_T")
_Map = dict[int, Any]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Hash = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
_Path = Annotated[list[_Hash], msgspec.Meta(min_length=1, max_length=_MAX_NODES)]


def cose_receipt(log: EventLog, subject: Subject, checkpoint: Checkpoint, key: SigningKey) -> bytes:
    """Return the receipt for an event.

    Args:
        log: the log with the event.
        subject: the subject of the receipt.
        checkpoint: a checkpoint of this log, at or after the event.
        key: signs the receipt. It has signed, or may sign, this checkpoint (``promise``).

    Raises:
        RefusedError: ``NO_SUCH_EVENT`` where the checkpoint precedes the event, or the log is shorter than it;
            ``INVALID_INPUT`` where the tree has one event only, for which RFC 9942 has no proof.
        DamagedLogError: as ``make_receipt``.
    """
    event, path = prove_event(log, subject.position, checkpoint)
    claims = {_ISS: checkpoint.origin, _SUB: f"{subject.kind}/{subject.name}"}
    proof = [checkpoint.head.size, event.position - 1, _nonempty(path)]
    unprotected = {_VDP: {_INCLUSION: [_encoded(proof)]}, ENTRY: event_text(event).encode()}
    data = _signed(claims, checkpoint.head, unprotected, key)
    check_cose(data, Trusted((key.verifier,), checkpoint.origin))
    return data


def cose_consistency(log: EventLog, old: Checkpoint, new: Checkpoint, key: SigningKey) -> bytes:
    """Return the proof that the log at the new checkpoint is a continuation of the old one.

    Args:
        log: the log of both.
        old: the older checkpoint, of which the proof has only the size.
        new: the newer one.
        key: signs the proof. It has signed, or may sign, the newer checkpoint (``promise``).

    Raises:
        RefusedError: as ``make_consistency``; ``INVALID_INPUT`` also where the older tree is empty or the same, for
            which RFC 9942 has no proof.
        DamagedLogError: as ``make_consistency``.
    """
    proof = [old.head.size, new.head.size, _nonempty(prove_growth(log, old, new))]
    data = _signed({_ISS: new.origin}, new.head, {_VDP: {_CONSISTENCY: [_encoded(proof)]}}, key)
    check_cose(data, Trusted((key.verifier,), new.origin), [old.head])
    return data


def check_cose(data: bytes, trusted: Trusted, known: Sequence[TreeHead] = ()) -> VerifiedProof:
    """Check a receipt or a consistency proof.

    Args:
        data: the contents of the file.
        trusted: the trusted keys and origin; COSE_Sign1 has one signature, which each of the keys must have made.
        known: tree heads from elsewhere, of which a consistency proof needs that of the older tree.

    Returns:
        What was proven; its checkpoints have no signatures of their own.

    Raises:
        RefusedError: ``BAD_PROOF`` for an invalid proof, or one whose older tree head is not known; ``WRONG_ORIGIN``,
            ``NOT_SIGNED``, ``BAD_SIGNATURE``, ``INVALID_CHECKPOINT``.
    """
    with refusing_malformed():
        proof = _read(data)
        if proof.kind == _CONSISTENCY:
            old = next((head for head in known if head.size == proof.place), None)
            if old is None:
                raise RefusedError(
                    ErrorCode.BAD_PROOF,
                    f"This proves nothing here: COSE does not contain the older tree head, of {proof.place} events. "
                    "Give the one that was kept with --against.",
                    size=proof.place,
                )
            root = root_from_beginning(proof.place, proof.size, old.root, proof.path)
            checkpoint = proof.checkpoint(root)
            unchecked = proof.check_signature(checkpoint, trusted)
            return VerifiedProof("consistency", (checkpoint_of(old, proof.origin), checkpoint), unchecked)
        content, leaf = read_event_text(proof.entry.decode())
        checkpoint = proof.checkpoint(root_from_leaf(leaf, proof.place, proof.size, proof.path))
        unchecked = proof.check_signature(checkpoint, trusted)
        kind, _, name = proof.subject.partition("/")
        subject = Subject(kind, name, proof.place + 1)
        check_subject(subject, content)
        about = {"kind": kind, "id": name, "field": subject.field}
        seen = {"position": subject.position, **content}
        return VerifiedProof("receipt", (checkpoint,), unchecked, about, seen)


@dataclass(frozen=True, slots=True)
class _Proof:
    """What a file says; nothing of it is checked against another part.

    Args:
        kind: ``_INCLUSION`` or ``_CONSISTENCY``.
        place: index of the leaf, or leaves in the older tree.
        size: leaves in the tree whose root is signed.
        path: hashes of the proof.
        origin: the log's name.
        subject: kind and id of a receipt's subject; empty for a consistency proof.
        entry: text of a receipt's event; empty for a consistency proof.
        key_id: the id of the key.
        protected: the encoded protected header.
        signature: the signature.
    """

    kind: int
    place: int
    size: int
    path: tuple[bytes, ...]
    origin: str
    subject: str
    entry: bytes
    key_id: bytes
    protected: bytes
    signature: bytes

    def checkpoint(self, root: bytes | None) -> Checkpoint:
        """Return origin, size and root, to which the path has to lead."""
        if root is None:
            raise bad_proof("has a path that does not lead to a tree of its size")
        return checkpoint_of(TreeHead(self.size, root), self.origin)

    def check_signature(self, checkpoint: Checkpoint, trusted: Trusted) -> tuple[str, ...]:
        """Check signature and origin, and return the key that was not checked because none was given."""
        signed = _to_sign(self.protected, checkpoint.head.root)
        for key in trusted.keys:
            text = key.to_text()
            if key.kind != ED25519 or key.key_id != self.key_id:
                raise RefusedError(ErrorCode.NOT_SIGNED, f"It is not signed with the key {text}.", key=text)
            if not key.has_signed(signed, self.signature):
                raise RefusedError(
                    ErrorCode.BAD_SIGNATURE,
                    f"The signature by {key.name} is wrong: the event, the proof or the signature was changed.",
                    key=text,
                )
        trusted.check_origin(self.origin)
        return () if trusted.keys else (f"key {self.key_id.hex()}",)


def _signed(claims: Mapping[int, str], head: TreeHead, unprotected: Mapping[int, Any], key: SigningKey) -> bytes:
    header = {_ALG: _EDDSA, _KID: key.verifier.key_id, _CLAIMS: claims, _VDS: _RFC9162_SHA256, SIZE: head.size}
    protected = _encoded(header)
    signature = key.sign_bytes(_to_sign(protected, head.root))
    return _encoded(cbor2.CBORTag(_SIGN1, [protected, unprotected, None, signature]))


def _to_sign(protected: bytes, payload: bytes) -> bytes:
    """Return the Sig_structure (RFC 9052 section 4.4)."""
    return _encoded(["Signature1", protected, b"", payload])


def _encoded(value: object) -> bytes:
    return cbor2.dumps(value, canonical=True)


def _nonempty(path: Sequence[bytes]) -> list[bytes]:
    if not path:
        raise RefusedError(
            ErrorCode.INVALID_INPUT,
            "RFC 9942 has no proof in a tree of one event, from an empty tree, or from a tree to itself.",
        )
    return list(path)


def _read(data: bytes) -> _Proof:
    if len(data) > MAX_BYTES:
        raise bad_proof(f"has {len(data)} bytes, more than {MAX_BYTES}")
    message = _decoded(data)
    if not isinstance(message, cbor2.CBORTag) or message.tag != _SIGN1:
        raise bad_proof("is not a tagged COSE_Sign1 (RFC 9052)")
    protected, unprotected, payload, signature = _as(tuple[bytes, _Map, bytes | None, bytes], message.value)
    header = _as(dict[Any, Any], _decoded(protected))
    if header.get(_VDS) != _RFC9162_SHA256:
        raise bad_proof(f"is about another kind of tree than RFC9162_SHA256 (vds 1): {header.get(_VDS)!r:.40}")
    if header.get(_ALG) != _EDDSA:
        raise bad_proof(f"is signed with another algorithm than EdDSA (-8): {header.get(_ALG)!r:.40}")
    if payload is not None:
        raise bad_proof("has an attached payload; that of a receipt is detached")
    proofs = _as(dict[int, tuple[bytes]], unprotected.get(_VDP))
    is_receipt = _INCLUSION in proofs
    kind = _INCLUSION if is_receipt else _CONSISTENCY
    claims = _as(dict[Any, str], header.get(_CLAIMS, {}))
    _labels(header, _ALG, _KID, _CLAIMS, _VDS, SIZE)
    _labels(claims, _ISS, *([_SUB] if is_receipt else ()))
    _labels(unprotected, _VDP, *([ENTRY] if is_receipt else ()))
    _labels(proofs, kind)
    proof = _decoded(proofs[kind][0])
    first, second, path = _as(tuple[_Count, _Count, _Path], proof)
    entry, key_id = _as(bytes, unprotected.get(ENTRY, b"")), _as(bytes, header[_KID])
    size, place = (first, second) if is_receipt else (second, first)
    if size != _as(int, header[SIZE]):
        raise bad_proof("has a proof about another tree than its signature")
    _check_encoding((data, message), (protected, header), (proofs[kind][0], proof))
    return _Proof(
        kind, place, size, tuple(path), claims[_ISS], claims.get(_SUB, ""), entry, key_id, protected, signature
    )


def _decoded(data: bytes) -> object:
    try:
        return cbor2.loads(data, max_depth=_MAX_DEPTH, allow_indefinite=False, allow_duplicate_keys=False)
    except cbor2.CBORDecodeEOF:
        raise bad_proof("is cut off") from None
    except (cbor2.CBORError, RecursionError, ArithmeticError) as error:
        raise bad_proof(f"is damaged, or no CBOR ({error!s:.80})") from None


def _check_encoding(*parts: tuple[bytes, object]) -> None:
    """Check that each text is the deterministic encoding of its value, which has no other."""
    for data, value in parts:
        if _encoded(value) != data:
            raise bad_proof("is not written in deterministic CBOR (RFC 8949, 4.2.1), or something follows it")


def _as(kind: type[_T], value: object) -> _T:
    return msgspec.convert(value, kind, builtin_types=(bytes,))


def _labels(header: Mapping[int, object], *labels: int) -> None:
    if set(header) != set(labels):
        raise bad_proof(f"is a receipt of another program: it has not exactly the labels {', '.join(map(str, labels))}")
