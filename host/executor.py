"""The Host: takes an approved proposal's order as far as its journal goes, and makes one effect at a time.

``step`` is a pure function of the order: what is kept between calls is only what spares running an action again
from its start after every effect (``world.core.live``). All that happens outside happens in ``perform``. Whoever
drives it journals each request before, and each result after, and gives the journal back with the next step
(``world.ports.Executor``). So an execution can be continued by another process, and performed again from its
record.

How an execution ends:

- the action is through, or halted: completed;
- an error value, of the action, of an effect nobody caught, or of a limit: failed;
- a patch outside approvedScope, unless the host is trusting: failed, before any further effect is made;
- it asks for other effects than those it already made: failed with ``STATE_CONFLICT``. The state was
  changed beneath it, or the action is not deterministic; in both cases going on would repeat what has
  happened.

A failed execution keeps the data it started from (all or nothing).
Sources: design sections 4, 5, 8; HC-compute, HC-handlers, HC-context; INT-13.5, INT-14.3.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from host.answers import EffectPlace, shown
from host.effects import EffectCallInfo, EffectHandler, EffectRegistry, idempotency_key
from host.enforcement import check_enforcement, first_outside, scope_violation
from host.worker import NotStarted, TimedOut, Workers
from world.core import Computation, ComputeContext, Domain, EffectResult, Invocation, compute, recompute
from world.core.live import LiveExecution
from world.frozen import freeze
from world.intent import IntentScope
from world.ports import EffectTerms, Enforcement, Order, Outcome
from world.snapshot import ErrorValue, Meta, Requirement, Snapshot, SnapshotView, System
from world.time_limit import PastTimeLimit, TimeLimit

__all__ = ["ACTION_TIMED_OUT", "STATE_CONFLICT", "Host"]

MAX_LIVE: Final = 256
"""Executions that are kept while they wait for effects; the oldest is let go and runs again from its start."""

ACTION_TIMED_OUT: Final = "ACTION_TIMED_OUT"
"""The error's code where a step took longer than it may."""

STATE_CONFLICT: Final = "STATE_CONFLICT"
"""The error's code where an execution would now ask for other effects than those it made."""


