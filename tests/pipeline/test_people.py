"""Tribunals, seats handed on, questions back and chains of steps: from the binding to the sealed world."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.realm import ROOT, environment
from tests.pipeline.shop import house, open_shop, shop
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.errors import RefusedError
from world.events.proposal_events import HumanAnswered
from world.limits import Limits
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.api.realm import Realm

MEMBERS = ["ann", "bob", "cat"]
TRIBUNAL = {"kind": "tribunal", "members": MEMBERS, "timeoutMs": 1_000, "then": [{"ask": ["dan"], "timeoutMs": 500}]}
SALE = {"item": "tea"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000)


@pytest.fixture
def world(log_url: str, clock: ManualClock) -> Iterator[Realm]:
    with with_people(log_url, clock) as opened:
        yield opened


def with_people(address: str, clock: ManualClock) -> Realm:
    world = open_shop(address, clock=clock)
    for name in ("bob", "dan"):
        world.register(name, "human", binding={"kind": "auto_approve"})
    world.register("cat", "system", binding={"kind": "auto_approve"})
    world.register("kit", "agent", binding=TRIBUNAL)
    return world


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.code


def is_sound(world: Realm) -> None:
    """Check the whole log, and perform every step again."""
    assert verify(world.log).ok
    done = recheck(world, every=True)
    assert done.ok, done.to_wire()


@pytest.mark.requirement("WP-bind", "WP-decision", "INT-13.3", "CARD-replay")
def test_a_tribunal_votes_and_each_vote_stands_in_the_log_and_in_the_decision(world: Realm) -> None:
    waiting = world.act("kit", "sell", SALE, scope=["data.stock.*", "data.sold"])
    name = waiting.proposal_id
    assert waiting.asked is not None
    assert waiting.asked.ask == tuple(MEMBERS)
    world.decide(name, "abstain", by="cat", reason="not my trade")
    assert refused(lambda: world.decide(name, "approve", by="cat")) == "ALREADY_VOTED"
    assert refused(lambda: world.decide(name, "approve", by="kit")) == "OWN_PROPOSAL"
    world.decide(name, "narrow", by="ann", scope=["data.stock.tea", "data.sold"])
    done = world.decide(name, "approve", by="bob")
    assert done.status == "completed"
    record = done.decision
    assert record is not None
    assert record.approved_scope is not None
    assert record.approved_scope.allowed_paths == ("data.stock.tea", "data.sold")
    assert [(one.source, one.answer) for one in record.trace[1:]] == [
        ("system:cat", "abstain"),
        ("human:ann", "narrow"),
        ("human:bob", "approve"),
    ]
    ids = [answer.answer_id for answer in done.answers]
    assert len(set(ids)) == 3
    assert refused(lambda: world.decide(name, "approve", by="bob")) == "NOT_WAITING"
    lost = world.act("kit", "sell", SALE)
    world.decide(lost.proposal_id, "reject", by="ann")
    assert world.decide(lost.proposal_id, "abstain", by="bob").status == "rejected"
    is_sound(world)


@pytest.mark.requirement("WP-events")
def test_subscribers_are_told_each_answer_before_what_it_led_to_and_cannot_vote_themselves(world: Realm) -> None:
    told: list[str] = []

    def listen(position: int, event: Any, schedule: Any) -> None:
        told.append(event.TOPIC)
        if event.TOPIC == "human.answered":
            assert refused(lambda: world.decide(name, "approve", by="cat")) == "CALL_FROM_HANDLER"
            schedule(lambda: told.append("reaction"))

    name = world.act("kit", "sell", SALE).proposal_id
    world.subscribe(listen)
    world.decide(name, "approve", by="ann")
    assert told == ["human.answered", "proposal.judged", "reaction"]
    told.clear()
    world.decide(name, "reject", by="bob")
    world.decide(name, "abstain", by="cat")
    answers = ["human.answered", "proposal.judged"]
    assert [one for one in told if one != "reaction"] == [*answers, *answers, "decision.made"]


@pytest.mark.requirement("WP-bind")
def test_members_are_registered_actors(world: Realm) -> None:
    for binding in (
        {"kind": "tribunal", "members": ["ann", "nobody"]},
        {"kind": "hitl", "then": [{"members": ["nobody"]}]},
    ):
        with pytest.raises(RefusedError, match="nobody") as caught:
            world.bind("bot", binding)
        assert caught.value.code == "UNKNOWN_ACTOR"


@pytest.mark.requirement("WP-bind", "WP-decision")
def test_votes_outlast_a_restart_and_every_step_has_its_own_time(shared_log_url: str, clock: ManualClock) -> None:
    with with_people(shared_log_url, clock) as world:
        name = world.act("kit", "sell", SALE).proposal_id
        clock.advance(900)
        assert world.decide(name, "approve", by="ann").deadline == 2_000  # a vote does not stretch the time
    with Realm.open(shared_log_url, domain=shop, policies=[house], clock=clock, ids=SequentialIds("again")) as world:
        assert refused(lambda: world.decide(name, "approve", by="ann")) == "ALREADY_VOTED"
        clock.advance(101)
        assert refused(lambda: world.decide(name, "approve", by="bob")) == "NOT_ASKED"
        handed = world.proposal(name)
        assert handed.asked is not None
        assert (handed.asked.ask, handed.asked.step, handed.deadline) == (("dan",), 1, 2_501)
        world.decide(name, "ask", by="dan", reason="why so late?")
        assert world.proposal(name).deadline == 2_501
        assert world.decide(name, "approve", by="dan").status == "completed"
        second = world.act("kit", "sell", SALE).proposal_id
        world.decide(second, "escalate", by="bob", reason="dan knows")
        clock.advance(501)
        world.settle()
        assert world.proposal(second).status == "rejected"
        with pytest.raises(RefusedError, match="timed out"):
            world.decide(second, "approve", by="dan")
        is_sound(world)


def test_the_words_about_a_decided_proposal_do_not_blame_a_time_limit_that_only_handed_it_up(
    world: Realm, clock: ManualClock
) -> None:
    name = world.act("kit", "sell", SALE).proposal_id
    clock.advance(1_001)
    world.settle()
    world.decide(name, "approve", by="dan")
    with pytest.raises(RefusedError, match="it was approved") as caught:
        world.decide(name, "approve", by="dan")
    assert "timed out" not in caught.value.message


def test_a_scope_may_be_one_pattern_and_is_never_its_letters(world: Realm) -> None:
    name = world.act("kit", "sell", SALE, scope="data.*").proposal_id
    scope = world.proposal(name).intent.body.scope_proposal
    assert scope is not None
    assert scope.allowed_paths == ("data.*",)
    for wrong in (5, [5], b"data"):
        with pytest.raises(RefusedError) as caught:
            world.decide(name, "narrow", by="ann", scope=wrong)  # type: ignore[arg-type]
        assert caught.value.code == "INVALID_VALUE"
    for member in MEMBERS:
        if world.proposal(name).asked is not None:
            world.decide(name, "narrow", by=member, scope="data.stock")
    approved = world.proposal(name).approved_scope
    assert approved is not None
    assert approved.allowed_paths == ("data.stock",)


@pytest.mark.requirement("WP-bind", "WP-decision")
def test_a_seat_is_handed_on_to_registered_actors_and_never_to_the_proposer(world: Realm) -> None:
    name = world.act("kit", "sell", SALE).proposal_id
    for to in ("nobody", "kit", "bob"):
        assert refused(partial(world.decide, name, "delegate", by="ann", to=to)) == "DELEGATION_REFUSED"
    world.decide(name, "delegate", by="ann", to="dan", reason="on leave")
    assert refused(lambda: world.decide(name, "approve", by="ann")) == "NOT_ASKED"
    world.decide(name, "approve", by="dan")
    assert world.decide(name, "approve", by="bob").status == "completed"
    is_sound(world)


@pytest.mark.requirement("WP-decision")
def test_the_proposer_replies_to_what_was_asked_and_to_nothing_else(world: Realm) -> None:
    name = world.act("kit", "sell", SALE).proposal_id
    assert refused(lambda: world.decide(name, "reply", by="kit", reason="hm")) == "NO_OPEN_QUESTION"
    world.decide(name, "ask", by="ann", reason="for whom?")
    assert [one.reason for one in world.proposal(name).open_questions] == ["for whom?"]
    assert refused(lambda: world.decide(name, "reply", by="bob", reason="me")) == "NOT_PROPOSER"
    replied = world.decide(name, "reply", by="kit", reason="for the neighbours")
    assert replied.status == "evaluating"
    assert replied.deadline == 2_000
    assert replied.open_questions == []
    assert refused(lambda: world.decide(name, "reply", by="kit", reason="more")) == "NO_OPEN_QUESTION"
    world.decide(name, "approve", by="ann")
    world.decide(name, "approve", by="bob")
    answers = world.log.read(topics=[HumanAnswered.TOPIC])
    assert [json.loads(one.state)["answer"]["choice"] for one in answers] == ["ask", "reply", "approve", "approve"]
    is_sound(world)


@pytest.mark.requirement("WP-epoch", "WP-decision")
def test_an_answer_that_would_leave_no_room_for_the_end_is_refused_and_the_end_comes(
    tmp_path: Path, clock: ManualClock
) -> None:
    with with_people(str(tmp_path / "w.db"), clock) as first:
        proposal = first.act("kit", "sell", SALE).proposal_id
    limits = Limits(max_event_bytes=6_000)
    parts: dict[str, Any] = {
        "domain": shop,
        "policies": [house],
        "clock": clock,
        "ids": SequentialIds("more"),
        "limits": limits,
    }
    with Realm.open(tmp_path / "w.db", **parts) as world:
        with pytest.raises(RefusedError) as caught:
            world.decide(proposal, "approve", by="ann", reason="x" * 2_000 + "y" * 500)
        assert caught.value.code == "ANSWER_TOO_LARGE"
        world.decide(proposal, "approve", by="ann", reason="short")
        for _ in range(2):
            clock.advance(2_000)
            world.settle()
        assert world.proposal(proposal).status == "rejected"


@pytest.mark.requirement("WP-decision", "CARD-audit")
@pytest.mark.parametrize("how", ["early", "late", "told of no ruling"])
def test_a_time_that_was_not_over_and_an_answer_after_it_are_found(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with with_people(str(tmp_path / "w.db"), clock) as world:
        name = world.act("kit", "sell", SALE).proposal_id
        with monkeypatch.context() as forged:
            if how == "late":
                forged.setattr("world.pipeline.driver.expire", lambda work: ())
                clock.advance(100_000)
                world.decide(name, "reject", by="ann")
            else:
                waiting = [one for one in world.inbox() if one.proposal_id == name]
                forged.setattr("world.state.realm_state.RealmState.overdue", lambda self, at: waiting)
                forged.setattr("world.pipeline.driver._may_be_due", lambda work: True)
                if how != "early":
                    clock.advance(100_000)
                    forged.setattr("world.pipeline.judge._record", lambda *_, **__: ())
                world.settle()
        told = verify(world.log)
        assert not told.ok
        assert "the time" in str(told.to_wire()) or "time of proposal" in str(told.to_wire())


def test_a_change_of_the_branch_leaves_half_a_vote_behind(world: Realm) -> None:
    name = world.act("kit", "sell", SALE).proposal_id
    world.decide(name, "approve", by="ann")
    world.create_branch("other")
    world.switch_branch("other")
    assert world.proposal(name).status == "superseded"
    assert refused(lambda: world.decide(name, "approve", by="bob")) == "NOT_WAITING"
    assert world.proposal(name).decision is None
    is_sound(world)


@pytest.mark.requirement("WP-bind")
def test_what_rules_escalate_goes_up_the_chain_of_the_binding(world: Realm, clock: ManualClock) -> None:
    chain = {"kind": "policy_rules", "policy": "house", "timeoutMs": 10, "then": [{"members": ["bob", "dan"]}]}
    world.bind("bot", chain)
    large = world.act("bot", "sell", {"item": "tea", "count": 5})
    clock.advance(11)
    world.settle()
    world.decide(large.proposal_id, "approve", by="dan")
    done = world.decide(large.proposal_id, "approve", by="bob")
    assert done.status == "completed"
    record = done.decision
    assert record is not None
    assert record.policy_hash == house.hash
    is_sound(world)


CHILD = """
import sys
from tests.pipeline.shop import house, shop
from world.errors import RefusedError
from worldprotocol.api.realm import Realm

