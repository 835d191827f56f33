"""``worldctl backups``: looking at backups, giving them back, and removing what nobody needs."""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from host.backups import Backups
from host.workspace import Workspace
from tests.cli.inside import Inside
from tests.cli.realm import CliRealm, founded
from tests.golden.garden import garden
from world.clock import ManualClock
from world.errors import RefusedError
from worldprotocol import Realm
from worldprotocol.api.config import WorkspaceConfig
from worldprotocol.runs.backups import BackupAdministration

pytestmark = pytest.mark.slow

LONG = ("--ttl-ms", "600000")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    realm = founded(tmp_path_factory.mktemp("backups"))
    (realm.folder / "a.txt").write_text("one\n")
    (realm.folder / "src").mkdir()
    (realm.folder / "src/x.py").write_text("x = 1\n")
    (realm.folder / "src/y.py").write_text("y = 1\n")
    words = ("run", "--agent", "old", "--session", "s1", "--writes", "a.txt", "--writes", "src/**")
    realm(*words, "--", "sh", "-c", "echo two > a.txt; echo 2 > src/x.py; echo new > src/new.py")
    return realm.folder


@pytest.fixture
def realm(template: Path, tmp_path: Path) -> CliRealm:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Inside(tmp_path)


def the_backup(realm: CliRealm) -> dict[str, Any]:
    told: dict[str, Any]
    (told,) = realm("backups", "list", "--json").json
    return told


def texts(realm: CliRealm) -> dict[str, str]:
    names = ("a.txt", "src/x.py", "src/y.py", "src/new.py")
    return {name: (realm.folder / name).read_text() for name in names if (realm.folder / name).exists()}


@pytest.mark.requirement("KO-7")
def test_a_backup_is_listed_and_shown_with_whose_it_is_and_what_it_holds(realm: CliRealm) -> None:
    before = hashlib.sha256((realm.folder / "world.db").read_bytes()).hexdigest()
    told = the_backup(realm)
    assert (told["agentId"], told["sessionId"], told["state"]) == ("old", "s1", "closed")
    assert sorted(told["resources"]) == ["FILE:/a.txt", "FILE:/src/*"]
    shown = realm("backups", "show", told["backupId"][:30], "--json").json
    files = {one["name"]: one for one in shown["files"]}
    assert files["/a.txt"]["sha256"] == hashlib.sha256(b"one\n").hexdigest()
    assert (files["/src/x.py"]["size"], files["/src"]["kind"], "/src/new.py" in files) == (6, "dir", False)
    for_people = realm("backups", "show", told["backupId"]).out
    for words in (told["backupId"], "old, session s1", "FILE:/src/*", "/src/x.py"):
        assert words in for_people
    assert told["backupId"] in realm("backups", "list").out
    (verdict,) = [one["state"] for one in realm("log", "--topic", "verdict.given", "--json").lines]
    assert verdict["verdictId"] == told["backupId"]
    assert hashlib.sha256((realm.folder / "world.db").read_bytes()).hexdigest() == before


@pytest.mark.requirement("KO-7", "KO-3.3")
def test_a_backup_is_given_back_whole_or_in_part(realm: CliRealm) -> None:
    name = the_backup(realm)["backupId"]
    part = realm("backups", "restore", name[:30], "src/x.py")
    assert "restored /src/x.py" in part.err
    assert texts(realm) == {"a.txt": "two\n", "src/x.py": "x = 1\n", "src/y.py": "y = 1\n", "src/new.py": "new\n"}
    whole = realm("backups", "restore", name, "--json").json
    assert whole["backupId"] == name
    assert "/a.txt" in whole["restored"]
    assert (whole["removed"], whole["failed"]) == (["/src/new.py"], [])
    assert texts(realm) == {"a.txt": "one\n", "src/x.py": "x = 1\n", "src/y.py": "y = 1\n"}
    assert "Everything was as it was saved." in realm("backups", "restore", name).err


@pytest.mark.requirement("KO-7")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["no-such"], 1, "NO_SUCH_BACKUP"),
        (["ID", "docs"], 1, "NOT_IN_BACKUP"),
        (["ID", "URL:https://example.org/"], 1, "NOT_IN_BACKUP"),
        (["ID", "../elsewhere"], 1, "OUTSIDE_WORKSPACE"),
    ],
)
def test_what_is_not_in_a_backup_cannot_be_given_back(realm: CliRealm, words: list[str], code: int, said: str) -> None:
    before = texts(realm)
    named = [the_backup(realm)["backupId"] if word == "ID" else word for word in words]
    assert f"[{said}]" in realm("backups", "restore", *named, code=code).err
    assert texts(realm) == before


