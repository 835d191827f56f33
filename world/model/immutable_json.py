"""Immutable JSON values with inexpensive changed copies.

A frozen tree consists of ``FrozenDict``, ``FrozenList``, ``str``, ``int``, ``float``, ``bool`` and ``None``.
Freezing refuses every value that canonical JSON (RFC 8785) cannot represent, with the path to the value. It sorts
members into canonical order and converts numbers to the form that results from parsing their canonical text: ``1.0``
becomes ``1``, and an integer beyond 2^53 becomes the double that prints the same digits. So a value that is written to
the log and read again is equal to the original, including types and order.

Nodes cache the pieces of their canonical text. A changed copy shares all other pieces, so encoding a large tree after
a small change costs one join (design section 4).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, cast

import orjson
import rfc8785

from world.error_codes import ErrorCode
from world.errors import RefusedError

MAX_DEPTH: Final = 200
"""Maximum nesting of one value, in levels; a deeper value is refused."""

MAX_SAFE_INTEGER: Final = 2**53 - 1
"""Largest integer up to which a double represents every integer exactly."""

_SMALL: Final = 2048  # bytes of text up to which a node keeps its whole text instead of pieces


def _refuse_change(self: object, *_: Any, **__: Any) -> NoReturn:
    raise TypeError(f"{type(self).__name__} is frozen: make a changed copy instead (thaw() gives one)")


class FrozenDict(dict[str, Any]):
    """Immutable ``dict`` of canonical JSON; every mutating method raises ``TypeError``."""

    __slots__ = ("_height", "_keys", "_pieces", "_plain", "_text")
    _height: int  # levels of nesting, itself included; an upper bound in a changed copy
    _plain: bool
    _text: bytes | None
    _keys: list[str] | None
    _pieces: list[bytes | None] | None

    def __new__(cls, source: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> FrozenDict:
        """Return the frozen form of ``source``; raises as ``freeze`` does."""
        frozen = freeze(dict(source))
        assert isinstance(frozen, FrozenDict)
        return frozen

    def __init__(self, *_: Any, **__: Any) -> None:
        """Do nothing; ``__new__`` returns the complete value."""

    def with_item(self, key: str, value: Any) -> FrozenDict:
        """Return a copy in which ``key`` has the value ``value``, frozen; all other members are shared.

        Raises:
            RefusedError: ``NOT_CANONICAL`` for a key or a value that ``freeze`` refuses.
        """
        if type(key) is not str or not key.isascii():
            key = _sound_key(key)
        kind = type(value)
        is_ready = (  # most members, without a call
            (kind is str and value.isascii())
            or (kind is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER)
            or value is None
            or kind is bool
        )
        if is_ready:
            copy = _dict_node(self, self._plain and key.isascii(), self._height)
        else:
            value = _frozen_member(value, key)
            copy = _dict_node(self, self._plain and _plain(value) and key.isascii(), _height_with(self, value))
        dict.__setitem__(copy, key, value)
        if key not in self and len(self) and utf16_key(key) < utf16_key(next(reversed(self))):
            _put_in_order(copy)
        if self._pieces is not None and self._keys is not None:
            at = bisect_left(self._keys, utf16_key(key), key=utf16_key)
            keys, pieces = self._keys, self._pieces.copy()
            if key in self:
                pieces[at] = None
            else:
                keys = keys.copy()
                keys.insert(at, key)
                pieces.insert(at, None)
            copy._keys, copy._pieces = keys, pieces
        return copy

    def without(self, key: str) -> FrozenDict:
        """Return a copy without ``key``, or the same object where the key is absent."""
        if key not in self:
            return self
        copy = _dict_node(self, self._plain, self._height)
        dict.__delitem__(copy, key)
        if self._pieces is not None and self._keys is not None:
            at = bisect_left(self._keys, utf16_key(key), key=utf16_key)
            copy._keys = self._keys[:at] + self._keys[at + 1 :]
            copy._pieces = self._pieces[:at] + self._pieces[at + 1 :]
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (dict(self),)

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict:
        return self

    __setitem__ = __delitem__ = __ior__ = _refuse_change
    clear = pop = popitem = setdefault = update = _refuse_change


class FrozenList(list[Any]):
    """Immutable ``list`` of canonical JSON; every mutating method raises ``TypeError``."""

    __slots__ = ("_height", "_pieces", "_plain", "_text")
    _height: int
    _plain: bool
    _text: bytes | None
    _pieces: list[bytes | None] | None

    def __new__(cls, source: Iterable[Any] = ()) -> FrozenList:
        """Return the frozen form of ``source``; raises as ``freeze`` does."""
        frozen = freeze(list(source))
        assert isinstance(frozen, FrozenList)
        return frozen

    def __init__(self, *_: Any, **__: Any) -> None:
        """Do nothing; ``__new__`` returns the complete value."""

    def with_item(self, index: int, value: Any) -> FrozenList:
        """Return a copy in which the element at ``index`` is ``value``.

        Raises:
            IndexError: where the list has no element at ``index``.
            RefusedError: ``NOT_CANONICAL`` for a value that ``freeze`` refuses.
        """
        value = _frozen_member(value, index)
        copy = _list_node(self, self._plain and _plain(value), _height_with(self, value))
        list.__setitem__(copy, index, value)
        if self._pieces is not None:
            copy._pieces = self._pieces.copy()
            copy._pieces[index] = None
        return copy

    def with_appended(self, value: Any) -> FrozenList:
        """Return a copy with ``value`` after the last element; raises as ``freeze`` does."""
        value = _frozen_member(value, len(self))
        copy = _list_node(self, self._plain and _plain(value), _height_with(self, value))
        list.append(copy, value)
        if self._pieces is not None:
            copy._pieces = [*self._pieces, None]
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (list(self),)

    def __copy__(self) -> FrozenList:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenList:
        return self

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse_change
    append = extend = insert = remove = clear = pop = sort = reverse = _refuse_change


def utf16_key(text: str) -> bytes:
    """Return the sort key of a property name under RFC 8785: its UTF-16 code units."""
    return text.encode("utf-16-be")


def freeze(value: Any, path: str = "$") -> Any:
    """Return the frozen form of a JSON value; a value that is already frozen is returned unchanged.

    Args:
        value: dicts with string keys, lists, tuples, strings, numbers, booleans, None.
        path: path of the value in error messages.

    Raises:
        RefusedError: ``NOT_CANONICAL`` with the path, for NaN, infinities, lone surrogates, integers that no
            double prints, keys that are not strings, cycles, other types, and more than ``MAX_DEPTH`` levels.

    Source: RFC 8785 sections 3.1, 3.2.2; design section 3.
    """
    kind = type(value)
    if kind is FrozenDict or kind is FrozenList:
        return value
    try:
        return _freeze_dict(value, 0) if kind is dict else _freeze(value, 0)
    except _FaultError as fault:
        raise _refused(fault, path) from None


def thaw(value: Any) -> Any:
    """Return a mutable copy of a frozen value, of plain dicts and lists."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return [thaw(item) for item in value]
    return value


