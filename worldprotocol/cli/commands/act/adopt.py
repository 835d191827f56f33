"""``worldctl adopt``: bring a changed domain into force, or list what that would change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command

if TYPE_CHECKING:
    from world.engine.domain_adoption import OpenProposals
    from world.pipeline.adopted_code.adoption_plan import AdoptionPlan, BranchPlan


@command("adopt")
@click.option("--dry-run", is_flag=True, help="List what the new schema refuses and what the migration makes of it.")
@click.option(
    "--open-proposals",
    type=click.Choice(["supersede", "carry-over"]),
    default="supersede",
    show_default=True,
    help="What becomes of undecided proposals; carry-over submits again what still fits.",
)
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
def adopt(desk: CommandContext, *, dry_run: bool, open_proposals: str, by: str) -> None:
    """Adopt the domain that world.toml names in place of the one in force.

    Where the domain declares a migration from the version in force, one world is sealed on every branch with what the
    migration changes; otherwise the head of every branch must obey the new schema as it is. All of it is one commit, or
    nothing changes. Approved proposals must end first. `--dry-run` changes nothing; its exit code is 1 where the
    adoption would be refused.
    """
    from worldprotocol.cli.support.opening import open_to_adopt

    if dry_run:
        _show_plan(desk)
        return
    with desk.look() as world:
        before = world.realm()
    rule: OpenProposals = "carry_over" if open_proposals == "carry-over" else "supersede"
    with open_to_adopt(desk, by, rule) as world:
        after = world.realm()
    adopted = before.domain != after.domain
    now, earlier = after.schema_hash, before.schema_hash
    moved = {
        name: {"from": branch.head, "to": after.branches[name].head}
        for name, branch in before.branches.items()
        if now != earlier and after.branches[name].head != branch.head
    }
    rendered = {"adopted": adopted, "schemaHash": now, "previous": earlier, "migrated": moved}
    if adopted:
        worlds = [f"  {name}: world {one['to'][:12]} in place of {one['from'][:12]}" for name, one in moved.items()]
        desk.out.tell(rendered, f"The domain is in force now: {now[:12]}, before {earlier[:12]}.", *worlds)
    else:
        desk.out.tell(rendered, "This very domain was in force already.")


def _show_plan(desk: CommandContext) -> None:
    """Print what the adoption would do; a log that is opened for reading does not change."""
    from worldprotocol.api.bootstrap import compose
    from worldprotocol.api.program_changes import plan_for
    from worldprotocol.cli.support.opening import composed

    config = composed(desk)
    parts = config.parts()
    components = compose(domain=parts["domain"], options={"folder": parts["folder"], "limits": parts["limits"]})
    with desk.look() as world:
        plan = plan_for(world.archive, components.domain, components.limits)
    desk.out.tell(plan.to_wire(), *_lines(plan))
    if not plan.is_possible:
        raise SystemExit(1)


def _lines(plan: AdoptionPlan) -> Iterator[str]:
    before, after = plan.previous, plan.adopted
    if before["schemaHash"] == after["schemaHash"]:
        yield f"The schema {after['schemaHash'][:12]} is in force; no data changes."
    else:
        yield (
            f"From version {before['version']} ({before['schemaHash'][:12]}) to {after['version']} "
            f"({after['schemaHash'][:12]}), {'with' if plan.migration else 'without'} a migration."
        )
    if plan.code:
        yield f"  code      {', '.join(plan.code)}"
    for one in plan.branches:
        yield from _branch_lines(one)
    if plan.ends:
        yield f"  ends      {len(plan.ends)} undecided proposals: {', '.join(plan.ends[:5])}"
    if plan.blocking:
        yield f"  blocked   {len(plan.blocking)} approved proposals must end first: {', '.join(plan.blocking[:5])}"
    yield "The adoption is possible." if plan.is_possible else "The adoption would be refused."


def _branch_lines(one: BranchPlan) -> Iterator[str]:
    yield f"  branch    {one.branch} at {one.head[:12]}: {'fits' if one.is_fit else 'does not fit'}"
    if one.failure is not None:
        yield f"    failed  {one.failure}"
    for place in one.places:
        yield f"    refused {place.path} {place.message}"
    for patch in one.patches or ():
        yield f"    patch   {patch.op} {patch.path}{_value(patch.to_wire())}"
    for place in one.left if one.patches is not None else ():
        yield f"    left    {place.path} {place.message}"


def _value(wire: dict[str, Any]) -> str:
    from worldprotocol.json_text import as_text

    return f" = {as_text(wire['value'])[:200]}" if "value" in wire else ""
