"""Events of external effects: workers claim what an execution offers (glossary: offer, claim, worker).

An effect is offered by ``effect.requested`` with ``offer``. A claim ends with ``effect.fulfilled``, ``effect.retried``,
``effect.lapsed`` or ``effect.in_doubt``, or with its proposal.
"""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event
from world.events.caller_events import Attendance
from world.events.verification import Verification
from world.model.record import Record

__all__ = ["ClaimReference", "EffectClaimed", "EffectExtended", "EffectLapsed", "EffectOffer"]


class EffectOffer(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Terms of an effect that is offered to workers.

    Args:
        time_limit_ms: how long a claim holds without a heartbeat, apart from the time to record the result.
        retries: how often the effect is offered again after a failure, where it is idempotent.
        backoff_ms: wait before the first retry, in milliseconds; doubled with each.
        workspace: id of the workspace that its worker must have; None for any worker.
        by_actor: whether only the actor of the proposal may claim it.
        attended: what attends the call while it is made; None where it is not attended, and in earlier logs.
    """

    time_limit_ms: int
    retries: int
    backoff_ms: int
    workspace: str | None = None
    by_actor: bool | None = None
    attended: Attendance | None = None


class ClaimReference(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The claim under which a result was reported: its id, its fencing token, and the worker that reported it."""

    claim_id: str
    token: int
    worker: str


class EffectClaimed(Event, frozen=True, kw_only=True):
    """A worker claimed an offered effect; no other worker may claim it until ``deadline`` (ms).

    ``token`` is the position of this event in the log, so larger than that of every earlier claim. ``attempt`` is the
    number of the attempt at the effect, from 1: one more than its recorded failures. ``key`` is that of the request,
    which its sender may repeat. The claim belongs to the actor of ``verified``; None is a process with the log.
    """

    TOPIC: ClassVar[str] = "effect.claimed"
    proposal_id: str
    requirement_id: str
    claim_id: str
    worker: str
    token: int
    deadline: int
    attempt: int
    key: str | None = None
    verified: Verification | None = None

    @property
    def subject(self) -> str | None:
        """The actor to whom the claim belongs; None where no caller was verified."""
        return None if self.verified is None else self.verified.verified_actor

    @property
    def reference(self) -> ClaimReference:
        """The claim as its completion names it."""
        return ClaimReference(claim_id=self.claim_id, token=self.token, worker=self.worker)


class EffectExtended(Event, frozen=True, kw_only=True):
    """A heartbeat of the worker extended a claim to ``deadline`` (ms)."""

    TOPIC: ClassVar[str] = "effect.extended"
    proposal_id: str
    requirement_id: str
    claim_id: str
    token: int
    deadline: int
    verified: Verification | None = None


class EffectLapsed(Event, frozen=True, kw_only=True):
    """The deadline of a claim passed without a result; the effect, which is idempotent, is offered again.

    An effect that is not idempotent lapses only where its execution was cancelled or lost its leases; otherwise it is
    in doubt.
    """

    TOPIC: ClassVar[str] = "effect.lapsed"
    proposal_id: str
    requirement_id: str
    claim_id: str
    token: int
