"""Reader of CEL conditions: finds the values that are read and rewrites the text.

The library that evaluates CEL receives only the values that a condition reads, under generated names:
``base.data.balance > 3`` is evaluated as ``_0 > 3``. So the cost of a condition depends on what it reads and not on
the size of the world, an unknown name is an error when the policy is read, and three differences of the library are
removed:

- the order of a map there differs between processes: here loops follow the sorted keys;
- a double divided by zero is infinite there: here it fails as a division by zero;
- the size of a string is in bytes there: here in code points, as CEL defines it.

Source: design section 6; the language definition of CEL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from authority.cel.tokens import CLOSES, ConditionError, tokens_of

MAX_LOOPS: Final = 2
"""Maximum depth of nested loops (``all``, ``exists``, ``map``, ...)."""

MAX_REWRITTEN: Final = 16_384
"""Maximum length of the rewritten text; nested divisions make it longer than the original."""

ROOTS: Final[dict[str, frozenset[str] | None]] = {
    "actor": frozenset({"actorId", "kind", "name", "meta"}),
    "intent": frozenset({"type", "input", "key", "scope"}),
    "base": frozenset({"data", "computed", "world", "branch"}),
    "action": None,
    "manifest": None,
    "now": None,
    "nowMs": None,
}
"""Roots that a condition may read, and their fields; None is a value without declared fields."""

OPEN: Final = frozenset(
    {("actor", "meta"), ("intent", "input"), ("intent", "scope"), ("base", "data"), ("base", "computed")}
)
"""The fields that have fields of their own."""

LOOPS: Final = {"all": (2,), "exists": (2,), "exists_one": (2,), "filter": (2,), "map": (2, 3)}
FUNCTIONS: Final = frozenset({"double", "duration", "int", "string", "uint"})
METHODS: Final = {
    "contains": 1,
    "endsWith": 1,
    "matches": 1,
    "startsWith": 1,
    "getDate": 0,
    "getDayOfMonth": 0,
    "getDayOfWeek": 0,
    "getDayOfYear": 0,
    "getFullYear": 0,
    "getHours": 0,
    "getMilliseconds": 0,
    "getMinutes": 0,
    "getMonth": 0,
    "getSeconds": 0,
}
QUESTIONS: Final = {"count": 1, "sum": 2}
"""Queries of the history and their numbers of arguments."""

NO_DIVISION: Final = "_zero"
"""Name without a value that is evaluated after a division by zero."""

Name: TypeAlias = "str | int | tuple[Name, ...]"
"""A step of a path: a key, an index, or the path of a value that is one of these."""

Way = Literal["value", "has", "size", "loop"]

_WORDS: Final = frozenset({"true", "false", "null", "in"})
_PLAIN_TEXT: Final = re.compile(r"""(?P<quote>["'])(?P<text>[^\\]*)(?P=quote)""")
_WHOLE: Final = re.compile(r"\d{1,9}")


@dataclass(frozen=True, slots=True)
class Read:
    """One value that a condition reads.

    Args:
        name: its name in the rewritten text.
        path: a root and the names below it.
        way: the value itself, its presence, its size, or its items for a loop.
        shown: the text of the author.
    """

    name: str
    path: tuple[Name, ...]
    way: Way
    shown: str


@dataclass(frozen=True, slots=True)
class ParsedCondition:
    """Result of reading a condition.

    Args:
        text: the rewritten text.
        reads: the values it reads, each once.
        calls: the functions of the engine that it calls.
        loops: maximum depth of nested loops.
    """

    text: str
    reads: tuple[Read, ...]
    calls: frozenset[str]
    loops: int


def read_path(text: str) -> Read:
    """Read a path such as ``intent.input.amount``.

    Raises:
        ConditionError: for a text that is not a path.
    """
    reader = ConditionReader(text)
    if not reader.tokens or reader.tokens[0].text not in ROOTS:
        raise ConditionError(f"{text!r} is not a path; a path begins with {', '.join(ROOTS)}")
    path, end = reader.path_at(0)
    if end != len(reader.tokens):
        raise ConditionError(f"{text!r} is not a path: only names and [...] may follow {reader.shown(0, end)}")
    return Read("_", path, "value", text)


class ConditionReader:
    """Reader of one condition that the library accepts; its answers are the library's.

    Args:
        text: the condition.

    Raises:
        ConditionError: beyond the limits.
    """

    def __init__(self, text: str) -> None:
        """Split the text into tokens."""
        self.tokens = tokens_of(text)
        self.reads: dict[tuple[tuple[Name, ...], Way], Read] = {}
        self.calls: set[str] = set()
        self.loops = 0
        self._depth = 0
        self._lists: set[int] = set()  # last tokens of expressions that are certainly lists

    def read(self) -> ParsedCondition:
        """Return the reads and the rewritten text.

        Raises:
            ConditionError: for unknown names, functions and fields, and beyond the limits.
        """
        rewritten = self.rewrite(0, len(self.tokens), frozenset())
        return ParsedCondition(rewritten, tuple(self.reads.values()), frozenset(self.calls), self.loops)

    def rewrite(self, at: int, end: int, bound: frozenset[str]) -> str:
        """Return the rewritten text of tokens; ``bound`` are variables of loops."""
        pieces: list[str] = []
        length = 0
        while at < end:
            piece, at = self._one(at, bound)
            pieces.append(piece)
            length += len(piece) + 1
            if length > MAX_REWRITTEN:
                raise ConditionError("it is too large: nested divisions count twice")
        return " ".join(pieces)

    def _one(self, at: int, bound: frozenset[str]) -> tuple[str, int]:
        token = self.tokens[at]
        if token.kind == "name":
            return self._name(at, bound)
        if token.text == ".":
            return self._selected(at, bound)
        if token.text == "/":
            return self._division(at, bound)
        if token.text == "[" and not self._is_operand(at - 1):
            self._lists.add(self.closing(at))
        return token.text, at + 1

    def _name(self, at: int, bound: frozenset[str]) -> tuple[str, int]:
        name, after = self.tokens[at].text, self._text(at + 1)
        if name in _WORDS:
            return name, at + 1
        if after == "{":
            raise ConditionError(f"{name}{{...}} would be a message; there are only JSON values here")
        if after == "(":
            return self._function(at, bound)
        if name in bound:
            return name, at + 1
        if name == "history":
            return self._history(at, bound)
        if name in ROOTS:
            return self._path(at, bound)
        raise ConditionError(f"there is no {name!r}; there are {', '.join(ROOTS)} and history")

    def _path(self, at: int, bound: frozenset[str]) -> tuple[str, int]:
        path, end = self.path_at(at)
        method = self._text(end + 1) if self._text(end) == "." else ""
        if method == "size":
            self._arguments(end + 2, method, (0,))
            return self._read(path, "size", at, end), end + 4
        if method in LOOPS:
            return self._read(path, "loop", at, end) + self._loop(end, bound), self.closing(end + 2) + 1
        return self._read(path, "value", at, end), end

    def path_at(self, at: int) -> tuple[tuple[Name, ...], int]:
        """Return the path at a token, and its end."""
        path: list[Name] = [self.tokens[at].text]
        end = at + 1
        while True:
            step = self._step(end)
            if step is None:
                break
            path.append(step[0])
            end = step[1]
        self._check_path(tuple(path), at)
        return tuple(path), end

    def _step(self, at: int) -> tuple[Name, int] | None:
        """Return the next step of a path and its end; None at the end of the path."""
        if self._text(at) == "." and self._text(at + 2) != "(":
            return self._text(at + 1), at + 2
        if self._text(at) != "[":
            return None
        end = self.closing(at)
        token = self.tokens[at + 1]
        if token.text in ROOTS:
            inner, stop = self.path_at(at + 1)
            return (inner, end + 1) if stop == end else None
        plain = _PLAIN_TEXT.fullmatch(token.text) if token.kind == "text" else None
        if end != at + 2:
            return None
        if plain is not None and plain["quote"] not in plain["text"]:
            return plain["text"], end + 1
        return (int(token.text), end + 1) if _WHOLE.fullmatch(token.text) else None

    def _check_path(self, path: tuple[Name, ...], at: int) -> None:
        fields = ROOTS[str(path[0])]
        if fields is None:
            return
        if len(path) == 1 or path[1] not in fields:
            raise ConditionError(f"{self.shown(at, at + 3)}: {path[0]} has the fields {', '.join(sorted(fields))}")
        if len(path) > 2 and path[:2] not in OPEN:
            raise ConditionError(f"{path[0]}.{path[1]} has no fields")

    def _read(self, path: tuple[Name, ...], way: Way, at: int, end: int) -> str:
        known = self.reads.get((path, way))
        if known is None:
            known = Read(f"_{len(self.reads)}", path, way, self.shown(at, end))
            self.reads[path, way] = known
        return known.name

    def _function(self, at: int, bound: frozenset[str]) -> tuple[str, int]:
        name, end = self.tokens[at].text, self.closing(at + 1)
        whole = self._whole_path(at + 2, end, bound) if name in ("has", "size") else None
        if whole is not None and (name == "size" or len(whole) > 1):
            self._arguments(at + 1, name, (1,))
            return self._read(whole, "has" if name == "has" else "size", at + 2, end), end + 1
        if name in ("size", "timestamp"):
            self._arguments(at + 1, name, (1,))
            return f"{self._own(name)}({self.rewrite(at + 2, end, bound)})", end + 1
        if name != "has" and name not in FUNCTIONS:
            known = sorted({"has", "size", "timestamp", *FUNCTIONS})
            raise ConditionError(
                f"there is no function {name!r}; there are {', '.join(known)}, history.count and history.sum"
            )
        self._arguments(at + 1, name, (1,))
        return f"{name}({self.rewrite(at + 2, end, bound)})", end + 1

    def _whole_path(self, at: int, end: int, bound: frozenset[str]) -> tuple[Name, ...] | None:
        """Return the path of a range of tokens, None where it is not a path."""
        name = self.tokens[at].text
        if name in bound or name not in ROOTS:
            return None
        path, stop = self.path_at(at)
        return path if stop == end else None

    def _history(self, at: int, bound: frozenset[str]) -> tuple[str, int]:
        name = self._text(at + 2)
        if (self._text(at + 1), self._text(at + 3)) != (".", "(") or name not in QUESTIONS:
            raise ConditionError(
                "history is asked by history.count({'actorId': ...}) and history.sum('amount', {'actorId': ...})"
            )
        end = self.closing(at + 3)
        self._arguments(at + 3, f"history.{name}", (QUESTIONS[name],))
        if name == "sum":
            self._check_sum(at + 4)
        return f"{self._own(name)}({self.rewrite(at + 4, end, bound)})", end + 1

    def _check_sum(self, at: int) -> None:
        """Check that the path of a sum is a literal."""
        path = self.tokens[at]
        if path.kind != "text" or self._text(at + 1) != "," or path.text in ('""', "''"):
            raise ConditionError(
                'history.sum takes the path of a number in the inputs as a text first: history.sum("amount", {...})'
            )

    def _selected(self, at: int, bound: frozenset[str]) -> tuple[str, int]:
        if not self._is_operand(at - 1):
            raise ConditionError("a name does not begin with a dot here")
        name = self._text(at + 1)
        if self._text(at + 2) != "(":
            if self._text(at + 2) == "{":
                raise ConditionError(f"{name}{{...}} would be a message; there are only JSON values here")
            return f".{name}", at + 2
        end = self.closing(at + 2)
        if name in LOOPS:
            ordered = "" if at - 1 in self._lists else f".{self._own('ordered')}()"
            return ordered + self._loop(at, bound), end + 1
        if name == "size":
            self._arguments(at + 2, name, (0,))
            return f".{self._own('size')}()", end + 1
        if name not in METHODS:
            known = sorted({"size", *METHODS, *LOOPS})
            raise ConditionError(f"there is no method {name!r}; there are {', '.join(known)}")
        self._arguments(at + 2, name, (METHODS[name],))
        if name == "matches" and (self.tokens[at + 3].kind != "text" or end != at + 4):
            raise ConditionError("matches() takes a pattern as one string literal")
        return f".{name}({self.rewrite(at + 3, end, bound)})", end + 1

    def _loop(self, at: int, bound: frozenset[str]) -> str:
        """Return a loop, from its dot on."""
        name, end = self._text(at + 1), self.closing(at + 2)
        commas = self._arguments(at + 2, name, LOOPS[name])
        variable = self.tokens[at + 3]
        if commas[0] != at + 4 or variable.kind != "name":
            raise ConditionError(f"{name}(x, ...) gives each item a name first")
        if variable.text in ROOTS or variable.text == "history" or variable.text.startswith("_"):
            raise ConditionError(f"{variable.text!r} cannot name the items of {name}; take another name")
        self._depth += 1
        self.loops = max(self.loops, self._depth)
        if self._depth > MAX_LOOPS:
            raise ConditionError(f"more than {MAX_LOOPS} loops are nested")
        body = self.rewrite(commas[0] + 1, end, bound | {variable.text})
        self._depth -= 1
        if name in ("filter", "map"):
            self._lists.add(end)
        return f".{name}({variable.text}, {body})"

    def _division(self, at: int, bound: frozenset[str]) -> tuple[str, int]:
        end = self._operand_end(at + 1)
        divisor = self.rewrite(at + 1, end, bound)
        if end == at + 2 and _WHOLE.fullmatch(divisor) and int(divisor):
            return f"/ {divisor}", end
        return f"/ (({divisor}) == 0 ? {NO_DIVISION} : ({divisor}))", end

    def _operand_end(self, at: int) -> int:
        while self._text(at) in ("-", "!"):
            at += 1
        if self.tokens[at].kind == "name" and self._text(at + 1) == "(":
            at += 1
        at = self.closing(at) + 1 if self._text(at) in CLOSES else at + 1
        while self._text(at) in (".", "[", "("):
            at = at + 2 if self._text(at) == "." else self.closing(at) + 1
        return at

    def closing(self, at: int) -> int:
        """Return the index of the closing bracket of an opening one."""
        depth = 0
        for place in range(at, len(self.tokens)):
            token = self.tokens[place]
            if token.kind == "mark":
                depth += (token.text in CLOSES) - (token.text in ")]}")
            if depth == 0:
                return place
        raise ConditionError("a bracket is never closed")

    def _arguments(self, at: int, name: str, allowed: tuple[int, ...]) -> list[int]:
        """Check the number of arguments in brackets; return their commas."""
        end = self.closing(at)
        commas = [place for place in self._level(at + 1, end) if self.tokens[place].text == ","]
        given = 0 if end == at + 1 else len(commas) + 1
        if given not in allowed:
            raise ConditionError(f"{name}() takes {' or '.join(map(str, allowed))} arguments, not {given}")
        return commas

    def _level(self, at: int, end: int) -> Iterator[int]:
        while at < end:
            yield at
            at = self.closing(at) + 1 if self._text(at) in CLOSES else at + 1

    def _own(self, name: str) -> str:
        self.calls.add(f"_{name}")
        return f"_{name}"

    def _is_operand(self, at: int) -> bool:
        if at < 0:
            return False
        token = self.tokens[at]
        return (
            token.kind in ("text", "number")
            or token.text in (")", "]", "}")
            or (token.kind == "name" and token.text != "in")
        )

    def _text(self, at: int) -> str:
        """Return the text of a token; empty for a string literal and past the end."""
        if not 0 <= at < len(self.tokens):
            return ""
        token = self.tokens[at]
        return "" if token.kind == "text" else token.text

    def shown(self, at: int, end: int) -> str:
        """Return the text of tokens without spaces."""
        return "".join(token.text for token in self.tokens[at:end])
