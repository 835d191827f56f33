"""Adoption of a domain in place of the one in force, with the migration of every branch.

An adoption is one commit: open proposals end, the domain is recorded, one world is sealed on each branch where a
migration is declared, and proposals that are carried over are submitted again. Sources: WP-schema, WP-lineage;
design section 4.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from world.core import Domain
from world.core.validate import check_input
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import REALM_STREAM
from world.events.execution_events import ExecutionStarted
from world.events.proposal_events import DecisionMade, ProposalCompleted, ProposalJudged, ProposalSubmitted
from world.events.realm_events import ActorRegistered, DomainAdopted
from world.model.actor import ActorRef
from world.model.adoption import (
    ADOPTION,
    MIGRATION_ACTOR,
    adoption_binding,
    migration_id,
    migration_intent,
    migration_ruling,
)
from world.model.decision import DecisionRecord
from world.model.patch import apply_patches
from world.model.scope_patterns import SCOPE_RULES
from world.pipeline.adopted_code.adoption_plan import (
    AdoptionPlan,
    BranchPlan,
    domain_in_force,
    plan_adoption,
    refuse_impossible,
)
from world.pipeline.driver import advance, submit
from world.pipeline.seal import ParentWorld, WorldContent, record_world
from world.pipeline.steps import LeftBehind
from world.pipeline.submit import Submission
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal

__all__ = ["OpenProposals", "adopt_domain", "emit_domain"]

OpenProposals = Literal["supersede", "carry_over"]
"""What an adoption of another schema does with undecided proposals.

