"""Worlds: the lineage at any point in time, and one world with its state, blame, patches and differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted
from world.model.paths import parse_path
from world.read_models.archive import Archive, WorldRow
from world.read_models.blame import plain_path, touches
from world.read_models.decoding import decoded
from world.read_models.lineage import Heads
from world.read_models.value_tracking import leaves
from worldprotocol.api.lookup.point_in_time import moment
from worldprotocol.operations.worlds import blame_path, diff_worlds, read_state, read_world
from worldprotocol.server.call import Call
from worldprotocol.server.pages.lineage_drawing import LANES, Drawing, draw
from worldprotocol.server.pages.page_call import PageCall, open_page
from worldprotocol.server.pages.page_table import shows

MOST: Final = 300
"""Newest worlds of one view; folded runs are not counted twice."""

MOST_DETAILED: Final = 100
"""Rows for which the page reads what made them."""

MOST_FOUND: Final = 100
"""Values of a state that a search lists."""

MOST_CHOICES: Final = 30
"""Worlds that the form of a comparison offers."""

Named = Annotated[str, Query(max_length=200)]
Path = Annotated[str, Query(max_length=4_000)]


@shows("worlds")
async def worlds(
    request: Request,
    at: Named = "",
    branch: Named = "",
    depth: Annotated[int, Query(ge=0, le=MOST)] = 1,
    opened_runs: Annotated[str, Query(alias="open", max_length=4_000)] = "",
    path: Path = "",
    q: Annotated[str, Query(max_length=400)] = "",
) -> Response:
    """Show the lineage; the address holds the view.

    Args:
        request: the request.
        at: a point in time: a position of the log, a time, the id of a world or a proposal; empty is now.
        branch: only the line of this branch; empty shows all.
        depth: steps around heads and branch points up to which worlds are shown.
        opened_runs: ids of the first worlds of folded runs that are opened, with commas between them.
        path: only worlds that changed this path, and those that are always shown.
        q: text to find in the paths and values of the state.
    """
    opened = await open_page(request, "worlds.list")
    view = {"at": at.strip(), "branch": branch, "depth": depth, "open": opened_runs, "path": path, "q": q.strip()}
    values = await opened.call.run(lambda: _lineage(opened, view))
    values |= {"title": "Worlds", "view": view, "address": _address(opened, view)}
    return await opened.show("worlds", values)


def _lineage(opened: PageCall, view: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page of the lineage shows; a refused part has an explanation in its place."""
    realm, refusals = opened.call.hosted.realm, []
    try:
        point = moment(realm, view["at"] or None)
    except RefusedError as refused:
        refusals.append(refused.message)
        point = moment(realm, None)
    heads = point.heads()
    if view["branch"] and view["branch"] not in heads.branches:
        refusals.append(f"There is no branch {view['branch']!r} at that point.")
    rows = _rows(realm.archive, heads, view["branch"], point.position)
    matches: set[str] = set()
    if view["path"]:
        try:
            matches = set(_changing(opened.call, rows, heads, view["path"]))
        except RefusedError as refused:
            refusals.append(refused.message)
    lanes = {name: place % LANES for place, name in enumerate(heads.branches)}
    marked = {one for branch in heads.branches.values() for one in (branch.head, branch.tip)} | matches
    drawing = draw(rows, lanes, marked=marked, depth=view["depth"], opened=view["open"].split(","))
    found: dict[str, Any] = {"world": None, "matches": [], "more": False}
    if view["q"]:
        try:
            found = _found(opened, heads, view)
        except RefusedError as refused:
            refusals.append(refused.message)
    return {
        "drawing": drawing,
        "heads": heads,
        "lanes": lanes,
        "labels": _labels(heads),
        "made": _makers(opened.call, drawing),
        "matches": matches,
        "found": found,
        "refusals": refusals,
        "position": point.position,
        "size": opened.call.view.position,
        "total": len(rows),
        "older": rows[-1].position - 1 if rows and rows[-1].parent is not None else None,
    }


def _rows(archive: Archive, heads: Heads, branch: str, position: int) -> list[WorldRow]:
    """Return the newest worlds at a position, or of the line of one branch."""
    if branch in heads.branches:
        return [WorldRow(*row) for row in archive.rows("line", {"of_world": heads.branches[branch].tip, "most": MOST})]
    return [WorldRow(*row) for row in archive.rows("worlds_upto", {"upto": position, "most": MOST})]


def _labels(heads: Heads) -> dict[str, list[str]]:
    """Return the labels of heads and tips, by world."""
    labels: dict[str, list[str]] = {}
    for one in heads.branches.values():
        labels.setdefault(one.head, []).append(f"head of {one.name}")
        if one.tip != one.head:
            labels.setdefault(one.tip, []).append(f"tip of {one.name}")
    return labels


