"""Foreign code runs before the log's lock is taken: it delays its own proposal alone, and what is recorded is exact."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from pydantic import BaseModel

from authority import Approve, Policy, Reject, rule
from host import handler
from projections import Select, projection
from tests.pipeline import held
from tests.pipeline.held import HELD, HOUSE, act_often, clicks, opened, renew
from tests.plugins.forms import scaled
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.code import time_limit
from world.core import ActionContext, Domain, effect, set_
from world.engine import preparation
from world.errors import RefusedError
from world.events.execution_events import ExecutionStarted
from world.events.proposal_events import ProposalSubmitted
from world.limits import Limits
from world.model.intent import IntentBody
from world.state.proposal import Proposal
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.analysis.recheck.results import DRIFT
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MEANWHILE = 20
"""How many proposals others make while code is held; ``make test-all`` has five times as many as well."""


@handler("bell", time_limit_ms=600_000)
def bell(params: Any, call: Any) -> Any:
    return {"note": params["note"]}


@contextmanager
def running(call: Callable[[], Any]) -> Iterator[list[Any]]:
    """Make a call in a thread of its own; its result is in the list at the end."""
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield results
    finally:
        held.GATE.open()
        thread.join(PATIENCE_S)


def create(address: str, limits: Limits = held.PATIENT) -> None:
    with Realm.create(
        address, domain=HELD, policies=[HOUSE], projections=[clicks], effects=[bell], limits=limits
    ) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.register("bob", "human", binding={"kind": "auto_approve"})
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "held"})
        world.create_branch("side")


def expire() -> None:
    """Let the limits of all running calls pass now; a limit that is short enough to wait for may pass too early."""
    for slot in list(time_limit._watchdog.running.values()):
        slot.deadline = 0.0


def propose(world: Realm, how: str, branch: str) -> Proposal | None:
    if how == "projection":
        source = {"kind": "ui", "eventId": "1", "payload": {"hang": how}}
        return world.project(source, "bot", branch=branch).proposal
    return world.act("bot", "count", {"hang": how}, branch=branch)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[[str, str, int], list[str]]]:
    """Another process, which acts on a branch of a realm so many times and returns how that ended."""
    command = [sys.executable, "-m", "tests.pipeline.held"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        to, back = process.stdin, process.stdout
        assert to is not None
        assert back is not None

        def act(address: str, branch: str, count: int) -> list[str]:
            to.write(f"{address}\t{branch}\t{count}\n")
            to.flush()
            return back.readline().split()

        yield act
        to.close()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.requirement("WP-decision", "WP-exec")
@pytest.mark.parametrize("meanwhile", [MEANWHILE, pytest.param(scaled(5, ci=2) * MEANWHILE, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["rule", "projection", "action", "computed", "effect", "answer"])
def test_code_that_is_held_delays_its_own_proposal_and_no_other(
    tmp_path: Path, how: str, meanwhile: int, elsewhere: Callable[[str, str, int], list[str]]
) -> None:
    address, gate = str(tmp_path / "w.db"), renew()
    create(address)
    with opened(address, effects=[bell]) as world:
        asked = propose(world, how, "main") if how == "answer" else None
        branch = "side" if how == "effect" else "main"  # an execution that waits for an effect holds its leases

        def call() -> Proposal | None:
            if asked is not None:
                return world.decide(asked.proposal_id, "approve", by="bob")
            return propose(world, how, "main")

        with running(call) as results:
            assert gate.entered.wait(PATIENCE_S)
            assert act_often(world, branch, meanwhile) == ["completed"] * meanwhile
            assert elsewhere(address, branch, meanwhile) == ["completed"] * meanwhile
            assert results == []  # it is still held
        assert [one.status for one in results] == ["completed"]
        assert sum(world.data(world.branch(one).head)["count"] for one in {"main", branch}) == 2 * meanwhile + 1
        assert verify(world.log).ok
    with open_to_recheck(address, domain=HELD, policies=[HOUSE], projections=[clicks], effects=[bell]) as again:
        assert recheck(again, every=True).divergences == []


@pytest.mark.parametrize(("how", "code"), [("rule", "RULE_TIMED_OUT"), ("action", "ACTION_TIMED_OUT")])
def test_code_that_is_held_beyond_its_limit_is_refused_and_frees_others_before(
    tmp_path: Path, how: str, code: str
) -> None:
    """The limit ends the call in its own thread; the others do not need that."""
    address, gate = str(tmp_path / "w.db"), renew()
    create(address)
    with opened(address) as world, opened(address) as others:
        with running(lambda: propose(world, how, "side")) as results:
            assert gate.entered.wait(PATIENCE_S)
            assert act_often(others, "main", MEANWHILE) == ["completed"] * MEANWHILE
            expire()
            while not any(slot.fired for slot in list(time_limit._watchdog.running.values())):
                act_often(others, "main", 1)
            assert results == []  # it is blocked in C, where the exception is not delivered
        [ended] = results
        assert ended.status == ("rejected" if how == "rule" else "failed")
        assert code in f"{ended.decision} {ended.error}"
        assert verify(world.log).ok


def test_a_projection_that_is_held_beyond_its_limit_is_refused(tmp_path: Path) -> None:
    address, gate = str(tmp_path / "w.db"), renew()
    create(address)
    with opened(address) as world, opened(address) as others:
        with running(lambda: propose(world, "projection", "side")) as results:
            assert gate.entered.wait(PATIENCE_S)
            assert act_often(others, "main", 10) == ["completed"] * 10
            expire()
            while not results:  # the loop is ended by its limit
                act_often(others, "main", 1)
        [refused] = results
        assert isinstance(refused, RefusedError)
        assert refused.code == "PROJECTION_TIMED_OUT"


def test_a_domain_whose_computed_values_are_held_delays_no_other_while_it_is_adopted(tmp_path: Path) -> None:
    address, gate = str(tmp_path / "w.db"), renew()
    create(address)
    later = Domain("urn:test:held", version="2.0.0", state=held.State)

    @later.computed("slow", deps=["count"])
    def slow(data: Any) -> int:
        held.GATE.hold()
        return 1

    @later.action("count", version="1")
    def count(ctx: ActionContext, wish: held.Wish) -> Any:
        return [set_("count", ctx.data["count"] + 1)]

    def adopt() -> str:
        with Realm.open_to_adopt(address, domain=later, policies=[HOUSE], limits=held.PATIENT) as adopted:
            return adopted.realm().schema_hash

    with opened(address) as world:
        with running(adopt) as results:
            assert gate.entered.wait(PATIENCE_S)
            assert act_often(world, "main", MEANWHILE) == ["completed"] * MEANWHILE
            assert results == []
        assert results == [later.schema.hash]


# What changes between a preparation and the lock


class Total(BaseModel):
    total: int = 0
    at: int = 0
    seen: int = 0


class Add(BaseModel):
    by: int = 1


class Elsewhere:
    """A thread that does what the code of a realm asks: a rule itself may start none."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Callable[[], Any], threading.Event] | None] = SimpleQueue()

    def do(self, call: Callable[[], Any]) -> None:
        """Have a call made, and wait for its end."""
        done = threading.Event()
        self._asked.put((call, done))
        assert done.wait(PATIENCE_S)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._asked.put(None)
            thread.join(PATIENCE_S)

    def _work(self) -> None:
        while (one := self._asked.get()) is not None:
            one[0]()
            one[1].set()


