"""The log as a tiled transparency log over HTTP, read by a client that was written from the specifications."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.exceptions import InvalidSignature
from tlog_scales.reader import TilesReader
from tlog_scales.signing import Vkey
from tlog_scales.tlog import InclusionProofInvalid

from tests.auditing.audited import worldctl
from tests.cli.forked import run
from tests.cli.realm import environment
from tests.server.kiosk import handlers, kiosk
from tests.server.served import ORDER, PATH, Served, founded, serving
from tests.support.tlog_client import Tree, is_consistent, is_included, leaf, open_checkpoint
from world.log import TreeHead
from worldprotocol.api.realm import Realm
from worldprotocol.export.proofs.checkpoint import Trusted
from worldprotocol.export.proofs.cose import check_cose
from worldprotocol.export.proofs.note import VerifierKey

LIMITS = "requests_per_second = 10000\nburst = 10000"
ORIGIN = "example.com/kiosk"


@pytest.fixture(scope="module")
def tiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    """Return a server of a realm with more than 256 events and a key for checkpoints, and the verifier key."""
    folder: Path = tmp_path_factory.mktemp("tiled")
    place = founded(folder, server=LIMITS)
    key = worldctl(place)("checkpoint", "keygen", ORIGIN, "--json").json["verifierKey"]
    config = folder / "world.toml"
    config.write_text(config.read_text() + f"\n[checkpoint]\norigin = '{ORIGIN}'\nkey = 'checkpoint.key'\n")
    with Realm.open(place.log, domain=kiosk, effects=handlers, on_change="hold") as realm:
        realm.access.grant("yak", "reader", by="operator", redaction=["inputs"])
        for number in range(300 - realm.log.head().size):
            realm.register(f"agent-{number}", "agent")
    with serving(place) as running:
        yield running, key


def fetched(served: Served, path: str, actor: str = "aud") -> bytes:
    with served.client(actor) as client:
        answer = client.get(f"{PATH}/{path}")
        assert answer.status_code == 200, answer.text
        return answer.content


def tree_of(served: Served, key: str, actor: str = "aud") -> tuple[Tree, bytes]:
    """Return the tree of the newest checkpoint, and its root."""
    origin, size, root = open_checkpoint(fetched(served, "checkpoint", actor), key)
    assert origin == ORIGIN
    return Tree(lambda path: fetched(served, path, actor), size), root


@pytest.mark.requirement("CARD-audit")
def test_a_client_rebuilds_the_signed_tree_and_every_entry(tiled: tuple[Served, str]) -> None:
    served, key = tiled
    tree, root = tree_of(served, key)
    assert tree.size > 256
    assert tree.root() == root
    entries = tree.entries()
    with served.client("aud") as aud:
        events = aud.get(f"{PATH}/log", params={"limit": tree.size}).json()["events"]
    assert [leaf(one).hex() for one in entries] == [one["leaf"] for one in events]
    assert [json.loads(one)["state"] for one in entries] == [one["state"] for one in events]


@pytest.mark.requirement("CARD-audit")
def test_inclusion_and_consistency_follow_from_tiles_and_equal_the_servers_proofs(tiled: tuple[Served, str]) -> None:
    served, key = tiled
    before, older = tree_of(served, key)
    done = served.submit("kid", ORDER).json()
    tree, root = tree_of(served, key)
    assert tree.size > before.size
    receipt = json.loads(fetched(served, f"receipts/world/{done['worldId']}"))
    index = receipt["inclusion"]["index"]
    path = tree.inclusion(index)
    assert [one.hex() for one in path] == receipt["inclusion"]["path"]
    assert is_included(leaf(receipt["event"]["content"].encode()), index, tree.size, path, root)
    assert not is_included(leaf(b"{}"), index, tree.size, path, root)
    assert not is_included(leaf(receipt["event"]["content"].encode()), index - 1, tree.size, path, root)
    proof = json.loads(fetched(served, f"proof/consistency?from={before.size}&to={tree.size}"))
    path = tree.consistency(before.size)
    assert [one.hex() for one in path] == proof["path"]
    assert is_consistent(before.size, tree.size, path, older, root)
    assert not is_consistent(before.size, tree.size, path, root, root)
    for named, expected in (("old", (ORIGIN, before.size, older)), ("new", (ORIGIN, tree.size, root))):
        assert open_checkpoint(proof[named].encode(), key) == expected


@pytest.mark.requirement("CARD-audit")
def test_proofs_are_those_of_the_command_line(tiled: tuple[Served, str]) -> None:
    served, _ = tiled
    said = worldctl(served.place)("prove", "--between", "256", "300").out
    assert fetched(served, "proof/consistency?from=256&to=300").decode() == said
    file = served.place.folder / "proof.json"
    file.write_bytes(fetched(served, "proof/consistency?from=1"))
    key = tiled[1]
    assert worldctl(served.place)("verify", str(file), "--vkey", key, "--json").json["ok"]
    with served.client("aud") as aud:
        for query, code in (
            ({"from": 300, "to": 256}, "INVALID_INPUT"),
            ({"from": 1, "to": 2**53}, "NO_SUCH_EVENT"),
            ({"from": 0}, "INVALID_VALUE"),
            ({"from": -1}, "INVALID_VALUE"),
            ({"from": 2**64}, "INVALID_VALUE"),
            ({"from": "\u202e"}, "INVALID_VALUE"),
            ({}, "INVALID_VALUE"),
        ):
            answer = aud.get(f"{PATH}/proof/consistency", params=query)
            assert answer.json()["code"] == code, (query, answer.text)
            assert answer.status_code < 500


def test_tiles_are_immutable_resources(tiled: tuple[Served, str]) -> None:
    served, key = tiled
    with served.client("aud") as aud:
        for path, length in (("0/000", 8192), ("0/001.p/3", 96), ("1/000.p/1", 32), ("0/000.p/1", 32)):
            answer = aud.get(f"{PATH}/tile/{path}")
            assert (answer.status_code, len(answer.content)) == (200, length), answer.text
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
            again = aud.get(f"{PATH}/tile/{path}", headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            other = aud.get(f"{PATH}/tile/{path}", headers={"If-None-Match": '"00"'})
            assert (other.status_code, other.content) == (200, answer.content)
        checkpoint = aud.get(f"{PATH}/checkpoint")
        assert checkpoint.headers["content-type"] == "text/plain; charset=utf-8"
        assert checkpoint.headers["cache-control"] == "no-store"
        size = open_checkpoint(checkpoint.content, key)[1]
        upper = tree_of(served, key)[0].tile(1, 0)
        for number, one in enumerate(upper):
            assert Tree(lambda path: fetched(served, path), size).hash(256 * number, 256 * number + 256) == one


def test_entries_are_compressed_for_those_that_accept_it(tiled: tuple[Served, str]) -> None:
    served, _ = tiled
    path, tags = f"{PATH}/tile/entries/000", set()
    with served.client("aud") as aud:
        bodies = {}
        for accepted, encoding in (
            ("gzip", "gzip"),
            ("gzip;q=0, identity", None),
            ("br, *", "gzip"),
            ("identity", None),
        ):
            with aud.stream("GET", path, headers={"Accept-Encoding": accepted}) as answer:
                raw = b"".join(answer.iter_raw())
                assert answer.headers.get("content-encoding") == encoding
                assert answer.headers["vary"] == "Accept-Encoding"
                tags.add((encoding, answer.headers["etag"]))
                bodies[accepted] = gzip.decompress(raw) if encoding else raw
    assert len(set(bodies.values())) == 1
    assert len(tags) == 2
    assert len(gzip.compress(next(iter(bodies.values())))) * 3 < len(next(iter(bodies.values())))


@dataclass
class Prefix:
    """The log's prefix over HTTP, as the backend of another client."""

    served: Served

    def get(self, *path: str) -> bytes | None:
        with self.served.client("aud") as client:
            answer = client.get(f"{PATH}/{'/'.join(path)}")
        return answer.content if answer.status_code == 200 else None


