"""Blame of every value of a large state: the line of descent is gone along once for all of them.

Usage: ``python -m bench blame [--values N] [--each N]``. So many values are written, so many by each proposal, and then
every one of them is blamed on its patch, proposal, decision and source. To reach: a few seconds for 100,000 values. The
ratio is to making the newest state from the same worlds and their patches, without any copy of it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from pydantic import BaseModel

from bench.bench_past import EVENTS_OF_A_WORLD
from bench.bench_replay import peak_mb
from bench.realms import BenchRealm
from world.core import ActionContext, Domain
from world.log import EventLog, open_log
from world.model.immutable_json import FrozenDict
from world.model.intent import IntentBody
from world.model.patch import Patch, apply_patches, merge
from world.read_models.archive import Archive
from world.read_models.blame import blame_values
from world.read_models.lineage import sealed_line


class Table(BaseModel):
    """The state: values by name, in drawers of a hundred."""

    drawers: dict[str, dict[str, int]] = {}


class Fill(BaseModel):
    """The input: the numbers of the first and of the last value to write."""

    first: int
    last: int


def table() -> Domain:
    """Return the domain."""
    domain = Domain("urn:bench:table", version="1.0.0", state=Table)

    @domain.action("fill", version="1")
    def fill(ctx: ActionContext, wanted: Fill) -> list[Patch]:
        drawers: dict[int, dict[str, int]] = {}
        for number in range(wanted.first, wanted.last + 1):
            drawers.setdefault(number // 100, {})[f"v{number}"] = number
        return [merge(f"drawers.d{drawer}", values) for drawer, values in drawers.items()]

    return domain


class Filled(BenchRealm):
    """A realm whose proposals write so many values each."""

    def __init__(self, address: str, each: int) -> None:
        """Found it."""
        super().__init__(address, durability="normal", domain=table())
        self.each = each

    def body(self, number: int) -> IntentBody:
        """Return what the number-th intent wants."""
        return IntentBody(type="fill", input={"first": number * self.each, "last": (number + 1) * self.each - 1})


def restored(log: EventLog, world_id: str) -> FrozenDict:
    """Return the data of a world, made from genesis and all patches since."""
    data = FrozenDict()
    for _, sealed in reversed(list(sealed_line(Archive(log), world_id))):
        data = FrozenDict(sealed.data) if sealed.data is not None else apply_patches(data, sealed.patches)
    return data


def measure(path: Path, values: int, each: int) -> None:
    """Write so many values, so many by each proposal, blame them all, and print the times."""
    realm = Filled(str(path), each)
    realm.grow(EVENTS_OF_A_WORLD * values // each)
    realm.close()
    with open_log(str(path), read_only=True) as log:
        head = Archive(log).rows("branches")[0][1]
        begin = time.perf_counter()
        made = restored(log, head)
        restoring = time.perf_counter() - begin
        before = peak_mb()
        begin = time.perf_counter()
        found = blame_values(Archive(log), "", head)
        worlds = {origin.cause.sealed.world_id for _, origin in found.with_origins()}
        blaming = time.perf_counter() - begin
        assert found.value == made
        print(f"{len(found):,} values by {len(worlds):,} proposals of {each} each")
        ratio = blaming / restoring
        print(f"  made from its patches {restoring:6.2f} s   blamed {blaming:6.2f} s   ratio {ratio:4.1f}")
        print(f"  most memory {peak_mb():.0f} MB, {peak_mb() - before:.0f} MB of it for the blame")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--each", type=int, default=50)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        measure(Path(place) / "world.db", given.values, given.each)


if __name__ == "__main__":
    main()