class Host:
    """Executes what was approved; implements ``world.ports.Executor``.

    Args:
        domain: what is computed.
        effects: who makes effects.
        enforcement: ``enforcing`` refuses patches outside approvedScope, ``trusting`` does not look at them.
        time_limit: for each step of an action; None is no limit.

    Raises:
        Refused: ``INVALID_ENFORCEMENT``; ``INVALID_SCHEMA`` where the domain's schema has faults.
    """

    __slots__ = ("_domain", "_effects", "_enforcement", "_live", "_time_limit", "_workers")

    def __init__(
        self,
        domain: Domain,
        effects: EffectRegistry,
        *,
        enforcement: Enforcement = "enforcing",
        time_limit: TimeLimit | None = None,
    ) -> None:
        """Take on a domain; its faults come out now and not in the middle of an execution."""
        self._domain = domain
        self._effects = effects
        self._enforcement = check_enforcement(enforcement)
        self._time_limit = time_limit or TimeLimit()
        self._live: dict[tuple[str, IntentScope | None], LiveExecution] = {}
        self._workers = Workers()
        _ = domain.schema

    @property
    def domain(self) -> Domain:
        """What is computed."""
        return self._domain

    @property
    def effects(self) -> EffectRegistry:
        """Who makes effects."""
        return self._effects

    @property
    def enforcement(self) -> Enforcement:
        """Whether patches outside approvedScope are refused (INT-13.5)."""
        return self._enforcement

    def step(self, order: Order) -> Outcome:
        """Compute as far as the journal goes.

        Args:
            order: an approved proposal with the results of the effects made so far.

        Returns:
            Completed, failed, or pending on the next effect; equal orders give equal outcomes.
        """
        try:
            done, new = self._time_limit.run(lambda: self._go_on(order))
        except PastTimeLimit as late:
            return self._failed(order, timed_out(order.intent.body.type, late, now=order.now))
        except Exception as bug:  # noqa: BLE001 - once approved a proposal always ends (WP-exec)
            return self._failed(order, _error(order, "INTERNAL_ERROR", f"The computation raised {shown(bug)}"))
        except (SystemExit, KeyboardInterrupt) as left:
            if isinstance(left, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # somebody pressed Ctrl-C; in any other thread it can only be the action's own
            return self._failed(order, _error(order, "ACTION_RAISED", f"The action raised {shown(left)}"))
        if done.error is not None:
            return Outcome("failed", (), done.snapshot, error=done.error)
        scope = order.approved_scope
        outside = first_outside(scope, done.patches[new:]) if self._enforcement == "enforcing" else None
        if scope is not None and outside is not None:
            action = order.intent.body.type
            return self._failed(order, scope_violation(scope, outside, action=action, now=order.now))
        if order.journal and order.journal.keys() - set(done.answered):
            return self.conflict(order)
        if done.status == "pending":
            return Outcome("pending", (), done.snapshot, requirements=done.requirements)
        return Outcome("completed", done.patches, done.snapshot)

    def conflict(self, order: Order) -> Outcome:
        """Return the outcome where other effects are asked for than were made (design section 5)."""
        told = (
            "The action now asks for other effects than those it made already: the state was changed beneath "
            "it, or it takes something from elsewhere than its context. Issue the intent again."
        )
        return self._failed(order, _error(order, STATE_CONFLICT, told))

    def terms(self, effect_type: str) -> EffectTerms:
        """Return what is promised for an effect; unknown types get the defaults and fail when performed."""
        return self._effects.terms(effect_type)

    def perform(self, order: Order, requirement: Requirement) -> EffectResult:
        """Make one effect, once, within its time limit.

        Args:
            order: the execution that asks for it; its request stands in the log already.
            requirement: the effect.

        Returns:
            The result, or an error value: ``EFFECT_NO_HANDLER``, ``EFFECT_RAISED``, ``EFFECT_TIMED_OUT``,
            ``EFFECT_INVALID_RESULT``, ``LIMIT_EXCEEDED`` where too many handlers hang already, or what the
            handler says. Only what ends the whole process (KeyboardInterrupt) passes through; then the
            effect's outcome is unknown.
        """
        place = EffectPlace(requirement, order.now)
        handler = self._effects.find(requirement.type)
        if handler is None:
            known = ", ".join(given.type for given in self._effects) or "none at all"
            return place.failed(
                "EFFECT_NO_HANDLER", f"No handler makes the effect {requirement.type!r}; there are: {known}."
            )
        return self._made(order, place, handler)

    def _made(self, order: Order, place: EffectPlace, handler: EffectHandler) -> EffectResult:
        requirement, limit = place.requirement, handler.terms.time_limit_ms
        call = EffectCallInfo(
            effect_type=requirement.type,
            idempotency_key=idempotency_key(order.intent.intent_id, requirement.id),
            intent_id=order.intent.intent_id,
            proposal_id=order.proposal_id,
            now=order.now,
            time_limit_ms=limit,
            look=lambda: self._view(order),
        )
        ending = self._workers.run(
            f"effect {requirement.type}",
            lambda: handler(requirement.params, call),
            place.read,
            time_limit_ms=limit,
        )
        if isinstance(ending, TimedOut):
            told = f"The handler of {requirement.type} took longer than {limit} ms"
            return place.failed("EFFECT_TIMED_OUT", f"{told}; whether it did anything is unknown.")
        if isinstance(ending, NotStarted):
            return place.failed("LIMIT_EXCEEDED", f"{requirement.type} was not started: {ending.reason}.")
        if ending.error is not None:
            if _ends_the_process(ending.error):
                raise ending.error
            return place.raised(ending.error)
        result: EffectResult = ending.value
        return result

    def _go_on(self, order: Order) -> tuple[Computation, int]:
        """Compute as far as the journal goes, from where an earlier step stopped if it is still at hand.

        With it comes how many of the patches an earlier step has held against the approved scope.
        """
        attempt, key = _attempt(order), (order.proposal_id, order.approved_scope)
        live = self._live.pop(key, None)  # whoever gets it has it alone
        if live is not None and not live.is_of(*attempt):
            live.close()
            live = None
        live = live or LiveExecution(self._domain, *attempt)
        done = live.compute(order.journal)
        if live.waits:
            self._live[key] = live
        if len(self._live) > MAX_LIVE:
            self._live.pop(next(iter(self._live))).close()
        return done, live.patches_before

    def _compute(self, order: Order) -> Computation:
        return compute(self._domain, *_attempt(order), order.journal)

    def _view(self, order: Order) -> SnapshotView:
        """Return the state in which the order's next effect is asked for (HC-compute: patches come first)."""
        return self._compute(order).snapshot.view

    def _failed(self, order: Order, error: ErrorValue) -> Outcome:
        base = order.snapshot
        snapshot = Snapshot(
            data=base.data,
            computed=recompute(self._domain, base.data, base.data, base.computed),
            system=System("error", error, (error,)),
            input=order.intent.body.input,
            meta=Meta(base.meta.version + 1, order.now, order.seed, self._domain.schema.hash),
        )
        return Outcome("failed", (), snapshot, error=error)


def timed_out(action: str, late: PastTimeLimit, *, now: int) -> ErrorValue:
    """Return the error value of an action that did not end in time.

    Args:
        action: the intent's type.
        late: tells the limit.
        now: the execution's frozen time, ms since 1970.
    """
    message = f"One step of the action {action!r} took longer than {late.limit_ms} ms."
    return ErrorValue(ACTION_TIMED_OUT, message, action, "", now, freeze({"limitMs": late.limit_ms}))


def is_time_out(error: Mapping[str, Any] | None) -> bool:
    """Tell whether a recorded error says that the host broke the action off; what an action says itself has a node."""
    return error is not None and error.get("code") == ACTION_TIMED_OUT and error.get("source", {}).get("nodePath") == ""


def _attempt(order: Order) -> tuple[Snapshot, Invocation, ComputeContext]:
    body = order.intent.body
    return (
        order.snapshot,
        Invocation(body.type, body.input, order.intent.intent_id),  # INV-I5
        ComputeContext(now=order.now, random_seed=order.seed),
    )


def _error(order: Order, code: str, message: str) -> ErrorValue:
    return ErrorValue(code, message, order.intent.body.type, "", order.now)


def _ends_the_process(error: BaseException) -> bool:
    """Tell whether an exception is meant for the process and not for whoever waits for the handler.

    A handler that calls ``sys.exit``, or whose task is cancelled from within, has failed like any other.
    """
    cancelled = type(error).__name__ == "CancelledError"
    return not isinstance(error, (Exception, SystemExit, GeneratorExit)) and not cancelled
