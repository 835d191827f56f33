"""Every watched call of a command waits until somebody has decided on it."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.confinement import ALLOW, Deny, RunningCommand, SocketAddress, SystemCallRequest, tracee, watcher
from host.confinement.bpf import program
from host.confinement.syscalls import ABSENT, AIMED, ARGUED, FORBIDDEN, GROUPS, MACHINES, watched
from host.confinement.tracee import Tracee, UnreadableError
from tests.host.bpf_machine import ALLOWED, ERRNO, KILL, NOTIFY, answer
from tests.host.confining import PYTHON, Ground, allow, can_hold, ground, noting
from tests.support.patience import PATIENCE_S

__all__ = ["ground"]


@pytest.fixture(params=MACHINES)
def kind(request):
    return MACHINES[request.param]


def test_every_watched_call_waits(kind):
    code = program(kind)
    for number, (name, _) in watched(kind).items():
        assert answer(code, kind.audit, number, 1, 2, 3, 4, 5, 6) == NOTIFY, name
    for numbers in GROUPS.values():
        assert answer(code, kind.audit, numbers[kind.column]) == NOTIFY


@given(number=st.integers(0, 600))
def test_all_other_calls_pass(number):
    for kind in MACHINES.values():
        known: set[object] = {*watched(kind)}
        for table in (GROUPS, AIMED, ABSENT, FORBIDDEN, ARGUED):
            known |= {entry[kind.column] for entry in table.values()}
        if number not in known:
            assert answer(program(kind), kind.audit, number, 1, 2, 3, 4, 5, 6) == ALLOWED


def test_each_number_stands_in_one_table_only(kind):
    tables = (GROUPS, AIMED, ABSENT, FORBIDDEN, ARGUED)
    numbers = [entry[kind.column] for table in tables for entry in table.values() if entry[kind.column] is not None]
    numbers += watched(kind)
    assert len(numbers) == len(set(numbers))


@pytest.mark.requirement("KO-5.2")
def test_what_concerns_the_whole_machine_is_forbidden_whatever_the_arguments(kind):
    code = program(kind)
    for table, error in ((FORBIDDEN, errno.EPERM), (ABSENT, errno.ENOSYS)):
        for name, numbers in table.items():
            number = numbers[kind.column]
            if number is not None:
                for arguments in ((0,) * 6, (1, 2, 3, 4, 5, 6)):
                    assert answer(code, kind.audit, number, *arguments) == ERRNO | error, name


def test_what_is_aimed_at_a_process_waits_unless_it_is_the_callers_own(kind):
    code = program(kind)
    for name, (*numbers, aim) in AIMED.items():
        number = numbers[kind.column]
        if name == "ptrace":
            answers = [answer(code, kind.audit, number, request, 7) for request in (16, 0x4206, 0, 7, 12)]
            assert answers == [NOTIFY, NOTIFY, ALLOWED, ALLOWED, ALLOWED]
            continue
        assert answer(code, kind.audit, number, 7, 0, 1 << 32) == NOTIFY, name
        assert answer(code, kind.audit, number, 0xFFFFFFFF, 0, 1) == NOTIFY, name
        assert answer(code, kind.audit, number, 0, 0, 1) == (ALLOWED if aim.own else NOTIFY), name
        assert answer(code, kind.audit, number, 1 << 32, 0, 1) == (ALLOWED if aim.own else NOTIFY), name
    reads = AIMED["prlimit64"][kind.column]
    assert isinstance(reads, int)
    assert answer(code, kind.audit, reads, 7, 1, 0, 9) == ALLOWED


def test_threads_and_children_are_made_but_no_namespaces(kind):
    clone, unshare = (ARGUED[name][kind.column] for name in ("clone", "unshare"))
    code = program(kind)
    for flags in (0x01200011, 0x3D0F00, 0x4111, 17):  # fork, a thread, vfork and spawn, a plain child
        assert answer(code, kind.audit, clone, flags) == ALLOWED
    for bit in (0x20000, *(1 << place for place in range(25, 31))):
        assert answer(code, kind.audit, clone, bit | 17) == ERRNO | errno.EPERM
        assert answer(code, kind.audit, unshare, bit) == ERRNO | errno.EPERM
    assert answer(code, kind.audit, unshare, 0x80) == ERRNO | errno.EPERM
    assert answer(code, kind.audit, unshare, 0x600) == ALLOWED


@pytest.mark.parametrize("name", ["socket", "socketpair"])
def test_sockets_are_of_families_whose_addresses_are_judged(kind, name):
    code, number = program(kind), ARGUED[name][kind.column]
    denied = ERRNO | errno.EACCES
    options = socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    for family in (1, 2, 10):
        assert answer(code, kind.audit, number, family, 1 | options, 0) == ALLOWED
    for family in (2, 10):
        for protocol in (132, 136, 262, 1):  # SCTP, UDP-Lite, MPTCP, ICMP
            assert answer(code, kind.audit, number, family, 1 | options, protocol) == denied
        assert answer(code, kind.audit, number, family, 1 | options, 6) == ALLOWED
        assert answer(code, kind.audit, number, family, 2, 17) == ALLOWED
        assert answer(code, kind.audit, number, family, 2, 0) == ALLOWED
    for family in (2, 10):
        assert answer(code, kind.audit, number, family, 3 | options, 1) == denied
        assert answer(code, kind.audit, number, family, 10, 3) == denied
    for protocol in range(1, 22):
        assert answer(code, kind.audit, number, 16, 3, protocol) == denied
    assert answer(code, kind.audit, number, 16, 3 | options, 0) == ALLOWED
    for family in {*range(46)} - {1, 2, 10, 16}:
        assert answer(code, kind.audit, number, family, 1, 0) == denied


def test_sending_without_an_address_needs_no_answer(kind):
    number = next(number for number, (name, _) in watched(kind).items() if name == "sendto")
    code = program(kind)
    assert answer(code, kind.audit, number, 3, 1, 1, 0, 0, 0) == ALLOWED
    assert answer(code, kind.audit, number, 3, 1, 1, 0, 1, 16) == NOTIFY
    assert answer(code, kind.audit, number, 3, 1, 1, 0, 1 << 32, 16) == NOTIFY


def test_nothing_is_sent_with_the_opening_of_a_connection(kind):
    """TCP fast open connects past connect, at which the walls look."""
    code, refused = program(kind), ERRNO | errno.EOPNOTSUPP
    numbers = {name: number for number, (name, _) in watched(kind).items()}
    for name, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        arguments = [3, 1, 1, 1, 1, 16]
        arguments[flags] = 0x20000000 | 0x4000
        assert answer(code, kind.audit, numbers[name], *arguments) == refused
        arguments[flags] = 0x4000
        assert answer(code, kind.audit, numbers[name], *arguments) == NOTIFY


def test_other_conventions_and_ways_around_are_closed(kind):
    code = program(kind)
    other = MACHINES["aarch64" if kind is MACHINES["x86_64"] else "x86_64"]
    assert answer(code, other.audit, 0) == KILL
    assert answer(code, 0x40000003, 5) == KILL
    assert answer(code, kind.audit, 425) == ERRNO | errno.ENOSYS
    assert answer(code, kind.audit, 429) == ERRNO | errno.EPERM
    ioctl = ARGUED["ioctl"][kind.column]
    freezes = (0xC0045877, 0xC0045878, 0xC0185879, 0x8004587D, 0x587D)  # FIFREEZE, FITHAW, FITRIM, *_IOC_SHUTDOWN
    for request in (0x5412, 0x541C, 0x40086602, 0x401C5820, 0x40806685, *freezes, 0, 0xFFFFFFFF):
        assert answer(code, kind.audit, ioctl, 0, request) == ERRNO | errno.EPERM
        assert answer(code, kind.audit, ioctl, 0, request | 1 << 32) == ERRNO | errno.EPERM
    for request in (
        0x5401,
        0x5413,
        0x541B,
        0x5421,
        0x5451,
        0x40049409,
        0x80086601,
        0x801C581F,
    ):  # also to read the flags of files
        assert answer(code, kind.audit, ioctl, 0, request) == ALLOWED
    if kind.foreign is not None:
        assert answer(code, kind.audit, kind.foreign | 2) == ERRNO | errno.ENOSYS


# Names


def found(path: bytes, pid: int, *, follow: bool = False) -> bytes | None:
    named = Tracee(pid).find(path, None, follow=follow)
    return None if named is None else named.path


def test_paths_are_resolved_as_the_system_does(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/up").symlink_to("..")
    (tmp_path / "far").symlink_to(tmp_path / "a/b")
    (tmp_path / "round").symlink_to("round")
    base = os.fsencode(os.path.realpath(tmp_path))
    for name in (b"far/x", b"a/up/a/./b", b"a//b/../b/c", b"a/up/../x", b"far/../up/far/y", b"missing/../z", b"far/"):
        expected = os.path.realpath(base + b"/" + name)
        assert found(base + b"/" + name, os.getpid()) == expected
    assert found(base + b"/far", os.getpid()) == base + b"/far"
    assert found(b"/", os.getpid()) == found(b"/..", os.getpid()) == b"/"
    for name in (b"/round/x", b"/" + b"n" * 256):
        with pytest.raises(UnreadableError):
            found(base + name, os.getpid())


def test_self_is_the_process_that_asks(tmp_path):
    file = (tmp_path / "f").open("w")
    number, pid = file.fileno(), os.getpid()
    real = os.fsencode(os.path.realpath(tmp_path / "f"))
    for name in (b"/proc/self/fd/%d", b"/dev/fd/%d", b"/proc/thread-self/fd/%d"):
        assert found(name % number, pid, follow=True) == real
    with subprocess.Popen(["/bin/sleep", "600"], cwd=tmp_path) as other:
        try:
            assert found(b"/proc/self/status", other.pid) == b"/proc/%d/status" % other.pid
            assert found(b"/proc/self/cwd/f", other.pid) == real
            assert found(b"/proc/self/cwd/../x", other.pid) == os.path.dirname(os.path.dirname(real)) + b"/x"
        finally:
            other.kill()
    assert found(b"/proc/self/cwd/x", pid) == os.getcwdb() + b"/x"
    reading, writing = os.pipe()
    assert found(b"/proc/self/fd/%d" % writing, pid, follow=True) is None
    for descriptor in (reading, writing):
        os.close(descriptor)
    file.close()


# What is told of each call

CALLS = """
import os
here = os.open('.', os.O_RDONLY)
file = os.open('f', os.O_RDWR | os.O_CREAT, 0o600)
os.open('d/../f', os.O_RDONLY | os.O_NOFOLLOW)
os.open('f', os.O_WRONLY, dir_fd=here)
os.open('via/f', os.O_RDONLY)
os.mkdir('m'); os.mkdir('n', dir_fd=here); os.rmdir('m'); os.rmdir('n', dir_fd=here)
os.symlink('text', 's'); os.symlink('text', 't', dir_fd=here)
os.link('f', 'h'); os.mkfifo('p'); os.rename('p', 'q'); os.rename('q', 'p', src_dir_fd=here, dst_dir_fd=here)
os.unlink('p'); os.unlink('h', dir_fd=here)
os.truncate('f', 1); os.ftruncate(file, 2)
os.chmod('f', 0o644); os.chmod(file, 0o600)
os.chown('f', -1, -1); os.lchown('s', -1, -1); os.chown(file, -1, -1); os.chown('f', -1, -1, dir_fd=here)
os.utime('f'); os.utime(file); os.utime('s', follow_symlinks=False)
for path, follow in (('f', True), ('s', False), (file, True)):
    for call in (lambda: os.setxattr(path, 'user.a', b'x', follow_symlinks=follow),
                 lambda: os.removexattr(path, 'user.a', follow_symlinks=follow)):
        try: call()
        except OSError: pass
