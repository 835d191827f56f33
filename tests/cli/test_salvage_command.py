"""``worldctl salvage``: a damaged log is only read, and what is sound in it goes on in a new one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import Realm, founded

BUY = ("submit", "sell", "--actor", "ann", "--input", '{"item": "tea", "count": 1}')


@pytest.fixture(scope="module")
def sold(tmp_path_factory: pytest.TempPathFactory) -> Realm:
    realm = founded(tmp_path_factory.mktemp("salvage"), Inside)
    for _ in range(3):
        realm(*BUY)
    realm("export", "kept.jsonl")
    return realm


@pytest.fixture
def realm(sold: Realm, tmp_path: Path) -> Realm:
    for path in sold.folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return Inside(tmp_path)


def damage(realm: Realm, old: bytes, new: bytes) -> str:
    """Change the last place where something stands in the file of the log; return the digest of the file then."""
    path = realm.folder / "world.db"
    data = path.read_bytes()
    at = data.rindex(old)
    path.write_bytes(data[:at] + new + data[at + len(old) :])
    return digest(realm)


def digest(realm: Realm) -> str:
    return hashlib.sha256((realm.folder / "world.db").read_bytes()).hexdigest()


@pytest.mark.requirement("CARD-audit")
def test_of_a_damaged_log_the_sound_beginning_goes_on_as_a_new_one(realm: Realm) -> None:
    events = len(realm("log", "--json").lines)
    before = damage(realm, b'"attempt":1,', b'"attempt":7,')
    [changed] = {found["position"] for found in realm("verify", "--json", code=3).json["findings"][:1]}
    said = realm("salvage", "-o", "new.jsonl", "--against", "kept.jsonl", code=3)
    assert f"changed: 1 event: {changed}" in said.out
    assert f"of {events} in new.jsonl, under a tree head kept elsewhere" in said.out
    told = realm("--json", "salvage", "-o", "new.jsonl", "--force", "--against", "kept.jsonl", code=3).json
    assert told["changed"] == {"count": 1, "spans": [[changed, changed]]}
    assert told["rest"] == {"saved": events - told["events"] - 1, "stored": 0, "none": 0}
    rest = [json.loads(line) for line in (realm.folder / told["restFile"]).read_text().splitlines()]
    assert [line["position"] for line in rest[1:]] == [n for n in range(told["events"] + 1, events + 1) if n != changed]
    assert digest(realm) == before
    realm("--log", "new.db", "import", "new.jsonl")
    realm("--log", "new.db", "verify")
    realm(*BUY, WORLD_LOG="new.db")


@pytest.mark.requirement("CARD-audit")
def test_a_sound_log_and_its_export_are_saved_whole(realm: Realm) -> None:
    realm("export", "log.jsonl")
    assert "nothing is lost" in realm("salvage", "-o", "new.jsonl").out
    assert realm("--json", "salvage", "log.jsonl", "-o", "again.jsonl").json["whole"]
    texts = {(realm.folder / name).read_bytes() for name in ("log.jsonl", "new.jsonl", "again.jsonl")}
    assert len(texts) == 1
    assert not (realm.folder / "new.jsonl.rest.jsonl").exists()


def test_a_file_in_which_sqlite_finds_no_database_any_more_is_saved(realm: Realm) -> None:
    damage(realm, (realm.folder / "world.db").read_bytes()[:512], bytes(512))
    realm("verify", code=2)
    assert "nothing is lost" in realm("salvage", "-o", "new.jsonl").out


def test_what_is_there_is_not_written_over(realm: Realm) -> None:
    before = digest(realm)
    assert "INVALID_TARGET" in realm("salvage", "-o", "world.db", code=2).err
    assert "INVALID_TARGET" in realm("salvage", "-o", "world.db", "--force", code=2).err
    assert "INVALID_TARGET" in realm("salvage", "-o", "no/where.jsonl", code=2).err
    (realm.folder / "new.jsonl").write_text("mine")
    assert "INVALID_TARGET" in realm("salvage", "-o", "new.jsonl", code=2).err
    assert (realm.folder / "new.jsonl").read_text() == "mine"
    assert digest(realm) == before


def test_where_nothing_is_left_it_says_so(realm: Realm) -> None:
    (realm.folder / "junk").write_bytes(b"\x0d" * 9000)
    assert "NOTHING_TO_SALVAGE" in realm("salvage", "junk", "-o", "new.jsonl", code=3).err
    assert "LOG_NOT_FOUND" in realm("salvage", "nowhere.db", "-o", "new.jsonl", code=2).err
    assert "INVALID_ADDRESS" in realm("salvage", "sqlite:///:memory:", "-o", "new.jsonl", code=2).err
