"""Preview of an approval: what the action would change, and the leases that it would request; nothing is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.realm_events import DomainAdopted
from world.klis.settings import KlisSettings
from world.klis.triple import Triple
from world.model.decision import HumanAnswer, Ruling
from world.model.snapshot import ErrorValue
from world.pipeline.adopted_code.holding import needs_other_code
from world.pipeline.leasing.proposal_manifest import manifest_of
from world.pipeline.preparation.preparing import Reading
from world.state.ports import ExecutionOrder
from world.state.realm_view import ReadableRealm

__all__ = ["ApprovalPreview", "PreviewBasis", "basis_of", "check_basis", "preview_approval"]


@dataclass(frozen=True, slots=True)
class ApprovalPreview:
    """First step of the execution that an approval as proposed would start now.

    Args:
        world: id of the head that it was computed on.
        status: completed, failed, or pending where the action requests effects, whose results are not known before.
        before: the data of the head.
        after: the data of the resulting world; that of the head unless completed.
        error: why it would fail.
        effects: types and parameters of the effects that it requests first.
        leases: what it would lease.
    """

    world: str
    status: str
    before: Any
    after: Any
    error: ErrorValue | None
    effects: tuple[tuple[str, Any], ...]
    leases: tuple[Triple, ...]


@dataclass(frozen=True, slots=True)
class PreviewBasis:
    """State from which a person is shown a waiting proposal; while it is equal, the same is shown.

    Args:
        ruling: the ruling that waits.
        answers: what people answered before.
        deadline: ms since 1970; None is without limit.
        head: head of the proposal's branch, on which the preview is computed.
        domain: the domain in force.
        klis: the lease settings, which the manifest follows.
    """

    ruling: Ruling
    answers: tuple[HumanAnswer, ...]
    deadline: int | None
    head: str | None
    domain: DomainAdopted | None
    klis: KlisSettings


def basis_of(realm: ReadableRealm, proposal_id: str) -> PreviewBasis | None:
    """Return the state from which a proposal is shown; None where it does not wait for people.

    Args:
        realm: the state of the realm.
        proposal_id: the proposal.
    """
    proposal = realm.proposals.get(proposal_id)
    if proposal is None or proposal.asked is None:
        return None
    branch = realm.branches.get(proposal.branch)
    head = None if branch is None else branch.head
    answers, settings = tuple(proposal.answers), realm.klis.in_force
    return PreviewBasis(proposal.asked, answers, proposal.deadline, head, realm.domain, settings)


def check_basis(realm: ReadableRealm, proposal_id: str, shown: PreviewBasis | None) -> None:
    """Refuse an answer to a proposal that changed since what was shown of it was compared.

    Args:
        realm: the state under the log's lock.
        proposal_id: the proposal; one that does not wait for people any more is refused by the answer itself.
        shown: the state at the comparison; None where nothing was shown.

    Raises:
        RefusedError: ``SHOWN_CHANGED``, with ``is_stale``: what is shown now is to be compared again.
    """
    current = basis_of(realm, proposal_id)
    if shown is not None and current is not None and current != shown:
        raise RefusedError(
            ErrorCode.SHOWN_CHANGED,
            f"Proposal {proposal_id} changed while it was answered; read the inbox again and answer what it shows now.",
            proposal_id=proposal_id,
            is_stale=True,
        )


def preview_approval(reading: Reading, proposal_id: str) -> ApprovalPreview:
    """Compute what the approval of a waiting proposal would do.

    The time of the execution is that of the submission, so that the preview is the same until the state changes.

    Args:
        reading: the committed state.
        proposal_id: a proposal that waits for people.

    Raises:
        RefusedError: ``NOT_WAITING``; ``SCHEMA_MISMATCH`` where this process has another domain or other code than the
            one in force; ``COMPUTED_TIMED_OUT``; what is refused of its manifest.
    """
    work = reading.unit()
    known = work.realm.proposals.get(proposal_id)
    proposal = None if known is None else known.copy()
    if proposal is None or proposal.asked is None:
        raise RefusedError(ErrorCode.NOT_WAITING, f"Proposal {proposal_id} does not wait for people (any more).")
    if work.realm.schema_hash != work.domain.schema.hash or needs_other_code(work, proposal):
        raise RefusedError(
            ErrorCode.SCHEMA_MISMATCH, "This process has another domain, or other code of the action, than is in force."
        )
    body = proposal.intent.body
    scope = proposal.asked.approved_scope or body.scope_proposal
    branch = work.realm.branches[proposal.branch]
    base = work.snapshot(branch.head)
    order = ExecutionOrder(
        proposal_id=proposal_id,
        intent=proposal.intent,
        snapshot=base,
        approved_scope=scope,
        now=proposal.submitted.at,
        seed=proposal.intent.intent_id,
        actor=proposal.submitted.actor,
        scope_rules=proposal.scope_rules,
    )
    outcome = work.executor.step(order)
    manifest = manifest_of(work, proposal, scope)
    is_completed = outcome.status == "completed"
    return ApprovalPreview(
        world=branch.head,
        status=outcome.status,
        before=base.data,
        after=outcome.snapshot.data if is_completed else base.data,
        error=outcome.error,
        effects=tuple((one.type, one.params) for one in outcome.requirements),
        leases=() if manifest is None else manifest.triples,
    )
