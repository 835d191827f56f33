"""Namespaces of a command, made by this process or by bubblewrap, with the file tree in them.

This process makes the namespaces and the tree, and then two children: the first process of the PID namespace, with
whose end the kernel ends all its members, and the command, which is a child of the supervisor. The first process ends
when the supervisor ends or closes the pipe ``lifeline``. If bubblewrap makes the namespaces and the tree, it starts the
first process, and this process joins its namespaces before it makes the command's process.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

if __package__:
    from host.confinement.launcher import support
else:  # run as a script, which has its folder on the path
    import support  # type: ignore[import-not-found,no-redef]

TYPE_CHECKING = False  # importing `typing` takes longer than starting the interpreter
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_SIGCHLD = 17
_MOUNT_SETATTR = 442
_CLONE = {"x86_64": 56, "aarch64": 220}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CLONE_PARENT = 0x8000
_NEW_USER = 0x10000000
_NAMESPACES = 0x2C020000  # mounts, host name, System V and POSIX IPC, processes
_NEW_NETWORK = 0x40000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 1 << 18
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_AT_RECURSIVE = 0x8000
_ATTR_READ_ONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_DETACH = 2
_STAGES = (b"/tmp", b"/run", b"/mnt", b"/var", b"/opt")
_COVERS = b"/dev/.covers"
_EPERM, _EINVAL = 1, 22


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
            raise support.LaunchError("CONFINEMENT_FAILED", error[0] if error else 0, "mounting /proc")
        enter(libc, given["machine"], stage)
        started: tuple[int, ...] = (first,)
    else:
        started = wrap(libc, given)
    go, rendered = os.pipe()
    command = libc.syscall(
        ctypes.c_long(_CLONE[given["machine"]]), ctypes.c_long(_CLONE_PARENT | _SIGCHLD), *[None] * 4
    )
    if command < 0:
        raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "making the command's process")
    if command:
        first, *others = started
        support.tell(connection, " ".join(["pids", *map(str, (first, command, *others))]))
        os.write(rendered, b"g")
        os._exit(0)
    os.close(rendered)
    os.read(go, 1)
    os.close(go)
    os.close(given["lifeline"])
    os.setpgid(0, 0)
    if libc.prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (_SIGKILL, 0, 0, 0))):
        raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "tying it to its parent")
    given["cwd"] = place(given["cwd"], folder)


def leave(libc: Any, network: bool) -> None:
    """Leave the machine's namespaces; a process without privileges also creates a user namespace."""
    wanted = _NAMESPACES | (0 if network else _NEW_NETWORK)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(wanted):
        if libc.unshare(wanted | _NEW_USER):
            raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "making namespaces")
        try:
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{user} {user} 1"),
                ("gid_map", f"{group} {group} 1"),
            ):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        except OSError as error:
            raise support.LaunchError("CONFINEMENT_FAILED", error.errno or 0, "mapping the user") from None
    if not network:
        raise_loopback()


def raise_loopback() -> None:
    """Give the command's own network the address 127.0.0.1, without any service."""
    import fcntl
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            fcntl.ioctl(asking, 0x8914, b"lo".ljust(16, b"\0") + b"\x41".ljust(24, b"\0"))  # SIOCSIFFLAGS: up, running
        except OSError as error:
            raise support.LaunchError("CONFINEMENT_FAILED", error.errno or 0, "raising the loopback device") from None


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
        raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), f"mounting {os.fsdecode(where)}")


def restrict(libc: Any, where: bytes, attributes: int) -> None:
    """Set attributes of a mount and of those in it."""
    described = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)  # struct mount_attr
    at = (ctypes.c_long(-100), where, ctypes.c_long(_AT_RECURSIVE), described, ctypes.c_long(32))
    if libc.syscall(ctypes.c_long(_MOUNT_SETATTR), *at):
        raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), f"restricting {os.fsdecode(where)}")


def be_first(libc: Any, given: dict[str, Any], stage: bytes, made: int) -> None:
    """Be the first process of the namespace until the supervisor closes the connection; never returns."""
    try:
        os.chdir(stage)  # so that nothing of the old tree can be reached through this process
        failed = libc.mount(b"proc", stage + b"/proc", b"proc", ctypes.c_ulong(_NOSUID | _NODEV | _NOEXEC), None)
        support.hold(libc, given["machine"], given["lifeline"], made, ctypes.get_errno() if failed else 0)
    finally:
        os._exit(0)


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
        raise support.LaunchError(
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
        script = os.open(support.__file__, os.O_RDONLY)
        os.chdir("/")
        rendered = os.memfd_create("arguments")
        described = [b"--info-fd", b"%d" % information, *arguments(steps)]
        with open(rendered, "wb", closefd=False) as file:
            file.write(b"".join(word + b"\0" for word in described))
        os.lseek(rendered, 0, os.SEEK_SET)
        for number in (script, rendered, given["lifeline"], made, information):
            os.set_inheritable(number, True)
        first = [sys.executable, "-I", "-S", f"/proc/self/fd/{script}", "hold", given["machine"]]
        words = [program, "--args", str(rendered), "--", *first, str(given["lifeline"]), str(made)]
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
        raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "joining the namespaces of bubblewrap")
    os.chdir("/")


def enter(libc: Any, machine: str, stage: bytes) -> None:
    """Make the tree the root, and detach the old one."""
    os.chdir(stage)
    if libc.syscall(ctypes.c_long(_PIVOT_ROOT[machine]), b".", b".") or libc.umount2(b".", _DETACH):
        raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "entering the tree")
    os.chdir(b"/")
    described = (ctypes.c_uint64 * 4)(_ATTR_READ_ONLY, 0, 0, 0)
    at = (ctypes.c_long(-100), b"/", ctypes.c_long(0), described, ctypes.c_long(32))
    if libc.syscall(ctypes.c_long(_MOUNT_SETATTR), *at):
        raise support.LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "closing the tree")


def place(given: Any, folder: bytes) -> bytes:
    """Return the working directory's name in the tree.

    Where a descriptor was given and a folder is mounted, it has to be that one.
    """
    if isinstance(given, int):
        try:
            there, meant = os.stat(folder), os.fstat(given)
        except OSError as error:
            raise support.LaunchError("NOT_A_FOLDER", error.errno or 0, "entering the folder") from None
        if (there.st_dev, there.st_ino) != (meant.st_dev, meant.st_ino) and there.st_dev != os.stat(b"/").st_dev:
            raise support.LaunchError("NOT_A_FOLDER", _EINVAL, "entering the folder")
        os.close(given)
    return folder


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
            raise support.LaunchError("CONFINEMENT_FAILED", error[0] if error else 0, "mounting /proc")
        enter(libc, machine, stage)
    except OSError as error:
        os.write(1, f"making the tree of files failed ({error.strerror})".encode())
        return 1
    except support.LaunchError as failed:
        os.write(1, f"{failed.args[2]} failed ({os.strerror(failed.args[1])})".encode())
        return 1
    return 0