os.open(f'/proc/self/fd/{file}', os.O_RDONLY)
os.unlink('f'); os.chmod(file, 0o700); os.utime(file)
"""

TOLD = """open . 0; open f; open f 0; open f 1; open d/f 0
mkdir m; mkdir n; rmdir m; rmdir n
symlink text s; symlink text t
link f h; mknod p; rename p q; rename q p
unlink p; unlink h
truncate f
chmod f; chmod f
chown f; chown s; chown f; chown f
utime f; utime f; utime s
setxattr f; removexattr f; setxattr s; removexattr s; setxattr f; removexattr f
open f 0
unlink f"""


@pytest.mark.requirement("KO-5.2")
def test_every_call_that_touches_a_file_is_told(ground):
    (ground.root / "d").mkdir()
    ground.file("d/f")
    (ground.root / "via").symlink_to("d")
    ended = ground.python(CALLS, rules=None, decide=allow)
    if ended is None:
        return
    assert (ended.code, ended.err) == (0, "")
    base = os.fsencode(ground.root)
    own = [call for call in ended.calls if any(path.startswith(base) for path in call.paths)]
    told = [[call.name, *(os.path.relpath(path, base).decode() for path in call.paths if path.startswith(b"/")), call]
            for call in own]  # fmt: skip
    expected = [entry.split() for line in TOLD.splitlines() for entry in line.split("; ")]
    assert len(told) == len(expected)
    for (*names, call), wanted in zip(told, expected, strict=True):
        if wanted[0] == "symlink":
            assert call.paths[0] == wanted.pop(1).encode()
        if wanted[-1].isdigit():
            assert call.flags & os.O_ACCMODE == int(wanted.pop())
        assert names == wanted
    opened = [call for call in own if call.name == "open"]
    assert opened[1].flags & os.O_CREAT
    assert [call.follows for call in opened[:4]] == [True, True, False, True]
    assert [call.follows for call in own if call.name == "chown"] == [True, False, True, True]


@pytest.mark.requirement("KO-3", "KO-5.2")
def test_a_denied_call_fails_and_changes_nothing(ground):
    ground.file("f")
    code = """
