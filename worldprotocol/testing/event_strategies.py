"""Hypothesis strategies for JSON and for events, made of what the types of the events say of themselves.

So a new topic, or a new part of one, is covered as soon as it is there. ``worldprotocol.testing.strategies`` hands on
these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from world.extras import missing_extra

try:
    from hypothesis import reject
    from hypothesis import strategies as st
except ImportError:
    raise missing_extra("Strategies", "hypothesis", "testing") from None
from msgspec import inspect

from world.errors import DamagedLogError
from world.events.base import Event
from world.events.codec import TOPICS, decode_event, record_event
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import MAX_SAFE_INTEGER

__all__ = ["events", "hashes", "identifiers", "json_objects", "json_values", "milliseconds", "texts"]

_LARGE: Final = (2**53 - 1, -(2**53) + 1, 1e15, 1e20, 1e21, 5e-324, 1.7976931348623157e308, 0.1, -0.0, 1.0)

_HEX: Final = "0123456789abcdef"


def texts(*, max_size: int = 8) -> st.SearchStrategy[str]:
    """Return texts that UTF-8 can carry."""
    return st.text(st.characters(codec="utf-8"), max_size=max_size)


def identifiers(*, max_size: int = 8) -> st.SearchStrategy[str]:
    """Return ids: texts that are not empty."""
    return st.text(st.characters(codec="utf-8"), min_size=1, max_size=max_size)


def hashes() -> st.SearchStrategy[str]:
    """Return what looks like a SHA-256 in hex."""
    return st.text(_HEX, min_size=64, max_size=64)


def milliseconds() -> st.SearchStrategy[int]:
    """Return times in ms since 1970, as large as JSON can carry."""
    return st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)


def json_values(
    *,
    scalars: st.SearchStrategy[Any] | None = None,
    keys: st.SearchStrategy[str] | None = None,
    max_size: int = 3,
    max_leaves: int = 8,
) -> st.SearchStrategy[Any]:
    """Return JSON values that have a canonical text.

    Args:
        scalars: what is no array and no object; None is all that JSON has.
        keys: of objects; None is any text.
        max_size: of arrays and objects.
        max_leaves: scalars in one value.
    """
    numbers = st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER) | st.floats(allow_nan=False, allow_infinity=False)
    plain = st.none() | st.booleans() | numbers | st.sampled_from(_LARGE) | texts()
    known = texts() if keys is None else keys
    return st.recursive(
        plain if scalars is None else scalars,
        lambda inner: st.lists(inner, max_size=max_size) | st.dictionaries(known, inner, max_size=max_size),
        max_leaves=max_leaves,
    )


def json_objects(*, keys: st.SearchStrategy[str] | None = None, max_size: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """Return JSON objects."""
    return st.dictionaries(texts() if keys is None else keys, json_values(keys=keys), max_size=max_size)


def events(topic: str | None = None) -> st.SearchStrategy[Event]:
    """Return payloads of events, which need not be consistent with each other.

    Args:
        topic: of them; None is any.
    """
    return st.sampled_from(sorted(TOPICS)).flatmap(_events_of) if topic is None else _events_of(topic)


@cache
def _events_of(topic: str) -> st.SearchStrategy[Event]:
    kind = TOPICS[topic]
    fields: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for one in msgspec.structs.fields(kind):
        made = _of(inspect.type_info(one.type))
        if one.name in kind.TEXTS:
            made = st.one_of(made, _with_texts(kind.TEXTS[one.name]))
        (fields if one.required else optional)[one.encode_name] = made
    wire = st.fixed_dictionaries(fields, optional=optional)
    return wire.map(lambda members: _event(topic, members))


def _with_texts(members: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Return JSON objects with members that are texts."""
    required = st.fixed_dictionaries({name: texts() for name in members})
    return st.builds(lambda more, given: {**more, **given}, json_objects(), required)


def _event(topic: str, members: dict[str, Any]) -> Event:
    """Return a payload as it is recorded; members that contradict each other are rejected."""
    try:
        return record_event(decode_event(topic, TOPICS[topic].VERSION, canonical_bytes(members)))[0]
    except DamagedLogError:
        reject()


def _of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Return what a type describes, in wire form."""
    if isinstance(kind, inspect.StructType):
        return _struct(kind)
    if isinstance(kind, inspect.UnionType):
        return st.one_of(*map(_of, kind.types))
    if isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        return st.lists(_of(kind.item_type), max_size=2)
    if isinstance(kind, inspect.DictType):
        return json_objects() if isinstance(kind.value_type, inspect.AnyType) else _members(kind)
    if isinstance(kind, inspect.StrType):
        return identifiers() if kind.min_length else texts()
    if isinstance(kind, inspect.IntType):
        return st.integers(kind.ge if kind.ge is not None else -MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
    if isinstance(kind, inspect.LiteralType):
        return st.sampled_from(kind.values)
    plain: st.SearchStrategy[Any] = _PLAIN[type(kind)]()
    return plain


def _members(kind: inspect.DictType) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts(), _of(kind.value_type), max_size=2)


def _struct(kind: inspect.StructType) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects with all that a type requires, and some of what it allows."""
    fields = {one.encode_name: _of(one.type) for one in kind.fields}
    required = {one.encode_name for one in kind.fields if one.required}
    return st.fixed_dictionaries(
        {name: fields[name] for name in fields if name in required},
        optional={name: fields[name] for name in fields if name not in required},
    )


_PLAIN: Final[Mapping[type[inspect.Type], Any]] = {
    inspect.NoneType: st.none,
    inspect.BoolType: st.booleans,
    inspect.AnyType: json_values,
}
"""Types of which there is one kind."""
