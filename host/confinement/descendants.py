"""All processes that a command started, also those that left its group, its session or their parents, and their end.

Three things tell them: the groups and sessions that the watcher saw them enter, the parents that are still there, and
a mark in the environment that the command began with. The mark is enough for daemons that nobody watched. A command in
a namespace of processes needs none of this: whatever it started is in there, and ends with the namespace.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final

import psutil

__all__ = ["MARK", "RUN", "end_all", "end_namespace", "end_orphans", "is_of", "members", "members_of", "new_mark"]

MARK: Final = "WORLDPROTOCOL_COMMAND"
"""The environment variable that marks a command and what it starts."""

RUN: Final = "WORLDPROTOCOL_RUN"
"""The environment variable that tells whose they are: a run's id, or a proposal's; known also to who comes later."""

_PAUSE_S: Final = 0.005


def new_mark() -> str:
    """Return a mark that no other command of this machine has."""
    return f"{os.getpid()}.{time.monotonic_ns()}.{os.urandom(4).hex()}"


def members(root: int, mark: str, groups: Iterable[int]) -> set[int]:
    """Return the processes that belong to a command; those that have ended but were not waited for are left out.

    Args:
        root: the command's own process, which leads the first group; it was not waited for, so the number is its own.
        mark: the value of ``MARK`` in its environment.
        groups: further groups and sessions that it is known to have made.
    """
    known, marked = frozenset(groups) - {root}, f"{MARK}={mark}".encode()

    def _belongs(pid: int, group: int, session: int) -> bool:
        if group == root or _has(pid, marked):
            return True
        return (group in known or session in known) and _is_watched(pid)

    parents: dict[int, list[int]] = {}
    found: set[int] = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent, group, session = _standing(pid)
            parents.setdefault(parent, []).append(pid)
            if state not in (b"Z", b"X") and _belongs(pid, group, session):
                found.add(pid)
    ahead = [root, *found]
    while ahead:
        for child in parents.get(ahead.pop(), ()):
            if child not in found:
                found.add(child)
                ahead.append(child)
    return {pid for pid in found if pid != os.getpid() and _lives(pid)}


def members_of(first: int) -> set[int]:
    """Return the processes that live in a namespace of processes, without the first.

    Args:
        first: the first process of the namespace, which was not waited for.
    """
    wanted = _namespace(first)
    found = {pid for pid in psutil.pids() if pid != first and wanted is not None and _namespace(pid) == wanted}
    return {pid for pid in found if _lives(pid)}


def end_namespace(first: int, *, patience_s: float = 5.0) -> bool:
    """Kill all processes of a namespace by killing its first, and wait until the kernel has.

    Args:
        first: the first process of the namespace, which was not waited for.
        patience_s: how long to look for survivors, in seconds.

    Returns:
        Whether nobody was left.
    """
    until = time.monotonic() + patience_s
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGKILL)
    while members_of(first):
        if time.monotonic() > until:
            return False
        time.sleep(_PAUSE_S)
    return True


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def is_of(groups: Collection[int], pid: int) -> bool:
    """Tell whether a process or thread belongs to a watched command; one that has ended is nobody's, and may.

    Args:
        groups: all groups and sessions that the command is known to have made, its first one too.
        pid: of the process or thread.

    Raises:
        ProcessLookupError: there is none.
    """
    try:
        state, _, group, session = _standing(pid)
        return state in (b"Z", b"X") or ((group in groups or session in groups) and _is_watched(pid))
    except (OSError, ValueError, IndexError):
        raise ProcessLookupError(pid) from None


def end_all(root: int, mark: str, groups: Callable[[], Iterable[int]], *, patience_s: float = 5.0) -> bool:
    """Kill a command and all that it started, again until nobody is left.

    Args:
        root: the command's own process.
        mark: the value of ``MARK`` in its environment.
        groups: tells further groups and sessions that it is known to have made.
        patience_s: how long to look for survivors, in seconds.

    Returns:
        Whether nobody was left.
    """
    until = time.monotonic() + patience_s
    _kill_group(root)
    while left := members(root, mark, groups()):
        for pid in left:
            with contextlib.suppress(OSError):
                if os.getpgid(pid) == pid:  # a whole group at once: nobody in it can fork meanwhile
                    os.killpg(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return False
        time.sleep(_PAUSE_S)
    return True


def end_orphans(run_id: str, *, patience_s: float = 5.0) -> int | None:
    """Kill what a run's command, or a proposal's effect, left behind when the process that watched over it was killed.

    Args:
        run_id: whose: a run's id, or a proposal's.
        patience_s: how long to look for survivors, in seconds.

    Returns:
        How many there were, None where some cannot be ended.
    """
    until, marked = time.monotonic() + patience_s, f"{RUN}={run_id}".encode()
    ended: set[int] = set()
    while left := {pid for pid in psutil.pids() if pid != os.getpid() and _has(pid, marked)}:
        ended |= left
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return None
        time.sleep(_PAUSE_S)
    return len(ended)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _standing(pid: int) -> tuple[bytes, int, int, int]:
    """Return state, parent, group and session of a process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return fields[0], int(fields[1]), int(fields[2]), int(fields[3])


def _has(pid: int, marked: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return marked in file.read().split(b"\0")
    except OSError:  # it ends just now, or is somebody else's
        return False


def _is_watched(pid: int) -> bool:
    """Tell whether a process has a filter and cannot lose it: a group of the same number may be another's by now."""
    with open(f"/proc/{pid}/status", "rb") as file:
        told = file.read()
    return b"\nNoNewPrivs:\t1\n" in told and b"\nSeccomp:\t2\n" in told


def _lives(pid: int) -> bool:
    try:
        return _standing(pid)[0] not in (b"Z", b"X")
    except (OSError, ValueError, IndexError):
        return False
