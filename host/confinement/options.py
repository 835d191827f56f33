"""Options of a command that is started: its confinement, and its streams, folder and limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final, Required, TypedDict

from host.confinement.calls import Decide
from host.confinement.landlock import Rules
from host.confinement.namespaces import Wanted
from host.confinement.tree import MountTree

__all__ = ["UNCONFINED", "Confinement", "StartOptions", "Stream", "Text"]

Stream = int | IO[Any] | None
Text = str | bytes


@dataclass(frozen=True, slots=True)
class Confinement:
    """Confinement of a command; the default is none.

    Args:
        rules: Landlock rules; None is no Landlock.
        decide: called before every watched system call, in a thread of its own; None is no watcher.
        tree: the file tree of the command's own namespaces; None runs it in the namespaces of this process.
        namespaces_by: the program that creates the namespaces.
    """

    rules: Rules | None = None
    decide: Decide | None = None
    tree: MountTree | None = None
    namespaces_by: Wanted = "auto"


UNCONFINED: Final = Confinement()
"""No Landlock, no watcher and no namespaces."""


class StartOptions(TypedDict, total=False):
    """Options of ``start`` apart from confinement.

    Args:
        cwd: the folder to start in; a descriptor is the opened folder, independent of later renames.
        report: called with each exception of ``decide`` or of the watcher; it should end the command.
        stdin: as `subprocess.Popen` takes it; a terminal is lent to the command.
        stdout: as `subprocess.Popen` takes it.
        stderr: as `subprocess.Popen` takes it.
        limits: resource limits by ``resource.RLIMIT_*``: soft and hard.
    """

    cwd: Required[Text | os.PathLike[str] | int]
    report: Callable[[BaseException], None]
    stdin: Stream
    stdout: Stream
    stderr: Stream
    limits: Mapping[int, tuple[int, int]] | None
