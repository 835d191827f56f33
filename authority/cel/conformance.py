"""Differences of the CEL library from the language definition, and how conditions avoid them.

Conditions of evaluation 2 are read by ``ConformantReader``. What the library computes otherwise than the definition is
rewritten to a call of a function in ``CALLS``, or refused when the condition is read. Conditions of policies that were
adopted under evaluation 1 keep the library's own answers, so that recorded rulings stay equal. The public conformance
tests of CEL are in ``tests/vectors/cel.json``. Source: the language definition of CEL; CARD-replay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, Final

from authority.cel.case_values import EPOCH
from authority.cel.condition_reader import ConditionReader
from authority.cel.tokens import ConditionError
from world.error_codes import ErrorCode
from world.errors import RefusedError

MAX_EXACT: Final = 2**53
"""Largest whole number of a condition; a double holds no larger one exactly."""

MAX_DURATION_S: Final = 9_223_372_036
"""Largest duration in seconds: 64 bits of nanoseconds."""

_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_DURATION: Final = re.compile(rf"([+-]?)(?:0|((?:{_PART.pattern})+))", re.ASCII)
_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_BEFORE_A_SUM: Final = frozenset({"", "(", "[", ",", "&&", "||", "==", "!=", "<", "<=", ">", ">=", "?", ":"})
_NO_NUMBER: Final = "?"
"""Operand for which the library's minus fails as CEL's does for a value that is not a number."""


class ConformantReader(ConditionReader):
    """Reader of conditions whose answers are those of CEL."""

    def _one(self, at: int, bound: frozenset[str]) -> tuple[str, int]:
        token = self.tokens[at]
        if token.kind == "number":
            _check_number(token.text)
        elif token.text == "-" and not self._is_operand(at - 1) and self.tokens[at + 1].kind != "number":
            end = self._operand_end(at + 1)
            self._check_signed(at + 1, end)
            return f"- {self._own('negatable')}({self.rewrite(at + 1, end, bound)})", end
        elif token.text == "{":
            self._check_keys(at)
        return super()._one(at, bound)

    def _function(self, at: int, bound: frozenset[str]) -> tuple[str, int]:
        name = self.tokens[at].text
        if name not in ("int", "string", "duration", "timestamp"):
            return super()._function(at, bound)
        end = self.closing(at + 1)
        self._arguments(at + 1, name, (1,))
        argument = self.rewrite(at + 2, end, bound)
        if name != "duration":
            called = self._own(name) if name == "timestamp" else name
            return f"{called}({self._own(f'{name}_argument')}({argument}))", end + 1
        made = f"{self._own('duration')}({argument})"
        return self._sum(made, at, end + 1, bound)

    def _sum(self, made: str, at: int, end: int, bound: frozenset[str]) -> tuple[str, int]:
        """Return a sum that begins with a duration; the library adds no time to a duration."""
        if self._text(at - 1) not in _BEFORE_A_SUM or (at > 0 and self.tokens[at - 1].kind == "text"):
            return made, end
        while self._text(end) == "+" and end + 1 < len(self.tokens):
            stop = self._operand_end(end + 1)
            made = f"{self._own('plus')}({made}, {self.rewrite(end + 1, stop, bound)})"
            end = stop
        return made, end

    def _check_signed(self, at: int, end: int) -> None:
        """Refuse the negation of an unsigned number, which is an int where the library calls Python."""
        for token in self.tokens[at:end]:
            if token.text == "uint" or (token.kind == "number" and token.text[-1] in "uU"):
                raise ConditionError(f"-{self.shown(at, end)}: an unsigned number has no negative one")

    def _check_keys(self, at: int) -> None:
        """Refuse number keys and repeated keys of a map literal, which the library takes otherwise than CEL."""
        end = self.closing(at)
        starts = [at + 1, *(place + 1 for place in self._level(at + 1, end) if self.tokens[place].text == ",")]
        literals: set[str] = set()
        for start in starts:
            token = self.tokens[start]
            if token.kind == "number" or token.text == "-":
                raise ConditionError(f"{token.text} cannot be a key of a map; a key is a text, as in JSON")
            if token.kind != "text" and token.text not in ("true", "false"):
                continue
            if self._text(start + 1) == ":" and token.text in literals:
                raise ConditionError(f"the map has the key {token.text} twice")
            literals.add(token.text)


def _check_number(text: str) -> None:
    """Refuse a literal whose comparison with the other kind of number would be inexact."""
    digits = text.rstrip("uU")
    is_whole = digits[:2] in ("0x", "0X") or digits.isdecimal()
    value = int(digits, 0 if digits[:2] in ("0x", "0X") else 10) if is_whole else 0
    if value > MAX_EXACT:
        raise ConditionError(f"{text} is beyond {MAX_EXACT}; whole numbers are exact up to it, as in JSON")


def _int_argument(value: Any) -> Any:
    """Return the argument of ``int``: a time as its whole seconds since 1970."""
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(seconds=1)
    if isinstance(value, bool):
        raise _failed("int(...) takes a number, a text or a time")
    is_text = isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value, re.ASCII) is not None
    if (is_text or isinstance(value, (int, float))) and abs(float(value)) > MAX_EXACT:
        raise _failed(f"int(...) makes whole numbers up to {MAX_EXACT}")
    return value


def _string_argument(value: Any) -> Any:
    """Return the argument of ``string``: a time and a duration in CEL's form."""
    if isinstance(value, datetime):
        whole = f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S}".rjust(19, "0")
        return f"{whole}{_fraction(value.microsecond)}Z"
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        seconds, rest = divmod(abs(micros), 1_000_000)
        return f"{'-' if micros < 0 else ''}{seconds}{_fraction(rest)}s"
    return value


