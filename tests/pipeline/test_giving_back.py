"""What an execution did to the workspace is given back when it fails, and only if it may be (KO-3.3, KO-7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from host import EffectFailure, handler
from host.backups.restore import Restored
from tests.pipeline.works import Held, acting, check_log, running, vanish
from tests.pipeline.workshop import BEFORE, STEPS, a_workshop, contents, furnished, step, workshop
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock, SequentialIds
from world.errors import RefusedError
from world.events.realm_events import WorldSealed
from world.events.run_events import RunViolated
from world.limits import Limits
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.requirement("HC-handlers", "KO-3")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return furnished(tmp_path / "ws")


def check(address: str) -> Any:
    return check_log(address, domain=workshop)


@pytest.mark.requirement("KO-3.3", "KM-2.2")
def test_who_lost_the_leases_gives_nothing_back_because_it_may_be_somebody_elses(address: str, root: Path) -> None:
    held = Held()

    @handler("slow")
    def slow(params: Any, call: Any) -> Any:
        return held(params, call)

    steps = [step("file.append", path="/b.txt", text="!"), step("slow")]
    with a_workshop(address, root, effects=[slow]) as world:
        with acting(world, "ann", "run", {"mutates": ["FILE:/b.txt"], "steps": steps}) as ended:
            assert held.begun.wait(PATIENCE_S)
            leases = [lease.lease_id for lease in world.realm().klis.leases.values()]
            world.leases.desk.revoke(leases, by="operator", reason="runaway")
            other = world.act("bob", "run", {"mutates": ["FILE:/b.txt"], "steps": steps[:1]})
            assert other.status == "completed"
            held.may_go.set()
        assert ended[0].error.code == "LEASES_REVOKED"
        assert ended[0].rollback is None
        assert contents(root)["b.txt"] == "b!!"
    check(address)


@pytest.mark.requirement("KO-7")
def test_where_no_backup_can_be_made_nothing_is_granted_and_the_proposal_says_why(
    address: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_workshop(address, root) as world:
        premises = world.host.premises

        def full(*given: Any, **more: Any) -> Any:
            raise RefusedError("BACKUP_FAILED", "The disk is full; make room on it.")

        with monkeypatch.context() as broken:
            broken.setattr(premises.backups, "take", full)
            rejected = world.act("ann", "run", {"mutates": ["FILE:/b.txt"], "steps": STEPS[1:2]})
        assert rejected.status == "rejected"
        assert rejected.decision is not None
        assert "The disk is full; make room on it." in rejected.decision.reason
        assert world.realm().klis.leases == {}
        assert contents(root) == BEFORE
        assert world.act("ann", "run", {"consumes": ["FILE:/a.txt"], "steps": STEPS[:1]}).status == "completed"
        assert world.act("ann", "run", {"mutates": ["FILE:/b.txt"], "steps": STEPS[1:2]}).status == "completed"
    check(address)


@pytest.mark.requirement("KO-3.3", "WP-exec")
def test_a_rollback_that_its_process_did_not_finish_is_finished_by_the_next(
    address: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"mutates": ["FILE:/b.txt"], "steps": STEPS[1:2], "give_up": True}
    with a_workshop(address, root) as world:
        monkeypatch.setattr(world.host.premises.backups, "restore", lambda *_given, **_more: vanish(None, None))
        with pytest.raises(KeyboardInterrupt):
            world.act("ann", "run", plan)
        name = running(world)
        assert contents(root)["b.txt"] == "bb"
    given: dict[str, Any] = {"clock": ManualClock(500_000, 1), "ids": SequentialIds("later")}
    with Realm.open(address, domain=workshop, workspace=root, **given) as world:
        assert contents(root) == BEFORE
        ended = world.proposal(name)
        assert ended.error is not None
        assert (ended.status, ended.error.code) == ("failed", "GIVEN_UP")
        assert world.host.verification(name).rollbacks[0].restored == ["/b.txt"]
    check(address)


@pytest.mark.requirement("KO-3.3")
def test_what_cannot_be_given_back_is_told_and_the_proposal_ends_all_the_same(
    address: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"mutates": ["FILE:/b.txt"], "steps": STEPS[1:2], "give_up": True}
    tries: list[str] = []
    with a_workshop(address, root) as world:

        def broken(backup: str, **more: Any) -> Any:
            tries.append(backup)
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("world.pipeline.effects.effect_results.MAX_BACKOFF_MS", 1)
        monkeypatch.setattr(world.host.premises.backups, "restore", broken)
        failed = world.act("ann", "run", plan)
        assert failed.error is not None
        assert (failed.status, failed.error.code) == ("failed", "GIVEN_UP")
        assert len(tries) == 4
        (back,) = world.host.verification(failed.proposal_id).rollbacks
        assert "Input/output error" in back.failed[0]
    check(address)


@pytest.mark.requirement("KO-3.3")
def test_a_file_that_cannot_be_given_back_is_recorded_beside_those_that_are(
    address: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"mutates": ["FILE:/b.txt"], "steps": STEPS[1:2], "give_up": True}
    with a_workshop(address, root) as world:
        partly = Restored(["/b.txt"], ["/new"], ["/c.txt"], reasons={"/c.txt": "it is busy"})
        monkeypatch.setattr(world.host.premises.backups, "restore", lambda *_given, **_more: partly)
        failed = world.act("ann", "run", plan)
        (back,) = world.host.verification(failed.proposal_id).rollbacks
        assert (back.restored, back.removed, back.failed) == (["/b.txt"], ["/new"], ["/c.txt: it is busy"])


@pytest.mark.requirement("HC-journal", "KO-3.3")
def test_an_effect_in_doubt_that_is_called_off_is_given_back_by_whoever_calls_it_off(address: str, root: Path) -> None:
    @handler("crash")
    def crash(params: Any, call: Any) -> Any:
        (root / "b.txt").write_text("half")
        raise KeyboardInterrupt

    plan = {"mutates": ["FILE:/b.txt"], "steps": [step("crash")]}
    with a_workshop(address, root, effects=[crash]) as world:
        with pytest.raises(KeyboardInterrupt):
            world.act("ann", "run", plan)
        name = running(world)
    for seed in ("second", "third"):
        given: dict[str, Any] = {"clock": ManualClock(500_000, 1), "ids": SequentialIds(seed), "effects": [crash]}
        with Realm.open(address, domain=workshop, workspace=root, **given) as world:
            assert len(world.host.stuck()) == 1
            assert contents(root)["b.txt"] == "half"  # a person may want to look
            if seed == "third":
                failed = world.host.cancel(name, by="bob", reason="away with it")
                assert failed.error is not None
                assert failed.error.code == "CANCELLED"
                assert contents(root) == BEFORE
    check(address)


@pytest.mark.requirement("HC-handlers")
def test_without_a_workspace_nothing_is_watched_and_file_effects_say_what_is_missing(address: str) -> None:
    with Realm.create(address, domain=workshop, execute=True) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        failed = world.act("ann", "run", {"mutates": ["FILE:/b.txt"], "steps": STEPS[1:2]})
        assert failed.error is not None
        assert failed.error.code == "EFFECT_NO_WORKSPACE"
        assert failed.rollback is None
    check(address)


def test_a_handler_that_says_what_is_wrong_is_no_violation(address: str, root: Path) -> None:
    @handler("no", touches=[("CONSUMES", "FILE:/a.txt")])
    def no(params: Any, call: Any) -> Any:
        return EffectFailure("NO", "not like this")

    with a_workshop(address, root, effects=[no]) as world:
        failed = world.act("ann", "run", {"consumes": ["FILE:/a.txt"], "steps": [step("no")]})
        assert failed.error is not None
        assert failed.error.code == "NO"
        assert not [event for _, event in world.events() if isinstance(event, RunViolated)]
        assert [event.outcome for _, event in world.events() if isinstance(event, WorldSealed)][-1] == "failed"
    check(address)


@pytest.mark.requirement("KO-3.3", "WP-exec")
def test_a_world_too_large_for_the_log_is_undone_and_ends_its_proposal(address: str, root: Path) -> None:
    (root / "b.txt").write_text("b" * 3_000)
    steps = [step("file.write", path="/new.txt", text="new"), *[step("file.read", path="/b.txt")] * 2]
    plan = {"mutates": ["FILE:/new.txt"], "consumes": ["FILE:/b.txt"], "steps": steps}
    with a_workshop(address, root, limits=Limits(max_event_bytes=6_000)) as world:
        failed = world.act("ann", "run", plan)
        assert failed.error is not None
        assert (failed.status, failed.error.code) == ("failed", "WORLD_TOO_LARGE")
        assert not (root / "new.txt").exists()
    check(address)