def test_a_client_of_others_checks_checkpoint_tiles_entries_and_proofs(tiled: tuple[Served, str]) -> None:
    served, key = tiled
    reader = TilesReader(Prefix(served))
    older = reader.get_checkpoint()
    served.submit("kid", ORDER)
    newest = reader.get_checkpoint()
    for checkpoint in (older, newest):
        checkpoint.verify(Vkey.from_string(key))
        assert checkpoint.origin == ORIGIN
    assert 256 < older.size < newest.size
    with pytest.raises(InvalidSignature):
        replace(newest, size=newest.size + 1).verify(Vkey.from_string(key))
    assert reader.calculate_root_hash() == newest.root_hash
    reader.get_consistency_proof(older.size, newest.size).check(older.root_hash, newest.root_hash)
    for index in (0, 255, 256, older.size, newest.size - 1):
        proof = reader.get_inclusion_proof(index, newest.size)
        proof.check(leaf(reader.get_entry(index)), newest.root_hash)
        with pytest.raises(InclusionProofInvalid):
            proof.check(leaf(b"{}"), newest.root_hash)


def test_receipts_and_proofs_are_cose_where_that_is_accepted(tiled: tuple[Served, str]) -> None:
    served, key = tiled
    trusted = Trusted((VerifierKey.parse(key),))
    done = served.submit("kid", ORDER).json()
    older = open_checkpoint(fetched(served, "checkpoint"), key)
    served.submit("kid", ORDER)
    with served.client("aud") as aud:

        def taken(path: str, accept: str = "application/cose") -> httpx.Response:
            return aud.get(f"{PATH}/{path}", headers={"Accept": accept})

        for path, kind, name in (("7", "event", "7"), (f"world/{done['worldId']}", "world", done["worldId"])):
            answer = taken(f"receipts/{path}", 'text/html, application/cose; cose-type="cose-sign1"')
            assert answer.headers["content-type"] == 'application/cose; cose-type="cose-sign1"'
            assert answer.headers["vary"] == "Accept"
            about = check_cose(answer.content, trusted).about
            assert about is not None
            assert (about["kind"], about["id"]) == (kind, name)
        grown = taken(f"proof/consistency?from={older[1]}")
        assert check_cose(grown.content, trusted, [TreeHead(older[1], older[2])]).kind == "consistency"
        for accept in ("*/*", "application/json", "application/json, application/cose;q=0.5"):
            assert taken("receipts/7", accept).json()["worldProtocol"] == "receipt"
            assert taken("proof/consistency?from=7", accept).json()["worldProtocol"] == "consistency"
        refused = taken("proof/consistency?from=7&to=7")
        assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_INPUT")
        named = aud.get(f"{PATH}/receipts/7", params={"mediaType": "application/cose"})
        assert (named.status_code, named.json()["details"]["faults"][0]["path"]) == (400, "query.mediaType")
    with served.client("yak") as yak:
        hidden = yak.get(f"{PATH}/receipts/proposal/{done['proposalId']}", headers={"Accept": "application/cose"})
        assert (hidden.status_code, hidden.json()["code"]) == (403, "RIGHT_MISSING")


