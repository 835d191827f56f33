"""A wake that was not recorded is found: in a log without it, and not in one that has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.klis.wake_game import ASKS, MOVES, SETTINGS, Ask, Move, Realm, asked, moved
from tests.pipeline.office import Post, an_office, hold_state, office, verdicts
from world.errors import RefusedError
from world.events.base import Event
from world.events.lease_events import LeasesReleased, RequestWithdrawn, VerdictGiven
from world.events.realm_events import WorkspaceRegistered
from world.klis.lease_manager import LeaseManager
from world.klis.ledger import Ledger
from world.klis.settings import KlisSettings
from world.pipeline.leasing.missed_wakes import MissedWake, WakeCheck
from world.state.realm_state import RealmState, apply_event
from worldprotocol.analysis.recheck.recheck import Rechecking, open_to_recheck, recheck

pytestmark = pytest.mark.requirement("LIVE-wake")

ADD = {"name": "a", "amount": 1}


def missed(log: Sequence[Event], workspace: WorkspaceRegistered | None = None) -> list[MissedWake]:
    """Return the wakes that are missing in a log."""
    realm = RealmState(workspace=workspace)
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

    def update(self, *_: Any, **__: Any) -> None:
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


# What is left to another process, or to the next unit


Desks = tuple[Realm, LeaseManager, LeaseManager]
FOLDER = WorkspaceRegistered(at=0, workspace_id="folder", by="test")


def desk_with(realm: Realm, ledger: Ledger, *, workspace: bool, takes_ms: int = 0) -> LeaseManager:
    """Return a desk of a process that has the realm's workspace, or has not; backups take time."""

    def before_grant(_verdict_id: str, _session: Any, _triples: Any, _now: int) -> str:
        if not workspace:
            raise RefusedError("WORKSPACE_ELSEWHERE", "for the test")
        realm.now += takes_ms
        return "folder"

    emit = realm.emitting(ledger)
    return LeaseManager(ledger, emit=emit, new_id=realm.new_id, before_grant=before_grant, now=lambda: realm.now)


@pytest.fixture
def desks() -> Desks:
    """Return a realm, and the desks of a process with its workspace and of one without."""
    realm = Realm(processes=2)
    own, other = realm.ledgers
    return realm, desk_with(realm, own, workspace=True), desk_with(realm, other, workspace=False)


def test_a_grant_with_a_backup_is_left_to_a_process_that_makes_them(desks: Desks) -> None:
    realm, here, there = desks
    held = realm.hold("ann", "MUTATES FILE:/a")
    realm.propose("bob", "b", "MUTATES FILE:/a")
    realm.release(held, "ann", desk=there)
    realm.now += 1
    there.register("fay", realm.now, priority=9, by="test")
    assert missed(realm.log, FOLDER) == []
    assert names(missed(realm.log)) == [("b", "Granted")]  # where there is no workspace
    realm.now += 1
    here.advance(realm.now)
    assert realm.woken() == [("b", "Granted")]
    realm.propose("cleo", "c", "MUTATES FILE:/c", desk=here)
    assert missed(realm.log, FOLDER) == []


def test_a_process_that_makes_backups_wakes_what_was_left_to_it_before_it_grants_anything_else(desks: Desks) -> None:
    realm, here, there = desks
    held = realm.hold("ann", "MUTATES FILE:/a")
    realm.propose("bob", "b", "MUTATES FILE:/a")
    realm.release(held, "ann", desk=there)
    realm.ledger.refusals.freed.clear()  # lost
    realm.now += 1
    realm.ask("cleo", "MUTATES FILE:/c", desk=here)  # it may run another domain, and then does nothing that is due
    assert missed(realm.log, FOLDER) == []
    realm.propose("cleo", "c", "MUTATES FILE:/d", desk=here)
    assert names(missed(realm.log, FOLDER)) == [("b", "Granted")]


