"""``worldctl policy backtest``: what another policy would have decided about every recorded case of rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from worldprotocol.analysis.backtest import Backtest
    from worldprotocol.api.lookup.closed_log import ClosedLog


@command("backtest")
@realms_argument
@click.option("--with", "policy", required=True, metavar="POLICY", help="Loaded policy, a file, or a reference.")
@click.option("--of", metavar="NAME", help="Only cases that the policy of this name judged.")
@click.option("--since", metavar="TIME", help="Not before: ISO 8601, ms since 1970, or 15m, 2h, 3d ago.")
@click.option("--until", metavar="TIME", help="Not after; as --since.")
@click.option("--branch", metavar="NAME", help="Only cases on this branch.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N rulings.")
@workers_options
def backtest(desk: CommandContext, realms: tuple[str, ...], jobs: int | None, executor: str, **options: Any) -> int:
    """Judge every recorded case of rules again by another policy, as of its own time, and list what flips.

    Each flip names the rules that decided then and now, and the worlds that were built on it. What the log cannot
    determine, such as the answers of people, is listed as undecided. No byte of the log changes. With --json a line
    each, and a summary last. Exit code 1 when there are flips.

    Each REALM is a world.toml, a folder with one, a log with the configuration in force, or with --directory a name
    there: NAME, or NAME=FILE with its world.toml. With several, each line begins with its realm, and an error of one
    does not end the others.
    """
    from world.clock import SystemClock
    from worldprotocol.analysis.backtest import backtest_logs
    from worldprotocol.cli.commands.look.log import moment_given

    workers = workers_of(jobs, executor)
    now = SystemClock().now_ms()
    options |= {name: moment_given(options[name], now) for name in ("since", "until")}
    named = named_realms(desk, realms)
    asked = [_asked(one, options) for one in named]
    with desk.progress("Judging again") as progress:
        for number, line in backtest_logs(asked, workers=workers, progress=progress):
            name = named[number].name
            if desk.json:
                desk.out.line(line if name is None else {"realm": name, **line})
            else:
                desk.out.text(_words(line) if name is None else f"{name}\t{_words(line)}")
    closed = closed_logs(desk, named)
    if realms:
        return _sum_up(desk, named, asked, closed)
    [one] = asked
    if one.error is not None:
        raise one.error
    desk.remark_archived(one.archived_upto)
    if desk.json:
        desk.out.line(one.summary() | closed_wire(closed[0]))
    else:
        desk.out.text(_counts(one.counts))
    return 1 if one.counts["flips"] else 0


def _asked(realm: NamedRealm, options: dict[str, Any]) -> Backtest:
    """Return the backtest of a realm, with the error of a selection that is not in its log."""
    from world.errors import WorldProtocolError
    from worldprotocol.analysis.backtest import Backtest, BacktestSetup, CaseSelection, check_judged
    from worldprotocol.api.realm import Realm

    config = realm.config
    setup = BacktestSetup(
        address=realm.address,
        domain=str(config.domain),
        policy=options["policy"],
        policies=tuple(config.policies),
        folder=config.folder,
        wanted=CaseSelection(**{name: options[name] for name in ("since", "until", "branch", "of")}),
        limits=config.chosen_limits(),
        last=options["last"],
    )
    asked = Backtest(setup)
    try:
        with Realm.open_read_only(realm.address) as world:
            if options["branch"] is not None:
                world.branch(options["branch"])
            if options["of"] is not None:
                check_judged(world, options["of"])
    except WorldProtocolError as error:
        asked.error = error
    return asked


def _sum_up(
    desk: CommandContext, named: Sequence[NamedRealm], asked: Sequence[Backtest], closed: Sequence[ClosedLog | None]
) -> int:
    """Print a summary for each of several realms, and their total; return the exit code."""
    from worldprotocol.analysis.backtest import COUNTED
    from worldprotocol.cli.support.exit_codes import exit_code_of

    total: Counter[str] = Counter()
    failed = [one.error for one in asked if one.error is not None]
    for name, one, end in zip((str(one.name) for one in named), asked, closed, strict=True):
        desk.remark_archived(one.archived_upto, name)
        if one.error is None:
            total.update(one.counts)
        if desk.json:
            failure = {} if one.error is None else {"kind": "failed", "error": one.error.to_dict()}
            desk.out.line({"realm": name, **(failure or one.summary()), **closed_wire(end)})
        else:
            words = _counts(one.counts) if one.error is None else f"failed: {one.error.message} [{one.error.code}]"
            desk.out.text(f"{name}\t{words}")
    if desk.json:
        counts = {name: total[name] for name in COUNTED}
        desk.out.line({"kind": "total", "realms": len(asked), "failed": len(failed), **counts})
    else:
        desk.out.text(f"{len(asked)} realms, {len(failed)} failed: {_counts(total)}")
    return max([1 if total["flips"] else 0, *map(exit_code_of, failed)])


def _counts(counts: Counter[str]) -> str:
    return (
        f"judged again: {counts['judged']}; the same: {counts['same']}, flips: {counts['flips']}, undecided: "
        f"{counts['undecided']}; bound otherwise: {counts['otherBindings']}"
    )


def _words(line: dict[str, Any]) -> str:
    begin = f"{line['position']}\t{line['kind']}\t{line['proposalId']}\t{line['action']} by {line['actor']}"
    if "from" not in line:
        return f"{begin}\t{line['message']}"
    then, now = (
        f"{one['verdict']} ({', '.join(one['decidedBy']) or 'by default'})" for one in (line["from"], line["to"])
    )
    later = f"\t{line['laterWorlds']} later worlds" if "laterWorlds" in line else ""
    change = ", within another scope" if line.get("change") == "scope" else ""
    why = f"\t{line['message']}" if "message" in line else ""
    return f"{begin}\t{then} -> {now}{change}{later}{why}"
