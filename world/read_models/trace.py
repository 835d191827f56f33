"""Traces: from a source event to the worlds that came of it, and from anything on the way back to its source event.

source event -> projection -> intent -> proposal -> rulings, answers, verdicts, decision, execution -> effects -> world.
Sources: IC-audit ("which agent caused a problem"), CARD-audit, design section 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from world.errors import RefusedError
from world.events.base import Event
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
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.lineage import index_damaged, number
from world.read_models.provenance import projection_before


@dataclass(slots=True)
class TraceStep:
    """One step of a trace.

    Args:
        kind: source, projection, intent, proposal, ruling, answer, timeout, verdict, decision, superseded, execution,
            effect, result, cancelled, world or later.
        name: its id; empty where it has none.
        words: what it says, for people.
        position: the event that records it; None where no event of its own does.
        at: when that was recorded, ms since 1970.
        facts: what programs may want to know of it.
        steps: what came of it.
    """

    kind: str
    name: str
    words: str
    position: int | None = None
    at: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    steps: list[TraceStep] = field(default_factory=list)

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON, with everything below it."""
        wire: dict[str, Any] = {"kind": self.kind, "id": self.name, "position": self.position, "at": self.at}
        return {**wire, **self.facts, "words": self.words, "steps": [step.to_wire() for step in self.steps]}

    def walk(self) -> Iterator[TraceStep]:
        """Yield it and everything below it."""
        yield self
        for step in self.steps:
            yield from step.walk()


def trace_proposal(archive: Archive, proposal_id: str, upto: int | None = None) -> TraceStep:
    """Return the source event of a proposal, with the one line from it through the proposal to what came of it.

    Args:
        archive: of the log.
        proposal_id: the proposal.
        upto: what came of it up to this event; None is up to now.

    Raises:
        RefusedError: ``UNKNOWN_PROPOSAL``; ``NOT_FOUND`` where it was submitted only later.
        DamagedLogError: an event that is not what was logged.
    """
    last = archive.log.head().size if upto is None else upto
    told: list[tuple[int, Event]] = [(one.position, decoded(one)) for one in archive.log.stream(proposal_id)]
    if not told or not isinstance(told[0][1], ProposalSubmitted):
        raise RefusedError("UNKNOWN_PROPOSAL", f"There is no proposal {proposal_id!r}.", proposal_id=proposal_id)
    position, submitted = told[0][0], told[0][1]
    if position > last:
        said = f"Proposal {proposal_id} was submitted by event {position}, which is after event {last}."
        raise RefusedError("NOT_FOUND", said, position=position)
    before = archive.log.event_at(position - 1) if position > 1 else None
    projected = projection_before(before, submitted)
    proposal = _proposal(submitted, position)
    for (at,) in archive.rows("verdicts_of_request", of_request=proposal_id):
        verdict = decoded(archive.event_at(number(at)))
        if not isinstance(verdict, VerdictGiven) or verdict.request_id != proposal_id:
            raise index_damaged("it misplaces a verdict")
        told.append((at, verdict))
    _Course(archive, proposal, last).take(sorted((one for one in told[1:] if one[0] <= last), key=lambda one: one[0]))
    body = submitted.intent["body"]
    intent = TraceStep(
        "intent", submitted.intent["intentId"], f"{body['type']}", position, submitted.at, {"body": body}
    )
    intent.steps.append(proposal)
    return _source(submitted, intent, projected, position - 1)


def _source(
    submitted: ProposalSubmitted, intent: TraceStep, projected: ProjectionRecorded | None, position: int
) -> TraceStep:
    """Return the source event and its projection, above an intent."""
    origin = submitted.intent["meta"]["origin"]
    if projected is not None:
        top = projection_step(projected, position)
        top.steps[0].steps.append(intent)
        return top
    source = source_step(origin["source"])
    way = TraceStep("projection", origin["projectionId"], "named by the intent itself; none was recorded")
    source.steps.append(way)
    way.steps.append(intent)
    return source


def source_step(source: Mapping[str, Any]) -> TraceStep:
    """Return the step of a source event, in wire form."""
    facts = {"source": source}
    return TraceStep("source", str(source["eventId"]), f"{source['kind']} event {source['eventId']}", facts=facts)


def projection_step(projected: ProjectionRecorded, position: int) -> TraceStep:
    """Return the source event of a recorded projection, with the projection below it."""
    result = projected.result
    said = f"selected intent {projected.intent_id}" if projected.intent_id else f"nothing: {result.get('reason')}"
    facts = {"considered": projected.considered, "result": result, "worldId": projected.world_id}
    source = source_step(projected.source)
    source.steps.append(TraceStep("projection", projected.projection_id, said, position, projected.at, facts))
    return source


