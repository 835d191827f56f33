"""Grammars of programs: every option with its arity, and what every word is.

What a grammar does not list is not known: options unlisted, abbreviated, or joined with such; more words than it has.
Then each word may be the name of a file. Source: ``command_grammars.toml``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, Final

from worldprotocol.agents.command_words import Word

__all__ = ["NAMES", "PROGRAMS", "SUBCOMMANDS", "TABLES", "WRAPPERS", "Grammar", "Parsed", "is_assignment", "parse"]

TABLES: Final[Mapping[str, Any]] = tomllib.loads(
    (files("worldprotocol.agents") / "command_grammars.toml").read_text(encoding="utf-8")
)


_CERTAIN: Final = frozenset({"-e", "-m", "--message", "--regexp"})
"""Options that have a value in every version of their programs."""

_NUMBER: Final = re.compile(r"-\d[\w. ]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Grammar:
    """How the words of a program are read; the members are those of ``command_grammars.toml``."""

    kind: str | None
    flags: frozenset[str]
    values: Mapping[str, str]
    optional: frozenset[str]
    words: tuple[str, ...]
    adds: Mapping[str, Sequence[str]]
    style: str
    digits: bool
    instead: frozenset[str]
    reads: frozenset[str]
    is_listing: bool
    recursive: frozenset[str]
    has_option_files: bool
    below: Mapping[str, Grammar]


@dataclass(slots=True)
class Parsed:
    """The words of a program as its grammar reads them.

    Args:
        grammar: the grammar.
        options: options that were given.
        roles: each word that is no option, and each value, with what it is.
        words: those that are no options.
        inner: commands with their words, which it runs.
        unlisted: words with options that the grammar does not list.
        is_known: whether the grammar lists all of it.
    """

    grammar: Grammar
    options: set[str] = field(default_factory=set)
    roles: list[tuple[str, Word]] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    inner: list[list[Word]] = field(default_factory=list)
    unlisted: list[Word] = field(default_factory=list)
    is_known: bool = True

    @property
    def is_recursive(self) -> bool:
        """Whether contents of whole folders are read."""
        recursive = self.grammar.recursive
        return "always" in recursive or not recursive.isdisjoint(self.options)


def _grammar(table: Mapping[str, Any]) -> Grammar:
    def listed(name: str) -> frozenset[str]:
        return frozenset(str(table.get(name, "")).split())

    return Grammar(
        kind=table.get("kind"),
        flags=listed("flags"),
        values=table.get("values", {}),
        optional=listed("optional"),
        words=tuple(table.get("words", ())),
        adds=table.get("adds", {}),
        style=table.get("style", "first" if "below" in table else "gnu"),
        digits=bool(table.get("digits")),
        instead=listed("instead"),
        reads=listed("reads"),
        is_listing=bool(table.get("is_listing")),
        recursive=listed("recursive"),
        has_option_files=bool(table.get("option_files")) or table.get("kind") in ("test", "format"),
        below={name: _grammar(one) for name, one in table.get("below", {}).items()},
    )


PROGRAMS: Final = {name: _grammar(one) for name, one in TABLES["programs"].items()}
WRAPPERS: Final = {name: _grammar(one) for name, one in TABLES["wrappers"].items()}
NAMES: Final = {name: kind for kind, names in TABLES["names"].items() for name in names.split()}
SUBCOMMANDS: Final[Mapping[str, str]] = TABLES["subcommands"]


def is_assignment(text: str) -> bool:
    """Return whether a word assigns a variable, as ``NAME=VALUE`` or ``NAME+=VALUE``."""
    name, sign, _ = text.partition("=")
    return bool(sign) and name.removesuffix("+").isidentifier() and name.isascii()


def parse(grammar: Grammar, arguments: Sequence[Word]) -> Parsed:
    """Read the words after the name of a program.

    Args:
        grammar: of the program.
        arguments: the words.
    """
    return _Parsing(grammar, list(arguments)).all()


class _Parsing:
    def __init__(self, grammar: Grammar, arguments: list[Word]) -> None:
        self._grammar = grammar
        self._left = arguments
        self._found = Parsed(grammar)
        self._before = grammar.words.index("command") if "command" in grammar.words else None
        """Words before the command that it runs."""

    def all(self) -> Parsed:
        has_options = self._grammar.style != "none"
        if self._grammar.has_option_files:
            self._found.is_known &= not any(one.text[:1] == "@" for one in self._left)
        while self._left:
            word = self._left.pop(0)
            if has_options and word.text == "--" and self._grammar.style != "dash":
                has_options = False
            elif has_options and self._is_option(word.text):
                self._option(word)
            elif self._is_last(word):
                return self._end([word, *self._left])
            else:
                self._found.words.append(word)
        return self._end([])

    def _is_option(self, text: str) -> bool:
        is_listed = self._grammar.style == "dash" and text in self._grammar.flags
        return is_listed or (len(text) > 1 and text[0] == "-")

    def _is_last(self, word: Word) -> bool:
        """Whether a word begins what is read no further: the command that it runs, or a subcommand."""
        if self._before is not None:
            if "assign*" in self._grammar.words:
                return not is_assignment(word.text)
            return len(self._found.words) >= self._before
        return self._grammar.style == "first"

    def _option(self, word: Word) -> None:
        text = word.text
        if self._grammar.digits and text[1:].isdigit() and text.isascii():
            return
        if self._grammar.style == "dash" or text.startswith("--"):
            self._whole(word)
        else:
            self._letters(word)

    def _whole(self, word: Word) -> None:
        grammar = self._grammar
        name, sign, value = word.text.partition("=")
        if word.text in grammar.flags:
            self._found.options.add(word.text)
        elif name in grammar.values:
            self._found.options.add(name)
            self._value(name, replace(word, text=value) if sign else None)
        elif name in grammar.optional:
            self._found.options.add(name)
        else:
            self._unlisted(word)

    def _unlisted(self, word: Word) -> None:
        self._found.unlisted.append(word)
        self._found.is_known = False

    def _letters(self, word: Word) -> None:
        grammar = self._grammar
        for at, letter in enumerate(word.text[1:], 2):
            option, rest = f"-{letter}", word.text[at:]
            if option in grammar.flags:
                self._found.options.add(option)
            elif option in grammar.values or option in grammar.optional:
                self._found.options.add(option)
                if option in grammar.values:
                    self._value(option, replace(word, text=rest) if rest else None)
                return
            else:
                self._unlisted(word)
                return

    def _value(self, option: str, joined: Word | None) -> None:
        role = self._grammar.values[option]
        if role == "command;":
            ends = (at for at, word in enumerate(self._left) if word.text in (";", "+"))
            end = next(ends, len(self._left))
            self._found.inner.append(self._left[:end])
            self._left = self._left[end + 1 :]
            return
        if joined is None and not self._left:
            self._found.is_known = False
            return
        if joined is None and self._may_be_option(option, self._left[0].text):
            self._found.is_known = False
        self._found.roles.append((role, joined if joined is not None else self._left.pop(0)))

    def _may_be_option(self, option: str, text: str) -> bool:
        """Whether a value looks like an option: in some version of a program the one before may have none."""
        is_certain = self._grammar.style == "dash" or option in _CERTAIN
        return not is_certain and text[:1] == "-" and text != "-" and _NUMBER.fullmatch(text) is None

    def _end(self, rest: list[Word]) -> Parsed:
        found, grammar = self._found, self._grammar
        if rest and self._before is not None and found.options.isdisjoint(grammar.reads):
            found.inner.append(rest)
        elif rest:
            found.words += rest
        if self._before is not None or grammar.style == "first":
            found.is_known &= self._before is not None or not any(one.text[:1] == "-" for one in found.words[1:])
            known = [one for one in grammar.words if one != "command"]
            found.roles += zip(_spread(known), found.words, strict=False)
            return found
        specs = list(grammar.words)
        if specs and not found.options.isdisjoint(grammar.instead):
            del specs[0]
        self._take(specs)
        return found

    def _take(self, specs: list[str]) -> None:
        repeats = bool(specs) and specs[-1].endswith("*")
        roles = list(zip(_spread(specs), self._found.words, strict=False))
        self._found.roles += roles
        self._found.is_known &= len(roles) == len(self._found.words)
        fixed = len(specs) - 1 if repeats else len(specs)
        if any(word.is_pattern for word in self._found.words[:fixed]) and len(specs) > 1:
            self._found.is_known = False  # it may stand for several words


def _spread(specs: Sequence[str]) -> Iterator[str]:
    for spec in specs:
        role = spec.rstrip("?*")
        yield role
        while spec.endswith("*"):
            yield role