def _timestamp_argument(value: Any) -> Any:
    """Return the argument of ``timestamp``; a time has whole microseconds."""
    if isinstance(value, str) and re.search(r"\.\d{6}0*[1-9]", value, re.ASCII):
        raise _failed(f"timestamp({value!r:.60}) is finer than a microsecond")
    return value


def _fraction(micros: int) -> str:
    return f".{micros:06}".rstrip("0") if micros else ""


def _duration(value: Any) -> timedelta:
    """Return a duration of whole microseconds.

    Raises:
        RefusedError: ``CONDITION_FAILED`` for any other text, and beyond ``MAX_DURATION_S``.
    """
    if isinstance(value, timedelta):
        return value
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _failed('duration(...) takes a duration such as "1h30m"')
    ns = sum((Fraction(number.rstrip(".")) * _NS[unit] for number, unit in _PART.findall(value)), Fraction())
    if ns.denominator != 1 or ns % 1_000:
        raise _failed(f"duration({value!r:.60}) is finer than a microsecond")
    if ns > MAX_DURATION_S * _NS["s"]:
        raise _failed(f"duration({value!r:.60}) is longer than {MAX_DURATION_S} s")
    made = timedelta(microseconds=int(ns) // 1_000)
    return -made if found[1] == "-" else made


def _plus(left: Any, right: Any) -> Any:
    """Return a duration plus a duration or a time."""
    if not isinstance(left, (timedelta, datetime)) or not isinstance(right, (timedelta, datetime)):
        raise _failed("a duration is added to a duration or to a time")
    made: datetime | timedelta | None = None
    try:
        if isinstance(left, timedelta):
            made = right + left
        elif isinstance(right, timedelta):
            made = left + right
    except OverflowError:
        made = None
    if made is None or (isinstance(made, timedelta) and abs(made) > timedelta(seconds=MAX_DURATION_S)):
        raise _failed("the sum is no time between the years 1 and 9999, and no duration of 64 bits")
    return made


def _negatable(value: Any) -> Any:
    """Return a number whose negation the library computes as CEL does."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and value != -(2**63) else _NO_NUMBER


CALLS: Final[Mapping[str, Callable[..., Any]]] = {
    "_int_argument": _int_argument,
    "_string_argument": _string_argument,
    "_duration": _duration,
    "_plus": _plus,
    "_negatable": _negatable,
    "_timestamp_argument": _timestamp_argument,
}
"""Functions of the rewritten text that depend on their arguments alone."""


def _failed(words: str) -> RefusedError:
    return RefusedError(ErrorCode.CONDITION_FAILED, words)
