"""``worldctl worlds``: the lineage of worlds as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.options import Desk, command

if TYPE_CHECKING:
    from world.realm import Realm
    from world.views.archive import WorldRow
    from worldprotocol.facade import World


@command("worlds")
@click.option("--branch", metavar="NAME", help="Only the line of descent of this branch's head and tip.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="The newest so many worlds.")
def worlds(desk: Desk, branch: str | None, limit: int) -> int:
    """Draw worlds below their parents, with heads, tips and failed executions marked."""
    with desk.look() as world:
        realm = world.realm()
        rows = list(_line(world, branch, limit) if branch else world.worlds(limit))
        rows.sort(key=lambda row: row.position)
        told = [_wire(row, realm) for row in rows]
    if desk.json:
        for one in told:
            desk.out.line(one)
        return 0
    known = {one["worldId"]: one for one in told}
    children: dict[str | None, list[dict[str, Any]]] = {}
    for one in told:
        children.setdefault(one["parent"] if one["parent"] in known else None, []).append(one)
    for line in _drawn(children):
        desk.out.text(line)
    if len(rows) == limit:
        desk.out.remark(f"the newest {limit}; --limit shows more")
    return 0


def _line(world: World, branch: str, limit: int) -> Iterator[WorldRow]:
    """Yield the worlds from a branch's tip and head back to genesis, at most so many."""
    found = world.branch(branch)
    if found.tip != found.head:
        yield world.archive.world(found.tip)
        limit -= 1
    at: str | None = found.head
    while at is not None and limit > 0:
        row = world.archive.world(at)
        yield row
        at, limit = row.parent, limit - 1


def _wire(row: WorldRow, realm: Realm) -> dict[str, Any]:
    heads = [name for name, branch in realm.branches.items() if branch.head == row.world_id]
    tips = [name for name, branch in realm.branches.items() if branch.tip == row.world_id != branch.head]
    return {
        "worldId": row.world_id,
        "parent": row.parent,
        "height": row.height,
        "position": row.position,
        "branch": row.branch,
        "outcome": row.outcome,
        "heads": heads,
        "tips": tips,
    }


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
    told = f"  ({', '.join(marks)})" if marks else ""
    return f"{one['worldId'][:12]}  height {one['height']}, event {one['position']}{told}"
