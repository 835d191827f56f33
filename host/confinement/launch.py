"""Start of a confined command.

The command is executed by `host.confinement.launcher`, which applies the confinement and waits for the message to
continue: no instruction of the command runs before Landlock, the filter and the watcher are active.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Unpack

from host.confinement import landlock, namespaces, watcher
from host.confinement.bpf import program
from host.confinement.calls import Decide
from host.confinement.command import RunningCommand
from host.confinement.descendants import MARK, new_mark
from host.confinement.kernel import IS_LINUX, machine, pidfd_getfd
from host.confinement.landlock import Rules
from host.confinement.options import Confinement, StartOptions, Stream, Text
from host.confinement.syscalls import MACHINES
from host.confinement.terminal import Terminal
from host.confinement.tree import FRESH
from host.confinement.watcher import Watcher
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["start"]

_LAUNCHER: Final = str(Path(__file__).parent.joinpath("launcher", "main.py"))
_SCRIPT_HINT: Final = "a script needs a first line like #!/bin/sh"


def start(
    argv: Sequence[Text], *, env: Mapping[str, str], confinement: Confinement, **options: Unpack[StartOptions]
) -> RunningCommand:
    """Start a command in a process group of its own; it is killed when the thread that starts it ends.

    A command therefore ends with an engine that is killed; a thread that starts one must outlive it.

    Args:
        argv: the command and its arguments; a command without a slash is searched on the PATH of ``env``.
        env: the whole environment; the mark of `host.confinement.descendants` is added.
        confinement: the confinement; ``UNCONFINED`` for none.
        **options: see ``StartOptions``.

    Raises:
        RefusedError: ``COMMAND_NOT_FOUND``, ``COMMAND_NOT_EXECUTABLE``, ``NOT_A_FOLDER``, ``CONFINEMENT_UNAVAILABLE``
            (the kernel has no Landlock or no seccomp notification), ``CONFINEMENT_FAILED`` (where the namespaces had
            not been created, its details have ``namespaces``).
    """
    rules, decide, tree = confinement.rules, confinement.decide, confinement.tree
    cwd, stdin = options["cwd"], options.get("stdin")
    _require(rules, decide)
    if isinstance(cwd, int):
        folder = b"/proc/self/fd/%d" % cwd
        executable = _relative(_find(argv, folder, env), folder)
    else:
        folder = os.path.abspath(os.fsencode(cwd))
        executable = _find(argv, folder, env)
    mark = new_mark()
    environment = {**env, MARK: mark}
    request = _request(argv, environment, cwd if isinstance(cwd, int) else folder, options.get("limits") or {})
    request |= {
        "filter": None if decide is None else program(MACHINES[machine()]),
        "tree": None if tree is None else tree.to_wire(),
        "bubblewrap": None if tree is None else namespaces.wrapping(tree, confinement.namespaces_by),
    }
    launch = _Launch(request, rules, executable)
    try:
        process = launch.begin(stdin, options.get("stdout"), options.get("stderr"))
        terminal = Terminal.of(0 if stdin is None else stdin if isinstance(stdin, int) else stdin.fileno())
        command = RunningCommand(process, mark=mark, terminal=terminal)
        command.is_confined = rules is not None and decide is not None
        try:
            launch.run(command, decide, options.get("report", lambda _: None))
        except BaseException:
            command.close()
            raise
        return command
    finally:
        launch.close()


def _request(
    argv: Sequence[Text], env: Mapping[str, str], cwd: bytes | int, limits: Mapping[int, tuple[int, int]]
) -> dict[str, Any]:
    """Return the part of the launcher's request that every command has."""
    return {
        "argv": [os.fsencode(argument) for argument in argv],
        "env": {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
        "cwd": cwd,
        "parent": os.getpid(),
        "limits": dict(limits),
        "machine": machine(),
        "fresh": FRESH,
        "lifeline": None,
    }


def _require(rules: Rules | None, decide: Decide | None) -> None:
    supports = [] if rules is None else [landlock.available()]
    supports += [] if decide is None else [watcher.available()]
    for support in supports:
        if support.why_not is not None:
            raise RefusedError(
                ErrorCode.CONFINEMENT_UNAVAILABLE,
                f"{support.why_not} Run the command unconfined; its changes are then found by comparing contents.",
            )
    if not IS_LINUX:
        raise RefusedError(
            ErrorCode.CONFINEMENT_UNAVAILABLE, f"Governed commands need Linux, and this system is {sys.platform}."
        )


def _find(argv: Sequence[Text], folder: bytes, env: Mapping[str, str]) -> bytes:
    """Return the path of the file to execute."""
    if not argv:
        raise RefusedError(ErrorCode.COMMAND_NOT_FOUND, "The command line is empty; give the command to run.")
    named = os.fsencode(argv[0])
    if b"/" in named:
        candidates = [os.path.join(folder, named)]
    else:
        path = os.fsencode(env.get("PATH", os.defpath))
        candidates = [os.path.join(folder, directory, named) for directory in path.split(b":")] if named else []
    existing = [candidate for candidate in candidates if os.path.isfile(candidate)]
    for candidate in existing:
        if os.access(candidate, os.X_OK):
            return candidate
    shown = os.fsdecode(named)
    if existing or any(map(os.path.isdir, candidates)):
        raise RefusedError(
            ErrorCode.COMMAND_NOT_EXECUTABLE,
            f"{shown!r} is not executable; run chmod +x, or give the program to run it with.",
            command=shown,
        )
    raise RefusedError(
        ErrorCode.COMMAND_NOT_FOUND, f"Command {shown!r} was not found; check its spelling and the PATH.", command=shown
    )


def _relative(path: bytes, folder: bytes) -> bytes:
    """Return a path relative to the working folder; a confined process cannot use our descriptor of it."""
    return b"." + path.removeprefix(folder) if path.startswith(folder + b"/") else path


class _Launch:
    """Communication with the launcher until it executes the command."""

    def __init__(self, request: dict[str, Any], rules: Rules | None, executable: bytes) -> None:
        self._request = request | {"executable": executable}
        self._rules = rules
        self._shown = os.fsdecode(executable)
        self._lifeline: int | None = None
        self._is_secluded = False
        self._ours, self._theirs = socket.socketpair()
        for end in (self._ours, self._theirs):  # independent of this process's default timeout
            end.setblocking(True)

    def begin(self, stdin: Stream, stdout: Stream, stderr: Stream) -> subprocess.Popen[bytes]:
        """Start the launcher."""
        rules = None if self._rules is None else self._ruleset(self._rules)
        description = os.memfd_create("launch", os.MFD_CLOEXEC)
        lifeline = None
        try:
            if self._request["tree"] is not None:
                lifeline, self._lifeline = os.pipe2(os.O_CLOEXEC)
                self._request["lifeline"] = lifeline
            with open(description, "wb", closefd=False) as file:
                file.write(marshal.dumps(self._request | {"socket": self._theirs.fileno(), "ruleset": rules}))
            os.lseek(description, 0, os.SEEK_SET)
            folder = self._request["cwd"]
            inherited = [fd for fd in (rules, folder, lifeline) if isinstance(fd, int)]
            passed = [description, self._theirs.fileno(), *inherited]
            arguments = [sys.executable, "-I", "-S", _LAUNCHER, str(description)]
            return subprocess.Popen(
                arguments, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=passed, process_group=0
            )
        except OSError as error:
            raise self._refusal("CONFINEMENT_FAILED", error.errno or 0, "starting the launcher") from None
        finally:
            self._theirs.close()
            for descriptor in (description, rules, lifeline):
                if descriptor is not None:
                    os.close(descriptor)

    def _ruleset(self, rules: Rules) -> int:
        try:
            return landlock.ruleset(rules, landlock.available().abi)
        except OSError as error:
            raise self._refusal("CONFINEMENT_FAILED", error.errno or 0, "creating the Landlock rules") from None

    def run(self, command: RunningCommand, decide: Decide | None, report: Callable[[BaseException], None]) -> None:
        """Wait for the confinement, start the watcher and then the command; return when it runs."""
        words = self._receive()
        if words[0] == "pids" and self._lifeline is not None:
            self._is_secluded = True
            command.seclude(int(words[1]), int(words[2]), self._lifeline, wrapper=int(words[3]) if words[3:] else None)
            self._lifeline = None
            words = self._receive()
        word, number = (*words, "")[:2]
        if word == "listener" and decide is not None:
            try:
                listener = pidfd_getfd(command.pid, int(number))
            except OSError as error:
                raise self._refusal("CONFINEMENT_FAILED", error.errno or 0, "receiving the seccomp listener") from None
            secluded = self._request["tree"] is not None
            watching = Watcher(listener, launcher=command.pid, decide=decide, report=report, secluded=secluded)
            command.watch(watching)
        elif word != "ready":
            raise self._refusal("CONFINEMENT_FAILED", errno.ECHILD, "starting the launcher")
        command.lend_terminal()
        with contextlib.suppress(BrokenPipeError):
            self._ours.sendall(b"g")
        self._receive()

    def _receive(self) -> list[str]:
        """Return the words of the launcher's next message; none once it executes the command or has ended."""
        message = b""
        while not message.endswith(b"\n"):
            try:
                part = self._ours.recv(1)  # messages are short, and two may arrive together
            except ConnectionResetError:
                part = b""
            if not part:
                return [""]
            message += part
        words = message.decode().split(None, 3)
        if words[0] == "failed":
            raise self._refusal(words[1], int(words[2]), words[3].strip())
        return words

    def _refusal(self, code: str, error: int, what: str) -> RefusedError:
        why = os.strerror(error)
        message = {
            "NOT_A_FOLDER": f"The command cannot start in {self._folder()!r}: {why}.",
            "COMMAND_NOT_FOUND": f"{self._shown!r} or its interpreter does not exist; check the script's first line.",
            "COMMAND_NOT_EXECUTABLE": f"{self._shown!r} cannot be executed ({why}); {_SCRIPT_HINT}, and the program "
            "must be declared or belong to the system.",
        }.get(code, f"The command was not started because its confinement failed: {what}: {why}.")
        namespaces = {"namespaces": "not made"} if self._request["tree"] is not None and not self._is_secluded else {}
        return RefusedError(code, message, command=self._shown, errno=error, **namespaces)

    def _folder(self) -> str:
        folder = self._request["cwd"]
        return os.readlink(f"/proc/self/fd/{folder}") if isinstance(folder, int) else os.fsdecode(folder)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()
        if self._lifeline is not None:
            os.close(self._lifeline)
