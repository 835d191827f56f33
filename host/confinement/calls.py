"""Requests of watched system calls, and the answers to them."""

from __future__ import annotations

import errno as errors
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from host.confinement.naming import Named

__all__ = ["ALLOW", "Allow", "Decide", "Deny", "Name", "SocketAddress", "SystemCallRequest", "Verdict"]

Name = Literal[
    "open",
    "unlink",
    "rmdir",
    "rename",
    "mkdir",
    "mknod",
    "link",
    "symlink",
    "truncate",
    "chmod",
    "chown",
    "utime",
    "setxattr",
    "removexattr",
    "connect",
    "bind",
    "listen",
    "sendto",
    "execve",
]
"""The operation of a system call, independent of the kernel's variants of it."""


@dataclass(frozen=True, slots=True)
class SocketAddress:
    r"""Peer address of a socket.

    Args:
        family: ``other`` for anything but internet and local sockets; ``host`` is its number then.
        host: numeric, for the internet families.
        port: for the internet families.
        path: of a local socket: absolute, ``b"\0name"`` for an abstract one, empty for one without a name.
        target: resolved path of a local socket; None for all others.
    """

    family: Literal["inet", "inet6", "unix", "other"]
    host: str = ""
    port: int = 0
    path: bytes = b""
    target: Named | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SystemCallRequest:
    """A system call that waits for a decision.

    Args:
        name: the operation.
        syscall: the kernel's name of the call.
        pid: the calling thread.
        paths: absolute, links in their folders resolved, the last name resolved only where the call follows links
            and leads into ``/proc``. Two for ``rename``, ``link`` and ``symlink`` (whose first is the link's text as it
            was given); the executable for ``execve``; none for sockets.
        targets: where each path leads, with the last name followed where the call follows it, by the caller's own
            folders; the decision is about this and not about a text.
        flags: ``os.O_*`` for ``open``, ``RENAME_*`` for ``rename`` (2 exchanges), else the call's own, or 0.
        follows: whether a link in the last name is followed.
        address: for ``connect``, ``bind`` and ``sendto``; for ``listen`` what the socket is bound to, with port 0 while
            the kernel has still to choose one.
        argv: for ``execve``; cut after 64 arguments and 4096 bytes each.
        cwd: the working directory, for ``execve``; else empty.
    """

    name: Name
    syscall: str
    pid: int
    paths: tuple[bytes, ...] = ()
    targets: tuple[Named, ...] = ()
    flags: int = 0
    follows: bool = False
    address: SocketAddress | None = None
    argv: tuple[bytes, ...] = ()
    cwd: bytes = b""


@dataclass(frozen=True, slots=True)
class Allow:
    """The kernel continues the call."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The call does not happen; the caller receives the error.

    Args:
        errno: like ``errno.EACCES``.
    """

    errno: int = errors.EACCES


ALLOW: Final = Allow()
Verdict = Allow | Deny
Decide = Callable[[SystemCallRequest], Verdict]