def _proposal(submitted: ProposalSubmitted, position: int) -> TraceStep:
    actor = submitted.actor
    words = f"by {actor['actorId']} ({actor['kind']}) on {submitted.branch}, attempt {submitted.attempt}"
    facts = {
        "actor": actor,
        "branch": submitted.branch,
        "baseWorld": submitted.base_world,
        "attempt": submitted.attempt,
        "intentKey": submitted.intent["intentKey"],
    }
    return TraceStep("proposal", submitted.proposal_id, words, position, submitted.at, facts)


class _Course:
    """What happened to a proposal, event by event."""

    def __init__(self, archive: Archive, proposal: TraceStep, upto: int) -> None:
        self._archive = archive
        self._upto = upto
        self._under = proposal
        self._proposal = proposal
        self._effects: dict[str, TraceStep] = {}

    def take(self, events: list[tuple[int, Event]]) -> None:
        """Add the steps that some events record, in their order."""
        for position, event in events:
            add = _ADDERS.get(type(event))
            if add is not None:
                add(self, event, position)

    def _judged(self, event: ProposalJudged, position: int) -> None:
        ruling = event.ruling
        asked = f" for {', '.join(ruling['ask'])}" if ruling.get("ask") else ""
        words = f"{ruling['verdict']}{asked} by {ruling['authority']}: {ruling['reason']}"
        self._proposal.steps.append(TraceStep("ruling", "", words, position, event.at, {"ruling": ruling}))

    def _answered(self, event: HumanAnswered, position: int) -> None:
        answer = event.answer
        words = f"{answer['choice']} by {answer['by']['actorId']}: {answer.get('reason', '')}"
        step = TraceStep("answer", answer.get("answerId", ""), words, position, event.at, {"answer": answer})
        self._proposal.steps.append(step)

    def _timed_out(self, event: HumanTimedOut, position: int) -> None:
        self._proposal.steps.append(TraceStep("timeout", "", "nobody answered in time", position, event.at))

    def _verdict(self, event: VerdictGiven, position: int) -> None:
        leases = [f"{one['predicate']} {_text(one['resource'])}, token {one['token']}" for one in event.leases]
        words = event.status + (f": {'; '.join(leases)}" if leases else "")
        facts = {"status": event.status, "leases": event.leases, "conflicts": event.conflicts}
        self._proposal.steps.append(TraceStep("verdict", event.verdict_id, words, position, event.at, facts))

    def _decided(self, event: DecisionMade, position: int) -> None:
        record = event.decision
        rules = [one["rule"] for one in record.get("trace", ()) if one.get("decisive")]
        words = f"{record['decision']} by {record['authority']}: {record['reason']}"
        facts = {"decision": record, "rules": rules}
        self._proposal.steps.append(TraceStep("decision", record["decisionId"], words, position, event.at, facts))

    def _superseded(self, event: ProposalSuperseded, position: int) -> None:
        words = "a branch switch, or a new domain, left it behind undecided"
        self._proposal.steps.append(TraceStep("superseded", "", words, position, event.at))

    def _started(self, event: ExecutionStarted, position: int) -> None:
        facts = {"onWorld": event.on_world, "attempt": event.attempt, "worker": event.worker}
        words = f"on world {event.on_world[:12]}, attempt {event.attempt}"
        self._under = TraceStep("execution", "", words, position, event.at, facts)
        self._proposal.steps.append(self._under)

    def _requested(self, event: EffectRequested, position: int) -> None:
        asked = event.requirement
        words = f"{asked['type']}, attempt {event.attempt}"
        step = TraceStep("effect", asked["id"], words, position, event.at, {"requirement": asked})
        known = self._effects.get(asked["id"])
        if known is not None:
            known.steps.append(step)
            return
        self._effects[asked["id"]] = step
        self._under.steps.append(step)

    def _of_effect(self, event: Any, position: int) -> None:
        above = self._effects.get(event.requirement_id, self._under)
        above.steps.append(TraceStep("result", "", _of_an_effect(event), position, event.at, _facts_of_effect(event)))

    def _cancelled(self, event: ExecutionCancelled, position: int) -> None:
        self._under.steps.append(TraceStep("cancelled", "", f"by {event.by}: {event.reason}", position, event.at))

    def _ended(self, event: ProposalCompleted | ProposalFailed, position: int) -> None:
        failed = f"failed: {event.error['code']}" if isinstance(event, ProposalFailed) else "completed"
        sealed = self._archive.sealed(event.world_id)
        words = failed if sealed.created_by == event.proposal_id else f"{failed}, the world that had been there before"
        step = world_step(self._archive, sealed, words, self._upto)
        self._under.steps.append(step)