import os
for call in (lambda: open('f', 'w'), lambda: open('new', 'x'), lambda: os.unlink('f'), lambda: os.mkdir('d'),
             lambda: os.rename('f', 'g'), lambda: os.link('f', 'g'), lambda: os.symlink('f', 'g'),
             lambda: os.mkfifo('p'), lambda: os.truncate('f', 0), lambda: os.chmod('f', 0o777),
             lambda: os.utime('f', (1, 1)), lambda: os.execv('/bin/true', ['true'])):
    try: call(); print('done')
    except OSError as error: print(error.errno)
"""
    before = os.stat(ground.root / "f")
    opening = os.O_WRONLY | os.O_CREAT

    def decide(call: SystemCallRequest):
        reads = call.name == "open" and not call.flags & opening
        return ALLOW if reads else Deny(errno.EDQUOT)

    ended = ground.python(code, rules=None, decide=decide)
    if ended is not None:
        assert ended.out == f"{errno.EDQUOT}\n" * 12
        assert os.stat(ground.root / "f") == before
        assert os.listdir(ground.root) == ["f"]


def test_pipes_and_other_nameless_files_are_nobodys_business(ground):
    code = "open('/dev/stderr', 'w').write('x'); open('/proc/self/fd/2', 'a').write('y')"
    if not can_hold(None, allow):
        return
    calls: list[SystemCallRequest] = []
    with ground.start([PYTHON, "-I", "-S", "-c", code], stderr=-1, decide=noting(allow, calls)) as command:
        assert command.streams[2].read() == b"xy"
        assert command.wait(PATIENCE_S) == 0
    assert not [call for call in calls if call.flags & os.O_ACCMODE]


def test_programs_are_told_with_their_arguments(ground):
    ended = ground.shell("/bin/echo one 'two three' >f; exec /usr/bin/env true", rules=None, decide=allow)
    if ended is not None:
        started = [call for call in ended.calls if call.name == "execve"]
        assert started[0].paths == (os.fsencode(os.path.realpath("/bin")) + b"/echo",)
        assert started[0].argv == (b"/bin/echo", b"one", b"two three")
        assert {call.cwd for call in started} == {os.fsencode(ground.root)}
        assert [call.argv for call in started[1:3]] == [(b"/usr/bin/env", b"true"), (b"true",)]


def test_huge_arguments_are_told_in_part(ground):
    ended = ground.python("import os; os.execv('/bin/true', ['x' * 100000] * 15)", rules=None, decide=allow)
    if ended is not None:
        assert ended.code == 0
        (told,) = [call.argv for call in ended.calls if call.name == "execve"]
        assert [len(argument) for argument in told] == [4096] * 15


def test_addresses_are_told(ground):
    code = """
