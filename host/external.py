"""Declaration of external effects: workers in other processes perform them, and this process offers them.

The declaration has the terms of a handler and no function. What it touches is declared here, because manifests are made
in this process; a worker has a handler of the same type. ::

    external("mail.send", time_limit_ms=10_000, idempotent=True, touches=[("MUTATES", "URL:https://mail.example/*")])

Source: design section 8; HC-handlers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from host.effect_call import EffectCallInfo
from host.effects import EffectFailure, EffectHandler, EffectOptions, handler
from world.code.keyword_options import check_names
from world.core.effects.effect_types import EffectType

__all__ = ["ExternalOptions", "external"]


class ExternalOptions(EffectOptions, total=False):
    """Options of ``external``: those of ``EffectOptions``, and further ones.

    An effect whose worker does not report in time is offered again where ``idempotent`` is set; otherwise a person
    decides. ``time_limit_ms`` is the time for which the claim of a worker holds without a heartbeat.

    Args:
        needs_workspace: whether its worker must have the workspace of the realm; False by default.
        by_actor: whether the acting actor performs it itself, as an agent does with the call of a tool: other verified
            callers may not claim it, the actor may with the right ``actor``, and a worker that claims what is
            offered leaves it alone. False by default.
    """

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
    common: EffectOptions = {**options}  # type: ignore[typeddict-unknown-key]  # the two further options are removed next
    common.pop("needs_workspace", None)  # type: ignore[typeddict-item]
    common.pop("by_actor", None)  # type: ignore[typeddict-item]
    declared = handler(effect_type, **common)(_performed_elsewhere)
    further = {"needs_workspace": options.get("needs_workspace", False), "by_actor": options.get("by_actor", False)}
    return replace(declared, terms=replace(declared.terms, external=True, **further))


def _performed_elsewhere(_params: Mapping[str, Any], call: EffectCallInfo) -> EffectFailure:
    """Answer a direct call of the declaration; the engine makes none."""
    return EffectFailure("EFFECT_NO_HANDLER", f"Effect {call.effect_type!r} is external; a worker performs it.")
