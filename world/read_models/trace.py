"""Traces from source events to the worlds that result from them, and from any step back to its source event.

source event -> projection -> intent -> proposal -> rulings, answers, verdicts, decision, execution -> effects -> world.
Sources: IC-audit ("which agent caused a problem"), CARD-audit, design section 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.claim_events import EffectClaimed, EffectExtended, EffectLapsed
from world.events.execution_events import (
    EffectDropped,
    EffectFulfilled,
    EffectInDoubt,
    EffectRequested,
    EffectResolved,
    EffectRetried,
    ExecutionCancelled,
    ExecutionStarted,
)
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import (
    DecisionMade,
    HumanAnswered,
    HumanTimedOut,
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.events.realm_events import WorldSealed
from world.model.record import WireForm, to_wire
from world.model.source import SourceEvent, SourceRef
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.lineage import number
from world.read_models.live.state_loading import index_damaged
from world.read_models.provenance import projection_before

MAX_LATER: Final = 100
"""How many descendants of a world are counted: an old world has all later ones."""


@dataclass(slots=True)
class TraceStep(WireForm):
    """One step of a trace.

    Args:
        kind: source, projection, intent, proposal, ruling, answer, timeout, verdict, decision, superseded, execution,
            effect, result, cancelled, world or later.
        name: its id; empty for a step without an id.
        words: description for people.
        position: position of the event that records it; None for a step without an event.
        at: time of that event, ms since 1970-01-01 UTC.
        facts: details for programs.
        steps: the steps that result from it.
    """

    kind: str
    name: str
    words: str
    position: int | None = None
    at: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    steps: list[TraceStep] = field(default_factory=list)
    WIRE: ClassVar = "kind id=name position at *facts words steps"

    def walk(self) -> Iterator[TraceStep]:
        """Yield the step and all steps below it."""
        yield self
        for step in self.steps:
            yield from step.walk()


def trace_proposal(archive: Archive, proposal_id: str, upto: int | None = None) -> TraceStep:
    """Return the source event of a proposal, with the steps from it through the proposal to its results.

    Args:
        archive: archive of the log.
        proposal_id: the proposal.
        upto: position of the last event to include; None includes all.

    Raises:
        RefusedError: ``UNKNOWN_PROPOSAL``; ``NOT_FOUND`` where it was submitted after ``upto``.
        DamagedLogError: an event was changed after it was logged.
    """
    last = archive.log.head().size if upto is None else upto
    events: list[tuple[int, Event]] = [(one.position, decoded(one)) for one in archive.log.stream(proposal_id)]
    if not events or not isinstance(events[0][1], ProposalSubmitted):
        raise RefusedError(
            ErrorCode.UNKNOWN_PROPOSAL, f"Proposal {proposal_id!r} does not exist.", proposal_id=proposal_id
        )
    position, submitted = events[0][0], events[0][1]
    if position > last:
        message = f"Proposal {proposal_id} was submitted by event {position}, which is after event {last}."
        raise RefusedError(ErrorCode.NOT_FOUND, message, position=position)
    before = archive.log.event_at(position - 1) if position > 1 else None
    projected = projection_before(before, submitted)
    proposal = _proposal(submitted, position)
    for (at,) in archive.rows("verdicts_of_request", {"of_request": proposal_id}):
        verdict = decoded(archive.event_at(number(at)))
        if not isinstance(verdict, VerdictGiven) or verdict.request_id != proposal_id:
            raise index_damaged("it has a wrong position of a verdict")
        events.append((at, verdict))
    later_events = sorted((one for one in events[1:] if one[0] <= last), key=lambda one: one[0])
    _ProposalSteps(archive, proposal, last).add_events(later_events)
    body = submitted.intent.body
    facts = {"body": body.to_wire()}
    intent = TraceStep("intent", submitted.intent.intent_id, body.type, position, submitted.at, facts)
    intent.steps.append(proposal)
    return _source(submitted, intent, projected, position - 1)


def _source(
    submitted: ProposalSubmitted, intent: TraceStep, projected: ProjectionRecorded | None, position: int
) -> TraceStep:
    """Return the source event of an intent, with its projection and the intent below it."""
    origin = submitted.intent.meta.origin
    if projected is not None:
        top = projection_step(projected, position)
        top.steps[0].steps.append(intent)
        return top
    source = source_step(origin.source)
    projection = TraceStep("projection", origin.projection_id, "named by the intent itself; none was recorded")
    source.steps.append(projection)
    projection.steps.append(intent)
    return source


def source_step(source: SourceEvent | SourceRef) -> TraceStep:
    """Return the step of a source event.

    Args:
        source: the source event, or a reference to it.
    """
    facts = {"source": source.to_wire()}
    return TraceStep("source", source.event_id, f"{source.kind} event {source.event_id}", facts=facts)


def projection_step(projected: ProjectionRecorded, position: int) -> TraceStep:
    """Return the source event of a recorded projection, with the projection below it."""
    result = projected.result
    words = f"selected intent {projected.intent_id}" if projected.intent_id else f"nothing: {result.reason}"
    facts = {"considered": projected.considered, "result": result.to_wire(), "worldId": projected.world_id}
    source = source_step(projected.source)
    source.steps.append(TraceStep("projection", projected.projection_id, words, position, projected.at, facts))
    return source


def _proposal(submitted: ProposalSubmitted, position: int) -> TraceStep:
    actor = submitted.actor
    words = f"by {actor.actor_id} ({actor.kind}) on {submitted.branch}, attempt {submitted.attempt}"
    facts = {
        "actor": actor.to_wire(),
        "branch": submitted.branch,
        "baseWorld": submitted.base_world,
        "attempt": submitted.attempt,
        "intentKey": submitted.intent.intent_key,
    }
    return TraceStep("proposal", submitted.proposal_id, words, position, submitted.at, facts)


class _ProposalSteps:
    """Builder of the steps of a proposal from its events."""

    def __init__(self, archive: Archive, proposal: TraceStep, upto: int) -> None:
        self._archive = archive
        self._upto = upto
        self._under = proposal
        self._proposal = proposal
        self._effects: dict[str, TraceStep] = {}

    def add_events(self, events: list[tuple[int, Event]]) -> None:
        """Add the steps that events record, in the order of the events."""
        for position, event in events:
            add = _ADDERS.get(type(event))
            if add is not None:
                add(self, event, position)

    def _judged(self, event: ProposalJudged, position: int) -> None:
        ruling = event.ruling
        asked = f" for {', '.join(ruling.ask)}" if ruling.ask else ""
        words = f"{ruling.verdict}{asked} by {ruling.authority}: {ruling.reason}"
        self._proposal.steps.append(TraceStep("ruling", "", words, position, event.at, {"ruling": ruling.to_wire()}))

    def _answered(self, event: HumanAnswered, position: int) -> None:
        answer = event.answer
        words = f"{answer.choice} by {answer.by.actor_id}: {answer.reason}"
        step = TraceStep("answer", answer.answer_id, words, position, event.at, {"answer": answer.to_wire()})
        self._proposal.steps.append(step)

    def _timed_out(self, event: HumanTimedOut, position: int) -> None:
        self._proposal.steps.append(TraceStep("timeout", "", "no answer in time", position, event.at))

    def _verdict(self, event: VerdictGiven, position: int) -> None:
        leases = [f"{one.predicate} {one.resource}, token {one.token}" for one in event.leases]
        words = event.status + (f": {'; '.join(leases)}" if leases else "")
        facts = {"status": event.status, "leases": to_wire(event.leases), "conflicts": to_wire(event.conflicts)}
        self._proposal.steps.append(TraceStep("verdict", event.verdict_id, words, position, event.at, facts))

    def _decided(self, event: DecisionMade, position: int) -> None:
        record = event.decision
        words = f"{record.decision} by {record.authority}: {record.reason}"
        facts = {"decision": record.to_wire(), "rules": record.decisive_rules}
        self._proposal.steps.append(TraceStep("decision", record.decision_id, words, position, event.at, facts))

    def _superseded(self, event: ProposalSuperseded, position: int) -> None:
        words = "undecided at a branch switch or at the adoption of a domain"
        if event.by is not None:
            words = f"withdrawn by {event.by}: {event.reason}"
        elif event.reason is not None and event.successor is None:
            words = event.reason
        self._proposal.steps.append(TraceStep("superseded", "", words, position, event.at))

    def _started(self, event: ExecutionStarted, position: int) -> None:
        facts = {"onWorld": event.on_world, "attempt": event.attempt, "worker": event.worker}
        words = f"on world {event.on_world[:12]}, attempt {event.attempt}"
        self._under = TraceStep("execution", "", words, position, event.at, facts)
        self._proposal.steps.append(self._under)

    def _requested(self, event: EffectRequested, position: int) -> None:
        asked = event.requirement
        words = f"{asked.type}, attempt {event.attempt}"
        step = TraceStep("effect", asked.id, words, position, event.at, {"requirement": asked.to_wire()})
        known = self._effects.get(asked.id)
        if known is not None:
            known.steps.append(step)
            return
        self._effects[asked.id] = step
        self._under.steps.append(step)

    def _of_effect(self, event: Any, position: int) -> None:
        above = self._effects.get(event.requirement_id, self._under)
        above.steps.append(TraceStep("result", "", _of_an_effect(event), position, event.at, _facts_of_effect(event)))

    def _cancelled(self, event: ExecutionCancelled, position: int) -> None:
        self._under.steps.append(TraceStep("cancelled", "", f"by {event.by}: {event.reason}", position, event.at))

    def _ended(self, event: ProposalCompleted | ProposalFailed, position: int) -> None:
        failed = f"failed: {event.error.code}" if isinstance(event, ProposalFailed) else "completed"
        sealed = self._archive.sealed(event.world_id)
        words = failed if sealed.created_by == event.proposal_id else f"{failed}, in a world that existed already"
        step = world_step(self._archive, sealed, words, self._upto)
        self._under.steps.append(step)


def world_step(archive: Archive, sealed: WorldSealed, words: str, upto: int) -> TraceStep:
    """Return the step of a world, with the number of its descendants below it, which are counted up to ``MAX_LATER``.

    Args:
        archive: archive of the log.
        sealed: the world.
        words: description for people.
        upto: position of the last event to include.
    """
    row = archive.world(sealed.world_id)
    counted = {"of_world": sealed.world_id, "upto": upto, "most": MAX_LATER + 1}
    later = int(archive.rows("descendants", counted)[0][0])
    facts = {"parent": sealed.parent, "branch": sealed.branch, "height": sealed.height, "outcome": sealed.outcome}
    step = TraceStep("world", sealed.world_id, words, row.position, sealed.at, facts)
    if later > MAX_LATER:
        words, count = f"more than {MAX_LATER} worlds descend from it", {"count": MAX_LATER, "more": True}
    else:
        words, count = f"{later} {'world descends' if later == 1 else 'worlds descend'} from it", {"count": later}
    step.steps.append(TraceStep("later", "", words, facts=count))
    return step


def _of_an_effect(event: Any) -> str:
    if isinstance(event, EffectFulfilled):
        error = event.result.error
        return "fulfilled" if not error else f"ended with the error {error.code}"
    if isinstance(event, EffectRetried):
        return f"failed with {event.error.code}, {event.failures} so far; retried"
    if isinstance(event, EffectInDoubt):
        return f"in doubt: {event.reason}"
    if isinstance(event, EffectClaimed):
        return f"claimed by {event.worker} with token {event.token}, attempt {event.attempt}"
    if isinstance(event, EffectExtended):
        return f"the claim with token {event.token} was extended"
    if isinstance(event, EffectLapsed):
        return f"the claim with token {event.token} lapsed"
    if isinstance(event, EffectResolved):
        return f"resolved as {event.choice} by {event.by}: {event.reason}"
    return f"a late result was dropped: {event.reason}"


def _facts_of_effect(event: Any) -> dict[str, Any]:
    names = ("result", "error", "failures", "reason", "choice", "by", "claim", "worker", "token", "deadline")
    return {name: to_wire(value) for name in names if (value := getattr(event, name, None)) is not None}


_ADDERS: Final[Mapping[type[Event], Callable[[_ProposalSteps, Any, int], None]]] = {
    ProposalJudged: _ProposalSteps._judged,
    HumanAnswered: _ProposalSteps._answered,
    HumanTimedOut: _ProposalSteps._timed_out,
    VerdictGiven: _ProposalSteps._verdict,
    DecisionMade: _ProposalSteps._decided,
    ProposalSuperseded: _ProposalSteps._superseded,
    ExecutionStarted: _ProposalSteps._started,
    EffectRequested: _ProposalSteps._requested,
    EffectClaimed: _ProposalSteps._of_effect,
    EffectExtended: _ProposalSteps._of_effect,
    EffectLapsed: _ProposalSteps._of_effect,
    EffectFulfilled: _ProposalSteps._of_effect,
    EffectRetried: _ProposalSteps._of_effect,
    EffectInDoubt: _ProposalSteps._of_effect,
    EffectResolved: _ProposalSteps._of_effect,
    EffectDropped: _ProposalSteps._of_effect,
    ExecutionCancelled: _ProposalSteps._cancelled,
    ProposalCompleted: _ProposalSteps._ended,
    ProposalFailed: _ProposalSteps._ended,
}


@dataclass(frozen=True, slots=True)
class IdOrigins:
    """Origins of the ids of source events and effects.

    Args:
        sources: by id of a source event, the resulting proposals and the positions of projections without an intent.
        effects: by id of an effect, the proposals that requested it.
    """

    sources: Mapping[str, list[str | int]]
    effects: Mapping[str, list[str]]


def find_origins(archive: Archive, prefix: str, upto: int | None = None) -> IdOrigins:
    """Return the source events and the effects whose id has a prefix; reads the log.

    Args:
        archive: archive of the log.
        prefix: the prefix of an id.
        upto: position of the last event to include; None includes all.
    """
    sources: dict[str, list[str | int]] = {}
    effects: dict[str, list[str]] = {}
    origin: str | int
    topics = [ProjectionRecorded.TOPIC, ProposalSubmitted.TOPIC, EffectRequested.TOPIC]
    for logged in archive.log.read(upto=upto, topics=topics):
        event = decoded(logged)
        if isinstance(event, ProposalSubmitted):
            name, origin = str(event.intent.meta.origin.source.event_id), event.proposal_id
        elif isinstance(event, ProjectionRecorded) and event.proposal_id is None:
            name, origin = str(event.source.event_id), logged.position
        elif isinstance(event, EffectRequested) and event.requirement.id.startswith(prefix):
            known = effects.setdefault(event.requirement.id, [])
            if event.proposal_id not in known:
                known.append(event.proposal_id)
            continue
        else:
            continue
        if name.startswith(prefix):
            sources.setdefault(name, []).append(origin)
    return IdOrigins(sources, effects)


def trace_source(archive: Archive, origins: list[str | int], upto: int | None = None) -> TraceStep:
    """Return a source event with all steps that result from it.

    Args:
        archive: archive of the log.
        origins: its entry in ``IdOrigins.sources``.
        upto: position of the last event to include, as for ``find_origins``; None includes all.
    """
    tops = []
    for one in origins:
        if isinstance(one, str):
            tops.append(trace_proposal(archive, one, upto))
        else:
            event = decoded(archive.log.event_at(one))
            assert isinstance(event, ProjectionRecorded)
            tops.append(projection_step(event, one))
    top = max(tops, key=lambda step: len(step.facts["source"]))  # the one that has the payload
    top.steps = [step for one in tops for step in one.steps]
    return top
