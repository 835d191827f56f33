"""``worldctl policy shadow``: a second policy judges beside the one in force, and disagreements are listed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.commands.policy.show import name_of
from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.point_in_time import at_option, moment

if TYPE_CHECKING:
    from world.events.policy_events import ShadowConfigured
    from worldprotocol.analysis.shadow_results import Shadows

BY = click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")


@click.group("shadow", cls=Group)
def shadow() -> None:
    """Judge by a second policy beside the one in force, for the record only.

    What it says is recorded with every new proposal, and nothing follows from it.
    """


@shadow.command("on")
@click.argument("name")
@click.option("--for", "actors", multiple=True, metavar="ACTOR", help="Only what this actor proposes; may be repeated.")
@BY
@with_desk
def on(desk: CommandContext, name: str, actors: tuple[str, ...], by: str) -> None:
    """Judge every new proposal by the policy NAME, too, whatever the actor is bound by; it need not be adopted.

    It has to be loaded by every process that acts: name it in world.toml. It replaces an earlier shadow policy.
    """
    from worldprotocol.analysis.shadow_results import shadow_wire

    name = name_of(desk, name)
    with desk.open() as world:
        changed = world.shadow(name, actors=actors, by=by)
        configured = world.realm().shadow
    words = "shadows now" if changed else "shadowed already"
    desk.out.tell({**shadow_wire(configured), "changed": changed}, f"{name} {words}: {_in_words(configured)}")


@shadow.command("off")
@BY
@with_desk
def off(desk: CommandContext, by: str) -> None:
    """Stop the shadow policy; what was recorded stays."""
    from worldprotocol.analysis.shadow_results import shadow_wire

    with desk.open() as world:
        changed = world.shadow(None, by=by)
    words = "No policy shadows any more." if changed else "No policy shadowed."
    desk.out.tell({**shadow_wire(None), "changed": changed}, words)


@shadow.command("show")
@click.option("--of", metavar="NAME", help="Only what the policy of this name said.")
@click.option("--check", is_flag=True, help="Exit code 1 where both did not agree on everything.")
@at_option("Rulings up to this point in the past, and the shadow policy of then.")
@with_desk
def show(desk: CommandContext, of: str | None, at: str | None, *, check: bool) -> int:
    """Say how often both agreed, and list the proposals on which they did not, with both verdicts and what decided.

    It is compared with the first ruling on each proposal; the answers of people are shown beside it.
    """
    from worldprotocol.analysis.shadow_results import shadow_wire, shadows_of

    with desk.look() as world:
        then = moment(world, at)
        found, configured = shadows_of(world, of, then.position), then.realm().shadow
    if desk.json:
        desk.out.document({"configured": shadow_wire(configured), **found.to_wire()})
    else:
        _print(desk, found, configured, is_now=at is None)
    return 1 if check and found.lines else 0


def _print(desk: CommandContext, found: Shadows, configured: ShadowConfigured | None, *, is_now: bool) -> None:
    from worldprotocol.cli.support.output import counted

    state = "none" if configured is None else f"{configured.name}: {_in_words(configured)}"
    desk.out.text(f"shadowing {'now' if is_now else 'then'}: {state}")
    for line in found.lines:
        desk.out.text(_line(line))
    for (name, policy_hash), times in found.policies.items():
        which = "could not be asked" if policy_hash is None else policy_hash[:12]
        desk.out.text(f"{name} {which}: {counted(times, 'time')}")
    counts = found.counts
    desk.out.text(
        f"shadowed: {counts['shadowed']}; agree: {counts['agree']}, disagree: {counts['disagree']}, "
        f"not asked: {counts['notAsked']}"
    )


def _line(line: Mapping[str, Any]) -> str:
    sides = []
    for side in ("ruling", "shadow"):
        rendered = line[side]
        by = ", ".join(rendered["decidedBy"]) or ("by default" if rendered["policyHash"] else rendered["authority"])
        sides.append(f"{rendered['verdict']} ({by})")
    begin = f"{line['position']}\t{line['proposalId']}\t{line['action']} by {line['actor']}"
    if line["kind"] == "notAsked":
        return f"{begin}\t{sides[0]}, the shadow could not be asked: {line['shadow']['reason']}"
    more = "" if line["change"] == "verdict" else f", another {line['change']}"
    decided = f"; {line['decision']} in the end" if "decision" in line else ""
    return f"{begin}\t{sides[0]}, the shadow {sides[1]}{more}{decided}"


def _in_words(configured: ShadowConfigured | None) -> str:
    assert configured is not None
    whose = ", ".join(configured.actors) if configured.actors else "everybody"
    return f"{(configured.policy_hash or '')[:12]}, for what {whose} propose{'s' if len(configured.actors) < 2 else ''}"