def test_a_command_over_the_server_prints_cose(tiled: tuple[Served, str], tmp_path: Path) -> None:
    served, key = tiled
    words = ["--server", served.url, "prove", "7", "--format", "cose"]
    variables = environment() | {"WORLDCTL_TOKEN": served.place.tokens["aud"]}
    code, out, err = run(words, tmp_path, variables)
    assert code == 0, err
    assert check_cose(out, Trusted((VerifierKey.parse(key),))).kind == "receipt"


MISSING = [
    "0/002", "0/001", "0/001.p/250", "0/x001/000", "0/x999/x999/x999/x999/x999/999", "1/000", "1/000.p/2", "1/001.p/1",
    "2/000.p/1", "63/000.p/1", "64/000", "00/000", "-1/000", "0/-01", "0/0", "0/000.p/0", "0/000.p/256", "0/000.p/1/",
    "0/000.p/999999999999999999999", "0/", "0/x000/000", "%E2%80%AE/000", "0/%D9%A0%D9%A0%D9%A0", "0/000%00",
    "9" * 500 + "/000", "0/" + "x001/" * 1_000 + "000", "entries/003", "entries/001", "entries/000.p/0", "entries/",
    "entries/%00", "data/000",
]  # fmt: skip


def test_what_is_not_there_is_not_found(tiled: tuple[Served, str]) -> None:
    served, _ = tiled
    with served.client("aud") as aud:
        for name in MISSING:
            answer = aud.get(f"{PATH}/tile/{name}")
            assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), name
            assert "immutable" not in answer.headers["cache-control"]


def test_a_reader_with_redaction_gets_hashes_and_no_entries(tiled: tuple[Served, str]) -> None:
    served, key = tiled
    tree, root = tree_of(served, key, "yak")
    assert tree.root() == root
    with served.client("yak") as yak, served.client("mule") as mule:
        answer: Any = yak.get(f"{PATH}/tile/entries/000")
        assert (answer.status_code, answer.json()["code"]) == (403, "RIGHT_MISSING")
        assert mule.get(f"{PATH}/tile/0/000").status_code == 403
