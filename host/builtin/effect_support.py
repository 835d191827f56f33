"""Shared parts of the built-in effects: strict parameters, failures, and the check before a change.

``EffectError`` reports a failure from nested code; ``with_error_values`` converts it to the error value. An exception
of ``call.check`` belongs to the engine and is not converted.
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
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import canonical_resource
from world.model.canonical_json import canonical_bytes

__all__ = [
    "EFFECT_CANCELLED",
    "EFFECT_NO_WORKSPACE",
    "EFFECT_RESULT_TOO_LARGE",
    "MAX_BYTES",
    "EffectError",
    "Params",
    "check_before_change",
    "file_resource",
    "fits",
    "with_error_values",
]

EFFECT_CANCELLED: Final = "EFFECT_CANCELLED"
"""Error code for an effect that was stopped because it was cancelled."""

EFFECT_NO_WORKSPACE: Final = "EFFECT_NO_WORKSPACE"
"""Error code for an effect that needs a workspace where there is none."""

EFFECT_RESULT_TOO_LARGE: Final = "EFFECT_RESULT_TOO_LARGE"
"""Error code for a response that does not fit into a result; its size and hash are reported."""

MAX_BYTES: Final = 1024 * 1024
"""Largest canonical text of a result, in bytes."""

_ROOM: Final = 512
"""Bytes of a recorded result besides the value itself."""


class Params(BaseModel):
    """The parameters of a built-in effect: camelCase, and no unknown members."""

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


def with_error_values(function: Callable[[Any, EffectCallInfo], Any]) -> Callable[[Any, EffectCallInfo], Any]:
    """Wrap a handler's function so that an ``EffectError`` becomes its error value.

    The touches of a built-in effect were declared and checked before it began. Its implementation, by directory handles
    and with its own notes, is exempt from the session's interception.
    """

    @functools.wraps(function)
    def call_with_error_values(params: Any, call: EffectCallInfo) -> Any:
        try:
            with exempt():
                return function(params, call)
        except EffectError as fault:
            return fault.failed

    return call_with_error_values


def check_before_change(call: EffectCallInfo) -> None:
    """Check, immediately before an irreversible step, that the effect may still be made.

    Raises:
        EffectError: ``EFFECT_CANCELLED``. An exception of ``call.check`` is passed on.
    """
    if call.is_cancelled():
        raise EffectError(EFFECT_CANCELLED, f"{call.effect_type} was cancelled before it changed anything.")
    call.check()


def fits(value: Any) -> bool:
    """Whether a result can be recorded.

    Raises:
        RefusedError: ``NOT_CANONICAL`` for a value that is not JSON.
    """
    return len(canonical_bytes(value)) <= MAX_BYTES - _ROOM


def file_resource(path: str) -> Resource:
    """Return the file resource of a path as agents see it.

    Args:
        path: ``/src/a.py`` or ``FILE:/src/a.py``; ``..`` stays below the root.

    Raises:
        RefusedError: ``EFFECT_INVALID_INPUT`` for a path that does not name a single file.
    """
    text = path if path.upper().startswith("FILE:") else f"FILE:{path}"
    try:
        resource = canonical_resource(text)
    except RefusedError as refused:
        raise RefusedError(EFFECT_INVALID_INPUT, f"{path!r:.200} is not a valid path. {refused.message}") from None
    if resource.subtree:
        raise RefusedError(EFFECT_INVALID_INPUT, f"{path!r:.200} is a subtree; name a single file or folder.")
    return resource
