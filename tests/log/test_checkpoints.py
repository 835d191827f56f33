"""Signed notes and checkpoints: those of others are read and checked, and others can read and check ours."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from pymerkle import InmemoryTree  # type: ignore[import-untyped]
from pymerkle.proof import InclusionProof  # type: ignore[import-untyped]

from tests.golden.garden import record
from tests.support.tables import for_each
from world.errors import RefusedError
from world.log import TreeHead, verify_consistency, verify_inclusion
from world.log.merkle import consistency_proof, inclusion_proof, leaf_hash, subtrees_of, tree_root
from worldprotocol.export.proofs.checkpoint import Checkpoint, Trusted, checkpoint_of, default_origin, read_checkpoint
from worldprotocol.export.proofs.note import (
    COSIGNATURE,
    Signature,
    SignedNote,
    SigningKey,
    VerifierKey,
    check_signatures,
    is_key_name,
    read_note,
)

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "signed_note.json").read_text("utf-8"))
KEYS = {name: VerifierKey.parse(keys["verifier"]) for name, keys in VECTORS["keys"].items()}
PETER_SECRET = VECTORS["keys"]["peter"]["signer"]
TEXT, PETER, ENOCH = (VECTORS["note"][name] for name in ("text", "peter", "enoch"))
HEAD = TreeHead(42, sha256(b"the tree").digest())
NAMES = st.text(min_size=1, max_size=12).filter(is_key_name)
SEEDS = st.binary(min_size=32, max_size=32)


def refused(code: str, function: Any, *arguments: Any) -> RefusedError:
    with pytest.raises(RefusedError) as raised:
        function(*arguments)
    assert raised.value.code == code, raised.value
    return raised.value


def manglings(text: str) -> list[str]:
    """All proper parts of a text, and all with one character made the next one; as Go's own tests do."""
    parts = [text[i:j] for i in range(len(text) + 1) for j in range(i + 1, len(text) + 1) if j - i < len(text)]
    return parts + [text[:at] + chr(ord(text[at]) + 1) + text[at + 1 :] for at in range(len(text))]


def cosignature(seed: bytes, name: str, text: str, at: int) -> tuple[VerifierKey, Signature]:
    """What a witness does, from the words of c2sp.org/tlog-cosignature."""
    private = Ed25519PrivateKey.from_private_bytes(seed)
    public = private.public_key().public_bytes_raw()
    key_id = sha256(name.encode() + b"\n\x04" + public).digest()[:4]
    signed = private.sign(f"cosignature/v1\ntime {at}\n{text}".encode())
    key = VerifierKey.parse(f"{name}+{key_id.hex()}+{b64encode(bytes([4]) + public).decode()}")
    return key, Signature(name, key_id, at.to_bytes(8, "big") + signed)


@pytest.mark.requirement("CARD-audit")
def test_a_note_is_signed_byte_by_byte_as_go_does() -> None:
    key = SigningKey.parse(PETER_SECRET)
    assert SignedNote(TEXT).signed(key).to_text() == f"{TEXT}\n{PETER}"
    assert key.verifier == KEYS["peter"]
    assert key.to_text() == PETER_SECRET
    wrong = Signature("PeterNeumann", key.verifier.key_id, b"bad")
    assert SignedNote(TEXT, (wrong,)).signed(key).to_text() == f"{TEXT}\n{PETER}"


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_others_are_written_back_as_they_were(name: str) -> None:
    assert KEYS[name].to_text() == VECTORS["keys"][name]["verifier"]
    assert (KEYS[name].kind == COSIGNATURE) is (name == "witness")


def test_no_mangled_key_is_taken() -> None:
    for text in [*manglings(VECTORS["keys"]["peter"]["verifier"]), *VECTORS["invalidKeys"], "a b+00000000+AQ=="]:
        refused("INVALID_KEY", VerifierKey.parse, text)
    for text in manglings(PETER_SECRET):
        assert PETER_SECRET[-20:] not in refused("INVALID_KEY", SigningKey.parse, text).message
    for name in ("", "a b", "a+b", "a\u2003b", "a\nb", "\ud800"):
        refused("INVALID_KEY", SigningKey.generate, name)


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("which", ["example", "published"])
def test_what_others_published_is_verified(which: str) -> None:
    note = read_note(VECTORS[which].encode())
    key = KEYS["example" if which == "example" else "sum"]
    assert check_signatures(note, [key]) == ()
    assert note.to_text() == VECTORS[which]
    refused("NOT_SIGNED", check_signatures, note, [KEYS["peter"]])


