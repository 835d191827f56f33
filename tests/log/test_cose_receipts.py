"""Receipts and consistency proofs in COSE, against other implementations of RFC 9942, RFC 9162 and CBOR.

``scitt_cose`` has a COSE_Sign1 and Merkle proofs of its own, ``tlog_scales`` the verification of RFC 9162 to the
letter, and ``cddl_verifier`` a decoder of CBOR of its own, with which the messages are also taken apart and changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import scitt_cose
from cddl_verifier import Validator, cbor
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from tlog_scales.tlog import ConsistencyProof, ConsistencyProofInvalid

from tests.golden.garden import record
from tests.log.test_receipts import KEY, ORIGIN, WITNESS, signed, subjects
from tests.support.tables import for_each
from world.errors import DamagedLogError, RefusedError
from worldprotocol.api.realm import Realm
from worldprotocol.export.proofs.checkpoint import Trusted, checkpoint_of
from worldprotocol.export.proofs.cose import ENTRY, MAX_BYTES, SIZE, check_cose, cose_consistency, cose_receipt
from worldprotocol.export.proofs.note import COSIGNATURE, SigningKey, VerifierKey
from worldprotocol.export.proofs.receipt import Subject

TRUSTED = Trusted((KEY.verifier,))
PRIVATE = Ed25519PrivateKey.from_private_bytes(KEY.seed)
REFUSED = ("BAD_PROOF", "NOT_SIGNED", "BAD_SIGNATURE", "INVALID_CHECKPOINT")
PEM = PRIVATE.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
PRIVATE_PEM = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

GRAMMAR = Validator("""
    receipt = #6.18([protected: bstr .cbor signed-header, unprotected: inclusion / consistency, nil, bstr .size 64])
    signed-header = { 1 => int, 395 => 1, * any => any }
    inclusion = { 396 => { -1 => [+ bstr .cbor [size: uint, index: uint, path: [+ bstr .size 32]]] }, * any => any }
    consistency = { 396 => { -2 => [+ bstr .cbor [old: uint, new: uint, path: [+ bstr .size 32]]] }, * any => any }
""")
"""COSE_Sign1 of RFC 9942 sections 4.3, 5.2 and 5.3, of which payloads are detached here."""


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with record(str(tmp_path_factory.mktemp("cose") / "world.db")) as world:
        yield world


@pytest.fixture(scope="module")
def receipt(garden: Realm) -> bytes:
    """The receipt of the third of five events."""
    return cose_receipt(garden.log, Subject("event", "3", 3), signed(garden, 5), KEY)


def refusal(data: bytes, trusted: Trusted = TRUSTED, known: Any = ()) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        check_cose(data, trusted, known)
    return refused.value


def accepted(data: bytes) -> scitt_cose.ReceiptResult:
    """Have another implementation check a receipt with its entry and the public key."""
    entry = cbor.decode(data).value[1][ENTRY]
    return scitt_cose.verify_receipt(data, leaf_entry_hex=entry.hex(), log_public_key_pem=PEM)


def changed(data: bytes, change: Callable[[dict, dict, list], None], *, sign_again: bool = False) -> bytes:
    """Change the headers and the proof of a receipt; the log's own key may sign the result."""
    protected, unprotected, _, signature = cbor.decode(data).value
    header, [[kind, [proof]]] = cbor.decode(protected), unprotected[396].items()
    parts = cbor.decode(proof)
    change(header, unprotected, parts)
    if 396 in unprotected:
        unprotected[396] = {kind: [cbor.encode(parts, canonical=True)]}
    protected = cbor.encode(header, canonical=True)
    if sign_again:
        root = bytes.fromhex(accepted(data).root)
        signature = PRIVATE.sign(cbor.encode(["Signature1", protected, b"", root]))
    return cbor.encode(cbor.CBORTag(18, [protected, unprotected, None, signature]), canonical=True)


