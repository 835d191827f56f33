"""Parser of function calls in JavaScript or Python with literal arguments.

Nothing is executed. Every call in the text is found, nested ones and those in function arguments included; a value that
is not a literal is ``UNKNOWN``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.calls.place import malformed

__all__ = ["UNKNOWN", "Flags", "ParsedCall", "Unknown", "read_calls"]

MAX_NESTING: Final = 50
"""Maximum depth of nested lists, objects and calls."""


class Unknown:
    """A value that is not a literal."""

    def __repr__(self) -> str:
        """Show it in messages."""
        return "<unknown>"


UNKNOWN: Final = Unknown()
CODE: Final = Unknown()
"""The value of a function argument; the calls in it are found separately."""


class Flags(frozenset[str]):
    """Names joined by ``|``, such as ``os.O_RDWR | os.O_CREAT``, without prefix."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One call.

    Args:
        name: the dotted name, without a receiver that is a value.
        args: positional arguments.
        named: keyword arguments.
        receiver: the value whose method is called, None without one.
    """

    name: str
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    receiver: Any = None

    def arg(self, index: int, *names: str) -> Any:
        """Return an argument by its index or one of its names, or None."""
        if index < len(self.args):
            return self.args[index]
        return next((self.named[name] for name in names if name in self.named), None)

    def option(self, name: str) -> Any:
        """Return a named argument or a member of an object argument, or None."""
        if name in self.named:
            return self.named[name]
        objects = [one for one in self.args if isinstance(one, dict)]
        spread = UNKNOWN if any("..." in one for one in objects) else None
        return next((one[name] for one in objects if name in one), spread)

    def is_set(self, name: str) -> bool:
        """Return whether an option is set; an unknown value counts as set."""
        return bool(self.option(name))


_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
    |(?P<string>(?P<prefix>[rRbBuUfF]{0,2})(?P<body>'''(?:\\.|[^\\])*?'''|\"{3}(?:\\.|[^\\])*?\"{3}
        |'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`))
    |(?P<number>0[xXoObB][0-9A-Fa-f_]+n?|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?n?)
    |(?P<name>[A-Za-z_$][\w$]*)
    |(?P<sign>=>|\?\.|\.\.\.|[^\s])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}|(\n)|(.))", re.DOTALL)
_SHORT: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "a": "\a"}
_CONSTANTS: Final = {"true": True, "True": True, "false": False, "False": False}
_EMPTY: Final = {"null": None, "None": None, "undefined": None}
_WORDS: Final = frozenset(
    [
        "if",
        "for",
        "while",
        "switch",
        "catch",
        "function",
        "return",
        "await",
        "in",
        "not",
        "and",
        "or",
        "lambda",
        "def",
        "with",
        "typeof",
        "async",
        "yield",
        "throw",
        "elif",
        "except",
        "assert",
        "del",
        "print",
    ]
)
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    value: Any = None


def read_calls(text: str) -> list[ParsedCall]:
    """Return every call in a text, in the order of their names.

    Args:
        text: one statement or several.

    Raises:
        RefusedError: ``INVALID_CALL`` for open quotes and brackets.
    """
    return _Calls(text).found


class _Calls:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(_tokens(text))
        self.inside: set[int] = set()  # tokens directly between parentheses
        self.ends = self._brackets()
        self.variables: dict[str, Any] = {}
        self.by_end: dict[int, ParsedCall] = {}
        self.found: list[ParsedCall] = []
        for index, token in enumerate(self.tokens):
            if token.kind == "name" and self._sign(index + 1) == "(" and token.text not in _WORDS:
                self._call(index)
            elif token.kind == "name" and self._sign(index + 1) == "=" and index not in self.inside:
                self._bind(index)

    def _brackets(self) -> dict[int, int]:
        """Return the index of the closing bracket of each opening one."""
        ends: dict[int, int] = {}
        open_: list[int] = []
        for index, token in enumerate(self.tokens):
            if any(self.tokens[one].text == "(" for one in open_[-1:]):
                self.inside.add(index)
            if token.kind != "sign":
                continue
            if token.text in _CLOSING:
                open_.append(index)
            elif token.text in _CLOSING.values():
                if not open_ or _CLOSING[self.tokens[open_[-1]].text] != token.text:
                    malformed(f"{self.text!r:.200} has a {token.text} that was never opened.")
                ends[open_.pop()] = index
            if len(open_) > MAX_NESTING:
                malformed(f"{self.text!r:.200} is nested more than {MAX_NESTING} deep.")
        if open_:
            malformed(f"{self.text!r:.200} has a {self.tokens[open_[-1]].text} that is never closed.")
        return ends

    def _sign(self, index: int) -> str:
        if 0 <= index < len(self.tokens) and self.tokens[index].kind == "sign":
            return self.tokens[index].text
        return ""

    def _call(self, index: int) -> None:
        name, receiver = self._name(index)
        args, named = self._arguments(index + 1)
        call = ParsedCall(name, args, named, receiver)
        end = self.ends[index + 1]
        self.by_end[end] = call
        self.found.append(call)
        following = self.tokens[end + 1] if end + 1 < len(self.tokens) else None
        if following is not None and following.text == "as" and end + 2 < len(self.tokens):
            self.variables[self.tokens[end + 2].text] = call

    def _bind(self, index: int) -> None:
        """Record the value of a variable that is assigned a literal or a call."""
        start = index + 2
        while start < len(self.tokens) and self.tokens[start].text in {"await", "new"}:
            start += 1
        if start >= len(self.tokens):
            return
        token = self.tokens[start]
        if token.kind == "string":
            self.variables[self.tokens[index].text] = token.value
        elif token.kind == "name":
            at = start
            while self._sign(at + 1) == ".":
                at += 2
            if self._sign(at + 1) == "(" and at < len(self.tokens):
                args, named = self._arguments(at + 1)
                name, receiver = self._name(at)
                self.variables[self.tokens[index].text] = ParsedCall(name, args, named, receiver)

    def _name(self, index: int) -> tuple[str, Any]:
        """Return the dotted name that ends at a token, and its receiver."""
        parts = [self.tokens[index].text]
        at = index - 1
        while self._sign(at) in {".", "?."}:
            before = self.tokens[at - 1] if at else None
            if before is None:
                malformed(f"{self.text!r:.200} begins with a dot.")
            if before.kind == "name":
                if len(parts) == 1 and before.text in self.variables and self._sign(at - 2) != ".":
                    return parts[0], self.variables[before.text]
                parts.append(before.text)
                at -= 2
            elif self._sign(at - 1) == ")":
                inner = self.by_end.get(at - 1)
                if inner is not None and inner.name in {"require", "import", "__import__"} and inner.args:
                    parts.append(str(inner.args[0]).removeprefix("node:").replace("/", "."))
                    break
                return ".".join(reversed(parts)), inner if inner is not None else UNKNOWN
            else:
                return ".".join(reversed(parts)), before.value if before.kind == "string" else UNKNOWN
        return ".".join(reversed(parts)), None

    def _arguments(self, start: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        end = self.ends[start]
        args: list[Any] = []
        named: dict[str, Any] = {}
        for first, last in self._pieces(start + 1, end):
            if self.tokens[first].kind == "name" and self._sign(first + 1) == "=" and first + 2 < last:
                named[self.tokens[first].text] = self._value(first + 2, last)
            else:
                args.append(self._value(first, last))
        return tuple(args), named

    def _pieces(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between commas, without an empty one at the end."""
        first = at = start
        while at < end:
            if self._sign(at) == ",":
                if at > first:
                    yield first, at
                first = at + 1
            at = self.ends[at] + 1 if at in self.ends else at + 1
        if end > first:
            yield first, end

    def _value(self, first: int, last: int) -> Any:
        """Return the value of a range of tokens: a literal, or ``UNKNOWN``."""
        while first < last and self.tokens[first].text in {"await", "new", "async"}:
            first += 1
        if first >= last:
            return UNKNOWN
        token = self.tokens[first]
        if token.text == "function" or self._is_arrow(first, last):
            return CODE
        if last - first == 1:
            return self._single(token)
        if token.kind == "sign" and self.ends.get(first) == last - 1:
            return self._collection(token.text, first, last - 1)
        return self._compound(first, last)

    def _is_arrow(self, first: int, last: int) -> bool:
        """Return whether an arrow function starts: parameters, then the arrow."""
        after = self.ends[first] + 1 if self._sign(first) == "(" else first + 1
        return after < last and self._sign(after) == "=>"

    def _single(self, token: _Token) -> Any:
        if token.kind in {"string", "number"}:
            return token.value
        if token.text in _EMPTY:
            return None
        if token.text in _CONSTANTS:
            return _CONSTANTS[token.text]
        if token.kind == "name" and re.fullmatch(r"[OSRWFX]_\w+", token.text):
            return Flags({token.text[2:]})
        return self.variables.get(token.text, UNKNOWN)

    def _collection(self, opening: str, first: int, last: int) -> Any:
        if opening in "([":
            values = [self._value(*piece) for piece in self._pieces(first + 1, last)]
            return values[0] if opening == "(" and len(values) == 1 and self._sign(last - 1) != "," else values
        found: dict[str, Any] = {}
        for start, end in self._pieces(first + 1, last):
            key = self.tokens[start]
            if self._sign(start + 1) == ":" and start + 2 < end:
                found[str(key.value if key.kind == "string" else key.text)] = self._value(start + 2, end)
            else:  # a shorthand, a spread or a method could be anything
                found[key.text] = self.variables.get(key.text, UNKNOWN) if end - start == 1 else UNKNOWN
        return found

    def _compound(self, first: int, last: int) -> Any:
        tokens = self.tokens[first:last]
        if all(token.kind == "string" for token in tokens[::2]) and all(token.text == "+" for token in tokens[1::2]):
            parts = [token.value for token in tokens[::2]]
            return UNKNOWN if UNKNOWN in parts or len(tokens) % 2 == 0 else "".join(parts)
        if all(token.kind == "name" or token.text in {".", "|"} for token in tokens):
            names = [token.text[2:] for token in tokens if re.fullmatch(r"[OSRWFX]_\w+", token.text)]
            return Flags(names) if len(names) == 1 + sum(token.text == "|" for token in tokens) else UNKNOWN
        at = first
        while at + 2 < last and self.tokens[at].kind == "name" and self._sign(at + 1) == ".":
            at += 2
        if self.tokens[at].kind == "name" and self.ends.get(at + 1) == last - 1 and self._sign(at + 1) == "(":
            args, named = self._arguments(at + 1)
            return ParsedCall(self._name(at)[0], args, named, self._name(at)[1])
        return UNKNOWN


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:  # pragma: no cover -- every sign is one
            malformed(f"{text!r:.200} cannot be read from its sign {at} on.")
        at = found.end()
        kind = str(found.lastgroup)
        if found["string"] is not None:
            yield _Token("string", found["string"], _string(found["prefix"].lower(), found["body"]))
        elif kind == "number":
            yield _Token("number", found[0], _number(found[0]))
        elif kind == "sign" and found[0] in "'\"`":
            malformed(f"{text!r:.200} has a {found[0]} that is never closed.")
        elif kind != "space":
            yield _Token(kind, found[0])


def _number(text: str) -> Any:
    digits = text.rstrip("n").replace("_", "")
    try:
        return int(digits, 0)
    except ValueError:
        return UNKNOWN


def _string(prefix: str, body: str) -> Any:
    quotes = 3 if body[:3] in {"'''", '"""'} and len(body) >= 6 else 1
    inside = body[quotes:-quotes]
    if ("f" in prefix and "{" in inside) or (body[0] == "`" and "${" in inside):
        return UNKNOWN
    return inside if "r" in prefix else _ESCAPE.sub(_unescaped, inside)


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code:
        number = int(code, 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    return "" if found[4] else _SHORT.get(found[5], found[5])
