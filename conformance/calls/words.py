"""Words and operators of a POSIX shell command line (IEEE 1003.1).

Quotes, backslashes, comments, redirections, pipes, lists and here-documents are read. An expansion that needs a shell
(variables, substitutions, a home directory) makes a word unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from conformance.calls.place import Name, malformed

__all__ = ["Redirect", "ShellCommand", "commands"]

_OPERATOR: Final = re.compile(r"\d*(?:<<<|<<-?|<>|<&|>>|>\||>&|<|>)|&>>?|&&|\|\||\|&|;;|[|&;()\n]")
_REDIRECTION: Final = re.compile(r"\d*([<>].*)|(&>>?)")
_DOCUMENT: Final = re.compile(r"\d*<<-?")
_EXPANDED: Final = re.compile(r"\$(?=[A-Za-z0-9_{(@*#?!$'\"-])|`")
_BRACES: Final = re.compile(r"\{[^\s{}]*(?:,|\.\.)[^\s{}]*\}")
_GLOB: Final = "*?[{"


@dataclass(frozen=True, slots=True)
class Redirect:
    """One redirection; ``operator`` is ``<``, ``>``, ``>>`` and others."""

    operator: str
    target: Name


@dataclass(slots=True)
class ShellCommand:
    """One simple command; ``after`` is the operator before it."""

    after: str = ""
    words: list[Name] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    substitutes: bool = False


class _Word:
    """A word under construction."""

    def __init__(self) -> None:
        self.text = ""
        self.begun = False
        self.pattern: int | None = None
        self.known = True
        self.substitutes = False
        self.is_quoted = False

    def add(self, text: str) -> None:
        self.text += text
        self.begun = True

    def name(self) -> Name:
        return Name(self.text, self.pattern, self.known)


class _WordReader:
    """Tokenizer of one text; ``tokens`` are names and operators in order."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.tokens: list[Name | str] = []
        self.substitutes: set[int] = set()
        self.word = _Word()
        self.documents: list[tuple[str, bool]] = []
        self.wants_document = False

    def read(self) -> None:
        text = self.text
        while self.at < len(text):
            sign = text[self.at]
            operator = None if self.word.begun and sign.isdigit() else _OPERATOR.match(text, self.at)
            if operator:
                self._operator(operator[0])
            elif sign in " \t\r":
                self._end()
                self.at += 1
            elif sign == "#" and not self.word.begun:
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                self._sign(sign)
        self._end()
        if self.documents or self.wants_document:
            malformed(f"{text!r:.200} begins a here-document without its text.")

    def _operator(self, operator: str) -> None:
        self._end()
        self.at += len(operator)
        if operator == "\n":
            for delimiter, is_quoted in self.documents:
                self._skip_document(delimiter, is_quoted)
            self.documents = []
        self.tokens.append(operator)
        self.wants_document = bool(_DOCUMENT.fullmatch(operator))

    def _sign(self, sign: str) -> None:
        self.word.is_quoted |= sign in "'\"\\"
        if sign == "'":
            end = self._until("'", self.at + 1)
            self.word.add(self.text[self.at + 1 : end])
            self.at = end + 1
        elif sign == '"':
            self._quoted()
        elif sign == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            if following != "\n":
                self.word.add(following)
            self.at += 2
        elif _EXPANDED.match(self.text, self.at):
            self._expansion()
        else:
            if sign == "~" and not self.word.begun:
                self.word.known = False
            if sign in _GLOB and self.word.pattern is None and not self._is_plain_brace(sign):
                self.word.pattern = len(self.word.text)
            self.word.add(sign)
            self.at += 1

    def _is_plain_brace(self, sign: str) -> bool:
        """Return whether a brace is not an expansion: a command group or ``{}``."""
        return sign == "{" and not _BRACES.match(self.text, self.at)

    def _quoted(self) -> None:
        self.at += 1
        self.word.add("")
        while True:
            if self.at >= len(self.text):
                malformed(f'{self.text!r:.200} has a " that is never closed.')
            sign = self.text[self.at]
            if sign == '"':
                self.at += 1
                return
            if sign == "\\" and self.text[self.at + 1 : self.at + 2] in '$`"\\\n':
                self.word.add(self.text[self.at + 1 : self.at + 2].replace("\n", ""))
                self.at += 2
            elif _EXPANDED.match(self.text, self.at):
                self._expansion()
            else:
                self.word.add(sign)
                self.at += 1

    def _expansion(self) -> None:
        """Skip a variable or a substitution, whose value is unknown."""
        text, start = self.text, self.at
        self.word.known = False
        if text[start] == "`":
            self.word.substitutes = True
            self.at = self._until("`", start + 1) + 1
        elif text.startswith("$(", start):
            self.word.substitutes = True
            self.at = self._balanced(start + 1, "(", ")")
        elif text.startswith("${", start):
            self.at = self._balanced(start + 1, "{", "}")
            self.word.substitutes |= "$(" in text[start : self.at] or "`" in text[start : self.at]
        else:
            found = re.compile(r"\$(?:\w+|.)", re.DOTALL).match(text, start)
            self.at = found.end() if found and found[0] not in {"$'", '$"'} else start + 1
        self.word.add(text[start : self.at])

    def _until(self, sign: str, start: int) -> int:
        end = self.text.find(sign, start)
        if end < 0:
            malformed(f"{self.text!r:.200} has a {sign} that is never closed.")
        return end

    def _balanced(self, start: int, opening: str, closing: str) -> int:
        depth = 0
        for index in range(start, len(self.text)):
            depth += (self.text[index] == opening) - (self.text[index] == closing)
            if depth == 0:
                return index + 1
        return malformed(f"{self.text!r:.200} has a {opening} that is never closed.")

    def _skip_document(self, delimiter: str, is_quoted: bool) -> None:
        found = re.compile(rf"(?ms).*?^\t*{re.escape(delimiter)}$\n?").match(self.text, self.at)
        if found is None:
            malformed(f"{self.text!r:.200} has a here-document that never ends in {delimiter!r}.")
        inside = found[0]
        if not is_quoted and ("$(" in inside or "`" in inside):
            self.substitutes.add(0)
        self.at = found.end()

    def _end(self) -> None:
        if not self.word.begun:
            return
        if self.word.substitutes:
            self.substitutes.add(len(self.tokens))
        name, is_quoted = self.word.name(), self.word.is_quoted
        self.word = _Word()
        self.tokens.append(name)
        if self.wants_document:
            self.documents.append((name.text, is_quoted))
            self.wants_document = False


