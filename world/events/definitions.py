"""Every event the log can hold: frozen payloads with explicit, stable topics (design section 2, style 7).

A topic never changes its meaning. A changed payload gets a new ``VERSION`` and an upcaster from the old one; old
events are upcast when they are read and never rewritten. Embedded protocol values stand in wire form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec

from world.errors import DamagedLogError, RefusedError
from world.events.base import Event as Event
from world.events.base import Wire
from world.events.clock_events import ClockConfirmed as ClockConfirmed
from world.events.clock_events import ProposalRescheduled as ProposalRescheduled
from world.events.policy_events import PolicyAdopted as PolicyAdopted
from world.events.policy_events import PolicyRetired as PolicyRetired
from world.events.policy_events import ProposalShadowed as ProposalShadowed
from world.events.policy_events import ShadowConfigured as ShadowConfigured
from world.events.run_events import RunAmended as RunAmended
from world.events.run_events import RunClosed as RunClosed
from world.events.run_events import RunCompared as RunCompared
from world.events.run_events import RunObserved as RunObserved
from world.events.run_events import RunOpened as RunOpened
from world.events.run_events import RunRolledBack as RunRolledBack
from world.events.run_events import RunViolated as RunViolated
from world.events.shapes import check_shapes
from world.model.canonical_json import canonical_bytes
from world.model.overruling import second_version


class LogFounded(Event, frozen=True, kw_only=True):
    """The first event of every log: what it is, and under which logic its parts replay."""

    TOPIC: ClassVar[str] = "log.founded"
    log_id: str
    format: int
    enforcement: str
    logic: list[str] = []


class LogBranched(Event, frozen=True, kw_only=True):
    """From here on the log is a branch that never was: its beginning, of this size and root, is that of the real log.

    ``whatif`` writes it; nobody signs such a log for the one that it began as.
    """

    TOPIC: ClassVar[str] = "log.branched"
    size: int
    root: str
    by: str


class EnforcementChosen(Event, frozen=True, kw_only=True):
    """The operator chose whether patches outside approvedScope are refused (INT-13.5)."""

    TOPIC: ClassVar[str] = "enforcement.chosen"
    enforcement: str
    by: str


class DomainAdopted(Event, frozen=True, kw_only=True):
    """A domain's schema came into force; ``sources`` are the identities of the code of its Python functions.

    ``distributions`` are the versions of what they reach and no identity covers; absent where no function does, or in a
    log of before that was recorded.
    """

    TOPIC: ClassVar[str] = "domain.adopted"
    schema: Wire
    schema_hash: str
    sources: dict[str, str | None]
    by: str
    previous: str | None = None
    distributions: dict[str, str] | None = None


class ActorRegistered(Event, frozen=True, kw_only=True):
    """An actor became known, or changed its name or meta."""

    TOPIC: ClassVar[str] = "actor.registered"
    actor: Wire
    by: str


class ActorBound(Event, frozen=True, kw_only=True):
    """An actor got its one authority binding, in place of any before (WP-bind)."""

    TOPIC: ClassVar[str] = "actor.bound"
    actor_id: str
    binding: Wire
    by: str


class BranchCreated(Event, frozen=True, kw_only=True):
    """A branch with a name and a head."""

    TOPIC: ClassVar[str] = "branch.created"
    branch: str
    world_id: str
    by: str


class BranchSwitched(Event, frozen=True, kw_only=True):
    """Another branch became the active one; the epoch was raised (WP-epoch)."""

    TOPIC: ClassVar[str] = "branch.switched"
    branch: str
    epoch: int
    by: str


class WorldSealed(Event, frozen=True, kw_only=True):
    """A new World. Genesis carries its whole data, every other world the patches from its parent."""

    TOPIC: ClassVar[str] = "world.sealed"
    world_id: str
    content_id: str
    schema_hash: str
    snapshot_hash: str
    parent: str | None
    created_by: str | None
    branch: str
    outcome: str
    height: int
    data: Wire | None = None
    patches: list[Wire] = []
    error: Wire | None = None


class ProjectionRecorded(Event, frozen=True, kw_only=True):
    """A projection was asked, and what it answered (INT-12.2)."""

    TOPIC: ClassVar[str] = "projection.recorded"
    record_id: str
    projection_id: str
    considered: list[str]
    actor: Wire
    source: Wire
    schema_hash: str
    world_id: str
    result: Wire
    proposal_id: str | None = None
    intent_id: str | None = None
    intent_key: str | None = None


class ProposalSubmitted(Event, frozen=True, kw_only=True):
    """An intent was put forward.

    ``scope_rules`` is the version of the scope rules (``world.model.scope_patterns``); absent it is 1.
    """

    TOPIC: ClassVar[str] = "proposal.submitted"
    proposal_id: str
    actor: Wire
    intent: Wire
    branch: str
    base_world: str
    epoch: int
    execution_key: str
    schema_hash: str
    attempt: int
    trace: Wire | None = None
    scope_rules: int | None = None


class ProposalJudged(Event, frozen=True, kw_only=True):
    """An Authority gave a ruling: the first one, or one after an answer or a timeout."""

    TOPIC: ClassVar[str] = "proposal.judged"
    proposal_id: str
    ruling: Wire
    binding: Wire
    deadline: int | None = None


class HumanAnswered(Event, frozen=True, kw_only=True):
    """A person answered a waiting proposal."""

    TOPIC: ClassVar[str] = "human.answered"
    proposal_id: str
    answer: Wire


class HumanTimedOut(Event, frozen=True, kw_only=True):
    """Nobody answered in time."""

    TOPIC: ClassVar[str] = "human.timed_out"
    proposal_id: str
    deadline: int


class DecisionMade(Event, frozen=True, kw_only=True):
    """The one terminal decision about a proposal.

    ``verdict_id`` is the verdict that granted its leases, and ``backup`` says whether a backup was made for them; logs
    of before that was recorded do not say it. Since version 2, its trace says where the engine overruled what was
    ruled (``world.model.overruling``). ``existence`` is there where it rejects because a resource does not exist that
    the proposal depends on (``world.pipeline.existence``).
    """

    TOPIC: ClassVar[str] = "decision.made"
    VERSION: ClassVar[int] = 2
    proposal_id: str
    decision: Wire
    verdict_id: str | None = None
    backup: bool | None = None
    existence: list[Wire] | None = None


class ProposalSuperseded(Event, frozen=True, kw_only=True):
    """A proposal that was not decided yet fell behind a branch switch (WP-epoch)."""

    TOPIC: ClassVar[str] = "proposal.superseded"
    proposal_id: str
    epoch: int


class ExecutionStarted(Event, frozen=True, kw_only=True):
    """A worker took an approved proposal on, on the head ``on_world``; ``now`` and ``seed`` stay frozen.

    ``existence`` says whether the resources exist that the proposal depends on (``world.pipeline.existence``); None
    where there are none that can be checked, and in logs from before that was recorded.
    """

    TOPIC: ClassVar[str] = "execution.started"
    proposal_id: str
    on_world: str
    now: int
    seed: str
    enforcement: str
    attempt: int
    worker: str
    existence: list[Wire] | None = None


class EffectRequested(Event, frozen=True, kw_only=True):
    """An effect is about to be made; until ``deadline`` its worker may still be at it."""

    TOPIC: ClassVar[str] = "effect.requested"
    proposal_id: str
    requirement: Wire
    idempotent: bool
    attempt: int
    deadline: int


class EffectFulfilled(Event, frozen=True, kw_only=True):
    """An effect's result or error value; replay answers from here and never makes the effect again.

    ``secrets`` holds name and keyed digest of each secret that the effect used (``host.secrets``); None where it used
    none.
    """

    TOPIC: ClassVar[str] = "effect.fulfilled"
    proposal_id: str
    requirement_id: str
    result: Wire
    attempt: int
    secrets: list[Wire] | None = None


class EffectDropped(Event, frozen=True, kw_only=True):
    """A late or repeated result that nobody waits for any more."""

    TOPIC: ClassVar[str] = "effect.dropped"
    proposal_id: str
    requirement_id: str
    reason: str


class EffectRetried(Event, frozen=True, kw_only=True):
    """An effect that failed will be made again, not before ``due`` (ms); it is declared idempotent.

    ``secrets`` is as in ``effect.fulfilled``.
    """

    TOPIC: ClassVar[str] = "effect.retried"
    proposal_id: str
    requirement_id: str
    error: Wire
    failures: int
    due: int
    secrets: list[Wire] | None = None


class EffectInDoubt(Event, frozen=True, kw_only=True):
    """An effect may have happened or not, and may not be repeated: a person has to say (HC-journal)."""

    TOPIC: ClassVar[str] = "effect.in_doubt"
    proposal_id: str
    requirement_id: str
    reason: str


class EffectResolved(Event, frozen=True, kw_only=True):
    """A person said what became of an effect in doubt: ``happened``, ``retry`` or ``fail``."""

    TOPIC: ClassVar[str] = "effect.resolved"
    proposal_id: str
    requirement_id: str
    choice: str
    by: str
    reason: str


class ExecutionCancelled(Event, frozen=True, kw_only=True):
    """Somebody called an execution off: no further effect is made, and it ends failed."""

    TOPIC: ClassVar[str] = "execution.cancelled"
    proposal_id: str
    by: str
    reason: str


class ProposalCompleted(Event, frozen=True, kw_only=True):
    """The execution ended well; ``world_id`` is what came of it, now the branch's head."""

    TOPIC: ClassVar[str] = "proposal.completed"
    proposal_id: str
    world_id: str
    parent: str
    branch: str


