"""``worldctl policy``: which policies are in force, and what they would say."""

from __future__ import annotations

from typing import Any

import click

from worldprotocol.cli.commands.policy.ask import ask
from worldprotocol.cli.commands.policy.backtest import backtest
from worldprotocol.cli.commands.policy.lint import lint, unconfined_approvals_of, words_of_finding
from worldprotocol.cli.commands.policy.list_ import list_policies
from worldprotocol.cli.commands.policy.shadow import shadow
from worldprotocol.cli.commands.policy.show import diff, name_of, show
from worldprotocol.cli.commands.policy.test_ import test
from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk


@click.group("policy", cls=Group)
def policy() -> None:
    """Adopt and retire policies, list, show and compare them, ask them, and try them on what was recorded."""


policy.add_command(list_policies)
policy.add_command(show)
policy.add_command(diff)
policy.add_command(lint)
policy.add_command(shadow)
policy.add_command(ask)
policy.add_command(test)
policy.add_command(backtest)


@policy.command("adopt")
@click.argument("name")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def adopt(desk: CommandContext, name: str, by: str) -> None:
    """Bring a loaded policy into force; its rules and their hashes are recorded.

    NAME may also be a policy file that world.toml names, such as rules.toml.
    """
    name = name_of(desk, name)
    for finding in unconfined_approvals_of(desk, name):
        desk.out.remark(words_of_finding(finding))
    from authority.policies.policy_diff import differences, words_of

    with desk.open() as world:
        before = world.realm().policies.get(name)
        adopted = world.adopt_policy(name, by=by)
        in_force = world.realm().policies[name]
    rendered: dict[str, Any] = {"name": name, "adopted": adopted, "hash": in_force.policy_hash, "replaced": None}
    changes = [] if before is None else differences(before.policy, in_force.policy)
    rendered["changes"] = changes
    words = f"{name} {'is in force now' if adopted else 'was in force already'}: {rendered['hash'][:12]}"
    if adopted and in_force.previous is not None:
        rendered["replaced"] = in_force.previous
        words += f", in place of {in_force.previous[:12]}"
    desk.out.tell(rendered, words, *(f"  {line}" for one in changes for line in words_of(one)))


@policy.command("retire")
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the record.")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def retire(desk: CommandContext, name: str, reason: str, by: str) -> None:
    """Take a policy out of force: it judges nothing, and no actor can be bound by it until it is adopted again.

    Refused while an actor is bound by it; bind those otherwise first. Open questions to people stay open.
    """
    with desk.open() as world:
        rendered = {"name": name, "hash": world.retire_policy(name, by=by, reason=reason)}
    desk.out.tell(rendered, f"{name} is retired: {rendered['hash'][:12]}")