import _socket as s, os
udp = s.socket(s.AF_INET, s.SOCK_DGRAM); udp.bind(('127.0.0.1', 0))
udp.sendto(b'x', ('127.0.0.1', 9)); udp.sendmsg([b'x'], [], 0, ('127.0.0.1', 10))
udp.connect(('127.0.0.1', 11)); udp.send(b'x')
for address in ('l', '\\0name'):
    s.socket(s.AF_UNIX).bind(address)
    try: s.socket(s.AF_UNIX).connect(address)
    except OSError: pass
six = s.socket(s.AF_INET6, s.SOCK_DGRAM)
try: six.connect(('::1', 12)); six.connect(('::ffff:127.0.0.1', 13))
except OSError: pass
try: s.socket(s.AF_NETLINK, s.SOCK_RAW).bind((0, 0))
except OSError: pass
"""
    ended = ground.python(code, rules=None, decide=allow)
    if ended is None:
        return
    assert ended.err == ""
    told = [(call.name, call.address) for call in ended.calls if call.address is not None]
    local, link = SocketAddress("unix", path=os.fsencode(ground.root / "l")), SocketAddress("unix", path=b"\0name")
    assert told[:8] == [
        ("bind", SocketAddress("inet", "127.0.0.1", 0)),
        ("sendto", SocketAddress("inet", "127.0.0.1", 9)),
        ("sendto", SocketAddress("inet", "127.0.0.1", 10)),
        ("connect", SocketAddress("inet", "127.0.0.1", 11)),
        ("bind", local),
        ("connect", local),
        ("bind", link),
        ("connect", link),
    ]
    over_six = [("connect", SocketAddress("inet6", host, port)) for host, port in (("::1", 12), ("127.0.0.1", 13))]
    assert told[8:] in ([], over_six[:1], over_six)


@pytest.mark.requirement("KO-5.2")
def test_a_denied_connection_does_not_happen(ground):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import _socket; _socket.socket(2, 1).connect(('127.0.0.1', {port}))"

        def decide(call: SystemCallRequest):
            return Deny(errno.EPERM) if call.address == SocketAddress("inet", "127.0.0.1", port) else ALLOW

        ended = ground.python(code, rules=None, decide=decide)
        server.setblocking(False)
        if ended is not None:
            assert "PermissionError" in ended.err
            with pytest.raises(BlockingIOError):
                server.accept()


# Faults


def test_arguments_that_lead_nowhere_are_refused(ground):
    ground.file("f" * 100)
    code = """
