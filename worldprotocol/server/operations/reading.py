"""Operations that read worlds and branches; branches are created and switched here too."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Header, Query, Response
from pydantic import BaseModel, Field

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.paths import look_up, parse_path
from world.read_models.blame import plain_path, stands
from world.read_models.diff import compare
from world.read_models.lineage import Heads
from worldprotocol.api.lookup.lineage_rows import (
    LineageQuery,
    lineage_row,
    lineage_rows,
    sealed_row,
    world_row,
)
from worldprotocol.api.remote.event_forms import event_form
from worldprotocol.server.call import Authorized, Call, answer
from worldprotocol.server.operation_table import handles
from worldprotocol.server.operations.acting import History
from worldprotocol.server.operations.past import At
from worldprotocol.server.operations.proposals import Limit

HEAD = "HEAD"
"""Name of the head of the active branch in a path."""

Path = Annotated[str | None, Query(max_length=4_000, description="Dotted path, such as `orders.7.item`.")]


def _world_id(call: Call, named: str, at: str | None = None) -> str:
    """Return a world's id; ``HEAD`` is the head of the active branch, also at a point in the past.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``, and those of ``Call.moment``; ``NOT_FOUND`` for a world that was sealed later.
    """
    realm = call.hosted.realm
    if at is None:
        world_id = realm.branch().head if named == HEAD else named
        realm.archive.world(world_id)
        return world_id
    then = call.moment(at)
    world_id = then.world_id() if named == HEAD else named
    then.check_seen(f"World {world_id[:12]} was sealed", realm.archive.world(world_id).position)
    return world_id


class WorldFilter(BaseModel):
    """Which worlds a list has, as parameters of a query."""

    before: int = Field(default=2**53, ge=0, le=2**53, description="Only worlds that were sealed before this position.")
    branch: str | None = Field(default=None, min_length=1, max_length=1_000, description="Only this line of descent.")
    under: str | None = Field(default=None, min_length=1, max_length=200, description="Only descendants of this world.")
    depth: int = Field(default=1, ge=1, le=16, description="Generations below `under`.")


EVERY_WORLD: Final = WorldFilter()


@handles("worlds.list")
async def list_worlds(
    call: Authorized,
    wanted: Annotated[WorldFilter, Query()] = EVERY_WORLD,
    limit: Limit = 50,
    at: At = None,
) -> Response:
    """List worlds, newest first, each with the branches whose head or tip it is."""
    archive = call.hosted.realm.archive

    def run() -> dict[str, Any]:
        if at is None:
            heads, before = Heads(call.view.active, dict(call.view.branches)), wanted.before
        else:
            then = call.moment(at)
            heads, before = then.heads(), min(wanted.before, then.position + 1)
        under = None if wanted.under is None else _world_id(call, wanted.under, at)
        query = LineageQuery(limit, before, wanted.branch, under, wanted.depth)
        shown = call.visibility.branches(archive)
        return {"worlds": [lineage_row(row, heads, shown) for row in lineage_rows(archive, heads, query)]}

    return answer(await call.run(run))


@handles("worlds.read")
async def read_world(call: Authorized, world_id: str, at: At = None) -> Response:
    """Return a world with the patches from its parent, withheld where its event is hidden from the caller."""

    def run() -> dict[str, Any]:
        archive = call.hosted.realm.archive
        row = archive.world(_world_id(call, world_id, at))
        shown, logged = call.visibility.branches(archive), archive.event_at(row.position)
        if any(is_hidden for _, is_hidden in call.visibility.events([logged])):
            return {**world_row(row, shown), "redacted": True, "leaf": logged.leaf.hex()}
        return sealed_row(archive, row, shown)

    return answer(await call.run(run))


@handles("worlds.state")
async def read_state(
    call: Authorized,
    world_id: str,
    path: Path = None,
    at: At = None,
    if_none_match: Annotated[str | None, Header(alias="If-None-Match")] = None,
) -> Response:
    """Return the data of a world, or the value of a path; the ETag is the worldId, whose data never change."""

    def run() -> tuple[str, Any]:
        name = _world_id(call, world_id, at)
        if if_none_match is not None and f'"{name}"' in if_none_match:
            return name, None
        data = call.hosted.realm.data(name)
        if path is None:
            return name, {"worldId": name, "value": data}
        place = parse_path(plain_path(data, path))
        if not stands(data, place):
            raise RefusedError(ErrorCode.PATH_NOT_FOUND, f"World {name} has no value at {path!r}.", path=path)
        return name, {"worldId": name, "path": path, "value": look_up(data, place)}

    name, found = await call.run(run)
    headers = {"ETag": f'"{name}"', "Cache-Control": "private, no-cache"}
    if found is None:
        return Response(status_code=304, headers=headers)
    return answer(found, 200, headers)


@handles("worlds.computed")
async def read_computed(call: Authorized, world_id: str, at: At = None) -> Response:
    """Return the computed values of a world by its own schema."""

    def run() -> dict[str, Any]:
        name = _world_id(call, world_id, at)
        found = call.hosted.realm.computed(name)
        return {
            "worldId": name,
            "values": dict(found.values),
            "byOtherCode": list(found.by_other_code),
            "missing": list(found.missing),
            "why": found.why,
        }

    return answer(await call.run(run))


@handles("worlds.diff")
async def diff(
    call: Authorized,
    world_id: str,
    other: Annotated[str, Query(alias="with", min_length=1, max_length=200, description="worldId, or HEAD.")] = HEAD,
) -> Response:
    """Compare the data of two worlds, with the proposals that caused each difference."""

    def run() -> dict[str, Any]:
        found = compare(call.hosted.realm.archive, _world_id(call, world_id), _world_id(call, other))
        return {
            "a": found.a.world_id,
            "b": found.b.world_id,
            "commonAncestor": found.ancestor,
            "same": found.same,
            "changes": [one.to_wire() for one in found.differences],
        }

    return answer(await call.run(run))


@handles("worlds.blame")
async def blame(
    call: Authorized,
    world_id: str,
    path: Annotated[str, Query(min_length=1, max_length=4_000)],
    history: History = False,
    at: At = None,
) -> Response:
    """Return the last change of a path, with the intent and the decision that allowed it."""

    def run() -> dict[str, Any]:
        found = call.hosted.realm.blame(path, _world_id(call, world_id, at))
        if not history:
            return found.to_wire()
        proposal, log = found.proposal, call.hosted.realm.log
        return {
            **found.to_wire(),
            "world": event_form(found.world),
            "history": None if proposal is None else call.visibility.history(log.stream(proposal.proposal_id)),
            "projection": None if found.projection is None else event_form(found.projection),
        }

    return answer(await call.run(run))
