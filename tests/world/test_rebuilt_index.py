"""An index that is made again from the events holds what it held before, in every table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.cli.counter import counter
from world.clock import ManualClock, SequentialIds
from world.events.run_events import RunOpened
from world.log import compiled
from world.read_models.index_tables import METADATA
from worldprotocol import Realm
from worldprotocol.api.bootstrap import rebuild_index

OPENED: dict[str, Any] = {
    "agent_id": "bot",
    "session_id": "s",
    "kind": "command",
    "mode": "strict",
    "declared": [],
    "verdict_id": "v",
    "lease_ids": [],
    "worker": "w",
}


def rows(world: Realm) -> dict[str, list[Any]]:
    """Return what the index holds; copies of the ledger are made now and then, and not when it is made again."""
    tables = [table for table in METADATA.sorted_tables if table.name != "wp_ledger"]
    return {
        table.name: sorted(world.log.query(compiled(select(table), world.log.backend)), key=repr) for table in tables
    }


def begin(world: Realm, run: RunOpened) -> None:
    world._acting.run(lambda work: work.emit(f"run:{run.run_id}", run))


@pytest.mark.requirement("WP-restore", "CARD-replay")
@pytest.mark.slow
def test_an_index_that_is_made_again_holds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Realm.create(path, domain=counter, clock=ManualClock(1), ids=SequentialIds()) as world:
        world.register("bot", "agent", binding={"kind": "auto_approve"})
        for count in (1, 2, 1_000):
            world.act("bot", "sell", {"item": "tea", "count": count})
        world.create_branch("other")
        for name in ("r1", "r2"):
            begin(world, RunOpened(at=5, run_id=name, **OPENED))
        before = rows(world)
    assert all(before.values())
    for _ in range(2):
        rebuild_index(str(path))
        with Realm.open_read_only(path) as world:
            assert rows(world) == before
