"""``worldctl run``: any command, under leases and held to what it declares; real commands in real folders."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.inside import Inside
from tests.cli.realm import COMMAND, CliRealm, Said, environment, founded
from tests.support.patience import PATIENCE_S
from world.events.run_events import RunAmended, RunClosed

pytestmark = pytest.mark.slow

CONFIG = "WORLD_CONFIG"
STRACE = shutil.which("strace")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    realm = founded(tmp_path_factory.mktemp("runs"))
    folder = realm.folder
    (folder / "a.txt").write_text("one\n")
    (folder / "docs").mkdir()
    (folder / "docs/read.me").write_text("read me\n")
    (folder / "src").mkdir()
    (folder / "src/x.py").write_text("x = 1\n")
    (folder / "src/y.py").write_text("y = 1\n")
    (folder / "src/z.txt").write_text("z\n")
    for agent in ("old", "young"):
        realm("lease", "acquire", f"FILE:/priority/{agent}", "--agent", agent, "--session", "first", "--json")
    return folder


@pytest.fixture
def realm(template: Path, tmp_path: Path) -> CliRealm:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Inside(tmp_path)


def run(
    realm: CliRealm, *words: str, script: str, agent: str = "old", code: int = 0, given: str = "", **env: str
) -> Said:
    """Run a shell script under ``worldctl run``."""
    return realm("run", "--agent", agent, *words, "--", "sh", "-c", script, code=code, given=given, **env)


def started(realm: CliRealm, *words: str, script: str, agent: str = "old") -> subprocess.Popen[str]:
    """Start a shell script under ``worldctl run``, and return when it says that it is ready."""
    running = realm.start("run", "--agent", agent, *words, "--", "sh", "-c", script)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n", running.communicate()
    return running


def last(realm: CliRealm) -> dict[str, Any]:
    """Return the newest run's verification log."""
    (newest,) = realm("runs", "--most", "1", "--json").json
    told: dict[str, Any] = realm("show", newest["runId"], "--json").json["verification"]
    return told


def texts(realm: CliRealm) -> dict[str, str]:
    """Return what stands in the workspace."""
    places = (place for place in realm.folder.rglob("*") if place.is_file() and ".klock" not in place.parts)
    return {
        str(place.relative_to(realm.folder)): place.read_text()
        for place in places
        if not place.name.startswith("world")
    }


# Exit codes and streams


@pytest.mark.requirement("KO-4")
@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_commands_own(realm: CliRealm, code: int) -> None:
    run(realm, "--reads", "a.txt", script=f"exit {code}", code=code)
    told = last(realm)
    assert (told["exitCode"], told["outcome"]) == (code, "failed" if code else "completed")


def test_a_command_that_a_signal_ended_has_the_exit_code_of_a_shell(realm: CliRealm) -> None:
    run(realm, "--reads", "a.txt", script="kill -TERM $$", code=128 + signal.SIGTERM)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["no-such-command"], 127, "COMMAND_NOT_FOUND"),
        (["./docs/read.me"], 126, "COMMAND_NOT_EXECUTABLE"),
        (["./docs"], 126, "COMMAND_NOT_EXECUTABLE"),
    ],
)
def test_what_cannot_be_run_has_an_exit_code_of_its_own_and_leaves_no_lease(
    realm: CliRealm, command: list[str], code: int, said: str
) -> None:
    before = texts(realm)
    told = realm("run", "--agent", "old", "--session", "s", "--writes", "a.txt", "--", *command, code=code)
    assert f"[{said}]" in told.err
    assert told.out == ""
    assert "FILE:/a.txt" not in realm("lease", "list").out
    assert texts(realm) == before


@pytest.mark.requirement("KO-3")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "NOTHING_DECLARED"),
        (["--writes", "/"], "GLOBAL_SCOPE"),
        (["--writes", "../elsewhere"], "OUTSIDE_WORKSPACE"),
        (["--reads", "no*.such"], "NO_MATCH"),
        (["--declare", "BREAKS", "FILE:/a.txt"], "INVALID_PREDICATE"),
        (["--writes", "a.txt", "--require-signature"], "UNAUTHENTICATED"),
        (["--writes", "a.txt", "--ttl-ms", "0"], "INVALID_TTL"),
    ],
)
def test_what_is_refused_is_not_run(realm: CliRealm, words: list[str], said: str) -> None:
    told = run(realm, *words, script="echo ran", code=125)
    assert f"[{said}]" in told.err
    assert told.out == ""
    assert realm("runs", "--json").json == []


