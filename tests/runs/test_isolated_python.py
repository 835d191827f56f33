"""Python code in a process of its own: it answers in JSON, and reaches nothing of the engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from host.confinement.descendants import MARK, RUN
from tests.cli.test_run_probes import CONFINED, SECLUDED
from tests.runs import isolated_code
from tests.runs.realm import a_workspace, opened, text_of
from tests.support.patience import PATIENCE_S
from world.errors import RefusedError, ScopeViolationError

pytestmark = pytest.mark.slow

BEFORE = {"notes.txt": "notes\n", "src/a.py": "one\n"}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_workspace(tmp_path)


def ran(folder: Path, code: Any, argument: Any = None, **how: Any) -> Any:
    """Run code for an agent that may change ``/src``; None where it cannot be confined, and is refused."""
    given = {"agent": "bot", "writes": ["/src/**"], "isolation": "process", **how}
    with opened(folder) as world:
        if not CONFINED:
            with pytest.raises(RefusedError) as refused:
                world.host.run_python(code, argument, **given)
            assert refused.value.code == "CONFINEMENT_UNAVAILABLE"
            return None
        return world.host.run_python(code, argument, **given)


def failed(folder: Path, code: str, **how: Any) -> str:
    """Run code that fails, and return what stopped it."""
    try:
        ran(folder, textwrap.dedent(code), **how)
    except (RefusedError, ScopeViolationError) as error:
        return f"{error.code} {error.message} {error.details.get('trace', '')}"
    assert not CONFINED
    return ""


@pytest.mark.requirement("KO-5.2", "KO-4")
def test_a_text_and_a_function_answer_from_a_confined_process(tmp_path: Path, root: Path) -> None:
    text = "import os\ndef main(given):\n    print('said')\n    return [os.getpid(), given]\n"
    done = ran(tmp_path, text, {"n": 1})
    if done is None:
        return
    assert (done.value[0] != os.getpid(), done.value[1]) == (True, {"n": 1})
    assert (done.outcome, done.output, done.isolation) == ("completed", "said\n", "process")
    assert ran(tmp_path, isolated_code.count, [3, 4]).value == 7
    assert ran(tmp_path, isolated_code.count_later, [3, 4]).value == 7
    assert ran(tmp_path, isolated_code.write, "two\n").value == 4
    assert text_of(root) == {**BEFORE, "src/a.py": "two\n"}
    with opened(tmp_path) as world:
        told = world.host.verification(done.run_id).to_wire()
    assert ("namespaces" in told["heldBy"]) is SECLUDED
    assert told["heldBy"][-2:] == ["seccomp watcher", "content"]
    assert (told["kind"], told["command"][0]) == ("python", "python")
    assert told["command"][1].startswith("sha256:")


@pytest.mark.requirement("KO-5.2")
def test_what_is_not_trusted_gets_a_process_unless_it_is_said_otherwise(tmp_path: Path, root: Path) -> None:
    text = "import os\ndef main(_): return os.getpid()"
    with opened(tmp_path) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.register("bot", "agent", binding={"kind": "auto_approve"})
        cases: list[tuple[str, Any, str | None, bool]] = [
            ("ann", isolated_code.pid, None, True),
            ("ann", text, None, False),
            ("bot", isolated_code.pid, None, False),
            ("unknown", isolated_code.pid, None, False),
            ("bot", isolated_code.pid, "thread", True),
            ("ann", isolated_code.pid, "process", False),
            ("ann", text, "thread", True),
        ]
        for agent, code, isolation, is_here in cases:
            given: Any = {"agent": agent, "reads": ["/notes.txt"], "isolation": isolation}
            if not CONFINED and not is_here:
                with pytest.raises(RefusedError, match="confine"):
                    world.host.run_python(code, **given)
            else:
                done = world.host.run_python(code, **given)
                assert (done.value == os.getpid(), done.isolation == "thread") == (is_here, is_here)


def test_what_a_child_cannot_find_again_is_refused(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        codes: list[Any] = [lambda _: None, len, Path(".").exists]
        for code in codes:
            with pytest.raises(RefusedError) as refused:
                world.host.run_python(code, agent="bot", reads=["/notes.txt"])
            assert refused.value.code == "INVALID_VALUE"
        assert not world.realm().klis.leases


def test_code_that_raises_is_undone_and_says_why(tmp_path: Path, root: Path) -> None:
    code = """
        def main(_):
            print("on the way")
            open("src/a.py", "w").write("half")
            raise KeyError("missing")
    """
    told = failed(tmp_path, code)
    assert not CONFINED or ("PYTHON_FAILED" in told, "KeyError: 'missing'" in told) == (True, True), told
    assert text_of(root) == BEFORE


ANSWERS = {
    "no JSON": ("def main(_): return object()", "not JSON serializable"),
    "not a number": ("def main(_): return float('nan')", "not JSON compliant"),
    "no answer": ("import os\ndef main(_): os._exit(0)", "without an answer"),
    "killed": ("import os\ndef main(_): os.kill(os.getpid(), 9)", "signal 9"),
    "a false answer": ("import os\ndef main(_):\n    os.write(3, b'{\"raised\": 1}'); os._exit(0)", "PYTHON_FAILED"),
    "too long": ("def main(_): return 'x' * (1 << 21)", "longer than 1048576 bytes"),
    "too slow": ("while True: pass", "timed out"),
}


@pytest.mark.parametrize("how", ANSWERS)
def test_whatever_is_no_answer_is_a_failure(tmp_path: Path, root: Path, how: str) -> None:
    code, told = ANSWERS[how]
    limit = {"timeout_ms": 1_000} if how == "too slow" else {}
    said = failed(tmp_path, code, **limit)
    assert not CONFINED or (said.startswith("PYTHON_FAILED"), told in said) == (True, True), said


PROBES = {
    "kill of the engine": "os.kill({engine}, 9)",
    "signal to its group": "os.killpg({group}, 9)",
    "memory of the engine": "return open('/proc/{engine}/environ').read()",
    "the log": "return repr(open({log!r}, 'rb').read())",
    "the folder of the realm": "return open({config!r}).read()",
    "the engine's notes": "return repr(open('.klock/scan-cache', 'rb').read())",
    "write": "open('notes.txt', 'w')",
    "write by ctypes": "assert ctypes.CDLL(None).open(b'notes.txt', 0o1001) >= 0",
    "write by a raw system call": "assert ctypes.CDLL(None).syscall(257, -100, b'notes.txt', 0o1001, 0) >= 0",
    "atexit": "atexit.register(lambda: open('notes.txt', 'w'))",
    "__del__": "sys.modules['json'].kept = Late()",
    "thread": "threading.Thread(target=lambda: open('notes.txt', 'w')).start()",
    "daemon": "os.fork() or (os.setsid(), open('notes.txt', 'w'))",
    "readline": "importlib.import_module('readline').write_history_file('notes.txt')",
}


@pytest.mark.requirement("KO-3", "KO-5.2")
@pytest.mark.parametrize("how", PROBES)
def test_code_in_a_process_of_its_own_reaches_nothing_that_it_did_not_declare(
    tmp_path: Path, root: Path, how: str
) -> None:
    config = tmp_path / "world.toml"
    config.write_text("SECRET")
    names = {"engine": os.getpid(), "group": os.getpgrp(), "log": str(tmp_path / "log.db"), "config": str(config)}
    code = f"""
