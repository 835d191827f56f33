"""``worldctl adopt --dry-run``, ``dev``, and what inbox, stuck and show say of held proposals."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.realm import COMMAND, CliRealm, environment

RULES = 'name = "house"\n[[rules]]\nid = "small"\nverdict = "approve"\nwhen = "intent.input.count <= 5"\n'
FIRST = """id: urn:test:tally
version: 1.0.0
state: {fields: {count: {type: number, required: true, default: 4}}}
actions:
  rest: {input: {type: object, fields: {count: {type: number}}}, flow: {kind: seq, steps: []}}
"""
SECOND = FIRST.replace("1.0.0", "2.0.0").replace(
    "count: {type: number, required: true, default: 4}", "total: {type: number, required: true}"
)
MIGRATION = """migrations:
  1.0.0:
    - {op: set, path: total, expr: {kind: get, path: count}}
    - {op: unset, path: count}
"""


pytestmark = pytest.mark.slow


@pytest.fixture
def realm(tmp_path: Path) -> CliRealm:
    (tmp_path / "tally.yaml").write_text(FIRST)
    (tmp_path / "house.toml").write_text(RULES)
    made = CliRealm(tmp_path)
    made("init", "--domain", "tally.yaml", "--policy", "house.toml")
    made("actor", "add", "bot", "--kind", "agent", "--policy", "house")
    return made


@pytest.mark.requirement("WP-schema")
def test_a_dry_run_lists_every_place_and_what_the_migration_makes_of_it(realm: CliRealm) -> None:
    (realm.folder / "tally.yaml").write_text(SECOND)
    plan = realm("adopt", "--dry-run", "--json", code=1).json
    assert (plan["possible"], plan["migration"]) == (False, None)
    assert {one["path"] for one in plan["branches"][0]["places"]} == {"count", "total"}
    assert "refused total is required" in realm("adopt", "--dry-run", code=1).out
    assert "total is required" in realm("adopt", code=1).err
    (realm.folder / "tally.yaml").write_text(SECOND + MIGRATION)
    said = realm("adopt", "--dry-run")
    assert {"    patch   set total = 4", "    patch   unset count"} < set(said.out.splitlines())
    assert realm("adopt", "--dry-run", "--json").json["branches"][0]["left"] == []
    assert realm("state", "--json").json["data"] == {"count": 4}
    adopted = realm("adopt", "--json").json
    assert list(adopted["migrated"]) == ["main"]
    assert realm("state", "--json").json["data"] == {"total": 4}
    assert "possible" in realm("adopt", "--dry-run").out


@pytest.mark.requirement("CARD-policy")
def test_inbox_stuck_and_show_say_what_a_proposal_waits_for(realm: CliRealm) -> None:
    (realm.folder / "house.toml").write_text(RULES.replace("<= 5", "<= 50"))
    told = realm("submit", "rest", "--actor", "bot", "--input", '{"count": 9}', "--json", code=5)
    proposal = told.json["proposalId"]
    assert told.json["held"] == "policy changed: house"
    for command in ("inbox", "stuck"):
        assert f"  {proposal} held: policy changed: house" in realm(command).err.splitlines()
    assert "submitted, held: policy changed: house" in realm("show", proposal).out
    assert realm("show", proposal, "--json").json["held"] == "policy changed: house"
    adopted = realm("policy", "adopt", "house", "--json").json
    assert [(one["kind"], one["rule"]) for one in adopted["changes"]] == [("changed", "small")]
    assert realm("show", proposal, "--json").json["status"] == "completed"
    assert "held" not in realm("inbox").err
    (realm.folder / "house.toml").write_text(RULES)
    _, changed, *differences = realm("policy", "adopt", "house").out.splitlines()
    assert changed.startswith("  changed  small")
    assert [line.strip() for line in differences[1:]] == ["- intent.input.count <= 50", "+ intent.input.count <= 5"]


def test_submit_says_why_a_proposal_is_held(realm: CliRealm) -> None:
    (realm.folder / "house.toml").write_text(RULES.replace("<= 5", "<= 50"))
    said = realm("submit", "rest", "--actor", "bot", "--input", '{"count": 9}', code=5)
    assert "held: policy changed: house; `worldctl inbox` lists what is held" in said.out


def test_dev_refuses_a_realm_that_is_not_marked(realm: CliRealm) -> None:
    (realm.folder / "program.py").write_text("print(1)")
    said = realm("dev", "program.py", code=1)
    assert "[NOT_A_DEVELOPMENT_REALM]" in said.err
    assert "worldctl init --dev" in said.err


PROGRAM = """
import time
from pathlib import Path
from worldprotocol import Realm
with Realm.open("world.db", domain=Path("tally.yaml"), policies=["house.toml"]) as realm:
    seen = sorted(realm.data()), bool(realm.changes())
try:
    print(*seen, flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    pass
"""
"""A program that runs until it is interrupted; it prints only when an interrupt is handled."""


def test_dev_adopts_changes_and_runs_the_program_again_when_files_change(tmp_path: Path) -> None:
    (tmp_path / "tally.yaml").write_text(FIRST)
    (tmp_path / "house.toml").write_text(RULES)
    (tmp_path / "program.py").write_text(PROGRAM)
    realm = CliRealm(tmp_path)
    realm("init", "--dev", "--domain", "tally.yaml", "--policy", "house.toml")
    running = subprocess.Popen(
        [*COMMAND, "dev", "program.py"], cwd=tmp_path, env=environment() | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "['count'] False\n"
        (tmp_path / "next").write_text(SECOND + MIGRATION)
        (tmp_path / "next").replace(tmp_path / "tally.yaml")  # no restart reads half a file
        assert running.stdout.readline() == "['total'] False\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
        assert running.returncode == 0, err
        assert "Traceback" not in err, err
        assert "Changed: tally.yaml" in err
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert realm("verify").code == 0