def test_a_pass_in_which_a_backup_was_made_leaves_nothing_to_another_process() -> None:
    realm = Realm()
    here = desk_with(realm, realm.ledger, workspace=True, takes_ms=5)
    young = realm.hold("eve", "MUTATES URL:https://a.test/y")
    held = realm.hold("ann", *(f"MUTATES FILE:/{one}" for one in "abc"))
    for agent, place in zip(("bob", "cleo", "dan"), "abc", strict=True):
        more = ["MUTATES URL:https://a.test/y"] if place == "b" else []
        realm.propose(agent, place, f"MUTATES FILE:/{place}", *more)
    realm.release(held, "ann", desk=here)
    assert realm.woken() == [("a", "Granted"), ("b", "Wait"), ("c", "Granted")]
    assert len({event.at for event in realm.log[-4:]}) == 3
    assert young
    assert missed(realm.log, FOLDER) == []
    assert names(missed(realm.log[:-1], FOLDER)) == [("c", "Granted")]


def test_what_a_unit_leaves_is_due_in_the_next_one(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("world.pipeline.leasing.missed_wakes.WOKEN_AT_ONCE", 2)
    realm.leave(2)
    assert missed(realm.log) == []  # the writer may have ended
    realm.now += 1
    rest, realm.log = realm.log, []
    realm.hold("ann", "MUTATES FILE:/z")
    assert names(missed([*rest, realm.log[-1]])) == [(f"p{at}", "Granted") for at in (2, 3, 4)]
    monkeypatch.setattr("world.pipeline.leasing.missed_wakes.WOKEN_AT_ONCE", 100)
    assert names(missed(rest)) == [(f"p{at}", "Granted") for at in (2, 3, 4)]


# Rechecks


class Faulty(NamedTuple):
    """A log of an engine that woke nothing once, when an event released a lease that a proposal had died of."""

    address: str
    position: int
    lease: str
    proposal: str


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Faulty:
    address = str(tmp_path / "w.db")
    with an_office(address, Post()) as world:
        lease = hold_state(world)
        dying = world.act("young", "add", ADD).proposal_id
        with monkeypatch.context() as patch:
            patch.setattr(LeaseManager, "judge_again", lambda *_, **__: None)
            world.leases.desk.release([lease], agent_id="old", session_id="s")
        position = world.log.head().size
        world.settle()  # the next unit wakes it
        assert verdicts(world, dying)[-1].cause == "wake"
    return Faulty(address, position, lease, dying)


def test_a_recheck_reports_the_release_the_lease_and_the_proposal(faulty: Faulty) -> None:
    with open_to_recheck(faulty.address, domain=office) as looked:
        done, first = recheck(looked, every=True), recheck(looked).first
    (found,) = done.divergences
    assert (found.position, found.topic, found.difference.code) == (
        faulty.position,
        LeasesReleased.TOPIC,
        "WAKE_MISSING",
    )
    details = found.difference.details
    assert (details["request_id"], details["due"], details["freed"]) == (faulty.proposal, "Granted", [faulty.lease])
    assert first is not None
    assert first.to_wire() == found.to_wire()


def test_a_recheck_in_stretches_reports_the_same_wherever_they_begin(faulty: Faulty) -> None:
    with open_to_recheck(faulty.address, domain=office) as looked:
        size = looked.log.head().size
        for at in range(faulty.position - 3, faulty.position + 4):
            found = []
            for stretch in ((0, at), (at, size)):
                found += Rechecking(looked, every=True).stretch(stretch).divergences
            assert [(one.position, one.difference.code) for one in found] == [(faulty.position, "WAKE_MISSING")]


def test_a_recheck_up_to_an_event_says_nothing_of_a_pass_that_goes_on(faulty: Faulty) -> None:
    with open_to_recheck(faulty.address, domain=office) as looked:
        assert recheck(looked, upto=faulty.position).ok
        assert not recheck(looked, upto=faulty.position + 1).ok


# Games


@given(moves=st.lists(ASKS | ASKS | MOVES, max_size=40), max_waiting=st.sampled_from((1, 2, 1_000)))
@example(
    moves=[
        Ask(0, 0, ("MUTATES FILE:/a/x", "MUTATES FILE:/b"), "proposal"),
        Ask(1, 1, ("MUTATES FILE:/a/*", "CONSUMES FILE:/b"), "proposal"),
        Move(1, "seal", 0),
    ],
    max_waiting=1_000,
)
def test_every_wake_of_a_game_is_found_where_it_is_missing_and_none_where_it_is_not(
    moves: Iterable[Ask | Move], max_waiting: int
) -> None:
    realm, made = Realm(replace(SETTINGS, max_waiting=max_waiting), processes=2), dict[str, Ask]()
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
