"""``worldctl verify`` of several realms: each answer is that of the command for the realm alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bench.realms import BenchRealm
from tests.cli.inside import Inside

WORLD = 'log = "w.db"\ndomain = "../nothing_that_is_loaded.py:domain"\n'


@pytest.fixture
def cli(tmp_path: Path) -> Inside:
    """Return a command line beside three realms, of which one has a changed event, and one has no log."""
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "world.toml").write_text(WORLD)
    for name in ("first", "second"):
        realm = BenchRealm(str(tmp_path / name / "w.db"), durability="normal")
        for number in range(3):
            realm.grow_by(number)
        realm.close()
    with closing(sqlite3.connect(tmp_path / "second" / "w.db")) as database, database:
        database.execute("UPDATE wp_event SET leaf = zeroblob(32) WHERE id = (SELECT max(id) FROM wp_event)")
    return Inside(tmp_path)


@pytest.mark.parametrize("workers", [(), pytest.param(("--jobs", "2"), marks=pytest.mark.slow)])
def test_each_realm_has_the_answer_of_the_command_for_it_alone(cli: Inside, workers: tuple[str, ...]) -> None:
    said = cli("verify", "first", "second/world.toml", "third", *workers, "--json", code=3).json
    assert [one["realm"] for one in said["realms"]] == ["first", "second/world.toml", "third"]
    assert (said["ok"], said["total"]) == (False, {"realms": 3, "sound": 1, "unsound": 1, "failed": 1})
    for name, code, answer in zip(("first", "second"), (0, 3), said["realms"], strict=False):
        alone = cli("--log", f"{name}/w.db", "verify", "--json", code=code).json
        assert {key: value for key, value in answer.items() if key != "realm"} == alone
    assert said["realms"][2]["error"]["code"] == "LOG_NOT_FOUND"
    text = cli("verify", "first", "second/world.toml", "third", *workers, code=3).out
    assert text.splitlines()[0] == "first:"
    assert text.endswith("3 realms: 1 sound, 1 unsound, 1 failed\n")
    assert "[LOG_NOT_FOUND]" in text


def test_no_code_of_the_realm_is_loaded_and_one_realm_is_enough(cli: Inside) -> None:
    assert cli("verify", "first").out.endswith("1 realm: 1 sound, 0 unsound, 0 failed\n")
    assert cli("verify", "first/w.db", "second/w.db", code=3).out.startswith("first/w.db:\nsound:")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("first", "second", "--against", "1:00"), "are those of one log"),
        (("first", "second", "--archive", "a"), "are those of one log"),
        (("--jobs", "2"), "name the realms"),
        (("first", "first"), "named twice"),
        (("first", "--executor", "dask://"), "INVALID_EXECUTOR"),
    ],
)
def test_what_makes_no_sense_together_is_refused(cli: Inside, arguments: tuple[str, ...], why: str) -> None:
    assert why in cli("verify", *arguments, code=2).err
