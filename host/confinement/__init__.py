"""Confinement of a child process to the declaration of its manifest by the kernel (Linux; KLIS-6 section 5)."""

from host.confinement.calls import ALLOW, Allow, Decide, Deny, SocketAddress, SystemCallRequest, Verdict
from host.confinement.command import RunningCommand
from host.confinement.landlock import Access, Rules, Support
from host.confinement.launch import start
from host.confinement.options import UNCONFINED, Confinement, StartOptions
from host.confinement.rules import Runtime, rules_for
from host.confinement.tree import MountTree, tree_for
from host.confinement.watcher import Watcher

__all__ = [
    "ALLOW",
    "UNCONFINED",
    "Access",
    "Allow",
    "Confinement",
    "Decide",
    "Deny",
    "MountTree",
    "Rules",
    "RunningCommand",
    "Runtime",
    "SocketAddress",
    "StartOptions",
    "Support",
    "SystemCallRequest",
    "Verdict",
    "Watcher",
    "rules_for",
    "start",
    "tree_for",
]
