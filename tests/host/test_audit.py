"""In-process interception: what Python code attempts is stopped before it happens, and nobody else is touched."""

# ruff: noqa: SIM115 # nothing is opened

from __future__ import annotations

import ctypes
import importlib
import io
import json
import linecache
import logging
import multiprocessing
import os
import pty
import random
import runpy
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import traceback
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from host.observation import audit
from host.observation.audit import current, exempt
from tests.host.intercepting import Site, blocked, outcome
from tests.support.patience import PATIENCE_S


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.chdir(made.root)
    return made


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.requirement("KO-3", "KO-3.1")
def test_the_error_is_the_one_of_the_specification_and_nothing_was_written(site: Site) -> None:
    with (
        blocked("Agent attempted MUTATES on /etc/hosts but only declared CONSUMES.", "agent-1") as caught,
        site.session("CONSUMES /etc/hosts"),
    ):
        assert (site.root / "etc" / "hosts").read_text() == "old"
        (site.root / "etc" / "hosts").write_text("new")
    assert caught.value.details["resource"] == "FILE:/etc/hosts"
    assert caught.value.details["declared"] == [{"predicate": "CONSUMES", "resource": "FILE:/etc/hosts"}]
    assert (site.root / "etc" / "hosts").read_text() == "old"


def _open_at(directory: str, name: str, flags: int) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(os.open(name, flags, dir_fd=handle))
    finally:
        os.close(handle)


def _at(directory: str, call: Callable[..., Any], *args: Any) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        call(*args, dir_fd=handle)
    finally:
        os.close(handle)


def _chmod_of_an_open_file() -> None:
    with open("a.txt") as opened:
        os.fchmod(opened.fileno(), 0o600)


