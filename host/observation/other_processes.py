"""Operations on other processes from within a session: signals, limits, priorities and processors.

A session may affect the processes that it started, and the engine's own process, which in-process code can end in many
ways. Every other process is outside each declaration, like a file outside the workspace. Operations of the engine
on its commands are not attributed to the session.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from host.confinement import command, descendants, terminal
from host.observation.session_binding import OWN_CODE, SessionBinding
from world.klis.observation import Seen, outside_resource
from world.klis.predicate import Predicate

__all__ = ["HANDLERS", "Handler", "NothingHappensError"]

Handler = Callable[[SessionBinding, tuple[Any, ...]], list[Seen]]

_OF_COMMANDS: Final = tuple(map(vars, (command, descendants, terminal)))


class NothingHappensError(Exception):
    """The call has no effect because it fails, independent of the declaration."""


def _killed(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    pid, number = args
    if pid > 0:
        return _signalled(bond, f"process {pid}", pid, number, f"kill({pid}, {number})")
    group = "all processes" if pid == -1 else f"process group {-pid or os.getpgrp()}"
    return _signalled(bond, group, -pid, number, f"kill({pid}, {number})", is_group=True)


def _group_killed(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    group, number = args
    return _signalled(bond, f"process group {group}", group, number, f"killpg({group}, {number})", is_group=True)


def _sent(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    handle, number = args[:2]
    pid = _process_of(handle)
    return _signalled(bond, f"process {pid}", pid, number, f"pidfd_send_signal({handle}, {number})")


def _process_of(handle: int) -> int:
    """Return the process id of a pidfd."""
    try:
        with open(f"/proc/self/fdinfo/{handle}") as lines:
            pids = [line.split()[1] for line in lines if line.startswith("Pid:")]
    except OSError:
        raise NothingHappensError from None
    if not pids or int(pids[0]) <= 0:  # not a pidfd, or the process has ended
        raise NothingHappensError
    return int(pids[0])


def _signalled(
    bond: SessionBinding, name: str, pid: int, number: int, call: str, *, is_group: bool = False
) -> list[Seen]:
    if number == 0 or _is_engines_work():  # signal 0 only tests whether the process exists
        return []
    if pid > 1 and _is_own(bond, pid, is_group=is_group):
        return []
    return _outside(name, call)


def _limited(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    pid, _, limits = args
    if limits is None or pid == 0 or _is_own(bond, pid):
        return []
    return _outside(f"process {pid}", f"prlimit({pid})")


def _prioritized(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    which, pid = args[:2]
    if which == os.PRIO_PROCESS and (pid == 0 or _is_own(bond, pid)):
        return []
    kind = {os.PRIO_PROCESS: "process", os.PRIO_PGRP: "process group"}.get(which, "the processes of user")
    return _outside(f"{kind} {pid}", f"setpriority({which}, {pid})")


def _scheduled(bond: SessionBinding, args: tuple[Any, ...]) -> list[Seen]:
    if args[0] == 0 or _is_own(bond, args[0]):
        return []
    return _outside(f"process {args[0]}", f"sched_set...({args[0]})")


def _is_own(bond: SessionBinding, pid: int, *, is_group: bool = False) -> bool:
    """Whether a process is the engine's own, or one that the session started and that still has its process id."""
    if pid == os.getpid():
        return not is_group
    if pid not in bond.children:
        return False
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return not os.path.exists(f"/proc/{pid}")  # its group may outlive it
    return True


def _is_engines_work() -> bool:
    frame = sys._getframe(1)
    while any(frame.f_globals is own for own in OWN_CODE) and frame.f_back is not None:
        frame = frame.f_back
    return any(frame.f_globals is own for own in _OF_COMMANDS)


def _outside(name: str, call: str) -> list[Seen]:
    return [Seen(Predicate.MUTATES, outside_resource(name), call, outside=name)]


HANDLERS: Final[Mapping[str, Handler]] = {
    "os.kill": _killed,
    "os.killpg": _group_killed,
    "signal.pidfd_send_signal": _sent,  # ours
    "resource.prlimit": _limited,
    "os.setpriority": _prioritized,  # ours
    "os.sched_setaffinity": _scheduled,  # ours
}
"""Handlers of audit events that concern other processes."""

OWN_CODE.append(globals())
