"""Landlock: rules that the kernel enforces on a process and all its descendants (kernel 5.13 and later).

An operation that is handled and not granted is denied with EACCES before it takes effect. Rules refer to opened files
and folders, not to names, so a later replacement gains nothing. Operations that a kernel cannot restrict are omitted,
as its documentation requires, and listed in ``Support.not_held``. No version restricts changes of a file without
opening it: mode, owner, times and extended attributes; the watcher does (`host.confinement.watcher`).
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Final

from host.confinement.kernel import IS_LINUX, system_call

__all__ = ["Access", "Rules", "Support", "available", "ruleset"]

_CREATE_RULESET, _ADD_RULE = 444, 445
_VERSION: Final = 1
_PATH_BENEATH, _NET_PORT = 1, 2
_NET_BIND, _NET_CONNECT = 1, 2
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_ABI_REFER, _ABI_TRUNCATE, _ABI_NETWORK, _ABI_DEVICES, _ABI_SCOPES = 2, 3, 4, 5, 6

ALWAYS_NOT_HELD: Final = "mode, owner, times and extended attributes of files"
_SINCE: Final = (
    (_ABI_TRUNCATE, "truncating a file that may not be written"),
    (_ABI_NETWORK, "TCP connections"),
    (_ABI_DEVICES, "control calls on devices"),
    (_ABI_SCOPES, "signals to other processes, and abstract sockets of other processes"),
)


class Access(IntFlag):
    """Operations on a path and below it; the kernel's own bits."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    LIST = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    CONTROL = 1 << 15

    READ = READ_FILE | LIST
    WRITE = WRITE_FILE | TRUNCATE
    MAKE = MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
    REMOVE = REMOVE_DIR | REMOVE_FILE
    ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | CONTROL


@dataclass(frozen=True, slots=True)
class Support:
    """Support of the kernel.

    Args:
        abi: Landlock's version, 0 where it is missing.
        why_not: why it is missing, as a sentence, or None.
        not_held: operations that this version does not restrict.
    """

    abi: int
    why_not: str | None = None
    not_held: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """Permitted operations of a command; all others are denied.

    Args:
        grants: absolute real paths of files and folders, with the operations on them and below.
        net_ports: TCP ports that may be connected to and bound; None leaves the network alone.
        widened: paths at which more is granted than declared, because the kernel has no rule for single names.
    """

    grants: Mapping[bytes, Access] = field(default_factory=dict)
    net_ports: frozenset[int] | None = None
    widened: tuple[bytes, ...] = ()

    @classmethod
    def of(
        cls,
        *,
        read: Iterable[bytes] = (),
        write: Iterable[bytes] = (),
        execute: Iterable[bytes] = (),
        make_in: Iterable[bytes] = (),
        net_ports: Iterable[int] | None = None,
    ) -> Rules:
        """Return rules of path lists: ``write`` includes reading, in ``make_in`` names are created or deleted."""
        grants: dict[bytes, Access] = {}
        for paths, access in (
            (read, Access.READ),
            (write, Access.READ | Access.WRITE),
            (execute, Access.READ | Access.EXECUTE),
            (make_in, Access.MAKE | Access.REMOVE | Access.REFER),
        ):
            for path in paths:
                real = os.path.realpath(path)
                grants[real] = grants.get(real, Access(0)) | access
        return cls(grants, None if net_ports is None else frozenset(net_ports))


def available() -> Support:
    """Return the support of the running kernel."""
    if not IS_LINUX:
        return Support(0, "Landlock needs Linux, and this is another system.")
    try:
        abi = system_call(_CREATE_RULESET, None, 0, _VERSION)
    except OSError as error:
        return Support(0, f"The kernel has no Landlock, or it is disabled ({error.strerror}).")
    missing = (what for since, what in _SINCE if abi < since)
    return Support(abi, None, (ALWAYS_NOT_HELD, *missing))


def ruleset(rules: Rules, abi: int) -> int:
    """Return a descriptor, closed on exec, of the rules; a process that adopts it is restricted permanently.

    Missing paths and paths through a link are omitted: paths must be real.

    Args:
        rules: the rules.
        abi: as returned by ``available``; operations that it does not support are omitted.

    Raises:
        OSError: the kernel refuses the rules.
    """
    handled = _handled(abi)
    handle = _create(handled, abi, network=rules.net_ports is not None)
    try:
        for path, access in rules.grants.items():
            _grant(handle, path, int(access) & handled)
        if rules.net_ports is not None and abi >= _ABI_NETWORK:
            for port in sorted(rules.net_ports):
                _add(handle, _NET_PORT, struct.pack("=QQ", _NET_BIND | _NET_CONNECT, port))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _handled(abi: int) -> int:
    highest = 16 if abi >= _ABI_DEVICES else 15 if abi >= _ABI_TRUNCATE else 14 if abi >= _ABI_REFER else 13
    return (1 << highest) - 1


def _create(handled: int, abi: int, *, network: bool) -> int:
    attributes = struct.pack("=Q", handled)
    if abi >= _ABI_NETWORK:
        attributes += struct.pack("=Q", (_NET_BIND | _NET_CONNECT) if network else 0)
    if abi >= _ABI_SCOPES:
        attributes += struct.pack("=Q", _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS)
    return system_call(_CREATE_RULESET, ctypes.c_char_p(attributes), len(attributes), 0)


def _grant(handle: int, path: bytes, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return
    try:
        if os.readlink(b"/proc/self/fd/%d" % place) != path:
            return
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= int(Access.ON_FILES)
        if access:
            _add(handle, _PATH_BENEATH, struct.pack("=Qi", access, place))
    finally:
        os.close(place)


def _add(handle: int, kind: int, attributes: bytes) -> None:
    system_call(_ADD_RULE, handle, kind, ctypes.c_char_p(attributes), 0)
