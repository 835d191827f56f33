"""Answers of projections and how they are read (intent specification 7.1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from msgspec.structs import force_setattr

from world.code.time_limit import TimeLimitError
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import FrozenDict, freeze
from world.model.intent import IntentBody
from world.model.record import Record

__all__ = [
    "Answer",
    "NoIntent",
    "ProjectionResult",
    "Select",
    "failed",
    "raised_as_refusal",
    "read_result",
    "timed_out",
]


class Select(Record, frozen=True, omit_defaults=True):
    """The projection selected an intent."""

    body: IntentBody
    kind: ClassVar[Literal["intent"]] = "intent"
    WIRE: ClassVar = "kind body"


class NoIntent(Record, frozen=True, omit_defaults=True):
    """The projection selected no intent; a blank ``reason`` counts as none."""

    reason: str | None = None
    kind: ClassVar[Literal["none"]] = "none"
    WIRE: ClassVar = "kind reason"

    def __post_init__(self) -> None:
        if self.reason is not None:
            if not isinstance(self.reason, str):
                raise RefusedError(
                    ErrorCode.INVALID_PROJECTION_RESULT, f"A reason is a string, not {_named(self.reason)}."
                )
            force_setattr(self, "reason", freeze(self.reason) if self.reason.strip() else None)


ProjectionResult = Select | NoIntent
"""Result of a projection (INT-7.1)."""

Answer = Select | NoIntent | IntentBody | Mapping[str, Any] | None
"""Values that a projection may return: a result, its wire form, an IntentBody, or None for no intent."""


def failed(projection_id: str, error: BaseException) -> RefusedError:
    """Return the refusal of a projection that raised an exception."""
    raised = f"{type(error).__name__}: {error}".rstrip(".: ")
    return RefusedError(
        ErrorCode.PROJECTION_FAILED,
        f"The projection {projection_id!r} raised {raised}.",
        projection=projection_id,
        error=type(error).__name__,
    )


def timed_out(projection_id: str, late: TimeLimitError) -> RefusedError:
    """Return the refusal of a projection that exceeded its time limit."""
    return RefusedError(
        ErrorCode.PROJECTION_TIMED_OUT,
        f"The projection {projection_id!r} took longer than {late.limit_ms} ms, so nothing was selected or recorded; "
        "correct it, or raise the limit max_call_ms.",
        projection=projection_id,
        limit_ms=late.limit_ms,
    )


def raised_as_refusal(projection_id: str, call: Callable[[], Any]) -> Any:
    """Return the result of a call into a projection; its exceptions become refusals.

    Raises:
        RefusedError: ``PROJECTION_FAILED`` for anything that it raises, ``SystemExit`` included;
            ``PROJECTION_TIMED_OUT`` when it exceeds its time limit.
    """
    try:
        return call()
    except TimeLimitError as late:
        raise timed_out(projection_id, late) from None
    except (Exception, SystemExit) as error:
        raise failed(projection_id, error) from error


def read_result(projection_id: str, answer: Any) -> ProjectionResult:
    """Return the result that a projection's answer means.

    Args:
        projection_id: the projection, for errors.
        answer: ``Select``, ``NoIntent``, an ``IntentBody``, None, or the wire form of a result.

    Raises:
        RefusedError: ``INVALID_PROJECTION_RESULT`` for anything else, with the path of the fault in the wire form.
    """
    if isinstance(answer, NoIntent):
        return answer
    if isinstance(answer, Select):
        answer = answer.body
        if not isinstance(answer, IntentBody):
            raise _no_result(projection_id, f"Select holds {_named(answer)} in place of an IntentBody")
    if isinstance(answer, IntentBody):
        return Select(answer)
    if answer is None:
        return NoIntent()
    if isinstance(answer, Mapping):
        return _read_wire(projection_id, answer)
    if inspect.iscoroutine(answer):
        answer.close()  # it is never awaited
    raise _no_result(projection_id, f"it is {_named(answer)}")


def _read_wire(projection_id: str, wire: Mapping[str, Any]) -> ProjectionResult:
    kind = wire.get("kind")
    allowed = {"none": {"kind", "reason"}, "intent": {"kind", "body"}}.get(kind if isinstance(kind, str) else "")
    if allowed is None:
        raise _no_result(projection_id, f"its kind is {kind!r}, neither 'intent' nor 'none'")
    unknown = sorted(str(key) for key in wire.keys() - allowed)
    if unknown:
        raise _no_result(projection_id, f"a result of kind {kind!r} has no {', '.join(unknown)}")
    try:
        return NoIntent(wire.get("reason")) if kind == "none" else Select(IntentBody.read(wire.get("body"), "$.body"))
    except RefusedError as refused:
        raise _no_result(projection_id, refused.message.rstrip("."), refused.details) from None


def _named(value: Any) -> str:
    return f"{type(value).__name__} {repr(value)[:80]}"


def _no_result(projection_id: str, why: str, details: Mapping[str, Any] = FrozenDict()) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_PROJECTION_RESULT,
        f"The projection {projection_id!r} gave no valid answer: {why}. Return None, NoIntent(reason), an "
        'IntentBody, or {"kind": "intent", "body": {...}}.',
        projection=projection_id,
        **details,
    )
