"""Wrappers around functions of the standard library whose audit events are missing or incomplete.

They are put in place with the first session, wherever a module holds the function, and pass straight through where no
session is. They follow threads, work for pools, the directory handles of ``os.open`` and looked-up names of hosts, and
report the few calls that raise no event at all.
"""

from __future__ import annotations

import _imp
import _posixsubprocess
import _socket
import _thread
import functools
import importlib.util
import os
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Callable
from concurrent.futures.thread import ThreadPoolExecutor
from typing import Any, Final

from host.observation.session_binding import (
    NO_SESSION,
    OWN_CODE,
    Owner,
    SessionBinding,
    engaged,
    governing,
    thread_state,
)

__all__ = ["install_wrappers"]

_Function = Callable[..., Any]
_Report = Callable[[str, tuple[Any, ...]], None]
_CARRIERS: Final = ("anyio.",)
"""Modules whose threads run work in the context of its submitter, which identifies the session."""


REACHING: Final = {
    "setpriority": "os.setpriority",
    "sched_setaffinity": "os.sched_setaffinity",
    "sched_setscheduler": "os.sched_setaffinity",
    "sched_setparam": "os.sched_setaffinity",
}
"""Functions of `os` that affect other processes and raise no event, with the event reported for them."""

_OPENERS: Final[dict[str, dict[str, tuple[str, int]]]] = {
    "readline": {
        "write_history_file": ("a", 0),
        "append_history_file": ("a", 1),
        "read_history_file": ("r", 0),
        "read_init_file": ("r", 0),
    },
    "_gdbm": {"open": ("", 0)},
    "_dbm": {"open": ("", 0)},
}
"""Functions of extension modules that open files themselves: their mode (empty: that of their second argument), and the
index of the argument with the name."""


def install_wrappers(report: _Report) -> None:
    """Install all wrappers.

    Args:
        report: called with an event and its arguments, like an audit hook.
    """
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        if hasattr(_thread, name):
            _wrap(_thread, name, _starts)
    _wrap(os, "open", _opens)
    _wrap(os, "mkfifo", functools.partial(_makes, report))
    _wrap(os, "mknod", functools.partial(_makes, report))
    for name in ("chroot", "unshare", "setns"):
        if hasattr(os, name):
            _wrap(os, name, functools.partial(_reports, report, "os.chroot"))
    for name in (
        "_interpreters",
        "_xxsubinterpreters",
    ):  # the event comes too late: refusing it can crash CPython 3.12
        if importlib.util.find_spec(name) is not None:
            _wrap(importlib.import_module(name), "create", functools.partial(_reports, report, "_interpreters.create"))
    for name, event in REACHING.items():
        if hasattr(os, name):
            _wrap(os, name, functools.partial(_reports, report, event))
    _wrap(signal, "pidfd_send_signal", functools.partial(_reports, report, "signal.pidfd_send_signal"))
    _wrap(time, "clock_settime", functools.partial(_reports, report, "time.clock_settime"))
    _wrap(time, "clock_settime_ns", functools.partial(_reports, report, "time.clock_settime"))
    for name in ("posix_spawn", "posix_spawnp"):
        _wrap(os, name, _spawns)
    _wrap(_imp, "exec_dynamic", functools.partial(_loads, report))
    for module in ("readline", "_gdbm", "_dbm"):
        if module in sys.modules:
            _wrap_openers(report, sys.modules[module])
    _wrap(_posixsubprocess, "fork_exec", functools.partial(_executes, report))
    _wrap(sqlite3, "connect", functools.partial(_connects, report))
    _wrap(_socket, "getaddrinfo", functools.partial(_looks_up, _of_getaddrinfo))
    _wrap(socket, "gethostbyname", functools.partial(_looks_up, lambda found: [found]))
    _wrap(socket, "gethostbyname_ex", functools.partial(_looks_up, lambda found: found[2]))
    submit: Any = _submits(ThreadPoolExecutor.submit)
    ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]  # all existing and future pools


def _wrap(module: Any, name: str, make: Callable[[_Function], _Function]) -> None:
    """Replace the original by a wrapper in every module that refers to it."""
    original = getattr(module, name)
    wrapper = functools.wraps(original)(make(original))
    for holder in tuple(sys.modules.values()):
        names = getattr(holder, "__dict__", None)
        if not isinstance(names, dict):
            continue
        for held in [key for key, value in tuple(names.items()) if value is original]:
            names[held] = wrapper
    for group in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if original in group:  # shutil tests by them whether rmtree can be safe
            group.add(wrapper)


class _Started:
    """The function of a new thread, run in the session of its creator."""

    __slots__ = ("function", "is_worker", "owner")

    def __init__(self, function: _Function, owner: SessionBinding, is_worker: bool) -> None:
        self.function = function
        self.owner: SessionBinding | None = owner
        self.is_worker = is_worker

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        thread_state.owner, thread_state.is_worker = self.owner, self.is_worker
        self.owner = None
        try:
            return self.function(*args, **kwargs)
        finally:
            thread_state.owner = None


def _starts(original: _Function) -> _Function:
    def start_new_thread(function: Any, *args: Any, **kwargs: Any) -> Any:
        bond = governing() if engaged else None
        if bond is None:
            return original(function, *args, **kwargs)
        if callable(function) and not _carries_contexts(function):
            function = _Started(function, bond, thread_state.pooling)
        thread_state.starting = True
        try:
            return original(function, *args, **kwargs)
        finally:
            thread_state.starting = False

    return start_new_thread


def _carries_contexts(function: Any) -> bool:
    thread = getattr(function, "__self__", None)
    return type(thread).__module__.startswith(_CARRIERS)