``supersede`` ends them with the reason. ``carry_over`` ends them too, and submits the intent of each whose action the
new schema has and whose input fits it again, as a new proposal that is judged from the start.
"""


def adopt_domain(work: UnitOfWork, by: str, *, open_proposals: OpenProposals = "supersede") -> bool:
    """Adopt the loaded domain; return False where it is recorded already.

    The same schema is recorded again where the code, the kind of its identities, a distribution or the version of the
    rules is another one. A domain that is used in an earlier form is adopted in its newest one. With another schema,
    every branch is migrated where the domain declares a migration from the version in force; otherwise
    its head must obey the schema as it is.

    Args:
        work: the unit of work.
        by: the operator, for the record.
        open_proposals: what becomes of undecided proposals where the schema changes.

    Raises:
        RefusedError: ``NOT_FOUNDED``; ``OPEN_PROPOSALS`` for approved proposals that have not ended; with the places,
            ``DATA_DOES_NOT_FIT`` and ``MIGRATION_FAILED``. Nothing is changed then.
    """
    in_force = domain_in_force(work.realm)
    before = work.domain.schema.hash
    try:
        work.domain.take_newest_form()
        if work.domain.schema.hash != before:
            work.prepared = None  # what was prepared compared the earlier form
        return _adopt(work, in_force, by, open_proposals)
    except RefusedError:
        work.domain.take_form(in_force.schema_hash, in_force.rules or 1)
        raise


def _adopt(work: UnitOfWork, in_force: DomainAdopted, by: str, open_proposals: OpenProposals) -> bool:
    if _is_recorded(in_force, work.domain):
        return False
    if in_force.schema_hash == work.domain.schema.hash:
        emit_domain(work, by)
        return True
    planned = None if work.prepared is None else work.prepared.plans
    plan = plan_adoption(work.realm, work.domain, work.data, work.limits.in_time, planned)
    refuse_impossible(plan)
    carried = _end_undecided(work, plan, open_proposals)
    emit_domain(work, by)
    _migrate(work, plan, by)
    for proposal, new_id in carried:
        _carry_over(work, proposal, new_id)
    return True


def emit_domain(work: UnitOfWork, by: str) -> None:
    """Record that the loaded domain comes into force."""
    work.emit(
        REALM_STREAM,
        DomainAdopted(
            at=work.at,
            schema=dict(work.domain.schema.portable),
            schema_hash=work.domain.schema.hash,
            sources=dict(work.domain.sources()),
            by=by,
            previous=work.realm.schema_hash or None,
            distributions=work.domain.distributions() or None,
            rules=None if work.domain.schema.rules == 1 else work.domain.schema.rules,
        ),
    )


# Open proposals


def _end_undecided(work: UnitOfWork, plan: AdoptionPlan, rule: OpenProposals) -> list[tuple[Proposal, str]]:
    """Supersede the undecided proposals; return those that are carried over, with the ids of their successors."""
    carried: list[tuple[Proposal, str]] = []
    steps = []
    for proposal_id in plan.ends:
        proposal = work.realm.proposals[proposal_id]
        reason = f"version {plan.adopted['version']} of the domain was adopted"
        why_not = _why_not_carried(work.domain, proposal) if rule == "carry_over" else None
        successor = None
        if rule == "carry_over" and why_not is None:
            successor = work.ids.new_id()
            carried.append((proposal, successor))
        steps.append(LeftBehind(proposal, f"{reason}: {why_not}" if why_not else reason, successor))
    advance(work, steps)
    return carried


def _why_not_carried(domain: Domain, proposal: Proposal) -> str | None:
    """Return why an intent cannot be issued again under a schema, None where it can."""
    body = proposal.intent.body
    spec = domain.schema.actions.get(body.type)
    if spec is None:
        return f"it has no action {body.type!r}"
    faults = check_input(spec.input, body.input)
    return f"{faults[0].path} {faults[0].message}" if faults else None


def _carry_over(work: UnitOfWork, proposal: Proposal, new_id: str) -> None:
    """Submit the intent of a superseded proposal again; a refusal leaves it superseded."""
    earlier, body = proposal.submitted, proposal.intent.body
    key = body.key(work.realm.schema_hash)
    intent = replace(earlier.intent, intent_id=work.ids.new_id(), intent_key=key)
    own_key = earlier.execution_key == f"proposal:{earlier.proposal_id}"
    submission = Submission(
        intent, branch=earlier.branch, trace=earlier.trace, execution_key=None if own_key else earlier.execution_key
    )
    work.attempt(lambda: submit(work, submission, new_id))


# Migrations


def _migrate(work: UnitOfWork, plan: AdoptionPlan, by: str) -> None:
    """Seal the world of the migration on each branch."""
    if plan.migration is None:
        return
    known = work.realm.actors.get(MIGRATION_ACTOR)
    if known is None:
        actor = ActorRef(actor_id=MIGRATION_ACTOR, kind="system")
        work.emit(REALM_STREAM, ActorRegistered(at=work.at, actor=actor, by=by))
    elif known.kind != "system":
        raise RefusedError(
            ErrorCode.ACTOR_MISMATCH,
            f"The actor {MIGRATION_ACTOR!r} is registered as {known.kind}, and migrations are intents of a system "
            "actor of that id; they cannot be made in this realm.",
            actor_id=MIGRATION_ACTOR,
        )
    for branch in plan.branches:
        _migrate_branch(work, plan, branch, by)


def _migrate_branch(work: UnitOfWork, plan: AdoptionPlan, branch: BranchPlan, by: str) -> None:
    at = work.at
    change = {"from": dict(plan.previous), "to": dict(plan.adopted), "by": by}
    intent = migration_intent((work.ids.new_id(), work.ids.new_id()), work.realm.schema_hash, change)
    attempt = work.lookup.attempts(intent.intent_key) + 1
    name = migration_id(intent.intent_key, attempt)
    work.emit(
        name,
        ProposalSubmitted(
            at=at,
            proposal_id=name,
            actor=work.realm.actors[MIGRATION_ACTOR],
            intent=intent,
            branch=branch.branch,
            base_world=branch.head,
            epoch=work.realm.epoch,
            execution_key=f"proposal:{name}",
            schema_hash=work.realm.schema_hash,
            attempt=attempt,
            scope_rules=SCOPE_RULES,
            migration=plan.migration,
        ),
    )
    ruling = migration_ruling(change)
    work.emit(name, ProposalJudged(at=at, proposal_id=name, ruling=ruling, binding=adoption_binding(by)))
    record = DecisionRecord(
        decision_id=work.ids.new_id(),
        proposal_id=name,
        authority=ADOPTION,
        decision="approved",
        reason=ruling.reason,
        decided_at=at,
        approved_scope=None,
        policy_hash=None,
        trace=(),
    )
    work.emit(name, DecisionMade(at=at, proposal_id=name, decision=record))
    started = ExecutionStarted(
        at=at,
        proposal_id=name,
        on_world=branch.head,
        now=at,
        seed=intent.intent_id,
        enforcement=work.executor.enforcement,
        attempt=1,
        worker=work.workers.me,
    )
    work.emit(name, started)
    sealed = _seal(work, branch, name)
    work.emit(
        name,
        ProposalCompleted(at=at, proposal_id=name, world_id=sealed, parent=branch.head, branch=branch.branch),
    )


def _seal(work: UnitOfWork, plan: BranchPlan, proposal_id: str) -> str:
    """Append the world of a migration, unless another branch reached it before; return its id."""
    patches = plan.patches or ()
    data = apply_patches(work.data(plan.head), patches)
    outcome = work.lookup.world_outcome(plan.head)
    assert plan.computed is not None  # a plan that is possible has them
    parent = ParentWorld(plan.head, 0 if outcome is None else outcome[1], proposal_id)
    return record_world(work, WorldContent(data, plan.computed, patches), plan.branch, parent)


def _is_recorded(adopted: DomainAdopted, domain: Domain) -> bool:
    """Return whether an adoption has the schema, the code and the distributions of a domain."""
    is_same = adopted.schema_hash == domain.schema.hash and (adopted.rules or 1) == domain.schema.rules
    is_same_code = adopted.sources == domain.sources()
    return is_same and is_same_code and (adopted.distributions or {}) == domain.distributions()
