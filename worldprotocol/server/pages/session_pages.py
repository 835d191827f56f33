"""Pages of sign-in and sign-out, and the way from the realm to its first page."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from world.events.verification import BrowserSession
from worldprotocol.server.call import address_of, counted_failure, service_of
from worldprotocol.server.pages.browser_sessions import (
    begun_session,
    check_origin,
    fields_of,
    set_session,
    unset_session,
)
from worldprotocol.server.pages.issuer_pages import choices_of, logout_of
from worldprotocol.server.pages.page_call import HEADERS, hosted_realm, open_form, open_page, rendered
from worldprotocol.server.pages.page_table import PAGES, shows
from worldprotocol.server.request_body import body_of

Code = Annotated[str, Query(max_length=200)]
Next = Annotated[str, Query(alias="next", max_length=2_000)]


@shows("sign_in")
async def sign_in(request: Request, realm: str, code: Code = "", next_page: Next = "") -> Response:
    """Show as which actor a link signs in, or the issuers to sign in at.

    Opening the page uses up no link, since programs open links too.
    """
    if not code:
        return rendered(
            "sign_in/issuers", {"realm_name": realm, "choices": choices_of(service_of(request), realm, next_page)}
        )
    hosted = hosted_realm(request)
    with counted_failure(service_of(request), request):
        actor_id = service_of(request).links.actor_of(hosted.name, code)
    minutes = service_of(request).config.session_minutes
    return rendered(
        "sign_in/sign_in", {"realm_name": hosted.name, "actor_id": actor_id, "code": code, "minutes": minutes}
    )


@shows("begin_session")
async def begin_session(request: Request) -> Response:
    """Use up a link, record the session, and set its cookie."""
    check_origin(request)
    service, hosted = service_of(request), hosted_realm(request)
    with counted_failure(service, request):
        body = await body_of(request).read_unverified(address_of(request))
        form = await fields_of(body, service.checks)
        actor_id = service.links.use(hosted.name, form.get("code", ""))
    made = await service.threads.run(lambda: begun_session(service, hosted, actor_id, BrowserSession(method="link")))
    answer = RedirectResponse(f"/realms/{hosted.name}", 303, HEADERS)
    set_session(request, answer, hosted.name, made)
    return answer


@shows("end_session")
async def end_session(request: Request) -> Response:
    """Revoke the session and delete its cookie."""
    opened, _ = await open_form(request, "")
    call = opened.call
    access, token_id = call.hosted.realm.access, call.verified.token_id or ""
    await call.run(lambda: access.revoke_token(token_id, by=call.actor_id, reason="signed out"))
    values = {
        "realm_name": call.hosted.name,
        "logout": await logout_of(call.service, call.verified),
        "choices": choices_of(call.service, call.hosted.name, ""),
    }
    answer = rendered("sign_in/signed_out", values)
    unset_session(request, answer, call.hosted.name)
    return answer


@shows("home")
async def home(request: Request) -> Response:
    """Redirect to the first page that the caller may read."""
    opened = await open_page(request, "")
    for page in PAGES.values():
        if page.title and opened.may(page.operation):
            return RedirectResponse(f"/realms{page.path.format(realm=opened.call.hosted.name)}", 303, HEADERS)
    return await opened.show("nothing", {"title": "No rights"}, 403)
