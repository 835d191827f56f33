"""Folders to work in: what stands there, who may reach it, and how many descriptors are open."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

import pytest

from world.errors import RefusedError


@contextlib.contextmanager
def refused(code):
    """Expect a refusal with this code."""
    with pytest.raises(RefusedError) as caught:
        yield caught
    assert caught.value.code == code


@contextlib.contextmanager
def without_privileges():
    """Reach files as somebody whom permissions hold, in this thread, also where the tests run as root."""
    libc = ctypes.CDLL(None)
    before = libc.setfsuid(65_534 if os.geteuid() == 0 else -1)
    try:
        yield
    finally:
        libc.setfsuid(before)


def everything(folder: Path) -> dict[str, object]:
    """Return all that stands in a folder, with content, permissions and what kind it is."""
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None) for path in folder.rglob("*")
    }


def open_descriptors() -> set[tuple[int, str]]:
    """Return the descriptors that this process has open, each with what it leads to.

    Compare them as sets, ``open_descriptors() <= before``: objects that earlier tests left may be closed meanwhile.
    """
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found
