"""Submitting: from an IntentInstance to a Proposal, with every check that comes before judgement.

Sources: INT-6.1.2, INT-7.4.4c, INT-8.2, INT-14.4; WP-base, WP-epoch, WP-exkey; design section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from world.core import DomainSchema, unchecked_schema
from world.core.fields import secret_literals
from world.core.validate import check_input
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.caller_events import Attended
from world.events.proposal_events import ProjectionRecorded, ProposalSubmitted
from world.events.verification import IntentSignature
from world.klis.identity.intent_signature import signature_fault
from world.model.actor import ActorRef
from world.model.intent import IntentInstance
from world.model.intent_origin import check_direct, check_key, is_direct
from world.model.scope_patterns import SCOPE_RULES, check_number
from world.model.secrets.literal import may_name_secrets, named_literals, refuse_literals
from world.pipeline.branches import check_base, create_branch, find_branch, fork_name
from world.pipeline.leasing.klis_settings_in_force import is_arbitrated
from world.pipeline.preparation.prepared import check_submission, unchanged_submission
from world.pipeline.steps import Submitted
from world.pipeline.unit_of_work import UnitOfWork


class Submission(Struct, frozen=True):
    """What a caller asks for.

    Args:
        intent: the issued instance.
        branch: the branch to move; None is the active one, or a new one where ``base_world`` is given.
        base_world: a world to start from. With ``branch`` it must be that branch's head; without, a new branch
            is made at it (a fork).
        fork_name: name of the branch that a fork makes; None makes one up.
        trace: what the caller wants to find in the log, JSON.
        execution_key: proposals with equal keys execute one after the other; None is the branch.
        allow_failed_base: start from a world whose execution failed.
        record: the projection record that this submission follows from.
        signature: signature of the intent by a registered key of its actor; None for an intent that is not signed.
        attended: how the call of a tool is attended; None for every other intent.
    """

    intent: IntentInstance
    branch: str | None = None
    base_world: str | None = None
    fork_name: str | None = None
    trace: Mapping[str, Any] | None = None
    execution_key: str | None = None
    allow_failed_base: bool = False
    record: ProjectionRecorded | None = None
    signature: IntentSignature | None = None
    attended: Attended | None = None


def record_proposal(
    work: UnitOfWork, asked: Submission, proposal_id: str, *, scope_rules: int = SCOPE_RULES
) -> Submitted:
    """Check an intent and record it as a proposal, which is judged next.

    Args:
        work: the unit of work.
        asked: the submission.
        proposal_id: id for the new proposal.
        scope_rules: version of the scope rules (``world.model.scope_patterns``); an earlier one for the counterfactual
            of a proposal that was submitted under it.

    Returns:
        The proposal, to be judged; the realm keeps it until it has ended.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR``, ``ACTOR_NOT_BOUND``, ``ACTOR_MISMATCH``, ``UNKNOWN_ACTION``, ``WRONG_SCHEMA``,
            ``INVALID_INPUT``, ``INTENT_ALREADY_SUBMITTED``, ``INTENT_TOO_LARGE``, ``SCOPE_TOO_LARGE``,
            ``NOT_A_DIRECT_INTENT``, ``UNKNOWN_BRANCH``, ``LITERAL_SECRET``, ``STALE_BASE``, ``UNKNOWN_WORLD``,
            ``FAILED_BASE``, ``TOO_MANY_OPEN``, ``INVALID_VALUE`` for a record of another intent, ``UNAUTHENTICATED``
            for a signature that does not hold; nothing was changed then.
        StalePreparationError: see ``world.pipeline.preparation.prepared.check_submission``; nothing was changed then.
    """
    intent = asked.intent
    check_intent(work, intent)
    if asked.record is not None:
        _check_record(intent, asked.record)
    event = None if asked.base_world is not None else unchanged_submission(work, intent)
    if event is None:
        base = base_of(work, asked)
        event = submission_event(work, asked, base, proposal_id, scope_rules=scope_rules)
        check_submission(work, event)
        if event.at != work.at:
            event = structs.replace(event, at=work.at)
        event = _authenticated(work, asked, event)
        if base.is_fork:
            create_branch(work, base.branch, base.world, by=intent.meta.origin.actor.actor_id, is_fork=True)
    else:
        event = _authenticated(work, asked, event)
    if asked.record is not None:
        work.emit(f"projection:{asked.record.projection_id}", asked.record)
    work.emit(proposal_id, event)
    proposal = work.realm.proposals[proposal_id]
    proposal.carries(intent)
    return Submitted(proposal)


def _authenticated(work: UnitOfWork, asked: Submission, event: ProposalSubmitted) -> ProposalSubmitted:
    """Return a submission with its verified caller and its signature.

    Raises:
        RefusedError: ``UNAUTHENTICATED``, and the codes of ``UnitOfWork.of_caller``.
    """
    if asked.signature is not None:
        event = structs.replace(event, signed=asked.signature)
    event = work.of_caller(event)
    if event.signed is None and event.verified is None:
        return event
    founded = work.realm.founded
    fault = signature_fault(work.realm.klis, "" if founded is None else founded.log_id, event)
    if fault is not None:
        raise RefusedError(
            ErrorCode.UNAUTHENTICATED,
            f"The signature of the intent {event.intent.intent_id} is not accepted: {fault}.",
            intent_id=event.intent.intent_id,
        )
    return event


class SubmissionBase(Struct, frozen=True):
    """Where a proposal begins.

    Args:
        branch: the branch that it moves.
        world: id of its base world.
        is_fork: whether the branch is created at that world.
    """

    branch: str
    world: str
    is_fork: bool = False


def submission_event(
    work: UnitOfWork,
    asked: Submission,
    base: SubmissionBase,
    proposal_id: str,
    *,
    scope_rules: int = SCOPE_RULES,
) -> ProposalSubmitted:
    """Return the event that records a proposal, without emitting it.

    Args:
        work: the unit of work.
        asked: the submission.
        base: where it begins.
        proposal_id: id for the new proposal.
        scope_rules: as for ``record_proposal``.
    """
    intent = asked.intent
    return ProposalSubmitted(
        at=work.at,
        proposal_id=proposal_id,
        actor=work.realm.actors[intent.meta.origin.actor.actor_id],
        intent=intent,
        branch=base.branch,
        base_world=base.world,
        epoch=work.realm.epoch,
        execution_key=asked.execution_key or _own_key(work, base.branch, proposal_id),
        schema_hash=work.realm.schema_hash,
        attempt=work.lookup.attempts(intent.intent_key) + 1,
        trace=None if asked.trace is None else dict(asked.trace),
        scope_rules=None if scope_rules < 2 else scope_rules,
        attended=asked.attended,
    )


def _own_key(work: UnitOfWork, branch: str, proposal_id: str) -> str:
    """Return the execution key of a proposal that names none: leases keep apart what must not run at once (WP-exkey).

    Without them, in a log from before KLIS was configured, it is the branch.
    """
    return f"proposal:{proposal_id}" if is_arbitrated(work) else f"branch:{branch}"


def check_intent(work: UnitOfWork, intent: IntentInstance) -> None:
    """Refuse an intent that can never become a proposal; see ``submit``."""
    text = intent.text()
    size = len(text)
    if size > work.limits.max_intent_bytes:
        raise RefusedError(
            ErrorCode.INTENT_TOO_LARGE,
            f"The intent has {size} bytes; the limit is {work.limits.max_intent_bytes} (max_intent_bytes).",
            size_bytes=size,
            limit_bytes=work.limits.max_intent_bytes,
        )
    scope = intent.body.scope_proposal
    check_number(0 if scope is None else len(scope.allowed_paths or ()), "The intent's scope")
    _check_actor(work, intent.meta.origin.actor)
    check_direct(intent)
    schema, adopted = work.domain.schema, work.realm.domain
    if adopted is not None and adopted.schema_hash != schema.hash:
        schema = unchecked_schema(adopted.schema)  # the proposal is held
    if intent.body.type not in schema.actions:
        known = sorted(schema.actions)
        raise RefusedError(
            ErrorCode.UNKNOWN_ACTION,
            f"The domain has no action {intent.body.type!r}; it has {', '.join(known) or 'none'}.",
            action=intent.body.type,
            known=known,
        )
    _check_secrets(schema, intent, text)
    check_fits(work, intent, schema)
    check_key(intent, work.realm.schema_hash)
    earlier = work.lookup.proposal_of_intent(intent.intent_id)
    if earlier is not None:
        raise RefusedError(
            ErrorCode.INTENT_ALREADY_SUBMITTED,
            f"The intentId {intent.intent_id} was submitted before, as proposal {earlier}. To try the same again, "
            "issue a new instance.",
            intent_id=intent.intent_id,
            proposal_id=earlier,
        )
    if len(work.realm.proposals) >= work.limits.max_open_proposals:
        raise RefusedError(
            ErrorCode.TOO_MANY_OPEN,
            f"{len(work.realm.proposals)} proposals are open; the limit is {work.limits.max_open_proposals} "
            "(max_open_proposals). Decide some first.",
            limit=work.limits.max_open_proposals,
        )


def _check_secrets(schema: DomainSchema, intent: IntentInstance, text: bytes) -> None:
    """Refuse an input with a literal in a secret field: the log would keep it for good."""
    spec, given = schema.actions[intent.body.type].input, intent.body.input
    found = list(secret_literals(spec, given)) if spec is not None else []
    if may_name_secrets(text):
        found += named_literals(given, "input")
    refuse_literals(f"The input of {intent.body.type}", found)


def check_fits(work: UnitOfWork, intent: IntentInstance, schema: DomainSchema) -> None:
    """Refuse an input that does not fit the schema of its action (IC-validate).

    Args:
        work: the unit of work.
        intent: the intent.
        schema: the schema in force, which has its action.

    Raises:
        RefusedError: ``INVALID_INPUT``.
    """
    action = intent.body.type
    faults = check_input(schema.actions[action].input, intent.body.input)
    if faults and not work.limits.judge_invalid_input:
        raise RefusedError(
            ErrorCode.INVALID_INPUT,
            f"The input of {action!r} does not fit: {'; '.join(f'{fault.path} {fault.message}' for fault in faults)}.",
            action=action,
            faults=[{"path": fault.path, "message": fault.message} for fault in faults],
        )


def _check_actor(work: UnitOfWork, actor: ActorRef) -> None:
    known = work.require_actor(actor.actor_id)
    if actor.kind != known.kind:
        raise RefusedError(
            ErrorCode.ACTOR_MISMATCH,
            f"{actor.actor_id!r} is registered as {known.kind}, the intent says {actor.kind}.",
            actor_id=actor.actor_id,
        )
    if actor.actor_id not in work.realm.bindings:
        raise RefusedError(
            ErrorCode.ACTOR_NOT_BOUND,
            f"{actor.actor_id!r} has no authority binding; bind it first (`worldctl actor bind`).",
            actor_id=actor.actor_id,
        )


def _check_record(intent: IntentInstance, record: ProjectionRecorded) -> None:
    """Refuse a projection's record that is not the record of this intent (SD-5, INT-12.2)."""
    if is_direct(intent) or record.intent_id != intent.intent_id:
        origin = intent.meta.origin.projection_id
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"The projection record {record.record_id} belongs to the projection {record.projection_id!r} and the "
            f"intent {record.intent_id!r}, not to the intent {intent.intent_id!r} of {origin!r}. Leave it out.",
            record=record.record_id,
        )


def base_of(work: UnitOfWork, asked: Submission) -> SubmissionBase:
    """Return the branch and the base world of a submission; the branch of a fork does not exist yet.

    Raises:
        RefusedError: ``UNKNOWN_BRANCH``, ``STALE_BASE``, ``UNKNOWN_WORLD``, ``FAILED_BASE``, ``DATA_DOES_NOT_FIT``.
    """
    if asked.base_world is None or asked.branch is not None:
        branch = find_branch(work, asked.branch)
        if asked.base_world not in (None, branch.head):
            raise RefusedError(
                ErrorCode.STALE_BASE,
                f"World {asked.base_world} is not the head of {branch.name!r} any more; the head is {branch.head}. "
                "Look at it and submit again, or name the world without a branch to fork from it.",
                head=branch.head,
                base_world=asked.base_world,
            )
        return SubmissionBase(branch.name, branch.head)
    check_base(work, asked.base_world, allow_failed=asked.allow_failed_base)
    name = fork_name(work, asked.base_world) if asked.fork_name is None else asked.fork_name
    return SubmissionBase(name, asked.base_world, is_fork=True)
