"""Verification finds every contradiction in the records of callers that left, in a log whose hashes were made to fit.

The second implementation, which was written from the description of the format alone, finds it at the same event.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from importlib.resources import files
from pathlib import Path

import pytest

from tests import second_implementation as second
from tests.golden.generate import rehashed
from tests.world.test_claim_checks import Line, Lines, changed, of, report_of
from world.clock import ManualClock
from world.events.caller_events import Attended
from worldprotocol.agents.call_values import Allowed, ToolCall
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.callers.sessions import Leaving, caller_left, caller_returned, hold_session
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import export_log

pytestmark = pytest.mark.requirement("CARD-audit")

FILE = {"path": "/src/app.py", "tool": "Edit", "guarded": False, "hidden": False}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Lines:
    """Return the lines of a log in which callers left at each stage, and one asked again."""
    folder, clock = tmp_path_factory.mktemp("callers") / "realm", ManualClock(1_800_000_000_000)
    shutil.copytree(str(files("worldprotocol") / "templates" / "coding-agents"), folder)
    with Realm.from_config(read_config(folder / "world.toml"), create=True, clock=clock) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        realm.register("eve", "agent", binding={"kind": "auto_approve"})
        realm.register("bot", "agent", binding={"kind": "policy_rules", "policy": "coding-agents", "ask": ["ann"]})
        calls = ToolCalls(realm, "bot")

        def call(key: str, path: str, *, hidden: bool = False) -> ToolCall:
            given, trace = FILE | {"path": path, "hidden": hidden}, {"session": "s", "client": "claude-code"}
            attended = Attended(by="hook", limit_ms=60_000, server="another")
            return ToolCall(key, "file.edit", given, trace=trace, attended=attended)

        hold_session(realm, "bot", "s", "claude-code")
        calls.begin(call("asked", "/a", hidden=True))
        calls.submit(call("allowed", "/b"))
        calls.begin(call("begun", "/c"))
        caller_left(realm, Leaving("bot", "claude-code", "process", session="s"))
        held = calls.begin(call("held", "/d", hidden=True)).proposal.proposal_id
        realm.decide(held, "approve", by="ann", reason="it may")
        caller_returned(realm, held)
        assert isinstance(calls.begin(call("held", "/d", hidden=True)), Allowed)
        calls.report("held", {})
        assert isinstance(calls.begin(call("late", "/e")), Allowed)
        clock.advance(70_000)
        realm.settle()
        out = io.BytesIO()
        export_log(realm.log, out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def a_record_is_missing(told: Lines) -> Line:
    left = of(told, "caller.left")
    left["state"]["calls"] = left["state"]["calls"][1:]
    return of(told, "proposal.superseded")


def an_allowed_call_ends_without_a_record(told: Lines) -> Line:
    left = of(told, "caller.left")
    ended = next(one for one in told if _is_not_called(one))
    left["state"]["calls"].remove(ended["state"]["proposalId"])
    return ended


def _is_not_called(line: Line) -> bool:
    error = line.get("state", {}).get("result", {}).get("error") or {}
    return line.get("topic") == "effect.fulfilled" and error.get("code") == "TOOL_NOT_CALLED"


def of_another_actor(told: Lines) -> Line:
    left = of(told, "caller.left")
    left["state"]["actorId"], left["stream"] = "eve", "session:eve:s"
    return left


def a_call_that_ended(told: Lines) -> Line:
    left = of(told, "caller.left")
    left["state"]["calls"].append("no such call")
    return left


FORGERIES: dict[str, tuple[str, Callable[[Lines], Line]]] = {
    "an undecided call ends without a record": ("CALLER_LEFT_OPEN", a_record_is_missing),
    "an allowed call ends without a record": ("CALLER_LEFT_OPEN", an_allowed_call_ends_without_a_record),
    "the calls of another actor": ("BAD_REFERENCE", of_another_actor),
    "a call that is not open": ("BAD_REFERENCE", a_call_that_ended),
    "a caller that returned to the same server": ("ILLEGAL_TRANSITION", changed("caller.returned", server="another")),
    "a hold that names something": ("BAD_REFERENCE", changed("proposal.held", names=["x"])),
}


def test_the_log_is_sound(tmp_path: Path, log: Lines) -> None:
    assert report_of(tmp_path, log).findings[:1] == ()
    assert second.verify(line.decode() for line in rehashed(deepcopy(log)))["sound"]


@pytest.mark.parametrize("what", FORGERIES)
def test_a_contradiction_about_callers_is_a_finding_at_its_event(tmp_path: Path, log: Lines, what: str) -> None:
    told, (code, forge) = deepcopy(log), FORGERIES[what]
    position = forge(told)["position"]
    report = report_of(tmp_path, told)
    assert [(one.code, one.position) for one in report.findings][:1] == [(code, position)]
    found = second.verify(line.decode() for line in rehashed(told))
    assert (found["sound"], found["firstBad"]) == (False, position), found


def test_a_call_that_did_not_end_after_its_caller_left_is_a_finding(tmp_path: Path, log: Lines) -> None:
    """Cut the log off behind the record: of a real one, verification says that it is not whole."""
    told = deepcopy(log)
    left = of(told, "caller.left")
    cut = told[: told.index(left) + 1]
    report = report_of(tmp_path, cut)
    assert {one.code for one in report.findings} >= {"CALLER_LEFT_OPEN"}
    assert len([one for one in report.findings if one.code == "CALLER_LEFT_OPEN"]) == 3