def test_stdout_stdin_and_stderr_are_the_commands_own(realm: CliRealm) -> None:
    done = subprocess.run(
        [*COMMAND, "run", "--agent", "old", "--reads", "a.txt", "--", "sh", "-c", r"cat; printf '\0\377'; echo e >&2"],
        cwd=realm.folder,
        env=environment(),
        input=b"\x00in\xff",
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"\x00in\xff\x00\xff"
    assert done.stderr.startswith(b"e\n")
    assert b"worldctl show " in done.stderr
    quiet = run(realm, "--reads", "a.txt", "--quiet", script="echo out")
    assert (quiet.out, quiet.err) == ("out\n", "")


@pytest.mark.requirement("KO-4")
def test_the_verification_log_is_written_where_it_is_wished(realm: CliRealm) -> None:
    told = run(realm, "--reads", "a.txt", "--report", "report.json", script="cat a.txt")
    assert told.out == "one\n"
    report = json.loads((realm.folder / "report.json").read_text())
    assert report == last(realm)
    assert [one["resource"] for one in report["observed"] if one["predicate"] == "CONSUMES"] == ["FILE:/a.txt"]
    printed = run(realm, "--reads", "a.txt", "--json", script="cat a.txt").out.splitlines()
    assert printed[0] == "one"
    assert json.loads(printed[1])["outcome"] == "completed"
    dashed = run(realm, "--reads", "a.txt", "--report", "-", script="true").out
    assert json.loads(dashed)["unused"] == [{"predicate": "CONSUMES", "resource": "FILE:/a.txt"}]


def test_with_json_a_refusal_is_one_document(realm: CliRealm) -> None:
    told = run(realm, "--json", script="true", code=125).json["error"]
    assert told["code"] == "NOTHING_DECLARED"


# What is declared


@pytest.mark.requirement("KO-3", "KO-3.1", "KO-3.2a", "KO-3.3", "KO-5.2")
@pytest.mark.parametrize(
    ("script", "predicate", "resource"),
    [
        ("echo two > a.txt; echo bad >> docs/read.me; echo never > a.txt", "MUTATES", "FILE:/docs/read.me"),
        ("echo two > a.txt; rm docs/read.me; echo never > a.txt", "DELETES", "FILE:/docs/read.me"),
        ("echo two > a.txt; echo new > docs/new; echo never > a.txt", "PROVIDES", "FILE:/docs/new"),
        ("echo two > a.txt; mv src/x.py docs/; echo never > a.txt", "RENAMES", "FILE:/src/x.py"),
        ("echo two > a.txt; cat docs/read.me; echo never > a.txt", "CONSUMES", "FILE:/docs/read.me"),
    ],
)
def test_a_violation_is_stopped_before_it_takes_effect_and_what_was_done_is_undone(
    realm: CliRealm, script: str, predicate: str, resource: str
) -> None:
    before = texts(realm)
    mode = (realm.folder / "a.txt").stat().st_mode
    told = run(realm, "--writes", "a.txt", "--session", "s7", script=f"chmod 600 a.txt; {script}", code=120)
    assert texts(realm) == before
    assert (realm.folder / "a.txt").stat().st_mode == mode
    for words in ("old", "s7", predicate, resource.partition(":")[2]):
        assert words in told.err
    record = last(realm)
    (violation,) = record["violations"]
    assert (violation["predicate"], violation["resource"], violation["blocked"]) == (predicate, resource, True)
    assert "declared nothing there" in violation["message"]
    assert record["outcome"] == "violated"
    assert record["rollbacks"][0]["restored"] == ["/a.txt"]
    assert "FILE:/a.txt" not in realm("lease", "list").out


@pytest.mark.requirement("KO-3.2a")
def test_a_violation_ends_everything_that_the_command_started(realm: CliRealm) -> None:
    script = "setsid sh -c 'echo $$ > a.txt; cat a.txt; read line < docs/fifo' & wait_for=$!; cat docs/read.me; wait"
    os.mkfifo(realm.folder / "docs/fifo")
    run(realm, "--writes", "a.txt", "--reads", "docs/fifo", script=script, code=120)
    folders = [process.info["cwd"] for process in psutil.process_iter(["cwd"])]
    assert str(realm.folder) not in folders


@pytest.mark.requirement("KO-4")
def test_places_folders_and_patterns_can_be_named(realm: CliRealm) -> None:
    script = (
        "cat src/*.py > /dev/null && echo more >> docs/read.me && echo new > docs/new && rm src/z.txt && mv a.txt b.txt"
    )
    words = ("--reads", "src/*.py", "--writes", "docs/**", "--deletes", "src/z.txt", "--renames", "a.txt", "b.txt")
    run(realm, *words, script=script)
    record = last(realm)
    declared = {(one["predicate"], one["resource"]) for one in record["declared"]}
    assert {
        ("CONSUMES", "FILE:/src/x.py"),
        ("CONSUMES", "FILE:/src/y.py"),
        ("MUTATES", "FILE:/docs/*"),
        ("DELETES", "FILE:/src/z.txt"),
        ("RENAMES", "FILE:/a.txt"),
        ("PROVIDES", "FILE:/b.txt"),
    } <= declared
    assert record["violations"] == []
    assert record["unused"] == []
    assert sorted(texts(realm)) == ["b.txt", "docs/new", "docs/read.me", "src/x.py", "src/y.py"]


@pytest.mark.requirement("KO-4")
def test_what_was_declared_and_not_used_is_told_and_is_no_violation(realm: CliRealm) -> None:
    run(realm, "--reads", "a.txt", "--writes", "docs/read.me", "--creates", "b.txt", script="cat a.txt")
    record = last(realm)
    unused = [(one["predicate"], one["resource"]) for one in record["unused"]]
    assert unused == [("MUTATES", "FILE:/docs/read.me"), ("PROVIDES", "FILE:/b.txt")]
    assert (record["outcome"], record["violations"]) == ("completed", [])


@pytest.mark.requirement("KO-4")
def test_a_signed_manifest_says_all(realm: CliRealm) -> None:
    made = realm("keys", "new", "old.pem", "--json").json
    realm("keys", "register", "old", made["publicKey"])
    scope = [{"predicate": "MUTATES", "resource": "FILE:/a.txt"}]
    manifest = {"ver": "1.0", "session_id": "signed", "agent_id": "old", "scope": scope}
    (realm.folder / "m.json").write_text(json.dumps(manifest))
    (realm.folder / "signed.json").write_text(realm("klis", "sign", "m.json", "--key", "old.pem").out)
    words = ("run", "--manifest", "@signed.json")
    realm(*words, "--", "sh", "-c", "echo two > a.txt")
    assert (last(realm)["sessionId"], texts(realm)["a.txt"]) == ("signed", "two\n")
    assert "MANIFEST_REPLAYED" in realm(*words, "--", "true", code=125).err
    for more in ((), ("--by", "old"), ("--require-signature",)):
        unsigned = realm("run", *more, "--manifest", "@m.json", "--", "true", code=125)
        assert "UNAUTHENTICATED" in unsigned.err
    assert "UNAUTHENTICATED" in run(realm, "--writes", "a.txt", script="echo never > a.txt", code=125).err
    other = json.dumps(manifest | {"agent_id": "young"})
    assert "UNAUTHENTICATED" in realm("run", "--manifest", "-", "--", "true", given=other, code=125).err
    realm("run", "--by", "young", "--manifest", "-", "--", "sh", "-c", "echo three > a.txt", given=other)
    assert texts(realm)["a.txt"] == "three\n"
    mixed = realm("run", "--manifest", "@m.json", "--agent", "old", "--", "true", code=2)
    assert "A manifest says all" in mixed.err


@pytest.mark.requirement("KM-2.1", "KM-5")
def test_a_manifest_in_yaml_is_taken_from_a_file_and_from_stdin(realm: CliRealm) -> None:
    text = "ver: '1.0'\nsession_id: s\nagent_id: old\nscope:\n  - {predicate: MUTATES, resource: FILE:/a.txt}\n"
    (realm.folder / "m.yaml").write_text(text)
    realm("run", "--by", "old", "--manifest", "@m.yaml", "--", "sh", "-c", "echo two > a.txt")
    assert texts(realm)["a.txt"] == "two\n"
    realm("run", "--by", "old", "--manifest", "-", "--", "sh", "-c", "echo three > a.txt", given=text)
    assert texts(realm)["a.txt"] == "three\n"
    (realm.folder / "bad.yaml").write_text(text + "x: &a [1]\ny: *a\n")
    wrong = realm("run", "--by", "old", "--manifest", "@bad.yaml", "--", "true", code=125)
    assert "--manifest: The manifest cannot be read: An alias at line 7" in wrong.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "No command follows '--'"),
        (["--agent", "old", "--"], "No command follows '--'"),
        (["--writes", "a.txt", "docs", "--", "true"], "'docs' before '--' belongs to no option"),
        (["--writes", "--", "true"], "Option '--writes' requires an argument. '--' follows in its place"),
        (["--renames", "a.txt", "--", "true"], "Option '--renames' requires 2 arguments. '--' follows in its place"),
        (["--agent", "old", "true"], "'--' is missing before the command: write `-- true`"),
    ],
)
def test_a_command_line_without_a_whole_command_is_refused_with_the_reason(
    realm: CliRealm, words: list[str], why: str
) -> None:
    before = len(realm("runs", "--json").json)
    refused = realm("run", *words, code=2)
    assert why in refused.err
    assert len(realm("runs", "--json").json) == before
    assert ("quote the pattern" in refused.err) == (words.count("--") == 1 and words[-1] == "true")


