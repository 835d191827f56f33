"""``worldctl blame``: the origin of each value below a path, and why it was allowed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import AT_METAVAR, world_at

if TYPE_CHECKING:
    from world.read_models.blame import BlamedValues
    from world.read_models.provenance import Cause

MOST_CHARS: Final = 160
"""Characters of a patch or an input that people are shown."""


@command("blame")
@click.argument("path", required=False, default="")
@click.option("--at", metavar=AT_METAVAR, help="The point in the past to look at; now by default.")
@click.option("--branch", metavar="NAME", help="Whose head at that point; else the world named, or the active one's.")
def blame(desk: CommandContext, path: str, at: str | None, branch: str | None) -> int:
    """Print the origin of each value below PATH, such as `stock` or `stock.tea`; without PATH, of all values.

    From each value back to the patch, the world, the proposal, the actor, the decision, the projection and the source
    event. What one patch put there is listed below it, the newest first; --json prints a line for each value instead.

    A patch that sets an object as a whole wrote everything in it, and writing an equal value again is writing. An
    element that only moved, because one before it was removed, keeps its writer. A computed value has no writer: it is
    shown with the paths of the data that it depends on. Exit code 1 where PATH has no value and was never written.
    """
    from world.read_models.blame import blame_values, computed_from

    with desk.look() as world:
        world_id = world_at(world, at, branch)[0]
        computed = computed_from(world.archive, path, world_id)
        if computed is not None:
            _tell_computed(desk, computed, world.sealed(world_id).schema_hash)
            return 0
        with desk.progress("Going back") as progress:
            found = blame_values(world.archive, path, world_id, progress=progress)
        if desk.json:
            for line in _lines(found):
                desk.out.line(line)
        else:
            for words in _tree(found):
                desk.out.text(words)
        is_unknown = not found.present and all(cause.submitted is None for _, (cause, _) in found.with_origins())
    if is_unknown:
        desk.out.remark(f"{path!r} has no value and was never written.")
    return 1 if is_unknown else 0


def _tell_computed(desk: CommandContext, computed: dict[str, list[str]], schema_hash: str) -> None:
    """Print for computed values, which are never written, what they depend on."""
    for name, places in computed.items():
        if desk.json:
            desk.out.line({"path": name, "computed": True, "dependsOn": places, "schemaHash": schema_hash})
            continue
        desk.out.text(f"{name} is computed, by schema {schema_hash[:12]}: it is never written")
        desk.out.text(f"  from      {', '.join(places) or 'nothing: it is always the same'}")


def _lines(found: BlamedValues) -> Iterator[dict[str, Any]]:
    for (path, value, _), (cause, patch) in found.with_origins():
        rendered = None if patch is None else {"op": patch.op, "path": patch.path}
        yield {"path": path, "value": value, "present": found.present, "patch": rendered, **cause.to_wire()}


def _tree(found: BlamedValues) -> Iterator[str]:
    """Yield the worlds, below each its patches, and below each of those the values that it put there."""
    from world.read_models.blame import AT_ONCE

    values: dict[int, list[str]] = {}
    for path, value, origin in found:
        shown = cut(value, None) if found.present else "absent"
        values.setdefault(origin, []).append(f"{path or 'data'} = {shown}")
    previous = None
    numbers = iter(sorted(values))
    while batch := list(islice(numbers, AT_ONCE)):
        rendered = found.origins.read(batch)
        for number in batch:
            cause, patch = rendered[number]
            if cause.sealed.world_id != previous:
                yield from about_cause(cause, present=found.present)
            previous, indent = cause.sealed.world_id, "  "
            if patch is not None:
                yield f"  patch     {cut(patch.to_wire())}"
                indent = "    "
            for at, words in enumerate(values[number], 1):
                yield f"{indent}{'`-' if at == len(values[number]) else '|-'} {words}"


def about_cause(cause: Cause, *, present: bool = True) -> Iterator[str]:
    """Yield lines about a world and its cause."""
    from worldprotocol.api.proposal_summary import moment

    yield f"world {cause.sealed.world_id}, sealed {moment(cause.sealed.at)}"
    if cause.submitted is None:
        since = "the realm was founded with it" if present else "never written since the realm was founded"
        yield f"  genesis   {since}"
        return
    wire = cause.to_wire()
    given = cause.submitted.intent.body.input
    yield f"  proposal  {wire['proposalId']}, attempt {wire['attempt']}"
    yield f"  intent    {wire['intentId']}: {wire['action']}" + ("" if given is None else f" {cut(given)}")
    yield f"  actor     {wire['actor']['actorId']} ({wire['actor']['kind']})"
    decision = wire.get("decision")
    if decision is not None:
        yield f"  allowed   by {decision['authority']}: {decision['reason']}"
        if decision["rules"]:
            yield f"  decided   by {', '.join(decision['rules'])}, decision {decision['decisionId']}"
    source = wire["source"]
    yield f"  source    {source['kind']} {source['eventId']} through {wire['projectionId']}"


def cut(value: Any, most: int | None = MOST_CHARS) -> str:
    """Return a value as JSON, cut where it is longer than so many characters."""
    from worldprotocol.json_text import as_text

    text = as_text(value)
    return text if most is None or len(text) <= most else text[: most - 1] + "…"
