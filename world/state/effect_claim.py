"""The claim of a worker on an offered effect, with all that performing it needs, and its report of the result.

An effect in doubt that a worker looks up has the same members but for those of a claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.resource_values import ObservedEffect, SecretDigest, UndeclaredEffect
from world.model.actor import ActorRef
from world.model.intent import IntentInstance, IntentScope
from world.model.record import Record
from world.model.short_repr import short_repr
from world.model.snapshot import EffectAnswer, Requirement
from world.state.ports import Performed

__all__ = [
    "CalledEffect",
    "DeclaredTriple",
    "EffectClaim",
    "EffectDoubt",
    "EffectReport",
    "UnreadableDoubt",
    "read_form",
]


class DeclaredTriple(Record, frozen=True):
    """A predicate on a resource that an effect may touch, as texts, with its confidence."""

    predicate: str
    resource: str
    confidence: str


class CalledEffect(Record, frozen=True, kw_only=True):
    """An effect of an execution, with all that its handler needs on another machine.

    Args:
        proposal_id: the execution that needs the effect.
        requirement: the effect: its id, type and parameters.
        idempotency_key: the same for every repetition of this effect in this attempt at the intent.
        attempt: number of the attempt at the effect, from 1.
        intent: the intent of the proposal.
        now: the time frozen for the execution, ms since 1970.
        seed: the random seed frozen for the execution.
        on_world: id of the world that the execution is computed on.
        requested_at: when the effect was first requested, ms since 1970.
        fencing_token: of the proposal's leases, larger than that of every earlier grant; 0 without leases.
        actor: the acting actor; None is the one that the intent names.
        approved_scope: where the intent may write; None is no restriction.
        scope_rules: version of the scope rules of the proposal.
        declared: what the effect may touch; None where no declaration is required.
        declaration_required: whether only what is declared may be touched also where there is no workspace.
        types: resource types in force beyond the standard ones, by name.
        ignores_case: whether names of files that differ in case are equal, by the settings in force.
        ignores_normal_form: whether composed and decomposed forms of names of files are equal.
    """

    proposal_id: str
    requirement: Requirement
    idempotency_key: str
    attempt: int
    intent: IntentInstance
    now: int
    seed: str
    on_world: str
    requested_at: int
    fencing_token: int
    actor: ActorRef | None = None
    approved_scope: IntentScope | None = None
    scope_rules: int = 1
    declared: list[DeclaredTriple] | None = None
    declaration_required: bool = True
    types: Mapping[str, Any] = {}
    ignores_case: bool = False
    ignores_normal_form: bool = False


class EffectDoubt(CalledEffect, frozen=True, kw_only=True):
    """An effect in doubt that a worker can look up.

    Args:
        asked_at: when the request was recorded whose outcome is not known, ms since 1970.
    """

    asked_at: int


class UnreadableDoubt(Record, frozen=True, kw_only=True):
    """An effect in doubt for which no worker can be given what it needs to look it up.

    Args:
        proposal_id: its proposal.
        requirement_id: the effect.
        reason: why.
    """

    proposal_id: str
    requirement_id: str
    reason: str


class EffectClaim(CalledEffect, frozen=True, kw_only=True):
    """An offered effect that one worker may perform until ``deadline``.

    Args:
        claim_id: id of the claim.
        token: fencing token, larger than that of every earlier claim in the log.
        deadline: when the claim ends without a heartbeat or a result, ms since 1970.
        worker: name of the worker that holds the claim.
        time_limit_ms: how long the claim holds without a heartbeat, apart from the time to record the result, in
            milliseconds.
        idempotent: whether running the effect again with the same idempotency key does no harm.
        workspace: id of the workspace that the effect needs; None for any.
        subject: the actor that was verified when it was claimed, to whom the claim belongs; None where none was.
    """

    claim_id: str
    token: int
    deadline: int
    worker: str
    time_limit_ms: int
    idempotent: bool
    workspace: str | None = None
    subject: str | None = None

    def __repr__(self) -> str:
        what = f"{self.requirement.type} of {self.proposal_id}"
        return short_repr(self, self.claim_id, what, f"worker {self.worker}", f"token {self.token}")


R = TypeVar("R", bound=Record)


class EffectReport(Record, frozen=True, kw_only=True):
    """The result of an effect; the members are those of ``world.state.ports.Performed``."""

    result: EffectAnswer
    retryable: bool = False
    observed: tuple[ObservedEffect, ...] = ()
    violations: tuple[UndeclaredEffect, ...] = ()
    secrets: tuple[SecretDigest, ...] = ()

    @classmethod
    def of(cls, performed: Performed) -> EffectReport:
        """Return the report of a result."""
        return cls(
            result=performed.result,
            retryable=performed.retryable,
            observed=performed.observed,
            violations=performed.violations,
            secrets=performed.secrets,
        )

    @property
    def performed(self) -> Performed:
        """The result."""
        return Performed(self.result, self.retryable, self.observed, self.violations, self.secrets)


def read_form(kind: type[R], wire: Any) -> R:
    """Return a claim or a report from its JSON form, which comes from another machine.

    Args:
        kind: ``EffectClaim``, ``EffectDoubt`` or ``EffectReport``.
        wire: JSON.

    Raises:
        RefusedError: ``INVALID_VALUE``, ``NOT_CANONICAL``.
    """
    try:
        return kind.from_wire(wire)
    except (msgspec.ValidationError, ValueError, TypeError, RecursionError) as error:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"This is no {kind.__name__}: {str(error)[:500]}.") from None
