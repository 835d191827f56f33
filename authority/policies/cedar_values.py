"""Conversion of case values to Cedar's types, restricted to what a policy reads.

A policy names the attributes that it reads; all others are left out. Cedar has whole numbers and decimals of four
places: a number with more rejects. Of policies that were adopted under earlier rules, some round such a number, half to
even, and some receive whole cases (``WHOLE``), so that their rulings stay equal.
Source: design section 6; CARD-policy, CARD-replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

RESERVED: Final = frozenset({"__entity", "__extn", "__expr"})
"""Field names that Cedar reserves."""

DECIMALS: Final = 4

MAX_NAMED: Final = 3
"""Maximum number of roundings in a reason."""

_MAX_DECIMAL: Final = 922_337_203_685_477


@dataclass(slots=True)
class ReadPaths:
    """The parts of a value that a policy reads.

    Args:
        is_whole: whether it reads the whole value.
        fields: the parts that it reads of an object's fields, by name.
    """

    is_whole: bool = False
    fields: dict[str, ReadPaths] = field(default_factory=dict)

    @classmethod
    def of(cls, conditions: Any) -> ReadPaths:
        """Return the read paths of a policy from the JSON form of its conditions."""
        root = cls()
        for path, is_asked in _paths(conditions):
            at = root
            for name in path:
                at = at.fields.setdefault(name, cls())
            at.is_whole = at.is_whole or not is_asked
        return root

    def paths(self) -> Iterator[tuple[str, ...]]:
        """Yield the innermost paths of the attributes that are read or tested."""
        for name, inner in self.fields.items():
            yield from ((name, *path) for path in inner.paths())
            if not inner.fields:
                yield (name,)


WHOLE: Final = ReadPaths(is_whole=True)


def _paths(node: Any) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the attributes of a policy, and whether only their presence is tested."""
    if isinstance(node, dict):
        path = path_of(node)
        if path:
            yield path, "has" in node
            return
        if node.get("Var") == "context":
            yield ("context",), False
        for one in node.values():
            yield from _paths(one)
    elif isinstance(node, list):
        for one in node:
            yield from _paths(one)


def path_of(expression: Any) -> tuple[str, ...]:
    """Return the path of an attribute expression with its root, else empty."""
    node = (expression.get(".") or expression.get("has")) if isinstance(expression, dict) else None
    if not isinstance(node, dict):
        return ()
    left, name = node.get("left"), node.get("attr")
    root = left.get("Var") if isinstance(left, dict) else None
    before = (root,) if isinstance(root, str) else path_of(left)
    return (*before, name) if before and isinstance(name, str) else ()


@dataclass(slots=True)
class Conversion:
    """Converter of values to Cedar's types that records roundings.

    Args:
        rounds: whether numbers of more than four decimals are rounded; otherwise they raise.
        rounded: sentences about the roundings, in the order of reads.
    """

    rounds: bool
    rounded: list[str] = field(default_factory=list)

    def record(self, value: Mapping[str, Any], at: str, reading: ReadPaths) -> dict[str, Any]:
        """Return an object as a Cedar record without null and unread members.

        Args:
            value: the object.
            at: its path, for messages.
            reading: the parts of it that are read.

        Raises:
            RefusedError: ``CONDITION_FAILED`` where Cedar cannot represent a value.
        """
        made: dict[str, Any] = {}
        for key in value if reading.is_whole else reading.fields:
            one = value.get(key)
            if key in RESERVED and key in value:
                raise failed(f"{at} has a field {key}, which Cedar takes for something else")
            if one is not None:
                made[key] = self.value(one, f"{at}.{key}", WHOLE if reading.is_whole else reading.fields[key])
        return made

    def value(self, value: Any, at: str, reading: ReadPaths) -> Any:
        """Return a value in Cedar's type; ``True`` where only its presence is tested.

        Raises:
            RefusedError: as ``record``.
        """
        if isinstance(value, dict):
            return self.record(value, at, reading)
        if not reading.is_whole and not reading.fields:
            return True
        if isinstance(value, list):
            return [self.value(one, f"{at}[{place}]", WHOLE) for place, one in enumerate(value)]
        if value is None:
            raise failed(f"{at} is null, which a set of Cedar cannot hold")
        return self._decimal(value, at) if isinstance(value, float) else value

    def _decimal(self, value: float, at: str) -> dict[str, Any]:
        text = f"{value:.{DECIMALS}f}"
        is_exact = float(text) == value
        if abs(value) >= _MAX_DECIMAL or not (is_exact or self.rounds):
            raise failed(f"{at} is {value!r}; Cedar holds whole numbers and up to {DECIMALS} decimals")
        if not is_exact:
            self.rounded.append(f"{at} is {value!r} and was read as {text}")
        return {"__extn": {"fn": "decimal", "arg": text}}


def with_roundings(words: str, rounded: Sequence[str]) -> str:
    """Return a reason with the first roundings and the number of further ones."""
    more = [f"{len(rounded) - MAX_NAMED} more"] if len(rounded) > MAX_NAMED else []
    note = "; ".join([*rounded[:MAX_NAMED], *more])
    return words if not note else f"{words} ({note})" if words else note


def failed(words: str) -> RefusedError:
    """Return the error of a rule whose condition cannot be evaluated."""
    return RefusedError(ErrorCode.CONDITION_FAILED, words)
