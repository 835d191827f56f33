"""A governed command in namespaces of its own: what was not declared is not there; else the weaker wall is told."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.realm import COMMAND, CliRealm, environment
from tests.cli.test_run_probes import CONFINED, SECLUDED, VIOLATED, attempt, realm, secret, template

pytestmark = pytest.mark.slow

__all__ = ["realm", "secret", "template"]


def record(realm: CliRealm) -> dict[str, Any]:
    """Return the newest run's verification log."""
    (newest,) = realm("runs", "--most", "1", "--json").json
    told: dict[str, Any] = realm("show", newest["runId"], "--json").json["verification"]
    return told


@pytest.mark.requirement("KO-4", "KO-5.2")
def test_which_walls_held_is_recorded(realm: CliRealm) -> None:
    attempt(realm, "pass", "--reads", "a.txt")
    if CONFINED:
        first = record(realm)["heldBy"][0]
        by = next(line for line in (realm.folder / "world.toml").read_text().splitlines() if "namespaces" in line)
        recorded = {"unshare": "namespaces", "bubblewrap": "namespaces (bubblewrap)"}
        assert first == recorded.get(by.split('"')[1], first)
        assert first.startswith("namespaces") is SECLUDED
        assert first in realm("doctor").out


@pytest.mark.parametrize("wall", ["namespaces", "landlock"])
def test_who_requires_a_wall_is_refused_where_there_is_none(realm: CliRealm, wall: str) -> None:
    there = SECLUDED if wall == "namespaces" else CONFINED
    ended = realm(
        "run", "--agent", "eve", "--reads", "a.txt", "--require", wall, "--", "true", code=0 if there else 125
    )
    assert there or "[CONFINEMENT_UNAVAILABLE]" in ended.err
    less = ("run", "--agent", "eve", "--unconfined", "--reads", "a.txt", "--require", wall, "--", "true")
    assert "[CONFINEMENT_UNAVAILABLE]" in realm(*less, code=125).err


def test_what_was_not_declared_is_not_there(realm: CliRealm, secret: Path) -> None:
    """Looking whether a file exists is no side effect; in namespaces there is nothing to be found."""
    code = f"import os; print(os.path.exists({str(secret)!r}), os.path.getsize('other.txt'), os.path.getsize('a.txt'))"
    ended, out, err = attempt(realm, code, "--reads", "a.txt")
    if CONFINED:
        assert (ended, out) == (0, "False 0 9\n" if SECLUDED else "True 13 9\n"), err


def test_what_was_tried_is_told_though_it_is_not_there(realm: CliRealm, secret: Path) -> None:
    ended, out, err = attempt(realm, f"print(open({str(secret)!r}).read())", "--reads", "a.txt")
    assert "SECRET" not in out
    assert not CONFINED or (ended, f"CONSUMES on {secret}" in err) == (VIOLATED, True), err


def test_processes_of_others_are_not_there_and_cannot_be_signalled(realm: CliRealm) -> None:
    with subprocess.Popen(["/bin/sleep", "600"], env={"TOKEN": "SECRET"}) as other:
        try:
            code = f"""
import os
for how in (lambda: os.kill({other.pid}, 9), lambda: open('/proc/{other.pid}/environ').read(), lambda: os.kill(1, 9)):
    try: print(how())
    except OSError as error: print(error.strerror)
print(len([name for name in os.listdir('/proc') if name.isdigit()]))
"""
            ended, out, err = attempt(realm, code, "--reads", "a.txt")
            assert other.poll() is None
        finally:
            other.kill()
    if SECLUDED:
        assert (ended, "SECRET" in out) == (0, False), err
        assert out.splitlines()[0] == "No such process"
        assert out.splitlines()[-1] == "2"


def test_shared_memory_of_others_is_not_there(realm: CliRealm) -> None:
    name = f"worldprotocol-{os.getpid()}"
    held = Path("/dev/shm") / name
    held.write_text("SECRET")
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(ctypes.c_int(0x57500001), ctypes.c_size_t(4096), ctypes.c_int(0o1666))
    try:
        code = f"""
import ctypes, os
print(os.path.exists('/dev/shm/{name}'), ctypes.CDLL(None).shmget(0x57500001, 4096, 0) >= 0)
open('/dev/shm/own', 'w').write('x')
"""
        ended, out, err = attempt(realm, code, "--reads", "a.txt")
        assert not (Path("/dev/shm") / "own").exists() or not SECLUDED
    finally:
        held.unlink()
        libc.shmctl(segment, 0, None)
    if SECLUDED:
        assert (ended, out) == (0, "False False\n"), err


