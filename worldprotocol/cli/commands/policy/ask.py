"""``worldctl policy ask``: what would be decided about an intent, and why; nothing is recorded."""

from __future__ import annotations

from typing import Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import at_option, moment


@command("ask")
@click.argument("action", required=False)
@click.option("--actor", required=True, metavar="ID", help="Acting actor.")
@click.option("--input", "given", metavar="JSON|@FILE|-", help="The action's input.")
@click.option("--scope", multiple=True, metavar="PATTERN", help="Where it proposes to write; repeat for more.")
@click.option("--intent", metavar="FILE|-", help='In place of ACTION, JSON: {"type", "input"?, "scopeProposal"?}.')
@click.option("--set", "sets", multiple=True, metavar="PATH=VALUE", help="Another value, for this question only.")
@click.option("--policy", "named", metavar="P", help="Name of a loaded policy, a file, or a reference.")
@at_option("Ask as things stood at this point in the past: actors, bindings, state, history, and the time.")
@click.option("--branch", metavar="NAME", help="On whose head; else the world that --at names, or the active one's.")
def ask(
    desk: CommandContext,
    *,
    action: str | None,
    actor: str,
    given: str | None,
    scope: tuple[str, ...],
    intent: str | None,
    sets: tuple[str, ...],
    named: str | None,
    at: str | None,
    branch: str | None,
) -> None:
    """Say what would be decided about ACTION with its input now, rule by rule, as `worldctl explain` does afterwards.

    Nothing is recorded. --set changes what the question is about: a path that begins with actor.kind, actor.name,
    actor.meta, intent.type, intent.input, base.data or nowMs; the value is JSON, or a text where it is none. What is
    changed in the state need not obey the schema. Leases are not asked for.
    """
    from worldprotocol.analysis.recheck.recheck import open_to_recheck
    from worldprotocol.cli.support.opening import composed
    from worldprotocol.cli.support.rendering.proposal_explanation import ruling_lines
    from worldprotocol.policy_tools.explain import trace_lines
    from worldprotocol.policy_tools.hypothetical import Stand, policy_named
    from worldprotocol.policy_tools.hypothetical import ask as asked_of

    body = _body(action, given, scope, intent)
    values = [_set(one) for one in sets]
    config = composed(desk)
    policy = None if named is None else policy_named(named, config.policies, config.folder)
    with open_to_recheck(
        desk.address(),
        domain=config.domain or "",
        policies=config.policies,
        folder=config.folder,
        limits=config.chosen_limits(),
    ) as world:
        then = None if at is None else moment(world, at)
        stand = None if then is None else Stand.of(then, branch)
        wire = asked_of(world, actor, body, branch=branch, stand=stand, sets=values, policy=policy).to_wire()
    when = "would be decided" if then is None else f"would have been decided after event {then.position}"
    note = [] if wire["note"] is None else [f"  note      {wire['note']}"]
    lines = [f"nothing was submitted: this is what {when}", *ruling_lines(wire), *trace_lines(wire), *note]
    desk.out.tell(wire, *lines)


def _body(action: str | None, given: str | None, scope: tuple[str, ...], intent: str | None) -> dict[str, Any]:
    """Return the body of the intent in question: that of ``--intent``, or one made of an action and its options."""
    from worldprotocol.cli.support.input_reading import STDIN, read_argument, read_object

    if (action is None) == (intent is None):
        raise click.UsageError("Say what to ask about: either ACTION or --intent FILE.")
    if intent is not None:
        if given is not None or scope:
            raise click.UsageError("--input and --scope go with ACTION.")
        document = read_object(intent if intent == STDIN else f"@{intent}", what="--intent")
        return document["body"] if isinstance(document.get("body"), dict) else document  # of a whole instance
    body: dict[str, Any] = {"type": action}
    if given is not None:
        body["input"] = read_argument(given, what="--input")
    if scope:
        body["scopeProposal"] = {"allowedPaths": list(scope)}
    return body


def _set(given: str) -> tuple[str, Any]:
    from world.errors import RefusedError
    from world.model.canonical_json import read_json

    path, sign, text = given.partition("=")
    if not sign or not path:
        raise click.UsageError(f"--set {given!r}: write PATH=VALUE, such as intent.input.amount=5.")
    try:
        return path, read_json(text)
    except RefusedError:
        return path, text