def test_several_signatures_are_checked_and_unknown_ones_are_kept() -> None:
    note = read_note(f"{TEXT}\n{PETER}{ENOCH}".encode())
    [unknown] = check_signatures(note, [KEYS["peter"]])
    assert unknown.to_text() == ENOCH
    assert check_signatures(note, [KEYS["peter"], KEYS["enoch"]]) == ()
    assert len(check_signatures(note, [])) == 2
    assert note.to_text() == f"{TEXT}\n{PETER}{ENOCH}"
    twice = read_note(f"{TEXT}\n{PETER}{PETER}{ENOCH}{ENOCH}".encode())
    assert [one.name for one in check_signatures(twice, [KEYS["peter"]])] == ["EnochRoot"] * 2
    bad = read_note(f"{TEXT}\n{PETER[:60]}ABCD{PETER[60:]}".encode())
    refused("BAD_SIGNATURE", check_signatures, bad, [KEYS["peter"]])
    assert check_signatures(bad, [])


@for_each(
    "data",
    [
        f"{TEXT}\n".encode(),
        f"{TEXT}\n{PETER}".encode()[:-1],
        f"\x01{TEXT}\n{PETER}".encode(),
        b"\xff" + f"{TEXT}\n{PETER}".encode(),
        f"{TEXT}\n\u2014 Bad Name x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXg=\n".encode(),
        f"{TEXT}\n{PETER}Unexpected line.\n".encode(),
        f"{TEXT}\n{PETER * 101}".encode(),
        f"{TEXT}\n\u2014 Peter AAAAAA==\n".encode(),
        f"{TEXT}\n{PETER}".replace("\n", "\r\n").encode(),
        b"",
        b"\n",
        b"a" * (1 << 20) + b"\n",
    ],
)
def test_a_malformed_note_is_refused(data: bytes) -> None:
    refused("INVALID_NOTE", read_note, data)


@pytest.mark.requirement("CARD-audit")
@given(SEEDS, SEEDS, NAMES, NAMES, st.integers(0, 2**63 - 1))
def test_a_witness_cosigns_a_checkpoint(seed: bytes, other: bytes, log: str, witness: str, at: int) -> None:
    key = SigningKey(log, seed)
    signed = checkpoint_of(HEAD, log, [key])
    vkey, line = cosignature(other, witness, signed.note.text, at)
    both = read_checkpoint((signed.to_text() + line.to_text()).encode())
    assert Trusted((key.verifier, vkey)).check(both) == ()
    assert Trusted((key.verifier,)).check(both) == (witness,)
    later = Signature(line.name, line.key_id, (at ^ 1).to_bytes(8, "big") + line.value[8:])
    wrong = Checkpoint(both.origin, both.head, SignedNote(both.note.text, (*signed.note.signatures, later)))
    refused("BAD_SIGNATURE", Trusted((key.verifier, vkey)).check, wrong)
    refused("NOT_SIGNED", Trusted((key.verifier, vkey)).check, signed)


def test_a_published_checkpoint_is_read_and_written_back() -> None:
    for which, lines in (("published", 1), ("cosigned", 2)):
        checkpoint = read_checkpoint(VECTORS[which].encode())
        assert checkpoint.head.size == 20852163
        assert checkpoint.head.root_hex == "0ac5186a91863e8e1d90c808014aa89bf5da8e3ee1d9f07630f0378f68f1ab62"
        assert len(checkpoint.note.signatures) == lines
        assert checkpoint.to_text() == VECTORS[which]
    assert Trusted((KEYS["sum"],), "go.sum database tree").check(read_checkpoint(VECTORS["published"].encode())) == ()


