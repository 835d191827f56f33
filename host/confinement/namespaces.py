"""Namespaces: whether a command can have a tree of files, processes, shared memory and a network of its own here.

Whether it can is found out by trying: containers and distributions forbid it in many ways.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from host.confinement.kernel import IS_LINUX, machine
from host.confinement.landlock import Support
from host.confinement.syscalls import MACHINES

__all__ = ["are_missing", "available"]

_LAUNCHER: Final = str(Path(__file__).with_name("launcher.py"))
_PATIENCE_S: Final = 30.0
_found: Final[list[Support]] = []


def available() -> Support:
    """Return whether commands can have namespaces of their own; ``abi`` is 1 when they can. It is tried once."""
    if not _found:
        _found.append(_tried())
    return _found[0]


def are_missing() -> bool:
    """Tell whether it is known that there are none; nothing is tried, as that takes as long as a command's start."""
    return bool(_found) and _found[0].why_not is not None


def _tried() -> Support:
    if not IS_LINUX:
        return Support(0, "Namespaces are a part of Linux, and this is another system.")
    if machine() not in MACHINES:
        return Support(0, f"Namespaces are made on {' and '.join(MACHINES)}, and this is {machine()}.")
    try:
        tried = subprocess.run(
            [sys.executable, "-I", "-S", _LAUNCHER, "try", machine()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_PATIENCE_S,
            env={"PATH": os.defpath},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Support(0, f"Whether there are namespaces could not be tried: {error}.")
    if tried.returncode:
        why = tried.stdout.decode("utf-8", "replace").strip() or f"exit code {tried.returncode}"
        return Support(0, f"The kernel lets this user make no namespaces: {why}.")
    return Support(1)
