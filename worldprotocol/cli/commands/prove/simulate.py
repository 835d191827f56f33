"""``worldctl simulate``: seeded simulations, and scripts of those that found something."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worldprotocol.simulation import InvariantViolation, Simulated, SimulationStep

STEPS: Final = 300
"""Steps of a simulation where none are asked for."""


@command("simulate")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Simulate this seed.")
@click.option("--seeds", type=click.IntRange(min=1), metavar="COUNT", help="Simulate so many seeds, from --seed on.")
@click.option("--steps", type=click.IntRange(min=1), default=STEPS, show_default=True, help="Steps of each.")
@click.option("--replay", type=click.Path(dir_okay=False, path_type=Path), help="Run a script again.")
@click.option("--scenario", metavar="REFERENCE", help="What is simulated: file.py:attribute; a depot by default.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes for --seeds; one for each core.")
@click.option("-o", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write the script that fails here.")
@click.option("--no-shrink", is_flag=True, help="Leave a script that fails as long as it is.")
def simulate(desk: CommandContext, seed: int | None, seeds: int | None, replay: Path | None, **asked: Any) -> int:
    """Simulate workers, people, agents, time and mishap on a log in memory, and look for what breaks a requirement.

    Several workers act on one log in virtual time: they submit, judge, ask people, make effects that fail or hang, are
    killed in the middle, find the disk full, lose acknowledgements; clocks jump, leases expire, branches are switched.
    After every step a second, plain model holds the log to its requirements. Equal seeds give equal logs, byte by byte.

    A seed that fails is shortened as far as possible, shown step by step, and written with -o as a script for --replay.
    No realm is read or changed. Exit code 1 when something was found.
    """
    if (seed is None and seeds is None) == (replay is None):
        raise click.UsageError("Give --seed, --seeds, or --replay and a script.")
    from worldprotocol.simulation import DEPOT

    reference = asked["scenario"] or DEPOT
    if replay is not None:
        return _replayed(desk, replay, **asked)
    if seeds is not None:
        return _many(desk, range(seed or 0, (seed or 0) + seeds), reference, **asked)
    return _one(desk, seed or 0, reference, **asked)


def _replayed(desk: CommandContext, path: Path, scenario: str | None, **asked: Any) -> int:
    from worldprotocol.simulation import load_scenario, read_script
    from worldprotocol.simulation import simulate as run

    steps, seed, reference = read_script(path)
    came = run(seed, steps, load_scenario(scenario or reference))
    _tell(desk, seed, steps, came)
    return 0 if came.violation is None else 1


def _many(desk: CommandContext, seeds: range, reference: str, *, steps: int, jobs: int | None, **asked: Any) -> int:
    from worldprotocol.simulation import run_seeds

    done = events = 0
    with desk.progress("Simulating") as progress:
        for ran in run_seeds(seeds, steps, reference, processes=jobs, progress=progress):
            done, events = done + 1, events + ran.events
            if ran.violation is not None:
                break
        else:
            if desk.json:
                desk.out.document({"ok": True, "seeds": done, "steps": done * steps, "events": events})
            else:
                words = f"{counted(done, 'seed')}, {counted(done * steps, 'step')}, {counted(events, 'event')}"
                desk.out.text(f"{words}: everything held")
            return 0
    return _one(desk, ran.seed, reference, steps=steps, **asked)


def _one(
    desk: CommandContext, seed: int, reference: str, *, steps: int, output: Path | None, no_shrink: bool, **asked: Any
) -> int:
    from worldprotocol.simulation import draw_steps, load_scenario, script_of, shrink
    from worldprotocol.simulation import simulate as run

    scenario = load_scenario(reference)
    script: Sequence[SimulationStep] = draw_steps(seed, steps, scenario)
    came = run(seed, script, scenario)
    if came.violation is not None and not no_shrink:
        with desk.progress("Shrinking") as progress:
            script, came = shrink(seed, script, scenario, came, progress=progress)
    if came.violation is not None and output is not None:
        output.write_text(script_of(script, seed=seed, scenario=reference))
    _tell(desk, seed, script, came)
    if came.violation is None:
        return 0
    if not desk.json:
        named = "" if asked.get("scenario") is None else f" --scenario {reference}"
        desk.out.text(f"again: worldctl simulate --seed {seed} --steps {steps}{named}")
    return 1


def _tell(desk: CommandContext, seed: int, script: Sequence[SimulationStep], came: Simulated) -> None:
    violation = came.violation
    if desk.json:
        desk.out.document(_wire(seed, script, came))
        return
    if violation is None:
        rendered = f"{counted(came.steps, 'step')}, {counted(came.events, 'event')}"
        reports = ", ".join(f"{count} {how}" for how, count in sorted(came.reports.items()) if count)
        rendered += f", reports of workers: {reports}" if reports else ""
        desk.out.text(f"seed {seed}: {rendered}: everything held")
        return
    desk.out.text(f"seed {seed}: {_words(violation, len(script))}")
    for number, step in enumerate(script, 1):
        said = came.said[number - 1] if number <= len(came.said) else ""
        desk.out.text(f"  {number}. worker {step.by}: {step.do} {_rendered(step)}" + (f"  -> {said}" if said else ""))


def _words(violation: InvariantViolation, count: int) -> str:
    where = f"after step {violation.step} of {count}" if violation.step <= count else f"at the end of {count} steps"
    return f"{violation.requirement} does not hold {where}: {violation.what}"


def _rendered(step: SimulationStep) -> str:
    from world.model.canonical_json import canonical_text

    return canonical_text(dict(step.rendered))


def _wire(seed: int, script: Sequence[SimulationStep], came: Simulated) -> dict[str, Any]:
    found = came.violation
    rendered: dict[str, Any] = {"ok": found is None, "seed": seed, "steps": came.steps, "events": came.events}
    if came.reports:
        rendered["reports"] = dict(came.reports)
    if found is None:
        return rendered
    violation = {"step": found.step, "requirement": found.requirement, "what": found.what}
    return rendered | {"violation": violation, "script": [step.to_wire() for step in script], "said": list(came.said)}
