"""Loops that a later item decides although an earlier one fails.

In CEL, ``all`` is false where one item is false, and ``exists`` is true where one item is true, whatever fails before;
the library stops at the first failure. A condition that failed is therefore evaluated again with each of these loops
as a call: it halves the list until the failing items are alone. ``MAX_WORK`` bounds the work; beyond it the condition
fails. Source: the language definition of CEL, macros.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from authority.cel.conformance import ConformantReader
from authority.cel.cost import TooLargeError, size_of
from authority.cel.library import cel

MAX_WORK: Final = 200_000
"""Weight of all values that the loops of one condition are given again, with ``EVALUATION_WORK`` for each time."""

EVALUATION_WORK: Final = 20

_LIST: Final = "_list"
_READ: Final = re.compile(r"\b_\d+\b")
_UNSIGNED: Final = re.compile(r"\buint\b|\b(?:0[xX][0-9a-fA-F]+|\d+)[uU]\b")
"""Unsigned numbers, which lose their kind when the library passes them to a function."""

_DECISIVE: Final = {"all": False, "exists": True}


class _Loop(NamedTuple):
    program: Any
    reads: tuple[str, ...]
    name: str


class _DecidedReader(ConformantReader):
    """Reader of conditions whose ``all`` and ``exists`` become calls; ``bodies`` has their texts and names."""

    def __init__(self, text: str) -> None:
        """Begin without loops."""
        super().__init__(text)
        self.bodies: list[tuple[str, str]] = []

    def _loop(self, at: int, bound: frozenset[str]) -> str:
        body, name = super()._loop(at, bound), self._text(at + 1)
        if name not in _DECISIVE:
            return body
        self.bodies.append((f"{_LIST}{body}", name))
        outer = ", ".join(f"'{one}': {one}" for one in sorted(bound))
        return f".{self._own('decided')}({len(self.bodies) - 1}, {{{outer}}})[0]"


@lru_cache(maxsize=256)
def _loops_of(text: str) -> tuple[Any, tuple[_Loop, ...], frozenset[str]] | None:
    """Return the program of a condition, its loops, and the functions it calls; None for one without such loops."""
    if _UNSIGNED.search(text):
        return None
    reader = _DecidedReader(text)
    whole = reader.read()
    if not reader.bodies:
        return None
    loops = [_Loop(cel.compile(body), tuple(sorted(set(_READ.findall(body)))), name) for body, name in reader.bodies]
    return cel.compile(whole.text), tuple(loops), whole.calls


class _Decider:
    """Evaluation of the loops of a condition that failed."""

    def __init__(self, loops: tuple[_Loop, ...], values: Mapping[str, Any], functions: dict[str, Any]) -> None:
        self.loops = loops
        self.values = values
        self.functions = {**functions, "_decided": self.decided}
        self.work = MAX_WORK

    def decided(self, items: Any, number: int, outer: Mapping[str, Any]) -> list[bool]:
        """Return the answer of a loop, alone in a list; an empty list, whose first item is an error, where it fails."""
        loop = self.loops[number]
        values = {**{name: self.values[name] for name in loop.reads if name in self.values}, **outer}
        if not isinstance(items, list):
            return []
        try:
            beside = sum(size_of(value)[0].weight for value in values.values())
            weight = size_of(items)[0].weight // max(len(items), 1)
        except TooLargeError:
            return []
        answer = self._answer(loop, items, values, (EVALUATION_WORK + beside, weight))
        return [] if answer is None else [answer]

    def _answer(self, loop: _Loop, items: list[Any], values: dict[str, Any], weights: tuple[int, int]) -> bool | None:
        """Return the answer of a loop over items, None where it fails; weights are of an evaluation and of an item."""
        self.work -= weights[0] + weights[1] * len(items)
        if self.work < 0:
            return None
        try:
            answer = loop.program.execute(cel.Context({**values, _LIST: items}, self.functions))
        except Exception:  # noqa: BLE001 - the library raises many kinds
            if len(items) < 2:
                return None
        else:
            return answer if isinstance(answer, bool) else None
        half, decisive = len(items) // 2, _DECISIVE[loop.name]
        answers = []
        for part in (items[:half], items[half:]):
            answers.append(self._answer(loop, part, values, weights))
            if answers[-1] is decisive:
                return decisive
        return None if None in answers else not decisive


def decided(text: str, values: Mapping[str, Any], function: Callable[[str], Any]) -> Any:
    """Return the value of a condition whose loops are decided by any of their items.

    Args:
        text: the condition, which failed.
        values: the values that it reads, by their names in the rewritten text.
        function: returns the function of a name in the rewritten text.

    Raises:
        Exception: of the library, where it fails all the same.
        LookupError: for a condition without such loops.
    """
    read = _loops_of(text)
    if read is None:
        raise LookupError
    program, loops, calls = read
    functions = {name: function(name) for name in calls if name != "_decided"}
    return program.execute(cel.Context(dict(values), _Decider(loops, values, functions).functions))
