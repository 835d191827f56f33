"""The system calls that are watched, by number and shape, and the filter (classic BPF) that stops them.

The kernel looks at numbers and plain arguments only; what a pointer leads to is read by `host.confinement.tracee`.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass
from typing import Final, Literal

from host.confinement.calls import Name

__all__ = ["GROUPS", "MACHINES", "Machine", "Shape", "program", "watched"]

Follows = Literal["never", "always", "open", "how", "unless nofollow", "if follow"]


@dataclass(frozen=True, slots=True)
class Shape:
    """How to read a call's arguments.

    Args:
        name: what it does.
        paths: (argument with the folder's descriptor or None, argument with the path's address), for each path.
        flags: the argument with the flags, or None.
        fixed: flags that the call implies.
        fd: the argument with the descriptor of the file, for calls without a path.
        follows: when the last name of a path is followed.
    """

    name: Name
    paths: tuple[tuple[int | None, int], ...] = ()
    flags: int | None = None
    fixed: int = 0
    fd: int | None = None
    follows: Follows = "never"


_ONE: Final = ((None, 0),)
_AT: Final = ((0, 1),)
_CREAT: Final = os.O_CREAT | os.O_WRONLY | os.O_TRUNC

# name: number on x86_64, number on aarch64 (None: there is none), shape
_CALLS: Final[dict[str, tuple[int | None, int | None, Shape]]] = {
    "open": (2, None, Shape("open", _ONE, flags=1, follows="open")),
    "openat": (257, 56, Shape("open", _AT, flags=2, follows="open")),
    "openat2": (437, 437, Shape("open", _AT, flags=2, follows="how")),
    "creat": (85, None, Shape("open", _ONE, fixed=_CREAT, follows="always")),
    "unlink": (87, None, Shape("unlink", _ONE)),
    "unlinkat": (263, 35, Shape("unlink", _AT, flags=2)),
    "rmdir": (84, None, Shape("rmdir", _ONE)),
    "rename": (82, None, Shape("rename", ((None, 0), (None, 1)))),
    "renameat": (264, 38, Shape("rename", ((0, 1), (2, 3)))),
    "renameat2": (316, 276, Shape("rename", ((0, 1), (2, 3)), flags=4)),
    "mkdir": (83, None, Shape("mkdir", _ONE)),
    "mkdirat": (258, 34, Shape("mkdir", _AT)),
    "mknod": (133, None, Shape("mknod", _ONE)),
    "mknodat": (259, 33, Shape("mknod", _AT)),
    "link": (86, None, Shape("link", ((None, 0), (None, 1)))),
    "linkat": (265, 37, Shape("link", ((0, 1), (2, 3)), flags=4, follows="if follow")),
    "symlink": (88, None, Shape("symlink", ((None, 0), (None, 1)))),
    "symlinkat": (266, 36, Shape("symlink", ((None, 0), (1, 2)))),
    "truncate": (76, 45, Shape("truncate", _ONE, follows="always")),
    "chmod": (90, None, Shape("chmod", _ONE, follows="always")),
    "fchmod": (91, 52, Shape("chmod", fd=0)),
    "fchmodat": (268, 53, Shape("chmod", _AT, follows="always")),
    "fchmodat2": (452, 452, Shape("chmod", _AT, flags=3, follows="unless nofollow")),
    "chown": (92, None, Shape("chown", _ONE, follows="always")),
    "fchown": (93, 55, Shape("chown", fd=0)),
    "lchown": (94, None, Shape("chown", _ONE)),
    "fchownat": (260, 54, Shape("chown", _AT, flags=4, follows="unless nofollow")),
    "setxattr": (188, 5, Shape("setxattr", _ONE, follows="always")),
    "lsetxattr": (189, 6, Shape("setxattr", _ONE)),
    "fsetxattr": (190, 7, Shape("setxattr", fd=0)),
    "removexattr": (197, 14, Shape("removexattr", _ONE, follows="always")),
    "lremovexattr": (198, 15, Shape("removexattr", _ONE)),
    "fremovexattr": (199, 16, Shape("removexattr", fd=0)),
    "utime": (132, None, Shape("utime", _ONE, follows="always")),
    "utimes": (235, None, Shape("utime", _ONE, follows="always")),
    "futimesat": (261, None, Shape("utime", _AT, follows="always")),
    "utimensat": (280, 88, Shape("utime", _AT, flags=3, follows="unless nofollow")),
    "connect": (42, 203, Shape("connect")),
    "bind": (49, 200, Shape("bind")),
    "sendto": (44, 206, Shape("sendto")),
    "sendmsg": (46, 211, Shape("sendto")),
    "sendmmsg": (307, 269, Shape("sendto")),
    "execve": (59, 221, Shape("execve", _ONE, follows="always")),
    "execveat": (322, 281, Shape("execve", _AT, flags=4, follows="unless nofollow")),
}

GROUPS: Final = {"setsid": (112, 157), "setpgid": (109, 154)}
"""Calls by which a process leaves its group: noticed, so that all descendants can be found and ended."""

# Work that is handed over in shared memory, and ways to a file that have no name or are too new to be read here:
# as if the kernel did not have them; programs fall back to the calls above.
_ABSENT: Final = {
    "io_uring_setup": (425, 425),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "open_tree_attr": (467, 467),
    "file_setattr": (469, 469),
    "uselib": (134, None),
}
# What would move the ground under the names that are checked, or concerns the whole machine.
_FORBIDDEN: Final = {
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
}
_TERMINAL_INPUT: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: typing into the terminal that we give back later


@dataclass(frozen=True, slots=True)
class Machine:
    """An architecture.

    Args:
        column: of the tables of this module.
        audit: how the kernel names it to filters (AUDIT_ARCH_*).
        foreign: system call numbers from here on belong to another calling convention, or None.
        ioctl: the number of ioctl.
    """

    column: Literal[0, 1]
    audit: int
    foreign: int | None
    ioctl: int


MACHINES: Final = {
    "x86_64": Machine(0, 0xC000003E, 0x40000000, 16),
    "aarch64": Machine(1, 0xC00000B7, None, 29),
}


def watched(machine: Machine) -> dict[int, tuple[str, Shape]]:
    """Return the name and shape of every watched call, by its number."""
    found = ((entry[machine.column], name, entry[2]) for name, entry in _CALLS.items())
    return {number: (name, shape) for number, name, shape in found if number is not None}


_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_KILL, _ERRNO, _NOTIFY, _ALLOW = 0x80000000, 0x00050000, 0x7FC00000, 0x7FFF0000


def program(machine: Machine) -> bytes:
    """Return the filter: watched calls wait for an answer, some do not exist, some are forbidden, the rest passes."""
    code = [_op(_LOAD, _ARCH), _op(_EQUAL, machine.audit, 1, 0), _op(_RETURN, _KILL), _op(_LOAD, _NUMBER)]
    if machine.foreign is not None:
        code += [_op(_AT_LEAST, machine.foreign, 0, 1), _op(_RETURN, _ERRNO | errno.ENOSYS)]
    column = machine.column
    sendto = _CALLS["sendto"][column]
    code += _sendto(sendto) + _ioctl(machine.ioctl)
    notified = [*(entry[column] for entry in _CALLS.values()), *(entry[column] for entry in GROUPS.values())]
    for action, numbers in (
        (_NOTIFY, notified),
        (_ERRNO | errno.ENOSYS, [entry[column] for entry in _ABSENT.values()]),
        (_ERRNO | errno.EPERM, [entry[column] for entry in _FORBIDDEN.values()]),
    ):
        for number in numbers:
            if number is not None and number != sendto:
                code += [_op(_EQUAL, number, 0, 1), _op(_RETURN, action)]
    return b"".join([*code, _op(_RETURN, _ALLOW)])


def _sendto(number: int | None) -> list[bytes]:
    """Without an address (the fifth argument) it is a mere ``send``, which needs no answer."""
    low = _ARGUMENTS + 8 * 4
    return [
        _op(_EQUAL, number or 0, 0, 6),
        _op(_LOAD, low),
        _op(_EQUAL, 0, 0, 3),
        _op(_LOAD, low + 4),
        _op(_EQUAL, 0, 0, 1),
        _op(_RETURN, _ALLOW),
        _op(_RETURN, _NOTIFY),
    ]


def _ioctl(number: int) -> list[bytes]:
    first, second = _TERMINAL_INPUT
    return [
        _op(_EQUAL, number, 0, 5),
        _op(_LOAD, _ARGUMENTS + 8),
        _op(_EQUAL, first, 1, 0),
        _op(_EQUAL, second, 0, 1),
        _op(_RETURN, _ERRNO | errno.EPERM),
        _op(_RETURN, _ALLOW),
    ]


def _op(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)
