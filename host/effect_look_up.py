"""Looking an effect in doubt up: the ``look_up`` of its handler, called in the way of the handler itself.

Source: design section 8; HC-journal.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from inspect import isawaitable
from typing import Any, Final

from host.effect_call import DoubtfulEffect, EffectCallInfo
from host.effects import EffectFailure, EffectHandler, EffectResult

__all__ = ["NOT_KNOWN", "asking"]

NOT_KNOWN: Final = "not known"
"""Code of the answer where it is not known what became of an effect; it is not recorded."""


def asking(handler: EffectHandler) -> EffectHandler | None:
    """Return a handler that looks an effect up and does not perform it; None where its handler has no ``look_up``.

    Its answer is the result that was found, or ``EffectFailure`` with the code ``NOT_KNOWN``.
    """
    look_up = handler.look_up
    if look_up is None:
        return None

    def ask(params: Any, call: EffectCallInfo) -> Any:
        key, attempt = call.idempotency_key, call.attempt
        found = look_up(
            DoubtfulEffect(call.effect_type, params, key, call.intent_id, call.proposal_id, call.requested_at, attempt)
        )
        return _awaited(found) if isawaitable(found) else _found(found)

    return replace(handler, function=ask, look_up=None)


async def _awaited(answer: Awaitable[EffectResult | None]) -> EffectResult | EffectFailure:
    return _found(await answer)


def _found(answer: EffectResult | None) -> EffectResult | EffectFailure:
    """Return the answer of a look-up as that of a handler.

    Raises:
        TypeError: it is neither a result nor None.
    """
    if answer is None:
        return EffectFailure(NOT_KNOWN, "It is not known whether the effect happened.")
    if not isinstance(answer, EffectResult):
        raise TypeError(f"look_up returned {answer!r:.100}; it must return EffectResult, or None for what is not known")
    return answer
