"""Events of executions and their effects."""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event
from world.events.claim_events import ClaimReference, EffectOffer
from world.events.resource_values import ResourceExistence, SecretDigest
from world.events.verification import Verification
from world.model.snapshot import EffectAnswer, ErrorValue, Requirement

__all__ = [
    "EffectDropped",
    "EffectFulfilled",
    "EffectInDoubt",
    "EffectRequested",
    "EffectResolved",
    "EffectRetried",
    "ExecutionCancelled",
    "ExecutionStarted",
]


class ExecutionStarted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A worker started to execute an approved proposal on the head ``on_world`` with fixed ``now`` and ``seed``.

    ``existence`` records which resources existed of those that the proposal depends on
    (``world.pipeline.leasing.existence``); None where none can be checked, and in earlier logs.
    """

    TOPIC: ClassVar[str] = "execution.started"
    proposal_id: str
    on_world: str
    now: int
    seed: str
    enforcement: str
    attempt: int
    worker: str
    existence: list[ResourceExistence] | None = None


class EffectRequested(Event, frozen=True, kw_only=True):
    """An effect is about to be performed; its worker may be performing it until ``deadline``.

    ``offer`` is present in an external effect: it waits for a worker to claim it, and ``deadline`` is 0.
    """

    TOPIC: ClassVar[str] = "effect.requested"
    proposal_id: str
    requirement: Requirement
    idempotent: bool
    attempt: int
    deadline: int
    offer: EffectOffer | None = None


class EffectFulfilled(Event, frozen=True, kw_only=True):
    """An effect returned a result or an error value; replay uses it and never performs the effect again.

    ``secrets`` holds name and keyed digest of each secret that the effect used (``host.secrets``); None where it used
    none. ``claim`` is the claim of the worker that reported the result, None where the executing process did;
    ``verified`` is the caller that reported it over a server. ``looked_up`` is True for an effect in doubt whose
    handler found out what had become of it, None for all others, and in earlier logs.
    """

    TOPIC: ClassVar[str] = "effect.fulfilled"
    proposal_id: str
    requirement_id: str
    result: EffectAnswer
    attempt: int
    secrets: list[SecretDigest] | None = None
    claim: ClaimReference | None = None
    verified: Verification | None = None
    looked_up: bool | None = None


class EffectDropped(Event, frozen=True, kw_only=True):
    """A late or repeated result was ignored because its effect is no longer pending.

    ``claim`` is the claim that a worker named, which did not hold; None for a result of an executing process.
    """

    TOPIC: ClassVar[str] = "effect.dropped"
    proposal_id: str
    requirement_id: str
    reason: str
    claim: ClaimReference | None = None
    verified: Verification | None = None


class EffectRetried(Event, frozen=True, kw_only=True):
    """A failed effect, declared idempotent, will be performed again, not before ``due`` (ms).

    ``secrets`` and ``claim`` are as in ``effect.fulfilled``.
    """

    TOPIC: ClassVar[str] = "effect.retried"
    proposal_id: str
    requirement_id: str
    error: ErrorValue
    failures: int
    due: int
    secrets: list[SecretDigest] | None = None
    claim: ClaimReference | None = None
    verified: Verification | None = None


class EffectInDoubt(Event, frozen=True, kw_only=True):
    """The outcome of an effect that must not be repeated is unknown; a person must resolve it (HC-journal)."""

    TOPIC: ClassVar[str] = "effect.in_doubt"
    proposal_id: str
    requirement_id: str
    reason: str


class EffectResolved(Event, frozen=True, kw_only=True):
    """A person resolved an effect in doubt as ``happened``, ``retry`` or ``fail``."""

    TOPIC: ClassVar[str] = "effect.resolved"
    proposal_id: str
    requirement_id: str
    choice: str
    by: str
    reason: str
    verified: Verification | None = None


class ExecutionCancelled(Event, frozen=True, kw_only=True):
    """An actor cancelled an execution; no further effect is performed, and it ends as failed."""

    TOPIC: ClassVar[str] = "execution.cancelled"
    proposal_id: str
    by: str
    reason: str
    verified: Verification | None = None
