"""What is decoded once and shared: payloads of logged events for folds."""

from __future__ import annotations

from unittest import mock

import msgspec
import pytest

from world.errors import DamagedLogError
from world.events import codec
from world.events.base import Event
from world.events.codec import decode_event, encode_event
from world.events.realm_events import BranchSwitched
from world.log.values import LoggedEvent, event_leaf
from world.read_models.decoding import SMALL_STATE, known


def logged(*, by: str = "ann", position: int = 1) -> LoggedEvent:
    """Return a stored event."""
    state = encode_event(BranchSwitched(at=1, branch="main", epoch=1, by=by))
    return LoggedEvent(
        position, "lineage", 1, "branch.switched", 1, state, event_leaf("lineage", 1, "branch.switched", 1, state)
    )


def test_a_stored_event_is_decoded_once() -> None:
    assert known(logged()) is known(logged())
    assert known(logged()) == BranchSwitched(at=1, branch="main", epoch=1, by="ann")


def test_an_event_that_was_changed_since_is_seen_as_such() -> None:
    first = logged()
    known(first)
    for changed in (
        msgspec.structs.replace(first, state=first.state.replace(b"ann", b"bob")),
        msgspec.structs.replace(first, leaf=bytes(32)),
        msgspec.structs.replace(first, version=2),
        msgspec.structs.replace(first, stream="realm"),
        msgspec.structs.replace(first, state=first.state.decode()),  # a damaged column may hold another type
    ):
        with pytest.raises(DamagedLogError) as damage:
            known(changed)
        assert damage.value.code == "EVENT_CHANGED"


def test_large_events_are_not_kept() -> None:
    large = logged(by="x" * SMALL_STATE)
    assert known(large) == known(large)
    assert known(large) is not known(large)


class _EventOfNobody(Event, frozen=True, kw_only=True):
    TOPIC = "nobody.knows"

    count: int


class _Switched(BranchSwitched, frozen=True, kw_only=True):
    further: int = 0


@pytest.mark.parametrize(
    "event", [_EventOfNobody(at=1, count=2), _Switched(at=1, branch="main", epoch=1, by="ann", further=3)]
)
def test_an_event_that_no_reader_knows_is_not_encoded(event: Event) -> None:
    with pytest.raises(KeyError):
        encode_event(event)


def test_a_decoder_that_cannot_be_made_is_no_damage_of_the_log() -> None:
    found = logged()
    with (
        mock.patch.dict(codec._DECODERS, clear=True),
        mock.patch.object(codec._DECODERS, "_make", side_effect=RecursionError),
        pytest.raises(RecursionError),
    ):
        decode_event(found.topic, found.schema_version, found.state)
