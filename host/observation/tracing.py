"""Trace of child processes by strace: all system calls on files, hosts and processes (KLIS-6 section 2.1).

A trace reports operations and refusals afterwards; it stops nothing. The state of a name at the time of the
call is no longer known: whether a file was new is taken from earlier lines of the trace, and from the caller's
record of the initial state.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from host.observation.operations import Operations
from host.observation.strace_lines import Lines, SystemCall, ThreadExit, descriptor_path, string
from host.system_paths import tool
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.observation import Seen
from world.klis.predicate import Predicate

__all__ = ["TraceReader", "Traced", "command", "strace_path"]

MAX_STRING: Final = 4_096
"""Bytes of a string in the trace; longer than any path."""

_BLOCKED: Final = frozenset({"EACCES", "EPERM", "EROFS"})
_ATTEMPTED: Final = frozenset({"connect", "bind", "sendto", "sendmsg"})
_NAMES: Final = [
    "open",
    "openat",
    "openat2",
    "creat",
    "unlink",
    "unlinkat",
    "rmdir",
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "symlink",
    "symlinkat",
    "link",
    "linkat",
    "truncate",
    "ftruncate",
    "fallocate",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "lchown",
    "fchown",
    "fchownat",
    "utime",
    "utimes",
    "futimesat",
    "utimensat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "chdir",
    "fchdir",
    "execve",
    "execveat",
    "clone",
    "clone3",
    "fork",
    "vfork",
    "connect",
    "bind",
    "sendto",
    "sendmsg",
]
_INTERNET: Final = (
    re.compile(r'sin_port=htons\((\d+)\), sin_addr=inet_addr\("([^"]+)"\)'),
    re.compile(r'sin6_port=htons\((\d+)\).*?inet_pton\(AF_INET6, "([^"]+)"'),
)
_LOCAL: Final = re.compile(r'sun_path=(@?)("(?:\\.|[^"\\])*")')
_FLAGS: Final = re.compile(r"\b(?:O|RENAME)_([A-Z]+)\b")


def strace_path() -> str | None:
    """Return the path of strace on this machine, None where it is missing."""
    return tool("strace")


def command(argv: Sequence[str], out: int) -> list[str]:
    """Return the command line that runs a command under strace; the command stays the direct child of this process.

    Args:
        argv: the command.
        out: a descriptor of this process for the trace. strace opens it through ``/proc``, so the command does not
            inherit it; close it only after the command has been started and has ended.

    Raises:
        RefusedError: ``NO_TRACER`` where strace is missing.
    """
    strace = strace_path()
    if strace is None:
        raise RefusedError(
            ErrorCode.NO_TRACER,
            "strace is not installed, so child processes cannot be traced; install it, or run without a trace.",
        )
    options = ["-D", "-f", "-q", "-y", "-x", "-s", str(MAX_STRING), "-e", "signal=none"]
    calls = ",".join(f"?{name}" for name in _NAMES)
    target = f"/proc/{os.getpid()}/fd/{out}"
    return [strace, *options, "-e", f"trace={calls}", "-o", target, "--", *argv]


@dataclass(frozen=True, slots=True)
class Traced:
    """One traced system call that succeeded or was refused.

    Args:
        pid: the caller.
        call: for people, as strace shows it.
        result: its return value, None where it is not shown.
        error: the name of its error, None where it succeeded.
        seen: its operations, as predicates on resources.
    """

    pid: int
    call: str
    result: int | None
    error: str | None
    seen: list[Seen] = field(default_factory=list)

    @property
    def is_blocked(self) -> bool:
        """Whether it was refused for missing permission, so that it had no effect."""
        return self.error in _BLOCKED


@dataclass(slots=True)
class _Folder:
    """The working directory of a process; its threads share it."""

    path: bytes


class TraceReader:
    """Reads a trace line by line; calls before the start of the program are omitted.

    Args:
        operations: maps network and process calls to operations, and decides which files are observed.
        after_exec: path of the program with whose start the observation begins; empty for immediately. A name without
            slash is compared with the last part of the started path.
        cwd: the initial working directory.
        existed: whether an absolute path existed at the start; None where unknown: a file that
            is opened for writing then counts as changed.
    """

    def __init__(
        self,
        operations: Operations,
        *,
        after_exec: str,
        cwd: bytes | None = None,
        existed: Callable[[bytes], bool] | None = None,
    ) -> None:
        """Begin before the first line."""
        self._operations = operations
        self._lines = Lines()
        self._after_exec = os.fsencode(after_exec)
        self._has_begun = not after_exec
        self._start = os.getcwdb() if cwd is None else cwd
        self._folders: dict[int, _Folder] = {}
        self._existed = existed
        self._existence: dict[bytes, bool] = {}

    def feed(self, lines: Iterable[str]) -> Iterator[Traced]:
        """Yield the observed calls that lines complete, in order.

        Args:
            lines: complete lines of strace's output.
        """
        for line in lines:
            for found in self._lines.read(line):
                if isinstance(found, ThreadExit):
                    self._folders.pop(found.pid, None)
                else:
                    yield from self._call(found)

    # Within

    def _call(self, call: SystemCall) -> Iterator[Traced]:
        if not self._has_begun:
            self._keep_track(call)
            self._has_begun = call.name.startswith("execve") and call.error is None and self._is_start(call)
            return
        shown = f"{call.name}({', '.join(call.arguments)})"
        if call.result is None or not (call.error is None or call.error in _BLOCKED or call.name in _ATTEMPTED):
            return
        seen = self._seen(call, shown)
        if call.error is None:
            self._keep_track(call)
        if seen:
            yield Traced(call.pid, shown, call.result, call.error, seen)

    def _is_start(self, call: SystemCall) -> bool:
        path = self._path(call, 1) if call.name == "execveat" else self._path(call, 0)
        wanted = self._after_exec
        return path is not None and (path == wanted if b"/" in wanted else os.path.basename(path) == wanted)

    def _folder(self, pid: int) -> _Folder:
        found = self._folders.get(pid)
        if found is None:
            found = self._folders[pid] = self._inherited()
        return found

    def _inherited(self) -> _Folder:
        """Return the folder of a new process: its parent is still within the call that created it."""
        making = [pid for pid, text in self._lines.waiting.items() if re.match(r"v?fork\(|clone3?\(", text)]
        parent = self._folders.get(making[-1]) if making else None
        return _Folder(self._start if parent is None else parent.path)

    def _keep_track(self, call: SystemCall) -> None:
        """Track working directories."""
        name, folder = call.name, self._folder(call.pid)
        if call.error is not None or call.result is None:
            return
        if name == "chdir":
            folder.path = self._path(call, 0) or folder.path
        elif name == "fchdir":
            folder.path = descriptor_path(call.arguments[0]) or folder.path
        elif name in {"clone", "clone3", "fork", "vfork"} and call.result > 0:
            known = self._folders.get(call.result)
            if any(
                re.search(r"\bCLONE_FS\b", one) for one in call.arguments
            ):  # a thread, which may have moved them both by now
                folder.path = folder.path if known is None else known.path
                self._folders[call.result] = folder
            elif known is None:
                self._folders[call.result] = _Folder(folder.path)

    def _path(self, call: SystemCall, index: int, folder: int | None = None) -> bytes | None:
        """Return the absolute path of an argument; ``folder`` is the index of the argument that it is relative to."""
        if index >= len(call.arguments):
            return None
        name = string(call.arguments[index])
        if name is None:
            return None
        base = self._folder(call.pid).path
        if folder is not None:
            base = descriptor_path(call.arguments[folder]) or base
        return os.path.join(base, name)

    def _one(
        self, predicate: Predicate, path: bytes, call: str, *, follow: bool = False, names_only: bool = False
    ) -> list[Seen]:
        """Return the operation on a file, without testing whether it still exists."""
        return self._operations.touched(predicate, path, call, follow=follow, names_only=names_only)

    def _seen(self, call: SystemCall, shown: str) -> list[Seen]:
        name, base = call.name, call.name
        at = None
        if name in _AT:
            base, at = _AT[name], 0
        if base in {"open", "creat"}:
            return self._opened(call, shown, at)
        if base in {"rename", "link"}:
            return self._two_names(call, shown, base, at)
        if base in _ATTEMPTED:
            return self._reached(call, shown)
        if base == "execve":
            return self._executed(call, shown, at)
        path = self._changed_path(call, base, at)
        return [] if path is None else self._on_one(call, shown, base, path)

    def _changed_path(self, call: SystemCall, base: str, at: int | None) -> bytes | None:
        if base in _BY_DESCRIPTOR:
            return descriptor_path(call.arguments[0])
        index = 2 if call.name == "symlinkat" else 1 if at is not None or base == "symlink" else 0
        path = self._path(call, index, 1 if call.name == "symlinkat" else at)
        if path is None and at is not None and call.arguments:  # utimensat(3</w/a>, NULL, ...)
            path = descriptor_path(call.arguments[0])
        return path

    def _on_one(self, call: SystemCall, shown: str, base: str, path: bytes) -> list[Seen]:
        done = call.error is None
        if base in {"unlink", "rmdir"}:
            self._know(path, strace_path=False, if_so=done)
            return self._one(Predicate.DELETES, path, shown)
        if base in {"mkdir", "mknod", "symlink"}:
            self._know(path, strace_path=True, if_so=done)
            return self._one(Predicate.PROVIDES, path, shown)
        if base in {"chdir", "fchdir"}:
            return []
        follow = not (base.startswith("l") or "NOFOLLOW" in call.arguments[-1])
        return self._one(Predicate.MUTATES, path, shown, follow=follow) if base in _CHANGES else []

    def _opened(self, call: SystemCall, shown: str, at: int | None) -> list[Seen]:
        index = 0 if at is None else 1
        path = self._path(call, index, at)
        if path is None:
            return []
        rendered = call.arguments[index + 1] if index + 1 < len(call.arguments) else ""
        names = set(_FLAGS.findall("O_WRONLY|O_CREAT|O_TRUNC" if call.name == "creat" else rendered))
        if names & {"PATH", "TMPFILE"}:
            return []
        if call.opened is not None and call.opened.startswith("/"):
            path = descriptor_path(f"0<{call.opened}>") or path
        if names.isdisjoint({"WRONLY", "RDWR", "CREAT", "TRUNC"}):
            return self._one(Predicate.CONSUMES, path, shown, follow=True, names_only="DIRECTORY" in names)
        is_new = "CREAT" in names and ("EXCL" in names or not self._was_there(path))
        self._know(path, strace_path=True, if_so=call.error is None)
        return self._one(Predicate.PROVIDES if is_new else Predicate.MUTATES, path, shown, follow=True)

    def _know(self, path: bytes, *, strace_path: bool, if_so: bool) -> None:
        """Record whether a name exists after a call, if the call succeeded."""
        if if_so:
            self._existence[os.path.normpath(path)] = strace_path

    def _was_there(self, path: bytes) -> bool:
        known = self._existence.get(os.path.normpath(path))
        if known is None:
            return True if self._existed is None else self._existed(path)
        return known

    def _two_names(self, call: SystemCall, shown: str, base: str, at: int | None) -> list[Seen]:
        if at is None:
            old, new = self._path(call, 0), self._path(call, 1)
        else:
            old, new = self._path(call, 1, 0), self._path(call, 3, 2)
        if old is None or new is None:
            return []
        if base == "link":  # behind a hard link the old file can be changed
            self._know(new, strace_path=True, if_so=call.error is None)
            return [
                *self._one(Predicate.MUTATES, old, shown),
                *self._one(Predicate.PROVIDES, new, shown),
            ]
        flags = set(_FLAGS.findall(call.arguments[-1])) if call.name == "renameat2" else set()
        if "EXCHANGE" in flags:
            given = Predicate.RENAMES
        elif "NOREPLACE" in flags or not self._was_there(new):
            given = Predicate.PROVIDES
        else:
            given = Predicate.MUTATES
        self._know(old, strace_path=given is Predicate.RENAMES, if_so=call.error is None)
        self._know(new, strace_path=True, if_so=call.error is None)
        return [*self._one(Predicate.RENAMES, old, shown), *self._one(given, new, shown)]

    def _reached(self, call: SystemCall, shown: str) -> list[Seen]:
        rendered = ", ".join(call.arguments[1:])
        if call.name in {"sendto", "sendmsg"}:
            rendered = call.arguments[-2] if call.name == "sendto" else rendered.partition("msg_iov")[0]
        operations = self._operations
        for pattern in _INTERNET:
            if found := pattern.search(rendered):
                host, port = found[2], int(found[1])
                if call.name == "bind":
                    return operations.bound(host, port, call=shown)
                return operations.connected(host, port, call=shown)
        if found := _LOCAL.search(rendered):
            path = string(found[2]) or b""
            if found[1]:
                return [] if call.name == "bind" else operations.local_socket(b"\0" + path, call=shown)
            if not path:
                return []
            place = os.path.join(self._folder(call.pid).path, path)
            given = Predicate.PROVIDES if call.name == "bind" else Predicate.MUTATES
            missing = call.error is not None and call.error not in _BLOCKED
            return [] if missing else self._one(given, place, shown, follow=True)
        return []

    def _executed(self, call: SystemCall, shown: str, at: int | None) -> list[Seen]:
        path = self._path(call, 0 if at is None else 1, at)
        if path is None:
            return []
        return self._operations.started(path, (), cwd=self._folder(call.pid).path, call=shown)


_AT: Final = {
    "openat": "open",
    "openat2": "open",
    "unlinkat": "unlink",
    "renameat": "rename",
    "renameat2": "rename",
    "mkdirat": "mkdir",
    "mknodat": "mknod",
    "symlinkat": "symlink",
    "linkat": "link",
    "fchmodat": "chmod",
    "fchmodat2": "chmod",
    "fchownat": "chown",
    "futimesat": "utime",
    "utimensat": "utime",
    "execveat": "execve",
}
_BY_DESCRIPTOR: Final = frozenset({"ftruncate", "fallocate", "fchmod", "fchown", "fsetxattr", "fremovexattr", "fchdir"})
_CHANGES: Final = frozenset(
    {"truncate", "chmod", "chown", "lchown", "utime", "utimes", "setxattr", "lsetxattr", "removexattr", "lremovexattr"}
    | (_BY_DESCRIPTOR - {"fchdir"})
)
