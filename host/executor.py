"""The Host: takes an approved proposal's order as far as its journal goes, and makes one effect at a time.

It keeps nothing between calls. ``step`` is a pure function of the order; all that happens outside happens in
``perform``. Whoever drives it journals each request before, and each result after, and gives the journal
back with the next step (``world.ports.Executor``). So an execution can be continued by another process, and
performed again from its record.

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

from typing import Final

from host.answers import EffectPlace, shown
from host.effects import EffectCallInfo, EffectHandler, EffectRegistry, idempotency_key
from host.enforcement import check_enforcement, first_outside, scope_violation
from host.worker import NotStarted, TimedOut, Workers
from world.core import Computation, ComputeContext, Domain, EffectResult, Invocation, compute, recompute
from world.ports import EffectTerms, Enforcement, Order, Outcome
from world.snapshot import ErrorValue, Meta, Requirement, Snapshot, SnapshotView, System

__all__ = ["STATE_CONFLICT", "Host"]

STATE_CONFLICT: Final = "STATE_CONFLICT"
"""The error's code where an execution would now ask for other effects than those it made."""


class Host:
    """Executes what was approved; implements ``world.ports.Executor``.

    Args:
        domain: what is computed.
        effects: who makes effects.
        enforcement: ``enforcing`` refuses patches outside approvedScope, ``trusting`` does not look at them.

    Raises:
        Refused: ``INVALID_ENFORCEMENT``; ``INVALID_SCHEMA`` where the domain's schema has faults.
    """

    __slots__ = ("_domain", "_effects", "_enforcement", "_workers")

    def __init__(self, domain: Domain, effects: EffectRegistry, *, enforcement: Enforcement = "enforcing") -> None:
        """Take on a domain; its faults come out now and not in the middle of an execution."""
        self._domain = domain
        self._effects = effects
        self._enforcement = check_enforcement(enforcement)
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
            done = self._compute(order)
        except Exception as bug:  # noqa: BLE001 - once approved a proposal always ends (WP-exec)
            return self._failed(order, _error(order, "INTERNAL_ERROR", f"The computation raised {shown(bug)}"))
        except SystemExit as left:
            return self._failed(order, _error(order, "ACTION_RAISED", f"The action raised {shown(left)}"))
        if done.error is not None:
            return Outcome("failed", (), done.snapshot, error=done.error)
        scope = order.approved_scope
        outside = first_outside(scope, done.patches) if self._enforcement == "enforcing" else None
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

    def _compute(self, order: Order) -> Computation:
        body = order.intent.body
        return compute(
            self._domain,
            order.snapshot,
            Invocation(body.type, body.input, order.intent.intent_id),  # INV-I5
            ComputeContext(now=order.now, random_seed=order.seed),
            order.journal,
        )

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


def _error(order: Order, code: str, message: str) -> ErrorValue:
    return ErrorValue(code, message, order.intent.body.type, "", order.now)


def _ends_the_process(error: BaseException) -> bool:
    """Tell whether an exception is meant for the process and not for whoever waits for the handler.

    A handler that calls ``sys.exit``, or whose task is cancelled from within, has failed like any other.
    """
    cancelled = type(error).__name__ == "CancelledError"
    return not isinstance(error, (Exception, SystemExit, GeneratorExit)) and not cancelled
