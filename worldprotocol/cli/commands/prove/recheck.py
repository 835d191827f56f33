"""``worldctl recheck``: every recorded step, performed again by the loaded code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.point_in_time import at_option, point_of

if TYPE_CHECKING:
    from worldprotocol.analysis.recheck.results import Divergence
    from worldprotocol.analysis.recheck.whole_log import RecheckSetup

MAX_VALUE: Final = 400
"""Characters of a value that people are shown; --json has it whole."""


@command("recheck")
@click.option("--all", "every", is_flag=True, help="Continue after the first step with another result.")
@click.option("--upto", type=click.IntRange(min=1), metavar="POSITION", help="Stop at this event.")
@at_option("Stop at this point in the past.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes; by itself as many as pay.")
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="Runs for each variation; 3 if not given.")
@click.option("--vary", metavar="LIST", help="Of hashseed,order,locale,timezone: what is varied from run to run.")
def recheck(
    desk: CommandContext,
    every: bool,
    upto: int | None,
    at: str | None,
    jobs: int | None,
    runs: int | None,
    vary: str | None,
) -> int:
    """Project, judge, arbitrate, compute and hash again from the records, and report the first difference.

    Both values are shown, and whether schema, code or policy has changed since it was recorded. No effect is made and
    no byte of the log changes. Code that is another one by now is said plainly.

    With --vary the log is rechecked in processes of their own with different surroundings, one thing varied at a time:
    the seed of hashes; the order in which policies and projections are loaded, and which steps are performed before
    another; the locale; the time zone. It says which of them a step depends on. --runs alone repeats the same.
    """
    from worldprotocol.analysis.recheck.whole_log import RecheckSetup, recheck_log
    from worldprotocol.cli.support.opening import composed

    config = composed(desk)
    projections, policies = tuple(map(str, config.projections)), tuple(map(str, config.policies))
    address, domain = desk.log or config.log_address, str(config.domain)
    setup = RecheckSetup(address, domain, projections, policies, config.folder, every)
    if at is not None:
        if upto is not None:
            raise click.UsageError("--at and --upto both say where to stop; say one of them.")
        with desk.look() as world:
            upto = point_of(world, at).position
    if runs is not None or vary is not None:
        return _varied(
            desk, setup, [name.strip() for name in (vary or "").split(",") if name.strip()], upto, jobs, runs
        )
    with desk.progress("Rechecking") as progress:
        done = recheck_log(setup, upto=upto, jobs=jobs, progress=progress)
    if desk.json:
        desk.out.document(done.to_wire())
    else:
        for found in done.divergences:
            _tell_divergence(desk, found)
        steps = ", ".join(f"{count} {name}" for name, count in sorted(done.steps.items())) or "nothing"
        words = "all as recorded" if done.ok else counted(len(done.divergences), "divergence")
        desk.out.text(f"performed again up to event {done.position}: {steps}; {words}")
    return 0 if done.ok else 1


def _tell_divergence(desk: CommandContext, found: Divergence) -> None:
    kind = "drift" if found.is_drift else "differs"
    desk.out.text(f"{found.position}\t{kind}\t{found.difference.code}\t{found.difference.message}")
    if found.changed is None:
        return
    for line in _values(found.difference.details):
        desk.out.text(line)
    rendered = str(found.changed)
    if found.topic == "projection.recorded":
        rendered += "; of projections the log does not hold the code"
    desk.out.text(f"  {rendered}")


def _values(details: Mapping[str, Any]) -> Iterable[str]:
    """Yield both values of what differs."""
    for one in details.get("differences") or [details]:
        now = one.get("now", one.get("computed"))
        yield f"  {one.get('at', one.get('what', 'it'))}: recorded {_short(one.get('recorded'))}"
        yield f"  {'now':>{len(str(one.get('at', one.get('what', 'it'))))}}  computed {_short(now)}"


def _short(value: Any) -> str:
    from world.model.canonical_json import canonical_text

    text = canonical_text(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."


def _varied(
    desk: CommandContext, setup: RecheckSetup, vary: list[str], upto: int | None, jobs: int | None, runs: int | None
) -> int:
    from worldprotocol.analysis.recheck.environment_variation import RUNS, recheck_varied

    with desk.progress("Rechecking in varied surroundings") as progress:
        done = recheck_varied(setup, vary, runs=runs or RUNS, upto=upto, jobs=jobs, progress=progress)
    if desk.json:
        desk.out.document(done.to_wire())
        return 0 if done.ok else 1
    wire = done.to_wire()
    for found in wire["divergences"]:
        desk.out.text(f"{found['position']}\tas it is\t{found['code']}\t{found['message']}")
    for name, rendered in {"nothing": wire["byItself"], **wire["varied"]}.items():
        if rendered is None:
            continue
        cause = "it differs from run to run with nothing varied" if name == "nothing" else f"it depends on the {name}"
        desk.out.text(f"{rendered['position']}\tvaries\t{name}\t{cause}:")
        for one in rendered["outcomes"]:
            ended = "as recorded" if one["divergence"] is None else one["divergence"]["message"]
            desk.out.text(f"  {'as it is' if one['varied'] == 'nothing' else one['value']}: {ended}")
    steady = [name for name, rendered in wire["varied"].items() if rendered is None]
    words = f"; no difference by {', '.join(steady)}" if steady else ""
    desk.out.text(f"{counted(len(done.runs), 'run')} up to event {wire['position']}{words}")
    return 0 if done.ok else 1
