"""Scope of an expression's evaluation, and deterministic ids and random numbers.

Time, ids and random numbers come from the computation's context alone, so the same computation gives the
same result at any time (HC-context; design section 4).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from world.core.values import ExpressionError

__all__ = ["MAX_ITERATIONS", "EvaluationContext", "Scope", "seeded_fraction", "seeded_id"]

MAX_ITERATIONS: Final = 1_000_000
"""Maximum number of elements that one computation may visit, nested ones multiplied."""


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """Intent, action, time and seed of an evaluation.

    Args:
        intent_id: the intent that is executed.
        action_id: the action that is executed.
        now: the computation's frozen time, ms since 1970-01-01 UTC.
        seed: the computation's frozen random seed.
    """

    intent_id: str | None = None
    action_id: str | None = None
    now: int = 0
    seed: str = ""


class Scope:
    """Values of one evaluation; ``item``, ``index``, ``array`` change in iterations."""

    __slots__ = (
        "action_id", "array", "budget", "computed", "data", "ids", "index", "input", "intent_id", "item",
        "meta", "now", "seed", "system",
    )  # fmt: skip

    def __init__(
        self,
        data: Any,
        *,
        computed: Mapping[str, Any],
        input: Any = None,  # noqa: A002 - the specification's word
        system: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        context: EvaluationContext | None = None,
    ) -> None:
        """Create the scope of an evaluation.

        Args:
            data: the domain's data.
            computed: computed values under their full names (``computed.openCount``).
            input: the intent's input.
            system: the snapshot's ``system`` part in its wire form.
            meta: the snapshot's ``meta`` part in its wire form.
            context: intent, action, time and seed; None is the default context.
        """
        self.data = data
        self.computed = computed
        self.input = input
        self.system = system
        self.meta = meta
        context = context or EvaluationContext()
        self.intent_id = context.intent_id
        self.action_id = context.action_id
        self.now = context.now
        self.seed = context.seed
        self.item: Any = None
        self.index: int | None = None
        self.array: Any = None
        self.ids = 0
        self.budget = MAX_ITERATIONS

    def spend(self, elements: int) -> None:
        """Count elements that are about to be visited.

        Raises:
            ExpressionError: ``LIMIT_EXCEEDED`` when this computation has visited more than
                ``MAX_ITERATIONS``.
        """
        self.budget -= elements
        if self.budget < 0:
            raise ExpressionError("LIMIT_EXCEEDED", f"One computation visits more than {MAX_ITERATIONS} elements.")

    def next_id(self) -> str:
        """Return the next of this computation's ids."""
        self.ids += 1
        return seeded_id(self.seed, self.ids)


def seeded_id(seed: str, counter: int) -> str:
    """Return the UUID (RFC 9562, version 8) of the n-th id of a computation."""
    bits = hashlib.sha256(f"id:{counter}:{seed}".encode("utf-8", "surrogatepass")).hexdigest()
    variant = "89ab"[int(bits[16], 16) & 3]
    return f"{bits[:8]}-{bits[8:12]}-8{bits[13:16]}-{variant}{bits[17:20]}-{bits[20:32]}"


def seeded_fraction(seed: str, counter: int) -> float:
    """Return the n-th random number of a computation, 0 <= x < 1 with 53 bits."""
    digest = hashlib.sha256(f"random:{counter}:{seed}".encode("utf-8", "surrogatepass")).digest()
    return float((int.from_bytes(digest[:8], "big") >> 11) / (1 << 53))