# When it fails


@pytest.mark.requirement("KO-3.3")
def test_what_a_failed_command_did_is_undone_unless_it_is_to_be_kept(realm: CliRealm) -> None:
    before = texts(realm)
    script = "echo two > a.txt; echo new > src/new.py; rm src/x.py; exit 3"
    words = ("--writes", "a.txt", "--writes", "src/**", "--deletes", "src/x.py")
    run(realm, *words, script=script, code=3)
    assert texts(realm) == before
    assert last(realm)["rollbacks"][0]["failed"] == []
    run(realm, *words, "--keep", script=script, code=3)
    assert (texts(realm)["a.txt"], "src/new.py" in texts(realm), "src/x.py" in texts(realm)) == ("two\n", True, False)
    assert last(realm)["rollbacks"] == []


@pytest.mark.requirement("KO-3.2b")
def test_a_permissive_command_is_warned_and_its_scope_widened_by_leases(realm: CliRealm) -> None:
    script = "echo two > a.txt; echo new > docs/new; mv src/z.txt src/w.txt"
    told = run(realm, "--reads", "docs/read.me", "--permissive", script=script)
    assert "deadlocks can form" in told.err
    assert "MUTATES on FILE:/a.txt was not declared" in told.err
    record = last(realm)
    assert (record["mode"], record["outcome"], record["violations"]) == ("permissive", "completed", [])
    widened = {(one["predicate"], one["resource"]) for one in record["amendments"]}
    assert widened >= {("MUTATES", "FILE:/a.txt"), ("PROVIDES", "FILE:/docs/new"), ("RENAMES", "FILE:/src/z.txt")}
    assert len(realm("log", "--topic", RunAmended.TOPIC, "--json").lines) == len(record["amendments"])
    assert texts(realm)["a.txt"] == "two\n"
    assert "FILE:/a.txt" not in realm("lease", "list").out  # the leases on the way are given back, too


