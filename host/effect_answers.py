"""What a handler answered, read strictly: a result that can be journaled, or an error value.

Nothing of a handler's answer is trusted: it must be JSON, its patches must be patches, and it must fit into
one event of the log. What does not becomes the error value ``EFFECT_INVALID_RESULT``.
Source: HC-handlers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from host.effects import EffectFailure, EffectResult
from world.core import EffectAnswer
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import freeze
from world.model.patch import Patch
from world.model.snapshot import ErrorValue, Requirement

__all__ = ["MAX_RESULT_BYTES", "Answered", "EffectPlace", "shown"]

MAX_RESULT_BYTES: Final = 1024 * 1024
"""Canonical text of one result, in bytes; more than that belongs into a file whose hash is the result."""

MAX_MESSAGE_CHARS: Final = 500
"""Characters kept of what an exception says."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A handler's answer, read: the result, and whether the handler says that trying again may help."""

    result: EffectAnswer
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class EffectPlace:
    """Where an effect stands in its execution, so that its failures can be told.

    Args:
        requirement: the effect.
        now: the execution's frozen time, ms since 1970.
    """

    requirement: Requirement
    now: int

    def failed(self, code: str, message: str, context: Mapping[str, Any] | None = None) -> EffectAnswer:
        """Return the result of an effect that failed, with an error value that names its place.

        Raises:
            RefusedError: ``NOT_CANONICAL`` for a context that is no JSON.
        """
        asked = self.requirement
        told = None if context is None else freeze(dict(context))
        return EffectAnswer(
            error=ErrorValue(_sound(code), _sound(message), asked.action_id, asked.node_path, self.now, told)
        )

    def raised(self, error: BaseException) -> EffectAnswer:
        """Return the result of an effect whose handler raised: type and message, no traceback."""
        kind = _sound(type(error).__name__)
        return self.failed(
            "EFFECT_RAISED", f"The handler of {self.requirement.type} raised {shown(error)}", {"type": kind}
        )

    def invalid(self, why: str) -> EffectAnswer:
        """Return the result of an effect whose handler answered nonsense."""
        return self.failed("EFFECT_INVALID_RESULT", f"The handler of {self.requirement.type} answered {why}")

    def answer(self, given: Any) -> Answered:
        """Return what a handler's answer comes to, as ``read`` does, with whether trying again may help."""
        return Answered(self.read(given), isinstance(given, EffectFailure) and given.retryable is True)

    def read(self, given: Any) -> EffectAnswer:
        """Return what a handler's answer comes to; errors of the answer are error values.

        Args:
            given: whatever the handler returned.
        """
        try:
            result = self._failure(given) if isinstance(given, EffectFailure) else self._success(given)
            size = len(canonical_bytes(result.to_wire()))
        except RefusedError as refused:
            return self.invalid(f"what cannot be recorded. {refused.message}"[:MAX_MESSAGE_CHARS])
        if size > MAX_RESULT_BYTES:
            return self.invalid(f"{size} bytes; a result has at most {MAX_RESULT_BYTES}.")
        return result

    def _failure(self, given: EffectFailure) -> EffectAnswer:
        parts: tuple[Any, Any, Any] = (given.code, given.message, given.context)
        code, message, context = parts
        if not (isinstance(code, str) and code and isinstance(message, str)):
            return self.invalid("a failure whose code and message are no texts.")
        if context is not None and not isinstance(context, Mapping):
            return self.invalid("a failure whose context is no object.")
        return self.failed(code, message, context)

    def _success(self, given: Any) -> EffectAnswer:
        done = given if isinstance(given, EffectResult) else _unwrapped(given)
        if not isinstance(done.patches, (list, tuple)):
            return self.invalid(f"patches that are no list but {type(done.patches).__name__}.")
        given_patches: Sequence[Any] = done.patches
        for patch in given_patches:
            if not isinstance(patch, Patch):
                return self.invalid(f"patches one of which is {type(patch).__name__}.")
        return EffectAnswer(freeze(done.value), tuple(_checked(patch) for patch in given_patches))


def _unwrapped(given: Any) -> EffectResult:
    if isinstance(given, Patch):
        return EffectResult(patches=(given,))
    if isinstance(given, (list, tuple)) and given and all(isinstance(item, Patch) for item in given):
        return EffectResult(patches=given)
    return EffectResult(given)


def _checked(patch: Patch) -> Patch:
    """Return a patch as it will be read from the log; a patch made by hand may hold anything."""
    freeze(patch.path)
    return Patch.from_wire(patch.to_wire())


def shown(error: BaseException) -> str:
    """Return an exception's type and message as one text that can be recorded."""
    try:
        told = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide that the handler raised
        told = "(it cannot say what)"
    return _sound(f"{type(error).__name__}: {told}"[:MAX_MESSAGE_CHARS])


def _sound(text: str) -> str:
    """Replace halves of surrogate pairs, which could not be recorded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