FILES: dict[str, tuple[Callable[[], Any], str]] = {
    "open to write": (lambda: open("a.txt", "w"), "MUTATES on /a.txt"),
    "open to append": (lambda: open("a.txt", "a"), "MUTATES on /a.txt"),
    "open to update": (lambda: open("a.txt", "r+"), "MUTATES on /a.txt"),
    "open exclusively": (lambda: open("new.txt", "x"), "PROVIDES on /new.txt"),
    "open as bytes": (lambda: open(b"new.txt", "wb"), "PROVIDES on /new.txt"),
    "FileIO": (lambda: io.FileIO("a.txt", "w"), "MUTATES on /a.txt"),
    "write_text": (lambda: Path("dir/new").write_text("x"), "PROVIDES on /dir/new"),
    "touch": (lambda: Path("new.txt").touch(), "PROVIDES on /new.txt"),
    "read": (lambda: Path("a.txt").read_text(), "CONSUMES on /a.txt"),
    "os.open": (lambda: os.open("a.txt", os.O_RDONLY), "CONSUMES on /a.txt"),
    "os.open to truncate": (lambda: os.open("a.txt", os.O_WRONLY | os.O_TRUNC), "MUTATES on /a.txt"),
    "os.open at a directory": (lambda: _open_at("dir", "one", os.O_RDONLY), "CONSUMES on /dir/one"),
    "os.open up from a directory": (lambda: _open_at("dir", "../a.txt", os.O_RDWR), "MUTATES on /a.txt"),
    "listdir": (lambda: os.listdir("dir/sub"), "CONSUMES on /dir/sub"),
    "scandir": (lambda: os.scandir("dir/sub").close(), "CONSUMES on /dir/sub"),
    "walk": (lambda: list(os.walk("dir/sub")), "CONSUMES on /dir/sub"),
    "iterdir": (lambda: list(Path("dir/sub").iterdir()), "CONSUMES on /dir/sub"),
    "remove": (lambda: os.remove("a.txt"), "DELETES on /a.txt"),
    "unlink": (lambda: Path("a.txt").unlink(), "DELETES on /a.txt"),
    "unlink at a directory": (lambda: _at("dir", os.unlink, "one"), "DELETES on /dir/one"),
    "rmdir": (lambda: os.rmdir("dir/sub"), "DELETES on /dir/sub"),
    "rmtree": (lambda: shutil.rmtree("dir"), "DELETES on /dir/*"),
    "rename": (lambda: os.rename("a.txt", "b.txt"), "RENAMES on /a.txt"),
    "replace": (lambda: os.replace("a.txt", "dir/one"), "RENAMES on /a.txt"),
    "move": (lambda: shutil.move("a.txt", "b.txt"), "RENAMES on /a.txt"),
    "mkdir": (lambda: os.mkdir("made"), "PROVIDES on /made"),
    "makedirs": (lambda: os.makedirs("made/deep"), "PROVIDES on /made"),
    "mkdir at a directory": (lambda: _at("dir", os.mkdir, "made"), "PROVIDES on /dir/made"),
    "mkfifo": (lambda: os.mkfifo("pipe"), "PROVIDES on /pipe"),
    "mkfifo at a directory": (lambda: _at("dir", os.mkfifo, "pipe"), "PROVIDES on /dir/pipe"),
    "mknod": (lambda: os.mknod("node"), "PROVIDES on /node"),
    "hard link": (lambda: os.link("a.txt", "b.txt"), "MUTATES on /a.txt"),
    "symbolic link": (lambda: os.symlink("a.txt", "b.txt"), "PROVIDES on /b.txt"),
    "symbolic link at a directory": (lambda: _at("dir", os.symlink, "one", "b"), "PROVIDES on /dir/b"),
    "truncate": (lambda: os.truncate("a.txt", 0), "MUTATES on /a.txt"),
    "chmod": (lambda: os.chmod("a.txt", 0o600), "MUTATES on /a.txt"),
    "chown": (lambda: os.chown("a.txt", os.getuid(), os.getgid()), "MUTATES on /a.txt"),
    "utime": (lambda: os.utime("a.txt", (1, 1)), "MUTATES on /a.txt"),
    "utime at a directory": (lambda: _at("dir", os.utime, "one"), "MUTATES on /dir/one"),
    "setxattr": (lambda: os.setxattr("a.txt", "user.x", b"1"), "MUTATES on /a.txt"),
    "removexattr": (lambda: os.removexattr("a.txt", "user.x"), "MUTATES on /a.txt"),
    "copyfile": (lambda: shutil.copyfile("a.txt", "b.txt"), "CONSUMES on /a.txt"),
    "copytree": (lambda: shutil.copytree("dir/sub", "copy"), "CONSUMES on /dir/sub"),
    "sqlite": (lambda: sqlite3.connect("x.db"), "PROVIDES on /x.db"),
    "temporary file": (lambda: tempfile.NamedTemporaryFile(dir="dir"), "PROVIDES on /dir/tmp"),
    "temporary directory": (lambda: tempfile.mkdtemp(dir="dir"), "PROVIDES on /dir/tmp"),
}


@pytest.mark.requirement("KO-2.1", "KO-3")
@pytest.mark.parametrize("name", FILES)
def test_what_was_not_declared_is_stopped_before_it_happens(site: Site, name: str) -> None:
    call, told = FILES[name]
    before = site.content()
    with blocked(told, "declared"), site.session("CONSUMES /dir", "DEPENDS_ON /nothing"):
        call()
    assert site.content() == before


def test_changing_the_mode_of_a_file_opened_to_read_is_a_change(site: Site) -> None:
    before = site.content()
    with blocked("MUTATES on /a.txt but only declared CONSUMES."), site.session("CONSUMES /a.txt"):
        _chmod_of_an_open_file()
    assert site.content() == before


@pytest.mark.requirement("KO-2.1")
def test_what_was_declared_happens_and_is_remembered(site: Site) -> None:
    with site.session("CONSUMES /a.txt", "MUTATES /dir/*", "PROVIDES /made", "DELETES /etc/*", "RENAMES /a.txt"):
        text = Path("a.txt").read_text()
        Path("dir/one").write_text(text)
        os.mkdir("made")
        shutil.rmtree("etc")
        os.rename("a.txt", "dir/three")
    assert site.observed() == {
        "CONSUMES /a.txt",
        "MUTATES /dir/one",
        "PROVIDES /made",
        "DELETES /etc/*",
        "RENAMES /a.txt",
        "PROVIDES /dir/three",
    }
    assert Path("dir/three").read_text() == "a"
    assert not Path("etc").exists()


