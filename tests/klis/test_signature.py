"""Signed manifests: what is signed, whose key verifies, and everything that is not authentic."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_curve_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from tests.support.patience import PATIENCE_S
from world.errors import RefusedError
from world.klis.identity.signature import key_id, public_key, sign, signed_bytes, verify
from world.klis.manifest import Manifest, read_manifest
from world.klis.settings import KlisSettings
from world.model.canonical_json import canonical_bytes, sha256_hex

CASES = json.loads(Path("tests/vectors/klis.json").read_bytes())["cases"]
FORGED = [
    pytest.param(op["manifest"], id=case["id"])
    for case in CASES
    for op, expected in zip(case["ops"], case["expect"], strict=True)
    if expected == {"reject": "UNAUTHENTICATED"}
]
PRIVATE, OTHER = bytes(range(32)), bytes(range(1, 33))
PUBLIC = public_key(PRIVATE)
DOCUMENT: dict[str, Any] = {
    "ver": "1.0",
    "session_id": "s",
    "agent_id": "a",
    "scope": [{"predicate": "MUTATES", "resource": "file:/src/main.ts", "confidence": 1.0}],
    "issued_at": 1735000000000,
    "nonce": "n1",
}


def read(told: Any) -> Manifest:
    return read_manifest(told, settings=KlisSettings())


def refusal(told: Any, *keys: bytes) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        verify(read(told), keys or [PUBLIC])
    assert caught.value.code == "UNAUTHENTICATED"
    return caught.value


@pytest.mark.requirement("KM-7.1")
@pytest.mark.parametrize("told", FORGED)
def test_the_forged_manifests_of_the_vectors_are_not_authentic(told: dict[str, Any]) -> None:
    refusal(told)


@pytest.mark.requirement("KM-7.1")
def test_a_signed_manifest_verifies_with_its_key_and_names_it() -> None:
    signed = sign(DOCUMENT, PRIVATE)
    assert verify(read(signed), [public_key(OTHER), PUBLIC]) == key_id(PUBLIC) == sha256_hex(PUBLIC)[:16]
    assert {name: told for name, told in signed.items() if name != "signature"} == DOCUMENT


@pytest.mark.requirement("KM-7.1")
def test_the_signature_is_ed25519_over_the_rfc_8785_form_of_what_the_agent_wrote() -> None:
    signed = sign(DOCUMENT, PRIVATE)
    told = canonical_bytes(DOCUMENT)
    assert signed_bytes(signed) == told
    assert b"file:/src/main.ts" in told
    assert b'"confidence":1,' in told
    Ed25519PrivateKey.from_private_bytes(PRIVATE).public_key().verify(b64decode(signed["signature"]), told)


@pytest.mark.requirement("KM-7.1")
def test_layout_and_order_of_the_text_make_no_difference() -> None:
    signed = sign(DOCUMENT, PRIVATE)
    assert verify(read(json.dumps(dict(reversed(signed.items())), indent=4)), [PUBLIC]) == key_id(PUBLIC)
    assert verify(read(read(signed).to_wire()), [PUBLIC]) == key_id(PUBLIC)


@pytest.mark.requirement("KM-7.1")
@pytest.mark.parametrize(
    "change",
    [
        {"agent_id": "b"},
        {"session_id": "t"},
        {"nonce": "n2"},
        {"issued_at": 1735000000001},
        {"priority_timestamp": 0},
        {"ordered": False},
        {"ver": "1.1"},
        {"scope": [{"predicate": "DELETES", "resource": "FILE:/src/main.ts", "confidence": 1.0}]},
        {"scope": [*DOCUMENT["scope"], {"predicate": "CONSUMES", "resource": "FILE:/b"}]},
    ],
)
def test_an_altered_manifest_is_refused(change: dict[str, Any]) -> None:
    refusal(sign(DOCUMENT, PRIVATE) | change)


@pytest.mark.requirement("KM-7.1")
@given(place=st.integers(0, 63), bit=st.integers(0, 7))
def test_an_altered_signature_is_refused(place: int, bit: int) -> None:
    signed = sign(DOCUMENT, PRIVATE)
    signature = bytearray(b64decode(signed["signature"]))
    signature[place] ^= 1 << bit
    refusal(signed | {"signature": b64encode(signature).decode()})


@pytest.mark.requirement("KM-7.1")
def test_somebody_elses_signature_is_refused() -> None:
    refused = refusal(sign(DOCUMENT, OTHER))
    assert refused.details == {"path": "$.signature", "agent_id": "a"}
    refusal(sign(DOCUMENT, PRIVATE), b"short", public_key(OTHER))
    with pytest.raises(RefusedError):
        verify(read(sign(DOCUMENT, PRIVATE)), [])


@pytest.mark.requirement("KM-7.1")
@pytest.mark.parametrize("signature", ["", "AAAA", "*", "é", "A" * 88, " "])
def test_what_is_no_signature_is_refused(signature: str) -> None:
    refusal(DOCUMENT | {"signature": signature})


@pytest.mark.requirement("KM-7.1")
def test_an_unsigned_manifest_is_not_authentic_by_itself() -> None:
    assert "not signed" in refusal(DOCUMENT).message


@pytest.mark.requirement("KM-7.1")
@pytest.mark.parametrize("missing", ["issued_at", "nonce"])
def test_a_signed_manifest_says_when_and_which_it_is(missing: str) -> None:
    told = {name: value for name, value in DOCUMENT.items() if name != missing}
    with pytest.raises(RefusedError) as caught:
        sign(told, PRIVATE)
    assert (caught.value.code, caught.value.details) == ("MALFORMED_SCHEMA", {"path": f"$.{missing}"})
    signature = Ed25519PrivateKey.from_private_bytes(PRIVATE).sign(canonical_bytes(told))
    assert missing in refusal(told | {"signature": b64encode(signature).decode()}).message


def test_signing_again_replaces_the_signature() -> None:
    assert sign(sign(DOCUMENT, OTHER), PRIVATE) == sign(DOCUMENT, PRIVATE)


def test_a_private_key_is_pem_or_its_bytes() -> None:
    pem = Ed25519PrivateKey.from_private_bytes(PRIVATE).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    assert public_key(pem) == PUBLIC
    assert sign(DOCUMENT, pem) == sign(DOCUMENT, PRIVATE)


@pytest.mark.parametrize("told", [b"", b"x" * 31, b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_private_key_is_refused(told: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        sign(DOCUMENT, told)
    assert caught.value.code == "INVALID_KEY"


def test_a_key_of_another_kind_is_refused() -> None:
    pem = new_curve_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(RefusedError, match="Ed25519") as caught:
        public_key(pem)
    assert caught.value.code == "INVALID_KEY"


def test_who_signs_nothing_loads_no_cryptography() -> None:
    code = (
        "import sys, world.klis.identity.signature; assert not any(m.startswith('cryptography') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