class ProposalFailed(Event, frozen=True, kw_only=True):
    """The execution failed; ``world_id`` holds the error, the branch's head stays."""

    TOPIC: ClassVar[str] = "proposal.failed"
    proposal_id: str
    world_id: str
    parent: str
    branch: str
    error: Wire


class KlisConfigured(Event, frozen=True, kw_only=True):
    """The settings of KLIS came into force; from here on, nothing is decided without arbitration.

    ``types`` are the resource types beyond the standard ones, by name, so that a replay needs no plug-in.
    """

    TOPIC: ClassVar[str] = "klis.configured"
    settings: Wire
    types: Wire = {}
    by: str


class AgentRegistered(Event, frozen=True, kw_only=True):
    """An agent got its priority, for good: ``priority`` is a timestamp in ms, the smaller is the older (KP-3c)."""

    TOPIC: ClassVar[str] = "agent.registered"
    agent_id: str
    priority: int
    by: str


class KeyRegistered(Event, frozen=True, kw_only=True):
    """A public key of an agent, base64 of its 32 bytes (KM-7.1)."""

    TOPIC: ClassVar[str] = "key.registered"
    key_id: str
    agent_id: str
    public_key: str
    by: str


class KeyRevoked(Event, frozen=True, kw_only=True):
    """A public key that authenticates nothing any more."""

    TOPIC: ClassVar[str] = "key.revoked"
    key_id: str
    by: str
    reason: str


