"""``worldctl worker`` and ``worldctl workspace``; which commands perform effects, and which offer them."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import ROOT, CliRealm

MAILROOM = ROOT / "tests/cli/mailroom.py"
POSTMAN = ROOT / "tests/cli/postman.py"
COURIER = ROOT / "tests/cli/courier.py"
pytestmark = [pytest.mark.slow, pytest.mark.requirement("HC-journal", "HC-handlers")]


@pytest.fixture
def realm(tmp_path: Path) -> CliRealm:
    """A realm with two letters that wait for a worker."""
    realm = Inside(tmp_path)
    realm("init", "--domain", f"{MAILROOM}:mailroom", "--effects", f"{MAILROOM}:handlers")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    for town in ("rome", "oslo"):
        realm("submit", "send", "--actor", "ann", "--input", f'{{"to": "{town}"}}', "--scope", f"sent.{town}", code=4)
    return realm


@pytest.fixture
def asking(tmp_path: Path) -> CliRealm:
    """A realm whose effects have their handler in world.toml, and an actor who asks ann."""
    realm = Inside(tmp_path)
    realm("init", "--domain", f"{COURIER}:courier", "--effects", f"{COURIER}:handlers")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    realm("actor", "add", "kid", "--kind", "human", "--ask", "ann")
    realm("submit", "send", "--actor", "kid", "--input", '{"to": "Rome"}', code=4)
    return realm


def test_a_worker_performs_what_is_offered_with_a_line_for_each_step(realm: CliRealm) -> None:
    said = realm("worker", "--handlers", str(POSTMAN), "--once", "--name", "postman")
    assert [line.split(" of ")[0] for line in said.out.splitlines()] == ["claimed mail.send", "completed mail.send"] * 2
    assert "Worker postman with" in said.err
    assert "2 effects completed, 0 failed, 0 lost." in said.err
    assert realm("show", "HEAD", "--data", "--json").json["data"]["sent"] == {"rome": "to rome", "oslo": "to oslo"}
    assert realm("effects", "--json").json == []


def test_a_worker_prints_json_lines(realm: CliRealm) -> None:
    lines = realm("worker", "--handlers", f"{POSTMAN}:send", "--once", "--concurrency", "2", "--json").lines
    assert sorted(line["what"] for line in lines) == ["claimed", "claimed", "completed", "completed", "ended"]
    assert {line["effect"] for line in lines[:-1]} == {"mail.send"}
    assert (lines[-1]["completed"], lines[-1]["failed"]) == (2, 0)


def test_a_worker_says_what_it_lacks(realm: CliRealm, tmp_path: Path) -> None:
    assert "NO_HANDLER" in realm("worker", "--types", "mail.send", "--once", code=1).err
    assert "NO_HANDLER" in realm("worker", "--handlers", str(POSTMAN), "--types", "fax.send", "--once", code=1).err
    (tmp_path / "empty.py").write_text("")
    assert "provides no effect handler" in realm("worker", "--handlers", "empty.py", "--once", code=2).err
    assert "there is no file" in realm("worker", "--handlers", "nowhere.py", "--once", code=2).err
    assert len(realm("effects", "--json").json) == 2


def test_a_terminated_worker_finishes_what_is_under_way_and_claims_nothing_more(realm: CliRealm) -> None:
    os.mkfifo(realm.folder / "gate")
    running = realm.start("worker", "--handlers", str(POSTMAN))
    assert running.stdout is not None
    assert "claimed" in running.stdout.readline()
    assert running.stdout.readline() == "handed over\n"
    running.send_signal(signal.SIGTERM)
    (realm.folder / "gate").write_text("go on")
    out, err = running.communicate()
    assert running.returncode == 0, err
    assert "completed mail.send" in out
    assert "1 effect completed" in err
    assert [one["state"] for one in realm("effects", "--json").json] == ["offered"]


@pytest.mark.slow
def test_a_second_interrupt_gives_up_what_is_under_way_and_says_what_becomes_of_it(realm: CliRealm) -> None:
    os.mkfifo(realm.folder / "gate")
    running = realm.start("worker", "--handlers", str(POSTMAN))
    assert running.stdout is not None
    assert running.stderr is not None
    assert "claimed" in running.stdout.readline()
    assert running.stdout.readline() == "handed over\n"
    running.send_signal(signal.SIGINT)
    assert any("Ctrl-C gives them up" in line for line in iter(running.stderr.readline, ""))
    running.send_signal(signal.SIGINT)
    _, err = running.communicate()
    assert running.returncode == 1
    assert "was given up; its claim lapses, then it is in doubt" in err
    assert sorted(one["state"] for one in realm("effects", "--json").json) == ["claimed", "offered"]


def test_an_answer_offers_the_effects_and_settling_performs_them(asking: CliRealm) -> None:
    said = asking("decide", "01", "approve", "--by", "ann")
    assert said.out.startswith("executing")
    assert "offered to workers" in said.err
    assert not (asking.folder / "sent.txt").exists()
    assert [one["state"] for one in asking("effects", "--json").json] == ["offered"]
    asking("settle", "--no-execute")
    assert not (asking.folder / "sent.txt").exists()
    asking("settle")
    assert len((asking.folder / "sent.txt").read_text().splitlines()) == 1
    assert asking("effects", "--json").json == []


def test_an_answer_performs_the_effects_where_the_option_or_the_configuration_says_so(asking: CliRealm) -> None:
    assert asking("decide", "01", "approve", "--by", "ann", "--execute").out.startswith("completed")
    asking("submit", "send", "--actor", "kid", "--input", '{"to": "Oslo"}', code=4)
    config = asking.folder / "world.toml"
    config.write_text("execute = true\n" + config.read_text())
    assert asking("decide", "01", "approve", "--by", "ann").out.startswith("completed")
    config.write_text(config.read_text().replace("execute = true", "execute = false"))
    said = asking("submit", "send", "--actor", "ann", "--input", '{"to": "Bonn"}', code=4)
    assert said.out.startswith("executing")
    assert len((asking.folder / "sent.txt").read_text().splitlines()) == 2


def test_the_workspace_of_a_realm_is_shown_kept_and_replaced(asking: CliRealm, tmp_path: Path) -> None:
    config = asking.folder / "world.toml"
    (asking.folder / "files").mkdir()
    config.write_text(config.read_text() + '\n[workspace]\nroot = "files"\n')
    assert asking("workspace", "show", "--json").json["registered"] is None
    asking("settle")
    shown = asking("workspace", "show", "--json").json
    assert shown["registered"] == shown["here"] is not None
    shutil.copytree(asking.folder / "files", asking.folder / "copy")
    config.write_text(config.read_text().replace('"files"', '"copy"'))
    assert "WORKSPACE_COPIED" in asking("settle", code=1).err
    assert asking("workspace", "show", "--json").json["problem"] == "WORKSPACE_COPIED"
    asking("settle", "--no-execute")
    asking("workspace", "keep")
    asking("settle")
    (asking.folder / "copy" / ".klock" / "workspace-id").unlink()
    assert "OTHER_WORKSPACE" in asking("settle", code=1).err
    asking("workspace", "register", "--by", "ann")
    again = asking("workspace", "show", "--json").json
    assert again["registered"] == again["here"] != shown["registered"]
    asking("settle")
    assert asking("verify").code == 0


def test_a_worker_whose_output_is_closed_ends_and_loses_no_effect(realm: CliRealm) -> None:
    os.mkfifo(realm.folder / "gate")
    running = realm.start("worker", "--handlers", str(POSTMAN))
    assert running.stdout is not None
    assert running.stderr is not None
    assert "claimed" in running.stdout.readline()
    assert running.stdout.readline() == "handed over\n"
    running.stdout.close()
    (realm.folder / "gate").write_text("go on")
    assert "Traceback" not in running.stderr.read()
    assert running.wait() not in (0, -signal.SIGKILL)
    running.stderr.close()
    assert running.stdin is not None
    running.stdin.close()
    left = realm("effects", "--json").json
    assert [one["state"] for one in left] == ["offered"], realm("log").out
    assert len(realm("show", "HEAD", "--data", "--json").json["data"]["sent"]) == 1


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--name", ""], 2, "INVALID_ID"),
        (["--name", "a b"], 2, "INVALID_ID"),
        (["--concurrency", "0"], 2, "--concurrency"),
        (["--workspace", "nowhere"], 2, "does not exist"),
        (["--types", ""], 1, "NO_HANDLER"),
        (["--handlers", "json"], 2, "INVALID_HANDLER"),
        (["--handlers", str(MAILROOM)], 2, "INVALID_HANDLER"),
        (["--handlers", f"{POSTMAN}:nothing"], 2, "NOT_LOADED"),
        (["--bogus"], 2, "--bogus"),
    ],
)
def test_wrong_options_claim_nothing(realm: CliRealm, options: list[str], code: int, said: str) -> None:
    refused = realm("worker", "--once", *options, code=code)
    assert said in refused.err
    assert (refused.out, len(realm("effects", "--json").json)) == ("", 2)


def test_a_worker_takes_the_folder_that_is_the_workspace_and_no_other(asking: CliRealm) -> None:
    files, moved, copied = (asking.folder / name for name in ("files", "moved", "copied"))
    files.mkdir()
    assert "and the workspace" in asking("worker", "--once", "--workspace", "files").err
    files.rename(moved)
    assert "and the workspace" in asking("worker", "--once", "--workspace", "moved").err
    shutil.copytree(moved, copied)
    assert "WORKSPACE_COPIED" in asking("worker", "--once", "--workspace", "copied", code=1).err
    shutil.rmtree(copied)
    copied.mkdir()
    assert "OTHER_WORKSPACE" in asking("worker", "--once", "--workspace", "copied", code=1).err
    shutil.rmtree(moved)
    assert "does not exist" in asking("worker", "--once", "--workspace", "moved", code=2).err
    assert "workspace" not in asking("worker", "--once").err  # a worker without one, for effects that need none
