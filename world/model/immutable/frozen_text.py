"""Canonical text of frozen JSON, cached in the nodes so that shared parts are encoded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, SupportsIndex, cast

import msgspec
import orjson
import rfc8785

from world.model.immutable_json import _SMALL, FrozenDict, FrozenList, _members, _plain, utf16_key

__all__ = ["frozen_text", "text_around"]

_MAX_BRACKETS: Final = 100
"""Most objects and arrays of a text; so it is nested less deeply than ``MAX_DEPTH``."""

_ENCODE: Final = msgspec.json.Encoder(order="sorted").encode


def frozen_text(value: Any) -> bytes:
    """Return the RFC 8785 text of a frozen value, UTF-8.

    Small nodes cache their text; large ones cache one piece per member. orjson writes the text where all keys are
    ASCII and all doubles are in the range that both libraries print alike; otherwise ``rfc8785`` does.
    """
    kind = type(value)
    if kind is FrozenDict or kind is FrozenList:
        return value._text or (_joined(value) if value._pieces is not None else _first_text(value))
    return orjson.dumps(value) if _plain(value) else rfc8785.dumps(value)


def text_around(wire: msgspec.Struct, *frozen: Any) -> bytes | None:
    """Return the RFC 8785 text of a record without freezing it as a whole; None where that takes freezing it.

    Args:
        wire: a plain record (``world.model.record.is_plain``): of texts and the frozen values, in records of any depth.
        *frozen: the frozen values in it.
    """
    for value in frozen:
        if not _plain(value):
            return None
    try:
        text = _ENCODE(wire)
    except (TypeError, ValueError):
        return None
    return text if text.isascii() and text.count(b"{") + text.count(b"[") <= _MAX_BRACKETS else None


def _first_text(node: FrozenDict | FrozenList) -> bytes:
    if node._plain:
        text = orjson.dumps(node, option=orjson.OPT_SORT_KEYS)
    elif len(node) <= _SMALL and not any(isinstance(item, (dict, list)) for item in _members(node)):
        text = rfc8785.dumps(dict(node) if isinstance(node, FrozenDict) else list(node))
    else:
        return _keep(node, _joined(_with_pieces(node)))
    if len(text) <= _SMALL:
        node._text = text
    else:
        _with_pieces(node)
    return text


def _keep(node: FrozenDict | FrozenList, text: bytes) -> bytes:
    if len(text) <= _SMALL:
        node._text, node._pieces = text, None
        if isinstance(node, FrozenDict):
            node._keys = None
    return text


def _with_pieces(node: FrozenDict | FrozenList) -> FrozenDict | FrozenList:
    if isinstance(node, FrozenDict):
        node._keys = sorted(node, key=utf16_key)
    node._pieces = [None] * len(node)
    return node


def _joined(node: FrozenDict | FrozenList) -> bytes:
    """Join the pieces of a large node and encode missing ones; large members cache their own pieces."""
    pieces = node._pieces
    if pieces is None:  # another thread has replaced the pieces by the whole text
        return frozen_text(node)
    if isinstance(node, FrozenDict):
        keys = node._keys
        if keys is None:  # another thread has replaced the pieces by the whole text
            return frozen_text(node)
        return b"{" + b",".join(_filled(pieces, lambda at: (_key_text(keys[at]), node[keys[at]]))) + b"}"
    return b"[" + b",".join(_filled(pieces, lambda at: (b"", list.__getitem__(node, cast(SupportsIndex, at))))) + b"]"


def _filled(pieces: list[bytes | None], member: Callable[[int], tuple[bytes, Any]]) -> list[bytes]:
    """Return all pieces and encode missing ones; small ones are cached, large members are encoded each time."""
    complete, at = pieces, -1
    while True:
        try:
            at = pieces.index(None, at + 1)
        except ValueError:
            return cast(list[bytes], complete)
        prefix, value = member(at)
        piece = prefix + frozen_text(value)
        if len(piece) > 2 * _SMALL and complete is pieces:
            complete = pieces.copy()
        elif len(piece) <= 2 * _SMALL:
            pieces[at] = piece
        complete[at] = piece


def _key_text(key: str) -> bytes:
    return orjson.dumps(key) + b":"
