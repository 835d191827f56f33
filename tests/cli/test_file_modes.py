"""Files that hold events, backups or keys are made for their owner alone, whatever the umask is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.realm import FOUND, CliRealm, environment, sale
from world.private_files import open_private
from worldprotocol.api.config import read_config
from worldprotocol.cli.support.health.file_modes import sensitive_files


class Open(CliRealm):
    """Runs ``worldctl`` with the umask 022, under which others may read new files unless they are made otherwise."""

    def run(self, *arguments: str, given: str = "") -> None:
        done = subprocess.run(
            [sys.executable, "-m", "worldprotocol", *arguments],
            cwd=self.folder,
            env=environment(),
            input=given.encode(),
            capture_output=True,
            umask=0o022,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr.decode()


def modes(folder: Path) -> dict[str, str]:
    """Return every file and folder below one that others or the group may read, with its mode."""
    found = {}
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & 0o077:
            found[str(path.relative_to(folder))] = f"{mode:04o}"
    return found


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which a realm was founded, used, exported and reported, with a governed run and its backup."""
    folder = tmp_path_factory.mktemp("modes")
    realm = Open(folder)
    realm.run(*FOUND)
    realm.run("actor", "add", "ann", "--kind", "human", "--auto-approve")
    realm.run("submit", "--intents", "-", given=sale("ann") * 2)
    (folder / "work").mkdir(mode=0o755)
    for name in ("a.txt", "b.txt"):
        (folder / "work" / name).write_text("before")
        (folder / "work" / name).chmod(0o600)
    (folder / "work").chmod(0o700)
    write = "open('work/a.txt', 'w').write('after')"
    asked = ("--agent", "ann", "--writes", "work/a.txt", "--unconfined", "--report", "run.json")
    realm.run("run", *asked, "--", sys.executable, "-c", write)
    realm.run("checkpoint", "keygen", "example.com/modes", "-o", "checkpoint.key")
    realm.run("checkpoint", "--key", "checkpoint.key", "--origin", "example.com/modes", "-o", "checkpoint.txt")
    realm.run("export", "events.jsonl")
    realm.run("report", "-o", "report.html")
    return folder


@pytest.mark.slow
def test_every_file_that_a_realm_makes_is_its_owners_alone(used: Path) -> None:
    made = {path.name for path in used.rglob("*") if path.is_file()}
    assert {
        "world.db",
        "world.toml",
        "events.jsonl",
        "run.json",
        "report.html",
        "checkpoint.key",
        "checkpoint.txt",
    } <= made
    assert any(".klock" in path.parts for path in used.rglob("*"))
    assert modes(used) == {}


@pytest.mark.slow
def test_the_companions_of_an_open_log_have_its_mode(tmp_path: Path) -> None:
    code = (
        "import os, stat, sys\n"
        "os.umask(0o022)\n"
        "from tests.cli.counter import counter\n"
        "from worldprotocol import Realm\n"
        "with Realm.create('w.db', domain=counter) as world:\n"
        "    world.register('ann', 'human', binding={'kind': 'auto_approve'})\n"
        "    print({name: oct(stat.S_IMODE(os.stat(name).st_mode)) for name in sorted(os.listdir('.'))})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, check=True
    )
    told = dict.fromkeys(("w.db", "w.db-shm", "w.db-wal"), "0o600")
    assert done.stdout.decode().strip() == str(told)


@pytest.mark.slow
def test_a_file_that_was_made_for_a_group_before_keeps_its_mode(tmp_path: Path) -> None:
    realm = Open(tmp_path)
    for name in ("world.db", "events.jsonl"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o640)
    realm.run(*FOUND)
    realm.run("export", "events.jsonl", "--force")
    found = modes(tmp_path)
    assert found == {"world.db": "0640", "events.jsonl": "0640"}
    assert (tmp_path / "events.jsonl").stat().st_size > 0


def test_a_part_that_was_left_behind_does_not_open_what_replaces_it(tmp_path: Path) -> None:
    part = tmp_path / "x.part"
    part.touch()
    part.chmod(0o644)
    with open_private(part, replaces=tmp_path / "x") as out:
        assert stat.S_IMODE(os.fstat(out.fileno()).st_mode) == 0o600


def test_doctor_names_a_log_that_others_may_read(tmp_path: Path) -> None:
    realm = CliRealm(tmp_path)
    realm(*FOUND)
    (tmp_path / "world.db").chmod(0o644)
    said = {one["check"]: one for one in realm("doctor", "--json", code=1).json["checks"]}
    assert said["modes"]["ok"] is False
    assert "world.db (0644)" in said["modes"]["found"]
    assert "chmod o=" in said["modes"]["advice"]


def test_a_configuration_counts_where_its_address_holds_a_password(tmp_path: Path) -> None:
    CliRealm(tmp_path)(*FOUND)
    config, path = read_config(tmp_path / "world.toml"), tmp_path / "world.toml"
    assert path not in sensitive_files(config, "world.db")
    with_password = config.model_copy(update={"log": "postgresql://ann:word@db.example/worlds"})
    assert path in sensitive_files(with_password, "world.db")
