"""What each audit event does, told by ``Operations`` (PEP 578, the Python documentation's table of audit events).

An event that is not in the table has no effect outside of the process, or its effect is told by another event.
What belongs to the interpreter itself is left out, and only when the interpreter's own code does it: bytecode that an
import reads or writes in ``__pycache__``, names in the folders that an import searches, and source lines of loaded
modules for a traceback. Reading bytecode is reading its source.
"""

from __future__ import annotations

import _socket
import linecache
import os
import re
import shutil
import socket
import sys
import tokenize
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any, Final

from host.confinement.naming import HERE, Named, held
from host.observation.belonging import OWN_CODE, Bond, here, own_code
from host.observation.other_processes import HANDLERS as _OTHER_PROCESSES
from host.observation.other_processes import Handler, NothingHappensError
from world.klis.observation import Seen

__all__ = ["HANDLERS", "READY", "Handler", "NothingHappensError"]

_IMPORTS: Final = vars(sys.modules["_frozen_importlib_external"])
_BYTECODE: Final = re.compile(rb"__pycache__/[^/]+\.pyc(\.\d+)?\Z")
_REQUEST: Final = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]\r\n")
_NO_FD: Final = (None, -1)
_LIBRARIES: Final = ("<frozen ", *{os.path.join(path, "") for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)})
_CONTROLS: Final = frozenset({0x5412, 0x541C, 0x40086602, 0x401C5820, 0xC0045877, 0xC0045878, 0xC0185879, 0x8004587D})
"""TIOCSTI, TIOCLINUX, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FIFREEZE, FITHAW, FITRIM, EXT4_IOC_SHUTDOWN."""


# Names


def _folder(dir_fd: int | None) -> int | None:
    """Return the open directory that a relative name starts at; None is the process's own."""
    return None if dir_fd in _NO_FD else dir_fd


def _name(path: Any) -> bytes:
    if path is None:
        return b"."
    name = os.fsencode(path)
    if b"\0" in name or not name:
        raise NothingHappensError
    return name


def _name_or_file(path: Any) -> bytes | Named:
    """Return what a call names that also takes an open file."""
    if not isinstance(path, int):
        return _name(path)
    found = held(path)
    if found is None:  # a pipe, a socket, or a file that no name leads to any more
        raise NothingHappensError
    return found


# Whose doing it is


def _caller() -> FrameType | None:
    """Return the frame of the code that made the call, past our own."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and any(frame.f_globals is own for own in OWN_CODE):
        frame = frame.f_back
    return frame


def _is_of_import() -> bool:
    return _imports(_caller())


def _imports(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_globals is _IMPORTS


def _is_within_rmtree() -> bool:
    return _removes_tree(_caller())


def _removes_tree(frame: FrameType | None) -> bool:
    """Tell whether ``shutil.rmtree`` is at work, which was judged as a whole when it began."""
    return (
        frame is not None and frame.f_globals is vars(shutil) and frame.f_code.co_name.lstrip("_").startswith("rmtree")
    )


def _shows_source(frame: FrameType | None, path: bytes) -> bool:
    """Tell whether a traceback or a warning reads a line of a module that is loaded."""
    if frame is None or frame.f_globals is not vars(tokenize) or frame.f_back is None:
        return False
    if frame.f_back.f_globals is not vars(linecache):
        return False
    name = os.fsdecode(path)
    return any(getattr(module, "__file__", None) == name for module in tuple(sys.modules.values()))


def _is_by_runtime_import(bond: Bond) -> bool:
    """Tell whether a library of the interpreter's loads its own native part while it is imported."""
    frame = _caller()
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return True
        if not name.startswith("<frozen ") and (
            name.startswith("<") or bond.operations.opened(os.path.abspath(name), os.O_RDONLY)
        ):
            return False
        frame = frame.f_back
    return False


# Files


