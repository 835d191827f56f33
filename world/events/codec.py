"""Codec of events: topics, canonical JSON, and upcasting of earlier versions.

A topic never changes its meaning. A changed payload gets a new ``VERSION`` and an upcaster from the previous one;
stored events are upcast when they are read and never rewritten (design section 2). Embedded values are the records
of ``world.model``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.events.access_events import RightGranted, RightRevoked, TokenCreated, TokenRevoked
from world.events.base import Event
from world.events.caller_events import CallerLeft, CallerReturned, SessionBegun, SessionMoved
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
from world.events.lease_events import (
    AgentRegistered,
    ClockConfirmed,
    KeyRegistered,
    KeyRevoked,
    KlisConfigured,
    LeaseRenewed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    ProposalRescheduled,
    RequestWithdrawn,
    VerdictGiven,
)
from world.events.ordinary_text import OrdinaryText
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
    LogArchived,
    LogBranched,
    LogFounded,
    WorkspaceRegistered,
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
from world.events.writer_events import WriterClosed, WriterOpened
from world.model.immutable.frozen_text import frozen_text
from world.model.immutable_json import freeze
from world.model.overruling import second_version
from world.model.record import Record, is_plain, members, to_wire

__all__ = [
    "EVENT_TYPES",
    "INVALID",
    "MALFORMED",
    "TOPICS",
    "UPCASTERS",
    "decode_event",
    "encode_event",
    "malformed",
    "record_event",
]

EVENT_TYPES: tuple[type[Event], ...] = (
    LogFounded,
    LogBranched,
    WriterOpened,
    WriterClosed,
    LogArchived,
    EnforcementChosen,
    WorkspaceRegistered,
    DomainAdopted,
    ActorRegistered,
    ActorBound,
    RightGranted,
    RightRevoked,
    TokenCreated,
    TokenRevoked,
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
    CallerLeft,
    CallerReturned,
    SessionBegun,
    SessionMoved,
    ExecutionStarted,
    EffectRequested,
    EffectClaimed,
    EffectExtended,
    EffectLapsed,
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

MALFORMED: Final = (KeyError, TypeError, AttributeError, ValueError, RefusedError)
"""Exceptions that reading an embedded value raises where it is invalid for the event's topic."""

INVALID: Final = (
    msgspec.DecodeError,
    msgspec.ValidationError,
    UnicodeDecodeError,
    TypeError,
    RecursionError,
    RefusedError,
)
"""Exceptions that decoding a state raises where it is invalid for its topic."""

_K = TypeVar("_K")
_V = TypeVar("_V")


