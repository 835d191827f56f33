"""A confined command reaches no process, no port and no setting of the machine that is not its own."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import socket
import subprocess
import threading
from typing import Any

import pytest

from host.confinement import Deny, SocketAddress, SystemCallRequest, watcher
from host.confinement.kernel import machine
from host.confinement.syscalls import AIMED, ARGUED, FORBIDDEN, GROUPS, MACHINES
from host.observation.operations import Operations
from host.observation.system_calls import operations_of
from host.workspace import Workspace
from tests.host.confining import PYTHON, allow, can_hold, ground
from tests.support.patience import PATIENCE_S

__all__ = ["ground"]

COLUMN = MACHINES[machine()].column if machine() in MACHINES else 0
FAMILIES = [2]
with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probed:
    probed.bind(("::1", 0))
    FAMILIES.append(10)
CALLING = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    return errno.errorcode[ctypes.get_errno()] if result < 0 else 'done'
"""


def numbers(table):
    return {name: entry[COLUMN] for name, entry in table.items() if entry[COLUMN] is not None}


# Processes


@pytest.mark.requirement("KO-5.2")
def test_a_command_cannot_set_the_limits_of_its_supervisor(ground):
    """The limits that it tries to set are the ones that the supervisor has."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    code = f"""
import os, resource
try: resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, {before})
except OSError as error: print(error.errno)
"""
    ended = ground.run([PYTHON, "-I", "-c", code], rules=None, decide=allow)
    if ended is not None:
        assert (ended.out, ended.err) == (f"{errno.EPERM}\n", "")
        assert resource.getrlimit(resource.RLIMIT_FSIZE) == before


# for each call the arguments with which it would change nothing, or could not be performed
HARMLESS = {
    "prlimit64": "pid, 1, same, 0",
    "setpriority": "0, pid, priority",
    "ioprio_set": "1, pid, 0",
    "sched_setparam": "pid, zero",
    "sched_setscheduler": "pid, -1, zero",
    "sched_setattr": "pid, 0, 0",
    "sched_setaffinity": "pid, 0, 0",
    "migrate_pages": "pid, 0, 0, 0",
    "move_pages": "pid, 0, 0, 0, 0, 0",
    "process_vm_readv": "pid, 0, 0, 0, 0, 0",
    "process_vm_writev": "pid, 0, 0, 0, 0, 0",
    "kcmp": "me, pid, 5, 0, 0",
    "pidfd_open": "pid, 0",
    "ptrace": "16, pid, 0, 0",
}
ON_PROCESSES = f"""{CALLING}
import resource
same = (ctypes.c_long * 2)(*resource.getrlimit(1))
zero = ctypes.byref(ctypes.c_int(0))
me, stranger, parent = os.getpid(), int(sys.argv[1]), os.getppid()
priority = os.getpriority(0, 0)
def tried(pid):
    return {{name: eval(f'call({{number}}, {{given}})', globals(), {{'pid': pid}}) for name, number, given in calls}}
"""


def test_calls_on_other_processes_are_refused_and_on_its_own_they_are_not(ground):
    assert HARMLESS.keys() == AIMED.keys()
    calls = [(name, number, HARMLESS[name]) for name, number in numbers(AIMED).items()]
    code = f"""calls = {calls!r}
{ON_PROCESSES}
for pid in (stranger, parent, 1):
    refused = tried(pid)
    assert set(refused.values()) == {{'EPERM'}}, refused
assert set(tried(2**22 - 1).values()) == {{'ESRCH'}}, tried(2**22 - 1)
child = os.fork()
if not child:
    sys.stdin.read(1)
    os._exit(0)
for pid in (me, child):
    own = tried(pid) if pid == me else {{name: one for name, one in tried(pid).items() if name != 'ptrace'}}
    own.pop('ptrace', None)
    assert {{'EPERM', 'ESRCH'}}.isdisjoint(own.values()), own
    assert own['prlimit64'] == own['setpriority'] == own['pidfd_open'] == 'done', own
