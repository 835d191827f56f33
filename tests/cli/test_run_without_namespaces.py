"""Governed commands where the kernel makes no namespaces: Landlock and the watcher hold, and the record says so."""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cli.forked import run
from tests.cli.inside import Inside
from tests.cli.realm import CliRealm, Said, environment
from tests.cli.test_run_namespaces import record
from tests.cli.test_run_probes import (
    CONFINED,
    CRASH,
    PYTHON,
    REFUSED,
    VIOLATED,
    listening,
    secret,
    shape,
    template,
)
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

__all__ = ["secret", "template"]


@pytest.fixture
def realm(template: Path, tmp_path: Path) -> CliRealm:
    folder = tmp_path / "realm"
    shutil.copytree(template, folder)
    return Inside(folder)


KEPT_CAPABILITIES = 0x5FB
"""Owners, modes, signals, users, low ports."""

SCRIPT = str(Path(__file__).with_name("without_namespaces.py"))


def worldctl(realm: CliRealm, *words: str) -> Said:
    """Run ``worldctl`` where no namespaces can be made."""
    where = (sys.executable, SCRIPT)
    code, out, err = run([*words], realm.folder, environment(), time_limit=PATIENCE_S, before=where)
    return Said(code, out.decode(), err.decode())


def attempt(realm: CliRealm, code: str, *words: str) -> Said:
    """Run Python code as a governed command there."""
    said = worldctl(realm, "run", "--agent", "eve", *words, "--", PYTHON, "-I", "-S", "-c", code)
    assert said.code in ((0, 1, VIOLATED) if CONFINED else (REFUSED,)), (said.out, said.err)
    return said


@pytest.mark.requirement("KO-4", "KO-5.2")
def test_the_record_says_which_walls_held_and_the_check_says_why(realm: CliRealm) -> None:
    said = attempt(realm, "print(open('a.txt').read())", "--reads", "a.txt")
    checked = worldctl(realm, "doctor")
    if CONFINED:
        assert (said.code, said.out) == (0, "declared\n\n"), said.err
        held_by = record(realm)["heldBy"]
        assert "namespaces" not in held_by
        assert [one.split()[0] for one in held_by] == ["landlock", "seccomp", "content"]
        assert "The kernel forbids this user to create namespaces: making namespaces failed" in checked.out, checked


@pytest.mark.requirement("KO-5.2")
def test_who_requires_namespaces_is_refused_with_the_reason(realm: CliRealm) -> None:
    words = ("run", "--agent", "eve", "--reads", "a.txt", "--require")
    said = worldctl(realm, *words, "namespaces", "--", "true")
    assert said.code == REFUSED
    if CONFINED:
        assert "[CONFINEMENT_UNAVAILABLE]" in said.err
        assert "would not be confined by namespaces" in said.err
        assert "The kernel forbids this user to create namespaces" in said.err
    assert worldctl(realm, *words, "landlock", "--", "true").code == (0 if CONFINED else REFUSED)


PROBES: dict[str, str] = {
    "read": "print(open(TARGET).read())",
    "write": "open(TARGET, 'w')",
    "delete": "os.remove(TARGET)",
    "rename": "os.rename(TARGET, TARGET + '2')",
    "link": "os.link(TARGET, 'd/link')",
    "make": "open(os.path.dirname(TARGET) + '/new', 'x')",
    "chmod": "os.chmod(TARGET, 0o777)",
    "chown": "os.chown(TARGET, os.getuid(), os.getgid())",
    "utime": "os.utime(TARGET, (1, 1))",
    "setxattr": "os.setxattr(TARGET, 'user.eve', b'x')",
    "chmod by a link": "os.symlink(TARGET, 'd/link'); os.chmod('d/link', 0o777)",
    "read by ctypes": "import ctypes; assert ctypes.CDLL(None).open(TARGET.encode(), 0) >= 0",
    "write by a raw system call": "import ctypes; assert ctypes.CDLL(None).syscall(257, -100, TARGET.encode(), 1) >= 0",
}


@pytest.mark.requirement("KO-3", "KO-5.2")
@pytest.mark.parametrize(
    "how", [how if how in ("read", "write") else pytest.param(how, marks=pytest.mark.slow) for how in PROBES]
)
def test_nothing_undeclared_is_done_to_files(realm: CliRealm, secret: Path, how: str) -> None:
    (realm.folder / "d").mkdir()
    before, there = shape(secret), sorted(secret.parent.iterdir())
    code = f"import os\nTARGET = {str(secret)!r}\n{PROBES[how]}"
    said = attempt(realm, code, "--writes", "d/**")
    assert (shape(secret), sorted(secret.parent.iterdir())) == (before, there)
    assert "SECRET" not in said.out
    if CONFINED:
        assert (said.code, "lies outside of the workspace" in said.err) == (VIOLATED, True), said.err
        assert record(realm)["violations"][0]["blocked"]


@pytest.mark.requirement("KO-3", "KO-5.2")
@pytest.mark.parametrize("name", ["world.db", ".klock/scan-cache", "other.txt"])
def test_the_engines_files_and_undeclared_ones_of_the_workspace_are_not_read(realm: CliRealm, name: str) -> None:
    said = attempt(realm, f"print(open({name!r}, 'rb').read())", "--reads", "a.txt")
    assert not CONFINED or (said.code, said.out) == (VIOLATED, ""), said


