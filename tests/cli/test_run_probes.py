"""What a review of attacks made governed commands try, each with no more declared than its test says."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host.confinement import namespaces
from tests.cli.forked import run
from tests.cli.inside import Inside
from tests.cli.realm import COMMAND, CliRealm, environment, founded
from tests.plugins.forms import scaled
from worldprotocol.runs.command import confinement_support

pytestmark = pytest.mark.slow

CONFINED = confinement_support().why_not is None
BOTH: list[namespaces.Maker] = ["unshare", "bubblewrap"]
MAKERS = [maker for maker in BOTH if namespaces.available(maker).why_not is None]
"""What makes namespaces on this machine."""
SECLUDED = CONFINED and bool(MAKERS)
PYTHON = os.path.realpath(sys.executable)
REFUSED, VIOLATED = 125, 120


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = founded(tmp_path_factory.mktemp("probes")).folder
    (folder / "a.txt").write_text("declared\n")
    (folder / "other.txt").write_text("not declared\n")
    return folder


@pytest.fixture(params=[str(maker) for maker in MAKERS] or ["auto"])
def realm(template: Path, tmp_path: Path, request: pytest.FixtureRequest) -> CliRealm:
    """A realm whose commands have namespaces made in each way that this machine has."""
    folder = tmp_path / "realm"
    shutil.copytree(template, folder)
    with (folder / "world.toml").open("a") as config:
        config.write(f'\n[workspace]\nroot = "."\nnamespaces = "{request.param}"\n')
    return Inside(folder)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside of the workspace."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("SECRET\n")
    (folder / "secret").chmod(0o640)
    return folder / "secret"


def attempt(realm: CliRealm, code: str, *words: str, **variables: str) -> tuple[int, str, str]:
    """Run Python code as a governed command; returns exit code, stdout and stderr. Unconfined it must be refused."""
    argv = ["run", "--agent", "eve", *words, "--", PYTHON, "-I", "-S", "-c", code]
    ended, out, err = run(argv, realm.folder, environment() | variables, b"")
    assert ended in ((0, 1, VIOLATED) if CONFINED else (REFUSED,)), (out, err)
    return ended, out.decode(), err.decode()


def shape(path: Path) -> tuple[Any, ...]:
    found = path.stat()
    return (stat.filemode(found.st_mode), found.st_uid, found.st_mtime_ns, found.st_size, os.listxattr(path))


# Names that are too long to be told


FAR = """
import os, _socket
start = os.path.realpath(os.environ['TMPDIR'])
os.chdir(start)
for size in (*[250] * 15, 4040 - len(start) - 15 * 251 - 1):
    os.mkdir('d' * size); os.chdir('d' * size)
