"""Becomes a command: makes its namespaces, puts the confinement on, waits until it may go, and executes.

Run as ``python -I -S launcher.py N``, where N is the file descriptor of the specification: a mapping that `marshal`
wrote in the same interpreter. Only the standard library is imported, and as little of it as can be: `json`, `signal`
or `typing` would cost more time than all the rest.

Where the command has namespaces of its own, this process makes them and the tree of files in them, and then two
children: the first process of the namespace of processes, with whose end the kernel ends all that are in it, and the
command, which is a child of the supervisor. The first process ends when the supervisor does, or lets go of the pipe
``lifeline``.

Instead of this process, bubblewrap can make the namespaces and the tree. The first process is then started by it, waits
in them, and this process joins it there before it makes the command's process.

The supervisor and this process talk over one socket. To the supervisor go ``pids N M`` with the numbers of these two
processes, as the supervisor counts, where there are namespaces, and behind them that of bubblewrap's own process; then
``listener N`` with the number of the descriptor that the kernel asks its questions on, ``ready``, or ``failed CODE
ERRNO WHAT``; back comes one byte, "go". The supervisor takes the listener by itself: after the filter is on, sending it
would be a call to ask about. The socket is closed on exec, so its end is the sign that the command runs.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

TYPE_CHECKING = False  # importing `typing` takes longer than starting the interpreter
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER = 1
_NEW_LISTENER = 1 << 3
_WAIT_KILLABLE = 1 << 5
_LANDLOCK_RESTRICT_SELF = 446
_SIGNALS_PYTHON_IGNORES = (13, 25)  # SIGPIPE, SIGXFSZ
_SIGCHLD = 17
_RLIMIT_CORE = 4
_SET_MASK = 2

_LANDLOCK_ADD_RULE = 445
_MOUNT_SETATTR = 442
_CLONE = {"x86_64": 56, "aarch64": 220}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPGET = {"x86_64": 125, "aarch64": 90}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CLONE_PARENT = 0x8000
_NEW_USER = 0x10000000
_NAMESPACES = 0x2C020000  # mounts, host name, System V and POSIX IPC, processes
_NEW_NETWORK = 0x40000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 1 << 18
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_AT_RECURSIVE = 0x8000
_ATTR_READ_ONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_DETACH = 2
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _CLEAR_ALL = 4, 24, 47, 4
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63
_KEPT_CAPABILITIES = 0x800005FB  # of root: owners, modes, signals, users, low ports, capabilities of files
_STAGES = (b"/tmp", b"/run", b"/mnt", b"/var", b"/opt")
_COVERS = b"/dev/.covers"
_EPERM, _EINVAL = 1, 22


class LaunchError(Exception):
    """The command could not be made to run."""

    def __init__(self, code: str, error: int, what: str) -> None:
        """Keep what the supervisor is told: the error's code, an errno, and what was tried."""
        super().__init__(code, error, what)


def main(specification: int) -> None:
    """Become the command; returns only when the supervisor went away.

    Args:
        specification: a file descriptor that the mapping is read from: ``socket`` (descriptor), ``argv``, ``env``,
            ``executable`` (bytes), ``cwd`` (bytes or descriptor), ``parent`` (process), ``limits`` (by number: soft and
            hard), ``ruleset`` (descriptor or None), ``filter`` (a BPF program or None), ``machine``, ``tree`` (see
            `host.confinement.tree`, or None), ``bubblewrap`` (its program and the steps of
            `host.confinement.bubblewrap`, or None where this process makes the namespaces itself), ``lifeline``
            (descriptor or None), ``fresh`` (what Landlock grants at places that are made anew).
    """
    with open(specification, "rb") as file:
        given = marshal.loads(file.read())
    libc = ctypes.CDLL(None, use_errno=True)
    connection = given["socket"]
    os.set_inheritable(connection, False)
    try:
        if not tie(libc, given["parent"]):
            return
        if given["tree"] is not None:
            try:
                seclude(libc, given)
            except OSError as missing:
                raise LaunchError("CONFINEMENT_FAILED", missing.errno or 0, "making the tree of files") from None
        become(libc, given)
    except LaunchError as failed:
        code, error, what = failed.args
        tell(connection, f"failed {code} {error} {what}")


