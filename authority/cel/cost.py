"""Upper bound of the cost of a condition for values of given sizes.

An evaluation inside the library cannot be interrupted, and some operations are expensive: ``map`` and ``filter`` copy
their intermediate result for every item. Therefore the cost of a condition is bounded before it is evaluated. The bound
depends only on the sizes of the values that the condition reads, so a recheck computes the same bound.

Sizes are known per level: the maximum length of the lists and maps at a depth, and their maximum weight. Only the
structure of brackets, names and loops is examined: the result of an operator is never larger than its operands. One
unit of cost is about a tenth of a microsecond. Only ``authority.cel.conditions`` imports this.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from authority.cel.condition_reader import LOOPS
from authority.cel.library import cel
from authority.cel.tokens import TOKEN, Token

MAX_COST: Final = 5_000_000
"""Maximum cost of a condition, about one second."""

MAX_PATTERN: Final = 1_000_000
"""Maximum cost of compiling one regular expression; ``\\w{100}`` is near the limit."""

LEVELS: Final = 8
"""Number of levels with sizes of their own; deeper values count as the last level."""

LIGHT_TEXT: Final = 64
"""Characters of a string that weigh as much as a number."""

_ENTRY: Final = 32  # key of a map, without its value
_LIST: Final = 5  # a list, without its items
_TEXT: Final = 3  # a string, without its characters
_STEP: Final = 5  # one iteration of a loop
_CALL: Final = 40  # a function of the library
_OUTSIDE: Final = 100  # a function of the engine
_QUESTION: Final = 200  # a query of the history, which has its own time limit
_COMPILING: Final = 40  # compiling a regular expression
_UNICODE: Final = 10_000  # a class such as \w, which has hundreds of ranges
_CLASS: Final = 50  # another class
_SEARCHING: Final = 20  # matching one unit of weight
_PART: Final = re.compile(r"(\\.|\[(?:\\.|[^\]\\])*\]|.)((?:\{\d*,?\d*\}[?+]?)*)", re.DOTALL)
_NUMBER: Final = re.compile(r"\d+")
_WIDE: Final = re.compile(r"\\[wWdDsSpPbB]|\(\?[a-zA-Z]*i")


class Level(NamedTuple):
    """Maximum at one depth: length of a list or map, and total weight of a value."""

    length: int
    weight: int


Size = tuple[Level, ...]
"""The levels of a value, starting with the value itself."""

Sizes = Mapping[str, Size]
_Bound = tuple[int, Size]  # cost and size of the result
_Part = Callable[[Sizes], _Bound]

SCALAR: Final[Size] = (Level(0, 1 + _TEXT),)
"""Size of a number, a boolean, or a short string."""

NUMBER: Final[Size] = (Level(0, 1),)


class TooLargeError(Exception):
    """Raised for a value that is too large to be read by a condition."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one condition, as a function of sizes.

    Args:
        part: the function.
    """

    part: _Part

    def of(self, sizes: Sizes) -> int:
        """Return the cost bound for values of these sizes; others count as scalars."""
        read = sum(size[0].weight for size in sizes.values())
        return read + self.part(sizes)[0]


def cost_of(text: str) -> Cost:
    """Return the cost function of a rewritten condition."""
    tokens = [Token(match.lastgroup or "", match.group()) for match in TOKEN.finditer(text)]
    reader = _CostReader([token for token in tokens if token.kind != "space"])
    return Cost(reader.range(0, len(reader.tokens)))


def is_light(value: Any) -> bool:
    """Return whether a value is as small as a number."""
    return not isinstance(value, (dict, list)) and not (isinstance(value, str) and len(value) > LIGHT_TEXT)


def size_of(value: Any) -> Size:
    """Return the size of a value.

    Raises:
        TooLargeError: for a value beyond ``MAX_COST``.
    """
    levels = [[0, 1] for _ in range(LEVELS)]
    _weigh(value, 0, levels, [0])
    return tuple(Level(*level) for level in levels)


def _weigh(value: Any, depth: int, levels: list[list[int]], total: list[int]) -> int:
    length, weight = 0, 1
    if isinstance(value, str):
        weight += _TEXT + len(value) // LIGHT_TEXT
    elif isinstance(value, dict):
        length = len(value)
        weight += _ENTRY * length
        for name, one in value.items():
            weight += _weigh(one, depth + 1, levels, total) + len(name) // LIGHT_TEXT
    elif isinstance(value, list):
        length = len(value)
        weight += _LIST
        for one in value:
            weight += _weigh(one, depth + 1, levels, total)
    total[0] += 1 + _ENTRY * length if isinstance(value, dict) else 1
    if total[0] > MAX_COST:
        raise TooLargeError
    level = levels[min(depth, LEVELS - 1)]
    level[0], level[1] = max(level[0], length), max(level[1], weight)
    return weight


def pattern_cost(literal: str) -> int:
    """Return the cost of compiling the regular expression of a string literal."""
    try:
        pattern = str(cel.evaluate(literal))
    except Exception:  # noqa: BLE001 - the library raises many kinds; faults are reported elsewhere
        return _COMPILING
    cost, groups = _COMPILING, 1
    is_spaced = re.search(r"\(\?[a-zA-Z]*x", pattern) is not None  # then space may separate a count from its operand
    for part, counts in _PART.findall(pattern):
        times = math.prod(max(1, int(one)) for count in counts.split("}") if (one := _most(count)))
        if part == ")" or is_spaced:
            groups *= times
        wide = _UNICODE * len(_WIDE.findall(part))
        cost += times * (wide + (_CLASS if len(part) > 1 or part == "." else 8) + len(part))
    return cost * groups * (4 if "(?i" in pattern else 1)


def _most(count: str) -> str:
    """Return the larger number of a counted repetition."""
    return max(_NUMBER.findall(count), key=int, default="")


def below(size: Size) -> Size:
    """Return the size of the members of a value."""
    return size[1:] or size


def _joined(sizes: list[Size]) -> Size:
    """Return the size of the result of operators."""
    if len(sizes) == 1:
        return sizes[0]
    deepest = max(map(len, sizes), default=1)
    padded = [size + (size[-1],) * (deepest - len(size)) for size in sizes]
    first = Level(sum(size[0].length for size in sizes), sum(size[0].weight for size in sizes) + 1)
    return (first, *(_largest([size[at] for size in padded]) for at in range(1, deepest)))


def _within(sizes: list[Size], entry: int) -> Size:
    """Return the size of a list or map of values."""
    if not sizes:
        return SCALAR
    deepest = max(map(len, sizes))
    padded = [size + (size[-1],) * (deepest - len(size)) for size in sizes]
    weight = 1 + _LIST + sum(size[0].weight + entry for size in sizes)
    inner = tuple(_largest([size[at] for size in padded]) for at in range(deepest))
    return (Level(len(sizes), weight), *inner)[:LEVELS]


def _largest(levels: list[Level]) -> Level:
    return Level(max(one.length for one in levels), max(one.weight for one in levels))


class _CostReader:
    """Reader of the tokens of a rewritten condition; returns parts and their ends."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens

    def range(self, at: int, end: int) -> _Part:
        """Return the cost of a range of tokens: operands with operators between them."""
        groups: list[list[_Part]] = [[]]
        is_choice = False
        while at < end:
            text = self._text(at)
            if self._is_operand(at):
                part, at = self._operand(at)
                groups[-1].append(part)
                continue
            if text in ("&&", "||", "?", ":", ","):
                groups.append([])
                is_choice = is_choice or text in ("?", ":", ",")
            at += 1
        return _sequence(groups, is_choice)

    def _operand(self, at: int) -> tuple[_Part, int]:
        part, at = self._first(at)
        while at < len(self.tokens) and self._text(at) in (".", "["):
            if self._text(at) == "[":
                end = self._closing(at)
                part, at = _selected(part, self.range(at + 1, end)), end + 1
            elif self._text(at + 2) != "(":
                part, at = _selected(part, _fixed(SCALAR)), at + 2
            else:
                end = self._closing(at + 2)
                part, at = self._method(part, at + 1, end), end + 1
        return part, at

    def _first(self, at: int) -> tuple[_Part, int]:
        token, text = self.tokens[at], self._text(at)
        if token.kind == "text":
            return _fixed((Level(0, 1 + _TEXT + len(token.text) // LIGHT_TEXT),)), at + 1
        if text in ("(", "[", "{"):
            end = self._closing(at)
            if text == "(":
                return self.range(at + 1, end), end + 1
            entry = 0 if text == "[" else _ENTRY
            return _collected(self._items(at + 1, end), entry), end + 1
        if self._text(at + 1) == "(":
            end = self._closing(at + 1)
            more = _QUESTION if text in ("_count", "_sum") else _OUTSIDE
            return _called([self.range(at + 2, end)], more), end + 1
        return _named(token.text) if token.kind == "name" else _fixed(NUMBER), at + 1

    def _method(self, given: _Part, at: int, end: int) -> _Part:
        name = self._text(at)
        if name in LOOPS:
            variable = self._text(at + 2)
            bodies = self._items(at + 4, end)
            return _loop(name, variable, given, bodies)
        if name == "matches":
            return _searched(given, pattern_cost(self.tokens[at + 2].text))
        return _called([given, *self._items(at + 2, end)], _OUTSIDE if name.startswith("_") else _CALL)

    def _items(self, at: int, end: int) -> list[_Part]:
        parts: list[_Part] = []
        start = at
        while at < end:
            if self._text(at) == ",":
                parts.append(self.range(start, at))
                start = at + 1
            at = self._closing(at) + 1 if self._text(at) in ("(", "[", "{") else at + 1
        return [*parts, self.range(start, end)] if start < end else parts

    def _is_operand(self, at: int) -> bool:
        token = self.tokens[at]
        return token.kind in ("text", "number") or token.text in ("(", "[", "{") or self._is_name(token)

    def _is_name(self, token: Token) -> bool:
        return token.kind == "name" and token.text != "in"

    def _text(self, at: int) -> str:
        return "" if at >= len(self.tokens) or self.tokens[at].kind == "text" else self.tokens[at].text

    def _closing(self, at: int) -> int:
        depth = 0
        for place in range(at, len(self.tokens)):
            text = self._text(place)
            depth += (text in ("(", "[", "{")) - (text in (")", "]", "}"))
            if depth == 0:
                return place
        return len(self.tokens)


def _fixed(size: Size) -> _Part:
    return lambda sizes: (1, size)


def _named(name: str) -> _Part:
    return lambda sizes: (1, sizes.get(name, SCALAR))


def _sequence(groups: list[list[_Part]], is_choice: bool) -> _Part:
    def bound(sizes: Sizes) -> _Bound:
        cost = 0
        group_sizes: list[Size] = []
        for group in groups:
            made = [part(sizes) for part in group]
            if not made:
                continue
            size = _joined([one[1] for one in made])
            cost += sum(one[0] for one in made) + 1 + (len(made) - 1) * size[0].weight
            group_sizes.append(size)
        if len(group_sizes) > 1 and not is_choice:
            return cost, NUMBER
        return cost, _joined(group_sizes) if group_sizes else NUMBER

    return bound


def _selected(whole: _Part, index: _Part) -> _Part:
    def bound(sizes: Sizes) -> _Bound:
        cost, size = whole(sizes)
        return cost + index(sizes)[0] + 1, below(size)

    return bound


def _collected(parts: list[_Part], entry: int) -> _Part:
    def bound(sizes: Sizes) -> _Bound:
        made = [part(sizes) for part in parts]
        size = _within([one[1] for one in made], entry)
        return sum(one[0] for one in made) + size[0].weight, size

    return bound


def _called(parts: list[_Part], more: int) -> _Part:
    """Return the cost of a call, which may convert every argument to Python."""

    def bound(sizes: Sizes) -> _Bound:
        made = [part(sizes) for part in parts]
        size = _joined([one[1] for one in made]) if made else SCALAR
        return sum(one[0] for one in made) + 2 * size[0].weight + more, size

    return bound


def _searched(text: _Part, pattern: int) -> _Part:
    def bound(sizes: Sizes) -> _Bound:
        cost, size = text(sizes)
        return cost + pattern + size[0].weight * (_SEARCHING + pattern // 1_000), NUMBER

    return bound


def _loop(name: str, variable: str, given: _Part, bodies: list[_Part]) -> _Part:
    def bound(sizes: Sizes) -> _Bound:
        cost, size = given(sizes)
        turns, item = size[0].length, below(size)
        inner = {**sizes, variable: item}
        made = [body(inner) for body in bodies]
        cost += turns * (_STEP + sum(one[0] for one in made))
        if name not in ("map", "filter"):
            return cost, NUMBER
        result = item if name == "filter" else made[-1][1]
        cost += turns * turns * result[0].weight // 2  # every item copies the intermediate result
        weight = 1 + turns * result[0].weight
        return cost, (Level(turns, weight), *result)[:LEVELS]

    return bound