def test_terminals_of_others_are_not_there(realm: CliRealm) -> None:
    ours, theirs = os.openpty()
    try:
        name = os.ttyname(theirs)
        code = f"import os; print(os.path.exists({name!r}) and os.stat({name!r}).st_rdev == {os.fstat(theirs).st_rdev})"
        ended, out, err = attempt(
            realm, code + f"\nos.write(os.open({name!r}, os.O_RDWR), b'typed')", "--reads", "a.txt"
        )
        if SECLUDED:
            assert out in ("False\n", "True\n")
            assert not select.select([ours], [], [], 0)[0], err
            assert ended != 0
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.setblocking(False)
        yield listening


def test_without_a_declared_url_no_packet_leaves_even_where_nobody_decides(
    realm: CliRealm, server: socket.socket
) -> None:
    """The network is another one; the watcher tells what was tried."""
    port = server.getsockname()[1]
    code = f"import _socket; s = _socket.socket(2, 2); s.sendto(b'x', ('127.0.0.1', {port}))"
    ended, _, err = attempt(realm, code, "--reads", "a.txt")
    with pytest.raises(BlockingIOError):
        server.recv(1)
    assert not CONFINED or (ended, "CONSUMES on URL:tcp://127.0.0.1" in err) == (VIOLATED, True), err
    if SECLUDED:
        looks = "print([line.split(':')[0].strip() for line in open('/proc/net/dev')][2:])"
        assert attempt(realm, looks, "--reads", "a.txt")[:2] == (0, "['lo']\n")


def test_a_declared_url_is_reached(realm: CliRealm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as serving:
        port = serving.getsockname()[1]
        code = f"import _socket; _socket.socket(2, 1).connect(('127.0.0.1', {port})); print('there')"
        ended, out, err = attempt(realm, code, "--connects", f"http://127.0.0.1:{port}/")
    assert not CONFINED or (ended, out) == (0, "there\n"), err


DAEMON = """
import os, sys
reading, writing = os.pipe()
if os.fork():
    os.read(reading, 1); os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execve(sys.executable, ['d', '-I', '-S', '-c', '''
import os, time
os.write(%d, b'x')
while True:
    open('a.txt', 'a').write('late'); time.sleep(0.01)
''' % writing if os.set_inheritable(writing, True) is None else ''], {})
"""


@pytest.mark.requirement("KO-3.3")
@pytest.mark.parametrize("how", ["ends", "is killed with its engine"])
def test_a_daemon_that_forgot_where_it_came_from_ends_with_the_command(realm: CliRealm, how: str) -> None:
    waits = "" if how == "ends" else "import time; time.sleep(600)"
    code = DAEMON.replace(
        "os.read(reading, 1); os._exit(0)", f"os.read(reading, 1); print('on', flush=True); {waits or 'os._exit(0)'}"
    )
    argv = [*COMMAND, "run", "--agent", "eve", "--writes", "a.txt", "--", sys.executable, "-I", "-S", "-c", code]
    running = subprocess.Popen(
        argv, cwd=realm.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with running:
        assert running.stdout is not None
        line = running.stdout.readline()
        if not SECLUDED:
            running.kill()
            assert line in (b"", b"on\n")
            return
        assert line == b"on\n", running.communicate()
        if waits:
            running.send_signal(signal.SIGKILL)
        running.stdout.read()  # every process that holds it has ended
        running.wait()
    realm("settle")
    after = (realm.folder / "a.txt").read_bytes()
    assert not [one for one in Path("/proc").iterdir() if one.name.isdigit() and _works_in(one, realm.folder)]
    assert (realm.folder / "a.txt").read_bytes() == after


def _works_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").readlink() == folder
    except OSError:
        return False


def test_the_exit_of_a_command_is_its_own(realm: CliRealm) -> None:
    if not CONFINED:
        return
    for script, code in (("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)):
        realm("run", "--agent", "eve", "--reads", "a.txt", "--", "sh", "-c", script, code=code)


@pytest.mark.parametrize("moved", [False, True])
def test_names_are_made_moved_and_removed_where_that_was_declared(realm: CliRealm, moved: bool) -> None:
    if not CONFINED:
        return
    for name in ("x", "y"):
        (realm.folder / name).mkdir()
        (realm.folder / name / "old").write_text(name)
    if moved:
        words = ["--renames", "x/old", "y/new"]
        realm("run", "--agent", "eve", *words, "--", "mv", "x/old", "y/new", code=0)
        assert (realm.folder / "y/new").read_text() == "x"
    else:
        realm("run", "--agent", "eve", "--deletes", "x/**", "--", "rm", "-rf", "x", code=0)
        assert not (realm.folder / "x").exists()
        assert (realm.folder / "y/old").read_text() == "y"
    assert json.loads(realm("runs", "--most", "1", "--json").out)[0]["outcome"] == "completed"
