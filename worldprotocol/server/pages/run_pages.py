"""Governed runs: the list, and one run with what it declared against what was observed."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from worldprotocol.operations.runs import list_all_runs, read_run
from worldprotocol.server.pages.page_call import open_page
from worldprotocol.server.pages.page_table import shows

MOST: Final = 100
MOST_ROWS: Final = 300
"""Rows of each table of one run."""


@shows("runs")
async def runs(
    request: Request,
    agent: Annotated[str, Query(max_length=500)] = "",
    only: Annotated[str, Query(alias="open", max_length=10)] = "",
) -> Response:
    """Show the newest runs; the address holds the filter."""
    opened = await open_page(request, "runs.list")
    found = await opened.shown(list_all_runs, {"limit": MOST, "agent": agent or None, "open": bool(only)})
    values = {"title": "Runs", **found, "agent": agent, "is_open_only": bool(only), "most": MOST}
    return await opened.show("runs", values)


@shows("run")
async def run(request: Request, run_id: str) -> Response:
    """Show one run: each declared triple with its use, violations, and what was restored."""
    opened = await open_page(request, "runs.read")
    found = await opened.shown(read_run, {"runId": run_id})
    values = {"title": f"Run {run_id}", "one": found, "declared": _declared(found), "most": MOST_ROWS}
    return await opened.show("run", values)


def _declared(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the declared triples, each with whether it was used; None where the run does not say."""
    unused = {(one["predicate"], one["resource"]) for one in found.get("unused", ())}
    is_whole = "unused" in found and not found.get("moreUnused")
    declared = []
    for one in found.get("declared", ()):
        is_unused = (one["predicate"], one["resource"]) in unused
        declared.append({**one, "used": False if is_unused else True if is_whole else None})
    return declared
