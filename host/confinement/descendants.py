"""All processes that a command started, including those that left its group, session or parents, and their end.

They are identified by the groups and sessions that the watcher recorded, by their parents, and by
a mark in the environment of the command. The mark is sufficient for unwatched daemons. A command in
a PID namespace needs none of this: all its descendants are in the namespace and end with it.
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
"""Environment variable that marks a command and its descendants."""

RUN: Final = "WORLDPROTOCOL_RUN"
"""Environment variable with the id of the run or proposal; known to later processes, too."""

PATIENCE_S: Final = 5.0
"""Longest wait for processes that were killed, in seconds."""

_PAUSE_S: Final = 0.005


def new_mark() -> str:
    """Return a mark that is unique on this machine."""
    return f"{os.getpid()}.{time.monotonic_ns()}.{os.urandom(4).hex()}"


def members(root: int, mark: str, groups: Iterable[int]) -> set[int]:
    """Return the processes that belong to a command, without zombies.

    Args:
        root: the command's process, which leads the first group; it was not reaped, so the process id is its own.
        mark: the value of ``MARK`` in its environment.
        groups: further groups and sessions that it created.
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
    """Return the living processes of a PID namespace, without the first.

    Args:
        first: the first process of the namespace, which was not reaped.
    """
    wanted = _namespace(first)
    found = {pid for pid in psutil.pids() if pid != first and wanted is not None and _namespace(pid) == wanted}
    return {pid for pid in found if _lives(pid)}


def end_namespace(first: int) -> bool:
    """Kill all processes of a PID namespace by killing its first, and wait for their end.

    Args:
        first: the first process of the namespace, which was not reaped.

    Returns:
        Whether all have ended.
    """
    until = time.monotonic() + PATIENCE_S
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
    """Whether a process or thread belongs to a watched command; an ended one counts as belonging.

    Args:
        groups: all groups and sessions that the command created, including its first.
        pid: id of the process or thread.

    Raises:
        ProcessLookupError: the process does not exist.
    """
    try:
        state, _, group, session = _standing(pid)
        return state in (b"Z", b"X") or ((group in groups or session in groups) and _is_watched(pid))
    except (OSError, ValueError, IndexError):
        raise ProcessLookupError(pid) from None


def end_all(root: int, mark: str, groups: Callable[[], Iterable[int]]) -> bool:
    """Kill a command and all its descendants, repeatedly until none is left.

    Args:
        root: the command's process.
        mark: the value of ``MARK`` in its environment.
        groups: returns further groups and sessions that it created.

    Returns:
        Whether all have ended.
    """
    until = time.monotonic() + PATIENCE_S
    _kill_group(root)
    while left := members(root, mark, groups()):
        for pid in left:
            with contextlib.suppress(OSError):
                if os.getpgid(pid) == pid:  # a whole group at once, so that no member can fork meanwhile
                    os.killpg(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            return False
        time.sleep(_PAUSE_S)
    return True


def end_orphans(run_id: str) -> int | None:
    """Kill the processes of a run's command, or a proposal's effect, after their supervisor was killed.

    Args:
        run_id: the id of the run or of the proposal.

    Returns:
        The number of processes, None where some could not be ended.
    """
    until, marked = time.monotonic() + PATIENCE_S, f"{RUN}={run_id}".encode()
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
    except OSError:  # it is ending, or belongs to another user
        return False


def _is_watched(pid: int) -> bool:
    """Whether a process has a permanent filter; otherwise a group of the same number may be another's."""
    with open(f"/proc/{pid}/status", "rb") as file:
        status = file.read()
    return b"\nNoNewPrivs:\t1\n" in status and b"\nSeccomp:\t2\n" in status


def _lives(pid: int) -> bool:
    try:
        return _standing(pid)[0] not in (b"Z", b"X")
    except (OSError, ValueError, IndexError):
        return False
