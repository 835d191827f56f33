"""Diagnostics of MEL source: place, line with a caret, what was expected, and what may have been meant.

``code`` is that of the reference compiler where it has one: ``MEL_LEXER``, ``MEL_PARSER``, ``E_...`` and ``E001`` and
following.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import ClassVar, Final
from unicodedata import combining, east_asian_width

from world.model.record import Record

__all__ = ["MAX_DIAGNOSTICS", "Diagnostic", "Diagnostics", "SourceText", "suggestion"]

MAX_DIAGNOSTICS: Final = 50
"""Errors and warnings that one compilation reports."""

_MAX_COMPARED: Final = 1_000  # names that a misspelt one is compared with
_MAX_SHOWN: Final = 160  # characters of a source line that are shown


class Diagnostic(Record, frozen=True, omit_defaults=True):
    """One error or warning of a source text.

    Args:
        code: of the rule.
        message: one sentence without a place.
        start: offset of the first character concerned.
        end: offset behind the last one.
        line: of ``start``, from 1.
        column: of ``start``, from 1, in characters.
        hint: what to write instead, "" where nothing is known.
        is_warning: whether the source compiles nevertheless.
    """

    code: str
    message: str
    start: int
    end: int
    line: int
    column: int
    hint: str = ""
    is_warning: bool = False
    WIRE: ClassVar = "code message line column hint"


@dataclass(frozen=True)
class SourceText:
    """A source text with the offsets of its lines.

    Args:
        name: of the file, for messages.
        text: the source.
    """

    name: str
    text: str
    _starts: list[int] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        """Find the lines."""
        self._starts.append(0)
        self._starts.extend(index + 1 for index, character in enumerate(self.text) if character == "\n")

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and a column, both from 1; the nearest one where there is no such place."""
        line = min(max(line, 1), len(self._starts))
        return min(self._starts[line - 1] + max(column, 1) - 1, len(self.text))

    def line(self, number: int) -> str:
        """Return a line without its end."""
        start = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def show(self, diagnostic: Diagnostic) -> str:
        """Return a diagnostic for people: place, sentence, the line, a caret below it, and the hint."""
        kind = "warning" if diagnostic.is_warning else "error"
        head = f"{self.name}:{diagnostic.line}:{diagnostic.column}: {kind} {diagnostic.code}: {diagnostic.message}"
        line, at = self.line(diagnostic.line), diagnostic.column - 1
        cut = max(0, at - _MAX_SHOWN // 2)
        shown = line[cut : cut + _MAX_SHOWN]
        width = max(1, min(diagnostic.end - diagnostic.start, len(line) - at, len(shown) - (at - cut)))
        before, marked = shown[: at - cut], shown[at - cut : at - cut + width]
        pad = "".join("\t" if character == "\t" else " " * _columns(character) for character in before)
        carets = "^" * max(1, sum(map(_columns, marked)))
        number = str(diagnostic.line)
        rows = [head, f"  {number} | {''.join(map(_visible, shown))}", f"  {' ' * len(number)} | {pad}{carets}"]
        return "\n".join([*rows, *([f"  {diagnostic.hint}"] if diagnostic.hint else [])])


class Diagnostics:
    """Collector of the diagnostics of one source text."""

    def __init__(self, source: SourceText) -> None:
        """Begin with none."""
        self.source = source
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []

    def add(self, code: str, message: str, span: tuple[int, int], *, hint: str = "", is_warning: bool = False) -> None:
        """Add one, unless there are ``MAX_DIAGNOSTICS`` of its kind or the same one at the same place."""
        line, column = self.source.position(span[0])
        found = Diagnostic(code, message, span[0], max(span[1], span[0]), line, column, hint, is_warning)
        kind = self.warnings if is_warning else self.errors
        if len(kind) < MAX_DIAGNOSTICS and found not in kind:
            kind.append(found)

    def suggest(self, word: str, known: Iterable[str]) -> str:
        """Return ``suggestion``, "" where no further error is reported or the names are too many to compare."""
        names = frozenset(known)
        is_bounded = len(names) <= _MAX_COMPARED and len(word) <= _MAX_SHOWN
        return suggestion(word, names) if is_bounded and len(self.errors) < MAX_DIAGNOSTICS else ""

    def sort(self) -> None:
        """Put all in the order of their places."""
        for kind in (self.errors, self.warnings):
            kind.sort(key=lambda one: (one.start, one.end))


def _visible(character: str) -> str:
    """Return a character as a line of source shows it: what a terminal would obey or hide, as its escape."""
    return character if character.isprintable() or character == "\t" else f"\\u{ord(character):04x}"


def _columns(character: str) -> int:
    """Return how many columns of a terminal a character takes as it is shown."""
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else len(_visible(character))


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``Did you mean ...?`` for the known word that is nearest to a word, "" where none is near."""
    names = sorted({one for one in known if one})
    lowered = {one.lower(): one for one in names}
    near = get_close_matches(word, names, n=1, cutoff=0.6) or [
        lowered[one] for one in get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.6)
    ]
    return f"Did you mean {near[0]!r}?" if near else ""