def become(libc: Any, given: dict[str, Any]) -> None:
    """Put the confinement on, wait for the word, and execute."""
    connection = given["socket"]
    listener = confine(libc, given)
    tell(connection, "ready" if listener is None else f"listener {listener}")
    if os.read(connection, 1) != b"g":
        return
    if listener is not None:
        os.close(listener)
    default_signals(libc)
    execute(given)


def tie(libc: Any, parent: int) -> bool:
    """Have the command killed when who started it is killed; tell whether that one is still there.

    The kernel ties it to the thread that started it, not to the process: threads that start commands wait for their
    end (the handlers' threads of `host.worker`, and the one that runs `worldctl run`), also when nobody waits for them
    any more. It holds through execution, except of a program that changes the user or its privileges, and not for what
    the command starts: that is found by its mark (`host.confinement.descendants`).
    """
    if libc.prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (_SIGKILL, 0, 0, 0))):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "tying it to its parent")
    return os.getppid() == parent


def confine(libc: Any, given: dict[str, Any]) -> int | None:
    """Put limits, Landlock and the filter on, in this order; return the descriptor that questions are asked on."""
    try:
        os.chdir(given["cwd"])
        if isinstance(given["cwd"], int):
            os.close(given["cwd"])
    except OSError as error:
        raise LaunchError("NOT_A_FOLDER", error.errno or 0, "entering the folder") from None
    if given["limits"]:
        limit(given["limits"])
    ruleset, program = given["ruleset"], given["filter"]
    if ruleset is None and program is None:
        return None
    forbid_dumps(libc)
    drop(libc, given["machine"], _KEPT_CAPABILITIES)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "giving up new privileges")
    if ruleset is not None:
        if given["tree"] is not None:
            grant(libc, ruleset, given["fresh"])
        if libc.syscall(ctypes.c_long(_LANDLOCK_RESTRICT_SELF), ctypes.c_long(ruleset), ctypes.c_long(0)):
            raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "adopting the Landlock rules")
        os.close(ruleset)
    return None if program is None else install(libc, program, _SECCOMP[given["machine"]])


def limit(limits: dict[int, tuple[int, int]]) -> None:
    """Set resource limits."""
    import resource

    for kind, values in limits.items():
        try:
            resource.setrlimit(kind, values)
        except (OSError, ValueError) as error:
            raise LaunchError("CONFINEMENT_FAILED", getattr(error, "errno", 0) or 0, f"setting limit {kind}") from None


def forbid_dumps(libc: Any) -> None:
    """Have the kernel write no memory of crashed processes: no call names the file, or the program it starts.

    A limit of 1 forbids both; where the hard limit is 0 already, it cannot be raised to that, and 0 forbids files.
    """
    for most in (1, 0):
        if not libc.setrlimit(_RLIMIT_CORE, (ctypes.c_ulong * 2)(most, most)):
            return
    raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "forbidding memory dumps")


def install(libc: Any, program: bytes, seccomp: int) -> int:
    """Install the filter and return its listener; a kernel that cannot wait killably waits the old way."""
    code = ctypes.create_string_buffer(program, len(program))
    described = (ctypes.c_size_t * 2)(len(program) // 8, ctypes.addressof(code))  # struct sock_fprog, with its padding
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        arguments = (ctypes.c_long(seccomp), ctypes.c_long(_SET_MODE_FILTER), ctypes.c_long(flags))
        listener: int = libc.syscall(*arguments, described)
        if listener >= 0:
            return listener
    raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "installing the seccomp filter")


def start_first(libc: Any, given: dict[str, Any], stage: bytes) -> tuple[int, bytes]:
    """Start the first process of the namespaces; return its id, and the byte that it reported: zero, or an errno."""
    ready, made = os.pipe()
    first = os.fork()
    if first == 0:
        be_first(libc, given, stage, made)
    os.close(made)
    error = os.read(ready, 1)
    os.close(ready)
    return first, error