@for_each("text", VECTORS["invalidCheckpoints"])
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as raised:
        read_checkpoint(text.encode())
    assert raised.value.code in ("INVALID_CHECKPOINT", "INVALID_NOTE")


def test_extension_lines_are_kept_and_signed() -> None:
    text = "Moon Log\n4027504\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n6086d1a9\nWaxing gibbous\n"
    checkpoint = read_checkpoint(text.encode())
    assert checkpoint.extensions == ("6086d1a9", "Waxing gibbous")
    key = SigningKey.generate("moon")
    signed = checkpoint.signed([key])
    assert read_checkpoint(signed.to_text().encode()) == signed
    changed = read_checkpoint(signed.to_text().replace("gibbous", "crescent").encode())
    refused("BAD_SIGNATURE", Trusted((key.verifier,), "Moon Log").check, changed)


@given(SEEDS, NAMES, st.integers(0, 2**63 - 1), st.binary(min_size=32, max_size=32))
def test_a_checkpoint_reads_as_it_was_written(seed: bytes, name: str, size: int, root: bytes) -> None:
    key = SigningKey(name, seed)
    made = checkpoint_of(TreeHead(size, root), name, [key])
    assert read_checkpoint(made.to_text().encode()) == made
    assert Trusted((key.verifier,)).check(made) == ()
    assert SigningKey.parse(key.to_text()) == key
    assert repr(key) == f"SigningKey({name!r})"


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        note = read_note(data)
    except RefusedError:
        return
    assert note.to_text().encode() == data


@given(st.data())
def test_no_changed_byte_of_a_signed_checkpoint_is_accepted(data: st.DataObject) -> None:
    key = SigningKey("example.com/log", bytes(32))
    whole = bytearray(checkpoint_of(HEAD, "example.com/log", [key]).to_text().encode())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RefusedError):
        Trusted((key.verifier,)).check(read_checkpoint(bytes(whole)))


def test_a_checkpoint_of_another_log_is_not_taken_for_the_one_that_is_meant() -> None:
    key = SigningKey.generate("example.com/one")
    other = checkpoint_of(HEAD, "example.com/two", [key])
    refused("WRONG_ORIGIN", Trusted((key.verifier,)).check, other)
    refused("WRONG_ORIGIN", Trusted((), "example.com/one").check, other)
    assert Trusted((key.verifier,), "example.com/two").check(other) == ()
    for origin in ("", "two\nlines", "\t"):
        refused("INVALID_CHECKPOINT", checkpoint_of, HEAD, origin)


def test_a_log_without_a_name_is_called_by_its_id(tmp_path: Path) -> None:
    with record(str(tmp_path / "world.db")) as world:
        told = json.loads(world.log.event_at(1).state)
        assert default_origin(world.log) == f"world-protocol/{told['logId']}"
        assert is_key_name(default_origin(world.log))


@pytest.mark.requirement("CARD-audit")
@given(st.lists(st.binary(max_size=6), min_size=1, max_size=80), st.data())
def test_another_implementation_makes_and_takes_the_same_proofs(entries: list[bytes], data: st.DataObject) -> None:
    theirs = InmemoryTree(algorithm="sha256")
    for entry in entries:
        theirs.append_entry(entry)
    leaves = [leaf_hash(entry) for entry in entries]
    size = data.draw(st.integers(1, len(leaves)))
    root = tree_root(leaves[:size])
    assert theirs.get_root(size) == root
    index = data.draw(st.integers(0, size - 1))
    proof = theirs.prove_inclusion(index + 1, size)
    path = inclusion_proof(index, size, subtrees_of(leaves))
    assert verify_inclusion(leaves[index], index, size, proof.path[1:], root)
    InclusionProof("sha256", True, size, index + 1, proof.rule, [leaves[index], *path]).verify(leaves[index], root)
    prior = data.draw(st.integers(1, size))
    before, nodes = tree_root(leaves[:prior]), consistency_proof(prior, size, subtrees_of(leaves))
    assert verify_consistency(prior, size, before, root, nodes)
    theirs.prove_consistency(prior, size).verify(before, root)  # which is laid out in another way