ELSEWHERE = Elsewhere()


@dataclass
class Bench:
    """A realm whose code does something in another thread, at its first calls."""

    between: list[Callable[[], Any]] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    world: Any = None

    def called(self, name: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.calls[name] += 1
        if self.between:
            ELSEWHERE.do(self.between.pop(0))


def totals(bench: Bench) -> tuple[Domain, Policy, Any]:
    domain = Domain("urn:test:between", version="1.0.0", state=Total)

    @domain.computed("twice", deps=["total"])
    def twice(data: Any) -> int:
        return int(data["total"]) * 2

    @domain.action("add", version="1")
    def add(ctx: ActionContext, wish: Add) -> Any:
        bench.called("action")
        total = ctx.data["total"] + wish.by
        return [set_("total", total), set_("at", ctx.now), set_("seen", ctx.computed["twice"])]

    @rule
    def few(case: Any) -> Any:
        bench.called("rule")
        earlier = case.history.count(action="add", decision="approved", since_ms=case.submitted_at - 3_600_000)
        if case.view.data["total"] >= 1_000 or case.view.computed["computed.twice"] >= 2_000:
            return Reject("full")
        return Approve(f"{earlier} before, {case.history.sum('by', decision='approved')} in all")

    @projection("adds", sources=["ui"])
    def adds(req: Any) -> Any:
        by = 1 if req.snapshot.data["total"] < 1_000 else 2
        return Select(IntentBody.read({"type": "add", "input": {"by": by}}))

    return domain, Policy("few", [few]), adds


@contextmanager
def between(tmp_path: Path, bench: Bench, **more: Any) -> Iterator[tuple[Realm, dict[str, Any]]]:
    domain, policy, adds = totals(bench)
    code: dict[str, Any] = {"domain": domain, "policies": [policy], "projections": [adds]}
    address = str(tmp_path / "w.db")
    with ELSEWHERE.at_work(), Realm.create(address, **code, **{"limits": held.PATIENT, **more}) as bench.world:
        bench.world.register("ann", "human", binding={"kind": "auto_approve"})
        bench.world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "few"})
        yield bench.world, code
        assert verify(bench.world.log).ok
    with open_to_recheck(address, **code) as again:
        found = recheck(again, every=True).divergences
        assert [one for one in found if one.difference.code not in DRIFT] == []


