"""Tables of system calls that the filter does not simply pass: watched, process-related, absent or forbidden.

`host.confinement.bpf` converts these tables to the kernel's filter. A command can affect only its own processes, and
no state of the whole machine: its clock, name, modules, keys, swap. It cannot create namespaces either, because with
its own mounts names would differ from the checked ones: browsers and container tools therefore run without
their own sandboxes (Chromium: ``--no-sandbox``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Literal

from host.confinement.calls import Name

__all__ = [
    "ABSENT",
    "AIMED",
    "ARGUED",
    "FORBIDDEN",
    "GROUPS",
    "MACHINES",
    "MODES",
    "Aim",
    "Machine",
    "Shape",
    "aimed",
    "watched",
]

Follows = Literal["never", "always", "open", "unless nofollow", "if follow"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Meaning of a call's arguments.

    Args:
        name: the operation.
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

# name: number on x86_64, number on aarch64 (None: missing), shape
_CALLS: Final[dict[str, tuple[int | None, int | None, Shape]]] = {
    "open": (2, None, Shape("open", _ONE, flags=1, follows="open")),
    "openat": (257, 56, Shape("open", _AT, flags=2, follows="open")),
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
    "listen": (50, 201, Shape("listen")),
    "sendto": (44, 206, Shape("sendto")),
    "sendmsg": (46, 211, Shape("sendto")),
    "sendmmsg": (307, 269, Shape("sendto")),
    "execve": (59, 221, Shape("execve", _ONE, follows="always")),
    "execveat": (322, 281, Shape("execve", _AT, flags=4, follows="unless nofollow")),
}

MODES: Final = {
    "open": (2, 1),
    "openat": (3, 2),
    "creat": (1, None),
    "mknod": (1, None),
    "mknodat": (2, None),
    "chmod": (1, None),
    "fchmod": (1, None),
    "fchmodat": (2, None),
    "fchmodat2": (2, None),
}
"""Watched calls that set the mode of a file: the argument with it, and the one with flags that say whether it counts.

The bits that give a program the rights of its owner or group are refused in the filter, where no thread can change them
after they were tested. ``mkdir`` ignores them.
"""

GROUPS: Final = {"setsid": (112, 157), "setpgid": (109, 154)}
"""Calls by which a process leaves its group: recorded, so that all descendants can be found and ended."""


@dataclass(frozen=True, slots=True)
class Aim:
    """Arguments that identify the affected process.

    Args:
        processes: the arguments with the numbers of processes or threads; 0 is the caller.
        which: the argument with the kind of the number, or None where it is a process id.
        process: its value for a process.
        group: its value for a process group.
        user: its value for all processes of a user.
        own: whether the filter permits the call that names 0; it is the first argument then.
    """

    processes: tuple[int, ...] = (0,)
    which: int | None = None
    process: int = 0
    group: int = 1
    user: int = 2
    own: bool = False


_OWN: Final = Aim(own=True)

AIMED: Final[dict[str, tuple[int, int, Aim]]] = {
    "prlimit64": (302, 261, _OWN),
    "sched_setparam": (142, 118, _OWN),
    "sched_setscheduler": (144, 119, _OWN),
    "sched_setaffinity": (203, 122, _OWN),
    "sched_setattr": (314, 274, _OWN),
    "migrate_pages": (256, 238, _OWN),
    "move_pages": (279, 239, _OWN),
    "setpriority": (141, 140, Aim((1,), which=0)),
    "ioprio_set": (251, 30, Aim((1,), which=0, process=1, group=2, user=3)),
    "process_vm_readv": (310, 270, Aim()),
    "process_vm_writev": (311, 271, Aim()),
    "kcmp": (312, 272, Aim((0, 1))),
    "pidfd_open": (434, 434, Aim()),
    "ptrace": (101, 117, Aim((1,))),
}
"""Calls on processes: they wait until the process is known to belong to the command."""

# Operations in shared memory, access to files without a name or in ways that cannot be read here, and flags
# behind a pointer: reported as missing in the kernel; programs fall back to other calls.
ABSENT: Final[dict[str, tuple[int | None, int | None]]] = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    "openat2": (437, 437),  # its mode is behind a pointer: another thread can change it after it was looked at
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "open_tree_attr": (467, 467),
    "file_setattr": (469, 469),
    "uselib": (134, None),
}
# Calls that change the meaning of checked names, access other processes by a descriptor, or affect
# the whole machine.
FORBIDDEN: Final[dict[str, tuple[int | None, int | None]]] = {
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
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "create_module": (174, None),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "adjtimex": (159, 171),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "nfsservctl": (180, 42),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "userfaultfd": (323, 282),
}
ARGUED: Final = {
    "ioctl": (16, 29),
    "clone": (56, 220),
    "unshare": (272, 97),
    "socket": (41, 198),
    "socketpair": (53, 199),
}
"""Calls that the filter passes or refuses by their arguments."""


@dataclass(frozen=True, slots=True)
class Machine:
    """An architecture.

    Args:
        column: of the tables of this module.
        audit: how the kernel names it to filters (AUDIT_ARCH_*).
        foreign: system call numbers from here on belong to another calling convention, or None.
    """

    column: Literal[0, 1]
    audit: int
    foreign: int | None


MACHINES: Final = {
    "x86_64": Machine(0, 0xC000003E, 0x40000000),
    "aarch64": Machine(1, 0xC00000B7, None),
}


def watched(machine: Machine) -> dict[int, tuple[str, Shape]]:
    """Return the name and shape of every watched call, by its number."""
    found = ((entry[machine.column], name, entry[2]) for name, entry in _CALLS.items())
    return {number: (name, shape) for number, name, shape in found if number is not None}


def aimed(machine: Machine) -> dict[int, Aim]:
    """Return the arguments of every call on processes, by its number."""
    return {entry[machine.column]: entry[2] for entry in AIMED.values()}