import ctypes, mmap, errno
libc = ctypes.CDLL(None, use_errno=True)
def tried(address):
    return errno.errorcode[ctypes.get_errno()] if libc.open(ctypes.c_void_p(address), 0) < 0 else 'opened'
pages = mmap.mmap(-1, 3 * 4096)
base = ctypes.addressof(ctypes.c_char.from_buffer(pages))
name = b'f' * 100 + b'\\0'
pages[4096 - 50:4096 - 50 + 101] = name
print(tried(1), tried(2**63), tried(base + 4096 - 50))
pages[:] = b'x' * len(pages)
print(tried(base))
libc.munmap(ctypes.c_void_p(base + 4096), ctypes.c_size_t(4096))
print(tried(base + 4000))
"""
    ended = ground.python(code, rules=None, decide=allow)
    if ended is not None:
        assert (ended.out, ended.err) == ("EFAULT EFAULT opened\nENAMETOOLONG\nEFAULT\n", "")


def test_who_decides_may_fail_and_the_call_is_denied(ground):
    ground.file("f")
    reported: list[str] = []

    def decide(call: SystemCallRequest):
        if call.paths and call.paths[0].endswith(b"/f"):
            raise RuntimeError("undecided")
        return ALLOW

    code = "try: open('f')\nexcept OSError as error: print(error.errno)"
    ended = ground.python(code, rules=None, decide=decide, report=lambda failure: reported.append(str(failure)))
    if ended is not None:
        assert ended.out == f"{errno.EACCES}\n"
        assert reported == ["undecided"]


def test_who_is_killed_while_waiting_holds_nobody_up(ground):
    if not can_hold(None, allow):
        return
    ground.file("f")
    ground.file("g")
    asked, killed, later = threading.Event(), threading.Event(), threading.Event()

    def decide(call: SystemCallRequest):
        if call.paths and call.paths[0].endswith(b"/f"):
            asked.set()
            assert killed.wait(PATIENCE_S)
        if call.paths and call.paths[0].endswith(b"/g"):
            later.set()
        return ALLOW

    with ground.start(["/bin/sh", "-c", "cat f & echo $!; wait $!; cat g"], stdout=-1, decide=decide) as command:
        waiting = int(command.streams[1].readline())
        assert asked.wait(PATIENCE_S)
        os.kill(waiting, signal.SIGKILL)
        killed.set()
        assert command.wait(PATIENCE_S) == 0
        assert later.is_set()


def test_the_whole_command_is_ended_by_who_decides(ground):
    if not can_hold(None, allow):
        return
    commands: list[RunningCommand] = []
    ready = threading.Event()

    def decide(call: SystemCallRequest):
        if call.name == "mkdir":
            assert ready.wait(PATIENCE_S)
            commands[0].kill_group()
        return ALLOW

    code = "import os\nos.fork()\nos.setsid()\nos.mkdir(f'd{os.getpid()}')\nopen('survived', 'w')"
    with ground.start([PYTHON, "-I", "-S", "-c", f"import os\nif os.fork(): os.wait(); os._exit(0)\n{code}"],
                      decide=decide) as command:  # fmt: skip
        commands.append(command)
        ready.set()
        assert command.wait(PATIENCE_S) == -signal.SIGKILL
        assert command.kill_group()
        assert command.descendants() == set()
    assert os.listdir(ground.root) == []


def test_many_threads_and_children_are_all_answered(ground):
    for number in range(8):
        ground.file(f"f{number}")
    code = """
