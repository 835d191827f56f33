"""Recheck: perform every recorded step again with the loaded code.

``replay`` trusts the recorded results; ``recheck`` calls the projections, the authority and the host again and compares
each projection, ruling and execution, hashes included. No effect is performed, since its result is in the journal.
Steps that cannot be performed again because of changed code (drift) are reported and counted separately from
divergences. Time limits do not apply, since no lock is held; a step that timed out is not repeatable and is only
counted. Of a cut log, the steps after the cut are performed. Source: design section 1; CARD-replay.
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
from world.events.execution_events import ExecutionStarted
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.events.policy_events import PolicyAdopted, ProposalShadowed, ShadowConfigured
from world.events.proposal_events import (
    DecisionMade,
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
)
from world.events.realm_events import DomainAdopted, WorldSealed
from world.klis.resources.resource_types import ResourceTypes
from world.limits import Limits
from world.model.decision import Ruling
from world.pipeline.execution_state import CANCELLED, ENGINE_ERRORS, LEASES_REVOKED, lost_leases, order_of
from world.pipeline.history_sums import PastAt
from world.pipeline.judge import case_of
from world.pipeline.leasing.existence import absent_in
from world.pipeline.leasing.missed_wakes import MissedWake, WakeCheck
from world.pipeline.preparation.snapshots import SnapshotCache
from world.pipeline.recorded_time import Evidence, GuardedClock
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.live.sealed_snapshot import SealedSnapshot, open_snapshot, realm_at
from world.state.ports import Case, Enforcement
from world.state.proposal import Proposal
from world.state.realm_state import RealmState, apply_event
from worldprotocol.analysis.recheck.available_code import AvailableCode
from worldprotocol.analysis.recheck.earlier_events import EarlierEvents, events_before
from worldprotocol.analysis.recheck.existence import (
    recheck_absence,
    recheck_decision,
    recheck_grant,
    recheck_start,
    recheck_withdrawal,
)
from worldprotocol.analysis.recheck.leases import missed_wake, recheck_channel, recheck_manifest, recheck_verdict
from worldprotocol.analysis.recheck.migrations import recheck_migration, recheck_migration_ruling
from worldprotocol.analysis.recheck.past import PastLookup
from worldprotocol.analysis.recheck.results import DRIFT, Divergence, Rechecked, drift_key
from worldprotocol.analysis.recheck.ruling_checks import (
    Refusing,
    RulingInput,
    is_repeatable,
    not_at_hand,
    recheck_shadow,
)
from worldprotocol.analysis.recheck.states import StateRecheck
from worldprotocol.analysis.ruling_trace import as_ruled
from worldprotocol.api.bootstrap import compose
from worldprotocol.api.options import ComponentOptions
from worldprotocol.api.read_only import open_for_reading
from worldprotocol.api.realm import Realm
from worldprotocol.api.workers import Idle

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
        snapshot = open_snapshot(world.log)
        self._begun = 0 if snapshot is None else snapshot.upto
        self._realm = RealmState() if snapshot is None else realm_at(world.log, snapshot)
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
            workers=Idle("recheck"),
            limits=Limits(),
            types=ResourceTypes.installed(),
            snapshots=SnapshotCache(),
            performing=set(),
        )
        self._states = StateRecheck(self._work)
        self._wakes = WakeCheck(self._realm)
        self._earlier = EarlierEvents(parts.domain, self._code, self._past, self._work.snapshots)
        self._before = [] if snapshot is None else self._take_up(snapshot)

    def stretch(self, stretch: tuple[int, int]) -> Rechecked:
        """Check the events between two positions; earlier events are only folded, archived ones left out.

        Args:
            stretch: the position after which to begin, not before the last event folded so far, and the last position.

        Raises:
            DamagedLogError: the log contradicts itself; run ``verify`` first.
        """
        after, upto = max(stretch[0], self._begun), stretch[1]
        for position, event in self._world.events(self._realm.position, after):
            self._wakes.take(event, position)
            self._fold(event, position)
        self._steps = Counter()
        done = Rechecked(steps=self._steps, position=min(after, upto), archived_upto=self._begun)
        if after == self._begun:
            done.divergences += self._before
        for position, event in self._world.events(after, upto):
            has_step = type(event) in _STEPS
            done.divergences += map(self._missed, self._wakes.take(event, position))
            if self._twice is not None and self._twice() and has_step:
                counted = self._steps.copy()
                unlimited(lambda: list(self._check(event)))  # noqa: B023 - called at once
                self._steps.clear()
                self._steps.update(counted)
            differences = unlimited(lambda: list(self._check(event))) if has_step else []  # noqa: B023 - called at once
            for difference in differences:
                if self._is_news(difference):
                    is_drift = difference.code in DRIFT
                    found = Divergence(
                        position, event.TOPIC, difference, None if is_drift else self._code.changed_since()
                    )
                    done.divergences.append(found)
            self._fold(event, position)
            done.position = position
            if done.first is not None and not self._every:
                return done
        if done.position == self._world.log.head().size:
            done.divergences += map(self._missed, self._wakes.end())
        return done

    def _missed(self, missed: MissedWake) -> Divergence:
        """Return the divergence of a wake that is missing, at the event that should have caused it."""
        return Divergence(missed.position, missed.topic, missed_wake(missed), self._code.changed_since())

    def _fold(self, event: Event, position: int) -> None:
        """Record data for later steps, and fold the event."""
        self._earlier.take(event, self._realm)
        apply_event(self._realm, event, position)

    def _take_up(self, snapshot: SealedSnapshot) -> list[Divergence]:
        """Note the kept events before a cut; return the drift of the code that was adopted there."""
        drift: list[Divergence] = []
        for position, event, earlier in events_before(self._world.log, snapshot):
            if isinstance(event, _ADOPTIONS):
                changed = filter(self._is_news, self._check(event))
                drift += [Divergence(position, event.TOPIC, difference) for difference in changed]
            self._earlier.take(event, earlier)
        return drift

    def _check(self, event: Event) -> Iterator[DivergenceError]:
        """Yield what differs; a step that needs what a cut removed is only counted."""
        step = _STEPS.get(type(event))
        if step is None:
            return
        if not self._begun:
            yield from step(self, event)
            return
        counted, missed = self._steps.copy(), self._world.archive.missed
        try:
            found = list(step(self, event))
            is_archived = bool(found) and self._world.archive.missed > missed
        except RefusedError as refused:
            if refused.code != ErrorCode.EVENT_ARCHIVED:
                raise
            is_archived = True
        if not is_archived:
            yield from found
            return
        self._steps.clear()
        self._steps.update(counted)
        self._steps["archived"] += 1

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

    # Steps

    def _projection(self, event: ProjectionRecorded) -> Iterator[DivergenceError]:
        other = self._code.other_schema(event.schema_hash, f"Projection record {event.record_id}")
        if other is not None:
            yield other
            return
        self._steps["projections"] += 1
        view = self._work.snapshot(event.world_id).view
        yield from filter(None, [recheck_projection(self._parts.projections, event, view)])

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
            yield from self._compare(event.proposal_id, self._earlier.question(event, self._realm), recorded)

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
        judged = self._earlier.judged(event.proposal_id)
        if judged is not None:
            question, recorded = judged
            yield from self._compare(event.proposal_id, question, as_ruled(recorded, event.decision))
        yield from filter(None, [recheck_decision(self._work, event)])

    def _compare(self, proposal_id: str, question: RulingInput, recorded: Ruling) -> Iterator[DivergenceError]:
        if not is_repeatable(recorded):
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
                yield not_at_hand(f"ruling of {recorded.authority}", case, recorded.authority, recorded.policy_hash)
                return
            is_unknown = authority is None  # its rules are not in the log, since it was not adopted
            if not is_in_force:
                authority = Refusing(authority, self._work, recorded)  # its ruling was refused in any case
            difference = recheck_ruling(authority, case, recorded)
            if is_unknown and difference is None:
                self._steps["notRepeatable"] += 1
                return
        self._steps["rulings"] += 1
        if difference is not None:
            yield difference

    def _verdict(self, event: VerdictGiven) -> Iterator[DivergenceError]:
        self._steps["verdicts"] += 1
        difference, manifest = recheck_manifest(self._work, event)
        difference = (
            difference
            or recheck_channel(self._realm, event)
            or recheck_verdict(self._realm.klis, event, manifest)
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
        requested = self._earlier.requested(event.proposal_id)
        sealed = self._earlier.sealed
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
            yield from filter(None, [recheck_absence(proposal, sealed)])
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

_ADOPTIONS: Final = (DomainAdopted, PolicyAdopted, ShadowConfigured)