def seclude(libc: Any, given: dict[str, Any]) -> None:
    """Make the namespaces; returns in the command's process, which is a child of the supervisor."""
    tree, connection = given["tree"], given["socket"]
    folder = given["cwd"]
    if isinstance(folder, int):  # its name in the new tree; that it is the same folder is looked at there
        folder = os.readlink(b"/proc/self/fd/%d" % folder)
    if given["bubblewrap"] is None:
        leave(libc, tree["network"])
        stage = build(libc, tree)
        first, error = start_first(libc, given, stage)
        if error != b"\0":
            raise LaunchError("CONFINEMENT_FAILED", error[0] if error else 0, "mounting /proc")
        enter(libc, given["machine"], stage)
        started: tuple[int, ...] = (first,)
    else:
        started = wrap(libc, given)
    go, told = os.pipe()
    command = libc.syscall(
        ctypes.c_long(_CLONE[given["machine"]]), ctypes.c_long(_CLONE_PARENT | _SIGCHLD), *[None] * 4
    )
    if command < 0:
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "making the command's process")
    if command:
        first, *others = started
        tell(connection, " ".join(["pids", *map(str, (first, command, *others))]))
        os.write(told, b"g")
        os._exit(0)
    os.close(told)
    os.read(go, 1)
    os.close(go)
    os.close(given["lifeline"])
    os.setpgid(0, 0)
    if libc.prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (_SIGKILL, 0, 0, 0))):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "tying it to its parent")
    given["cwd"] = place(given["cwd"], folder)


def leave(libc: Any, network: bool) -> None:
    """Leave the machine's namespaces; who has no privileges takes one of users for it."""
    wanted = _NAMESPACES | (0 if network else _NEW_NETWORK)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(wanted):
        if libc.unshare(wanted | _NEW_USER):
            raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "making namespaces")
        try:
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{user} {user} 1"),
                ("gid_map", f"{group} {group} 1"),
            ):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        except OSError as error:
            raise LaunchError("CONFINEMENT_FAILED", error.errno or 0, "mapping the user") from None
    if not network:
        raise_loopback()


def raise_loopback() -> None:
    """Let the command's own network have the address 127.0.0.1, with nobody behind it."""
    import fcntl
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            fcntl.ioctl(asking, 0x8914, b"lo".ljust(16, b"\0") + b"\x41".ljust(24, b"\0"))  # SIOCSIFFLAGS: up, running
        except OSError as error:
            raise LaunchError("CONFINEMENT_FAILED", error.errno or 0, "raising the loopback device") from None


def build(libc: Any, tree: dict[str, Any]) -> bytes:
    """Mount the tree, and return where; /proc is still missing in it."""
    mount(libc, b"none", b"/", None, _RECURSIVE | _PRIVATE)
    sources = [(path, changes, source(path)) for path, changes in tree["mounts"]]
    stage = next((path for path in _STAGES if os.path.isdir(path)), b"/")
    mount(libc, b"tmpfs", stage, b"tmpfs", _NOSUID | _NODEV, b"mode=0755")
    for path in (b"/proc", b"/dev", b"/dev/pts", b"/dev/shm", _COVERS, _COVERS + b"/folder", *tree["folders"]):
        os.makedirs(stage + path, exist_ok=True)
    empty(stage + _COVERS + b"/file")
    for path, changes, opened in sources:
        if opened is None:
            continue
        target = stage + path
        if not os.path.lexists(target):
            if os.path.isdir(b"/proc/self/fd/%d" % opened):
                os.makedirs(target)
            else:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                empty(target)
        mount(libc, b"/proc/self/fd/%d" % opened, target, None, _BIND | _RECURSIVE)
        is_device = path.startswith(b"/dev/")
        attributes = _ATTR_NOSUID | (0 if is_device else _ATTR_NODEV) | (0 if changes else _ATTR_READ_ONLY)
        restrict(libc, target, attributes)
        os.close(opened)
    links = [*tree["links"], (b"/dev/ptmx", b"pts/ptmx"), (b"/dev/fd", b"/proc/self/fd")]
    links += [(b"/dev/" + name, b"/proc/self/fd/%d" % at) for at, name in enumerate((b"stdin", b"stdout", b"stderr"))]
    for path, text in links:
        if not os.path.lexists(stage + path):
            os.makedirs(os.path.dirname(stage + path), exist_ok=True)
            os.symlink(text, stage + path)
    for path in tree["files"]:
        if not os.path.lexists(stage + path):
            empty(stage + path)
    for path in tree["covers"]:
        if os.path.lexists(stage + path):
            kind = b"/folder" if os.path.isdir(stage + path) else b"/file"
            mount(libc, stage + _COVERS + kind, stage + path, None, _BIND)
            restrict(libc, stage + path, _ATTR_READ_ONLY)
    mount(libc, b"devpts", stage + b"/dev/pts", b"devpts", _NOSUID | _NOEXEC, b"newinstance,ptmxmode=0666,mode=620")
    mount(libc, b"tmpfs", stage + b"/dev/shm", b"tmpfs", _NOSUID | _NODEV, b"mode=1777")
    return stage


