"""``worldctl show`` and ``runs``: the verification log, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import ROOT, CliRealm, founded
from tests.support.making_events import made
from world.errors import RefusedError
from world.events.run_events import RunClosed, RunObserved, RunOpened
from worldprotocol.api.realm import Realm
from worldprotocol.cli.support.rendering.runs import SHOWN, WIDTH, _run_lines
from worldprotocol.runs.listing import list_runs
from worldprotocol.runs.verification import VerificationLog


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> CliRealm:
    """Return a realm with a violation, an ordinary run and a permissive one, the latter two in one session."""
    realm = founded(tmp_path_factory.mktemp("shown"))
    folder = realm.folder
    (folder / "a.txt").write_text("one\n")
    (folder / "docs").mkdir()
    (folder / "docs/read.me").write_text("read me\n")
    governed(realm, "--writes", "a.txt", "--session", "bad", script="echo two > a.txt; rm docs/read.me", code=120)
    words = ("--writes", "a.txt", "--reads", "docs/**", "--session", "good")
    governed(realm, *words, script="cat a.txt a.txt > /dev/null; echo two > a.txt; exit 0")
    governed(realm, "--reads", "a.txt", "--session", "good", "--permissive", script="echo new > docs/new")
    governed(realm, "--reads", "a.txt", script="exit 3", agent="other", code=3)
    return Inside(folder)


def governed(realm: CliRealm, *words: str, script: str, agent: str = "ann", code: int = 0) -> None:
    realm("run", "--agent", agent, *words, "--", "sh", "-c", script, code=code)


def runs(realm: CliRealm, *words: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = realm("runs", *words, "--json").json
    return told


@pytest.mark.requirement("KO-4")
@pytest.mark.slow
def test_runs_are_listed_newest_first_and_can_be_chosen(realm: CliRealm) -> None:
    told = runs(realm)
    assert [(one["agentId"], one["outcome"], one["exitCode"]) for one in told[:1]] == [("other", "failed", 3)]
    assert [one["outcome"] for one in told[1:]] == ["completed", "completed", "violated"]
    assert [one["openedAt"] for one in told] == sorted((one["openedAt"] for one in told), reverse=True)
    assert [one["sessionId"] for one in runs(realm, "--agent", "ann")] == ["good", "good", "bad"]
    assert [one["sessionId"] for one in runs(realm, "--agent", "ann", "--most", "1")] == ["good"]
    assert len(runs(realm, "--most", "2")) == 2
    assert realm("runs", "--open").err.strip() == "There is no such run."
    lines = realm("runs").out.splitlines()
    assert lines[0].split("\t") == ["run", "began", "agent", "session", "outcome", "exit", "what"]
    assert lines[4].endswith("violated\t137\tsh -c 'echo two > a.txt; rm docs/read.me'")


@pytest.mark.requirement("KO-4", "KO-3.1")
@pytest.mark.slow
def test_a_violation_is_shown_with_who_what_and_what_was_undone(realm: CliRealm) -> None:
    (bad,) = [one for one in runs(realm) if one["outcome"] == "violated"]
    shown = realm("show", bad["runId"]).out
    for words in (
        f"run {bad['runId']}: violated",
        "who        ann, session bad",
        "what       sh -c 'echo two > a.txt; rm docs/read.me'",
        "mode       strict, held by ",
        "declared   MUTATES    FILE:/a.txt",
        "observed   ",
        "MUTATES    FILE:/a.txt  (child, once)",
        "VIOLATION  DELETES    FILE:/docs/read.me  (child, blocked)",
        "call: unlink(",
        "given back backup ",
        "restored /a.txt",
    ):
        assert words in shown
    assert all(len(line) <= WIDTH for line in shown.splitlines())
    told = realm("show", bad["runId"], "--json").json
    assert (told["kind"], told["runId"]) == ("run", bad["runId"])
    assert told["verification"]["rollbacks"][0]["restored"] == ["/a.txt"]


@pytest.mark.requirement("KO-4", "KO-3.2b")
@pytest.mark.slow
def test_a_session_shows_all_its_runs(realm: CliRealm) -> None:
    shown = realm("show", "good").out
    assert shown.startswith("session good: 2 runs\n")
    for words in ("(child, 2 times)", "not used   CONSUMES   FILE:/docs/*", "changes    changed  FILE:/a.txt"):
        assert words in shown
    assert "mode       permissive" in shown
    assert "widened by PROVIDES   FILE:/docs/new  by verdict " in shown
    told = realm("show", "go", "--json").json
    assert (told["kind"], told["sessionId"]) == ("session", "good")
    assert [one["mode"] for one in told["runs"]] == ["strict", "permissive"]
    assert told["runs"] == [realm("show", one["runId"], "--json").json["verification"] for one in told["runs"]]


@pytest.mark.slow
def test_a_run_is_found_by_the_beginning_of_its_id_and_what_is_ambiguous_is_listed(realm: CliRealm) -> None:
    first = runs(realm)[0]["runId"]
    assert realm("show", first[:34], "--json").json["runId"] == first
    several = realm("show", first[:4], "--json", code=1).json["error"]
    assert several["code"] == "AMBIGUOUS"
    assert {"run"} <= {one["kind"] for one in several["details"]["candidates"]}
    assert "[NOT_FOUND]" in realm("show", "no-such-run", code=1).err


@pytest.mark.requirement("KO-4")
def test_what_is_seen_of_a_proposals_effects_is_shown_with_it(tmp_path: Path) -> None:
    realm = Inside(tmp_path)
    realm("init", "--domain", f"{ROOT / 'tests/pipeline/workshop.py'}:workshop")
    with (tmp_path / "world.toml").open("a") as config:
        config.write('\n[workspace]\nroot = "work"\n')
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\n")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    good = plan(realm, "/a.txt")
    shown = realm("show", good["proposalId"]).out
    assert "  observed   MUTATES    FILE:/a.txt  (effect, once)" in shown
    assert (work / "a.txt").read_text() == "two\n"
    bad = plan(realm, "/b.txt", "/c.txt", code=1)
    shown = realm("show", bad["proposalId"]).out
    for said in ("VIOLATION  MUTATES    FILE:/c.txt  (effect, blocked)", "given back backup ", "removed  /b.txt"):
        assert said in shown
    told = realm("show", bad["proposalId"], "--json").json["verification"]
    assert [one["resource"] for one in told["violations"]] == ["FILE:/c.txt"]
    assert sorted(path.name for path in work.iterdir()) == [".klock", "a.txt"]


def plan(realm: CliRealm, *paths: str, code: int = 0) -> dict[str, Any]:
    """Have an action write to several files of which the first alone is declared."""
    steps = [{"effect": "file.write", "params": {"path": path, "text": "two\n"}} for path in paths]
    given = json.dumps({"mutates": [f"FILE:{paths[0]}"], "steps": steps})
    told: dict[str, Any] = realm("submit", "run", "--actor", "ann", "--input", given, "--json", code=code).json
    return told


def test_much_is_cut_for_people_and_what_controls_a_terminal_is_shown() -> None:
    log = VerificationLog("r")
    opened = RunOpened(
        at=0,
        run_id="r",
        agent_id="ann",
        session_id="s",
        kind="command",
        mode="strict",
        declared=[],
        verdict_id="v",
        lease_ids=[],
        worker="w",
        command=["printf", "\x1b[2Jgone\n", "x" * 300],
    )
    seen = [{"predicate": "CONSUMES", "resource": f"FILE:/{n}", "depth": "child", "count": n} for n in range(1, 100)]
    for event in (opened, made(RunObserved, at=0, run_id="r", observed=seen)):
        log.add(event)
    lines = list(_run_lines(log.to_wire()))
    assert lines[0] == "run r: open"
    assert "not ended yet" in "\n".join(lines)
    assert lines[-1].strip() == f"and {99 - SHOWN} more; --json has all"
    assert all(len(line) <= WIDTH and line.isprintable() for line in lines)
    log.add(RunClosed(at=0, run_id="r", outcome="completed"))
    assert next(iter(_run_lines(log.to_wire()))) == "run r: completed"


@pytest.mark.slow
def test_python_lists_runs_too(realm: CliRealm) -> None:
    with Realm.open_read_only(realm.folder / "world.db") as world:
        assert [line.outcome for line in list_runs(world.archive, agent="ann", most=2)] == ["completed", "completed"]
        assert list(list_runs(world.archive, open_only=True)) == []
        with pytest.raises(RefusedError):
            _ = world.host
