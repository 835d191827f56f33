"""What it costs to execute and seal a small change of a large state.

Usage: ``python -m bench seal [--seconds S]``. A change of one field is executed by a host and its state
is named by its hashes (snapshotHash, contentId, worldId), over and over, each time on the state before, as in
a running process. It is compared with one SHA-256 pass over the canonical bytes of that state, taken in
turns. For small states the fixed cost of a computation is what is seen; for large ones the pass.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from host import EffectRegistry, Host
from world.core import ActionContext, ComputeContext, Domain, Patch, genesis, set_
from world.model.canonical_json import canonical_bytes
from world.model.identity import content_id, state_hash, world_id
from world.model.intent import IntentInstance, IntentScope
from world.state.ports import ExecutionOrder, StepOutcome

SIZES = ((1_000, "1 KB"), (100_000, "100 KB"), (1_000_000, "1 MB"))
BATCHES = 15
BUDGET = 3.0


class Entry(BaseModel):
    """One of the many things in the measured state."""

    title: str
    owner: str
    done: bool
    priority: int


class State(BaseModel):
    """The measured state."""

    entries: list[Entry] = []
    revision: int = 0


class Change(BaseModel):
    """Which entry gets which priority."""

    at: int
    priority: int


def measured_domain() -> Domain:
    """Return a domain with one action that changes one field."""
    domain = Domain("urn:bench:seal", version="1.0.0", state=State)

    @domain.action("change", version="1")
    def change(ctx: ActionContext, wanted: Change) -> list[Patch]:
        return [set_(f"entries.{wanted.at}.priority", wanted.priority)]

    return domain


def entries_of_size(size: int) -> list[dict[str, Any]]:
    """Return entries whose canonical text has about this many bytes."""
    entries: list[dict[str, Any]] = []
    held = 0
    while held < size:
        number = len(entries)
        entries.append(
            {
                "title": f"Entry number {number} of the measured state",
                "owner": f"agent-{number % 17}",
                "done": number % 3 == 0,
                "priority": number % 10,
            }
        )
        held += len(canonical_bytes(entries[-1])) + 1
    return entries


def intent(at: int, priority: int) -> IntentInstance:
    """Return the intent to change an entry."""
    return IntentInstance.read(
        {
            "body": {"type": "change", "input": {"at": at, "priority": priority}},
            "intentId": f"intent-{at}",
            "intentKey": "bench",
            "meta": {
                "origin": {
                    "projectionId": "bench",
                    "source": {"kind": "system", "eventId": "bench"},
                    "actor": {"actorId": "bench", "kind": "system"},
                }
            },
        }
    )


class Sealing:
    """One line of worlds, each sealed on the one before."""

    def __init__(self, size: int) -> None:
        """Begin with a state of this many bytes."""
        self.host = Host(measured_domain(), EffectRegistry())
        self.schema = self.host.domain.schema.hash
        snapshot = genesis(self.host.domain, ComputeContext(0, "genesis"), {"entries": entries_of_size(size)})
        self.count = len(snapshot.data["entries"])
        scope = IntentScope(allowed_paths=("entries.*.priority",))
        self.order = ExecutionOrder("proposal", intent(0, 1), snapshot, scope, 0, "seed")
        self.parent: str | None = None
        self.intents = [intent(number % self.count, 10 + number % 7) for number in range(997)]
        self.turn = 0

    def execute(self) -> StepOutcome:
        """Execute the next change."""
        self.turn += 1
        wanted = self.intents[self.turn % len(self.intents)]
        return self.host.step(replace(self.order, intent=wanted))

    def seal(self) -> None:
        """Execute the next change, seal it, and go on from there."""
        outcome = self.execute()
        if outcome.status != "completed":
            raise RuntimeError(f"the measured change failed: {outcome.error}")
        snapshot_hash = state_hash(outcome.snapshot.data)
        content_id(self.schema, snapshot_hash)
        self.parent = world_id(self.schema, snapshot_hash, self.parent)
        self.order = replace(self.order, snapshot=outcome.snapshot)


def median_us(*works: Callable[[], Any], seconds: float) -> list[float]:
    """Return the median microseconds of each of these works, which take turns for this long altogether."""
    for work in works:
        work()
    begin = time.perf_counter()
    for work in works:
        work()
    repeats = max(1, int(seconds / BATCHES / max(time.perf_counter() - begin, 1e-6)))
    batches: list[list[float]] = [[] for _ in works]
    for _ in range(BATCHES):
        for taken, work in zip(batches, works, strict=True):
            begin = time.perf_counter()
            for _ in range(repeats):
                work()
            taken.append((time.perf_counter() - begin) / repeats * 1e6)
    return [statistics.median(taken) for taken in batches]


def measure(size: int, name: str, seconds: float) -> None:
    """Print what sealing costs at one size."""
    line = Sealing(size)
    text = canonical_bytes(line.order.snapshot.data)
    executed, sealed, hashed = median_us(
        line.execute, line.seal, lambda: hashlib.sha256(text).hexdigest(), seconds=seconds
    )
    budget = f"budget {BUDGET:.0f}" if size == SIZES[-1][0] else ""
    print(
        f"{name:>7} ({line.count:>5} entries)   execute {executed:>8,.1f} us"
        f"   execute and seal {sealed:>8,.1f} us   SHA-256 {hashed:>8,.1f} us"
        f"   ratio {sealed / hashed:>6.2f}   {budget}".rstrip(),
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="to measure at each size")
    arguments = parser.parse_args()
    for size, name in SIZES:
        measure(size, name, arguments.seconds)


if __name__ == "__main__":
    main()
