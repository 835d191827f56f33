"""Events of a proposal from its projection to its end."""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event, Wire

__all__ = [
    "DecisionMade",
    "HumanAnswered",
    "HumanTimedOut",
    "ProjectionRecorded",
    "ProposalCompleted",
    "ProposalFailed",
    "ProposalJudged",
    "ProposalSubmitted",
    "ProposalSuperseded",
]


class ProjectionRecorded(Event, frozen=True, kw_only=True):
    """A projection was asked, and what it answered (INT-12.2)."""

    TOPIC: ClassVar[str] = "projection.recorded"
    record_id: str
    projection_id: str
    considered: list[str]
    actor: Wire
    source: Wire
    schema_hash: str
    world_id: str
    result: Wire
    proposal_id: str | None = None
    intent_id: str | None = None
    intent_key: str | None = None


class ProposalSubmitted(Event, frozen=True, kw_only=True):
    """An intent was put forward.

    ``scope_rules`` is the version of the scope rules (``world.model.scope_patterns``); absent it is 1.
    """

    TOPIC: ClassVar[str] = "proposal.submitted"
    proposal_id: str
    actor: Wire
    intent: Wire
    branch: str
    base_world: str
    epoch: int
    execution_key: str
    schema_hash: str
    attempt: int
    trace: Wire | None = None
    scope_rules: int | None = None


class ProposalJudged(Event, frozen=True, kw_only=True):
    """An Authority gave a ruling: the first one, or one after an answer or a timeout."""

    TOPIC: ClassVar[str] = "proposal.judged"
    proposal_id: str
    ruling: Wire
    binding: Wire
    deadline: int | None = None


class HumanAnswered(Event, frozen=True, kw_only=True):
    """A person answered a waiting proposal."""

    TOPIC: ClassVar[str] = "human.answered"
    proposal_id: str
    answer: Wire


class HumanTimedOut(Event, frozen=True, kw_only=True):
    """Nobody answered in time."""

    TOPIC: ClassVar[str] = "human.timed_out"
    proposal_id: str
    deadline: int


class DecisionMade(Event, frozen=True, kw_only=True):
    """The one terminal decision about a proposal.

    ``verdict_id`` is the verdict that granted its leases, and ``backup`` says whether a backup was made for them; logs
    of before that was recorded do not say it. Since version 2, its trace says where the engine overruled what was
    ruled (``world.model.overruling``). ``existence`` is there where it rejects because a resource does not exist that
    the proposal depends on (``world.pipeline.existence``).
    """

    TOPIC: ClassVar[str] = "decision.made"
    VERSION: ClassVar[int] = 2
    proposal_id: str
    decision: Wire
    verdict_id: str | None = None
    backup: bool | None = None
    existence: list[Wire] | None = None


class ProposalSuperseded(Event, frozen=True, kw_only=True):
    """A proposal that was not decided yet fell behind a branch switch (WP-epoch)."""

    TOPIC: ClassVar[str] = "proposal.superseded"
    proposal_id: str
    epoch: int


class ProposalCompleted(Event, frozen=True, kw_only=True):
    """The execution ended well; ``world_id`` is what came of it, now the branch's head."""

    TOPIC: ClassVar[str] = "proposal.completed"
    proposal_id: str
    world_id: str
    parent: str
    branch: str


class ProposalFailed(Event, frozen=True, kw_only=True):
    """The execution failed; ``world_id`` holds the error, the branch's head stays."""

    TOPIC: ClassVar[str] = "proposal.failed"
    proposal_id: str
    world_id: str
    parent: str
    branch: str
    error: Wire
