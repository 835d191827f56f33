"""``worldctl eval``: expressions, for other implementations to compare with."""

from __future__ import annotations

import click

from worldprotocol.cli.options import Desk, command


@command("eval")
@click.argument("source", metavar="[FILE|-]", default="-")
@click.option("--context", metavar="FILE", help="A JSON object: data, input and so on for lines that say none.")
def evaluate(desk: Desk, source: str, context: str | None) -> int:
    """Read JSON lines {expr, data?, computed?, input?, phase?, ...} and print {ok, value} or {ok, code, message}."""
    from worldprotocol.cli.reading import read_object
    from worldprotocol.cli.vectors import answer_lines
    from worldprotocol.conformance import evaluation_of, read_expression_case, unmarked

    given = {} if context is None else unmarked(read_object(f"@{context}", what="--context"))
    return answer_lines(desk, source, read_expression_case, lambda case: evaluation_of(case, given))
