"""``python -m conformance klis-run`` and ``klis-sessions``: scenarios and sessions of leases from files."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conformance.klis_scenario import OPS
from tests.cli.realm import ROOT, CliRealm, environment


@pytest.fixture
def realm(tmp_path: Path) -> CliRealm:
    """Run the programs for other implementations in an empty folder."""
    return CliRealm(tmp_path, "conformance")


@pytest.mark.parametrize(
    ("arguments", "given", "code"),
    [
        (("klis-run", "-"), "{}", "INVALID_SCENARIO"),
        (("klis-run", "-"), "no JSON", "MALFORMED_JSON"),
        (("klis-run", "nowhere.json"), "", "FILE_UNREADABLE"),
        (("klis-sessions", "nowhere.jsonl"), "", "FILE_UNREADABLE"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_code(realm, arguments, given, code):
    assert realm(*arguments, "--json", given=given, code=2).json["error"]["code"] == code
    assert f"[{code}]" in realm(*arguments, given=given, code=2).err


def test_a_wrong_option_is_reported_with_the_name_of_the_program(realm):
    assert "See `python -m conformance klis-run --help`" in realm("klis-run", "--log", "x.db", code=2).err


def test_operations_that_make_no_sense_are_a_finding(realm):
    given = json.dumps({"ops": [{"op": "observe"}, {"op": "canonicalize", "resource": "x"}, {"op": "evict", "t": 1}]})
    told = realm("klis-run", given=given, code=1).lines
    assert told[0]["error"] == "INVALID_SCENARIO"
    assert told[1:] == [{"error": "AMBIGUOUS_RESOURCE"}, 0]


SESSIONS = "".join(
    json.dumps({"session": name, "agent": agent, "start_ms": start, "end_ms": end, "scope": scope}) + "\n"
    for scope in [[{"predicate": "MUTATES", "resource": "FILE:/<x>"}]]
    for name, agent, start, end in (("s1", "a", 0, 50), ("s2", "b", 10, 5_000), ("s3", "a", 2_000, 2_001))
)
TOTALS = {
    "sessions": 3,
    "granted_at_once": 1,
    "waited": 1,
    "died": 1,
    "retries": 1,
    "max_held": 1,
    "total_wait_ms": 5_000,
    "max_wait_ms": 4_000,
    "verdicts": {"Granted": 3, "Wait": 1, "Die": 1},
}


@pytest.mark.requirement("KP-3a", "KP-5a")
def test_sessions_are_run_and_told_as_a_table_json_and_picture(realm):
    (realm.folder / "s.jsonl").write_text(SESSIONS)
    assert realm("klis-sessions", "s.jsonl", "--json", "--svg", "s.svg").json == TOTALS
    assert "retries\t1" in realm("klis-sessions", given=SESSIONS).out.splitlines()
    picture = ElementTree.parse(realm.folder / "s.svg").getroot()
    assert "Leases of s.jsonl" in {one.text for one in picture.iter() if one.text}
    realm("klis-sessions", "s.jsonl", "--svg", "t.svg", "--from", "1000", "--to", "3000", "--rows", "1")
    assert (realm.folder / "t.svg").read_text() != (realm.folder / "s.svg").read_text()
    realm("klis-sessions", "s.jsonl", "--from", "5", "--to", "5", code=2)


def test_bad_lines_of_sessions_are_named_all_at_once_and_nothing_is_run(realm):
    bad = SESSIONS + "{\n" + SESSIONS.replace("MUTATES", "WRITE").splitlines()[0].replace("s1", "s9") + "\n"
    said = realm("klis-sessions", "--json", "--svg", "s.svg", given=bad, code=2)
    told = said.json["error"]
    assert told["code"] == "INVALID_SESSIONS"
    faults = told["details"]["faults"]
    assert [(one["line"], one["code"]) for one in faults] == [(4, "MALFORMED_JSON"), (5, "INVALID_PREDICATE")]
    assert "line 5" in said.err
    assert "[INVALID_PREDICATE]" in said.err
    assert not (realm.folder / "s.svg").exists()


def test_on_a_terminal_the_totals_are_drawn(realm):
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "conformance", "klis-sessions", "-"]
    try:
        subprocess.run(
            command,
            cwd=realm.folder,
            env=environment() | {"TERM": "xterm"},
            input=SESSIONS.encode(),
            stdout=slave,
            stderr=slave,
            check=True,
        )
        shown = os.read(master, 1 << 16).decode()
    finally:
        os.close(slave)
        os.close(master)
    assert "granted at once" in shown
    assert "─" in shown


def test_the_page_shows_every_operation():
    text = (ROOT / "docs" / "implementers.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text.partition("## Scenarios")[2], re.MULTILINE)) == set(OPS)
