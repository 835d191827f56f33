"""Handlers that are registered with ``isolation="process"`` run in a child that is held to what was declared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from host import handler
from tests.pipeline.isolated_handlers import HANDLERS
from tests.pipeline.works import check_log
from tests.pipeline.workshop import a_workshop, contents, step, workshop
from world.clock import SequentialIds
from world.errors import RefusedError
from worldprotocol import Realm
from worldprotocol.runs.command import confinement_support

CONFINED = confinement_support().why_not is None


def done(folder: Path, *steps: Any, **declared: Any) -> Any:
    root = folder / "ws"
    (root / "in").mkdir(parents=True, exist_ok=True)
    address = str(folder / "w.db")
    ids = SequentialIds(str(folder))  # the recovery of another test ends processes of proposals that it calls its own
    with a_workshop(address, root, effects=HANDLERS, ids=ids) as world:
        proposal = world.act("ann", "run", {"mutates": ["FILE:/in/*"], **declared, "steps": list(steps)})
        told = world.data()["told"]
        seen = world.host.verification(proposal.proposal_id)
    check_log(address, domain=workshop)
    return proposal, told, seen


@pytest.mark.requirement("KO-5.2", "HC-handlers")
@pytest.mark.slow
def test_a_handler_makes_its_effect_in_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "SECRET")
    proposal, told, seen = done(tmp_path, step("own.write", path="/in/x", text="one"), step("own.later", n=1))
    if not CONFINED:
        assert proposal.error.code == "CONFINEMENT_UNAVAILABLE"
        return
    assert (proposal.status, proposal.error) == ("completed", None), str(proposal.error)
    assert contents(tmp_path / "ws") == {"in": "/", "in/x": "one"}
    assert ("PROVIDES", "FILE:/in/x", "child") in {
        (one["predicate"], one["resource"], one["depth"]) for one in seen.to_wire()["observed"]
    }
    assert (told[0]["pid"] != os.getpid(), told[0]["token"], told[1]) == (True, None, {"n": 1})
    assert told[0]["key"].startswith(proposal.submitted.intent.intent_id)


STRAYS = {
    "write": "open('outside', 'w')",
    "atexit": "import atexit; atexit.register(lambda: open('outside', 'w'))",
    "ctypes": "import ctypes; assert ctypes.CDLL(None).open(b'outside', 0o1101, 0o600) >= 0",
    "kill of the engine": f"os.kill({os.getpid()}, 9)",
}


@pytest.mark.requirement("KO-3", "KO-3.3", "KO-5.2")
@pytest.mark.parametrize(
    "how", ["write", *(pytest.param(how, marks=pytest.mark.slow) for how in STRAYS if how != "write")]
)
def test_a_handler_in_a_process_of_its_own_does_nothing_undeclared(tmp_path: Path, how: str) -> None:
    proposal, _, seen = done(tmp_path, step("own.stray", code=STRAYS[how]))
    assert proposal.status == "failed"
    assert contents(tmp_path / "ws") == {"in": "/"}
    if not CONFINED:
        assert proposal.error.code == "CONFINEMENT_UNAVAILABLE"
    elif how == "kill of the engine":
        assert proposal.error.code == "EFFECT_RAISED"
    else:
        assert proposal.error.code == "KLIS_SCOPE_VIOLATION"
        assert [(one.depth, one.blocked) for one in seen.violations] == [("child", True)]


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [("failed", "BAD_DAY", "It rains."), ("raised", "EFFECT_RAISED", "KeyError: 'missing'")],
)
@pytest.mark.slow
def test_how_a_handler_fails_comes_back(tmp_path: Path, how: str, code: str, message: str) -> None:
    proposal, _, _ = done(tmp_path, step("own.fail", how=how))
    assert proposal.error is not None
    if CONFINED:
        assert (proposal.error.code, message in proposal.error.message) == (code, True), proposal.error


def test_without_a_workspace_nothing_is_done(tmp_path: Path) -> None:
    with Realm.create(str(tmp_path / "w.db"), domain=workshop, effects=HANDLERS) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        proposal = world.act("ann", "run", {"steps": [step("own.later", n=1)]})
        assert proposal.error is not None
        assert proposal.error.code == "CONFINEMENT_UNAVAILABLE"


def test_what_a_child_cannot_find_again_is_no_handler() -> None:
    with pytest.raises(RefusedError) as refused:
        handler("own.local", isolation="process")(lambda params, call: None)
    assert refused.value.code == "INVALID_HANDLER"
    with pytest.raises(RefusedError, match="isolation"):
        handler("own.local", isolation="container")(done)  # type: ignore[call-overload]
    assert [one.isolation for one in HANDLERS] == ["process"] * 4
