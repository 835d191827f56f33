"""``worldctl decide``: answer a proposal that waits for people."""

from __future__ import annotations

from typing import Any, Final

import click

from worldprotocol.cli.support.command_context import CommandContext, command, execution_option

CHOICES: Final = ("approve", "reject", "narrow", "ask", "reply", "delegate", "escalate")
"""Answers that are listed."""

IN_VOTES: Final = "abstain"
"""Answer that is taken in a vote alone, and so listed for votes alone."""

SPOKEN: Final = {"ask": "the question", "reply": "the answer to it", "escalate": "why the next step shall decide"}
"""Answers that need words, and what the words are."""


class _Answer(click.Choice[str]):
    """An answer of ``CHOICES``, or ``IN_VOTES``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return IN_VOTES if value == IN_VOTES else super().convert(value, param, ctx)


@command("decide")
@click.argument("proposal")
@click.argument("choice", type=_Answer(CHOICES))
@click.option("--by", required=True, metavar="ID", help="Registered actor that answers.")
@click.option("--scope", multiple=True, metavar="PATTERN", help="For narrow: where it may write; repeat for more.")
@click.option("--to", metavar="ID", help="For delegate: the registered actor that answers instead.")
@execution_option
@click.option("--reason", default="", help="Why, for the record; for ask and reply: the question, the answer to it.")
def decide(
    desk: CommandContext, proposal: str, choice: Any, by: str, scope: tuple[str, ...], to: str | None, reason: str
) -> int:
    """Answer PROPOSAL, named by its id or the unique beginning of it.

    In a vote, a voter may also abstain. ask sends a question back, and the proposer replies; it still waits.
    delegate hands the own place on, escalate hands the question up to the next step of the binding.
    The action of an approved proposal is computed at once; its effects are performed here with --execute, and
    otherwise offered to workers (`worldctl worker`, `worldctl settle`). Exit code 1 when its execution failed.
    """
    if choice == "narrow" and not scope:
        raise click.UsageError("narrow needs --scope PATTERN: where the proposal may write.")
    if choice in SPOKEN and not reason.strip():
        raise click.UsageError(f'{choice} needs --reason "...": {SPOKEN[choice]}.')
    if (choice == "delegate") != (to is not None):
        raise click.UsageError("delegate, and it alone, needs --to ID, the actor that answers instead.")
    if choice != "narrow" and scope:
        raise click.UsageError(f"--scope goes with narrow, not with {choice}.")
    from worldprotocol.api.lookup.id_lookup import proposal_id
    from worldprotocol.cli.support.rendering.proposals import in_words, result_of

    with desk.open(execute=False) as world:
        name = proposal_id(world, proposal, [one.proposal_id for one in world.inbox()])
        answered = world.decide(name, choice, by=by, scope=scope or None, to=to, reason=reason)
        result = result_of(world, answered)
    desk.out.tell(result, *in_words(result))
    if any(one.offer is not None for one in answered.requested.values()):
        desk.out.remark(
            "Its effects are offered to workers: `worldctl worker` performs them, or `worldctl settle` on a machine "
            "with their handlers; --execute performs them at once."
        )
    return 1 if result["status"] == "failed" else 0
