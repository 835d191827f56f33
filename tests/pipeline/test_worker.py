"""Workers in a process: claim, perform, heartbeat, stop, give up, and continue what others left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from host import external, handler
from tests.pipeline.offering import offering, room, work_in
from tests.pipeline.works import check_log, events
from tests.pipeline.workshop import a_workshop, contents, step, workshop
from tests.support.patience import PATIENCE_S
from world.clock import SystemClock
from world.errors import RefusedError
from world.events.claim_events import EffectExtended
from world.events.execution_events import EffectFulfilled, EffectRequested
from world.events.proposal_events import ProposalFailed, ProposalHeld
from world.read_models.decoding import decoded
from world.state.proposal import ROLLBACK
from worldprotocol import Realm, Worker
from worldprotocol.api.executing.worker import WorkerReport, perform_offered

pytestmark = pytest.mark.requirement("HC-journal", "HC-handlers", "WP-exec")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "b.txt").write_text("b")
    (folder / "c.txt").write_text("c")
    return folder


@handler("work", idempotent=True)
def upper(params: Any, _call: Any) -> str:
    return str(params["what"]).upper()


def here(address: str, *effects: Any, **options: Any) -> Realm:
    """Open the realm as the process of a worker."""
    given: dict[str, Any] = {"domain": room, "execute": False, "clock": SystemClock(), **options}
    return Realm.open(address, effects=effects, **given)


@contextmanager
def running(worker: Worker) -> Iterator[list[Any]]:
    """Run a worker in a thread of its own; the list has what it returned."""
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(worker.run()), daemon=True)
    thread.start()
    try:
        yield ended
    finally:
        worker.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def await_event(realm: Realm, holds: Callable[[Any], bool]) -> None:
    """Wait until the log has an event for which a function returns True."""
    with realm.log.follow(0, poll_ms=20) as follower:
        ending = threading.Timer(PATIENCE_S, follower.stop)
        ending.daemon = True
        ending.start()
        try:
            assert any(holds(decoded(one)) for one in follower)
        finally:
            ending.cancel()


def test_a_worker_performs_what_is_offered_until_nothing_is(address: str) -> None:
    with offering(address, clock=SystemClock()) as realm:  # type: ignore[arg-type]
        names = [work_in(realm, box, "x", "y") for box in ("a", "b", "c")]
        reports: list[WorkerReport] = []
        with here(address, upper) as other:
            summary = Worker(other, concurrency=2, name="mailer-1", on_report=reports.append).run(once=True)
        assert (summary.completed, summary.failed, summary.lost, summary.given_up) == (6, 0, 0, [])
        assert realm.data()["boxes"] == {box: ["X", "Y"] for box in "abc"}
        assert {one.kind for one in reports} == {"claimed", "completed"}
        done = [one for name in names for one in events(realm, name) if isinstance(one, EffectFulfilled)]
        assert {one.claim.worker for one in done if one.claim is not None} == {"mailer-1"}
    check_log(address, domain=room)


def test_a_worker_waits_for_offers_of_other_processes_and_stops_when_it_is_told(address: str) -> None:
    with offering(address, clock=SystemClock()) as realm, here(address, upper) as other:  # type: ignore[arg-type]
        worker = Worker(other)
        with running(worker) as ended:
            name = work_in(realm, "a")
            await_event(realm, lambda event: isinstance(event, EffectFulfilled))
        assert ended[0].completed == 1
        assert realm.proposal(name).status == "completed"
        work_in(realm, "b")
        assert len(realm.offered_effects()) == 1  # it claims nothing any more


def test_only_the_types_that_were_named_are_claimed_and_unknown_ones_are_refused(address: str) -> None:
    @handler("other")
    def other_type(_params: Any, _call: Any) -> None:
        return None

    with offering(address, clock=SystemClock()) as realm:  # type: ignore[arg-type]
        work_in(realm, "a")
        with here(address, other_type) as process:
            assert Worker(process, types=["other"]).run(once=True).completed == 0
            for types in (["work"], ["other", "nothing"], []):
                with pytest.raises(RefusedError) as refused:
                    Worker(process, types=types)
                assert refused.value.code == "NO_HANDLER"
            with pytest.raises(RefusedError) as refused:
                Worker(process, concurrency=0)
            assert refused.value.code == "INVALID_VALUE"


def test_heartbeats_keep_a_claim_and_a_lost_claim_ends_the_handler(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("world.pipeline.effects.external_effects.GRACE_MS", 300)
    begun = threading.Event()

    @handler("work", idempotent=True)
    def slow(_params: Any, call: Any) -> None:
        begun.set()
        while True:
            call.check()

    reports: list[WorkerReport] = []
    with offering(address, clock=SystemClock(), time_limit_ms=1) as realm:  # type: ignore[arg-type]
        name = work_in(realm, "a")
        with here(address, slow) as other, running(Worker(other, on_report=reports.append)):
            assert begun.wait(PATIENCE_S)
            await_event(realm, lambda event: isinstance(event, EffectExtended))
            assert [one.kind for one in reports] == ["claimed"]
            realm.host.cancel(name, by="bob", reason="enough")
            await_event(realm, lambda event: isinstance(event, ProposalFailed))
        assert realm.proposal(name).status == "failed"
    assert reports[-1].kind in ("lost", "failed")
    assert reports[-1].code == "CANCELLED"


def test_a_worker_that_is_stopped_finishes_and_one_that_gives_up_reports_nothing(address: str) -> None:
    begun, may_end = threading.Event(), threading.Event()

    @handler("work")
    def blocked(_params: Any, _call: Any) -> str:
        begun.set()
        may_end.wait(PATIENCE_S)
        return "done"

    with offering(address, clock=SystemClock()) as realm:  # type: ignore[arg-type]
        first, second = work_in(realm, "a"), work_in(realm, "b")
        with here(address, blocked) as other:
            worker = Worker(other)
            with running(worker) as ended:
                assert begun.wait(PATIENCE_S)
                worker.stop()
                may_end.set()
            assert ended[0].completed == 1
            assert realm.proposal(first).status == "completed"
            begun.clear()
            may_end.clear()
            worker = Worker(other)
            with running(worker) as ended:
                assert begun.wait(PATIENCE_S)
                worker.give_up()
            assert [one.proposal_id for one in ended[0].given_up] == [second]
            may_end.set()  # what the handler returns now is not reported
        [left] = realm.offered_effects()
        assert left.state == "claimed"  # it lapses, and is in doubt then
        assert realm.proposal(second).status == "executing"


def test_a_failed_effect_is_reported_as_its_result(address: str) -> None:
    @handler("work")
    def broken(_params: Any, _call: Any) -> None:
        raise ValueError("no")

    reports: list[WorkerReport] = []
    with offering(address, clock=SystemClock()) as realm:  # type: ignore[arg-type]
        name = work_in(realm, "a")
        with here(address, broken) as other:
            assert Worker(other, on_report=reports.append).run(once=True).failed == 1
        assert realm.proposal(name).status == "failed"
    assert reports[-1].code == "EFFECT_RAISED"
    assert reports[-1].to_wire()["error"]["code"] == "EFFECT_RAISED"


# Processes that do not execute


@pytest.mark.parametrize("effects", [[], [external("work", needs_workspace=True)]])
def test_a_program_without_effects_and_workspace_performs_nothing(address: str, effects: list[Any]) -> None:
    with Realm.create(address, domain=room, effects=effects, clock=SystemClock()) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        left = realm.act("ann", "do", {})
        assert (left.status, left.to_wire()["held"]) == ("executing", "no handler for work")
        [held] = [one for one in events(realm, left.proposal_id) if isinstance(one, ProposalHeld)]
        assert (held.cause, held.names) == ("effect", ["work"])
        realm.settle()
        assert len([one for one in events(realm, left.proposal_id) if isinstance(one, ProposalHeld)]) == 1
    with here(address, upper) as other:  # a worker knows the handler, offers the effect and performs it
        assert Worker(other).run(once=True).completed == 1
        assert other.proposal(left.proposal_id).status == "completed"
    check_log(address, domain=room)


def test_a_program_that_says_so_executes_and_fails_without_a_handler(address: str) -> None:
    with Realm.create(address, domain=room, execute=True) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        failed = realm.act("ann", "do", {})
        assert failed.error is not None
        assert failed.error.code == "EFFECT_NO_HANDLER"


def test_a_process_with_the_handler_that_does_not_execute_offers_the_effect(address: str) -> None:
    called: list[Any] = []

    @handler("work")
    def work(params: Any, _call: Any) -> str:
        called.append(params["what"])
        return "done"

    with Realm.create(address, domain=room, effects=[work], execute=False) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        waiting = realm.act("ann", "do", {})
        assert (waiting.status, called) == ("executing", [])
        [asked] = [one for one in events(realm, waiting.proposal_id) if isinstance(one, EffectRequested)]
        assert asked.offer is not None
        assert asked.offer.time_limit_ms == 30_000
        perform_offered(realm)
        assert called == []  # it does not execute
    with Realm.open(address, domain=room, effects=[work]) as realm:
        perform_offered(realm)
        assert (realm.proposal(waiting.proposal_id).status, called) == ("completed", ["x"])


def test_an_external_declaration_gives_way_to_a_handler(address: str) -> None:
    for effects in ([external("work"), upper], [upper, external("work")]):
        with Realm.create("sqlite:///:memory:", domain=room, effects=effects) as realm:
            realm.register("ann", "human", binding={"kind": "auto_approve"})
            assert realm.act("ann", "do", {}).status == "completed"


# Workspaces


@pytest.mark.requirement("KO-3.3", "KO-7")
def test_effects_and_rollbacks_that_need_the_workspace_are_performed_by_a_worker_that_has_it(
    address: str, root: Path
) -> None:
    a_workshop(address, root, clock=SystemClock(), ids=None).close()
    change = {"mutates": ["FILE:/b.txt"], "steps": [step("file.append", path="/b.txt", text="!")]}
    with Realm.open(address, domain=workshop, clock=SystemClock()) as away:
        good = away.act("ann", "run", change)
        other = {"mutates": ["FILE:/c.txt"], "steps": [step("file.append", path="/c.txt", text="!")]}
        bad = away.act("bob", "run", {**other, "give_up": True}, scope=[])  # it writes nothing that conflicts
        assert (good.status, bad.status) == ("evaluating", "evaluating")
        with (
            here(address, domain=workshop, workspace=root.parent) as elsewhere,
            pytest.raises(RefusedError) as refused,
        ):
            Worker(elsewhere)
        assert refused.value.code == "OTHER_WORKSPACE"
        with here(address, domain=workshop) as without:
            assert Worker(without).run(once=True).completed == 0
        with here(address, domain=workshop, workspace=root) as worker:
            summary = Worker(worker).run(once=True)
        assert summary.completed == 3  # two effects, and the rollback of the execution that failed
        assert (away.proposal(good.proposal_id).status, away.proposal(bad.proposal_id).status) == (
            "completed",
            "failed",
        )
        assert contents(root) == {"b.txt": "b!", "c.txt": "c"}
        asked = [one for one in events(away, bad.proposal_id) if isinstance(one, EffectRequested)]
        assert [(one.requirement.type, one.offer is not None) for one in asked] == [
            ("file.append", True),
            (ROLLBACK, True),
        ]
        registered = away.realm().workspace
        assert registered is not None
        assert {one.offer.workspace for one in asked if one.offer is not None} == {registered.workspace_id}
        assert len(away.host.verification(bad.proposal_id).rollbacks) == 1
    check_log(address, domain=workshop)
