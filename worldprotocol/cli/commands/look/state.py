"""``worldctl state``: the data as it stood at any point in the past, checked against its hash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import AT_METAVAR, world_at

if TYPE_CHECKING:
    from world.model.immutable_json import FrozenDict


@command("state")
@click.argument("path", required=False)
@click.option("--at", metavar=AT_METAVAR, help="The point in the past to look at; now by default.")
@click.option("--branch", metavar="NAME", help="Whose head at that point; else the world named, or the active one's.")
def state(desk: CommandContext, path: str | None, at: str | None, branch: str | None) -> int:
    """Print the data, or the value at PATH, of the world that stood at a point in the past.

    It is rebuilt from the recorded patches and compared with its snapshotHash first; a damaged log ends with exit code
    3 and prints no data. Computed values are those of the world's own schema: expressions are evaluated as the log
    holds them, Python functions by the loaded domain; a value of a function that has changed since is marked. PATH can
    be one, such as computed.total. Exit code 1 when PATH has no value.
    """
    from worldprotocol.cli.support.rendering.computed_values import past_values, remarks

    with desk.look() as world:
        world_id, point = world_at(world, at, branch)
        data = world.archive.checked_state(world_id)
        sealed = world.sealed(world_id)
        found = past_values(desk, world.archive).of(sealed, data)
    wire: dict[str, Any] = {
        "worldId": world_id,
        "position": point.position,
        "branch": sealed.branch,
        "height": sealed.height,
        "outcome": sealed.outcome,
        "snapshotHash": sealed.snapshot_hash,
        "snapshotChecked": True,
    }
    if path is None:
        shown: Any = {"data": data} | ({} if found.missing and not found.values else {"computed": found.values})
        there = True
        wire |= shown | ({"computedMissing": found.why} if found.missing else {})
    else:
        shown, there = value_at(data, found.values, path)
        wire |= {"path": path, "present": there, "value": shown}
    other = [name for name in found.by_other_code if path in (None, name)]
    if other:
        wire["computedByOtherCode"] = other
    if desk.json:
        desk.out.document(wire)
        return 0 if there else 1
    desk.out.remark(f"world {world_id[:12]}, height {sealed.height}: the snapshot was rebuilt and its hash agrees")
    for remark in remarks(found, path):
        desk.out.remark(remark)
    if not there:
        desk.out.remark(f"{path!r} has no value.")
        return 1
    desk.out.document(shown)
    return 0


def value_at(data: FrozenDict, computed: FrozenDict, path: str) -> tuple[Any, bool]:
    """Return the value of a path and whether it has one; null is a value.

    Args:
        data: of a world; a leading ``data.`` of the path is left out, unless the data have a member of that name.
        computed: by full name, such as ``computed.total``.
        path: dotted.
    """
    from world.model.paths import look_up, parse_path
    from world.read_models.blame import plain_path, stands

    if path in computed:
        return computed[path], True
    place = parse_path(plain_path(data, path))
    there = stands(data, place)
    return (look_up(data, place) if there else None), there
