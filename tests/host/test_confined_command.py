"""A confined command is a command like any other, and leaves nobody behind."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import threading
from pathlib import Path

import psutil
import pytest

from host.confinement import namespaces
from tests.host.confining import PYTHON, Ground, allow, can_hold, ground
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

__all__ = ["ground"]

ROOT = Path(__file__).parents[2]
HELD = allow if can_hold(None, allow) else None
"""What decides, where calls can be watched; the same is tried without."""


def line(stream) -> str:
    """Read one line that a command wrote, or fail."""
    assert select.select([stream], [], [], PATIENCE_S)[0]
    return stream.readline().decode().strip()


def gone(pid: int) -> bool:
    """Tell whether a process has ended, waited for or not."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# Exactly what was declared: Landlock and the watcher together


@pytest.mark.requirement("KO-3", "KO-5.2")
@pytest.mark.parametrize(
    ("declared", "code", "left"),
    [
        ("DELETES /a.txt", "rm a.txt; rm b.txt; mv b.txt c.txt; echo x > b.txt", {"b.txt": "before", "d/e": "before"}),
        ("PROVIDES /c.txt", "echo x > c.txt; echo x > d/x; echo x > b.txt; rm a.txt; mkdir y",
         {"a.txt": "before", "b.txt": "before", "c.txt": "x\n", "d/e": "before"}),
        ("MUTATES /a.txt", "echo x > a.txt; chmod 700 a.txt; chmod 777 b.txt; touch b.txt c.txt; ln a.txt h",
         {"a.txt": "x\n", "b.txt": "before", "d/e": "before"}),
        ("RENAMES /a.txt PROVIDES /d/a", "mv a.txt d/a; mv b.txt d/b; mv d/e e",
         {"b.txt": "before", "d/a": "before", "d/e": "before"}),
    ],
)  # fmt: skip
def test_single_names_are_held_exactly(ground, declared, code, left):
    for name in ("a.txt", "b.txt", "d/e"):
        ground.file(name)
    before = os.stat(ground.root / "b.txt")
    told = declared.replace(" PROVIDES", "|PROVIDES").split("|")
    ended = ground.shell(code, *told, decide="declared")
    if ended is not None:
        files = {str(path.relative_to(ground.root)): path for path in ground.root.rglob("*") if path.is_file()}
        assert {name: path.read_text() for name, path in files.items()} == left
        after = os.stat(ground.root / "b.txt")
        assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


@pytest.mark.requirement("KO-5.2")
def test_an_editor_saves_atomically_and_touches_nothing_else(ground):
    ground.file("src/a.py")
    ground.file("other.py")
    code = "sed -i s/before/after/ src/a.py && ! sed -i s/before/after/ other.py"
    ended = ground.shell(code, "MUTATES /src/*", "RENAMES /src/*", "CONSUMES /other.py", decide="declared")
    if ended is not None:
        assert ended.code == 0
        assert (ground.root / "src/a.py").read_text() == "after"
        assert (ground.root / "other.py").read_text() == "before"
        assert sorted(os.listdir(ground.root)) == ["other.py", "src"]


def test_threads_and_children_are_held_too(ground):
    ground.file("in/f")
    code = """
import os, threading
def work():
    open(f'in/{threading.get_native_id()}', 'x').close()
    try: open(f'out{threading.get_native_id()}', 'x')
    except PermissionError: print('denied', flush=True)
def both():
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
if os.fork() == 0:
    os.setsid(); both(); os._exit(0)
both(); os.wait()
"""
    ended = ground.run([PYTHON, "-I", "-c", code], "PROVIDES /in/*", decide="declared")
    if ended is not None:
        assert (ended.code, ended.err) == (0, "")
        assert ended.out == "denied\n" * 6
        assert len(os.listdir(ground.root / "in")) == 7
        assert os.listdir(ground.root) == ["in"]


# Its life


def test_waiting_has_an_end(ground):
    with ground.start(["/bin/sleep", "600"], decide=HELD) as command:
        assert command.returncode is None
        with pytest.raises(TimeoutError):
            command.wait(0)
        command.send_signal(signal.SIGTERM)
        assert command.wait(PATIENCE_S) == -signal.SIGTERM
        assert command.wait() == command.returncode == -signal.SIGTERM
        command.send_signal(signal.SIGTERM)


def test_many_may_wait(ground):
    codes: list[int] = []
    with ground.start(["/bin/sh", "-c", "read x; exit 3"], stdin=-1, decide=HELD) as command:
        threads = [threading.Thread(target=lambda: codes.append(command.wait())) for _ in range(4)]
        for thread in threads:
            thread.start()
        command.streams[0].close()
        for thread in threads:
            thread.join()
    assert codes == [3] * 4


def test_a_signal_reaches_the_whole_group(ground):
    code = "trap 'echo parent; exit 0' TERM; sh -c 'trap \"echo child; exit 0\" TERM; echo on; read x' & wait"
    with ground.start(["/bin/sh", "-c", code], stdin=-1, stdout=-1, decide=HELD) as command:
        out = command.streams[1]
        assert line(out) in ("on", "")
        command.send_signal(signal.SIGTERM)
        assert command.wait(PATIENCE_S) == 0


ESCAPES = {
    "stays": "work()",
    "own group": "os.setpgid(0, 0); work()",
    "own session": "os.setsid(); work()",
    "daemon": """
os.setsid()
if os.fork(): os._exit(0)
os.setsid(); work()""",
    "forgets its environment": """
os.setsid()
if os.fork(): os._exit(0)
told = 'import os, time; os.write(1, b"%d\\\\n" % os.getpid()); time.sleep(600)'
os.execve(sys.executable, ['python', '-I', '-S', '-c', told], {})
""",
}


