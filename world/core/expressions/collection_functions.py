"""Array and object functions of expressions; other values count as empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from world.core.expressions.string_functions import bounded_items, length, position
from world.core.values import as_array, number, same_value, text
from world.model.immutable.frozen_text import frozen_text
from world.model.immutable_json import FrozenDict, FrozenList, utf16_key


def size(value: Any) -> int:
    """Return the number of elements, UTF-16 characters or keys; 0 for other values."""
    if isinstance(value, (list, dict)):
        return len(value)
    return length(value) if isinstance(value, str) else 0


def at(collection: Any, index: Any) -> Any:
    """Return an array's element by index or an object's member by name, or null."""
    if isinstance(collection, list):
        place = number(index)
        whole = 0 <= place < len(collection) and (type(place) is int or place == int(place))
        return collection[int(place)] if whole else None
    return collection.get(index) if isinstance(collection, dict) and isinstance(index, str) else None


def first(array: Any) -> Any:
    """Return the first element or null."""
    return array[0] if isinstance(array, list) and array else None


def last(array: Any) -> Any:
    """Return the last element or null."""
    return array[-1] if isinstance(array, list) and array else None


def reverse(array: Any) -> list[Any]:
    """Return the elements backwards."""
    return as_array(array)[::-1]


def unique(array: Any) -> list[Any]:
    """Return the elements without repetitions, the first of each kept."""
    kept: list[Any] = []
    seen: set[Any] = set()
    for item in as_array(array):
        mark = _mark(item)
        if mark in seen:
            continue
        seen.add(mark)
        kept.append(item)
    return kept


def _mark(item: Any) -> tuple[str, Any]:
    """Return a key that is equal for values that ``same_value`` equates."""
    if isinstance(item, (FrozenDict, FrozenList)):
        return "frozen", frozen_text(item)
    if isinstance(item, (list, dict)):
        return "built", id(item)
    return type_name(item), item if item == item else "NaN"


def flat(array: Any) -> list[Any]:
    """Return the elements with inner arrays flattened by one level."""
    items = as_array(array)
    bounded_items(sum(len(item) if isinstance(item, list) else 1 for item in items))
    return [inner for item in items for inner in (item if isinstance(item, list) else (item,))]


def slice_array(array: Any, start: Any, *end: Any) -> list[Any]:
    """Return the elements between two positions; negative ones count from the end."""
    items = as_array(array)
    count = len(items)
    return items[_from(start, count) : _from(end[0], count) if end else count]


def _from(value: Any, count: int) -> int:
    place = position(value, count)
    return max(place + count, 0) if place < 0 else min(place, count)


def includes(array: Any, item: Any) -> bool:
    """Return whether an element is the same value."""
    return any(same_value(other, item) for other in as_array(array))


def append(array: Any, items: Sequence[Any]) -> list[Any]:
    """Return the elements with others behind them."""
    before = as_array(array)
    bounded_items(len(before) + len(items))
    return [*before, *items]


def member(value: Any, name: str) -> Any:
    """Return an object's member or null."""
    return value.get(name) if isinstance(value, dict) else None


def sorted_keys(value: Any) -> list[str]:
    """Return an object's keys in UTF-16 order, or an array's positions as texts."""
    if isinstance(value, dict):
        return sorted(value) if "".join(value).isascii() else sorted(value, key=utf16_key)
    return [str(place) for place in range(len(value))] if isinstance(value, list) else []


def values(value: Any) -> list[Any]:
    """Return an object's members in the order of their keys, or an array's elements."""
    return [value[key] for key in sorted_keys(value)] if isinstance(value, dict) else list(as_array(value))


def entries(value: Any) -> list[Any]:
    """Return ``[key, member]`` pairs in the order of the keys."""
    return [list(pair) for pair in zip(sorted_keys(value), values(value), strict=True)]


def merge(objects: Sequence[Any]) -> dict[str, Any]:
    """Return one object with all members, later ones winning; ignores other values."""
    merged: dict[str, Any] = {}
    for value in objects:
        if isinstance(value, dict):
            merged |= value
    return merged


def has_key(value: Any, key: Any) -> bool:
    """Return whether an object has a member of this name."""
    return isinstance(value, dict) and text(key) in value


def pick(value: Any, keys: Any) -> dict[str, Any]:
    """Return the object with these members only."""
    if not isinstance(value, dict):
        return {}
    return {key: value[key] for key in as_array(keys) if isinstance(key, str) and key in value}


def omit(value: Any, keys: Any) -> dict[str, Any]:
    """Return the object without these members."""
    if not isinstance(value, dict):
        return {}
    dropped = {key for key in as_array(keys) if isinstance(key, str)}
    return {key: item for key, item in value.items() if key not in dropped}


def from_entries(pairs: Any) -> dict[str, Any]:
    """Return an object of ``[key, member]`` pairs, later ones winning."""
    return {text(pair[0]): pair[1] for pair in as_array(pairs) if isinstance(pair, list) and len(pair) >= 2}


def type_name(value: Any) -> str:
    """Return null, boolean, number, string, array or object."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