def test_every_receipt_is_accepted_by_another_implementation(garden: Realm) -> None:
    head = garden.log.head()
    for subject in subjects(garden):
        data = cose_receipt(garden.log, subject, signed(garden), KEY)
        seen = accepted(data)
        assert seen.ok, seen.errors
        assert (seen.root, seen.tree_size, seen.leaf_index) == (head.root_hex, head.size, subject.position - 1)
        assert (seen.issuer, seen.subject) == (ORIGIN, f"{subject.kind}/{subject.name}")
        assert seen.protected_header_ext == {4: KEY.verifier.key_id, SIZE: head.size}
        assert not scitt_cose.verify_receipt(data, leaf_entry_hex="7b7d", log_public_key_pem=PEM).ok
        proven = check_cose(data, TRUSTED)
        assert proven.about == {"kind": subject.kind, "id": subject.name, "field": subject.field}
        assert proven.event is not None
        assert proven.event["position"] == subject.position
        assert ([one.head for one in proven.checkpoints], proven.unchecked) == ([head], ())


def test_every_event_has_a_receipt_in_the_grammar_of_the_specification(garden: Realm) -> None:
    size = garden.log.head().size
    for position in range(1, size + 1):
        data = cose_receipt(garden.log, Subject("event", str(position), position), signed(garden), KEY)
        told = GRAMMAR.validate(data, "receipt", require_deterministic=True)
        assert told.valid, told.errors
        assert accepted(data).ok
        assert not GRAMMAR.validate(data + b"\0", "receipt").valid


@pytest.mark.slow
def test_every_consistency_proof_is_accepted_by_other_implementations(garden: Realm) -> None:
    new = signed(garden)
    for size in range(1, new.head.size):
        old = signed(garden, size)
        data = cose_consistency(garden.log, old, new, KEY)
        told = GRAMMAR.validate(data, "receipt", require_deterministic=True)
        assert told.valid, told.errors
        scitt_cose.verify_sign1(data, public_key_pem=PEM, detached_payload=new.head.root)
        first, second, path = cbor.decode(cbor.decode(data).value[1][396][-2][0])
        proof = ConsistencyProof(first, second, path)
        proof.check(old.head.root, new.head.root)
        with pytest.raises(ConsistencyProofInvalid):
            proof.check(new.head.root, new.head.root)
        proven = check_cose(data, TRUSTED, [old.head])
        assert [one.head for one in proven.checkpoints] == [old.head, new.head]
        assert [one.origin for one in proven.checkpoints] == [ORIGIN, ORIGIN]


def test_a_consistency_proof_needs_the_older_tree_head_from_elsewhere(garden: Realm) -> None:
    old, new = signed(garden, 6), signed(garden)
    data = cose_consistency(garden.log, old, new, KEY)
    assert "of 6 events" in refusal(data).message
    assert "of 6 events" in refusal(data, known=[new.head, garden.log.root_at(5)]).message
    forged = checkpoint_of(type(old.head)(6, new.head.root), ORIGIN)
    assert refusal(data, known=[forged.head]).code == "BAD_PROOF"
    with pytest.raises(DamagedLogError):
        cose_consistency(garden.log, forged, new, KEY)


def test_what_the_specification_has_no_proof_for_is_refused(garden: Realm) -> None:
    whole = signed(garden)
    for old in (whole, signed(garden, 0)):
        with pytest.raises(RefusedError, match="RFC 9942 has no proof"):
            cose_consistency(garden.log, old, whole, KEY)
    with pytest.raises(RefusedError, match="RFC 9942 has no proof"):
        cose_receipt(garden.log, Subject("event", "1", 1), signed(garden, 1), KEY)