assert len(os.getcwd()) == 4040
os.mkdir('e' * 50)
target = 'e' * 50 + '/link'
os.symlink(TARGET, target)
"""
"""Makes a link whose name is longer in its absolute form than the kernel takes (4,096 bytes)."""

CHANGES = {
    "chmod": "os.chmod(target, 0o777)",
    "chown": "os.chown(target, 12345, 12345)",
    "utime": "os.utime(target, (1, 1))",
    "setxattr": "os.setxattr(target, 'user.eve', b'x')",
    "truncate": "os.truncate(target, 0)",
    "write": "open(target, 'w')",
    "read": "print(open(target).read())",
}


@pytest.mark.requirement("KO-3", "KO-5.2")
@pytest.mark.parametrize("change", CHANGES)
def test_a_name_whose_absolute_form_is_too_long_is_judged_by_where_it_leads(
    realm: CliRealm, secret: Path, change: str
) -> None:
    before = shape(secret)
    code, out, err = attempt(realm, f"TARGET = {str(secret)!r}{FAR}{CHANGES[change]}", "--reads", "a.txt")
    assert shape(secret) == before
    assert "SECRET" not in out
    if CONFINED:
        assert (code, "lies outside of the workspace" in err) == (VIOLATED, True), err


@contextlib.contextmanager
def listening(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as daemon, contextlib.chdir(folder):
        daemon.bind("s")
        daemon.listen()
        daemon.setblocking(False)
        yield daemon


@pytest.mark.requirement("KO-3", "KO-5.2")
def test_no_daemon_is_talked_to_by_a_name_whose_absolute_form_is_too_long(realm: CliRealm, secret: Path) -> None:
    door = secret.parent / "s"
    code = f"TARGET = {str(door)!r}{FAR}_socket.socket(1, 1).connect(target)"
    with listening(secret.parent) as daemon:
        ended, _, err = attempt(realm, code, "--reads", "a.txt")
        with pytest.raises(BlockingIOError):
            daemon.accept()
    assert not CONFINED or (ended, "lies outside" in err) == (VIOLATED, True), err


@pytest.mark.requirement("KO-3", "KO-5.2")
@pytest.mark.parametrize(
    ("name", "mode"), [("world.db", "r"), ("world.db", "r+"), ("world.toml", "a"), ("other.txt", "r")]
)
def test_who_may_make_one_file_reaches_no_other_of_its_folder_by_a_long_name(
    realm: CliRealm, name: str, mode: str
) -> None:
    code = f"TARGET = {str(realm.folder / name)!r}{FAR}print(open(target, {mode!r}))"
    before = (realm.folder / "world.toml").read_bytes(), (realm.folder / "other.txt").read_bytes()
    ended, out, err = attempt(realm, code, "--writes", "copy.yaml")
    assert ((realm.folder / "world.toml").read_bytes(), (realm.folder / "other.txt").read_bytes()) == before
    assert out == ""
    assert not CONFINED or (ended, "Agent attempted" in err) == (VIOLATED, True), err


def test_a_long_way_to_what_was_declared_is_allowed(realm: CliRealm) -> None:
    code = f"TARGET = {str(realm.folder / 'a.txt')!r}{FAR}print(open(target).read())"
    ended, out, err = attempt(realm, code, "--reads", "a.txt")
    assert not CONFINED or (ended, out) == (0, "declared\n\n"), err


# What is read without being declared


@pytest.mark.requirement("KO-3", "KO-5.2")
@pytest.mark.parametrize(
    "name", ["checkpoint.key", "keys/bot.pem", ".env", "world.toml", "world.db", "../backup.db", "operator.py"]
)
def test_no_secret_of_the_realm_or_of_its_operator_is_readable(realm: CliRealm, tmp_path: Path, name: str) -> None:
    """The workspace is a folder of the realm's, and the command starts in the realm's folder's workspace."""
    work = realm.folder / "work"
    work.mkdir()
    (work / "a.txt").write_text("declared\n")
    config = realm.folder / "world.toml"
    config.write_text(config.read_text().replace('root = "."', 'root = "work"'))
    target = realm.folder / name
    target.parent.mkdir(exist_ok=True)
    if not target.exists():
        target.write_text("SECRET\n")
    inside = type(realm)(work)
    code = f"print(open({str(target.resolve())!r}, 'rb').read()[:200])"
    modules = str(realm.folder)
    variables = {"WORLD_CONFIG": str(config), "WORLD_LOG": str(realm.folder / "world.db")}
    path = environment()["PYTHONPATH"] + os.pathsep + modules
    ended, out, err = attempt(inside, code, "--reads", "a.txt", **variables, PYTHONPATH=path)
    assert out == ""
    assert not CONFINED or (ended, "Agent attempted CONSUMES" in err) == (VIOLATED, True), err


