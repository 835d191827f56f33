"""Died proposals in the pipeline: what frees what they died of continues them, in the same pass and in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

import world.pipeline.unit_of_work
from tests.pipeline.office import Post, an_office, hold_state, holding, office, statuses, verdicts
from tests.support.engines import engine_of
from world.audit.verify import verify
from world.clock import ManualClock
from world.events.lease_events import RequestWithdrawn
from world.events.proposal_events import ProposalCompleted
from world.klis.ledger_codec import ledger_to_wire
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.read_models.decoding import decoded
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.requirement("LIVE-wake")

ADD = {"name": "a", "amount": 1}


def completed(world: Realm) -> list[str]:
    """Return the proposals that completed, in the order of the log."""
    events = [decoded(logged) for logged in world.log.read()]
    return [event.proposal_id for event in events if isinstance(event, ProposalCompleted)]


def check(address: str) -> None:
    """Verify a log and perform its steps again."""
    with open_to_recheck(address, domain=office) as looked:
        assert verify(looked.log).ok
        done = recheck(looked)
    assert done.ok, done.to_wire()


def test_eight_behind_one_end_when_it_ends_in_the_order_of_their_age(tmp_path: Path) -> None:
    address, post, clock = str(tmp_path / "w.db"), Post("one"), ManualClock(1_000, 1)
    with an_office(address, post, clock=clock) as world:
        with holding(world, post, "old", "one"):
            young = [world.act("young", "add", ADD).proposal_id for _ in range(6)]
            mid = [world.act("mid", "add", ADD).proposal_id for _ in range(2)]
            assert {world.proposal(name).status for name in young + mid} == {"evaluating"}
            before = clock.now_ms()
        assert completed(world)[-8:] == mid + young
        assert world.data()["a"] == 8
        for name in mid + young:
            first, last = verdicts(world, name)
            assert (first.status, first.cause, last.status, last.cause) == ("Die", "request", "Granted", "wake")
            assert last.at - before < 500
    check(address)


def test_a_direct_request_that_is_not_queued_leaves_no_timer(tmp_path: Path) -> None:
    with an_office(str(tmp_path / "w.db"), Post(), clock=ManualClock(1_000, 1)) as world:
        for actor, status in (("young", "Granted"), ("old", "Wait")):
            scope = [{"predicate": "MUTATES", "resource": "FILE:/a"}]
            manifest = {"ver": "1.0", "agent_id": actor, "session_id": actor, "scope": scope}
            assert world.leases.desk.request(manifest, by=actor).status == status
        state = engine_of(world)._live._state
        assert state is not None
        assert not state.room_retries


def test_the_index_is_that_of_the_log_in_every_process_that_opens_it(tmp_path: Path) -> None:
    address, clock = str(tmp_path / "w.db"), ManualClock(1_000, 1)
    with an_office(address, Post(), clock=clock) as realm:
        lease = hold_state(realm)
        dying = realm.act("young", "add", ADD).proposal_id
        live = ledger_to_wire(realm.realm().klis)
        assert [row[0] for row in live["refused"]] == [dying]
    with Realm.open(address, domain=office, effects=[Post().handler()], clock=clock) as again:
        views = again.realm(), again.archive.fold_realm(), again.archive.load_realm()
        assert [ledger_to_wire(view.klis) for view in views] == [live] * 3
        again.leases.desk.release([lease], agent_id="old", session_id="s")
        assert (again.proposal(dying).status, verdicts(again, dying)[-1].cause) == ("completed", "wake")
    check(address)


@pytest.mark.requirement("WP-decision")
def test_a_proposal_that_ends_without_its_leases_leaves_those_that_are_woken(tmp_path: Path) -> None:
    address, post = str(tmp_path / "w.db"), Post("one")
    with an_office(address, post) as world:
        with holding(world, post, "old", "one"):
            left, dying = (world.act("young", "add", ADD).proposal_id for _ in range(2))
            world.host.cancel(left, by="young", reason="for the test")
            assert list(world.realm().klis.refused) == [dying]
        assert [world.proposal(name).status for name in (left, dying)] == ["superseded", "completed"]
        gone = [event for event in map(decoded, world.log.read()) if isinstance(event, RequestWithdrawn)]
        assert [(event.request_id, event.reason) for event in gone] == [(left, "superseded")]
        assert not world.realm().klis.refused
    check(address)


def test_more_than_a_unit_wakes_are_woken_by_units_that_follow_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.pipeline.unit_of_work, "WOKEN_AT_ONCE", 2)
    address, post, clock = str(tmp_path / "w.db"), Post("one"), ManualClock(1_000, 1)
    with an_office(address, post, clock=clock) as realm:
        lease = hold_state(realm)
        names = [realm.act("young", "add", {"name": "a", "amount": 1}, scope=["a"]).proposal_id for _ in range(7)]
        realm.leases.desk.release([lease], agent_id="old", session_id="s")
        assert completed(realm)[-7:] == names
        woken = [verdicts(realm, name)[-1] for name in names]
        assert {verdict.cause for verdict in woken} == {"wake"}
    check(address)


def test_a_realm_of_before_is_continued_by_its_timers_until_it_is_configured_again(tmp_path: Path) -> None:
    address, clock = str(tmp_path / "w.db"), ManualClock(1_000, 1)
    before = KlisSettings.recorded(KlisSettings().to_wire() | {"wake_rules": 1})
    post = Post("one", "two")
    with Realm.create(
        address, domain=office, effects=[post.handler()], clock=clock, limits=Limits(klis=before)
    ) as world:
        for name in ("old", "young"):
            world.register(name, "agent", binding={"kind": "auto_approve"})
            world.act(name, "add", {"name": "a", "amount": 0})
        with holding(world, post, "old", "one"):
            dying = world.act("young", "add", ADD).proposal_id
        assert statuses(world, dying) == ["Die"]
        clock.advance(1_000)
        world.settle()
        assert [(one.status, one.cause) for one in verdicts(world, dying)] == [
            ("Die", "request"),
            ("Granted", "request"),
        ]
    with Realm.open(address, domain=office, effects=[post.handler()], clock=clock) as world:
        assert world.leases.desk.configure(by="operator")
        with holding(world, post, "old", "two"):
            dying = world.act("young", "add", ADD).proposal_id
        assert verdicts(world, dying)[-1].cause == "wake"
    check(address)
