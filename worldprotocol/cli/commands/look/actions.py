"""``worldctl actions``: what an actor may do now or could do then, for people and for models, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import at_option, moment

if TYPE_CHECKING:
    from projections.availability import Availability
    from projections.catalog import ActionCatalog
    from projections.explanation import Explanation
    from world.core import Domain
    from worldprotocol.api.realm import Realm


@command("actions")
@click.option("--actor", metavar="ID", help="Acting actor; without it, what depends on the actor is unknown.")
@click.option("--mode", type=click.Choice(["llm", "ui", "debug"]), default="llm", show_default=True, help="Reader.")
@click.option("--tools", is_flag=True, help="Print the catalog as tool definitions for language models, JSON.")
@click.option("--all", "everything", is_flag=True, help="Mark unavailable actions in place of dropping them.")
@click.option("--certain", is_flag=True, help="Leave out what is not certain to be available.")
@click.option("--max", "most", type=click.IntRange(min=0), metavar="N", help="The first N only.")
@click.option(
    "--sort", type=click.Choice(["type_lex", "schema_order"]), default="type_lex", show_default=True, help="Order."
)
@at_option("The point in the past to look at, with the schema in force and the actor as registered then.")
@click.option("--branch", metavar="NAME", help="Whose head at that point; else the world named, or the active one's.")
@click.option("--explain", is_flag=True, help="Say why each action is offered or is not, and what was read.")
def actions(desk: CommandContext, *, tools: bool, explain: bool, **rendered: Any) -> None:
    """List the actions that an actor may take in a state: an action catalog (read-only).

    available, unavailable, or unknown: missing_context where something that the predicate needs is absent,
    indeterminate where it cannot be evaluated here. What is unknown may be tried: the core decides. The catalog is no
    boundary either: what it leaves out is judged like anything else.
    """
    if tools and explain:
        raise click.UsageError("--tools and --explain print different things; say one of them.")
    if tools and rendered["mode"] != "llm":
        raise click.UsageError("--tools is for language models: leave --mode out.")
    with desk.look() as world:
        catalog, why = _made(desk, world, rendered)
    if tools:
        from projections.tools import tools_of

        desk.out.document(tools_of(catalog).to_wire())
    elif desk.json:
        shown = catalog.to_wire()
        desk.out.document({**shown, "explanations": [one.to_wire() for one in why]} if explain else shown)
    elif explain:
        rows = [(one.type, "yes" if one.offered else "no", _words(one.availability), one.why) for one in why]
        desk.out.table(("action", "offered", "availability", "why"), rows, empty="The schema has no actions.")
    else:
        listed = [(one.type, _words(one.availability), one.label or one.description) for one in catalog.actions]
        desk.out.table(("action", "availability", "what"), listed, empty="No action is offered.")


def _made(desk: CommandContext, world: Realm, rendered: dict[str, Any]) -> tuple[ActionCatalog, list[Explanation]]:
    from worldprotocol.api.actions import Actions

    pruning = {
        "policy": "mark_only" if rendered["everything"] else "drop_unavailable",
        "includeUnknown": not rendered["certain"],
        "sort": rendered["sort"],
        "maxActions": rendered["most"],
    }
    offered = Actions(world.archive, _domain(desk), desk.settings().chosen_limits())
    where: dict[str, Any] = {"branch": rendered["branch"]}
    if rendered["at"] is not None:
        then = moment(world, rendered["at"])
        where = {"at": then.world_id(rendered["branch"]), "upto": then.position}
    return offered.explain(rendered["actor"], mode=rendered["mode"], pruning=pruning, **where)


def _domain(desk: CommandContext) -> Domain | None:
    """Return the loaded domain, or without one the schema in the log."""
    from world.errors import RefusedError
    from worldprotocol.api.bootstrap import load_any_domain
    from worldprotocol.cli.support.opening import admit_code

    config = desk.settings()
    if config.domain is None:
        return None
    admit_code(desk, config)
    try:
        return load_any_domain(config.domain, base=config.folder, oldest_rules=1)
    except RefusedError as refused:
        desk.out.remark(f"Without the domain's own code: {refused.message}")
        return None


def _words(availability: Availability) -> str:
    return availability.status if availability.status != "unknown" else f"unknown ({availability.reason})"
