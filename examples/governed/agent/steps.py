"""What an agent does, step by step: each step says what it reads and writes, and does it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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


def totals() -> None:
    """Add up what was sold, over all days."""
    sold: dict[str, int] = {}
    for day in sorted(DATA.glob("*.csv")):
        for line in day.read_text(encoding="utf-8").splitlines():
            name, _, number = line.partition(",")
            sold[name] = sold.get(name, 0) + int(number)
    (REPORTS / "totals.json").write_text(json.dumps(sold, sort_keys=True) + "\n", encoding="utf-8")


def tidy() -> None:
    """Write an index of the reports, and remove the data as well, which nobody asked for."""
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
