"""Recheck: every recorded step performed again from its record, by the code at hand (design section 1; CARD-replay).

``replay`` trusts what the events say; ``recheck`` asks the projections, the authority and the host again and compares:
projection by projection, ruling by ruling, execution by execution, hashes included. No effect is made, since results
stand in the journal. What cannot be performed again, because the code is another one by now, is said plainly and
counted apart from what came out differently. No time limit counts here, since no lock is held; a step that was broken
off at its limit is not repeatable and is only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from authority import PolicyRegistry, StandardAuthority, rebuilt_policy, recheck_ruling
from authority.policies.policy import TIMED_OUT
from host import recheck_execution
from host.executor import is_time_out
from projections import recheck_projection
from world.clock import ManualClock, SequentialIds
from world.code.time_limit import unlimited
from world.core import Domain
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
from world.klis.resources.resource import ResourceTypes
from world.limits import Limits
from world.model.decision import ENGINE, HumanAnswer, Ruling
from world.model.snapshot import Requirement
from world.pipeline.execute import CANCELLED, ENGINE_ERRORS, LEASES_REVOKED, lost_leases, order_of
from world.pipeline.existence import absent_in
from world.pipeline.judge import case_of, in_force
from world.pipeline.recorded_time import Evidence, GuardedClock
from world.pipeline.unit_of_work import PastAt, UnitOfWork
from world.state.ports import Case, Enforcement
from world.state.proposal import Proposal
from world.state.realm_state import RealmState, apply_event
from worldprotocol.analysis.recheck.existence import (
    recheck_absence,
    recheck_decision,
    recheck_grant,
    recheck_start,
    recheck_withdrawal,
)
from worldprotocol.analysis.recheck.leases import recheck_channel, recheck_manifest, recheck_verdict
from worldprotocol.analysis.recheck.past import Nobody, PastLookup
from worldprotocol.analysis.recheck.results import DRIFT, Changed, Divergence, Rechecked, drift_key
from worldprotocol.analysis.recheck.shadow import recheck_shadow
from worldprotocol.analysis.ruling_trace import as_ruled
from worldprotocol.api.bootstrap import compose, open_for_reading
from worldprotocol.api.code_fingerprints import changed_versions, is_whole
from worldprotocol.api.realm import Realm

__all__ = ["Divergence", "Rechecked", "Rechecking", "open_to_recheck", "recheck"]

Progress = Callable[[int, int], None]

MAX_STATES: Final = 64

TOLD_EVERY: Final = 500
"""Events between two words about how far a recheck came."""


def recheck(
    world: Realm, *, upto: int | None = None, every: bool = False, progress: Progress | None = None
) -> Rechecked:
    """Perform the recorded steps of a log again.

    Args:
        world: a realm opened with the domain, projections and policies to check with.
        upto: the last position; None is the newest event.
        every: go on after the first step that came out differently; drift never stops it.
        progress: called now and then with events done and events in all.

    Raises:
        DamagedLogError: when the log contradicts itself; ``verify`` comes first.
        RefusedError: ``LOG_READ_ONLY`` for a realm without parts.
    """
    last = world.log.head().size if upto is None else upto
    checking = Rechecking(world, every=every)
    done = Rechecked()
    for at in range(0, last, TOLD_EVERY):
        done.add(checking.stretch((at, min(at + TOLD_EVERY, last))))
        if done.first is not None and not every:
            return done
        if progress is not None:
            progress(done.position, last)
    return done


def open_to_recheck(address: str, *, domain: Domain | str | Path, **parts: Any) -> Realm:
    """Open a realm for looking only, with the code to check its steps with; no byte of the log changes.

    Args:
        address: a SQLite file, or a SQLAlchemy URL with an optional ``#name``.
        domain: a domain, a reference to one, or a file.
        **parts: ``projections``, ``policies``, ``folder`` as for ``RealmState.open``.

    Raises:
        RefusedError: what cannot be loaded, and see ``RealmState.look``.
    """
    composed = compose(domain=domain, **parts)
    return Realm(open_for_reading(address), composed, None)


@dataclass(frozen=True, slots=True)
class _Question:
    """A question to the authority: the case is made of it when its ruling is there to be compared.

    Args:
        binding: by which it was judged.
        before: the position before which its history ends.
        asked: the ruling that waited for people; None where nobody had been asked.
        answer: what a person said; None where nobody did in time.
    """

    binding: Any
    before: int
    asked: Ruling | None = None
    answer: HumanAnswer | None = None


class Rechecking:
    """Goes through a log from its beginning: each event is checked against the realm before it, and then folded.

    Args:
        world: a realm opened with the domain, projections and policies to check with.
        every: go on after the first step that came out differently.
        twice: asked before each event whether its step is to be performed once more, for nothing, before it counts;
            what a step leaves behind for the next one comes to light by it. None is never.

    Raises:
        RefusedError: ``LOG_READ_ONLY`` for a realm without parts.
    """

    def __init__(
        self,
        world: Realm,
        *,
        every: bool = False,
        twice: Callable[[], bool] | None = None,
    ) -> None:
        """Begin before the first event."""
        parts = world.parts
        if parts is None:
            raise RefusedError("LOG_READ_ONLY", "To recheck, open the realm with its domain, policies and projections.")
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
        self._rebuilt: dict[str, StandardAuthority] = {}
        self._changed: Changed | None = None
        self._work = UnitOfWork(
            realm=self._realm,
            lookup=PastLookup(world.archive),
            domain=parts.domain,
            authority=parts.authority,
            executor=parts.executor,
            clock=GuardedClock(ManualClock(), Evidence(None, None, None, 0), is_confirmed=False),
            ids=SequentialIds(),
            workers=Nobody(),
            limits=Limits(),
            types=ResourceTypes.installed(),
            snapshots={},
            performing=set(),
        )

    def stretch(self, stretch: tuple[int, int]) -> Rechecked:
        """Check the events between two positions; those up to the first of them are only folded.

        Args:
            stretch: the position after which to begin, not before that of the last event so far, and the last one.

        Raises:
            DamagedLogError: when the log contradicts itself; ``verify`` comes first.
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
                    found = Divergence(position, event.TOPIC, difference, None if is_drift else self._changed_since())
                    done.divergences.append(found)
            self._fold(event, position)
            done.position = position
            if done.first is not None and not self._every:
                break
        return done

    def _fold(self, event: Event, position: int) -> None:
        """Remember what later steps need, and fold the event."""
        note = _NOTES.get(type(event))
        if note is not None:
            note(self, event)
        apply_event(self._realm, event, position)
        while len(self._work.snapshots) > MAX_STATES:
            self._work.snapshots.pop(next(iter(self._work.snapshots)))

    def _check(self, event: Event) -> Iterator[DivergenceError]:
        step = _STEPS.get(type(event))
        if step is not None:
            yield from step(self, event)

    def _is_news(self, difference: DivergenceError) -> bool:
        """Tell of each drift once; how many steps it kept from being rechecked is counted."""
        if difference.code not in DRIFT:
            return True
        if difference.code in ("CANNOT_RECHECK", "POLICY_NOT_AT_HAND") and "policy" not in difference.details:
            self._steps["notRechecked"] += 1
        key = drift_key(difference)
        if key in self._drifts:
            return False
        self._drifts.add(key)
        return True

    def _changed_since(self) -> Changed:
        """Return what of the code at hand is another one than that in force at this point."""
        if self._changed is None:
            adopted, at_hand = self._realm.domain, self._parts.domain
            recorded = {} if adopted is None else adopted.sources
            policies = self._realm.policies.items()
            self._changed = Changed(
                schema=self._realm.schema_hash != at_hand.schema.hash,
                code=at_hand.changed(recorded),
                policies=tuple(sorted(name for name, one in policies if self._hash_at_hand(name) != one.policy_hash)),
                distributions=() if adopted is None else changed_versions(adopted, at_hand),
                is_whole=adopted is None or is_whole(adopted),
            )
        return self._changed

    # What later steps need

    def _note_domain(self, event: DomainAdopted) -> None:
        self._work.snapshots.clear()
        self._changed = None

    def _note_policy(self, event: PolicyAdopted | PolicyRetired | ShadowConfigured) -> None:
        self._changed = None
        described = None if isinstance(event, PolicyRetired) else event.policy
        if event.name is None or event.policy_hash is None or described is None:
            return  # nothing shadows any more
        if self._hash_at_hand(event.name) != event.policy_hash and event.policy_hash not in self._rebuilt:
            rebuilt = rebuilt_policy(described, event.policy_hash)
            if rebuilt is not None:
                self._rebuilt[event.policy_hash] = StandardAuthority(PolicyRegistry([rebuilt]))

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
        recorded = Ruling.from_wire(event.ruling)
        is_ours = self._realm.proposals[event.proposal_id].submitted.schema_hash == self._parts.domain.schema.hash
        if is_ours and recorded.verdict != "wait" and not recorded.trace:
            self._judged[event.proposal_id] = question, recorded  # its trace stands in the decision

    def _question(self, event: ProposalJudged) -> _Question:
        asking = self._asking.get(event.proposal_id)
        return asking or _Question(event.binding, self._realm.position + 1)

    def _note_decision(self, event: DecisionMade) -> None:
        self._judged.pop(event.proposal_id, None)

    def _note_request(self, event: EffectRequested) -> None:
        self._requested.setdefault(event.proposal_id, []).append(Requirement.from_wire(event.requirement))

    def _note_sealed(self, event: WorldSealed) -> None:
        self._sealed = event

    def _note_superseded(self, event: ProposalSuperseded) -> None:
        self._asking.pop(event.proposal_id, None)

    def _note_end(self, event: ProposalCompleted | ProposalFailed) -> None:
        self._requested.pop(event.proposal_id, None)

    # Code at hand

    def _domain(self, event: DomainAdopted) -> Iterator[DivergenceError]:
        if event.schema_hash != self._parts.domain.schema.hash:
            return  # every step under it says that it cannot be rechecked
        changed = self._parts.domain.changed(event.sources)
        if changed:
            at_hand = self._parts.domain.sources()
            yield DivergenceError(
                "CODE_CHANGED",
                f"The code of {', '.join(changed)} is not that which was adopted here, under the same schema; what "
                "follows is rechecked with the code at hand.",
                changed=list(changed),
                recorded={name: event.sources.get(name) for name in changed},
                at_hand={name: at_hand.get(name) for name in changed},
            )

    def _policy(self, event: PolicyAdopted | ShadowConfigured) -> Iterator[DivergenceError]:
        self._note_policy(event)
        if event.name is None or event.policy is None or event.policy_hash is None:
            return  # nothing shadows any more
        at_hand = self._hash_at_hand(event.name)
        if at_hand == event.policy_hash or event.policy_hash in self._rebuilt:
            return
        cause = "is not at hand" if at_hand is None else "at hand is not the one adopted here"
        yield DivergenceError(
            "POLICY_NOT_AT_HAND" if at_hand is None else "POLICY_CHANGED",
            f"The policy {event.name!r} {cause}, and the log does not hold the code of its rules; its rulings are not "
            "rechecked. Recheck with the code of then.",
            policy=event.name,
            recorded=event.policy_hash,
            **({} if at_hand is None else {"at_hand": at_hand}),
        )

    def _hash_at_hand(self, name: str) -> str | None:
        """Return the hash of a policy at hand; None where there is none of the name."""
        try:
            return str(self._parts.authority.describe_policy(name)["hash"])
        except RefusedError:
            return None

    def _judging(self, name: str, policy_hash: str | None) -> Any:
        """Return the authority that judges by a policy: the one at hand, or one made of what was adopted.

        None where neither has the hash: another policy would say what it says, and not what this one said.
        """
        if policy_hash is None:
            return self._parts.authority
        if self._hash_at_hand(name) == policy_hash:
            return self._parts.authority
        return self._rebuilt.get(policy_hash)

    def _other_schema(self, schema_hash: str, what: str) -> DivergenceError | None:
        at_hand = self._parts.domain.schema.hash
        if schema_hash == at_hand:
            return None
        return DivergenceError(
            "CANNOT_RECHECK",
            f"{what} cannot be rechecked: it was made under schema {schema_hash[:12]}, and the domain at hand has "
            f"{at_hand[:12]}. Recheck with the domain as it was then.",
            recorded=schema_hash,
            at_hand=at_hand,
        )

    # Steps

    def _projection(self, event: ProjectionRecorded) -> Iterator[DivergenceError]:
        other = self._other_schema(event.schema_hash, f"Projection record {event.record_id}")
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
        proposal = self._realm.proposals[event.proposal_id]
        other = self._other_schema(proposal.submitted.schema_hash, f"The ruling on {event.proposal_id}")
        if other is not None:
            yield other
            return
        recorded = Ruling.from_wire(event.ruling)
        if recorded.verdict == "wait" or recorded.trace:
            yield from self._compare(event.proposal_id, self._question(event), recorded)

    def _shadow(self, event: ProposalShadowed) -> Iterator[DivergenceError]:
        proposal = self._realm.proposals[event.proposal_id]
        other = self._other_schema(proposal.submitted.schema_hash, f"What {event.name!r} said on {event.proposal_id}")
        if other is not None:
            yield other
            return
        bound = self._realm.bindings[proposal.submitted.actor["actorId"]]
        case = self._case(proposal, bound, self._realm.position + 1)
        turned_on = None if self._realm.shadow is None else self._realm.shadow.policy_hash
        yield from recheck_shadow(
            self._judging(event.name, event.policy_hash), case, event, self._steps, turned_on=turned_on
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
        if question.asked is not None:  # people are asked by no policy
            given = self._parts.authority
            difference = recheck_ruling(given, case, recorded, asked=question.asked, answer=question.answer)
        else:
            name = case.binding.get("policy", "")
            adopted = self._realm.policies.get(name)
            authority = self._judging(name, recorded.policy_hash)
            is_in_force = recorded.policy_hash in (None, None if adopted is None else adopted.policy_hash)
            if authority is None and is_in_force:
                yield _not_at_hand(case, recorded)
                return
            is_unknown = authority is None  # its rules are in no adoption, since nobody adopted it
            if not is_in_force:
                authority = _Refusing(authority, self._work, recorded)  # it was refused, whatever it said
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
        difference = recheck_withdrawal(self._work, event)
        if difference is not None:
            yield difference

    def _start(self, event: ExecutionStarted) -> Iterator[DivergenceError]:
        difference = recheck_start(self._work, event)
        if difference is not None:
            yield difference

    def _execution(self, event: ProposalCompleted | ProposalFailed) -> Iterator[DivergenceError]:
        proposal = self._realm.proposals[event.proposal_id]
        requested = self._requested.get(event.proposal_id, [])
        sealed = self._sealed
        if sealed is None or sealed.world_id != event.world_id:
            sealed = self._world.archive.sealed(event.world_id)  # another execution came to it first
        other = self._other_schema(sealed.schema_hash, f"The execution of {event.proposal_id}")
        if other is not None:
            yield other
            return
        if proposal.started is None:
            raise DamagedLogError("ILLEGAL_TRANSITION", f"Proposal {event.proposal_id} ended without having begun.")
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
        """Tell whether the engine ended an execution for what no action computes."""
        code = (sealed.error or {}).get("code")
        if code == LEASES_REVOKED:
            return lost_leases(self._realm, proposal)
        return code in ENGINE_ERRORS and (code != CANCELLED or proposal.cancelled is not None)


_STEPS: Final[Mapping[type[Event], Callable[[Rechecking, Any], Iterator[DivergenceError]]]] = {
    DomainAdopted: Rechecking._domain,
    PolicyAdopted: Rechecking._policy,
    ShadowConfigured: Rechecking._policy,
    ProposalShadowed: Rechecking._shadow,
    ProjectionRecorded: Rechecking._projection,
    ProposalJudged: Rechecking._ruling,
    DecisionMade: Rechecking._decision,
    ProposalCompleted: Rechecking._execution,
    ProposalFailed: Rechecking._execution,
    VerdictGiven: Rechecking._verdict,
    RequestWithdrawn: Rechecking._withdrawal,
    ExecutionStarted: Rechecking._start,
}
"""What is performed again for an event."""

_NOTES: Final[Mapping[type[Event], Callable[[Rechecking, Any], None]]] = {
    DomainAdopted: Rechecking._note_domain,
    PolicyAdopted: Rechecking._note_policy,
    PolicyRetired: Rechecking._note_policy,
    ShadowConfigured: Rechecking._note_policy,
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
"""What is remembered of an event for later steps, whether it is checked or only folded."""


def _is_repeatable(recorded: Ruling) -> bool:
    """Tell whether no rule was broken off at its time limit, and no case was one that could not be made any more."""
    return not any(
        (outcome.answer == "error" and outcome.reason.startswith(TIMED_OUT))
        or (outcome.rule == ENGINE and outcome.source == "case")
        for outcome in recorded.trace
    )


def _not_at_hand(case: Case, recorded: Ruling) -> DivergenceError:
    return DivergenceError(
        "POLICY_NOT_AT_HAND",
        f"The ruling of {recorded.authority} on {case.proposal_id} cannot be rechecked: the policy with the hash "
        f"{(recorded.policy_hash or '')[:12]} is not at hand, and the log does not hold the code of its rules.",
        proposal_id=case.proposal_id,
        authority=recorded.authority,
        policy_hash=recorded.policy_hash,
    )


@dataclass(frozen=True, slots=True)
class _Refusing:
    """An authority that refuses, as the protocol does, what a policy says that is not the one in force.

    Args:
        authority: has the policy; None where nothing has: then what it said is as recorded, and only whether that was
            refused is told.
        work: knows the policy in force.
        recorded: the ruling in the log.
    """

    authority: Any
    work: UnitOfWork
    recorded: Ruling

    def judge(self, case: Case) -> Ruling:
        said = self.recorded if self.authority is None else self.authority.judge(case)
        return in_force(self.work, said, case.binding)
