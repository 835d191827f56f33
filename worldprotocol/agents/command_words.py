"""The words of a shell command: quotes are removed, and what a shell would expand is marked.

Only the syntax that can be read without running it is understood. Everything else (substitutions, documents in place,
subshells, control structures) makes a command opaque: its words then say nothing certain. So do characters that a shell
or a terminal reads otherwise than they look: control characters but tab and newline, white space beyond ASCII, marks of
direction.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["MAX_ALTERNATIVES", "MAX_LENGTH", "SimpleCommand", "Word", "alternatives", "is_plain", "read_command"]

MAX_LENGTH: Final = 20_000
"""Characters of a command that is read; a longer one is opaque."""

_REDIRECTS: Final = ("&>>", "<<<", "<<-", "&>", ">>", ">|", ">&", "<&", "<>", "<<", ">", "<")
_SEPARATORS: Final = ("&&", "||", "|&", ";;", ";", "|", "&", "\n")
_GLOBS: Final = frozenset("*?[")
_DESCRIPTOR: Final = re.compile(r"[0-9]+|-")
_BEFORE_REDIRECT: Final = re.compile(r"[0-9]+|\{\w+\}")
"""Words that a redirection takes where they touch it: a descriptor, or (in some shells) a variable for one."""
_PLAIN: Final = re.compile(r"[\t\n -~]*")
_READ_OTHERWISE: Final = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})
"""Categories of Unicode: controls, marks of format, halves of surrogate pairs, white space."""

_BRACES: Final = re.compile(r"\{([^{},]*(?:,[^{},]*)+)\}")
MAX_ALTERNATIVES: Final = 256
"""Texts for which braces are replaced."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word without its quotes.

    Args:
        text: its characters.
        is_expanded: whether the shell replaces something in it, so that the text is not what the program gets.
        is_pattern: whether it has unquoted characters of a pattern.
        has_braces: whether it has unquoted braces, which most shells replace by several words.
    """

    text: str
    is_expanded: bool = False
    is_pattern: bool = False
    has_braces: bool = False


@dataclass(slots=True)
class SimpleCommand:
    """A program with its arguments.

    Args:
        words: the words, the program first, after assignments.
        reads: files from which it is redirected.
        writes: files to which it is redirected.
    """

    words: list[Word] = field(default_factory=list)
    reads: list[Word] = field(default_factory=list)
    writes: list[Word] = field(default_factory=list)


def read_command(text: str) -> tuple[list[SimpleCommand], bool]:
    """Return the simple commands of a text, and whether it is opaque: it has parts that only a shell understands.

    Args:
        text: the text that is given to a shell.
    """
    if len(text) > MAX_LENGTH:
        return [], True
    commands, is_opaque = _Reading(text).all()
    return commands, is_opaque or not is_plain(text)


def is_plain(text: str) -> bool:
    """Return whether a text has no character that a shell or a terminal reads otherwise than it looks.

    Args:
        text: the text.
    """
    if _PLAIN.fullmatch(text):
        return True
    return not any(one not in "\t\n " and unicodedata.category(one) in _READ_OTHERWISE for one in text)


def alternatives(text: str) -> Iterator[str]:
    """Yield the texts that a text with braces means, such as ``{a,b}.py``: ``MAX_ALTERNATIVES`` and one at most.

    Args:
        text: the text; ranges (``{1..3}``) stay as they are.
    """
    pending, left = [text], MAX_ALTERNATIVES
    while pending and left >= 0:
        one = pending.pop()
        found = _BRACES.search(one)
        if found is None:
            left -= 1
            yield one
        else:
            within = [f"{one[: found.start()]}{choice}{one[found.end() :]}" for choice in found[1].split(",")]
            pending += reversed(within[: MAX_ALTERNATIVES + 1])


class _Reading:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._is_opaque = False
        self._found: list[SimpleCommand] = []
        self._one = SimpleCommand()
        self._target: list[Word] | None = None
        """Where the next word goes, if it is the target of a redirection."""
        self._takes_descriptor = False
        """Whether that word may also be the number of a descriptor, which is no file."""
        self._touching = ""
        """The source of a word that ends here and is no target, with its quotes."""

    def all(self) -> tuple[list[SimpleCommand], bool]:
        while self._at < len(self._text):
            self._step()
        self._end_command()
        return self._found, self._is_opaque

    def _step(self) -> None:
        rest = self._text[self._at : self._at + 3]
        touching, self._touching = self._touching, ""
        if rest[0] in " \t":
            self._at += 1
        elif rest.startswith("\\\n"):
            self._at += 2
        elif rest[0] == "#":
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        elif (redirect := next((one for one in _REDIRECTS if rest.startswith(one)), None)) is not None:
            self._redirect(redirect, touching)
        elif (separator := next((one for one in _SEPARATORS if rest.startswith(one)), None)) is not None:
            self._at += len(separator)
            self._end_command()
        elif rest[0] in "()":
            self._is_opaque = True
            self._at += 1
            self._end_command()
        else:
            begin, is_target = self._at, self._target is not None
            self._take(self._word())
            self._touching = "" if is_target else self._text[begin : self._at].replace("\\\n", "")

    def _redirect(self, operator: str, touching: str) -> None:
        self._at += len(operator)
        if operator.startswith("<<"):
            self._is_opaque = True
        if operator[0] != "&" and _BEFORE_REDIRECT.fullmatch(touching):
            self._is_opaque |= len(touching) > 1  # shells differ
            self._one.words.pop()
        self._target = self._one.reads if operator in ("<", "<&") else self._one.writes
        self._takes_descriptor = operator in (">&", "<&")

    def _take(self, word: Word) -> None:
        if self._target is None:
            self._one.words.append(word)
        elif not self._takes_descriptor or not _DESCRIPTOR.fullmatch(word.text):
            self._target.append(word)
        self._target = None

    def _end_command(self) -> None:
        self._target = None
        if self._one.words or self._one.reads or self._one.writes:
            self._found.append(self._one)
        self._one = SimpleCommand()

    def _word(self) -> Word:
        text, kept, quote, is_expanded, is_pattern, braces = self._text, [], "", False, False, False
        begin = self._at
        while self._at < len(text):
            sign = text[self._at]
            if not quote and sign in " \t\n;&|<>()":
                break
            self._at += 1
            if sign == quote:
                quote = ""
            elif quote == "'":
                kept.append(sign)
            elif sign == "\\":
                kept.append(self._escaped(in_quotes=bool(quote)))
            elif sign in "$`":
                is_expanded |= sign == "`" or self._replaces(in_quotes=bool(quote))
                kept.append(sign)
            elif not quote and sign in "'\"":
                quote = sign
            else:
                is_pattern |= not quote and sign in _GLOBS
                braces |= not quote and sign == "{"
                is_expanded |= not quote and sign == "~" and self._begins_folder(begin)
                kept.append(sign)
        word = "".join(kept)
        self._is_opaque |= bool(quote)
        return Word(word, is_expanded or (braces and ("," in word or ".." in word)), is_pattern, braces)

    def _begins_folder(self, begin: int) -> bool:
        """Whether a shell replaces the tilde before this place, except by the home folder at the begin of a word."""
        at = self._at - 1
        is_home = self._text[self._at : self._at + 1] in ("", "/", *" \t\n;&|<>()")
        return not is_home if at == begin else self._text[at - 1] in "=:"

    def _replaces(self, *, in_quotes: bool) -> bool:
        """Whether the dollar sign before this place begins something that the shell replaces."""
        following = self._text[self._at : self._at + 1]
        is_name = following.isalnum() or (bool(following) and following in "_{([!?@*#$-")
        return is_name or (not in_quotes and bool(following) and following in "'\"")

    def _escaped(self, *, in_quotes: bool) -> str:
        following = self._text[self._at : self._at + 1]
        self._at += 1
        if in_quotes and following not in '$`"\\\n':
            return f"\\{following}"
        return "" if following == "\n" else following
