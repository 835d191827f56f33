"""Application of the pages: one route for each page of the table, the style sheet and the script."""

from __future__ import annotations

import logging
from importlib.resources import files
from typing import Final
from urllib.parse import quote, urlencode

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from world.error_codes import ErrorCode
from world.errors import WorldProtocolError
from worldprotocol.html_pages.environment import base_style
from worldprotocol.server.call import service_of
from worldprotocol.server.pages import (  # noqa: F401  # they declare the handlers of the pages
    inbox_page,
    issuer_pages,
    lease_pages,
    log_pages,
    policy_pages,
    proof_page,
    proposal_pages,
    run_pages,
    session_pages,
    world_pages,
)
from worldprotocol.server.pages.page_call import rendered
from worldprotocol.server.pages.page_table import PAGES, SHOWN
from worldprotocol.server.service import Service

__all__ = ["create_pages", "start_page"]

FLOW_COOKIE: Final = "world_protocol_sign_in"
FLOW_S: Final = 600
"""Time in which a sign-in at an issuer has to end, in seconds."""

_LOGGER = logging.getLogger("worldprotocol.server")
_SCRIPT: Final = "text/javascript; charset=utf-8"
_STATIC: Final = {
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "inbox.js": _SCRIPT,
    "live.js": _SCRIPT,
    "proof.js": _SCRIPT,
    "receipt.js": _SCRIPT,
}


def create_pages(service: Service) -> FastAPI:
    """Return the application of the pages of a service.

    Args:
        service: realms and limits.
    """
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.service = service
    static = {name: _static(name) for name in _STATIC}

    def file(name: str) -> Response:
        if name not in static:
            raise HTTPException(404)
        return Response(static[name], headers={"Cache-Control": "no-cache"}, media_type=_STATIC[name])

    app.add_api_route("/-/{name}", file, methods=["GET"], name="static")
    for page in PAGES.values():
        app.add_api_route(page.path, SHOWN[page.name], methods=[page.method], name=page.name, response_model=None)
    if service.flows:
        _keep_flows(app, service)
    app.add_exception_handler(WorldProtocolError, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _failed)
    return app


def start_page(request: Request) -> Response:
    """Return the page of the server's address, which names no realm but public ones, and says how to sign in."""
    service = service_of(request)
    values = {"title": "World Protocol", "public": list(service.config.public), "has_issuers": bool(service.flows)}
    return rendered("start", values)


def _keep_flows(app: FastAPI, service: Service) -> None:
    """Give requests a session, in which a sign-in at an issuer is kept until the browser comes back."""
    from starlette.middleware.sessions import SessionMiddleware

    app.add_middleware(
        SessionMiddleware,
        secret_key=service.flow_key,
        session_cookie=FLOW_COOKIE,
        max_age=FLOW_S,
        path="/realms",
        same_site="lax",  # the issuer leads the browser back
        https_only=service.public_url.startswith("https:"),
    )


def _static(name: str) -> bytes:
    def text(of: str) -> str:
        return files(__package__ or "").joinpath("static", of).read_text("utf-8")

    return (base_style() + text(name) + text("records.css") if name == "style.css" else text(name)).encode()


async def _refused(request: Request, raised: Exception) -> Response:
    assert isinstance(raised, WorldProtocolError)
    error = service_of(request).answered(request.path_params.get("realm"), raised)
    code = ErrorCode(error.code)
    request.state.error_code = code.value
    values = {"title": code.text, "code": code.value, "message": error.message, "sign_in": _sign_in(request, code)}
    answer = rendered("error", values, code.http_status)
    if code.http_status in (429, 503):
        answer.headers["Retry-After"] = str(getattr(error, "retry_after_s", 1))
    return answer


def _sign_in(request: Request, code: ErrorCode) -> str | None:
    """Return the path of the page of sign-in, where that is what is missing and there is an issuer."""
    realm = request.path_params.get("realm")
    if code is not ErrorCode.SIGN_IN_REQUIRED or realm is None or not service_of(request).flows:
        return None
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    is_page = request.method == "GET" and "/sign-in" not in wanted
    query = f"?{urlencode({'next': issuer_pages.own_page(realm, wanted)})}" if is_page else ""
    return f"/realms/{quote(realm, safe='')}/sign-in{query}"


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = f"There is no page {request.url.path[:200]!r} for {request.method}."
    return rendered(
        "error", {"title": "No such page", "code": str(error.status_code), "message": words}, error.status_code
    )


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    words = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
    values = {"title": "The address is not valid", "code": ErrorCode.INVALID_VALUE.value, "message": words}
    return rendered("error", values, 400)


async def _failed(request: Request, error: Exception) -> Response:
    _LOGGER.error("%s %s failed", request.method, request.url.path, exc_info=error)
    code = ErrorCode.SERVER_FAILED
    words = "The server failed to make this page; its log has the cause."
    return rendered("error", {"title": code.text, "code": code.value, "message": words}, code.http_status)