@pytest.mark.requirement("KO-3.2b")
def test_a_permissive_command_is_stopped_where_somebody_else_holds_a_lease(realm: CliRealm) -> None:
    realm("lease", "acquire", "FILE:/a.txt", "--agent", "young", "--session", "y", "--ttl-ms", "600000")
    told = run(realm, "--reads", "docs/read.me", "--permissive", script="echo two > a.txt || echo denied")
    assert told.out == "denied\n"
    assert texts(realm)["a.txt"] == "one\n"
    record = last(realm)
    (violation,) = record["violations"]
    assert (violation["resource"], violation["blocked"], record["outcome"]) == ("FILE:/a.txt", True, "completed")


@pytest.mark.requirement("KO-3.2b", "KO-3.3")
def test_what_a_failed_permissive_command_did_is_undone_with_what_it_was_lent_on_the_way(realm: CliRealm) -> None:
    before = texts(realm)
    run(realm, "--writes", "src/**", "--permissive", script="echo 2 > src/x.py; echo 2 > a.txt; exit 1", code=1)
    assert texts(realm) == before


# Unconfined


@pytest.mark.requirement("KO-5.1")
def test_an_opaque_tool_is_taken_to_change_its_working_directory(realm: CliRealm) -> None:
    inside = Inside(realm.folder / "src")
    script = "echo 2 > x.py; echo new > new.py; mkdir made; echo in > made/in"
    run(inside, "--unconfined", script=script, WORLD_CONFIG="../world.toml", WORLD_LOG="../world.db")
    record = last(realm)
    assert record["declared"] == [{"predicate": "MUTATES", "resource": "FILE:/src/*"}]
    assert record["heldBy"] == ["content"]
    assert {(one["kind"], one["resource"]) for one in record["changes"]} >= {
        ("changed", "FILE:/src/x.py"),
        ("created", "FILE:/src/new.py"),
    }


