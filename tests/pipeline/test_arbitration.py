"""Leases in the pipeline: between judgement and decision, held while executing, given back at sealing (design 7)."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipeline.office import Desk, Post, an_office, holding, office, statuses, verdicts
from tests.pipeline.shop import Bank, house, open_shop, shop
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock
from world.core import ActionContext, Domain
from world.errors import DamagedLogError, RefusedError
from world.events.lease_events import LeasesReleased, VerdictGiven
from world.events.proposal_events import ProposalCompleted, ProposalFailed
from world.events.realm_events import WorldSealed
from world.klis.settings import KlisSettings
from world.klis.wait_die import spread
from world.limits import Limits
from world.read_models.decoding import decoded
from world.state.realm_state import RealmState, apply_event
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.realm import Realm


@pytest.mark.requirement("CARD-replay", "KP-5a", "WP-decision")
def test_a_proposal_is_decided_with_its_leases_and_gives_them_back_when_it_is_sealed(tmp_path: Path) -> None:
    with an_office(str(tmp_path / "w.db"), Post()) as world:
        done = world.act("old", "write", {"text": "x"}, scope=["log"])
        (verdict,) = verdicts(world, done.proposal_id)
        assert [(one.predicate, one.resource) for one in verdict.leases] == [
            ("MUTATES", "STATE:/main/log/*"),
            ("MUTATES", "FILE:/notes/x"),
        ]
        order = [event.TOPIC for event in map(decoded, world.log.read()) if event.at == verdict.at]
        start = order.index("verdict.given")
        assert order[start : start + 2] == ["verdict.given", "decision.made"]
        events = [decoded(logged) for logged in world.log.read()]
        assert any(
            isinstance(event, LeasesReleased) and event.lease_ids == [one.lease_id for one in verdict.leases]
            for event in events
        )
        assert not world.realm().klis.leases


@pytest.mark.requirement("KP-2a", "INT-13.3")
def test_disjoint_scopes_execute_at_once(tmp_path: Path) -> None:
    post = Post("one")
    with an_office(str(tmp_path / "w.db"), post) as world:
        with holding(world, post, "old", "one", scope=["log"]):
            other = world.act("young", "add", {"name": "b", "amount": 2}, scope=["b"])
            assert other.status == "completed"
        assert world.data() == {"log": ["one"], "a": 0, "b": 2}


@pytest.mark.requirement("KP-3a")
def test_an_older_proposal_waits_and_goes_on_by_itself_when_the_way_is_free(tmp_path: Path) -> None:
    post = Post("one")
    with an_office(str(tmp_path / "w.db"), post) as world:
        with holding(world, post, "young", "one"):
            waiting = world.act("old", "add", {"name": "a", "amount": 1})
            assert waiting.status == "evaluating"
            assert world.realm().klis.requests.keys() == {waiting.proposal_id}
        assert world.proposal(waiting.proposal_id).status == "completed"
        assert statuses(world, waiting.proposal_id) == ["Wait", "Granted"]
        assert world.data() == {"log": ["one"], "a": 1, "b": 0}


@pytest.mark.requirement("KP-3a", "KP-3c", "KP-5b")
def test_a_younger_proposal_dies_and_is_tried_again_after_its_backoff(tmp_path: Path) -> None:
    post = Post("one")
    clock = ManualClock(1_000, 1)
    with an_office(str(tmp_path / "w.db"), post, clock=clock) as world:
        with holding(world, post, "old", "one"):
            dying = world.act("young", "add", {"name": "a", "amount": 1})
            assert dying.status == "evaluating"
            (first,) = verdicts(world, dying.proposal_id)
            assert (first.status, first.retry_after_ms) == ("Die", 1_000)
            assert first.conflicts[0].holder == "old"
            again = world.realm().klis.asks_again_at("young", dying.proposal_id)
            assert again == first.at + 1_000 + spread(1_000, dying.proposal_id, 1)
            clock.advance(again - clock.now_ms() - 10)
            world.settle()
            assert statuses(world, dying.proposal_id) == ["Die"]  # not before its time
            clock.advance(10)
            world.settle()
            assert [event.retry_after_ms for event in verdicts(world, dying.proposal_id)] == [1_000, 2_000]
        assert world.proposal(dying.proposal_id).status == "completed"
        assert world.data()["a"] == 1


@pytest.mark.requirement("KP-3a", "WP-decision")
def test_a_proposal_that_dies_too_often_is_rejected_and_says_why(tmp_path: Path) -> None:
    post = Post("one")
    clock = ManualClock(1_000, 1)
    with an_office(str(tmp_path / "w.db"), post, clock=clock, max_proposal_retries=2) as world:
        with holding(world, post, "old", "one"):
            dying = world.act("young", "add", {"name": "a", "amount": 1})
            for _ in range(2):
                assert world.proposal(dying.proposal_id).status == "evaluating"
                clock.advance(60_000)
                world.settle()
            ended = world.proposal(dying.proposal_id)
            assert ended.status == "rejected"
            assert ended.decision is not None
            assert "3 attempts" in ended.decision.reason
        assert world.data()["a"] == 0


@pytest.mark.requirement("WP-exkey")
def test_equal_execution_keys_run_one_after_the_other_though_their_scopes_are_disjoint(tmp_path: Path) -> None:
    post = Post("one")
    with an_office(str(tmp_path / "w.db"), post) as world:
        with holding(world, post, "old", "one", scope=["log"], execution_key="till"):
            queued = world.act("young", "add", {"name": "b", "amount": 2}, scope=["b"], execution_key="till")
            assert queued.status == "approved"
            other = world.act("mid", "add", {"name": "a", "amount": 1}, scope=["a"], execution_key="elsewhere")
            assert other.status == "completed"
        assert world.proposal(queued.proposal_id).status == "completed"


@pytest.mark.requirement("WP-epoch")
def test_a_waiting_proposal_that_is_superseded_leaves_the_queue(tmp_path: Path) -> None:
    post = Post("one")
    with an_office(str(tmp_path / "w.db"), post) as world:
        world.create_branch("other")
        with holding(world, post, "young", "one"):
            waiting = world.act("old", "add", {"name": "a", "amount": 1})
            world.switch_branch("other")
            assert world.proposal(waiting.proposal_id).status == "superseded"
            assert not world.realm().klis.requests
        assert world.data(world.branch("main").head) == {"log": ["one"], "a": 0, "b": 0}


def test_the_active_branch_cannot_become_the_active_one(tmp_path: Path) -> None:
    with an_office(str(tmp_path / "w.db"), Post("one")) as world:
        size = world.log.head().size
        for name in ("main", None):
            with pytest.raises(RefusedError) as refused:
                world.switch_branch(name)  # type: ignore[arg-type]
            assert refused.value.code == "BRANCH_IS_ACTIVE"
        assert world.log.head().size == size


@pytest.mark.requirement("KM-2.2", "KM-2.1")
def test_branches_have_states_of_their_own_but_share_what_is_outside(tmp_path: Path) -> None:
    post = Post("one")
    with an_office(str(tmp_path / "w.db"), post) as world:
        world.create_branch("other")
        with holding(world, post, "old", "one", branch="main"):
            elsewhere = world.act("young", "write", {"text": "two"}, branch="other")
            assert elsewhere.status == "completed"
            same_file = world.act("mid", "write", {"text": "one"}, branch="other")
            assert same_file.status == "evaluating"
            conflict = verdicts(world, same_file.proposal_id)[0].conflicts[0]
            assert (conflict.resource, conflict.holder) == ("FILE:/notes/one", "old")


@pytest.mark.requirement("KM-6.3", "KM-7.2")
@pytest.mark.parametrize(
    ("given_input", "code"),
    [
        ({"text": "../../etc"}, "AMBIGUOUS_RESOURCE"),
        ({"text": "x", "files": ["relative"]}, "AMBIGUOUS_RESOURCE"),
        ({"text": "x", "files": ["/*"]}, "GLOBAL_SCOPE"),
    ],
)
def test_a_proposal_whose_manifest_is_refused_is_rejected_and_holds_nothing(
    tmp_path: Path, given_input: dict[str, Any], code: str
) -> None:
    with an_office(str(tmp_path / "w.db"), Post()) as world:
        ended = world.act("old", "write", given_input)
        assert ended.status == "rejected"
        assert ended.decision is not None
        assert code in ended.decision.reason
        assert not world.realm().klis.leases


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        ({"predicate": "MUTATES"}, "$.actions.x.manifest"),
        ([{"predicate": "WRITES", "resource": "FILE:/a"}], "$.actions.x.manifest[0].predicate"),
        ([{"predicate": "MUTATES", "resource": "FILE:/{a"}], "$.actions.x.manifest[0].resource"),
        ([{"predicate": "MUTATES", "resource": "FILE:/{nowhere}"}], "$.actions.x.manifest[0].resource"),
        ([{"predicate": "MUTATES", "resource": "FILE:/{$item}"}], "$.actions.x.manifest[0].resource"),
        ([{"predicate": "MUTATES", "resource": "FILE:/a", "to": "FILE:/b"}], "$.actions.x.manifest[0].to"),
        ([{"predicate": "MUTATES", "resource": "FILE:/a", "why": 1}], "$.actions.x.manifest[0].why"),
        (["FILE:/a"], "$.actions.x.manifest[0]"),
    ],
)
def test_a_faulty_manifest_of_an_action_is_found_when_the_domain_is_loaded(manifest: Any, path: str) -> None:
    domain = Domain("urn:test:faulty", version="1.0.0", state=Desk)

    @domain.action("x", version="1", manifest=manifest)
    def x(ctx: ActionContext) -> Any:
        return []

    with pytest.raises(RefusedError) as refused:
        _ = domain.schema
    assert path in [fault["path"] for fault in refused.value.details["faults"]]


def test_an_approval_without_leases_is_a_damaged_log(tmp_path: Path) -> None:
    with an_office(str(tmp_path / "w.db"), Post()) as world:
        events = [(logged.position, decoded(logged)) for logged in world.log.read()]
    realm = RealmState()

    def replay_without_verdicts() -> None:
        for position, event in events:
            if not isinstance(event, VerdictGiven):
                apply_event(realm, event, position)

    with pytest.raises(DamagedLogError) as damaged:
        replay_without_verdicts()
    assert damaged.value.code == "APPROVED_WITHOUT_LEASES"


@pytest.mark.requirement("CARD-replay")
def test_a_recheck_makes_the_manifests_of_proposals_again(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with an_office(address, Post()) as world:
        for text in ("x", "y"):
            world.act("old", "write", {"text": text, "files": ["/a"]}, scope=["log"])
    with open_to_recheck(address, domain=office) as looked:
        done = recheck(looked)
    assert done.ok, done.to_wire()
    assert done.steps["verdicts"] == 5
    spec = office.schema.actions["write"]
    narrower = replace(spec, touches=spec.touches[:1])
    actions = {**office.schema.actions, "write": narrower}
    with pytest.MonkeyPatch.context() as patched, open_to_recheck(address, domain=office) as looked:
        assert looked.parts is not None
        patched.setattr(looked.parts.domain, "schema", replace(office.schema, actions=actions))
        done = recheck(looked)
    (found,) = [one.difference for one in done.divergences if not one.is_drift][:1]
    assert found.code == "VERDICT_DIFFERS"
    assert found.details["differences"][0]["at"] == "manifest"


def test_nobody_else_can_use_or_give_back_what_a_proposal_holds(tmp_path: Path) -> None:
    post = Post("one")
    with an_office(str(tmp_path / "w.db"), post) as world, holding(world, post, "old", "one"):
        (lease, *_) = world.realm().klis.leases.values()
        session = lease.session.session_id
        with pytest.raises(RefusedError) as released:
            world.leases.desk.release([lease.lease_id], agent_id="old", session_id=session)
        with pytest.raises(RefusedError) as joined:
            world.leases.acquire(agent="old", session=session, resource="FILE:/notes/one", timeout=0)
        assert (released.value.code, joined.value.code) == ("PROPOSAL_HOLDS", "PROPOSAL_HOLDS")
        assert lease.lease_id in world.realm().klis.leases


@pytest.mark.requirement("CARD-replay")
def test_waiting_and_dying_proposals_go_on_after_the_realm_was_opened_again(tmp_path: Path) -> None:
    bank = Bank()
    bank.release.clear()
    address = str(tmp_path / "w.db")
    clock = ManualClock(1_000, 1)
    with open_shop(address, effects=[bank.handler()], clock=clock) as world:
        worker = threading.Thread(target=lambda: world.act("ann", "charge", {"amount": 1}))
        worker.start()
        assert bank.started.wait(PATIENCE_S)
        dying = world.act("cron", "sell", {"item": "tea"})
        assert dying.status == "evaluating"
        before = world.realm()
        due = before.klis.asks_again_at("cron", dying.proposal_id)
        assert before.next_due() == due > clock.now_ms()
        with Realm.open(address, domain=shop, policies=[house], clock=clock) as again:
            after = again.realm()
            assert after.next_due() == due
            assert after.klis == before.klis
        bank.release.set()
        worker.join(PATIENCE_S)
        clock.advance(60_000)
        world.settle()
        assert world.proposal(dying.proposal_id).status == "completed"


@pytest.mark.requirement("KP-3d", "WP-exec", "INT-13.3")
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans=st.lists(st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=5), min_size=2, max_size=5))
def test_no_update_is_lost_whatever_runs_at_once(
    tmp_path_factory: pytest.TempPathFactory, plans: list[list[str]]
) -> None:
    """Threads add to two counters, with narrow scopes and none; the log names a serial order that gives the end."""
    folder = tmp_path_factory.mktemp("race")
    quick = Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=8, max_proposal_retries=10_000))
    with Realm.create(str(folder / "w.db"), domain=office, effects=[Post().handler()], limits=quick) as world:
        ended = threading.Semaphore(0)

        def listen(position: int, event: Any, schedule: Any) -> None:
            if isinstance(event, ProposalCompleted | ProposalFailed):
                ended.release()

        world.subscribe(listen)

        def run(actor: str, plan: list[str]) -> None:
            for step, name in enumerate(plan):
                scope = None if name == "*" else [name]
                target = "a" if name == "*" else name
                world.act(actor, "add", {"name": target, "amount": 10**step}, scope=scope)

        for index in range(len(plans)):
            world.register(f"agent-{index}", "agent", binding={"kind": "auto_approve"})
        threads = [threading.Thread(target=run, args=(f"agent-{at}", plan)) for at, plan in enumerate(plans)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        for _ in range(sum(map(len, plans))):
            assert ended.acquire(timeout=PATIENCE_S)
        assert {name: world.data()[name] for name in ("a", "b")} == sums(plans) == in_serial(world)
        assert not world.realm().klis.leases


def sums(plans: list[list[str]]) -> dict[str, int]:
    """Return what the counters come to when no update is lost."""
    expected = {"a": 0, "b": 0}
    for plan in plans:
        for step, name in enumerate(plan):
            expected["a" if name == "*" else name] += 10**step
    return expected


def in_serial(world: Realm) -> dict[str, int]:
    """Do the additions one after the other in the order of the worlds, comparing each with what was sealed."""
    serial = {"a": 0, "b": 0}
    for logged in world.log.read():
        event = decoded(logged)
        if isinstance(event, WorldSealed) and event.created_by is not None:
            body = world.proposal(event.created_by).submitted.intent.body.input
            serial[body["name"]] += body["amount"]
            (patch,) = event.patches
            assert patch.value == serial[body["name"]]
    return serial
