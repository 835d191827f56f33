"""``process.run`` in a proposal: the command is held to what the proposal was granted, by the system where possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from host.confinement import namespaces, tree
from tests.pipeline.works import check_log
from tests.pipeline.workshop import a_workshop, contents, step, workshop
from worldprotocol.runs.command import confinement_support

COMMAND = "echo one > in/one; echo two > outside; echo three > in/three"


BOTH: list[namespaces.Maker] = ["unshare", "bubblewrap"]
MAKERS: list[namespaces.Wanted] = [maker for maker in BOTH if namespaces.available(maker).why_not is None]
"""What makes namespaces on this machine."""


@pytest.mark.requirement("KO-3", "KO-3.3", "KO-5.2")
@pytest.mark.parametrize("maker", MAKERS or ["auto"])
def test_a_command_of_a_proposal_cannot_do_what_the_proposal_was_not_granted(
    tmp_path: Path, maker: namespaces.Wanted
) -> None:
    root = tmp_path / "ws"
    (root / "in").mkdir(parents=True)
    address = str(tmp_path / "w.db")
    granted = {"mutates": ["FILE:/in/*"], "provides": ["PROCESS:sh"]}
    with a_workshop(address, root, namespaces=maker) as world:
        steps = [step("process.run", argv=["sh", "-c", "cd ..; " + COMMAND], cwd="/in")]
        done = world.act("ann", "run", {**granted, "steps": steps})
        if confinement_support().why_not is not None:
            assert done.status == "completed"
            return
        assert done.error is not None
        assert (done.status, done.error.code) == ("failed", "KLIS_SCOPE_VIOLATION")
        assert contents(root) == {"in": "/"}
        (violation,) = world.host.verification(done.proposal_id).violations
        assert (violation.depth, violation.blocked, violation.resource) == ("child", True, "FILE:/outside")
        fine = world.act("ann", "run", {**granted, "steps": [step("process.run", argv=["touch", "x"], cwd="/in")]})
        assert (fine.status, contents(root)) == ("completed", {"in": "/", "in/x": ""})
    check_log(address, domain=workshop)


def test_where_the_kernel_makes_no_namespaces_a_command_is_held_by_the_other_walls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that cannot be made stands for a kernel that makes no namespaces: either is found out by trying."""
    monkeypatch.setattr(namespaces, "_probed", {})
    monkeypatch.setattr(namespaces, "_tried", lambda _: namespaces.Namespaces(None, "There are none."))
    impossible = {
        "network": False,
        "mounts": [],
        "covers": [],
        "folders": [b"/" + b"n" * 256],
        "files": [],
        "links": [],
    }
    monkeypatch.setattr(tree.MountTree, "to_wire", lambda _: impossible)
    root = tmp_path / "ws"
    (root / "in").mkdir(parents=True)
    with a_workshop(str(tmp_path / "w.db"), root) as world:
        granted = {"mutates": ["FILE:/in/*"], "provides": ["PROCESS:touch"]}
        for name in ("x", "y"):
            plan = {**granted, "steps": [step("process.run", argv=["touch", name], cwd="/in")]}
            assert world.act("ann", "run", plan).status == "completed"
            assert (root / "in" / name).exists()
    assert namespaces.are_missing() is (confinement_support().why_not is None)