@pytest.mark.requirement("KO-3", "KO-5.2")
def test_no_daemon_behind_a_socket_is_talked_to(realm: CliRealm, secret: Path) -> None:
    door = secret.parent / "s"
    abstract = f"\\0worldprotocol-{os.getpid()}"
    with listening(secret.parent) as daemon, socket.socket(socket.AF_UNIX) as nameless:
        nameless.bind(abstract.replace("\\0", "\0"))
        nameless.listen()
        nameless.setblocking(False)
        for address in (str(door), abstract):
            said = attempt(realm, f"import _socket; _socket.socket(1, 1).connect('{address}')", "--reads", "a.txt")
            assert not CONFINED or said.code == VIOLATED, said.err
        for one in (daemon, nameless):
            with pytest.raises(BlockingIOError):
                one.accept()


@pytest.mark.requirement("KO-3", "KO-5.2")
def test_no_connection_is_made_without_a_declared_url(realm: CliRealm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as serving, socket.socket(type=socket.SOCK_DGRAM) as hearing:
        serving.setblocking(False)
        hearing.bind(("127.0.0.1", 0))
        hearing.setblocking(False)
        tcp = f"_socket.socket(2, 1).connect(('127.0.0.1', {serving.getsockname()[1]}))"
        udp = f"_socket.socket(2, 2).sendto(b'x', ('127.0.0.1', {hearing.getsockname()[1]}))"
        for call in (tcp, udp):
            said = attempt(realm, f"import _socket; {call}", "--reads", "a.txt")
            assert not CONFINED or said.code == VIOLATED, said.err
        with pytest.raises(BlockingIOError):
            serving.accept()
        with pytest.raises(BlockingIOError):
            hearing.recv(1)


@pytest.mark.requirement("KO-5.2")
def test_no_other_process_is_reached(realm: CliRealm) -> None:
    with subprocess.Popen(["/bin/sleep", "600"], env={"TOKEN": "SECRET"}, start_new_session=True) as other:
        try:
            before = os.getpriority(os.PRIO_PROCESS, other.pid)
            code = f"""
import os, resource, signal
for how in (lambda: os.kill({other.pid}, 9), lambda: os.killpg({other.pid}, 9), lambda: os.kill(-1, 0) or 1 / 0,
            lambda: signal.pidfd_send_signal(os.pidfd_open({other.pid}), 9),
            lambda: os.setpriority(os.PRIO_PROCESS, {other.pid}, 19), lambda: os.sched_setaffinity({other.pid}, [0]),
            lambda: resource.prlimit({other.pid}, resource.RLIMIT_CORE, (0, 0))):
    try: print(how())
    except (OSError, ArithmeticError) as error: print(type(error).__name__)
"""
            said = attempt(realm, code, "--reads", "a.txt")
            assert other.poll() is None, (said.out, said.err)
            assert os.getpriority(os.PRIO_PROCESS, other.pid) == before
            read = attempt(realm, f"print(open('/proc/{other.pid}/environ').read())", "--reads", "a.txt")
            assert "SECRET" not in read.out
        finally:
            other.kill()


@pytest.mark.requirement("KO-5.2")
def test_a_daemon_ends_with_its_command(realm: CliRealm) -> None:
    code = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.read(os.pipe()[0], 1)
    os._exit(0)
os.wait()
"""
    said = attempt(realm, code, "--reads", "a.txt")
    if CONFINED:
        with contextlib.suppress(psutil.NoSuchProcess):  # the machine's first process may not have waited for it yet
            assert psutil.Process(int(said.out)).status() == psutil.STATUS_ZOMBIE


@pytest.mark.requirement("KO-5.2", "KO-3")
def test_python_code_in_a_process_of_its_own_is_held_there_too(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from tests.runs.realm import a_workspace, opened
from world.errors import RefusedError, ScopeViolationError
folder = Path(sys.argv[1])
a_workspace(folder)
WRITES = "import ctypes\\ndef main(_): return ctypes.CDLL(None).open(b'notes.txt', 0o1001)"
CODES = ["def main(n): return n + 1", WRITES]
with opened(folder) as world:
    for code in CODES:
        try:
            done = world.host.run_python(code, 1, agent="bot", writes=["/src/**"])
            print(done.value, world.host.verification(done.run_id).to_wire()["heldBy"][0].split()[0])
        except (RefusedError, ScopeViolationError) as error:
            print(error.code)
print((folder / "w" / "notes.txt").read_text(), end="")
"""
    argv = [sys.executable, SCRIPT, sys.executable, "-c", program, str(tmp_path)]
    root = Path(__file__).parents[2]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    told = ["2 landlock", "KLIS_SCOPE_VIOLATION"] if CONFINED else ["CONFINEMENT_UNAVAILABLE"] * 2
    assert done.stdout.splitlines() == [*told, "notes"], done.stderr


@pytest.mark.requirement("KO-5.2")
def test_of_roots_capabilities_a_few_are_left_without_namespaces_too(realm: CliRealm) -> None:
    code = "print([line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapPrm', 'CapEff'))])"
    said = attempt(realm, code, "--reads", "a.txt")
    if CONFINED:
        held = [int(one, 16) for one in ast.literal_eval(said.out)]
        assert [one & ~KEPT_CAPABILITIES for one in held] == [0, 0]


@pytest.mark.requirement("KO-3", "KO-5.2")
def test_no_memory_is_written_when_a_process_crashes_without_namespaces_either(realm: CliRealm) -> None:
    said = attempt(realm, CRASH, "--writes", "copy.yaml")
    assert [name for name in os.listdir(realm.folder) if name.startswith("core")] == []
    assert not CONFINED or (said.code, said.out) == (0, "6 False\n"), said.err
