"""What is recorded of a result of an effect, beside the result: observations, secrets, and a failure that is retried.

Source: design section 8; HC-journal, KO-4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from world.errors import RefusedError
from world.events.claim_events import ClaimReference
from world.events.execution_events import EffectRetried
from world.events.resource_values import SecretDigest
from world.events.run_events import RunObserved, RunViolated
from world.model.snapshot import Requirement
from world.pipeline.effect_requests import offer_again, request_effect
from world.pipeline.execution_state import why_over
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import EffectTerms, Performed
from world.state.proposal import Proposal

__all__ = ["FailedAttempt", "record_observed", "retried", "secrets_of"]

MAX_IN_EVENT: Final = 1_000
"""Observations of one event; an effect may touch more than one event can hold."""

MAX_BACKOFF_MS: Final = 3_600_000
"""The longest wait before an effect is made again, in milliseconds."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt at an effect that failed.

    Args:
        requirement: the effect.
        terms: its terms.
        failures: number of this failure, from 1.
        claim: the claim of the worker that reported it; None for an effect of the executing process.
    """

    requirement: Requirement
    terms: EffectTerms
    failures: int
    claim: ClaimReference | None = None


def secrets_of(performed: Performed) -> list[SecretDigest] | None:
    """Return the secrets that an effect used, for the record; None where it used none."""
    return list(performed.secrets) or None


def record_observed(work: UnitOfWork, run_id: str, performed: Performed) -> None:
    """Record what was observed while an effect was made (KO-4)."""
    stream = f"run:{run_id}"
    seen = performed.observed
    for start in range(0, len(seen), MAX_IN_EVENT):
        work.emit(stream, RunObserved(at=work.at, run_id=run_id, observed=list(seen[start : start + MAX_IN_EVENT])))
    for violation in performed.violations:
        work.emit(stream, RunViolated(at=work.at, run_id=run_id, violation=violation))


def retried(work: UnitOfWork, proposal: Proposal, failed: FailedAttempt, performed: Performed) -> bool:
    """Record a failure and request the effect again after its backoff; return False where no retry is left."""
    requirement, terms, failures = failed.requirement, failed.terms, failed.failures
    asked = proposal.requested[requirement.id]
    error = performed.result.error
    if error is None or not terms.idempotent or failures > terms.retries or why_over(work.realm, proposal):
        return False
    due = work.at + min(terms.backoff_ms * 2 ** (failures - 1), MAX_BACKOFF_MS)
    event = EffectRetried(
        at=work.at,
        proposal_id=proposal.proposal_id,
        requirement_id=requirement.id,
        error=error,
        failures=failures,
        due=due,
        secrets=secrets_of(performed),
        claim=failed.claim,
    )
    if failed.claim is not None:
        event = work.of_caller(event)
    try:
        work.emit(proposal.proposal_id, event)
    except RefusedError:  # an error that the log cannot hold becomes its result, as an error that says so
        return False
    if asked.offer is not None:
        offer_again(work, proposal, asked)
    else:
        request_effect(work, proposal, requirement, not_before=due)
    return True
