"""A harbour whose log is moved, archived, opened again, cut and made whole; the log is a hypothetical copy of it.

``record`` plays the same scenes with the same clock and the same ids, so it writes the same events again, except for
the hash of the archive's manifest.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.golden.garden import START, the_same_worker
from tests.golden.harbour import SETTINGS, harbour
from tests.support.engines import engine_of
from world.clock import ManualClock, SequentialIds
from world.limits import Limits
from world.log import open_log
from world.log.merkle import CHUNK_LEAVES
from world.read_models.index import WorldIndex
from worldprotocol.analysis.counterfactual.scratch import copy_beginning
from worldprotocol.api.realm import Realm
from worldprotocol.export.archive.cutting import cut, open_for_cutting, plan_cut, restore
from worldprotocol.export.archive.writing import plan_archive, write_archive
from worldprotocol.export.proofs.checkpoint import checkpoint_of

TARGET = "postgresql:///realms#harbour"
CREW = 110
"""Actors, so that there are as many events as an archive has at least."""


@the_same_worker()
def record(address: str) -> Realm:
    """Found a harbour, play its scenes in a file, and copy it to the address; the caller closes the copy."""
    clock = ManualClock(START, 10)
    parts: dict[str, Any] = {
        "domain": harbour, "clock": clock, "ids": SequentialIds("moves"), "limits": Limits(klis=SETTINGS),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/world.db"
        with Realm.create(file, **parts) as world:
            world.register("ada", "agent", binding={"kind": "auto_approve"})
            world.register("ben", "human", binding={"kind": "auto_approve"})
            _moved(world)
            for number in range(CREW):
                world.register(f"crew-{number}", "agent", binding={"kind": "auto_approve"})
        _cut(file, Path(folder, "archive"), clock)
        with Realm.open(file, **parts) as world:
            _paid(world)
        _copied(file, address)
    return Realm.open_read_only(address)


def _paid(world: Realm) -> None:
    world.act("ada", "pay", {"ship": "ada", "amount": 1}, scope=["tolls.ada"])


def _moved(world: Realm) -> None:
    engine = engine_of(world)
    _paid(world)
    engine.close_writer("move", by="ben", target=TARGET)
    engine.open_writer("move", by="ben")
    _paid(world)
    engine.close_writer("move", by="ben", target=TARGET)
    engine.open_writer("abandon", by="ben")
    engine.close_writer("archive", by="ben")
    engine.open_writer("restore", by="ben")
    _paid(world)


def _cut(file: str, folder: Path, clock: ManualClock) -> None:
    """Archive the events of a log and remove their contents, and give them back."""
    with open_log(file, read_only=True) as log:
        plan = plan_archive(log, (), CHUNK_LEAVES, has_tables=False)
        archive = write_archive(log, folder, plan, checkpoint_of(log.root_at(CHUNK_LEAVES), "golden"))
    with open_for_cutting(file) as log:
        cut(log, plan_cut(log, [archive], CHUNK_LEAVES), by="ben", now_ms=clock.now_ms())
        restore(log, [archive])


def _copied(file: str, address: str) -> None:
    view = WorldIndex()
    with open_log(file, read_only=True) as log, open_log(address, view=view, create=True) as copy:
        copy_beginning(log, copy, view, log.head().size, lambda _: None)
