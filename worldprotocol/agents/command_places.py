"""The files that the words of a shell command name: a hint, as programs can name files in other ways."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Final

from worldprotocol.agents.command_grammars import Parsed
from worldprotocol.agents.command_kinds import CommandReading
from worldprotocol.agents.command_words import MAX_ALTERNATIVES, Word, alternatives
from worldprotocol.agents.git_words import (
    checks_out,
    enters_nested,
    is_foreign,
    path_patterns,
    pathspecs,
    replaces_guarded,
)
from worldprotocol.agents.name_patterns import read_patterns, without_classes
from worldprotocol.agents.project import Place, Project

__all__ = ["NamedPlaces", "places_of"]

MOST: Final = 400
"""Names that are looked at; a command with more is not understood."""

MOST_OF_PATTERN: Final = 200
MOST_ENTRIES: Final = 20_000
"""Entries of folders that are compared with a pattern."""

PATTERN_SIGNS: Final = frozenset("*?[")
_RANGE: Final = re.compile(r"\{[^{},]*\.\.[^{},]*\}")
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
        is_hidden: whether a file with secrets is among them.
        holds_hidden: whether a folder whose files are read has such a file.
        is_partial: whether there were too many to look at all of them.
        kinds: of each simple command, what the files say that its words do not: a foreign repository is ``unknown``.
    """

    touches: list[str] = field(default_factory=list)
    is_guarded: bool = False
    is_outside: bool = False
    is_hidden: bool = False
    holds_hidden: bool = False
    is_partial: bool = False
    kinds: list[set[str]] = field(default_factory=list)


def places_of(project: Project, readings: Sequence[CommandReading], cwd: str) -> NamedPlaces:
    """Return the files that the words of simple commands name, in each folder to which the commands may have changed.

    Args:
        project: the project.
        readings: of simple commands, in order.
        cwd: the working directory of the first one.
    """
    return _PlaceReader(project, cwd).all(readings)


class _PlaceReader:
    def __init__(self, project: Project, cwd: str) -> None:
        self._project = project
        self._found = NamedPlaces()
        self._folders = [cwd]
        self._left = MOST

    def all(self, readings: Sequence[CommandReading]) -> NamedPlaces:
        for reading in readings:
            self._found.kinds.append(set())
            self._one(reading)
        return self._found

    def _one(self, reading: CommandReading) -> None:
        folders = [*self._folders, *self._changed(reading, "folder")]
        for role, word in reading.names:
            for name in _names(role, word):
                for folder in folders:
                    self._left -= 1
                    if self._left < 0:
                        self._found.is_partial = True
                        return
                    self._look(name, folder, is_recursive=reading.is_recursive)
        for path, parsed in reading.programs:
            self._program(path, parsed, folders, reading)
        if any(path == ("cd",) for path, _ in reading.programs):
            self._folders = folders

    def _program(self, path: tuple[str, ...], parsed: Parsed, folders: Sequence[str], reading: CommandReading) -> None:
        if path[0] == "git":
            self._git(path, parsed, folders, reading)
        words = [one.text for one in parsed.words]
        named = words if "remove" in reading.kinds or {"-t", "--target-directory"} & parsed.options else words[:-1]
        if path[0] == "mv" or "remove" in reading.kinds:
            self._found.is_guarded |= any(
                self._project.is_above_guarded(one, folder) for one in named[:MOST] for folder in folders
            )
        if path[0] in _INTO and len(words) > 1:
            for word in parsed.words[:-1]:
                into = f"{words[-1]}/{Path(word.text).name}"
                for folder in folders:
                    self._look(Word(into, is_pattern=word.is_pattern), folder)
        if parsed.is_recursive and not any(role in ("file", "rev", "write") for role, _ in parsed.roles):
            self._found.holds_hidden |= any(self._holds_hidden(folder) for folder in folders)
        patterns = [word.text for role, word in parsed.roles if role == "names"]
        self._names(patterns, folders, words)

    def _names(self, patterns: Sequence[str], folders: Sequence[str], words: Sequence[str]) -> None:
        """Look at patterns of names of files that are searched."""
        chosen, is_clear = read_patterns(patterns)
        self._found.is_hidden |= not is_clear
        if chosen:
            self._found.is_hidden |= any(map(self._project.matches_hidden, chosen))
            places = [self._project.resolve(one, folder) for one in (".", *words)[:MOST] for folder in folders]
            self._found.is_hidden |= any(self._project.holds_hidden(one, chosen) for one in dict.fromkeys(places))

    def _git(self, path: tuple[str, ...], parsed: Parsed, folders: Sequence[str], reading: CommandReading) -> None:
        real = [self._project.resolve(".", one) for one in folders]
        if enters_nested(self._project, path) or any(is_foreign(self._project, one) for one in real):
            self._found.kinds[-1].add("unknown")
        chosen, is_clear = read_patterns(path_patterns(parsed))
        self._found.is_hidden |= not is_clear or any(map(self._project.may_match_hidden, chosen))
        if chosen:
            self._found.is_hidden |= any(
                self._project.holds_hidden(one, chosen) for one in {str(self._project.root), *real}
            )
        self._found.is_guarded |= any(replaces_guarded(self._project, path, parsed, one) for one in real)
        if path[1:] == ("checkout",) and parsed.is_known:
            first = parsed.words[0].text if parsed.words else "."
            exists = any(os.path.lexists(os.path.join(one, first)) for one in real)
            if checks_out(parsed, exists) == "write" and reading.kinds >= {"discard"}:
                reading.kinds.discard("discard")
                reading.kinds.add("write")

    def _changed(self, reading: CommandReading, role: str) -> list[str]:
        """Return the folders in which a command, and those after it, may run besides those so far."""
        targets = [word for given, word in reading.names if given == role]
        if not targets and any(path == ("cd",) for path, _ in reading.programs):
            targets = [Word("~")]
        if any(word.is_pattern or word.text == "-" for word in targets):
            self._found.is_partial = True
        found = []
        for word in targets:
            for one in self._folders:  # shells shorten "..", git and cd -P do not
                found.append(os.path.normpath(os.path.join(one, os.path.expanduser(word.text))))
                found.append(self._project.resolve(word.text, one))
        return [one for one in dict.fromkeys(found) if one not in self._folders]

    def _look(self, name: Word, folder: str, *, is_recursive: bool = False) -> None:
        found = self._found
        ranged = _RANGE.sub("*", name.text) if name.has_braces else name.text
        texts = list(alternatives(ranged)) if name.has_braces else [ranged]
        found.is_partial |= len(texts) > MAX_ALTERNATIVES
        is_pattern = name.is_pattern or ranged != name.text
        for text in texts:
            for one in (text, *(_matches(self._project, found, text, folder) if is_pattern else ())):
                self._place(one, name, folder, is_recursive=is_recursive)

    def _place(self, text: str, name: Word, folder: str, *, is_recursive: bool) -> None:
        found, place = self._found, self._project.place(text, folder)
        found.is_guarded |= place.is_guarded
        found.is_hidden |= place.is_hidden
        if is_recursive and not found.holds_hidden:
            found.holds_hidden = self._holds_hidden(self._project.resolve(text, folder))
        if not place.is_inside:
            found.is_outside |= name.text.startswith("~") or _is_file(place)
        elif "://" in text and not place.exists:
            return  # an address; a file, where a folder has the name of its scheme
        elif place.path not in found.touches and len(found.touches) < TOUCHED:
            found.touches.append(place.path)

    def _holds_hidden(self, folder: str) -> bool:
        return self._project.holds_hidden(folder)