class VerdictGiven(Event, frozen=True, kw_only=True):
    """The kernel's answer to a manifest, with the leases it granted (KP-5a, KP-5b).

    ``manifest`` is there with the first verdict about a request, ``wanted`` with one that leaves it in the queue.
    ``cause`` says what was asked: ``request`` or ``queue`` (judged again because something changed).
    ``backup`` says that what may change was backed up before, under the verdict's id (KO-7).
    ``ttl_ms`` is None for leases that end with their proposal. ``more_conflicts`` says that not all are spelt out.
    ``existence`` of a grant says which resources exist that it depends on, as far as that can be checked
    (``world.pipeline.existence``).
    """

    TOPIC: ClassVar[str] = "verdict.given"
    SPARSE: ClassVar[bool] = True
    verdict_id: str
    request_id: str
    agent_id: str
    session_id: str
    status: str
    cause: str
    manifest: Wire | None = None
    channel: Wire | None = None
    ttl_ms: int | None = None
    leases: list[Wire] = []
    backup: bool = False
    conflicts: list[Wire] = []
    more_conflicts: bool = False
    retry_after_ms: int | None = None
    queued: bool = False
    wanted: list[Wire] = []
    deadline: int | None = None
    existence: list[Wire] = []


class LeaseRenewed(Event, frozen=True, kw_only=True):
    """A holder's heartbeat: the lease lives until ``expires_at`` (KP-4b)."""

    TOPIC: ClassVar[str] = "lease.renewed"
    lease_id: str
    ttl_ms: int
    expires_at: int


class LeasesReleased(Event, frozen=True, kw_only=True):
    """Their holder gave leases back."""

    TOPIC: ClassVar[str] = "lease.released"
    STATE: ClassVar[str] = "Released"
    lease_ids: list[str]
    agent_id: str
    session_id: str


class LeasesExpired(Event, frozen=True, kw_only=True):
    """The time of leases was over (KP-4c)."""

    TOPIC: ClassVar[str] = "lease.expired"
    STATE: ClassVar[str] = "Expired"
    lease_ids: list[str]


class LeasesRevoked(Event, frozen=True, kw_only=True):
    """An administrator took leases away."""

    TOPIC: ClassVar[str] = "lease.revoked"
    STATE: ClassVar[str] = "Revoked"
    lease_ids: list[str]
    by: str
    reason: str


class RequestWithdrawn(Event, frozen=True, kw_only=True):
    """A request left the queue without a verdict: ``timeout``, ``cancelled``, or ``terminal`` (it deletes that).

    ``existence`` is there with the reason ``RESOURCE_ABSENT`` (``world.pipeline.existence``).
    """

    TOPIC: ClassVar[str] = "request.withdrawn"
    request_id: str
    reason: str
    existence: list[Wire] | None = None


