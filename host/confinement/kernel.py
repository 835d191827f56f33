"""Kernel calls without a wrapper in Python's standard library: raw system calls by number."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from typing import Any, Final

__all__ = ["IS_LINUX", "machine", "pidfd_getfd", "read_memory", "system_call"]

IS_LINUX: Final = sys.platform == "linux"
_PIDFD_GETFD: Final = 438  # one number on every architecture


def machine() -> str:
    """Return the kernel's name of the architecture, including the word size of this process."""
    return platform.machine() if sys.maxsize > 2**32 else f"32-bit {platform.machine()}"


@cache
def _syscall() -> Any:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


def system_call(number: int, *arguments: Any) -> int:
    """Perform a system call.

    Args:
        number: for this architecture.
        arguments: integers are passed as 64 bits, None as a null pointer, others as by ctypes.

    Raises:
        OSError: the call failed, with its ``errno``.
    """
    passed = (ctypes.c_long(given) if isinstance(given, int) else given for given in arguments)
    result = int(_syscall()(ctypes.c_long(number), *passed))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def pidfd_getfd(pid: int, number: int) -> int:
    """Return a copy, closed on exec, of another process's file descriptor.

    Raises:
        OSError: the process has ended, has no such descriptor, or may not be inspected.
    """
    handle = os.pidfd_open(pid)
    try:
        return system_call(_PIDFD_GETFD, handle, number, 0)
    finally:
        os.close(handle)


class _Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


@cache
def _process_vm_readv() -> Any:
    function = ctypes.CDLL(None, use_errno=True).process_vm_readv
    function.restype = ctypes.c_ssize_t
    function.argtypes = (
        ctypes.c_int,
        ctypes.POINTER(_Piece),
        ctypes.c_ulong,
        ctypes.POINTER(_Piece),
        ctypes.c_ulong,
        ctypes.c_ulong,
    )
    return function


def read_memory(pid: int, address: int, size: int) -> bytes:
    """Return up to ``size`` bytes of another process's memory, fewer at its end (three times faster than its file).

    Raises:
        OSError: no memory at the address, or the process has ended or may not be inspected.
    """
    buffer = (ctypes.c_char * size)()
    here, there = _Piece(ctypes.addressof(buffer), size), _Piece(address, size)
    count = _process_vm_readv()(pid, here, 1, there, 1, 0)
    if count < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return buffer.raw[:count]
