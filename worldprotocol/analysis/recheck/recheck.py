"""Recheck: perform every recorded step again with the loaded code.

``replay`` trusts the recorded results; ``recheck`` calls the projections, the authority and the host again and compares
each projection, ruling and execution, hashes included. No effect is performed, since its result is in the journal.
Steps that cannot be performed again because of changed code (drift) are reported and counted separately from
divergences. Time limits do not apply, since no lock is held; a step that timed out is not repeatable and is only
counted. Source: design section 1; CARD-replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Unpack, cast

from authority import recheck_ruling
from host import recheck_execution
from host.executor import is_time_out
from projections import recheck_projection
from world.clock import ManualClock, SequentialIds
from world.code.time_limit import unlimited
from world.core import Domain
from world.error_codes import ErrorCode
from world.errors import DamagedLogError, DivergenceError, RefusedError
from world.events.base import Event
from world.events.execution_events import EffectRequested, ExecutionStarted
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.events.policy_events import PolicyAdopted, PolicyRetired, ProposalShadowed, ShadowConfigured
from world.events.proposal_events import (
    DecisionMade,
    HumanAnswered,
    HumanTimedOut,
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSuperseded,
)
from world.events.realm_events import DomainAdopted, WorldSealed
from world.klis.resources.resource_types import ResourceTypes
from world.limits import Limits
from world.model.decision import HumanAnswer, Ruling
from world.model.snapshot import Requirement
from world.pipeline.execution_state import CANCELLED, ENGINE_ERRORS, LEASES_REVOKED, lost_leases, order_of
from world.pipeline.judge import case_of
from world.pipeline.leasing.existence import absent_in
from world.pipeline.preparation.snapshots import SnapshotCache
from world.pipeline.recorded_time import Evidence, GuardedClock
from world.pipeline.unit_of_work import PastAt, UnitOfWork
from world.state.ports import Case, Enforcement
from world.state.proposal import Proposal
from world.state.realm_state import RealmState, apply_event
from worldprotocol.analysis.recheck.available_code import AvailableCode
from worldprotocol.analysis.recheck.existence import (
    recheck_absence,
    recheck_decision,
    recheck_grant,
    recheck_start,
    recheck_withdrawal,
)
from worldprotocol.analysis.recheck.leases import recheck_channel, recheck_manifest, recheck_verdict
from worldprotocol.analysis.recheck.migrations import recheck_migration, recheck_migration_ruling
from worldprotocol.analysis.recheck.past import Nobody, PastLookup
from worldprotocol.analysis.recheck.results import DRIFT, Divergence, Rechecked, drift_key
from worldprotocol.analysis.recheck.ruling_checks import _is_repeatable, _not_at_hand, _Question, _Refusing
from worldprotocol.analysis.recheck.shadow import recheck_shadow
from worldprotocol.analysis.recheck.states import StateRecheck
from worldprotocol.analysis.ruling_trace import as_ruled
from worldprotocol.api.bootstrap import compose
from worldprotocol.api.options import ComponentOptions
from worldprotocol.api.read_only import open_for_reading
from worldprotocol.api.realm import Realm

__all__ = ["Divergence", "Rechecked", "Rechecking", "open_to_recheck", "recheck"]

Progress = Callable[[int, int], None]
PROGRESS_EVERY: Final = 500  # events between two reports
_NOT_RECHECKED: Final = frozenset({"CANNOT_RECHECK", "POLICY_NOT_AT_HAND", "BINDING_NOT_AT_HAND"})


def recheck(
    world: Realm, *, upto: int | None = None, every: bool = False, progress: Progress | None = None
) -> Rechecked:
    """Perform the recorded steps of a log again.

    Args:
        world: a realm opened with the domain, projections and policies of the recheck.
        upto: the last position; None is the newest event.
        every: continue after the first divergent step; drift never stops the recheck.
        progress: called at intervals with the number of events done and of all events.

    Raises:
        DamagedLogError: the log contradicts itself; run ``verify`` first.
        RefusedError: ``LOG_READ_ONLY`` for a realm without components.
    """
    last = world.log.head().size if upto is None else upto
    checking = Rechecking(world, every=every)
    done = Rechecked()
    for at in range(0, last, PROGRESS_EVERY):
        done.add(checking.stretch((at, min(at + PROGRESS_EVERY, last))))
        if done.first is not None and not every:
            return done
        if progress is not None:
            progress(done.position, last)
    return done


def open_to_recheck(address: str, *, domain: Domain | str | Path, **options: Unpack[ComponentOptions]) -> Realm:
    """Open a realm for reading only, with the code of a recheck.

    Args:
        address: a SQLite file, or a SQLAlchemy URL with an optional ``#name``.
        domain: a domain, a reference to one, or a file.
        **options: ``projections``, ``policies``, ``folder``; see ``ComponentOptions``.

    Raises:
        RefusedError: a reference cannot be loaded, and the codes of ``Realm.open_read_only``.
    """
    composed = compose(domain=domain, options=options)
    return Realm(open_for_reading(address), composed, None)


class Rechecking:
    """Checks the events of a log in order, each against the state before it.

    Args:
        world: a realm opened with the domain, projections and policies of the recheck.
        every: continue after the first divergent step.
        twice: called before each event; if it returns True, the step is performed an additional time before it counts,
            which detects state that a step leaves for the next one. None is never.

    Raises:
        RefusedError: ``LOG_READ_ONLY`` for a realm without components.
    """

    def __init__(self, world: Realm, *, every: bool = False, twice: Callable[[], bool] | None = None) -> None:
        """Begin before the first event."""
        parts = world.parts
        if parts is None:
            message = "The realm has no code to recheck with; open it with its domain, policies and projections."
            raise RefusedError(ErrorCode.LOG_READ_ONLY, message)
        self._world = world
        self._every = every
        self._twice = twice
        self._parts = parts
        self._steps: Counter[str] = Counter()
        self._realm = RealmState()
        self._sealed: WorldSealed | None = None
        self._asking: dict[str, _Question] = {}
        self._judged: dict[str, tuple[_Question, Ruling]] = {}
        self._requested: dict[str, list[Requirement]] = {}
        self._drifts: set[tuple[str, str]] = set()
        self._past = PastLookup(world.archive, self._realm)
        self._code = AvailableCode(parts, self._realm, is_live=not world.is_read_only)
        self._work = UnitOfWork(
            realm=self._realm,
            lookup=self._past,
            domain=parts.domain,
            authority=parts.authority,
            executor=parts.executor,
            clock=GuardedClock(ManualClock(), Evidence(None, None, None, 0), is_confirmed=False),
            ids=SequentialIds(),
            workers=Nobody(),
            limits=Limits(),
            types=ResourceTypes.installed(),
            snapshots=SnapshotCache(),
            performing=set(),
        )
        self._states = StateRecheck(self._work)

    def stretch(self, stretch: tuple[int, int]) -> Rechecked:
        """Check the events between two positions; earlier events are only folded.

        Args:
            stretch: the position after which to begin, not before the last event folded so far, and the last position.

        Raises:
            DamagedLogError: the log contradicts itself; run ``verify`` first.
        """
        after, upto = stretch
        for position, event in self._world.events(self._realm.position, after):
            self._fold(event, position)
        self._steps = Counter()
        done = Rechecked(steps=self._steps, position=after)
        for position, event in self._world.events(after, upto):
            if self._twice is not None and self._twice():
                counted = self._steps.copy()
                unlimited(lambda: list(self._check(event)))  # noqa: B023 - called at once
                self._steps.clear()
                self._steps.update(counted)
            for difference in unlimited(lambda: list(self._check(event))):  # noqa: B023 - called at once
                if self._is_news(difference):
                    is_drift = difference.code in DRIFT
                    found = Divergence(
                        position, event.TOPIC, difference, None if is_drift else self._code.changed_since()
                    )
                    done.divergences.append(found)
            self._fold(event, position)
            done.position = position
            if done.first is not None and not self._every:
                break
        return done

    def _fold(self, event: Event, position: int) -> None:
        """Record data for later steps, and fold the event."""
        note = _NOTES.get(type(event))
        if note is not None:
            note(self, event)
        apply_event(self._realm, event, position)

    def _check(self, event: Event) -> Iterator[DivergenceError]:
        step = _STEPS.get(type(event))
        if step is not None:
            yield from step(self, event)

    def _is_news(self, difference: DivergenceError) -> bool:
        """Return whether to report a difference: each drift is reported once and counted."""
        if difference.code not in DRIFT:
            return True
        if difference.code in _NOT_RECHECKED and "policy" not in difference.details:
            self._steps["notRechecked"] += 1
        key = drift_key(difference)
        if key in self._drifts:
            return False
        self._drifts.add(key)
        return True

    # Data for later steps

    def _note_domain(self, event: DomainAdopted) -> None:
        self._work.snapshots.clear()
        self._code.forget_changes(event)

    def _note_answer(self, event: HumanAnswered) -> None:
        self._ask(event.proposal_id, HumanAnswer.read(event.answer), 1)  # it is judged before it is recorded

    def _note_time_out(self, event: HumanTimedOut) -> None:
        self._ask(event.proposal_id, None, 2)  # it is recorded before it is judged

    def _ask(self, proposal_id: str, answer: HumanAnswer | None, later: int) -> None:
        proposal = self._realm.proposals[proposal_id]
        asked = proposal.asked
        if asked is None or proposal.submitted.schema_hash != self._parts.domain.schema.hash:
            return
        before = self._realm.position + later
        self._asking[proposal_id] = _Question(proposal.binding or {}, before, asked, answer)

    def _note_ruling(self, event: ProposalJudged) -> None:
        question = self._question(event)
        self._asking.pop(event.proposal_id, None)
        recorded = event.ruling
        submitted = self._realm.proposals[event.proposal_id].submitted
        is_ours = submitted.schema_hash == self._parts.domain.schema.hash and submitted.migration is None
        if is_ours and recorded.verdict != "wait" and not recorded.trace:
            self._judged[event.proposal_id] = question, recorded  # its trace is in the decision

    def _question(self, event: ProposalJudged) -> _Question:
        asking = self._asking.get(event.proposal_id)
        return asking or _Question(event.binding, self._realm.position + 1)

    def _note_decision(self, event: DecisionMade) -> None:
        self._judged.pop(event.proposal_id, None)

    def _note_request(self, event: EffectRequested) -> None:
        self._requested.setdefault(event.proposal_id, []).append(event.requirement)

    def _note_sealed(self, event: WorldSealed) -> None:
        self._sealed = event
        self._past.follow(event)

    def _note_superseded(self, event: ProposalSuperseded) -> None:
        self._asking.pop(event.proposal_id, None)

    def _note_end(self, event: ProposalCompleted | ProposalFailed) -> None:
        self._requested.pop(event.proposal_id, None)

    # Steps

    def _projection(self, event: ProjectionRecorded) -> Iterator[DivergenceError]:
        other = self._code.other_schema(event.schema_hash, f"Projection record {event.record_id}")
        if other is not None:
            yield other
            return
        self._steps["projections"] += 1
        difference = recheck_projection(self._parts.projections, event, self._work.snapshot(event.world_id).view)
        if difference is not None:
            yield difference

    def _case(self, proposal: Proposal, binding: Any, before: int) -> Case:
        return case_of(self._work, proposal, binding, PastAt(self._work.lookup, before, proposal.proposal_id))

    def _ruling(self, event: ProposalJudged) -> Iterator[DivergenceError]:
        proposal, recorded = self._realm.proposals[event.proposal_id], event.ruling
        if proposal.submitted.migration is not None:
            yield from recheck_migration_ruling(proposal, recorded)
            return
        other = self._code.other_schema(proposal.submitted.schema_hash, f"The ruling on {event.proposal_id}")
        if other is not None:
            yield other
            return
        if recorded.verdict == "wait" or recorded.trace:
            yield from self._compare(event.proposal_id, self._question(event), recorded)

    def _shadow(self, event: ProposalShadowed) -> Iterator[DivergenceError]:
        proposal = self._realm.proposals[event.proposal_id]
        other = self._code.other_schema(
            proposal.submitted.schema_hash, f"The shadow ruling of {event.name!r} on {event.proposal_id}"
        )
        if other is not None:
            yield other
            return
        bound = self._realm.bindings[proposal.submitted.actor.actor_id]
        case = self._case(proposal, bound, self._realm.position + 1)
        turned_on = None if self._realm.shadow is None else self._realm.shadow.policy_hash
        yield from recheck_shadow(
            self._code.authority_for(event.name, event.policy_hash), case, event, self._steps, turned_on=turned_on
        )

    def _decision(self, event: DecisionMade) -> Iterator[DivergenceError]:
        judged = self._judged.get(event.proposal_id)
        if judged is not None:
            question, recorded = judged
            yield from self._compare(event.proposal_id, question, as_ruled(recorded, event.decision))
        difference = recheck_decision(self._work, event)
        if difference is not None:
            yield difference

    def _compare(self, proposal_id: str, question: _Question, recorded: Ruling) -> Iterator[DivergenceError]:
        if not _is_repeatable(recorded):
            self._steps["notRepeatable"] += 1
            return
        case = self._case(self._realm.proposals[proposal_id], question.binding, question.before)
        if question.asked is not None:  # human answers involve no policy
            given = self._parts.authority
            difference = recheck_ruling(given, case, recorded, asked=question.asked, answer=question.answer)
        else:
            name = case.binding.get("policy", "")
            adopted = self._realm.policies.get(name)
            authority = self._code.authority_for(name, recorded.policy_hash)
            is_in_force = recorded.policy_hash in (None, None if adopted is None else adopted.policy_hash)
            if authority is None and is_in_force:
                yield _not_at_hand(case, recorded)
                return
            is_unknown = authority is None  # its rules are not in the log, since it was not adopted
            if not is_in_force:
                authority = _Refusing(authority, self._work, recorded)  # its ruling was refused in any case
            difference = recheck_ruling(authority, case, recorded)
            if is_unknown and difference is None:
                self._steps["notRepeatable"] += 1
                return
        self._steps["rulings"] += 1
        if difference is not None:
            yield difference

    def _verdict(self, event: VerdictGiven) -> Iterator[DivergenceError]:
        self._steps["verdicts"] += 1
        difference = (
            recheck_manifest(self._work, event)
            or recheck_channel(self._realm, event)
            or recheck_verdict(self._realm.klis, event)
            or recheck_grant(self._work, event)
        )
        if difference is not None:
            yield difference

    def _withdrawal(self, event: RequestWithdrawn) -> Iterator[DivergenceError]:
        yield from filter(None, [recheck_withdrawal(self._work, event)])

    def _start(self, event: ExecutionStarted) -> Iterator[DivergenceError]:
        yield from filter(None, [recheck_start(self._work, event)])

    def _execution(self, event: ProposalCompleted | ProposalFailed) -> Iterator[DivergenceError]:
        proposal = self._realm.proposals[event.proposal_id]
        requested = self._requested.get(event.proposal_id, [])
        sealed = self._sealed
        if sealed is None or sealed.world_id != event.world_id:
            sealed = self._world.archive.sealed(event.world_id)  # another execution sealed the same world first
        if proposal.submitted.migration is not None:
            self._steps["migrations"] += 1
            yield from recheck_migration(self._work, self._parts.domain, proposal, sealed)
            return
        other = self._code.other_schema(sealed.schema_hash, f"The execution of {event.proposal_id}")
        if other is not None:
            yield other
            return
        if proposal.started is None:
            raise DamagedLogError(
                ErrorCode.ILLEGAL_TRANSITION, f"Proposal {event.proposal_id} ended before its start; verify the log."
            )
        if is_time_out(sealed.error) or self._by_engine(proposal, sealed):
            self._steps["notRepeatable"] += 1
            return
        self._steps["executions"] += 1
        if absent_in(proposal.started.existence):
            missing = recheck_absence(proposal, sealed)
            if missing is not None:
                yield missing
            return
        difference = recheck_execution(
            self._parts.executor,
            order_of(proposal, self._work.snapshot(event.parent)),
            sealed,
            enforcement=cast(Enforcement, proposal.started.enforcement),
            requested=requested,
        )
        if difference is not None:
            yield difference

    def _by_engine(self, proposal: Proposal, sealed: WorldSealed) -> bool:
        """Return whether the engine, and not the action, ended an execution."""
        code = None if sealed.error is None else sealed.error.code
        if code == LEASES_REVOKED:
            return lost_leases(self._realm, proposal)
        return code in ENGINE_ERRORS and (code != CANCELLED or proposal.cancelled is not None)


_STEPS: Final[Mapping[type[Event], Callable[[Rechecking, Any], Iterator[DivergenceError]]]] = {
    DomainAdopted: lambda checking, event: checking._code.check_domain(event),
    PolicyAdopted: lambda checking, event: checking._code.check_policy(event),
    ShadowConfigured: lambda checking, event: checking._code.check_policy(event),
    ProposalShadowed: Rechecking._shadow,
    ProjectionRecorded: Rechecking._projection,
    ProposalJudged: Rechecking._ruling,
    DecisionMade: Rechecking._decision,
    ProposalCompleted: Rechecking._execution,
    ProposalFailed: Rechecking._execution,
    VerdictGiven: Rechecking._verdict,
    RequestWithdrawn: Rechecking._withdrawal,
    ExecutionStarted: Rechecking._start,
    WorldSealed: lambda checking, event: checking._states.check(event),
}
"""Checks by type of event."""

_NOTES: Final[Mapping[type[Event], Callable[[Rechecking, Any], None]]] = {
    DomainAdopted: Rechecking._note_domain,
    PolicyAdopted: lambda checking, event: checking._code.note_policy(event),
    PolicyRetired: lambda checking, event: checking._code.note_policy(event),
    ShadowConfigured: lambda checking, event: checking._code.note_policy(event),
    HumanAnswered: Rechecking._note_answer,
    HumanTimedOut: Rechecking._note_time_out,
    ProposalJudged: Rechecking._note_ruling,
    DecisionMade: Rechecking._note_decision,
    EffectRequested: Rechecking._note_request,
    WorldSealed: Rechecking._note_sealed,
    ProposalSuperseded: Rechecking._note_superseded,
    ProposalCompleted: Rechecking._note_end,
    ProposalFailed: Rechecking._note_end,
}
"""Recording of data for later steps, by type of event."""
