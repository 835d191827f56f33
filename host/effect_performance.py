"""Execution of one effect: checks its declaration, calls its handler under a watch, and reads the answer.

Source: HC-handlers, HC-context; KLIS-6; KO-3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Unpack

from host.confinement import RunningCommand, StartOptions
from host.confinement.descendants import RUN
from host.effect_answers import Answered, EffectPlace, shown
from host.effect_call import EffectCallInfo, StartCommand, idempotency_key, start_unconfined
from host.effect_look_up import NOT_KNOWN, asking
from host.effect_registry import EffectRegistry
from host.effect_resources import seen_in
from host.effects import MAX_TIME_LIMIT_MS, EffectHandler, EffectResult
from host.environment import HostEnvironment
from host.observation.audit import Interception, exempt
from host.observation.session_watch import Watch
from host.secrets import Secrets
from host.secrets.use import resolved_for
from host.worker import Finished, GivenUp, NotStarted, TimedOut, WorkerThreads
from world.clock import Clock
from world.error_codes import ErrorCode
from world.errors import RefusedError, ScopeViolationError
from world.klis.observation import KLIS_SCOPE_VIOLATION, Declaration
from world.model.snapshot import Requirement, SnapshotView
from world.state.ports import EffectAttempt, EffectTerms, ExecutionOrder, Performed
from world.state.proposal import ROLLBACK

__all__ = ["EffectPerformer", "LeasesLostError"]

_LOGGER = logging.getLogger("worldprotocol")

RESTORE_RETRIES: Final = 3
"""How often restoring the workspace is retried when the operating system refuses."""


@dataclass(frozen=True, slots=True)
class EffectPerformer:
    """Runs effects for a host.

    Args:
        effects: the handlers.
        workers: threads that run handlers.
        environment: the workspace that effects touch; None where there is none.
        clock: the time for effects.
        secrets: values of references in parameters.
        view: returns the state in which an order's next effect is requested.
    """

    effects: EffectRegistry
    workers: WorkerThreads
    environment: HostEnvironment | None
    clock: Clock
    secrets: Secrets
    view: Callable[[ExecutionOrder], SnapshotView]

    def terms(self, effect_type: str, params: Mapping[str, Any] | None = None) -> EffectTerms:
        """Return the terms of an effect; an unknown type has the default terms and fails when performed."""
        if effect_type == ROLLBACK:
            return EffectTerms(MAX_TIME_LIMIT_MS, idempotent=True, retries=RESTORE_RETRIES, needs_workspace=True)
        return self.effects.terms(effect_type, params)

    def perform(self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt | None = None) -> Performed:
        """Run one effect once, within its time limit, if everything that its handler touches was declared.

        In a workspace the effect is also watched while it runs.

        Args:
            order: the execution that requests it; the request is already in the log.
            requirement: the effect.
            call: its declaration and the number of the attempt; None is the first attempt at an effect that needs no
                declaration.

        Returns:
            The result, or an error value: ``EFFECT_NO_HANDLER``, ``EFFECT_RAISED``, ``EFFECT_TIMED_OUT``,
            ``EFFECT_INVALID_RESULT``, ``LIMIT_EXCEEDED`` where too many handlers hang already, the reason of a
            cancellation, ``KLIS_SCOPE_VIOLATION``, a code of ``host.secrets``, or a code of the handler. Only an
            exception that ends the whole process (KeyboardInterrupt) is raised; the effect's outcome is then unknown.
        """
        attempt = call or EffectAttempt()
        place = EffectPlace(requirement, order.now)
        if requirement.type == ROLLBACK:
            return self._restored(place)
        handler = self.effects.find(requirement.type)
        if handler is None:
            types = ", ".join(registered.type for registered in self.effects) or "none"
            return Performed(
                place.failed(
                    "EFFECT_NO_HANDLER",
                    f"Effect {requirement.type!r} has no handler; register one. Registered types: {types}.",
                )
            )
        return self._performed(order, place, handler, attempt)

    def look_up(
        self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt | None = None
    ) -> Performed | None:
        """Find out what became of an effect in doubt by the ``look_up`` of its handler, as ``perform`` calls a handler.

        Args:
            order: the execution that requested it.
            requirement: the effect.
            call: as for ``perform``, of the attempt whose outcome is not known.

        Returns:
            The result. None where it is not known; an error value where it is not, and something was observed.
        """
        handler = self.effects.find(requirement.type)
        asked = None if handler is None else asking(handler)
        if asked is None:
            return None
        performed = self._performed(order, EffectPlace(requirement, order.now), asked, call or EffectAttempt())
        error = performed.result.error
        if error is None:
            return performed
        if error.code != NOT_KNOWN:
            about = f"{requirement.type} of proposal {order.proposal_id}"
            _LOGGER.warning("The effect %s stays in doubt, as it could not be looked up: %s", about, error.message)
        return performed if performed.observed or performed.violations else None

    def _performed(
        self, order: ExecutionOrder, place: EffectPlace, handler: EffectHandler, attempt: EffectAttempt
    ) -> Performed:
        """Call a handler, if everything that it touches was declared."""
        requirement = place.requirement
        place = replace(place, declared=handler.declared)
        watch = None
        if attempt.declared is not None and (attempt.declaration_required or self.environment is not None):
            actor = order.intent.meta.origin.actor.actor_id
            watch = Watch(Declaration(actor, order.proposal_id, attempt.declared))
        try:
            if watch is not None:
                touched = handler.triples(requirement.params)
                watch.check(seen_in(touched, types=attempt.types, names=attempt.names), depth="effect")
            resolved = resolved_for(handler, requirement.params, self.secrets)
        except ScopeViolationError as violation:
            return _violated(place, violation, watch)
        except RefusedError as refused:  # the parameters are invalid, or a secret is missing
            return Performed(place.failed(refused.code, refused.message, refused.details))
        try:
            performed = self._run(order, place, handler, attempt, watch, resolved.params)
        except ScopeViolationError as violation:
            performed = _violated(place, violation, watch)
        except RefusedError as refused:
            performed = Performed(place.failed(refused.code, refused.message, refused.details))
        try:
            return resolved.masked(performed)
        except RefusedError as refused:
            return resolved.masked(Performed(place.invalid(f"a value that cannot be recorded. {refused.message}")))

    def _restored(self, place: EffectPlace) -> Performed:
        """Restore the workspace to its state before the leases of an execution that failed (KO-3.3)."""
        try:
            if self.environment is None:
                raise RefusedError(
                    ErrorCode.WORKSPACE_MISSING,
                    "The backup cannot be restored: no workspace is configured; start the host with a workspace.",
                )
            params = place.requirement.params
            restored = self.environment.restore(params["backup"], fresh=bool(params.get("fresh")))
            return Performed(place.read(EffectResult(restored)))
        except (RefusedError, OSError) as error:
            code = error.code if isinstance(error, RefusedError) else "RESTORE_FAILED"
            return Performed(place.failed(code, shown(error)), retryable=isinstance(error, OSError))

    def _run(
        self,
        order: ExecutionOrder,
        place: EffectPlace,
        handler: EffectHandler,
        attempt: EffectAttempt,
        watch: Watch | None,
        params: Any,
    ) -> Performed:
        requirement = place.requirement
        limit = self.terms(requirement.type, requirement.params).time_limit_ms
        environment = self.environment
        around: Callable[[], AbstractContextManager[Any]] = nullcontext
        if watch is not None and environment is not None:
            around = partial(Interception, watch, environment.operations(watch.declaration), keeps_code=False)
        permission = _Permission(attempt, watch)
        info = EffectCallInfo(
            effect_type=requirement.type,
            idempotency_key=idempotency_key(order.intent.intent_id, requirement.id),
            intent_id=order.intent.intent_id,
            proposal_id=order.proposal_id,
            now=order.now,
            time_limit_ms=limit,
            look=lambda: self.view(order),
            attempt=attempt.attempt,
            requested_at=attempt.requested_at,
            fencing_token=attempt.fencing_token,
            workspace=None if environment is None else environment.workspace,
            scratch=None if environment is None else environment.scratch,
            clock=self.clock,
            is_cancelled=lambda: permission.why_over() is not None,
            check=permission.check,
            start=partial(
                _marked,
                start_unconfined if watch is None or environment is None else partial(environment.start, watch),
                order.proposal_id,
            ),
        )
        ending = self.workers.run(
            f"effect {requirement.type}",
            lambda: handler(params, info),
            place.answer,
            time_limit_ms=limit,
            around=around,
            why_over=permission.why_over,
            give_up=lambda: permission.end(requirement.type),
        )
        if watch is not None and watch.violations:
            raise watch.violations[0].error
        return _with_seen(self._result_of(place, handler, ending), watch)

    def _result_of(
        self, place: EffectPlace, handler: EffectHandler, ending: Finished | TimedOut | GivenUp | NotStarted
    ) -> Performed:
        name = place.requirement.type
        if isinstance(ending, TimedOut):
            limit = handler.terms_for(place.requirement.params).time_limit_ms
            message = f"The handler of {name} took longer than {limit} ms; whether the effect happened is unknown."
            result = place.failed("EFFECT_TIMED_OUT", message)
            return Performed(result, retryable=True)
        if isinstance(ending, GivenUp):
            message = f"{ending.message} {name} was abandoned; whether the effect happened is unknown."
            return Performed(place.failed(ending.code, message))
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


class LeasesLostError(Exception):
    """Raised by ``EffectCallInfo.check`` after the leases of the effect were lost."""

    def __init__(self, code: str, message: str) -> None:
        """Store the reason."""
        super().__init__(message)
        self.code = code
        self.message = message


class _Permission:
    """Permission of a handler to touch resources; it ends with the leases, a violation, or the waiting caller.

    An abandoned handler may still be running in its thread when another session holds the leases.
    """

    def __init__(self, attempt: EffectAttempt, watch: Watch | None) -> None:
        self._attempt = attempt
        self._watch = watch
        self._ended = False

    def why_over(self) -> tuple[str, str] | None:
        """Return why the permission ended, or None; reads of the engine itself are not attributed to the effect."""
        if self._ended:
            return "NOT_WANTED", "The effect was cancelled."
        if self._watch is not None and self._watch.is_over:
            return KLIS_SCOPE_VIOLATION, "The effect attempted an operation that was not declared."
        with exempt():
            return self._attempt.why_over()

    def check(self) -> None:
        """Raise ``LeasesLostError`` where the permission ended."""
        over = self.why_over()
        if over is not None:
            raise LeasesLostError(*over)

    def end(self, effect: str) -> None:
        """End the permission of an effect that may still be running."""
        self._ended = True
        if self._watch is not None:
            message = f"The effect {effect} was abandoned; its handler may not touch any resource."
            self._watch.end(ScopeViolationError(KLIS_SCOPE_VIOLATION, message))


def _marked(
    start: StartCommand,
    proposal_id: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    read: Iterable[str] = (),
    **options: Unpack[StartOptions],
) -> RunningCommand:
    """Start a command marked with its proposal, so that a later process can find it after this one was killed."""
    return start(argv, env={**env, RUN: proposal_id}, read=read, **options)


def _violated(place: EffectPlace, violation: ScopeViolationError, watch: Watch | None) -> Performed:
    result = place.failed(violation.code, violation.message, violation.details)
    return _with_seen(Performed(result), watch)


def _with_seen(performed: Performed, watch: Watch | None) -> Performed:
    if watch is None:
        return performed
    return replace(
        performed,
        observed=tuple(one.recorded() for one in watch.observations),
        violations=tuple(one.recorded() for one in watch.violations),
    )


def _ends_the_process(error: BaseException) -> bool:
    """Whether an exception ends the process and not only the handler.

    A handler that calls ``sys.exit``, or whose task is cancelled from within, has failed like any other handler.
    """
    cancelled = type(error).__name__ == "CancelledError"
    return not isinstance(error, (Exception, SystemExit, GeneratorExit)) and not cancelled
