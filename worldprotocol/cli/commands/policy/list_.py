"""``worldctl policy list``: which policies are in force, retired, changed, or only loaded; and the earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.point_in_time import at_option, moment

if TYPE_CHECKING:
    from worldprotocol.policy_tools.history import PolicyChange


@command("list")
@click.option("--all", "every", is_flag=True, help="Every adoption, retirement and shadow, in the order of the log.")
@at_option("State at this point in the past; loaded policies are those of now.")
def list_policies(desk: CommandContext, *, every: bool, at: str | None) -> None:
    """List the policies that are or were adopted and the loaded ones, with their hashes."""
    from worldprotocol.policy_tools.history import changes_of
    from worldprotocol.policy_tools.listing import list_policies as listed

    with desk.look() as world:
        changes = changes_of(world, moment(world, at).position)
    if every:
        _print_history(desk, changes)
        return
    rendered = listed(changes, *_at_hand(desk, changes))
    heads = ("policy", "adopted", "at hand", "note")
    rows = ((one["name"], _short(one["adopted"]), _short(one["atHand"]), _note(one)) for one in rendered)
    tell_table(desk, rendered, heads, rows, empty="No policy is adopted or available.")


def _print_history(desk: CommandContext, changes: Sequence[PolicyChange]) -> None:
    from worldprotocol.api.proposal_summary import moment as words_of

    rows = (
        (one.position, words_of(one.at), one.name, one.what, _short(one.policy_hash), one.by, _about(one))
        for one in changes
    )
    heads = ("event", "when", "policy", "was", "hash", "by", "note")
    tell_table(desk, [one.to_wire() for one in changes], heads, rows, empty="No policy was ever adopted.")


def _about(change: PolicyChange) -> str:
    return f"in place of {_short(change.replaced)}" if change.replaced is not None else change.reason


def _at_hand(desk: CommandContext, changes: Sequence[PolicyChange]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the hashes of the loaded policies by name, and why others could not be loaded by their references.

    Args:
        desk: the command's context.
        changes: policy changes of the log.
    """
    from authority import PolicyRegistry
    from world.errors import RefusedError
    from worldprotocol.cli.support.opening import admit_code
    from worldprotocol.policy_tools.listing import loaded_hashes

    config = desk.settings()
    admit_code(desk, config)
    registry = PolicyRegistry.installed()
    faults: dict[str, str] = {}
    for reference in config.policies:
        try:
            registry.load(reference, base=config.folder)
        except RefusedError as refused:
            faults[reference] = refused.message
    found, more = loaded_hashes(registry, changes)
    return found, faults | more


def _note(one: Mapping[str, Any]) -> str:
    return one["note"] if one["replaced"] is None else f"{one['note']}, in place of {_short(one['replaced'])}"


def _short(policy_hash: str | None) -> str:
    return (policy_hash or "")[:12]
