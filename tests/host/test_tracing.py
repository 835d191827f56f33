"""Traces of strace: recorded ones, and a real one where strace is installed."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.observation.operations import Operations, RuntimePaths
from host.observation.strace_lines import Lines, SystemCall, ThreadExit, descriptor_path, string
from host.observation.tracing import Traced, TraceReader, command, strace_path
from host.workspace import Workspace
from tests.support.patience import PATIENCE_S
from world.errors import RefusedError

TRACES = Path(__file__).parent / "traces"
SYSTEM = RuntimePaths(read=(b"/usr", b"/etc"), write=(b"/dev",))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "w").mkdir()
    return Workspace(tmp_path / "w")


Read = Callable[..., list[Traced]]


@pytest.fixture
def read(workspace: Workspace) -> Read:
    """Read a recorded trace, or lines, with the workspace in the place of /w."""

    def reading(
        told: str | list[str], *, after_exec: str = "", existed: Callable[[bytes], bool] | None = None
    ) -> list[Traced]:
        text = (TRACES / f"{told}.strace").read_text() if isinstance(told, str) else "\n".join(told)
        root = str(workspace.root)
        for before in ('"', "<"):
            text = text.replace(f"{before}/w", f"{before}{root}")
        reader = TraceReader(
            Operations(workspace, runtime=SYSTEM), after_exec=after_exec, cwd=workspace.root_bytes, existed=existed
        )
        return list(reader.feed(text.splitlines()))

    return reading


def told(traced: list[Traced], *, processes: bool = False) -> list[str]:
    """Return what was seen; of processes only where it is asked for."""
    return [
        f"{seen.predicate} {seen.resource.text}"
        for one in traced
        for seen in one.seen
        if processes or not one.call.startswith("execve")
    ]


@pytest.mark.requirement("KO-2.1", "KO-5.2")
def test_a_shells_work_is_seen_with_all_its_children(read):
    assert told(read("shell", after_exec="/usr/bin/bash", existed=lambda path: path.endswith(b"/old"))) == [
        "PROVIDES FILE:/sub",
        "PROVIDES FILE:/sub/a.txt",
        "CONSUMES FILE:/sub/a.txt",
        "RENAMES FILE:/sub/a.txt",
        "PROVIDES FILE:/b",
        "PROVIDES FILE:/z",
        "MUTATES FILE:/z",
        "DELETES FILE:/z",
        "MUTATES FILE:/old",
        "PROVIDES FILE:/sub/h",
        "MUTATES FILE:/old",
        "PROVIDES FILE:/sub/l",
        "PROVIDES OUTSIDE:/elsewhere/outside",
        "PROVIDES FILE:/sub/n%0A",
        "PROVIDES FILE:/sub/q%FF",
    ]


def test_where_nobody_knows_what_was_there_a_file_opened_for_writing_counts_as_changed(read):
    seen = told(read("shell", after_exec="bash"))
    assert seen[1] == "MUTATES FILE:/sub/a.txt"
    assert "PROVIDES FILE:/b" in seen  # RENAME_NOREPLACE says so


@pytest.mark.requirement("KO-2.1")
def test_every_process_that_is_started_is_seen(read):
    started = [one for one in told(read("shell", after_exec="bash"), processes=True) if "PROCESS" in one]
    names = ["mkdir", "cat", "mv", "touch", "rm", "ln", "chmod", "ln", "cat", "mkdir"]
    assert started == [f"PROVIDES PROCESS:{name}" for name in names]


@pytest.mark.parametrize(("after", "count"), [("", 2), ("env", 1), ("/usr/bin/env", 1), ("bash", 0), ("/bin/bash", 0)])
def test_what_comes_before_the_start_of_the_program_is_left_out(read, after, count):
    traced = read("shell", after_exec=after)
    before = [one for one in traced if one.call.startswith("execve") and one.pid == 9412]
    assert len(before) == count
    assert bool(traced) is (after != "/bin/bash")


def test_threads_share_their_working_directory_and_processes_inherit_it(read):
    assert told(read("threads", after_exec="python3", existed=lambda path: path.endswith(b"old"))) == [
        *["PROVIDES FILE:/t1", "MUTATES FILE:/t1", "MUTATES FILE:/t1"],
        "PROVIDES FILE:/sub/t2",
        "PROVIDES FILE:/sub/t3",
        "PROVIDES FILE:/t/t4",
        "CONSUMES FILE:/",
        "DELETES FILE:/t1",
        "MUTATES FILE:/old",
        "RENAMES FILE:/old",
        "PROVIDES FILE:/new",
    ]


@pytest.mark.requirement("KO-3")
def test_what_was_refused_is_told_as_blocked_and_what_failed_otherwise_is_not_told(read):
    traced = read("threads", after_exec="python3")
    blocked = [one for one in traced if one.is_blocked]
    assert [one.error for one in blocked] == ["EACCES", "EACCES"]
    assert [one.result for one in blocked] == [-1, -1]
    assert not any("nowhere" in one.call for one in traced)


def test_a_thread_that_starts_a_program_goes_on_as_its_process(read):
    assert read("threads", after_exec="python3")[-1].pid == 9896
    assert told(read("threads", after_exec="python3")[-1:], processes=True)[0] == "PROVIDES PROCESS:true"


@pytest.mark.requirement("KO-2.1")
def test_hosts_are_seen_by_the_address_that_was_called_and_not_by_what_was_sent(read):
    assert told(read("network")) == [
        "CONSUMES URL:tcp://127.0.0.1:9/",
        "CONSUMES URL:https://[::1]/",
        "MUTATES FILE:/a.sock",
        "MUTATES OUTSIDE:abstract socket abs",
        "CONSUMES URL:tcp://127.0.0.1:9/",
        "CONSUMES URL:tcp://127.0.0.1:7/",
        "CONSUMES URL:http://127.0.0.1/",
        "PROVIDES URL:tcp://127.0.0.1:8080/",
    ]
    assert [one.error for one in read("network") if one.is_blocked] == ["EACCES"]


def test_calls_that_were_cut_in_two_are_put_together(read):
    traced = read(
        [
            "1  clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>",
            '2  chdir("/w/sub" <unfinished ...>',
            '3  openat(AT_FDCWD</w>, "a, b) = 0", O_RDONLY <unfinished ...>',
            "2  <... chdir resumed>)              = 0",
            "1  <... clone resumed>, child_tidptr=0x7f) = 2",
            '2  mkdir("x", 0777 <unfinished ...>',
            "3  <... openat resumed>)             = 3</w/a, b) = 0>",
            "2  <... mkdir resumed>)              = 0",
            '1  mkdir("y", 0777)                  = 0',
            '4  unlink("z" <unfinished ...>',
            "4  +++ killed by SIGKILL +++",
            '5  unlink("z")                       = ? ERESTARTSYS (To be restarted if SA_RESTART is set)',
        ]
    )
    assert told(traced) == ["CONSUMES FILE:/a, b) = 0", "PROVIDES FILE:/sub/x", "PROVIDES FILE:/y"]


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ('open("/w/a", O_RDONLY) = 3', ["CONSUMES FILE:/a"]),
        ('open("/w/a", O_RDWR) = 3', ["MUTATES FILE:/a"]),
        ('open("/w", O_RDONLY|O_DIRECTORY) = 3', ["CONSUMES FILE:/"]),
        ('open("/w/a", O_RDONLY|O_PATH) = 3', []),
        ('open("/w", O_WRONLY|O_TMPFILE, 0600) = 3', []),
        ('open("/w/a", O_WRONLY|O_CREAT|O_EXCL, 0666) = 3', ["PROVIDES FILE:/a"]),
        ('creat("/w/a", 0666) = 3', ["MUTATES FILE:/a"]),
        ('openat(5</w/d>, "a", O_RDONLY) = 3</w/d/a>', ["CONSUMES FILE:/d/a"]),
        ('openat2(AT_FDCWD</w>, "a", {flags=O_WRONLY|O_APPEND, mode=0, resolve=0}, 24) = 3', ["MUTATES FILE:/a"]),
        ('openat(AT_FDCWD</w>, "link", O_WRONLY) = 3</w/real>', ["MUTATES FILE:/real"]),
        ('openat(AT_FDCWD</w>, "gone", O_RDONLY) = 3</w/gone>(deleted)', ["CONSUMES FILE:/gone"]),
        ('openat(AT_FDCWD</w>, "a", O_RDONLY) = 3</w/a> <0.000012>', ["CONSUMES FILE:/a"]),
        ('unlinkat(5</w/d>, "e", AT_REMOVEDIR) = 0', ["DELETES FILE:/d/e"]),
        ('rename("/w/a", "/w/b") = 0', ["RENAMES FILE:/a", "MUTATES FILE:/b"]),
        (
            'renameat2(AT_FDCWD</w>, "a", AT_FDCWD</w>, "b", RENAME_EXCHANGE) = 0',
            ["RENAMES FILE:/a", "RENAMES FILE:/b"],
        ),
        ('symlink("/elsewhere", "/w/l") = 0', ["PROVIDES FILE:/l"]),
        ('link("/w/a", "/w/b") = 0', ["MUTATES FILE:/a", "PROVIDES FILE:/b"]),
        ("ftruncate(3</w/a>, 0) = 0", ["MUTATES FILE:/a"]),
        ("fchmod(3<pipe:[5]>, 0600) = 0", []),
        ('lchown("/w/a", 0, 0) = 0', ["MUTATES FILE:/a"]),
        ('utimensat(AT_FDCWD</w>, "a", [UTIME_OMIT, UTIME_NOW], AT_SYMLINK_NOFOLLOW) = 0', ["MUTATES FILE:/a"]),
        ('setxattr("/w/a", "user.x", "y", 1, 0) = 0', ["MUTATES FILE:/a"]),
        ('mkdir("\\x2f\\167/\\"q\\"\\t\\\\", 0777) = 0', []),
        ('unlink("/w/.klock/x") = 0', ["DELETES OUTSIDE:{root}/.klock/x"]),
        ("unlink(0xdeadbeef) = -1 EFAULT (Bad address)", []),
        ("openat(AT_FDCWD</w>, NULL, O_RDONLY) = -1 EACCES (Permission denied)", []),
        ('unlink("/w/a") = -1 EPERM (Operation not permitted)', ["DELETES FILE:/a"]),
        ('mkdir("/w/a", 0777) = -1 EEXIST (File exists)', []),
        ("--- SIGCHLD {si_signo=SIGCHLD} ---", []),
        ('open("/w/a", O_RDONLY', []),
        ("open(", []),
        ("= 5", []),
        ("", []),
    ],
)
def test_one_line_is_read_as_what_it_did(read, workspace, line, seen):
    if "\\x2f" in line:
        seen = ['PROVIDES OUTSIDE:/w/"q"\\t\\']
    assert told(read([f"7  {line}"])) == [one.format(root=workspace.root) for one in seen]


@given(st.binary(max_size=30))
def test_any_bytes_of_a_name_come_back(name):
    escaped = "".join(f"\\x{byte:02x}" for byte in name)
    assert string(f'"{escaped}"') == name
    assert string(f'"{escaped}"...') is None
    assert descriptor_path(f"3</{escaped}>") == b"/" + name


@given(st.text(max_size=80))
def test_no_line_whatever_it_holds_is_too_much(line):
    for told_ in (line, f"7  {line}", f"7  open({line}", f"7  <... open resumed>{line}", f'7  open("{line}") = 0'):
        assert all(isinstance(one, SystemCall | ThreadExit) for one in Lines().read(told_))


def run_traced(script: str, folder: Path) -> tuple[int, list[str]]:
    """Run a script under strace; return its exit code and the trace."""
    source, target = os.pipe()
    lines: list[str] = []

    def collect() -> None:
        with os.fdopen(source, encoding="utf-8", errors="surrogateescape") as trace:
            lines.extend(trace)

    reader = threading.Thread(target=collect)
    reader.start()
    try:
        process = subprocess.Popen(command(["/bin/sh", "-c", script], target), cwd=folder)
        code = process.wait(PATIENCE_S)
    finally:
        os.close(target)
        reader.join(PATIENCE_S)
    return code, lines


@pytest.mark.requirement("KO-2.1", "KO-5.2")
def test_a_real_command_is_traced_with_its_own_exit_code_or_refused_where_strace_is_missing(workspace):
    root = workspace.root
    (root / "old").write_text("1")
    (root / "secret").write_text("1")
    if strace_path() is None:
        with pytest.raises(RefusedError) as caught:
            command(["true"], 1)
        assert caught.value.code == "NO_TRACER"
        return
    script = "cat old > new; mkdir d; cd d; mv ../new x; (cd ..; rm old); ls /proc/self/fd | wc -l > fds; exit 7"
    code, lines = run_traced(script, root)
    assert code == 7
    before = {os.fsencode(root / "old"), os.fsencode(root / "secret")}
    reader = TraceReader(
        Operations(workspace), after_exec="sh", cwd=workspace.root_bytes, existed=lambda path: path in before
    )
    seen = told(list(reader.feed(lines)))
    assert seen[:5] == [
        "PROVIDES FILE:/new",
        "CONSUMES FILE:/old",
        "PROVIDES FILE:/d",
        "RENAMES FILE:/new",
        "PROVIDES FILE:/d/x",
    ]
    assert "DELETES FILE:/old" in seen
    assert not any("secret" in one for one in seen)
    assert int((root / "d" / "fds").read_text()) == 4  # the trace itself is not inherited


def test_without_strace_a_trace_is_refused_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match="install it") as caught:
        command(["true"], 1)
    assert caught.value.code == "NO_TRACER"