def commands(text: str) -> list[ShellCommand]:
    """Return the simple commands of a command line, in order.

    Args:
        text: the command line; may have several lines.

    Raises:
        RefusedError: ``INVALID_CALL`` for open quotes, an operator without what belongs to it, and the like.
    """
    reader = _WordReader(text)
    reader.read()
    found = [ShellCommand()]
    tokens = iter(enumerate(reader.tokens))
    for index, token in tokens:
        current = found[-1]
        if isinstance(token, Name):
            current.words.append(token)
        elif redirection := _REDIRECTION.fullmatch(token):
            operator = redirection[1] or redirection[2]
            index, target = next(tokens, (index, ""))
            if not isinstance(target, Name):
                malformed(f"{text!r:.200} redirects with {operator} to nothing.")
            current.redirects.append(Redirect(operator, target))
        else:
            found.append(ShellCommand(after=token))
        found[-1].substitutes |= index in reader.substitutes
    _check_operators(text, found)
    return [command for command in found if command.words or command.redirects or command.after in {"(", ")"}]


def _check_operators(text: str, found: list[ShellCommand]) -> None:
    depth = 0
    for index, command in enumerate(found):
        depth += (command.after == "(") - (command.after == ")")
        nothing_before = index == 0 or (not found[index - 1].words and not found[index - 1].redirects)
        if command.after in {"&&", "||", "|", "|&", ";;"}:
            begins = nothing_before and (index == 0 or found[index - 1].after != ")")
            ends = not command.words and not command.redirects
            if begins or (ends and not _goes_on(found, index)):
                malformed(f"{text!r:.200} has a {command.after} with nothing on one side.")
        if depth < 0:
            break
    if depth:
        malformed(f"{text!r:.200} has a parenthesis that is never closed or opened.")


def _goes_on(found: list[ShellCommand], index: int) -> bool:
    return index + 1 < len(found) and found[index + 1].after in {"(", "\n"}
