"""Which folders belong to the system that runs agents and not to anybody's work; for observation and confinement."""

from __future__ import annotations

from typing import Final

__all__ = ["DEVICES", "PROGRAMS", "SHARED_MEMORY", "is_below"]

PROGRAMS: Final = (b"/usr", b"/lib", b"/lib64", b"/lib32", b"/bin", b"/sbin", b"/opt", b"/nix/store", b"/snap")
"""Programs and their libraries."""

DEVICES: Final = tuple(
    b"/dev/" + name for name in (b"null", b"zero", b"full", b"random", b"urandom", b"tty", b"ptmx", b"pts")
)
"""Devices that every program may use."""

SHARED_MEMORY: Final = b"/dev/shm"


def is_below(path: bytes, folder: bytes) -> bool:
    """Tell whether an absolute path is a folder, or leads into it."""
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")
