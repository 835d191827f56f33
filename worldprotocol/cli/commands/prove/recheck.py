"""``worldctl recheck``: every recorded step, performed again by the loaded code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from worldprotocol.cli.support.audit_work.options import (
    NamedRealm,
    closed_logs,
    closed_wire,
    named_realms,
    realms_argument,
    workers_of,
    workers_options,
)
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.point_in_time import at_option, point_of

if TYPE_CHECKING:
    from worldprotocol.analysis.recheck.results import Divergence, Rechecked
    from worldprotocol.analysis.recheck.whole_log import LogRecheck
    from worldprotocol.api.lookup.closed_log import ClosedLog

MAX_VALUE: Final = 400
"""Characters of a value that people are shown; --json has it whole."""


@command("recheck")
@realms_argument
@click.option("--all", "every", is_flag=True, help="Continue after the first step with another result.")
@click.option("--upto", type=click.IntRange(min=1), metavar="POSITION", help="Stop at this event.")
@at_option("Stop at this point in the past.")
@workers_options
@click.option("--runs", type=click.IntRange(min=1), metavar="N", help="Runs for each variation; 3 if not given.")
@click.option("--vary", metavar="LIST", help="Of hashseed,order,locale,timezone: what is varied from run to run.")
def recheck(desk: CommandContext, realms: tuple[str, ...], jobs: int | None, executor: str, **options: Any) -> int:
    """Project, judge, arbitrate, compute and hash again from the records, and report the first difference.

    Both values are shown, and whether schema, code or policy has changed since it was recorded. No effect is made and
    no byte of the log changes. Code that is another one by now is said plainly.

    Each REALM is a world.toml, a folder with one, a log with the configuration in force, or with --directory a name
    there: NAME, or NAME=FILE with its world.toml. With several, the answer for each is that of the command for it
    alone, and an error of one does not end the others.

    With --vary the log is rechecked in processes of their own with different surroundings, one thing varied at a time:
    the seed of hashes; the order in which policies and projections are loaded, and which steps are performed before
    another; the locale; the time zone. It says which of them a step depends on. --runs alone repeats the same.
    """
    workers = workers_of(jobs, executor)
    is_varied = options["runs"] is not None or options["vary"] is not None
    _check_options(options, realms, is_varied=is_varied, is_cluster=workers.is_cluster)
    named = named_realms(desk, realms)
    asked = [_asked(one, options) for one in named]
    if is_varied:
        return _varied(desk, asked[0], options, jobs)
    from worldprotocol.analysis.recheck.whole_log import recheck_logs

    with desk.progress("Rechecking") as progress:
        recheck_logs(asked, workers=workers, progress=progress)
    closed = closed_logs(desk, named)
    if realms:
        return _tell_all(desk, named, asked, closed)
    [one] = asked
    if one.error is not None:
        raise one.error
    desk.remark_archived(one.done.archived_upto)
    if desk.json:
        desk.out.document(one.done.to_wire() | closed_wire(closed[0]))
    else:
        _tell(desk, one.done)
    return 0 if one.done.ok else 1


def _check_options(options: Mapping[str, Any], realms: Sequence[str], *, is_varied: bool, is_cluster: bool) -> None:
    """Refuse options that contradict each other.

    Raises:
        click.UsageError: with what to leave out.
    """
    if options["at"] is not None and options["upto"] is not None:
        raise click.UsageError("--at and --upto both say where to stop; say one of them.")
    if len(realms) > 1 and options["upto"] is not None:
        raise click.UsageError("--upto is a position of one log; with several, say --at TIME.")
    if is_varied and (len(realms) > 1 or is_cluster):
        raise click.UsageError("--vary and --runs start processes of this machine for one log; leave out the others.")


def _asked(realm: NamedRealm, options: Mapping[str, Any]) -> LogRecheck:
    """Return the recheck of a realm."""
    from world.errors import WorldProtocolError
    from worldprotocol.analysis.recheck.whole_log import LogRecheck, RecheckSetup
    from worldprotocol.api.realm import Realm

    config = realm.config
    references = tuple(map(str, config.projections)), tuple(map(str, config.policies))
    setup = RecheckSetup(realm.address, str(config.domain), *references, config.folder, options["every"])
    asked = LogRecheck(setup, upto=options["upto"])
    if options["at"] is not None:
        try:
            with Realm.open_read_only(realm.address) as world:
                asked.upto = point_of(world, options["at"]).position
        except WorldProtocolError as error:
            asked.error = error
    return asked


def _tell(desk: CommandContext, done: Rechecked) -> None:
    for found in done.divergences:
        _tell_divergence(desk, found)
    words = "all as recorded" if done.ok else counted(len(done.divergences), "divergence")
    desk.out.text(f"performed again up to event {done.position}: {_steps(done.steps)}; {words}")


def _steps(steps: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(steps.items())) or "nothing"


def _tell_all(
    desk: CommandContext,
    named: Sequence[NamedRealm],
    asked: Sequence[LogRecheck],
    closed: Sequence[ClosedLog | None],
) -> int:
    """Print the answer for each of several realms and their total; return the exit code."""
    from worldprotocol.cli.support.exit_codes import exit_code_of

    names = [str(one.name) for one in named]
    steps: Counter[str] = Counter()
    for name, one in zip(names, asked, strict=True):
        steps.update(one.done.steps if one.error is None else {})
        desk.remark_archived(one.done.archived_upto, name)
    total = {
        "realms": len(asked),
        "asRecorded": sum(one.error is None and one.done.ok for one in asked),
        "divergent": sum(one.error is None and not one.done.ok for one in asked),
        "failed": sum(one.error is not None for one in asked),
    }
    if desk.json:
        each = zip(names, asked, closed, strict=True)
        answers = [{"realm": name, **_answer(one), **closed_wire(end)} for name, one, end in each]
        wire = {**total, "steps": dict(sorted(steps.items()))}
        desk.out.document({"ok": total["asRecorded"] == len(asked), "realms": answers, "total": wire})
    else:
        for name, one in zip(names, asked, strict=True):
            desk.out.text(f"{name}:")
            if one.error is None:
                _tell(desk, one.done)
            else:
                desk.out.text(f"failed: {one.error.message} [{one.error.code}]")
        ends = f"{total['asRecorded']} as recorded, {total['divergent']} with divergences, {total['failed']} failed"
        desk.out.text(f"{counted(len(asked), 'realm')}: {ends}; {_steps(steps)}")
    errors = [exit_code_of(one.error) for one in asked if one.error is not None]
    return max([0 if total["divergent"] == 0 else 1, *errors])


def _answer(one: LogRecheck) -> dict[str, Any]:
    return one.done.to_wire() if one.error is None else {"ok": False, "error": one.error.to_dict()}


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


def _varied(desk: CommandContext, asked: LogRecheck, options: Mapping[str, Any], jobs: int | None) -> int:
    from worldprotocol.analysis.recheck.environment_variation import RUNS, recheck_varied

    if asked.error is not None:
        raise asked.error
    vary = [name.strip() for name in (options["vary"] or "").split(",") if name.strip()]
    with desk.progress("Rechecking in varied surroundings") as progress:
        runs = options["runs"] or RUNS
        done = recheck_varied(asked.setup, vary, runs=runs, upto=asked.upto, jobs=jobs, progress=progress)
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
