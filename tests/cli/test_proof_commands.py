"""``worldctl checkpoint``, ``prove`` and ``verify``: what auditors keep, hand on and check."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import scitt_cose
from cddl_verifier import cbor
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.cli.inside import Inside
from tests.cli.realm import ROOT, CliRealm, founded
from worldprotocol.export.proofs.checkpoint import Trusted, read_checkpoint
from worldprotocol.export.proofs.cose import ENTRY
from worldprotocol.export.proofs.note import COSIGNATURE, Signature, VerifierKey

ORIGIN = "example.com/shop"
BUY = ("submit", "sell", "--actor", "ann", "--input", '{"item": "tea", "count": 1}')


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> CliRealm:
    """A realm with a key, whose log grew between two checkpoints."""
    realm = founded(tmp_path_factory.mktemp("proofs"), Inside)
    vkey = realm("checkpoint", "keygen", ORIGIN).out.strip()
    (realm.folder / "vkey").write_text(vkey)
    with (realm.folder / "world.toml").open("a") as config:
        config.write(f'\n[checkpoint]\norigin = "{ORIGIN}"\nkey = "checkpoint.key"\n')
    realm("checkpoint", "-o", "old.checkpoint")
    realm(*BUY)
    realm("checkpoint", "-o", "new.checkpoint")
    return realm


def vkey(realm: CliRealm) -> str:
    return (realm.folder / "vkey").read_text()


def independent(realm: CliRealm, file: str, *more: str) -> str:
    """Check a proof with the program that knows nothing of us, and return what it says."""
    command = [sys.executable, "-I", str(ROOT / "docs" / "verify_receipt.py"), file, *more]
    done = subprocess.run(command, cwd=realm.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.requirement("CARD-audit")
def test_a_checkpoint_is_signed_and_its_key_is_private(realm: CliRealm) -> None:
    key = realm.folder / "checkpoint.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    text = realm("checkpoint").out
    checkpoint = read_checkpoint(text.encode())
    assert text == (realm.folder / "new.checkpoint").read_text()
    assert (checkpoint.origin, checkpoint.to_text()) == (ORIGIN, text)
    assert Trusted((VerifierKey.parse(vkey(realm)),)).check(checkpoint) == ()
    assert str(checkpoint.head) in realm("verify").out
    assert "FILE_EXISTS" in realm("checkpoint", "keygen", ORIGIN, code=1).err
    assert "INVALID_KEY" in realm("checkpoint", "keygen", "no name", code=2).err
    told = realm("checkpoint", "-o", "again.checkpoint", "--json").json
    assert told["keys"] == [vkey(realm)]
    assert (told["origin"], told["size"], told["root"]) == (ORIGIN, checkpoint.head.size, checkpoint.head.root_hex)


def test_keys_of_agents_sign_too_and_several_sign_together(realm: CliRealm) -> None:
    realm("keys", "new", "agent.pem")
    both = read_checkpoint(realm("checkpoint", "--key", "agent.pem", "--key", "checkpoint.key").out.encode())
    assert [one.name for one in both.note.signatures] == [ORIGIN, ORIGIN]
    assert len({one.key_id for one in both.note.signatures}) == 2
    odd = realm("checkpoint", "--origin", "another.example", "--key", "checkpoint.key")
    assert "--origin" in odd.err
    (realm.folder / "bad.key").write_text("PRIVATE+KEY+x+00000000+AAAA")
    assert "INVALID_KEY" in realm("checkpoint", "--key", "bad.key", code=2).err
    assert "FILE_UNREADABLE" in realm("checkpoint", "--key", "none.key", code=2).err
    (realm.folder / "bare.toml").write_text('log = "world.db"\n')
    assert "NO_KEY" in realm("checkpoint", "--config", "bare.toml", code=2).err


@pytest.mark.requirement("CARD-audit")
def test_the_log_continues_a_checkpoint_or_verify_says_so(realm: CliRealm, tmp_path: Path) -> None:
    told = realm("verify", "--against", "old.checkpoint", "--vkey", vkey(realm))
    assert f"against 1 saved tree head, signed by {ORIGIN}" in told.out
    unchecked = realm("verify", "--against", "old.checkpoint", "--against", "new.checkpoint")
    assert f"Not checked: the signatures by {ORIGIN}" in unchecked.err
    wire = realm("verify", "--against", "old.checkpoint", "--vkey", vkey(realm), "--json").json
    [checkpoint] = wire["checkpoints"]
    assert (checkpoint["origin"], checkpoint["signedBy"], checkpoint["unchecked"]) == (ORIGIN, [ORIGIN], [])
    text = (realm.folder / "old.checkpoint").read_text()
    size = text.split("\n")[1]
    forged = tmp_path / "forged.checkpoint"
    forged.write_text(text.replace(f"\n{size}\n", f"\n{int(size) - 1}\n"))
    assert "SAVED_HEAD_MISMATCH" in realm("verify", "--against", str(forged), code=3).out
    assert "BAD_SIGNATURE" in realm("verify", "--against", str(forged), "--vkey", vkey(realm), code=1).err
    assert "INVALID_KEY" in realm("verify", "--against", "old.checkpoint", "--vkey", "x", code=2).err
    assert "--against" in realm("verify", "--vkey", vkey(realm), code=2).err


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("command", [("verify",), ("verify", "all.jsonl"), ("salvage", "-o", "saved.jsonl")])
def test_where_a_key_was_given_nothing_stands_without_a_signature(realm: CliRealm, command: tuple[str, ...]) -> None:
    """A forged export under a tree head of its own would be sound otherwise, and seem to be signed."""
    realm("export", "--force", "all.jsonl")
    bare = realm("verify").out.split()[-1]
    (realm.folder / "heads.txt").write_text(f"{bare}\n")
    signed = ("--against", "new.checkpoint")
    for given in (bare, "heads.txt", "all.jsonl"):
        asked = (*command, "--vkey", vkey(realm), "--against", given)
        assert "--vkey" in realm(*asked, code=2).err
        assert given in realm(*asked, *signed, code=2).err
    assert not (realm.folder / "saved.jsonl").exists()
    assert realm(*command, *signed, "--vkey", vkey(realm)).code == 0


@pytest.fixture
def forked(tmp_path: Path) -> tuple[CliRealm, CliRealm]:
    """A realm, and a copy of it that went its own way; one key signs for both."""
    (tmp_path / "one").mkdir()
    realm = founded(tmp_path / "one", Inside)
    realm("checkpoint", "keygen", ORIGIN, "-o", str(tmp_path / "key"))
    with (realm.folder / "world.toml").open("a") as config:
        config.write(f'\n[checkpoint]\norigin = "{ORIGIN}"\nkey = "{tmp_path / "key"}"\n')
    shutil.copytree(realm.folder, tmp_path / "two")
    return realm, Inside(tmp_path / "two")


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("sign", [("checkpoint",), ("prove", "1"), ("prove", "--between", "1", "2")])
def test_a_key_signs_no_second_history_under_one_name(forked: tuple[CliRealm, CliRealm], sign: tuple[str, ...]) -> None:
    realm, copy = forked
    for one in forked:
        one(*sign)
        one("submit", "sell", "--actor", "ann", "--input", '{"item": "tea", "count": 1}')
    realm("checkpoint")
    assert "in their place" in copy(*sign, code=3).err
    assert realm(*sign).code == 0
    assert copy(*sign, "--origin", "another.example").code == 0
    copy("checkpoint", "keygen", ORIGIN, "-o", "other.key")
    assert copy(*sign, "--key", "other.key").code == 0


def test_a_key_signs_no_log_that_lost_what_it_signed(forked: tuple[CliRealm, CliRealm]) -> None:
    realm, copy = forked
    realm(*BUY)
    realm("checkpoint")
    size = realm("verify").out.split()[-1].partition(":")[0]
    said = copy("checkpoint", code=3)
    assert not said.out
    assert f"has signed {size} events" in said.err
    assert realm("prove", "--between", "1", size).code == 0


def test_a_signing_that_is_refused_notes_nothing_for_any_key(forked: tuple[CliRealm, CliRealm], tmp_path: Path) -> None:
    realm, copy = forked
    realm("checkpoint", "keygen", "new.example", "-o", str(tmp_path / "new"))
    for one in forked:
        one(*BUY)
        one("checkpoint", "-o", "kept", "--key", str(tmp_path / "new"), "--origin", one.folder.name)
    realm("checkpoint")
    both = ("--key", str(tmp_path / "new"), "--key", str(tmp_path / "key"))
    copy("checkpoint", *both, code=3)
    assert realm("checkpoint", *both).code == 0
    shutil.copy(realm.folder / "kept", copy.folder / "other")
    (copy.folder / "other").write_text((realm.folder / "kept").read_text().replace("one\n", "three\n", 1))
    copy("checkpoint", "-o", "other", "--key", str(tmp_path / "new"), "--origin", "three", code=3)
    assert realm("checkpoint", "--key", str(tmp_path / "new"), "--origin", "three").code == 0


def test_a_key_that_is_given_twice_signs_once(forked: tuple[CliRealm, CliRealm], tmp_path: Path) -> None:
    realm, _ = forked
    told = realm("checkpoint", *("--key", str(tmp_path / "key")) * 2, "-o", "kept", "--json").json
    assert len(told["keys"]) == 1
    assert len((tmp_path / "key.signed").read_text().splitlines()) == 1


def test_a_key_is_the_same_under_all_of_its_names(forked: tuple[CliRealm, CliRealm], tmp_path: Path) -> None:
    realm, copy = forked
    for one in forked:
        one(*BUY)
    realm("checkpoint")
    (copy.folder / "link").symlink_to(tmp_path / "key")
    copy("checkpoint", "--key", "link", code=3)


def test_what_was_signed_is_noted_or_nothing_is_signed(forked: tuple[CliRealm, CliRealm], tmp_path: Path) -> None:
    realm, _ = forked
    realm("checkpoint")
    noted = tmp_path / "key.signed"
    [line] = noted.read_text().splitlines()
    assert json.loads(line)["origin"] == ORIGIN
    noted.write_text(f'{line}\n{{"key":"cut o')
    realm(*BUY)
    realm("checkpoint")
    assert [json.loads(one)["origin"] for one in noted.read_text().splitlines()] == [ORIGIN, ORIGIN]
    no_head = line.replace(json.loads(line)["root"], "zz")
    for nonsense in ("nonsense\n", f"{no_head}\n"):
        noted.write_text(nonsense)
        said = realm("checkpoint", code=2).err
        assert "INVALID_PROMISE" in said
        assert str(noted) in said
    noted.unlink()
    noted.mkdir()
    assert "INVALID_TARGET" in realm("checkpoint", code=2).err
    with (realm.folder / "world.toml").open("a") as config:
        config.write('signed = "elsewhere"\n')
    assert realm("checkpoint").code == 0
    assert (realm.folder / "elsewhere").is_file()


def test_an_older_checkpoint_is_only_replaced_by_one_that_continues_it(realm: CliRealm) -> None:
    file = realm.folder / "kept.checkpoint"
    file.write_text((realm.folder / "old.checkpoint").read_text())
    realm("checkpoint", "-o", file.name)
    assert file.read_text() == (realm.folder / "new.checkpoint").read_text()
    witness = (
        "\u2014 witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5"
    )
    file.write_text(file.read_text() + f"{witness}\n")
    realm("checkpoint", "-o", file.name)
    assert witness in file.read_text()
    forged = file.read_text().split("\n")
    forged[2] = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I="
    file.write_text("\n".join(forged))
    assert "SAVED_HEAD_MISMATCH" in realm("checkpoint", "-o", file.name, code=3).err
    assert file.read_text() == "\n".join(forged)
    file.write_text("my notes\n")
    assert "INVALID_TARGET" in realm("checkpoint", "-o", file.name, code=2).err
    file.write_text((realm.folder / "old.checkpoint").read_text())
    assert "WRONG_ORIGIN" in realm("checkpoint", "--origin", "x.example", "-o", file.name, code=1).err


@pytest.mark.requirement("CARD-audit", "IC-audit")
def test_receipts_are_written_for_all_that_has_an_id(realm: CliRealm) -> None:
    shown = realm("show", "HEAD", "--json").json
    proposal = realm("show", shown["createdBy"], "--json").json
    verdict = realm("log", "--topic", "verdict.given", "--json").lines[-1]["state"]["verdictId"]
    named = {
        shown["worldId"][:20]: ("world", shown["worldId"]),
        proposal["proposalId"]: ("proposal", proposal["proposalId"]),
        proposal["intent"]["intentId"]: ("intent", proposal["intent"]["intentId"]),
        proposal["decision"]["decisionId"]: ("decision", proposal["decision"]["decisionId"]),
        verdict: ("verdict", verdict),
        "3": ("event", "3"),
    }
    for given, (kind, name) in named.items():
        told = realm("prove", given, "-o", "receipt.json", "--json").json
        assert (told["kind"], told["id"], told["origin"]) == (kind, name, ORIGIN)
        receipt = json.loads((realm.folder / "receipt.json").read_text())
        assert receipt["about"] == {"kind": kind, "id": name, "field": receipt["about"]["field"]}
        assert "proven" in realm("verify", "receipt.json", "--vkey", vkey(realm)).out
    said = independent(realm, "receipt.json", "--vkey", vkey(realm))
    assert said.startswith("proven: event 3 of example.com/shop")
    assert "NOT_FOUND" in realm("prove", "zzzz", code=1).err
    assert "--between" in realm("prove", code=2).err
    assert realm("prove", "3").out == (realm.folder / "receipt.json").read_text()


def test_a_receipt_is_made_under_a_checkpoint_that_others_signed(realm: CliRealm) -> None:
    realm("prove", "3", "--checkpoint", "old.checkpoint", "-o", "under.json")
    receipt = json.loads((realm.folder / "under.json").read_text())
    assert receipt["checkpoint"] == (realm.folder / "old.checkpoint").read_text()
    last = str(realm("verify", "--json").json["events"])
    assert "NO_SUCH_EVENT" in realm("prove", last, "--checkpoint", "old.checkpoint", code=1).err
    assert "--checkpoint" in realm("prove", "3", "--checkpoint", "old.checkpoint", "--origin", "x", code=2).err


@pytest.mark.requirement("CARD-audit")
def test_the_log_is_proven_to_have_only_grown(realm: CliRealm) -> None:
    said = realm("prove", "--between", "old.checkpoint", "new.checkpoint", "-o", "grown.json").out
    assert "are as they were" in said
    assert "are as they were" in realm("verify", "grown.json", "--vkey", vkey(realm)).out
    assert "are as they were" in independent(realm, "grown.json", "--vkey", vkey(realm))
    realm("prove", "--between", "2", "9", "-o", "sizes.json")
    assert "the first 2 events" in realm("verify", "sizes.json", "--vkey", vkey(realm)).out
    assert "INVALID_INPUT" in realm("prove", "--between", "9", "2", code=2).err
    assert "NO_SUCH_EVENT" in realm("prove", "--between", "2", "99999", code=1).err


def test_receipts_are_written_and_checked_as_cose(realm: CliRealm) -> None:
    proposal = realm("show", realm("show", "HEAD", "--json").json["createdBy"], "--json").json
    decision = proposal["decision"]["decisionId"]
    told = realm("prove", decision, "--format", "cose", "-o", "receipt.cose", "--json").json
    assert (told["kind"], told["id"], told["format"], told["origin"]) == ("decision", decision, "cose", ORIGIN)
    data = (realm.folder / "receipt.cose").read_bytes()
    entry, public = cbor.decode(data).value[1][ENTRY], VerifierKey.parse(vkey(realm)).public
    pem = Ed25519PublicKey.from_public_bytes(public).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert scitt_cose.verify_receipt(data, leaf_entry_hex=entry.hex(), log_public_key_pem=pem).ok
    said = realm("verify", "receipt.cose", "--vkey", vkey(realm)).out
    assert said.startswith(f"proven: decision {decision}: event {told['position']}, decision.made, in the log {ORIGIN}")
    shown = realm("verify", "receipt.cose", "--vkey", vkey(realm), "--json").json
    realm("prove", decision, "-o", "receipt.json")
    assert shown == realm("verify", "receipt.json", "--vkey", vkey(realm), "--json").json
    head = f"{told['size']}:{shown['checkpoints'][0]['root']}"
    bare = realm("verify", "receipt.cose", "--against", head)
    assert (ORIGIN in bare.out, "Not checked: the signatures by key" in bare.err) == (False, True)
    assert "--vkey" in realm("verify", "receipt.cose", code=2).err
    realm("checkpoint", "keygen", "other.example", "-o", "other.key")
    other = realm("prove", "1", "--format", "cose", "--key", "other.key", "-o", "other.cose", "--json")
    assert "--origin" in other.err  # the key has another name
    assert "NOT_SIGNED" in realm("verify", "other.cose", "--vkey", vkey(realm), code=1).err
    (realm.folder / "cut.cose").write_bytes(data[:-1])
    assert "cut off" in realm("verify", "cut.cose", "--vkey", vkey(realm), code=1).err
    (realm.folder / "changed.cose").write_bytes(data.replace(b"decision.made", b"decision.bade"))
    assert "BAD_SIGNATURE" in realm("verify", "changed.cose", "--vkey", vkey(realm), code=1).err


def test_growth_is_proven_as_cose_from_a_head_that_was_kept(realm: CliRealm) -> None:
    size = realm("verify", "--json").json["events"]
    wanted = ("prove", "--between", "old.checkpoint", str(size), "--format", "cose", "-o", "grown.cose")
    assert "are as they were" in realm(*wanted).out
    check = ("verify", "grown.cose", "--vkey", vkey(realm))
    assert f"signed by {ORIGIN}" in realm(*check, "--against", "old.checkpoint").out
    told = realm(*check, "--against", "old.checkpoint", "--json").json
    assert [one["signedBy"] for one in told["checkpoints"]] == [[], [ORIGIN]]  # the proof has one signature
    assert "--against" in realm(*check, code=1).err
    assert "older tree head" in realm(*check, "--against", "new.checkpoint", code=1).err
    assert "COSE" in realm(*check, "--against", "old.checkpoint", "--old-vkey", vkey(realm), code=2).err


def test_cose_is_signed_by_one_key_of_a_whole_tree(realm: CliRealm) -> None:
    cose = ("prove", "3", "--format", "cose")
    (realm.folder / "bare.toml").write_text('log = "world.db"\n')
    assert "NO_KEY" in realm(*cose, "--config", "bare.toml", code=2).err
    assert "one --key" in realm(*cose, "--key", "checkpoint.key", "--key", "other.key", code=2).err
    assert "signed anew" in realm(*cose, "--checkpoint", "old.checkpoint", code=2).err
    between = ("prove", "--format", "cose", "--between")
    assert "number of events" in realm(*between, "2", "old.checkpoint", code=2).err
    assert "INVALID_INPUT" in realm(*between, "3", "3", code=2).err


def test_a_file_does_not_vouch_for_itself(realm: CliRealm) -> None:
    realm("prove", "4", "-o", "receipt.json")
    assert "--vkey" in realm("verify", "receipt.json", code=2).err
    head = str(read_checkpoint((realm.folder / "new.checkpoint").read_bytes()).head)
    said = realm("verify", "receipt.json", "--against", head).out
    assert "under a tree head that was kept" in said
    assert ORIGIN not in said  # anybody could have written that there
    old = str(read_checkpoint((realm.folder / "old.checkpoint").read_bytes()).head)
    assert "BAD_PROOF" in realm("verify", "receipt.json", "--against", old, code=1).err
    receipt = (realm.folder / "receipt.json").read_text()
    (realm.folder / "receipt.json").write_text(receipt.replace('"position":4', '"position":5'))
    assert "BAD_PROOF" in realm("verify", "receipt.json", "--vkey", vkey(realm), code=1).err
    (realm.folder / "other.txt").write_text("no proof")
    assert "BAD_PROOF" in realm("verify", "other.txt", "--vkey", vkey(realm), code=1).err
    assert "those of one log" in realm("verify", "world.toml", "--vkey", vkey(realm), code=2).err
    assert "FILE_UNREADABLE" in realm("verify", "none.json", "--vkey", vkey(realm), code=2).err


@pytest.mark.requirement("CARD-audit")
def test_an_export_is_verified_without_its_log(realm: CliRealm) -> None:
    whole = realm("export").out
    (realm.folder / "whole.jsonl").write_text(whole)
    assert "sound" in realm("verify", "whole.jsonl", "--against", "old.checkpoint").out
    wire = realm("verify", "whole.jsonl", "--json").json
    assert (wire["ok"], wire["kind"], wire["hidden"], wire["worlds"]) == (True, "export", 0, 2)
    (realm.folder / "changed.jsonl").write_text(whole.replace('"count":1', '"count":2'))
    assert "BAD_EXPORT" in realm("verify", "changed.jsonl", code=3).out
    (realm.folder / "cut.jsonl").write_text("".join(whole.splitlines(keepends=True)[:-1]))
    assert "cut off" in realm("verify", "cut.jsonl", code=3).out
    assert realm("verify", "cut.jsonl", "--json", code=3).json["findings"][0]["code"] == "BAD_EXPORT"


@pytest.mark.requirement("CARD-audit")
def test_proofs_change_no_byte_of_the_log(realm: CliRealm) -> None:
    before = {file.name: file.read_bytes() for file in realm.folder.glob("world.db*")}
    typed = CliRealm(realm.folder)  # the command as it is typed, in a process of its own
    assert typed("prove", "3").out == realm("prove", "3").out
    assert typed("checkpoint").out == realm("checkpoint").out
    for words in (("prove", "--between", "2", "5"), ("export", "--redact", "inputs"), ("verify",)):
        realm(*words)
    assert {file.name: file.read_bytes() for file in realm.folder.glob("world.db*")} == before


@pytest.mark.requirement("CARD-audit")
def test_an_older_tree_head_alone_proves_nothing_about_a_newer_one(realm: CliRealm) -> None:
    """From a head of 2, 4, 8, ... events anybody makes a newer one with a proof, and events of his own."""
    realm("prove", "--between", "old.checkpoint", "new.checkpoint", "-o", "kept.json")
    old, new = (str(read_checkpoint((realm.folder / f"{one}.checkpoint").read_bytes()).head) for one in ("old", "new"))
    assert "only its older tree head was kept" in realm("verify", "kept.json", "--against", old, code=1).err
    for kept in ((new,), (old, new)):
        words = [word for head in kept for word in ("--against", head)]
        said = realm("verify", "kept.json", *words).out
        assert "events of a log are as they were" in said
        assert ORIGIN not in said
        assert ORIGIN not in independent(realm, "kept.json", *(word.replace("against", "head") for word in words))


@pytest.mark.requirement("CARD-audit")
def test_a_proof_leads_over_a_change_of_the_key(realm: CliRealm) -> None:
    later = realm("checkpoint", "keygen", ORIGIN, "-o", "later.key").out.strip()
    realm("checkpoint", "--key", "later.key", "-o", "later.checkpoint")
    realm("prove", "--between", "old.checkpoint", "later.checkpoint", "-o", "rotated.json")
    for one in (vkey(realm), later):
        assert "NOT_SIGNED" in realm("verify", "rotated.json", "--vkey", one, code=1).err
    keys = ("--vkey", later, "--old-vkey", vkey(realm))
    assert f"; the older ones signed by {ORIGIN}, all signed by {ORIGIN}" in realm("verify", "rotated.json", *keys).out
    assert "are as they were" in independent(realm, "rotated.json", *keys)
    wire = realm("verify", "rotated.json", *keys, "--json").json
    assert [one["signedBy"] for one in wire["checkpoints"]] == [[ORIGIN], [ORIGIN]]
    realm("prove", "3", "-o", "three.json")
    realm("export", "--force", "all.jsonl")
    for words in (("three.json",), (), ("all.jsonl",)):
        asked = ("--against", "new.checkpoint", "--vkey", vkey(realm), "--old-vkey", later)
        assert "--old-vkey" in realm("verify", *words, *asked, code=2).err


@pytest.mark.requirement("CARD-audit")
def test_it_is_told_when_witnesses_signed(realm: CliRealm) -> None:
    private = Ed25519PrivateKey.from_private_bytes(bytes(32))
    witness = VerifierKey("wit.example/w", private.public_key().public_bytes_raw(), COSIGNATURE)
    whole = (realm.folder / "new.checkpoint").read_text()
    body = whole.partition("\n\n")[0] + "\n"
    keys = ("--vkey", vkey(realm), "--vkey", witness.to_text())
    for at, words in ((1_700_000_000, "2023-11-14T22:13:20Z"), (2**63 - 1, f"{2**63 - 1} s after 1970"), (2**63, "")):
        value = at.to_bytes(8) + private.sign(f"cosignature/v1\ntime {at}\n{body}".encode())
        line = Signature(witness.name, witness.key_id, value).to_text()
        (realm.folder / "seen.checkpoint").write_text(whole + line)
        realm("prove", "3", "--checkpoint", "seen.checkpoint", "-o", "seen.json")
        for asked in (("--against", "seen.checkpoint"), ("seen.json",)):
            if not words:
                assert "BAD_SIGNATURE" in realm("verify", *asked, *keys, code=1).err
                continue
            assert f"signed by {ORIGIN}, {witness.name} at {words}" in realm("verify", *asked, *keys).out
            [told] = realm("verify", *asked, *keys, "--json").json["checkpoints"]
            assert told["cosignedAt"] == {witness.name: at}


def test_no_checkpoint_is_replaced_by_one_that_cannot_be_read(realm: CliRealm) -> None:
    full = (realm.folder / "new.checkpoint").read_text() + "\u2014 other.example AAAAAAAA\n" * 99
    (realm.folder / "full.checkpoint").write_text(full)
    realm("checkpoint", "-o", "full.checkpoint")  # its own line is there already
    realm("checkpoint", "keygen", ORIGIN, "-o", "one-more.key")
    assert "INVALID_TARGET" in realm("checkpoint", "-o", "full.checkpoint", "--key", "one-more.key", code=2).err
    assert len(read_checkpoint((realm.folder / "full.checkpoint").read_bytes()).note.signatures) == 100
    signed = (realm.folder / "one-more.key.signed").read_text()
    long = ("checkpoint", "--key", "one-more.key", "--origin", "x" * 100_000)
    assert "INVALID_CHECKPOINT" in realm(*long, code=2).err
    assert (realm.folder / "one-more.key.signed").read_text() == signed


def test_options_that_say_nothing_are_not_passed_over(realm: CliRealm) -> None:
    files = ("prove", "--between", "old.checkpoint", "new.checkpoint")
    for more in (("--key", "none.key"), ("--origin", "nonsense")):
        assert "leave --key and --origin out" in realm(*files, *more, code=2).err
    assert realm("prove", "--between", "old.checkpoint", "13", "--origin", ORIGIN).code == 0


def test_a_key_that_others_can_read_is_remarked_upon(realm: CliRealm) -> None:
    assert "Others" not in realm("checkpoint").err
    (realm.folder / "checkpoint.key").chmod(0o644)
    try:
        assert "Others can read or change the key" in realm("checkpoint").err
        assert "Others can read or change the key" in realm("prove", "3", "-o", "three.json").err
    finally:
        (realm.folder / "checkpoint.key").chmod(0o600)
