"""A wake that was not recorded is found: in a log without it, and not in one that has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.klis.wake_game import ASKS, MOVES, SETTINGS, Ask, Move, Realm, asked, moved
from world.events.base import Event
from world.events.lease_events import LeasesReleased, RequestWithdrawn, VerdictGiven
from world.klis.settings import KlisSettings
from world.pipeline.leasing.missed_wakes import MissedWake, WakeCheck
from world.state.realm_state import RealmState, apply_event

pytestmark = pytest.mark.requirement("LIVE-wake")


def missed(log: Sequence[Event]) -> list[MissedWake]:
    """Return the wakes that are missing in a log."""
    realm = RealmState()
    check, found = WakeCheck(realm), []
    for position, event in enumerate(log, 1):
        found += check.take(event, position)
        apply_event(realm, event, position)
    return found + check.end()


def names(found: Iterable[MissedWake]) -> list[tuple[str, Any]]:
    """Return the requests of findings and what is missing of each."""
    return [(one.missing.request_id, getattr(one.missing, "status", None)) for one in found]


@pytest.fixture
def realm() -> Realm:
    return Realm()


def test_a_wake_that_is_missing_is_found_with_what_was_freed(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a")
    realm.propose("bob", "b", "MUTATES FILE:/a")
    realm.release(held, "ann")
    (found,) = missed(realm.log[:-1])
    assert (found.position, found.topic, found.freed) == (len(realm.log) - 1, LeasesReleased.TOPIC, tuple(held))
    assert names([found]) == [("b", "Granted")]
    assert held[0] in found.message
    assert missed(realm.log) == []


def test_a_request_that_was_left_in_the_queue_is_found(realm: Realm) -> None:
    held = realm.hold("eve", "MUTATES FILE:/a")
    waiting = realm.ask("ann", "MUTATES FILE:/a", queue=True)
    realm.release(held, "eve")
    assert names(missed(realm.log[:-1])) == [(waiting.request_id, "Granted")]
    assert missed(realm.log) == []


class Forgetting(dict[Any, None]):
    """Freed places that are forgotten at once, as by a writer that wakes nothing."""

    def update(self, _: Any = ()) -> None:
        """Forget them."""


def release_and_wake_nothing(realm: Realm, leases: list[str], agent: str) -> None:
    """Release leases, and wake nothing."""
    realm.ledger.refusals.freed = Forgetting()
    realm.release(leases, agent)
    realm.ledger.refusals.freed = {}


def test_it_is_reported_once_with_all_that_could_go_and_what_follows_is_not_held_against_it(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a", "MUTATES FILE:/b")
    for agent, name, place in (("bob", "b", "a"), ("cleo", "c", "a"), ("dan", "d", "b")):
        realm.propose(agent, name, f"MUTATES FILE:/{place}")
    release_and_wake_nothing(realm, held, "ann")
    assert names(missed(realm.log)) == [("b", "Granted"), ("d", "Granted")]
    realm.now += 1
    realm.release(realm.hold("ann", "MUTATES FILE:/z"), "ann")
    assert names(missed(realm.log)) == [("b", "Granted"), ("d", "Granted")]


def test_a_request_that_its_timer_continues_is_one_that_was_not_woken(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a")
    realm.propose("bob", "b", "MUTATES FILE:/a")
    release_and_wake_nothing(realm, held, "ann")
    realm.now += 60_000
    assert realm.propose("bob", "b", "MUTATES FILE:/a").status == "Granted"
    assert names(missed(realm.log)) == [("b", "Granted")]


def test_before_the_rules_of_waking_nothing_is_missing() -> None:
    realm = Realm(KlisSettings.recorded(SETTINGS.to_wire() | {"wake_rules": 1}))
    held = realm.hold("ann", "MUTATES FILE:/a")
    realm.propose("bob", "b", "MUTATES FILE:/a")
    realm.release(held, "ann")
    assert missed(realm.log) == []


@given(moves=st.lists(ASKS | ASKS | MOVES, max_size=40))
@example(
    moves=[
        Ask(0, 0, ("MUTATES FILE:/a/x", "MUTATES FILE:/b"), "proposal"),
        Ask(1, 1, ("MUTATES FILE:/a/*", "CONSUMES FILE:/b"), "proposal"),
        Move(1, "seal", 0),
    ]
)
def test_every_wake_of_a_game_is_found_where_it_is_missing_and_none_where_it_is_not(
    moves: Iterable[Ask | Move],
) -> None:
    realm, made = Realm(processes=2), dict[str, Ask]()
    for move in moves:
        realm.now += 7
        if isinstance(move, Ask):
            asked(realm, move, made)
        else:
            moved(realm, move, made)
    assert missed(realm.log) == []
    for at, event in enumerate(realm.log):
        if isinstance(event, VerdictGiven) and (
            event.cause == "wake" or (event.cause, event.status) == ("queue", "Granted")
        ):
            assert (event.request_id, event.status) in names(missed(realm.log[:at]))
        elif isinstance(event, RequestWithdrawn) and event.reason == "terminal":
            assert names(missed(realm.log[:at])) == [(event.request_id, None)]
