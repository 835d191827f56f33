"""`worldctl new` and `worldctl init --template`: what is given counts, and nothing of anybody is overwritten."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import COMMAND, environment
from worldprotocol.api.realm import Realm

LEDGER = ("--template", "ledger")
NEW = ("new", "desk", *LEDGER, "--person", "ann")


@pytest.fixture
def shell(tmp_path: Path) -> Inside:
    return Inside(tmp_path)


def test_a_read_me_that_is_there_is_left_alone(shell: Inside) -> None:
    (shell.folder / "desk").mkdir()
    (shell.folder / "desk" / "README.md").write_text("mine")
    assert "README.md is there already; name a folder without it" in shell(*NEW, code=1).err
    assert [one.name for one in (shell.folder / "desk").iterdir()] == ["README.md"]
    assert (shell.folder / "desk" / "README.md").read_text() == "mine"


def test_the_person_is_another_one_than_the_agent(shell: Inside) -> None:
    assert "bot is the agent of the project" in shell("new", "desk", *LEDGER, "--person", "bot", code=2).err
    assert not (shell.folder / "desk").exists()


@pytest.mark.parametrize("command", [NEW, ("init", "desk", *LEDGER)])
def test_the_log_is_the_one_that_is_named(shell: Inside, command: tuple[str, ...]) -> None:
    shell(*command, "--log", "elsewhere.db")
    assert not (shell.folder / "desk" / "world.db").exists()
    with Realm.open_read_only(shell.folder / "elsewhere.db") as realm:
        assert ("ann" in realm.realm().actors) is (command is NEW)
    assert "sound" in shell("--config", "desk/world.toml", "verify").out


def test_a_release_is_withdrawn_to_the_one_before_it_each_time(shell: Inside) -> None:
    versions = {"live": "1-2-0", "published": ["1-0-0", "1-1-0", "1-2-0"]}
    shell("init", "desk", "--template", "release", "--data", json.dumps(versions))
    shell("--config", "desk/world.toml", "actor", "add", "ann", "--kind", "human", "--auto-approve")
    withdraw = (
        "--config",
        "desk/world.toml",
        "submit",
        "withdraw",
        "--actor",
        "ann",
        "--input",
        '{"reason": "broken"}',
    )
    live = []
    for _ in range(3):
        shell(*withdraw)
        live.append(json.loads(shell("--config", "desk/world.toml", "state", "--json").out)["data"]["live"])
    assert live == ["1-1-0", "1-0-0", None]
    assert "NOTHING_LIVE" in shell(*withdraw, code=1).out


def test_initial_data_of_a_template_may_be_given(shell: Inside) -> None:
    shell("init", "desk", *LEDGER, "--data", json.dumps({"balance": 7}))
    with Realm.open_read_only(shell.folder / "desk" / "world.db") as realm:
        assert realm.data()["balance"] == 7


@pytest.mark.parametrize(
    "more", [("--policy", "x:y"), ("--projection", "x:y"), ("--effects", "x:y"), ("--authentication", "open")]
)
def test_what_a_template_brings_cannot_be_given_too(shell: Inside, more: tuple[str, str]) -> None:
    assert more[0] in shell("init", "desk", *LEDGER, *more, code=2).err
    assert not (shell.folder / "desk").exists()


@pytest.mark.slow
def test_a_realm_is_founded_without_standard_streams(shell: Inside) -> None:
    words = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *COMMAND, "init", "desk", *LEDGER]
    assert subprocess.run(words, cwd=shell.folder, env=environment(), check=False).returncode == 0
    assert (shell.folder / "desk" / "world.db").exists()


def test_files_are_as_before_where_the_founding_is_refused(shell: Inside) -> None:
    shell("init", "desk", *LEDGER)
    (shell.folder / "desk" / "policy.toml").write_text("mine")
    (shell.folder / "desk" / "policy.cases.toml").unlink()
    assert "ALREADY_FOUNDED" in shell("init", "desk", *LEDGER, "--force", code=1).err
    assert (shell.folder / "desk" / "policy.toml").read_text() == "mine"
    assert not (shell.folder / "desk" / "policy.cases.toml").exists()