@pytest.mark.requirement("KO-5.1")
def test_confined_a_tool_without_a_declaration_may_do_nothing_and_is_not_run(realm: CliRealm) -> None:
    inside = Inside(realm.folder / "src")
    told = run(inside, script="true", code=125, WORLD_CONFIG="../world.toml", WORLD_LOG="../world.db")
    assert "NOTHING_DECLARED" in told.err


@pytest.mark.requirement("KO-5.2", "KO-3.3")
def test_what_an_unconfined_command_did_is_found_in_the_content_and_undone_as_far_as_it_was_leased(
    realm: CliRealm,
) -> None:
    before = texts(realm)
    words = ("--unconfined", "--writes", "src/**")
    told = run(realm, *words, script="echo 2 > src/x.py; echo bad > docs/read.me; echo new > b.txt", code=120)
    assert "/b.txt" in told.err
    record = last(realm)
    found = {(one["predicate"], one["resource"], one["depth"], one["blocked"]) for one in record["violations"]}
    assert found == {
        ("MUTATES", "FILE:/docs/read.me", "content", False),
        ("PROVIDES", "FILE:/b.txt", "content", False),
    }
    assert texts(realm) == before | {"docs/read.me": "bad\n", "b.txt": "new\n"}
    failed = [name for one in record["rollbacks"] for name in one["failed"]]
    assert [name.partition(" ")[0] for name in failed] == ["FILE:/b.txt", "FILE:/docs/read.me"]


@pytest.mark.requirement("KO-5.2")
def test_what_others_changed_under_their_leases_is_not_the_commands_doing(realm: CliRealm) -> None:
    realm("lease", "acquire", "FILE:/a.txt", "--agent", "young", "--session", "y", "--ttl-ms", "600000")
    running = started(realm, "--unconfined", "--writes", "src/**", script="echo ready; read line; echo 2 > src/x.py")
    (realm.folder / "a.txt").write_text("by young\n")
    out, err = running.communicate("go\n", timeout=PATIENCE_S)
    assert running.returncode == 0, (out, err)
    record = last(realm)
    assert record["foreign"] == [{"kind": "changed", "resource": "FILE:/a.txt"}]
    assert {one["resource"] for one in record["changes"]} == {"FILE:/src/x.py"}


