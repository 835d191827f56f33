"""The seccomp filter (classic BPF) for the system calls of `host.confinement.syscalls`.

The kernel tests numbers and plain arguments only; `host.confinement.tracee` reads the memory behind pointers.
"""

from __future__ import annotations

import errno
import struct
from typing import Final

from host.confinement.syscalls import ABSENT, AIMED, ARGUED, FORBIDDEN, GROUPS, MODES, Machine, watched

__all__ = ["program"]

_LOAD, _EQUAL, _AT_LEAST, _HAS_ANY, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_KILL, _ERRNO, _NOTIFY, _ALLOW = 0x80000000, 0x00050000, 0x7FC00000, 0x7FFF0000

# Requests that a command may make of a descriptor; every other one is refused. Of terminals: settings, sizes, groups,
# but not to type into them (TIOCSTI, TIOCLINUX). Of files: their size in blocks, their flags to be read, shared
# extents, but not flags that cannot be put back (FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY), and nothing
# that is done to a whole file system (FIFREEZE, FITRIM, EXT4_IOC_SHUTDOWN). Of sockets: what there is to read, and the
# interfaces.
_IOCTLS: Final = (
    *range(0x5401, 0x540C),  # TCGETS ... TCFLSH
    *(0x540E, 0x540F, 0x5410, 0x5411, 0x5413, 0x5414, 0x541B, 0x5420, 0x5421, 0x5422, 0x5424, 0x5425, 0x5429),
    *(0x802C542A, 0x402C542B, 0x402C542C, 0x402C542D),  # TCGETS2 ... TCSETSF2
    *(0x80045430, 0x40045431, 0x80045438, 0x80045439, 0x80045440, 0x5441),  # TIOCGPTN ... TIOCGPTPEER
    *(0x5450, 0x5451, 0x5452, 0x5460),  # FIONCLEX, FIOCLEX, FIOASYNC, FIOQSIZE
    *(0x2, 0x80086601, 0x801C581F, 0xC020660B),  # FIGETBSZ, FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FIEMAP
    *(0x40049409, 0x4020940D, 0xC0189436),  # FICLONE, FICLONERANGE, FIDEDUPERANGE
    *(0x8905, 0x8906, 0x8910, 0x8912, 0x8913, 0x8915, 0x8919, 0x891B, 0x8921, 0x8927, 0x8933),  # SIOCATMARK, SIOCGIF...
    0x80045200,  # RNDGETENTCNT
)
_NEW_NAMESPACES: Final = 0x7E020000  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET
_NEW_TIME: Final = 0x80  # for clone this bit is part of the signal's number
_UNIX, _INET, _INET6, _NETLINK, _NETLINK_ROUTE = 1, 2, 10, 16, 0
_TYPE_MASK, _RAW, _PACKET = 0xF, 3, 10
_PLAIN: Final = (0, 6, 17)  # the type's own, TCP, UDP
_SET_ID: Final = 0o6000
_MAKES_FILE: Final = 0o20000100  # O_CREAT, and the bit of O_TMPFILE that is its own
_FASTOPEN: Final = 0x20000000
_ATTACH, _SEIZE = 16, 0x4206

Code = list[bytes]


def program(machine: Machine) -> bytes:
    """Return the filter: watched calls wait for a decision, others are absent, forbidden or pass.

    Args:
        machine: the architecture; calls of any other one end the process.
    """
    column = machine.column
    code = [_op(_LOAD, _ARCH), _op(_EQUAL, machine.audit, 1, 0), _return(_KILL), _op(_LOAD, _NUMBER)]
    if machine.foreign is not None:
        code += [_op(_AT_LEAST, machine.foreign, 0, 1), _deny(errno.ENOSYS)]
    for name, entry in ARGUED.items():
        code += _when(entry[column], _BY_ARGUMENTS[name])
    for number, (name, _) in watched(machine).items():
        code += _when(number, _SENDING.get(name, [*_unless_special(name), _return(_NOTIFY)]))
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
    """Run a body that ends in an answer for one call; continue with the next otherwise."""
    return [] if number is None else [_op(_EQUAL, number, 0, len(body)), *body]


def _unless_null(index: int, then: Code) -> Code:
    """Pass when a pointer is null."""
    null = [_argument(index), _op(_EQUAL, 0, 0, 3), _argument(index, high=True), _op(_EQUAL, 0, 0, 1), _return(_ALLOW)]
    return [*null, *then]


def _unless_any(flags: int) -> Code:
    """Forbid what has any of the flags in its first argument."""
    return [_argument(0), _op(_HAS_ANY, flags, 0, 1), _deny(errno.EPERM), _return(_ALLOW)]


def _unless_fastopen(index: int, then: Code) -> Code:
    """Refuse to send data while opening a connection (TCP fast open): Landlock tests connect alone."""
    return [_argument(index), _op(_HAS_ANY, _FASTOPEN, 0, 1), _deny(errno.EOPNOTSUPP), *then]


def _unless_special(name: str) -> Code:
    """Forbid to set the setuid and setgid bits by a call that sets the mode of a file."""
    if name not in MODES:
        return []
    mode, flags = MODES[name]
    tested = [_argument(mode), _op(_HAS_ANY, _SET_ID, 0, 1), _deny(errno.EPERM)]
    return tested if flags is None else [_argument(flags), _op(_HAS_ANY, _MAKES_FILE, 0, len(tested)), *tested]


_SENDING: Final[dict[str, Code]] = {
    "sendto": _unless_fastopen(3, _unless_null(4, [_return(_NOTIFY)])),  # without an address no decision is needed
    "sendmsg": _unless_fastopen(2, [_return(_NOTIFY)]),
    "sendmmsg": _unless_fastopen(3, [_return(_NOTIFY)]),
}

_ON_SOMEBODY: Final = [_argument(0), _op(_EQUAL, 0, 0, 1), _return(_ALLOW), _return(_NOTIFY)]

_ON_PROCESSES: Final[dict[str, Code]] = {
    "prlimit64": _unless_null(2, _ON_SOMEBODY),  # without new limits it reads
    "ptrace": [  # other requests need an attached tracer, or a process that asked to be traced
        _argument(0),
        _op(_EQUAL, _ATTACH, 1, 0),
        _op(_EQUAL, _SEIZE, 0, 1),
        _return(_NOTIFY),
        _return(_ALLOW),
    ],
}

# Other protocols (MPTCP, SCTP), families and raw packets bypass the checks of addresses, or reach the
# kernel of the whole machine; name resolution uses NETLINK_ROUTE to list the existing addresses.
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
    _op(_EQUAL, _INET6, 0, 5 + 2 * len(_PLAIN)),
    _argument(1),
    _op(_AND, _TYPE_MASK),
    _op(_EQUAL, _RAW, 2 + 2 * len(_PLAIN), 0),
    _op(_EQUAL, _PACKET, 1 + 2 * len(_PLAIN), 0),
    _argument(2),
    *(part for number in _PLAIN for part in (_op(_EQUAL, number, 0, 1), _return(_ALLOW))),
    _deny(errno.EACCES),
]

_BY_ARGUMENTS: Final[dict[str, Code]] = {
    "ioctl": [
        _argument(1),
        *(part for number in _IOCTLS for part in (_op(_EQUAL, number, 0, 1), _return(_ALLOW))),
        _deny(errno.EPERM),
    ],
    "clone": _unless_any(_NEW_NAMESPACES),
    "unshare": _unless_any(_NEW_NAMESPACES | _NEW_TIME),
    "socket": _SOCKET,
    "socketpair": _SOCKET,
}
