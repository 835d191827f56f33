"""A sample of the mutants of the pure rooms and the pipeline, drawn with a seed, each run against its tests."""

from __future__ import annotations

import ast
import hashlib
import json
import random
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from tests.mutation.baseline import KEPT, REQUIREMENT, Baseline
from tests.mutation.mutants import Mutant, count, make, names
from tests.mutation.scratch import ROOT, Worker

SETTINGS = ROOT / "tests" / "mutation" / "settings.toml"
EQUIVALENT = "equivalent"
OUTCOMES = ("killed", "survived", "timedOut", "equivalent")
"""Names of the counts of a sample; their sum is its size."""

NONE_CITED = "none"
"""Stands for the requirements of a module that cites none."""

FIRST = 12
"""How many tests of a mutant are run first."""

TIME_LIMIT_S, TIME_LIMIT_FACTOR = 60.0, 10.0
"""A run that takes this long, and this many times what its tests take without a mutation, is counted as timed out."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is mutated and tested; see ``settings.toml``."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    readers: tuple[str, ...]
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
    tests, readers, options = (tuple(told[name]) for name in ("tests", "readers", "options"))
    return Settings(modules, tests, readers, options, told["equivalent"])


def draw(modules: Iterable[str], size: int, seed: int) -> tuple[int, list[Mutant]]:
    """Draw mutants, each with the same chance.

    Args:
        modules: paths from the root of the project.
        size: how many to draw; all of them where there are fewer.
        seed: of the draw.

    Returns:
        How many mutants there are, and those that were drawn, in the order of the draw.
    """
    paths = list(modules)
    with ProcessPoolExecutor(2) as pool:
        every = [(path, number) for path, count in _counts(paths, pool).items() for number in range(count)]
        drawn = random.Random(seed).sample(every, min(size, len(every)))
        wanted: dict[str, list[int]] = defaultdict(list)
        for path, number in drawn:
            wanted[path].append(number)
        made = dict(zip(wanted, pool.map(_make, wanted.items()), strict=True))
    return len(every), [made[path][number] for path, number in drawn]


def _counts(paths: list[str], pool: ProcessPoolExecutor) -> dict[str, int]:
    """Return the number of mutants of each module, kept by the hash of module and operators: counting takes a while."""
    kept = KEPT / "counts.json"
    operators = _source("tests/mutation/mutants.py")
    keys = {path: hashlib.sha256((operators + path + _source(path)).encode()).hexdigest() for path in paths}
    known: dict[str, int] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    missing = [path for path in paths if keys[path] not in known]
    known |= zip((keys[path] for path in missing), pool.map(_count, missing), strict=True)
    kept.write_text(json.dumps(known), encoding="utf-8")
    return {path: known[keys[path]] for path in paths}


def _source(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _count(path: str) -> int:
    return count(_source(path))


def _make(wanted: tuple[str, list[int]]) -> dict[int, Mutant]:
    path, numbers = wanted
    return make(path, _source(path), numbers)


def run(drawn: Iterable[Mutant], idle: Queue[Worker], baseline: Baseline, settings: Settings) -> Iterator[Result]:
    """Yield what comes of each drawn mutant, as soon as it is known."""
    pool = ThreadPoolExecutor(idle.qsize())
    try:
        runs = [pool.submit(_try, mutant, idle, baseline, settings) for mutant in drawn]
        for done in as_completed(runs):
            yield done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _try(mutant: Mutant, idle: Queue[Worker], baseline: Baseline, settings: Settings) -> Result:
    if mutant.name in settings.equivalent:
        return Result(mutant, EQUIVALENT, 0, 0.0)
    executing = baseline.tests_for(mutant.path, mutant.line, _source(mutant.path))
    tests = [*executing, *settings.readers]
    outcome, seconds = "survived" if executing else "no tests", 0.0
    for stage in (executing[:FIRST], tests[len(executing[:FIRST]) :]):  # most are noticed by the first, quickly
        if not stage or outcome not in ("survived", "no tests"):
            continue
        expected = sum(baseline.seconds.get(test, 0.0) for test in stage)
        job: dict[str, Any] = {
            "changes": {mutant.path: mutant.source},
            "tests": stage,
            "options": list(settings.options),
            "time_limit_s": max(TIME_LIMIT_S, TIME_LIMIT_FACTOR * expected),
        }
        worker = idle.get()
        try:
            answer = worker.run(job)
        finally:
            idle.put(worker)
        if answer["outcome"] in ("killed", "timed out"):
            outcome = answer["outcome"]
        seconds += answer["seconds"]
    return Result(mutant, outcome, len(tests), seconds)


def named_so(wanted: Collection[str]) -> list[Mutant]:
    """Return the mutants of these names in the code as it is; several may have one name, and some names none."""
    found: list[Mutant] = []
    for path in sorted({name.partition(": ")[0] for name in wanted}):
        numbers = [number for number, name in enumerate(names(path, _source(path))) if name in wanted]
        found += make(path, _source(path), numbers).values()
    return found


def worst_of_each_name(results: Iterable[Result]) -> list[Result]:
    """Return one result of each name: one that was not noticed, where there is such a one."""
    ordered = sorted(results, key=lambda one: one.outcome in ("survived", "no tests"))
    return list({one.mutant.name: one for one in ordered}.values())


def score(results: Iterable[Result], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of a sample and its score in per cent.

    A mutant that ran into the time limit is counted on its own and neither as noticed nor as not; an equivalent one
    is left out.

    Args:
        results: of the sample, or of its survivors that were run again.
        before: the counts of the sample whose survivors were run again; empty for a new sample.
    """
    counts = Counter(result.outcome for result in results)
    killed, survived = counts["killed"] + before.get("killed", 0), counts["survived"] + counts["no tests"]
    judged = killed + survived
    return {
        "killed": killed,
        "survived": survived,
        "timedOut": counts["timed out"] + before.get("timedOut", 0),
        "equivalent": counts[EQUIVALENT] + before.get("equivalent", 0),
        "score": round(100 * killed / judged, 1) if judged else 0.0,
    }


def survivors(results: Iterable[Result], known: Collection[str]) -> dict[str, Any]:
    """Return the mutants that no test noticed, and how many of them there are of each requirement.

    A mutant is of the requirements that the changed function cites, or else of those of its module; one whose module
    cites none is counted under ``NONE_CITED``.

    Args:
        results: of the sample.
        known: the ids of all requirements.
    """
    names, counts = [], Counter[str]()
    for result in results:
        if result.outcome in ("survived", "no tests"):
            names.append(result.mutant.name)
            counts.update(cited(_source(result.mutant.path), result.mutant.line, known) or [NONE_CITED])
    return {"survivors": sorted(names), "survivedOf": dict(sorted(counts.items()))}


def cited(source: str, line: int, known: Collection[str]) -> list[str]:
    """Return the ids of requirements that the function around a line cites, or else its module."""
    lines = source.splitlines()
    functions = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [one for one in functions if one.lineno <= line <= (one.end_lineno or 0)]
    texts = ["\n".join(lines[one.lineno - 1 : one.end_lineno]) for one in sorted(around, key=lambda one: -one.lineno)]
    for text in (*texts, source):
        if found := set(REQUIREMENT.findall(text)).intersection(known):
            return sorted(found)
    return []


def write(path: Path, told: Mapping[str, Any]) -> None:
    """Write the result file."""
    path.write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