def test_without_a_comparison_nothing_is_found_in_the_content(realm: CliRealm) -> None:
    run(realm, "--unconfined", "--no-compare", "--writes", "src/**", script="echo bad > docs/read.me")
    assert (last(realm)["violations"], last(realm)["changes"]) == ([], [])


# Tracing


@pytest.mark.requirement("KO-5.2")
@pytest.mark.parametrize("unconfined", [False, True])
def test_a_traced_command_is_seen_in_its_children_too(realm: CliRealm, unconfined: bool) -> None:
    assert STRACE is not None, "strace is a part of the development environment"
    words = ["--unconfined"] * unconfined + ["--trace", "--reads", "src/**", "--writes", "a.txt"]
    run(realm, *words, script="sh -c 'cat src/x.py' > a.txt; exit 0")
    record = last(realm)
    assert "strace" in record["heldBy"]
    traced = {(one["predicate"], one["resource"]) for one in record["observed"] if one["depth"] == "trace"}
    assert {("CONSUMES", "FILE:/src/x.py"), ("MUTATES", "FILE:/a.txt")} <= traced


@pytest.mark.requirement("KO-5.2")
def test_without_strace_a_command_that_is_to_be_traced_is_not_run(
    realm: CliRealm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tools = tmp_path_factory.mktemp("tools")
    shell = shutil.which("sh")
    assert shell is not None
    (tools / "sh").symlink_to(shell)
    told = run(realm, "--trace", "--writes", "a.txt", script="echo two > a.txt", code=125, PATH=str(tools))
    assert "[NO_TRACER]" in told.err
    assert texts(realm)["a.txt"] == "one\n"
    assert "FILE:/a.txt" not in realm("lease", "list").out


# Several at once


def test_the_younger_of_two_commands_dies_and_comes_after_the_older_when_it_asks_again(realm: CliRealm) -> None:
    running = started(realm, "--writes", "a.txt", script="echo ready; read line; echo old >> a.txt")
    died = run(realm, "--writes", "a.txt", "--wait", "0", agent="young", script="echo never", code=123)
    assert "[DIED]" in died.err
    assert died.out == ""
    again = realm.start(
        "run", "--agent", "young", "--writes", "a.txt", "--retry", "--", "sh", "-c", "echo young >> a.txt"
    )
    while not [one for one in verdicts(realm) if one["status"] == "Die"][1:]:
        assert again.poll() is None, again.communicate()
    out, err = running.communicate("go\n", timeout=PATIENCE_S)
    assert running.returncode == 0, (out, err)
    out, err = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, (out, err)
    assert texts(realm)["a.txt"] == "one\nold\nyoung\n"


def verdicts(realm: CliRealm) -> list[dict[str, Any]]:
    return [one["state"] for one in realm("log", "--topic", "verdict.given", "--json").lines]


def test_an_older_command_waits_and_gives_up_when_its_time_is_over(realm: CliRealm) -> None:
    running = started(realm, "--writes", "a.txt", agent="young", script="echo ready; read line; echo young >> a.txt")
    late = run(realm, "--writes", "a.txt", "--wait", "0.2", script="echo never", code=124)
    assert "[WAIT_TIMED_OUT]" in late.err
    waiting = realm.start("run", "--agent", "old", "--writes", "a.txt", "--", "sh", "-c", "echo old >> a.txt")
    while not realm("waits", "--json").json["waits"]:
        assert waiting.poll() is None, waiting.communicate()
    running.communicate("go\n", timeout=PATIENCE_S)
    out, err = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == 0, (out, err)
    assert texts(realm)["a.txt"] == "one\nyoung\nold\n"


def test_two_commands_that_touch_different_places_run_at_once(realm: CliRealm) -> None:
    first = started(realm, "--writes", "a.txt", script="echo ready; read line; echo 2 > a.txt")
    second = started(realm, "--writes", "docs/**", agent="young", script="echo ready; read line; echo 2 > docs/read.me")
    for running in (second, first):
        out, err = running.communicate("go\n", timeout=PATIENCE_S)
        assert running.returncode == 0, (out, err)
    assert (texts(realm)["a.txt"], texts(realm)["docs/read.me"]) == ("2\n", "2\n")


# Being ended from outside


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_worldctl_is_the_commands(realm: CliRealm, number: signal.Signals) -> None:
    word = number.name.removeprefix("SIG")
    script = f"trap 'echo got {word}; exit 5' {word}; echo ready; read line; while read line; do :; done"
    running = started(realm, "--writes", "a.txt", script=script)
    running.send_signal(number)
    assert running.wait(PATIENCE_S) == 5  # and not for want of input: its stdin stays open until then
    out, err = running.communicate()
    assert out == f"got {word}\n"
    assert "Traceback" not in err
    assert last(realm)["exitCode"] == 5


def test_a_command_that_a_signal_to_worldctl_ends_is_undone(realm: CliRealm) -> None:
    running = started(realm, "--writes", "a.txt", script="echo two > a.txt; echo ready; read line")
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE_S) == 128 + signal.SIGTERM
    running.communicate()
    assert texts(realm)["a.txt"] == "one\n"