class _PoolTask:
    """A unit of work for a pool, run in the session of its submitter."""

    __slots__ = ("function", "owner")

    def __init__(self, function: _Function, owner: Owner) -> None:
        self.function = function
        self.owner = owner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = thread_state.owner
        thread_state.owner, self.owner = self.owner, None
        try:
            return self.function(*args, **kwargs)
        finally:
            # A pool's thread belongs to its creator's session until its first work; then the work determines it.
            thread_state.owner = NO_SESSION if thread_state.is_worker else before


def _submits(original: _Function) -> _Function:
    @functools.wraps(original)
    def submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not callable(fn):
            return original(self, fn, *args, **kwargs)
        thread_state.pooling = True
        try:
            return original(self, _PoolTask(fn, governing() or NO_SESSION), *args, **kwargs)
        finally:
            thread_state.pooling = False

    return submit


def _opens(original: _Function) -> _Function:
    # The event "open" has no dir_fd, without which a relative name is ambiguous.
    def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> Any:  # noqa: A001 # its name
        if dir_fd is None:
            return original(path, flags, mode)
        before, thread_state.dir_fd = thread_state.dir_fd, dir_fd
        try:
            return original(path, flags, mode, dir_fd=dir_fd)
        finally:
            thread_state.dir_fd = before

    return open


def _makes(report: _Report, original: _Function) -> _Function:
    def make(path: Any, *args: Any, dir_fd: int | None = None, **kwargs: Any) -> Any:
        if engaged:
            report("os.mkdir", (path, 0, -1 if dir_fd is None else dir_fd))
        return original(path, *args, dir_fd=dir_fd, **kwargs)

    return make


def _reports(report: _Report, event: str, original: _Function) -> _Function:
    def call(*args: Any, **kwargs: Any) -> Any:
        if engaged:
            report(event, args)
        return original(*args, **kwargs)

    return call


def _executes(report: _Report, original: _Function) -> _Function:
    # multiprocessing starts processes by this function without an event; subprocess has raised its own event.
    def fork_exec(args: Any, executables: Any, *rest: Any) -> Any:
        if engaged and sys._getframe(1).f_globals.get("__name__") != "subprocess":
            report("subprocess.Popen", (executables[0], args, rest[2], None))
        return _started(original(args, executables, *rest))

    return fork_exec


def _spawns(original: _Function) -> _Function:
    def spawn(*args: Any, **kwargs: Any) -> Any:
        return _started(original(*args, **kwargs))

    return spawn


def _started(child: int) -> int:
    """Record a process as a child of its sessions, which may signal it."""
    bond = governing() if engaged else None
    while bond is not None:
        bond.children.add(child)
        bond = bond.outer
    return child


def _loads(report: _Report, original: _Function) -> _Function:
    # Extension modules that open files themselves are wrapped when they are loaded.
    def exec_dynamic(module: Any) -> Any:
        done = original(module)
        if getattr(module, "__name__", None) in _OPENERS:
            _wrap_openers(report, module)
        return done

    return exec_dynamic


def _wrap_openers(report: _Report, module: Any) -> None:
    for name, (mode, at) in _OPENERS[module.__name__].items():
        _wrap(module, name, functools.partial(_opens_itself, report, module, mode, at))


def _opens_itself(report: _Report, module: Any, mode: str, at: int, original: _Function) -> _Function:
    def opener(*args: Any, **kwargs: Any) -> Any:
        if engaged and governing() is not None:
            path = args[at] if len(args) > at else None
            how = "r" if mode == "r" or (mode == "" and args[1:2] in ((), ("r",))) else "a"
            for name in _names_of(module, path):
                report("open", (name, how, 0 if how == "r" else os.O_CREAT))
        return original(*args, **kwargs)

    return opener


def _names_of(module: Any, path: Any) -> list[str]:
    """Return the files that a library opens for a name; None is the default file of readline."""
    if path is None:
        return [os.path.expanduser("~/.history"), os.path.expanduser("~/.inputrc")]
    if module.__name__ != "_dbm":
        return [os.fsdecode(path)]
    ends = (".db",) if "Berkeley" in module.library else (".pag", ".dir")
    return [os.fsdecode(path) + end for end in ends]


def _connects(report: _Report, original: _Function) -> _Function:
    # The event does not distinguish a URI "file:..." from a name, and an ATTACH in SQL raises no event.
    def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
        if not engaged or governing() is None:
            return original(database, *args, **kwargs)
        if isinstance(database, str) and database.startswith("file:") and not (kwargs.get("uri") or any(args[6:7])):
            report("sqlite3.connect", (f"./{database}",))
        connection = original(database, *args, **kwargs)
        sqlite3.Connection.set_authorizer(connection, functools.partial(_authorize, report))
        return connection

    return connect


def _authorize(report: _Report, action: int, name: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_ATTACH and name != "":  # a database without a name is a temporary one
        try:
            report("sqlite3.attach", (name,))
        except Exception:  # noqa: BLE001 # SQLite reports any exception as "not authorized"
            return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _looks_up(addresses_of: Callable[[Any], list[str]], original: _Function) -> _Function:
    def look_up(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        bond = governing() if engaged else None
        host = args[0] if args else kwargs.get("host")
        while bond is not None and isinstance(host, str | bytes):
            bond.learn(host.decode("ascii", "replace") if isinstance(host, bytes) else host, addresses_of(found))
            bond = bond.outer
        return found

    return look_up


def _of_getaddrinfo(found: Any) -> list[str]:
    return [str(entry[4][0]) for entry in found]


OWN_CODE.append(globals())
