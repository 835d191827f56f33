"""What goes wrong around leases in the pipeline hits nobody else, and nothing is left behind (design section 7)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from authority import Approve, Policy, rule
from tests.pipeline.office import Desk, Post, an_office, holding, office, verdicts
from tests.support.engines import engine_of
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.clock import ManualClock
from world.core import ActionContext, Domain, effect
from world.errors import RefusedError
from world.events.lease_events import LeasesExpired
from world.events.proposal_events import ProposalCompleted
from world.klis.resources.resource_types import STANDARD, ResourceType
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.read_models.decoding import decoded
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.realm import Realm


@pytest.mark.requirement("WP-epoch", "KP-4a")
def test_who_was_let_in_by_one_superseded_and_is_superseded_itself_holds_nothing(tmp_path: Path) -> None:
    with an_office(str(tmp_path / "w.db"), Post()) as world:
        world.register("boss", "human", binding={"kind": "auto_approve"})
        world.bind("old", {"kind": "hitl", "ask": ["boss"]})
        on_log = world.leases.acquire(agent="young", resource="STATE:/main/log/*", timeout=0)
        on_b = world.leases.acquire(agent="young", resource="STATE:/main/b/*", timeout=0)
        first = world.act("old", "add", {"name": "a", "amount": 1}, scope=["a", "b"])
        second = world.act("mid", "add", {"name": "a", "amount": 1}, scope=["a", "log"])
        world.decide(first.proposal_id, "approve", by="boss")
        assert world.realm().klis.requests.keys() == {first.proposal_id, second.proposal_id}
        on_log.release()  # the second waits for the first alone now
        world.create_branch("other")
        world.switch_branch("other")
        assert [world.proposal(one.proposal_id).status for one in (first, second)] == ["superseded", "superseded"]
        assert {lease.lease_id for lease in world.realm().klis.leases.values()} == set(on_b.lease_ids)


def test_a_request_cannot_take_the_place_of_a_proposal(tmp_path: Path) -> None:
    with an_office(str(tmp_path / "w.db"), Post()) as world:
        world.register("boss", "human", binding={"kind": "auto_approve"})
        world.bind("old", {"kind": "hitl", "ask": ["boss"]})
        asked = world.act("old", "add", {"name": "a", "amount": 1})
        manifest = {
            "ver": "1.0",
            "session_id": "s",
            "agent_id": "mid",
            "scope": [{"predicate": "MUTATES", "resource": "FILE:/a"}],
        }
        with pytest.raises(RefusedError) as refused:
            world.leases.desk.request(manifest, by="mid", queue=True, request_id=asked.proposal_id)
        assert refused.value.code == "PROPOSAL_HOLDS"
        assert world.proposal(asked.proposal_id).status == "evaluating"


@pytest.mark.requirement("INT-13.3")
def test_who_may_write_nothing_needs_no_leases(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with an_office(address, Post()) as world:
        nothing = world.act("old", "add", {"name": "a", "amount": 1}, scope=[])
        assert nothing.status == "failed"  # it wrote outside of nothing at all
        assert verdicts(world, nothing.proposal_id) == []
    with Realm.open_read_only(address) as looked:
        assert verify(looked.log).ok


def test_leases_that_end_together_are_told_in_events_of_a_bounded_size(tmp_path: Path) -> None:
    clock = ManualClock(1_000, 1)
    with an_office(str(tmp_path / "w.db"), Post(), clock=clock) as world:
        many = [f"FILE:/{number}" for number in range(2_500)]
        world.leases.acquire(agent="old", resources=many, ttl_ms=1, timeout=0)
        clock.advance(10)
        world.settle()
        ends = [event for event in map(decoded, world.log.read()) if isinstance(event, LeasesExpired)]
        assert [len(event.lease_ids) for event in ends] == [1_000, 1_000, 500]
        assert not world.realm().klis.leases


@pytest.mark.requirement("WP-exec", "HC-journal")
def test_a_living_process_takes_over_what_a_vanished_one_left_without_being_told(tmp_path: Path) -> None:
    clock, address = ManualClock(1_000, 1), str(tmp_path / "w.db")
    post = Post("one")
    with an_office(address, post, clock=clock) as world:
        worker = threading.Thread(target=lambda: world.act("young", "write", {"text": "one"}))
        worker.start()
        assert post.arrived["one"].wait(PATIENCE_S)
        free = Post()
        with Realm.open(address, domain=office, effects=[free.handler()], clock=clock) as other:
            waiting = other.act("old", "add", {"name": "a", "amount": 1})
            assert waiting.status == "evaluating"
            clock.advance(6_000_000)  # the effect's time limit, and the grace after it
            other.register("ann", "human")  # any command looks after it
            (stuck,) = other.host.stuck()
            assert other.proposal(waiting.proposal_id).status == "evaluating"  # nobody knows, so nobody else may
            other.host.resolve(stuck["proposalId"], "fail", by="ann", reason="the post office has no list")
            assert other.proposal(waiting.proposal_id).status == "completed"
        post.may_go["one"].set()
        worker.join(PATIENCE_S)


@pytest.mark.requirement("KP-4b")
def test_whoever_gives_back_leases_is_not_kept_by_the_effects_that_others_make_then(tmp_path: Path) -> None:
    post = Post("one")
    quick = Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=8))
    with Realm.create(str(tmp_path / "w.db"), domain=office, effects=[post.handler()], limits=quick) as world:
        for name in ("old", "young"):
            world.register(name, "agent", binding={"kind": "auto_approve"})
            world.act(name, "add", {"name": "a", "amount": 0})
        held = world.leases.acquire(agent="young", resource="FILE:/notes/one", timeout=0)
        waiting = world.act("old", "write", {"text": "one"})
        assert waiting.status == "evaluating"
        held.release()  # returns, though the letter that goes out now is held back
        assert post.arrived["one"].wait(PATIENCE_S)
        assert world.proposal(waiting.proposal_id).status == "executing"
        done = threading.Event()
        world.subscribe(lambda _at, event, _do: done.set() if isinstance(event, ProposalCompleted) else None)
        post.may_go["one"].set()
        assert done.wait(PATIENCE_S)
        assert world.proposal(waiting.proposal_id).status == "completed"


@pytest.mark.parametrize("by", [None, 5])
@pytest.mark.requirement("CARD-log")
def test_what_could_not_be_read_again_is_not_recorded(tmp_path: Path, by: Any) -> None:
    address = str(tmp_path / "w.db")
    with an_office(address, Post()) as world:
        size = world.log.head().size
        for wrong in (
            lambda: world.register("x", "agent", by=by),
            lambda: world.create_branch("b", by=by),
            lambda: world.leases.desk.register_agent("x", by=by),
            lambda: world.act("old", "add", {"name": "a", "amount": 1}, execution_key=5),  # type: ignore[arg-type]
        ):
            with pytest.raises(RefusedError) as refused:
                wrong()
            assert refused.value.code == "INVALID_VALUE"
        assert world.log.head().size == size
    with Realm.open_read_only(address) as looked:
        assert verify(looked.log).ok


@pytest.mark.requirement("CARD-policy")
def test_rules_read_what_an_action_declares_to_touch(tmp_path: Path) -> None:
    seen: list[Any] = []

    @rule
    def look(case: Any) -> Any:
        seen.append(case.manifest)
        return Approve("seen")

    with Realm.create(
        str(tmp_path / "w.db"), domain=office, policies=[Policy("look", [look])], effects=[Post().handler()]
    ) as world:
        world.register("old", "agent", binding={"kind": "policy_rules", "policy": "look"})
        world.act("old", "write", {"text": "x"})
        world.act("old", "add", {"name": "a", "amount": 1})
    assert seen == [{"scope": [{"predicate": "MUTATES", "resource": "FILE:/notes/x"}]}, None]


@pytest.mark.requirement("KM-2.2", "KP-4b")
def test_a_proposal_whose_leases_are_revoked_fails_and_only_an_administrator_can_do_that(tmp_path: Path) -> None:
    post, address = Post("one"), str(tmp_path / "w.db")
    with an_office(address, post) as world:
        worker = threading.Thread(target=lambda: world.act("old", "write", {"text": "one"}, scope=["log"]))
        worker.start()
        assert post.arrived["one"].wait(PATIENCE_S)
        (first, *_) = world.realm().klis.leases.values()
        with pytest.raises(RefusedError) as refused:
            world.leases.desk.revoke([first.lease_id], by="young", reason="mine")
        assert refused.value.code == "NOT_AN_ADMINISTRATOR"
        states = world.leases.desk.revoke([first.lease_id], by="operator", reason="runaway")
        assert len(states) == 2  # a proposal has all that it needs, or fails
        assert world.act("mid", "write", {"text": "one more"}, scope=["log"]).status == "completed"
        post.may_go["one"].set()
        worker.join(PATIENCE_S)
        ended = world.proposal(first.session.session_id)
        assert ended.error is not None
        assert (ended.status, ended.error.code) == ("failed", "LEASES_REVOKED")
        assert world.data()["log"] == ["one more"]
    with open_to_recheck(address, domain=office) as looked:
        done = recheck(looked)
        assert verify(looked.log).ok
    assert (done.ok, done.steps["notRepeatable"]) == (True, 1)


@pytest.mark.requirement("WP-decision")
def test_a_full_queue_holds_up_but_does_not_reject(tmp_path: Path) -> None:
    clock, post = ManualClock(1_000, 1), Post("one")
    with an_office(str(tmp_path / "w.db"), post, clock=clock, max_waiting=1) as world:
        held = world.leases.acquire(agent="young", resource="FILE:/x", timeout=0)
        manifest = {
            "ver": "1.0",
            "session_id": "s",
            "agent_id": "old",
            "scope": [{"predicate": "MUTATES", "resource": "FILE:/x"}],
        }
        assert world.leases.desk.request(manifest, by="old", queue=True).queued
        assert world.act("mid", "add", {"name": "a", "amount": 1}).status == "completed"  # nobody is in its way
        with holding(world, post, "young", "one"):
            waiting = world.act("mid", "add", {"name": "a", "amount": 1})
            assert waiting.status == "evaluating"
            assert [(one.status, one.queued) for one in verdicts(world, waiting.proposal_id)] == [("Wait", False)]
        assert world.proposal(waiting.proposal_id).status == "completed"
        held.release()
        assert [one.cause for one in verdicts(world, waiting.proposal_id)] == ["request", "wake"]


def test_an_action_that_raises_a_keyboard_interrupt_hits_nobody_else(tmp_path: Path) -> None:
    rude = Domain("urn:test:rude", version="1.0.0", state=Desk)

    @rude.action("go", version="1")
    def go(ctx: ActionContext) -> Any:
        yield effect("post", text="x")
        raise KeyboardInterrupt

    with Realm.create(str(tmp_path / "w.db"), domain=rude, effects=[Post().handler()]) as world:
        world.register("old", "agent", binding={"kind": "auto_approve"})
        ended: list[Any] = []
        worker = threading.Thread(target=lambda: ended.append(world.act("old", "go")))
        worker.start()
        worker.join(PATIENCE_S)
        assert (ended[0].status, ended[0].error.code) == ("failed", "ACTION_RAISED")


@pytest.mark.requirement("KP-2a")
def test_what_goes_on_by_itself_goes_on_at_once_where_it_is_disjoint(tmp_path: Path) -> None:
    post = Post("1", "2", "3")
    quick = Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=8))
    with Realm.create(str(tmp_path / "w.db"), domain=office, effects=[post.handler()], limits=quick) as world:
        for name in ("old", "young"):
            world.register(name, "agent", binding={"kind": "auto_approve"})
            world.act(name, "add", {"name": "a", "amount": 0})
        held = world.leases.acquire(agent="young", resource="STATE:/main/*", timeout=0)
        for text, scope in (("1", "a"), ("2", "b")):
            assert world.act("old", "add", {"name": scope, "amount": int(text)}, scope=[scope]).status == "evaluating"
        held.release()
        assert post.arrived["1"].wait(PATIENCE_S)
        assert post.arrived["2"].wait(PATIENCE_S)  # though the first is still held back
        for event in post.may_go.values():
            event.set()


def test_a_type_with_a_canonical_form_of_its_own_counts_for_direct_requests_too(tmp_path: Path) -> None:
    table = ResourceType("TABLE", "opaque", canonical=str.lower)
    with an_office(str(tmp_path / "w.db"), Post()) as world:
        engine_of(world)._types = STANDARD.with_types(table)
        world.leases.acquire(agent="old", resource="TABLE:users", timeout=0)
        with pytest.raises(RefusedError) as refused:
            world.leases.acquire(agent="mid", resource="TABLE:Users", timeout=0)
        assert refused.value.code == "AMBIGUOUS_RESOURCE"
        address = str(tmp_path / "w.db")
    with Realm.open_read_only(address) as looked:  # without the plug-in
        assert [one.triple.resource.text for one in looked.realm().klis.leases.values()] == ["TABLE:users"]
        assert verify(looked.log).ok
