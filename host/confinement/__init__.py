"""Confinement: a child process that the system holds to what its manifest declares (Linux; KLIS-6 section 5)."""

from host.confinement.calls import ALLOW, Address, Allow, Call, Decide, Deny, Verdict
from host.confinement.command import RunningCommand, start
from host.confinement.landlock import Access, Rules, Support
from host.confinement.rules import Runtime, rules_for
from host.confinement.tree import Tree, tree_for
from host.confinement.watcher import Watcher

__all__ = [
    "ALLOW",
    "Access",
    "Address",
    "Allow",
    "Call",
    "Decide",
    "Deny",
    "Rules",
    "RunningCommand",
    "Runtime",
    "Support",
    "Tree",
    "Verdict",
    "Watcher",
    "rules_for",
    "start",
    "tree_for",
]