assert call({AIMED["setpriority"][COLUMN]}, 2, 0, priority) == 'EPERM'
assert call({AIMED["setpriority"][COLUMN]}, 1, 0, priority) == 'done'
assert call({AIMED["setpriority"][COLUMN]}, 1, os.getpgid(parent), priority) == 'EPERM'
resource.prlimit(stranger, resource.RLIMIT_NOFILE)
print('held')
"""
    with subprocess.Popen(["/bin/sleep", "600"]) as stranger:
        try:
            ended = ground.run([PYTHON, "-I", "-c", code, str(stranger.pid)], rules=None, decide=allow)
        finally:
            stranger.kill()
    if ended is not None:
        assert (ended.out, ended.err) == ("held\n", "")


def test_who_has_ended_can_still_be_waited_for_by_its_descriptor(ground):
    code = """
import os
child = os.fork()
if not child: os._exit(3)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
handle = os.pidfd_open(child)
print(os.waitid(os.P_PIDFD, handle, os.WEXITED).si_status)
"""
    ended = ground.python(code, rules=None, decide=allow)
    if ended is not None:
        assert (ended.out, ended.err) == ("3\n", "")


def test_own_processes_stay_own_in_groups_and_sessions_of_their_own(ground):
    code = """
import os, resource
for leave in (os.setsid, lambda: os.setpgid(0, 0)):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        leave(); os.write(writing, b'x'); os.read(0, 1); os._exit(0)
    os.read(reading, 1)
    print(resource.prlimit(child, resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE))[0] >= -1)
"""
    ended = ground.run([PYTHON, "-I", "-c", code], rules=None, decide=allow)
    if ended is not None:
        assert (ended.out, ended.err) == ("True\nTrue\n", "")


def test_nobody_elses_process_is_taken_for_its_own_because_a_group_was_asked_for_it(ground):
    if not can_hold(None, allow):
        return
    code = f"""{CALLING}
print(call({GROUPS["setpgid"][COLUMN]}, os.getppid(), 0), flush=True)
sys.stdin.read(1)
"""
    with ground.start([PYTHON, "-I", "-c", code], stdin=-1, stdout=-1, decide=allow) as command:
        assert command.streams[1].readline() == b"EPERM\n"
        assert command._watcher.groups == {command.pid}


# The network


@pytest.mark.requirement("KO-3", "KO-5.2")
@pytest.mark.parametrize("bound", ["", "s.bind(('127.0.0.1', 0))", "s.bind(('', 0))"])
@pytest.mark.parametrize("family", FAMILIES)
def test_nobody_listens_at_a_port_that_was_not_declared(ground, bound, family):
    code = f"""
import _socket
s = _socket.socket({family}, 1)
{bound if family == 2 else bound.replace("127.0.0.1", "::1")}
try: s.listen(); print('listens')
except PermissionError: print('denied')
print(s.getsockopt(_socket.SOL_SOCKET, _socket.SO_ACCEPTCONN))
"""
    declared = "PROVIDES URL:tcp://127.0.0.1:1/"
    ended = ground.python(code, declared, rules=None, decide="declared")
    if ended is not None:
        assert (ended.out, ended.err) == ("denied\n0\n", "")
        (asked,) = [call for call in ended.calls if call.name == "listen"]
        assert bool(asked.address.port) is bool(bound)


def test_who_declared_a_port_listens_there_and_serves(ground):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    code = f"""
import _socket
s = _socket.socket(2, 1)
s.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', {port})); s.listen(5)
print('on', flush=True)
taken, _ = s._accept()
import os; os.write(taken, b'hello')
"""
    if not can_hold(None, allow):
        return
    calls: list[SystemCallRequest] = []

    def decide(call: SystemCallRequest):
        calls.append(call)
        seen = operations_of(Operations(Workspace(ground.root), confined=True), call)
        wanted = call.name not in ("bind", "listen") or seen[0].resource.text == f"URL:tcp://127.0.0.1:{port}/"
        return allow(call) if wanted else Deny()

    with ground.start([PYTHON, "-I", "-S", "-c", code], stdout=-1, decide=decide) as command:
        assert command.streams[1].readline() == b"on\n"
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
            assert client.recv(5) == b"hello"
        assert command.wait(PATIENCE_S) == 0
    assert [call.address for call in calls if call.name == "listen"] == [SocketAddress("inet", "127.0.0.1", port)]


def test_listening_fails_as_the_kernel_would_have_it(ground):
    code = f"""{CALLING}