class _FaultError(Exception):
    """Internal error of freezing; every enclosing level adds its step to the path."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.steps: list[str] = []


def _refused(fault: _FaultError, path: str) -> RefusedError:
    where = path + "".join(reversed(fault.steps))
    return RefusedError(ErrorCode.NOT_CANONICAL, f"At {where}: {fault.reason}", path=where)


def _frozen_member(value: Any, step: str | int) -> Any:
    """Freeze a new member of a node; the path of a refusal starts at the node."""
    try:
        return _freeze(value, 0)
    except _FaultError as fault:
        raise _refused(fault, f"$[{step}]" if isinstance(step, int) else "$" + _step(step)) from None


_TOO_DEEP: Final = f"the value is nested deeper than {MAX_DEPTH} levels, or contains itself."


def _freeze(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        if value.isascii() or is_encodable(value):
            return value
        raise _FaultError("the text holds half of a surrogate pair, which UTF-8 cannot carry.")
    if kind is int:
        return value if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else _wide_integer(value)
    if value is None or kind is bool:
        return value
    if kind is FrozenDict or kind is FrozenList:
        if depth + value._height > MAX_DEPTH and depth + _measured(value) > MAX_DEPTH:
            raise _FaultError(_TOO_DEEP)
        return value
    if kind is float:
        return _number(value)
    if depth >= MAX_DEPTH:
        raise _FaultError(_TOO_DEEP)
    if kind is dict:
        return _freeze_dict(value, depth)
    if kind is list or kind is tuple:
        return _freeze_list(value, depth)
    return _freeze_other(value, depth)


def _freeze_dict(value: Mapping[str, Any], depth: int) -> FrozenDict:  # noqa: C901  # one loop, for speed
    node = dict.__new__(FrozenDict)
    plain, height = True, 0
    last, is_ordered = "", True
    put = dict.__setitem__
    for key, item in value.items():
        try:
            if type(key) is not str:
                if not isinstance(key, str):
                    raise _FaultError(f"the key {key!r} is not a string.")
                key = str.__str__(key)
            if not key.isascii():
                plain = False
                if not is_encodable(key):
                    raise _FaultError("a key holds half of a surrogate pair, which UTF-8 cannot carry.")
            kind = type(item)
            is_ready = (  # most members, without a call
                item is None
                or kind is bool
                or (kind is str and item.isascii())
                or (kind is int and -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER)
            )
            frozen = item if is_ready else _freeze(item, depth + 1)
        except _FaultError as fault:
            fault.steps.append(_step(key))
            raise
        kind = type(frozen)
        if kind is FrozenDict or kind is FrozenList:
            if not frozen._plain:
                plain = False
            if frozen._height > height:  # calling max would dominate the cost of this loop
                height = frozen._height
        elif kind is float and not _plain_float(frozen):
            plain = False
        put(node, key, frozen)
        if key < last or not key.isascii():
            is_ordered = False
        last = key
    if not is_ordered:
        _put_in_order(node)
    node._plain, node._height, node._text, node._keys, node._pieces = plain, height + 1, None, None, None
    return node


def _put_in_order(node: FrozenDict) -> None:
    """Sort the members of a node under construction into canonical order (RFC 8785 3.2.3)."""
    in_ascii = "".join(node).isascii()  # then canonical order is the order of the keys, which are unique
    members = sorted(node.items()) if in_ascii else sorted(node.items(), key=_by_key)
    dict.clear(node)
    dict.update(node, members)


def _by_key(member: tuple[str, Any]) -> bytes:
    return utf16_key(member[0])


def _freeze_list(value: Iterable[Any], depth: int) -> FrozenList:
    node = list.__new__(FrozenList)
    plain, height = True, 0
    add = list.append
    for index, item in enumerate(value):
        try:
            kind = type(item)
            is_ready = item is None or kind is bool or (kind is str and item.isascii())
            frozen = item if is_ready else _freeze(item, depth + 1)
        except _FaultError as fault:
            fault.steps.append(f"[{index}]")
            raise
        kind = type(frozen)
        if kind is FrozenDict or kind is FrozenList:
            if not frozen._plain:
                plain = False
            if frozen._height > height:  # see _freeze_dict
                height = frozen._height
        elif kind is float and not _plain_float(frozen):
            plain = False
        add(node, frozen)
    node._plain, node._height, node._text, node._pieces = plain, height + 1, None, None
    return node


def _freeze_other(value: Any, depth: int) -> Any:
    """Freeze subclasses of the JSON types (string enums, ordered dicts); refuse all other types."""
    if isinstance(value, str):
        return _freeze(str.__str__(value), depth)
    if isinstance(value, int):
        return _freeze(int(value), depth)
    if isinstance(value, float):
        return _number(float(value))
    if isinstance(value, Mapping):
        return _freeze_dict(value, depth)
    if isinstance(value, (list, tuple)):
        return _freeze_list(value, depth)
    model = "; of a pydantic model, use model_dump(mode='json')" if hasattr(value, "model_dump") else ""
    allowed = f"use objects, arrays, strings, numbers, booleans and null{model}."
    raise _FaultError(f"{type(value).__name__} is no JSON type; {allowed}")


def _number(value: float) -> int | float:
    if not math.isfinite(value):
        raise _FaultError(f"{value} is no JSON number.")
    if value.is_integer() and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return int(value)
    return value


def _wide_integer(value: int) -> float:
    """Return the double that prints the digits of an integer beyond 2^53, or refuse the integer."""
    try:
        double = float(value)
    except OverflowError:
        double = math.inf
    if math.isfinite(double) and rfc8785.dumps(double) == str(value).encode():
        return double
    raise _FaultError("the integer is beyond 2^53 and no double prints these digits; send it as a string.")


def is_encodable(text: str) -> bool:
    """Return whether a text has no half surrogates, so that it can be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sound_key(key: Any) -> str:
    """Return a key as a plain text; refuse any other key."""
    if not isinstance(key, str) or not is_encodable(key):
        raise RefusedError(
            ErrorCode.NOT_CANONICAL, f"A key must be a string of whole characters, not {key!r}.", path="$"
        )
    return str.__str__(key)


