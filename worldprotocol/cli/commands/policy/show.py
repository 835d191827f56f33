"""``worldctl policy show`` and ``diff``: the rules of a policy as they were adopted, and what two differ in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import at_option, moment

if TYPE_CHECKING:
    from authority import Policy
    from worldprotocol.policy_tools.history import FoundPolicy, PolicyChange


@command("show")
@click.argument("policy", metavar="NAME[@HASH]")
@at_option("The one that was in force at this point in the past; for NAME@HASH, among those up to then.")
def show(desk: CommandContext, policy: str, at: str | None) -> None:
    """Show the rules of a policy: the answer of each, its place, and its condition.

    NAME is the policy in force; where none of that name is, the loaded one, else the last one that was retired, else
    the last one that shadowed. NAME@HASH is any that was ever adopted or shadowed, or the loaded one, by the beginning
    of its hash. A file (rules.toml) or a reference (rules.py:house) is the loaded policy.
    """
    from worldprotocol.policy_tools.history import changes_of, find_policy
    from worldprotocol.policy_tools.listing import show_policy

    with desk.look() as world:
        found = find_policy(policy, changes_of(world, moment(world, at).position), at_hand(desk))
    rendered = show_policy(found)
    desk.out.tell(rendered, *_lines(rendered, found))


@command("diff")
@click.argument("policies", nargs=-1, metavar="[A [B]]")
@at_option("Those that were in force at this point in the past; loaded policies are those of now.")
def diff(desk: CommandContext, policies: tuple[str, ...], at: str | None) -> int:
    """Say what two policies differ in, rule by rule; exit code 1 where they do.

    A and B are a name (the policy in force), NAME@HASH (any that was ever adopted or shadowed, by the beginning of its
    hash), a file or a reference. With A alone, the policy in force under that name is compared with the loaded one;
    without any, every policy in force is.
    """
    from authority.policies.policy_diff import differences, words_of
    from worldprotocol.policy_tools.history import changes_of, find_policy

    if len(policies) > 2:
        raise click.UsageError("Name at most two policies.")
    load = at_hand(desk)
    with desk.look() as world:
        changes = changes_of(world, moment(world, at).position)
        names = list(policies[:1]) or _in_force(changes)
    rendered = []
    for name in names:
        before = find_policy(name, changes, load)
        after = find_policy(policies[1], changes, load) if len(policies) == 2 else _present(before, load)
        found = differences(before.description, after.description)
        rendered.append({"from": before.to_wire(), "to": after.to_wire(), "differences": found})
        if not desk.json:
            desk.out.text(f"{before.label} ({before.origin}) and {after.label} ({after.origin}): {_counted(found)}")
            for one in found:
                for line in words_of(one):
                    desk.out.text(f"  {line}")
    if desk.json:
        desk.out.document(rendered)
    elif not rendered:
        desk.out.remark("No policy is in force.")
    return 1 if any(one["differences"] for one in rendered) else 0


def _in_force(changes: Sequence[PolicyChange]) -> list[str]:
    from worldprotocol.policy_tools.history import last_of

    last = {one.name: last_of(one.name, changes) for one in changes}
    return sorted(name for name, one in last.items() if one is not None and one.what == "adopted")


def at_hand(desk: CommandContext) -> Callable[[str], Policy]:
    """Return the function that loads the policy of a name, a file or a reference."""
    from worldprotocol.cli.support.opening import admit_code
    from worldprotocol.policy_tools.hypothetical import policy_named

    config = desk.settings()
    admit_code(desk, config)
    return lambda given: policy_named(given, config.policies, config.folder)


def name_of(desk: CommandContext, given: str) -> str:
    """Return the name of the policy in a policy file that world.toml names; a name is a name.

    Raises:
        RefusedError: ``UNKNOWN_POLICY`` for another file, and what reading it refuses.
    """
    from authority import is_policy_file, policy_from_file
    from world.errors import RefusedError
    from worldprotocol.api.config import CONFIG_NAME

    if not is_policy_file(given):
        return given
    config = desk.settings()
    known = {(config.folder / one).resolve() for one in config.policies if is_policy_file(one)}
    path = next((one.resolve() for one in (Path(given), config.folder / given) if one.resolve() in known), None)
    if path is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_POLICY,
            f"{given} is not among the policies of {config.folder / CONFIG_NAME}; add it there, so that it is known "
            "to every process that acts: policies = [...].",
            policy=given,
        )
    return policy_from_file(path).name


def _present(before: FoundPolicy, load: Callable[[str], Policy]) -> FoundPolicy:
    from worldprotocol.policy_tools.history import FoundPolicy

    return FoundPolicy(load(str(before.description["name"])).hashed_like(before.description).description, "at hand")


def _counted(found: list[dict[str, Any]]) -> str:
    kinds = [one["kind"] for one in found]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "no difference"


def _lines(rendered: Mapping[str, Any], found: FoundPolicy) -> Iterator[str]:
    done = "turned on as a shadow" if found.origin == "shadowed" else "adopted"
    place = "" if found.position is None else f", {done} by event {found.position}"
    yield f"policy {rendered['name']}: {found.origin}"
    yield f"  hash      {rendered['hash']}{place}"
    if rendered["version"] is not None:
        yield f"  version   {rendered['version']}"
    yield f"  combines  {rendered['combination']}"
    for number, one in enumerate(rendered["rules"], 1):
        effect = f" {one['effect']}" if "effect" in one else f", {one['language']}"
        yield f"  rule {number:<5}{one['id']}{effect} [{one['source']}]"
        yield from _parts(one)


def _parts(rule: Mapping[str, Any]) -> Iterator[str]:
    from worldprotocol.json_text import as_text

    if "description" in rule:
        yield f"              says   {rule['description']}"
    if "when" in rule:
        yield f"              when   {rule['when']}"
    for line in str(rule.get("text", "")).splitlines():
        yield f"              {line}"
    shown = {"id", "effect", "source", "language", "description", "when", "text"}
    for name, value in rule.items():
        if name not in shown:
            yield f"              {name:<7}{value if isinstance(value, str) else as_text(value)}"