def source(path: bytes) -> int | None:
    """Open what is to be mounted; None where it is gone, or where a link has come to be on the way to it."""
    try:
        opened = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    if os.readlink(b"/proc/self/fd/%d" % opened) == path:
        return opened
    os.close(opened)
    return None


def empty(path: bytes) -> None:
    """Make an empty file that is closed to all but its owner."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, 0o400))


def mount(libc: Any, what: bytes, where: bytes, kind: bytes | None, flags: int, more: bytes | None = None) -> None:
    """Mount, or fail."""
    if libc.mount(what, where, kind, ctypes.c_ulong(flags), more):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), f"mounting {os.fsdecode(where)}")


def restrict(libc: Any, where: bytes, attributes: int) -> None:
    """Set attributes of a mount and of those in it."""
    described = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)  # struct mount_attr
    at = (ctypes.c_long(-100), where, ctypes.c_long(_AT_RECURSIVE), described, ctypes.c_long(32))
    if libc.syscall(ctypes.c_long(_MOUNT_SETATTR), *at):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), f"restricting {os.fsdecode(where)}")


def be_first(libc: Any, given: dict[str, Any], stage: bytes, made: int) -> None:
    """Be the first process of the namespace until the supervisor lets go; never returns."""
    try:
        os.chdir(stage)  # so that nothing of the old tree can be reached through this process
        failed = libc.mount(b"proc", stage + b"/proc", b"proc", ctypes.c_ulong(_NOSUID | _NODEV | _NOEXEC), None)
        hold(libc, given["machine"], given["lifeline"], made, ctypes.get_errno() if failed else 0)
    finally:
        os._exit(0)


def hold(libc: Any, machine: str, lifeline: int, made: int, error: int = 0) -> None:
    """Report that the namespaces are made, or an errno, and wait until the supervisor lets go."""
    os.setsid()
    libc.signal(_SIGCHLD, ctypes.c_void_p(1))  # ignored, so that orphans vanish by themselves
    drop(libc, machine, 0)
    libc.prctl(_PR_SET_DUMPABLE, *map(ctypes.c_ulong, (0, 0, 0, 0)))
    os.write(made, bytes([min(error, 255)]))
    os.closerange(0, lifeline)
    os.closerange(lifeline + 1, 65536)
    os.read(lifeline, 1)


def wrap(libc: Any, given: dict[str, Any]) -> tuple[int, int]:
    """Have bubblewrap make the namespaces, and join them; return the ids of their first process and of bubblewrap."""
    ready, made = os.pipe()
    described, information = os.pipe()
    complaints, complaining = os.pipe()
    wrapper = os.fork()
    if wrapper == 0:
        be_bubblewrap(given, made, information, complaining)
    for end in (made, information, complaining):
        os.close(end)
    number = os.read(described, 4096).partition(b'"child-pid":')[2].partition(b",")[0].strip(b" \n}")
    try:
        first = os.pidfd_open(int(number)) if number else -1
    except OSError:
        first = -1
    if first < 0 or os.read(ready, 1) != b"\0":
        os.close(given["lifeline"])
        said = os.read(complaints, 4096).decode("ascii", "replace").strip().partition("\n")[0]
        raise LaunchError(
            "CONFINEMENT_FAILED", _EPERM, f"making namespaces with bubblewrap ({said or 'no reason given'})"
        )
    join(libc, first, int(number))
    for end in (first, ready, described, complaints):
        os.close(end)
    return int(number), wrapper


def be_bubblewrap(given: dict[str, Any], made: int, information: int, complaining: int) -> None:
    """Become bubblewrap, which starts the first process of the namespaces; never returns."""
    try:
        import resource

        program, steps = given["bubblewrap"]
        own = (given["lifeline"], made, information, complaining)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number not in own:
                try:
                    os.set_inheritable(number, False)
                except OSError:
                    continue  # what the listing itself was read from
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        nothing = os.open(os.devnull, os.O_RDWR)
        for at, number in enumerate((nothing, nothing, complaining)):
            os.dup2(number, at)
        script = os.open(__file__, os.O_RDONLY)
        os.chdir("/")
        told = os.memfd_create("arguments")
        described = [b"--info-fd", b"%d" % information, *arguments(steps)]
        with open(told, "wb", closefd=False) as file:
            file.write(b"".join(word + b"\0" for word in described))
        os.lseek(told, 0, os.SEEK_SET)
        for number in (script, told, given["lifeline"], made, information):
            os.set_inheritable(number, True)
        first = [sys.executable, "-I", "-S", f"/proc/self/fd/{script}", "hold", given["machine"]]
        words = [program, "--args", str(told), "--", *first, str(given["lifeline"]), str(made)]
        os.execve(program, words, {})
    except (OSError, ValueError) as error:
        os.write(complaining, str(error).encode())
    finally:
        os._exit(1)


def arguments(steps: list[Any]) -> list[bytes]:
    """Return bubblewrap's arguments for some steps; what they mount is opened for it."""
    found: list[bytes] = []
    for kind, path, words in steps:
        opened = None
        if kind == "words":
            found += words
        elif kind == "mount":
            opened = source(path)
            found += [] if opened is None else [*words, b"%d" % opened, path]
        elif kind == "cover" and os.path.isdir(path):
            found += [b"--perms", b"0755", b"--tmpfs", path, b"--remount-ro", path]
        elif kind == "file" or os.path.lexists(path):
            opened = os.open(os.devnull, os.O_RDONLY)
            option = b"--file" if kind == "file" else b"--ro-bind-data"
            found += [b"--perms", b"0400", option, b"%d" % opened, path]
        if opened is not None:
            os.set_inheritable(opened, True)
    return found


