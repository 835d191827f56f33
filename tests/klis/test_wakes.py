"""What is freed wakes what died of it: in the same pass, the oldest first, in every process, at the cost of what goes.

The property test plays two desks on ledgers of their own, which fold each other's events as two processes do, and holds
after every move that nothing waits for what is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from tests.klis.wake_game import AGENTS, ASKS, MOVES, SETTINGS, Ask, Move, Realm, asked, moved
from tests.plugins.forms import scaled
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.events.lease_events import LeasesReleased, RequestWithdrawn, VerdictGiven
from world.klis import kernel, lease_manager
from world.klis.lease_manager import LeaseManager
from world.klis.ledger_codec import ledger_to_wire
from world.klis.settings import KlisSettings
from worldprotocol.analysis.recheck.leases import recheck_verdict

pytestmark = pytest.mark.requirement("LIVE-wake")

BEFORE = KlisSettings.recorded(SETTINGS.to_wire() | {"wake_rules": 1})


@pytest.fixture
def realm() -> Realm:
    return Realm()


# One pass, by age


def test_a_release_wakes_what_died_of_the_lease_the_oldest_first(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a")
    for agent, name in (("dan", "d"), ("cleo", "c2"), ("cleo", "c1"), ("bob", "b")):
        assert realm.propose(agent, name, "MUTATES FILE:/a").status == "Die"
    realm.release(held, "ann")
    order = ("b", "bob"), ("c2", "cleo"), ("c1", "cleo"), ("d", "dan")
    for at, (name, agent) in enumerate(order):
        assert realm.woken() == [(one, "Granted") for one, _ in order[: at + 1]]
        realm.seal(agent, name)
    assert not realm.ledger.refused
    realm.recheck()


@pytest.mark.parametrize("how", ["release", "expiry", "revocation", "withdrawal", "timeout"])
def test_everything_that_frees_wakes_in_the_same_pass(realm: Realm, how: str) -> None:
    held = realm.hold("eve", "MUTATES FILE:/a", session="young")
    if how in ("withdrawal", "timeout"):
        waiting = realm.ask("ann", "MUTATES FILE:/a", "MUTATES FILE:/b", queue=True, wait_ms=50)
        assert realm.propose("bob", "p", "MUTATES FILE:/b").status == "Die"
        assert waiting.queued
    else:
        realm.release(held, "eve", session="young")
        held = realm.hold("ann", "MUTATES FILE:/a")
        assert realm.propose("bob", "p", "MUTATES FILE:/a").status == "Die"
    realm.now += 10
    if how == "release":
        realm.release(held, "ann")
    elif how == "revocation":
        realm.desk.revoke(held, realm.now, by="operator", reason="test")
    elif how == "withdrawal":
        assert realm.desk.withdraw(waiting.request_id, realm.now)
    else:
        realm.now += 100_000
        realm.desk.advance(realm.now)
    assert realm.woken() == [("p", "Granted")]
    assert [event.at for event in realm.log[-2:]] == [realm.now] * 2
    realm.recheck()


def test_what_waited_and_what_died_go_in_one_order_of_age(realm: Realm) -> None:
    held = realm.hold("bob", "MUTATES FILE:/a")
    assert realm.propose("dan", "d", "CONSUMES FILE:/a").status == "Die"
    waiting = realm.ask("ann", "CONSUMES FILE:/a", queue=True)
    assert realm.propose("cleo", "c", "CONSUMES FILE:/a").status == "Die"
    realm.release(held, "bob")
    verdicts = [event for event in realm.log if isinstance(event, VerdictGiven)][-3:]
    assert [(one.request_id, one.cause, one.status) for one in verdicts] == [
        (waiting.request_id, "queue", "Granted"),
        ("c", "wake", "Granted"),
        ("d", "wake", "Granted"),
    ]


def test_what_died_waits_in_the_queue_where_only_the_young_are_still_in_the_way(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a")
    young = realm.hold("eve", "MUTATES FILE:/b")
    assert realm.propose("bob", "b", "MUTATES FILE:/a", "MUTATES FILE:/b").status == "Die"
    assert realm.propose("cleo", "c", "MUTATES FILE:/a").status == "Die"
    realm.release(held, "ann")
    assert realm.woken() == [("b", "Wait")]
    assert list(realm.ledger.requests) == ["b"]
    assert list(realm.ledger.refused) == ["c"]  # it does not pass the older request
    realm.release(young, "eve")
    realm.seal("bob", "b")
    assert realm.woken() == [("b", "Wait"), ("c", "Granted")]
    realm.recheck()


def test_a_request_keeps_its_age_however_often_it_dies(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a")
    assert realm.propose("bob", "first", "MUTATES FILE:/a").status == "Die"
    assert realm.propose("bob", "second", "MUTATES FILE:/a").status == "Die"
    realm.now += 5_000
    assert realm.propose("bob", "first", "MUTATES FILE:/a").status == "Die"  # the timer
    realm.release(held, "ann")
    assert realm.woken() == [("first", "Granted")]
    realm.recheck()


def test_a_request_that_died_in_the_queue_is_woken_too(realm: Realm) -> None:
    young = realm.hold("eve", "MUTATES FILE:/a")
    assert realm.propose("cleo", "c", "MUTATES FILE:/a", "MUTATES FILE:/b").queued
    old = realm.hold("ann", "MUTATES FILE:/b")
    assert [event.status for event in realm.log if isinstance(event, VerdictGiven) and event.request_id == "c"] == [
        "Wait",
        "Die",
    ]
    realm.release(young, "eve")
    realm.release(old, "ann")
    assert realm.woken() == [("c", "Granted")]
    realm.recheck()


def test_a_direct_request_that_died_has_ended(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a")
    assert realm.ask("bob", "MUTATES FILE:/a", queue=True).status == "Die"
    realm.release(held, "ann")
    assert (realm.woken(), realm.ledger.refused, realm.ledger.leases) == ([], {}, {})


def test_a_proposal_that_ends_is_not_woken(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a")
    realm.propose("bob", "b", "MUTATES FILE:/a")
    assert realm.desk.withdraw("b", realm.now, reason="superseded")
    assert isinstance(realm.log[-1], RequestWithdrawn)
    assert not realm.desk.withdraw("b", realm.now)
    realm.release(held, "ann")
    assert realm.woken() == []


def test_a_proposal_that_died_too_often_is_not_woken(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a")
    for dies in range(SETTINGS.max_proposal_retries + 1):
        assert ("b" in realm.ledger.refused) is (dies > 0)
        realm.propose("bob", "b", "MUTATES FILE:/a")
    assert not realm.ledger.refused
    realm.release(held, "ann")
    assert realm.woken() == []


def test_a_grant_that_is_refused_withdraws_and_one_that_is_made_elsewhere_is_left(realm: Realm) -> None:
    refusals = {"b": "RESOURCE_ABSENT", "c": "WORKSPACE_ELSEWHERE"}

    def before_grant(verdict_id: str, session: Any, triples: Any, now: int) -> bool:
        if session.session_id in refusals:
            raise RefusedError(refusals[session.session_id], "for the test")
        return False

    desk = LeaseManager(realm.ledger, emit=realm.emitting(realm.ledger), new_id=realm.new_id, before_grant=before_grant)
    held = realm.hold("ann", "MUTATES FILE:/a")
    for agent, name in (("bob", "b"), ("cleo", "c"), ("dan", "d")):
        realm.propose(agent, name, "MUTATES FILE:/a")
    realm.release(held, "ann", desk=desk)
    assert [event.reason for event in realm.log if isinstance(event, RequestWithdrawn)] == ["RESOURCE_ABSENT"]
    assert realm.woken() == [("d", "Granted")]
    assert list(realm.ledger.refused) == ["c"]
    realm.seal("dan", "d")
    assert realm.woken() == [("d", "Granted"), ("c", "Granted")]


def test_conflicts_beyond_those_that_a_verdict_names_wake_as_well() -> None:
    realm = Realm(KlisSettings(max_named_conflicts=1))
    young, old = realm.hold("eve", "MUTATES FILE:/a"), realm.hold("ann", "MUTATES FILE:/b")
    verdict = realm.propose("bob", "b", "MUTATES FILE:/a", "MUTATES FILE:/b")
    assert [one.holder for one in verdict.conflicts] == ["eve"]
    realm.release(young, "eve")
    assert realm.woken() == []
    realm.release(old, "ann")
    assert realm.woken() == [("b", "Granted")]


def test_a_log_of_before_is_woken_by_its_timers_alone() -> None:
    realm = Realm(BEFORE)
    held = realm.hold("ann", "MUTATES FILE:/a")
    verdict = realm.propose("bob", "b", "MUTATES FILE:/a")
    assert (verdict.status, verdict.wanted) == ("Die", [])
    assert realm.ledger.asks_again_at("bob", "b") == realm.now + 1_000
    realm.release(held, "ann")
    assert (realm.woken(), realm.ledger.refused) == ([], {})
    assert "refused" not in ledger_to_wire(realm.ledger)
    assert realm.ledger.sequence == 0
    realm.recheck()


def test_a_wake_of_what_did_not_die_contradicts_the_ledger(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a")
    realm.propose("bob", "b", "MUTATES FILE:/a")
    before = realm.ledger.copy()
    realm.release(held, "ann")
    woken = realm.log[-1]
    with pytest.raises(DamagedLogError) as twice:
        realm.ledger.fold(woken)
    with pytest.raises(DamagedLogError) as other:
        before.fold(_changed(woken, status="Die", leases=[]))
    assert (twice.value.code, other.value.code) == ("ILLEGAL_LEASE_TRANSITION",) * 2


def test_a_wake_that_differs_from_the_record_is_found_by_a_recheck(realm: Realm) -> None:
    held = realm.hold("ann", "MUTATES FILE:/a")
    realm.propose("bob", "b", "MUTATES FILE:/a")
    early = realm.ledger.copy()
    realm.release(held, "ann")
    woken = realm.log[-1]
    assert isinstance(woken, VerdictGiven)
    found = recheck_verdict(early, woken)
    assert found is not None
    assert found.code == "VERDICT_DIFFERS"
    stranger = _changed(woken, session_id="other")
    assert recheck_verdict(early, stranger) is not None


def _changed(event: Event, **members: Any) -> Any:
    return structs.replace(event, **members)


# A full queue


@pytest.fixture
def crowded() -> Realm:
    """Return a realm whose queue has room for one, taken by ann who waits for eve."""
    realm = Realm(replace(SETTINGS, max_waiting=1))
    realm.hold("eve", "MUTATES FILE:/a")
    assert realm.propose("ann", "first", "MUTATES FILE:/a").queued
    return realm


def release_of(realm: Realm, agent: str, resource: str) -> None:
    """Release the lease of an agent on a resource."""
    held = [one for one in realm.ledger.leases.values() if one.session.agent_id == agent]
    leases = [one.lease_id for one in held if one.triple.resource.text == resource]
    realm.release(leases, agent, held[0].session.session_id)


def test_a_proposal_that_finds_the_queue_full_is_woken_when_it_has_room(crowded: Realm) -> None:
    crowded.hold("dan", "MUTATES FILE:/b")
    for agent, name in (("cleo", "c"), ("bob", "b")):
        verdict = crowded.propose(agent, name, "MUTATES FILE:/b")
        assert (verdict.status, verdict.queued, len(verdict.wanted)) == ("Wait", False, 1)
    assert list(crowded.ledger.requests) == ["first"]
    crowded.desk.withdraw("first", crowded.now)
    assert crowded.woken() == [("b", "Wait")]
    assert (list(crowded.ledger.requests), list(crowded.ledger.refused)) == (["b"], ["c"])
    release_of(crowded, "dan", "FILE:/b")
    assert crowded.woken() == [("b", "Wait")]  # it was in the queue; the younger one dies of it
    crowded.seal("bob", "b")
    assert crowded.woken() == [("b", "Wait"), ("c", "Granted")]
    crowded.recheck()


def test_a_proposal_that_finds_the_queue_full_is_woken_when_what_it_wants_is_free(crowded: Realm) -> None:
    crowded.hold("dan", "MUTATES FILE:/b")
    crowded.propose("bob", "b", "MUTATES FILE:/b")
    release_of(crowded, "dan", "FILE:/b")
    assert crowded.woken() == [("b", "Granted")]
    assert list(crowded.ledger.requests) == ["first"]
    crowded.recheck()


def test_what_died_and_would_wait_stays_while_the_queue_is_full(crowded: Realm) -> None:
    crowded.hold("ann", "MUTATES FILE:/b")
    crowded.hold("eve", "MUTATES FILE:/c")
    assert crowded.propose("bob", "b", "MUTATES FILE:/b", "MUTATES FILE:/c").status == "Die"
    release_of(crowded, "ann", "FILE:/b")
    assert crowded.woken() == []
    crowded.desk.withdraw("first", crowded.now)
    assert crowded.woken() == [("b", "Wait")]
    crowded.recheck()


def test_another_size_of_the_queue_makes_room(crowded: Realm) -> None:
    crowded.hold("dan", "MUTATES FILE:/b")
    crowded.propose("bob", "b", "MUTATES FILE:/b")
    crowded.desk.configure(replace(SETTINGS, max_waiting=2), crowded.now, by="test")
    crowded.desk.advance(crowded.now)
    assert crowded.woken() == [("b", "Wait")]
    crowded.check()


def test_direct_requests_are_refused_by_a_full_queue(crowded: Realm) -> None:
    crowded.hold("dan", "MUTATES FILE:/b")
    with pytest.raises(RefusedError) as refused:
        crowded.ask("bob", "MUTATES FILE:/b", queue=True)
    assert refused.value.code == "QUEUE_FULL"


def test_one_place_in_the_queue_judges_one_request_of_each_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    realm, counted = Realm(replace(SETTINGS, max_waiting=1)), Counted(monkeypatch)
    held = realm.hold("eve", *(f"MUTATES FILE:/{place}" for place in "abc"))
    assert realm.propose("ann", "first", "MUTATES FILE:/a").queued
    for at in range(MANY):
        realm.propose("bob", f"p{at}", f"MUTATES FILE:/{'abc'[at % 3]}")
    assert counted.of(lambda: realm.desk.withdraw("first", realm.now)) <= 9
    assert realm.woken() == [("p0", "Wait")]
    assert held


# The cost


class Counted:
    """How many requests were judged."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        patch.setattr(lease_manager, "judge", self._judge)

    def _judge(self, *given: Any, **more: Any) -> Any:
        self.count += 1
        return kernel.judge(*given, **more)

    def of(self, call: Callable[[], object]) -> int:
        before = self.count
        call()
        return self.count - before