@pytest.mark.requirement("KO-7")
def test_nothing_is_given_back_under_the_hands_of_whoever_holds_a_lease_there_unless_by_force(realm: CliRealm) -> None:
    name = the_backup(realm)["backupId"]
    realm("lease", "acquire", "FILE:/src/y.py", "--agent", "young", "--session", "y", *LONG)
    refused = realm("backups", "restore", name, "--json", code=1).json["error"]
    assert refused["code"] == "BACKUP_IN_USE"
    (holder,) = refused["details"]["holders"]
    assert (holder["agentId"], holder["resource"]) == ("young", "FILE:/src/y.py")
    assert texts(realm)["a.txt"] == "two\n"
    realm("backups", "restore", name, "a.txt")  # nobody is there
    assert texts(realm)["a.txt"] == "one\n"
    forced = realm("backups", "restore", name, "--force")
    assert "Warning: young, session y, holds MUTATES on FILE:/src/y.py" in forced.err
    assert texts(realm) == {"a.txt": "one\n", "src/x.py": "x = 1\n", "src/y.py": "y = 1\n"}


@pytest.mark.requirement("KO-7")
def test_old_backups_are_removed_but_never_one_that_is_needed(realm: CliRealm) -> None:
    name = the_backup(realm)["backupId"]
    realm("lease", "acquire", "FILE:/a.txt", "--agent", "old", "--session", "s2", *LONG)  # no workspace: no backup
    script = "echo ready; read line"
    words = ("run", "--agent", "old", "--session", "s3", "--writes", "src/**", "--", "sh", "-c", script)
    running = realm.start(*words)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    (_, open_one) = realm("backups", "list", "--json").json
    assert (open_one["sessionId"], open_one["state"]) == ("s3", "open")
    kept = realm("backups", "prune", "--json").json
    assert (kept["removed"], kept["dryRun"]) == ([], False)
    would = realm("backups", "prune", "--older-than", "0", "--max-bytes", "0", "--dry-run", "--json").json
    assert (would["removed"], would["dryRun"]) == ([name], True)
    assert len(realm("backups", "list", "--json").json) == 2
    done = realm("backups", "prune", "--older-than", "0", "--max-bytes", "0", "--json").json
    assert (done["removed"], done["freedBytes"]) == ([name], would["freedBytes"])
    assert [one["state"] for one in realm("backups", "list", "--json").json] == ["open"]
    running.kill()
    running.communicate()
    still = realm("backups", "prune", "--older-than", "0", "--dry-run", "--json").json  # opening gave it back
    assert still["removed"] == [open_one["backupId"]]


@pytest.mark.requirement("KO-7")
def test_all_backups_together_stay_below_a_size(realm: CliRealm) -> None:
    for number in range(3):
        (realm.folder / "a.txt").write_text(f"{number}" * 1000)
        realm("run", "--agent", "old", "--writes", "a.txt", "--", "sh", "-c", "echo > a.txt")
    done = realm("backups", "prune", "--max-bytes", "2500", "--json").json
    assert len(done["removed"]) == 2
    assert done["keptBytes"] <= 2500
    assert len(realm("backups", "list", "--json").json) == 2


def test_an_unreadable_backup_is_told_by_list_prune_and_doctor(realm: CliRealm) -> None:
    name = the_backup(realm)["backupId"]
    (realm.folder / f".klock/backups/sets/{name}.json").write_text("{")
    assert the_backup(realm)["state"] == "damaged"
    assert name in realm("backups", "prune").err
    assert "[BACKUP_DAMAGED]" in realm("backups", "restore", name, code=1).err
    checks = {one["check"]: one for one in realm("doctor", "--json", code=1).json["checks"]}
    assert name in checks["backups"]["found"]


