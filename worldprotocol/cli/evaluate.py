"""``worldctl eval``: expressions, for other implementations to compare with."""

from __future__ import annotations

from typing import Any

import click

from worldprotocol.cli.options import Desk, command


@command("eval")
@click.argument("source", metavar="[FILE|-]", default="-")
@click.option(
    "--context",
    metavar="FILE|none",
    help="A JSON object with what lines leave out, in place of the vectors' sample; none is nothing.",
)
def evaluate(desk: Desk, source: str, context: str | None) -> int:
    r"""Read JSON lines {expr, data?, computed?, input?, phase?, ...} and print {ok, value} or {ok, code, message}.

    The vectors share one sample of data and input, which comes with this package: what a line leaves out is taken
    from it, so that they need no option. For expressions of your own give the data in the line, or --context none.

    \b
    $ echo '{"expr": {"kind": "get", "path": "a"}}' | worldctl eval
    {"ok":true,"value":1}
    $ echo '{"expr": {"kind": "get", "path": "a"}}' | worldctl eval --context none
    {"ok":true,"value":null}
    $ echo '{"expr": {"kind": "get", "path": "n"}, "data": {"n": 2}}' | worldctl eval
    {"ok":true,"value":2}

    Beside data, computed and input a line may say system, meta, intentId, currentAction, now (ms) and randomSeed;
    phase is "computed" for the expression of a computed value.
    """
    from worldprotocol.cli.vectors import answer_lines
    from worldprotocol.conformance import evaluation_of, read_expression_case

    given = _context(context)
    return answer_lines(desk, source, read_expression_case, lambda case: evaluation_of(case, given))


def _context(named: str | None) -> dict[str, Any]:
    """Return what holds where a line says nothing."""
    from worldprotocol.cli.reading import read_object
    from worldprotocol.conformance import sample_context, unmarked

    if named is None:
        return sample_context()
    if named == "none":
        return {}
    context = unmarked(read_object(f"@{named}", what="--context"))
    assert isinstance(context, dict)
    return context
