"""The Host: computes an approved proposal as far as its journal reaches, and runs one effect at a time.

``step`` is a pure function of the order: the state kept between calls only avoids running an action again from its
start after every effect (``world.core.flows.suspended_execution``). External changes happen in ``perform`` alone. The
caller journals each request before and each result after it, and passes the journal to the next step
(``world.state.ports.Executor``). An execution can therefore be continued by another process, and repeated from its
record.

Ends of an execution:

- the action ended or halted: completed;
- an error value, of the action, of an effect without a catch, or of a limit: failed;
- a patch outside approvedScope, unless the host is trusting: failed, before any further effect runs;
- a request of other effects than those already made: failed with ``STATE_CONFLICT``. The state was changed during the
  execution, or the action is not deterministic; in both cases continuing would repeat effects.

A failed execution keeps the data it started from (all or nothing).
Sources: design sections 4, 5, 8; HC-compute, HC-handlers, HC-context; INT-13.5, INT-14.3.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypedDict, Unpack

from host.effect_answers import shown
from host.effect_performance import EffectPerformer
from host.effect_registry import EffectRegistry
from host.enforcement import check_enforcement, first_outside, scope_violation
from host.environment import HostEnvironment
from host.secrets import Secrets
from host.worker import WorkerThreads
from world.clock import Clock, SystemClock
from world.code.keyword_options import check_names
from world.code.time_limit import TimeLimit, TimeLimitError
from world.core import Computation, ComputeContext, Domain, EffectAnswer, Invocation, compute, recompute
from world.core.flows.suspended_execution import LiveExecution
from world.errors import RefusedError
from world.klis.observation import KLIS_SCOPE_VIOLATION
from world.model.immutable_json import freeze
from world.model.intent import IntentScope
from world.model.secrets.literal import named_literals
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

__all__ = ["ACTION_TIMED_OUT", "STATE_CONFLICT", "Host", "HostOptions"]

MAX_LIVE: Final = 256
"""Executions kept while they wait for effects; beyond it the oldest is dropped and runs again from its start."""

ACTION_TIMED_OUT: Final = "ACTION_TIMED_OUT"
"""Error code for a step that exceeded its time limit."""

STATE_CONFLICT: Final = "STATE_CONFLICT"
"""Error code for an execution that requests other effects than those it made."""


class HostOptions(TypedDict, total=False):
    """Options of ``Host``.

    Args:
        execute: whether the process performs effects; False offers them to workers. True by default.
        enforcement: ``enforcing``, the default, refuses patches outside approvedScope; ``trusting`` does not check.
        time_limit: for each step of an action; None is no limit.
        environment: the workspace that effects touch, with its backups; None where there is none: then the declared
            touches of a handler are compared with the declaration, and its operations are not observed.
        clock: the time for effects; None is the system's.
        workers: threads that run handlers; None creates new ones.
        secrets: values of references in parameters; None defines no secret.
    """

    execute: bool
    enforcement: Enforcement
    time_limit: TimeLimit | None
    environment: HostEnvironment | None
    clock: Clock | None
    workers: WorkerThreads | None
    secrets: Secrets | None


class Host:
    """Executes approved proposals; implements ``world.state.ports.Executor``.

    ``enforcement`` says whether patches outside approvedScope are refused (INT-13.5); ``keeper`` has the backups of the
    workspace, None where there is no workspace. ``looks_up`` says whether effects in doubt are looked up here: where
    the process performs effects, and where it is a worker.

    Args:
        domain: the domain to compute.
        effects: the effect handlers.
        **options: see ``HostOptions``.

    Raises:
        RefusedError: ``INVALID_ENFORCEMENT``; ``INVALID_SCHEMA`` where the domain's schema has faults.
    """

    __slots__ = (
        "_domain",
        "_effects",
        "_environment",
        "_executes",
        "_live",
        "_live_lock",
        "_performer",
        "_time_limit",
        "enforcement",
        "keeper",
        "looks_up",
    )

    def __init__(
        self,
        domain: Domain,
        effects: EffectRegistry,
        **options: Unpack[HostOptions],
    ) -> None:
        """Check the domain, so that its faults are not first found during an execution."""
        check_names(options, HostOptions)
        _check_domain(domain)
        self._domain = domain
        self._effects = effects
        self._executes = self.looks_up = options.get("execute", True)
        self.enforcement = check_enforcement(options.get("enforcement", "enforcing"))
        self._time_limit = options.get("time_limit") or TimeLimit()
        self._environment = options.get("environment")
        self.keeper: BackupService | None = self._environment
        self._live: dict[tuple[str, IntentScope | None], LiveExecution] = {}
        self._live_lock = threading.Lock()
        self._performer = EffectPerformer(
            effects,
            options.get("workers") or WorkerThreads(),
            self._environment,
            options.get("clock") or SystemClock(),
            options.get("secrets") or Secrets(),
            self._view,
        )

    @property
    def domain(self) -> Domain:
        """The domain that is computed."""
        return self._domain

    @property
    def effects(self) -> EffectRegistry:
        """The effect handlers."""
        return self._effects

    @property
    def environment(self) -> HostEnvironment | None:
        """The workspace that effects touch."""
        return self._environment

    @property
    def executes(self) -> bool:
        """Whether this process performs effects; otherwise it offers them to workers."""
        return self._executes

    def step(self, order: ExecutionOrder) -> StepOutcome:
        """Compute as far as the journal reaches.

        Args:
            order: an approved proposal with the results of the effects made so far.

        Returns:
            Completed, failed, or pending on the next effect; equal orders have equal outcomes.
        """
        violated = next((one.error for one in order.journal.values() if _is_violation(one)), None)
        if violated is not None:  # whether or not the action would catch it (KO-3.3)
            return self._failed(order, violated)
        try:
            done, new = self._time_limit.run(lambda: self._go_on(order))
        except TimeLimitError as late:
            return self._failed(order, timed_out(order.intent.body.type, late, now=order.now))
        except Exception as bug:  # noqa: BLE001 - once approved a proposal always ends (WP-exec)
            return self._failed(order, _error(order, "INTERNAL_ERROR", f"The computation raised {shown(bug)}"))
        except (SystemExit, KeyboardInterrupt) as exit_request:
            if isinstance(exit_request, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C; in any other thread the action itself raised it
            return self._failed(order, _error(order, "ACTION_RAISED", f"The action raised {shown(exit_request)}"))
        if done.error is not None:
            return StepOutcome("failed", (), done.snapshot, error=done.error)
        scope = order.approved_scope
        outside = None
        if self.enforcement == "enforcing":
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
        """Return the outcome of an action that requests other effects than were made (design section 5)."""
        message = (
            "The action now requests other effects than those already made: the state was changed during the "
            "execution, or the action reads data outside its context. Issue the intent again."
        )
        return self._failed(order, _error(order, STATE_CONFLICT, message))

    def terms(self, effect_type: str, params: Mapping[str, Any] | None = None) -> EffectTerms:
        """Return the terms of an effect; see ``EffectPerformer.terms``.

        A process that performs no effects offers those that it has a handler for; the terms of others are unknown.
        """
        terms = self._performer.terms(effect_type, params)
        if effect_type != ROLLBACK:
            handler = self._effects.find(effect_type)
            if handler is None:
                return replace(terms, known=self._executes)
            needs_workspace = terms.needs_workspace or handler.touches_files(params or {})
            terms = replace(terms, needs_workspace=needs_workspace, looks_up=terms.looks_up and self.looks_up)
        return terms if self._executes or terms.external else terms.offered()

    def literal_secrets(self, effect_type: str, params: Mapping[str, Any]) -> Sequence[str]:
        """Return the paths of secret fields whose value is a literal and would be recorded."""
        handler = self._effects.find(effect_type)
        return list(named_literals(params)) if handler is None else handler.literal_secrets(params)

    def perform(self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt | None = None) -> Performed:
        """Run one effect once, within its time limit; see ``EffectPerformer.perform``."""
        return self._performer.perform(order, requirement, call)

    def look_up(
        self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt | None = None
    ) -> Performed | None:
        """Find out what became of an effect in doubt; see ``EffectPerformer.look_up``."""
        return self._performer.look_up(order, requirement, call)

    def _go_on(self, order: ExecutionOrder) -> tuple[Computation, int]:
        """Compute as far as the journal reaches, from where an earlier step stopped if it is still kept.

        The second value is the number of patches that an earlier step has compared with the approved scope.
        """
        attempt, key = _attempt(order), (order.proposal_id, order.approved_scope)
        with self._live_lock:
            live = self._live.pop(key, None)  # removed, so that no other thread can use it
        if live is not None and not live.is_of(*attempt):
            live.close()
            live = None
        live = live or LiveExecution(self._domain, *attempt)
        done = live.compute(order.journal)
        if live.waits:
            self._keep(key, live)
        return done, live.patches_before

    def _keep(self, key: tuple[str, IntentScope | None], live: LiveExecution) -> None:
        """Keep a suspended execution; the oldest ones beyond ``MAX_LIVE`` are dropped."""
        dropped = []
        with self._live_lock:
            self._live[key] = live
            while len(self._live) > MAX_LIVE:
                dropped.append(self._live.pop(next(iter(self._live))))
        for one in dropped:
            one.close()

    def _compute(self, order: ExecutionOrder) -> Computation:
        return compute(self._domain, *_attempt(order), order.journal)

    def _view(self, order: ExecutionOrder) -> SnapshotView:
        """Return the state in which the order's next effect is requested (HC-compute: patches come first)."""
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
        late: has the limit.
        now: the execution's frozen time, ms since 1970.
    """
    message = f"One step of the action {action!r} took longer than {late.limit_ms} ms."
    return ErrorValue.at(ACTION_TIMED_OUT, message, action, "", now, freeze({"limitMs": late.limit_ms}))


def is_time_out(error: ErrorValue | None) -> bool:
    """Whether a recorded error is a time-out of the host; an error of the action itself has a node path."""
    return error is not None and error.code == ACTION_TIMED_OUT and error.node_path == ""


def _is_violation(result: EffectAnswer) -> bool:
    return result.error is not None and result.error.code == KLIS_SCOPE_VIOLATION


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
    return ErrorValue.at(code, message, order.intent.body.type, "", order.now)


def _check_domain(domain: Domain) -> None:
    """Check that a domain is valid under a version of the rules; a log may have adopted what only earlier ones accept.

    Raises:
        RefusedError: ``INVALID_SCHEMA`` with all faults under the newest rules.
    """
    try:
        domain.schema  # noqa: B018  # made once, and kept
    except RefusedError:
        for is_earlier in (False, True):
            with suppress(RefusedError):
                domain.copied(1, is_earlier=is_earlier).schema  # noqa: B018
                return
        raise