@pytest.mark.slow
def test_no_changed_byte_is_accepted(garden: Realm, receipt: bytes) -> None:
    old = signed(garden, 3)
    grown = cose_consistency(garden.log, old, signed(garden, 5), KEY)
    check_cose(receipt, TRUSTED)
    check_cose(grown, TRUSTED, [old.head])
    for data in (receipt, grown):
        for at in range(len(data)):
            for bit in (0x01, 0x20, 0x80):
                damaged = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
                assert refusal(damaged, known=[old.head]).code in REFUSED
            assert refusal(data[:at]).code == "BAD_PROOF"
    assert "cut off" in refusal(receipt[:-1]).message
    assert "something follows" in refusal(receipt + b"\n").message


@given(st.binary(max_size=80).map(lambda data: b"\xd2\x84" + data))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert refusal(data).code == "BAD_PROOF"


def test_the_size_of_the_tree_is_signed(garden: Realm) -> None:
    """The root alone fits other sizes: what follows RFC 9942 and no more cannot tell them apart."""
    data = cose_receipt(garden.log, Subject("event", "1", 1), signed(garden, 5), KEY)

    def grow(_header: dict, _unprotected: dict, proof: list) -> None:
        proof[0] = 8

    forged = changed(data, grow)
    assert (accepted(forged).ok, accepted(forged).tree_size) == (True, 8)
    assert "another tree than its signature" in refusal(forged).message


def test_the_key_cannot_sign_what_the_event_does_not_say(garden: Realm, receipt: bytes) -> None:
    def rename(header: dict, _unprotected: dict, _proof: list) -> None:
        header[15][2] = "event/4"

    def other_kind(header: dict, _unprotected: dict, _proof: list) -> None:
        header[15][2] = "lease/3"

    check_cose(changed(receipt, lambda *_: None, sign_again=True), TRUSTED)
    for change in (rename, other_kind):
        assert refusal(changed(receipt, change)).code == "BAD_SIGNATURE"
        assert accepted(changed(receipt, change, sign_again=True)).ok
        assert refusal(changed(receipt, change, sign_again=True)).code == "BAD_PROOF"


def test_keys_and_origin_are_those_that_are_trusted(receipt: bytes) -> None:
    proven = check_cose(receipt, Trusted())
    assert proven.unchecked == (f"key {KEY.verifier.key_id.hex()}",)
    witness = VerifierKey(ORIGIN, KEY.verifier.public, COSIGNATURE)
    for keys in ((WITNESS.verifier,), (KEY.verifier, WITNESS.verifier), (witness,)):
        assert refusal(receipt, Trusted(keys)).code == "NOT_SIGNED"
    assert check_cose(receipt, Trusted((KEY.verifier,), ORIGIN)).checkpoints[0].origin == ORIGIN
    assert refusal(receipt, Trusted((KEY.verifier,), "example.com/other")).code == "WRONG_ORIGIN"
    renamed = SigningKey("example.com/other", KEY.seed)
    assert refusal(receipt, Trusted((renamed.verifier,))).code == "NOT_SIGNED"


def foreign(alg: str) -> bytes:
    """Return a receipt of another implementation, which is valid for itself."""
    key = generate_private_key(SECP256R1())
    pem = {"ES256": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), "EdDSA": PRIVATE_PEM}
    entries = ["00", "01", "02"]
    return scitt_cose.build_receipt(
        leaf_entry_hex="01", leaf_index=1, tree_entries_hex=entries, alg=alg, log_private_key_pem=pem[alg], iss=ORIGIN
    )


def test_receipts_of_other_programs_are_told_apart(receipt: bytes) -> None:
    assert "receipt of another program" in refusal(foreign("EdDSA")).message
    assert "another algorithm than EdDSA (-8): -7" in refusal(foreign("ES256")).message

    def ccf(header: dict, _unprotected: dict, _proof: list) -> None:
        header[395] = 2

    assert "another kind of tree than RFC9162_SHA256 (vds 1): 2" in refusal(changed(receipt, ccf)).message


