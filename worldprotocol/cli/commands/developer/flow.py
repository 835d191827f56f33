"""``worldctl flow``: flows, for other implementations to compare with."""

from __future__ import annotations

import click

from worldprotocol.cli.support.command_context import CommandContext, command


@command("flow")
@click.argument("source", metavar="[FILE|-]", default="-")
def flow(desk: CommandContext, source: str) -> int:
    """Read JSON lines {op, schema, ...} and print what comes of each.

    op is compute, apply, validate, schemaHash or host. The patches of a flow that did not run are null: its action is
    unknown or not available, or its input does not fit. One that ran and failed has [].
    """
    from worldprotocol.cli.support.vector_lines import answer_lines
    from worldprotocol.conformance.vectors import flow_of, read_case

    return answer_lines(desk, source, read_case, flow_of)
