"""Terms on which shell commands run: the boundary of the workspace, and what operators declare of commands.

A confined command may read its workspace and change what it declares. Unlisted commands declare all of it
(``/**``); one that only reads changes nothing. What is not confined may change all of it. A declared host needs a way
out of the command's network, which confined commands do not have: such a command is not confined, so that a person
decides. Source: docs/agents.md.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from worldprotocol.runs.boundary import Boundary

__all__ = ["EVERYTHING", "CommandTerms", "DeclaredCommand", "place_below"]

EVERYTHING: Final = "/*"
"""The whole workspace, as a path of ``FILE:`` resources."""


@dataclass(frozen=True, slots=True)
class DeclaredCommand:
    """What an operator declares of a command: one of ``[[agents.commands]]``.

    Args:
        words: the beginning of its argument vector, exact.
        writes: places that it may change, as those of ``worldctl run --writes``, from the root of the workspace.
        hosts: ``host:port`` that it connects to.
    """

    words: tuple[str, ...]
    writes: tuple[str, ...] = ("/**",)
    hosts: tuple[str, ...] = ()


Vector = tuple[Sequence[str] | None, bool]
"""Of a simple command its argument vector, None where the shell replaces a part of it; and whether it only reads."""


def _never(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class CommandTerms:
    """Terms for the commands of one session.

    Args:
        boundary: of the workspace.
        commands: what operators declare.
        is_widened: whether a text wrote outside of its declaration before, so that all is declared for it.
        leases_reads: whether commands that only read lease what they read.
    """

    boundary: Boundary = "none"
    commands: tuple[DeclaredCommand, ...] = ()
    is_widened: Callable[[str], bool] = field(default=_never)
    leases_reads: bool = False

    def of(
        self, text: str, vectors: Sequence[tuple[Sequence[str] | None, bool]], root: str, *, is_held: bool
    ) -> dict[str, Any]:
        """Return the members of the input of ``command.run`` that say how a text runs, and what it leases.

        Args:
            text: the text.
            vectors: of each simple command; empty for an opaque text.
            root: the workspace, in which patterns of places are replaced by the files that match now.
            is_held: whether its words permit to confine it: they need neither hosts nor the machine.
        """
        is_reading = bool(vectors) and all(reads for _, reads in vectors)
        declared = [self._declared(arguments) for arguments, reads in vectors if not reads]
        hosts = sorted({host for one in declared if one is not None for host in one.hosts})
        is_confined = is_held and self.boundary != "none" and not hosts
        is_known = bool(declared) and all(one is not None for one in declared)
        is_widened = is_confined and is_known and self.is_widened(text)
        if is_reading and (is_confined or self.leases_reads):
            writes: list[str] = []
        elif is_confined and is_known and not is_widened:
            writes = sorted(
                {path for one in declared if one for place in one.writes for path in place_below(root, place)}
            )
        else:
            writes = [EVERYTHING]
        return {
            "reads": [EVERYTHING] if is_reading and self.leases_reads else [],
            "writes": writes,
            "confined": is_confined,
            "boundary": self.boundary,
            "hosts": hosts,
            "widened": is_widened,
        }

    def _declared(self, arguments: Sequence[str] | None) -> DeclaredCommand | None:
        """Return the longest declaration with which a command begins."""
        if arguments is None:
            return None
        found = [one for one in self.commands if tuple(arguments[: len(one.words)]) == one.words]
        return max(found, key=lambda one: len(one.words), default=None)


def place_below(root: str, place: str) -> list[str]:
    """Return a declared place as paths of ``FILE:`` resources, from the root of the workspace.

    Args:
        root: the workspace.
        place: with a final ``/``, ``/*`` or ``/**``, or where it is a folder, all below it; other patterns are the
            files that match now.
    """
    name = place.lstrip("/")
    if name.rstrip("*") in ("", "/") and name.strip("*/") == "":
        return [EVERYTHING]
    below = name.removesuffix("**").removesuffix("*") if name.endswith(("/*", "/**")) else name
    if below.endswith("/"):
        return [f"/{below}*"]
    if glob.has_magic(name):
        matches = sorted(glob.glob(name, root_dir=root, recursive=True, include_hidden=True))
        return [f"/{one}" for one in matches]
    return [f"/{name}/*" if os.path.isdir(os.path.join(root, name)) else f"/{name}"]
