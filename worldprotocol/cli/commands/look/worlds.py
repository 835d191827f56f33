"""``worldctl worlds``: the lineage of worlds as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import AT_METAVAR, point_of


@command("worlds")
@click.option("--branch", metavar="NAME", help="Only the line of descent of this branch's head and tip.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The newest so many worlds.")
@click.option("--at", metavar=AT_METAVAR, help="As the lineage stood at this point in the past.")
def worlds(desk: CommandContext, branch: str | None, limit: int, at: str | None) -> int:
    """Draw worlds below their parents, with heads, tips and failed executions marked."""
    from world.read_models.lineage import heads_at
    from worldprotocol.api.lookup.lineage_rows import LineageQuery, lineage_row, lineage_rows

    with desk.look() as world:
        world.archive.check_complete()
        upto = world.log.head().size if at is None else point_of(world, at).position
        heads = heads_at(world.archive, upto)
        rows = lineage_rows(world.archive, heads, LineageQuery(limit, before=upto + 1, branch=branch))
        if branch is None:
            world.archive.check_worlds(rows, upto)
        rendered = [lineage_row(row, heads) for row in reversed(rows)]
    if desk.json:
        for one in rendered:
            desk.out.line(one)
        return 0
    known = {one["worldId"]: one for one in rendered}
    children: dict[str | None, list[dict[str, Any]]] = {}
    for one in rendered:
        children.setdefault(one["parent"] if one["parent"] in known else None, []).append(one)
    for line in _drawn(children):
        desk.out.text(line)
    if len(rows) == limit:
        desk.out.remark(f"the newest {limit}; --limit shows more")
    return 0


def _drawn(children: dict[str | None, list[dict[str, Any]]]) -> Iterator[str]:
    """Yield the tree line by line; a line of only children goes straight down."""
    roots = [("", "", root) for root in reversed(children.get(None, []))]
    while roots:
        lead, mark, one = roots.pop()
        yield f"{lead}{mark}{_label(one)}"
        below = lead + ("" if not mark else "   " if mark.startswith("`") else "|  ")
        followers = children.get(one["worldId"], [])
        if len(followers) == 1:
            roots.append((below, "", followers[0]))
            continue
        for at, follower in enumerate(reversed(followers)):
            roots.append((below, "`- " if at == 0 else "|- ", follower))


def _label(one: dict[str, Any]) -> str:
    marks = [f"head of {name}" for name in one["heads"]] + [f"tip of {name}" for name in one["tips"]]
    if one["outcome"] == "failed":
        marks.insert(0, "failed")
    rendered = f"  ({', '.join(marks)})" if marks else ""
    return f"{one['worldId'][:12]}  height {one['height']}, event {one['position']}{rendered}"
