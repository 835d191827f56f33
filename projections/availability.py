"""Decide whether an action is available without executing it.

There are three answers: available, unavailable, and unknown, either because context is missing or because the predicate
is indeterminate. The core decides unknown actions when they are invoked (INT-7.4.5).

An expression without a boolean result decides nothing: null counts as missing context, anything else as indeterminate.
A local function is called twice under watch: it is indeterminate if it raises, is impure, exceeds its time limit, or
gives two different answers. If the answer is not True it is called once more to record whether it read an absent value;
then its context is missing. Source: intent specification 7.4.2.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from projections.descriptors import ActionDescriptor, missing_function
from projections.read_tracking import TrackingContext
from world.code.run_watch import watched
from world.code.time_limit import TimeLimit, TimeLimitError, breakable
from world.core import AvailabilityContext, ExpressionError, LocalPredicate, Scope
from world.core.availability import CompiledPredicate, actor_fields, read_answer
from world.model.actor import ActorRef
from world.model.record import Record
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


class Availability(Record, frozen=True, omit_defaults=True):
    """Availability of one action (INT-3.4c).

    Args:
        status: one of the three.
        reason: ``missing_context`` or ``indeterminate`` for unknown; a sentence for unavailable, where it is shown.
    """

    status: Status
    reason: str | None = None


AVAILABLE: Final = Availability("available")
UNAVAILABLE: Final = Availability("unavailable")
MISSING_CONTEXT: Final = Availability("unknown", "missing_context")
INDETERMINATE: Final = Availability("unknown", "indeterminate")

Decided = tuple[Availability, str]
"""Availability and its reason as a sentence; the sentence is empty where none is known."""

Judged = tuple[ActionDescriptor, Availability, str]
"""An action, its availability, and the reason."""

_NO_TIME_LIMIT: Final = TimeLimit()


class Decider:
    """Evaluates predicates over one view for one actor.

    Args:
        view: data and computed values, frozen.
        actor: the acting actor; None without one.
        time_limit: for each call of a local function.
    """

    __slots__ = ("actor", "fields", "time_limit", "view")

    def __init__(self, view: SnapshotView, actor: ActorRef | None, time_limit: TimeLimit = _NO_TIME_LIMIT) -> None:
        """Create a decider for a view and an actor."""
        self.view = view
        self.actor = actor
        self.fields = actor_fields(actor)
        self.time_limit = time_limit

    def decide(self, action: ActionDescriptor) -> Decided:
        """Return the availability of an action and its reason."""
        if action.predicate is not None:
            return self._expression(action.predicate)
        if isinstance(action.available, LocalPredicate):
            return self._function(action.available)
        return AVAILABLE, ""

    def scope(self) -> Scope:
        """Return the scope of a predicate's expression."""
        return Scope(self.view.data, computed=self.view.computed, meta=self.fields)

    def _expression(self, predicate: CompiledPredicate) -> Decided:
        # Absent inputs are checked first: an `and` that stops early would hide them (INT-7.4.2e).
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
        if local.evaluate is missing_function:
            return INDETERMINATE, f"{local.name} is not available in this process"
        context = AvailabilityContext.of(self.view, self.actor)
        first = self._call(local, context)
        if not isinstance(first, str) and self._call(local, context) is not first:
            return INDETERMINATE, f"{local.name} gives two different answers for equal contexts"
        if first is True:
            return AVAILABLE, ""
        tracked = TrackingContext(context)
        self._call(local, tracked)
        if tracked.absent:
            return MISSING_CONTEXT, f"{_listed(list(tracked.absent))} absent"
        return (INDETERMINATE, first) if isinstance(first, str) else (UNAVAILABLE, "")

    def _call(self, local: LocalPredicate, context: Any) -> bool | str:
        """Return a function's answer, or the reason why it has none."""
        try:
            # Only the function is interrupted: the code that stops the watch must complete.
            given, found = self.time_limit.run(
                lambda: watched(lambda: breakable(lambda: local.evaluate(context))), unbroken=True
            )
        except TimeLimitError as late:
            return f"{local.name} took longer than {late.limit_ms} ms"
        except (Exception, SystemExit) as error:  # noqa: BLE001  # its author's function may raise anything
            return f"{local.name} raised {type(error).__name__}: {error}".rstrip(".: ")
        if found is not None:
            impurity, where = found
            return f"{local.name} uses {impurity.what}{f' at {where}' if where else ''}, but a predicate must be pure"
        answer = read_answer(given)
        return f"{local.name} answers {type(given).__name__}, neither true nor false" if answer is None else answer


def _listed(names: list[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _kind(value: Any) -> str:
    if isinstance(value, (int, float)):
        return "a number"
    return "a string" if isinstance(value, str) else "an array" if isinstance(value, list) else "an object"
