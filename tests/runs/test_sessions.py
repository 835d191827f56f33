"""Governed sessions of Python code: leases, interception, record, and undoing what went wrong."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.runs.realm import a_workspace, opened, text_of
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock
from world.errors import RefusedError, ScopeViolationError
from world.events.lease_events import LeasesReleased
from world.events.run_events import (
    RunAmended,
    RunClosed,
    RunCompared,
    RunObserved,
    RunOpened,
    RunRolledBack,
    RunViolated,
)
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol import Realm
from worldprotocol.runs.governed import RunOptions

BEFORE = {"notes.txt": "notes\n", "src/a.py": "one\n"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_workspace(tmp_path)


def events_of(world: Realm, run_id: str) -> list[Any]:
    return [event for _, event in world.events() if getattr(event, "run_id", None) == run_id]


@pytest.mark.requirement("KO-4", "KO-2.1")
def test_a_session_that_keeps_to_its_word_is_recorded_from_beginning_to_end(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        with world.host.session(agent="ann", reads=[f"{root}/notes.txt"], writes=[f"{root}/src/**"]) as session:
            (root / "src" / "b.py").write_text((root / "notes.txt").read_text())
            assert world.realm().klis.leases
        assert session.outcome == "completed"
        run_id = session.run.run_id
        kinds = [type(event) for event in events_of(world, run_id)]
        assert (kinds[0], kinds[-1], set(kinds[1:-1])) == (RunOpened, RunClosed, {RunObserved, RunCompared})
        assert not world.realm().klis.leases
        assert not world.realm().runs
        told = world.host.verification(run_id).to_wire()
    observed = {(one["predicate"], one["resource"], one["depth"]) for one in told["observed"]}
    assert observed == {
        ("CONSUMES", "FILE:/notes.txt", "process"),
        ("PROVIDES", "FILE:/src/b.py", "process"),
        ("PROVIDES", "FILE:/src/b.py", "content"),
    }
    assert (told["outcome"], told["violations"], told["unused"]) == ("completed", [], [])
    assert told["changes"] == [{"kind": "created", "resource": "FILE:/src/b.py"}]
    assert told["heldBy"] == ["audit hooks", "content"]
    assert text_of(root)["src/b.py"] == "notes\n"


@pytest.mark.requirement("KO-4")
def test_what_was_declared_and_not_used_is_told_and_is_no_violation(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        with world.host.session(agent="ann", reads=[f"{root}/notes.txt"], creates=["/report.txt"]) as session:
            (root / "notes.txt").read_text()
        told = world.host.verification(session.run.run_id).to_wire()
    assert session.outcome == "completed"
    assert told["unused"] == [{"predicate": "PROVIDES", "resource": "FILE:/report.txt"}]


@pytest.mark.requirement("KO-3", "KO-3.1", "KO-3.2a", "KO-3.3")
def test_a_violation_is_stopped_ends_the_session_and_everything_is_as_before(tmp_path: Path, root: Path) -> None:
    mode = (root / "src" / "a.py").stat().st_mode
    with opened(tmp_path) as world:
        session = world.host.session(agent="ann", reads=["/notes.txt"], writes=["/src/**"])
        with pytest.raises(ScopeViolationError) as caught, session:
            (root / "src" / "a.py").write_text("changed")
            (root / "src" / "a.py").chmod(0o600)
            (root / "src" / "new").mkdir()
            (root / "src" / "new" / "x").write_text("x")
            (root / "notes.txt").write_text("never")
        assert caught.value.message.startswith("Agent attempted MUTATES on /notes.txt but only declared CONSUMES.")
        assert session.outcome == "violated"
        kinds = [type(event) for event in events_of(world, session.run.run_id)]
        released = [position for position, event in world.events() if isinstance(event, LeasesReleased)]
        rolled = [position for position, event in world.events() if isinstance(event, RunRolledBack)]
        assert rolled[-1] < released[-1]  # nobody else saw what was being undone
    assert kinds.count(RunViolated) == 1
    assert text_of(root) == BEFORE
    assert (root / "src" / "a.py").stat().st_mode == mode
    assert not (root / "src" / "new").exists()


@pytest.mark.requirement("KO-3.2a")
def test_code_that_swallows_the_violation_gains_nothing(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        session = world.host.session(agent="ann", writes=["/src/**"])
        with pytest.raises(ScopeViolationError), session:
            for path in (root / "notes.txt", root / "src" / "a.py"):
                try:
                    path.write_text("swallowed")
                except Exception:  # noqa: BLE001
                    continue
    assert text_of(root) == BEFORE


@pytest.mark.requirement("KO-3.3")
def test_an_exception_undoes_what_was_done_unless_it_is_to_be_kept(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        session = world.host.session(agent="ann", writes=["/src/**"])
        with pytest.raises(ZeroDivisionError), session:
            (root / "src" / "a.py").write_text("half")
            _ = 1 / 0
        assert (session.outcome, text_of(root)) == ("failed", BEFORE)
        assert "ZeroDivisionError" in world.host.verification(session.run.run_id).to_wire()["reason"]
        session = world.host.session(agent="ann", writes=["/src/**"], run_options=RunOptions(keep=True))
        with pytest.raises(ZeroDivisionError), session:
            (root / "src" / "a.py").write_text("half")
            _ = 1 / 0
    assert text_of(root)["src/a.py"] == "half"


@pytest.mark.requirement("KO-3.2b")
def test_permissive_mode_widens_the_scope_by_leases_unless_somebody_is_there(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        taken = world.leases.acquire(agent="old", resource="FILE:/notes.txt", predicate="CONSUMES", timeout=0)
        session = world.host.session(agent="young", writes=["/src/**"], run_options=RunOptions(mode="permissive"))
        with session:
            (root / "extra.txt").write_text("more")
            with pytest.raises(ScopeViolationError):
                (root / "notes.txt").write_text("conflict")
            (root / "src" / "a.py").write_text("goes on")
        taken.release()
        told = world.host.verification(session.run.run_id).to_wire()
        amended = [event for event in events_of(world, session.run.run_id) if isinstance(event, RunAmended)]
        assert not world.realm().klis.leases
    assert (session.outcome, told["mode"]) == ("completed", "permissive")
    assert [(one.predicate, one.resource) for one in amended] == [("PROVIDES", "FILE:/extra.txt")]
    assert [one["resource"] for one in told["violations"]] == ["FILE:/notes.txt"]
    assert text_of(root) == {"extra.txt": "more", "notes.txt": "notes\n", "src/a.py": "goes on"}


def test_others_in_the_same_process_are_left_alone(tmp_path: Path, root: Path) -> None:
    done: list[str] = []
    began, may_go = threading.Event(), threading.Event()

    def bystander() -> None:
        began.set()
        may_go.wait(PATIENCE_S)
        (root / "beside.txt").write_text("not the session's")
        done.append("wrote")

    other = threading.Thread(target=bystander)
    other.start()
    began.wait(PATIENCE_S)
    with opened(tmp_path) as world:
        session = world.host.session(agent="ann", writes=["/src/**"], run_options=RunOptions(compare=False))
        with session:
            may_go.set()
            other.join(PATIENCE_S)
            (root / "src" / "a.py").write_text("two\n")
    assert (done, session.outcome) == (["wrote"], "completed")


@pytest.mark.requirement("KO-3")
def test_tasks_and_threads_of_a_session_belong_to_it_and_two_sessions_do_not_meet(tmp_path: Path, root: Path) -> None:
    (root / "docs").mkdir()

    async def agent(world: Realm, name: str, folder: str, wrong: bool) -> str:
        try:
            async with world.host.session(agent=name, writes=[f"/{folder}/**"]) as session:
                await asyncio.sleep(0.01)
                await asyncio.to_thread((root / folder / f"{name}.txt").write_text, name)
                if wrong:
                    await asyncio.create_task(asyncio.to_thread((root / "notes.txt").write_text, "never"))
        except ScopeViolationError:
            return f"{name} {session.outcome}"
        return f"{name} {session.outcome}"

    async def main(world: Realm) -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            asked = [
                tasks.create_task(agent(world, name, folder, wrong))
                for name, folder, wrong in (("ann", "src", False), ("bob", "docs", True))
            ]
        return [one.result() for one in asked]

    with opened(tmp_path) as world:
        assert asyncio.run(main(world)) == ["ann completed", "bob violated"]
    assert text_of(root) == {**BEFORE, "src/ann.txt": "ann"}


@pytest.mark.requirement("KO-5.2")
def test_what_a_child_process_of_a_session_did_is_found_in_the_content(tmp_path: Path, root: Path) -> None:
    script = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('from a child')"
    manifest = {
        "ver": "1.0",
        "session_id": "s",
        "agent_id": "ann",
        "scope": [
            {"predicate": "PROVIDES", "resource": f"PROCESS:{os.path.basename(sys.executable)}"},
            {"predicate": "MUTATES", "resource": "FILE:/src/*"},
        ],
    }
    with opened(tmp_path) as world:
        session = world.host.session(manifest=manifest, run_options=RunOptions(by="ann"))
        with pytest.raises(ScopeViolationError, match=r"MUTATES on /notes\.txt"), session:
            (root / "src" / "a.py").write_text("two")
            subprocess.run([sys.executable, "-I", "-c", script, str(root / "notes.txt")], check=True)
        (violation,) = world.host.verification(session.run.run_id).violations
    assert (session.outcome, violation.depth, violation.blocked) == ("violated", "content", False)
    assert text_of(root)["src/a.py"] == "one\n"


@pytest.mark.requirement("KO-7")
def test_nothing_is_granted_where_no_backup_can_be_made(tmp_path: Path, root: Path) -> None:
    (root / ".klock").mkdir()
    (root / ".klock" / "backups").write_text("not a folder")
    with opened(tmp_path) as world:
        with pytest.raises(RefusedError) as refused, world.host.session(agent="ann", writes=["/src/**"]):
            raise AssertionError("it must not begin")
        assert "backup" in refused.value.message.lower()
        assert not world.realm().klis.leases
        assert not world.realm().runs
        with world.host.session(agent="ann", reads=["/notes.txt"]):  # who changes nothing needs none
            (root / "notes.txt").read_text()


@pytest.mark.requirement("KO-7")
def test_a_plain_lease_is_backed_up_before_it_is_granted(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        held = world.leases.acquire(agent="ann", resource="FILE:/src/a.py", predicate="DELETES", timeout=0)
        assert held.verdict.backup
        (root / "src" / "a.py").unlink()
        world.host.premises.restore(held.verdict.verdict_id)
        assert text_of(root) == BEFORE
        held.release()
        read = world.leases.acquire(agent="ann", resource="FILE:/notes.txt", predicate="CONSUMES", timeout=0)
        assert not read.verdict.backup


@pytest.mark.requirement("KO-3.3")
def test_who_lost_the_leases_is_stopped_and_touches_nothing_any_more(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        session = world.host.session(agent="ann", writes=["/src/**"])
        with pytest.raises((ScopeViolationError, RefusedError)) as caught, session:
            (root / "src" / "a.py").write_text("mine")
            ids = list(session.run.held.lease_ids)
            threading.Thread(target=lambda: world.leases.desk.revoke(ids, by="operator", reason="enough")).start()
            for _ in range(400):
                threading.Event().wait(0.025)
                (root / "src" / "a.py").stat()
                (root / "src" / "a.py").open("a").close()
        assert "leases were lost" in str(caught.value)
        told = world.host.verification(session.run.run_id)
    assert (session.outcome, told.rollbacks) == ("lost", [])
    assert text_of(root)["src/a.py"] == "mine"  # what is there now may be somebody else's


@pytest.mark.requirement("KO-3.3")
@pytest.mark.slow
def test_a_run_whose_process_vanished_is_given_back_at_the_next_start(tmp_path: Path, root: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from tests.runs.realm import opened\n"
        "folder = Path(sys.argv[1])\n"
        "with opened(folder) as world:\n"
        "    with world.host.session(agent='ann', writes=['/src/**']) as session:\n"
        "        (folder / 'w/src/a.py').write_text('half done')\n"
        "        (folder / 'w/src/new.py').write_text('new')\n"
        "        session.run.record.flush()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=Path(__file__).parents[2], timeout=PATIENCE_S, check=False
    )
    assert child.returncode == -9
    assert text_of(root)["src/a.py"] == "half done"
    with opened(tmp_path) as world:
        assert text_of(root) == BEFORE
        (closed,) = [event for _, event in world.events() if isinstance(event, RunClosed)]
        assert closed.outcome == "interrupted"
        assert not world.realm().klis.leases
        told = world.host.verification(closed.run_id)
        assert told.rollbacks[0].restored


def test_places_are_declared_as_people_write_them(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "src")
    with opened(tmp_path) as world:
        host = world.host
        several: tuple[tuple[dict[str, Any], str], ...] = (
            ({"reads": ["*.c"]}, "NO_MATCH"),
            ({"reads": ["../../elsewhere"]}, "OUTSIDE_WORKSPACE"),
            ({}, "NOTHING_DECLARED"),
            ({"writes": ["/**"]}, "GLOBAL_SCOPE"),
        )
        for wrong, code in several:
            with pytest.raises(RefusedError) as refused, host.session(agent="ann", **wrong):
                raise AssertionError("it must not begin")
            assert refused.value.code == code
        with host.session(agent="ann", reads=["*.py", "../notes.txt"], writes=["out/"]) as session:
            assert {one.resource.text for one in session.run.watch.declaration.triples} == {
                "FILE:/src/a.py",
                "FILE:/notes.txt",
                "FILE:/src/out/*",
            }
        with pytest.raises(RefusedError, match="The session has no agent"):
            host.session(reads=["a.py"])


def test_without_a_workspace_there_are_no_governed_runs(tmp_path: Path) -> None:
    from tests.golden.garden import garden

    with Realm.create(tmp_path / "log.db", domain=garden) as world:
        with pytest.raises(RefusedError) as refused:
            world.host.session(agent="ann", reads=["a"])
        assert refused.value.code == "NO_WORKSPACE"
    with pytest.raises(RefusedError) as refused:
        Realm.open(tmp_path / "log.db", domain=garden, workspace=tmp_path / "missing")
    assert refused.value.code == "WORKSPACE_MISSING"


@pytest.mark.requirement("KP-4b")
@pytest.mark.slow
def test_the_leases_of_a_run_live_on_for_as_long_as_it_works(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path, clock=ManualClock(1_000, 10)) as world:  # which heartbeats move, however late they are
        with world.host.session(agent="ann", writes=["/src/**"], run_options=RunOptions(ttl_ms=300)) as session:
            granted = world.realm().klis.leases[session.run.held.lease_ids[0]].expires_at
            assert granted is not None
            while world.realm().klis.clock <= granted + 300:  # heartbeats alone move this clock on
                threading.Event().wait(0.02)
            assert session.run.held.is_active
        assert session.outcome == "completed"


@pytest.mark.requirement("KO-3")
def test_where_case_does_not_tell_names_apart_it_does_not_for_agents_either(tmp_path: Path, root: Path) -> None:
    limits = Limits(klis=KlisSettings(lower_case=True))
    with opened(tmp_path, limits=limits) as world:
        with world.host.session(agent="ann", writes=["/SRC/**"]) as session:
            (root / "src" / "New.py").write_text("new")
            with pytest.raises(RefusedError) as refused:
                world.leases.acquire(agent="bob", resource="FILE:/src/new.py", timeout=0)
            assert refused.value.code == "DIED"
        assert session.outcome == "completed"
        session = world.host.session(agent="ann", writes=["/Src/**"])
        with pytest.raises(ScopeViolationError), session:
            (root / "src" / "A.PY").write_text("undone")
            (root / "notes.txt").write_text("never")
    assert text_of(root) == {**BEFORE, "src/New.py": "new"}