import _socket
listen = {(50, 201)[COLUMN]}
udp, unnamed, here = _socket.socket(2, 2), _socket.socket(1, 1), _socket.socket(1, 1)
here.bind('socket')
print(call(listen, 999, 1), call(listen, 0, 1), call(listen, udp.fileno(), 1), call(listen, unnamed.fileno(), 1))
print(call(listen, here.fileno(), -1), here.getsockopt(1, _socket.SO_ACCEPTCONN), here.getblocking())
"""
    socket.setdefaulttimeout(PATIENCE_S)
    try:
        ended = ground.run([PYTHON, "-I", "-c", code], rules=None, decide=allow)
    finally:
        socket.setdefaulttimeout(None)
    if ended is not None:
        unsupported = errno.errorcode[errno.EOPNOTSUPP]
        assert (ended.out, ended.err) == (f"EBADF ENOTSOCK {unsupported} EINVAL\ndone 1 True\n", "")
        asked = [call.address for call in ended.calls if call.name == "listen"]
        assert asked == [SocketAddress("inet", "0.0.0.0", 0)]


def test_listening_where_the_kernel_chooses_is_told_as_what_nobody_can_declare(tmp_path):
    call = SystemCallRequest("listen", "listen", 1, address=SocketAddress("inet6", "::", 0))
    (seen,) = operations_of(Operations(Workspace(tmp_path)), call)
    assert (seen.predicate, seen.outside) == ("PROVIDES", "listening at any port")


@pytest.mark.requirement("KO-5.2")
def test_sockets_that_go_past_addresses_are_not_made(ground):
    code = f"""{CALLING}
made = {ARGUED["socket"][COLUMN]}
for family, kind, protocol in ((17, 3, 0), (38, 5, 0), (40, 1, 0), (16, 3, 9), (2, 3, 1), (2, 10, 3), (44, 3, 0)):
    assert call(made, family, kind, protocol) == 'EACCES', family
assert call(made, 16, 3, 0) == call(made, 2, 2, 0) == call(made, 1, 1, 0) == 'done'
import socket
print(socket.getaddrinfo('127.0.0.1', 80)[0][4][1], len(socket.socketpair()), bool(socket.if_nameindex()))
"""
    ended = ground.run([PYTHON, "-I", "-c", code], rules=None, decide=allow)
    if ended is not None:
        assert (ended.out, ended.err) == ("80 2 True\n", "")


# The machine


def test_no_call_on_the_whole_machine_comes_through(ground):
    """With arguments that could do no harm: null pointers, descriptors and flags that there are not."""
    code = f"""{CALLING}
import socket
for name, number in {numbers(FORBIDDEN)!r}.items():
    assert call(number, *[-1] * 6) == 'EPERM', name
same = socket.gethostname().encode()
assert call({FORBIDDEN["sethostname"][COLUMN]}, same, len(same)) == 'EPERM'
for flag in (0x20000, 0x10000000, 0x20000000, 0x40000000):
    child = os.fork()
    if not child: os._exit(call({ARGUED["unshare"][COLUMN]}, flag) != 'EPERM')
    assert os.waitpid(child, 0)[1] == 0, hex(flag)
    assert call({ARGUED["clone"][COLUMN]}, flag | 17, 0, 0, 0, 0) == 'EPERM'
assert call(435, 0, 0) == 'ENOSYS'
print('held')
"""
    ended = ground.run([PYTHON, "-I", "-c", code], rules=None, decide=allow)
    if ended is not None:
        assert (ended.out, ended.err) == ("held\n", "")


def test_files_cannot_be_made_immutable(ground):
    file = ground.file("f")
    code = """
import array, fcntl, os
fd = os.open('f', os.O_RDONLY)
flags = array.array('l', [0])
for ask, change, given in ((0x80086601, 0x40086602, bytearray(8)), (0x801C581F, 0x401C5820, bytearray(28))):
    try: fcntl.ioctl(fd, ask, given, True)
    except OSError: pass
    try: fcntl.ioctl(fd, change, given, True); print('done')
    except OSError as error: print(error.errno)
