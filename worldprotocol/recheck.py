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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from authority import recheck_ruling
from authority.policy import TIMED_OUT
from host import recheck_execution
from host.executor import is_time_out
from projections import recheck_projection
from world.clock import ManualClock, SequentialIds
from world.core import Domain
from world.decision import HumanAnswer, RuleOutcome, Ruling
from world.errors import DamagedLog, Diverged, Refused
from world.events import (
    DecisionMade,
    DomainAdopted,
    EffectRequested,
    Event,
    HumanAnswered,
    HumanTimedOut,
    PolicyAdopted,
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSuperseded,
    VerdictGiven,
    WorldSealed,
)
from world.execution import CANCELLED, ENGINE_ERRORS, LEASES_REVOKED, lost_leases, order_of
from world.frozen import FrozenDict
from world.judgement import case_of, in_force
from world.klis.resource import ResourceTypes
from world.limits import Limits
from world.ports import Case, Enforcement
from world.proposal import Proposal
from world.realm import Realm, fold
from world.snapshot import Requirement
from world.time_limit import unlimited
from world.views.archive import Archive
from world.work import PastAt, Work
from worldprotocol.assemble import Parts, compose, open_for_reading
from worldprotocol.facade import World
from worldprotocol.recheck_leases import recheck_manifest, recheck_verdict

Progress = Callable[[int, int], None]

DRIFT: Final = frozenset({"CODE_CHANGED", "POLICY_CHANGED", "POLICY_NOT_AT_HAND", "CANNOT_RECHECK"})
"""Codes that say that the code is another one, and not that a step came out differently."""

MAX_STATES: Final = 64


@dataclass(frozen=True, slots=True)
class Divergence:
    """A step that came out differently, or could not be performed again.

    Args:
        position: the event of the record.
        topic: its topic.
        difference: what differs.
    """

    position: int
    topic: str
    difference: Diverged

    @property
    def is_drift(self) -> bool:
        """Whether only the code at hand is another one."""
        return self.difference.code in DRIFT

    def to_wire(self) -> dict[str, Any]:
        """Return the divergence as JSON."""
        return {"position": self.position, "topic": self.topic, **self.difference.to_dict()}


