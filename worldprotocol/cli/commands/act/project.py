"""``worldctl project``: source events, from which the projections select intents, one or many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.submission import check_base, start_of, submission_options, wait_for


@command("project")
@click.argument("source", metavar="[JSON|@FILE|-]", required=False)
@click.option("--actor", metavar="ID", help="Acting actor; also for lines that name none.")
@click.option("--events", metavar="FILE|-", help="JSON lines of source events; see above.")
@submission_options
def project(desk: CommandContext, *, stop_on_error: bool, **options: Any) -> int:
    """Hand a source event to the projections, or many as JSON lines; what they select is submitted.

    A source event is {"kind", "eventId", "payload"?}; a line of --events is {"actor", "source"}. Every line gives one
    line of JSON; a bad one is reported with its number and the rest continues. The status is "none" where no projection
    selects an intent. With --wait the lines of what has not ended yet come last.

    Exit code 1 when anything was refused, rejected or failed; what waits for leases or people counts as clean.
    """
    _check(options)
    if options["events"] is None:
        return _one(desk, options)
    from worldprotocol.cli.support.batch import event_taker, run_batch

    return run_batch(desk, options["events"], event_taker(options), wait=options["wait"], stop_on_error=stop_on_error)


def _check(options: dict[str, Any]) -> None:
    """Refuse combinations of options that mean nothing."""
    if (options["source"] is None) == (options["events"] is None):
        raise click.UsageError("Say what to project: a source event or --events FILE.")
    if options["source"] is not None and options["actor"] is None:
        raise click.UsageError("Name the acting actor: --actor ID.")
    check_base(options, is_many=options["source"] is None)
    if options["base"] is not None and options["branch"] is None:
        raise click.UsageError("Projections read the head of a branch: name it with --branch.")


def _one(desk: CommandContext, options: dict[str, Any]) -> int:
    from worldprotocol.cli.support.input_reading import read_object
    from worldprotocol.cli.support.rendering.proposals import exit_code_of, in_words, received_as

    source = read_object(options["source"], what="The source event")
    with desk.open() as world:
        came = world.project(source, options["actor"], **start_of(world, options))
        if came.proposal is not None:
            came = replace(came, proposal=wait_for(world, came.proposal, options["wait"]))
        result = received_as(world, came)
    desk.out.tell(result, *in_words(result))
    return exit_code_of([result])
