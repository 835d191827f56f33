"""``worldctl stuck``, ``resolve`` and ``cancel``: executions that need a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command, execution_option
from worldprotocol.cli.support.listing import held_remark, tell_table
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.point_in_time import at_option, moment

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from worldprotocol.api.realm import Realm


@command("stuck")
@at_option("What was in doubt at this point in the past.")
def stuck(desk: CommandContext, at: str | None) -> None:
    """List the effects in doubt: it is unknown whether they happened, and they wait for `worldctl resolve`.

    An effect is in doubt where its worker vanished before it recorded a result, and making it twice could do harm.
    Whether a worker is still there is not looked into: that an effect is in doubt is found, and recorded, by `worldctl
    settle` and every command that acts. The idempotency key is what its handler was given: the other side can be asked
    by it.
    """
    from worldprotocol.api.host import in_doubt, under_way
    from worldprotocol.api.proposal_summary import moment as words_of

    with desk.look() as world:
        realm = moment(world, at).realm()
    held_remark(desk, realm)
    found, open_ = in_doubt(realm), under_way(realm)
    if open_ and at is None:
        how = "is" if open_ == 1 else "are"
        desk.out.remark(
            f"{counted(open_, 'effect')} {how} under way; `worldctl settle` finds out whose worker is gone."
        )
    heads = ("proposal", "actor", "action", "effect", "since", "idempotency key")
    rows = (
        (
            one["proposalId"],
            one["actorId"],
            one["action"],
            one["effect"],
            words_of(one["requestedAt"]),
            one["idempotencyKey"],
        )
        for one in found
    )
    tell_table(desk, found, heads, rows, empty="No effect is in doubt.")


@command("resolve")
@click.argument("proposal")
@click.option("--effect", metavar="ID", help="Which effect, by its id; needed where several are in doubt.")
@click.option("--happened", is_flag=True, help="It happened; --result is what the action receives.")
@click.option("--result", metavar="JSON", help="With --happened: what it gave; JSON, @file or -.")
@click.option("--retry", is_flag=True, help="It did not happen: make it again.")
@click.option("--fail", is_flag=True, help="It cannot be found out: the action receives EFFECT_IN_DOUBT.")
@execution_option
@click.option("--by", required=True, metavar="ID", help="Registered actor that reports it.")
@click.option("--reason", required=True, metavar="TEXT", help="How it is known; the log keeps it.")
def resolve(desk: CommandContext, proposal: str, result: str | None, by: str, reason: str, **asked: Any) -> int:
    """Record the result of an effect in doubt, and continue the execution of PROPOSAL.

    `worldctl stuck` lists them. Exit code 1 when the execution failed.
    """
    chosen = [name for name in ("happened", "retry", "fail") if asked[name]]
    if len(chosen) != 1:
        raise click.UsageError("Say what became of it: one of --happened, --retry and --fail.")
    if result is not None and not asked["happened"]:
        raise click.UsageError("--result goes with --happened.")
    from worldprotocol.api.lookup.id_lookup import proposal_id, the_one
    from worldprotocol.cli.support.input_reading import read_argument

    value = None if result is None else read_argument(result, what="--result")
    with desk.open() as world:
        doubts = world.host.stuck()
        name = proposal_id(world, proposal, [one["proposalId"] for one in doubts])
        effect = asked["effect"]
        if effect is not None:
            of_it = [one["requirementId"] for one in doubts if one["proposalId"] == name]
            effect = the_one(effect, of_it, what="effect")
        choice: Any = chosen[0]
        done = world.host.resolve(name, choice, by=by, reason=reason, effect=effect, value=value)
        return _tell(desk, world, done)


@command("cancel")
@click.argument("proposal")
@execution_option
@click.option("--by", required=True, metavar="ID", help="Actor that cancels it, for the record.")
@click.option("--reason", required=True, metavar="TEXT", help="Why; the log keeps it.")
def cancel(desk: CommandContext, proposal: str, by: str, reason: str) -> int:
    """Cancel PROPOSAL: one that is not decided is withdrawn, and an approved execution fails.

    No further effect of an execution is made, effects under way are abandoned, and what its effects did to files is
    undone. Exit code 1 when it ended before.
    """
    from worldprotocol.api.lookup.id_lookup import proposal_id

    with desk.open() as world:
        open_ones = world.archive.peek(lambda realm: list(realm.proposals))
        done = world.host.cancel(proposal_id(world, proposal, open_ones), by=by, reason=reason)
        _tell(desk, world, done)
    return 1 if done.status == "completed" else 0


def _tell(desk: CommandContext, world: Realm, proposal: Proposal) -> int:
    """Print the outcome of a proposal; return 1 where its execution failed."""
    from worldprotocol.cli.support.rendering.proposals import in_words, result_of

    rendered = result_of(world, proposal)
    doubts = [one for one in world.host.stuck() if one["proposalId"] == proposal.proposal_id]
    words = in_words(rendered)
    if doubts:
        rendered["inDoubt"] = doubts
        words.append(f"{len(doubts)} of its effects are in doubt still: worldctl stuck")
    desk.out.tell(rendered, *words)
    return 1 if rendered["status"] == "failed" else 0
