"""How much work a condition can be at most, for values of given sizes.

Nothing can break off an evaluation inside the library, and some of it is dear: ``map`` and ``filter`` copy what they
have gathered so far with every item. So what a condition could cost is bounded before it is evaluated. The bound is a
function of the sizes of what the condition reads and of nothing else, so a case that is judged again comes to the same.

Sizes are known level by level: how long the lists and maps at a depth are at most, and how much each of them holds.
The structure of brackets, names and loops is all that is looked at: what operators make is never larger than what they
are given. One unit of cost is about a tenth of a microsecond. ``authority.cel.conditions`` alone imports this.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import cel

from authority.cel.text import LOOPS, TOKEN, Token

MAX_COST: Final = 5_000_000
"""What a condition may cost; it takes about a second at most."""

MAX_PATTERN: Final = 1_000_000
"""What making one regular expression may cost; ``\\w{100}`` is about as large as one may be."""

LEVELS: Final = 8
"""Depths whose sizes are told apart; what lies deeper counts as the last of them."""

LIGHT_TEXT: Final = 64
"""Characters of a text that weigh as much as a number."""

_ENTRY: Final = 32  # a name of a map, beside its value
_LIST: Final = 5  # a list itself
_TEXT: Final = 3  # a text, beside its characters
_STEP: Final = 5  # one turn of a loop
_CALL: Final = 40  # a function
_OUTSIDE: Final = 100  # a function of ours
_QUESTION: Final = 200  # asking the history, which has a time limit of its own
_COMPILING: Final = 40  # making a regular expression at all
_UNICODE: Final = 10_000  # a class such as \w in one, which is hundreds of ranges
_CLASS: Final = 50  # another class
_SEARCHING: Final = 20  # looking for it in one weight of text
_PART: Final = re.compile(r"(\\.|\[(?:\\.|[^\]\\])*\]|.)((?:\{\d*,?\d*\}[?+]?)*)", re.DOTALL)
_NUMBER: Final = re.compile(r"\d+")
_WIDE: Final = re.compile(r"\\[wWdDsSpPbB]|\(\?[a-zA-Z]*i")


class Level(NamedTuple):
    """The largest at one depth: the length of a list or map, and the weight of a value with all in it."""

    length: int
    weight: int


Size = tuple[Level, ...]
"""The levels of a value, the value itself first."""

Sizes = Mapping[str, Size]
_Bound = tuple[int, Size]  # what it costs, and how large its value is
_Part = Callable[[Sizes], _Bound]

SCALAR: Final[Size] = (Level(0, 1 + _TEXT),)
"""A number, a truth, or a text that is not long."""

NUMBER: Final[Size] = (Level(0, 1),)


class TooLargeError(Exception):
    """A value that no condition may read whole."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one condition, as a function of sizes.

    Args:
        part: the function.
    """

    part: _Part

    def of(self, sizes: Sizes) -> int:
        """Return the cost at most, for values of these sizes; those that are not named are numbers."""
        read = sum(size[0].weight for size in sizes.values())
        return read + self.part(sizes)[0]


def cost_of(text: str) -> Cost:
    """Return the cost of a condition, from the text that is evaluated."""
    tokens = [Token(match.lastgroup or "", match.group()) for match in TOKEN.finditer(text)]
    reader = _CostReader([token for token in tokens if token.kind != "space"])
    return Cost(reader.range(0, len(reader.tokens)))


def is_light(value: Any) -> bool:
    """Tell whether a value is as small as a number."""
    return not isinstance(value, (dict, list)) and not (isinstance(value, str) and len(value) > LIGHT_TEXT)


def size_of(value: Any) -> Size:
    """Return how large a value is.

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
    """Return what making a regular expression costs, from the text literal of a condition that holds it."""
    try:
        pattern = str(cel.evaluate(literal))
    except Exception:  # noqa: BLE001 - the library raises many kinds; what cannot be read is told elsewhere
        return _COMPILING
    cost, groups = _COMPILING, 1
    is_spaced = re.search(r"\(\?[a-zA-Z]*x", pattern) is not None  # then a count may stand apart from what it counts
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
    """Return the size of what is in a value."""
    return size[1:] or size


def _joined(sizes: list[Size]) -> Size:
    """Return the size of what operators make of values."""
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
    """Goes through the tokens of what is evaluated; every method returns a part and where it ends."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens

    def range(self, at: int, end: int) -> _Part:
        """Return what tokens cost: operands one after the other, with operators between them."""
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
        found: list[Size] = []
        for group in groups:
            made = [part(sizes) for part in group]
            if not made:
                continue
            size = _joined([one[1] for one in made])
            cost += sum(one[0] for one in made) + 1 + (len(made) - 1) * size[0].weight
            found.append(size)
        if len(found) > 1 and not is_choice:
            return cost, NUMBER
        return cost, _joined(found) if found else NUMBER

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
    """Return what a function costs: each of its values is looked at, and may have to be turned into Python's."""

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
        cost += turns * turns * result[0].weight // 2  # with every item all that was gathered is copied
        weight = 1 + turns * result[0].weight
        return cost, (Level(turns, weight), *result)[:LEVELS]

    return bound
