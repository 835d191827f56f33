"""Named mutations: changes that a marked test of every requirement they break has to notice (``named.toml``)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from queue import Queue

from tests.mutation.baseline import Baseline
from tests.mutation.scratch import ROOT, Worker

TABLE = ROOT / "tests" / "mutation" / "named.toml"
TIME_LIMIT_S = 900.0
OPTIONS = ["-k", "not postgres"]


@dataclass(frozen=True, slots=True)
class Change:
    """A text of a module that is replaced; it occurs there exactly once."""

    path: str
    original: str
    replacement: str

    def apply(self, source: str) -> str:
        """Return the module with the change.

        Raises:
            ValueError: the original does not occur exactly once.
        """
        found = source.count(self.original)
        if found != 1:
            raise ValueError(f"{self.path} holds {self.original!r} {found} times; name a text that it holds once.")
        return source.replace(self.original, self.replacement)


@dataclass(frozen=True, slots=True)
class Named:
    """One mutation of the table.

    Args:
        name: what the mutated engine does wrong.
        requirements: ids of requirements that this breaks.
        changes: to make together.
    """

    name: str
    requirements: tuple[str, ...]
    changes: tuple[Change, ...]

    def sources(self) -> dict[str, str]:
        """Return the mutated modules by their paths; raises ``ValueError`` where a change does not apply."""
        made: dict[str, str] = {}
        for change in self.changes:
            source = made.get(change.path) or (ROOT / change.path).read_text(encoding="utf-8")
            made[change.path] = change.apply(source)
        return made


def load_table() -> list[Named]:
    """Read ``named.toml``."""
    told = tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutation"]
    return [
        Named(one["name"], tuple(one["requirements"]), tuple(Change(**change) for change in one["changes"]))
        for one in told
    ]


def run(table: Iterable[Named], idle: Queue[Worker], baseline: Baseline) -> Iterator[tuple[Named, list[str]]]:
    """Yield each mutation with the ids of the requirements none of whose marked tests failed."""
    pool = ThreadPoolExecutor(idle.qsize())
    try:
        runs = [pool.submit(_try, one, idle, baseline) for one in table]
        for done in as_completed(runs):
            yield done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _try(mutation: Named, idle: Queue[Worker], baseline: Baseline) -> tuple[Named, list[str]]:
    """Run the marked tests of each requirement, first those that carry the most of the mutation's ids."""
    carried = {id_: baseline.marked.get(id_, []) for id_ in mutation.requirements}
    every = [test for tests in carried.values() for test in tests]
    missed = []
    for id_, tests in carried.items():
        ordered = sorted(tests, key=lambda test: (-every.count(test), baseline.seconds.get(test, 60.0), test))
        worker = idle.get()
        try:
            job = {
                "changes": mutation.sources(),
                "tests": ordered,
                "options": OPTIONS,
                "time_limit_s": TIME_LIMIT_S,
            }
            outcome = worker.run(job)["outcome"] if tests else "no tests"
        finally:
            idle.put(worker)
        if outcome != "killed":
            missed.append(id_)
    return mutation, missed
