"""Values of expressions: coercion, equality and number formatting.

Expressions are portable, so their values behave as ECMAScript's do: numbers are doubles, absent and null
are one value, strings are counted in UTF-16 code units. Python's integers are kept wherever they are
exactly the double they represent, and every result is brought to that form by ``tidy``.

Two arrays or objects are equal when both are part of the state or the input and have equal content. A value that
an expression has built equals only itself. So a result never depends on which nodes happen to be shared
in memory, and is the same for a state that was computed and one that was read from a log.

Source: design section 4 (one expression evaluator); the expression vectors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from world.model.immutable_json import FrozenDict, FrozenList

__all__ = [
    "ExpressionError",
    "as_array",
    "join_surrogates",
    "kind_of",
    "number",
    "number_text",
    "same_value",
    "strict_equal",
    "text",
    "tidy",
    "truth",
]

Number = int | float

_SAFE: Final = 2**53
WHITESPACE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_NUMBER: Final = re.compile(r"[+-]?(?:Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class ExpressionError(Exception):
    """Raised for an expression without a value; becomes an error value of the core.

    Args:
        code: the error value's code.
        message: one sentence for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def kind_of(node: Any) -> str | None:
    """Return the node kind of an expression or flow, or None."""
    kind = node.get("kind") if isinstance(node, Mapping) else None
    return kind if isinstance(kind, str) else None


def tidy(value: float) -> Number:
    """Return a double as integer if exact; negative zero stays a double."""
    if value.is_integer() and -_SAFE <= value <= _SAFE and (value or math.copysign(1.0, value) > 0):
        return int(value)
    return value


def number(value: Any) -> Number:
    """Return the number of a value: a leading number of a string, true as 1, else 0."""
    kind = type(value)
    if kind is int:
        return value if -_SAFE <= value <= _SAFE else float(value)
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return 1 if value else 0
    return _leading_number(value) if isinstance(value, str) else 0


def _leading_number(value: str) -> Number:
    found = _NUMBER.match(value.lstrip(WHITESPACE))
    if found is None:
        return 0
    parsed = float(found[0])  # Python reads "Infinity" and every form that the pattern accepts
    return tidy(parsed) if parsed else 0


def truth(value: Any) -> bool:
    """Return the truth of a value: null, false, zero and the empty string are false."""
    if value is True or value is False:
        return value
    if value is None:
        return False
    if isinstance(value, (int, float)):
        return value != 0
    return len(value) > 0 if isinstance(value, str) else True


def text(value: Any) -> str:
    """Return the text of a value; null gives the empty text, arrays join with commas."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number_text(value)
    if isinstance(value, list):
        return ",".join(map(text, value))
    return "[object Object]"


def number_text(value: Number) -> str:
    """Return a number as ECMAScript prints it (ECMA-262, Number::toString)."""
    if type(value) is int and -_SAFE <= value <= _SAFE:
        return str(value)
    double = float(value)
    if not math.isfinite(double):
        return "NaN" if double != double else "Infinity" if double > 0 else "-Infinity"
    if not double:
        return "0"
    mantissa, _, exponent = f"{abs(double)!r}e0".partition("e")
    whole, _, fraction = mantissa.partition(".")
    power = int(exponent.removesuffix("e0")) + len(whole)
    digits = (whole + fraction).lstrip("0")
    power -= len(whole + fraction) - len(digits)
    return ("-" if double < 0 else "") + _placed(digits.rstrip("0"), power)


def _placed(digits: str, power: int) -> str:
    """Place the decimal point of ``0.digits * 10**power`` as ECMAScript does."""
    count = len(digits)
    if count <= power <= 21:
        return digits + "0" * (power - count)
    if 0 < power <= 21:
        return f"{digits[:power]}.{digits[power:]}"
    if -6 < power <= 0:
        return f"0.{'0' * -power}{digits}"
    shown = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{shown}e{'+' if power > 0 else '-'}{abs(power - 1)}"


def join_surrogates(value: str) -> str:
    """Return a text with adjacent surrogates joined to one character."""
    if value.isascii() or not _SURROGATE.search(value):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def as_array(value: Any) -> list[Any]:
    """Return the value where it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def strict_equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal without coercion; NaN is not.

    Arrays and objects are equal when they are one object, or when both are part of the state or the input and have
    equal content.
    """
    one, other = type(left), type(right)
    if one is other:
        if one is FrozenDict or one is FrozenList:
            return left is right or _same_content(left, right)
        if one is dict or one is list:
            return left is right
        return bool(left == right)
    return (one is int or one is float) and (other is int or other is float) and left == right


def same_value(left: Any, right: Any) -> bool:
    """Return whether two values are equal, NaN included (ECMA-262, SameValueZero)."""
    return strict_equal(left, right) or (left != left and right != right)


def _same_content(left: Any, right: Any) -> bool:
    if len(left) != len(right):
        return False
    if isinstance(left, list):
        return all(strict_equal(one, other) for one, other in zip(left, right, strict=True))
    return all(key in right and strict_equal(item, right[key]) for key, item in left.items())
