"""``worldctl id``: keys, hashes and ids, for other implementations to compare with."""

from __future__ import annotations

from typing import Final

import click

from worldprotocol.cli.support.command_context import CommandContext, command

HELP: Final = """Read JSON lines and print one JSON result a line.

\b
intent-key  {schemaHash, body}                 ->  {intentKey}
catalog     {schemaHash, actions, pruning?}    ->  {catalogHash}
snapshot    {schemaHash, snapshot}             ->  {snapshotHash, contentId}
world       {schemaHash, snapshotHash or snapshot, parentWorldId}
                                               ->  {worldId, contentId, snapshotHash}

A number that JSON cannot carry is written {"$vec": "-0"}, {"$vec": "NaN"} and so on. A line that cannot be answered
gives {"error"} in its place, and exit code 1 at the end."""


@command("id", help=HELP)
@click.argument("kind", type=click.Choice(["intent-key", "catalog", "snapshot", "world"]))
@click.argument("source", metavar="[FILE|-]", default="-")
def identity(desk: CommandContext, kind: str, source: str) -> int:
    """Compute keys, hashes or ids from JSON lines."""
    from worldprotocol.cli.support.vector_lines import answer_lines
    from worldprotocol.conformance.vectors import IDENTITIES, read_case

    return answer_lines(desk, source, read_case, IDENTITIES[kind])
