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
def project(desk: CommandContext, *, stop_on_error: bool, **rendered: Any) -> int:
    """Hand a source event to the projections, or many as JSON lines; what they select is submitted.

    A source event is {"kind", "eventId", "payload"?}; a line of --events is {"actor", "source"}. Every line gives one
    line of JSON; a bad one is reported with its number and the rest continues. The status is "none" where no projection
    selects an intent. With --wait the lines of what has not ended yet come last.

    Exit code 1 when anything was refused, rejected or failed; what waits for leases or people counts as clean.
    """
    _check(rendered)
    if rendered["events"] is None:
        return _one(desk, rendered)
    from worldprotocol.cli.support.batch import event_taker, run_batch

    return run_batch(
        desk, rendered["events"], event_taker(rendered), wait=rendered["wait"], stop_on_error=stop_on_error
    )


def _check(rendered: dict[str, Any]) -> None:
    """Refuse combinations of options that mean nothing."""
    if (rendered["source"] is None) == (rendered["events"] is None):
        raise click.UsageError("Say what to project: a source event or --events FILE.")
    if rendered["source"] is not None and rendered["actor"] is None:
        raise click.UsageError("Name the acting actor: --actor ID.")
    check_base(rendered, is_many=rendered["source"] is None)
    if rendered["base"] is not None and rendered["branch"] is None:
        raise click.UsageError("Projections read the head of a branch: name it with --branch.")


def _one(desk: CommandContext, rendered: dict[str, Any]) -> int:
    from worldprotocol.cli.support.input_reading import read_object
    from worldprotocol.cli.support.rendering.proposals import FINDINGS, in_words, received_as

    source = read_object(rendered["source"], what="The source event")
    with desk.open() as world:
        came = world.project(source, rendered["actor"], **start_of(world, rendered))
        if came.proposal is not None:
            came = replace(came, proposal=wait_for(world, came.proposal, rendered["wait"]))
        result = received_as(world, came)
    desk.out.tell(result, *in_words(result))
    return 1 if result["status"] in FINDINGS else 0