class _OnDemand(dict[_K, _V]):
    """Values that are made when they are first needed: a process that lists a log needs few of them."""

    def __init__(self, make: Callable[[_K], _V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: _K) -> _V:
        made = self[key] = self._make(key)
        return made


def _decoder(topic: str) -> msgspec.json.Decoder[Event]:
    return msgspec.json.Decoder(TOPICS[topic])


_DECODERS: Final = _OnDemand(_decoder)
_Field = tuple[str, str, Any, bool]
"""Name in JSON, attribute, default, and whether the value is converted."""


def _sorted_fields(kind: type[Event]) -> Sequence[_Field]:
    """Return the fields of a payload, in the order of its canonical text."""
    fields = zip(members(kind), msgspec.structs.fields(kind), strict=True)
    return sorted((name, attribute, field.default, converts) for (name, attribute, converts), field in fields)


def _fields_left(kind: type[Event]) -> Sequence[_Field]:
    """Return the same, with the values converted that msgspec does not write as their wire form."""
    types = {one.name: one.type for one in msgspec.structs.fields(kind)}
    return [
        (name, attribute, default, converts and not is_plain(types[attribute]))
        for name, attribute, default, converts in _FIELDS[kind]
    ]


_FIELDS: Final = _OnDemand(_sorted_fields)
_LEFT: Final = _OnDemand(_fields_left)


def _is_empty(field: msgspec.structs.FieldInfo) -> bool:
    if field.default is None:  # of a text, a number, an object or a record; ``OrdinaryText`` finds empty objects
        kinds = set(get_args(field.type))
        return not any(kind is bool or get_origin(kind) in (list, tuple) for kind in kinds)
    return field.default is False or field.default_factory in (list, dict)


def _is_sparse_plain(kind: type[Event]) -> bool:
    """Return whether the defaults of a sparse event, which msgspec leaves out, are all of it that is left out.

    Of an empty object in place of a default of None this is not so; an event with one is not ordinary.
    """
    fields = msgspec.structs.fields(kind)
    return (
        kind.SPARSE
        and kind.__struct_config__.omit_defaults
        and all(one.type in (int, str) if one.required else _is_empty(one) for one in fields)
        and all(is_plain(one.type) for one in fields)
    )


def encode_event(event: Event) -> bytes:
    """Return the canonical JSON of a payload; see ``record_event``."""
    return record_event(event)[1]


def record_event(event: Event) -> tuple[Event, bytes]:
    """Return a payload as its readers will decode it, with its canonical JSON.

    Fields with the default None are left out, and of a sparse event also empty ones. The returned payload is read from
    what is recorded: so a value of a wrong type is refused before it is in a log, and the state is folded from exactly
    what the log holds. JSON inside of it is frozen, and shared with the given payload where it was frozen there.

    Raises:
        RefusedError: ``NOT_CANONICAL`` for a part that has no canonical text, ``INVALID_VALUE`` for one of a wrong
            type.
    """
    return _ORDINARY[type(event)].record(event) or _frozen_record(event, _wire_form(event))


def _wire_form(event: Event, fields: Mapping[type[Event], Sequence[_Field]] = _FIELDS) -> dict[str, Any]:
    """Return the fields of a payload that are recorded, by their names in JSON."""
    wire: dict[str, Any] = {}
    sparse = event.SPARSE
    for name, attribute, default, converts in fields[type(event)]:
        value = getattr(event, attribute)
        is_left_out = value is None and default is None
        if sparse:
            is_left_out = value is None or value is False or value == [] or value == {}
        if not is_left_out:
            wire[name] = value if not converts else value.to_wire() if isinstance(value, Record) else to_wire(value)
    return wire


def _ordinary(kind: type[Event]) -> OrdinaryText:
    """Return the encoder of a type, which every event passes first.

    Raises:
        KeyError: the type is not in ``EVENT_TYPES``.
    """
    if TOPICS.get(kind.TOPIC) is not kind:
        raise KeyError(kind)
    is_event_itself = is_plain(kind) or _is_sparse_plain(kind)
    return OrdinaryText(kind, None if is_event_itself else partial(_wire_form, fields=_LEFT))


_ORDINARY: Final = _OnDemand(_ordinary)


def _frozen_record(event: Event, wire: dict[str, Any]) -> tuple[Event, bytes]:
    """Return a payload as its readers will decode it, with its canonical JSON, from its frozen wire form."""
    frozen = freeze(wire)
    try:
        recorded = msgspec.convert(frozen, type(event))
    except (msgspec.ValidationError, RefusedError) as error:
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"{event.TOPIC} cannot be recorded: {error}.", topic=event.TOPIC
        ) from None
    return recorded, frozen_text(frozen)


def decode_event(topic: str, version: int, state: bytes, position: int = 0) -> Event:
    """Return the payload of a stored event, upcast to its newest version.

    Args:
        topic: the stored topic.
        version: the stored schema version.
        state: the stored canonical JSON.
        position: the event's position in the log, for error messages.

    Raises:
        DamagedLogError: ``UNKNOWN_EVENT`` for an unsupported topic or version, ``BAD_EVENT`` for a state that is not
            valid for its topic, including the embedded values.
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
    decoder = _DECODERS[topic]  # made outside of the block, which says of its errors that the event is invalid
    try:
        return decoder.decode(state) if version == kind.VERSION else _upcast(kind, version, state)
    except INVALID as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise DamagedLogError(
            ErrorCode.BAD_EVENT, f"Event {position} is not a valid {topic!r}: {why}.", position=position, topic=topic
        ) from None


def _upcast(kind: type[Event], version: int, state: bytes) -> Event:
    wire = msgspec.json.decode(state)
    for step in range(version, kind.VERSION):
        wire = UPCASTERS[kind.TOPIC, step](wire)
    return msgspec.convert(wire, kind)


def malformed(position: int, error: Exception) -> DamagedLogError:
    """Return the error for an event with invalid embedded values.

    Args:
        position: the event's position in the log.
        error: the exception that reading a value raised.
    """
    message = f"Event {position} is not valid for its topic: a member is missing or wrong ({type(error).__name__}: "
    return DamagedLogError(ErrorCode.BAD_EVENT, f"{message}{error}).", position=position)
