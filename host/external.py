"""Declaration of external effects: workers in other processes perform them, and this process offers them.

The declaration has the terms of a handler and no function. What it touches is declared here, because manifests are made
in this process; a worker has a handler of the same type. ::

    external("mail.send", time_limit_ms=10_000, idempotent=True, touches=[("MUTATES", "URL:https://mail.example/*")])

Source: design section 8; HC-handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from host.effect_call import EffectCallInfo
from host.effect_resources import Touch, TouchesOf
from host.effects import EffectFailure, EffectHandler, HandlerOptions, handler
from world.code.keyword_options import check_names
from world.core.effect_types import EffectType

__all__ = ["ExternalOptions", "external"]


class ExternalOptions(TypedDict, total=False):
    """Options of ``external``; those that ``host.effects.HandlerOptions`` has too mean the same.

    Args:
        input: the type of its parameters.
        touches: the resources that it touches.
        idempotent: whether a repetition of an effect with the same idempotency key is harmless, or a function that
            returns it. An effect whose worker does not report in time is offered again only then; otherwise a person
            decides. False by default.
        time_limit_ms: time for which the claim of a worker holds without a heartbeat, in milliseconds, or a function
            that returns it.
        retries: how often an effect is offered again after a failure that may be temporary; 0 by default.
        backoff_ms: wait before the first retry, in milliseconds; it doubles with each.
        needs_workspace: whether its worker must have the workspace of the realm; False by default.
        by_actor: whether the acting actor performs it itself, as an agent does with the call of a tool: other verified
            callers may not claim it, the actor may with the right ``actor``, and a worker that claims what is
            offered leaves it alone. False by default.
    """

    input: Any
    touches: Iterable[Touch] | TouchesOf
    idempotent: bool | Callable[[Any], bool]
    time_limit_ms: int | Callable[[Any], int]
    retries: int
    backoff_ms: int
    needs_workspace: bool
    by_actor: bool


def external(effect_type: str | EffectType[Any, Any, Any], /, **options: Unpack[ExternalOptions]) -> EffectHandler:
    """Return the declaration of an external effect, to be added to a registry like a handler.

    Args:
        effect_type: the effect's name, such as ``mail.send``, or its declaration with types.
        **options: see ``ExternalOptions``.

    Raises:
        RefusedError: ``INVALID_HANDLER``.
        TypeError: an option that does not exist.
    """
    check_names(options, ExternalOptions)
    common: HandlerOptions = {**options}  # type: ignore[typeddict-item]  # the two further options are removed next
    common.pop("needs_workspace", None)  # type: ignore[typeddict-item]
    common.pop("by_actor", None)  # type: ignore[typeddict-item]
    declared = handler(effect_type, **common)(_performed_elsewhere)
    further = {"needs_workspace": options.get("needs_workspace", False), "by_actor": options.get("by_actor", False)}
    return replace(declared, terms=replace(declared.terms, external=True, **further))


def _performed_elsewhere(_params: Mapping[str, Any], call: EffectCallInfo) -> EffectFailure:
    """Answer a direct call of the declaration; the engine makes none."""
    return EffectFailure("EFFECT_NO_HANDLER", f"Effect {call.effect_type!r} is external; a worker performs it.")
