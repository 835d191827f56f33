"""The realm's workspace: its id, its registration, and what a process without it leaves to the one that has it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.workspace import Workspace
from host.workspace.workspace_id import give_workspace_id, read_workspace_id
from tests.pipeline.works import check_log
from tests.pipeline.workshop import a_workshop, contents, step, workshop
from world.clock import ManualClock, SequentialIds
from world.errors import RefusedError
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import DecisionMade, ProposalHeld
from world.events.realm_events import WorkspaceRegistered
from world.read_models.decoding import decoded
from worldprotocol.api.executing.workspaces import keep_workspace, replace_workspace
from worldprotocol.api.realm import Realm

CHANGE = {"mutates": ["FILE:/b.txt"], "steps": [step("file.append", path="/b.txt", text="!")]}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "b.txt").write_text("b")
    return folder


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "world.db")


def opened(address: str, root: Path | None, name: str, **options: Any) -> Realm:
    """Open the workshop as another process, which has ids and a time of its own."""
    given: dict[str, Any] = {"clock": ManualClock(2_000, 1), **options}
    return Realm.open(address, domain=workshop, workspace=root, ids=SequentialIds(name), **given)


def of_type(world: Realm, kind: Any) -> list[Any]:
    return [decoded(one) for one in world.log.read(topics=[kind.TOPIC])]


def test_an_id_is_written_once_and_read_again(root: Path) -> None:
    with Workspace(root) as place:
        assert read_workspace_id(place) is None
        assert give_workspace_id(place, "workspace-one") == "workspace-one"
        assert give_workspace_id(place, "workspace-two") == "workspace-one"
        assert read_workspace_id(place) == "workspace-one"
    root.rename(root.with_name("renamed"))
    with Workspace(root.with_name("renamed")) as place:
        assert read_workspace_id(place) == "workspace-one"  # a renamed folder is the same workspace


def test_a_copied_folder_is_not_the_workspace_until_somebody_says_so(root: Path) -> None:
    with Workspace(root) as place:
        give_workspace_id(place, "workspace-one")
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    with Workspace(copy) as place:
        with pytest.raises(RefusedError) as refused:
            read_workspace_id(place)
        assert refused.value.code == "WORKSPACE_COPIED"
        assert "worldctl workspace keep" in refused.value.message
        give_workspace_id(place, "workspace-one", replace=True)
        assert read_workspace_id(place) == "workspace-one"


@given(text=st.binary(max_size=80))
def test_a_file_of_another_form_is_refused(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    folder = tmp_path_factory.mktemp("form")
    (folder / ".klock").mkdir()
    (folder / ".klock" / "workspace-id").write_bytes(text)
    with Workspace(folder) as place:
        with pytest.raises(RefusedError) as refused:
            read_workspace_id(place)
        assert refused.value.code in ("WORKSPACE_ID_DAMAGED", "WORKSPACE_COPIED")


def test_the_first_process_that_executes_registers_its_workspace(address: str, root: Path) -> None:
    with a_workshop(address, root) as world:
        [registered] = of_type(world, WorkspaceRegistered)
        with Workspace(root) as place:
            assert read_workspace_id(place) == registered.workspace_id
        done = world.act("ann", "run", CHANGE)
        assert done.status == "completed"
        [verdict] = of_type(world, VerdictGiven)
        [decision] = of_type(world, DecisionMade)
        assert (verdict.backup, verdict.workspace) == (True, registered.workspace_id)
        assert (decision.backup, decision.workspace) == (True, registered.workspace_id)
    with opened(address, root, "second") as world:
        assert len(of_type(world, WorkspaceRegistered)) == 1


def test_a_process_that_does_not_execute_registers_nothing(address: str, root: Path) -> None:
    with a_workshop(address, root, execute=False) as world:
        assert of_type(world, WorkspaceRegistered) == []
    assert not (root / ".klock" / "workspace-id").exists()


@pytest.mark.requirement("KO-7")
def test_leases_that_need_a_backup_are_left_to_a_process_with_the_workspace(address: str, root: Path) -> None:
    a_workshop(address, root).close()
    with opened(address, None, "second") as world:
        left = world.act("ann", "run", CHANGE)
        assert (left.status, left.decision) == ("evaluating", None)
        [held] = of_type(world, ProposalHeld)
        [registered] = of_type(world, WorkspaceRegistered)
        assert (held.cause, held.in_force, held.at_hand) == ("workspace", registered.workspace_id, None)
        assert left.to_wire()["held"] == f"workspace {registered.workspace_id} is elsewhere"
        assert of_type(world, VerdictGiven) == []
        world.settle()
        assert len(of_type(world, ProposalHeld)) == 1  # it is said once
        free = world.act("bob", "run", {"steps": []})
        assert free.status == "completed"  # what changes no file goes on here
    with opened(address, root, "third") as world:
        done = world.proposal(left.proposal_id)
        assert done.status == "completed"
        assert contents(root)["b.txt"] == "b!"
        assert [one.backup for one in of_type(world, VerdictGiven) if one.request_id == left.proposal_id] == [True]
    check_log(address, domain=workshop)


@pytest.mark.requirement("KO-7")
def test_a_queued_request_that_another_process_frees_is_granted_where_the_workspace_is(
    address: str, root: Path
) -> None:
    with a_workshop(address, root) as here, opened(address, None, "second", execute=False) as away:
        here.leases.desk.register_agent("ann", by="ann")  # older than bob: it waits for bob's lease
        blocker = here.leases.acquire(agent="bob", resource="FILE:/b.txt")
        waiting = here.act("ann", "run", CHANGE)
        assert waiting.proposal_id in here.realm().klis.requests
        ids = [lease.lease_id for lease in blocker.verdict.leases]
        away.leases.desk.release(ids, agent_id=blocker.agent, session_id=blocker.session)
        assert waiting.proposal_id in away.realm().klis.requests  # freed, and not granted there
        here.settle()
        assert here.proposal(waiting.proposal_id).status == "completed"
        assert contents(root)["b.txt"] == "b!"
    check_log(address, domain=workshop)


@pytest.mark.requirement("KO-7")
def test_a_direct_request_without_the_workspace_is_refused_with_the_way_out(address: str, root: Path) -> None:
    a_workshop(address, root).close()
    with opened(address, None, "second") as world:
        with pytest.raises(RefusedError) as refused:
            world.leases.acquire(agent="ann", resource="FILE:/b.txt")
        assert refused.value.code == "WORKSPACE_ELSEWHERE"
        assert world.leases.acquire(agent="ann", resource="FILE:/b.txt", predicate="CONSUMES").verdict.leases


def test_another_folder_is_refused_where_it_would_execute(address: str, root: Path, tmp_path: Path) -> None:
    a_workshop(address, root).close()
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(RefusedError) as refused:
        opened(address, other, "second")
    assert refused.value.code == "OTHER_WORKSPACE"
    assert "has no id" in refused.value.message
    with opened(address, other, "third", execute=False) as world:
        assert world.act("ann", "run", CHANGE).status == "evaluating"
        new = replace_workspace(world._acting, world._composed, by="ann")
        assert [one.workspace_id for one in of_type(world, WorkspaceRegistered)][-1] == new
    with opened(address, other, "fourth") as world:
        assert contents(other)["b.txt"] == "!"
    with pytest.raises(RefusedError) as refused:
        opened(address, root, "fifth")
    assert refused.value.code == "OTHER_WORKSPACE"


def test_a_deleted_id_is_refused_and_given_back(address: str, root: Path) -> None:
    a_workshop(address, root).close()
    (root / ".klock" / "workspace-id").unlink()
    with pytest.raises(RefusedError) as refused:
        opened(address, root, "second")
    assert refused.value.code == "OTHER_WORKSPACE"
    assert "was deleted" in refused.value.message
    with opened(address, root, "third", execute=False) as world:
        keep_workspace(world._acting, world._composed)
    with opened(address, root, "fourth") as world:
        assert world.act("ann", "run", CHANGE).status == "completed"
        assert len(of_type(world, WorkspaceRegistered)) == 1


def test_a_backup_of_an_earlier_workspace_is_not_restored_from_another(
    address: str, root: Path, tmp_path: Path
) -> None:
    from tests.pipeline.test_left_behind import left_half_done, quiet

    name = left_half_done(address, root, idempotent=True)
    other = tmp_path / "other"
    other.mkdir()
    with opened(address, other, "second", execute=False, effects=[quiet(True)]) as world:
        replace_workspace(world._acting, world._composed, by="ann")
    with opened(address, other, "third", effects=[quiet(True)]) as world:
        assert world.proposal(name).status == "executing"
        with pytest.raises(RefusedError) as refused:
            world.host.resolve(name, "fail", by="bob", reason="unknown")
        assert refused.value.code in ("NO_WORKSPACE", "NOT_IN_DOUBT")
