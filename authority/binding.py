"""Bindings: by which authority an actor's proposals are judged; every actor has exactly one (WP-bind).

======================  ==========================================================================
``auto_approve``        every proposal is approved as proposed; an Authority too (INT-4.1)
``policy_rules``        a policy's rules judge; ``ask``, ``timeoutMs`` and ``onTimeout`` say how
                        people are asked where a rule escalates
``hitl``                people decide: ``ask``, ``timeoutMs``, ``onTimeout``
======================  ==========================================================================

A binding is a closed record: unknown kinds, fields and values are refused. Bindings can be shared: nothing in
them names the actor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from authority.human import ANYBODY, Asking
from authority.opinions import MAX_ASKED
from world.errors import Refused
from world.values import Identifier, Value

DAY_MS: Final = 86_400_000
"""How long people are waited for where a binding says nothing else, in milliseconds: one day."""

MAX_TIMEOUT_MS: Final = 3_650 * DAY_MS
"""Longest time to wait, in milliseconds: ten years; null waits for ever."""


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _distinct(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(ids)) < len(ids):
        raise ValueError("names an actor twice")
    return ids


Asked = Annotated[
    tuple[Identifier, ...],
    BeforeValidator(_as_tuple),
    Field(min_length=1, max_length=MAX_ASKED),
    AfterValidator(_distinct),
]
"""Ids of actors who may answer, at least one; ``*`` is any human."""


class AutoApproveBinding(Value):
    """Every proposal is approved as proposed."""

    kind: Literal["auto_approve"]


class _AskingBinding(Value):
    """What bindings share that may ask people."""

    ask: Asked = (ANYBODY,)
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] | None = DAY_MS
    on_timeout: Literal["approve", "reject"] = "reject"

    @property
    def asking(self) -> Asking:
        """How people are asked."""
        return Asking(self.ask, self.timeout_ms, self.on_timeout)

    def to_wire(self) -> dict[str, Any]:
        """Return the full form; a ``timeoutMs`` of null is told, because it is not the default."""
        wire = super().to_wire()
        return {**wire, "ask": list(self.ask), "timeoutMs": self.timeout_ms}


class PolicyRulesBinding(_AskingBinding):
    """The rules of a policy judge."""

    kind: Literal["policy_rules"]
    policy: Identifier


class HitlBinding(_AskingBinding):
    """People decide."""

    kind: Literal["hitl"]


Binding = AutoApproveBinding | PolicyRulesBinding | HitlBinding

KINDS: Final[Mapping[str, type[AutoApproveBinding] | type[PolicyRulesBinding] | type[HitlBinding]]] = {
    "auto_approve": AutoApproveBinding,
    "policy_rules": PolicyRulesBinding,
    "hitl": HitlBinding,
}


def read_binding(wire: Mapping[str, Any]) -> Binding:
    """Return the binding in wire form, defaults filled in.

    Raises:
        Refused: ``BINDING_NOT_AVAILABLE`` for a tribunal, ``UNKNOWN_BINDING`` for any other kind that is
            none, ``INVALID_VALUE`` for wrong or unknown fields.
    """
    kind = wire.get("kind") if isinstance(wire, Mapping) else None
    reader = KINDS.get(kind) if isinstance(kind, str) else None
    if reader is not None:
        return reader.read(wire)
    known = ", ".join(KINDS)
    if kind == "tribunal":
        raise Refused(
            "BINDING_NOT_AVAILABLE",
            f"Tribunals are not available in this version; bind the actor by one of {known}.",
            kind=kind,
            known=list(KINDS),
        )
    raise Refused(
        "UNKNOWN_BINDING",
        f"A binding is an object whose kind is one of {known}, not {kind!r:.80}.",
        known=list(KINDS),
    )
