"""``python -m tests.mutation``: change the code on purpose and see whether the tests notice.

``named`` makes the mutations of ``named.toml`` one by one; for each, a marked test of every requirement it names has
to fail. ``sample`` draws mutants of the pure rooms and the pipeline and runs those tests that execute the changed
statement; ``--again`` runs its recorded survivors once more, and those that were noticed are taken as they are
recorded. Without a command both are done. All of it happens in scratch copies; Ctrl-C leaves nothing behind.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from types import FrameType
from typing import Any

from tests.mutation import named, sample
from tests.mutation.baseline import load
from tests.mutation.scratch import ROOT, workers
from tests.plugins.conformance_report import MUTATION_SCORE, load_mutation_score, load_requirements

SCORE = ROOT / MUTATION_SCORE
REQUIREMENTS = ROOT / "tests" / "requirements.toml"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run the command line and return the exit status: 1 where something named was not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("command", nargs="?", choices=["named", "sample", "all"], default="all")
    parser.add_argument("--size", type=int, default=400, help="mutants to draw (default 400)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests (default 2)")
    parser.add_argument("--only", help="only modules, or named mutations, with this text in their name")
    parser.add_argument("--again", action="store_true", help="run the survivors of the recorded sample once more")
    parser.add_argument("--tests", nargs="+", help="only the tests of these files; a score is then a lower bound")
    parser.add_argument("--write", action="store_true", help=f"write {MUTATION_SCORE}")
    asked = parser.parse_args()
    for number in ENDING:
        signal.signal(number, _interrupt)
    try:
        return _run(asked)
    except KeyboardInterrupt:
        print("\nInterrupted; the scratch copies are removed.", file=sys.stderr)
        return 130


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End the run; from then on nothing interrupts the removal of processes and copies."""
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt


def _run(asked: argparse.Namespace) -> int:
    settings = sample.load_settings()
    baseline = load(asked.tests or settings.tests, settings.options, asked.workers)
    unnoticed: list[str] = []
    told: dict[str, object] = {}
    with workers(asked.workers) as idle:
        if asked.command in ("named", "all"):
            table = [one for one in named.load_table() if not asked.only or asked.only in one.name]
            for count, (mutation, missed) in enumerate(named.run(table, idle, baseline), 1):
                print(f"[{count}/{len(table)}] {mutation.name}: {_named(missed)}", flush=True)
                if missed:
                    unnoticed.append(mutation.name)
            told["named"] = {"mutations": len(table), "noticed": len(table) - len(unnoticed)}
        if asked.command in ("sample", "all"):
            told["sample"] = _sample(asked, settings, baseline, idle)
    if asked.write and not asked.only:
        sample.write(SCORE, {**(load_mutation_score(SCORE) or {}), **told})
        print(f"{MUTATION_SCORE} is written; make test puts it into docs/conformance.md.")
    if unnoticed:
        print(f"No marked test noticed: {', '.join(unnoticed)}", file=sys.stderr)
    return 1 if unnoticed else 0


def _named(missed: list[str]) -> str:
    return f"NOT NOTICED by a test of {', '.join(missed)}" if missed else "noticed"


def _sample(asked, settings, baseline, idle) -> dict[str, object]:
    modules = [path for path in settings.modules if not asked.only or asked.only in path]
    before: dict[str, Any] = (load_mutation_score(SCORE) or {})["sample"] if asked.again else {}
    if asked.again:
        total, drawn = before["mutants"], sample.named_so(before["survivors"])
        print(f"sample: {len(drawn)} mutants named as the {len(before['survivors'])} survivors of the last sample")
    else:
        total, drawn = sample.draw(modules, asked.size, asked.seed)
        print(f"sample: {len(drawn)} of {total} mutants of {len(modules)} modules, seed {asked.seed}", flush=True)
    results, began = [], time.monotonic()
    for result in sample.run(drawn, idle, baseline, settings):
        results.append(result)
        if result.outcome not in ("killed", sample.EQUIVALENT):
            mutant = result.mutant
            print(
                f"{result.outcome} ({result.tests} tests): {mutant.path}:{mutant.line}: "
                f"{mutant.before} -> {mutant.after}",
                flush=True,
            )
        if len(results) % 20 == 0:
            left = (time.monotonic() - began) / len(results) * (len(drawn) - len(results))
            print(
                f"... {len(results)} of {len(drawn)}, score {sample.score(results, before)['score']} %, "
                f"about {left / 60:.0f} min left",
                flush=True,
            )
    if asked.again:
        results = sample.worst_of_each_name(results)
    counts = sample.score(results, before)
    print(f"sample: {counts}")
    known = {one.id for group in load_requirements(REQUIREMENTS) for one in group.requirements}
    told = {**counts, **sample.survivors(results, known)}
    if asked.again:
        again = before.get("again", 0) or len(before["survivors"])
        sampled = sum(counts[name] for name in sample.OUTCOMES)
        return {**before, "sampled": sampled, **told, "again": again}
    return {"seed": asked.seed, "mutants": total, "sampled": len(drawn), **told, "modules": modules}


if __name__ == "__main__":
    sys.exit(main())
