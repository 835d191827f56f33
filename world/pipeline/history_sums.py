"""Sums over the inputs of earlier proposals, and what the history may be asked (``world.state.ports.History``).

A sum depends on what was proposed and on nothing else: not on the order in which the proposals are found, nor on the
database that found them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec

from world.code.time_limit import unbroken
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.paths import look_up, parse_path
from world.state.ports import Conditions, Earlier

if TYPE_CHECKING:
    from world.pipeline.unit_of_work import Lookup

__all__ = ["MAX_SUMMED", "PastAt", "add_up", "check_conditions", "check_length", "check_path"]

CHOICES: Final = {"decision": ("approved", "rejected"), "outcome": ("completed", "failed")}
"""What a decision and an outcome can be."""

MAX_SUMMED: Final = 10_000
"""Earlier proposals that one sum may go through; each is read from the log, which may be under its lock."""


SUMMED_AT_ONCE: Final = 64
"""Earlier proposals whose inputs a sum reads at once."""


class PastAt(msgspec.Struct, frozen=True):
    """The history before one position of the log (``world.state.ports.History``)."""

    lookup: Lookup
    before: int
    own: str = ""

    def count(self, **conditions: Unpack[Conditions]) -> int:
        """Count earlier proposals that match every given condition."""
        asked = self._asked(conditions)
        return unbroken(lambda: self.lookup.count(self.before, **asked))  # it writes rows and reads through one cursor

    def sum(self, path: str, **conditions: Unpack[Conditions]) -> int | float:
        """Add up a number of the inputs of earlier proposals that match every given condition."""
        asked = self._asked(conditions)
        check_path(path)
        found = unbroken(lambda: self.lookup.earlier(self.before, MAX_SUMMED + 1, **asked))
        check_length(len(found))
        return add_up(path, self._inputs(found))

    def _inputs(self, found: Sequence[Earlier]) -> Iterator[tuple[str, Any]]:
        """Yield inputs a few at a time: a time limit may end a sum between them, and memory holds no more."""
        for at in range(0, len(found), SUMMED_AT_ONCE):
            some = found[at : at + SUMMED_AT_ONCE]
            yield from unbroken(partial(self.lookup.inputs, some))

    def _asked(self, conditions: Conditions) -> dict[str, Any]:
        return {**check_conditions(conditions), "other_than": self.own}


def check_conditions(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions that are given, without those that are None.

    Raises:
        RefusedError: ``INVALID_VALUE`` for one that nothing could ever match: a slip must not let everything pass.
    """
    unknown = sorted(set(given) - Conditions.__optional_keys__)
    if unknown:
        known = ", ".join(sorted(Conditions.__optional_keys__))
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"The history has no condition {', '.join(unknown)}; there is {known}."
        )
    asked = {name: value for name, value in given.items() if value is not None}
    for name, value in asked.items():
        kind: type = int if name == "since_ms" else str
        choices = CHOICES.get(name)
        if type(value) is not kind or (choices is not None and value not in choices):
            wanted = " or ".join(choices) if choices else "a whole number" if kind is int else "a text"
            raise RefusedError(
                ErrorCode.INVALID_VALUE, f"The history is asked with {name} {value!r:.60}; it is {wanted}."
            )
    return asked


def check_path(path: object) -> str:
    """Return a path.

    Raises:
        RefusedError: ``INVALID_PATH`` for anything but a text that is not empty.
    """
    if not isinstance(path, str) or not path:
        raise RefusedError(ErrorCode.INVALID_PATH, f"A sum needs the path of a number in the inputs, not {path!r:.60}.")
    return path


def check_length(found: int) -> None:
    """Refuse to go through too many proposals.

    Raises:
        RefusedError: ``HISTORY_TOO_LONG``.
    """
    if found > MAX_SUMMED:
        raise RefusedError(
            ErrorCode.HISTORY_TOO_LONG,
            f"A sum goes through {MAX_SUMMED} earlier proposals at most, and more match; name an actor, an action or a "
            "later time since which they count.",
            limit=MAX_SUMMED,
        )


def add_up(path: str, inputs: Iterable[tuple[str, Any]]) -> int | float:
    """Return the sum of the numbers at a path, 0 where there are none.

    Args:
        path: where they stand in an input; nothing and null are left out.
        inputs: ids of proposals and their inputs.

    Raises:
        RefusedError: ``NOT_A_NUMBER``, ``SUM_TOO_LARGE``.
    """
    segments = parse_path(path)
    whole: list[int] = []
    other: list[float] = []
    for proposal_id, given in inputs:
        value = look_up(given, segments)
        if value is None:
            continue
        if type(value) is int:
            whole.append(value)
        elif type(value) is float:
            other.append(value)
        else:
            raise RefusedError(
                ErrorCode.NOT_A_NUMBER,
                f"The input of proposal {proposal_id} has no number at {path!r:.200}, so it cannot be added; narrow "
                "the sum to actions whose inputs have one.",
                proposal_id=proposal_id,
                path=path,
            )
    return _double(whole, other) if other else sum(whole)


def _double(whole: list[int], other: list[float]) -> float:
    """Return the double that is nearest to the exact sum."""
    try:
        if all(-(2**53) <= value <= 2**53 for value in whole):
            return math.fsum([*whole, *other])
    except OverflowError:  # on the way, which depends on the order
        pass
    try:
        return float(sum(whole) + sum(map(Fraction, other)))
    except OverflowError:
        raise RefusedError(ErrorCode.SUM_TOO_LARGE, "The sum is larger than any number that JSON can hold.") from None
