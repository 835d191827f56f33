"""Operations on the server and its realms: list, health, errors, metrics."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.api.bootstrap import EventLog
from worldprotocol.operations.visibility import rights_of
from worldprotocol.server.call import answer, count_visitor, operation_of, service_of, verified_somewhere
from worldprotocol.server.operation_table import handles
from worldprotocol.server.problems import problem, type_of
from worldprotocol.server.telemetry.readiness import readiness_of
from worldprotocol.server.telemetry.realm_metrics import scraped

OnlyRealm = Annotated[str | None, Query(description="Ask for this realm alone, also where it was moved or archived.")]

SERVICE_UNAVAILABLE: Final = 503
"""Status of a server that is not ready, whatever the cause."""


@handles("realms.list")
async def list_realms(request: Request) -> Response:
    """List the realms in which the caller has a right."""
    service = service_of(request)
    found = await verified_somewhere(service, request)
    realms: list[dict[str, Any]] = []
    for hosted, verified, view in found:
        service.rates.take(f"{verified.actor_id}@{hosted.name}")
        if rights := rights_of(view, verified):
            shown = {"name": hosted.name, "actorId": verified.actor_id, "rights": sorted(rights)}
            file = _file_id(hosted.realm.log) if verified.method == "peer" else None
            realms.append(shown if file is None else {**shown, "file": file})
    return answer({"realms": realms})


def _file_id(log: EventLog) -> str | None:
    """Return device and number of a realm's file, and its name in it: a process of this machine finds the realm by it.

    None for a realm in a database server.
    """
    address = log.address
    try:
        found = os.stat(address.path) if address.path else None
    except OSError:
        return None
    return None if found is None else f"{found.st_dev}:{found.st_ino}#{address.name}"


@handles("realms.identity")
async def read_identity(request: Request) -> Response:
    """Return the id that the founding of a realm's log recorded, the same for every copy of the log."""
    service, name = service_of(request), request.path_params["realm"]
    count_visitor(service, name, request)
    hosted = service.realms.get(name)
    founded = None if hosted is None else (await hosted.view.result()).founded
    if founded is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_REALM, f"This server has no realm {name[:80]!r}; `GET /v1/realms` lists yours."
        )
    return answer({"name": name, "logId": founded.log_id})


@handles("errors.read")
async def read_error(code: str) -> Response:
    """Return what an error code means; problems name it as their type."""
    try:
        known = ErrorCode(code)
    except ValueError:
        raise RefusedError(ErrorCode.UNKNOWN_OPERATION, f"There is no error code {code[:80]!r}.") from None
    return answer(
        {
            "type": type_of(known),
            "code": known.value,
            "title": known.text,
            "remedy": known.remedy,
            "status": known.http_status,
            "documentation": "docs/errors.md",
        }
    )


@handles("server.health")
async def health() -> Response:
    """Return that the process answers."""
    return answer({"status": "ok"})


@handles("server.ready")
async def ready(request: Request, realm: OnlyRealm = None) -> Response:
    """Return whether every realm would accept a write now, or the one that is named, and why one would not."""
    service = service_of(request)
    if realm is not None and realm not in service.realms:
        raise RefusedError(
            ErrorCode.UNKNOWN_REALM, f"This server has no realm {realm[:80]!r}; `GET /v1/realms` lists yours."
        )
    asked = list(service.realms) if realm is None else [realm]
    found = await readiness_of([service.realms[one] for one in asked])
    realms = [one.to_wire() for one in found]
    hindered = [one for one in found if one.obstacle is not None and (realm is not None or not one.is_left_out)]
    if not hindered:
        return answer({"status": "ok", "realms": realms})
    first = hindered[0]
    request.state.error_code = first.code
    return problem(
        ErrorCode(first.code),
        f"{len(hindered)} of {len(found)} realms would not accept a write now; the server's log has the details.",
        status=SERVICE_UNAVAILABLE,
        details={"realms": realms},
    )


@handles("server.metrics")
async def metrics(request: Request) -> Response:
    """Return metrics of the server, and of the realms that the caller may operate or audit."""
    text = await scraped(service_of(request), operation_of(request), request)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