@dataclass(slots=True)
class Rechecked:
    """What a recheck came to.

    Args:
        divergences: in the order of the log.
        steps: how many projections, rulings and executions were performed again, and how many could not be
            (``notRechecked``, ``notRepeatable``).
        position: the last event that was looked at.
    """

    divergences: list[Divergence] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)
    position: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything was performed again and came out as recorded."""
        return not self.divergences

    def to_wire(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "ok": self.ok,
            "position": self.position,
            "steps": dict(sorted(self.steps.items())),
            "divergences": [one.to_wire() for one in self.divergences],
        }


def recheck(
    world: World, *, upto: int | None = None, every: bool = False, progress: Progress | None = None
) -> Rechecked:
    """Perform the recorded steps of a log again.

    Args:
        world: a realm opened with the domain, projections and policies to check with.
        upto: the last position; None is the newest event.
        every: go on after the first step that came out differently; drift never stops it.
        progress: called now and then with events done and events in all.

    Raises:
        DamagedLog: when the log contradicts itself; ``verify`` comes first.
        Refused: ``LOG_READ_ONLY`` for a realm without parts.
    """
    parts = world.parts
    if parts is None:
        raise Refused("LOG_READ_ONLY", "To recheck, open the realm with its domain, policies and projections.")
    last = world.log.head().size if upto is None else upto
    checking = _Rechecking(world, parts)
    for position, event in world.events(upto=last):
        for difference in unlimited(lambda: list(checking.take(position, event))):  # noqa: B023 - called at once
            found = Divergence(position, event.TOPIC, difference)
            checking.result.divergences.append(found)
            if not every and not found.is_drift:
                return checking.result
        if progress is not None and position % 500 == 0:
            progress(position, last)
    if progress is not None:
        progress(last, last)
    return checking.result


def open_to_recheck(address: str, *, domain: Domain | str | Path, **parts: Any) -> World:
    """Open a realm for looking only, with the code to check its steps with; no byte of the log changes.

    Args:
        address: a SQLite file, or a SQLAlchemy URL with an optional ``#name``.
        domain: a domain, a reference to one, or a file.
        **parts: ``projections``, ``policies``, ``folder`` as for ``World.open``.

    Raises:
        Refused: what cannot be loaded, and see ``World.look``.
    """
    composed = compose(domain=domain, **parts)
    return World(open_for_reading(address), composed, None)


@dataclass(frozen=True, slots=True)
class _Asking:
    """A question to the authority that was recorded, until its ruling is."""

    case: Case
    asked: Ruling
    answer: HumanAnswer | None


class _Rechecking:
    """One pass over the events: each is checked against the realm before it, and then folded."""

    def __init__(self, world: World, parts: Parts) -> None:
        self.result = Rechecked()
        self._world = world
        self._parts = parts
        self._realm = Realm()
        self._sealed: WorldSealed | None = None
        self._asking: dict[str, _Asking] = {}
        self._judged: dict[str, tuple[Case, Ruling, _Asking | None]] = {}
        self._requested: dict[str, list[Requirement]] = {}
        self._drifts: set[tuple[str, str]] = set()
        self._work = Work(
            realm=self._realm,
            lookup=_PastLookup(world.archive),
            domain=parts.domain,
            authority=parts.authority,
            executor=parts.executor,
            clock=ManualClock(),
            ids=SequentialIds(),
            workers=_Nobody(),
            limits=Limits(),
            types=ResourceTypes.installed(),
            snapshots={},
            performing=set(),
        )

    def take(self, position: int, event: Event) -> Iterator[Diverged]:
        """Yield how an event's step differs when it is performed again, and fold the event."""
        for difference in self._check(event):
            if self._is_news(difference):
                yield difference
        fold(self._realm, event, position)
        self.result.position = position
        while len(self._work.snapshots) > MAX_STATES:
            self._work.snapshots.pop(next(iter(self._work.snapshots)))

    def _check(self, event: Event) -> Iterator[Diverged]:
        step = _STEPS.get(type(event))
        if step is not None:
            yield from step(self, event)
        elif isinstance(event, HumanAnswered):
            self._ask(event, HumanAnswer.read(event.answer))
        elif isinstance(event, HumanTimedOut):
            self._ask(event, None)
        elif isinstance(event, EffectRequested):
            self._requested.setdefault(event.proposal_id, []).append(Requirement.from_wire(event.requirement))
        elif isinstance(event, WorldSealed):
            self._sealed = event
        elif isinstance(event, ProposalSuperseded):
            self._asking.pop(event.proposal_id, None)

    def _is_news(self, difference: Diverged) -> bool:
        """Tell of each drift once; how many steps it kept from being rechecked is counted."""
        if difference.code not in DRIFT:
            return True
        told = difference.details
        key = difference.code, str(told.get("projection") or told.get("authority") or told.get("recorded"))
        if difference.code in ("CANNOT_RECHECK", "POLICY_NOT_AT_HAND") and "policy" not in told:
            self.result.steps["notRechecked"] += 1
        if key in self._drifts:
            return False
        self._drifts.add(key)
        return True

    # Code at hand

    def _domain(self, event: DomainAdopted) -> Iterator[Diverged]:
        self._work.snapshots.clear()
        if event.schema_hash != self._parts.domain.schema.hash:
            return  # every step under it says that it cannot be rechecked
        at_hand = self._parts.domain.sources()
        changed = sorted(
            name for name in event.sources.keys() | at_hand.keys() if event.sources.get(name) != at_hand.get(name)
        )
        if changed:
            yield Diverged(
                "CODE_CHANGED",
                f"The code of {', '.join(changed)} is not that which was adopted here, under the same schema; what "
                "follows is rechecked with the code at hand.",
                changed=changed,
                recorded={name: event.sources.get(name) for name in changed},
                at_hand={name: at_hand.get(name) for name in changed},
            )

    def _policy(self, event: PolicyAdopted) -> Iterator[Diverged]:
        try:
            found = self._parts.authority.describe_policy(event.name)["hash"]
        except Refused:
            found = None
        if found is None:
            yield Diverged(
                "POLICY_NOT_AT_HAND",
                f"The policy {event.name!r} is not at hand; its rulings cannot be rechecked.",
                policy=event.name,
                recorded=event.policy_hash,
            )
        elif found != event.policy_hash:
            yield Diverged(
                "POLICY_CHANGED",
                f"The policy {event.name!r} at hand is not the one adopted here; rulings are rechecked with the one "
                "at hand.",
                policy=event.name,
                recorded=event.policy_hash,
                at_hand=found,
            )

    def _other_schema(self, schema_hash: str, what: str) -> Diverged | None:
        at_hand = self._parts.domain.schema.hash
        if schema_hash == at_hand:
            return None
        return Diverged(
            "CANNOT_RECHECK",
            f"{what} cannot be rechecked: it was made under schema {schema_hash[:12]}, and the domain at hand has "
            f"{at_hand[:12]}. Recheck with the domain as it was then.",
            recorded=schema_hash,
            at_hand=at_hand,
        )

    # Steps

    def _projection(self, event: ProjectionRecorded) -> Iterator[Diverged]:
        other = self._other_schema(event.schema_hash, f"Projection record {event.record_id}")
        if other is not None:
            yield other
            return
        self.result.steps["projections"] += 1
        difference = recheck_projection(self._parts.projections, event, self._work.snapshot(event.world_id).view)
        if difference is not None:
            yield difference

    def _case(self, proposal: Proposal, binding: Any, before: int) -> Case:
        return case_of(self._work, proposal, binding, PastAt(self._work.lookup, before, proposal.proposal_id))

    def _ask(self, event: HumanAnswered | HumanTimedOut, answer: HumanAnswer | None) -> None:
        """Remember the case as it was when a person answered, or when the time was over."""
        proposal = self._realm.proposals[event.proposal_id]
        asked = proposal.asked
        if asked is None or proposal.submitted.schema_hash != self._parts.domain.schema.hash:
            return
        # An answer is judged before it is recorded, a time-out after.
        before = self._realm.position + (1 if answer is not None else 2)
        case = self._case(proposal, proposal.binding or {}, before)
        self._asking[event.proposal_id] = _Asking(case, asked, answer)

    def _ruling(self, event: ProposalJudged) -> Iterator[Diverged]:
        proposal = self._realm.proposals[event.proposal_id]
        other = self._other_schema(proposal.submitted.schema_hash, f"The ruling on {event.proposal_id}")
        if other is not None:
            yield other
            return
        asking = self._asking.pop(event.proposal_id, None)
        case = asking.case if asking is not None else self._case(proposal, event.binding, self._realm.position + 1)
        recorded = Ruling.from_wire(event.ruling)
        if recorded.verdict == "wait" or recorded.trace:
            yield from self._compare(case, recorded, asking)
        else:
            self._judged[event.proposal_id] = case, recorded, asking  # its trace stands in the decision

    def _decision(self, event: DecisionMade) -> Iterator[Diverged]:
        judged = self._judged.pop(event.proposal_id, None)
        if judged is not None:
            case, recorded, asking = judged
            trace = tuple(RuleOutcome.from_wire(outcome) for outcome in event.decision.get("trace", ()))
            yield from self._compare(case, replace(recorded, trace=trace), asking)

    def _compare(self, case: Case, recorded: Ruling, asking: _Asking | None) -> Iterator[Diverged]:
        if any(outcome.answer == "error" and outcome.reason.startswith(TIMED_OUT) for outcome in recorded.trace):
            self.result.steps["notRepeatable"] += 1
            return
        self.result.steps["rulings"] += 1
        authority: Any = self._parts.authority
        if asking is not None:
            difference = recheck_ruling(authority, case, recorded, asked=asking.asked, answer=asking.answer)
        else:
            adopted = self._realm.policies.get(case.binding.get("policy", ""))
            if recorded.policy_hash is not None and (adopted is None or adopted.policy_hash != recorded.policy_hash):
                authority = _Refusing(authority, self._work)  # it was refused, not being the policy in force
            difference = recheck_ruling(authority, case, recorded)
        if difference is not None and not self._is_drift(difference):
            yield difference

    def _is_drift(self, difference: Diverged) -> bool:
        """Tell whether a ruling differs only in what was told already: where its rules stand, and the policy's hash."""
        rest = []
        for one in difference.details.get("differences", [{"at": "all"}]):
            then, now = one.get("recorded"), one.get("now")
            if isinstance(then, dict) and isinstance(now, dict):
                moved = {**then, "source": ""} == {**now, "source": ""}
            else:
                moved = one["at"] == "policyHash" and any(code == "POLICY_CHANGED" for code, _ in self._drifts)
            if not moved:
                rest.append(one)
        return not rest

    def _verdict(self, event: VerdictGiven) -> Iterator[Diverged]:
        self.result.steps["verdicts"] += 1
        difference = recheck_manifest(self._work, event) or recheck_verdict(self._realm.klis, event)
        if difference is not None:
            yield difference

    def _execution(self, event: ProposalCompleted | ProposalFailed) -> Iterator[Diverged]:
        proposal = self._realm.proposals[event.proposal_id]
        requested = self._requested.pop(event.proposal_id, [])
        sealed = self._sealed
        if sealed is None or sealed.world_id != event.world_id:
            sealed = self._world.archive.sealed(event.world_id)  # another execution came to it first
        other = self._other_schema(sealed.schema_hash, f"The execution of {event.proposal_id}")
        if other is not None:
            yield other
            return
        if proposal.started is None:
            raise DamagedLog("ILLEGAL_TRANSITION", f"Proposal {event.proposal_id} ended without having begun.")
        if is_time_out(sealed.error) or self._by_engine(proposal, sealed):
            self.result.steps["notRepeatable"] += 1
            return
        self.result.steps["executions"] += 1
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