def fill(bench: Bench) -> None:
    bench.world.act("ann", "add", {"by": 1_000})


@pytest.fixture(params=[0, 10**9], ids=["repeats", "calls under the lock"])
def fast_ms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Decide whether a stale preparation is repeated."""
    monkeypatch.setattr(preparation, "FAST_MS", request.param)
    return int(request.param)


@pytest.mark.requirement("WP-decision", "CARD-replay")
def test_a_ruling_on_a_base_that_moved_is_made_again(tmp_path: Path, fast_ms: int) -> None:
    bench = Bench()
    with between(tmp_path, bench) as (world, _):
        bench.between.append(lambda: fill(bench))
        ended = world.act("bot", "add")
        assert (ended.status, ended.decision and ended.decision.reason) == ("rejected", "few: full")
        assert bench.calls["rule"] == 2
        assert ended.submitted.base_world == world.branch("main").head


def test_a_ruling_whose_history_grew_on_another_branch_is_made_again(tmp_path: Path, fast_ms: int) -> None:
    bench = Bench()
    with between(tmp_path, bench) as (world, _):
        world.create_branch("side")
        bench.between.append(lambda: world.act("ann", "add", {"by": 5}, branch="side"))
        ended = world.act("bot", "add")
        assert ended.decision is not None
        assert ended.decision.reason == "few: 1 before, 5 in all"


def test_a_ruling_that_read_nothing_that_changed_holds(tmp_path: Path, fast_ms: int) -> None:
    bench = Bench()
    with between(tmp_path, bench) as (world, _):
        bench.between.append(lambda: world.register("eve", "human"))
        assert world.act("bot", "add").status == "completed"
        assert bench.calls == {"rule": 1, "action": 1}


def test_an_actor_that_was_bound_otherwise_meanwhile_is_judged_by_its_new_binding(tmp_path: Path, fast_ms: int) -> None:
    bench = Bench()
    with between(tmp_path, bench) as (world, _):
        bench.between.append(lambda: world.bind("bot", {"kind": "hitl", "ask": ["ann"]}))
        assert world.act("bot", "add").status == "evaluating"
        assert bench.calls["rule"] == 1


def test_a_proposal_whose_policy_was_replaced_meanwhile_is_held(tmp_path: Path, fast_ms: int) -> None:
    bench = Bench()
    with between(tmp_path, bench) as (world, code):

        @rule
        def never(case: Any) -> Any:
            return Reject("never")

        def adopt() -> None:
            others = {**code, "policies": [Policy("few", [never])]}
            with Realm.open(str(tmp_path / "w.db"), **others) as other:
                other.adopt_policy("few")

        bench.between.append(adopt)
        held_one = world.act("bot", "add")  # the policy that is loaded is no longer in force, and is not called again
        assert (held_one.status, held_one.to_wire()["held"]) == ("submitted", "policy changed: few")
        assert bench.calls == {"rule": 1, "action": 1}


def test_a_projection_on_a_head_that_moved_is_made_again(tmp_path: Path, fast_ms: int) -> None:
    bench = Bench()
    with between(tmp_path, bench, limits=Limits()) as (world, _):
        bench.between.append(lambda: fill(bench))
        came = world.project({"kind": "ui", "eventId": "1"}, "bot")
        assert came.proposal is not None
        assert came.proposal.intent.body.input == {"by": 2}


def test_a_preparation_is_repeated_three_times_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "FAST_MS", 0)
    bench = Bench()
    with between(tmp_path, bench) as (world, _):
        bench.between += [lambda: world.act("ann", "add")] * 6  # at each call of the rule, and of the action after it
        assert world.act("bot", "add").status == "completed"
        assert bench.calls["rule"] == 4  # three before the lock, each of them in vain, and one under it


def test_a_preparation_that_was_fast_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "FAST_MS", 10**9)
    bench = Bench()
    with between(tmp_path, bench) as (world, _):
        bench.between.append(lambda: world.act("ann", "add"))
        assert world.act("bot", "add").status == "completed"
        assert bench.calls["rule"] == 2


def test_the_time_that_code_saw_is_the_time_that_is_recorded(tmp_path: Path) -> None:
    bench, clock = Bench(), ManualClock(1_000_000)
    with between(tmp_path, bench, clock=clock) as (world, _):
        clock.advance(500)
        bench.between.append(lambda: clock.advance(1_000))
        ended = world.act("bot", "add")
        assert ended.submitted.at == 1_000_500
        assert world.data()["at"] == 1_000_500
        assert ended.started is not None
        assert ended.started.now == 1_000_500
        bench.between.append(lambda: clock.advance(600_000))  # longer than a clock may be off
        ended = world.act("bot", "add")
        assert ended.submitted.at == world.data()["at"] == 1_601_500


class Alone:
    """The one worker of a log."""

    me = "one"

    def is_gone(self, worker: str) -> bool:
        return worker != self.me

    def close(self) -> None:
        """There is nothing to leave."""


def logged(tmp_path: Path, name: str, limits: Limits, moves: list[tuple[str, int]]) -> list[tuple[str, bytes]]:
    """Make a log of some commands and return its events."""
    bench = Bench()
    domain, policy, adds = totals(bench)
    clock = ManualClock(1_000_000)
    with Realm.create(
        str(tmp_path / name), domain=domain, policies=[policy], projections=[adds], limits=limits, clock=clock,
        ids=SequentialIds("same"), workers=Alone(),
    ) as world:  # fmt: skip
        world.register("ann", "human", binding={"kind": "hitl", "ask": ["ben"]})
        world.register("ben", "human", binding={"kind": "auto_approve"})
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "few"})
        for number, (kind, value) in enumerate(moves):
            clock.advance(value)
            if kind == "project":
                world.project({"kind": "ui", "eventId": str(number)}, "bot")
                continue
            done = world.act(kind, "add", {"by": value})
            if done.status == "evaluating":
                world.decide(done.proposal_id, "approve", by="ben")
        return [(event.topic, event.state) for event in world.log.read()]


@pytest.mark.requirement("CARD-replay")
@pytest.mark.parametrize("seed", range(5))
def test_prepared_commands_record_what_commands_under_the_lock_record(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    moves = [(chance.choice(["ann", "ben", "bot", "project"]), chance.randrange(400)) for _ in range(12)]
    unprepared = logged(tmp_path, "under.db", Limits(max_preparations=0), moves)
    assert logged(tmp_path, "before.db", Limits(), moves) == unprepared


@pytest.mark.requirement("CARD-replay", "WP-decision")
@pytest.mark.parametrize("seed", range(2))
def test_what_eight_threads_record_on_one_branch_is_exact(tmp_path: Path, seed: int, fast_ms: int) -> None:
    bench = Bench()
    bindings = [{"kind": "auto_approve"}, {"kind": "policy_rules", "policy": "few"}]
    with between(tmp_path, bench) as (world, _):
        failures: list[Exception] = []

        def work(number: int) -> None:
            chance = random.Random(seed * 8 + number)
            try:
                for turn in range(12):
                    kind = chance.randrange(10)
                    if kind == 0:
                        world.bind("bot", chance.choice(bindings))
                    elif kind == 1:
                        world.shadow(chance.choice(["few", None]), actors=["ann"])
                    elif kind == 2:
                        world.project({"kind": "ui", "eventId": f"{number}-{turn}"}, chance.choice(["ann", "bot"]))
                    else:
                        world.act(chance.choice(["ann", "bot"]), "add", {"by": chance.randrange(40)})
            except Exception as error:  # noqa: BLE001 - raised in the test's thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert failures == []
        submitted = {one.proposal_id: one for _, one in world.events() if isinstance(one, ProposalSubmitted)}
        assert len(submitted) > 40
        for _, event in world.events():
            if isinstance(event, ExecutionStarted):
                assert event.on_world == submitted[event.proposal_id].base_world
                assert event.now == event.at


def test_an_effect_that_code_asks_for_again_under_the_lock_is_made_once(tmp_path: Path, fast_ms: int) -> None:
    """An execution that was computed ahead in vain leaves nothing behind."""
    rung: list[int] = []
    bench = Bench()
    domain = Domain("urn:test:rings", version="1.0.0", state=Total)

    @domain.action("ring", version="1")
    def ring(ctx: ActionContext) -> Any:
        bench.called("action")
        done = yield effect("bell", total=ctx.data["total"])
        return [set_("total", ctx.data["total"] + done["by"])]

    @domain.action("add", version="1")
    def add(ctx: ActionContext, wish: Add) -> Any:
        return [set_("total", ctx.data["total"] + wish.by)]

    @handler("bell", time_limit_ms=600_000)
    def rings(params: Any, call: Any) -> Any:
        rung.append(params["total"])
        return {"by": 10}

    address = str(tmp_path / "w.db")
    with ELSEWHERE.at_work(), Realm.create(address, domain=domain, effects=[rings]) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        bench.between.append(lambda: world.act("ann", "add"))
        assert world.act("ann", "ring").status == "completed"
        assert world.data()["total"] == 11
        assert rung == [1]
        assert verify(world.log).ok
    with open_to_recheck(address, domain=domain, effects=[rings]) as again:
        assert recheck(again, every=True).divergences == []