def _opened(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    path, mode, flags = args
    if isinstance(path, int):
        return []
    name = _name(path)
    if isinstance(mode, str):
        flags |= _flags_of(mode)
        # A directory can only be "written" with an opener, which opens something else and is seen when it does.
        if flags & os.O_ACCMODE and os.path.isdir(name):
            return []
    caller = _caller()
    if _removes_tree(caller) or _shows_source(caller, name):
        return []
    folder = None if isinstance(mode, str) else _folder(here.dir_fd)
    if _imports(caller) and _BYTECODE.search(name):
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
    told = [names[flags & os.O_ACCMODE] if flags & os.O_ACCMODE < len(names) else "3"]
    told += [name for name in ("O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND") if flags & getattr(os, name)]
    return "|".join(told)


def _read_source(bond: Bond, bytecode: bytes) -> list[Seen]:
    folder, name = os.path.split(bytecode)
    source = os.path.join(os.path.dirname(folder), name.split(b".")[0] + b".py")
    return bond.operations.opened(source, os.O_RDONLY, call=f"import {os.fsdecode(source)!r}")


def _listed(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    if _is_within_rmtree() or _is_of_import():
        return []
    return bond.operations.listed(_name_or_file(args[0]), call=f"listdir({args[0]!r})")


def _deleted(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    path, dir_fd = args
    name = _name(path)
    if _is_within_rmtree() or (_BYTECODE.search(name) and _is_of_import()):
        return []
    return bond.operations.deleted(name, cwd=_folder(dir_fd), call=f"remove({path!r})")


def _deleted_tree(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    path = args[0]
    folder = _folder(args[1] if len(args) > 1 else None)
    return bond.operations.deleted(_name(path), tree=True, cwd=folder, call=f"rmtree({path!r})")


def _renamed(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    old, new, old_fd, new_fd = args
    source, target = _name(old), _name(new)
    if _BYTECODE.search(source) and _BYTECODE.search(target) and _is_of_import():
        return []
    return bond.operations.renamed(
        source, target, cwd=_start(old_fd), new_cwd=_start(new_fd), call=f"rename({old!r}, {new!r})"
    )


def _start(dir_fd: int) -> int:
    """Return where a name starts, also where it is the process's own: the two names of a call differ in it."""
    return HERE if dir_fd in _NO_FD else dir_fd


def _made(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    path, _, dir_fd = args
    name = _name(path)
    if os.path.basename(name) == b"__pycache__" and _is_of_import():
        return []
    return bond.operations.made(name, cwd=_folder(dir_fd), call=f"mkdir({path!r})")


def _linked(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    old, new, old_fd, new_fd = args
    return bond.operations.linked(
        _name(old),
        _name(new),
        symbolic=False,
        cwd=_start(old_fd),
        new_cwd=_start(new_fd),
        call=f"link({old!r}, {new!r})",
    )


def _symlinked(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    old, new, dir_fd = args
    return bond.operations.linked(
        _name(old), _name(new), symbolic=True, new_cwd=_start(dir_fd), call=f"symlink({old!r}, {new!r})"
    )


def _changes(call: str, dir_fd_at: int | None = None) -> Handler:
    def changed(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
        folder = None if dir_fd_at is None else _folder(args[dir_fd_at])
        return bond.operations.changed(_name_or_file(args[0]), cwd=folder, call=f"{call}({args[0]!r})")

    return changed


# Network


def _connected(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    place, address = args[0], args[1]
    if address is None:  # sendmsg on what was connected before
        return []
    family = _family(place)
    if family == socket.AF_UNIX:
        return bond.operations.local_socket(address, call=f"connect({address!r})")
    if family not in (socket.AF_INET, socket.AF_INET6):
        bond.refuse(f"a connection of the address family {family}", "only internet and local sockets can be followed")
    host, port = _internet(address)
    return _connection(bond, host, port)


def _connection(bond: Bond, host: str, port: int) -> list[Seen]:
    call = f"connect({host!r}, {port})"
    names = bond.hosts.get(host, [])
    told = [bond.operations.connected(name, port, call=call) for name in (*names, host)]
    # An address belongs to every name that led to it: if one of these is declared, it is that one's.
    return next((seen for seen in told if not bond.watch.declaration.outside(seen)), told[0])


def _bound(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    place, address = args
    family = _family(place)
    if family == socket.AF_UNIX:
        if not address:  # the kernel chooses a name that is in no file system
            return []
        if os.fsencode(address).startswith(b"\0"):
            return bond.operations.local_socket(address, call=f"bind({address!r})")
        return bond.operations.made(address, call=f"bind({address!r})")
    if family not in (socket.AF_INET, socket.AF_INET6):
        bond.refuse(f"to listen at the address family {family}", "only internet and local sockets can be followed")
    host, port = _internet(address)
    return bond.operations.bound(host, port, call=f"bind({host!r}, {port})")


def _family(place: Any) -> int:
    return int(_socket.socket.family.__get__(place))  # past what a subclass says


def _internet(address: Any) -> tuple[str, int]:
    if not isinstance(address, tuple) or len(address) < 2 or not isinstance(address[1], int):
        raise NothingHappensError
    host = address[0]
    return (host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host)), int(address[1])


def _requested(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    url, _, _, method = args
    if not url.lower().startswith(("http:", "https:", "ftp:")):  # file: and data: open no connection
        return []
    return bond.operations.requested(method, url, call=f"{method} {url}")


def _http_connected(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    _, host, port = args
    return _connection(bond, str(host), int(port))


def _http_sent(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    """Tell a request by its first line; a body that looks like one is only held to more."""
    connection, data = args
    found = _REQUEST.match(data) if isinstance(data, bytes | bytearray) else None
    if found is None or found[1] == b"CONNECT":
        return []
    method, target = found[1].decode(), found[2].decode("latin-1")
    if target.startswith("/") or target == "*":
        scheme = "https" if hasattr(connection, "_context") else "http"
        tunnelled = getattr(connection, "_tunnel_host", None)
        host = tunnelled or connection.host
        port = connection._tunnel_port if tunnelled else connection.port
        target = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{target if target != '*' else '/'}"
    return bond.operations.requested(method, target, call=f"{method} {target}")


# Processes, databases, native code


def _started(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    executable, argv, cwd, _ = args
    words = [argv] if isinstance(argv, str | bytes | os.PathLike) else list(argv)
    folder = None if cwd is None else os.path.abspath(os.fsencode(cwd))
    return bond.operations.started(executable, words, cwd=folder, call=f"run({words!r})")


def _spawned(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    return _started(bond, (args[0], args[1], None, None))


def _shell(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    command = os.fsdecode(args[0])
    return bond.operations.started("/bin/sh", ["/bin/sh", "-c", command], call=f"system({command!r})")


def _refuses(what: str, instead: str) -> Handler:
    def refused(bond: Bond, _: tuple[Any, ...]) -> list[Seen]:
        bond.refuse(what, instead)

    return refused


def _database(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    return bond.operations.database(args[0], call=f"sqlite3.connect({args[0]!r})")


def _extension_enabled(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    if args[1]:
        bond.refuse("to load native code into SQLite", "use what SQLite has built in")
    return []


def _native(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    if args[0] is not None and not _is_by_runtime_import(bond):
        bond.refuse("to call native code by ctypes", "run it in a process of its own, with subprocess")
    return []


def _imported(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    """Tell what loading an extension module is; the files of all other modules are opened, and seen when they are."""
    name, path = args[0], args[1]
    if path is not None and bond.operations.opened(path, os.O_RDONLY):
        bond.refuse(
            f"to load native code from {path}", f"install {name} beside the interpreter, or run it in a process"
        )
    return []


def _loaded(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    """Take note of code that the session brings: from the workspace, or from a text that no library made."""
    code = args[0]
    if not bond.keeps_code or not isinstance(code, CodeType):
        return []
    if code.co_filename.startswith("<"):
        caller = _caller()
        if caller is None or caller.f_code.co_filename.startswith(_LIBRARIES):
            return []
    elif not bond.operations.opened(os.path.abspath(code.co_filename), os.O_RDONLY):
        return []
    own_code(code, bond)
    return []


def _controlled(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    if args[1] in _CONTROLS:
        bond.refuse(f"to control a terminal or a file system by ioctl {args[1]:#x}", "leave it to the operator")
    return []


def _thread_started(bond: Bond, _: tuple[Any, ...]) -> list[Seen]:
    if not here.starting:
        bond.refuse("to start a thread past the threading module", "start it with threading.Thread")
    return []


def _logged(bond: Bond, _: tuple[Any, ...]) -> list[Seen]:
    return bond.operations.local_socket(b"/dev/log", call="syslog()")


def _attached(bond: Bond, args: tuple[Any, ...]) -> list[Seen]:
    """Tell what ATTACH in SQL is; an expression in place of a name cannot be told."""
    if args[0] is None:
        bond.refuse("to ATTACH a database by an expression", "write its name as a literal")
    return bond.operations.database(args[0], call=f"ATTACH {args[0]!r}")


_FORK: Final = _refuses("to fork", "start a process with subprocess, or multiprocessing with the method 'spawn'")
_EXEC: Final = _refuses("to replace the process that the engine runs in", "start a process with subprocess")


def _ready(_: Bond, args: tuple[Any, ...]) -> list[Seen]:
    args[0].append(True)
    return []


READY: Final = "worldprotocol.ready"
"""An event of ours, by which a session makes sure that its hook hears anything."""

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
    "socket.connect": _connected,
    "socket.sendto": _connected,
    "socket.sendmsg": _connected,
    "socket.bind": _bound,
    "urllib.Request": _requested,
    "http.client.connect": _http_connected,
    "http.client.send": _http_sent,
    "subprocess.Popen": _started,
    "os.posix_spawn": _spawned,
    "os.system": _shell,
    "os.fork": _FORK,
    "os.forkpty": _FORK,
    "pty.spawn": _FORK,
    "os.exec": _EXEC,
    "os.spawn": _EXEC,
    "os.startfile": _EXEC,
    "os.chroot": _refuses("to change what the names of files mean", "start a process with subprocess"),  # ours
    "sqlite3.connect": _database,
    "sqlite3.attach": _attached,  # ours
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
        "to add an audit hook, which no session's end takes away", "trace the process instead"
    ),
    "time.clock_settime": _refuses("to set the machine's clock", "leave it to the operator"),  # ours
    "socket.sethostname": _refuses("to set the machine's host name", "leave it to the operator"),
    **_OTHER_PROCESSES,
    "_interpreters.create": _refuses(  # ours
        "to make another interpreter", "start a process with subprocess: no audit hook reaches in there"
    ),
    "_thread.start_new_thread": _thread_started,
    "_thread.start_joinable_thread": _thread_started,
    "syslog.openlog": _logged,
    "syslog.syslog": _logged,
}
"""From audit events to what they do."""

OWN_CODE.append(globals())
