"""Results of foreign code that was called before the log's lock was taken, each with everything that it read.

A projection read a world, a schema and a time; a ruling read a case, with the answers of the history that it asked; a
step of an execution read an order. Under the lock a stage takes such a result in place of a call, if what was read is
equal to what the call would read now. So a recheck, which calls the code with what is recorded, gets the same result.

A prepared command runs at the time that the code saw: its events have that time, as if it had got the lock then. So a
unit of work may record a time before that of the events before it, as after a clock that was set back a little.
Source: decision record 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

from msgspec import Struct, field

from world.core import Domain
from world.errors import RefusedError
from world.events.policy_events import ShadowConfigured
from world.events.proposal_events import ProjectionRecorded, ProposalSubmitted
from world.events.realm_events import DomainAdopted
from world.model.decision import Ruling
from world.model.intent import IntentInstance
from world.pipeline.adopted_code.adoption_plan import BranchPlan
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import Case, Conditions, Enforcement, ExecutionOrder, History, StepOutcome

__all__ = [
    "MAX_QUERIES",
    "Prepared",
    "PreparedProjection",
    "PreparedRuling",
    "PreparedStep",
    "ReadHistory",
    "StalePreparationError",
    "adopted_hash",
    "check_submission",
    "prepared_misfit",
    "prepared_projection",
    "prepared_ruling",
    "prepared_step",
    "take_up",
    "unchanged_submission",
]

MAX_QUERIES: Final = 1_000
"""Different queries of the history whose answers are compared; a ruling with more holds while nothing is appended."""

Misfit = tuple[str, dict[str, Any]] | None
"""Why the data of a world does not obey the schema; see ``world.pipeline.branches.misfit``."""


class StalePreparationError(Exception):
    """What a slow call read has changed, so its command has to be prepared again; nothing was emitted.

    It is no ``RefusedError``, so that no stage takes it for an answer.
    """


class PreparedProjection(Struct, frozen=True):
    """Result of the projections.

    Args:
        world: id of the head that they read.
        schema_hash: the schema in force.
        record: their record, as the projector returned it.
        intent: the issued intent, or the refusal in its place.
    """

    world: str
    schema_hash: str
    record: ProjectionRecorded | None
    intent: IntentInstance | RefusedError | None


class PreparedRuling(Struct, frozen=True):
    """Result of the Authority.

    Args:
        case: the case; its history is the one that recorded the queries.
        ruling: the ruling.
        history: the queries of the history and their answers.
        policy_hash: the adopted policy of the binding; None where it names none.
        shadow: which policy shadows the one in force.
        shadow_ruling: the ruling of that policy; None where it does not judge this actor.
        asked: the waiting ruling that a person answered; None for a new proposal.
    """

    case: Case
    ruling: Ruling
    history: ReadHistory
    policy_hash: str | None
    shadow: ShadowConfigured | None = None
    shadow_ruling: Ruling | None = None
    asked: Ruling | None = None


class PreparedStep(Struct, frozen=True):
    """Result of a step of an execution.

    Args:
        order: what the executor read; of the snapshot, ``world`` counts.
        world: id of the world that it was computed on.
        enforcement: mode of the executor.
        outcome: the result.
    """

    order: ExecutionOrder
    world: str
    enforcement: Enforcement
    outcome: StepOutcome


class Prepared(Struct):
    """What was prepared for one command.

    Args:
        position: the last event of the state that was read.
        at: the time that the code saw, ms since 1970; None where it saw none but recorded times.
        domain: the domain that computed.
        is_repeatable: whether the command is to be prepared again where this does not hold any more.
        projection: result of the projections.
        submitted: the submission that the case was made of.
        ruling: result of the Authority.
        steps: results of the executor.
        misfits: by world id, whether its data obeys the domain's schema.
        same_code: the adoption that the whole domain was found equal to; None where it was not compared.
        plans: what an adoption makes of branches, by the schema in force, the branch and its head.
        is_stale: whether what was read was found changed, under the lock.
    """

    position: int
    at: int | None
    domain: Domain
    is_repeatable: bool = False
    projection: PreparedProjection | None = None
    submitted: ProposalSubmitted | None = None
    ruling: PreparedRuling | None = None
    steps: list[PreparedStep] = field(default_factory=list)
    misfits: dict[str, Misfit] = field(default_factory=dict)
    plans: dict[tuple[str, str, str], BranchPlan] = field(default_factory=dict)
    same_code: DomainAdopted | None = None
    is_stale: bool = False
    _commit_at: int = 0


Query = tuple[str | None, tuple[tuple[str, Any], ...]]
"""Path of a sum, None for a count; and the conditions."""

Answer = int | float | tuple[str, str]
"""The number, or code and message of the refusal."""


class ReadHistory:
    """History that records its queries and their answers (``world.state.ports.History``)."""

    __slots__ = ("_answers", "_history", "is_bounded")

    def __init__(self, history: History) -> None:
        """Record the queries of another history."""
        self._history = history
        self._answers: dict[Query, Answer] = {}
        self.is_bounded = True

    def count(self, **conditions: Unpack[Conditions]) -> int:
        """Count earlier proposals; see ``world.state.ports.History``."""
        try:
            counted = self._history.count(**conditions)
        except RefusedError as refused:
            self._note(None, conditions, (refused.code, refused.message))
            raise
        self._note(None, conditions, counted)
        return counted

    def sum(self, path: str, **conditions: Unpack[Conditions]) -> int | float:
        """Add up a number of earlier proposals; see ``world.state.ports.History``."""
        try:
            total = self._history.sum(path, **conditions)
        except RefusedError as refused:
            self._note(path, conditions, (refused.code, refused.message))
            raise
        self._note(path, conditions, total)
        return total

    def _note(self, path: str | None, conditions: Mapping[str, Any], answer: Answer) -> None:
        try:
            query = path, tuple(sorted(conditions.items()))
            if len(self._answers) >= MAX_QUERIES and query not in self._answers:
                self.is_bounded = False
                return
            self._answers[query] = answer
        except TypeError:  # a condition without a hash was refused, whatever the state is
            return

    def holds(self, history: History) -> bool:
        """Return whether another history gives the same answers."""
        return self.is_bounded and all(
            _same(answer, _ask(history, path, dict(conditions))) for (path, conditions), answer in self._answers.items()
        )


def _ask(history: History, path: str | None, conditions: Any) -> Answer:
    try:
        return history.count(**conditions) if path is None else history.sum(path, **conditions)
    except RefusedError as refused:
        return refused.code, refused.message


def _same(then: Answer, now: Answer) -> bool:
    return type(then) is type(now) and then == now


# Under the lock, before a command emits anything: whether its preparation holds.


def take_up(work: UnitOfWork, prepared: Prepared) -> None:
    """Begin a prepared command: it runs at the prepared time, where that can be recorded in this unit.

    A prepared time is not after the commit's, and no further before it than a clock may be off: else it would look
    like a clock that was set back (``world.read_models.clock_jumps``).

    Raises:
        StalePreparationError: the time or the domain is another, and the call was slow.
    """
    work.prepared, prepared._commit_at = prepared, work.at
    most = work.realm.klis.in_force.max_clock_ahead_ms
    is_recordable = prepared.at is None or 0 <= work.at - prepared.at <= most
    if prepared.domain is not work.domain or not is_recordable:
        _give_up(work, prepared)
        return
    work.same_code = prepared.same_code or work.same_code
    if prepared.at is not None:
        work.at = prepared.at


def prepared_projection(work: UnitOfWork, head: str) -> PreparedProjection | None:
    """Return the prepared result of the projections on a head; None where they are to be called.

    Raises:
        StalePreparationError: they read another head or schema, and their call was slow.
    """
    prepared = work.prepared
    if prepared is None or prepared.projection is None:
        return None
    projection = prepared.projection
    if (projection.world, projection.schema_hash) == (head, work.realm.schema_hash):
        return projection
    _give_up(work, prepared)
    return None


def unchanged_submission(work: UnitOfWork, intent: IntentInstance) -> ProposalSubmitted | None:
    """Return the prepared submission of an intent, where no event was appended since.

    Then all that was read holds, if the number of the attempt does, which was not read from the log.
    """
    prepared = work.prepared
    if prepared is None or prepared.ruling is None or work.realm.position != prepared.position:
        return None
    submitted = prepared.submitted
    if submitted is None or prepared.ruling.case.intent is not intent:
        return None
    return submitted if submitted.attempt == work.lookup.attempts(intent.intent_key) + 1 else None


def check_submission(work: UnitOfWork, submitted: ProposalSubmitted) -> None:
    """Check that what was prepared for a new proposal holds; drop it where it does not.

    Args:
        work: the unit of work.
        submitted: the submission that is recorded now.

    Raises:
        StalePreparationError: something that was read has changed, and the call was slow.
    """
    prepared = work.prepared
    if prepared is None or prepared.submitted is None:
        return
    if not _holds(work, prepared, submitted):
        _give_up(work, prepared)


def _holds(work: UnitOfWork, prepared: Prepared, submitted: ProposalSubmitted) -> bool:
    if prepared.submitted != submitted:
        return False
    ruling = prepared.ruling
    if ruling is None or work.realm.position == prepared.position:
        return True
    binding = work.realm.bindings.get(ruling.case.actor.actor_id)
    return (
        binding == ruling.case.binding
        and adopted_hash(work, ruling.case.binding) == ruling.policy_hash
        and work.realm.shadow == ruling.shadow
        and ruling.history.holds(work.history(submitted.proposal_id))
    )


def adopted_hash(work: UnitOfWork, binding: Mapping[str, Any]) -> str | None:
    """Return the hash of the adopted policy that a binding names; None without one."""
    adopted = work.realm.policies.get(binding.get("policy", ""))
    return None if adopted is None else adopted.policy_hash


def _give_up(work: UnitOfWork, prepared: Prepared) -> None:
    """Have the command prepared again; or drop what was prepared, so that the stages call the code themselves."""
    prepared.is_stale = True
    if prepared.is_repeatable:
        raise StalePreparationError
    work.prepared, work.at = None, prepared._commit_at


# In the stages: results in place of calls.


def prepared_ruling(
    work: UnitOfWork, proposal_id: str, *, binding: Mapping[str, Any], asked: Ruling | None = None
) -> PreparedRuling | None:
    """Return the prepared ruling on a proposal; None where the Authority is to be called.

    Args:
        work: the unit of work; ``check_submission`` has checked a new proposal.
        proposal_id: the proposal.
        binding: the binding in force.
        asked: the waiting ruling that a person answers; None for a new proposal.
    """
    ruling = None if work.prepared is None else work.prepared.ruling
    if ruling is None or ruling.case.proposal_id != proposal_id:
        return None
    if (ruling.asked, ruling.case.binding) != (asked, binding):
        return None
    if asked is not None and not ruling.history.holds(work.history(proposal_id)):
        return None
    return ruling


def prepared_step(work: UnitOfWork, order: ExecutionOrder, world: str) -> StepOutcome | None:
    """Return the prepared outcome of a step; None where the executor is to be called.

    Args:
        work: the unit of work.
        order: the step.
        world: id of the world that it is computed on.
    """
    prepared = work.prepared
    if prepared is None:
        return None
    for step in prepared.steps:
        if step.world == world and step.enforcement == work.executor.enforcement and _reads_same(step.order, order):
            return step.outcome
    return None


def _reads_same(then: ExecutionOrder, now: ExecutionOrder) -> bool:
    """Return whether two orders are equal apart from their snapshots, which are of the same world."""
    return (
        then.proposal_id == now.proposal_id
        and (then.now, then.seed, then.scope_rules) == (now.now, now.seed, now.scope_rules)
        and then.approved_scope == now.approved_scope
        and then.actor == now.actor
        and then.journal == now.journal
        and (then.intent is now.intent or then.intent == now.intent)
    )


def prepared_misfit(work: UnitOfWork, world_id: str) -> tuple[Misfit] | None:
    """Return the prepared answer whether a world obeys the schema, as a tuple of one; None where there is none."""
    prepared = work.prepared
    if prepared is None or world_id not in prepared.misfits:
        return None
    return (prepared.misfits[world_id],)
