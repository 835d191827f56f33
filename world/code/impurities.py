"""Classification of impure operations from calls and audit events.

Built-in functions before their call, Python functions before their start, and audit events (PEP 578) are each mapped to
an ``Impurity``, or to None where they are pure.
"""

from __future__ import annotations

import io
import os
import random
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Final

__all__ = [
    "HARMLESS",
    "MODULES",
    "PLAIN",
    "Impurity",
    "Kind",
    "impurity_of",
    "is_settled",
    "of_builtin",
    "of_event",
    "of_function",
    "seeded_in",
]

Kind = str
"""Kind of an impure operation: clock, randomness, environment, network, files, processes, threads, output, ..."""


@dataclass(frozen=True, slots=True)
class Impurity:
    """One impure operation.

    Args:
        kind: its kind.
        what: the usual name of the function or resource: ``time.time``.
    """

    kind: Kind
    what: str


_CLOCK: Final = frozenset(
    {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "process_time",
        "process_time_ns",
        "thread_time",
        "thread_time_ns",
        "clock_gettime",
        "clock_gettime_ns",
        "localtime",
        "gmtime",
        "ctime",
        "asctime",
        "strftime",
        "mktime",
        "sleep",
    }
)
_CLOCK_OF_DATES: Final = frozenset({"now", "utcnow", "today"})
_PURE_IN_POSIX: Final = frozenset(
    {
        "fspath",
        "strerror",
        "major",
        "minor",
        "makedev",
        "WCOREDUMP",
        "WIFCONTINUED",
        "WIFSTOPPED",
        "WIFSIGNALED",
        "WIFEXITED",
        "WEXITSTATUS",
        "WTERMSIG",
        "WSTOPSIG",
        "waitstatus_to_exitcode",
        "_path_normpath",
        "_path_splitroot",
        "_path_splitroot_ex",
    }
)
_MACHINE: Final = frozenset(
    {
        "putenv",
        "unsetenv",
        "getcwd",
        "getcwdb",
        "getpid",
        "getppid",
        "getuid",
        "geteuid",
        "getgid",
        "getegid",
        "getgroups",
        "getlogin",
        "getpgid",
        "getpgrp",
        "getsid",
        "getpriority",
        "uname",
        "cpu_count",
        "process_cpu_count",
        "sched_getaffinity",
        "getloadavg",
        "sysconf",
        "confstr",
        "get_terminal_size",
        "ttyname",
        "umask",
    }
)
_PROCESSES: Final = (
    "exec",
    "fork",
    "kill",
    "nice",
    "popen",
    "posix_spawn",
    "startfile",
    "system",
    "wait",
    "_exit",
)
_MODULES: Final[dict[str, Kind]] = {
    "_posixsubprocess": "processes",
    "_socket": "network",
    "_sqlite3": "files",
    "_ssl": "network",
    "_uuid": "randomness",
    "fcntl": "files",
    "mmap": "files",
    "resource": "environment",
    "select": "network",
    "signal": "processes",
    "socket": "network",
    "sqlite3": "files",
    "syslog": "output",
}
_BUILTINS: Final[dict[tuple[str, str], Impurity]] = {
    ("_thread", "start_new_thread"): Impurity("threads", "_thread.start_new_thread"),
    ("_thread", "start_joinable_thread"): Impurity("threads", "_thread.start_joinable_thread"),
    ("builtins", "input"): Impurity("files", "input"),
    ("builtins", "print"): Impurity("output", "print"),
    ("sys", "setprofile"): Impurity("interpreter", "sys.setprofile"),
    ("sys", "settrace"): Impurity("interpreter", "sys.settrace"),
}
_PYTHON_FUNCTIONS: Final[dict[tuple[str, str], Impurity]] = {
    **{
        ("os", f"_Environ.{name}"): Impurity("environment", "os.environ")
        for name in ("__getitem__", "__setitem__", "__delitem__", "__iter__", "__len__", "copy")
    },
    ("os", "getenv"): Impurity("environment", "os.getenv"),
    ("os", "getenvb"): Impurity("environment", "os.getenvb"),
    ("uuid", "uuid1"): Impurity("randomness", "uuid.uuid1"),
    ("uuid", "uuid4"): Impurity("randomness", "uuid.uuid4"),
    ("uuid", "uuid6"): Impurity("randomness", "uuid.uuid6"),
    ("uuid", "uuid7"): Impurity("randomness", "uuid.uuid7"),
    ("uuid", "getnode"): Impurity("environment", "uuid.getnode"),
    ("secrets", "choice"): Impurity("randomness", "secrets.choice"),
    ("secrets", "randbelow"): Impurity("randomness", "secrets.randbelow"),
    ("secrets", "token_bytes"): Impurity("randomness", "secrets.token_bytes"),
    ("secrets", "token_hex"): Impurity("randomness", "secrets.token_hex"),
    ("secrets", "token_urlsafe"): Impurity("randomness", "secrets.token_urlsafe"),
    ("subprocess", "Popen.__init__"): Impurity("processes", "subprocess.Popen"),
    ("threading", "Thread.start"): Impurity("threads", "threading.Thread.start"),
    ("concurrent.futures.thread", "ThreadPoolExecutor.submit"): Impurity("threads", "ThreadPoolExecutor.submit"),
    ("concurrent.futures.process", "ProcessPoolExecutor.submit"): Impurity("processes", "ProcessPoolExecutor.submit"),
    ("urllib.request", "urlopen"): Impurity("network", "urllib.request.urlopen"),
    ("logging", "Logger._log"): Impurity("output", "logging"),
    ("world.model.immutable_json", "_refuse_change"): Impurity("mutation", "a frozen value"),
}
_EVENTS: Final[dict[str, Kind]] = {
    "open": "files",
    "_thread.start_new_thread": "threads",
    "_thread.start_joinable_thread": "threads",
    "builtins.input": "files",
    "time.sleep": "clock",
    "sys.addaudithook": "interpreter",
    "sys.setprofile": "interpreter",
    "sys.settrace": "interpreter",
}
_EVENT_FAMILIES: Final[dict[str, Kind]] = {
    "ctypes": "interpreter",
    "fcntl": "files",
    "ftplib": "network",
    "glob": "files",
    "http": "network",
    "imaplib": "network",
    "mmap": "files",
    "msvcrt": "files",
    "nntplib": "network",
    "pathlib": "files",
    "poplib": "network",
    "pty": "processes",
    "resource": "environment",
    "shutil": "files",
    "signal": "processes",
    "smtplib": "network",
    "socket": "network",
    "sqlite3": "files",
    "subprocess": "processes",
    "syslog": "output",
    "telnetlib": "network",
    "tempfile": "files",
    "urllib": "network",
    "webbrowser": "processes",
    "winreg": "environment",
}

