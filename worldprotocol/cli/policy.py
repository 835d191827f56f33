"""``worldctl policy``: which policies are in force, and what they would say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from worldprotocol.cli.options import Desk, Group, with_desk
from worldprotocol.cli.policy_ask import ask
from worldprotocol.cli.policy_backtest import backtest


@click.group("policy", cls=Group)
def policy() -> None:
    """Adopt policies, list them, ask them, and try them on what was recorded."""


policy.add_command(ask)
policy.add_command(backtest)


@policy.command("adopt")
@click.argument("name")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Whom the record names.")
@with_desk
def adopt(desk: Desk, name: str, by: str) -> None:
    """Bring a policy at hand into force; its rules and their hashes are recorded.

    NAME may also be a policy file that world.toml names, such as rules.toml.
    """
    name = _named(desk, name)
    with desk.open() as world:
        adopted = world.adopt_policy(name, by=by)
        told: dict[str, Any] = {"name": name, "adopted": adopted, "hash": world.realm().policies[name].policy_hash}
    words = "is in force now" if adopted else "was in force already"
    desk.out.tell(told, f"{name} {words}: {told['hash'][:12]}")


@policy.command("list")
@with_desk
def list_policies(desk: Desk) -> None:
    """List the policies that are adopted and those at hand, with their hashes."""
    with desk.look() as world:
        adopted = {name: event.policy_hash for name, event in world.realm().policies.items()}
    at_hand = _at_hand(desk)
    told = [_described(name, adopted.get(name), at_hand.get(name)) for name in sorted({*adopted, *at_hand})]
    if desk.json:
        desk.out.document(told)
        return
    rows = [(one["name"], (one["adopted"] or "")[:12], (one["atHand"] or "")[:12], one["note"]) for one in told]
    desk.out.table(("policy", "adopted", "at hand", "note"), rows, empty="No policy is adopted or at hand.")


def _named(desk: Desk, given: str) -> str:
    """Return the name of the policy in a policy file; a name is a name."""
    from authority import is_policy_file, policy_from_file
    from world.errors import Refused
    from worldprotocol.config import CONFIG_NAME

    if not is_policy_file(given):
        return given
    config = desk.settings()
    known = {(config.folder / one).resolve() for one in config.policies if is_policy_file(one)}
    path = next((one.resolve() for one in (Path(given), config.folder / given) if one.resolve() in known), None)
    if path is None:
        raise Refused(
            "UNKNOWN_POLICY",
            f"{given} is not among the policies of {config.folder / CONFIG_NAME}; add it there, so that it is at hand "
            "whenever somebody acts: policies = [...].",
            policy=given,
        )
    return policy_from_file(path).name


def _at_hand(desk: Desk) -> dict[str, str]:
    from authority import PolicyRegistry
    from worldprotocol.cli.opening import make_importable

    config = desk.settings()
    make_importable(config.folder)
    registry = PolicyRegistry.installed()
    for reference in config.policies:
        registry.load(reference, base=config.folder)
    return {name: str(registry.describe(name)["hash"]) for name in registry.names()}


def _described(name: str, adopted: str | None, at_hand: str | None) -> dict[str, Any]:
    if adopted is None:
        note = "not adopted"
    elif at_hand is None:
        note = "not at hand"
    else:
        note = "in force" if adopted == at_hand else "changed since it was adopted"
    return {"name": name, "adopted": adopted, "atHand": at_hand, "note": note}
