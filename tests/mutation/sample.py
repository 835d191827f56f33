"""A sample of the mutants of the pure rooms and the pipeline, drawn with a seed, each run against its tests."""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from tests.mutation.baseline import Baseline
from tests.mutation.mutants import Mutant, make, mutants_of
from tests.mutation.scratch import ROOT, Worker

SETTINGS = ROOT / "tests" / "mutation" / "settings.toml"
EQUIVALENT = "equivalent"
NOTICED = frozenset({"killed"})

TIME_LIMIT_S, TIME_LIMIT_FACTOR = 120.0, 10.0
"""A run that takes this long, and this many times what its tests take without a mutation, is counted as timed out."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is mutated and tested; see ``settings.toml``."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    options: tuple[str, ...]
    equivalent: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one mutant: ``killed``, ``survived``, ``timed out``, ``no tests`` or ``equivalent``."""

    mutant: Mutant
    outcome: str
    tests: int
    seconds: float


def load_settings() -> Settings:
    """Read ``settings.toml``; the patterns of modules become paths."""
    told = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    paths = {str(path.relative_to(ROOT)) for pattern in told["modules"] for path in ROOT.glob(pattern)}
    modules = tuple(sorted(path for path in paths if not path.endswith("__init__.py")))
    return Settings(modules, tuple(told["tests"]), tuple(told["options"]), told["equivalent"])


def draw(modules: Iterable[str], size: int, seed: int) -> tuple[int, list[tuple[str, int]]]:
    """Draw mutants, each with the same chance.

    Args:
        modules: paths from the root of the project.
        size: how many to draw; all of them where there are fewer.
        seed: of the draw.

    Returns:
        How many mutants there are, and the path and number of each that was drawn.
    """
    with ProcessPoolExecutor() as pool:
        paths = list(modules)
        every = [
            (path, number)
            for path, count in zip(paths, pool.map(_count, paths), strict=True)
            for number in range(count)
        ]
    return len(every), random.Random(seed).sample(every, min(size, len(every)))


def _count(path: str) -> int:
    return sum(1 for _ in mutants_of(path, (ROOT / path).read_text(encoding="utf-8")))


def run(
    drawn: Iterable[tuple[str, int]], idle: Queue[Worker], baseline: Baseline, settings: Settings
) -> Iterator[Result]:
    """Yield what comes of each drawn mutant, as soon as it is known."""
    pool = ThreadPoolExecutor(idle.qsize())
    try:
        runs = [pool.submit(_try, path, number, idle, baseline, settings) for path, number in drawn]
        for done in as_completed(runs):
            yield done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _try(path: str, number: int, idle: Queue[Worker], baseline: Baseline, settings: Settings) -> Result:
    source = (ROOT / path).read_text(encoding="utf-8")
    mutant = make(path, source, number)
    if mutant.name in settings.equivalent:
        return Result(mutant, EQUIVALENT, 0, 0.0)
    tests = baseline.tests_for(path, mutant.line, source)
    if not tests:
        return Result(mutant, "no tests", 0, 0.0)
    expected = sum(baseline.seconds[test] for test in tests)
    job: dict[str, Any] = {
        "changes": {path: mutant.source},
        "tests": tests,
        "options": list(settings.options),
        "time_limit_s": max(TIME_LIMIT_S, TIME_LIMIT_FACTOR * expected),
    }
    worker = idle.get()
    try:
        answer = worker.run(job)
    finally:
        idle.put(worker)
    return Result(mutant, answer["outcome"], len(tests), answer["seconds"])


def score(results: Iterable[Result]) -> dict[str, Any]:
    """Return the counts of a sample and its score in per cent.

    A mutant that ran into the time limit is counted on its own and neither as noticed nor as not; an equivalent one
    is left out.
    """
    counts = Counter(result.outcome for result in results)
    killed, survived = counts["killed"], counts["survived"] + counts["no tests"]
    judged = killed + survived
    return {
        "killed": killed,
        "survived": survived,
        "timedOut": counts["timed out"],
        "equivalent": counts[EQUIVALENT],
        "score": round(100 * killed / judged, 1) if judged else 0.0,
    }


def write(path: Path, told: Mapping[str, Any]) -> None:
    """Write the result file."""
    import json

    path.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
