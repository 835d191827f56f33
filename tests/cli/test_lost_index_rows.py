"""Commands that read the index say that rows of it are missing, instead of showing less with exit code 0."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipeline.workshop import a_workshop
from worldprotocol.cli.program import run

LOST = [
    ("worlds", "DELETE FROM wp_world"),
    ("worlds", "DELETE FROM wp_world WHERE height = 1"),
    ("worlds", "DELETE FROM wp_world WHERE height = (SELECT max(height) FROM wp_world)"),
    ("worlds", "DELETE FROM wp_branch"),
    ("worlds", "DELETE FROM wp_branch WHERE name = 'side'"),
    ("inbox", "DELETE FROM wp_proposal"),
    ("inbox", "DELETE FROM wp_proposal WHERE actor_id = 'bot'"),
    ("inbox", "DELETE FROM wp_world; DELETE FROM wp_branch; DELETE FROM wp_proposal; DELETE FROM wp_landmark"),
]


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    where = str(tmp_path / "world.db")
    with a_workshop(where, tmp_path / "w") as world:
        first = world.branch().head
        for _ in range(3):
            world.act("ann", "run", {"steps": []})
        world.create_branch("side", first)
        world.register("bot", "agent", binding={"kind": "hitl", "ask": ["ann"]})
        world.act("bot", "run", {"steps": []})
    monkeypatch.chdir(tmp_path)
    return where


@pytest.mark.requirement("CARD-log", "CARD-audit")
@pytest.mark.parametrize(("command", "statement"), LOST)
@pytest.mark.slow
def test_missing_rows_of_the_index_are_named_and_not_shown_as_nothing(
    address: str, capsys: pytest.CaptureFixture[str], command: str, statement: str
) -> None:
    assert run(["--json", "--log", address, command]) == 0
    before = capsys.readouterr().out
    with closing(sqlite3.connect(address)) as database:
        database.executescript(statement)
    assert run(["--json", "--log", address, command]) == 3
    error = json.loads(capsys.readouterr().out.splitlines()[-1])["error"]
    assert error["code"] == "INDEX_DAMAGED"
    assert "`worldctl doctor --rebuild`" in error["message"]
    run(["--json", "--log", address, "doctor", "--rebuild"])
    capsys.readouterr()
    assert run(["--json", "--log", address, command]) == 0
    assert capsys.readouterr().out == before
