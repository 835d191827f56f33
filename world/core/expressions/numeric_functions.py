"""The numeric functions of expressions: doubles as in ECMAScript, and total.

Division by zero, a root of a negative number and a power that is no finite number give null.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from world.core.values import Number, as_array, number, tidy

_SAFE: Final = 2**53


def add(left: Any, right: Any) -> Number:
    """Return the sum."""
    if type(left) is not int or type(right) is not int:
        left, right = number(left), number(right)
    return _sum(left, right)


def sub(left: Any, right: Any) -> Number:
    """Return the difference."""
    if type(left) is not int or type(right) is not int:
        left, right = number(left), number(right)
    return _sum(left, -right if right else right)


def _sum(left: Number, right: Number) -> Number:
    total = left + right
    if type(total) is int:
        return total if -_SAFE <= total <= _SAFE else float(total)
    return tidy(float(total))


def mul(left: Any, right: Any) -> Number:
    """Return the product; zero keeps its sign as doubles do."""
    left, right = number(left), number(right)
    product = left * right
    if type(product) is float:
        return tidy(product)
    if product == 0:
        return 0 if (left >= 0) is (right >= 0) else -0.0
    return product if -_SAFE <= product <= _SAFE else float(product)


def div(left: Any, right: Any) -> Number | None:
    """Return the quotient, null where the divisor is zero."""
    divisor = number(right)
    if divisor == 0:
        return None
    return tidy(float(number(left)) / divisor)


def mod(left: Any, right: Any) -> Number | None:
    """Return the remainder with the dividend's sign, null where the divisor is zero."""
    dividend, divisor = number(left), number(right)
    if divisor == 0:
        return None
    if not math.isfinite(dividend):
        return math.nan
    return tidy(math.fmod(dividend, divisor))


def power(base: Any, exponent: Any) -> Number | None:
    """Return the power, null where it is not a finite number."""
    base, exponent = number(base), number(exponent)
    if exponent != exponent or (abs(base) == 1 and math.isinf(exponent)):
        return None
    try:
        result = math.pow(base, exponent)
    except (ValueError, OverflowError):
        return None
    return tidy(result) if math.isfinite(result) else None


def negate(value: Any) -> Number:
    """Return the number with the other sign; zero becomes negative zero."""
    value = number(value)
    return -value if value else -float(value)


def absolute(value: Any) -> Number:
    """Return the number without its sign."""
    return tidy(abs(float(number(value))))


def floor(value: Any) -> Number:
    """Return the largest integer that is not greater."""
    given = number(value)
    if type(given) is int or not math.isfinite(given) or given == 0:
        return given
    return tidy(float(math.floor(given)))


def ceil(value: Any) -> Number:
    """Return the smallest integer that is not smaller; keeps the sign of zero."""
    given = number(value)
    if type(given) is int or not math.isfinite(given):
        return given
    return tidy(math.copysign(float(math.ceil(given)), given))


def round_half_up(value: Any) -> Number:
    """Return the nearest integer, the greater of two (ECMA-262, Math.round)."""
    given = number(value)
    if type(given) is int or not math.isfinite(given):
        return given
    low = math.floor(given)
    return tidy(math.copysign(float(low + 1 if given - low >= 0.5 else low), given))


def root(value: Any) -> Number | None:
    """Return the square root, null for a negative number."""
    value = number(value)
    return None if value < 0 else tidy(math.sqrt(value))


def least(values: Sequence[Any]) -> Number | None:
    """Return the least of the values as numbers; null where there is none."""
    numbers = [number(value) for value in values]
    return _first_nan(numbers) if not numbers or any(n != n for n in numbers) else min(numbers)


def greatest(values: Sequence[Any]) -> Number | None:
    """Return the greatest of the values as numbers; null where there is none."""
    numbers = [number(value) for value in values]
    return _first_nan(numbers) if not numbers or any(n != n for n in numbers) else max(numbers)


def _first_nan(numbers: list[Number]) -> Number | None:
    return math.nan if numbers else None


def sum_array(array: Any) -> Number:
    """Return the sum of an array's elements as numbers; 0 for what is no array."""
    total: Number = 0
    for item in as_array(array):
        total = add(total, item)
    return total


def min_array(array: Any) -> Number | None:
    """Return the least element as a number; null without one."""
    return least(as_array(array))


def max_array(array: Any) -> Number | None:
    """Return the greatest element as a number; null without one."""
    return greatest(as_array(array))


def gt(left: Any, right: Any) -> bool:
    """Return whether left is greater, as numbers."""
    return number(left) > number(right)


def gte(left: Any, right: Any) -> bool:
    """Return whether left is greater or equal, as numbers."""
    return number(left) >= number(right)


def lt(left: Any, right: Any) -> bool:
    """Return whether left is less, as numbers."""
    return number(left) < number(right)


def lte(left: Any, right: Any) -> bool:
    """Return whether left is less or equal, as numbers."""
    return number(left) <= number(right)