@pytest.mark.requirement("KO-2.1", "KO-3")
def test_files_outside_of_the_workspace_are_never_declared(site: Site) -> None:
    before = site.content()
    for call in (
        lambda: (site.elsewhere / "secret").read_text(),
        lambda: (site.elsewhere / "secret").write_text("x"),
        lambda: open("../elsewhere/new", "w"),
        lambda: tempfile.mkstemp(dir=site.elsewhere),
        lambda: os.symlink("x", site.elsewhere / "link"),
    ):
        with blocked("outside of the workspace"), site.session("MUTATES /*", "DELETES /*"):
            call()
    assert site.content() == before


def test_a_link_that_leads_out_is_judged_by_where_it_leads(site: Site) -> None:
    os.symlink(site.elsewhere / "secret", "inside")
    with blocked("outside of the workspace"), site.session("MUTATES /*"):
        Path("inside").write_text("x")
    assert (site.elsewhere / "secret").read_text() == "secret"


@pytest.mark.requirement("KO-3.2a")
def test_code_that_swallows_the_violation_gains_nothing(site: Site) -> None:
    before = site.content()
    with site.session("MUTATES /dir/*"):
        assert outcome(lambda: Path("a.txt").write_text("x")) == "KLIS_SCOPE_VIOLATION"
        assert site.watch.is_over
        with blocked("ended by an earlier violation", "MUTATES on /a.txt"):
            Path("dir/one").write_text("declared, and yet too late")
        assert outcome(lambda: subprocess.run(["true"], check=False)) == "KLIS_SCOPE_VIOLATION"
    assert site.content() == before


def test_a_tree_is_removed_as_one_thing_and_what_its_callback_does_is_still_seen(site: Site) -> None:
    os.mkdir("dir/more")
    with site.session("DELETES /dir/*"):
        shutil.rmtree("dir")
    assert site.observed() == {"DELETES /dir/*"}

    def on_error(*_: Any) -> None:
        Path("a.txt").write_text("x")

    with blocked("MUTATES on /a.txt"), site.session("DELETES /gone/*"):
        shutil.rmtree("gone", onerror=on_error)
    assert Path("a.txt").read_text() == "a"


def test_temporary_files_work_where_the_operator_allows_them(site: Site) -> None:
    with site.session("CONSUMES /a.txt", write=(site.elsewhere,)):
        with tempfile.TemporaryFile(dir=site.elsewhere) as nameless, tempfile.NamedTemporaryFile(dir=site.elsewhere):
            nameless.write(b"x")
        with tempfile.TemporaryDirectory(dir=site.elsewhere) as folder:
            Path(folder, "x").write_text("x")
    assert site.observed() == set()
    assert [path.name for path in site.elsewhere.iterdir()] == ["secret"]


def test_a_nameless_file_in_a_folder_is_no_side_effect_on_it(site: Site) -> None:
    with site.session(), tempfile.TemporaryFile(dir=site.root) as nameless:
        nameless.write(b"x")
    assert site.observed() == set()


def test_calls_that_fail_by_themselves_fail_as_they_always_do(site: Site) -> None:
    with site.session():
        with pytest.raises(FileNotFoundError):
            open("missing")
        with pytest.raises(FileNotFoundError):
            os.remove("missing")
        with pytest.raises(ValueError, match="null"):
            open("a\0b", "w")
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.open("a.txt", os.O_RDONLY, dir_fd=987)
        with pytest.raises(TypeError):
            os.open("a.txt")  # type: ignore[call-arg]
    assert site.observed() == set()


def test_pipes_and_descriptors_are_no_files(site: Site) -> None:
    with site.session():
        read, write = os.pipe()
        with open(write, "wb") as end:
            end.write(b"x")
        os.close(read)
    assert site.observed() == set()


# --- SQLite ---------------------------------------------------------------------------------------


