"""Handlers that map audit events to operations (PEP 578, the Python documentation's table of audit events).

An event that is not in the table has no external effect, or its effect is reported by another event.
Operations of the interpreter itself are omitted, if its own code performs them: bytecode that an
import reads or writes in ``__pycache__``, names in the folders that an import searches, and source lines of loaded
modules for a traceback. Reading bytecode counts as reading its source.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from types import CodeType
from typing import Any, Final

from host.confinement.naming import HERE, Named, held
from host.observation.callers import (
    caller,
    is_import_frame,
    is_of_import,
    is_rmtree_frame,
    is_runtime_import,
    is_showing_source,
    is_within_rmtree,
)
from host.observation.network_events import HANDLERS as _NETWORK
from host.observation.other_processes import HANDLERS as _OTHER_PROCESSES
from host.observation.other_processes import Handler, NothingHappensError
from host.observation.session_binding import OWN_CODE, SessionBinding, own_code, thread_state
from world.klis.observation import Seen

__all__ = ["HANDLERS", "READY", "Handler", "NothingHappensError"]

_BYTECODE: Final = re.compile(rb"__pycache__/[^/]+\.pyc(\.\d+)?\Z")
_NO_FD: Final = (None, -1)
_LIBRARIES: Final = ("<frozen ", *{os.path.join(path, "") for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)})
_CONTROLS: Final = frozenset({0x5412, 0x541C, 0x40086602, 0x401C5820, 0xC0045877, 0xC0045878, 0xC0185879, 0x8004587D})
"""TIOCSTI, TIOCLINUX, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FIFREEZE, FITHAW, FITRIM, EXT4_IOC_SHUTDOWN."""


# Names


def _folder(dir_fd: int | None) -> int | None:
    """Return the open directory of a relative name; None is the working directory of the process."""
    return None if dir_fd in _NO_FD else dir_fd


def _name(path: Any) -> bytes:
    if path is None:
        return b"."
    name = os.fsencode(path)
    if b"\0" in name or not name:
        raise NothingHappensError
    return name


def _name_or_file(path: Any) -> bytes | Named:
    """Return the name of a call that also accepts an open file."""
    if not isinstance(path, int):
        return _name(path)
    found = held(path)
    if found is None:  # a pipe, a socket, or a file without a name
        raise NothingHappensError
    return found


# Files


def _opened(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    path, mode, flags = args
    if isinstance(path, int):
        return []
    name = _name(path)
    if isinstance(mode, str):
        flags |= _flags_of(mode)
        # A directory can only be "written" with an opener, whose own call is observed.
        if flags & os.O_ACCMODE and os.path.isdir(name):
            return []
    frame = caller()
    if is_rmtree_frame(frame) or is_showing_source(frame, name):
        return []
    folder = None if isinstance(mode, str) else _folder(thread_state.dir_fd)
    if is_import_frame(frame) and _BYTECODE.search(name):
        return [] if flags & os.O_ACCMODE else _read_source(bond, name)
    return bond.operations.opened(name, flags, cwd=folder, call=f"open({path!r}, {_shown(mode, flags)})")


def _flags_of(mode: str) -> int:
    if "+" in mode:
        return os.O_RDWR
    return os.O_RDONLY if "r" in mode or not mode else os.O_WRONLY


def _shown(mode: str | None, flags: int) -> str:
    if mode is not None:
        return repr(mode)
    names = ("O_RDONLY", "O_WRONLY", "O_RDWR")
    rendered = [names[flags & os.O_ACCMODE] if flags & os.O_ACCMODE < len(names) else "3"]
    rendered += [name for name in ("O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND") if flags & getattr(os, name)]
    return "|".join(rendered)


def _read_source(bond: SessionBinding, bytecode: bytes) -> list[Seen]:
    folder, name = os.path.split(bytecode)
    source = os.path.join(os.path.dirname(folder), name.split(b".")[0] + b".py")
    return bond.operations.opened(source, os.O_RDONLY, call=f"import {os.fsdecode(source)!r}")


def _listed(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    if is_within_rmtree() or is_of_import():
        return []
    return bond.operations.listed(_name_or_file(args[0]), call=f"listdir({args[0]!r})")


def _deleted(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    path, dir_fd = args
    name = _name(path)
    if is_within_rmtree() or (_BYTECODE.search(name) and is_of_import()):
        return []
    return bond.operations.deleted(name, cwd=_folder(dir_fd), call=f"remove({path!r})")


def _deleted_tree(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    path = args[0]
    folder = _folder(args[1] if len(args) > 1 else None)
    return bond.operations.deleted(_name(path), tree=True, cwd=folder, call=f"rmtree({path!r})")


def _renamed(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    old, new, old_fd, new_fd = args
    source, target = _name(old), _name(new)
    if _BYTECODE.search(source) and _BYTECODE.search(target) and is_of_import():
        return []
    return bond.operations.renamed(
        source, target, cwd=_start(old_fd), new_cwd=_start(new_fd), call=f"rename({old!r}, {new!r})"
    )


def _start(dir_fd: int) -> int:
    """Return the start of a name, also for the working directory: the two names of a call may differ in it."""
    return HERE if dir_fd in _NO_FD else dir_fd


def _made(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    path, _, dir_fd = args
    name = _name(path)
    if os.path.basename(name) == b"__pycache__" and is_of_import():
        return []
    return bond.operations.made(name, cwd=_folder(dir_fd), call=f"mkdir({path!r})")


def _linked(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    old, new, old_fd, new_fd = args
    return bond.operations.linked(
        _name(old),
        _name(new),
        symbolic=False,
        cwd=_start(old_fd),
        new_cwd=_start(new_fd),
        call=f"link({old!r}, {new!r})",
    )


def _symlinked(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    old, new, dir_fd = args
    return bond.operations.linked(
        _name(old), _name(new), symbolic=True, new_cwd=_start(dir_fd), call=f"symlink({old!r}, {new!r})"
    )


def _changes(call: str, dir_fd_at: int | None = None) -> Handler:
    def changed(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
        folder = None if dir_fd_at is None else _folder(args[dir_fd_at])
        return bond.operations.changed(_name_or_file(args[0]), cwd=folder, call=f"{call}({args[0]!r})")

    return changed


# Processes, databases, native code


def _started(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    executable, argv, cwd, _ = args
    words = [argv] if isinstance(argv, str | bytes | os.PathLike) else list(argv)
    folder = None if cwd is None else os.path.abspath(os.fsencode(cwd))
    return bond.operations.started(executable, words, cwd=folder, call=f"run({words!r})")


def _spawned(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    return _started(bond, (args[0], args[1], None, None))


def _shell(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    command = os.fsdecode(args[0])
    return bond.operations.started("/bin/sh", ["/bin/sh", "-c", command], call=f"system({command!r})")


def _refuses(what: str, instead: str) -> Handler:
    def refused(bond: SessionBinding, _: tuple[Any, ...]) -> list[Seen]:
        bond.refuse(what, instead)

    return refused


def _database(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    return bond.operations.database(args[0], call=f"sqlite3.connect({args[0]!r})")


def _extension_enabled(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    if args[1]:
        bond.refuse("to load native code into SQLite", "use the built-in functions of SQLite")
    return []


def _native(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    if args[0] is not None and not is_runtime_import(bond):
        bond.refuse("to call native code by ctypes", "run it in a child process, with subprocess")
    return []


def _imported(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    """Check the loading of an extension module; the files of other modules are observed when they are opened."""
    name, path = args[0], args[1]
    if path is not None and bond.operations.opened(path, os.O_RDONLY):
        bond.refuse(
            f"to load native code from {path}", f"install {name} beside the interpreter, or run it in a child process"
        )
    return []


def _loaded(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    """Register code that the session loads: from the workspace, or from a text that no library generated."""
    code = args[0]
    if not bond.keeps_code or not isinstance(code, CodeType):
        return []
    if code.co_filename.startswith("<"):
        frame = caller()
        if frame is None or frame.f_code.co_filename.startswith(_LIBRARIES):
            return []
    elif not bond.operations.opened(os.path.abspath(code.co_filename), os.O_RDONLY):
        return []
    own_code(code, bond)
    return []


def _controlled(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    if args[1] in _CONTROLS:
        bond.refuse(f"to control a terminal or a file system by ioctl {args[1]:#x}", "leave it to the operator")
    return []


def _thread_started(bond: SessionBinding, _: tuple[Any, ...]) -> list[Seen]:
    if not thread_state.starting:
        bond.refuse("to start a thread without the threading module", "start it with threading.Thread")
    return []


def _logged(bond: SessionBinding, _: tuple[Any, ...]) -> list[Seen]:
    return bond.operations.local_socket(b"/dev/log", call="syslog()")


def _attached(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    """Check ATTACH in SQL; an expression in place of a name cannot be evaluated."""
    if args[0] is None:
        bond.refuse("to ATTACH a database by an expression", "write its name as a literal")
    return bond.operations.database(args[0], call=f"ATTACH {args[0]!r}")


_FORK: Final = _refuses("to fork", "start a process with subprocess, or multiprocessing with the method 'spawn'")
_EXEC: Final = _refuses("to replace the process that the engine runs in", "start a process with subprocess")


def _ready(_: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    args[0].append(True)
    return []


READY: Final = "worldprotocol.ready"
"""Event of the engine, by which a session tests that its hook is active."""

HANDLERS: Final[Mapping[str, Handler]] = {
    READY: _ready,
    "open": _opened,
    "os.listdir": _listed,
    "os.scandir": _listed,
    "os.remove": _deleted,
    "os.rmdir": _deleted,
    "shutil.rmtree": _deleted_tree,
    "os.rename": _renamed,
    "os.mkdir": _made,
    "os.link": _linked,
    "os.symlink": _symlinked,
    "os.truncate": _changes("truncate"),
    "os.chmod": _changes("chmod", 2),
    "os.chown": _changes("chown", 3),
    "os.utime": _changes("utime", 3),
    "os.setxattr": _changes("setxattr"),
    "os.removexattr": _changes("removexattr"),
    "os.chflags": _changes("chflags"),
    "subprocess.Popen": _started,
    "os.posix_spawn": _spawned,
    "os.system": _shell,
    "os.fork": _FORK,
    "os.forkpty": _FORK,
    "pty.spawn": _FORK,
    "os.exec": _EXEC,
    "os.spawn": _EXEC,
    "os.startfile": _EXEC,
    "os.chroot": _refuses("to change the root of file names", "start a process with subprocess"),  # of the engine
    "sqlite3.connect": _database,
    "sqlite3.attach": _attached,  # of the engine
    "sqlite3.enable_load_extension": _extension_enabled,
    "ctypes.dlopen": _native,
    "ctypes.dlsym": _native,
    "ctypes.dlsym/handle": _native,
    "ctypes.call_function": _native,
    "ctypes.cdata": _native,
    "import": _imported,
    "exec": _loaded,
    "fcntl.ioctl": _controlled,
    "sys.addaudithook": _refuses(
        "to add an audit hook, which cannot be removed at the end of the session", "trace the process instead"
    ),
    "time.clock_settime": _refuses("to set the machine's clock", "leave it to the operator"),  # of the engine
    "socket.sethostname": _refuses("to set the machine's host name", "leave it to the operator"),
    **_NETWORK,
    **_OTHER_PROCESSES,
    "_interpreters.create": _refuses(  # of the engine
        "to create another interpreter", "start a process with subprocess: no audit hook observes it there"
    ),
    "_thread.start_new_thread": _thread_started,
    "_thread.start_joinable_thread": _thread_started,
    "syslog.openlog": _logged,
    "syslog.syslog": _logged,
}
"""Handlers of all observed audit events."""

OWN_CODE.append(globals())
