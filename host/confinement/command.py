"""Starting a command that the operating system holds to its rules, and looking after it until it has ended.

The command is executed by `host.confinement.launcher`, which puts the confinement on and waits for the word to go: not
one instruction of the command runs before Landlock, the filter and the watcher are in place.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from host.confinement import landlock, namespaces, watcher
from host.confinement.bpf import program
from host.confinement.calls import Decide
from host.confinement.descendants import MARK, end_all, end_namespace, members, members_of, new_mark
from host.confinement.kernel import IS_LINUX, machine, pidfd_getfd
from host.confinement.landlock import Rules
from host.confinement.namespaces import Wanted
from host.confinement.syscalls import MACHINES
from host.confinement.terminal import Terminal
from host.confinement.tree import FRESH, MountTree
from host.confinement.watcher import Watcher
from world.errors import RefusedError

__all__ = ["RunningCommand", "start"]

Stream = int | IO[Any] | None
Text = str | bytes

_LAUNCHER: Final = str(Path(__file__).with_name("launcher.py"))
_SCRIPT_HINT: Final = "a script needs a first line like #!/bin/sh"


def start(
    argv: Sequence[Text],
    *,
    cwd: Text | os.PathLike[str] | int,
    env: Mapping[str, str],
    rules: Rules | None,
    decide: Decide | None,
    tree: MountTree | None = None,
    namespaces_by: Wanted = "auto",
    report: Callable[[BaseException], None] = lambda _: None,
    unconfined: bool = False,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    limits: Mapping[int, tuple[int, int]] | None = None,
) -> RunningCommand:
    """Start a command in a process group of its own; it is killed when the thread that starts it ends.

    That is how a command ends with an engine that is killed: a thread that starts one outlives it.

    Args:
        argv: the command and its arguments; a command without a slash is looked for on the PATH of ``env``.
        cwd: the folder to start in; a descriptor is the folder that was opened, whatever its name leads to by now.
        env: the whole environment; the mark of `host.confinement.descendants` is added.
        rules: what Landlock lets it do; None is no Landlock.
        decide: is asked before every watched call, in a thread of its own; None is no watcher.
        tree: what exists for it, in namespaces of its own; None leaves it in those of this process.
        namespaces_by: what may make the namespaces.
        report: is told what ``decide`` raised, and what keeps the watcher from answering; it should end the command.
        unconfined: start it without Landlock, watcher and namespaces, whatever is given.
        stdin: as `subprocess.Popen` takes it; a terminal is lent to the command.
        stdout: as `subprocess.Popen` takes it.
        stderr: as `subprocess.Popen` takes it.
        limits: resource limits by ``resource.RLIMIT_*``: soft and hard.

    Raises:
        RefusedError: ``COMMAND_NOT_FOUND``, ``COMMAND_NOT_EXECUTABLE``, ``NOT_A_FOLDER``, ``CONFINEMENT_UNAVAILABLE``
            (this system has no Landlock or no way to watch, and it was asked for), ``CONFINEMENT_FAILED`` (where that
            was before the namespaces were made, its details have ``namespaces``).
    """
    if unconfined:
        rules = decide = tree = None
    _require(rules, decide)
    if isinstance(cwd, int):
        folder = b"/proc/self/fd/%d" % cwd
        executable = _below(_find(argv, folder, env), folder)
    else:
        folder = os.path.abspath(os.fsencode(cwd))
        executable = _find(argv, folder, env)
    mark = new_mark()
    given = _given(argv, {**env, MARK: mark}, cwd if isinstance(cwd, int) else folder, limits or {})
    given |= {
        "filter": None if decide is None else program(MACHINES[machine()]),
        "tree": None if tree is None else tree.to_wire(),
        "bubblewrap": None if tree is None else namespaces.wrapping(tree, namespaces_by),
    }
    launch = _Launch(given, rules, executable)
    try:
        process = launch.begin(stdin, stdout, stderr)
        terminal = Terminal.of(0 if stdin is None else stdin if isinstance(stdin, int) else stdin.fileno())
        command = RunningCommand(process, mark=mark, terminal=terminal)
        command.is_confined = rules is not None and decide is not None
        try:
            launch.go(command, decide, report)
        except BaseException:
            command.close()
            raise
        return command
    finally:
        launch.close()


def _given(
    argv: Sequence[Text], env: Mapping[str, str], cwd: bytes | int, limits: Mapping[int, tuple[int, int]]
) -> dict[str, Any]:
    """Return what the launcher is told of every command."""
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
                "CONFINEMENT_UNAVAILABLE",
                f"{support.why_not} Run the command unconfined, and let the comparison of contents find what it did.",
            )
    if not IS_LINUX:
        raise RefusedError(
            "CONFINEMENT_UNAVAILABLE", "Commands can be governed on Linux alone, and this is another system."
        )


def _find(argv: Sequence[Text], folder: bytes, env: Mapping[str, str]) -> bytes:
    """Return the path of the file to execute."""
    if not argv:
        raise RefusedError("COMMAND_NOT_FOUND", "There is no command; name what to run.")
    named = os.fsencode(argv[0])
    if b"/" in named:
        candidates = [os.path.join(folder, named)]
    else:
        path = os.fsencode(env.get("PATH", os.defpath))
        candidates = [os.path.join(folder, place, named) for place in path.split(b":")] if named else []
    there = [candidate for candidate in candidates if os.path.isfile(candidate)]
    for candidate in there:
        if os.access(candidate, os.X_OK):
            return candidate
    shown = os.fsdecode(named)
    if there or any(map(os.path.isdir, candidates)):
        raise RefusedError(
            "COMMAND_NOT_EXECUTABLE", f"{shown!r} is not executable; chmod +x it, or name the program.", command=shown
        )
    raise RefusedError(
        "COMMAND_NOT_FOUND", f"There is no command {shown!r}; check its spelling and the PATH.", command=shown
    )


def _below(path: bytes, folder: bytes) -> bytes:
    """Return a path as it is for who is in that folder already: who is confined cannot look through our descriptor."""
    return b"." + path.removeprefix(folder) if path.startswith(folder + b"/") else path


class _Launch:
    """The talk with the launcher until it has become the command."""

    def __init__(self, given: dict[str, Any], rules: Rules | None, executable: bytes) -> None:
        self._given = given | {"executable": executable}
        self._rules = rules
        self._shown = os.fsdecode(executable)
        self._lifeline: int | None = None
        self._is_secluded = False
        self._ours, self._theirs = socket.socketpair()
        for end in (self._ours, self._theirs):  # whatever timeout this process has by default
            end.setblocking(True)

    def begin(self, stdin: Stream, stdout: Stream, stderr: Stream) -> subprocess.Popen[bytes]:
        """Start the launcher."""
        rules = None if self._rules is None else self._ruleset(self._rules)
        described = os.memfd_create("launch", os.MFD_CLOEXEC)
        held = None
        try:
            if self._given["tree"] is not None:
                held, self._lifeline = os.pipe2(os.O_CLOEXEC)
                self._given["lifeline"] = held
            with open(described, "wb", closefd=False) as file:
                file.write(marshal.dumps(self._given | {"socket": self._theirs.fileno(), "ruleset": rules}))
            os.lseek(described, 0, os.SEEK_SET)
            folder = self._given["cwd"]
            lent = [one for one in (rules, folder, held) if isinstance(one, int)]
            passed = [described, self._theirs.fileno(), *lent]
            arguments = [sys.executable, "-I", "-S", _LAUNCHER, str(described)]
            return subprocess.Popen(
                arguments, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=passed, process_group=0
            )
        except OSError as error:
            raise self._refusal("CONFINEMENT_FAILED", error.errno or 0, "starting the launcher") from None
        finally:
            self._theirs.close()
            for descriptor in (described, rules, held):
                if descriptor is not None:
                    os.close(descriptor)

    def _ruleset(self, rules: Rules) -> int:
        try:
            return landlock.ruleset(rules, landlock.available().abi)
        except OSError as error:
            raise self._refusal("CONFINEMENT_FAILED", error.errno or 0, "making the Landlock rules") from None

    def go(self, command: RunningCommand, decide: Decide | None, report: Callable[[BaseException], None]) -> None:
        """Wait until the confinement is on, watch, and let the command run; returns when it does."""
        words = self._hear()
        if words[0] == "pids" and self._lifeline is not None:
            self._is_secluded = True
            command.seclude(int(words[1]), int(words[2]), self._lifeline, wrapper=int(words[3]) if words[3:] else None)
            self._lifeline = None
            words = self._hear()
        word, number = (*words, "")[:2]
        if word == "listener" and decide is not None:
            try:
                listener = pidfd_getfd(command.pid, int(number))
            except OSError as error:
                raise self._refusal("CONFINEMENT_FAILED", error.errno or 0, "taking over the watch") from None
            secluded = self._given["tree"] is not None
            watching = Watcher(listener, launcher=command.pid, decide=decide, report=report, secluded=secluded)
            command.watch(watching)
        elif word != "ready":
            raise self._refusal("CONFINEMENT_FAILED", errno.ECHILD, "starting the launcher")
        command.lend_terminal()
        with contextlib.suppress(BrokenPipeError):
            self._ours.sendall(b"g")
        self._hear()

    def _hear(self) -> list[str]:
        """Return the words of the launcher's next message; none when it has become the command, or died."""
        message = b""
        while not message.endswith(b"\n"):
            try:
                part = self._ours.recv(1)  # messages are short, and two may come at once
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
            "COMMAND_NOT_FOUND": f"{self._shown!r} or the interpreter that it names does not exist.",
            "COMMAND_NOT_EXECUTABLE": f"{self._shown!r} cannot be executed ({why}); {_SCRIPT_HINT}, and what is run "
            "must be declared or belong to the system.",
        }.get(code, f"The command was not started, as it could not be confined: {what} failed ({why}).")
        namespaces = {"namespaces": "not made"} if self._given["tree"] is not None and not self._is_secluded else {}
        return RefusedError(code, message, command=self._shown, errno=error, **namespaces)

    def _folder(self) -> str:
        folder = self._given["cwd"]
        return os.readlink(f"/proc/self/fd/{folder}") if isinstance(folder, int) else os.fsdecode(folder)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()
        if self._lifeline is not None:
            os.close(self._lifeline)


