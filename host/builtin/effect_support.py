"""What the built-in effects share: strict parameters, failures on their way, and the last look before a change.

``EffectError`` is how a step deep below says that the effect failed; ``answering`` turns it into the error value. What
``call.check`` raises is the engine's and passes through untouched.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from host.effect_call import EffectCallInfo
from host.effects import EFFECT_INVALID_INPUT, EffectFailure
from host.observation.audit import exempt
from world.errors import RefusedError
from world.klis.resources.resource import Resource, canonical_resource
from world.model.canonical_json import canonical_bytes

__all__ = [
    "EFFECT_CANCELLED",
    "EFFECT_NO_WORKSPACE",
    "EFFECT_RESULT_TOO_LARGE",
    "MAX_BYTES",
    "EffectError",
    "Params",
    "answering",
    "file_resource",
    "fits",
    "last_look",
]

EFFECT_CANCELLED: Final = "EFFECT_CANCELLED"
"""The error's code where an effect was broken off because nobody waits for it any more."""

EFFECT_NO_WORKSPACE: Final = "EFFECT_NO_WORKSPACE"
"""The error's code where an effect needs a workspace and there is none."""

EFFECT_RESULT_TOO_LARGE: Final = "EFFECT_RESULT_TOO_LARGE"
"""The error's code where what came back does not fit into a result; size and hash are told."""

MAX_BYTES: Final = 1024 * 1024
"""The canonical text of a result, in bytes; more is no part of a log."""

_ROOM: Final = 512
"""Bytes of a recorded result around the value itself."""


class Params(BaseModel):
    """The parameters of a built-in effect: camelCase, and nothing that is not known."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        hide_input_in_errors=True,
    )


class EffectError(Exception):
    """The effect failed; ``failed`` is its error value."""

    def __init__(
        self, code: str, message: str, context: Mapping[str, Any] | None = None, *, retryable: bool = False
    ) -> None:
        super().__init__(message)
        self.failed = EffectFailure(code, message, context, retryable=retryable)


def answering(function: Callable[[Any, EffectCallInfo], Any]) -> Callable[[Any, EffectCallInfo], Any]:
    """Return a handler's function that answers a ``EffectError`` with its error value.

    What a built-in effect touches was told and judged before it began. How it does so, from directory handles and with
    notes of its own, is the engine's work, so the session's interception has nothing to see there.
    """

    @functools.wraps(function)
    def answered(params: Any, call: EffectCallInfo) -> Any:
        try:
            with exempt():
                return function(params, call)
        except EffectError as fault:
            return fault.failed

    return answered


def last_look(call: EffectCallInfo) -> None:
    """Make sure, immediately before something that cannot be undone, that it may still be done.

    Raises:
        EffectError: ``EFFECT_CANCELLED``. What ``call.check`` raises passes through.
    """
    if call.is_cancelled():
        raise EffectError(EFFECT_CANCELLED, f"{call.effect_type} was cancelled before it changed anything.")
    call.check()


def fits(value: Any) -> bool:
    """Tell whether a result can be recorded.

    Raises:
        RefusedError: ``NOT_CANONICAL`` for what is no JSON.
    """
    return len(canonical_bytes(value)) <= MAX_BYTES - _ROOM


def file_resource(path: str) -> Resource:
    """Return the file that a path names, as agents see it.

    Args:
        path: ``/src/a.py`` or ``FILE:/src/a.py``; ``..`` stays below the root.

    Raises:
        RefusedError: ``EFFECT_INVALID_INPUT`` for what names no single file.
    """
    text = path if path.upper().startswith("FILE:") else f"FILE:{path}"
    try:
        resource = canonical_resource(text)
    except RefusedError as refused:
        raise RefusedError(EFFECT_INVALID_INPUT, f"{path!r:.200} is no path. {refused.message}") from None
    if resource.subtree:
        raise RefusedError(EFFECT_INVALID_INPUT, f"{path!r:.200} is a subtree, where one file or folder must be named.")
    return resource
