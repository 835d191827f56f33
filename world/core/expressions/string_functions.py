"""String functions of expressions; positions count UTF-16 code units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from world.core.values import WHITESPACE, ExpressionError, Number, join_surrogates, number, text

MAX_TEXT: Final = 4_000_000
"""Maximum length of a string that an expression may build; a longer one is an error value."""

MAX_ITEMS: Final = 1_000_000
"""Maximum length of an array that an expression may build; a longer one is an error value."""


def bounded_text(parts: Sequence[str]) -> str:
    """Return the parts as one text.

    Raises:
        ExpressionError: ``LIMIT_EXCEEDED`` for more than ``MAX_TEXT`` characters.
    """
    if sum(map(len, parts)) > MAX_TEXT:
        raise ExpressionError("LIMIT_EXCEEDED", f"An expression builds a text of more than {MAX_TEXT} characters.")
    return join_surrogates("".join(parts))


def bounded_items(count: int) -> None:
    """Raise for an array that is too large.

    Raises:
        ExpressionError: ``LIMIT_EXCEEDED`` for more than ``MAX_ITEMS`` elements.
    """
    if count > MAX_ITEMS:
        raise ExpressionError("LIMIT_EXCEEDED", f"An expression builds an array of more than {MAX_ITEMS} elements.")


def concat(values: Sequence[Any]) -> Any:
    """Join texts, or arrays as soon as one value is an array; null adds nothing."""
    if not any(isinstance(value, list) for value in values):
        return bounded_text([text(value) for value in values])
    bounded_items(sum(len(value) for value in values if isinstance(value, list)))
    joined: list[Any] = []
    for value in values:
        if isinstance(value, list):
            joined.extend(value)
        elif value is not None:
            joined.append(value)
    return joined


def units(value: str) -> str:
    """Return a text in which every character is one UTF-16 code unit."""
    if value.isascii() or all(character <= "\uffff" for character in value):
        return value
    halves = value.encode("utf-16-le", "surrogatepass")
    return "".join(map(chr, memoryview(halves).cast("H")))


def length(value: str) -> int:
    """Return the number of UTF-16 code units of a text."""
    return len(value) if value.isascii() else len(units(value))


def position(value: Any, count: int) -> int:
    """Return a number as an integer position; infinities as ``-count`` and ``count``."""
    place: Number = number(value)
    if type(place) is int:
        return place
    if math.isfinite(place):
        return int(place)
    return 0 if place != place else count if place > 0 else -count


def substring(value: Any, start: Any, *end: Any) -> str:
    """Return the part between two positions, in either order, clamped to the text."""
    whole = units(text(value))
    count = len(whole)
    first = min(max(position(start, count), 0), count)
    last = min(max(position(end[0], count), 0), count) if end else count
    return join_surrogates(whole[min(first, last) : max(first, last)])


def trim(value: Any) -> str:
    """Return the text without white space at its ends."""
    return text(value).strip(WHITESPACE)


def lower(value: Any) -> str:
    """Return the text in lower case."""
    return text(value).lower()


def upper(value: Any) -> str:
    """Return the text in upper case."""
    return text(value).upper()


def text_length(value: Any) -> int:
    """Return the length of a value's text."""
    return length(text(value))


def starts_with(value: Any, prefix: Any) -> bool:
    """Return whether the text starts with the other."""
    return units(text(value)).startswith(units(text(prefix)))


def ends_with(value: Any, suffix: Any) -> bool:
    """Return whether the text ends with the other."""
    return units(text(value)).endswith(units(text(suffix)))


def contains(value: Any, search: Any) -> bool:
    """Return whether the text holds the other."""
    return units(text(search)) in units(text(value))


def index_of(value: Any, search: Any) -> int:
    """Return the first index of the other text, -1 where it does not occur."""
    return units(text(value)).find(units(text(search)))


def replace_first(value: Any, search: Any, replacement: Any) -> str:
    """Return the text with the first occurrence of a string replaced."""
    before, found, after = (whole := text(value)), text(search), ""
    at = whole.find(found)
    if at < 0:
        return whole
    before, after = whole[:at], whole[at + len(found) :]
    return bounded_text([before, text(replacement), after])


def split(value: Any, delimiter: Any) -> list[str]:
    """Return the parts between delimiters, or the UTF-16 code units without one."""
    whole, mark = text(value), text(delimiter)
    if mark:
        parts = whole.split(mark)
    else:
        parts = list(units(whole)) or [""]
    bounded_items(len(parts))
    return parts
