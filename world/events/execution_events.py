"""Events of an execution and its effects."""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event, Wire

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


class ExecutionStarted(Event, frozen=True, kw_only=True):
    """A worker took an approved proposal on, on the head ``on_world``; ``now`` and ``seed`` stay frozen.

    ``existence`` says whether the resources exist that the proposal depends on (``world.pipeline.existence``); None
    where there are none that can be checked, and in logs from before that was recorded.
    """

    TOPIC: ClassVar[str] = "execution.started"
    proposal_id: str
    on_world: str
    now: int
    seed: str
    enforcement: str
    attempt: int
    worker: str
    existence: list[Wire] | None = None


class EffectRequested(Event, frozen=True, kw_only=True):
    """An effect is about to be made; until ``deadline`` its worker may still be at it."""

    TOPIC: ClassVar[str] = "effect.requested"
    proposal_id: str
    requirement: Wire
    idempotent: bool
    attempt: int
    deadline: int


class EffectFulfilled(Event, frozen=True, kw_only=True):
    """An effect's result or error value; replay answers from here and never makes the effect again.

    ``secrets`` holds name and keyed digest of each secret that the effect used (``host.secrets``); None where it used
    none.
    """

    TOPIC: ClassVar[str] = "effect.fulfilled"
    proposal_id: str
    requirement_id: str
    result: Wire
    attempt: int
    secrets: list[Wire] | None = None


class EffectDropped(Event, frozen=True, kw_only=True):
    """A late or repeated result that nobody waits for any more."""

    TOPIC: ClassVar[str] = "effect.dropped"
    proposal_id: str
    requirement_id: str
    reason: str


class EffectRetried(Event, frozen=True, kw_only=True):
    """An effect that failed will be made again, not before ``due`` (ms); it is declared idempotent.

    ``secrets`` is as in ``effect.fulfilled``.
    """

    TOPIC: ClassVar[str] = "effect.retried"
    proposal_id: str
    requirement_id: str
    error: Wire
    failures: int
    due: int
    secrets: list[Wire] | None = None


class EffectInDoubt(Event, frozen=True, kw_only=True):
    """An effect may have happened or not, and may not be repeated: a person has to say (HC-journal)."""

    TOPIC: ClassVar[str] = "effect.in_doubt"
    proposal_id: str
    requirement_id: str
    reason: str


class EffectResolved(Event, frozen=True, kw_only=True):
    """A person said what became of an effect in doubt: ``happened``, ``retry`` or ``fail``."""

    TOPIC: ClassVar[str] = "effect.resolved"
    proposal_id: str
    requirement_id: str
    choice: str
    by: str
    reason: str


class ExecutionCancelled(Event, frozen=True, kw_only=True):
    """Somebody called an execution off: no further effect is made, and it ends failed."""

    TOPIC: ClassVar[str] = "execution.cancelled"
    proposal_id: str
    by: str
    reason: str