# The date parser reads the names of days and months from the module ``time``, but not the time.
_TRUSTED_CALLERS: Final = frozenset({"_strptime"})

_SETTLED: Final[dict[str, frozenset[Kind]]] = {
    "pydantic.plugin._loader": frozenset({"environment", "files"}),
    "zoneinfo._common": frozenset({"files"}),
    "zoneinfo._tzpath": frozenset({"files"}),
}
"""Reads of library modules that are content of the library: the plugins of pydantic, and the time zone database."""

_GLOBAL_RANDOM: Final = getattr(random.seed, "__self__", None)
"""The generator of the functions of ``random``, which is shared by the process."""
_ALSO_SHARED: Final = "random.Random (made or seeded before the call)"

PLAIN: Final = frozenset(
    {str, bytes, bytearray, int, float, complex, bool, list, tuple, dict, set, frozenset, re.Pattern, re.Match}
)
"""Types whose methods access only their own object."""

_FILE_OPENERS: Final = (open, os.open)

HARMLESS: Final[set[Any]] = set()
"""Cache of built-in module functions that are pure for every caller; their number is bounded."""

MODULES: Final = frozenset(module for module, _ in _PYTHON_FUNCTIONS) | {"random"}
"""Modules of impure Python functions, as a fast filter of calls."""


def of_builtin(function: Any, caller: FrameType, seeded: Collection[int] = ()) -> Impurity | None:
    """Return the impurity of a call of a built-in function or method, if any.

    Args:
        function: the function.
        caller: the frame that calls it.
        seeded: ids of the random generators that the watched call itself seeded; the values of all others depend on
            earlier draws.
    """
    owner = getattr(function, "__self__", None)
    if isinstance(owner, ModuleType):
        found = _of_module(owner.__name__, function.__name__)
        if found is None:
            HARMLESS.add(function)
        return None if found is not None and caller.f_globals.get("__name__") in _TRUSTED_CALLERS else found
    name = getattr(function, "__name__", "")
    if isinstance(owner, type):
        if name in _CLOCK_OF_DATES and issubclass(owner, date):
            return Impurity("clock", f"{owner.__name__}.{name}")
        return None
    if owner is None:
        return None
    return _of_method(owner, name, seeded)


def _of_module(module: str, name: str) -> Impurity | None:
    if module == "time":
        return Impurity("clock", f"time.{name}") if name in _CLOCK else None
    if module in ("posix", "nt"):
        return None if name in _PURE_IN_POSIX else _of_os(name)
    kind = _MODULES.get(module)
    if kind is not None:
        return Impurity(kind, f"{module.lstrip('_')}.{name}")
    return _BUILTINS.get((module, name))


