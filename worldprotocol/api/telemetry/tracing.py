"""Spans of a realm: project, judge, arbitrate, execute, effect and commit.

The parent of a span is the span of the caller, also where another thread runs its command with others in one commit.
What continues later, after a person answered or a worker was restarted, belongs to the request that continued it, and
links to the ``traceparent`` that the proposal has recorded. A span of a call that is repeated under the log's lock, or
made for a preparation, is a span of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Final, TypeVar

from msgspec import structs
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, StatusCode

from world.engine.observing import WriteTiming
from world.engine.protocol import WorldProtocol
from world.errors import WorldProtocolError
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import ProjectionRecorded
from world.model.actor import ActorRef
from world.model.decision import HumanAnswer, Ruling
from world.model.intent import IntentInstance
from world.model.snapshot import Requirement, Snapshot
from world.pipeline.project import Projector
from world.pipeline.steps import Approvable
from world.pipeline.submit import Submission
from world.state.ports import (
    Authority,
    BackupService,
    Case,
    EffectAttempt,
    EffectTerms,
    Enforcement,
    ExecutionOrder,
    Executor,
    Performed,
    StepOutcome,
)
from worldprotocol.api.telemetry.context import recorded_context, traced

__all__ = ["Tracing", "trace_engine"]

R = TypeVar("R")
ACTOR_KIND: Final = "world_protocol.actor.kind"
INTENT_TYPE: Final = "world_protocol.intent.type"
PROPOSAL: Final = "world_protocol.proposal.id"
REALM: Final = "world_protocol.realm"

Projection = tuple[ProjectionRecorded | None, IntentInstance | Any | None]
Attributes = dict[str, Any]
Recorded = Mapping[str, Any] | None
Perform = Callable[[ExecutionOrder, Requirement, EffectAttempt], Performed]


class Tracing:
    """Spans of one realm (``world.engine.observing.Observer``).

    Args:
        provider: makes the tracer; the one that the program has configured.
        realm: name of the realm in the spans.
        recorded: returns the ``trace`` that an open proposal has recorded; None where it has none.
    """

    def __init__(self, provider: trace.TracerProvider, realm: str, recorded: Callable[[str], Recorded]) -> None:
        """Make no span yet."""
        self._tracer = provider.get_tracer("worldprotocol")
        self._recorded = recorded
        self.realm = realm

    @property
    def stages(self) -> Callable[[Callable[..., Iterable[Any]], Any, Any], Iterable[Any]]:
        """Runs the stages of the pipeline, and makes the spans ``arbitrate``."""
        return self._stage

    def submission(self, asked: Submission) -> Submission:
        """Return a submission whose ``trace`` has the ``traceparent`` of the current span, unless it has one."""
        trace_of = traced(asked.trace)
        return asked if trace_of is asked.trace else structs.replace(asked, trace=trace_of)

    def authority(self, authority: Authority) -> Authority:
        """Return an Authority with the spans ``judge``."""
        return _TracedAuthority(authority, self)

    def executor(self, executor: Executor) -> Executor:
        """Return an executor with the spans ``execute`` and ``effect``."""
        return _TracedExecutor(executor, self)

    def command(self, command: Callable[[Any], R]) -> Callable[[Any], R]:
        """Return a command that runs in the context of its caller."""
        return _InContext(command)

    def projector(self, projector: Projector, actor: ActorRef) -> Projector:
        """Return a projector with the spans ``project``."""

        def project(snapshot: Snapshot, schema_hash: str, world: str, at: int) -> Projection:
            with self.span("project", {ACTOR_KIND: actor.kind}) as span:
                record, intent = projector(snapshot, schema_hash, world, at)
                if record is not None:
                    span.set_attribute("world_protocol.projection.id", record.projection_id)
                if isinstance(intent, IntentInstance):
                    span.set_attribute(INTENT_TYPE, intent.body.type)
                elif intent is not None:
                    _fail(span, intent.code, intent.message)
                return record, intent

        return project

    def performed(
        self, perform: Perform, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt
    ) -> Performed:
        """Make an effect in a span ``effect``."""
        about = _about(order.intent, _kind_of(order)) | {
            "world_protocol.effect.type": requirement.type,
            "world_protocol.effect.id": requirement.id,
            "world_protocol.effect.attempt": call.attempt,
        }
        with self.span("effect", about, order.proposal_id) as span:
            performed = perform(order, requirement, call)
            error = performed.result.error
            if error is not None:
                _fail(span, error.code, error.message)
            return performed

    def wrote(self, timing: WriteTiming) -> None:
        """Make a span ``commit`` of a write that appended events, or failed."""
        error = timing.error
        is_quiet = error is None or not isinstance(error, WorldProtocolError)
        if not (timing.events or timing.units_ended) and is_quiet:
            return
        span = self._tracer.start_span(
            "commit",
            start_time=timing.began,
            attributes={
                REALM: self.realm,
                "world_protocol.commit.events": timing.events,
                "world_protocol.commit.position": timing.position,
                "world_protocol.commit.lock_wait": timing.lock_wait_s,
                "world_protocol.commit.duration": timing.commit_s,
                "world_protocol.commit.units_ended": timing.units_ended,
            },
        )
        if isinstance(error, WorldProtocolError):
            _fail(span, error.code, error.message)
        elif error is not None:
            _fail(span, type(error).__name__, str(error))
        span.end(timing.ended)

    @contextmanager
    def span(self, name: str, attributes: Attributes, proposal_id: str | None = None) -> Iterator[Span]:
        """Make a span for a block; an exception is its status.

        Args:
            name: name of the span.
            attributes: attributes besides the realm and the proposal.
            proposal_id: the proposal that the block is about.
        """
        given = {REALM: self.realm, **attributes}
        if proposal_id is not None:
            given[PROPOSAL] = proposal_id
            links = _links(self._recorded(proposal_id))
        else:
            links = []
        with self._tracer.start_as_current_span(
            name, attributes=given, links=links, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except WorldProtocolError as error:
                _fail(span, error.code, error.message)
                raise
            except Exception as error:
                span.record_exception(error)
                _fail(span, type(error).__name__, str(error))
                raise

    def _stage(self, stage: Callable[..., Iterable[Any]], work: Any, step: Any) -> Iterable[Any]:
        if not isinstance(step, Approvable):
            return stage(work, step)
        proposal, manifest = step.proposal, step.needs.manifest
        triples: Sequence[Any] = getattr(manifest, "triples", ())
        about = _about(proposal.intent, proposal.submitted.actor.kind) | {"world_protocol.leases.count": len(triples)}
        before = len(work.emitted)
        with self.span("arbitrate", about, proposal.proposal_id) as span:
            steps = list(stage(work, step))
            for item in work.emitted[before:]:
                if isinstance(item.event, VerdictGiven) and item.event.session_id == proposal.proposal_id:
                    span.set_attribute("world_protocol.verdict", item.event.status)
        return steps


def trace_engine(engine: WorldProtocol, provider: trace.TracerProvider, realm: str) -> Tracing:
    """Have every command of an engine traced from now on.

    Args:
        engine: the engine, before its first command.
        provider: makes the tracer.
        realm: name of the realm in the spans.
    """
    live = engine.archive.live

    def recorded(proposal_id: str) -> Recorded:
        view = live.published  # without a look at the log, which may fail
        known = None if view is None else view.proposals.get(proposal_id)
        return None if known is None else known.submitted.trace

    tracing = Tracing(provider, realm, recorded)
    engine.observe(tracing)
    return tracing


class _InContext:
    """A command that runs in the context of the thread that made it; its attributes are those of the command."""

    def __init__(self, command: Callable[[Any], Any]) -> None:
        self._command = command
        self._context = copy_context()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._command, name)

    def __call__(self, work: Any) -> Any:
        return self._context.run(self._command, work)


class _TracedAuthority:
    """An Authority with a span for each ruling."""

    def __init__(self, authority: Authority, tracing: Tracing) -> None:
        self._authority = authority
        self._tracing = tracing

    def judge(self, case: Case) -> Ruling:
        """Return the ruling on a new proposal."""
        return self._traced(case, lambda: self._authority.judge(case))

    def answer(self, case: Case, asked: Ruling, answer: HumanAnswer) -> Ruling:
        """Return the ruling after a person answered a waiting one."""
        return self._traced(case, lambda: self._authority.answer(case, asked, answer), answer=answer.choice)

    def expire(self, case: Case, asked: Ruling) -> Ruling:
        """Return the ruling when the time limit has passed without an answer."""
        return self._traced(case, lambda: self._authority.expire(case, asked))

    def check_binding(self, binding: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the binding in its full form."""
        return self._authority.check_binding(binding)

    def check_policy(self, name: str, actions: Collection[str]) -> None:
        """Check a loaded policy before it is adopted."""
        self._authority.check_policy(name, actions)

    def describe_policy(self, name: str, like: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Return the description of a loaded policy."""
        return self._authority.describe_policy(name, like)

    def _traced(self, case: Case, call: Callable[[], Ruling], *, answer: str | None = None) -> Ruling:
        about = _about(case.intent, case.actor.kind)
        if answer is not None:
            about["world_protocol.answer"] = answer
        with self._tracing.span("judge", about, case.proposal_id) as span:
            ruling = call()
            span.set_attribute("world_protocol.decision", ruling.verdict)
            span.set_attribute("world_protocol.authority", ruling.authority)
            return ruling


class _TracedExecutor:
    """An executor with a span for each step of an execution, and for each effect."""

    def __init__(self, executor: Executor, tracing: Tracing) -> None:
        self._executor = executor
        self._tracing = tracing

    @property
    def enforcement(self) -> Enforcement:
        """Whether patches outside of the approved scope are refused."""
        return self._executor.enforcement

    @property
    def keeper(self) -> BackupService | None:
        """Service that keeps backups of the workspace."""
        return self._executor.keeper

    def step(self, order: ExecutionOrder) -> StepOutcome:
        """Compute as far as the journal goes."""
        about = _about(order.intent, _kind_of(order)) | _tool_call(order.intent, _kind_of(order))
        with self._tracing.span("execute", about, order.proposal_id) as span:
            outcome = self._executor.step(order)
            span.set_attribute("world_protocol.outcome", outcome.status)
            if outcome.error is not None:
                _fail(span, outcome.error.code, outcome.error.message)
            return outcome

    def terms(self, effect_type: str, params: Mapping[str, Any] | None = None) -> EffectTerms:
        """Return what is promised for an effect."""
        return self._executor.terms(effect_type, params)

    def literal_secrets(self, effect_type: str, params: Mapping[str, Any]) -> Sequence[str]:
        """Return the paths of secret fields whose value is a literal."""
        return self._executor.literal_secrets(effect_type, params)

    def perform(self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt) -> Performed:
        """Make one effect."""
        return self._tracing.performed(self._executor.perform, order, requirement, call)

    def look_up(self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt) -> Performed | None:
        """Find out what became of an effect in doubt; it has no span."""
        return self._executor.look_up(order, requirement, call)


def _kind_of(order: ExecutionOrder) -> str:
    return (order.actor or order.intent.meta.origin.actor).kind


def _about(intent: IntentInstance, kind: str) -> Attributes:
    return {INTENT_TYPE: intent.body.type, "world_protocol.intent.id": intent.intent_id, ACTOR_KIND: kind}


def _tool_call(intent: IntentInstance, kind: str) -> Attributes:
    """Return the attributes of a tool call: agents call actions as tools; the id of the call is the intentId."""
    if kind != "agent":
        return {}
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": intent.body.type,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": intent.intent_id,
    }


def _links(recorded: Recorded) -> list[Link]:
    """Return a link to the recorded span, where that belongs to another trace than the current one."""
    context: SpanContext | None = recorded_context(recorded)
    current = trace.get_current_span().get_span_context()
    return [] if context is None or context.trace_id == current.trace_id else [Link(context)]


def _fail(span: Span, code: str, message: str) -> None:
    """Set the status of a span to an error."""
    span.set_attribute("error.type", str(code))
    span.set_status(StatusCode.ERROR, message)
