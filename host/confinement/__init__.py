"""Confinement: a child process that the system holds to what its manifest declares (Linux; KLIS-6 section 5)."""

from host.confinement.calls import ALLOW, Allow, Decide, Deny, SocketAddress, SystemCallRequest, Verdict
from host.confinement.command import RunningCommand, start
from host.confinement.landlock import Access, Rules, Support
from host.confinement.rules import Runtime, rules_for
from host.confinement.tree import MountTree, tree_for
from host.confinement.watcher import Watcher

__all__ = [
    "ALLOW",
    "Access",
    "Allow",
    "Decide",
    "Deny",
    "MountTree",
    "Rules",
    "RunningCommand",
    "Runtime",
    "SocketAddress",
    "Support",
    "SystemCallRequest",
    "Verdict",
    "Watcher",
    "rules_for",
    "start",
    "tree_for",
]
