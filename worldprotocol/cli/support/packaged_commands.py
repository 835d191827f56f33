"""Commands of installed packages, by the names of their entry points.

A package offers a command as an entry point of the group ``worldprotocol.commands``: its name is the command's, its
object a click command (``worldprotocol.cli.support.command_context.command`` makes one). The list of commands needs
the names alone, so they are read from the files of the installed distributions; ``importlib.metadata`` would take
longer than everything else that ``worldctl --help`` does.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

__all__ = ["GROUP", "PackagedCommand", "packaged_commands"]

GROUP: Final = "worldprotocol.commands"
"""The group of entry points by which packages offer commands."""

_DISTRIBUTION: Final = re.compile(r"(?P<name>.+?)(?:-[^-]+)?(?:-py[\d.]+)?\.(?:dist|egg)-info")
_COMMAND: Final = re.compile(r"(?P<name>[a-z][a-z0-9-]*)\s*=\s*(?P<value>[\w.]+:[\w.]+)\s*(?:\[.*\])?")


@dataclass(frozen=True, slots=True)
class PackagedCommand:
    """A command of a package that is not loaded yet.

    Args:
        name: of the command.
        value: ``module:attribute`` of the click command.
    """

    name: str
    value: str

    @property
    def short(self) -> str:
        """The line of help in the list of commands, for which the package is not imported."""
        return f"From the installed package {self.value.partition(':')[0].partition('.')[0]}."

    def load(self) -> click.Command:
        """Import the command.

        Raises:
            RefusedError: ``NOT_LOADED``.
        """
        import click

        from world.code.references import load_reference
        from world.error_codes import ErrorCode
        from world.errors import RefusedError

        found = load_reference(self.value)
        if not isinstance(found, click.Command):
            raise RefusedError(
                ErrorCode.NOT_LOADED,
                f"The entry point {self.name!r} of {GROUP} names {self.value}, which is no click command.",
                reference=self.value,
            )
        return found


@cache
def packaged_commands() -> dict[str, PackagedCommand]:
    """Return the commands of the installed packages by name; of two with one name the first on ``sys.path`` counts."""
    found: dict[str, PackagedCommand] = {}
    for text in _entry_points():
        for name, value in _commands(text):
            found.setdefault(name, PackagedCommand(name, value))
    return dict(sorted(found.items()))


def _entry_points() -> Iterator[str]:
    """Yield the file of entry points of each distribution on ``sys.path``, where it has one."""
    seen: set[str] = set()
    for folder in sys.path:
        for name in _entries(folder):
            matched = _DISTRIBUTION.fullmatch(name)
            if matched is None:
                continue
            known = re.sub(r"[-_.]+", "-", matched["name"]).lower()
            if known in seen:  # the first one on the path is the one that is imported
                continue
            seen.add(known)
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as file:
                    yield file.read()
            except (OSError, UnicodeDecodeError):
                continue


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder or "."))
    except OSError:  # a zip file, or a folder that does not exist
        return []


def _commands(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and (matched := _COMMAND.fullmatch(line)):
            yield matched["name"], matched["value"]
