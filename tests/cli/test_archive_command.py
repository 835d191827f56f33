"""``worldctl archive``: what is written, what is said before, and how archives are checked and read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.realms import BenchRealm
from tests.cli.inside import Inside
from world.log import open_log
from world.model.actor import ActorRef

pytestmark = pytest.mark.slow


@pytest.fixture
def cli(tmp_path: Path) -> Inside:
    realm = BenchRealm(str(tmp_path / "w.db"), durability="normal")
    realm.grow(1_000)
    realm.close()
    return Inside(tmp_path)


@pytest.mark.requirement("CARD-audit")
def test_an_archive_is_written_checked_continued_and_imported(cli: Inside) -> None:
    key = cli("checkpoint", "keygen", "example.com/shop").out.strip()
    planned = cli("--log", "w.db", "archive", "first", "--upto", "600", "--dry-run", "--json").json
    assert (planned["after"], planned["upto"], planned["events"]) == (0, 512, 512)
    assert not (cli.folder / "first").exists()
    signing = ("--key", "checkpoint.key", "--origin", "example.com/shop")
    first = cli("--log", "w.db", "archive", "first", "--upto", "600", *signing, "--json").json
    assert (first["upto"], first["left"]) == (512, planned["left"])
    second = cli("--log", "w.db", "archive", "second", "--keep", "10", "--after", "first", "--json").json
    assert second["after"] == 512
    for folder, made in (("first", first), ("second", second)):
        checked = cli("verify", folder, "--json").json
        assert (checked["ok"], checked["manifest"], checked["head"]) == (True, made["manifest"], made["head"])
    assert "signed by example.com/shop" in cli("verify", "first", "--vkey", key).out
    cli("verify", "second", "--vkey", key, code=1)
    head = f"{first['upto']}:{first['head']['root']}"
    cli("verify", "first", "--against", head)
    cli("verify", "first", "--against", f"{first['upto']}:{second['head']['root']}", code=3)
    report = cli("--log", "w.db", "verify", "--archive", "first", "--archive", "second", "--json").json
    assert report["ok"]
    assert [one["manifest"] for one in report["archives"]] == [first["manifest"], second["manifest"]]
    assert cli("--log", "w.db", "verify", "--archive", "second", code=3).err
    cli("--log", "again.db", "import", "first/events.jsonl")
    cli("--log", "again.db", "import", "second")  # the folder of an archive, or the file in it
    assert cli("--log", "again.db", "verify", "--archive", "first", "--archive", "second", "--json").json["ok"]
    assert "proven" in _receipt_of_the_copy(cli, first)


def _receipt_of_the_copy(cli: Inside, first: dict[str, object]) -> str:
    """Prove an archived event under the checkpoint of its archive, from the log that the archive was imported into."""
    cli("--log", "again.db", "prove", "77", "--checkpoint", "first/tlog/checkpoint", "-o", "receipt.json")
    head = first["head"]
    assert isinstance(head, dict)
    return cli("verify", "receipt.json", "--against", f"{head['size']}:{head['root']}").out


def test_what_cannot_be_archived_is_refused_with_what_to_do(cli: Inside) -> None:
    assert "NOTHING_TO_ARCHIVE" in cli("--log", "w.db", "archive", "a", "--upto", "255", code=1).err
    assert "NOTHING_TO_ARCHIVE" in cli("--log", "w.db", "archive", "a", "--keep", "100000", code=1).err
    assert "There is no folder none" in cli("--log", "w.db", "archive", "a", "--after", "none", code=2).err
    assert "There is no folder none" in cli("--log", "w.db", "cut", "none", "--keep", "1", code=2).err
    for unnamed in ("", ".", "/"):
        assert "INVALID_TARGET" in cli("--log", "w.db", "archive", unnamed, code=2).err
    assert "BAD_ARCHIVE" in cli("verify", ".", code=3).err
    cli("--log", "w.db", "archive", "a", "--no-tables")
    assert not (cli.folder / "a" / "tables").exists()
    assert "INVALID_TARGET" in cli("--log", "w.db", "archive", "a", code=2).err
    (cli.folder / "a" / "tlog" / "checkpoint").unlink()
    assert "tlog/checkpoint" in cli("verify", "a", code=3).err
    assert "events.jsonl" not in cli("verify", "a/events.jsonl").err


@pytest.mark.requirement("CARD-audit")
def test_tree_heads_that_were_kept_are_compared_with_an_archive_alone(cli: Inside) -> None:
    heads = {}
    with open_log(str(cli.folder / "w.db"), read_only=True) as log:
        for size in (0, 1, 300, 512, 513, 768, 769):
            heads[size] = log.root_at(size)
    cli("--log", "w.db", "archive", "a", "--upto", "512")
    cli("--log", "w.db", "archive", "b", "--upto", "768", "--after", "a")
    assert "given with --against" in cli("verify", "a/tlog/checkpoint", code=1).err
    for folder, comparable in (("a", (0, 1, 300, 512)), ("b", (512, 513, 768))):
        for size, head in heads.items():
            if size in comparable:
                assert "against 1 saved tree head" in cli("verify", folder, "--against", str(head)).out
                other = f"{size}:{heads[300 if size != 300 else 1].root_hex}"
                assert "BAD_ARCHIVE" in cli("verify", folder, "--against", other, code=3).err
            else:
                assert "INVALID_TREE_HEAD" in cli("verify", folder, "--against", str(head), code=2).err


def test_the_file_of_a_later_stretch_alone_is_refused_with_what_to_do(cli: Inside) -> None:
    cli("--log", "w.db", "archive", "a", "--upto", "256")
    cli("--log", "w.db", "archive", "b", "--after", "a")
    assert "begins after event 256" in cli("verify", "b/events.jsonl", code=3).out
    assert "LOG_NOT_EMPTY" in cli("--log", "new.db", "import", "b/events.jsonl", code=1).err
    cli("--log", "w.db", "verify", "b/events.jsonl", "--archive", "b", code=2)
    for words in (("archive", "c", "--after", "b"), ("verify", "--archive", "b")):
        told = cli("--log", "w.db", *words, code=3).err
        assert "b begins after event 256 and does not follow event 0: name all archives before it too" in told


@pytest.fixture
def small_commits(tmp_path: Path) -> Inside:
    realm = BenchRealm(str(tmp_path / "w.db"), durability="normal")
    for number in range(80):
        realm.grow_by(number)
    realm.close()
    return Inside(tmp_path)


@pytest.mark.requirement("CARD-audit", "CARD-replay")
def test_a_log_is_cut_asked_and_given_back(small_commits: Inside) -> None:
    cli = small_commits
    cli("--log", "w.db", "prove", "77", "-o", "receipt.json")
    head = cli("--log", "w.db", "verify", "--json").json["head"]
    against = f"{head['size']}:{head['root']}"
    before = cli("--log", "w.db", "replay", "--json").json
    first = cli("--log", "w.db", "archive", "a", "--keep", "5", "--json").json
    planned = cli("--log", "w.db", "cut", "a", "--keep", "5", "--dry-run", "--json").json
    done = cli("--log", "w.db", "cut", "a", "--keep", "5", "--compact", "--json").json
    assert (done["upto"], done["manifest"]) == (planned["upto"], first["manifest"])
    assert done["removed"] + done["kept"] == done["upto"]
    report = cli("--log", "w.db", "verify", "--against", against, "--archive", "a", "--json").json
    assert (report["ok"], report["archived"]["removed"]) == (True, done["removed"])
    assert "--archive compares them" in cli("--log", "w.db", "verify").out
    assert "the archives have them" in cli("--log", "w.db", "verify", "--archive", "a").out
    assert cli("verify", "receipt.json", "--against", against).out.startswith("proven")
    after = cli("--log", "w.db", "replay", "--json").json
    assert {name: after[name] for name in ("branches", "proposals", "worlds")} == {
        name: before[name] for name in ("branches", "proposals", "worlds")
    }
    assert f"Events 1 to {done['upto']} are archived" in cli("--log", "w.db", "log", "--limit", "2").err
    for command in (
        ["show", "20"],
        ["sql", "select 1", "--at", "20"],
        ["replay", "--at", "20"],
        ["doctor", "--rebuild"],
    ):
        assert "EVENT_ARCHIVED" in cli("--log", "w.db", *command, code=1).err
    cli("--log", "past.db", "import", "a/events.jsonl")
    assert cli("--log", "past.db", "show", "20").out
    assert cli("--log", "w.db", "cut", "a", "--undo", "--json").json == {"returned": done["removed"]}
    assert cli("--log", "w.db", "show", "20").out
    listed = cli("--log", "w.db", "log", "--limit", "2")
    assert (listed.out.splitlines()[1].split("\t")[0], listed.err) == ("1", "")
    assert "archived:" not in cli("--log", "w.db", "verify").out
    cli("--log", "w.db", "cut", "a", code=2)


@pytest.fixture
def cut_realm(small_commits: Inside) -> Inside:
    small_commits("--log", "w.db", "archive", "a", "--keep", "5")
    small_commits("--log", "w.db", "cut", "a", "--keep", "5")
    return small_commits


@pytest.mark.requirement("CARD-audit")
def test_an_export_of_a_cut_log_continues_the_log_that_its_archives_give(cut_realm: Inside) -> None:
    cli = cut_realm
    head = cli("--log", "w.db", "verify", "--json").json["head"]
    made = cli("--log", "w.db", "export", "kept.jsonl", "--json")
    upto = made.json["archivedUpto"]
    assert (made.json["events"], made.json["head"]) == (head["size"] - upto, head)
    assert f"Events 1 to {upto} are archived" in made.err
    assert "LOG_NOT_EMPTY" in cli("--log", "alone.db", "import", "kept.jsonl", code=1).err
    cli("--log", "again.db", "import", "a/events.jsonl")
    cli("--log", "again.db", "import", "kept.jsonl")
    assert cli("--log", "again.db", "verify", "--json").json["head"] == head
    assert cli("--log", "again.db", "show", "20").out
    whole = cli("--log", "again.db", "export", "whole.jsonl", "--json")
    assert ("archivedUpto" in whole.json, whole.err) == (False, "")


def test_worlds_and_past_states_of_a_cut_log_are_shown_where_the_newest_world_is_before_the_cut(
    small_commits: Inside,
) -> None:
    cli = small_commits
    expected = cli("--log", "w.db", "worlds", "--json").out
    newest = json.loads(expected.splitlines()[-1])
    realm = BenchRealm(str(cli.folder / "w.db"), durability="normal")
    for number in range(200):
        actor = ActorRef.read({"actorId": f"a{number}", "kind": "human"})
        realm.protocol.register_actor(actor, by="bench")
    realm.close()
    size = cli("--log", "w.db", "verify", "--json").json["head"]["size"]
    state = cli("--log", "w.db", "state", "--json").json
    cli("--log", "w.db", "archive", "a")
    upto = cli("--log", "w.db", "cut", "a", "--keep", "0", "--json").json["upto"]
    assert newest["position"] < upto < size
    assert cli("--log", "w.db", "worlds", "--json").out == expected
    assert cli("--log", "w.db", "worlds", "--at", str(size), "--json").out == expected
    assert cli("--log", "w.db", "state", "--at", str(size), "--json").json["worldId"] == state["worldId"]
    assert "EVENT_ARCHIVED" in cli("--log", "w.db", "worlds", "--at", str(upto - 1), code=1).err


@pytest.mark.requirement("CARD-audit")
def test_tables_of_a_cut_log_have_what_is_after_the_cut(cut_realm: Inside) -> None:
    cli = cut_realm
    tables = cli("--log", "w.db", "export", "tables", "--format", "parquet", "--json").json
    asked = cli("--log", "w.db", "sql", "select min(log_position) as least, count(*) as rows from events", "--json")
    upto = tables["archivedUpto"]
    assert f"Events 1 to {upto} are archived" in asked.err
    assert asked.json == {"least": upto + 1, "rows": tables["events"]}
    later = cli("--log", "w.db", "sql", "select count(*) as n from proposals", "--json").json["n"]
    assert 5 <= later < 80
    refused = cli("--log", "w.db", "sql", "select 1", "--at", str(upto - 1), code=1).err
    assert ("EVENT_ARCHIVED" in refused, "--undo" in refused) == (True, True)


def test_verify_says_of_the_folder_of_an_archive_how_it_is_checked(cli: Inside) -> None:
    cli("--log", "w.db", "archive", "kept", "--upto", "600")
    said = cli("--log", "kept", "verify", code=2).err
    assert "`worldctl verify kept`" in " ".join(said.split())
    cli("realm", "add", "shop", "--place", "w.db", "--directory", "realms.db")
    cli("--directory", "realms.db", "realm", "archive", "shop", "whole")
    said = cli("--log", "whole", "verify", code=2).err
    assert "`worldctl verify whole/shop.jsonl`" in " ".join(said.split())
    assert "sound" in cli("verify", "whole/shop.jsonl").out
    (cli.folder / "other").mkdir()
    assert "give the file in it" in " ".join(cli("--log", "other", "verify", code=2).err.split())
