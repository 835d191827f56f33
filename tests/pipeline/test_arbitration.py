"""Leases in the pipeline: between judgement and decision, held while executing, given back at sealing (design 7)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from authority import Approve, Policy, rule
from host import handler
from tests.pipeline.shop import Bank, house, open_shop, shop
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from world.errors import DamagedLog, Refused
from world.events import LeasesExpired, LeasesReleased, ProposalCompleted, ProposalFailed, VerdictGiven, WorldSealed
from world.klis.resource import STANDARD, ResourceType
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.realm import Realm, fold
from world.verify import verify
from world.views.archive import decoded
from worldprotocol.facade import World
from worldprotocol.recheck import open_to_recheck, recheck


class Desk(BaseModel):
    log: list[str] = []
    a: int = 0
    b: int = 0


class Note(BaseModel):
    text: str
    files: list[str] = []


class Add(BaseModel):
    name: str
    amount: int


office = Domain("urn:test:office", version="1.0.0", state=Desk)


@office.action(
    "write",
    version="1",
    manifest=[
        {"predicate": "MUTATES", "resource": "FILE:/notes/{input.text}"},
        {"predicate": "CONSUMES", "resource": "FILE:{$item}", "each": {"kind": "get", "path": "input.files"}},
    ],
)
def write(ctx: ActionContext, input: Note) -> Any:  # noqa: A002
    yield effect("post", text=input.text)
    return [set_("log", [*ctx.data["log"], input.text])]


@office.action("add", version="1")
def add(ctx: ActionContext, input: Add) -> Any:  # noqa: A002
    seen = ctx.data[input.name]
    yield effect("post", text=str(input.amount))
    return [set_(input.name, seen + input.amount)]


class Post:
    """A post office that holds letters back until it is told to let them go."""

    def __init__(self, *held: str) -> None:
        self.arrived = {text: threading.Event() for text in held}
        self.may_go = {text: threading.Event() for text in held}

    def handler(self) -> Any:
        @handler("post", time_limit_ms=60_000)
        def post(params: Any, call: Any) -> Any:
            text = params["text"]
            if text in self.arrived:
                self.arrived[text].set()
                assert self.may_go[text].wait(30)
            return {}

        return post


@contextmanager
def an_office(address: str, post: Post, *, clock: ManualClock | None = None, **klis: Any) -> Iterator[World]:
    world = World.create(
        address,
        domain=office,
        effects=[post.handler()],
        clock=clock or ManualClock(1_000, 1),
        ids=SequentialIds(),
        limits=Limits(klis=KlisSettings.read(klis)),
    )
    with world:
        for name in ("old", "mid", "young"):
            world.register(name, "agent", binding={"kind": "auto_approve"})
            world.act(name, "add", {"name": "a", "amount": 0})  # its first manifest gives it its priority
        yield world


@contextmanager
def holding(world: World, post: Post, actor: str, text: str, **wishes: Any) -> Iterator[None]:
    """Let an actor hold its leases, in a thread of its own, until the block is left."""
    done: list[Any] = []
    worker = threading.Thread(target=lambda: done.append(world.act(actor, "write", {"text": text}, **wishes)))
    worker.start()
    try:
        assert post.arrived[text].wait(20)
        yield
    finally:
        post.may_go[text].set()
        worker.join(30)
    assert done[0].status == "completed"


def verdicts(world: World, proposal_id: str) -> list[VerdictGiven]:
    events = [decoded(logged) for logged in world.log.read()]
    return [event for event in events if isinstance(event, VerdictGiven) and event.request_id == proposal_id]


def statuses(world: World, proposal_id: str) -> list[str]:
    return [event.status for event in verdicts(world, proposal_id)]


@pytest.mark.requirement("CARD-replay", "KP-5a", "WP-decision")
def test_a_proposal_is_decided_with_its_leases_and_gives_them_back_when_it_is_sealed(tmp_path: Path) -> None:
    with an_office(str(tmp_path / "w.db"), Post()) as world:
        done = world.act("old", "write", {"text": "x"}, scope=["log"])
        (verdict,) = verdicts(world, done.proposal_id)
        assert [(one["predicate"], one["resource"]) for one in verdict.leases] == [
            ("MUTATES", "STATE:/main/log/*"),
            ("MUTATES", "FILE:/notes/x"),
        ]
        order = [event.TOPIC for event in map(decoded, world.log.read()) if event.at == verdict.at]
        start = order.index("verdict.given")
        assert order[start : start + 2] == ["verdict.given", "decision.made"]
        events = [decoded(logged) for logged in world.log.read()]
        assert any(
            isinstance(event, LeasesReleased) and event.lease_ids == [one["leaseId"] for one in verdict.leases]
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
            assert first.conflicts[0]["holder"] == "old"
            world.settle()
            assert statuses(world, dying.proposal_id) == ["Die"]  # not before its time
            clock.advance(1_000)
            world.settle()
            assert [event.retry_after_ms for event in verdicts(world, dying.proposal_id)] == [1_000, 2_000]
        clock.advance(2_000)
        world.settle()
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
            assert ended.decision_record is not None
            assert "3 attempts" in ended.decision_record.reason
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
            assert (conflict["resource"], conflict["holder"]) == ("FILE:/notes/one", "old")


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
        assert ended.decision_record is not None
        assert code in ended.decision_record.reason
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

    with pytest.raises(Refused) as refused:
        _ = domain.schema
    assert path in [fault["path"] for fault in refused.value.details["faults"]]


def test_an_approval_without_leases_is_a_damaged_log(tmp_path: Path) -> None:
    with an_office(str(tmp_path / "w.db"), Post()) as world:
        events = [(logged.position, decoded(logged)) for logged in world.log.read()]
    realm = Realm()

    def replay_without_verdicts() -> None:
        for position, event in events:
            if not isinstance(event, VerdictGiven):
                fold(realm, event, position)

    with pytest.raises(DamagedLog) as damaged:
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
        patched.setattr(office, "_schema", replace(office.schema, actions=actions))
        done = recheck(looked)
    (found,) = [one.difference for one in done.divergences if not one.is_drift][:1]
    assert found.code == "VERDICT_DIFFERS"
    assert found.details["differences"][0]["at"] == "manifest"


def test_nobody_else_can_use_or_give_back_what_a_proposal_holds(tmp_path: Path) -> None:
    post = Post("one")
    with an_office(str(tmp_path / "w.db"), post) as world, holding(world, post, "old", "one"):
        (lease, *_) = world.realm().klis.leases.values()
        session = lease.session.session_id
        with pytest.raises(Refused) as released:
            world.leases.desk.release([lease.lease_id], agent_id="old", session_id=session)
        with pytest.raises(Refused) as joined:
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
        assert bank.started.wait(20)
        dying = world.act("cron", "sell", {"item": "tea"})
        assert dying.status == "evaluating"
        before = world.realm()
        assert before.next_due() == before.retries[0][0]
        with World.open(address, domain=shop, policies=[house], clock=clock) as again:
            after = again.realm()
            assert after.retries == before.retries
            assert after.klis == before.klis
        bank.release.set()
        worker.join(30)
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
    with World.create(str(folder / "w.db"), domain=office, effects=[Post().handler()], limits=quick) as world:
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
            thread.join(60)
        for _ in range(sum(map(len, plans))):
            assert ended.acquire(timeout=60)
        assert {name: world.data()[name] for name in ("a", "b")} == sums(plans) == in_serial(world)
        assert not world.realm().klis.leases


def sums(plans: list[list[str]]) -> dict[str, int]:
    """Return what the counters come to when no update is lost."""
    expected = {"a": 0, "b": 0}
    for plan in plans:
        for step, name in enumerate(plan):
            expected["a" if name == "*" else name] += 10**step
    return expected


def in_serial(world: World) -> dict[str, int]:
    """Do the additions one after the other in the order of the worlds, comparing each with what was sealed."""
    serial = {"a": 0, "b": 0}
    for logged in world.log.read():
        event = decoded(logged)
        if isinstance(event, WorldSealed) and event.created_by is not None:
            body = world.proposal(event.created_by).submitted.intent["body"]["input"]
            serial[body["name"]] += body["amount"]
            (patch,) = event.patches
            assert patch["value"] == serial[body["name"]]
    return serial


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
        with pytest.raises(Refused) as refused:
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
    with World.look(address) as looked:
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
        assert post.arrived["one"].wait(20)
        free = Post()
        with World.open(address, domain=office, effects=[free.handler()], clock=clock) as other:
            waiting = other.act("old", "add", {"name": "a", "amount": 1})
            assert waiting.status == "evaluating"
            clock.advance(600_000)  # the effect's time limit, and the grace after it
            other.register("somebody", "agent")  # any command looks after it
            assert other.proposal(waiting.proposal_id).status == "completed"
        post.may_go["one"].set()
        worker.join(30)


@pytest.mark.requirement("KP-4b")
def test_whoever_gives_back_leases_is_not_kept_by_the_effects_that_others_make_then(tmp_path: Path) -> None:
    post = Post("one")
    quick = Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=8))
    with World.create(str(tmp_path / "w.db"), domain=office, effects=[post.handler()], limits=quick) as world:
        for name in ("old", "young"):
            world.register(name, "agent", binding={"kind": "auto_approve"})
            world.act(name, "add", {"name": "a", "amount": 0})
        held = world.leases.acquire(agent="young", resource="FILE:/notes/one", timeout=0)
        waiting = world.act("old", "write", {"text": "one"})
        assert waiting.status == "evaluating"
        held.release()  # returns, though the letter that goes out now is held back
        assert post.arrived["one"].wait(20)
        assert world.proposal(waiting.proposal_id).status == "executing"
        done = threading.Event()
        world.subscribe(lambda _at, event, _do: done.set() if isinstance(event, ProposalCompleted) else None)
        post.may_go["one"].set()
        assert done.wait(20)
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
            lambda: world.act("old", "add", {"name": "a", "amount": 1}, execution_key=5),
        ):
            with pytest.raises(Refused) as refused:
                wrong()
            assert refused.value.code == "INVALID_VALUE"
        assert world.log.head().size == size
    with World.look(address) as looked:
        assert verify(looked.log).ok


def test_rules_read_what_an_action_declares_to_touch(tmp_path: Path) -> None:
    seen: list[Any] = []

    @rule
    def look(case: Any) -> Any:
        seen.append(case.manifest)
        return Approve("seen")

    with World.create(
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
        assert post.arrived["one"].wait(20)
        (first, *_) = world.realm().klis.leases.values()
        with pytest.raises(Refused) as refused:
            world.leases.desk.revoke([first.lease_id], by="young", reason="mine")
        assert refused.value.code == "NOT_AN_ADMINISTRATOR"
        states = world.leases.desk.revoke([first.lease_id], by="operator", reason="runaway")
        assert len(states) == 2  # a proposal has all that it needs, or fails
        assert world.act("mid", "write", {"text": "one more"}, scope=["log"]).status == "completed"
        post.may_go["one"].set()
        worker.join(30)
        ended = world.proposal(first.session.session_id)
        assert ended.error is not None
        assert (ended.status, ended.error["code"]) == ("failed", "LEASES_REVOKED")
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
        held.release()
        clock.advance(60_000)
        world.settle()
        assert world.proposal(waiting.proposal_id).status == "completed"


def test_an_action_that_raises_a_keyboard_interrupt_hits_nobody_else(tmp_path: Path) -> None:
    rude = Domain("urn:test:rude", version="1.0.0", state=Desk)

    @rude.action("go", version="1")
    def go(ctx: ActionContext) -> Any:
        yield effect("post", text="x")
        raise KeyboardInterrupt

    with World.create(str(tmp_path / "w.db"), domain=rude, effects=[Post().handler()]) as world:
        world.register("old", "agent", binding={"kind": "auto_approve"})
        ended: list[Any] = []
        worker = threading.Thread(target=lambda: ended.append(world.act("old", "go")))
        worker.start()
        worker.join(30)
        assert (ended[0].status, ended[0].error["code"]) == ("failed", "ACTION_RAISED")


@pytest.mark.requirement("KP-2a")
def test_what_goes_on_by_itself_goes_on_at_once_where_it_is_disjoint(tmp_path: Path) -> None:
    post = Post("1", "2", "3")
    quick = Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=8))
    with World.create(str(tmp_path / "w.db"), domain=office, effects=[post.handler()], limits=quick) as world:
        for name in ("old", "young"):
            world.register(name, "agent", binding={"kind": "auto_approve"})
            world.act(name, "add", {"name": "a", "amount": 0})
        held = world.leases.acquire(agent="young", resource="STATE:/main/*", timeout=0)
        for text, scope in (("1", "a"), ("2", "b")):
            assert world.act("old", "add", {"name": scope, "amount": int(text)}, scope=[scope]).status == "evaluating"
        held.release()
        assert post.arrived["1"].wait(20)
        assert post.arrived["2"].wait(20)  # though the first is still held back
        for event in post.may_go.values():
            event.set()


def test_a_type_with_a_canonical_form_of_its_own_counts_for_direct_requests_too(tmp_path: Path) -> None:
    table = ResourceType("TABLE", "opaque", canonical=str.lower)
    with an_office(str(tmp_path / "w.db"), Post()) as world:
        world._acting._types = STANDARD.with_types(table)
        world.leases.acquire(agent="old", resource="TABLE:users", timeout=0)
        with pytest.raises(Refused) as refused:
            world.leases.acquire(agent="mid", resource="TABLE:Users", timeout=0)
        assert refused.value.code == "AMBIGUOUS_RESOURCE"
        address = str(tmp_path / "w.db")
    with World.look(address) as looked:  # without the plug-in
        assert [one.triple.resource.text for one in looked.realm().klis.leases.values()] == ["TABLE:users"]
        assert verify(looked.log).ok
