"""The files that the words of a shell command name: a hint, as programs can name files in other ways."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Final

from worldprotocol.agents.command_words import SimpleCommand, Word
from worldprotocol.agents.project import Place, Project

__all__ = ["NamedPlaces", "places_of"]

MOST: Final = 400
"""Names that are looked at; a command with more is not understood."""

MOST_OF_PATTERN: Final = 200
MOST_ENTRIES: Final = 20_000
"""Entries of folders that are compared with a pattern."""

PATTERN_SIGNS: Final = frozenset("*?[")
TOUCHED: Final = 50
"""Files that are recorded."""

_INTO: Final = frozenset({"cp", "install", "ln", "mv", "rsync"})
"""Programs whose last word is a file or the folder of the others."""

_HARMLESS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"})


@dataclass(slots=True)
class NamedPlaces:
    """What the words of a command name.

    Args:
        touches: paths in the project.
        is_guarded: whether a guarded file is among them.
        is_outside: whether a file outside of the project is among them.
        is_partial: whether there were too many to look at all of them.
    """

    touches: list[str] = field(default_factory=list)
    is_guarded: bool = False
    is_outside: bool = False
    is_partial: bool = False


def places_of(project: Project, commands: Sequence[SimpleCommand], cwd: str) -> NamedPlaces:
    """Return the files that the words of simple commands name, in each folder to which the commands may have changed.

    Args:
        project: the project.
        commands: in order.
        cwd: the working directory of the first one.
    """
    found, folders, left = NamedPlaces(), [cwd], MOST
    for command in commands:
        for name in _names(command):
            for folder in folders:
                left -= 1
                if left < 0:
                    found.is_partial = True
                    return found
                _look(project, found, name, folder)
        found.is_guarded |= _moves_guarded(project, command, folders)
        folders += _changed(command, folders)
    return found


def _moves_guarded(project: Project, command: SimpleCommand, folders: Sequence[str]) -> bool:
    """Whether a command moves a folder with guarded files."""
    words = [one.text for one in command.words]
    if not words or os.path.basename(words[0]) != "mv":
        return False
    named = [one for one in words[1:] if not one.startswith("-")]
    moved = named if any(one.startswith(("-t", "--target")) for one in words) else named[:-1]
    return any(project.is_above_guarded(one, folder) for one in moved[:MOST] for folder in folders)


def _look(project: Project, found: NamedPlaces, name: Word, folder: str) -> None:
    for text in (name.text, *(_matches(project, found, name.text, folder) if name.is_pattern else ())):
        place = project.place(text, folder)
        found.is_guarded |= place.is_guarded
        if not place.is_inside:
            found.is_outside |= name.text.startswith("~") or _is_file(place)
        elif place.path not in found.touches and len(found.touches) < TOUCHED:
            found.touches.append(place.path)


def _matches(project: Project, found: NamedPlaces, pattern: str, folder: str) -> Iterator[str]:
    """Yield the folder in which a pattern begins, and the files of the project that it matches."""
    parts = Path(os.path.join(folder, os.path.expanduser(pattern))).parts
    first = next(number for number, part in enumerate(parts) if _is_pattern(part))
    yield (begin := os.path.join(*parts[:first]))
    if not project.place(begin, folder).is_inside:
        return  # the folder says so
    paths, left = [begin], MOST_ENTRIES
    for part in parts[first:]:
        below: list[str] = []
        for path in paths:
            names = [part]
            if _is_pattern(part):
                names = _names_in(path, left)
                left -= len(names)
            if left <= 0:
                found.is_partial = True
                return
            below += (os.path.join(path, one) for one in names if one == part or _fits(one, part))
        paths = [one for one in below if os.path.lexists(one)]
    yield from paths[:MOST_OF_PATTERN]
    found.is_partial |= len(paths) > MOST_OF_PATTERN


def _names_in(path: str, most: int) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [one.name for one in islice(entries, most)]
    except OSError:  # no folder, or one that cannot be read
        return []


def _is_pattern(part: str) -> bool:
    return any(sign in part for sign in PATTERN_SIGNS)


def _fits(name: str, part: str) -> bool:
    return (name[:1] != "." or part[:1] == ".") and fnmatchcase(name, part)


def _is_file(place: Place) -> bool:
    """Whether a path outside is one of a file, and no text that looks like a path, such as a pattern or a route."""
    if place.path in _HARMLESS:
        return False
    above = os.path.dirname(place.path)
    return place.exists or place.path.startswith("/dev/") or (above != "/" and os.path.isdir(above))


def _names(command: SimpleCommand) -> Iterator[Word]:
    program = command.words[:1]
    yield from (one for one in program if "/" in one.text)
    arguments = command.words[1:]
    for word in (*arguments, *command.reads, *command.writes):
        for text in _parts(word.text):
            if text and "\0" not in text and "://" not in text:
                yield Word(text, is_pattern=word.is_pattern)
    if program and os.path.basename(program[0].text) in _INTO and len(arguments) > 1:
        into = arguments[-1].text
        for word in arguments[:-1]:
            yield Word(f"{into}/{Path(word.text).name}", is_pattern=word.is_pattern)


def _parts(text: str) -> Iterator[str]:
    """Yield what may be a name in a word: itself, and the value of an option."""
    if not text.startswith("-"):
        yield text
    elif not text.startswith("--") and len(text) > 2:
        yield text[2:]
    if "=" in text:
        yield text.partition("=")[2]


def _changed(command: SimpleCommand, folders: Sequence[str]) -> list[str]:
    """Return the folders in which the following commands may run, besides those so far."""
    words = [one.text for one in command.words]
    if words[:1] != ["cd"] and not (words[:1] == ["git"] and "-C" in words[:-1]):
        return []
    target = words[words.index("-C") + 1] if words[0] == "git" else next((w for w in words[1:] if w[:1] != "-"), "~")
    found = [os.path.normpath(os.path.join(one, os.path.expanduser(target))) for one in folders]
    return [one for one in dict.fromkeys(found) if one not in folders]
