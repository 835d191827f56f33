"""Leases: who holds what and until when, who waits for whom, and their revocation by operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from world.errors import RefusedError
from world.read_models.leases import lacks
from worldprotocol.operations.acting.leases import list_leases, list_waits
from worldprotocol.operations.acting.leases import revoke as revoke_leases
from worldprotocol.server.call import Call
from worldprotocol.server.pages.page_call import PageCall, form_fault, open_form, open_page
from worldprotocol.server.pages.page_table import shows
from worldprotocol.server.pages.wait_drawing import draw_waits

MOST_ROWS: Final = 200
"""Resources of the matrix."""

MOST_AGENTS: Final = 40
"""Agents of the matrix, the oldest first."""

MOST_DIED: Final = 100
"""Sessions with Die verdicts that are listed."""


@shows("leases")
async def leases(
    request: Request,
    agent: Annotated[str, Query(max_length=500)] = "",
    resource: Annotated[str, Query(max_length=2_000)] = "",
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Show the leases in force and the requests that wait; the address holds the filter."""
    opened = await open_page(request, "leases.list")
    return await _shown(opened, {"agent": agent, "resource": resource}, done=done == "revoked")


async def _shown(
    opened: PageCall, view: Mapping[str, str], *, done: bool = False, refusal: str = "", status: int = 200
) -> Response:
    held = (await opened.shown(list_leases))["leases"]
    waits = (await opened.shown(list_waits))["waits"]
    total, administrators = len(held), opened.call.view.klis.in_force.administrators.split()
    held = [one for one in held if _is_wanted(view, one["agentId"], [one["resource"]])]
    waits = [one for one in waits if _is_wanted(view, one["agentId"], [each["resource"] for each in one["resources"]])]
    values = {
        "title": "Leases",
        "leases": held,
        "total": total,
        "waits": waits,
        "matrix": _matrix(opened.call, held, waits),
        "drawing": draw_waits(waits),
        "died": _died(opened.call),
        "may_revoke": opened.may("leases.revoke") and opened.call.actor_id in administrators,
        "view": view,
        "done": done,
        "refusal": refusal,
    }
    return await opened.show("leases", values, status)


def _is_wanted(view: Mapping[str, str], agent: str, resources: Iterable[str]) -> bool:
    return view["agent"] in ("", agent) and any(view["resource"] in one for one in resources)


def _matrix(call: Call, held: Sequence[Mapping[str, Any]], waits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the resources with the held and the queued entries of each agent, oldest agent first."""
    cells: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for one in held:
        cells.setdefault(one["resource"], {}).setdefault(one["agentId"], []).append({**one, "isQueued": False})
    for one in waits:
        for wanted in one["resources"]:
            entry = {**one, **wanted, "isQueued": True}
            cells.setdefault(wanted["resource"], {}).setdefault(one["agentId"], []).append(entry)
    ranks = call.view.klis.agents
    names = {name for row in cells.values() for name in row}
    agents = sorted(((ranks[name][0] if name in ranks else None, name) for name in names), key=_age)
    rows = sorted(cells.items())
    return {
        "agents": [{"name": name, "since": since} for since, name in agents[:MOST_AGENTS]],
        "rows": rows[:MOST_ROWS],
        "more": max(0, len(rows) - MOST_ROWS) + max(0, len(agents) - MOST_AGENTS),
    }


def _age(agent: tuple[int | None, str]) -> tuple[bool, int, str]:
    return agent[0] is None, agent[0] or 0, agent[1]


def _died(call: Call) -> list[dict[str, Any]]:
    """Return the sessions whose last verdict was Die, with the proposals that retry."""
    retries = {one.proposal_id: one.retry_at for one in lacks(call.view) if one.wait is None}
    died: list[dict[str, Any]] = [
        {"agent": agent, "session": session, "dies": one.dies, "at": one.at, "retry": retries.get(session)}
        for (agent, session), one in call.view.klis.died.items()
        if one.dies
    ]
    return sorted(died, key=lambda one: -one["at"])[:MOST_DIED]


@shows("revoke")
async def revoke(request: Request) -> Response:
    """Revoke one lease."""
    opened, form = await open_form(request, "leases.revoke")
    view = {"agent": form.get("agent", ""), "resource": form.get("resource", "")}
    try:
        await opened.ask(revoke_leases, {"leaseIds": [form.get("lease", "")], "reason": form.get("reason", "")})
    except RefusedError as error:
        words, status = form_fault(error)
        return await _shown(opened, view, refusal=words, status=status)
    return opened.redirect("leases?done=revoked")