def cut_off(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a rollback that ends before it has changed anything."""

    def carry_out(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, closing(Workspace(root)) as workspace:
        patch.setattr("host.backups.store.apply_plan", carry_out)
        with pytest.raises(KeyboardInterrupt):
            Backups(workspace).restore(name)


@pytest.mark.requirement("KO-3.3", "KO-7")
def test_a_rollback_that_was_cut_off_is_told_by_doctor_and_finished_by_the_next_that_acts(
    realm: CliRealm, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = the_backup(realm)["backupId"]
    cut_off(realm.folder, name, monkeypatch)
    assert realm("backups", "list").out.splitlines()[1].endswith("rollback interrupted")
    checks = {one["check"]: one for one in realm("doctor", "--json", code=1).json["checks"]}
    assert name in checks["rollbacks"]["found"]
    assert "settle" in checks["rollbacks"]["advice"]
    realm("settle")
    assert texts(realm) == {"a.txt": "one\n", "src/x.py": "x = 1\n", "src/y.py": "y = 1\n"}
    realm("doctor")


@pytest.mark.requirement("KO-3.3")
def test_a_rollback_that_cannot_be_finished_is_told(realm: CliRealm) -> None:
    name = the_backup(realm)["backupId"]
    (realm.folder / f".klock/backups/restoring/{name}.json").write_text("{")
    said = CliRealm(realm.folder)("settle").err  # a process of its own, whose warnings go to stderr
    assert f"The rollback to backup {name} is not done" in said


def test_a_realm_without_backups_says_so(tmp_path: Path) -> None:
    realm = founded(tmp_path)
    assert realm("backups", "list").err.strip() == "There is no backup."
    assert realm("backups", "list", "--json").json == []
    assert "0 backups" in realm("backups", "prune").out


# By itself, and from Python


def a_run(world: Realm, root: Path, text: str) -> str:
    """Change a file in a governed session; return the id of the backup."""
    with world.host.session(agent="ann", writes=[str(root / "a.txt")]) as session:
        (root / "a.txt").write_text(text)
    return session.run.held.verdict.verdict_id


@pytest.mark.requirement("KO-7")
def test_after_a_run_old_backups_go_by_themselves_once_an_hour_at_most(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "a.txt").write_text("0")
    clock = ManualClock(1_000_000_000_000)
    workspace = WorkspaceConfig(root=str(root), keep_days=2)
    with Realm.create(tmp_path / "log.db", domain=garden, workspace=workspace, clock=clock) as world:

        def kept() -> list[str]:
            return [info.backup_id for info in world.host.backups.list()]

        first = a_run(world, root, "1")
        clock.advance(HOUR_MS // 2)
        second = a_run(world, root, "2")
        clock.advance(2 * DAY_MS - HOUR_MS // 2 + 1)
        third = a_run(world, root, "3")
        assert kept() == [second, third]
        clock.advance(HOUR_MS // 2)
        fourth = a_run(world, root, "4")
        assert kept() == [second, third, fourth]  # the second is old enough, but the last time was half an hour ago
        clock.advance(HOUR_MS // 2)
        fifth = a_run(world, root, "5")
        assert kept() == [third, fourth, fifth]
        assert first not in kept()


@pytest.mark.requirement("KO-7")
def test_a_pruning_that_fails_is_logged_and_fails_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "a.txt").write_text("0")
    with Realm.create(tmp_path / "log.db", domain=garden, workspace=root) as world:
        a_run(world, root, "1")
        stamp = root / ".klock/pruned"
        stamp.unlink()
        os.symlink(tmp_path / "elsewhere", stamp)
        a_run(world, root, "2")
        assert "Old backups could not be removed" in caplog.text
        assert not (tmp_path / "elsewhere").exists()
        assert (root / "a.txt").read_text() == "2"


@pytest.mark.requirement("KO-7")
def test_a_backup_of_which_the_log_knows_nothing_is_kept_for_a_day(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "a.txt").write_text("0")
    clock = ManualClock(1_000_000_000_000)
    with Realm.create(tmp_path / "log.db", domain=garden, workspace=root, clock=clock) as world:
        host = world.host
        resource = host.premises.workspace.resource("a.txt", cwd=os.fsencode(root))
        assert resource is not None
        host.premises.backups.take("stranger", [resource], at=clock.now_ms(), note={})
        assert host.backups.prune(max_age_ms=0, max_bytes=0).removed == []
        clock.advance(DAY_MS)
        assert world.host.backups.prune(max_age_ms=0, max_bytes=0).removed == ["stranger"]


def test_who_only_looks_restores_nothing(tmp_path: Path) -> None:
    root = tmp_path / "w"
    root.mkdir()
    (root / "a.txt").write_text("0")
    with Realm.create(tmp_path / "log.db", domain=garden, workspace=root) as world:
        name = a_run(world, root, "1")
        desk = BackupAdministration(world.archive, world.host.premises, 0, None)
        with pytest.raises(RefusedError) as refused:
            desk.restore(name)
        assert refused.value.code == "LOG_READ_ONLY"
    assert (root / "a.txt").read_text() == "1"
