"""A running command with all its descendants, until it has ended."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
from typing import IO

from host.confinement.descendants import end_all, end_namespace, members, members_of
from host.confinement.terminal import Terminal
from host.confinement.watcher import Watcher

__all__ = ["RunningCommand"]


class RunningCommand:
    """A running command with all its descendants.

    Its methods may be called from any thread. Close it, or use it in a ``with`` block, to end all its processes.
    """

    def __init__(self, process: subprocess.Popen[bytes], *, mark: str, terminal: Terminal | None) -> None:
        """Manage a process that leads its own group; called by `start`."""
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
        """Process id of the command, which is also the id of its group."""
        return self._pid

    @property
    def is_secluded(self) -> bool:
        """Whether it has namespaces of its own."""
        return self._first is not None

    @property
    def returncode(self) -> int | None:
        """Exit code; negative is the signal that ended it; None while it runs."""
        if self._code is None:
            self._code = self._exit_code(os.WNOHANG)
        return self._code

    @property
    def streams(self) -> tuple[IO[bytes] | None, IO[bytes] | None, IO[bytes] | None]:
        """This process's ends of stdin, stdout and stderr, where they are pipes."""
        return self._process.stdin, self._process.stdout, self._process.stderr

    def seclude(self, first: int, pid: int, lifeline: int, *, wrapper: int | None = None) -> None:
        """Manage a command in namespaces instead of the process that created them; called by `start`.

        Args:
            first: process id of the first process of its PID namespace.
            pid: process id of the command.
            lifeline: this process's end of the pipe whose closing ends the first process.
            wrapper: process id of bubblewrap, which ends with the first process; None where there is none.
        """
        self._first, self._lifeline, self._wrapper = first, lifeline, wrapper
        os.close(self._handle)
        self._pid, self._handle = pid, os.pidfd_open(pid)
        self._process.wait()

    def watch(self, watching: Watcher) -> None:
        """Set the watcher, which is closed with the command; called by `start`."""
        self._watcher = watching

    def lend_terminal(self) -> None:
        """Put the command in the foreground of its terminal; called by `start`."""
        if self._terminal is not None:
            self._terminal.lend(self.pid)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait until the command itself has ended; its descendants may still run.

        Args:
            timeout_s: longest wait in seconds; None waits without limit, and stops and continues together with a
                command that was stopped at the terminal.

        Returns:
            The exit code; negative is the signal that ended it.

        Raises:
            TimeoutError: the command still runs.
        """
        if timeout_s is None and self._terminal is not None:
            self._wait_in_foreground(self._terminal)
        else:
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            if not poll.poll(None if timeout_s is None else max(0, timeout_s) * 1000):
                raise TimeoutError(f"Command {self.pid} still runs after {timeout_s} s; wait longer or kill it.")
        if self._code is None:
            self._code = self._exit_code(0)
        self._take_terminal_back()
        return self._code or 0

    def _exit_code(self, how: int) -> int | None:
        """Return the exit code without reaping: as a zombie it keeps its process id until it is closed."""
        try:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | how)
        except ChildProcessError:  # SIGCHLD is ignored in this process, or another thread has reaped it
            return 0
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    def _wait_in_foreground(self, terminal: Terminal) -> None:
        """Wait for the end of a foreground command; stop this process whenever the command is stopped."""
        with contextlib.suppress(ChildProcessError):  # another thread has reaped it
            while True:
                status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
                if status is None or status.si_code != os.CLD_STOPPED:
                    return
                os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
                terminal.stop_with(self.pid)

    def send_signal(self, number: int) -> None:
        """Send a signal to the command's process group, as a terminal does; without effect once it has ended."""
        if not self._is_over:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def descendants(self) -> set[int]:
        """Return the ids of all living processes of the command, including those that left its group or parents."""
        return members_of(self._first) if self._first is not None else members(self.pid, self._mark, self._groups())

    def kill_group(self) -> bool:
        """Kill the command and all its descendants; return whether all have ended.

        It may be called by ``decide``; the pending system call is then denied.
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
        """Whether it was reaped, so that its process id may have been reused."""
        return self._is_reaped or (self._first is None and self._process.returncode is not None)

    def _groups(self) -> frozenset[int]:
        return frozenset() if self._watcher is None else self._watcher.groups

    def close(self) -> None:
        """End all processes of the command, wait for them, and release all resources; idempotent."""
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
        """Reap the command, then the first process, which the kernel keeps until its namespace is empty."""
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
