"""The commands that look, prove and carry a log, through the real process."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.forked import run
from tests.golden.garden import FOLDER, record
from world.log.sql.statement import LOG_SHIFT
from worldprotocol import Realm

pytestmark = pytest.mark.slow

ROOT = FOLDER.parent.parent


def worldctl(folder: Path, *words: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    code, out, err = run(list(words), folder, {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, given or b"")
    return subprocess.CompletedProcess(words, code, out, err)


def told(folder: Path, *words: str) -> Any:
    return json.loads(worldctl(folder, *words, "--json").stdout)


def lines(folder: Path, *words: str) -> list[Any]:
    return [json.loads(line) for line in worldctl(folder, *words, "--json").stdout.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("realm")
    record(str(place / "world.db")).close()
    (place / "world.toml").write_text(
        'domain = "tests.golden.garden:garden"\npolicies = ["tests.golden.garden:rules"]\n'
        'projections = ["tests.golden.garden:sensor"]\n'
    )
    return place


@pytest.mark.requirement("IC-audit")
def test_log_filters_the_events(folder: Path) -> None:
    everything = lines(folder, "log")
    assert [line["position"] for line in everything] == list(range(1, len(everything) + 1))
    assert [line["position"] for line in lines(folder, "log", "--reverse", "--limit", "3")] == [
        len(everything) - back for back in range(3)
    ]
    topics = {line["topic"] for line in lines(folder, "log", "--topic", "human.answered", "--topic", "log.founded")}
    assert topics == {"human.answered", "log.founded"}
    rejected = lines(folder, "log", "--actor", "bot", "--status", "rejected", "--type", "plant")
    assert [line["topic"] for line in rejected] == ["proposal.submitted", "proposal.judged", "decision.made"]
    created = next(line["position"] for line in everything if line["state"].get("branch") == "again")
    assert all(line["position"] >= created for line in lines(folder, "log", "--branch", "again"))
    at = everything[50]["state"]["at"]
    assert {line["state"]["at"] for line in lines(folder, "log", "--since", str(at), "--until", str(at))} == {at}
    assert worldctl(folder, "log", "--since", "yesterday").returncode == 2
    assert worldctl(folder, "log", "--topic", "no.topic").returncode == 2


def test_log_follows_until_it_has_enough(folder: Path) -> None:
    assert len(worldctl(folder, "log", "--follow", "--limit", "5").stdout.splitlines()) == 1 + 5


@pytest.mark.requirement("IC-audit", "CARD-audit")
def test_show_says_who_what_when_and_why(folder: Path) -> None:
    submitted = lines(folder, "log", "--topic", "proposal.submitted")
    weed = next(
        line["state"] for line in submitted if line["state"]["intent"]["body"]["input"].get("what") == "dandelion"
    )
    shown = worldctl(folder, "show", weed["proposalId"]).stdout.decode()
    for word in (
        "bot (agent)",
        "plant",
        "rejected",
        "weeds are not planted",
        "* no_weeds reject",
        "- planting_is_narrowed",
    ):
        assert word in shown
    assert told(folder, "show", weed["intent"]["intentId"])["proposalId"] == weed["proposalId"]
    decided = lines(folder, "log", "--topic", "decision.made")[0]["state"]["decision"]
    assert told(folder, "show", decided["decisionId"])["decision"] == decided
    assert told(folder, "show", "14")["topic"] == lines(folder, "log", "--limit", "14")[-1]["topic"]
    world = lines(folder, "worlds")[1]
    shown = told(folder, "show", world["worldId"][:10], "--data")
    assert shown["worldId"] == world["worldId"]
    assert shown["proposal"]["proposalId"] == shown["createdBy"]
    assert shown["data"]["beds"]


def test_show_lists_what_an_ambiguous_prefix_could_mean(folder: Path) -> None:
    done = worldctl(folder, "show", "0000", "--json")
    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "AMBIGUOUS"
    assert len(error["details"]["candidates"]) > 1
    assert worldctl(folder, "show", "zzz").returncode == 1


@pytest.mark.requirement("WP-lineage")
def test_worlds_are_drawn_as_a_tree(folder: Path) -> None:
    drawn = worldctl(folder, "worlds").stdout.decode().splitlines()
    assert len(drawn) == 15
    assert drawn[0].endswith("height 0, event 4")
    assert sum("(failed)" in line for line in drawn) == 3
    assert [sum(f"head of {name})" in line for line in drawn) for name in ("main", "again", "spare")] == [1, 1, 1]
    line = lines(folder, "worlds", "--branch", "again")
    assert [one["height"] for one in line] == list(range(len(line)))


@pytest.mark.requirement("CARD-replay", "CARD-audit")
def test_replay_verify_and_recheck_say_that_all_is_well(folder: Path) -> None:
    summary = json.loads((FOLDER / "garden.summary.json").read_text(encoding="utf-8"))
    done = told(folder, "replay", "--data")
    with Realm.open_read_only(folder / "world.db") as realm:
        assert done["data"] == {branch.name: realm.data(branch.head) for branch in realm.branches()}
    assert done["data"].keys() == summary["data"].keys()
    assert done["proposals"] == summary["statuses"]
    world = lines(folder, "worlds")[3]
    sealing = told(folder, "replay", "--at", world["worldId"][:12])["position"]
    assert lines(folder, "log")[sealing - 1]["topic"] == "lease.released"  # the last event of the commit that sealed it
    assert world["position"] < sealing <= world["position"] + 2
    assert told(folder, "replay", "--at", "20")["position"] == 20
    assert told(folder, "verify", "--against", f"{done['head']['size']}:{done['head']['root']}")["ok"]
    assert told(folder, "recheck")["ok"]
    assert worldctl(folder, "verify").returncode == worldctl(folder, "recheck").returncode == 0
    assert worldctl(folder, "verify", "--against", "1:00").returncode == 2


@pytest.mark.requirement("CARD-audit")
def test_a_damaged_log_ends_with_three_and_names_the_event(tmp_path: Path) -> None:
    record(str(tmp_path / "world.db")).close()
    database = sqlite3.connect(tmp_path / "world.db")
    with database:
        database.execute("UPDATE wp_event SET topic = 'actor.bound' WHERE id = ?", [(1 << LOG_SHIFT) + 20])
    database.close()
    done = worldctl(tmp_path, "verify")
    assert done.returncode == 3
    assert b"20\tEVENT_CHANGED" in done.stdout
    assert worldctl(tmp_path, "replay").returncode == 3


def test_a_log_is_exported_and_imported(folder: Path, tmp_path: Path) -> None:
    file, copy = str(tmp_path / "log.jsonl"), str(tmp_path / "copy.db")
    assert worldctl(folder, "export", file).returncode == 0
    assert worldctl(folder, "export", file).returncode == 2  # it is there already
    assert Path(file).read_bytes() == worldctl(folder, "export").stdout
    assert told(folder, "--log", copy, "import", file)["added"] == len(lines(folder, "log"))
    assert worldctl(folder, "--log", copy, "import", "-", given=Path(file).read_bytes()).returncode == 0
    assert worldctl(folder, "--log", copy, "verify", "--against", file).returncode == 0
    assert worldctl(folder, "--log", copy, "recheck").returncode == 0
    bad = worldctl(folder, "--log", str(tmp_path / "bad.db"), "import", "-", given=b"nothing\n")
    assert bad.returncode in (1, 2)
    assert b"Line 1" in bad.stderr
    assert not (tmp_path / "bad.db").exists()


def test_looking_changes_no_byte(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for words in (["log"], ["worlds"], ["show", "3"], ["replay"], ["verify"], ["recheck"], ["export"]):
        assert worldctl(folder, *words).returncode == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