def _matches(project: Project, found: NamedPlaces, pattern: str, folder: str) -> Iterator[str]:
    """Yield the folder in which a pattern begins, and the files of the project that it matches."""
    parts = Path(os.path.join(folder, os.path.expanduser(pattern))).parts
    first = next((number for number, part in enumerate(parts) if _is_pattern(part)), len(parts))
    yield (begin := os.path.join(*parts[:first]))
    if not project.place(begin, folder).is_inside:
        return  # the folder says so
    paths, left = [begin], MOST_ENTRIES
    for part in parts[first:]:
        below: list[str] = []
        for path in paths:
            names = [part]
            if _is_pattern(part):
                names = [".", "..", *_names_in(path, left)]  # shells may take them for names that begin with a dot
                left -= len(names)
            if left <= 0:
                found.is_partial = True
                return
            below += (os.path.join(path, one) for one in names if one == part or _fits(one, part))
        paths = [one for one in below if os.path.lexists(one)]
    yield from paths[:MOST_OF_PATTERN]
    found.is_partial |= len(paths) > MOST_OF_PATTERN
    if first == len(Path(folder).parts):  # the shell gives the program names that it may read as options
        found.is_partial |= any(os.path.basename(one)[:1] == "-" for one in paths) and pattern[:1] in PATTERN_SIGNS


def _names_in(path: str, most: int) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [one.name for one in islice(entries, most)]
    except OSError:  # no folder, or one that cannot be read
        return []


def _is_pattern(part: str) -> bool:
    return any(sign in part for sign in PATTERN_SIGNS)


def _fits(name: str, part: str) -> bool:
    return (name[:1] != "." or part[:1] == ".") and fnmatchcase(name, without_classes(part))


def _is_file(place: Place) -> bool:
    """Whether a path outside is one of a file, and no text that looks like a path, such as a pattern or a route."""
    if place.path in _HARMLESS:
        return False
    above = os.path.dirname(place.path)
    return place.exists or place.path.startswith("/dev/") or (above != "/" and os.path.isdir(above))


def _names(role: str, word: Word) -> Iterator[Word]:
    """Yield what may be names of files in a word."""
    for text in _texts(role, word.text):
        if text and text != "-" and "\0" not in text:
            yield Word(text, is_pattern=word.is_pattern, has_braces=word.has_braces)


def _texts(role: str, text: str) -> Iterator[str]:
    if role == "rev":
        yield from pathspecs(text)
    elif role == "any":
        yield from _parts(text)
    elif role != "names":
        yield text


def _parts(text: str) -> Iterator[str]:
    """Yield what may be a name in a word: itself, the value of an option, what follows a revision."""
    if not text.startswith("-"):
        yield from pathspecs(text)
    elif not text.startswith("--") and len(text) > 2:
        yield text[2:]
    if "=" in text:
        yield text.partition("=")[2]
