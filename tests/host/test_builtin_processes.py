"""Built-in processes: real commands, and nothing of them left when their effect is over."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from host import EffectFailure
from host.effect_answers import EffectPlace
from tests.host.effect_calls import HANDLERS, Files
from tests.host.folders import open_descriptors
from world.errors import RefusedError
from world.model.snapshot import Requirement


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path / "root")
    yield made
    made.workspace.close()


def failed(answer: Any) -> EffectFailure:
    assert isinstance(answer, EffectFailure), answer
    return answer


def run(files: Files, *argv: str, told: dict[str, Any] | None = None, **params: Any) -> Any:
    return files.make("process.run", told=told, argv=list(argv), **params)


def python(files: Files, code: str, **params: Any) -> Any:
    return run(files, sys.executable, "-c", code, **params)


def test_a_command_runs_in_the_workspace_and_tells_what_it_said(files: Files) -> None:
    told = run(files, "sh", "-c", "pwd; echo bad >&2; echo made > file")
    assert told == {
        "exitCode": 0,
        "confined": False,
        "stdout": f"{files.root.resolve()}\n",
        "stdoutBytes": len(str(files.root.resolve())) + 1,
        "stdoutTruncated": False,
        "stderr": "bad\n",
        "stderrBytes": 4,
        "stderrTruncated": False,
    }
    assert (files.root / "file").read_text() == "made\n"


def test_arguments_are_not_read_by_a_shell_unless_one_is_spelt_out(files: Files) -> None:
    assert run(files, "echo", "$HOME; rm -rf *")["stdout"] == "$HOME; rm -rf *\n"
    told = run(files, 'echo "$#:$1" | tr a b', "a", "c", shell="sh")
    assert told["stdout"] == "2:b\n"
    assert failed(run(files, "echo", shell="bash")).code == "EFFECT_INVALID_INPUT"


def test_a_command_starts_in_a_folder_of_the_workspace_and_nowhere_else(files: Files, tmp_path: Path) -> None:
    (files.root / "sub").mkdir()
    (files.root / "out").symlink_to(tmp_path)
    (files.root / "file").touch()
    (files.root / "in").symlink_to("sub")
    assert failed(run(files, "pwd", cwd="/in")).code == "FILE_THROUGH_LINK"
    assert run(files, "pwd", cwd="/sub")["stdout"].strip() == str((files.root / "sub").resolve())
    assert failed(run(files, "pwd", cwd="/out")).code == "LINK_OUT_OF_WORKSPACE"
    assert failed(run(files, "pwd", cwd="/none")).code == "FILE_NOT_FOUND"
    assert failed(run(files, "pwd", cwd="/file")).code == "FILE_NOT_A_FOLDER"


def test_a_folder_that_takes_the_place_of_the_opened_one_is_not_followed(files: Files, tmp_path: Path) -> None:
    (files.root / "sub").mkdir()

    def swap() -> None:  # the last thing that happens before the command is started
        if not (files.root / "moved").exists():
            (files.root / "sub").rename(files.root / "moved")
            (files.root / "sub").symlink_to(tmp_path)

    told = run(files, "sh", "-c", "pwd -P; echo made > file", cwd="/sub", told={"check": swap})
    assert told["stdout"] == f"{files.root.resolve()}/moved\n"
    assert (files.root / "moved" / "file").exists()
    assert not (tmp_path / "file").exists()


def test_the_environment_is_small_and_holds_the_idempotency_key(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    told = files.make("process.run", key="k:1", argv=["env"], env={"MINE": "a b"})
    lines = told["stdout"].splitlines()
    assert {"MINE=a b", "IDEMPOTENCY_KEY=k:1"} <= set(lines)
    assert "secret" not in told["stdout"]


def test_a_command_is_told_its_input_even_where_it_does_not_listen(files: Files) -> None:
    big = "0123456789" * 100_000
    assert run(files, "wc", "-c", stdin=big)["stdout"].strip() == "1000000"
    assert run(files, "true", stdin=big)["exitCode"] == 0
    assert run(files, "cat", stdin=big)["stdoutBytes"] == 1_000_000  # while it answers, too


def test_another_exit_code_than_expected_is_a_failure_with_the_output(files: Files) -> None:
    answer = failed(run(files, "sh", "-c", "echo out; echo why >&2; exit 3"))
    assert answer.code == "PROCESS_FAILED"
    assert answer.context is not None
    assert (answer.context["exitCode"], answer.context["stderr"]) == (3, "why\n")
    assert run(files, "sh", "-c", "exit 3", expect=[0, 3])["exitCode"] == 3
    killed = failed(run(files, "sh", "-c", "kill -TERM $$"))
    assert killed.context is not None
    assert killed.context["signal"] == "SIGTERM"
    assert killed.context["exitCode"] is None


def test_a_missing_command_and_one_that_may_not_run_are_told_apart(files: Files) -> None:
    (files.root / "plain").write_text("#!/bin/sh\n")
    (files.root / "odd").write_text("no program")
    (files.root / "odd").chmod(0o755)
    assert failed(run(files, "no-such-command-at-all")).code == "PROCESS_NOT_FOUND"
    assert failed(run(files, "./plain")).code == "PROCESS_NOT_EXECUTABLE"
    assert failed(run(files, "./odd")).code == "PROCESS_NOT_EXECUTABLE"


@pytest.mark.slow
def test_of_huge_output_the_end_is_kept_and_every_answer_can_be_recorded(files: Files) -> None:
    told = python(files, "import sys\nfor i in range(400000): print(i); print(i, file=sys.stderr)")
    assert told["stdoutTruncated"]
    assert told["stderrTruncated"]
    assert told["stdout"].endswith("399999\n")
    assert len(told["stdout"]) == 256 * 1024
    noise = python(files, "import sys; sys.stdout.buffer.write(bytes(range(32)) * 20000)")
    place = EffectPlace(Requirement("0" * 64, "process.run", {}, "act", "n"), 1)
    assert noise["stdoutBytes"] == 640_000
    assert noise["stdoutTruncated"]
    for answer in (told, noise, failed(python(files, "import sys; sys.stdout.write('\\1' * 600000); sys.exit(1)"))):
        result = place.read(answer)
        assert result.error is None or result.error.code == "PROCESS_FAILED"


STARTS = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {body!r}], start_new_session={away})
{then}
"""
WRITES = """
import os, time
open("pid.tmp", "w").write(str(os.getpid()))
os.rename("pid.tmp", "pid")
time.sleep(600)
"""


