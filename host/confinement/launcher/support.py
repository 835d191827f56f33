"""Parts of the launcher that both of its processes need, and the program of the namespace's first process.

Run as ``python -I -S support.py hold MACHINE LIFELINE READY``, it is the first process of namespaces that bubblewrap
made. Only the standard library is imported, and as little of it as possible.
"""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False  # importing `typing` takes longer than starting the interpreter
if TYPE_CHECKING:
    from typing import Any

_SIGCHLD = 17
_CAPGET = {"x86_64": 125, "aarch64": 90}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _CLEAR_ALL = 4, 24, 47, 4
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63


class LaunchError(Exception):
    """The command could not be made to run."""

    def __init__(self, code: str, error: int, what: str) -> None:
        """Keep the report to the supervisor: the error's code, an errno, and the attempted operation."""
        super().__init__(code, error, what)


def hold(libc: Any, machine: str, lifeline: int, made: int, error: int = 0) -> None:
    """Report that the namespaces are made, or an errno, and wait until the supervisor answers."""
    os.setsid()
    libc.signal(_SIGCHLD, ctypes.c_void_p(1))  # ignored, so that orphans vanish by themselves
    drop(libc, machine, 0)
    libc.prctl(_PR_SET_DUMPABLE, *map(ctypes.c_ulong, (0, 0, 0, 0)))
    os.write(made, bytes([min(error, 255)]))
    os.closerange(0, lifeline)
    os.closerange(lifeline + 1, 65536)
    os.read(lifeline, 1)


def drop(libc: Any, machine: str, kept: int) -> None:
    """Give up capabilities for good but for those of ``kept`` that there are, and be open to the supervisor's look."""
    for number in range(_LAST_CAPABILITY + 1):
        if not kept >> number & 1:
            libc.prctl(_PR_CAPBSET_DROP, *map(ctypes.c_ulong, (number, 0, 0, 0)))  # beyond the last it fails
    libc.prctl(_PR_CAP_AMBIENT, *map(ctypes.c_ulong, (_CLEAR_ALL, 0, 0, 0)))
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    held = (ctypes.c_uint32 * 6)()
    if libc.syscall(ctypes.c_long(_CAPGET[machine]), header, held):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "looking at capabilities")
    low, high = kept & held[1], kept >> 32 & held[4]
    values = (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0)
    if libc.syscall(ctypes.c_long(_CAPSET[machine]), header, values):
        raise LaunchError("CONFINEMENT_FAILED", ctypes.get_errno(), "giving up capabilities")
    libc.prctl(_PR_SET_DUMPABLE, *map(ctypes.c_ulong, (1, 0, 0, 0)))


def tell(connection: int, message: str) -> None:
    """Send a message to the supervisor, which may have ended."""
    try:
        os.write(connection, message.encode() + b"\n")
    except OSError:
        return


if __name__ == "__main__":
    hold(ctypes.CDLL(None, use_errno=True), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    os._exit(0)
