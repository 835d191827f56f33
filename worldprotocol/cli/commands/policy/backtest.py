"""``worldctl policy backtest``: what another policy would have decided about every recorded case of rules."""

from __future__ import annotations

from typing import Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command


@command("backtest")
@click.option("--with", "policy", required=True, metavar="POLICY", help="Loaded policy, a file, or a reference.")
@click.option("--of", metavar="NAME", help="Only cases that the policy of this name judged.")
@click.option("--since", metavar="TIME", help="Not before: ISO 8601, ms since 1970, or 15m, 2h, 3d ago.")
@click.option("--until", metavar="TIME", help="Not after; as --since.")
@click.option("--branch", metavar="NAME", help="Only cases on this branch.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N rulings.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes; by itself as many as pay.")
def backtest(desk: CommandContext, policy: str, last: int | None, jobs: int | None, **options: Any) -> int:
    """Judge every recorded case of rules again by another policy, as of its own time, and list what flips.

    Each flip names the rules that decided then and now, and the worlds that were built on it. What the log cannot
    determine, such as the answers of people, is listed as undecided. No byte of the log changes. With --json a line
    each, and a summary last. Exit code 1 when there are flips.
    """
    from world.clock import SystemClock
    from worldprotocol.analysis.backtest import Backtest, BacktestSetup, CaseSelection, check_judged
    from worldprotocol.cli.commands.look.log import moment_given
    from worldprotocol.cli.support.opening import composed

    now = SystemClock().now_ms()
    since, until = (moment_given(options.pop(name), now) for name in ("since", "until"))
    config = composed(desk)
    with desk.look() as world:
        if options["branch"] is not None:
            world.branch(options["branch"])
        if options["of"] is not None:
            check_judged(world, options["of"])
    setup = BacktestSetup(
        address=desk.log or config.log_address,
        domain=str(config.domain),
        policy=policy,
        policies=tuple(config.policies),
        folder=config.folder,
        wanted=CaseSelection(since, until, **options),
        limits=config.chosen_limits(),
        last=last,
    )
    with desk.progress("Judging again") as progress:
        running = Backtest(setup, jobs, progress)
        for line in running.lines():
            if desk.json:
                desk.out.line(line)
            else:
                desk.out.text(_words(line))
    counts = running.summary()
    if desk.json:
        desk.out.line(counts)
    else:
        desk.out.text(
            f"judged again: {counts['judged']}; the same: {counts['same']}, flips: {counts['flips']}, undecided: "
            f"{counts['undecided']}; bound otherwise: {counts['otherBindings']}"
        )
    return 1 if counts["flips"] else 0


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