MANY, QUEUED = scaled(10_000, ci=1_000), scaled(2_000, ci=500)


def test_a_release_judges_those_that_can_go_and_not_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of many goes at a time, whatever else each of them wants."""
    realm, counted = Realm(), Counted(monkeypatch)
    held = realm.hold("ann", "MUTATES STATE:/main/*")
    for at in range(MANY):
        realm.propose(AGENTS[1 + at % 4], f"p{at}", "MUTATES STATE:/main/*", f"MUTATES FILE:/notes/{at}")
    costs = [counted.of(lambda: realm.release(held, "ann"))]
    for _ in range(9):
        name, _ = realm.woken()[-1]
        costs.append(counted.of(lambda: realm.seal("bob", name)))  # noqa: B023 - called at once
    assert realm.woken() == [(f"p{4 * at}", "Granted") for at in range(10)]
    assert max(costs) <= 3


def test_a_release_of_something_else_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    realm, counted = Realm(), Counted(monkeypatch)
    realm.hold("ann", "MUTATES FILE:/shared")
    for at in range(MANY):
        realm.propose("bob", f"p{at}", "CONSUMES STATE:/main/*", "MUTATES FILE:/shared")
    for _ in range(3):
        held = realm.hold("cleo", "MUTATES STATE:/main/*")
        assert counted.of(lambda: realm.release(held, "cleo")) == 0  # noqa: B023 - called at once
    assert realm.woken() == []


def test_all_that_can_go_go_at_once_at_a_cost_of_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    realm, counted = Realm(), Counted(monkeypatch)
    held = realm.hold("ann", "MUTATES FILE:/a/*")
    for at in range(MANY):
        realm.propose("bob", f"p{at}", "CONSUMES FILE:/a/x" if at % 2 else f"MUTATES FILE:/a/{at}")
    assert counted.of(lambda: realm.release(held, "ann")) <= 2 * MANY + 2
    assert realm.woken() == [(f"p{at}", "Granted") for at in range(MANY)]


def test_what_has_something_else_in_the_way_is_judged_once_and_put_behind_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    realm, counted = Realm(), Counted(monkeypatch)
    held, other = realm.hold("ann", "MUTATES FILE:/a"), realm.hold("ann", "MUTATES FILE:/b", session="other")
    for at in range(MANY):
        realm.propose("bob", f"p{at}", "MUTATES FILE:/a", "MUTATES FILE:/b")
    assert counted.of(lambda: realm.release(held, "ann")) <= 4 * MANY
    held = realm.hold("ann", "MUTATES FILE:/a")
    assert counted.of(lambda: realm.release(held, "ann")) == 0
    assert counted.of(lambda: realm.release(other, "ann", session="other")) <= 3
    assert realm.woken() == [("p0", "Granted")]


def test_those_that_wait_for_one_lease_are_judged_once_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    realm = Realm()
    for at in range(QUEUED):
        realm.desk.register(f"agent-{at}", realm.now, priority=10 * QUEUED - at, by="test")
    realm.desk.register("youngest", realm.now, priority=100 * QUEUED, by="test")
    held, counted = realm.hold("youngest", "MUTATES FILE:/a"), Counted(monkeypatch)
    for at in range(QUEUED):
        assert realm.propose(f"agent-{at}", f"p{at}", "MUTATES FILE:/a").queued
    assert counted.of(lambda: realm.release(held, "youngest")) <= 2 * QUEUED + 2
    for at in range(1, 10):
        agent, name = f"agent-{QUEUED - at}", f"p{QUEUED - at}"
        assert counted.of(lambda: realm.seal(agent, name)) <= 3  # noqa: B023 - called at once
        assert realm.woken()[-1] == (f"p{QUEUED - at - 1}", "Granted")


def test_what_is_left_to_another_pass_is_woken_by_it(realm: Realm) -> None:
    desk = realm.leave(2)
    desk.advance(realm.now)
    assert len(realm.woken()) == 2
    realm.desk.advance(realm.now)
    assert realm.woken() == [(f"p{at}", "Granted") for at in range(5)]
    realm.check()


# Several processes on one log


def test_a_release_by_another_process_wakes_and_what_it_did_not_wake_the_next_pass_does() -> None:
    realm = Realm(processes=2)
    here, there = realm.desks
    held = realm.hold("ann", "MUTATES FILE:/a")
    realm.propose("bob", "b", "MUTATES FILE:/a", desk=here)
    realm.propose("cleo", "c", "MUTATES FILE:/a", desk=here)
    realm.release(held, "ann", desk=there)
    assert realm.woken() == [("b", "Granted")]
    there.release_session("bob", "b", realm.now)
    assert realm.woken()[-1] == ("c", "Granted")
    held = [lease for lease, one in realm.ledger.leases.items() if one.session.session_id == "c"]
    realm.propose("dan", "d", "MUTATES FILE:/a", desk=here)
    # A process of the version before releases, and wakes nothing: its event alone is in the log.
    realm.emitting(realm.ledgers[1])(LeasesReleased(at=realm.now, lease_ids=held, agent_id="cleo", session_id="c"))
    assert len(realm.woken()) == 2
    here.advance(realm.now)
    assert realm.woken()[-1] == ("d", "Granted")
    realm.check()


@given(moves=st.lists(ASKS | ASKS | MOVES, max_size=40), max_waiting=st.sampled_from((1, 2, 1_000)))
@example(
    moves=[
        Ask(0, 0, ("MUTATES FILE:/a/x", "MUTATES FILE:/b"), "proposal"),
        Ask(1, 1, ("MUTATES FILE:/a/*", "CONSUMES FILE:/b"), "proposal"),
        Move(1, "seal", 0),
    ],
    max_waiting=1_000,
)
def test_in_no_process_anything_waits_for_what_is_free(moves: Iterable[Ask | Move], max_waiting: int) -> None:
    realm = Realm(replace(SETTINGS, max_waiting=max_waiting), processes=2)
    made: dict[str, Ask] = {}
    for move in moves:
        realm.now += 7
        if isinstance(move, Ask):
            asked(realm, move, made)
        else:
            moved(realm, move, made)
        realm.check()
    realm.recheck()
