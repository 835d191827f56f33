"""A branch that moves while effects are made: the execution is computed anew on its head, or conflicts with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from host import handler
from tests.pipeline.works import Held, acting, check_log, running
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from worldprotocol.api.realm import Realm


class State(BaseModel):
    count: int = 0
    mine: str = ""


class Work(BaseModel):
    reads: bool


moving = Domain("urn:test:moving", version="1.0.0", state=State)


@moving.action("work", version="1")
def work(ctx: ActionContext, input: Work) -> Any:  # noqa: A002
    told = yield effect("work", n=ctx.data["count"] if input.reads else 0)
    return [set_("mine", f"{told} of {ctx.data['count']}")]


@moving.action("count", version="1")
def count(ctx: ActionContext) -> Any:
    return [set_("count", ctx.data["count"] + 1)]


@pytest.mark.requirement("WP-exec", "WP-exkey", "WP-lineage", "HC-compute")
@pytest.mark.parametrize("reads", [False, True])
def test_an_execution_whose_branch_moved_is_sealed_on_its_head_or_fails(tmp_path: Path, reads: bool) -> None:
    held, address = Held(lambda params, _call: f"done {params['n']}"), str(tmp_path / "w.db")
    given: dict[str, Any] = {"clock": ManualClock(1_000), "ids": SequentialIds(), "effects": [handler("work")(held)]}
    with Realm.create(address, domain=moving, **given) as world:
        for name in ("ann", "bob"):
            world.register(name, "human", binding={"kind": "auto_approve"})
        with acting(world, "ann", "work", {"reads": reads}, scope=["data.mine"]) as ended:
            assert held.begun.wait(PATIENCE_S)
            moved = world.act("bob", "count", scope=["data.count"])
            assert moved.status == "completed"  # another key: nothing of one waits for the other
            assert moved.submitted.execution_key == f"proposal:{moved.proposal_id}"
            held.may_go.set()
        (done,) = ended
        sealed = world.archive.sealed(done.world_id)
        assert sealed.parent == moved.world_id
        if reads:  # on the new head it asks for another effect
            assert done.status == "failed"
            assert done.error.code == "STATE_CONFLICT"
            assert done.error.source.to_wire() == {"actionId": "work", "nodePath": ""}
            assert world.branch().head == moved.world_id
            assert world.data() == {"count": 1, "mine": ""}
        else:
            assert (done.status, world.branch().head) == ("completed", done.world_id)
            assert world.data() == {"count": 1, "mine": "done 0 of 1"}
    check_log(address, domain=moving)


@pytest.mark.requirement("WP-exec", "WP-lineage")
def test_an_execution_that_is_cancelled_after_its_branch_moved_fails_on_the_head(tmp_path: Path) -> None:
    held, address = Held(lambda *_: "done"), str(tmp_path / "w.db")
    given: dict[str, Any] = {"clock": ManualClock(1_000), "ids": SequentialIds(), "effects": [handler("work")(held)]}
    with Realm.create(address, domain=moving, **given) as world:
        for name in ("ann", "bob"):
            world.register(name, "human", binding={"kind": "auto_approve"})
        with acting(world, "ann", "work", {"reads": False}, scope=["data.mine"]) as ended:
            assert held.begun.wait(PATIENCE_S)
            moved = world.act("bob", "count", scope=["data.count"])
            world.host.cancel(running(world), by="bob", reason="not needed")
            held.may_go.set()
        (failed,) = ended
        assert (failed.status, failed.error.code) == ("failed", "CANCELLED")
        sealed = world.archive.sealed(failed.world_id)
        assert (sealed.parent, sealed.outcome) == (moved.world_id, "failed")
        assert world.archive.state(failed.world_id) == {"count": 1, "mine": ""}
        assert world.branch().head == moved.world_id
    check_log(address, domain=moving)
