"""What was left behind: by an engine that was killed, a handler that was given up, a process that has no workspace."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from host import handler
from tests.pipeline.works import Held, acting, check_log, running, topics
from tests.pipeline.workshop import BEFORE, a_workshop, contents, step, workshop
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock, SequentialIds
from world.errors import RefusedError
from world.events.base import Event
from world.events.execution_events import EffectDropped, EffectRequested
from world.events.proposal_events import DecisionMade
from world.events.run_events import RunObserved
from world.state.proposal import ROLLBACK
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.requirement("KO-3.3", "WP-exec")

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    (root / "sub").mkdir(parents=True)
    for name, text in BEFORE.items():
        if text != "/":
            (root / name).write_text(text)
    return root


def reopened(address: str, root: Path | None, *effects: Any, **parts: Any) -> Realm:
    """Open the realm later, as another program; without the workspace where there is no root."""
    given = {"clock": ManualClock(500_000, 1), "ids": SequentialIds("again"), **parts}
    return Realm.open(address, domain=workshop, workspace=root, effects=effects, **given)


def events(world: Realm, kind: type[Event]) -> list[Any]:
    return [event for _, event in world.events() if isinstance(event, kind)]


def rollback_of(world: Realm) -> dict[str, Any]:
    (asked,) = [one for one in events(world, EffectRequested) if one.requirement.type == ROLLBACK]
    return dict(asked.requirement.params)


def vanishing(idempotent: bool) -> Any:
    """Return an effect whose process ends before it is done."""

    @handler("vanish", idempotent=idempotent)
    def vanish(_params: Any, _call: Any) -> Any:
        raise KeyboardInterrupt

    return vanish


def quiet(idempotent: bool) -> Any:
    @handler("vanish", idempotent=idempotent)
    def nothing(_params: Any, _call: Any) -> Any:
        return {}

    return nothing


PLAN = {"mutates": ["FILE:/b.txt"], "steps": [step("file.append", path="/b.txt", text="HALF"), step("vanish")]}


def left_half_done(address: str, root: Path, *, idempotent: bool) -> str:
    with a_workshop(address, root, effects=[vanishing(idempotent)]) as world:
        with pytest.raises(KeyboardInterrupt):
            world.act("ann", "run", PLAN)
        assert contents(root)["b.txt"] == "bHALF"
        return running(world)


# An engine that was killed


@pytest.mark.slow
def test_what_a_command_of_a_killed_engine_had_started_is_ended_before_anybody_takes_over(
    address: str, root: Path
) -> None:
    inner = "exec 3<>deep.txt; echo $$ > pid.tmp; mv pid.tmp pid; sleep 600; echo LATE >&3"
    script = f"sh -c '{inner}' & echo $$ > outer.tmp; mv outer.tmp outer; wait"
    engine = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.engine_child", address, root, script], cwd=CHECKOUT
    )
    for name in ("outer", "pid"):  # the numbers in them may be those of a namespace
        number_in(root / "sub" / name, engine)
    there = [process.pid for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(root / "sub")]
    (outer,) = (os.pidfd_open(pid) for pid in there if os.getpgid(pid) == pid)
    orphans = [os.pidfd_open(pid) for pid in there if os.getpgid(pid) != pid]
    try:
        engine.kill()
        engine.wait()
        assert select.select([outer], [], [], PATIENCE_S)[0], "the command lives on"
        with reopened(address, root) as world:
            assert orphans
            assert len(select.select(orphans, [], [], 0)[0]) == len(orphans), "what it started lives on"
            (stuck,) = world.host.stuck()
            failed = world.host.resolve(stuck["proposalId"], "fail", by="bob", reason="its engine was killed")
            assert failed.status == "failed"
            assert rollback_of(world)["fresh"] is True
            assert contents(root) == BEFORE
    finally:
        for one in (outer, *orphans):
            os.close(one)
    check_log(address, domain=workshop)


def number_in(file: Path, engine: subprocess.Popen[bytes]) -> int:
    while not file.exists():
        assert engine.poll() is None, "the engine ended"
        os.sched_yield()
    return int(file.read_text())


# A handler that was given up


@pytest.mark.requirement("KO-3")
@pytest.mark.slow
def test_a_handler_that_was_given_up_writes_into_no_file_by_what_it_still_has_open(address: str, root: Path) -> None:
    opened, may_go, over = threading.Event(), threading.Event(), threading.Event()

    @handler("slow")
    def slow(_params: Any, _call: Any) -> Any:
        with (root / "b.txt").open("r+") as file:
            opened.set()
            assert may_go.wait(PATIENCE_S)
            file.write("LATE")
        over.set()

    with a_workshop(address, root, effects=[slow]) as world:
        with acting(world, "ann", "run", {"mutates": ["FILE:/b.txt"], "steps": [step("slow")]}) as ended:
            assert opened.wait(PATIENCE_S)
            world.host.cancel(running(world), by="bob", reason="enough")
        assert ended[0].status == "failed"
        assert rollback_of(world)["fresh"] is True
        with world.leases.acquire(agent="bob", resource="FILE:/b.txt"):
            may_go.set()
            assert over.wait(PATIENCE_S)
            assert contents(root) == BEFORE
    check_log(address, domain=workshop)


@pytest.mark.slow
def test_files_are_put_anew_also_where_a_later_attempt_answered_in_time(address: str, root: Path) -> None:
    over = threading.Event()

    @handler("slow", time_limit_ms=200, idempotent=True, retries=1, backoff_ms=1)
    def slow(_params: Any, call: Any) -> Any:
        if call.attempt == 1:
            over.wait(PATIENCE_S)
        return {}

    inode = (root / "b.txt").stat().st_ino
    with a_workshop(address, root, effects=[slow]) as world, (root / "b.txt").open():
        failed = world.act("ann", "run", {"mutates": ["FILE:/b.txt"], "steps": [step("slow")], "give_up": True})
        over.set()
        assert failed.error is not None
        assert rollback_of(world)["fresh"] is True
        assert (root / "b.txt").stat().st_ino != inode
        assert contents(root) == BEFORE
    check_log(address, domain=workshop)


def test_files_that_nobody_may_hold_open_are_left_as_they_are(address: str, root: Path) -> None:
    inode = (root / "b.txt").stat().st_ino
    with a_workshop(address, root) as world:
        plan = {"consumes": ["FILE:/a.txt"], "mutates": ["FILE:/b.txt"], "steps": [step("file.read", path="/a.txt")]}
        assert world.act("ann", "run", {**plan, "give_up": True}).status == "failed"
        assert "fresh" not in rollback_of(world)
        assert (root / "b.txt").stat().st_ino == inode


# A process that has no workspace


def test_who_has_no_workspace_leaves_alone_what_was_backed_up_there(address: str, root: Path) -> None:
    name = left_half_done(address, root, idempotent=True)
    with reopened(address, None, quiet(True)) as world:
        assert [one.backup for one in events(world, DecisionMade)] == [True]
        told = topics(world, name)
        world.settle()
        assert world.proposal(name).status == "executing"
        assert topics(world, name) == told
        assert world.realm().klis.leases
        assert world.host.cancel(name, by="bob", reason="enough").status == "executing"
    with reopened(address, root, quiet(True), clock=ManualClock(600_000, 1), ids=SequentialIds("third")) as world:
        failed = world.proposal(name)
        assert failed.error is not None
        assert (failed.status, failed.error.code) == ("failed", "CANCELLED")
        assert contents(root) == BEFORE
        assert not world.realm().klis.leases
    check_log(address, domain=workshop)


@pytest.mark.requirement("HC-journal")
def test_who_has_no_workspace_cannot_end_what_was_backed_up_there(address: str, root: Path) -> None:
    name = left_half_done(address, root, idempotent=False)
    with reopened(address, root) as world:
        assert len(world.host.stuck()) == 1
    with reopened(address, None, ids=SequentialIds("third")) as world:
        for command in (
            lambda: world.host.resolve(name, "fail", by="bob", reason="nobody knows"),
            lambda: world.host.cancel(name, by="bob", reason="enough"),
        ):
            with pytest.raises(RefusedError) as refused:
                command()
            assert refused.value.code == "NO_WORKSPACE"
        assert len(world.host.stuck()) == 1
    with reopened(address, root, ids=SequentialIds("fourth")) as world:
        assert world.host.resolve(name, "fail", by="bob", reason="nobody knows").status == "failed"
        assert contents(root) == BEFORE
    check_log(address, domain=workshop)


@pytest.mark.requirement("WP-exkey")
def test_who_has_no_workspace_does_not_start_what_was_backed_up_there(address: str, root: Path) -> None:
    held = Held(lambda _params, _call: (_ for _ in ()).throw(KeyboardInterrupt))

    @handler("vanish", idempotent=True)
    def vanish(params: Any, call: Any) -> Any:
        return held(params, call)

    with a_workshop(address, root, effects=[vanish]) as world:
        with acting(world, "ann", "run", {"steps": [step("vanish")]}, scope=[], execution_key="till") as first:
            assert held.begun.wait(PATIENCE_S)
            plan = {"mutates": ["FILE:/b.txt"], "steps": [step("file.append", path="/b.txt", text="!")]}
            second = world.act("bob", "run", plan, execution_key="till")
            assert second.status == "approved"
            held.may_go.set()
        assert isinstance(first[0], KeyboardInterrupt)
    with reopened(address, None, quiet(True)) as world:
        world.settle()
        assert {one.status for one in world.realm().proposals.values()} == {"approved"}
        assert world.proposal(second.proposal_id).status == "approved"
    with reopened(address, root, ids=SequentialIds("third")) as world:
        assert world.proposal(second.proposal_id).status == "completed"
        assert contents(root)["b.txt"] == "b!"
    check_log(address, domain=workshop)


@pytest.mark.requirement("WP-exkey")
def test_the_next_of_a_key_starts_when_the_one_before_it_has_put_back_its_files(address: str, root: Path) -> None:
    held = Held()

    @handler("wait")
    def wait(params: Any, call: Any) -> Any:
        return held(params, call)

    plan = {"mutates": ["FILE:/b.txt"], "steps": [step("wait")], "give_up": True}
    with a_workshop(address, root, effects=[wait]) as world:
        with acting(world, "ann", "run", plan, scope=[], execution_key="till") as first:
            assert held.begun.wait(PATIENCE_S)
            second = world.act("bob", "run", {}, execution_key="till")
            assert second.status == "approved"
            held.may_go.set()
        assert first[0].rollback is not None
        assert world.proposal(second.proposal_id).status == "completed"
    check_log(address, domain=workshop)


# A result that comes late


@pytest.mark.requirement("KO-4", "HC-compute")
def test_what_was_seen_of_an_effect_whose_result_comes_late_is_recorded(address: str, root: Path) -> None:
    wrote, taken = threading.Event(), Held()

    @handler("work", idempotent=True, time_limit_ms=60_000)
    def first(_params: Any, call: Any) -> Any:
        (root / "b.txt").write_text("first")
        wrote.set()
        while not call.is_cancelled():
            os.sched_yield()

    @handler("work", idempotent=True, time_limit_ms=60_000)
    def second(params: Any, call: Any) -> Any:
        taken(params, call)
        return {}

    with a_workshop(address, root, effects=[first]) as world:
        with acting(world, "ann", "run", {"mutates": ["FILE:/b.txt"], "steps": [step("work")]}) as ended:
            assert wrote.wait(PATIENCE_S)
            name = running(world)
            taking = threading.Thread(target=lambda: reopened(address, root, second).close())
            taking.start()
            assert taken.begun.wait(PATIENCE_S)
        assert ended[0].status == "executing"
        (dropped,) = events(world, EffectDropped)
        (seen,) = events(world, RunObserved)
        assert (dropped.proposal_id, seen.run_id) == (name, name)
        assert [(one.predicate, one.resource) for one in seen.observed] == [("MUTATES", "FILE:/b.txt")]
        taken.may_go.set()
        taking.join(PATIENCE_S)
        assert world.proposal(name).status == "completed"
    check_log(address, domain=workshop)


# A backup that takes its time


@pytest.mark.requirement("KP-4b", "KO-7")
def test_leases_live_from_when_their_backup_is_done(address: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(1_000)
    with a_workshop(address, root, clock=clock) as world:
        backups = world.host.premises.backups
        take = backups.take

        def slowly(*given: Any, **more: Any) -> Any:
            clock.advance(4_000)
            return take(*given, **more)

        monkeypatch.setattr(backups, "take", slowly)
        with world.leases.acquire(agent="bob", resource="FILE:/b.txt", ttl_ms=3_000) as held:
            assert held.is_active
            (lease,) = world.realm().klis.leases.values()
            assert (lease.granted_at, lease.expires_at) == (5_000, 8_000)
    check_log(address, domain=workshop)
