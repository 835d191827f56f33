"""``worldctl decide``: answer a proposal that waits for people."""

from __future__ import annotations

from typing import Any

import click

from worldprotocol.cli.options import Desk, command


@command("decide")
@click.argument("proposal")
@click.argument("choice", type=click.Choice(["approve", "reject", "narrow", "ask"]))
@click.option("--by", required=True, metavar="ID", help="Who answers: a registered actor.")
@click.option("--scope", multiple=True, metavar="PATTERN", help="For narrow: where it may write; repeat for more.")
@click.option("--reason", default="", help="Why, for the record; for ask: the question.")
def decide(desk: Desk, proposal: str, choice: Any, by: str, scope: tuple[str, ...], reason: str) -> int:
    """Answer PROPOSAL, named by its id or the unique beginning of it.

    An approved proposal is executed at once. Exit code 1 when its execution failed.
    """
    if choice == "narrow" and not scope:
        raise click.UsageError("narrow needs --scope PATTERN: where the proposal may write.")
    if choice == "ask" and not reason.strip():
        raise click.UsageError('ask needs --reason "...": the question.')
    if choice != "narrow" and scope:
        raise click.UsageError(f"--scope goes with narrow, not with {choice}.")
    from worldprotocol.cli.prefix import proposal_id
    from worldprotocol.cli.results import in_words, result_of

    with desk.open() as world:
        name = proposal_id(world, proposal)
        answered = world.decide(name, choice, by=by, scope=scope or None, reason=reason)
        result = result_of(world, answered)
    desk.out.tell(result, in_words(result))
    return 1 if result["status"] == "failed" else 0