NESTED = b"\xd2" + b"\x81" * 100_000 + b"\x00"
ODD = {
    "is not a tagged COSE_Sign1": [b"\x84\x40\xa0\xf6\x40", b"\x00", b"\xd1\x84\x40\xa0\xf6\x40"],
    "is cut off": [b"", b"\xd2", b"\xd2\x84\x5b\xff\xff\xff\xff\xff\xff\xff\xff"],
    "is damaged": [
        b"\xd2\x9f\xff",
        b"\xff",
        NESTED,
        b"\xd2\xd8\x1c\x84\x40\xa0\xf6\xd8\x1d\x00",
        b"\xd2\x84\x40\xa2\x01\x02\x01\x02\xf6\x40",
    ],
    "in another form": [
        b"\xd2\x80",
        b"\xd2\x84\x40\xa0\xf6\x00",
        b"\xd2\x84\x40\x80\xf6\x40",
        b"\xd2\x84\x41\x80\xa0\xf6\x40",
    ],
    "has 67108865 bytes, more than": [b"\xd2" * (MAX_BYTES + 1)],
}


@pytest.mark.parametrize("clause", ODD)
def test_what_is_no_receipt_is_refused_with_the_reason(clause: str) -> None:
    for data in ODD[clause]:
        assert clause in refusal(data).message, data[:20]


def attach(value: Any, at: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        parts = list(cbor.decode(data).value)
        parts[at] = value
        return cbor.encode(cbor.CBORTag(18, parts), canonical=True)

    return change


def altered(change: Callable[[dict, dict, list], None]) -> Callable[[bytes], bytes]:
    return lambda data: changed(data, change)


CHANGES = {
    "attached payload": (attach(bytes(32), 2), "attached payload"),
    "further label": (altered(lambda _h, unprotected, _p: unprotected.update({33: b""})), "another program"),
    "critical label": (altered(lambda header, _u, _p: header.update({2: [4]})), "another program"),
    "no key": (altered(lambda header, _u, _p: header.pop(4)), "another program"),
    "no claims": (altered(lambda header, _u, _p: header.pop(15)), "another program"),
    "no entry": (altered(lambda _h, unprotected, _p: unprotected.pop(ENTRY)), "another program"),
    "no proof": (altered(lambda _h, unprotected, _p: unprotected.pop(396)), "in another form"),
    "no path": (altered(lambda _h, _u, proof: proof[2].clear()), "length >= 1"),
    "long path": (altered(lambda _h, _u, proof: proof[2].extend([bytes(32)] * 200)), "length <= 128"),
    "longer path": (altered(lambda _h, _u, proof: proof[2].append(bytes(32))), "does not lead to a tree"),
    "no hash": (altered(lambda _h, _u, proof: proof[2].append(bytes(31))), "length >= 32"),
    "text for a hash": (altered(lambda _h, _u, proof: proof[2].append("A" * 43 + "=")), "Expected `bytes`"),
    "negative index": (altered(lambda _h, _u, proof: proof.__setitem__(1, -1)), ">= 0"),
    "index behind the tree": (altered(lambda _h, _u, proof: proof.__setitem__(1, 5)), "does not lead to a tree"),
    "entry that is no event": (altered(lambda _h, unprotected, _p: unprotected.update({ENTRY: b"{}"})), "the fields"),
    "entry that is no text": (altered(lambda _h, unprotected, _p: unprotected.update({ENTRY: b"\xff"})), "utf-8"),
    "label as a float": (lambda data: data.replace(b"\x19\x01\x8c", b"\xf9\x5e\x30", 1), "Expected `int`"),
    "long head": (lambda data: data.replace(b"\x19\x01\x8c", b"\x1a\x00\x00\x01\x8c", 1), "deterministic"),
}  # fmt: skip


@for_each("name", CHANGES)
def test_each_part_of_a_receipt_has_one_form(receipt: bytes, name: str) -> None:
    change, clause = CHANGES[name]
    assert change(receipt) != receipt
    refused = refusal(change(receipt))
    assert (refused.code, clause in refused.message) == ("BAD_PROOF", True), refused.message
