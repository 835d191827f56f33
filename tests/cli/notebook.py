"""A realm whose one action makes the patches it is told, to build whatever past a test needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tests.golden.garden import the_same_worker
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain
from world.model.patch import Patch
from worldprotocol import Realm

START = 1_700_000_000_000


class Notebook(BaseModel):
    doc: dict[str, Any] = {}
    tags: list[str] = []
    count: int = 0


class Edit(BaseModel):
    patches: list[dict[str, Any]] = []
    fail: bool = False


notebook = Domain("urn:test:notebook", version="1.0.0", state=Notebook)


@notebook.action("edit", version="1")
def edit(ctx: ActionContext, input: Edit) -> list[Patch]:  # noqa: A002
    if input.fail:
        ctx.fail("TOLD_TO", "it was told to fail")
    return [Patch.from_wire(patch) for patch in input.patches]


def opened(path: Path | str, *, data: Mapping[str, Any] | None = None, salt: str = "") -> Realm:
    """Return a new realm with ann, bob and eve, who may do everything."""
    clock, ids = ManualClock(START, 1_000), SequentialIds(f"notebook{salt}")
    with the_same_worker():
        world = Realm.create(path, domain=notebook, data=data, clock=clock, ids=ids)
    for name in ("ann", "bob", "eve"):
        world.register(name, "human", binding={"kind": "auto_approve"})
    return world


def put(path: str, value: Any) -> dict[str, Any]:
    return {"op": "set", "path": path, "value": value}


def drop(path: str) -> dict[str, Any]:
    return {"op": "unset", "path": path}


def merged(path: str, value: Any) -> dict[str, Any]:
    return {"op": "merge", "path": path, "value": value}


def write(world: Realm, *patches: dict[str, Any], by: str = "ann", **wishes: Any) -> str:
    """Make patches and return the id of the world that came of it."""
    done = world.act(by, "edit", {"patches": list(patches)}, **wishes)
    assert done.world_id is not None
    return done.world_id