@pytest.mark.requirement("KO-2.1")
def test_a_database_that_is_only_read_is_consumed(site: Site) -> None:
    sqlite3.connect("x.db").executescript("create table t (v); insert into t values (1)").connection.close()
    uri = f"file:{site.root}/x.db?mode=ro"
    with site.session("CONSUMES /x.db"):
        opened = sqlite3.connect(uri, uri=True)
        assert opened.execute("select v from t").fetchall() == [(1,)]
        opened.close()
        sqlite3.connect(":memory:").close()
    assert site.observed() == {"CONSUMES /x.db"}
    with blocked("MUTATES on /x.db but only declared CONSUMES."), site.session("CONSUMES /x.db"):
        sqlite3.connect("x.db")


@pytest.mark.requirement("KO-3")
@pytest.mark.parametrize("statement", ["attach 'other.db' as o", "vacuum into 'other.db'"])
def test_sql_cannot_reach_another_file(site: Site, statement: str) -> None:
    with site.session("MUTATES /x.db"):
        opened = sqlite3.connect("x.db")
        opened.execute("create table t (v)")
        opened.commit()
        with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|authorization denied"):
            opened.execute(statement)
        opened.close()
        assert site.watch.is_over
    assert not Path("other.db").exists()
    assert "PROVIDES on /other.db" in site.watch.violations[0].error.message


def test_sql_attaches_what_was_declared_but_no_expression(site: Site) -> None:
    with site.session("MUTATES /x.db", "MUTATES /other.db"):
        opened = sqlite3.connect("x.db")
        opened.execute("attach 'other.db' as o")
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            opened.execute("attach ? as p", ("third.db",))
        opened.close()
        with blocked("native code into SQLite"):  # not every build of Python can load extensions at all
            sys.audit("sqlite3.enable_load_extension", opened, True)
    assert not Path("third.db").exists()


def test_a_name_that_looks_like_a_uri_is_a_name_where_it_is_not_said_to_be_one(site: Site) -> None:
    with blocked("PROVIDES on /file:x.db?mode=ro"), site.session("CONSUMES /x.db"):
        sqlite3.connect("file:x.db?mode=ro")
    assert not Path("file:x.db?mode=ro").exists()


# --- processes and native code --------------------------------------------------------------------


@pytest.mark.requirement("KO-5.1", "KO-3")
@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run(["touch", "made"], check=False),
        lambda: subprocess.check_output("touch made", shell=True),
        lambda: os.system("touch made"),
        lambda: os.popen("touch made"),
        lambda: os.posix_spawn("/usr/bin/touch", ["touch", "made"], os.environ),
        lambda: os.posix_spawnp("touch", ["touch", "made"], os.environ),
    ],
    ids=["run", "shell", "system", "popen", "posix_spawn", "posix_spawnp"],
)
def test_a_process_that_was_not_declared_does_not_start(site: Site, start: Callable[[], Any]) -> None:
    with blocked("Agent attempted MUTATES on /*"), site.session("MUTATES /a.txt"):
        start()
    assert not Path("made").exists()


@pytest.mark.requirement("KO-5.1", "KO-2.1")
def test_an_opaque_tool_may_run_where_all_that_it_could_change_is_declared(site: Site) -> None:
    with site.session("MUTATES /dir/*"):
        subprocess.run(["touch", "made"], cwd="dir", check=True)
    assert Path("dir/made").exists()
    assert {"PROVIDES PROCESS:touch", "MUTATES /dir/*"} <= site.observed()
    with site.session("PROVIDES PROCESS:true"):
        subprocess.run(["true"], check=True)


