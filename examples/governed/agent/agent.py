"""An agent that plans, and takes a governed session for every step: ``python agent.py``, in this folder.

A session gets its leases first. Where an older agent is in the way it dies, and asks again when the verdict says. A
step that goes beyond what it declared is stopped before it happens, what it did until then is given back, and the agent
continues with its plan.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from world.errors import RefusedError, ScopeViolationError
from worldprotocol import Realm

DATA, REPORTS = Path("data"), Path("reports")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan.

    Args:
        name: for people.
        work: does it.
        reads: places that it reads.
        writes: places that it changes or makes.
    """

    name: str
    work: Callable[[], None]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


def perform(realm: Realm, agent: str, step: Step) -> str:
    """Do one step under leases, again and again until its turn comes; returns how it ended."""
    while True:
        try:
            with realm.host.session(agent=agent, reads=step.reads, writes=step.writes) as session:
                step.work()
        except ScopeViolationError as violation:
            return f"stopped: {violation.message}"
        except RefusedError as refused:
            if refused.code != "DIED":
                raise
            time.sleep(refused.details["retry_after_ms"] / 1000)
        else:
            return f"{session.outcome}, recorded as {session.run.run_id}"


def totals() -> None:
    """Add up what was sold, over all days."""
    sold: dict[str, int] = {}
    for day in sorted(DATA.glob("*.csv")):
        for line in day.read_text(encoding="utf-8").splitlines():
            name, _, number = line.partition(",")
            sold[name] = sold.get(name, 0) + int(number)
    (REPORTS / "totals.json").write_text(json.dumps(sold, sort_keys=True) + "\n", encoding="utf-8")


def tidy() -> None:
    """Write an index of the reports, and remove the data as well, which is not part of its task."""
    names = sorted(path.name for path in REPORTS.iterdir())
    (REPORTS / "index.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    for day in DATA.glob("*.csv"):
        day.unlink()


def best() -> None:
    """Name what was sold most."""
    sold = json.loads((REPORTS / "totals.json").read_text(encoding="utf-8"))
    (REPORTS / "best.txt").write_text(max(sold, key=sold.__getitem__) + "\n", encoding="utf-8")


def plan() -> list[Step]:
    """Return the plan: three steps, of which the second goes beyond what it says."""
    return [
        Step("totals", totals, reads=("data/**",), writes=("reports/totals.json",)),
        Step("tidy", tidy, reads=("data/**",), writes=("reports/**",)),
        Step("best", best, reads=("reports/totals.json",), writes=("reports/best.txt",)),
    ]


def main() -> None:
    """Go through the plan."""
    with Realm.open_or_create("world.db", domain="domain.yaml", workspace=".") as realm:
        for step in plan():
            print(f"{step.name}: {perform(realm, 'ann', step)}")


if __name__ == "__main__":
    main()
