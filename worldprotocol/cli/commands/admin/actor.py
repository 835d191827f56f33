"""``worldctl actor``: registration of actors, and the authority that judges each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.point_in_time import at_option


@click.group("actor", cls=Group)
def actor() -> None:
    """Register actors and bind them to an authority."""


class BindingOptions(TypedDict):
    """Values of the options that ``binding_options`` adds, apart from ``--by``."""

    bind: str | None
    auto_approve: bool
    policy: str | None
    ask: tuple[str, ...]
    tribunal: tuple[str, ...]
    vote: str | None
    threshold: int | None
    timeout_ms: int | None
    on_timeout: str | None


def binding_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the authority that judges an actor."""
    for option in (
        click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names."),
        click.option("--on-timeout", type=click.Choice(["reject", "approve"]), help="What happens then; reject."),
        click.option("--timeout-ms", type=click.IntRange(min=1), help="How long people are waited for; one day."),
        click.option("--threshold", type=click.IntRange(min=1), metavar="N", help="For --vote threshold: how many."),
        click.option(
            "--vote", type=click.Choice(["majority", "unanimous", "threshold"]), help="For --tribunal; majority."
        ),
        click.option("--tribunal", multiple=True, metavar="ID", help="These actors vote; repeat for more."),
        click.option("--ask", multiple=True, metavar="ID", help="These people decide (* is any); repeat for more."),
        click.option("--policy", metavar="NAME", help="The rules of an adopted policy judge."),
        click.option("--auto-approve", is_flag=True, help="Everything is approved as proposed."),
        click.option("--bind", metavar="JSON", help="The binding in full: JSON, @file or -."),
    ):
        function = option(function)
    return function


@actor.command("add")
@click.argument("actor_id", metavar="ID")
@click.option("--kind", required=True, type=click.Choice(["human", "agent", "system"]), help="What the actor is.")
@click.option("--name", help="A name for people.")
@click.option("--meta", metavar="JSON", help="More about the actor: a JSON object, @file or -.")
@binding_options
@with_desk
def add(
    desk: CommandContext,
    actor_id: str,
    kind: Any,
    name: str | None,
    meta: str | None,
    by: str,
    **chosen: Unpack[BindingOptions],
) -> None:
    """Register an actor, or change the name and meta of a known one, and bind it where a binding is given."""
    from worldprotocol.cli.support.input_reading import read_object

    binding = chosen_binding(chosen)
    facts = None if meta is None else read_object(meta, what="--meta")
    with desk.open() as world:
        world.register(actor_id, kind, binding=binding, name=name, meta=facts, by=by)
        rendered = _described(world.realm(), actor_id)
    hint = f"bound by nothing yet: `worldctl actor bind {actor_id} ...` makes it able to act"
    bound = hint if rendered["binding"] is None else f"bound by {_in_words(rendered['binding'])}"
    desk.out.tell(rendered, f"{actor_id} ({kind}) is registered, {bound}.")


@actor.command("bind")
@click.argument("actor_id", metavar="ID")
@binding_options
@with_desk
def bind(desk: CommandContext, actor_id: str, by: str, **chosen: Unpack[BindingOptions]) -> None:
    """Give an actor its one authority binding, in place of any before."""
    binding = chosen_binding(chosen)
    if binding is None:
        raise click.UsageError("Say by what: --auto-approve, --policy NAME, --ask ID, --tribunal ID or --bind JSON.")
    with desk.open() as world:
        world.bind(actor_id, binding, by=by)
        rendered = _described(world.realm(), actor_id)
    desk.out.tell(rendered, f"{actor_id} is bound by {_in_words(rendered['binding'])}.")


@actor.command("list")
@at_option("Those that were registered at this point in the past, as they were bound then.")
@with_desk
def list_actors(desk: CommandContext, at: str | None) -> None:
    """List the actors with their bindings."""
    from worldprotocol.cli.support.point_in_time import moment

    with desk.look() as world:
        realm = moment(world, at).realm()
        known = [_described(realm, name) for name in realm.actors]
    rows = (
        (one["actorId"], one["kind"], one.get("name"), _in_words(one["binding"]) if one["binding"] else "nothing")
        for one in known
    )
    tell_table(desk, known, ("actor", "kind", "name", "bound by"), rows, empty="No actor is registered.")


def chosen_binding(options: BindingOptions) -> dict[str, Any] | None:
    """Return the binding that the options define, or None without such options.

    Raises:
        click.UsageError: the options contradict each other.
        RefusedError: ``MALFORMED_JSON``, ``INVALID_VALUE``.
    """
    bind, auto_approve, tribunal = options["bind"], options["auto_approve"], options["tribunal"]
    policy, ask = options["policy"], options["ask"]
    if (bind is not None) + auto_approve + bool(policy or ask) + bool(tribunal) > 1:
        raise click.UsageError("Give one of --bind, --auto-approve, --tribunal, and --policy or --ask.")
    more = _without_none({"timeoutMs": options["timeout_ms"], "onTimeout": options["on_timeout"]})
    if more and not (policy or ask or tribunal):
        raise click.UsageError("--timeout-ms and --on-timeout go with --ask, --policy or --tribunal.")
    rule = _without_none({"rule": options["vote"], "threshold": options["threshold"]})
    if rule and not tribunal:
        raise click.UsageError("--vote and --threshold go with --tribunal.")
    if bind is not None:
        from worldprotocol.cli.support.input_reading import read_object

        return read_object(bind, what="--bind")
    if auto_approve:
        return {"kind": "auto_approve"}
    if tribunal:
        return {"kind": "tribunal", "members": list(tribunal), **rule, **more}
    if ask:
        more["ask"] = list(ask)
    if policy:
        return {"kind": "policy_rules", "policy": policy, **more}
    return {"kind": "hitl", **more} if ask else None


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _described(realm: Any, actor_id: str) -> dict[str, Any]:
    return {**realm.actors[actor_id].to_wire(), "binding": realm.bindings.get(actor_id)}


def _in_words(binding: Any) -> str:
    """Return a recorded binding in a few words: its kind alone where that is not available."""
    from authority import read_binding
    from world.errors import RefusedError

    try:
        return read_binding(binding).words
    except RefusedError:
        return str(binding["kind"])