def is_gone(files: Files) -> bool:
    """Tell whether the process that wrote its number is dead, or only waits to be buried."""
    pid = int((files.root / "pid").read_text())
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


AWAY = pytest.mark.parametrize("away", [False, True], ids=["in the group", "in a session of its own"])


@AWAY
@pytest.mark.slow
def test_grandchildren_are_killed_when_the_time_is_over(files: Files, away: bool) -> None:
    code = STARTS.format(body=WRITES, away=away, then="time.sleep(600)")
    for timeout_ms in (1_000, 10_000, 100_000):  # a longer limit where the grandchild had not begun yet
        assert failed(python(files, code, timeoutMs=timeout_ms)).code == "PROCESS_TIMED_OUT"
        if (files.root / "pid").exists():
            break
    assert is_gone(files)


@AWAY
def test_grandchildren_are_killed_when_the_effect_is_cancelled(files: Files, away: bool) -> None:
    code = STARTS.format(body=WRITES, away=away, then="time.sleep(600)")
    answer = failed(python(files, code, told={"is_cancelled": (files.root / "pid").exists}))
    assert answer.code == "EFFECT_CANCELLED"
    assert is_gone(files)


@AWAY
def test_what_a_command_leaves_behind_is_killed_when_it_ends(files: Files, away: bool) -> None:
    code = STARTS.format(body=WRITES, away=away, then="while not os.path.exists('pid'): time.sleep(0.01)")
    told = python(files, code)  # though the one left behind holds its pipes open
    assert told["exitCode"] == 0
    assert is_gone(files)


def test_a_command_that_closes_its_pipes_and_lives_on_is_waited_for(files: Files) -> None:
    told = python(files, "import os, time\nfor i in range(3): os.close(i)\ntime.sleep(0.3)\nopen('done', 'w').close()")
    assert told["exitCode"] == 0
    assert (files.root / "done").exists()


def test_nothing_is_started_when_the_leases_were_lost_or_nobody_waits(files: Files) -> None:
    def lost() -> None:
        raise RefusedError("LEASE_LOST", "gone")

    with pytest.raises(RefusedError, match="gone"):
        run(files, "touch", "a", told={"check": lost})
    answer = run(files, "touch", "a", told={"is_cancelled": lambda: True})
    assert failed(answer).code == "EFFECT_CANCELLED"
    assert not (files.root / "a").exists()


def test_no_descriptor_is_left_open(files: Files) -> None:
    run(files, "true")
    before = open_descriptors()
    for _ in range(5):
        run(files, "echo", "a", stdin="b")
        run(files, "no-such-command-at-all")
    assert open_descriptors() <= before


def test_several_commands_at_once_do_not_kill_each_other(files: Files) -> None:
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(run(files, "sh", "-c", "sleep 0.3; echo a"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer["stdout"] for answer in answers] == ["a\n"] * 4


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({}, "$.argv"),
        ({"argv": []}, "$.argv"),
        ({"argv": "ls"}, "$.argv"),
        ({"argv": ["a\0b"]}, "$.argv[0]"),
        ({"argv": ["/bin/"]}, "$.argv"),
        ({"argv": ["a\nb"]}, "$.argv"),
        ({"argv": ["ls"], "env": {"A=B": "c"}}, "$.env.A=B.[key]"),
        ({"argv": ["ls"], "timeoutMs": 0}, "$.timeoutMs"),
        ({"argv": ["ls"], "shell": True}, "$.shell"),
        ({"argv": ["ls"], "cwd": "relative"}, "$.cwd"),
    ],
)
def test_wrong_parameters_are_named_and_nothing_is_started(files: Files, params: dict[str, Any], path: str) -> None:
    answer = failed(files.make("process.run", **params))
    assert answer.code == "EFFECT_INVALID_INPUT"
    assert answer.context is not None
    assert path in [fault["path"] for fault in answer.context["faults"]]


@pytest.mark.requirement("KO-5.1", "KO-2.1")
def test_a_command_counts_as_changing_all_of_its_working_directory() -> None:
    triples = HANDLERS["process.run"].triples
    assert triples({"argv": ["/usr/bin/make", "all"]}) == [("PROVIDES", "PROCESS:make"), ("MUTATES", "FILE:/*")]
    assert triples({"argv": ["ls | wc"], "shell": "sh", "cwd": "/src"}) == [
        ("PROVIDES", "PROCESS:sh"),
        ("MUTATES", "FILE:/src/*"),
    ]


def test_a_command_is_repeatable_only_where_its_caller_says_so() -> None:
    terms = HANDLERS["process.run"].terms_for
    assert not terms({"argv": ["true"]}).idempotent
    assert terms({"argv": ["true"], "idempotent": True}).idempotent
    assert terms({"argv": ["true"], "timeoutMs": 5}).time_limit_ms > 5