@pytest.mark.parametrize("name", [".ssh/id_ed25519", ".netrc", ".aws/credentials"])
def test_no_secret_at_home_is_readable(realm: CliRealm, tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    (home / name).parent.mkdir(parents=True)
    (home / name).write_text("SECRET\n")
    code = f"import os; print(open(os.path.expanduser('~/{name}')).read())"
    ended, out, err = attempt(realm, code, "--reads", "a.txt", HOME=str(home))
    assert "SECRET" not in out
    assert not CONFINED or (ended, "lies outside of the workspace" in err) == (VIOLATED, True), err


@pytest.mark.parametrize("name", ["/etc/shadow", "/etc/ssh", "/etc/fstab"])
def test_of_the_machines_settings_only_those_of_libraries_are_readable(realm: CliRealm, name: str) -> None:
    code = f"import os; os.open({name!r}, 0)"
    ended, _, err = attempt(realm, code, "--reads", "a.txt")
    assert not CONFINED or ended == (VIOLATED if os.path.exists(name) else 1), err
    assert attempt(realm, "open('/etc/passwd'); open('/etc/nsswitch.conf')", "--reads", "a.txt")[0] in (0, REFUSED)


def test_the_environment_is_empty_but_for_what_is_named(realm: CliRealm) -> None:
    code = "import os; print(sorted(name for name in os.environ if 'TOKEN' in name), os.environ.get('TZ'))"
    given = {"API_TOKEN": "SECRET", "OTHER_TOKEN": "SECRET", "TZ": "UTC"}
    if CONFINED:
        assert attempt(realm, code, "--reads", "a.txt", **given)[1] == "[] UTC\n"
        named = ("--env", "API_TOKEN", "--env", "MY_TOKEN=mine", "--env", "NO_TOKEN")
        assert attempt(realm, code, "--reads", "a.txt", *named, **given)[1] == "['API_TOKEN', 'MY_TOKEN'] UTC\n"


# Swaps, control calls, descriptors, leftovers


SWAP = """
import os, _thread
os.chdir('d')
open('mine', 'w').close()
names = ('mine', TARGET)
over = []
def swap():
    turn = 0
    while not over:
        turn += 1
        try:
            os.symlink(names[turn % 2], 'new')
            os.rename('new', 'link')
        except OSError: pass
_thread.start_new_thread(swap, ())
for _ in range(TIMES):
    for how in (lambda: os.chmod('link', 0o777), lambda: os.utime('link', (1, 1)), lambda: os.truncate('link', 0),
                lambda: print(open('link').read(), end='')):
        try: how()
        except OSError: pass
over.append(1)
"""


@pytest.mark.requirement("KO-3", "KO-5.2")
def test_a_name_that_is_swapped_during_a_call_leads_to_nothing_undeclared(realm: CliRealm, secret: Path) -> None:
    """Where there are namespaces: elsewhere mode, times and owner are the watcher's alone, which reads names once."""
    (realm.folder / "d").mkdir()
    before = shape(secret)
    code = f"TARGET, TIMES = {str(secret)!r}, {scaled(400, ci=40)}{SWAP}"
    _, out, _ = attempt(realm, code, "--writes", "d/**", "--deletes", "d/**")
    assert "SECRET" not in out
    if SECLUDED:
        assert shape(secret) == before


@pytest.mark.parametrize("request_number", [0xC0045877, 0xC0045878, 0x8004587D, 0x40086602])
def test_nothing_is_done_to_a_whole_file_system(realm: CliRealm, request_number: int) -> None:
    """FIFREEZE, FITHAW, EXT4_IOC_SHUTDOWN (0x8004587D) and FS_IOC_SETFLAGS, with an argument that none would take."""
    code = f"""
import errno, fcntl
try: fcntl.ioctl(open('a.txt'), {request_number}, 0)
except OSError as error: print(errno.errorcode[error.errno])
"""
    if CONFINED:
        assert attempt(realm, code, "--reads", "a.txt")[:2] == (0, "EPERM\n")


def test_what_a_killed_engine_left_of_temporary_files_goes_with_the_next_start(realm: CliRealm) -> None:
    code = "import os, time; print(os.environ['TMPDIR'], flush=True); time.sleep(600)"
    argv = [*COMMAND, "run", "--agent", "eve", "--reads", "a.txt", "--", PYTHON, "-I", "-S", "-c", code]
    with subprocess.Popen(argv, cwd=realm.folder, env=environment(), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        folder = running.stdout.readline().strip()
        running.kill()
    if CONFINED:
        assert os.path.isdir(folder)
        realm("settle")
        assert not os.path.exists(folder)


def test_who_may_remove_a_tree_may_list_it(realm: CliRealm) -> None:
    (realm.folder / "t/sub").mkdir(parents=True)
    (realm.folder / "t/sub/x").write_text("x")
    if CONFINED:
        realm("run", "--agent", "eve", "--deletes", "t/**", "--", "rm", "-rf", "t")
        assert not (realm.folder / "t").exists()


CRASH = """
import os, resource
most = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
try: resource.setrlimit(resource.RLIMIT_CORE, (1 << 40, 1 << 40))
except (OSError, ValueError): pass
if os.fork() == 0: os.abort()
status = os.wait()[1]
print(os.WTERMSIG(status), os.WCOREDUMP(status))
"""
"""Has the kernel write the memory of a process to a file or a program that no system call names."""


@pytest.mark.requirement("KO-3", "KO-5.2")
def test_no_memory_is_written_to_files_or_given_to_programs_when_a_process_crashes(realm: CliRealm) -> None:
    ended, out, err = attempt(realm, CRASH, "--writes", "copy.yaml")
    assert [name for name in os.listdir(realm.folder) if name.startswith("core")] == []
    assert not CONFINED or (ended, out) == (0, "6 False\n"), err