import os, threading
def work(name):
    for _ in range(25): os.close(os.open(name, os.O_RDONLY))
for child in range(4):
    if not os.fork(): break
else:
    child = -1
threads = [threading.Thread(target=work, args=(f'f{n}',)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if child < 0:
    print(sum(os.wait()[1] for _ in range(4)))
"""
    ended = ground.run([PYTHON, "-I", "-c", code], rules=None, decide=allow)
    if ended is not None:
        assert (ended.code, ended.out) == (0, "0\n")
        base = os.fsencode(ground.root) + b"/f"
        told = [call for call in ended.calls if call.name == "open" and call.paths[0].startswith(base)]
        assert len(told) == 5 * 8 * 25
        assert len({call.pid for call in told}) == 5 * 8


def test_a_storm_of_children_is_survived(ground):
    code = "import os\nfor _ in range(300):\n    if not os.fork():\n        open('/dev/null'); os._exit(0)"
    ended = ground.python(code, rules=None, decide=allow)
    if ended is not None:
        assert ended.code == 0


def test_who_is_left_when_the_watcher_ends_can_open_nothing(ground):
    if not can_hold(None, allow):
        return
    code = "import sys\nprint(1, flush=True)\nsys.stdin.read(1)\n"
    code += "try: open('/etc/passwd')\nexcept OSError as e: print(e.errno)"
    argv = [PYTHON, "-I", "-S", "-c", code]
    with ground.start(argv, stdin=-1, stdout=-1, decide=allow) as command:
        stdin, stdout, _ = command.streams
        stdout.readline()
        command._watcher.close()
        stdin.write(b"x")
        stdin.close()
        assert int(stdout.readline()) == errno.ENOSYS


@pytest.mark.slow
def test_only_one_watcher_fits_and_the_second_is_refused(ground):
    """A command under watch that wants to watch another is told so."""
    root = Path(__file__).parents[2]
    code = f"""
import sys, json; sys.path[:0] = [{str(root)!r}, *json.loads({json.dumps(json.dumps(__import__("sys").path))})]
from host.confinement import ALLOW, Confinement, start
from world.errors import RefusedError
try: start(['/bin/true'], cwd='/', env={{}}, confinement=Confinement(decide=lambda _: ALLOW))
except RefusedError as refused: print(refused.code)
"""
    ended = ground.run([PYTHON, "-c", code], rules=None, decide=allow)
    if ended is not None:
        assert (ended.out, ended.err) == ("CONFINEMENT_FAILED\n", "")


def test_elsewhere_it_says_why_not(monkeypatch):
    monkeypatch.setattr(watcher, "machine", lambda: "riscv64")
    assert "riscv64" in str(watcher.available().why_not)
    monkeypatch.setattr(watcher, "IS_LINUX", False)
    assert "Linux" in str(watcher.available().why_not)


def test_a_kernel_without_it_says_why_not(monkeypatch, ground):
    def missing(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(watcher, "system_call", missing)
    assert watcher.available().abi == 0
    assert isinstance(ground, Ground)
    assert ground.shell("true", rules=None, decide=allow) is None


def test_memory_is_read_from_its_file_where_the_quicker_way_is_forbidden(monkeypatch, ground):
    def forbidden(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(tracee, "read_memory", forbidden)
    ground.file("f", "read")
    ended = ground.shell("cat f; cat missing", rules=None, decide=allow)
    if ended is not None:
        assert ended.out == "read"
        told = [call.paths for call in ended.calls if call.name == "open"]
        assert (os.fsencode(ground.root / "f"),) in told
        assert (os.fsencode(ground.root / "missing"),) in told
