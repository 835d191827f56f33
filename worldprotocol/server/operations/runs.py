"""Operations on governed runs: the list, and what one run declared, did and violated."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Query

from world.model.record import to_wire
from worldprotocol.runs.listing import RunLine, list_runs
from worldprotocol.runs.verification import read_verification
from worldprotocol.server.call import Authorized, answer
from worldprotocol.server.operation_table import handles
from worldprotocol.server.operations.past import At
from worldprotocol.server.operations.proposals import Limit

Before = Annotated[int | None, Query(ge=1, le=2**53, description="`next` of the page before.")]


@handles("runs.list")
async def list_all_runs(
    call: Authorized,
    limit: Limit = 50,
    agent: Annotated[str | None, Query(max_length=1_000)] = None,
    open_only: Annotated[bool, Query(alias="open", description="Only runs that have not ended.")] = False,
    before: Before = None,
    at: At = None,
) -> Any:
    """List the runs, newest first, with what each declared; `next` is the cursor of the next page, null at the end."""
    archive = call.hosted.realm.archive

    def run() -> dict[str, Any]:
        upto = None if at is None else call.moment(at).position
        wanted: dict[str, Any] = {"agent": agent, "open_only": open_only, "upto": upto, "before": before}
        found = list(list_runs(archive, most=limit + 1, **wanted))
        more = len(found) > limit
        return {
            "runs": [_run(one) for one in found[:limit]],
            "more": more,
            "next": found[limit - 1].position if more else None,
        }

    return answer(await call.run(run))


def _run(one: RunLine) -> dict[str, Any]:
    return {**one.to_wire(), "since": one.opened.at, "declared": to_wire(one.opened.declared)}


@handles("runs.read")
async def read_run(
    call: Authorized, run_id: Annotated[str, Path(min_length=1, max_length=1_000)], at: At = None
) -> Any:
    """Return what a run declared, what was observed, its violations and rollbacks; `unused` once it has ended."""
    archive = call.hosted.realm.archive

    def run() -> dict[str, Any]:
        upto = None if at is None else call.moment(at).position
        return read_verification(archive, run_id, upto).to_wire()

    return answer(await call.run(run))
