"""What a session defers to a time after its end (exit, finalizers, signals) can do nothing observable any more."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from host.observation import audit, library_wrappers
from host.observation.audit import exempt
from tests.host.intercepting import Site, blocked, outcome
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
STOPPED = "KLIS_SCOPE_VIOLATION"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.chdir(made.root)
    return made


def program(site: Site, body: str, after: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in a session that may write below the workspace, in an interpreter of its own, to its exit."""
    text = f"""
import atexit, os, sys, weakref
from pathlib import Path
from host.observation import Operations, Watch
from host.observation.audit import Interception
from host.workspace import Workspace
from world.klis.observation import Declaration
from world.klis.triple import read_triple
declared = [read_triple("MUTATES", "FILE:/*")]
LATE = {str(site.root / "late")!r}
with Interception(Watch(Declaration("a", "s", declared)), Operations(Workspace({str(site.root)!r}))):
    exec({body!r})
{after}
print("end")
"""
    run = [sys.executable, "-c", text]
    return subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


AT_EXIT = {
    "atexit of own code": "atexit.register(lambda: open(LATE, 'w'))",
    "atexit of a library's function": "atexit.register(Path(LATE).touch)",
    "weakref.finalize": "class Thing: pass\nsys.kept = Thing()\nweakref.finalize(sys.kept, Path(LATE).touch)",
    "__del__": "class Late:\n    def __del__(self, open=open, late=LATE): open(late, 'w')\nkept = Late()",
    "a library's registry": "import threading\nthreading._register_atexit(Path(LATE).touch)",
}


@pytest.mark.requirement("KO-2.1", "KO-3")
@pytest.mark.parametrize("how", AT_EXIT)
@pytest.mark.slow
def test_what_is_deferred_to_the_exit_of_the_interpreter_writes_nothing(site: Site, how: str) -> None:
    done = program(site, AT_EXIT[how])
    assert done.stdout == "end\n", done.stderr
    assert not (site.root / "late").exists()
    assert "its session has ended" in done.stderr


@pytest.mark.requirement("KO-3")
@pytest.mark.slow
def test_what_cannot_be_checked_at_the_exit_of_the_interpreter_is_stopped(site: Site) -> None:
    done = program(site, AT_EXIT["__del__"], "from world.klis.observation import Seen\nSeen.claim = None")
    assert done.stdout == "end\n", done.stderr
    assert not (site.root / "late").exists()
    assert "could not be checked and was stopped" in done.stderr


