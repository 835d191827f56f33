"""The lease desk and backups that take their time: leases live from when theirs is done, and no time goes back."""

from __future__ import annotations

import pytest

from tests.klis.test_desk import Office
from world.errors import RefusedError
from world.events.lease_events import VerdictGiven
from world.klis.lease_manager import LeaseManager

pytestmark = pytest.mark.requirement("KP-4b", "KO-7")

TAKES_MS = 700


class SlowOffice(Office):
    """Its desk makes a backup before every grant."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000
        self.desk = LeaseManager(
            self.ledger, emit=self.emit, new_id=self.new_id, before_grant=self.back_up, now=lambda: self.now
        )

    def back_up(self, *_: object) -> bool:
        self.now += TAKES_MS
        return True

    def granted(self) -> list[VerdictGiven]:
        return [event for event in self.events if isinstance(event, VerdictGiven) and event.status == "Granted"]


def test_a_lease_lives_from_when_its_backup_is_done() -> None:
    office = SlowOffice()
    lease = office.ledger.leases[office.lease("bob", "MUTATES FILE:/a")]
    assert (lease.granted_at, lease.expires_at) == (1_700, 2_700)
    assert office.granted()[0].existence == []


def test_who_waited_is_granted_one_after_the_other_and_no_time_goes_back() -> None:
    office = SlowOffice()
    held = office.lease("dan", "MUTATES FILE:/d/*", now=office.now)
    waiting = [office.wait(agent, f"MUTATES FILE:/d/{agent}", now=office.now) for agent in ("ann", "bob", "cleo")]
    office.release(held, "dan", now=office.now)
    assert [event.at for event in office.granted()] == [1_700, 2_400, 3_100, 3_800]
    assert {event.request_id for event in office.granted()[1:]} == set(waiting)
    assert [event.at for event in office.events] == sorted(event.at for event in office.events)


def test_a_heartbeat_that_comes_when_a_backup_took_all_its_time_finds_the_lease_expired() -> None:
    office = SlowOffice()
    short = office.lease("ann", "MUTATES FILE:/b", now=office.now, ttl_ms=600)
    held = office.lease("dan", "MUTATES FILE:/a", now=office.now, ttl_ms=1_500)
    assert office.ledger.leases[short].expires_at == 2_300 < office.now
    with pytest.raises(RefusedError) as refused:
        office.desk.heartbeat(short, office.now, agent_id="ann", session_id="s")
    assert refused.value.code == "LEASE_NOT_ACTIVE"
    assert office.desk.heartbeat(held, office.now, agent_id="dan", session_id="s").at == office.now


def test_a_heartbeat_behind_a_grant_from_the_queue_is_recorded_after_it() -> None:
    office = SlowOffice()
    held = office.lease("dan", "MUTATES FILE:/a", now=office.now, ttl_ms=1_000)
    kept = office.lease("cleo", "MUTATES FILE:/b", now=office.now, ttl_ms=5_000)
    office.wait("ann", "MUTATES FILE:/a", now=office.now)
    office.now = 2_800  # dan's lease is over, and ann's turn is before the heartbeat
    renewed = office.desk.heartbeat(kept, office.now, agent_id="cleo", session_id="s")
    assert held not in office.ledger.leases
    assert (renewed.at, renewed.expires_at) == (3_500, 8_500)
    assert [event.at for event in office.events] == sorted(event.at for event in office.events)
