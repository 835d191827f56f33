"""What a watched system call of a child process does, as predicates on resources (KLIS-6 section 2.1)."""

from __future__ import annotations

import os
from typing import Any, Final

from host.confinement.calls import ALLOW, Decide, Deny, SystemCallRequest, Verdict
from host.observation.operations import Operations
from host.observation.watch import Watch
from world.errors import ScopeViolationError
from world.klis.observation import Seen, outside_resource
from world.klis.predicate import Predicate

__all__ = ["judged_by", "what_happens"]

_ANY_PORT: Final = "listening at any port"


def judged_by(watch: Watch, operations: Operations) -> Decide:
    """Return what decides on the calls of a child process: a watch, by what the calls do.

    Args:
        watch: judges.
        operations: tells what calls do.
    """

    def decide(call: SystemCallRequest) -> Verdict:
        try:
            watch.check(what_happens(operations, call), depth="child")
        except ScopeViolationError:
            return Deny()
        return ALLOW

    return decide


def what_happens(operations: Operations, call: SystemCallRequest) -> list[Seen]:
    """Return what a watched system call does."""
    at, told = call.targets, _told(call)
    match call.name:
        case "open":
            return operations.opened(at[0], call.flags, call=told)
        case "unlink" | "rmdir":
            return operations.deleted(at[0], call=told)
        case "rename":
            return operations.renamed(at[0], at[1], exchange=bool(call.flags & 2), call=told)
        case "mkdir" | "mknod":
            return operations.made(at[0], call=told)
        case "link":
            return operations.linked(at[0], at[1], symbolic=False, call=told)
        case "symlink":
            return operations.linked(at[0], at[1], symbolic=True, call=told)
        case "execve":
            return operations.started(call.paths[0], call.argv, cwd=call.cwd or None, call=told)
        case "connect" | "sendto" | "bind" | "listen":
            return _talks(operations, call, told)
        case _:  # truncate, chmod, chown, utime, setxattr, removexattr
            return operations.changed(at[0], call=told)


def _talks(operations: Operations, call: SystemCallRequest, told: str) -> list[Seen]:
    address = call.address
    if address is None or address.family == "other":
        return []
    if address.family == "unix":
        if call.name == "bind":
            return [] if address.target is None else operations.made(address.target, call=told)
        return operations.local_socket(address.target or address.path, call=told) if address.path else []
    if call.name == "listen" and not address.port:  # the kernel would choose one, at every address of this machine
        return [Seen(Predicate.PROVIDES, outside_resource(_ANY_PORT), told, outside=_ANY_PORT)]
    if call.name in ("bind", "listen"):
        return operations.bound(address.host, address.port, call=told)
    return operations.connected(address.host, address.port, call=told)


def _told(call: SystemCallRequest) -> str:
    named: list[Any] = [os.fsdecode(path) for path in call.paths]
    if call.address is not None and call.address.host:
        named.append(f"{call.address.host}:{call.address.port}")
    text = f"{call.name}({', '.join(map(repr, named))})"
    return text.encode("utf-8", "backslashreplace").decode()