"""
    ended = ground.run([PYTHON, "-I", "-c", code], rules=None, decide=allow)
    if ended is not None:
        assert (ended.out, ended.err) == (f"{errno.EPERM}\n" * 2, "")
        file.unlink()


# Everyday programs


ASYNCIO = """
import asyncio
async def go():
    child = await asyncio.create_subprocess_exec('true')
    assert await child.wait() == 0
asyncio.run(go())
"""
POOL = """
import multiprocessing
with multiprocessing.get_context('fork').Pool(2) as pool:
    assert pool.map(abs, [-1, 2]) == [1, 2]
"""
PROGRAMS = {
    "threads": [PYTHON, "-I", "-c", "import threading as t\nx = t.Thread(target=print)\nx.start(); x.join()"],
    "asyncio": [PYTHON, "-I", "-c", ASYNCIO],
    "pool": [PYTHON, "-I", "-c", POOL],
    "bash": ["bash", "-c", "ulimit -n 100; (echo a | cat) && x=$(echo b) && nice -n 1 true && sleep 0 & wait $!"],
    "git": ["sh", "-c", "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"],
    "make": ["sh", "-c", "printf 'a b:\\n\\ttouch $@\\n' >Makefile && make -j2 a b"],
    "gcc": ["sh", "-c", "echo 'int main(void) { return 0; }' >a.c && gcc -pipe -o a.out a.c && ./a.out"],
    "node": ["node", "-e", "setTimeout(() => require('child_process').execSync('true'), 1)"],
}

INSIDE = {"git": "git", "make": "make", "gcc": "gcc"}
"""What a shell starts, where it is more than the shell itself."""


@pytest.mark.parametrize(
    "name", [name for name, (tool, *_) in PROGRAMS.items() if shutil.which(INSIDE.get(name, tool))]
)
def test_everyday_programs_work_as_before(ground, name):
    given = {"env": {"PATH": os.environ["PATH"], "HOME": str(ground.temporary), "TMPDIR": str(ground.temporary)}}
    ended = ground.run(PROGRAMS[name], rules=None, decide=allow, **given)
    if ended is not None:
        assert (ended.code, ended.err) == (0, "")


# The watcher itself


def test_a_watcher_that_cannot_hear_says_so_and_nothing_is_allowed(monkeypatch):
    class Deaf:
        def register(self, *_):
            return None

        def poll(self):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr("select.poll", Deaf)
    if watcher.available().why_not is not None:
        return
    reported: list[Any] = []
    loud: list[object] = []
    monkeypatch.setattr(threading, "excepthook", loud.append)
    listener, other = os.pipe()
    watching = watcher.Watcher(listener, launcher=os.getpid(), decide=allow, report=reported.append)
    watching.close()
    assert [error.errno for error in reported] == [errno.EINVAL]
    assert loud == []
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(listener)
    assert isinstance(watching._decide(SystemCallRequest("open", "open", 1)), Deny)
    os.close(other)


def test_a_command_is_ended_by_who_is_told_that_its_watcher_cannot_hear(ground):
    """An own limit of one descriptor is less than the watcher looks at."""
    if not can_hold(None, allow):
        return
    reported: list[BaseException] = []
    told = threading.Event()
    commands: list[Any] = []

    def report(failure: BaseException) -> None:
        reported.append(failure)
        if getattr(failure, "errno", None) == errno.EINVAL:
            os.killpg(commands[0].pid, 9)
            told.set()

    def only_started(call: SystemCallRequest):
        return Deny() if call.name == "mkdir" else allow(call)

    code = """
import os
os.read(0, 1)
for _ in range(2):
    try: os.mkdir('new')
    except OSError: pass
os.read(0, 1)
"""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ground.start([PYTHON, "-I", "-S", "-c", code], stdin=-1, decide=only_started, report=report) as command:
        commands.append(command)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
        try:
            command.streams[0].write(b"x")
            command.streams[0].flush()
            assert told.wait(PATIENCE_S)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert command.wait(PATIENCE_S) == -9
    assert not (ground.root / "new").exists()