import atexit, ctypes, importlib, os, threading, sys
class Late:
    def __del__(self, open=open): open('notes.txt', 'w')
def main(_):
    {PROBES[how].format(**names)}
"""
    said, value = "", None
    try:
        value = getattr(ran(tmp_path, code), "value", None)
    except (RefusedError, ScopeViolationError) as error:
        said = f"{error.code} {error.message} {error.details}"
    assert text_of(root) == BEFORE
    assert "SECRET" not in said + str(value)
    assert not CONFINED or said.startswith(("KLIS_SCOPE_VIOLATION", "PYTHON_FAILED")), (said, value)


@pytest.mark.requirement("KO-5.2")
def test_the_environment_of_the_child_is_its_own(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "SECRET")
    done = ran(tmp_path, "import os\ndef main(_): return sorted(os.environ)")
    ours = {"LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "TMPDIR", MARK, RUN}
    assert done is None or set(done.value) == ours


@pytest.mark.requirement("KO-5.2")
def test_no_descriptor_of_the_engine_is_open_in_the_child(tmp_path: Path, root: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    code = """
import os
def main(_):
    found = []
    for number in range(3, 512):
        try: found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError: pass
    return found
"""
    with secret.open() as held:
        os.set_inheritable(held.fileno(), True)
        done = ran(tmp_path, code)
    assert done is None or all(name.startswith("pipe:") for name in done.value), done.value


INTERRUPTED = """
import os, sys
from pathlib import Path
from tests.runs.realm import opened
CODE = '''
import os, signal, time
def main(_):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    open("src/a.py", "w").write("half")
    open("src/ready", "w").close()
    time.sleep(600)
'''
with opened(Path(sys.argv[1])) as world:
    world.host.run_python(CODE, agent="bot", writes=["/src/**"])
"""


def waits(path: Path, running: subprocess.Popen[str]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.requirement("KO-3.3")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_that_ends_the_engine_ends_the_child_and_what_it_did_is_undone(
    tmp_path: Path, root: Path, how: signal.Signals
) -> None:
    if not CONFINED:
        return
    with opened(tmp_path):
        pass
    argv = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as running:
        waits(root / "src" / "ready", running)
        running.send_signal(how)
        _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == -how, err
    assert ("KeyboardInterrupt" in err) is (how == signal.SIGINT)
    with opened(tmp_path) as world:
        world.host.recover()
        (run,) = world.host.runs()
        assert run.outcome == ("interrupted" if how == signal.SIGKILL else "failed")
    assert not list(Path(tempfile.gettempdir()).glob(f"worldprotocol-{run.opened.run_id}-*"))
    assert text_of(root) == BEFORE
