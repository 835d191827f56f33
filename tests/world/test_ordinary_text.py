"""Events that msgspec encodes: their text is RFC 8785 text, and whatever it would write otherwise goes another way."""

from __future__ import annotations

import enum
import math
import uuid
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import for_each
from world.errors import RefusedError
from world.events.base import Event
from world.events.codec import _ORDINARY, _frozen_record, _wire_form, decode_event, record_event
from world.events.lease_events import AgentRegistered, VerdictGiven
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import ActorBound, WorldSealed
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict, thaw
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin
from world.model.patch import Patch
from world.model.source import SourceRef
from worldprotocol.testing import strategies as wp

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["", "\x00\x1f\x7f", "\u2028", "😀"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def bound(binding: Any) -> ActorBound:
    """Return an event with a JSON object of any content."""
    return ActorBound(at=1, actor_id="ann", binding=binding, by="operator")


def sealed(value: Any) -> WorldSealed:
    """Return an event with a patch."""
    return WorldSealed(
        at=1,
        world_id="w",
        content_id="c",
        schema_hash="s",
        snapshot_hash="h",
        parent=None,
        created_by=None,
        branch="main",
        outcome="completed",
        height=1,
        patches=[Patch("set", "a.b", value)],
    )


def recorded(event: Any) -> tuple[Any, bytes] | str:
    """Return what is recorded of an event, or the code of the refusal."""
    try:
        return record_event(event)
    except RefusedError as refused:
        return refused.code


def by_freezing(event: Any) -> tuple[Any, bytes] | str:
    """Return what is recorded of an event if it is never ordinary, or the code of the refusal."""
    try:
        return _frozen_record(event, _wire_form(event))
    except RefusedError as refused:
        return refused.code


def agree(event: Any) -> None:
    """Check that both ways of encoding an event give the same event and the same bytes."""
    ordinary = _ORDINARY[type(event)].record(event)
    expected = by_freezing(event)
    assert recorded(event) == expected
    if ordinary is not None:
        assert ordinary == expected
        read, text = ordinary
        assert text == rfc8785.dumps(thaw(msgspec.json.decode(text)))
        assert read == decode_event(event.TOPIC, event.VERSION, text)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
def test_any_object_is_encoded_as_by_freezing_it(members: dict[str, Any]) -> None:
    agree(bound({**members, "kind": "auto_approve"}))


@given(VALUES)
def test_any_patch_is_encoded_as_by_freezing_it(value: Any) -> None:
    try:
        event = sealed(value)
    except RefusedError:  # a patch freezes its value
        return
    agree(event)


@given(wp.events())
def test_an_event_of_any_topic_is_encoded_as_by_freezing_it(event: Event) -> None:
    agree(event)


class Colour(enum.Enum):
    """An enumeration that is no text."""

    RED = "red"


STRANGE = {
    "fraction": 0.5,
    "whole double": 1.0,
    "exponent": 1e22,
    "not a number": math.nan,
    "wide integer": 2**60,
    "uuid": uuid.UUID(int=1),
    "enumeration": Colour.RED,
    "bytes": b"x",
    "tuple": (1, 2),
    "numbered keys": {1: 2},
    "half a character": "\ud800",
    "astral key": {"\U00010000": 1, "\uffff": 2},
    "long": "x" * 5000,
    "nested": [[[[]]]] * 40,
}


@for_each("value", STRANGE.values(), ids=STRANGE)
def test_what_msgspec_writes_otherwise_is_not_ordinary(value: Any) -> None:
    event = bound({"kind": "auto_approve", "value": value})
    assert _ORDINARY[ActorBound].record(event) is None
    agree(event)


@pytest.mark.parametrize("priority", [2**53, 2**60, 1.0, True, "1"])
def test_a_number_of_an_event_that_json_cannot_carry_is_not_ordinary(priority: Any) -> None:
    event = AgentRegistered(at=1, agent_id="ann", priority=priority, by="operator")
    assert _ORDINARY[AgentRegistered].record(event) is None
    agree(event)


def test_an_ordinary_event_is_frozen_and_encoded_without_freezing_its_whole() -> None:
    event = bound({"kind": "quorum", "members": ["a", "b"]})
    ordinary = _ORDINARY[ActorBound].record(event)
    assert ordinary is not None
    read, text = ordinary
    assert text == b'{"actorId":"ann","at":1,"binding":{"kind":"quorum","members":["a","b"]},"by":"operator"}'
    assert type(read.binding) is FrozenDict


@pytest.mark.parametrize("absent", ["manifest", "channel"])
def test_an_empty_object_of_a_sparse_event_is_left_out(absent: str) -> None:
    given = VerdictGiven(
        at=1, verdict_id="v", request_id="r", agent_id="ann", session_id="s", status="Granted", cause="request"
    )
    event = msgspec.structs.replace(given, **{absent: FrozenDict({})})
    read, text = record_event(event)
    assert absent.encode() not in text
    assert getattr(read, absent) is None
    agree(event)


@pytest.mark.parametrize("note", [b"x", uuid.UUID(int=1), Colour.RED], ids=["bytes", "uuid", "enumeration"])
def test_an_intent_with_a_text_of_another_type_is_refused(note: Any) -> None:
    actor, source = ActorRef(actor_id="ann", kind="human"), SourceRef(kind="api", event_id="e")
    origin = IntentOrigin(projection_id="p", source=source, actor=actor, note=note)
    event = ProposalSubmitted(
        at=1,
        proposal_id="p",
        actor=actor,
        intent=IntentInstance(intent_id="i", intent_key="k", body=IntentBody(type="t"), meta=IntentMeta(origin=origin)),
        branch="main",
        base_world="w",
        epoch=1,
        execution_key="x",
        schema_hash="s",
        attempt=1,
    )
    assert recorded(event) == "NOT_CANONICAL"
    agree(event)