def _changing(call: Call, rows: Sequence[WorldRow], heads: Heads, path: str) -> Iterator[str]:
    """Yield the ids of the worlds that changed a path.

    Raises:
        RefusedError: ``INVALID_PATH``; ``RIGHT_MISSING`` for a reader with redaction.
    """
    call.visibility.check_whole()
    archive = call.hosted.realm.archive
    place = parse_path(plain_path(archive.state(heads.head()), path))
    for row in rows:
        if any(touches(patch, place) for patch in archive.sealed(row.world_id).patches):
            yield row.world_id


def _found(opened: PageCall, heads: Heads, view: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a state whose path or text contains what is searched.

    Raises:
        RefusedError: ``RIGHT_MISSING``, ``UNKNOWN_BRANCH``.
    """
    archive = opened.of("worlds.state").hosted.realm.archive
    world_id, wanted = heads.head(view["branch"] or None), view["q"].casefold()
    matches: list[tuple[str, Any]] = []
    for path, value in leaves(archive.state(world_id)):
        if wanted in path.casefold() or (wanted in str(value).casefold()):
            matches.append((path, value))
            if len(matches) > MOST_FOUND:
                break
    return {"world": world_id, "matches": matches[:MOST_FOUND], "more": len(matches) > MOST_FOUND}


def _makers(call: Call, drawing: Drawing) -> dict[str, dict[str, Any]]:
    """Return when and by which proposal worlds were sealed; empty where events are hidden from the caller."""
    if call.visibility.rules:
        return {}
    realm = call.hosted.realm
    made: dict[str, dict[str, Any]] = {}
    for row in drawing.rows:
        if row.world is None or len(made) == MOST_DETAILED:
            continue
        world_id = row.world.world_id
        try:
            sealed = realm.archive.sealed(world_id)
            made[world_id] = {"at": sealed.at, "proposal": sealed.created_by, "type": "", "actor": ""}
            if sealed.created_by is not None:
                submitted = decoded(realm.log.stream(sealed.created_by, limit=1)[0])
                if isinstance(submitted, ProposalSubmitted):
                    made[world_id] |= {"type": submitted.intent.body.type, "actor": submitted.actor.actor_id}
        except RefusedError as refused:
            if refused.code != ErrorCode.EVENT_ARCHIVED:
                raise  # otherwise the log was cut after the world, or after the proposal of a world that is needed
    return made


def _address(opened: PageCall, view: Mapping[str, Any]) -> Any:
    """Return a function that returns the address of this view with changed parameters."""
    base = f"/realms/{opened.call.hosted.name}/worlds"
    usual = {"at": "", "branch": "", "depth": 1, "open": "", "path": "", "q": ""}

    def address(**changed: Any) -> str:
        wanted = {name: value for name, value in {**view, **changed}.items() if value != usual[name]}
        return f"{base}?{urlencode(wanted)}" if wanted else base

    return address


@shows("world")
async def world(
    request: Request,
    world_id: str,
    path: Path = "",
    other: Annotated[str, Query(alias="with", max_length=200)] = "",
) -> Response:
    """Show one world; the address holds the path that is explained and the world that is compared."""
    opened = await open_page(request, "worlds.read")
    found = await opened.shown(read_world, {"worldId": world_id})
    name, refusals = found["worldId"], []
    values: dict[str, Any] = {"state": None, "blame": None, "diff": None}
    wanted = {
        "state": (read_state, {"worldId": name}),
        "blame": (blame_path, {"worldId": name, "path": path}) if path else None,
        "diff": (diff_worlds, {"worldId": other, "with": name}) if other else None,
    }
    for part, asked in wanted.items():
        try:
            values[part] = None if asked is None else await opened.shown(*asked)
        except RefusedError as refused:
            refusals.append(refused.message)
    about: dict[str, Any] = {"title": f"World {name}", "one": found, "path": path, "other": other, "refusals": refusals}
    about["choices"] = await opened.call.run(lambda: _choices(opened.call, found))
    return await opened.show("world", {**about, **values})


def _choices(call: Call, found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return worlds to compare with, each with its description: the parent, heads of branches, and the newest ones."""
    choices: dict[str, str] = {}
    if found["parent"] is not None:
        choices[found["parent"]] = "parent"
    for branch in call.view.branches.values():
        choices.setdefault(branch.head, f"head of {branch.name}")
    for row in call.hosted.realm.worlds(MOST_CHOICES):
        choices.setdefault(row.world_id, f"{row.branch}, height {row.height}")
    choices.pop(found["worldId"], None)
    return list(choices.items())