def join(libc: Any, handle: int, first: int) -> None:
    """Join the namespaces of the first process; children of this process are in its namespace of processes."""
    wanted = _NAMESPACES
    for name, kind in (("net", _NEW_NETWORK), ("user", _NEW_USER)):
        theirs, ours = os.stat(f"/proc/{first}/ns/{name}"), os.stat(f"/proc/self/ns/{name}")
        if theirs.st_ino != ours.st_ino:
            wanted |= kind
    if libc.setns(handle, wanted):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "joining the namespaces of bubblewrap")
    os.chdir("/")


def enter(libc: Any, machine: str, stage: bytes) -> None:
    """Make the tree the root, and let go of the old one."""
    os.chdir(stage)
    if libc.syscall(ctypes.c_long(_PIVOT_ROOT[machine]), b".", b".") or libc.umount2(b".", _DETACH):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "entering the tree")
    os.chdir(b"/")
    described = (ctypes.c_uint64 * 4)(_ATTR_READ_ONLY, 0, 0, 0)
    at = (ctypes.c_long(-100), b"/", ctypes.c_long(0), described, ctypes.c_long(32))
    if libc.syscall(ctypes.c_long(_MOUNT_SETATTR), *at):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "closing the tree")


def drop(libc: Any, machine: str, kept: int) -> None:
    """Give up capabilities for good but for those of ``kept`` that there are, and be open to the supervisor's look."""
    for number in range(_LAST_CAPABILITY + 1):
        if not kept >> number & 1:
            libc.prctl(_PR_CAPBSET_DROP, *map(ctypes.c_ulong, (number, 0, 0, 0)))  # beyond the last it fails
    libc.prctl(_PR_CAP_AMBIENT, *map(ctypes.c_ulong, (_CLEAR_ALL, 0, 0, 0)))
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    held = (ctypes.c_uint32 * 6)()
    if libc.syscall(ctypes.c_long(_CAPGET[machine]), header, held):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "looking at capabilities")
    low, high = kept & held[1], kept >> 32 & held[4]
    values = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    if libc.syscall(ctypes.c_long(_CAPSET[machine]), header, values):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "giving up capabilities")
    libc.prctl(_PR_SET_DUMPABLE, *map(ctypes.c_ulong, (1, 0, 0, 0)))


