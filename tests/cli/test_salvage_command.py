"""``worldctl salvage``: a damaged log is only read, and what is sound in it goes on in a new one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import CliRealm, founded
from world.log import event_leaf
from world.model.canonical_json import canonical_bytes

BUY = ("submit", "sell", "--actor", "ann", "--input", '{"item": "tea", "count": 1}')


@pytest.fixture(scope="module")
def sold(tmp_path_factory: pytest.TempPathFactory) -> CliRealm:
    realm = founded(tmp_path_factory.mktemp("salvage"), Inside)
    for _ in range(3):
        realm(*BUY)
    realm("export", "kept.jsonl")
    return realm


@pytest.fixture
def realm(sold: CliRealm, tmp_path: Path) -> CliRealm:
    for path in sold.folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return Inside(tmp_path)


def damage(realm: CliRealm, old: bytes, new: bytes) -> str:
    """Change the last place where something stands in the file of the log; return the digest of the file then."""
    path = realm.folder / "world.db"
    data = path.read_bytes()
    at = data.rindex(old)
    path.write_bytes(data[:at] + new + data[at + len(old) :])
    return digest(realm)


def digest(realm: CliRealm) -> str:
    return hashlib.sha256((realm.folder / "world.db").read_bytes()).hexdigest()


@pytest.mark.requirement("CARD-audit")
def test_of_a_damaged_log_the_sound_beginning_goes_on_as_a_new_one(realm: CliRealm) -> None:
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
    words = f"{told['events']} events of {events} that a damaged log had, under a tree head that was kept elsewhere"
    assert f"salvaged: {words}" in realm("verify", "new.jsonl").out
    assert realm("verify", "new.jsonl", "--json").json["salvaged"] == {"expected": events, "vouched": "saved"}
    assert words in realm("--log", "new.db", "import", "new.jsonl").err
    lost = f"lost: {events - told['events']} events: {told['events'] + 1}-{events}"
    assert lost in realm("salvage", "new.jsonl", "-o", "again.jsonl", code=3).out
    assert (realm.folder / "again.jsonl").read_bytes() == (realm.folder / "new.jsonl").read_bytes()
    realm("--log", "other.db", "import", "kept.jsonl")
    assert "salvaged" not in realm("--log", "other.db", "import", "kept.jsonl", "--json").json
    realm("--log", "new.db", "verify")
    realm(*BUY, WORLD_LOG="new.db")


@pytest.mark.requirement("CARD-audit")
def test_a_sound_log_and_its_export_are_saved_whole(realm: CliRealm) -> None:
    realm("export", "log.jsonl")
    assert "nothing is lost" in realm("salvage", "-o", "new.jsonl").out
    assert realm("--json", "salvage", "log.jsonl", "-o", "again.jsonl").json["whole"]
    texts = {(realm.folder / name).read_bytes() for name in ("log.jsonl", "new.jsonl", "again.jsonl")}
    assert len(texts) == 1
    assert not (realm.folder / "new.jsonl.rest.jsonl").exists()
    assert "salvaged" not in realm("verify", "new.jsonl", "--json").json
    lines = (realm.folder / "log.jsonl").read_bytes().splitlines(keepends=True)
    (realm.folder / "cut.jsonl").write_bytes(b"".join(line for line in lines if not line.startswith(b'{"head"')))
    assert "under no tree head" in realm("salvage", "cut.jsonl", "-o", "bare.jsonl", code=3).out
    assert realm("verify", "bare.jsonl", "--json").json["salvaged"]["vouched"] == "none"
    assert "under no tree head, as it says" in realm("verify", "bare.jsonl").out
    assert "not everything" in realm("salvage", "bare.jsonl", "-o", "still.jsonl", code=3).out
    assert (realm.folder / "still.jsonl").read_bytes() == (realm.folder / "bare.jsonl").read_bytes()


def test_a_file_in_which_sqlite_finds_no_database_any_more_is_saved(realm: CliRealm) -> None:
    damage(realm, (realm.folder / "world.db").read_bytes()[:512], bytes(512))
    realm("verify", code=2)
    assert "nothing is lost" in realm("salvage", "-o", "new.jsonl").out


def test_what_is_there_is_not_written_over(realm: CliRealm) -> None:
    before = digest(realm)
    assert "INVALID_TARGET" in realm("salvage", "-o", "world.db", code=2).err
    assert "INVALID_TARGET" in realm("salvage", "-o", "world.db", "--force", code=2).err
    assert "INVALID_TARGET" in realm("salvage", "-o", "no/where.jsonl", code=2).err
    for name in ("world.db-wal", "./world.db-shm", "world.db-journal"):  # which SQLite would take for its own
        assert "belongs to the log" in realm("salvage", "-o", name, "--force", code=2).err
        assert not (realm.folder / name).exists()
    (realm.folder / "new.jsonl").write_text("mine")
    assert "INVALID_TARGET" in realm("salvage", "-o", "new.jsonl", code=2).err
    assert (realm.folder / "new.jsonl").read_text() == "mine"
    assert digest(realm) == before


@pytest.mark.requirement("CARD-audit")
def test_an_export_without_one_line_says_what_would_save_its_beginning(realm: CliRealm) -> None:
    events = [
        line for line in (realm.folder / "kept.jsonl").read_bytes().splitlines(keepends=True) if b'"leaf"' in line
    ]
    first, *_, last = (realm.folder / "kept.jsonl").read_bytes().splitlines(keepends=True)
    lost = [first, *events[:8], *events[9:], last]  # without event 9, and with one tree head
    (realm.folder / "lost.jsonl").write_bytes(b"".join(lost))
    said = realm("salvage", "lost.jsonl", "-o", "new.jsonl", code=3).out
    assert "the first 8 are what their leaf hashes say, and --unproven saves them" in said
    assert f"\nintact: {len(events) - 1} events in new.jsonl.rest.jsonl: " in said
    said = realm("salvage", "lost.jsonl", "-o", "new.jsonl", "--force", "--unproven", code=3).out
    assert f"saved: 8 events of {len(events)} in new.jsonl, under no tree head" in said


@pytest.mark.requirement("CARD-audit")
def test_verify_names_the_event_of_an_export_that_is_none(realm: CliRealm) -> None:
    lines = (realm.folder / "kept.jsonl").read_bytes().splitlines(keepends=True)
    for name, alter in (
        ("content and its leaf hash disagree", lambda line: line.replace(b'"attempt":1', b'"attempt":7')),
        ("out of order", lambda line: bare(line, version=9)),
        ("is not a valid 'proposal.submitted'", lambda line: bare(line, state={"at": 1})),
        ("neither an event nor a tree head", lambda line: line[9:]),
    ):
        at = next(at for at, line in enumerate(lines) if b'"proposal.submitted"' in line)
        (realm.folder / "bad.jsonl").write_bytes(b"".join([*lines[:at], alter(lines[at]), *lines[at + 1 :]]))
        [found] = realm("verify", "bad.jsonl", "--json", code=3).json["findings"]
        assert name in found["message"]
        assert ".." not in found["message"]
        position = sum(b'"leaf"' in line for line in lines[: at + 1])
        assert (found["position"], found["details"]["line"]) == (0 if "neither" in name else position, at + 1)


def bare(line: bytes, **changed: object) -> bytes:
    """Return the line of an event with something changed and a leaf hash that fits."""
    event = json.loads(line) | changed
    told = (event["stream"], event["version"], event["topic"], event["schemaVersion"], canonical_bytes(event["state"]))
    return canonical_bytes(event | {"leaf": event_leaf(*told).hex()}) + b"\n"


def test_where_nothing_is_left_it_says_so(realm: CliRealm) -> None:
    (realm.folder / "junk").write_bytes(b"\x0d" * 9000)
    assert "NOTHING_TO_SALVAGE" in realm("salvage", "junk", "-o", "new.jsonl", code=3).err
    assert "LOG_NOT_FOUND" in realm("salvage", "nowhere.db", "-o", "new.jsonl", code=2).err
    assert "INVALID_ADDRESS" in realm("salvage", "sqlite:///:memory:", "-o", "new.jsonl", code=2).err
