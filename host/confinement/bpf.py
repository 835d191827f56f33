"""The filter (classic BPF) that stops the system calls of `host.confinement.syscalls`.

The kernel looks at numbers and plain arguments only; what a pointer leads to is read by `host.confinement.tracee`.
"""

from __future__ import annotations

import errno
import struct
from typing import Final

from host.confinement.syscalls import ABSENT, AIMED, ARGUED, FORBIDDEN, GROUPS, Machine, watched

__all__ = ["program"]

_LOAD, _EQUAL, _AT_LEAST, _HAS_ANY, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_KILL, _ERRNO, _NOTIFY, _ALLOW = 0x80000000, 0x00050000, 0x7FC00000, 0x7FFF0000

# TIOCSTI and TIOCLINUX type into the terminal that we give back later; FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR and
# FS_IOC_ENABLE_VERITY make files that nobody can put back.
_IOCTLS: Final = (0x5412, 0x541C, 0x40086602, 0x401C5820, 0x40806685)
_NEW_NAMESPACES: Final = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET
_NEW_TIME: Final = 0x80  # to clone it is part of the signal's number
_UNIX, _INET, _INET6, _NETLINK, _NETLINK_ROUTE = 1, 2, 10, 16, 0
_TYPE_MASK, _RAW, _PACKET = 0xF, 3, 10
_ATTACH, _SEIZE = 16, 0x4206

Code = list[bytes]


def program(machine: Machine) -> bytes:
    """Return the filter: watched calls wait for an answer, some do not exist, some are forbidden, the rest passes.

    Args:
        machine: whose numbers are meant; calls of any other end the process.
    """
    column = machine.column
    code = [_op(_LOAD, _ARCH), _op(_EQUAL, machine.audit, 1, 0), _return(_KILL), _op(_LOAD, _NUMBER)]
    if machine.foreign is not None:
        code += [_op(_AT_LEAST, machine.foreign, 0, 1), _deny(errno.ENOSYS)]
    for name, entry in ARGUED.items():
        code += _when(entry[column], _BY_ARGUMENTS[name])
    for number, (name, _) in watched(machine).items():
        code += _when(number, _SENDTO if name == "sendto" else [_return(_NOTIFY)])
    for name, (*numbers, aim) in AIMED.items():
        code += _when(numbers[column], _ON_PROCESSES.get(name, _ON_SOMEBODY if aim.own else [_return(_NOTIFY)]))
    code += [part for pair in GROUPS.values() for part in _when(pair[column], [_return(_NOTIFY)])]
    code += [part for pair in ABSENT.values() for part in _when(pair[column], [_deny(errno.ENOSYS)])]
    code += [part for pair in FORBIDDEN.values() for part in _when(pair[column], [_deny(errno.EPERM)])]
    return b"".join([*code, _return(_ALLOW)])


def _op(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)


def _return(action: int) -> bytes:
    return _op(_RETURN, action)


def _deny(error: int) -> bytes:
    return _return(_ERRNO | error)


def _argument(index: int, *, high: bool = False) -> bytes:
    """Load the lower or upper half of an argument."""
    return _op(_LOAD, _ARGUMENTS + 8 * index + 4 * high)


def _when(number: int | None, body: Code) -> Code:
    """For one call do what ends in an answer; go on with the next otherwise."""
    return [] if number is None else [_op(_EQUAL, number, 0, len(body)), *body]


def _unless_null(index: int, then: Code) -> Code:
    """Pass when a pointer is null."""
    null = [_argument(index), _op(_EQUAL, 0, 0, 3), _argument(index, high=True), _op(_EQUAL, 0, 0, 1), _return(_ALLOW)]
    return [*null, *then]


def _unless_any(flags: int) -> Code:
    """Forbid what has any of the flags in its first argument."""
    return [_argument(0), _op(_HAS_ANY, flags, 0, 1), _deny(errno.EPERM), _return(_ALLOW)]


_SENDTO: Final = _unless_null(4, [_return(_NOTIFY)])
"""Without an address (the fifth argument) it is a mere ``send``, which needs no answer."""

_ON_SOMEBODY: Final = [_argument(0), _op(_EQUAL, 0, 0, 1), _return(_ALLOW), _return(_NOTIFY)]

_ON_PROCESSES: Final[dict[str, Code]] = {
    "prlimit64": _unless_null(2, _ON_SOMEBODY),  # without new limits it reads
    "ptrace": [  # all else is for who has attached, or was asked to be traced
        _argument(0),
        _op(_EQUAL, _ATTACH, 1, 0),
        _op(_EQUAL, _SEIZE, 0, 1),
        _return(_NOTIFY),
        _return(_ALLOW),
    ],
}

# Other families and raw packets go past all that is asked about addresses, or talk to the kernel of the whole machine;
# whoever looks up a name asks the kernel by NETLINK_ROUTE which addresses there are.
_SOCKET: Final = [
    _argument(0),
    _op(_EQUAL, _UNIX, 0, 1),
    _return(_ALLOW),
    _op(_EQUAL, _NETLINK, 0, 4),
    _argument(2),
    _op(_EQUAL, _NETLINK_ROUTE, 0, 1),
    _return(_ALLOW),
    _deny(errno.EACCES),
    _op(_EQUAL, _INET, 1, 0),
    _op(_EQUAL, _INET6, 0, 5),
    _argument(1),
    _op(_AND, _TYPE_MASK),
    _op(_EQUAL, _RAW, 2, 0),
    _op(_EQUAL, _PACKET, 1, 0),
    _return(_ALLOW),
    _deny(errno.EACCES),
]

_BY_ARGUMENTS: Final[dict[str, Code]] = {
    "ioctl": [
        _argument(1),
        *(part for number in _IOCTLS for part in (_op(_EQUAL, number, 0, 1), _deny(errno.EPERM))),
        _return(_ALLOW),
    ],
    "clone": _unless_any(_NEW_NAMESPACES),
    "unshare": _unless_any(_NEW_NAMESPACES | _NEW_TIME),
    "socket": _SOCKET,
    "socketpair": _SOCKET,
}