def test_what_was_registered_may_be_taken_back(site: Site) -> None:
    done = program(site, "def late(): open(LATE, 'w')\natexit.register(late)\natexit.unregister(late)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_what_the_engine_registers_runs(site: Site) -> None:
    done = program(site, "import multiprocessing.util, tempfile", "atexit.register(Path(LATE).touch)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
    assert (site.root / "late").exists()


LOADED = """
class Late:
    def __del__(self):
        said.append(write())
def forever():
    try:
        yield
    finally:
        said.append(write())
"""


def loaded_by_exec(site: Site, names: dict[str, Any]) -> None:
    exec(LOADED, names)


def loaded_by_path(site: Site, names: dict[str, Any]) -> None:
    names |= runpy.run_path("code.py", names)


def loaded_by_import(site: Site, names: dict[str, Any]) -> None:
    module = importlib.import_module("agent_deferring")
    vars(module).update(names)
    names |= vars(module)


@pytest.mark.requirement("KO-2.1", "KO-3")
@pytest.mark.parametrize("load", [loaded_by_exec, loaded_by_path, loaded_by_import])
@pytest.mark.slow
def test_code_that_a_session_loaded_belongs_to_it_after_its_end_whoever_runs_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, load: Callable[[Site, dict[str, Any]], None]
) -> None:
    monkeypatch.syspath_prepend(str(site.root))
    for name in ("code.py", "agent_deferring.py"):
        Path(name).write_text(LOADED)
    said: list[str] = []
    names: dict[str, Any] = {"said": said, "write": lambda: outcome(lambda: Path("made").write_text("x"))}
    with site.session("CONSUMES /code.py", "CONSUMES /agent_deferring.py", "PROVIDES /made"):
        load(site, names)
        kept, going = [names["Late"]()], names["forever"]()
        next(going)
    kept.clear()
    going.close()
    thread = threading.Thread(target=lambda: names["Late"]())
    thread.start()
    thread.join(PATIENCE_S)
    gc.collect()
    assert said == [STOPPED] * 3
    assert not Path("made").exists()
    sys.modules.pop("agent_deferring", None)


def test_a_finalizer_runs_as_its_sessions_also_where_the_engine_is_at_work(site: Site) -> None:
    class Thing:
        pass

    said: list[str] = []
    with site.session("MUTATES /dir/*"):
        kept: list[Any] = [Thing()]
        weakref.finalize(kept[0], lambda: said.append(outcome(lambda: Path("made").write_text("x"))))
        with exempt():
            kept.clear()
    assert said == [STOPPED]
    assert not Path("made").exists()


def test_a_signal_handler_of_a_session_belongs_to_it(site: Site) -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with site.session("PROVIDES /made"):
            signal.signal(signal.SIGUSR1, lambda *_: said.append(outcome(lambda: Path("made").write_text("x"))))
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert said == [STOPPED]
    assert not Path("made").exists()


def test_what_others_load_and_register_is_nobodys(site: Site) -> None:
    names: dict[str, Any] = {"said": [], "write": lambda: outcome(lambda: Path("made").write_text("x"))}
    with site.session(), exempt():
        exec(LOADED, names)
        atexit.register(names["write"])
    names["Late"]()
    atexit.unregister(names["write"])
    gc.collect()
    assert names["said"] == ["done"]


# The readline library opens its files itself


@pytest.fixture
def readline() -> types.ModuleType:
    return importlib.import_module("readline")


@pytest.mark.requirement("KO-2.1", "KO-3")
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda readline: readline.write_history_file("made"), "PROVIDES on /made"),
        (lambda readline: readline.append_history_file(0, "a.txt"), "MUTATES on /a.txt"),
        (lambda readline: readline.read_history_file("a.txt"), "CONSUMES on /a.txt"),
        (lambda readline: readline.read_init_file("a.txt"), "CONSUMES on /a.txt"),
    ],
)
def test_files_of_readline_are_seen(site: Site, readline: Any, call: Callable[[Any], Any], told: str) -> None:
    before = site.content()
    with blocked(told), site.session("DEPENDS_ON /nothing"):
        call(readline)
    assert site.content() == before


@pytest.mark.slow
def test_files_of_readline_are_seen_where_the_session_loads_it(site: Site) -> None:
    done = program(site, "import readline\nsys.kept = readline", "sys.kept.write_history_file(LATE)")
    assert (done.returncode, (site.root / "late").exists()) == (0, True), done.stderr
    (site.root / "late").unlink()
    done = program(site, "import readline\nreadline.write_history_file('/etc/late')")
    assert "outside of the workspace" in done.stderr
    assert not Path("/etc/late").exists()


@pytest.mark.parametrize(
    ("name", "library", "flag", "told"),
    [
        ("_gdbm", "", "r", "CONSUMES on /a.txt"),
        ("_gdbm", "", "c", "MUTATES on /a.txt"),
        ("_dbm", "GNU gdbm", "c", "PROVIDES on /a.txt.pag"),
        ("_dbm", "Berkeley DB", "n", "PROVIDES on /a.txt.db"),
    ],
)
def test_files_of_dbm_are_seen(
    site: Site, monkeypatch: pytest.MonkeyPatch, name: str, library: str, flag: str, told: str
) -> None:
    """The modules are no part of every interpreter; these have their names and functions."""
    opened: list[Any] = []
    module: Any = types.ModuleType(name)
    module.library, module.open = library, lambda *args: opened.append(args)
    monkeypatch.setitem(sys.modules, name, module)
    with site.session():
        pass
    library_wrappers._wrap_openers(audit._report, module)
    module.open("a.txt", flag)
    with blocked(told), site.session():
        module.open("a.txt", flag)
    assert opened == [("a.txt", flag)]
