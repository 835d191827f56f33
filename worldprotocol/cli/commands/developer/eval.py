"""``worldctl eval``: expressions, for other implementations to compare with."""

from __future__ import annotations

from typing import Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command


@command("eval")
@click.argument("source", metavar="[FILE|-]", default="-")
@click.option("--context", metavar="FILE", help="A JSON object with the members that lines leave out.")
def evaluate(desk: CommandContext, source: str, context: str | None) -> int:
    r"""Read JSON lines {expr, data?, computed?, input?, phase?, ...} and print {ok, value} or {ok, code, message}.

    Members that neither the line nor --context gives are empty, so a path into them is null.

    \b
    $ echo '{"expr": {"kind": "get", "path": "n"}, "data": {"n": 2}}' | worldctl eval
    {"ok":true,"value":2}
    $ echo '{"expr": {"kind": "get", "path": "n"}}' | worldctl eval
    {"ok":true,"value":null}

    Beside data, computed and input a line may say system, meta, intentId, currentAction, now (ms) and randomSeed;
    phase is "computed" for the expression of a computed value.
    """
    from worldprotocol.cli.support.vector_lines import answer_lines
    from worldprotocol.conformance.vectors import evaluation_of, read_expression_case

    given = {} if context is None else _context(context)
    return answer_lines(desk, source, read_expression_case, lambda case: evaluation_of(case, given))


def _context(path: str) -> dict[str, Any]:
    """Return the members that hold where a line says nothing."""
    from world.errors import RefusedError
    from worldprotocol.cli.support.input_reading import read_object
    from worldprotocol.conformance.vectors import check_surroundings, unmarked

    context = unmarked(read_object(f"@{path}", what="--context"))
    assert isinstance(context, dict)
    try:
        check_surroundings(context)
    except RefusedError as refused:
        raise RefusedError(refused.code, f"--context: {refused.message}", **refused.details) from None
    return context
