"""``worldctl submit``: put intents forward, one or many, stated outright or selected by projections."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from worldprotocol.api.realm import Realm


def _seconds(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if not value >= 0:  # nor NaN
        raise click.BadParameter(f"{value} is no time to wait; take a number of seconds from 0 up.")
    return value


@command("submit")
@click.argument("action", required=False)
@click.option("--actor", metavar="ID", help="Who acts; for lines that name nobody, too.")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="The action's input.")
@click.option("--scope", multiple=True, metavar="PATTERN", help="Where it proposes to write; repeat for more.")
@click.option("--note", help="A note for people.")
@click.option("--source", metavar="JSON|@FILE|-", help="A source event; the projections select the intent.")
@click.option("--intents", metavar="FILE|-", help="JSON lines of intents; see above.")
@click.option("--event", "events", metavar="FILE|-", help="JSON lines of source events; see above.")
@click.option("--branch", metavar="NAME", help="The branch to move; the active one.")
@click.option("--base", metavar="WORLD", help="Start from a world: an id, a branch, HEAD; without --branch it forks.")
@click.option("--allow-failed", is_flag=True, help="Let --base be a world whose execution failed.")
@click.option("--stop-on-error", is_flag=True, help="Stop at the first line that is refused, rejected or failed.")
@click.option(
    "--wait",
    type=float,
    default=0,
    callback=_seconds,
    metavar="SECONDS",
    help="Stay so long, at most, until what waits for leases or people has ended.",
)
def submit(desk: CommandContext, *, stop_on_error: bool, **told: Any) -> int:
    """Submit ACTION with its input, a source event, or many of either as JSON lines.

    A line of --intents is a full IntentInstance, or {"actor", "type", "input"?, "scopeProposal"?}; a line of --event
    is {"actor", "source": {"kind", "eventId", "payload"?}}. Every line gives one line of JSON; a bad one is reported
    with its number and the rest goes on. An intentId is accepted once, so a file of full instances can be submitted
    again after an interruption: what is in the log already is refused as alreadySubmitted and nothing happens twice.
    With --wait the lines of what has not ended yet come last.

    Exit code 1 when anything was refused, rejected or failed; what waits for leases or people counts as clean.
    """
    _check(told)
    if told["intents"] is None and told["events"] is None:
        return _one(desk, told)
    from worldprotocol.cli.support.batch import run_batch

    return run_batch(desk, told, stop_on_error=stop_on_error)


def _check(told: dict[str, Any]) -> None:
    """Refuse combinations of options that mean nothing."""
    ways = [name for name in ("action", "source", "intents", "events") if told[name] is not None]
    if len(ways) != 1:
        raise click.UsageError("Say what to submit: one of ACTION, --source, --intents and --event.")
    way = ways[0]
    if way in ("action", "source") and told["actor"] is None:
        raise click.UsageError("Say who acts: --actor ID.")
    if way != "action" and (told["given"] is not None or told["scope"] or told["note"]):
        raise click.UsageError("--input, --scope and --note go with ACTION.")
    if told["allow_failed"] and told["base"] is None:
        raise click.UsageError("--allow-failed goes with --base WORLD.")
    if told["base"] is not None and way in ("intents", "events"):
        raise click.UsageError("--base names the start of one submission; for many make a branch and name it.")
    if way == "source" and told["base"] is not None and told["branch"] is None:
        raise click.UsageError("Projections read the head of a branch: name it with --branch.")


def _one(desk: CommandContext, told: dict[str, Any]) -> int:
    from worldprotocol.cli.support.id_lookup import world_id
    from worldprotocol.cli.support.input_reading import read_argument, read_object
    from worldprotocol.cli.support.proposal_output import FINDINGS, in_words, received_as, result_of

    source = None if told["source"] is None else read_object(told["source"], what="--source")
    given = None if told["given"] is None else read_argument(told["given"], what="--input")
    with desk.open() as world:
        wishes: dict[str, Any] = {"branch": told["branch"], "allow_failed_base": told["allow_failed"]}
        if told["base"] is not None:
            wishes["base_world"] = world_id(world, told["base"])
        if source is not None:
            received = world.project(source, told["actor"], **wishes)
            if received.proposal is not None:
                received = replace(received, proposal=_stay(world, received.proposal, told["wait"]))
            result = received_as(world, received)
        else:
            scope = told["scope"] or None
            put = world.act(told["actor"], told["action"], given, scope=scope, note=told["note"], **wishes)
            result = result_of(world, _stay(world, put, told["wait"]))
    desk.out.tell(result, *in_words(result))
    return 1 if result["status"] in FINDINGS else 0


def _stay(world: Realm, proposal: Proposal, seconds: float) -> Proposal:
    """Return a proposal as it is when it has ended, or the time is over.

    Raises:
        KeyboardInterrupt: saying that it goes on.
    """
    if proposal.is_terminal or not seconds:
        return proposal
    from worldprotocol.cli.support.waiting import stay

    name = proposal.proposal_id
    try:
        stay(world, [name], seconds)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Interrupted: proposal {name} is in the log and may still be carried out; `worldctl show {name}` tells "
            "how it stands."
        ) from None
    return world.proposal(name)
