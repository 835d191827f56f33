"""The pipeline, on one page: which stage follows which, from a source event to a sealed World.

    project -> issue -> submit -> judge -> arbitrate -> decide -> execute -> seal -> release

A stage is a function of the unit of work and of one step: the status that a proposal has reached, with what the stage
needs (``world.pipeline.steps``). It appends events, and returns the steps that follow; it calls no other stage. This
module alone calls stages. Nothing here is recorded, and a step is never kept from one commit to the next: what is left
to do at the start of a unit is found in the state (``due``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import structs

from world.model.intent import IntentInstance
from world.model.scope_patterns import SCOPE_RULES
from world.pipeline.adopted_code.holding import released
from world.pipeline.arbitrate import arbitrate, follow_verdicts, let_time_pass
from world.pipeline.decide import decide, supersede
from world.pipeline.effects.external_effects import lapse_claims, withdraw_offers
from world.pipeline.execute import compute, record_answer, start_next
from world.pipeline.judge import expire, judge
from world.pipeline.project import Projected, Projector, project_source
from world.pipeline.recover import take_over
from world.pipeline.seal import release, seal
from world.pipeline.steps import (
    Approvable,
    Approved,
    Computed,
    Decidable,
    EffectAnswered,
    Executing,
    LeftBehind,
    Resumable,
    Sealed,
    Stage,
    Step,
    Submitted,
)
from world.pipeline.submit import Submission, record_proposal
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal

__all__ = ["STAGES", "advance", "due", "project", "recover", "reevaluate", "submit"]


# A source event, or an intent, becomes a proposal. A refusal up to here changes nothing.


def project(
    work: UnitOfWork,
    projector: Projector,
    submission: Callable[[IntentInstance], Submission],
    branch: str | None,
    proposal_id: str,
) -> Projected:
    """Project a source event, issue the intent that is selected, submit it and advance its proposal.

    Args:
        work: the unit of work.
        projector: selects and issues the intent.
        submission: returns what the caller requests for the intent.
        branch: the branch whose head the projections read; None is the active one.
        proposal_id: id for the proposal.

    Raises:
        RefusedError: what the projector refuses; see ``submit``.
    """
    selected = project_source(work, projector, branch, proposal_id)
    if isinstance(selected, Projected):
        return selected
    asked = structs.replace(submission(selected.intent), record=selected.record)
    return Projected(selected.record, submit(work, asked, proposal_id))


def submit(work: UnitOfWork, asked: Submission, proposal_id: str, *, scope_rules: int = SCOPE_RULES) -> Proposal:
    """Submit an intent, and advance its proposal as far as that is possible without effects or people.

    Args:
        work: the unit of work.
        asked: the submission.
        proposal_id: id for the proposal.
        scope_rules: version of the scope rules; see ``world.pipeline.submit.record_proposal``.

    Raises:
        RefusedError: see ``world.pipeline.submit.record_proposal``.
    """
    submitted = record_proposal(work, asked, proposal_id, scope_rules=scope_rules)
    advance(work, (submitted,))
    return submitted.proposal


# A proposal becomes a World: the stage for each status.


def resume(work: UnitOfWork, resumable: Resumable) -> Iterable[Step]:
    """Compute an execution after an effect, then start the next of its key; a refusal leaves both to ``recover``."""
    proposal = resumable.proposal
    if work.attempt(lambda: advance(work, (Executing(proposal),))) is not None:
        return ()
    return (Approved(proposal.submitted.execution_key),)


STAGES: Final[Mapping[type[Step], Stage]] = {
    Submitted: judge,
    Approvable: arbitrate,
    Decidable: decide,
    Approved: start_next,
    Executing: compute,
    Computed: seal,
    Sealed: release,
    # beside that path
    EffectAnswered: record_answer,
    Resumable: resume,
    LeftBehind: supersede,
}
"""The stage that each step leads to."""


def advance(work: UnitOfWork, steps: Iterable[Step]) -> None:
    """Run the stages of steps, and of all steps that follow from them, until none is left.

    Each step is completed, with everything that follows from it, before the next one is taken. So a stage that yields
    its steps sees the state that the earlier ones led to.
    """
    worklist = [iter(steps)]
    while worklist:
        step = next(worklist[-1], None)
        if step is None:
            worklist.pop()
        else:
            stage, observer = STAGES[type(step)], work.observer
            worklist.append(iter(stage(work, step) if observer is None else observer(stage, work, step)))


# What is due without a command, at the start of every unit of work.


def due(work: UnitOfWork, *, must_recover: bool) -> Iterator[Step]:
    """Yield the steps of what is due: leases and answers whose time is over, held proposals, abandoned executions.

    Mostly nothing is, which the state says by itself.

    Args:
        work: the unit of work.
        must_recover: take over abandoned executions, even where no effect is overdue.
    """
    if not must_recover and not _may_be_due(work):
        return
    yield from let_time_pass(work)
    yield from expire(work)
    if work.realm.held:
        yield from released(work)
    yield from lapse_claims(work)
    if must_recover:
        yield from withdraw_offers(work, list(work.realm.offered))
    if must_recover or work.realm.is_effect_overdue(work.at):
        yield from take_over(work)
    yield from follow_verdicts(work)


def _may_be_due(work: UnitOfWork) -> bool:
    """Return whether a time has come, or something waits that may continue at any time."""
    realm, time = work.realm, work.realm.next_due()
    waits = (
        bool(work.verdicts or realm.held or realm.klis.refusals.freed)
        or realm.workspace is not None
        or realm.writer.closed is not None
    )
    return waits or (time is not None and time <= work.klis_now)


def recover(work: UnitOfWork) -> None:
    """Take over what vanished workers left, and start what is approved; see ``world.pipeline.recover.take_over``."""
    advance(work, withdraw_offers(work, list(work.realm.offered)))
    advance(work, take_over(work))


def reevaluate(work: UnitOfWork) -> None:
    """Continue the proposals whose requests for leases were evaluated again, or whose holds ended, after a command."""
    if work.realm.held:
        advance(work, released(work))
    if work.verdicts:
        advance(work, follow_verdicts(work))
    if work.is_revoking:
        work.is_revoking = False
        advance(work, withdraw_offers(work, list(work.realm.offered)))