address, *names = sys.argv[1:]
with Realm.open(address, domain=shop, policies=[house]) as world:
    sys.stdout.write("ready\\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for name in names:
        for by in ("ann", "bob"):
            try:
                world.decide(name, "approve", by=by)
                print("counted", name, by)
            except RefusedError as refused:
                assert refused.code in ("ALREADY_VOTED", "NOT_WAITING"), refused
"""


@pytest.mark.requirement("WP-bind", "WP-decision")
@pytest.mark.slow
def test_of_two_processes_that_vote_for_the_same_people_at_once_each_vote_counts_once(
    shared_log_url: str, clock: ManualClock
) -> None:
    with with_people(shared_log_url, clock) as world:
        world.bind("kit", {"kind": "tribunal", "members": MEMBERS, "timeoutMs": None})
        names = [world.act("kit", "sell", SALE).proposal_id for _ in range(3)]
    command = [sys.executable, "-c", CHILD, shared_log_url, *names]
    children = [
        subprocess.Popen(command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    said = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        said += child.communicate(timeout=PATIENCE_S)[0].splitlines()
        assert child.returncode == 0
    assert sorted(said) == sorted(f"counted {name} {by}" for name in names for by in ("ann", "bob"))
    with Realm.open(shared_log_url, domain=shop, policies=[house]) as world:
        assert {world.proposal(name).status for name in names} == {"completed"}
        is_sound(world)


Forgery = tuple[str, int, Callable[[dict[str, Any]], Any]]
FORGERIES: dict[str, Forgery] = {
    "a vote turned round": ("decision.made", 0, lambda e: e["decision"]["trace"][1].update(answer="reject")),
    "a vote by another": ("decision.made", 0, lambda e: e["decision"]["trace"][1].update(source="human:dan")),
    "a vote more": ("proposal.judged", 1, lambda e: e["ruling"]["trace"].append(e["ruling"]["trace"][-1])),
    "a step skipped": ("proposal.judged", 1, lambda e: e["ruling"].update(step=1)),
    "a step that is not there": ("proposal.judged", 1, lambda e: e["ruling"].update(step=2)),
    "a stretched time": ("proposal.judged", 1, lambda e: e.update(deadline=9_000)),
    "an answer of the proposer": ("human.answered", 0, lambda e: e["answer"]["by"].update(actorId="kit", kind="agent")),
    "a reply by somebody else": ("human.answered", 0, lambda e: e["answer"].update(choice="reply")),
    "an unknown delegate": ("human.answered", 0, lambda e: e["answer"].update(to="nobody")),
    "an unknown member": ("actor.bound", 8, lambda e: e["binding"]["members"].append("nobody")),
    "a quorum that is none": ("proposal.judged", 0, lambda e: e["ruling"]["trace"][0]["quorum"].update(rule="few")),
}


@pytest.mark.requirement("WP-decision", "CARD-audit")
def test_a_forged_vote_step_or_time_is_found_also_where_every_hash_fits(tmp_path: Path, clock: ManualClock) -> None:
    with with_people("sqlite:///:memory:", clock) as world:
        name = world.act("kit", "sell", SALE).proposal_id
        world.decide(name, "approve", by="ann")
        world.decide(name, "approve", by="bob")
        told = [(one.stream, one.topic, one.state) for one in world.log.read()]
    nothing: dict[str, Forgery] = {"nothing": ("", 0, lambda _: None)}
    for number, (what, (topic, nth, forge)) in enumerate((nothing | FORGERIES).items()):
        seen = 0
        with open_log(str(tmp_path / f"{number}.db"), create=True) as log:
            with log.write() as transaction:
                events = []
                for stream, its, text in told:
                    state = json.loads(text)
                    if its == topic:
                        if seen == nth:
                            forge(state)
                        seen += 1
                    events.append(NewEvent(stream, its, 1, canonical_bytes(state)))
                transaction.append(iter(events))
            assert verify(log).ok is (what == "nothing"), what
