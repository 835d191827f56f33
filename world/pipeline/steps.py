"""The steps of the pipeline: each names the status that a proposal has reached, with what its next stage needs.

A stage returns steps, and ``world.pipeline.driver`` looks up the stage of each. No step is recorded: a log holds the
events that the stages append.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from world.events.claim_events import ClaimReference
from world.events.lease_events import VerdictGiven
from world.events.resource_values import ResourceExistence, SecretDigest
from world.model.decision import Ruling
from world.model.snapshot import EffectAnswer
from world.pipeline.leasing.proposal_manifest import ProposalNeeds
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import StepOutcome
from world.state.proposal import Proposal

__all__ = [
    "Approvable",
    "Approved",
    "Computed",
    "Decidable",
    "EffectAnswered",
    "Executing",
    "LeftBehind",
    "Resumable",
    "Sealed",
    "Stage",
    "Step",
    "Submitted",
]


class Submitted(Struct, frozen=True):
    """A proposal was recorded and is not judged."""

    proposal: Proposal


class Approvable(Struct, frozen=True):
    """A ruling approves a proposal, whose leases are not requested."""

    proposal: Proposal
    ruling: Ruling
    needs: ProposalNeeds


class Decidable(Struct, frozen=True):
    """A ruling is final: it rejects, or it approves and the leases are granted, or none are needed.

    Args:
        proposal: the proposal, not decided.
        ruling: what is decided.
        granted: the verdict that granted its leases; None where it has none.
        existence: what was observed of the resources that it depends on, where one of them is absent.
    """

    proposal: Proposal
    ruling: Ruling
    granted: VerdictGiven | None = None
    existence: list[ResourceExistence] | None = None


class LeftBehind(Struct, frozen=True):
    """A proposal is not decided any more: another branch became active, another domain was adopted, or it is withdrawn.

    Args:
        proposal: the proposal, not decided.
        reason: why, for the record; None where a branch became active.
        successor: id of the proposal that carries its intent on; None without one.
        by: who withdrew it; None where it was not withdrawn.
    """

    proposal: Proposal
    reason: str | None = None
    successor: str | None = None
    by: str | None = None


class Approved(Struct, frozen=True):
    """Proposals of an execution key may be approved and not started, and the key may be free."""

    execution_key: str


class Executing(Struct, frozen=True):
    """An execution can be computed as far as its journal answers its effects."""

    proposal: Proposal


class Resumable(Struct, frozen=True):
    """An execution has the result of an effect; a refusal leaves it to ``recover``, and its key stays occupied."""

    proposal: Proposal


class EffectAnswered(Struct, frozen=True):
    """An effect under way has a result that is not journaled.

    Args:
        proposal: the execution.
        requirement_id: the effect.
        answer: its value or its error.
        attempt: the attempt of the execution that requested it.
        secrets: the secrets that it used, for the record.
        claim: the claim of the worker that reported it; None for an effect of the executing process.
        looked_up: whether the effect is in doubt, and its handler has found out its result.
        is_reported: whether the caller of the command has found it out, for the record.
    """

    proposal: Proposal
    requirement_id: str
    answer: EffectAnswer
    attempt: int
    secrets: list[SecretDigest] | None = None
    claim: ClaimReference | None = None
    looked_up: bool = False
    is_reported: bool = False


class Computed(Struct, frozen=True):
    """An execution has an outcome on a parent world, and is not sealed.

    Args:
        proposal: the execution.
        parent: id of the world that the outcome was computed on.
        outcome: patches, or the error that it failed with.
    """

    proposal: Proposal
    parent: str
    outcome: StepOutcome


class Sealed(Struct, frozen=True):
    """A proposal has ended with a world, and its leases are not released."""

    proposal: Proposal


Step = (
    Submitted
    | Approvable
    | Decidable
    | LeftBehind
    | Approved
    | Executing
    | Resumable
    | EffectAnswered
    | Computed
    | Sealed
)
Stage = Callable[[UnitOfWork, Any], Iterable[Step]]
