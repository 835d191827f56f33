"""Governed proposals whose code is called before the log's lock, compared with calls under the lock.

Usage: ``python -m bench foreign [--proposals N]``. CPU time of ``Realm.act`` with a policy of three rules in Python, by
one caller and by 64 on one branch, with the default preparations and with none. To reach: 1.03 for one caller.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from authority import Approve, Policy, Reject, rule
from bench.realms import shelf
from world.limits import Limits
from worldprotocol import Realm

PROPOSALS = 512
CALLERS = (1, 64)
ROUNDS = 7
BUDGET = 1.03


@rule
def few(case: Any) -> Any:
    """Reject actors with many rejected proposals."""
    return Reject("too many") if case.history.count(actor_id=case.actor.actor_id, decision="rejected") > 9 else None


@rule
def small(case: Any) -> Any:
    """Reject large steps."""
    return Reject("too large") if case.intent.body.input["by"] > 7 else None


@rule
def otherwise(case: Any) -> Any:
    """Approve the others."""
    return Approve("in order")


POLICY = Policy("bench", [few, small, otherwise])


def opened(path: Path, preparations: int) -> Realm:
    """Return a realm with an actor for each caller."""
    limits = replace(Limits(), max_preparations=preparations)
    world = Realm.create(str(path), domain=shelf(), policies=[POLICY], limits=limits, durability="normal")
    for number in range(max(CALLERS)):
        world.register(f"actor-{number}", "agent", binding={"kind": "policy_rules", "policy": "bench"})
    return world


def cpu_us(world: Realm, callers: int, proposals: int) -> float:
    """Return the CPU time of one proposal, in microseconds."""

    def work(caller: int) -> None:
        for number in range(proposals // callers):
            world.act(f"actor-{caller}", "counter.raise", {"counter": f"c{number % 16}", "by": number % 7 + 1})

    threads = [threading.Thread(target=work, args=(caller,)) for caller in range(callers)]
    begin = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.process_time() - begin) / proposals * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proposals", type=int, default=PROPOSALS, help="in each round")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        before = opened(Path(place) / "before.db", Limits().max_preparations)
        under = opened(Path(place) / "under.db", 0)
        for world in (before, under):
            cpu_us(world, 1, min(64, given.proposals))
        for callers in CALLERS:
            rounds = [  # they take turns, so that a slow moment of the machine hits each of them
                (cpu_us(before, callers, given.proposals), cpu_us(under, callers, given.proposals))
                for _ in range(ROUNDS)
            ]
            ratio = sorted(one / other for one, other in rounds)[ROUNDS // 2]
            shown = f"{callers} caller{'s' if callers > 1 else ''}"
            first, second = min(one[0] for one in rounds), min(one[1] for one in rounds)
            print(f"  {shown:<12} before the lock {first:>7,.0f} us, under it {second:>7,.0f} us", end="")
            print(f"   ratio {ratio:5.2f}", flush=True)
        before.close()
        under.close()


if __name__ == "__main__":
    main()
