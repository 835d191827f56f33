"""Codec of events: topics, canonical JSON, and upcasting of earlier versions.

A topic never changes its meaning. A changed payload gets a new ``VERSION`` and an upcaster from the previous one;
stored events are upcast when they are read and never rewritten (design section 2). Embedded values are in wire form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.clock_events import ClockConfirmed, ProposalRescheduled
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
from world.events.lease_events import (
    AgentRegistered,
    KeyRegistered,
    KeyRevoked,
    KlisConfigured,
    LeaseRenewed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.events.policy_events import PolicyAdopted, PolicyRetired, ProposalShadowed, ShadowConfigured
from world.events.proposal_events import (
    DecisionMade,
    HumanAnswered,
    HumanTimedOut,
    ProjectionRecorded,
    ProposalCompleted,
    ProposalFailed,
    ProposalHeld,
    ProposalJudged,
    ProposalSubmitted,
    ProposalSuperseded,
)
from world.events.realm_events import (
    ActorBound,
    ActorRegistered,
    BranchCreated,
    BranchSwitched,
    DomainAdopted,
    EnforcementChosen,
    LogBranched,
    LogFounded,
    WorldSealed,
)
from world.events.run_events import (
    RunAmended,
    RunClosed,
    RunCompared,
    RunObserved,
    RunOpened,
    RunRolledBack,
    RunViolated,
)
from world.events.shapes import check_shapes
from world.model.canonical_json import canonical_bytes
from world.model.overruling import second_version

__all__ = ["EVENT_TYPES", "TOPICS", "UPCASTERS", "decode_event", "encode_event"]

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
    ProposalHeld,
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
"""Conversion of a payload from one version of a topic to the next; a malformed payload is returned unchanged."""

_DECODERS = {kind.TOPIC: msgspec.json.Decoder(kind) for kind in EVENT_TYPES}
_FIELDS = {
    kind: tuple(sorted((field.encode_name, field.name, field.default) for field in msgspec.structs.fields(kind)))
    for kind in EVENT_TYPES
}
"""The fields of each payload, in the order of its canonical text."""


def _is_nothing(value: Any) -> bool:
    return value is None or value is False or value == [] or value == {}


def encode_event(event: Event) -> bytes:
    """Return the canonical JSON of a payload.

    Fields with the default None are left out, and of a sparse event also empty ones. The text is decoded again at
    once, so that a log never contains an event that cannot be read.

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
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"{event.TOPIC} cannot be recorded: {error}.", topic=event.TOPIC
        ) from None
    return state


def decode_event(topic: str, version: int, state: bytes, position: int = 0) -> Event:
    """Return the payload of a stored event, upcast to its newest version.

    Args:
        topic: the stored topic.
        version: the stored schema version.
        state: the stored canonical JSON.
        position: the event's position in the log, for error messages.

    Raises:
        DamagedLogError: ``UNKNOWN_EVENT`` for an unsupported topic or version, ``BAD_EVENT`` for a state that is not
            valid for its topic, including embedded values (``world.events.shapes``).
    """
    kind = TOPICS.get(topic)
    if kind is None or not 1 <= version <= kind.VERSION:
        raise DamagedLogError(
            ErrorCode.UNKNOWN_EVENT,
            f"Event {position} has topic {topic!r} in version {version}, which this engine does not support; "
            "a newer engine may have written it. Read the log with that engine.",
            position=position,
            topic=topic,
            version=version,
        )
    try:
        event = _payload(topic, version, state)
        check_shapes(topic, event)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, TypeError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise DamagedLogError(
            ErrorCode.BAD_EVENT, f"Event {position} is not a valid {topic!r}: {why}.", position=position, topic=topic
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