def world_step(archive: Archive, sealed: WorldSealed, words: str, upto: int) -> TraceStep:
    """Return the step of a world, with how many worlds came after it below it, up to an event."""
    row = archive.world(sealed.world_id)
    later = int(archive.rows("descendants", of_world=sealed.world_id, upto=upto)[0][0])
    facts = {"parent": sealed.parent, "branch": sealed.branch, "height": sealed.height, "outcome": sealed.outcome}
    step = TraceStep("world", sealed.world_id, words, row.position, sealed.at, facts)
    told = f"{later} {'world descends' if later == 1 else 'worlds descend'} from it"
    step.steps.append(TraceStep("later", "", told, facts={"count": later}))
    return step


def _text(resource: Any) -> str:
    return resource if isinstance(resource, str) else str(resource)


def _of_an_effect(event: Any) -> str:
    if isinstance(event, EffectFulfilled):
        error = event.result.get("error")
        return "fulfilled" if not error else f"ended with the error {error.get('code')}"
    if isinstance(event, EffectRetried):
        return f"failed with {event.error.get('code')}, {event.failures} so far; made again"
    if isinstance(event, EffectInDoubt):
        return f"in doubt: {event.reason}"
    if isinstance(event, EffectResolved):
        return f"{event.choice}, says {event.by}: {event.reason}"
    return f"a late result was dropped: {event.reason}"


def _facts_of_effect(event: Any) -> dict[str, Any]:
    names = ("result", "error", "failures", "reason", "choice", "by")
    return {name: value for name in names if (value := getattr(event, name, None)) is not None}


_ADDERS: Final[Mapping[type[Event], Callable[[_Course, Any, int], None]]] = {
    ProposalJudged: _Course._judged,
    HumanAnswered: _Course._answered,
    HumanTimedOut: _Course._timed_out,
    VerdictGiven: _Course._verdict,
    DecisionMade: _Course._decided,
    ProposalSuperseded: _Course._superseded,
    ExecutionStarted: _Course._started,
    EffectRequested: _Course._requested,
    EffectFulfilled: _Course._of_effect,
    EffectRetried: _Course._of_effect,
    EffectInDoubt: _Course._of_effect,
    EffectResolved: _Course._of_effect,
    EffectDropped: _Course._of_effect,
    ExecutionCancelled: _Course._cancelled,
    ProposalCompleted: _Course._ended,
    ProposalFailed: _Course._ended,
}


@dataclass(frozen=True, slots=True)
class IdOrigins:
    """Where ids of source events and effects stand in the log, by whole id.

    Args:
        sources: the proposals that came of each source event, and the positions of projections that selected none.
        effects: the proposals that asked for each effect.
    """

    sources: Mapping[str, list[str | int]]
    effects: Mapping[str, list[str]]


def find_origins(archive: Archive, prefix: str, upto: int | None = None) -> IdOrigins:
    """Return the source events and the effects whose id begins like this; it reads what the log says of them.

    Args:
        archive: of the log.
        prefix: the beginning of an id.
        upto: up to this event; None is up to now.
    """
    sources: dict[str, list[str | int]] = {}
    effects: dict[str, list[str]] = {}
    came: str | int
    topics = [ProjectionRecorded.TOPIC, ProposalSubmitted.TOPIC, EffectRequested.TOPIC]
    for logged in archive.log.read(upto=upto, topics=topics):
        event = decoded(logged)
        if isinstance(event, ProposalSubmitted):
            name, came = str(event.intent["meta"]["origin"]["source"]["eventId"]), event.proposal_id
        elif isinstance(event, ProjectionRecorded) and event.proposal_id is None:
            name, came = str(event.source["eventId"]), logged.position
        elif isinstance(event, EffectRequested) and event.requirement["id"].startswith(prefix):
            known = effects.setdefault(event.requirement["id"], [])
            if event.proposal_id not in known:
                known.append(event.proposal_id)
            continue
        else:
            continue
        if name.startswith(prefix):
            sources.setdefault(name, []).append(came)
    return IdOrigins(sources, effects)


def trace_source(archive: Archive, came: list[str | int], upto: int | None = None) -> TraceStep:
    """Return a source event with everything that came of it.

    Args:
        archive: of the log.
        came: what ``find_origins`` tells of it.
        upto: up to this event, as for that; None is up to now.
    """
    tops = []
    for one in came:
        if isinstance(one, str):
            tops.append(trace_proposal(archive, one, upto))
        else:
            event = decoded(archive.log.event_at(one))
            assert isinstance(event, ProjectionRecorded)
            tops.append(projection_step(event, one))
    top = max(tops, key=lambda step: len(step.facts["source"]))  # the one that has the payload
    top.steps = [step for one in tops for step in one.steps]
    return top