@pytest.mark.requirement("KO-3")
def test_forking_is_refused_says_what_to_do_and_is_a_violation_like_any_other(site: Site) -> None:
    refused: list[tuple[Callable[[], Any], tuple[str, ...]]] = [
        (os.fork, ("cannot be observed", "subprocess")),
        (os.forkpty, ("cannot be observed", "subprocess")),
        (lambda: pty.spawn(["true"]), ("cannot be observed", "subprocess")),
        (lambda: os.spawnv(os.P_WAIT, "/bin/true", ["x"]), ("cannot be observed", "subprocess")),
        (multiprocessing.get_context("fork").Process(target=print).start, ("spawn",)),
        (lambda: os.execv("/bin/true", ["true"]), ("replace the process",)),
        (lambda: os.chroot("/"), ("root of file names",)),
    ]
    for call, told in refused:
        with site.session("MUTATES /*"):
            with blocked(*told) as caught:
                call()
            assert caught.value.code == "KLIS_UNOBSERVABLE"
            assert site.watch.is_over
            (violation,) = site.watch.violations
            assert (violation.blocked, violation.error.code) == (True, "KLIS_UNOBSERVABLE")


@pytest.mark.requirement("KO-5.1")
def test_a_process_of_multiprocessing_is_a_process_like_any_other(site: Site) -> None:
    context = multiprocessing.get_context("spawn")
    with blocked("MUTATES on /*"), site.session("MUTATES /a.txt"):
        context.Process(target=print).start()


def test_what_runs_between_fork_and_exec_can_do_nothing(site: Site) -> None:
    with site.session("MUTATES /*"), pytest.raises(subprocess.SubprocessError):
        subprocess.run(["true"], preexec_fn=lambda: open("made", "w").close(), check=True)
    assert not Path("made").exists()


@pytest.mark.requirement("KO-3")
def test_native_code_is_refused_unless_a_library_of_the_interpreter_brings_it(site: Site) -> None:
    (site.root / "native.so").write_bytes(b"no library")
    with site.session("MUTATES /*"):
        with blocked("ctypes"):
            ctypes.CDLL("libc.so.6")
        with blocked("ctypes"):
            ctypes.CDLL(None).unlink  # noqa: B018
        with blocked("native code"):
            importlib.machinery.ExtensionFileLoader("native", str(site.root / "native.so")).create_module(
                importlib.machinery.ModuleSpec("native", None, origin=str(site.root / "native.so"))
            )
        fresh = importlib.util.find_spec("ctypes")
        assert fresh is not None
        assert fresh.loader is not None
        importlib.reload(ctypes)


def test_another_interpreter_is_refused(site: Site) -> None:
    interpreters = importlib.import_module("_xxsubinterpreters" if sys.version_info < (3, 13) else "_interpreters")
    with site.session("MUTATES /*"), blocked("another interpreter"):
        interpreters.create()


# --- imports and what the interpreter needs -------------------------------------------------------


@pytest.mark.requirement("KO-2.1")
def test_importing_a_module_of_the_workspace_reads_it_and_its_bytecode_is_the_interpreters_own(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(site.root))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    Path("agent_module.py").write_text("VALUE = 1\n")
    for _ in range(2):  # from the source, and then from what was cached
        importlib.invalidate_caches()
        with site.session("CONSUMES /agent_module.py"):
            assert importlib.import_module("agent_module").VALUE == 1
        assert site.observed() == {"CONSUMES /agent_module.py"}
        del sys.modules["agent_module"]
    assert list(Path("__pycache__").iterdir())
    with blocked("CONSUMES on /agent_module.py"), site.session("CONSUMES /a.txt"):
        importlib.import_module("agent_module")
    with blocked("PROVIDES on /__pycache__/other.pyc"), site.session("CONSUMES /a.txt"):
        Path("__pycache__/other.pyc").write_bytes(b"x")


