"""The Host: takes an approved proposal's order as far as its journal goes, and makes one effect at a time.

``step`` is a pure function of the order: what is kept between calls is only what spares running an action again
from its start after every effect (``world.core.flows.suspended_execution``). All that happens outside happens in
``perform``. Whoever drives it journals each request before, and each result after, and gives the journal back with the
next step (``world.state.ports.Executor``). So an execution can be continued by another process, and performed again
from its record.

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final

from host.confinement import RunningCommand
from host.confinement.descendants import RUN
from host.effect_answers import Answered, EffectPlace, shown
from host.effect_resources import seen_in
from host.effects import (
    MAX_TIME_LIMIT_MS,
    EffectCallInfo,
    EffectHandler,
    EffectRegistry,
    EffectResult,
    idempotency_key,
    start_unconfined,
)
from host.enforcement import check_enforcement, first_outside, scope_violation
from host.environment import HostEnvironment
from host.observation.audit import Interception, exempt
from host.observation.watch import Watch
from host.secrets import Secrets
from host.secrets.use import resolved_for
from host.worker import Finished, GivenUp, NotStarted, TimedOut, WorkerThreads
from world.clock import Clock, SystemClock
from world.code.time_limit import TimeLimit, TimeLimitError
from world.core import Computation, ComputeContext, Domain, EffectAnswer, Invocation, compute, recompute
from world.core.flows.suspended_execution import LiveExecution
from world.errors import RefusedError, ScopeViolationError
from world.klis.observation import KLIS_SCOPE_VIOLATION, Declaration
from world.model.immutable_json import freeze
from world.model.intent import IntentScope
from world.model.literal_secrets import named_literals
from world.model.snapshot import ErrorValue, Meta, Requirement, Snapshot, SnapshotView, System
from world.state.ports import (
    BackupService,
    EffectAttempt,
    EffectTerms,
    Enforcement,
    ExecutionOrder,
    Performed,
    StepOutcome,
)
from world.state.proposal import ROLLBACK

__all__ = ["ACTION_TIMED_OUT", "STATE_CONFLICT", "Host"]

MAX_LIVE: Final = 256
"""Executions that are kept while they wait for effects; the oldest is let go and runs again from its start."""

GIVE_BACK_TRIES: Final = 3
"""How often giving the workspace back is tried again when the system refuses."""

ACTION_TIMED_OUT: Final = "ACTION_TIMED_OUT"
"""The error's code where a step took longer than it may."""

STATE_CONFLICT: Final = "STATE_CONFLICT"
"""The error's code where an execution would now ask for other effects than those it made."""


