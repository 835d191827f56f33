"""``worldctl submit``: intents that a caller states outright, one or many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.submission import check_base, start_of, submission_options, wait_for

if TYPE_CHECKING:
    from world.events.verification import IntentSignature
    from world.model.intent import IntentInstance
    from worldprotocol.api.realm import Realm


@command("submit")
@click.argument("action", required=False)
@click.option("--actor", metavar="ID", help="Acting actor; also for lines that name none.")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="The action's input.")
@click.option("--scope", multiple=True, metavar="PATTERN", help="Where it proposes to write; repeat for more.")
@click.option("--note", help="A note for people.")
@click.option("--sign", metavar="KEYFILE", help="Sign the intent with this private key of the actor (`worldctl keys`).")
@click.option("--intents", metavar="FILE|-", help="JSON lines of intents; see above.")
@submission_options
def submit(desk: CommandContext, *, stop_on_error: bool, **options: Any) -> int:
    """Submit ACTION with its input, or many intents as JSON lines. `worldctl project` takes source events.

    A line of --intents is a full IntentInstance, also with its "signature", or {"actor", "type", "input"?,
    "scopeProposal"?}. Every line gives one
    line of JSON; an invalid one is reported with its number, without a stop. An intentId is accepted once, so a file of
    full instances can be submitted again after an interruption: what is in the log already is refused as
    alreadySubmitted and nothing happens twice. With --wait the lines of what has not ended yet come last.

    Exit code 1 when anything was refused, rejected or failed; else 5 when something is held until an adoption; else 4
    when something still waits for people, leases or effects, with or without --wait.
    """
    _check(options)
    if options["intents"] is None:
        return _one(desk, options)
    from worldprotocol.cli.support.batch import intent_taker, run_batch

    return run_batch(desk, options["intents"], intent_taker(options), wait=options["wait"], stop_on_error=stop_on_error)


def _check(options: dict[str, Any]) -> None:
    """Refuse combinations of options that mean nothing."""
    if (options["action"] is None) == (options["intents"] is None):
        raise click.UsageError("Say what to submit: ACTION or --intents FILE.")
    if options["action"] is not None and options["actor"] is None:
        raise click.UsageError("Name the acting actor: --actor ID.")
    if options["action"] is None and any(
        options[name] not in (None, ()) for name in ("given", "scope", "note", "sign")
    ):
        raise click.UsageError("--input, --scope, --note and --sign go with ACTION.")
    check_base(options, is_many=options["action"] is None)


def _one(desk: CommandContext, options: dict[str, Any]) -> int:
    from worldprotocol.cli.support.input_reading import read_argument
    from worldprotocol.cli.support.rendering.proposals import exit_code_of, in_words, result_of

    given = None if options["given"] is None else read_argument(options["given"], what="--input")
    with desk.open() as world:
        scope, start = options["scope"] or None, start_of(world, options)
        intent = world.issue(options["actor"], options["action"], given, scope=scope, note=options["note"])
        put = world.submit(intent, signature=_signature(world, intent, options["sign"]), **start)
        result = result_of(world, wait_for(world, put, options["wait"]))
    desk.out.tell(result, *in_words(result))
    return exit_code_of([result])


def _signature(world: Realm, intent: IntentInstance, file: str | None) -> IntentSignature | None:
    """Return the signature of an intent by the key in a file; None without a file.

    Raises:
        RefusedError: ``FILE_UNREADABLE``, ``INVALID_KEY``.
    """
    if file is None:
        return None
    from world.clock import SystemClock
    from worldprotocol.api.callers.signing import signature_of
    from worldprotocol.cli.support.input_reading import read_file

    return signature_of(world, intent, read_file(file), now_ms=SystemClock().now_ms())
