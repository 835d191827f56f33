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


def open_descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))
