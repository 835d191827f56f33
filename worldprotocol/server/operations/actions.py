"""The actions that are available to the caller."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import BaseModel, Field

from projections.catalog import Mode, Pruning
from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.server.call import Authorized, answer
from worldprotocol.server.operation_table import handles


class CatalogQuery(BaseModel):
    """Options of a catalog, as parameters of a query."""

    actor: str | None = Field(default=None, max_length=1_000, description="The caller; another actor is refused.")
    mode: Mode = "llm"
    branch: str | None = Field(default=None, max_length=1_000)
    at: str | None = Field(default=None, max_length=200, description="worldId of a past world.")
    upto: int | None = Field(default=None, ge=0, le=2**53, description="With `at`: position of an event.")
    all: bool = Field(default=False, description="Mark unavailable actions in place of dropping them.")
    certain: bool = Field(default=False, description="Leave out what is not certain to be available.")
    sort: str = Field(default="type_lex", pattern="^(type_lex|schema_order)$")
    max: int | None = Field(default=None, ge=0, le=2**53)
    explain: bool = Field(default=False, description="Add why each action is listed or not, with the values read.")


@handles("actions.list")
async def list_actions(call: Authorized, wanted: Annotated[CatalogQuery, Query()]) -> Response:
    """Return the catalog of actions for the caller, as `worldctl actions --json` prints it."""
    if wanted.actor not in (None, call.actor_id):
        raise RefusedError(
            ErrorCode.NOT_THE_VERIFIED_ACTOR,
            f"The caller was verified as {call.actor_id!r}, and a catalog is that of the caller; leave `actor` out.",
        )
    if wanted.explain and not call.visibility.reads_all:
        raise RefusedError(
            ErrorCode.RIGHT_MISSING,
            "An explanation shows values of the state, and needs the right reader or auditor; leave `explain` out.",
        )
    pruning = Pruning.read(
        {
            "policy": "mark_only" if wanted.all else "drop_unavailable",
            "includeUnknown": not wanted.certain,
            "sort": wanted.sort,
            "maxActions": wanted.max,
        }
    )
    if wanted.explain:
        call.visibility.check_whole()
    upto = wanted.upto if wanted.at is not None else None

    def run() -> dict[str, Any]:
        catalog, why = call.hosted.realm.actions.explain(
            call.actor_id, mode=wanted.mode, pruning=pruning, branch=wanted.branch, at=wanted.at, upto=upto
        )
        shown = catalog.to_wire()
        return {**shown, "explanations": [one.to_wire() for one in why]} if wanted.explain else shown

    return answer(await call.run(run))
