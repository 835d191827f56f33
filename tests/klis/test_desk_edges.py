"""Leases at the edges of their times and limits: the last moment that counts, and the first that does not."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.klis.lease_game import CHANNEL
from tests.klis.test_desk import IMPOSSIBLE, SIGNED, Office, granted
from tests.support.tables import for_each
from world.errors import DamagedLogError, RefusedError
from world.events import lease_events as events
from world.events.base import Event
from world.events.lease_events import AgentRegistered, KlisConfigured, LeaseRenewed
from world.klis.identity.authentication import channel_fault, is_open, run_fault, why_signature
from world.klis.lease_manager import MAX_ENDING, batched
from world.klis.ledger import Ledger
from world.klis.ledger_steps import ENDED_KEPT, FORGET_DIES_MS
from world.klis.resources.resource_types import STANDARD, ResourceType
from world.klis.session import AgentKey
from world.klis.settings import KlisSettings
from world.klis.wait_die import asks_for_room_at, retry_after, spread


@pytest.fixture
def office() -> Office:
    return Office()


def ledger_of(*history: Event) -> Ledger:
    ledger = Ledger()
    ledger.fold(KlisConfigured(at=0, settings={}, by="x"))
    for agent in ("ann", "bob"):
        ledger.fold(AgentRegistered(at=0, agent_id=agent, priority=1, by="x"))
    for event in history:
        ledger.fold(event)
    return ledger


@pytest.mark.requirement("KP-4a")
def test_the_last_moment_of_a_lease_is_one_of_its_time() -> None:
    renewal = LeaseRenewed(at=2_000, lease_id="L", ttl_ms=7, expires_at=2_007)
    assert ledger_of(granted(), renewal).leases["L"].expires_at == 2_007
    assert ledger_of(granted(), renewal).leases["L"].ttl_ms == 7
    release = events.LeasesReleased(at=2_000, lease_ids=["L"], agent_id="ann", session_id="s")
    assert ledger_of(granted(), release).ended == {"L": "Released"}
    assert ledger_of(granted(), release).sessions == {}
    revocation = events.LeasesRevoked(at=2_000, lease_ids=["L"], by="x", reason="r")
    assert ledger_of(granted(), revocation).ended == {"L": "Revoked"}
    expiry = events.LeasesExpired(at=2_001, lease_ids=["L"])
    assert ledger_of(granted(), expiry).ended == {"L": "Expired"}


@pytest.mark.requirement("KP-4a", "CARD-replay")
@for_each("history", IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_a_history_that_cannot_be_says_what_contradicts_it(history: list[Event]) -> None:
    with pytest.raises(DamagedLogError) as caught:
        ledger_of(*history)
    assert caught.value.code == "ILLEGAL_LEASE_TRANSITION"
    last: Any = history[-1]
    names = [getattr(last, name, None) for name in ("lease_id", "key_id", "verdict_id", "request_id", "agent_id")]
    names += getattr(last, "lease_ids", [])
    names += [told.lease_id for told in getattr(last, "leases", [])]
    assert any(name in caught.value.message for name in names if name)


@pytest.mark.requirement("KP-4b", "KP-4c")
def test_what_is_due_is_due_one_millisecond_after_its_time(office: Office) -> None:
    office.lease("ann", "MUTATES FILE:/a", ttl_ms=1_000)
    office.lease("dan", "MUTATES FILE:/b", until_sealed=True)
    assert office.ledger.next_due() == 2_001
    assert (office.ledger.expired(2_000), len(office.ledger.expired(2_001))) == ([], 1)
    assert len(office.ledger.expired(2_001)) == 1  # it stays until its end is an event
    office.wait("ann", "MUTATES FILE:/b", wait_ms=500)
    assert office.ledger.next_due() == 1_501
    assert (office.ledger.overdue(1_500), len(office.ledger.overdue(1_501))) == ([], 1)
    assert len(office.ledger.overdue(1_501)) == 1
    assert office.desk.advance(1_500) == 0
    assert len(office.ledger.requests) == 1
    assert office.desk.advance(1_501) == 0
    assert office.ledger.requests == {}
    assert Ledger().next_due() is None


@pytest.mark.requirement("KP-4b")
def test_every_limit_of_a_request_is_taken_at_its_value(office: Office) -> None:
    for ttl in (1, 5_000):
        assert office.ask("ann", f"CONSUMES FILE:/{ttl}", ttl_ms=ttl).ttl_ms == ttl
    for ttl in (0, 5_001):
        office.refuses("INVALID_TTL", partial(office.ask, "ann", "CONSUMES FILE:/x", ttl_ms=ttl))
    assert office.ask("ann", "CONSUMES FILE:/none").ttl_ms == 1_000
    for priority in (0, 2**53 - 1):
        assert office.desk.register(f"new-{priority}", 1_000, priority=priority, by="x") == (
            priority,
            f"new-{priority}",
        )
    assert office.desk.register("late", 1_007, by="x") == (1_007, "late")
    for wait_ms in (1, 2**53 - 1, None):
        office.lease("dan", f"MUTATES FILE:/held/{wait_ms}", until_sealed=True, now=1_007)
        more = {} if wait_ms is None else {"wait_ms": wait_ms}
        name = office.wait("ann", f"MUTATES FILE:/held/{wait_ms}", session=f"s{wait_ms}", now=1_007, **more)
        assert office.ledger.requests[name].deadline == (None if wait_ms is None else 1_007 + wait_ms)


@pytest.mark.requirement("KP-3e")
def test_an_agent_gets_its_first_priority_from_its_manifest_only_where_that_is_accepted() -> None:
    for accepted, given, expected in [(True, 7, 7), (True, 0, 0), (True, None, 1_000), (False, 7, 1_000)]:
        office = Office(KlisSettings(accept_priority=accepted))
        more: dict[str, Any] = {} if given is None else {"priority_timestamp": given}
        manifest = office.manifest("eve", "CONSUMES FILE:/a", **more)
        office.desk.request(manifest, 1_000, channel=CHANNEL)
        assert office.ledger.agents["eve"] == (expected, "eve")


@pytest.mark.requirement("KM-7.1")
def test_a_nonce_is_remembered_for_exactly_twice_the_age_of_a_signature() -> None:
    office = Office(KlisSettings(max_signature_age_ms=100))

    def ask(nonce: str, now: int, agent: str = "ann", channel: dict[str, str] = SIGNED) -> None:
        manifest = office.manifest(agent, "DEPENDS_ON FILE:/a", nonce=nonce, issued_at=1)
        office.desk.request(manifest, now, channel=channel)

    ask("one", 1_000)
    ask("two", 1_200)
    assert list(office.ledger.nonces) == [("ann", "one"), ("ann", "two")]
    ask("three", 1_201)
    assert list(office.ledger.nonces) == [("ann", "two"), ("ann", "three")]
    with pytest.raises(RefusedError) as caught:
        ask("two", 1_201)
    assert caught.value.code == "MANIFEST_REPLAYED"
    ask("two", 1_201, agent="bob")
    ask("two", 1_201, channel=CHANNEL)
    ask("four", 1_201, channel=CHANNEL)
    assert ("ann", "four") not in office.ledger.nonces


@pytest.mark.requirement("KP-3a")
def test_a_die_is_remembered_for_exactly_a_day(office: Office) -> None:
    assert FORGET_DIES_MS == 86_400_000
    office.lease("ann", "MUTATES FILE:/a", until_sealed=True)
    office.ask("bob", "MUTATES FILE:/a", now=1_000)
    assert office.ledger.asks_again_at("bob", "s") == 2_000 + spread(1_000, "s", 1)
    assert office.ledger.asks_again_at("bob", "other") == 0
    assert office.ledger.asks_again_at("ann", "s") == 0
    office.ask("cleo", "MUTATES FILE:/a", now=1_000 + FORGET_DIES_MS)
    assert office.ledger.sessions[("bob", "s")].dies == 1
    office.ask("dan", "MUTATES FILE:/a", now=1_001 + FORGET_DIES_MS)
    assert ("bob", "s") not in office.ledger.sessions
    assert ("cleo", "s") in office.ledger.sessions
    office.ask("cleo", "MUTATES FILE:/a", now=1_001 + FORGET_DIES_MS)
    assert office.ledger.asks_again_at("cleo", "s") == 1_001 + FORGET_DIES_MS + 2_000 + spread(2_000, "s", 2)


@pytest.mark.requirement("KP-3a")
def test_the_backoff_doubles_until_its_end_and_never_overflows() -> None:
    waits = [retry_after(dies, backoff_ms=3, max_backoff_ms=40) for dies in (0, 1, 2, 3, 4, 5, 10**9)]
    assert waits == [3, 6, 12, 24, 40, 40, 40]
    assert retry_after(40, backoff_ms=1, max_backoff_ms=2**60) == 2**40
    assert retry_after(41, backoff_ms=1, max_backoff_ms=2**60) == 2**40
    settings = KlisSettings(backoff_ms=1_000, max_backoff_ms=9_000)
    assert asks_for_room_at(100, settings, "s") == 8_100 + spread(8_000, "s", 1)


@pytest.mark.requirement("KP-4a")
def test_the_ends_of_many_leases_are_told_in_pieces_and_remembered_for_a_while() -> None:
    assert [len(part) for part in batched(str(number) for number in range(2 * MAX_ENDING + 1))] == [
        MAX_ENDING,
        MAX_ENDING,
        1,
    ]
    assert list(batched([])) == []
    assert (MAX_ENDING, ENDED_KEPT) == (1_000, 10_000)
    ledger = ledger_of()
    for number in range(2 * ENDED_KEPT + 1):
        ledger.ended[f"old-{number}"] = "Released"
        if number == 2 * ENDED_KEPT - 2:
            end(ledger, "L", 1)
            assert len(ledger.ended) == 2 * ENDED_KEPT
    end(ledger, "M", 2)
    assert len(ledger.ended) == ENDED_KEPT + 3
    assert "M" in ledger.ended
    assert f"old-{ENDED_KEPT - 1}" not in ledger.ended


def end(ledger: Ledger, lease: str, token: int) -> None:
    ledger.fold(granted(lease, token))
    ledger.fold(events.LeasesReleased(at=1_000, lease_ids=[lease], agent_id="ann", session_id="s"))


@pytest.mark.requirement("KP-4a", "CARD-replay")
def test_a_copy_of_a_ledger_is_equal_and_one_of_its_own(office: Office) -> None:
    office.desk.register_key("ann", "k", "public", 1_000, by="x")
    lease = office.lease("bob", "MUTATES FILE:/a", "CONSUMES FILE:/b", ttl_ms=900)
    office.wait("ann", "MUTATES FILE:/a", wait_ms=50)
    office.ask("cleo", "MUTATES FILE:/a")
    ledger = office.ledger
    twin = ledger.copy()
    assert twin == ledger
    assert twin.asks_again_at("cleo", "s") == ledger.asks_again_at("cleo", "s") == 2_000 + spread(1_000, "s", 1)
    assert twin.next_due() == ledger.next_due() == 1_051
    assert [one.lease_id for one in twin.expired(1_901)] == [one.lease_id for one in ledger.expired(1_901)]
    assert [one.request_id for one in twin.overdue(1_051)] == [one.request_id for one in ledger.overdue(1_051)]
    before = ledger.copy()
    twin.fold(events.LeasesRevoked(at=1_000, lease_ids=[lease], by="x", reason="r"))
    twin.fold(AgentRegistered(at=1_000, agent_id="eve", priority=3, by="x"))
    twin.fold(events.KeyRegistered(at=1_000, agent_id="eve", key_id="e", public_key="p", by="x"))
    assert ledger == before != twin
    assert "eve" not in ledger.signers
    assert ledger.verdicts == {"Granted": 1, "Wait": 1, "Die": 1}
    assert ledger != 5


@pytest.mark.requirement("KP-4b")
def test_configuring_anew_changes_what_is_another(office: Office) -> None:
    assert not office.desk.configure(office.desk.settings, 1_000, by="x")
    more = STANDARD.with_types(ResourceType("S3", "path"))
    assert office.desk.configure(office.desk.settings, 1_000, by="x", types=more)
    assert list(office.ledger.types)[-1] == "S3"
    assert not office.desk.configure(office.desk.settings, 1_000, by="x", types=more)
    assert office.desk.configure(KlisSettings(), 1_000, by="x", types=more)
    assert office.desk.settings == KlisSettings()
    with pytest.raises(RefusedError) as caught:
        office.desk.configure(KlisSettings(max_depth=3), 999, by="x")
    assert caught.value.details == {"now": 999, "recorded": 1_000}


@pytest.mark.requirement("KM-7.1")
def test_who_needs_a_signature_follows_from_the_setting_the_caller_and_the_keys() -> None:
    keys = {"k": AgentKey("k", "ann", "p"), "old": AgentKey("old", "bob", "p", revoked=True)}

    def ledger(authentication: str | None) -> Ledger:
        settings = KlisSettings(authentication=authentication)
        return Ledger(settings=settings, keys=dict(keys), signers={"ann": None, "bob": None})

    for setting in (None, "open"):
        assert is_open(ledger(setting))
        assert why_signature(ledger(setting), "ann", None) is None
    for setting in ("channel", "signed"):
        told = ledger(setting)
        assert not is_open(told)
        assert "the registered key k" in str(why_signature(told, "ann", "ann"))
        assert "every key of the agent is revoked" in str(why_signature(told, "bob", "bob"))
    channel, signed = ledger("channel"), ledger("signed")
    assert why_signature(channel, "cleo", "cleo") is None
    assert "handed in by 'dan'" in str(why_signature(channel, "cleo", "dan"))
    assert "a caller that did not name itself" in str(why_signature(channel, "cleo", None))
    assert "this realm takes signed manifests only" in str(why_signature(signed, "cleo", "cleo"))


@pytest.mark.requirement("KM-7.1", "CARD-replay")
def test_a_recorded_channel_is_one_by_which_the_request_could_have_come() -> None:
    told = Ledger(settings=KlisSettings(), keys={"k": AgentKey("k", "ann", "p")}, signers={"ann": None})
    runs: dict[str, Any] = {"run": type("Run", (), {"agent_id": "bob"})()}

    def fault(channel: dict[str, Any] | None, agent: str = "bob", session: str = "s") -> str | None:
        event = granted(agent_id=agent, session_id=session, manifest={"ver": "1.0"}, channel=channel)
        return channel_fault(told, event, runs=runs, proposals={"r-L"})

    assert fault({"kind": "signed", "keyId": "k"}) is None
    assert fault({"kind": "signed", "keyId": "no"}) == "there is no key 'no'"
    assert fault({"kind": "engine"}, session="r-L") is None
    assert fault({"kind": "engine"}) == "request r-L is not that of a proposal"
    assert fault({"kind": "run", "runId": "run"}) is None
    assert fault({"kind": "run", "runId": "no"}) == "no run 'no' is open"
    assert fault({"kind": "run", "runId": 5}) == "no run 5 is open"
    assert fault({"kind": "run", "runId": "run"}, agent="ann") == "run run is that of 'bob'"
    assert run_fault(runs, "run", "bob") is None
    assert fault({"kind": "vouched", "by": "bob"}) is None
    assert "handed in by 'ann'" in str(fault({"kind": "vouched", "by": "ann"}))
    assert fault({"kind": "rumour"}) == "it was sent by the unknown channel 'rumour'"
    assert fault(None) == "it was sent by the unknown channel None"
    later = granted(channel={"kind": "rumour"})
    assert channel_fault(told, later, runs=runs, proposals=()) is None
    anyhow = Ledger(settings=KlisSettings(authentication="open"))
    event = granted(manifest={"ver": "1.0"}, channel={"kind": "rumour"})
    assert channel_fault(anyhow, event, runs=runs, proposals=()) is None
