"""Templates of realms: each founds a realm that runs, its cases hold, and `worldctl new` asks three questions."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.agents.test_hooks_command import worldctl
from tests.cli.realm import COMMAND, environment
from worldprotocol.api.realm import Realm
from worldprotocol.cli.support.templates import NAMES

pytestmark = pytest.mark.slow

TRIED: dict[str, list[tuple[tuple[str, str], str | None]]] = {
    "ledger": [
        (("deposit", '{"amount": 100}'), "completed"),
        (("pay", '{"to": "tea", "amount": 5}'), "completed"),
        (("pay", '{"to": "rent", "amount": 60}'), "evaluating"),
        (("pay", '{"to": "car", "amount": 500}'), "rejected"),
    ],
    "kanban": [
        (("card.add", '{"id": "a", "title": "A"}'), "completed"),
        (("card.move", '{"id": "a", "column": "doing"}'), "failed"),
        (("card.move", '{"id": "a", "column": "doing", "assignee": "bot"}'), "completed"),
        (("card.move", '{"id": "a", "column": "done"}'), "evaluating"),
    ],
    "release": [(("publish", '{"version": "1-0-0", "notes": "n"}'), None)],  # it depends on the day
    "coding-agents": [(("tool.use", '{"tool": "Unknown", "arguments": {}}'), "evaluating")],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_new_project_runs_and_its_cases_hold(tmp_path: Path, name: str) -> None:
    where = tmp_path / name
    done = worldctl("new", str(where), "--template", name, "--person", "kim", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["person"] == "kim"
    assert "worldctl serve --sign-in kim" in (where / "README.md").read_text()
    config = ("--config", str(where / "world.toml"))
    cases = worldctl(*config, "policy", "test")
    assert cases.returncode == 0, cases.stdout + cases.stderr
    for (action, given), status in TRIED[name]:
        words = ("submit", action, "--actor", "bot", "--input", given, "--no-execute", "--json")
        told = json.loads(worldctl(*config, *words).stdout)
        assert status is None or told["status"] == status, told
    with Realm.open_read_only(where / "world.db") as realm:
        assert set(realm.realm().rights["kim"]) == {"actor", "approver", "auditor", "operator", "reader"}
        assert set(realm.realm().rights["bot"]) == {"actor"}


def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("mine")
    for words in (("init", str(tmp_path)), ("new", str(tmp_path), "--person", "ann")):
        done = worldctl(*words, "--template", "ledger")
        assert "CONFIG_EXISTS" in done.stderr
        assert [one.name for one in tmp_path.iterdir()] == ["policy.toml"]
    assert (tmp_path / "policy.toml").read_text() == "mine"
    assert worldctl("init", str(tmp_path)).returncode == 2
    assert worldctl("new", str(tmp_path)).returncode == 2


def test_what_is_not_given_is_asked_for_at_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "new"], cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    os.close(theirs)
    os.write(ours, b"board\nkanban\nsue\n")
    said, questions = process.communicate()
    os.close(ours)
    assert process.returncode == 0, questions
    assert questions.decode().count("[") >= 3
    assert b"sue decides" in said
    assert (tmp_path / "board" / "world.db").exists()
