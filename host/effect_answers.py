"""Strict reading of a handler's answer: a result that can be journaled, or an error value.

A handler's answer is untrusted: it must be JSON, its patches must be ``Patch`` values, and it must fit into one event
of the log. Any other answer becomes the error value ``EFFECT_INVALID_RESULT``.
Source: HC-handlers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from host.effects import EffectFailure, EffectResult
from world.core.effects.effect_types import EffectType
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import freeze
from world.model.patch import Patch
from world.model.snapshot import EffectAnswer, ErrorValue, Requirement

__all__ = ["MAX_RESULT_BYTES", "Answered", "EffectPlace", "shown"]

MAX_RESULT_BYTES: Final = 1024 * 1024
"""Largest canonical text of one result, in bytes; larger content belongs in a file whose hash is the result."""

MAX_MESSAGE_CHARS: Final = 500
"""Characters kept of an exception's message."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A handler's answer as read: the result, and whether the handler allows a retry."""

    result: EffectAnswer
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class EffectPlace:
    """Position of an effect in its execution; its failures name it.

    Args:
        requirement: the effect.
        now: the execution's frozen time, ms since 1970.
        declared: the declaration with the type of its result; None accepts any JSON.
    """

    requirement: Requirement
    now: int
    declared: EffectType[Any, Any, Any] | None = None

    def failed(self, code: str, message: str, context: Mapping[str, Any] | None = None) -> EffectAnswer:
        """Return the result of an effect that failed, with an error value that names its place.

        Raises:
            RefusedError: ``NOT_CANONICAL`` for a context that is no JSON.
        """
        requirement = self.requirement
        context_value = None if context is None else freeze(dict(context))
        return EffectAnswer(
            error=ErrorValue.at(
                _sound(code), _sound(message), requirement.action_id, requirement.node_path, self.now, context_value
            )
        )

    def raised(self, error: BaseException) -> EffectAnswer:
        """Return the result of an effect whose handler raised: type and message, no traceback."""
        kind = _sound(type(error).__name__)
        return self.failed(
            "EFFECT_RAISED", f"The handler of {self.requirement.type} raised {shown(error)}", {"type": kind}
        )

    def invalid(self, why: str) -> EffectAnswer:
        """Return the result of an effect whose handler returned something invalid."""
        return self.failed("EFFECT_INVALID_RESULT", f"The handler of {self.requirement.type} returned {why}")

    def answer(self, given: Any) -> Answered:
        """Return an answer as ``read`` does, together with whether a retry may help."""
        return Answered(self.read(given), isinstance(given, EffectFailure) and given.retryable is True)

    def read(self, given: Any) -> EffectAnswer:
        """Convert a handler's answer to a result; a faulty answer becomes an error value.

        Args:
            given: whatever the handler returned.
        """
        try:
            result = self._failure(given) if isinstance(given, EffectFailure) else self._success(given)
            size = len(canonical_bytes(result.to_wire()))
        except RefusedError as refused:
            return self.invalid(f"a value that cannot be recorded. {refused.message}"[:MAX_MESSAGE_CHARS])
        if size > MAX_RESULT_BYTES:
            return self.invalid(f"a result of {size} bytes; the limit is {MAX_RESULT_BYTES}. Store it in a file.")
        return result

    def _failure(self, given: EffectFailure) -> EffectAnswer:
        parts: tuple[Any, Any, Any] = (given.code, given.message, given.context)
        code, message, context = parts
        if not (isinstance(code, str) and code and isinstance(message, str)):
            return self.invalid("a failure whose code or message is not a text.")
        if context is not None and not isinstance(context, Mapping):
            return self.invalid("a failure whose context is not an object.")
        return self.failed(code, message, context)

    def _success(self, given: Any) -> EffectAnswer:
        done = given if isinstance(given, EffectResult) else _unwrapped(given)
        if not isinstance(done.patches, (list, tuple)):
            return self.invalid(f"patches of type {type(done.patches).__name__}; return a list of Patch values.")
        given_patches: Sequence[Any] = done.patches
        for patch in given_patches:
            if not isinstance(patch, Patch):
                return self.invalid(f"a list of patches that contains a {type(patch).__name__}.")
        value = done.value if self.declared is None or done.patches else self.declared.recorded(done.value)
        return EffectAnswer(freeze(value), tuple(_checked(patch) for patch in given_patches))


def _unwrapped(given: Any) -> EffectResult:
    if isinstance(given, Patch):
        return EffectResult(patches=(given,))
    if isinstance(given, (list, tuple)) and given and all(isinstance(item, Patch) for item in given):
        return EffectResult(patches=given)
    return EffectResult(given)


def _checked(patch: Patch) -> Patch:
    """Return a patch as it is read back from the log; a patch built by hand may hold any value."""
    freeze(patch.path)
    return Patch.from_wire(patch.to_wire())


def shown(error: BaseException) -> str:
    """Return an exception's type and message as one text that can be recorded."""
    try:
        description = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that the handler raised
        description = "(its message cannot be read)"
    return _sound(f"{type(error).__name__}: {description}"[:MAX_MESSAGE_CHARS])


def _sound(text: str) -> str:
    """Replace lone surrogates, which cannot be recorded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