def _step(key: object) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f".{key}"
    shown = orjson.dumps(key).decode() if isinstance(key, str) and is_encodable(key) else repr(key)
    return f"[{shown}]"


def _plain_float(value: float) -> bool:
    """Return whether orjson prints this non-integral double as ECMAScript does."""
    return 1e-5 <= abs(value) < 1e15


def _plain(value: Any) -> bool:
    """Return whether orjson's text of a frozen value is certain to be its canonical text."""
    kind = type(value)
    if kind is FrozenDict or kind is FrozenList:
        return cast(bool, value._plain)
    return kind is not float or _plain_float(value)


def _height_with(node: FrozenDict | FrozenList, value: Any) -> int:
    """Return the height of a copy of ``node`` with ``value`` added; refuse a value that is too deep."""
    kind = type(value)
    if kind is not FrozenDict and kind is not FrozenList:
        return node._height
    added = 1 + cast(int, value._height)
    if added > MAX_DEPTH:
        added = 1 + _measured(value)
        if added > MAX_DEPTH:
            raise RefusedError(ErrorCode.NOT_CANONICAL, f"At $: {_TOO_DEEP}", path="$")
    return max(node._height, added)


def _measured(value: Any) -> int:
    """Return the exact number of levels of a frozen value, and store it in its nodes."""
    kind = type(value)
    if kind is not FrozenDict and kind is not FrozenList:
        return 0
    value._height = 1 + max(map(_measured, _members(value)), default=0)
    return cast(int, value._height)


def _dict_node(source: Mapping[str, Any], plain: bool, height: int) -> FrozenDict:
    node = dict.__new__(FrozenDict)
    dict.update(node, source)
    node._plain, node._height, node._text, node._keys, node._pieces = plain, height, None, None, None
    return node


def _list_node(source: Iterable[Any], plain: bool, height: int) -> FrozenList:
    node = list.__new__(FrozenList)
    list.extend(node, source)
    node._plain, node._height, node._text, node._pieces = plain, height, None, None
    return node


def _members(node: FrozenDict | FrozenList) -> Iterable[Any]:
    return node.values() if isinstance(node, FrozenDict) else node
