"""Whether one action is available, as far as that can be told without executing it (intent specification 7.4.2).

Three answers, and each is kept apart from the others: available, unavailable, and unknown, because context is missing
or because the predicate cannot be decided here. What is unknown the core decides when it is invoked (INT-7.4.5).

An expression that gives no boolean decides nothing: null counts as missing context, anything else as indeterminate.
A local function is called twice under watch: one that raises, reaches outside of what it is given, takes too long, or
answers differently the second time is indeterminate. Where it does not say yes it is called once more, to note whether
it asked for anything that is absent: then its context is missing. For this room's catalogs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from projections.descriptors import ActionDescriptor, not_at_hand
from projections.noting import NotingContext
from projections.purity.run_watch import watched
from world.code.time_limit import TimeLimit, TimeLimitError, breakable
from world.core import AvailabilityContext, ExpressionError, LocalPredicate, Scope
from world.core.availability import CompiledPredicate, actor_fields, read_answer
from world.model.actor import ActorRef
from world.model.snapshot import SnapshotView

__all__ = [
    "AVAILABLE",
    "INDETERMINATE",
    "MISSING_CONTEXT",
    "UNAVAILABLE",
    "Availability",
    "Decider",
    "Judged",
    "Status",
]

Status = Literal["available", "unavailable", "unknown"]


@dataclass(frozen=True, slots=True)
class Availability:
    """What is known about one action's availability (INT-3.4c).

    Args:
        status: one of the three.
        reason: for unknown ``missing_context`` or ``indeterminate``; for unavailable a sentence, where it is shown.
    """

    status: Status
    reason: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return ``{"status", "reason"?}``."""
        return {"status": self.status} if self.reason is None else {"status": self.status, "reason": self.reason}


AVAILABLE: Final = Availability("available")
UNAVAILABLE: Final = Availability("unavailable")
MISSING_CONTEXT: Final = Availability("unknown", "missing_context")
INDETERMINATE: Final = Availability("unknown", "indeterminate")

Decided = tuple[Availability, str]
"""An answer and, where more than the answer is known, a sentence that says why; else the empty text."""

Judged = tuple[ActionDescriptor, Availability, str]
"""An action and what was decided about it."""

_NO_TIME_LIMIT: Final = TimeLimit()


class Decider:
    """Decides predicates over one view for one actor.

    Args:
        view: data and computed values, frozen.
        actor: who acts; None is nobody in particular.
        time_limit: for each call of a local function.
    """

    __slots__ = ("actor", "fields", "time_limit", "view")

    def __init__(self, view: SnapshotView, actor: ActorRef | None, time_limit: TimeLimit = _NO_TIME_LIMIT) -> None:
        """Decide over a view."""
        self.view = view
        self.actor = actor
        self.fields = actor_fields(actor)
        self.time_limit = time_limit

    def decide(self, action: ActionDescriptor) -> Decided:
        """Return whether an action is available, and why where that is worth saying."""
        if action.predicate is not None:
            return self._expression(action.predicate)
        if isinstance(action.available, LocalPredicate):
            return self._function(action.available)
        return AVAILABLE, ""

    def scope(self) -> Scope:
        """Return what a predicate's expression may read."""
        return Scope(self.view.data, computed=self.view.computed, meta=self.fields)

    def _expression(self, predicate: CompiledPredicate) -> Decided:
        # What it needs comes first: an `and` that ends early would hide that it is absent (INT-7.4.2e).
        if (predicate.actor or predicate.computed) and (absent := predicate.missing(self.fields, self.view.computed)):
            return MISSING_CONTEXT, f"{_listed(absent)} absent"
        try:
            value = predicate.evaluate(self.scope())
        except (ExpressionError, RecursionError) as error:
            return INDETERMINATE, str(error).rstrip(".") or type(error).__name__
        if value is True:
            return AVAILABLE, ""
        if value is False:
            return UNAVAILABLE, ""
        if value is None:
            return MISSING_CONTEXT, "the predicate gives null"
        return INDETERMINATE, f"the predicate gives {_kind(value)}, neither true nor false"

    def _function(self, local: LocalPredicate) -> Decided:
        if local.evaluate is not_at_hand:
            return INDETERMINATE, f"{local.name} is not at hand here"
        context = AvailabilityContext.of(self.view, self.actor)
        first = self._asked(local, context)
        if not isinstance(first, str) and self._asked(local, context) is not first:
            return INDETERMINATE, f"{local.name} does not answer the same question in the same way twice"
        if first is True:
            return AVAILABLE, ""
        noting = NotingContext(context)
        self._asked(local, noting)
        if noting.absent:
            return MISSING_CONTEXT, f"{_listed(list(noting.absent))} absent"
        return (INDETERMINATE, first) if isinstance(first, str) else (UNAVAILABLE, "")

    def _asked(self, local: LocalPredicate, context: Any) -> bool | str:
        """Return a function's answer, or why there is none."""
        try:
            # Broken off is the function alone: what stops watching it must run to its end.
            given, found = self.time_limit.run(
                lambda: watched(lambda: breakable(lambda: local.evaluate(context))), unbroken=True
            )
        except TimeLimitError as late:
            return f"{local.name} took longer than {late.limit_ms} ms"
        except (Exception, SystemExit) as error:  # noqa: BLE001  # its author's function may raise anything
            return f"{local.name} raised {type(error).__name__}: {error}".rstrip(".: ")
        if found is not None:
            impurity, where = found
            return f"{local.name} uses {impurity.what}{f' at {where}' if where else ''}, and a predicate is pure"
        answer = read_answer(given)
        return f"{local.name} answers {type(given).__name__}, which is no JSON" if answer is None else answer


def _listed(names: list[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _kind(value: Any) -> str:
    if isinstance(value, (int, float)):
        return "a number"
    return "a text" if isinstance(value, str) else "an array" if isinstance(value, list) else "an object"
