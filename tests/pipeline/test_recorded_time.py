"""How far recorded time may be beyond the commit before it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.golden.garden import FOLDER
from tests.golden.generate import rehashed
from tests.pipeline.clock_child import Off, manifest
from tests.pipeline.shop import shop
from tests.second_implementation import verify as second
from tests.support.making_events import made
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.clock import Boot, ManualClock, SystemClock, boot_of
from world.errors import DamagedLogError, RefusedError
from world.events.execution_events import EffectRequested, EffectRetried
from world.events.lease_events import ClockConfirmed, ProposalRescheduled
from world.events.proposal_events import ProposalSubmitted
from world.klis.identity.signature import sign
from world.klis.ledger import Ledger
from world.klis.settings import KlisSettings
from world.klis.wait_die import spread
from world.limits import Limits
from world.model.snapshot import ErrorValue, Requirement
from world.pipeline.leasing.clock_confirmation import later_times
from world.pipeline.recorded_time import MAX_REST_MS, Evidence
from world.read_models.clock_jumps import clock_jumps
from world.read_models.decoding import decoded
from world.state.proposal import Proposal, fold_proposal
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.export.jsonl import export_log, import_log

ROOT = Path(__file__).resolve().parents[2]
START = 1_700_000_000_000
MINUTE = 60_000
DAY = 86_400_000
TEN_YEARS = 3_652 * DAY


def child(address: str, off_ms: int, *what: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.pipeline.clock_child", address, str(off_ms), *what]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def said(one: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = one.communicate(timeout=PATIENCE_S)
    told: dict[str, Any] = json.loads(out)
    return told


def founded(address: str, clock: Any = None, **limits: Any) -> Realm:
    return Realm.create(address, domain=shop, clock=clock, limits=Limits(klis=KlisSettings(**limits)))


def take(world: Realm, resource: str = "FILE:/a", agent: str = "ann") -> Any:
    return world.leases.desk.request(manifest(agent, resource), by=agent, ttl_ms=500)


def refused_as_ahead(world: Realm) -> RefusedError:
    """Return how a request is refused that appends nothing."""
    size = world.log.head().size
    with pytest.raises(RefusedError) as refused:
        take(world)
    assert refused.value.code == "CLOCK_AHEAD"
    assert world.log.head().size == size
    return refused.value


@pytest.mark.requirement("KP-4c")
@pytest.mark.slow
def test_a_process_ten_years_ahead_records_nothing_and_a_lease_of_500_ms_ends_now(shared_log_url: str) -> None:
    founded(shared_log_url).close()
    refused = said(child(shared_log_url, TEN_YEARS, "lease", "bob", "FILE:/b"))
    assert refused["refused"] == "CLOCK_AHEAD"
    assert refused["limit_ms"] == 300_000
    assert abs(refused["ahead_ms"] - TEN_YEARS) < DAY
    assert "worldctl clock confirm" in refused["message"]
    right = said(child(shared_log_url, 0, "lease", "ann", "FILE:/a"))
    assert right["done"]["status"] == "Granted"
    with Realm.open(shared_log_url, domain=shop) as world:
        assert world.realm().klis.clock < SystemClock().now_ms() + DAY
        assert "bob" not in world.realm().klis.agents
        assert verify(world.log).ok


@pytest.mark.requirement("KP-4c")
@pytest.mark.slow
def test_an_operator_confirms_a_clock_and_the_log_says_who_and_why(shared_log_url: str) -> None:
    founded(shared_log_url).close()
    confirmed = said(child(shared_log_url, 2 * DAY, "confirm", "the other clocks were slow"))
    assert confirmed["done"] > SystemClock().now_ms() + DAY
    with Realm.open(shared_log_url, domain=shop, clock=Off(2 * DAY)) as world:
        assert take(world).status == "Granted"  # within the limit of the commit before
        [event] = [decoded(one) for one in world.log.read(0, topics=["clock.confirmed"])]
        assert isinstance(event, ClockConfirmed)
        assert event.lease_time < event.at - DAY
        assert (event.at, event.by, event.reason) == (confirmed["done"], "operator", "the other clocks were slow")
        assert verify(world.log).ok
        assert recheck(world).ok


@pytest.mark.slow
def test_processes_whose_clocks_differ_by_less_than_the_limit_work_side_by_side(shared_log_url: str) -> None:
    founded(shared_log_url).close()
    children = [child(shared_log_url, off, "many", name, "10") for off, name in ((-120_000, "ann"), (120_000, "bob"))]
    assert [said(one) for one in children] == [{"done": 10}, {"done": 10}]
    with Realm.open_read_only(shared_log_url) as world:
        assert not world.realm().klis.leases
        assert verify(world.log).ok


def test_exactly_the_limit_is_accepted_and_a_millisecond_more_is_refused(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        clock.set_off(300_001)
        assert refused_as_ahead(world).details["ahead_ms"] == 300_001
        clock.set_off(-1)
        assert take(world).status == "Granted"


def test_a_realm_sets_its_own_limit_and_the_log_records_it(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock, max_clock_ahead_ms=1_000) as world:
        settings = world.realm().klis.settings
        assert settings is not None
        assert settings.to_wire()["max_clock_ahead_ms"] == 1_000
        clock.set_off(1_001)
        assert refused_as_ahead(world).details["limit_ms"] == 1_000
        clock.set_off(-1)
        assert take(world).status == "Granted"
        assert verify(world.log).ok


def test_settings_that_do_not_record_a_limit_mean_five_minutes() -> None:
    assert "max_clock_ahead_ms" not in KlisSettings().to_wire()
    assert KlisSettings.recorded(KlisSettings().to_wire()).max_clock_ahead_ms == 300_000


def test_a_realm_goes_on_after_an_idle_month_and_after_a_month_in_suspension(tmp_path: Path) -> None:
    """The boot clock counts suspension, so the two are the same evidence."""
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        clock.advance(30 * DAY)
        assert take(world).at == START + 30 * DAY
    clock.advance(30 * DAY)
    with Realm.open(tmp_path / "w.db", domain=shop, clock=clock) as world:
        assert take(world, "FILE:/b").at == START + 60 * DAY


def test_after_a_restart_of_the_machine_a_week_of_rest_is_accepted_and_ten_years_are_not(tmp_path: Path) -> None:
    clock = ManualClock(START, boot_id="a machine")
    with founded(str(tmp_path / "w.db"), clock) as world:
        clock.reboot(after_ms=7 * DAY)
        assert take(world).at == START + 7 * DAY
        clock.reboot(after_ms=MAX_REST_MS + 1)
        refused = refused_as_ahead(world)
        assert "no boot clock covers the time since then" in refused.message
        assert world.confirm_clock(reason="it was switched off") is not None
        assert take(world, "FILE:/b").at == START + 7 * DAY + MAX_REST_MS + 1


def test_a_clock_that_is_set_back_is_not_refused_and_shortens_no_lease(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        assert take(world).status == "Granted"
        clock.advance(-3_600_000)
        assert take(world, "FILE:/b").at == START
        [first, _] = world.realm().klis.leases.values()
        assert first.expires_at == START + 500


def test_a_confirmation_takes_an_administrator_and_a_reason_and_something_to_confirm(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        assert world.confirm_clock(reason="nothing is wrong") is None
        clock.set_off(DAY)
        size = world.log.head().size
        for by, reason, code in (("ann", "why", "NOT_AN_ADMINISTRATOR"), ("operator", " ", "REASON_MISSING")):
            with pytest.raises(RefusedError) as refused:
                world.confirm_clock(by=by, reason=reason)
            assert refused.value.code == code
        refused_as_ahead(world)
        assert world.log.head().size == size


def test_a_realm_opens_with_a_clock_that_is_ahead_so_that_it_can_be_confirmed(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        take(world)
    clock.set_off(DAY)
    with Realm.open(tmp_path / "w.db", domain=shop, clock=clock) as world:
        refused_as_ahead(world)
        assert world.confirm_clock(reason="right") is not None
        assert take(world).status == "Granted"


def test_a_log_of_an_earlier_release_gets_the_table_of_clocks_when_it_is_opened_for_writing(tmp_path: Path) -> None:
    import sqlite3

    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        take(world)
    with sqlite3.connect(tmp_path / "w.db") as database:
        database.execute("DROP TABLE wp_clock")
        database.execute('ALTER TABLE wp_head DROP COLUMN "before"')
    before = (tmp_path / "w.db").read_bytes()
    with Realm.open_read_only(tmp_path / "w.db") as world:
        assert verify(world.log).ok
    assert (tmp_path / "w.db").read_bytes() == before
    with Realm.open(tmp_path / "w.db", domain=shop, clock=clock) as world:
        take(world, "FILE:/b")
        clock.set_off(DAY)
        refused_as_ahead(world)


def test_the_clocks_of_a_commit_by_an_earlier_release_do_not_count_for_a_later_one(tmp_path: Path) -> None:
    import sqlite3

    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        take(world)
    with sqlite3.connect(tmp_path / "w.db") as database:  # what a release leaves that does not write the row
        database.execute("UPDATE wp_clock SET size = size - 1")
    clock.set_off(DAY)
    with Realm.open(tmp_path / "w.db", domain=shop, clock=clock) as world:
        assert take(world, "FILE:/b").at == START + DAY


@pytest.mark.parametrize(
    ("passed", "wall", "expected"),
    [
        (1_000, START + 1_000, START + 1_000),
        (1_000, START + 900, START + 900),
        (1_000, START + 5_000, START + 1_000),
        (1_000, START - 5_000, START),
    ],
)
def test_the_expected_time_is_the_median_of_last_commit_wall_clock_and_boot_clock(
    passed: int, wall: int, expected: int
) -> None:
    assert Evidence(START, passed, None, 0).expected(wall) == expected


def test_on_a_server_the_databases_clock_is_the_reference() -> None:
    evidence = Evidence(START, None, START + DAY, 1_000)
    assert not evidence.is_ahead(START + DAY + 1_000)
    assert evidence.is_ahead(START + DAY + 1_001)
    assert "the database's clock reads 2023-11-15" in evidence.refusal(START + 2 * DAY).message


def test_the_first_commit_of_a_log_has_nothing_to_be_compared_with() -> None:
    assert not Evidence(None, None, None, 0).is_ahead(START + TEN_YEARS)


def test_boot_readings_go_forward_and_only_clocks_that_have_one_give_one() -> None:
    class Bare:
        def now_ms(self) -> int:
            return START

    first, second = SystemClock().boot(), SystemClock().boot()
    assert first.id == second.id
    assert first.ms <= second.ms
    assert boot_of(Bare()) is None
    clock = ManualClock(0, 5, boot_id="same")
    clock.now_ms()
    clock.advance(-100)
    assert clock.boot() == Boot("same", 5)


def test_a_confirmation_that_contradicts_lease_time_is_damage() -> None:
    ledger = Ledger()
    with pytest.raises(DamagedLogError) as damage:
        ledger.fold(ClockConfirmed(at=5, lease_time=3, by="operator", reason="r"))
    assert damage.value.code == "ILLEGAL_LEASE_TRANSITION"


def jumps(world: Realm, now_ms: int) -> list[tuple[int | None, int, int | None]]:
    found = clock_jumps(world.log, limit_ms=300_000, now_ms=now_ms)
    return [(one.from_position, one.position, one.back_position) for one in found]


def test_a_jump_is_told_from_a_rest_by_a_time_that_goes_back_or_is_still_to_come(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        size = world.log.head().size
        clock.advance(DAY)  # a rest
        take(world)
        assert jumps(world, START + DAY) == []
        rested = world.log.head().size
        clock.advance(TEN_YEARS)
        take(world, "FILE:/b")
        assert jumps(world, START + DAY) == [(rested, rested + 1, None)]
        assert jumps(world, START + DAY + TEN_YEARS) == []
        clock.advance(-TEN_YEARS)
        world.register("ann", "agent")
        found = jumps(world, START + DAY + TEN_YEARS)
        assert found == [(rested, rested + 1, world.log.head().size)]
        take(world, "FILE:/c")  # at lease time, which is the later one
        world.register("bob", "agent")
        assert jumps(world, START + DAY + TEN_YEARS) == found
        assert size < rested


# Bringing lease time back


def poisoned(path: Path, **limits: Any) -> tuple[Realm, ManualClock]:
    """Return a realm in which a process that was ten years ahead was granted a lease of 500 ms, and the clock now."""
    clock = ManualClock(START)
    world = founded(str(path), clock, **limits)
    take(world, "FILE:/before", "early")
    clock.advance(TEN_YEARS)
    take(world, "FILE:/a", "ahead")
    clock.advance(-TEN_YEARS)
    return world, clock


def sound(world: Realm) -> None:
    """Check replay, the index, verification, the recheck, the second implementation and a rebuilt ledger."""
    assert verify(world.log).ok
    assert recheck(world).ok
    assert world.archive.fold_realm().klis == world.realm().klis
    with Realm.open_read_only(str(world.log.address)) as other:
        assert other.realm().klis == world.realm().klis
    out = io.BytesIO()
    export_log(world.log, out)
    assert second(out.getvalue().decode().splitlines(keepends=True))["sound"]


@pytest.mark.requirement("KP-4c", "CARD-replay")
def test_a_confirmation_brings_lease_time_back_and_a_lease_lives_its_granted_time_from_then(tmp_path: Path) -> None:
    world, clock = poisoned(tmp_path / "w.db")
    with world:
        [lease] = world.realm().klis.leases.values()
        assert lease.expires_at == START + TEN_YEARS + 500
        token = lease.token
        clock.advance(60_000)
        done = world.confirm_clock(reason="a clock was ten years ahead")
        assert done is not None
        assert (done.at, done.lease_time) == (START + 60_000, START + TEN_YEARS)
        [lease] = world.realm().klis.leases.values()
        assert (lease.granted_at, lease.expires_at) == (START + 60_000, START + 60_500)
        sound(world)
        clock.advance(501)
        verdict = take(world, "FILE:/a", "next")
        assert verdict.status == "Granted"
        assert verdict.at == START + 60_501
        assert verdict.leases[0].token > token
        assert world.confirm_clock(reason="again") is None
        sound(world)


def test_a_lease_that_expired_by_the_wrong_time_is_not_revived(tmp_path: Path) -> None:
    world, _ = poisoned(tmp_path / "w.db")
    with world:
        ended = dict(world.realm().klis.ended)
        assert list(ended.values()) == ["Expired"]
        world.confirm_clock(reason="it was ahead")
        assert world.realm().klis.ended == ended
        [lease] = ended
        with pytest.raises(RefusedError) as refused:
            world.leases.desk.heartbeat([lease], agent_id="early", session_id="s-early")
        assert refused.value.code == "LEASE_NOT_ACTIVE"


def test_heartbeats_and_requests_of_the_wrong_time_end_by_the_right_one(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock, max_hold_ms=1_000) as world:
        desk = world.leases.desk
        for age, agent in enumerate(("old", "young")):
            desk.register_agent(agent, by="test", priority=age)
        clock.advance(TEN_YEARS)
        held = take(world, agent="young")
        clock.advance(400)
        desk.heartbeat([held.leases[0].lease_id], agent_id="young", session_id="s-young")
        waits = desk.request(manifest("old", "FILE:/a"), by="old", queue=True, wait_ms=700, ttl_ms=500)
        assert (waits.status, waits.deadline) == ("Wait", START + TEN_YEARS + 1_100)
        clock.advance(-TEN_YEARS)
        world.confirm_clock(reason="it was ahead")
        now = START + 400
        [lease], [request] = world.realm().klis.leases.values(), world.realm().klis.requests.values()
        assert (lease.granted_at, lease.hold_until, lease.expires_at) == (now, now + 1_000, now + 500)
        assert (request.since, request.deadline) == (now, now + 700)
        sound(world)
        clock.advance(501)
        world.settle()
        [granted] = world.realm().klis.leases.values()
        assert granted.session.agent_id == "old"
        sound(world)


def test_a_session_that_died_in_the_wrong_time_asks_again_after_its_backoff_from_the_right_one(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        for age, agent in enumerate(("old", "young")):
            world.leases.desk.register_agent(agent, by="test", priority=age)
        clock.advance(TEN_YEARS)
        take(world, agent="old")
        assert take(world, agent="young").status == "Die"
        clock.advance(-TEN_YEARS)
        world.confirm_clock(reason="it was ahead")
        assert world.realm().klis.asks_again_at("young", "s-young") == START + 1_000 + spread(1_000, "s-young", 1)
        sound(world)


def test_a_manifest_signed_before_the_confirmation_is_too_old(tmp_path: Path) -> None:
    """While lease time was ahead, the ledger forgot the nonces of the time before; none of them may be used again."""
    private = Ed25519PrivateKey.generate()
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        world.leases.desk.register_key("ann", private.public_key().public_bytes_raw(), by="test")
        signed = sign({**manifest("ann", "FILE:/a"), "nonce": "n1", "issued_at": START}, private.private_bytes_raw())
        assert world.leases.desk.request(signed, by=None, ttl_ms=500).status == "Granted"
        clock.advance(TEN_YEARS)
        other = sign(
            {**manifest("ann", "FILE:/b"), "nonce": "n2", "issued_at": START + TEN_YEARS}, private.private_bytes_raw()
        )
        assert world.leases.desk.request(other, by=None, ttl_ms=500).status == "Granted"
        clock.advance(-TEN_YEARS + 1)
        world.confirm_clock(reason="it was ahead")
        with pytest.raises(RefusedError) as refused:
            world.leases.desk.request(signed, by=None, ttl_ms=500)
        assert refused.value.code == "UNAUTHENTICATED"
        sound(world)


def test_a_vote_of_the_wrong_time_ends_by_the_right_one(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.register("kid", "human", binding={"kind": "hitl", "ask": ["ann"], "timeoutMs": 5_000})
        clock.advance(TEN_YEARS)
        name = world.act("kid", "sell", {"item": "tea", "count": 1}).proposal_id
        clock.advance(-TEN_YEARS)
        assert world.proposal(name).deadline == START + TEN_YEARS + 5_000
        world.confirm_clock(reason="it was ahead")
        assert world.proposal(name).deadline == START + 5_000
        sound(world)
        clock.advance(5_000)
        world.settle()
        assert world.proposal(name).status == "evaluating"
        clock.advance(1)
        world.settle()
        assert world.proposal(name).status == "rejected"
        sound(world)


def submitted() -> ProposalSubmitted:
    texts: Any = dict.fromkeys(("proposal_id", "schema_hash", "base_world", "branch", "execution_key"), "p")
    actor = {"actorId": "a", "kind": "agent"}
    origin = {"projectionId": "p", "source": {"kind": "ui", "eventId": "e"}, "actor": actor}
    intent = {"body": {"type": "t"}, "intentId": "i", "intentKey": "k", "meta": {"origin": origin}}
    return made(ProposalSubmitted, at=START, actor=actor, intent=intent, attempt=1, epoch=0, **texts)


def test_an_effect_that_was_requested_in_the_wrong_time_is_overdue_by_the_right_one() -> None:
    requirement = Requirement("e", "t", {}, "a", "n")
    asked = EffectRequested(
        at=START + TEN_YEARS,
        proposal_id="p",
        requirement=requirement,
        idempotent=True,
        attempt=1,
        deadline=START + TEN_YEARS + 900,
    )
    failed = EffectRetried(
        at=START + TEN_YEARS, proposal_id="p", requirement_id="e", error=ErrorValue.at("X", "", "", "", 0), failures=1,
        due=START + TEN_YEARS + 300,
    )  # fmt: skip
    proposal = Proposal(submitted(), status="executing")
    proposal.requested["e"], proposal.failures["e"] = asked, failed
    assert later_times(proposal, START) == (None, {"e": START + 900})
    fold_proposal(proposal, ProposalRescheduled(at=START, proposal_id="p", effects={"e": START + 900}))
    assert proposal.requested["e"].deadline == START + 900
    assert proposal.failures["e"].due == START + 300
    assert later_times(proposal, START) == (None, {})


@pytest.mark.parametrize(
    ("topic", "change", "says"),
    [
        ("clock.confirmed", {"leaseTime": 5}, "lease time was 5"),
        ("proposal.rescheduled", {"deadline": START}, "do not follow from the old ones"),
        ("proposal.rescheduled", {"at": START}, "no confirmation of the clock was of that time"),
    ],
)
def test_forged_times_of_a_confirmation_are_found_by_both_implementations(
    topic: str, change: dict[str, Any], says: str, tmp_path: Path
) -> None:
    told = [json.loads(line) for line in (FOLDER / "clocks.jsonl").read_text().splitlines()]
    forged = next(one for one in told if one.get("topic") == topic)
    forged["state"] |= change
    lines = rehashed(told)
    assert second(line.decode() for line in lines)["firstBad"] == forged["position"]
    import_log(io.BytesIO(b"".join(lines)), str(tmp_path / "w.db"))
    with Realm.open_read_only(tmp_path / "w.db") as world:
        first = verify(world.log).findings[0]
    assert first.position == forged["position"]
    assert says in first.message


def test_a_small_difference_brings_nothing_back(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with founded(str(tmp_path / "w.db"), clock) as world:
        take(world)
        clock.advance(-300_000)
        assert world.confirm_clock(reason="within the limit") is None
        clock.advance(-1)
        assert world.confirm_clock(reason="beyond it") is not None
