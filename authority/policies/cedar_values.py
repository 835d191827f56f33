"""What Cedar is given of a case: the values that a policy reads, in the forms that Cedar has.

A policy names the attributes that it reads, so all others are left out, whatever they hold. Cedar has whole numbers and
decimals of four places: a number with more is rounded, half to even, and every rounding is noted. Policies adopted
before this was so are given whole cases, and a number with more places refuses (``ReadPaths.whole``); their rulings
stay what they were. Source: design section 6; CARD-policy, CARD-replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from world.errors import RefusedError

RESERVED: Final = frozenset({"__entity", "__extn", "__expr"})
"""Names of fields that Cedar takes for something else."""

DECIMALS: Final = 4

MAX_NAMED: Final = 3
"""Roundings that a reason names."""

_MAX_DECIMAL: Final = 922_337_203_685_477


@dataclass(slots=True)
class ReadPaths:
    """How much of a value a policy reads.

    Args:
        is_whole: all of it, with everything in it.
        fields: what it reads of an object's fields, by name.
    """

    is_whole: bool = False
    fields: dict[str, ReadPaths] = field(default_factory=dict)

    @classmethod
    def of(cls, conditions: Any) -> ReadPaths:
        """Return what a policy reads of context, principal and resource, from the JSON form of its conditions."""
        root = cls()
        for path, is_asked in _paths(conditions):
            at = root
            for name in path:
                at = at.fields.setdefault(name, cls())
            at.is_whole = at.is_whole or not is_asked
        return root

    def paths(self) -> Iterator[tuple[str, ...]]:
        """Yield the paths of the attributes that are read or asked for, the outer ones of each other left out."""
        for name, inner in self.fields.items():
            yield from ((name, *path) for path in inner.paths())
            if not inner.fields:
                yield (name,)


WHOLE: Final = ReadPaths(is_whole=True)


def _paths(told: Any) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the attributes that a policy names, and whether it only asks if they are there."""
    if isinstance(told, dict):
        path = path_of(told)
        if path:
            yield path, "has" in told
            return
        if told.get("Var") == "context":
            yield ("context",), False
        for one in told.values():
            yield from _paths(one)
    elif isinstance(told, list):
        for one in told:
            yield from _paths(one)


def path_of(told: Any) -> tuple[str, ...]:
    """Return the attribute that a piece of a condition is, with its root; nothing where it is none."""
    node = (told.get(".") or told.get("has")) if isinstance(told, dict) else None
    if not isinstance(node, dict):
        return ()
    left, name = node.get("left"), node.get("attr")
    root = left.get("Var") if isinstance(left, dict) else None
    before = (root,) if isinstance(root, str) else path_of(left)
    return (*before, name) if before and isinstance(name, str) else ()


@dataclass(slots=True)
class Conversion:
    """Makes Cedar's form of values, and notes what was rounded.

    Args:
        rounds: whether numbers of more than four decimals are rounded; otherwise they refuse.
        rounded: sentences about the roundings, in the order of reading.
    """

    rounds: bool
    rounded: list[str] = field(default_factory=list)

    def record(self, value: Mapping[str, Any], at: str, reading: ReadPaths) -> dict[str, Any]:
        """Return an object as a Cedar record; what is null there, or not read, is not there.

        Args:
            value: the object.
            at: where it is, for messages.
            reading: what is read of it.

        Raises:
            RefusedError: ``CONDITION_FAILED`` where Cedar cannot hold what is read.
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
        """Return a value in Cedar's form; ``True`` stands for one of which only the presence is read.

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
    """Return a reason that says what was rounded for it: the first few, and how many more there are."""
    more = [f"{len(rounded) - MAX_NAMED} more"] if len(rounded) > MAX_NAMED else []
    told = "; ".join([*rounded[:MAX_NAMED], *more])
    return words if not told else f"{words} ({told})" if words else told


def failed(words: str) -> RefusedError:
    """Return the error of a rule whose condition cannot be evaluated."""
    return RefusedError("CONDITION_FAILED", words)