class RunningCommand:
    """A command that runs, with all that it started.

    Its methods may be called from any thread. Close it, or use it in a ``with`` block: that ends what is left of it.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, mark: str, terminal: Terminal | None) -> None:
        """Take charge of a process that leads its own group; `start` does."""
        self._process = process
        self._pid = process.pid
        self._first: int | None = None
        self._wrapper: int | None = None
        self._lifeline: int | None = None
        self._is_reaped = False
        self._mark = mark
        self._terminal = terminal
        self._watcher: Watcher | None = None
        self._lock = threading.Lock()
        self._handle = os.pidfd_open(process.pid)
        self._is_closed = False
        self._code: int | None = None
        self.is_confined = False

    @property
    def pid(self) -> int:
        """The command's process, which is the number of its group too."""
        return self._pid

    @property
    def is_secluded(self) -> bool:
        """Whether it has namespaces of its own."""
        return self._first is not None

    @property
    def returncode(self) -> int | None:
        """The exit code; negative is the signal that ended it; None while it runs."""
        if self._code is None:
            self._code = self._exit_code(os.WNOHANG)
        return self._code

    @property
    def streams(self) -> tuple[IO[bytes] | None, IO[bytes] | None, IO[bytes] | None]:
        """Our ends of stdin, stdout and stderr, where they are pipes."""
        return self._process.stdin, self._process.stdout, self._process.stderr

    def seclude(self, first: int, pid: int, lifeline: int, *, wrapper: int | None = None) -> None:
        """Take charge of a command in namespaces, in place of what made them; `start` does.

        Args:
            first: the first process of its namespace of processes.
            pid: the command's own.
            lifeline: our end of the pipe with which the first process ends.
            wrapper: bubblewrap's own process, which ends with the first; None where there is none.
        """
        self._first, self._lifeline, self._wrapper = first, lifeline, wrapper
        os.close(self._handle)
        self._pid, self._handle = pid, os.pidfd_open(pid)
        self._process.wait()

    def watch(self, watching: Watcher) -> None:
        """Have a watcher that ends with the command; `start` does."""
        self._watcher = watching

    def lend_terminal(self) -> None:
        """Put the command in the foreground of its terminal; `start` does."""
        if self._terminal is not None:
            self._terminal.lend(self.pid)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until the command itself has ended; what it started may still run.

        Args:
            timeout_s: how long at most, in seconds; None waits for good, and stops and goes on together with a
                command that was stopped at the terminal.

        Returns:
            The exit code; negative is the signal that ended it.

        Raises:
            TimeoutError: it runs still.
        """
        if timeout_s is None and self._terminal is not None:
            self._follow(self._terminal)
        else:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            if not poll.poll(None if timeout_s is None else max(0, timeout_s) * 1000):
                raise TimeoutError(f"The command {self.pid} runs still after {timeout_s} s.")
        if self._code is None:
            self._code = self._exit_code(0)
        self._take_terminal_back()
        return self._code or 0

    def _exit_code(self, how: int) -> int | None:
        """Look how it ended. It stays a zombie until it is closed, so that its number remains its own."""
        try:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | how)
        except ChildProcessError:  # this process ignores the ends of its children, or somebody else waited
            return 0
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def _follow(self, terminal: Terminal) -> None:
        """Wait for the end of a command in the foreground, and stop whenever it is stopped."""
        with contextlib.suppress(ChildProcessError):  # another thread has waited
            while True:
                found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
                if found is None or found.si_code != os.CLD_STOPPED:
                    return
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
                terminal.stop_with(self.pid)

    def send_signal(self, number: int) -> None:
        """Send a signal to the command's process group, as a terminal does; nothing happens when nobody is left."""
        if not self._is_over:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def descendants(self) -> set[int]:
        """Return all processes of the command that live, also those that left its group or their parents."""
        return members_of(self._first) if self._first is not None else members(self.pid, self._mark, self._groups())

    def kill_group(self) -> bool:
        """Kill the command and all that it started, wherever it went; tell whether nobody was left.

        It may be called by ``decide``; the call that was asked about is denied then.
        """
        if self._watcher is not None:
            self._watcher.refuse_all()
        if self._is_over:
            return True
        if self._first is not None:
            return end_namespace(self._first)
        return end_all(self.pid, self._mark, self._groups)

    @property
    def _is_over(self) -> bool:
        """Whether it was waited for, so that its number may be another's by now."""
        return self._is_reaped or (self._first is None and self._process.returncode is not None)

    def _groups(self) -> frozenset[int]:
        return frozenset() if self._watcher is None else self._watcher.groups

    def close(self) -> None:
        """End what is left of the command, wait for it, and let go of everything; again it does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self.kill_group()
        if self._first is None:
            self._process.wait()
            self._code = self._process.returncode if self._code is None else self._code
        else:
            self._reap(self._first)
        self._take_terminal_back()
        if self._watcher is not None:
            self._watcher.close()
        os.close(self._handle)
        for stream in self.streams:
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _reap(self, first: int) -> None:
        """Wait for the command and then for the first process, which the kernel keeps until nobody is left."""
        if self._code is None:
            self._code = self._exit_code(0)
        if self._lifeline is not None:
            os.close(self._lifeline)
        for pid in (self._pid, first, *(() if self._wrapper is None else (self._wrapper,))):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._is_reaped = True

    def _take_terminal_back(self) -> None:
        with self._lock:
            if self._terminal is not None:
                self._terminal.take_back()
                self._terminal = None

    def __enter__(self) -> RunningCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