@pytest.mark.requirement("KO-3.3")
def test_a_command_whose_lease_is_revoked_is_ended(realm: CliRealm) -> None:
    running = started(realm, "--writes", "a.txt", script="echo two > a.txt; echo ready; read line; echo three > a.txt")
    (lease,) = [one for one in realm("lease", "list", "--json").json["leases"] if one["resource"] == "FILE:/a.txt"]
    realm("lease", "revoke", lease["leaseId"], "--reason", "it hangs")
    assert running.wait(PATIENCE_S) == 121  # while it waits for a line that nobody writes
    _, err = running.communicate()
    assert "leases were lost" in err
    record = last(realm)
    assert (record["outcome"], record["rollbacks"]) == ("lost", [])
    assert texts(realm)["a.txt"] == "two\n"  # somebody else may be at work there: it is not touched any more


@pytest.mark.requirement("KO-3.3", "KO-7")
@pytest.mark.parametrize("unconfined", [False, True])
@pytest.mark.parametrize("way", ["settle", "run"])
def test_a_command_whose_worldctl_was_killed_is_ended_and_undone_by_the_next(
    realm: CliRealm, unconfined: bool, way: str
) -> None:
    script = "echo two > a.txt; echo ready; read line; echo three > a.txt"
    words = ["--unconfined"] * unconfined + ["--writes", "a.txt", "--ttl-ms", "600000"]
    holding, kept = os.pipe()  # stdin stays open, so nothing but us ends the command
    running = subprocess.Popen(
        [*COMMAND, "run", "--agent", "old", *words, "--", "sh", "-c", script],
        cwd=realm.folder,
        env=environment(),
        stdin=holding,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.kill()
    running.wait()
    assert texts(realm)["a.txt"] == "two\n"
    assert [one["outcome"] for one in realm("runs", "--open", "--json").json] == ["open"]
    assert "the process vanished" in realm("doctor", code=1).out
    if way == "settle":
        realm("settle")
        assert texts(realm)["a.txt"] == "one\n"
    else:
        assert run(realm, "--reads", "a.txt", agent="young", script="cat a.txt").out == "one\n"
    assert running.stdout.read() == ""  # whatever held it has ended
    running.stdout.close()
    os.close(holding)
    os.close(kept)
    (closed,) = realm("log", "--topic", RunClosed.TOPIC, "--json").lines[:1]
    assert closed["state"]["outcome"] == "interrupted"
    assert realm("runs", "--open", "--json").json == []
    assert "FILE:/a.txt" not in realm("lease", "list").out
    realm("doctor")


@pytest.mark.requirement("KO-7")
def test_the_backup_is_there_before_the_command_may_change_anything(realm: CliRealm) -> None:
    running = started(realm, "--writes", "a.txt", script="echo ready; read line; echo two > a.txt")
    (info,) = realm("backups", "list", "--json").json
    assert (info["resources"], info["state"], info["agentId"]) == (["FILE:/a.txt"], "open", "old")
    running.communicate("go\n", timeout=PATIENCE_S)
    (info,) = realm("backups", "list", "--json").json
    assert info["state"] == "closed"
    assert info["backupId"] == last(realm)["verdictId"]
