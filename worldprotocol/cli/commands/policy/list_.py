"""``worldctl policy list``: which policies are in force, retired, changed, or only loaded; and the earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import at_option, moment

if TYPE_CHECKING:
    from worldprotocol.policy_tools.history import PolicyChange


@command("list")
@click.option("--all", "every", is_flag=True, help="Every adoption, retirement and shadow, in the order of the log.")
@at_option("State at this point in the past; loaded policies are those of now.")
def list_policies(desk: CommandContext, *, every: bool, at: str | None) -> None:
    """List the policies that are or were adopted and the loaded ones, with their hashes."""
    from worldprotocol.policy_tools.history import changes_of, last_of

    with desk.look() as world:
        changes = changes_of(world, moment(world, at).position)
    if every:
        _print_history(desk, changes)
        return
    present, faults = _at_hand(desk, {one.name: one.policy for one in changes if one.what == "adopted"})
    adopted = {one.name for one in changes if one.what != "shadowed"}
    rendered = [
        _described(name, last_of(name, changes), present.get(name)) for name in sorted(adopted | present.keys())
    ]
    rendered += [{**_described(reference, None, None), "note": note} for reference, note in faults.items()]
    if desk.json:
        desk.out.document(rendered)
        return
    rows = [(one["name"], _short(one["adopted"]), _short(one["atHand"]), _note(one)) for one in rendered]
    desk.out.table(("policy", "adopted", "at hand", "note"), rows, empty="No policy is adopted or available.")


def _print_history(desk: CommandContext, changes: Sequence[PolicyChange]) -> None:
    from worldprotocol.api.proposal_summary import moment as words_of

    if desk.json:
        desk.out.document([one.to_wire() for one in changes])
        return
    rows = [
        (one.position, words_of(one.at), one.name, one.what, _short(one.policy_hash), one.by, _about(one))
        for one in changes
    ]
    heads = ("event", "when", "policy", "was", "hash", "by", "note")
    desk.out.table(heads, rows, empty="No policy was ever adopted.")


def _about(change: PolicyChange) -> str:
    return f"in place of {_short(change.replaced)}" if change.replaced is not None else change.reason


def _at_hand(
    desk: CommandContext, adopted: Mapping[str, Mapping[str, Any] | None]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the hashes of the loaded policies by name, and why others could not be loaded by their references.

    Args:
        desk: the command's context.
        adopted: the description that each policy was last adopted with, whose form decides that of the hash.
    """
    from authority import PolicyRegistry
    from world.errors import RefusedError
    from worldprotocol.cli.support.opening import admit_code

    config = desk.settings()
    admit_code(desk, config)
    registry = PolicyRegistry.installed()
    found: dict[str, str] = {}
    faults: dict[str, str] = {}
    for reference in config.policies:
        try:
            registry.load(reference, base=config.folder)
        except RefusedError as refused:
            faults[reference] = refused.message
    for name in registry.names():
        try:
            found[name] = str(registry.describe(name, adopted.get(name))["hash"])
        except RefusedError as refused:
            faults[name] = refused.message
    return found, faults


def _described(name: str, last: PolicyChange | None, at_hand: str | None) -> dict[str, Any]:
    """Return the state of a policy: ``last`` is its last adoption or retirement."""
    adopted = last.policy_hash if last is not None and last.what == "adopted" else None
    if adopted is not None:
        note = (
            "in force" if adopted == at_hand else "not at hand" if at_hand is None else "changed since it was adopted"
        )
    else:
        note = "not adopted" if last is None else "retired"
    return {
        "name": name,
        "adopted": adopted,
        "atHand": at_hand,
        "note": note,
        "replaced": None if last is None else last.replaced,
        "position": None if last is None else last.position,
    }


def _note(one: Mapping[str, Any]) -> str:
    return one["note"] if one["replaced"] is None else f"{one['note']}, in place of {_short(one['replaced'])}"


def _short(policy_hash: str | None) -> str:
    return (policy_hash or "")[:12]
