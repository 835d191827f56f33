"""Namespaces: whether a command can have its own file tree, processes, shared memory and network here.

They are created with the kernel's ``unshare``, or by bubblewrap. Support is determined by a trial: containers and
distributions forbid it in different ways, and some permit it to bubblewrap alone.
"""

from __future__ import annotations

import marshal
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from host.confinement import bubblewrap
from host.confinement.kernel import IS_LINUX, machine
from host.confinement.rules import Runtime
from host.confinement.syscalls import MACHINES
from host.confinement.tree import MountTree, tree_of
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["Maker", "Namespaces", "Wanted", "are_missing", "available", "likely", "wrapping"]

Maker = Literal["unshare", "bubblewrap"]
"""Creator of namespaces: this engine with the kernel's call, or the program."""
Wanted = Literal["auto", "unshare", "bubblewrap"]
"""Permitted creators of namespaces; ``auto`` is ``unshare``, and bubblewrap where that is not permitted."""

_LAUNCHER: Final = str(Path(__file__).parent.joinpath("launcher", "main.py"))
_PATIENCE_S: Final = 30.0
_ABSENT: Final = "Bubblewrap is not installed in a folder of the system that only root can change; install it."
_MAKERS: Final[Mapping[Wanted, tuple[Maker, ...]]] = {
    "auto": ("unshare", "bubblewrap"),
    "unshare": ("unshare",),
    "bubblewrap": ("bubblewrap",),
}


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Support of namespaces.

    Args:
        maker: the creator; None without support.
        why_not: why there is no support, or None.
    """

    maker: Maker | None = None
    why_not: str | None = None

    @property
    def recorded(self) -> str:
        """Name of this confinement in the record of a run."""
        return "namespaces (bubblewrap)" if self.maker == "bubblewrap" else "namespaces"


_probed: Final[dict[Maker, Namespaces]] = {}


def available(wanted: Wanted = "auto") -> Namespaces:
    """Return the support of namespaces; each creator is tried once.

    Args:
        wanted: permitted creators.
    """
    missing = []
    for maker in _MAKERS[wanted]:
        if maker not in _probed:
            _probed[maker] = _tried(maker)
        if _probed[maker].why_not is None:
            return _probed[maker]
        missing.append(_probed[maker].why_not or "")
    return Namespaces(None, " ".join(missing))


def likely(wanted: Wanted = "auto") -> Maker | None:
    """Return the first creator that is not known to fail; nothing is tried.

    Args:
        wanted: permitted creators.
    """
    return next((maker for maker in _MAKERS[wanted] if maker not in _probed or _probed[maker].why_not is None), None)


def are_missing(wanted: Wanted = "auto") -> bool:
    """Whether namespaces are known to be unsupported; nothing is tried, because a trial is slow.

    Args:
        wanted: permitted creators.
    """
    return likely(wanted) is None


def wrapping(tree: MountTree, wanted: Wanted) -> tuple[str, list[bubblewrap.Step]] | None:
    """Return bubblewrap's program and its steps for a tree; None where ``unshare`` is used.

    Args:
        tree: the tree of the command.
        wanted: permitted creators.

    Raises:
        RefusedError: ``CONFINEMENT_FAILED``: bubblewrap is required and is not installed.
    """
    if likely(wanted) != "bubblewrap":
        return None
    program = bubblewrap.program()
    if program is None:
        raise RefusedError(
            ErrorCode.CONFINEMENT_FAILED,
            f"The command was not started because its confinement failed: {_ABSENT}",
            namespaces="not made",
        )
    return program, bubblewrap.steps(tree)


def _tried(maker: Maker) -> Namespaces:
    if not IS_LINUX:
        return Namespaces(None, "Namespaces need Linux, and this is another system.")
    if machine() not in MACHINES:
        return Namespaces(None, f"Namespaces are supported on {' and '.join(MACHINES)}, and this is {machine()}.")
    return _made_without() if maker == "unshare" else _made_by_bubblewrap()


def _made_without() -> Namespaces:
    why = _attempt()
    return (
        Namespaces("unshare")
        if why is None
        else Namespaces(None, f"The kernel forbids this user to create namespaces: {why}.")
    )


def _made_by_bubblewrap() -> Namespaces:
    program = bubblewrap.program()
    if program is None:
        return Namespaces(None, _ABSENT)
    described = os.memfd_create("bubblewrap", os.MFD_CLOEXEC)
    try:
        with open(described, "wb", closefd=False) as file:
            file.write(marshal.dumps((program, bubblewrap.steps(tree_of(Runtime.standard(), network=False)))))
        os.lseek(described, 0, os.SEEK_SET)
        why = _attempt(str(described), pass_fds=(described,))
    finally:
        os.close(described)
    return Namespaces("bubblewrap") if why is None else Namespaces(None, f"Bubblewrap cannot create namespaces: {why}.")


def _attempt(*words: str, **more: Any) -> str | None:
    """Return why no namespaces can be created, or None where they can."""
    try:
        tried = subprocess.run(
            [sys.executable, "-I", "-S", _LAUNCHER, "try", machine(), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_PATIENCE_S,
            env={"PATH": os.defpath},
            **more,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it could not be tried ({error})"
    if tried.returncode:
        return tried.stdout.decode("utf-8", "replace").strip() or f"exit code {tried.returncode}"
    return None
