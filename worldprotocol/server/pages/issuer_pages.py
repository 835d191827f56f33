"""Sign-in at an OIDC issuer: the way there, and the way back with an answer that verifies an actor."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote, urlencode

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from world.events.verification import BrowserSession, Verification
from worldprotocol.server.call import counted_failure, service_of
from worldprotocol.server.pages.browser_sessions import begun_session, set_session
from worldprotocol.server.pages.page_call import HEADERS, rendered
from worldprotocol.server.pages.page_table import shows

if TYPE_CHECKING:
    from worldprotocol.server.issuers.code_flow import CodeFlow, SignedIn
    from worldprotocol.server.service import Service

__all__ = ["choices_of", "logout_of", "own_page"]

_PAGE: Final = re.compile(r"(?:/[A-Za-z0-9_~:@-][A-Za-z0-9._~:@%-]*)*(?:\?[A-Za-z0-9._~:@%=&/+-]*)?")
"""Path and query below the realm, without empty segments, segments that begin with a dot, and backslashes."""


def own_page(realm: str, wanted: str) -> str:
    """Return the wanted page where it is one of the realm, else the first page of the realm.

    Args:
        realm: name of the realm.
        wanted: path and query; may come from anywhere.
    """
    home = f"/realms/{realm}"
    is_own = wanted.startswith(home) and _PAGE.fullmatch(wanted[len(home) :]) is not None
    return wanted if is_own and "%2" not in wanted.lower().partition("?")[0] else home


def choices_of(service: Service, realm: str, next_page: str) -> list[dict[str, str]]:
    """Return issuer and path of each way to sign in at an issuer.

    Args:
        service: the service.
        realm: name of the realm, as the path has it.
        next_page: page to return to; may come from anywhere.
    """
    query = urlencode({"next": own_page(realm, next_page)})
    return [
        {"issuer": flow.issuer.config.issuer, "path": f"/realms/{quote(realm, safe='')}/sign-in/{name}?{query}"}
        for name, flow in service.flows.items()
    ]


def _flow(request: Request, name: str) -> CodeFlow:
    """Return the code flow at an issuer.

    Raises:
        HTTPException: 404 where no issuer has that name.
    """
    flow = service_of(request).flows.get(name)
    if flow is None:
        raise HTTPException(404)
    return flow


def _redirect_uri(request: Request, realm: str, name: str) -> str:
    """Return where an issuer sends the browser back; each realm and issuer has an address of its own."""
    return f"{service_of(request).public_url}/realms/{quote(realm, safe='')}/sign-in/{name}/back"


@shows("go_to_issuer")
async def go_to_issuer(
    request: Request, realm: str, issuer: str, next_page: Annotated[str, Query(alias="next", max_length=2_000)] = ""
) -> Response:
    """Send the browser to the issuer; a link of another site shows the issuers in place of that."""
    flow = _flow(request, issuer)
    if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return RedirectResponse(f"/realms/{quote(realm, safe='')}/sign-in", 303, HEADERS)
    url = await flow.begin(request, _redirect_uri(request, realm, issuer), own_page(realm, next_page))
    return RedirectResponse(url, 303, HEADERS)


@shows("come_back")
async def come_back(request: Request, realm: str, issuer: str) -> Response:
    """Verify the answer of the issuer, record the session, and set its cookie.

    The page that follows is opened by a page of this server, because browsers do not send the cookie with what another
    site leads to.
    """
    service, flow = service_of(request), _flow(request, issuer)
    with counted_failure(service, request):
        found = await flow.finish(request)
    session = BrowserSession(method="oidc", issuer=flow.issuer.config.issuer, subject=found.subject)
    hosted = service.realms.get(realm)
    if hosted is None:
        return _no_access(realm, found, session, is_registered=False)
    service.rates.take(f"{found.actor_id}@{realm}")
    view = await service.threads.run(hosted.realm.realm)
    if found.actor_id not in view.actors or not view.rights.get(found.actor_id):
        return _no_access(realm, found, session, is_registered=found.actor_id in view.actors)
    made = await service.threads.run(lambda: begun_session(service, hosted, found.actor_id, session))
    answer = rendered("sign_in/signed_in", {"realm_name": realm, "actor_id": found.actor_id, "next": found.next_page})
    set_session(request, answer, hosted.name, made)
    return answer


def _no_access(realm: str, found: SignedIn, session: BrowserSession, *, is_registered: bool) -> Response:
    values = {
        "realm_name": realm,
        "actor_id": found.actor_id,
        "issuer": session.issuer,
        "subject": found.subject,
        "is_registered": is_registered,
    }
    return rendered("sign_in/no_access", values, 403)


async def logout_of(service: Service, verified: Verification) -> str | None:
    """Return where the owner of a session may end it at the issuer, too; None where that is not configured."""
    for flow in service.flows.values():
        if verified.issuer is not None and flow.issuer.config.issuer == verified.issuer:
            return await flow.logout_url()
    return None
