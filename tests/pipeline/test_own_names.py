"""Names of the state that begin with ``$`` belong to the engine, and no write below them is lost without an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.test_compute import domain, get, lit, put, run, seq
from world.core import ActionContext, Domain, Patch, set_
from worldprotocol import Realm


@pytest.mark.requirement("WP-hash", "WP-world")
def test_two_forks_that_write_an_unhashed_member_fail_instead_of_losing_one_write(tmp_path: Path) -> None:
    own = Domain("urn:example:own", version="1.0.0", state={"fields": {"count": {"type": "number", "default": 0}}})

    @own.action("write", version="1")
    def write(ctx: ActionContext) -> list[Patch]:
        return [set_("$x", 1)]

    with Realm.create(str(tmp_path / "own.db"), domain=own) as world:
        world.register("ada", "agent", binding={"kind": "auto_approve"})
        done = world.act("ada", "write")
        assert done.status == "failed"
        assert world.data() == {"count": 0}


@pytest.mark.requirement("IC-mel", "HC-flow")
def test_a_once_guard_runs_once_in_an_execution_and_leaves_no_mark_in_the_state() -> None:
    guards = "$mel.guards.intent"
    mark = {"kind": "object", "fields": {"a": get("meta.intentId")}}
    more = {"kind": "add", "left": get("count"), "right": lit(1)}
    steps = seq({"kind": "patch", "op": "merge", "path": guards, "value": mark}, put("count", more))
    condition = {"kind": "neq", "left": get(f"{guards}.a"), "right": get("meta.intentId")}
    once = {"kind": "if", "cond": condition, "then": steps}
    twice = seq({"kind": "call", "flow": "once"}, {"kind": "call", "flow": "once"})
    done = run(domain(once=once, go=twice))
    assert (done.status, [patch.path for patch in done.patches]) == ("complete", ["count"])