@pytest.mark.requirement("KO-3.2a")
@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("decide", [HELD, None], ids=["watched", "free"])
def test_nobody_is_left_when_the_command_is_killed(ground, escape, decide):
    if escape.startswith("forgets") and decide is None:
        escape = "daemon"  # without a watcher and without its mark nobody can tell whose it was
    code = f"""
import os, sys, time
def work():
    os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)
if os.fork() == 0:
    {ESCAPES[escape].strip().replace(chr(10), chr(10) + "    ")}
time.sleep(600)
"""
    with ground.start([PYTHON, "-I", "-S", "-c", code], stdout=-1, decide=decide) as command:
        pid = int(line(command.streams[1]))
        assert {pid, command.pid} <= command.descendants()
        assert command.kill_group()
        assert command.wait(PATIENCE_S) == -signal.SIGKILL
        assert gone(pid)


def test_closing_ends_what_the_command_left_behind(ground):
    code = "import os, time\nif os.fork() == 0: os.setsid(); print(os.getpid(), flush=True); time.sleep(600)"
    others = {child.pid for child in psutil.Process().children()}
    command = ground.start([PYTHON, "-I", "-S", "-c", code], stdout=-1, decide=HELD)
    pid = int(line(command.streams[1]))
    assert command.wait(PATIENCE_S) == 0
    assert not gone(pid)
    command.close()
    command.close()
    assert gone(pid)
    assert command.returncode == 0
    assert command.kill_group()
    assert {child.pid for child in psutil.Process().children()} <= others  # also none that nobody waited for


def test_a_storm_of_processes_is_put_out(ground):
    code = "import os, time\nos.write(1, b'on\\n')\nfor _ in range(7): os.fork()\ntime.sleep(600)"
    with ground.start([PYTHON, "-I", "-S", "-c", code], stdout=-1, decide=HELD) as command:
        assert line(command.streams[1]) == "on"
        assert command.kill_group()
        assert command.descendants() == set()


def test_a_group_of_somebody_else_is_not_entered(ground):
    code = f"import os; os.setpgid(0, {os.getpgrp()}); print('entered')"
    ended = ground.python(code, rules=None, decide=allow)
    if ended is not None:
        assert "PermissionError" in ended.err
        assert ended.out == ""


def test_others_with_the_supervisor_are_left_alone(ground):
    with ground.start(["/bin/sleep", "600"]) as other:
        with ground.start(["/bin/sleep", "600"], decide=HELD) as command:
            assert command.kill_group()
        assert other.returncode is None


def test_commands_run_side_by_side(ground):
    commands = [
        ground.start(["/bin/sh", "-c", f"cat /etc/hostname >/dev/null; exit {code}"], decide=HELD) for code in range(8)
    ]
    assert [command.wait(PATIENCE_S) for command in commands] == list(range(8))
    for command in commands:
        command.close()


# At a terminal

SUPERVISOR = """
import os, sys, json
sys.path[:0] = json.loads(sys.argv[1])
from host.confinement import Confinement, Runtime, start
from host.confinement.tree import tree_of
maker = sys.argv[2] or None
walls = {'tree': tree_of(Runtime.standard(), network=False), 'namespaces_by': maker} if maker else {}
with start(sys.argv[3:], cwd='/', env=dict(os.environ), confinement=Confinement(**walls)) as command:
    code = command.wait()
    back = os.tcgetpgrp(0) == os.getpgrp()
print('ended', code, back, flush=True)
"""


class Shell:
    """What a user sees: a supervisor at a terminal of its own, as the shell's job."""

    def __init__(self, maker: str, *argv: str) -> None:
        import json

        path = json.dumps([str(ROOT), *sys.path])
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execv(PYTHON, [PYTHON, "-c", SUPERVISOR, path, maker, *argv])
        self.seen = b""

    def until(self, text: bytes) -> None:
        while text not in self.seen:
            assert select.select([self.terminal], [], [], PATIENCE_S)[0], self.seen
            self.seen += os.read(self.terminal, 4096)

    def type(self, text: bytes) -> None:
        os.write(self.terminal, text)

    def close(self) -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.terminal)
        return code


BOTH: list[namespaces.Maker] = ["unshare", "bubblewrap"]
MAKERS = ["", *(maker for maker in BOTH if namespaces.available(maker).why_not is None)]
"""What makes namespaces on this machine; none is tried first."""


@pytest.mark.parametrize("maker", MAKERS)
def test_the_terminal_is_the_commands_and_comes_back(maker):
    shell = Shell(maker, "/bin/sh", "-c", "read line; echo got $line; exit 3")
    shell.type(b"words\n")
    shell.until(b"got words")
    shell.until(b"ended 3 True")
    assert shell.close() == 0


@pytest.mark.parametrize("maker", MAKERS)
def test_ctrl_c_is_for_the_command_alone(maker):
    shell = Shell(maker, "/bin/sh", "-c", "echo on; exec sleep 600")
    shell.until(b"on")
    shell.type(b"\x03")
    shell.until(b"ended -2 True")
    assert shell.close() == 0


@pytest.mark.parametrize("maker", MAKERS)
def test_ctrl_z_stops_both_and_they_go_on_together(maker):
    shell = Shell(maker, "/bin/sh", "-c", "echo on; read line; echo got $line")
    shell.until(b"on")
    shell.type(b"\x1a")
    _, status = os.waitpid(shell.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(shell.pid, signal.SIGCONT)
    shell.type(b"more\n")
    shell.until(b"got more")
    shell.until(b"ended 0 True")
    assert shell.close() == 0


def test_without_a_terminal_nothing_is_lent(ground):
    assert isinstance(ground, Ground)
    with ground.start(["/bin/cat"], stdin=-3) as command:
        assert command.wait(PATIENCE_S) == 0
