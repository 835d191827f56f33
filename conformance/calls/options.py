"""Arguments of commands: options with values and operands, as in getopt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from conformance.calls.place import Name

__all__ = ["Arguments", "arguments"]


@dataclass(frozen=True, slots=True)
class Arguments:
    """Parsed arguments of a command.

    Args:
        options: each option with its value (None without), in order; long ones with their two hyphens.
        operands: all other words, without ``-`` (standard input or output).
    """

    options: tuple[tuple[str, Name | None], ...]
    operands: tuple[Name, ...]

    def has(self, *names: str) -> bool:
        """Return whether one of these options is present."""
        return any(name in names for name, _ in self.options)

    def values(self, *names: str) -> list[Name]:
        """Return the values of these options."""
        return [value for name, value in self.options if name in names and value is not None]


def arguments(words: Sequence[Name], *, short: str = "", long: Iterable[str] = (), first: bool = False) -> Arguments:
    """Read the arguments of a command.

    Args:
        words: the words after the command's name.
        short: the letters of short options that take a value.
        long: the long options that take a value, without hyphens; ``--name=value`` needs no entry.
        first: whether all words after the first operand are operands (the command that another one runs).
    """
    options: list[tuple[str, Name | None]] = []
    operands: list[Name] = []
    left = list(words)
    named = {f"--{name}" for name in long}
    while left:
        word = left.pop(0)
        text = word.text
        if text == "--":
            operands += left
            break
        if text.startswith("--"):
            name, given, _ = text.partition("=")
            if given:
                options.append((name, _rest(word, len(name) + 1)))
            else:
                options.append((name, left.pop(0) if name in named and left else None))
        elif text.startswith("-") and len(text) > 1:
            options += _cluster(word, short, left)
        elif text != "-":
            operands.append(word)
            if first:
                operands += left
                break
    return Arguments(tuple(options), tuple(operands))


def _cluster(word: Name, short: str, left: list[Name]) -> Iterable[tuple[str, Name | None]]:
    for index, letter in enumerate(word.text[1:], 1):
        if letter in short:
            attached = index + 1 < len(word.text)
            yield letter, _rest(word, index + 1) if attached else left.pop(0) if left else None
            return
        yield letter, None


def _rest(word: Name, start: int) -> Name:
    pattern = None if word.pattern is None or word.pattern < start else word.pattern - start
    return replace(word, text=word.text[start:], pattern=pattern)