class Host:
    """Executes what was approved; implements ``world.state.ports.Executor``.

    Args:
        domain: what is computed.
        effects: who makes effects.
        enforcement: ``enforcing`` refuses patches outside approvedScope, ``trusting`` does not look at them.
        time_limit: for each step of an action; None is no limit.
        premises: the workspace that effects touch, with its backups; None where there is none: then what a handler
            says that it touches is compared with what was declared, and what it does is not observed.
        clock: what time it is for effects; None is the system's.
        workers: run handlers; None runs each in a thread of its own.
        secrets: what references in parameters stand for; None defines no secret.

    Raises:
        RefusedError: ``INVALID_ENFORCEMENT``; ``INVALID_SCHEMA`` where the domain's schema has faults.
    """

    __slots__ = (
        "_clock",
        "_domain",
        "_effects",
        "_enforcement",
        "_live",
        "_premises",
        "_secrets",
        "_time_limit",
        "_workers",
    )

    def __init__(
        self,
        domain: Domain,
        effects: EffectRegistry,
        *,
        enforcement: Enforcement = "enforcing",
        time_limit: TimeLimit | None = None,
        premises: HostEnvironment | None = None,
        clock: Clock | None = None,
        workers: WorkerThreads | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        """Take on a domain; its faults come out now and not in the middle of an execution."""
        self._domain = domain
        self._effects = effects
        self._enforcement = check_enforcement(enforcement)
        self._time_limit = time_limit or TimeLimit()
        self._premises = premises
        self._clock = clock or SystemClock()
        self._live: dict[tuple[str, IntentScope | None], LiveExecution] = {}
        self._workers = workers or WorkerThreads()
        self._secrets = secrets or Secrets()
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
    def premises(self) -> HostEnvironment | None:
        """The workspace that effects touch."""
        return self._premises

    @property
    def keeper(self) -> BackupService | None:
        """Who keeps backups of the workspace; None where there is no workspace."""
        return self._premises

    @property
    def enforcement(self) -> Enforcement:
        """Whether patches outside approvedScope are refused (INT-13.5)."""
        return self._enforcement

    def step(self, order: ExecutionOrder) -> StepOutcome:
        """Compute as far as the journal goes.

        Args:
            order: an approved proposal with the results of the effects made so far.

        Returns:
            Completed, failed, or pending on the next effect; equal orders give equal outcomes.
        """
        violated = next((one.error for one in order.journal.values() if _is_violation(one)), None)
        if violated is not None:  # whatever the action would make of it (KO-3.3)
            return self._failed(order, violated)
        try:
            done, new = self._time_limit.run(lambda: self._go_on(order))
        except TimeLimitError as late:
            return self._failed(order, timed_out(order.intent.body.type, late, now=order.now))
        except Exception as bug:  # noqa: BLE001 - once approved a proposal always ends (WP-exec)
            return self._failed(order, _error(order, "INTERNAL_ERROR", f"The computation raised {shown(bug)}"))
        except (SystemExit, KeyboardInterrupt) as left:
            if isinstance(left, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # somebody pressed Ctrl-C; in any other thread it can only be the action's own
            return self._failed(order, _error(order, "ACTION_RAISED", f"The action raised {shown(left)}"))
        if done.error is not None:
            return StepOutcome("failed", (), done.snapshot, error=done.error)
        scope = order.approved_scope
        outside = None
        if self._enforcement == "enforcing":
            outside = first_outside(scope, done.patches[new:], order.scope_rules)
        if scope is not None and outside is not None:
            action = order.intent.body.type
            return self._failed(order, scope_violation(scope, outside, action=action, now=order.now))
        if order.journal and order.journal.keys() - set(done.answered):
            return self.conflict(order)
        if done.status == "pending":
            return StepOutcome("pending", (), done.snapshot, requirements=done.requirements)
        return StepOutcome("completed", done.patches, done.snapshot)

    def conflict(self, order: ExecutionOrder) -> StepOutcome:
        """Return the outcome where other effects are asked for than were made (design section 5)."""
        told = (
            "The action now asks for other effects than those it made already: the state was changed beneath "
            "it, or it takes something from elsewhere than its context. Issue the intent again."
        )
        return self._failed(order, _error(order, STATE_CONFLICT, told))

    def terms(self, effect_type: str, params: Mapping[str, Any] | None = None) -> EffectTerms:
        """Return what is promised for an effect; unknown types get the defaults and fail when performed."""
        if effect_type == ROLLBACK:
            return EffectTerms(MAX_TIME_LIMIT_MS, idempotent=True, retries=GIVE_BACK_TRIES)
        return self._effects.terms(effect_type, params)

    def literal_secrets(self, effect_type: str, params: Mapping[str, Any]) -> Sequence[str]:
        """Return the paths of secret fields whose value is a literal and would be recorded."""
        handler = self._effects.find(effect_type)
        return list(named_literals(params)) if handler is None else handler.literal_secrets(params)

    def perform(self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt | None = None) -> Performed:
        """Make one effect, once, within its time limit, if all that its handler says it touches was declared.

        In a workspace it is watched while it is made, too.

        Args:
            order: the execution that asks for it; its request stands in the log already.
            requirement: the effect.
            call: what was declared for it, and which making of it this is; None is the first, of an effect for which
                no declaration is required.

        Returns:
            The result, or an error value: ``EFFECT_NO_HANDLER``, ``EFFECT_RAISED``, ``EFFECT_TIMED_OUT``,
            ``EFFECT_INVALID_RESULT``, ``LIMIT_EXCEEDED`` where too many handlers hang already, why it was given up,
            ``KLIS_SCOPE_VIOLATION``, what ``host.secrets`` refuses, or what the handler says. Only what ends the whole
            process (KeyboardInterrupt) passes through; then the effect's outcome is unknown.
        """
        told = call or EffectAttempt()
        place = EffectPlace(requirement, order.now)
        if requirement.type == ROLLBACK:
            return self._given_back(place)
        handler = self._effects.find(requirement.type)
        if handler is None:
            known = ", ".join(given.type for given in self._effects) or "none at all"
            return Performed(
                place.failed(
                    "EFFECT_NO_HANDLER", f"No handler makes the effect {requirement.type!r}; there are: {known}."
                )
            )
        watch = None
        if told.declared is not None and (told.declaration_required or self._premises is not None):
            actor = order.intent.meta.origin.actor.actor_id
            watch = Watch(Declaration(actor, order.proposal_id, told.declared))
        try:
            if watch is not None:
                touched = handler.triples(requirement.params)
                watch.check(seen_in(touched, types=told.types, names=told.names), depth="effect")
            resolved = resolved_for(handler, requirement.params, self._secrets)
        except ScopeViolationError as violation:
            return _violated(place, violation, watch)
        except (
            RefusedError
        ) as refused:  # what the effect touches cannot be told from its parameters, or a secret is missing
            return Performed(place.failed(refused.code, refused.message, refused.details))
        try:
            performed = self._made(order, place, handler, told, watch, resolved.params)
        except ScopeViolationError as violation:
            performed = _violated(place, violation, watch)
        except RefusedError as refused:
            performed = Performed(place.failed(refused.code, refused.message, refused.details))
        try:
            return resolved.masked(performed)
        except RefusedError as refused:
            return resolved.masked(Performed(place.invalid(f"what cannot be recorded. {refused.message}")))

    def _given_back(self, place: EffectPlace) -> Performed:
        """Give the workspace back as it was before the leases of an execution that failed (KO-3.3)."""
        try:
            if self._premises is None:
                raise RefusedError("WORKSPACE_MISSING", "There is no workspace at hand to restore the backup to.")
            params = place.requirement.params
            told = self._premises.restore(params["backup"], fresh=bool(params.get("fresh")))
            return Performed(place.read(EffectResult(told)))
        except (RefusedError, OSError) as error:
            code = error.code if isinstance(error, RefusedError) else "RESTORE_FAILED"
            return Performed(place.failed(code, shown(error)), retryable=isinstance(error, OSError))

    def _made(
        self,
        order: ExecutionOrder,
        place: EffectPlace,
        handler: EffectHandler,
        told: EffectAttempt,
        watch: Watch | None,
        params: Any,
    ) -> Performed:
        requirement = place.requirement
        limit = self.terms(requirement.type, requirement.params).time_limit_ms
        premises = self._premises
        around: Callable[[], AbstractContextManager[Any]] = nullcontext
        if watch is not None and premises is not None:
            around = partial(Interception, watch, premises.operations(watch.declaration), keeps_code=False)
        lasting = _Lasting(told, watch)
        info = EffectCallInfo(
            effect_type=requirement.type,
            idempotency_key=idempotency_key(order.intent.intent_id, requirement.id),
            intent_id=order.intent.intent_id,
            proposal_id=order.proposal_id,
            now=order.now,
            time_limit_ms=limit,
            look=lambda: self._view(order),
            attempt=told.attempt,
            requested_at=told.requested_at,
            fencing_token=told.fencing_token,
            workspace=None if premises is None else premises.workspace,
            scratch=None if premises is None else premises.scratch,
            clock=self._clock,
            is_cancelled=lambda: lasting.why_over() is not None,
            check=lasting.check,
            start=partial(
                _marked,
                start_unconfined if watch is None or premises is None else partial(premises.start, watch),
                order.proposal_id,
            ),
        )
        ending = self._workers.run(
            f"effect {requirement.type}",
            lambda: handler(params, info),
            place.answer,
            time_limit_ms=limit,
            around=around,
            why_over=lasting.why_over,
            give_up=lambda: lasting.end(requirement.type),
        )
        if watch is not None and watch.violations:
            raise watch.violations[0].error
        return _with_seen(self._ended(place, handler, ending), watch)

    def _ended(
        self, place: EffectPlace, handler: EffectHandler, ending: Finished | TimedOut | GivenUp | NotStarted
    ) -> Performed:
        name = place.requirement.type
        if isinstance(ending, TimedOut):
            limit = handler.terms_for(place.requirement.params).time_limit_ms
            told = f"The handler of {name} took longer than {limit} ms"
            result = place.failed("EFFECT_TIMED_OUT", f"{told}; whether it did anything is unknown.")
            return Performed(result, retryable=True)
        if isinstance(ending, GivenUp):
            told = f"{ending.message} {name} was given up; whether it did anything is unknown."
            return Performed(place.failed(ending.code, told))
        if isinstance(ending, NotStarted):
            return Performed(place.failed("LIMIT_EXCEEDED", f"{name} was not started: {ending.reason}."))
        error = ending.error
        if error is None:
            answered: Answered = ending.value
            return Performed(answered.result, retryable=answered.retryable)
        if isinstance(error, LeasesLostError):
            return Performed(place.failed(error.code, error.message))
        if _ends_the_process(error):
            raise error
        return Performed(place.raised(error), retryable=True)

    def _go_on(self, order: ExecutionOrder) -> tuple[Computation, int]:
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

    def _compute(self, order: ExecutionOrder) -> Computation:
        return compute(self._domain, *_attempt(order), order.journal)

    def _view(self, order: ExecutionOrder) -> SnapshotView:
        """Return the state in which the order's next effect is asked for (HC-compute: patches come first)."""
        return self._compute(order).snapshot.view

    def _failed(self, order: ExecutionOrder, error: ErrorValue) -> StepOutcome:
        base = order.snapshot
        snapshot = Snapshot(
            data=base.data,
            computed=recompute(self._domain, base.data, base.data, base.computed),
            system=System("error", error, (error,)),
            input=order.intent.body.input,
            meta=Meta(base.meta.version + 1, order.now, order.seed, self._domain.schema.hash),
        )
        return StepOutcome("failed", (), snapshot, error=error)


def timed_out(action: str, late: TimeLimitError, *, now: int) -> ErrorValue:
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


class LeasesLostError(Exception):
    """Raised in a handler that asks whether it may still touch anything."""

    def __init__(self, code: str, message: str) -> None:
        """Tell why it may not."""
        super().__init__(message)
        self.code = code
        self.message = message


class _Lasting:
    """How long a handler may touch anything: as long as the log wants its effect, it is true to what was declared for
    it, and somebody waits for it.

    A handler that was given up may still be running in its thread, when the leases are somebody else's already.
    """

    def __init__(self, told: EffectAttempt, watch: Watch | None) -> None:
        self._told = told
        self._watch = watch
        self._ended = False

    def why_over(self) -> tuple[str, str] | None:
        """Ask the log from within an effect's session; what the engine itself reads is not the effect's doing."""
        if self._ended:
            return "NOT_WANTED", "Nobody waits for this effect any more."
        if self._watch is not None and self._watch.is_over:
            return KLIS_SCOPE_VIOLATION, "It attempted what was not declared for it."
        with exempt():
            return self._told.why_over()

    def check(self) -> None:
        """Raise where the handler may touch nothing any more."""
        over = self.why_over()
        if over is not None:
            raise LeasesLostError(*over)

    def end(self, effect: str) -> None:
        """Let what may still be running touch nothing any more."""
        self._ended = True
        if self._watch is not None:
            told = f"Nobody waits for {effect} any more; what still runs of it may touch nothing."
            self._watch.end(ScopeViolationError(KLIS_SCOPE_VIOLATION, told))


def _marked(
    start: Callable[..., RunningCommand], proposal_id: str, argv: Sequence[str], *, env: Mapping[str, str], **more: Any
) -> RunningCommand:
    """Start a command that can be told to be of a proposal also by who takes over when this process was killed."""
    return start(argv, env={**env, RUN: proposal_id}, **more)


def _is_violation(result: EffectAnswer) -> bool:
    return result.error is not None and result.error.code == KLIS_SCOPE_VIOLATION


def _violated(place: EffectPlace, violation: ScopeViolationError, watch: Watch | None) -> Performed:
    result = place.failed(violation.code, violation.message, violation.details)
    return _with_seen(Performed(result), watch)


def _with_seen(performed: Performed, watch: Watch | None) -> Performed:
    if watch is None:
        return performed
    return replace(
        performed,
        observed=tuple(one.to_wire() for one in watch.observations),
        violations=tuple(one.to_wire() for one in watch.violations),
    )


def _attempt(order: ExecutionOrder) -> tuple[Snapshot, Invocation, ComputeContext]:
    body = order.intent.body
    return (
        order.snapshot,
        Invocation(
            body.type, body.input, order.intent.intent_id, order.actor or order.intent.meta.origin.actor
        ),  # INV-I5
        ComputeContext(now=order.now, random_seed=order.seed),
    )


def _error(order: ExecutionOrder, code: str, message: str) -> ErrorValue:
    return ErrorValue(code, message, order.intent.body.type, "", order.now)


def _ends_the_process(error: BaseException) -> bool:
    """Tell whether an exception is meant for the process and not for whoever waits for the handler.

    A handler that calls ``sys.exit``, or whose task is cancelled from within, has failed like any other.
    """
    cancelled = type(error).__name__ == "CancelledError"
    return not isinstance(error, (Exception, SystemExit, GeneratorExit)) and not cancelled
