"""``worldctl klis``: the schema, manifests by hand, and signatures."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.cli.realm import ROOT, CliRealm
from tests.documents import blocks
from world.klis.manifest import manifest_schema
from world.klis.predicate import Predicate, compatible

MANIFEST = {
    "ver": "1.0",
    "session_id": "s-1",
    "agent_id": "agent-7",
    "scope": [
        {"predicate": "CONSUMES", "resource": "FILE:/a", "confidence": 0.6},
        {"predicate": "MUTATES", "resource": "FILE:/a"},
        {"predicate": "RENAMES", "resource": "FILE:/b", "to": "FILE:/c"},
    ],
}
YAML = """
ver: "1.0"
session_id: s-1
agent_id: agent-7
scope:
  - {predicate: MUTATES, resource: "FILE:/a"}
"""


@pytest.fixture
def realm(tmp_path: Path) -> CliRealm:
    """A folder with a manifest in both forms, and a pair of keys."""
    private = Ed25519PrivateKey.generate()
    (tmp_path / "m.json").write_text(json.dumps(MANIFEST))
    (tmp_path / "m.yaml").write_text(YAML)
    (tmp_path / "key.pem").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = private.public_key()
    (tmp_path / "key.pub").write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (tmp_path / "key.b64").write_text(b64encode(public.public_bytes_raw()).decode())
    return CliRealm(tmp_path)


@pytest.mark.requirement("KM-5")
def test_the_schema_is_printed(realm):
    assert realm("klis", "schema").json == manifest_schema()
    assert realm("klis", "schema", "--json").json["$schema"].endswith("2020-12/schema")
    (realm.folder / "world.toml").write_text("[klis]\nmax_triples = 7\n")
    assert realm("klis", "schema").json["properties"]["scope"]["maxItems"] == 7


@pytest.mark.requirement("KM-5", "KM-6.4", "KP-0", "KP-1")
def test_a_valid_manifest_is_accepted_with_what_would_be_leased(realm):
    effective = {"FILE:/a": "MUTATES", "FILE:/b": "RENAMES", "FILE:/c": "PROVIDES"}
    told = realm("klis", "validate", "m.json", "--json").json["accept"]
    assert told["effective"] == effective
    assert [(one["resource"], one["predicate"]) for one in told["triples"]] == list(effective.items())
    lines = realm("klis", "validate", given=json.dumps(MANIFEST)).out.splitlines()
    assert lines[:2] == ["ACCEPT", "predicate\tresource\tconfidence"]
    assert lines[2] == "MUTATES\tFILE:/a\tHigh"
    for arguments, given in ((["m.yaml"], ""), (["-", "--yaml"], YAML)):
        assert realm("klis", "validate", *arguments, "--json", given=given).json["accept"]["effective"] == {
            "FILE:/a": "MUTATES"
        }


@pytest.mark.requirement("KM-6.1", "KM-6.2", "KM-6.3", "KM-6.4", "KM-7.2", "KP-6")
@pytest.mark.parametrize(
    ("scope", "code", "path", "canonical"),
    [
        ([], "MALFORMED_SCHEMA", "$.scope", None),
        ([{"predicate": "WRITE", "resource": "FILE:/a"}], "INVALID_PREDICATE", "$.scope[0].predicate", None),
        (
            [{"predicate": "MUTATES", "resource": "FILE:/x/../a"}],
            "AMBIGUOUS_RESOURCE",
            "$.scope[0].resource",
            "FILE:/a",
        ),
        ([{"predicate": "MUTATES", "resource": "FLIE:/a"}], "UNKNOWN_RESOURCE_TYPE", "$.scope[0].resource", None),
        ([{"predicate": "DELETES", "resource": "FILE:/*"}], "GLOBAL_SCOPE", "$.scope[0].resource", None),
        (
            [{"predicate": "DELETES", "resource": "FILE:/a"}, {"predicate": "MUTATES", "resource": "FILE:/a/b"}],
            "INTERNAL_CONTRADICTION",
            "$.scope[1].resource",
            None,
        ),
    ],
)
def test_a_manifest_that_is_refused_is_a_finding_with_code_place_and_canonical_form(
    realm, scope, code, path, canonical
):
    given = json.dumps({**MANIFEST, "scope": scope})
    told = realm("klis", "validate", "-", "--json", given=given, code=1).json
    assert (told["reject"], told["path"], told.get("canonical")) == (code, path, canonical)
    said = realm("klis", "validate", "-", given=given, code=1).out
    assert said.startswith(f"REJECT {code}: ")
    assert path in said
    assert canonical is None or canonical in said


@pytest.mark.requirement("KM-7.1")
def test_what_is_signed_is_verified_and_what_was_altered_is_not(realm):
    signed = realm("klis", "sign", "m.json", "--key", "key.pem", "--json")
    document = signed.json
    assert {name: document[name] for name in MANIFEST} == MANIFEST
    assert document["issued_at"] > 1_700_000_000_000
    assert document["nonce"]
    key = (realm.folder / "key.b64").read_text()
    for public in ("key.pub", key):
        told = realm("klis", "verify", "-", "--public", public, "--json", given=signed.out).json
        assert (told["verified"], told["agentId"]) == (True, "agent-7")
    assert "agent-7" in realm("klis", "verify", "-", "--public", key, given=signed.out).out
    altered = json.dumps({**document, "agent_id": "agent-8"})
    assert realm("klis", "verify", "--public", key, "--json", given=altered, code=1).json["reject"] == "UNAUTHENTICATED"
    assert "UNAUTHENTICATED" in realm("klis", "verify", "m.json", "--public", key, code=1).out
    other = b64encode(bytes(range(32))).decode()
    assert realm("klis", "verify", "--public", other, given=signed.out, code=1)
    assert realm("klis", "verify", "--public", other, "--public", key, given=signed.out)


@pytest.mark.requirement("KM-7.1")
def test_a_nonce_and_time_that_are_there_are_signed_as_they_are(realm):
    given = json.dumps({**MANIFEST, "issued_at": 5, "nonce": "n"})
    told = realm("klis", "sign", "-", "--key", "key.pem", given=given).json
    assert (told["issued_at"], told["nonce"]) == (5, "n")
    assert realm("klis", "sign", "-", "--key", "key.pem", given=given).json == told
    assert realm("klis", "sign", "m.yaml", "--key", "key.pem").json["scope"][0]["resource"] == "FILE:/a"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("sign", "m.json", "--key", "key.pub"), "INVALID_KEY"),
        (("sign", "m.json", "--key", "nowhere.pem"), "FILE_UNREADABLE"),
        (("sign", "key.pem", "--key", "key.pem"), "MALFORMED_SCHEMA"),
        (("verify", "m.json", "--public", "key.pem"), "INVALID_KEY"),
        (("verify", "m.json", "--public", "AAAA"), "INVALID_KEY"),
        (("verify", "m.json", "--public", "no base64"), "INVALID_KEY"),
        (("validate", "nowhere.json"), "FILE_UNREADABLE"),
        (("validate", "."), "FILE_UNREADABLE"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_code(realm, arguments, code):
    assert realm("klis", *arguments, "--json", code=2).json["error"]["code"] == code


@pytest.mark.requirement("KM-5")
def test_the_page_shows_the_schema_as_it_is():
    shown = [block.text for block in blocks(ROOT / "docs" / "klis.md") if '"$schema"' in block.text]
    assert [json.loads(text) for text in shown] == [manifest_schema()]


@pytest.mark.requirement("KP-2a", "KP-2b")
def test_the_page_shows_the_matrix():
    text = (ROOT / "docs" / "klis.md").read_text(encoding="utf-8")
    for held in Predicate:
        row = " | ".join("+" if compatible(held, requested) else "" for requested in Predicate)
        assert f"| {held} | {row} |".replace("|  |", "| |").replace("|  |", "| |") in text


@pytest.mark.requirement("KM-7.2")
def test_the_operators_limits_are_those_of_the_configuration(realm):
    given = json.dumps({**MANIFEST, "scope": [{"predicate": "MUTATES", "resource": "FILE:/a/*"}]})
    realm("klis", "validate", given=given)
    (realm.folder / "world.toml").write_text("[klis]\nmin_subtree_depth = 2\n")
    assert realm("klis", "validate", "--json", given=given, code=1).json["reject"] == "GLOBAL_SCOPE"
