"""Mapping of watched system calls of a child process to predicates on resources (KLIS-6 section 2.1)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from host.confinement.calls import ALLOW, Decide, Deny, SystemCallRequest, Verdict
from host.observation.operations import Operations
from host.observation.session_watch import Watch
from world.errors import ScopeViolationError
from world.klis.observation import Seen, outside_resource
from world.klis.predicate import Predicate

__all__ = ["decision_of", "operations_of"]

_OPENING: Final = frozenset({"open", "link", "rename", "truncate"})
_ANY_PORT: Final = "listening at any port"


def decision_of(watch: Watch, operations: Operations, hides: Callable[[bytes], bool] | None = None) -> Decide:
    """Return a function that decides on system calls by a watch.

    Args:
        watch: checks the operations.
        operations: maps calls to operations.
        hides: whether a path is hidden: it cannot be opened then, which is no violation. None where a file tree of the
            command's own covers hidden files.
    """

    def decide(call: SystemCallRequest) -> Verdict:
        if hides is not None and call.name in _OPENING and any(map(hides, call.paths)):
            return Deny()
        try:
            watch.check(operations_of(operations, call), depth="child")
        except ScopeViolationError:
            return Deny()
        return ALLOW

    return decide


def operations_of(operations: Operations, call: SystemCallRequest) -> list[Seen]:
    """Return the operations of a watched system call."""
    at, description = call.targets, _describe(call)
    match call.name:
        case "open":
            return operations.opened(at[0], call.flags, call=description)
        case "unlink" | "rmdir":
            return operations.deleted(at[0], call=description)
        case "rename":
            return operations.renamed(at[0], at[1], exchange=bool(call.flags & 2), call=description)
        case "mkdir" | "mknod":
            return operations.made(at[0], call=description)
        case "link":
            return operations.linked(at[0], at[1], symbolic=False, call=description)
        case "symlink":
            return operations.linked(at[0], at[1], symbolic=True, call=description)
        case "execve":
            return operations.started(call.paths[0], call.argv, cwd=call.cwd or None, call=description)
        case "connect" | "sendto" | "bind" | "listen":
            return _network_operation(operations, call, description)
        case _:  # truncate, chmod, chown, utime, setxattr, removexattr
            return operations.changed(at[0], call=description)


def _network_operation(operations: Operations, call: SystemCallRequest, description: str) -> list[Seen]:
    address = call.address
    if address is None or address.family == "other":
        return []
    if address.family == "unix":
        if call.name == "bind":
            return [] if address.target is None else operations.made(address.target, call=description)
        return operations.local_socket(address.target or address.path, call=description) if address.path else []
    if call.name == "listen" and not address.port:  # the kernel would choose one, at every address of this machine
        return [Seen(Predicate.PROVIDES, outside_resource(_ANY_PORT), description, outside=_ANY_PORT)]
    if call.name in ("bind", "listen"):
        return operations.bound(address.host, address.port, call=description)
    return operations.connected(address.host, address.port, call=description)


def _describe(call: SystemCallRequest) -> str:
    named: list[Any] = [os.fsdecode(path) for path in call.paths]
    if call.address is not None and call.address.host:
        named.append(f"{call.address.host}:{call.address.port}")
    text = f"{call.name}({', '.join(map(repr, named))})"
    return text.encode("utf-8", "backslashreplace").decode()