EVENT_TYPES: tuple[type[Event], ...] = (
    LogFounded,
    LogBranched,
    EnforcementChosen,
    DomainAdopted,
    ActorRegistered,
    ActorBound,
    PolicyAdopted,
    PolicyRetired,
    ShadowConfigured,
    BranchCreated,
    BranchSwitched,
    WorldSealed,
    ProjectionRecorded,
    ProposalSubmitted,
    ProposalShadowed,
    ProposalJudged,
    HumanAnswered,
    HumanTimedOut,
    DecisionMade,
    ProposalSuperseded,
    ExecutionStarted,
    EffectRequested,
    EffectFulfilled,
    EffectDropped,
    EffectRetried,
    EffectInDoubt,
    EffectResolved,
    ExecutionCancelled,
    ProposalCompleted,
    ProposalFailed,
    KlisConfigured,
    AgentRegistered,
    KeyRegistered,
    KeyRevoked,
    VerdictGiven,
    LeaseRenewed,
    LeasesReleased,
    LeasesExpired,
    LeasesRevoked,
    RequestWithdrawn,
    ClockConfirmed,
    ProposalRescheduled,
    RunOpened,
    RunObserved,
    RunViolated,
    RunAmended,
    RunRolledBack,
    RunCompared,
    RunClosed,
)
TOPICS: Mapping[str, type[Event]] = {kind.TOPIC: kind for kind in EVENT_TYPES}

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTERS: Mapping[tuple[str, int], Upcaster] = {(DecisionMade.TOPIC, 1): second_version}
"""How a payload of one topic and version becomes the next version; one that is broken is left to those who check it."""

_DECODERS = {kind.TOPIC: msgspec.json.Decoder(kind) for kind in EVENT_TYPES}
_FIELDS = {
    kind: tuple(sorted((field.encode_name, field.name, field.default) for field in msgspec.structs.fields(kind)))
    for kind in EVENT_TYPES
}
"""The fields of each payload, in the order of its canonical text."""


def _is_nothing(value: Any) -> bool:
    return value is None or value is False or value == [] or value == {}


def encode_event(event: Event) -> bytes:
    """Return the canonical JSON of a payload; fields that hold their default None, or nothing, are left out.

    What is written is read back at once: nothing gets into a log that could not come out of it again.

    Raises:
        RefusedError: ``NOT_CANONICAL`` for a part that has no canonical text, ``INVALID_VALUE`` for one of a wrong
            type.
    """
    wire = {}
    sparse = event.SPARSE
    for name, attribute, default in _FIELDS[type(event)]:
        value = getattr(event, attribute)
        if (value is not None or default is not None) and not (sparse and _is_nothing(value)):
            wire[name] = value
    state = canonical_bytes(wire)
    try:
        check_shapes(event.TOPIC, _DECODERS[event.TOPIC].decode(state))
    except msgspec.ValidationError as error:
        raise RefusedError("INVALID_VALUE", f"{event.TOPIC} cannot be recorded: {error}.", topic=event.TOPIC) from None
    return state


def decode_event(topic: str, version: int, state: bytes, position: int = 0) -> Event:
    """Return the payload of a stored event, upcast to its newest version.

    Args:
        topic: the stored topic.
        version: the stored schema version.
        state: the stored canonical JSON.
        position: the event's place in the log, for errors.

    Raises:
        DamagedLogError: ``UNKNOWN_EVENT`` for a topic or version this engine does not know, ``BAD_EVENT`` for a state
            that is not what its topic says, embedded values included (``world.events.shapes``).
    """
    kind = TOPICS.get(topic)
    if kind is None or not 1 <= version <= kind.VERSION:
        raise DamagedLogError(
            "UNKNOWN_EVENT",
            f"Event {position} has topic {topic!r} in version {version}, which this engine does not know; "
            "a newer engine may have written it.",
            position=position,
            topic=topic,
            version=version,
        )
    try:
        event = _payload(topic, version, state)
        check_shapes(topic, event)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, TypeError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise DamagedLogError(
            "BAD_EVENT", f"Event {position} is no valid {topic!r}: {why}.", position=position, topic=topic
        ) from None
    return event


def _payload(topic: str, version: int, state: bytes) -> Event:
    kind = TOPICS[topic]
    if version == kind.VERSION:
        return _DECODERS[topic].decode(state)
    wire = msgspec.json.decode(state)
    for step in range(version, kind.VERSION):
        wire = UPCASTERS[topic, step](wire)
    return msgspec.convert(wire, kind)
