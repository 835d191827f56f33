"""The boundary of a workspace: what keeps a command from everything that its declaration does not name.

``namespaces`` is the kernel's: user, mount, process and network namespaces, with Landlock and seccomp. ``container`` is
what an operator states of the machine on which the agents run. Landlock alone is ``none``: a process that swaps a
folder for a link at the right moment defeats names that were checked before. Source: docs/host.md.
"""

from __future__ import annotations

from typing import Literal

from host.confinement import landlock, namespaces, watcher

__all__ = ["Boundary", "boundary_of", "holds"]

Boundary = Literal["namespaces", "container", "none"]
"""What confines a command."""


def boundary_of(namespaces_by: namespaces.Wanted = "auto") -> Literal["namespaces", "none"]:
    """Return the boundary that this machine gives to a command; it is tried once in a process.

    Args:
        namespaces_by: permitted creators of namespaces.
    """
    supports = (landlock.available(), watcher.available())
    if any(one.why_not is not None for one in supports) or namespaces.available(namespaces_by).why_not is not None:
        return "none"
    return "namespaces"


def holds(stated: str, found: Boundary, configured: Boundary) -> bool:
    """Return whether the boundary that a proposal states is there; one that states none is never confined.

    Args:
        stated: the proposal's.
        found: that of ``boundary_of``.
        configured: the operator's, who alone states a container: it cannot be found from within.
    """
    return found == "namespaces" if stated == "namespaces" else stated == configured == "container"
