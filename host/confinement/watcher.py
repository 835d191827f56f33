"""Supervisor of a command's system calls: each waits in the kernel for a decision.

What it gives: no call that opens, makes, removes, renames or changes a file, talks to an address, listens or starts a
program happens in the command or in any of its descendants, however they were started, before ``decide`` allowed it; a
denied call fails with an error and changes nothing. Limits, priorities and memory of processes that are not the
command's own are out of its reach. When the supervisor ends, later calls fail with ENOSYS.

What it does not give: an allowed call is carried out by the kernel, which reads the arguments again. A process that
changes them in that moment (another of its threads overwrites the path, or swaps a folder for a link) may reach what
was not decided on. Then Landlock is the wall, which looks at opened files and not at names, and the comparison of
contents finds what changed inside of it. Only ``listen`` is performed by the supervisor, on the very socket that was
decided on. Calls on descriptors that are open already (read, write) are not
watched, and programs whose memory is closed to the supervisor cannot open anything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import struct
import sys
import threading
from collections.abc import Callable
from typing import Final

from host.confinement.calls import Decide, Deny, SystemCallRequest
from host.confinement.descendants import is_of
from host.confinement.kernel import IS_LINUX, machine, system_call
from host.confinement.landlock import Support
from host.confinement.syscalls import GROUPS, MACHINES, Aim, aimed, watched
from host.confinement.tracee import Tracee, UnreadableError, bound_to, read_call, signed

if sys.platform != "win32":
    import fcntl

__all__ = ["Watcher", "available"]

_RECEIVE, _SEND, _IS_VALID, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082102, 0x40082104
_SYNC_WAKE_UP: Final = 1
_CONTINUE: Final = 1
_QUESTION: Final = struct.Struct("=QIIiIQ6Q")
_ANSWER: Final = struct.Struct("=Qqii")
_GET_ACTION_AVAILABLE, _GET_SIZES = 2, 3
_USER_NOTIF: Final = 0x7FC00000
_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_PERFORMED: Final = -1
"""Result in place of an errno: the supervisor has performed the call itself."""
_FIRST: Final = 1
_GONE: Final = frozenset({errno.ENOENT, errno.EINTR})


def available() -> Support:
    """Return whether calls can be watched here; ``abi`` is 1 when they can."""
    if not IS_LINUX:
        return Support(0, "Watching system calls needs Linux, and this is another system.")
    if machine() not in MACHINES:
        return Support(0, f"Watching system calls is supported on {' and '.join(MACHINES)}, and this is {machine()}.")
    import ctypes

    number = _SECCOMP[machine()]
    sizes = (ctypes.c_uint16 * 3)()
    try:
        system_call(number, _GET_ACTION_AVAILABLE, 0, ctypes.byref(ctypes.c_uint32(_USER_NOTIF)))
        system_call(number, _GET_SIZES, 0, ctypes.byref(sizes))
    except OSError as error:
        return Support(0, f"The kernel has no seccomp with user notification ({error.strerror}).")
    if (sizes[0], sizes[1]) != (_QUESTION.size, _ANSWER.size):
        return Support(0, "The kernel's seccomp notifications have a size that this release does not support.")
    return Support(1, None, ("operations on files that a process has already opened", "replacements during a call"))


class Watcher:
    """Answers the calls of one command and its descendants, in a thread of its own.

    Args:
        listener: the seccomp descriptor; the watcher closes it.
        launcher: the process whose calls pass until it executes the command.
        decide: decides on a call. It runs in the watcher's thread, so all calls of the command wait for it.
        secluded: whether the command has namespaces of its own, so that it names no process but its own.
        report: called with what ``decide`` raised; the call was denied with EACCES then. Also what keeps the watcher
            from hearing of calls: it has ended then, and all calls fail. Either way the command should be ended.
    """

    def __init__(
        self,
        listener: int,
        *,
        launcher: int,
        decide: Decide,
        report: Callable[[BaseException], None],
        secluded: bool = False,
    ) -> None:
        """Start to answer."""
        self._listener = listener
        self._launcher: int | None = launcher
        self._decide = decide
        self._report = report
        self._secluded = secluded
        self._calls = watched(MACHINES[machine()])
        self._aims = aimed(MACHINES[machine()])
        self._groups = {numbers[MACHINES[machine()].column]: name for name, numbers in GROUPS.items()}
        self._known = {launcher}
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)[::-1]
        self._closing = self._is_closed = False
        self._lock = threading.Lock()
        with contextlib.suppress(OSError):  # kernels before 6.6 wake up the slower way
            fcntl.ioctl(listener, _SET_FLAGS, _SYNC_WAKE_UP)
        self._thread = threading.Thread(target=self._run, name="syscall-watcher", daemon=True)
        self._thread.start()

    @property
    def groups(self) -> frozenset[int]:
        """Process groups and sessions of the command's processes, current and former."""
        return frozenset(self._known)

    def refuse_all(self) -> None:
        """Deny every call from now on, with EACCES, because the command is being ended."""
        self._decide = _refuse

    def close(self) -> None:
        """End; calls of remaining processes fail with ENOSYS. From within ``decide`` it ends after the answer."""
        self._closing = True
        if threading.current_thread() is self._thread:
            return
        with self._lock:
            if not self._is_closed:
                os.write(self._wake, b"x")
                self._thread.join()
                os.close(self._wake)
                os.close(self._woken)
                self._is_closed = True

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while not self._closing:
                for descriptor, event in poll.poll():
                    if descriptor == self._listener and not event & select.POLLIN:
                        return  # no watched process is left
                    if descriptor == self._listener:
                        self._answer_one()
        except OSError as failure:  # notifications cannot be received any more
            self._decide = _refuse
            self._tell(failure)
        finally:
            os.close(self._listener)

    def _answer_one(self) -> None:
        question = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, question, True)
        except OSError as error:
            if error.errno in _GONE:
                return
            raise
        number, pid, _, call, _, _, *arguments = _QUESTION.unpack(question)
        try:
            denied = self._error(number, pid, call, tuple(arguments))
        except UnreadableError as unreadable:
            denied = unreadable.errno
        except BaseException as failure:  # noqa: BLE001 - the call must be answered in any case, and not allowed
            denied = errno.EACCES
            self._tell(failure)
        answer = _ANSWER.pack(number, 0, -max(denied, 0), 0 if denied else _CONTINUE)
        with contextlib.suppress(OSError):  # the caller has ended
            fcntl.ioctl(self._listener, _SEND, answer)

    def _error(self, number: int, pid: int, call: int, arguments: tuple[int, ...]) -> int:
        """Return the errno to deny a call with, 0, or that it was performed."""
        if call in self._groups:
            return self._regroup(self._groups[call], pid, arguments)
        if call in self._aims:
            return self._reached(self._aims[call], arguments)
        syscall, shape = self._calls[call]
        if pid == self._launcher:
            if shape.name == "execve":
                self._launcher = None
            return 0
        if shape.name == "listen":
            return self._listen(number, pid, call, arguments)
        calls = list(read_call(Tracee(pid, secluded=self._secluded), syscall, shape, arguments))
        if not self._waits(number):
            return errno.EINTR
        return next((error for asked in calls if (error := self._verdict(asked))), 0)

    def _verdict(self, call: SystemCallRequest) -> int:
        verdict = self._decide(call)
        return verdict.errno if isinstance(verdict, Deny) else 0

    def _listen(self, number: int, pid: int, call: int, arguments: tuple[int, ...]) -> int:
        with Tracee(pid).socket(signed(arguments[0])) as talking:
            address = bound_to(talking)
            if not self._waits(number):
                return errno.EINTR
            asked = SystemCallRequest("listen", "listen", pid, address=address)
            denied = errno.EACCES if self._decide is _refuse else 0 if address is None else self._verdict(asked)
            if denied:
                return denied
            try:
                system_call(call, talking.fileno(), signed(arguments[1]))
            except OSError as error:
                return error.errno or errno.EACCES
        return _PERFORMED

    def _reached(self, aim: Aim, arguments: tuple[int, ...]) -> int:
        """Refuse calls on foreign processes; all processes of a user never belong to the command alone."""
        if self._decide is _refuse:
            return errno.EACCES
        kind = aim.process if aim.which is None else signed(arguments[aim.which])
        named = [signed(arguments[index]) for index in aim.processes]
        if kind == aim.user:
            return errno.EPERM
        if self._secluded:  # numbers are those of its own namespace, in which the first process alone is ours
            return errno.EPERM if _FIRST in named else 0
        if kind == aim.group:
            return 0 if named[0] in (0, *self._known) else errno.EPERM
        return next((error for one in named if (error := self._standing(one))), 0)

    def _standing(self, pid: int) -> int:
        """Return the errno for a call on a process, or 0."""
        try:
            return 0 if pid == 0 or is_of(self._known, pid) else errno.EPERM
        except ProcessLookupError:
            return errno.ESRCH

    def _waits(self, number: int) -> bool:
        try:
            fcntl.ioctl(self._listener, _IS_VALID, struct.pack("=Q", number))
        except OSError:
            return False
        return True

    def _regroup(self, name: str, pid: int, arguments: tuple[int, ...]) -> int:
        """Record a new group or session; joining a foreign group is refused, because it would outlive the command."""
        if self._decide is _refuse:
            return errno.EACCES
        if self._secluded:  # all its processes end with the namespace, which has no foreign groups
            return 0
        own = Tracee(pid).process()
        if name == "setsid":
            self._known.add(own)
            return 0
        target, group = (value & 0xFFFFFFFF for value in arguments[:2])
        if target not in (0, own) and (error := self._standing(target)):
            return error
        wanted = group or target or own
        if group and group not in self._known and group != (target or own):
            return errno.EPERM
        self._known.add(wanted)
        return 0

    def _tell(self, failure: BaseException) -> None:
        with contextlib.suppress(Exception):
            self._report(failure)


def _refuse(_: SystemCallRequest) -> Deny:
    return Deny(errno.EACCES)
