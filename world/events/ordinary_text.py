"""Canonical text of ordinary events: msgspec encodes one in a single pass, and reading the text back checks it.

An event is ordinary if its text is short, ASCII, without fractions and without integers beyond 2^53, and the event
that is read from it equals the given one. Then msgspec's text is its RFC 8785 text: it sorts ASCII keys and escapes as
RFC 8785 does. Values that JSON cannot represent, such as a NaN or a UUID, differ from what is read back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar, get_args, get_origin

import msgspec

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.model.immutable_json import FrozenDict
from world.model.intent import IntentInstance
from world.model.record import freeze_member

__all__ = ["OrdinaryText"]

E = TypeVar("E", bound=Event)

MAX_BYTES: Final = 4096
"""Longest text that is read back; of a longer one the frozen parts are worth sharing."""

MAX_BRACKETS: Final = 100
"""Most objects and arrays of a text; so it is nested less deeply than ``world.model.immutable_json`` permits."""

_WIDE_INTEGER: Final = re.compile(rb"[:,\[]-?[0-9]{16}")
"""A number that may be beyond 2^53; also found in some texts."""

_NOT_ORDINARY: Final = (
    msgspec.ValidationError,
    RefusedError,
    RecursionError,
    TypeError,
    ValueError,
    OverflowError,
)

_ENCODE: Final = msgspec.json.Encoder(order="sorted").encode


class OrdinaryText:
    """Encoder of the ordinary events of one type."""

    __slots__ = ("_decode", "_intents", "_is_sparse", "_json", "_wire_form")

    def __init__(self, kind: type[Event], wire_form: Callable[[Event], Any] | None) -> None:
        """Prepare for a type of event.

        Args:
            kind: the type.
            wire_form: returns what msgspec writes as the wire form of an event; None where that is the event itself.
        """
        self._wire_form = wire_form
        self._is_sparse = kind.SPARSE and wire_form is None  # msgspec writes an empty object, which is left out
        self._decode = msgspec.json.Decoder(kind, float_hook=_refuse_fraction).decode
        fields = msgspec.structs.fields(kind)
        self._json = tuple(one.name for one in fields if _holds_json(one.type))
        self._intents = tuple(one.name for one in fields if one.type is IntentInstance)

    def record(self, event: E) -> tuple[E, bytes] | None:
        """Return an event as its readers will decode it, with its canonical text; None if it is not ordinary."""
        try:
            text = _ENCODE(event if self._wire_form is None else self._wire_form(event))
            if len(text) > MAX_BYTES or not text.isascii() or text.count(b"{") + text.count(b"[") > MAX_BRACKETS:
                return None
            if _WIDE_INTEGER.search(text) is not None or (self._is_sparse and b":{}" in text):
                return None
            recorded = self._decode(text)
        except _NOT_ORDINARY:
            return None
        if recorded != event:
            return None
        for name in self._intents:  # two of them are equal if their ids are
            if not getattr(recorded, name).has_content_of(getattr(event, name)):
                return None
        for name in self._json:
            given = getattr(event, name)
            if type(given) is FrozenDict:
                msgspec.structs.force_setattr(recorded, name, given)
            elif given is not None:
                freeze_member(recorded, name)
        return recorded, text


def _refuse_fraction(text: str) -> NoReturn:
    raise RefusedError(ErrorCode.NOT_CANONICAL, f"The number {text} has a fraction or an exponent.")


def _holds_json(kind: Any) -> bool:
    """Return whether a field holds JSON of any form, which is frozen."""
    if kind is Any or get_origin(kind) is dict:
        return True
    return any(map(_holds_json, get_args(kind)))
