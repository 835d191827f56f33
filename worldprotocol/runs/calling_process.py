"""The process that calls ``worldctl run --call``: the nearest ancestor that is no shell, and the reader of its output.

A run ends with its caller: processes of a command that an agent left would change files that another agent leases.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["callers_of", "watch_caller"]

SHELLS: Final = frozenset(
    {"ash", "bash", "busybox", "dash", "env", "fish", "ksh", "nice", "nohup", "sh", "timeout", "zsh"}
)
"""Programs between an agent and the command that it runs."""

LOOKS_MS: Final = 250
"""Longest time between two looks whether the run has ended, in ms."""

STDOUT: Final = 1
NO_PROCESS: Final = -1
"""In place of the handle of a process that has ended."""


def callers_of(process: int) -> list[int]:
    """Return the ids of the ancestors of a process up to the first one that is no shell.

    Args:
        process: the id of the process.
    """
    found: list[int] = []
    with suppress(OSError, ValueError):
        while (process := _parent(process)) > 0:
            found.append(process)
            if Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip() not in SHELLS:
                break
    return found


def _parent(process: int) -> int:
    """Return the parent of a process; its name, in brackets, may hold anything."""
    if process == os.getpid():
        return os.getppid()
    text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rpartition(")")[2].split()[1])


def watch_caller(on_end: Callable[[], None], ended: threading.Event) -> None:
    """Call a function once the caller of this process has ended, or reads its output no more.

    Args:
        on_end: the function; it is called from another thread.
        ended: set when there is nothing to watch any more.
    """
    parent, handles = os.getppid(), _handles(callers_of(os.getpid()))
    watched = select.poll()
    with suppress(OSError):
        os.fstat(STDOUT)
        watched.register(STDOUT, 0)  # an error or the end of its reader is always reported
    opened = [one for one in handles if one != NO_PROCESS]
    for handle in opened:
        watched.register(handle, select.POLLIN)

    def watch() -> None:
        try:
            while not ended.is_set():
                events = watched.poll(LOOKS_MS)
                if NO_PROCESS in handles or os.getppid() != parent or any(_is_end(*one) for one in events):
                    on_end()
                    return
                if events:  # of an output that cannot be polled
                    time.sleep(LOOKS_MS / 1_000)
        finally:
            for handle in opened:
                os.close(handle)

    threading.Thread(target=watch, name="worldprotocol-caller", daemon=True).start()


def _handles(processes: Iterable[int]) -> list[int]:
    """Return a handle of each process; where the system has none, the parent alone is watched."""
    found: list[int] = []
    for one in processes:
        try:
            found.append(os.pidfd_open(one))
        except ProcessLookupError:
            found.append(NO_PROCESS)
        except (OSError, AttributeError):
            break
    return found


def _is_end(handle: int, event: int) -> bool:
    return handle != STDOUT or bool(event & (select.POLLERR | select.POLLHUP))