def place(given: Any, folder: bytes) -> bytes:
    """Return the working directory's name in the tree.

    Where a descriptor was given and a folder is mounted, it has to be that one.
    """
    if isinstance(given, int):
        try:
            there, meant = os.stat(folder), os.fstat(given)
        except OSError as error:
            raise LaunchError("NOT_A_FOLDER", error.errno or 0, "entering the folder") from None
        if (there.st_dev, there.st_ino) != (meant.st_dev, meant.st_ino) and there.st_dev != os.stat(b"/").st_dev:
            raise LaunchError("NOT_A_FOLDER", _EINVAL, "entering the folder")
        os.close(given)
    return folder


def grant(libc: Any, ruleset: int, fresh: list[tuple[bytes, int]]) -> None:
    """Add what was made anew to the Landlock rules."""
    for path, access in fresh:
        at = os.open(path, os.O_PATH | os.O_CLOEXEC)
        described = ctypes.create_string_buffer(access.to_bytes(8, sys.byteorder) + at.to_bytes(4, sys.byteorder), 12)
        rule = (ctypes.c_long(ruleset), ctypes.c_long(1), described, ctypes.c_long(0))
        if libc.syscall(ctypes.c_long(_LANDLOCK_ADD_RULE), *rule):
            raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "granting what was made anew")
        os.close(at)


def default_signals(libc: Any) -> None:
    """Undo what this interpreter did to signals, and block none: the command starts as it would without us."""
    for number in _SIGNALS_PYTHON_IGNORES:
        libc.signal(number, None)
    libc.pthread_sigmask(_SET_MASK, ctypes.byref((ctypes.c_ulong * 16)()), None)


def execute(given: dict[str, Any]) -> None:
    """Become the command."""
    try:
        os.execve(given["executable"], given["argv"], given["env"])
    except FileNotFoundError as error:
        raise LaunchError("COMMAND_NOT_FOUND", error.errno or 0, "executing it or its interpreter") from None
    except OSError as error:
        raise LaunchError("COMMAND_NOT_EXECUTABLE", error.errno or 0, "executing it") from None


def tell(connection: int, message: str) -> None:
    """Say something to the supervisor, who may be gone."""
    try:
        os.write(connection, message.encode() + b"\n")
    except OSError:
        return


def attempt(machine: str, specification: int | None) -> int:
    """Make namespaces for no command; return the exit code, and print what could not be done.

    Args:
        machine: the architecture.
        specification: a file descriptor that bubblewrap's program and steps are read from; None tries without it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    lifeline, held = os.pipe()
    given: dict[str, Any] = {"lifeline": lifeline, "machine": machine}
    try:
        if specification is not None:
            with open(specification, "rb") as file:
                given["bubblewrap"] = marshal.loads(file.read())
            _, wrapper = wrap(libc, given)
            os.close(held)
            os.waitpid(wrapper, 0)
            return 0
        leave(libc, False)
        stage = build(libc, {"mounts": [], "covers": [], "folders": [], "files": [], "links": []})
        first, error = start_first(libc, given, stage)
        os.close(held)
        os.waitpid(first, 0)
        if error != b"\0":
            raise LaunchError("CONFINEMENT_FAILED", error[0] if error else 0, "mounting /proc")
        enter(libc, machine, stage)
    except OSError as error:
        os.write(1, f"making the tree of files failed ({error.strerror})".encode())
        return 1
    except LaunchError as failed:
        os.write(1, f"{failed.args[2]} failed ({os.strerror(failed.args[1])})".encode())
        return 1
    return 0


if __name__ == "__main__":
    try:
        if sys.argv[1] == "try":
            os._exit(attempt(sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else None))
        if sys.argv[1] == "hold":
            hold(ctypes.CDLL(None, use_errno=True), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
            os._exit(0)
        main(int(sys.argv[1]))
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(127)