def test_the_standard_library_goes_on_working(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("colorsys", "ssl", "sndhdr"):
        sys.modules.pop(name, None)
    with site.session("CONSUMES /a.txt"):
        logging.getLogger("agent").warning("to stderr")
        print("to stdout", json.dumps({"at": datetime.now(UTC).isoformat()}), random.random(), file=sys.stderr)
        assert zoneinfo.ZoneInfo.no_cache("Europe/Berlin").key == "Europe/Berlin"
        for name in ("colorsys", "ssl", "wave", "xmlrpc.client", "decimal"):
            importlib.import_module(name)
        os.urandom(8)
        with open(os.devnull, "w") as nothing:
            nothing.write("x")
        assert os.stat("a.txt").st_size == 1
    assert site.observed() == set()


def test_a_traceback_may_show_the_source_of_what_was_loaded_and_no_other_file(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(site.root))
    Path("agent_failing.py").write_text("def fail():\n    raise KeyError('here')\n")
    failing = importlib.import_module("agent_failing")
    linecache.clearcache()
    with site.session():
        try:
            failing.fail()
        except KeyError:
            assert "raise KeyError" in traceback.format_exc()
        with blocked("CONSUMES on /a.txt"):
            linecache.getline(str(site.root / "a.txt"), 1)
    del sys.modules["agent_failing"]


def test_a_whole_program_runs_within_a_session(site: Site) -> None:
    Path("program.py").write_text("import pathlib\npathlib.Path('dir/out').write_text('done')\n")
    with site.session("CONSUMES /program.py", "PROVIDES /dir/out"):
        runpy.run_path("program.py")
    assert Path("dir/out").read_text() == "done"
    assert site.observed() == {"CONSUMES /program.py", "PROVIDES /dir/out"}


# --- the engine's own work ------------------------------------------------------------------------


def test_what_the_engine_does_itself_is_not_the_agents(site: Site) -> None:
    with site.session() as session:
        assert current() is session
        with exempt():
            assert current() is None
            Path("a.txt").write_text("engine")
        with blocked("MUTATES on /a.txt"):
            Path("a.txt").write_text("agent")
    assert current() is None
    assert Path("a.txt").read_text() == "engine"


def test_what_judges_may_read_and_write_while_it_judges(site: Site) -> None:
    def on_violation(_: Any) -> None:
        Path("dir/log").write_text("told")
        with sqlite3.connect(site.elsewhere / "log.db") as log:
            log.execute("create table t (v)")
        log.close()

    with blocked("/a.txt"), site.session("CONSUMES /a.txt", on_violation=on_violation):
        Path("a.txt").write_text("x")
    assert Path("dir/log").read_text() == "told"


@pytest.mark.requirement("KO-3")
def test_what_cannot_be_judged_is_stopped(site: Site) -> None:
    class Broken(Site):
        def opened(self, *_: Any, **__: Any) -> Any:
            raise ZeroDivisionError("a mistake of ours")

    broken: Any = Broken.opened
    session = site.session("MUTATES /*")
    session.operations.opened = broken.__get__(site)  # type: ignore[method-assign]
    with blocked("could not be checked", "ZeroDivisionError"), session:
        Path("a.txt").write_text("x")
    assert Path("a.txt").read_text() == "a"


def test_there_is_one_hook_however_many_sessions_there_are(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[Any] = []
    with site.session():
        pass
    monkeypatch.setattr(sys, "addaudithook", added.append)
    for _ in range(3):
        with site.session(), site.session():
            pass
    assert added == []
    assert audit._installed == [True]


def test_a_program_may_end_within_a_session(site: Site) -> None:
    program = f"""
import atexit, sys, threading
from pathlib import Path
from host.observation import Operations, Watch
from host.observation.audit import Interception
from host.workspace import Workspace
from world.klis.observation import Declaration
session = Interception(Watch(Declaration("a", "s", [])), Operations(Workspace({str(site.root)!r})))
session.__enter__()
threading.Thread(target=threading.Event().wait, daemon=True).start()
class Late:
    def __del__(self):
        open({str(site.root / "late")!r}, "w")
sys.late = Late()
print("end")
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "end\n"
    assert not (site.root / "late").exists()


def test_a_session_does_not_begin_where_nothing_would_be_seen(site: Site) -> None:
    program = f"""
import sys
from host.observation import Operations, Watch
from host.observation.audit import Interception
from host.workspace import Workspace
from world.errors import ScopeViolationError
from world.klis.observation import Declaration
def jealous(event, args):
    if event == "sys.addaudithook":
        raise RuntimeError("I am the only one")
sys.addaudithook(jealous)
try:
    with Interception(Watch(Declaration("a", "s", [])), Operations(Workspace({str(site.root)!r}))):
        print("ran")
except ScopeViolationError as error:
    print(error.code)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "KLIS_UNOBSERVABLE\n"