def _of_os(name: str) -> Impurity:
    what = f"os.{name}"
    if name in ("urandom", "getrandom"):
        return Impurity("randomness", what)
    if name in ("times", "clock"):
        return Impurity("clock", what)
    if name in _MACHINE:
        return Impurity("environment", what)
    return Impurity("processes" if name.startswith(_PROCESSES) else "files", what)


def _of_method(owner: object, name: str, seeded: Collection[int]) -> Impurity | None:
    if owner is _GLOBAL_RANDOM:
        return Impurity("randomness", f"random.{name}")
    if isinstance(owner, random.Random):
        return None if id(owner) in seeded else Impurity("randomness", _ALSO_SHARED)
    if isinstance(owner, io.IOBase):
        if isinstance(owner, (io.StringIO, io.BytesIO)):
            return None
        is_output = owner in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        return Impurity("output" if is_output else "files", f"{type(owner).__name__}.{name}")
    kind = _MODULES.get(type(owner).__module__)
    return None if kind is None else Impurity(kind, f"{type(owner).__qualname__}.{name}")


def seeded_in(frame: FrameType) -> random.Random | None:
    """Return the random generator that a starting function seeds, if any."""
    owner = frame.f_locals.get("self") if frame.f_code is random.Random.seed.__code__ else None
    return owner if isinstance(owner, random.Random) and owner is not _GLOBAL_RANDOM else None


def of_function(frame: FrameType) -> Impurity | None:
    """Return the impurity of a Python function that is about to start, if any.

    Args:
        frame: its frame.
    """
    module, name = frame.f_globals.get("__name__"), frame.f_code.co_qualname
    if module == "random" and name == "Random.seed":
        # A generator with an explicit seed is a constant; without one it reads entropy from the system.
        return Impurity("randomness", "random.Random") if frame.f_locals.get("a") is None else None
    return _PYTHON_FUNCTIONS.get((module, name)) if isinstance(module, str) else None


def is_settled(found: Impurity, module: object) -> bool:
    """Return whether a library module is exempt for this impurity.

    Args:
        found: the impurity.
        module: the name of the module whose code performs it.
    """
    return isinstance(module, str) and found.kind in _SETTLED.get(module, ())


def of_event(event: str, args: tuple[Any, ...]) -> Impurity | None:
    """Return the impurity of an audit event (PEP 578), if any.

    Args:
        event: the event's name.
        args: the event's arguments.
    """
    kind = _EVENTS.get(event)
    if event == "open" and _reads_time_zone(args):  # opened by code in C, which has no frame
        return None
    if kind is not None:
        return Impurity(kind, f"open({repr(args[0])[:200]})" if event == "open" and args else event)
    family, dot, name = event.partition(".")
    if not dot:
        return None
    if family == "os":
        return _of_os(name)
    kind = _EVENT_FAMILIES.get(family)
    return None if kind is None else Impurity(kind, event)


def _reads_time_zone(args: tuple[Any, ...]) -> bool:
    """Return whether the event opens a file of the time zone database for reading."""
    library = sys.modules.get("zoneinfo")
    if library is None or len(args) < 2 or not isinstance(args[0], str) or args[1] not in ("r", "rb"):
        return False
    path = os.path.normpath(args[0])
    return any(path.startswith(f"{folder}{os.sep}") for folder in library.TZPATH)


def impurity_of(value: object) -> Impurity | None:
    """Return the impurity that calling or reading a value is, if any.

    Args:
        value: what code names: a function, a class, ``os.environ``.
    """
    if value is os.environ:
        return Impurity("environment", "os.environ")
    if any(value is one for one in _FILE_OPENERS):
        return Impurity("files", "open")
    if isinstance(value, type):
        return _of_class(value)
    if isinstance(value, FunctionType):
        return _PYTHON_FUNCTIONS.get((value.__module__, value.__qualname__))
    if isinstance(value, MethodType):
        return _of_method(value.__self__, value.__name__, ())
    if not isinstance(value, BuiltinFunctionType):
        return None
    owner = getattr(value, "__self__", None)
    if isinstance(owner, ModuleType):
        return _of_module(owner.__name__, value.__name__)
    if isinstance(owner, type):
        is_clock = value.__name__ in _CLOCK_OF_DATES and issubclass(owner, date)
        return Impurity("clock", f"{owner.__name__}.{value.__name__}") if is_clock else None
    return None if owner is None else _of_method(owner, value.__name__, ())


def _of_class(value: type) -> Impurity | None:
    kind = _MODULES.get(value.__module__)
    if kind is not None and not issubclass(value, (BaseException, int)):
        return Impurity(kind, f"{value.__module__.lstrip('_')}.{value.__qualname__}")
    found = _PYTHON_FUNCTIONS.get((value.__module__, f"{value.__qualname__}.__init__"))
    return found or _PYTHON_FUNCTIONS.get((value.__module__, f"{value.__qualname__}.start"))