_STEPS: Final[Mapping[type[Event], Callable[[_Rechecking, Any], Iterator[Diverged]]]] = {
    DomainAdopted: _Rechecking._domain,
    PolicyAdopted: _Rechecking._policy,
    ProjectionRecorded: _Rechecking._projection,
    ProposalJudged: _Rechecking._ruling,
    DecisionMade: _Rechecking._decision,
    ProposalCompleted: _Rechecking._execution,
    ProposalFailed: _Rechecking._execution,
    VerdictGiven: _Rechecking._verdict,
}
"""What is performed again for an event."""


@dataclass(frozen=True, slots=True)
class _Refusing:
    """An authority that refuses, as the protocol does, what a policy says that is not the one in force."""

    authority: Any
    work: Work

    def judge(self, case: Case) -> Ruling:
        return in_force(self.work, self.authority.judge(case), case.binding)


@dataclass(frozen=True, slots=True)
class _PastLookup:
    """Look-ups in what is committed; a case asks only about what came before it (``world.work.Lookup``)."""

    archive: Archive

    def proposal_of_intent(self, intent_id: str) -> str | None:
        rows = self.archive.rows("by_intent", of_intent=intent_id)
        return str(rows[0][0]) if rows else None

    def attempts(self, intent_key: str) -> int:
        rows = self.archive.rows("attempts", of_key=intent_key)
        return int(rows[0][0] or 0) if rows else 0

    def count(self, before: int, **conditions: Any) -> int:
        return self.archive.count(before, **conditions)

    def world_outcome(self, world_id: str) -> tuple[str, int] | None:
        row = self.archive.find_world(world_id)
        return None if row is None else (row.outcome, row.height)

    def checked_state(self, world_id: str) -> FrozenDict:
        return self.archive.checked_state(world_id)


class _Nobody:
    """No worker: a recheck executes nothing."""

    me = "recheck"

    def is_gone(self, worker: str) -> bool:
        return False

    def close(self) -> None:
        """There is nothing to leave."""
