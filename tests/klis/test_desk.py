"""The lease desk: every transition of a lease, and everything it refuses (KLIS-3, KLIS-4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.klis.lease_game import CHANNEL, fingerprint
from world.errors import DamagedLogError, RefusedError
from world.events import lease_events as events
from world.events.base import Event
from world.events.lease_events import AgentRegistered, KeyRegistered, KeyRevoked, KlisConfigured, LeaseRenewed
from world.events.resource_values import GrantedLease, ResourceClaim
from world.klis.lease_manager import LeaseManager, RequestOptions
from world.klis.ledger import Ledger
from world.klis.manifest import Manifest, read_manifest
from world.klis.settings import KlisSettings

SIGNED = {"kind": "signed", "keyId": "k", "by": "test"}
SETTINGS = KlisSettings(default_ttl_ms=1_000, max_ttl_ms=5_000, max_hold_ms=8_000, max_waiting=5)


class Office:
    """A desk at 1,000 ms with four agents, ann the oldest."""

    def __init__(self, settings: KlisSettings = SETTINGS) -> None:
        self.ledger, self.events, self.ids = Ledger(), list[Event](), 0
        self.desk = LeaseManager(self.ledger, emit=self.emit, new_id=self.new_id)
        self.desk.configure(settings, 1_000, by="test")
        for age, agent in enumerate(("ann", "bob", "cleo", "dan")):
            self.desk.register(agent, 1_000, priority=age, by="test")

    def emit(self, event: Event) -> None:
        self.ledger.fold(event)
        self.events.append(event)

    def new_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"

    def manifest(self, agent: str, *wanted: str, session: str = "s", **more: Any) -> Manifest:
        scope = [dict(zip(("predicate", "resource"), one.split(" ", 1), strict=True)) for one in wanted]
        told = {"ver": "1.0", "agent_id": agent, "session_id": session, "scope": scope, **more}
        return read_manifest(told, settings=self.desk.settings)

    def ask(self, agent: str, *wanted: str, now: int = 1_000, session: str = "s", **more: Any) -> events.VerdictGiven:
        return self.desk.request(
            self.manifest(agent, *wanted, session=session), now, channel=CHANNEL, options=RequestOptions(**more)
        )

    def wait(self, agent: str, *wanted: str, now: int = 1_000, session: str = "s", **more: Any) -> str:
        verdict = self.ask(agent, *wanted, now=now, session=session, queue=True, **more)
        assert (verdict.status, verdict.queued) == ("Wait", True)
        return verdict.request_id

    def lease(self, agent: str, *wanted: str, **more: Any) -> str:
        verdict = self.ask(agent, *wanted, **more)
        assert verdict.status == "Granted"
        return str(verdict.leases[0].lease_id)

    def release(self, lease: str, agent: str, now: int = 1_000, session: str = "s") -> dict[str, str]:
        return self.desk.release([lease], now, agent_id=agent, session_id=session)

    def answers(self, request_id: str) -> list[tuple[str, str]]:
        return [
            (event.cause, event.status)
            for event in self.events
            if isinstance(event, events.VerdictGiven) and event.request_id == request_id
        ]

    def refuses(self, code: str, command: Callable[[], object]) -> RefusedError:
        """Assert that a command is refused with a code and that nothing changed."""
        before, events = fingerprint(self.ledger.copy()), len(self.events)
        with pytest.raises(RefusedError) as refused:
            command()
        assert refused.value.code == code
        assert fingerprint(self.ledger) == before
        assert len(self.events) == events
        return refused.value


@pytest.fixture
def office() -> Office:
    return Office()


# Transitions


@pytest.mark.requirement("KP-4a")
def test_a_granted_lease_is_in_force_until_its_time_is_over(office: Office) -> None:
    lease = office.lease("ann", "MUTATES FILE:/a", ttl_ms=1_000)
    assert office.ledger.leases[lease].expires_at == 2_000
    assert office.desk.advance(2_000) == 0
    assert office.desk.advance(2_001) == 1
    assert office.ledger.ended[lease] == "Expired"
    assert isinstance(office.events[-1], events.LeasesExpired)


@pytest.mark.requirement("KP-4b")
def test_a_heartbeat_sets_the_end_to_its_time_plus_the_time_to_live(office: Office) -> None:
    lease = office.lease("ann", "MUTATES FILE:/a", ttl_ms=1_000)
    event = office.desk.heartbeat(lease, 1_900, agent_id="ann", session_id="s")
    assert event.expires_at == 2_900
    assert office.desk.advance(2_900) == 0
    assert office.desk.heartbeat(lease, 2_900, agent_id="ann", session_id="s", ttl_ms=10).expires_at == 2_910
    assert office.desk.advance(2_911) == 1


@pytest.mark.requirement("KP-4b")
def test_heartbeats_end_at_the_maximum_hold_time(office: Office) -> None:
    lease = office.lease("ann", "MUTATES FILE:/a", ttl_ms=5_000)
    for now in (5_000, 8_000, 9_000):
        event = office.desk.heartbeat(lease, now, agent_id="ann", session_id="s")
        assert event.expires_at == min(now + 5_000, 9_000)
    assert office.desk.advance(9_001) == 1


@pytest.mark.requirement("KP-4a", "KP-4b")
def test_an_expired_lease_cannot_be_revived_nor_released_nor_revoked(office: Office) -> None:
    lease = office.lease("ann", "MUTATES FILE:/a", ttl_ms=1_000)
    office.desk.advance(2_001)
    office.refuses("LEASE_NOT_ACTIVE", lambda: office.desk.heartbeat(lease, 2_001, agent_id="ann", session_id="s"))
    events = len(office.events)
    assert office.release(lease, "ann", 2_001) == {lease: "Expired"}
    assert office.desk.revoke([lease], 2_001, by="root", reason="r") == {lease: "Expired"}
    assert len(office.events) == events


@pytest.mark.requirement("KP-4a")
def test_a_lease_is_released_once_and_a_second_time_changes_nothing(office: Office) -> None:
    lease = office.lease("ann", "MUTATES FILE:/a")
    assert office.release(lease, "ann") == {lease: "Released"}
    events = len(office.events)
    assert office.release(lease, "ann") == {lease: "Released"}
    assert len(office.events) == events
    office.refuses("LEASE_NOT_ACTIVE", lambda: office.desk.heartbeat(lease, 1_000, agent_id="ann", session_id="s"))


@pytest.mark.requirement("KP-4a", "KP-4b")
def test_a_revoked_lease_stays_revoked(office: Office) -> None:
    lease = office.lease("ann", "MUTATES FILE:/a")
    assert office.desk.revoke([lease], 1_000, by="root", reason="runaway") == {lease: "Revoked"}
    event = office.events[-1]
    assert isinstance(event, events.LeasesRevoked)
    assert (event.by, event.reason) == ("root", "runaway")
    office.refuses("LEASE_NOT_ACTIVE", lambda: office.desk.heartbeat(lease, 1_000, agent_id="ann", session_id="s"))
    assert office.release(lease, "ann") == {lease: "Revoked"}


@pytest.mark.requirement("KP-4b")
@pytest.mark.parametrize("reason", ["", "  "])
def test_to_revoke_takes_a_reason(office: Office, reason: str) -> None:
    lease = office.lease("ann", "MUTATES FILE:/a")
    office.refuses("REASON_MISSING", lambda: office.desk.revoke([lease], 1_000, by="root", reason=reason))


@pytest.mark.requirement("KP-4b")
def test_a_lease_is_released_and_kept_alive_by_its_holder_alone(office: Office) -> None:
    lease, own = office.lease("ann", "MUTATES FILE:/a"), office.lease("bob", "MUTATES FILE:/b")
    for agent, session in (("bob", "s"), ("ann", "other")):
        office.refuses("NOT_THE_HOLDER", partial(office.release, lease, agent, session=session))
        beat = partial(office.desk.heartbeat, lease, 1_000, agent_id=agent, session_id=session)
        office.refuses("NOT_THE_HOLDER", beat)
    office.refuses("NOT_THE_HOLDER", lambda: office.desk.release([own, lease], 1_000, agent_id="bob", session_id="s"))


@pytest.mark.requirement("KP-4a")
def test_what_was_never_a_lease_is_refused(office: Office) -> None:
    office.refuses("UNKNOWN_LEASE", lambda: office.release("nothing", "ann"))
    office.refuses("UNKNOWN_LEASE", lambda: office.desk.revoke(["nothing"], 1_000, by="root", reason="r"))
    office.refuses("UNKNOWN_LEASE", lambda: office.desk.heartbeat("nothing", 1_000, agent_id="ann", session_id="s"))


@pytest.mark.requirement("KP-4a")
def test_a_lease_for_a_proposal_ends_with_it_and_not_by_the_clock(office: Office) -> None:
    lease = office.lease("ann", "MUTATES FILE:/a", until_sealed=True)
    assert office.desk.advance(10**12) == 0
    office.refuses("LEASE_NOT_TIMED", lambda: office.desk.heartbeat(lease, 10**12, agent_id="ann", session_id="s"))
    assert office.release(lease, "ann", 10**12) == {lease: "Released"}


# Bad input


@pytest.mark.requirement("KP-4b")
@pytest.mark.parametrize("ttl", [0, -1, 5_001, 2**64, True, "1000", 10.0])
def test_a_time_to_live_out_of_range_is_refused(office: Office, ttl: Any) -> None:
    office.refuses("INVALID_TTL", lambda: office.ask("ann", "MUTATES FILE:/a", ttl_ms=ttl))
    lease = office.lease("ann", "MUTATES FILE:/a")
    office.refuses(
        "INVALID_TTL", lambda: office.desk.heartbeat(lease, 1_000, agent_id="ann", session_id="s", ttl_ms=ttl)
    )


@pytest.mark.parametrize("wait", [0, -1, 2**64, True, "5"])
def test_a_time_to_wait_out_of_range_is_refused(office: Office, wait: Any) -> None:
    office.refuses("INVALID_WAIT", lambda: office.ask("ann", "MUTATES FILE:/a", queue=True, wait_ms=wait))


@pytest.mark.requirement("KP-3e")
@pytest.mark.parametrize("priority", [-1, 2**53, True, "1", 1.5])
def test_a_priority_that_is_no_timestamp_is_refused(office: Office, priority: Any) -> None:
    office.refuses("INVALID_PRIORITY", lambda: office.desk.register("eve", 1_000, priority=priority, by="test"))


def test_a_clock_that_steps_back_is_refused_and_shortens_nothing(office: Office) -> None:
    lease = office.lease("ann", "MUTATES FILE:/a", now=5_000, ttl_ms=1_000)
    commands: list[Callable[[], object]] = [
        lambda: office.desk.advance(4_999),
        lambda: office.ask("bob", "MUTATES FILE:/b", now=4_999),
        lambda: office.release(lease, "ann", 4_999),
        lambda: office.desk.heartbeat(lease, 4_999, agent_id="ann", session_id="s"),
        lambda: office.desk.revoke([lease], 4_999, by="root", reason="r"),
        lambda: office.desk.withdraw("nothing", 4_999),
        lambda: office.desk.register("eve", 4_999, by="test"),
        lambda: office.desk.configure(KlisSettings(), 4_999, by="test"),
        lambda: office.desk.register_key("ann", "k", "p", 4_999, by="test"),
        lambda: office.desk.revoke_key("k", 4_999, by="test", reason="r"),
    ]
    for command in commands:
        office.refuses("CLOCK_STEPPED_BACK", command)
    assert office.ledger.leases[lease].expires_at == 6_000


@pytest.mark.requirement("KM-7.1")
def test_a_nonce_is_used_once_by_an_agent(office: Office) -> None:
    manifest = office.manifest("ann", "MUTATES FILE:/a", nonce="n", issued_at=1_000)
    office.desk.request(manifest, 1_000, channel=SIGNED)
    office.refuses("MANIFEST_REPLAYED", lambda: office.desk.request(manifest, 1_000, channel=SIGNED))
    other = office.manifest("bob", "CONSUMES FILE:/b", nonce="n", issued_at=1_000)
    assert office.desk.request(other, 1_000, channel=SIGNED).status == "Granted"
    copied = office.manifest("cleo", "CONSUMES FILE:/b", nonce="c", issued_at=1_000)
    office.desk.request(copied, 1_000, channel=CHANNEL)  # vouched for, without its signature, it uses nothing up
    assert office.desk.request(copied, 1_000, channel=SIGNED).status == "Granted"


@pytest.mark.requirement("KM-7.1")
def test_nonces_are_remembered_as_long_as_a_signature_may_be_old(office: Office) -> None:
    kept = 2 * SETTINGS.max_signature_age_ms
    for number, now in enumerate((1_000, 1_000 + kept, 1_001 + kept)):
        manifest = office.manifest("ann", f"MUTATES FILE:/{number}", nonce=f"n{number}", issued_at=now)
        office.desk.request(manifest, now, channel=SIGNED)
        assert (("ann", "n0") in office.ledger.nonces) is (number < 2)


@pytest.mark.slow
def test_a_huge_scope_is_granted_whole_or_not_at_all(office: Office) -> None:
    wanted = [f"MUTATES FILE:/huge/{number}" for number in range(10_000)]
    verdict = office.ask("bob", *wanted)
    assert len(verdict.leases) == len(office.ledger.leases) == 10_000
    died = office.ask("cleo", *wanted)
    assert (died.status, len(died.conflicts), died.more_conflicts) == ("Die", SETTINGS.max_named_conflicts, True)
    office.desk.release([lease.lease_id for lease in verdict.leases], 1_000, agent_id="bob", session_id="s")
    assert not office.ledger.leases
    with pytest.raises(RefusedError, match="max_triples"):
        office.manifest("bob", *wanted, "MUTATES FILE:/huge/more")


def test_the_queue_has_an_end(office: Office) -> None:
    office.lease("dan", "MUTATES FILE:/a")
    office.lease("dan", "MUTATES FILE:/b")
    office.wait("cleo", "MUTATES FILE:/a")
    for number in range(4):
        office.wait("bob", "CONSUMES FILE:/a", session=f"s{number}")
    office.refuses("QUEUE_FULL", lambda: office.ask("ann", "CONSUMES FILE:/b", queue=True))


def test_the_id_of_a_waiting_request_is_not_used_again(office: Office) -> None:
    office.lease("dan", "MUTATES FILE:/a")
    waiting = office.wait("bob", "MUTATES FILE:/a")
    office.refuses("ALREADY_WAITING", lambda: office.ask("ann", "MUTATES FILE:/b", request_id=waiting))


# Terminal


@pytest.mark.requirement("KM-3.3")
@pytest.mark.parametrize(
    ("deleted", "further"),
    [
        ("FILE:/a", "MUTATES FILE:/a"),
        ("FILE:/a", "CONSUMES FILE:/a/b"),
        ("FILE:/a/*", "DEPENDS_ON FILE:/a"),
        ("FILE:/a/b", "PROVIDES FILE:/a/*"),
        ("FILE:/a/b", "RENAMES FILE:/a"),
    ],
)
def test_nothing_more_can_be_had_of_what_a_session_deletes(office: Office, deleted: str, further: str) -> None:
    lease = office.lease("ann", f"DELETES {deleted}")
    refused = office.refuses("TERMINAL", lambda: office.ask("ann", further, "PROVIDES FILE:/z"))
    assert lease in str(refused)
    assert office.ask("ann", "MUTATES FILE:/b").status == "Granted"
    assert office.ask("ann", f"DELETES {deleted}").status == "Granted"


@pytest.mark.requirement("KM-3.3")
def test_a_request_leaves_the_queue_when_its_session_deletes_what_it_wants(office: Office) -> None:
    there = office.lease("dan", "CONSUMES FILE:/a")
    elsewhere = office.lease("dan", "CONSUMES FILE:/b")
    first = office.wait("ann", "MUTATES FILE:/a", "MUTATES FILE:/b")
    office.wait("ann", "DELETES FILE:/a")
    office.release(there, "dan")
    assert office.answers(first) == [("request", "Wait")]
    withdrawn = [event for event in office.events if isinstance(event, events.RequestWithdrawn)]
    assert [(event.request_id, event.reason) for event in withdrawn] == [(first, "terminal")]
    assert office.release(elsewhere, "dan") == {elsewhere: "Released"}


# Agents


@pytest.mark.requirement("KP-3e", "KP-3c")
def test_an_unknown_agent_is_registered_by_the_servers_clock_with_its_first_request(office: Office) -> None:
    manifest = office.manifest("eve", "MUTATES FILE:/a", priority_timestamp=0)
    office.desk.request(manifest, 7_000, channel=CHANNEL)
    assert office.ledger.agents["eve"] == (7_000, "eve")


@pytest.mark.requirement("KP-3e")
def test_an_unknown_agent_is_registered_by_its_manifest_where_the_operator_allows_it() -> None:
    office = Office(KlisSettings(accept_priority=True))
    manifest = office.manifest("eve", "MUTATES FILE:/a", priority_timestamp=17)
    office.desk.request(manifest, 7_000, channel=CHANNEL)
    assert office.ledger.agents["eve"] == (17, "eve")


@pytest.mark.requirement("KP-3c")
def test_a_priority_stays_when_it_is_registered_again(office: Office) -> None:
    events = len(office.events)
    assert office.desk.register("bob", 2_000, priority=0, by="bob") == (1, "bob")
    assert len(office.events) == events


def test_settings_come_into_force_once(office: Office) -> None:
    assert office.desk.configure(SETTINGS, 1_000, by="test") is False
    assert office.desk.configure(KlisSettings(), 1_000, by="test") is True
    assert office.desk.settings == KlisSettings()


@pytest.mark.requirement("KM-7.1")
def test_a_key_is_registered_once_and_revoked_for_good(office: Office) -> None:
    office.desk.register_key("ann", "k", "public", 1_000, by="test")
    office.refuses("KEY_EXISTS", lambda: office.desk.register_key("bob", "k", "public", 1_000, by="test"))
    office.desk.revoke_key("k", 1_000, by="root", reason="lost")
    office.refuses("UNKNOWN_KEY", lambda: office.desk.revoke_key("k", 1_000, by="root", reason="lost"))
    office.refuses("UNKNOWN_KEY", lambda: office.desk.revoke_key("other", 1_000, by="root", reason="lost"))
    office.refuses("KEY_EXISTS", lambda: office.desk.register_key("ann", "k", "public", 1_000, by="test"))


# Backoff


@pytest.mark.requirement("KP-3a", "KP-5b")
def test_who_dies_again_and_again_asks_again_later_and_later(office: Office) -> None:
    lease = office.lease("ann", "MUTATES FILE:/a", until_sealed=True)
    waits = [office.ask("bob", "MUTATES FILE:/a").retry_after_ms for _ in range(8)]
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    assert office.ask("bob", "MUTATES FILE:/a", session="other").retry_after_ms == 1_000
    office.release(lease, "ann")
    granted = office.lease("bob", "MUTATES FILE:/a")
    office.release(granted, "bob")
    office.lease("ann", "MUTATES FILE:/a")
    assert office.ask("bob", "MUTATES FILE:/a").retry_after_ms == 1_000


def test_a_session_that_was_not_heard_of_for_a_day_begins_again_with_the_shortest_wait(office: Office) -> None:
    office.lease("ann", "MUTATES FILE:/a", until_sealed=True)
    for _ in range(3):
        office.ask("bob", "MUTATES FILE:/a")
    office.ask("cleo", "MUTATES FILE:/a", now=1_001 + 86_400_000)
    assert office.ask("bob", "MUTATES FILE:/a", now=1_002 + 86_400_000).retry_after_ms == 1_000
    assert {name for name, _ in office.ledger.sessions} == {"ann", "bob", "cleo"}


# The queue


@pytest.mark.requirement("KP-3d")
def test_a_newcomer_does_not_pass_an_older_request_in_the_queue(office: Office) -> None:
    office.lease("dan", "CONSUMES FILE:/a")
    waiting = office.wait("bob", "MUTATES FILE:/a")
    late = office.ask("cleo", "CONSUMES FILE:/a")
    assert late.status == "Die"
    assert [conflict.request_id for conflict in late.conflicts] == [waiting]
    assert office.ask("bob", "CONSUMES FILE:/a", session="other").status == "Die"


@pytest.mark.requirement("KP-3d")
def test_an_older_newcomer_passes_a_younger_request_in_the_queue(office: Office) -> None:
    office.lease("dan", "CONSUMES FILE:/a")
    office.wait("bob", "MUTATES FILE:/a")
    assert office.ask("ann", "CONSUMES FILE:/a").status == "Granted"


@pytest.mark.requirement("KP-3a", "KP-3b")
def test_a_waiting_request_dies_when_an_older_agent_gets_what_is_in_its_way(office: Office) -> None:
    office.lease("dan", "CONSUMES FILE:/a")
    waiting = office.wait("bob", "MUTATES FILE:/a")
    office.lease("ann", "CONSUMES FILE:/a")
    assert office.answers(waiting) == [("request", "Wait"), ("queue", "Die")]
    assert not office.ledger.requests


@pytest.mark.requirement("KP-3d")
def test_the_queue_is_judged_again_oldest_first_when_a_lease_ends(office: Office) -> None:
    lease = office.lease("dan", "MUTATES FILE:/a")
    younger = office.wait("cleo", "MUTATES FILE:/a")
    older = office.wait("bob", "MUTATES FILE:/a")
    office.release(lease, "dan")
    assert office.answers(older)[-1] == ("queue", "Granted")
    # now an older agent holds it
    assert office.answers(younger)[-1] == ("queue", "Die")


@pytest.mark.requirement("KP-3d")
@pytest.mark.parametrize("how", ["release", "revoke", "expiry"])
def test_whatever_ends_a_lease_frees_who_waits_for_it(office: Office, how: str) -> None:
    lease = office.lease("dan", "MUTATES FILE:/a", ttl_ms=1_000)
    waiting = office.wait("ann", "MUTATES FILE:/a")
    if how == "release":
        office.release(lease, "dan")
    elif how == "revoke":
        office.desk.revoke([lease], 1_000, by="root", reason="r")
    else:
        office.desk.advance(2_001)
    assert office.answers(waiting)[-1] == ("queue", "Granted")
    assert [lease.session.agent_id for lease in office.ledger.leases.values()] == ["ann"]


def test_a_request_that_waited_too_long_is_withdrawn_and_its_turn_goes_on(office: Office) -> None:
    office.lease("dan", "CONSUMES FILE:/a", until_sealed=True)
    first = office.wait("ann", "MUTATES FILE:/a", wait_ms=500)
    assert office.ask("cleo", "CONSUMES FILE:/a").status == "Die"
    office.desk.advance(1_500)
    assert first in office.ledger.requests
    office.desk.advance(1_501)
    assert first not in office.ledger.requests
    assert office.ask("cleo", "CONSUMES FILE:/a", now=1_501).status == "Granted"


def test_a_withdrawn_request_makes_way_for_those_behind_it(office: Office) -> None:
    office.lease("dan", "CONSUMES FILE:/a")
    lease = office.lease("dan", "MUTATES FILE:/b")
    behind = office.wait("bob", "CONSUMES FILE:/a", "CONSUMES FILE:/b")
    first = office.wait("ann", "MUTATES FILE:/a")
    office.release(lease, "dan")
    assert behind in office.ledger.requests
    assert office.desk.withdraw(first, 1_000) is True
    assert office.answers(behind)[-1] == ("queue", "Granted")
    assert office.desk.withdraw(first, 1_000) is False


@pytest.mark.requirement("KP-3b")
def test_who_holds_something_does_not_wait_for_a_turn_but_dies(office: Office) -> None:
    holds = office.lease("cleo", "MUTATES FILE:/b")
    office.lease("dan", "MUTATES FILE:/a")
    waiting = office.wait("cleo", "MUTATES FILE:/a")
    oldest = office.wait("ann", "MUTATES FILE:/a", "MUTATES FILE:/b")
    assert office.answers(waiting) == [("request", "Wait"), ("queue", "Die")]
    office.release(holds, "cleo")
    assert oldest in office.ledger.requests


@pytest.mark.requirement("KP-3b")
def test_who_waits_for_a_turn_and_then_gets_a_lease_dies(office: Office) -> None:
    office.lease("dan", "MUTATES FILE:/a")
    waiting = office.wait("cleo", "MUTATES FILE:/a")
    office.wait("ann", "MUTATES FILE:/a")
    assert office.answers(waiting) == [("request", "Wait")]
    office.lease("cleo", "MUTATES FILE:/b")
    assert office.answers(waiting)[-1] == ("queue", "Die")


@pytest.mark.requirement("KP-4c")
def test_a_lease_that_expires_while_a_request_times_out_kills_nobody(office: Office) -> None:
    office.lease("dan", "CONSUMES FILE:/a", until_sealed=True)
    office.lease("bob", "MUTATES FILE:/b", ttl_ms=1_000)
    waiting = office.wait("ann", "MUTATES FILE:/a", wait_ms=900)
    office.desk.advance(5_000)
    assert waiting not in office.ledger.requests
    assert office.ask("cleo", "CONSUMES FILE:/a", "MUTATES FILE:/b", now=5_000).status == "Granted"


# The record


@pytest.mark.requirement("KP-5a", "KP-5b", "CARD-replay")
def test_a_verdict_keeps_the_manifest_and_how_it_was_authenticated(office: Office) -> None:
    verdict = office.ask("ann", "MUTATES FILE:/a", "CONSUMES FILE:/b")
    assert verdict.manifest == office.manifest("ann", "MUTATES FILE:/a", "CONSUMES FILE:/b").to_wire()
    assert verdict.channel == CHANNEL
    assert [lease.token for lease in verdict.leases] == [1, 2]
    assert [lease.resource for lease in verdict.leases] == ["FILE:/a", "FILE:/b"]


def granted(lease: str = "L", token: int = 1, **more: Any) -> events.VerdictGiven:
    told = GrantedLease(lease_id=lease, token=token, predicate="MUTATES", resource="FILE:/a")
    given: dict[str, Any] = {
        "at": 1_000,
        "verdict_id": f"v-{lease}",
        "request_id": f"r-{lease}",
        "agent_id": "ann",
        "session_id": "s",
        "status": "Granted",
        "cause": "request",
        "ttl_ms": 1_000,
        "leases": [told],
    }
    return events.VerdictGiven(**{**given, **more})


def queued(request: str = "r") -> events.VerdictGiven:
    wanted = [ResourceClaim(predicate="MUTATES", resource="FILE:/a")]
    return granted(status="Wait", leases=[], queued=True, wanted=wanted, request_id=request)


IMPOSSIBLE: dict[str, list[Event]] = {
    "an agent registered twice": [AgentRegistered(at=1_000, agent_id="ann", priority=9, by="x")],
    "a key registered twice": [KeyRegistered(at=1_000, key_id="k", agent_id="ann", public_key="p", by="x")] * 2,
    "a key revoked that never was": [KeyRevoked(at=1_000, key_id="k", by="x", reason="r")],
    "a key revoked twice": [
        KeyRegistered(at=1_000, key_id="k", agent_id="ann", public_key="p", by="x"),
        KeyRevoked(at=1_000, key_id="k", by="x", reason="r"),
        KeyRevoked(at=1_000, key_id="k", by="x", reason="r"),
    ],
    "a verdict about a stranger": [granted(agent_id="eve")],
    "a lease granted twice": [granted(), granted(token=2)],
    "a token that does not grow": [granted("L", 2), granted("M", 2)],
    "a request queued twice": [queued(), queued()],
    "a renewal of what never was": [LeaseRenewed(at=1_000, lease_id="L", ttl_ms=1, expires_at=1_001)],
    "a renewal after the end": [granted(), LeaseRenewed(at=2_001, lease_id="L", ttl_ms=1, expires_at=2_002)],
    "a renewal of a lease for a proposal": [
        granted(ttl_ms=None),
        LeaseRenewed(at=1_000, lease_id="L", ttl_ms=1, expires_at=1_001),
    ],
    "a release of what never was": [events.LeasesReleased(at=1_000, lease_ids=["L"], agent_id="ann", session_id="s")],
    "a release after the end": [
        granted(),
        events.LeasesReleased(at=2_001, lease_ids=["L"], agent_id="ann", session_id="s"),
    ],
    "a release twice": [
        granted(),
        events.LeasesReleased(at=1_000, lease_ids=["L"], agent_id="ann", session_id="s"),
        events.LeasesReleased(at=1_000, lease_ids=["L"], agent_id="ann", session_id="s"),
    ],
    "a release by another": [
        granted(),
        events.LeasesReleased(at=1_000, lease_ids=["L"], agent_id="bob", session_id="s"),
    ],
    "an expiry before its time": [granted(), events.LeasesExpired(at=2_000, lease_ids=["L"])],
    "an expiry of a lease for a proposal": [granted(ttl_ms=None), events.LeasesExpired(at=9_000, lease_ids=["L"])],
    "a revocation after the end": [granted(), events.LeasesRevoked(at=2_001, lease_ids=["L"], by="x", reason="r")],
    "a withdrawal of what never waited": [events.RequestWithdrawn(at=1_000, request_id="r", reason="timeout")],
}


@pytest.mark.requirement("KP-4a", "CARD-replay")
@pytest.mark.parametrize("history", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_a_history_that_cannot_be_is_damage(history: list[Event]) -> None:
    ledger = Ledger()
    ledger.fold(KlisConfigured(at=0, settings={}, by="x"))
    for agent in ("ann", "bob"):
        ledger.fold(AgentRegistered(at=0, agent_id=agent, priority=1, by="x"))
    for event in history[:-1]:
        ledger.fold(event)
    with pytest.raises(DamagedLogError):
        ledger.fold(history[-1])


@given(st.lists(st.integers(1, 5_000), max_size=40))
def test_heartbeats_of_any_length_leave_little_behind(times: list[int]) -> None:
    office = Office()
    lease = office.lease("ann", "MUTATES FILE:/a", ttl_ms=5_000)
    for ttl in times * 5:
        office.desk.heartbeat(lease, 1_000, agent_id="ann", session_id="s", ttl_ms=ttl)
    assert len(office.ledger._expiries) <= 66
    expires_at = office.ledger.leases[lease].expires_at
    assert expires_at is not None
    assert office.desk.advance(expires_at) == 0
    assert office.desk.advance(expires_at + 1) == 1


@pytest.mark.requirement("KP-3a", "KP-3d")
def test_a_crowd_that_waits_for_one_lease_is_answered_in_one_go() -> None:
    office = Office(KlisSettings())
    for number in range(1_000):
        office.desk.register(f"w{number}", 1_000, priority=1_000 - number, by="test")
    office.desk.register("holder", 1_000, priority=5_000, by="test")
    lease = office.lease("holder", "MUTATES FILE:/a")
    waiting = [office.wait(f"w{number}", "MUTATES FILE:/a") for number in range(1_000)]
    office.release(lease, "holder")
    assert office.answers(waiting[-1])[-1] == ("queue", "Granted")
    assert office.ledger.verdicts == {"Granted": 2, "Wait": 1_000, "Die": 999}
    assert not office.ledger.requests
